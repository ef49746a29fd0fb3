//! The records of explanations.

use crate::reasons::General;
use compiler::compile::GroupKind;
use compiler::name::Name;
use compiler::passes::PassStats;
use compiler::remark::Remark;
use compiler::trace::driver_stats::ExecutableRecord;
use compiler::trace::{DispatchTime, Errors, NodeError, TimeRow, Times};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;

/// A whole compilation.
#[derive(Serialize, JsonSchema)]
pub struct ModelExplained {
    /// As it was given.
    pub model: String,
    /// The device's.
    pub profile: String,
    /// Options that explain most.
    pub options: OptionsRecord,
    /// How many.
    pub dispatches: usize,
    /// How many distinct ones.
    pub kernels: usize,
    /// Groups, in the order they run.
    pub groups: Vec<GroupRecord>,
    /// Groups that take more than a fifth of the run, measured or estimated, by a schedule rule for any unit.
    pub general: Vec<General>,
    /// Each pass, in order.
    pub passes: Vec<PassStats>,
    /// Of all passes, in order.
    pub remarks: Vec<Remark>,
    /// Of a trace that `weft bench -o` wrote.
    pub times: Option<Times>,
    /// Of a trace that `weft compare -o` wrote.
    pub errors: Option<Errors>,
    /// Of a network that decides sizes while it runs; all above is then of the part that is known before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<Vec<PartRecord>>,
}

/// Options that explain most.
#[derive(Serialize, JsonSchema)]
pub struct OptionsRecord {
    /// Fusion.
    pub fuse: String,
    /// Data layout.
    pub layout: String,
    /// Mixed precision.
    pub amp: String,
    /// 0 to 3.
    pub opt_level: u8,
}

/// A group.
#[derive(Serialize, JsonSchema)]
pub struct GroupRecord {
    /// Its place in the compilation.
    pub id: usize,
    /// The layer and what is fused with it.
    pub name: String,
    /// The source node that stands for it.
    pub layer: String,
    /// How it runs.
    pub kind: GroupKind,
    /// In order.
    pub ops: Vec<String>,
    /// Its own, behind the passes.
    pub nodes: Vec<String>,
    /// Source nodes.
    pub origins: Vec<String>,
    /// The schedule rule.
    pub rule: String,
    /// The op that the rule takes.
    pub anchor: Option<String>,
    /// The anchor's.
    pub layout: Option<String>,
    /// Floating-point operations.
    pub flops: u64,
    /// Read and written.
    pub bytes: u64,
    /// Groups that read its results.
    pub feeds: Vec<usize>,
    /// Groups whose results it reads.
    pub reads: Vec<usize>,
    /// In order.
    pub dispatches: Vec<DispatchRecord>,
    /// Of all its dispatches, where they were timed.
    pub time: Option<DispatchTime>,
    /// Its worst node, where it was compared.
    pub error: Option<NodeError>,
    /// Why it ends where it does.
    pub boundary: Vec<String>,
    /// Of `--node`: the schedule rule that took it, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<Vec<String>>,
    /// Of `--node`: schedule rules that did not take it, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declined: Option<Vec<String>>,
}

/// A dispatch of a group.
#[derive(Serialize, JsonSchema)]
pub struct DispatchRecord {
    /// Its name.
    pub kernel: String,
    /// Its place in the compilation.
    pub kernel_id: usize,
    /// Floating-point operations.
    pub flops: u64,
    /// Read and written.
    pub bytes: u64,
    /// Workgroups along x, y, z.
    pub grid: [u32; 3],
    /// Threads along x, y, z.
    pub workgroup: [u32; 3],
    /// How many.
    pub bindings: usize,
    /// Workgroup memory.
    pub shared_bytes: u32,
    /// All accesses and index arithmetic are proved.
    pub bounds_proved: bool,
}

/// One source node.
#[derive(Serialize, JsonSchema)]
pub struct NodeExplained {
    /// As it was given.
    pub model: String,
    /// The node.
    pub node: String,
    /// Its lines in the shaders.
    pub lines: Vec<LinesRecord>,
    /// The groups that it went into.
    pub groups: Vec<GroupRecord>,
    /// About it.
    pub remarks: Vec<Remark>,
}

/// Neighbouring lines of a kernel.
#[derive(Serialize, JsonSchema)]
pub struct LinesRecord {
    /// The kernel's place in the compilation.
    pub kernel_id: usize,
    /// From 1.
    pub first: u32,
    /// The last one.
    pub last: u32,
}

/// The groups by what was measured of them.
#[derive(Serialize, JsonSchema)]
pub struct SortedExplained {
    /// As it was given.
    pub model: String,
    /// `time`, `error`.
    pub sort: String,
    /// Milliseconds of the run that all shares are of: the recorded one, `times.run.ms`.
    pub run_ms: f64,
    /// Where its time goes; together it is `run_ms`.
    pub spent: Vec<TimeRow>,
    /// The longest, or the worst, first.
    pub groups: Vec<MeasuredGroup>,
    /// Of `weft bench -o`.
    pub times: Option<Times>,
    /// Of `weft compare -o`.
    pub errors: Option<Errors>,
}

/// A group with what was measured of it.
#[derive(Serialize, JsonSchema)]
pub struct MeasuredGroup {
    /// Its place in the compilation.
    pub id: usize,
    /// The layer and what is fused with it.
    pub name: String,
    /// The source node that stands for it.
    pub layer: String,
    /// Source nodes.
    pub origins: Vec<String>,
    /// The schedule rule.
    pub rule: String,
    /// Of all its dispatches.
    pub time: Option<DispatchTime>,
    /// Of `run_ms`.
    pub share: Option<f64>,
    /// 10^9 floating-point operations a second.
    pub gflops: Option<f64>,
    /// 10^9 bytes a second.
    pub gb_s: Option<f64>,
    /// Its worst node.
    pub error: Option<NodeError>,
    /// Estimate: what f32 would cost more; null where nothing of it is f16.
    pub f32_ms: Option<f64>,
}

/// Results that go from kernel to kernel through memory.
#[derive(Serialize, JsonSchema)]
pub struct LeftExplained {
    /// As it was given.
    pub model: String,
    /// The device's.
    pub profile: String,
    /// The most bytes first.
    pub edges: Vec<EdgeRecord>,
}

/// A result that goes from kernel to kernel through memory.
#[derive(Serialize, JsonSchema)]
pub struct EdgeRecord {
    /// Group that writes the result.
    pub from: usize,
    /// Its name.
    pub from_name: String,
    /// Groups whose kernels read it.
    pub to: Vec<usize>,
    /// Their names.
    pub to_names: Vec<String>,
    /// Of the result.
    #[serde(rename = "type")]
    pub ty: String,
    /// Written, and read by each reader.
    pub bytes: u64,
    /// How often the readers read an element.
    pub reads: Option<f64>,
    /// Estimate for moving these bytes.
    pub moving_ms: f64,
    /// Estimate for computing the result again for each read but the first.
    pub again_ms: Option<f64>,
    /// The difference: what one kernel could gain at most; below 0 it would lose.
    pub gain_ms: Option<f64>,
    /// Why both are not one kernel.
    pub why: Vec<String>,
}

/// One kernel.
#[derive(Serialize, JsonSchema)]
pub struct KernelExplained {
    /// As it was given.
    pub model: String,
    /// Its name.
    pub kernel: String,
    /// Its place in the compilation.
    pub kernel_id: usize,
    /// The device's.
    pub profile: String,
    /// Null where nothing was measured.
    pub measured: Option<MeasuredKernel>,
    /// Its schedule.
    pub picked: Option<AlternativeRecord>,
    /// Schedules with one choice changed, the cheapest first.
    pub alternatives: Vec<AlternativeRecord>,
    /// Of a trace that holds them: what its driver made of this kernel, as `executables` above.
    #[schemars(with = "Option<Vec<serde_json::Value>>")]
    pub driver_stats: Option<Vec<ExecutableRecord>>,
}

/// The time of a kernel on a device.
#[derive(Serialize, JsonSchema)]
pub struct MeasuredKernel {
    /// Of one dispatch: the mean of their medians.
    pub us: f64,
    /// In a run.
    pub dispatches: usize,
    /// 10^9 floating-point operations a second.
    pub gflops: f64,
    /// 10^9 bytes a second.
    pub gb_s: f64,
    /// Of the nearer measured ceiling.
    pub roofline_fraction: Option<f64>,
}

/// A schedule of a kernel's tensor function.
#[derive(Serialize, JsonSchema)]
pub struct AlternativeRecord {
    /// The one choice that differs; those behind it follow from it.
    pub choice: Option<ChoiceRecord>,
    /// All of them.
    pub choices: Vec<ChoiceRecord>,
    /// Null where it cannot be.
    pub estimate: Option<EstimateRecord>,
    /// Why it cannot be.
    pub refused: Option<String>,
}

/// A choice of a schedule rule.
#[derive(Serialize, JsonSchema)]
pub struct ChoiceRecord {
    /// The block that the choice is about.
    pub unit: String,
    /// The name of the choice.
    pub point: String,
    /// As in a schedule.
    pub value: String,
}

/// An estimate of all kernels of a tensor function.
#[derive(Serialize, JsonSchema)]
pub struct EstimateRecord {
    /// Microseconds.
    pub us: f64,
    /// The largest part.
    pub bound: String,
    /// `arithmetic`, `issue`, `shared_passes`, `sectors`, `waves`, `launch`.
    #[schemars(with = "std::collections::BTreeMap<String, f64>")]
    pub parts_us: IndexMap<String, f64>,
    /// The share that runs beside the rest.
    pub hidden_us: f64,
    /// How many.
    pub kernels: usize,
}

/// A part of a network that decides sizes while it runs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PartRecord {
    /// `before`, `deciding`, `after`.
    pub name: &'static str,
    /// `device`, `host`, or `decided`: where a run has decided its sizes.
    pub runs: &'static str,
    /// Its nodes, without constants.
    pub nodes: Vec<PartNode>,
    /// Its operands.
    pub inputs: Vec<ValueRecord>,
    /// Its results.
    pub results: Vec<ValueRecord>,
    /// Sizes that the host reads before the part is compiled.
    pub reads: Vec<SizeRecord>,
    /// Sizes that a run of the part decides.
    pub decides: Vec<SizeRecord>,
}

/// A value between parts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ValueRecord {
    /// Its name.
    pub name: String,
    /// Of an element.
    pub dtype: String,
    /// Null for what no one knows yet.
    pub shape: Vec<Option<i64>>,
    /// Each dimension as an expression.
    pub shape_expr: Vec<String>,
}

/// A size that a run decides.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SizeRecord {
    /// Its name.
    pub symbol: String,
    /// The node that has it in a result.
    pub node: String,
    /// The values that say it; empty if the node itself has to run.
    pub from: Vec<String>,
}

/// A node of a part.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PartNode {
    /// Its name.
    #[schemars(with = "String")]
    pub name: Name,
    /// Its op.
    pub op: &'static str,
    /// `device` or `host`.
    pub runs: &'static str,
}
