//! The compile trace: a record of a compilation, in one file of some hundred kilobytes: text of each stage as deltas,
//! remarks, groups, kernels, plan, times and errors.
//!
//! [`CompileTrace::new`] takes it from a [`Compiled`](crate::compile::Compiled) module; [`CompileTrace::to_bytes`] and
//! [`CompileTrace::from_bytes`] are its file form (magic, version, compressed). `weft compile -o` writes it; `weft
//! inspect`, `explain`, `diff` and the viewer read it. [`CompileTrace::record`] is the JSON of `weft compile --json`.
//!
//! Always holds: [`CompileTrace::stage_texts`] gives exactly the text after each pass, byte for byte; stage `i + 1`
//! belongs to `passes[i]`; each distinct kernel is stored once, and calls and groups refer to it by index; indices are
//! in range (checked on reading).
//!
//! Deliberately absent: the data of weights. A trace has their hashes, shapes and histograms.

mod borders;
pub mod comparison;
pub mod delta;
pub mod diff;
pub mod driver_stats;
mod error;
mod estimated;
mod file;
mod frames;
mod join;
pub mod json;
mod measured;
mod nodes;
mod open;
mod origins;
mod overlay;
mod plan;
mod provenance;
mod record;
mod round_trips;
mod spans;
mod times;
pub mod weights;

#[cfg(test)]
mod tests;

pub use comparison::Comparison;
pub use delta::{Hunk, TextDelta};
pub use diff::TraceDiff;
pub use driver_stats::DriverStats;
pub use error::{TraceError, VERSION};
pub use estimated::Stored;
pub use file::MAGIC;
pub use join::{name_in_part, texts_of_parts};
pub use measured::{Ceilings, DispatchTime, Errors, NodeError, RangesInF16, Taken, Times};
pub use open::{OpenCall, OpenDim};
pub use origins::{LineOrigins, line_origins};
pub use overlay::{Overlay, OverlayValue};
pub use plan::{BufferView, Call, Content, Plan, PlanBuffer, PlanFunction, Step};
pub(crate) use provenance::KernelParts;
pub use provenance::{KernelBlock, KernelLines, KernelLoop};
pub use record::{Recording, StageRecorder};
pub use round_trips::RoundTrip;
pub use spans::{Kind, Lane, NOT_ATTRIBUTED, RunSpans, Span, TimeRow};
pub use weights::WeightSummary;

use crate::passes::PassStats;
use crate::remark::Remark;
use crate::report::{GroupKind, MemoryReport, TransposeReport};
use crate::schedule::ScheduleOptions;
use serde::{Deserialize, Serialize};

/// The contents of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Everything. Weights are read once; the stages are there when the compilation recorded them.
    Full,
    /// Enough for tables and JSON: no weights, no SPIR-V.
    Summary,
}

/// A record of a compilation.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CompileTrace {
    /// Name of the model, as the caller called it.
    pub model: String,
    /// Version of Weft.
    pub weft: String,
    /// The device compiled for, as JSON: fields come and go with devices' features.
    pub profile: String,
    /// Name of that device.
    pub profile_name: String,
    /// Options of the compilation.
    pub options: Options,
    /// Dimensions that stay open. Numbers that depend on them are for the least sizes.
    pub dims: Vec<OpenDim>,
    /// Nodes of the model before any pass.
    pub sources: Vec<SourceNode>,
    /// The module before the passes, after each of them, lowered (tensor functions with their schedules pending), and
    /// scheduled.
    pub stages: Vec<Stage>,
    /// Statistics of each pass.
    pub passes: Vec<PassStats>,
    /// Remarks of all passes, in order.
    pub remarks: Vec<Remark>,
    /// Fused groups in execution order.
    pub groups: Vec<Group>,
    /// Distinct kernels.
    pub kernels: Vec<Kernel>,
    /// Buffers and steps.
    pub plan: Plan,
    /// Byte counts.
    pub memory: MemoryReport,
    /// Layout changes in the graph that reached fusion.
    pub transposes: TransposeReport,
    /// Constants of the model.
    pub weights: Vec<WeightSummary>,
    /// The parts of a network in which data decide sizes, in the order they run; none of a network that is one part.
    pub parts: Vec<TracePart>,
    /// Milliseconds of the whole compilation; 0 without a clock.
    pub compile_ms: f64,
    /// Milliseconds by part, in order; the passes have their own.
    pub timings: Vec<(String, f64)>,
    /// Times on a device, where they were measured.
    pub times: Option<Times>,
    /// Errors against a reference, where they were measured.
    pub errors: Option<Errors>,
    /// Ranges of the values that are stored in f16, where they were measured.
    pub ranges: Option<RangesInF16>,
    /// Statistics of the driver's compiler about each kernel, if they were requested.
    pub driver_stats: Option<DriverStats>,
    /// Values of nodes from outside, if some are to be shown; the file of a trace does not hold them.
    #[serde(skip)]
    pub overlay: Option<Overlay>,
}

/// Options of a compilation.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Options {
    /// Mixed precision.
    pub amp: String,
    /// Layout.
    pub layout: String,
    /// Fusion.
    pub fuse: String,
    /// Opt level, 0 to 3.
    pub opt_level: u8,
    /// Passes that never ran.
    pub disabled: Vec<String>,
    /// The pipeline.
    pub pipeline: Vec<String>,
    /// What was asked of the schedule rules.
    pub scheduling: ScheduleOptions,
    /// Options by name as the user gave them.
    pub asked: Vec<(String, String)>,
}

/// A node of the model before any pass.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceNode {
    /// Name.
    pub name: String,
    /// Op name.
    pub op: String,
    /// Its origins: usually its own name.
    pub origins: Vec<String>,
}

/// The module at one point of the pipeline.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stage {
    /// `source`, the pass that made it, `lowered` or `scheduled`.
    pub label: String,
    /// The difference from the stage before; for the first stage, from an empty text.
    pub delta: TextDelta,
}

/// A fused group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Its primitive function.
    pub function: String,
    /// The source node that represents it.
    pub layer: String,
    /// A short name of the layer and the ops fused with it.
    pub label: String,
    /// Source nodes, sorted.
    pub origins: Vec<String>,
    /// The group has no source node: passes inserted all of it. `origins` are the nodes that it serves.
    pub inserted: bool,
    /// For each stage of its tensor function the positions of its source nodes in `origins`.
    pub stages: Vec<Vec<u32>>,
    /// Op names in order.
    pub ops: Vec<String>,
    /// Names of its nodes, in order.
    pub nodes: Vec<String>,
    /// Op name of the anchor.
    pub anchor: Option<String>,
    /// Layout of the anchor.
    pub layout: Option<String>,
    /// Schedule rule; empty for views and host groups.
    pub rule: String,
    /// How it runs.
    pub kind: GroupKind,
    /// The tensor function, shared by equal groups.
    pub tensor_function: Option<String>,
    /// The host function that it calls.
    pub host_function: Option<String>,
    /// Groups whose results it reads.
    pub reads: Vec<usize>,
    /// A result of it is one of the model's.
    pub is_result: bool,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes of operands and results.
    pub bytes: u64,
    /// These bytes as an expression of the open dimensions, where there are some.
    pub open_bytes: Option<String>,
}

/// A distinct kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kernel {
    /// Unique in the trace: the layer of its first call, and what is fused with it.
    pub name: String,
    /// Entry point of the shader.
    pub entry: String,
    /// Tensor function it came from.
    pub function: String,
    /// The schedule of that function: the text of each instruction.
    pub schedule: Vec<String>,
    /// For each instruction the stages of the blocks that it is about.
    pub instructions: Vec<Vec<u32>>,
    /// Its blocks, in order.
    pub blocks: Vec<KernelBlock>,
    /// Its loops, outer ones first.
    pub loops: Vec<KernelLoop>,
    /// The origin of lines of the WGSL text, in order; other lines belong to the whole kernel.
    pub lines: Vec<KernelLines>,
    /// The conditions on the sizes that it is for; empty if it is for all sizes.
    pub when: Vec<String>,
    /// The groups that it serves, for these sizes or others.
    pub groups: Vec<usize>,
    /// Threads of a workgroup.
    pub workgroup: [u32; 3],
    /// Workgroups of a dispatch.
    pub grid: [u32; 3],
    /// Bindings in order.
    pub bindings: Vec<Binding>,
    /// Bytes of workgroup memory.
    pub shared_bytes: u32,
    /// Bytes of immediates.
    pub immediate_bytes: u32,
    /// `f16` when a buffer that it reads or writes holds f16, else `f32`.
    pub dtype: String,
    /// All accesses and index arithmetic proved.
    pub bounds_proved: bool,
    /// WGSL text.
    pub wgsl: String,
    /// SPIR-V words, little-endian.
    #[serde(with = "bytes_as_one")]
    pub spirv: Vec<u8>,
}

/// A part of a network in a joined trace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TracePart {
    /// Its name: `before`, `deciding`, `after`, `after.before`.
    pub name: String,
    /// Index of its first group; they end where those of the next part begin.
    pub group: usize,
    /// Index of its first kernel.
    pub kernel: usize,
    /// Milliseconds of the part, if the host computes it and it was measured.
    pub host_ms: Option<f64>,
}

/// A storage binding of a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Binding {
    /// Buffer of the tensor function.
    pub buffer: String,
    /// Its slice, if it exceeds one binding.
    pub slice: u32,
    /// Written rather than read.
    pub written: bool,
}

impl CompileTrace {
    /// Text of every stage, in order.
    ///
    /// # Errors
    /// [`TraceError::Damaged`] when a delta does not fit the stage before it.
    pub fn stage_texts(&self) -> Result<Vec<String>, TraceError> {
        let mut texts: Vec<String> = Vec::with_capacity(self.stages.len());
        for s in &self.stages {
            let before = texts.last().map_or("", String::as_str);
            let text = s.delta.apply(before);
            texts.push(text.ok_or_else(|| TraceError::Damaged(format!("stage `{}` does not fit", s.label)))?);
        }
        Ok(texts)
    }
    /// Text of one stage; `None` past the last one.
    ///
    /// # Errors
    /// [`TraceError::Damaged`] when a delta does not fit the stage before it.
    pub fn stage_text(&self, index: usize) -> Result<Option<String>, TraceError> {
        if index >= self.stages.len() {
            return Ok(None);
        }
        let mut text = String::new();
        for s in &self.stages[..=index] {
            text = s.delta.apply(&text).ok_or_else(|| TraceError::Damaged(format!("stage `{}`", s.label)))?;
        }
        Ok(Some(text))
    }
    /// Dispatches in order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.plan.steps.iter().flat_map(|s| if let Step::Gpu(list) = s { list.as_slice() } else { &[] })
    }
    /// Kernels of a group, in the order of their dispatches.
    pub fn kernels_of(&self, group: usize) -> Vec<usize> {
        self.calls().filter(|c| c.group == group).map(|c| c.kernel).collect()
    }
    /// Groups that run a kernel, for these sizes or others.
    pub fn groups_of(&self, kernel: usize) -> Vec<usize> {
        self.kernels[kernel].groups.clone()
    }
    /// Groups that a source node went into.
    pub fn groups_of_node(&self, node: &str) -> Vec<usize> {
        let holds = |g: &Group| g.origins.iter().chain(&g.nodes).any(|n| n == node);
        (0..self.groups.len()).filter(|&i| holds(&self.groups[i])).collect()
    }

    /// True if the numbers of group `i` are for requested sizes, at least as the lower end of a range.
    pub fn is_stated(&self, i: usize) -> bool {
        self.calls().filter(|c| c.group == i).all(|c| c.open.as_ref().is_none_or(|o| o.declared))
    }

    /// Every index is in range, so that readers need not look.
    fn check(&self) -> Result<(), TraceError> {
        let (groups, kernels) = (self.groups.len(), self.kernels.len());
        let reads = self.groups.iter().all(|g| g.reads.iter().all(|&r| r < groups) && g.stages_fit());
        let parts = self.kernels.iter().all(|k| k.parts_fit() && k.groups.iter().all(|&g| g < groups));
        let times = self.times.as_ref().is_none_or(|t| t.dispatches.len() == self.calls().count());
        let stats = self.driver_stats.as_ref().is_none_or(|s| s.kernels.len() == kernels);
        let joined = self.parts.iter().all(|p| p.group <= groups && p.kernel <= kernels);
        match joined && reads && parts && times && stats && self.plan.fits(groups, kernels) {
            true => Ok(()),
            false => Err(TraceError::Damaged("its plan names something that is not there".into())),
        }
    }
}

/// Bytes as one run rather than as a list of numbers.
mod bytes_as_one {
    use serde::de::{Error, SeqAccess, Visitor};
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(bytes)
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        struct Run;
        impl<'de> Visitor<'de> for Run {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: Error>(self, v: &[u8]) -> Result<Vec<u8>, E> {
                Ok(v.to_vec())
            }
            fn visit_byte_buf<E: Error>(self, v: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(v)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u8>, A::Error> {
                let mut out = Vec::new();
                while let Some(b) = seq.next_element()? {
                    out.push(b);
                }
                Ok(out)
            }
        }
        d.deserialize_byte_buf(Run)
    }
}
