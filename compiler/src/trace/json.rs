//! The record of `weft compile --json`.

use super::driver_stats::StatsRecord;
use super::{Call, CompileTrace, Errors, Group, Kernel, KernelLines, OpenDim, RangesInF16, Times};
use crate::passes::PassStats;
use crate::remark::Remark;
use crate::report::{GroupKind, TransposeReport};
use schemars::JsonSchema;
use serde::Serialize;

/// A compilation: `schema` 1. Where dimensions stay open, numbers that depend on them are for the least sizes that were
/// declared, and none where one of these dimensions has no declared range.
#[derive(Serialize, JsonSchema)]
pub struct CompileRecord<'t> {
    /// 1
    pub schema: u8,
    /// The model's.
    pub model: &'t str,
    /// The device's.
    pub profile: &'t str,
    /// Options that explain most.
    pub options: OptionsRecord<'t>,
    /// Each pass, in order.
    pub passes: &'t [PassStats],
    /// Fused groups in execution order.
    pub groups: Vec<GroupRecord<'t>>,
    /// Distinct kernels.
    pub kernels: Vec<KernelRecord<'t>>,
    /// Dispatches in order.
    pub calls: Vec<CallRecord<'t>>,
    /// Layout changes in the graph that reached fusion.
    pub transposes: TransposeReport,
    /// Bytes on the device.
    pub memory: MemoryRecord,
    /// Remarks of all passes, in order.
    pub remarks: &'t [Remark],
    /// Milliseconds of the whole compilation.
    pub compile_ms: f64,
    /// Dimensions that stay open; absent where all sizes are fixed.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub dims: &'t [OpenDim],
    /// Of a trace that `weft bench -o` wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<&'t Times>,
    /// Of a trace that `weft compare -o` wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<&'t Errors>,
    /// Of a trace that `weft compare --data FOLDER -o` wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranges: Option<&'t RangesInF16>,
    /// With `--emit isa`, and of a trace that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_stats: Option<StatsRecord>,
}

/// Options that explain most.
#[derive(Serialize, JsonSchema)]
pub struct OptionsRecord<'t> {
    /// Mixed precision.
    pub amp: &'t str,
    /// Data layout.
    pub layout: &'t str,
    /// Fusion.
    pub fuse: &'t str,
    /// 0 to 3.
    pub opt_level: u8,
}

/// Bytes on the device.
#[derive(Serialize, JsonSchema)]
pub struct MemoryRecord {
    /// Constants.
    pub weights: u64,
    /// The pool of intermediates.
    pub activations_peak: Option<u64>,
    /// The sum over the intermediates left after fusion.
    pub activations_naive: Option<u64>,
}

/// A group.
#[derive(Serialize, JsonSchema)]
pub struct GroupRecord<'t> {
    /// Its place in this list.
    pub id: usize,
    /// The layer and what is fused with it.
    pub name: &'t str,
    /// The source node that stands for it.
    pub layer: &'t str,
    /// Source nodes, sorted; of a group that passes put in, those that it serves.
    pub origins: &'t [String],
    /// Passes put it in: none of `origins` is computed in it. With `--fuse classic` each source node is in exactly one
    /// of the others.
    pub inserted: bool,
    /// Source nodes of each stage of its tensor function.
    pub stages: Vec<Vec<&'t str>>,
    /// In order.
    pub ops: &'t [String],
    /// The op that a schedule rule takes.
    pub anchor: Option<&'t str>,
    /// The schedule rule.
    pub rule: &'t str,
    /// The anchor's.
    pub layout: Option<&'t str>,
    /// How it runs; in `control`, a branch or a loop, the host reads what decides, and what is inside has groups of its
    /// own.
    pub kind: GroupKind,
    /// The host function that it calls, or the region that an external target runs.
    pub host_function: Option<&'t str>,
    /// Floating-point operations.
    pub flops: Option<u64>,
    /// Read and written by its dispatches.
    pub bytes: Option<u64>,
    /// Ids of groups whose results it reads.
    pub reads: &'t [usize],
    /// Positions in `remarks`.
    pub remarks: Vec<usize>,
    /// `bytes` for any sizes, where it depends on open ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_expr: Option<&'t str>,
}

/// A distinct kernel.
#[derive(Serialize, JsonSchema)]
pub struct KernelRecord<'t> {
    /// Its place in this list.
    pub id: usize,
    /// Unique: the layer of its first call, and what is fused with it.
    pub name: &'t str,
    /// The file that `--emit-dir` writes, without extension.
    pub file: String,
    /// Source nodes that stand for the groups which run it.
    pub layers: Vec<&'t str>,
    /// Ids of `groups`.
    pub groups: &'t [usize],
    /// Entry point of the shader.
    pub entry: &'t str,
    /// The tensor function.
    pub function: &'t str,
    /// Instructions as text.
    pub schedule: &'t [String],
    /// Stages that each instruction of `schedule` is about.
    pub instruction_stages: &'t [Vec<u32>],
    /// Threads along x, y, z.
    pub workgroup: [u32; 3],
    /// How many.
    pub bindings: usize,
    /// Workgroup memory.
    pub shared_bytes: u32,
    /// `f16` when a buffer that it reads or writes holds f16, else `f32`.
    pub dtype: &'t str,
    /// All accesses and index arithmetic are proved.
    pub bounds_proved: bool,
    /// Of its text.
    pub wgsl_bytes: usize,
    /// Source nodes.
    pub nodes: Vec<&'t str>,
    /// Its blocks, in order.
    pub blocks: Vec<BlockRecord<'t>>,
    /// Its loops, outer ones first.
    pub loops: Vec<LoopRecord<'t>>,
    /// Runs of WGSL lines: first and last (from 1), block or null, loop or null; other lines are the whole kernel's.
    pub lines: Vec<(u32, u32, Option<&'t str>, Option<&'t str>)>,
    /// Conditions on the sizes that it is for, as text; absent: it is for all that no other kernel of its groups is
    /// for.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub when: &'t [String],
}

/// A block of a kernel.
#[derive(Serialize, JsonSchema)]
pub struct BlockRecord<'t> {
    /// In the tensor function.
    pub name: &'t str,
    /// Stages that it computes.
    pub stages: &'t [u32],
    /// Source nodes.
    pub nodes: Vec<&'t str>,
}

/// A loop of a kernel.
#[derive(Serialize, JsonSchema)]
pub struct LoopRecord<'t> {
    /// Variable.
    pub var: &'t str,
    /// Iterations.
    pub extent: &'t str,
    /// `for`, `unroll`, `vectorize`, `group_x`, `local_x` ...
    pub kind: &'t str,
    /// The instruction of `schedule` that made it.
    pub instruction: Option<u32>,
    /// Names of the blocks in it.
    pub blocks: Vec<&'t str>,
    /// Source nodes.
    pub nodes: Vec<&'t str>,
}

/// A dispatch.
#[derive(Serialize, JsonSchema)]
pub struct CallRecord<'t> {
    /// Its place in this list.
    pub id: usize,
    /// A name of `kernels`.
    pub kernel: &'t str,
    /// An id of `kernels`.
    pub kernel_id: usize,
    /// An id of `groups`.
    pub group: usize,
    /// Workgroups along x, y, z.
    pub grid: Option<[u32; 3]>,
    /// Its own; over a group they sum to the group's.
    pub flops: Option<u64>,
    /// Its own; over a group they sum to the group's.
    pub bytes: Option<u64>,
    /// `grid` for any sizes, where it or `bytes` depends on open ones; of a group that has kernels with `when`, for all
    /// sizes that take the same ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grid_expr: Option<&'t [String; 3]>,
    /// As `grid_expr`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_expr: Option<&'t str>,
}

impl CompileTrace {
    /// The record of the driver's statistics.
    pub fn stats_record(&self) -> Option<StatsRecord> {
        let names = self.kernels.iter().enumerate().map(|(i, k)| (k.name.as_str(), k.file(i)));
        Some(self.driver_stats.as_ref()?.record(names))
    }
    /// The record of `weft compile --json`. Lines are counted from 1.
    pub fn record(&self) -> CompileRecord<'_> {
        let (o, m) = (&self.options, &self.memory);
        let known = |bytes: u64| self.dims.iter().all(|d| d.declared).then_some(bytes);
        CompileRecord {
            schema: 1,
            model: &self.model,
            profile: &self.profile_name,
            options: OptionsRecord { amp: &o.amp, layout: &o.layout, fuse: &o.fuse, opt_level: o.opt_level },
            passes: &self.passes,
            groups: self.groups.iter().enumerate().map(|(i, g)| self.group_record(i, g)).collect(),
            kernels: self.kernels.iter().enumerate().map(|(i, k)| self.kernel_record(i, k)).collect(),
            calls: self.calls().enumerate().map(|(i, c)| self.call_record(i, c)).collect(),
            transposes: self.transposes,
            memory: MemoryRecord {
                weights: m.weights,
                activations_peak: known(m.activations_peak),
                activations_naive: known(m.activations_naive),
            },
            remarks: &self.remarks,
            compile_ms: self.compile_ms,
            dims: &self.dims,
            times: self.times.as_ref(),
            errors: self.errors.as_ref(),
            ranges: self.ranges.as_ref(),
            driver_stats: self.stats_record(),
        }
    }

    fn group_record<'t>(&'t self, i: usize, g: &'t Group) -> GroupRecord<'t> {
        let stated = self.is_stated(i);
        GroupRecord {
            id: i,
            name: &g.label,
            layer: &g.layer,
            origins: &g.origins,
            inserted: g.inserted,
            stages: (0..g.stages.len()).map(|s| g.nodes_of_stages(&[s as u32])).collect(),
            ops: &g.ops,
            anchor: g.anchor.as_deref(),
            rule: &g.rule,
            layout: g.layout.as_deref(),
            kind: g.kind,
            host_function: g.host_function.as_deref(),
            flops: stated.then_some(g.flops),
            bytes: stated.then_some(g.bytes),
            reads: &g.reads,
            remarks: self.remarks_of_group(i),
            bytes_expr: g.open_bytes.as_deref(),
        }
    }

    fn kernel_record<'t>(&'t self, i: usize, k: &'t Kernel) -> KernelRecord<'t> {
        let block_names = |list: &[u32]| list.iter().map(|&b| k.blocks[b as usize].name.as_str()).collect();
        let line = |l: &KernelLines| {
            let block = l.block.map(|b| k.blocks[b as usize].name.as_str());
            let around = l.r#loop.map(|l| k.loops[l as usize].var.as_str());
            (l.first + 1, l.first + l.count, block, around)
        };
        let blocks = k.blocks.iter().enumerate();
        let loops = k.loops.iter().enumerate().map(|(at, l)| LoopRecord {
            var: &l.var,
            extent: &l.extent,
            kind: &l.kind,
            instruction: l.maker,
            blocks: block_names(&l.blocks),
            nodes: self.nodes_of_loop(i, at),
        });
        KernelRecord {
            id: i,
            name: &k.name,
            file: k.file(i),
            layers: k.groups.iter().map(|&g| self.groups[g].layer.as_str()).collect(),
            groups: &k.groups,
            entry: &k.entry,
            function: &k.function,
            schedule: &k.schedule,
            instruction_stages: &k.instructions,
            workgroup: k.workgroup,
            bindings: k.bindings.len(),
            shared_bytes: k.shared_bytes,
            dtype: &k.dtype,
            bounds_proved: k.bounds_proved,
            wgsl_bytes: k.wgsl.len(),
            nodes: self.nodes_of_stages(i, &[]),
            blocks: blocks
                .map(|(b, block)| BlockRecord {
                    name: &block.name,
                    stages: &block.stages,
                    nodes: self.nodes_of_block(i, b),
                })
                .collect(),
            loops: loops.collect(),
            lines: k.lines.iter().map(line).collect(),
            when: &k.when,
        }
    }

    fn call_record<'t>(&'t self, i: usize, c: &'t Call) -> CallRecord<'t> {
        let stated = c.open.as_ref().is_none_or(|o| o.declared);
        CallRecord {
            id: i,
            kernel: &self.kernels[c.kernel].name,
            kernel_id: c.kernel,
            group: c.group,
            grid: stated.then_some(c.grid),
            flops: stated.then_some(c.flops),
            bytes: stated.then_some(c.bytes),
            grid_expr: c.open.as_ref().map(|o| &o.grid),
            bytes_expr: c.open.as_ref().map(|o| o.bytes.as_str()),
        }
    }
}
