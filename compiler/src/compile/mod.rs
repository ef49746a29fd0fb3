//! The compilation pipeline: graph passes, lowering of groups to tensor functions, schedules, kernels, plan.
//!
//! [`compile`] runs all of it, [`compile_graph`] the passes only. [`lower_module`] does the part after the passes. It
//! takes a module whose entry function consists of constants, calls of primitive functions (fused groups) and, if the
//! device cannot run them, other nodes; it leaves `call_tensor`s, tensor functions and a [`Plan`].

mod alone;
mod callees;
mod check;
mod constant_encodings;
mod dispatches;
mod edited;
mod forms;
mod groups;
mod host;
mod kept_kernels;
mod kernels;
mod loop_parts;
mod measure;
mod memory;
mod names;
mod network_parts;
mod numbering;
mod open;
mod planning;
mod positions;
mod ready;
mod regions;
mod residency;
mod steps;
mod storage;
mod trace;
mod transposes;
mod verify_plan;
mod work;

pub use crate::report::{GroupKind, MemoryReport, TransposeReport};
pub use alone::{constant_operands, function_alone, operand_buffers};
pub use edited::{EditRefused, Edited, compile_edited};
pub use forms::assign_encodings;
pub use host::{are_of_types, bind_host_steps, renumber_host_steps};
pub use kept_kernels::KeepKernels;
pub use loop_parts::{LoopParts, split_loop};
pub use measure::{AskedFunction, KernelTimes, MeasuredCost};
pub use memory::{Lifetime, assign_pool};
pub use network_parts::{NetworkParts, PartValue, SizedNode, split_network};
pub use open::{KernelVersion, OpenPlan, SizeError, check_ranges};
pub use positions::lost_positions;

use crate::attr::AttrStruct;
use crate::cost::EstimatedCost;
use crate::graph::Module;
use crate::int::DimRanges;
use crate::name::Name;
use crate::passes::mixed_precision::check_listed;
use crate::passes::{
    Clock, FuseMode, FuseOps, Pass, PassContext, PassInstrument, PassStats, PipelineOptions, Sequential,
    check_own_passes, default_pipeline,
};
use crate::plan::{Content, EmitKernel, Plan};
use crate::profile::DeviceProfile;
use crate::remark::Remark;
use crate::schedule::{Rules, ScheduleProvider, ScheduleTarget};
use crate::tir::TensorFunction;
use crate::trace::{Recording, StageRecorder};
use indexmap::IndexMap;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
pub use transposes::count_transposes;

/// One fused group of the compiled module.
#[derive(Clone, Debug)]
pub struct Group {
    /// Primitive function of the group.
    pub function: Name,
    /// The source node that represents it: its anchor, or else its first source node.
    pub layer: Name,
    /// A short name of the layer and the ops fused with it.
    pub label: String,
    /// Source nodes, sorted.
    pub origins: Vec<Name>,
    /// The group has no source node: passes inserted all of it. `origins` are the nodes that it serves.
    pub inserted: bool,
    /// Source nodes of each stage of its unscheduled tensor function. Empty for a function of the source module: each
    /// of its stages belongs to all origins.
    pub stages: Vec<Vec<Name>>,
    /// Op names in order.
    pub ops: Vec<&'static str>,
    /// Names of the group's nodes, in order.
    pub nodes: Vec<Name>,
    /// Op name of the anchor.
    pub anchor: Option<&'static str>,
    /// Layout of the anchor.
    pub layout: Option<&'static str>,
    /// Schedule rule; empty for views and host groups.
    pub rule: &'static str,
    /// How it runs.
    pub kind: GroupKind,
    /// The tensor function (shared by equal groups).
    pub tensor_function: Option<Name>,
    /// The host function that it calls.
    pub host_function: Option<Name>,
    /// Groups whose results it reads, by their position.
    pub reads: Vec<usize>,
    /// A result of it is one of the model's.
    pub is_result: bool,
    /// Floating-point operations (two per multiply-accumulate, one per element of other ops).
    pub flops: u64,
    /// Bytes that its dispatches read and write: operands, results and scratch between them.
    pub bytes: u64,
}

/// The result of a compilation.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The module after all passes: `call_tensor`s in the entry function, scheduled tensor functions.
    pub module: Module,
    /// The tensor functions before scheduling, with the trace as pending instructions.
    pub unscheduled: IndexMap<Name, TensorFunction>,
    /// Those of them that are versions of others, for some sizes only.
    pub versions: FxHashSet<Name>,
    /// The groups, in execution order.
    pub groups: Vec<Group>,
    /// The plan; with open sizes, that for the least of them.
    pub plan: Plan,
    /// Makes plans for other sizes; `None` if no size is open.
    pub open: Option<Arc<OpenPlan>>,
    /// Byte counts.
    pub memory: MemoryReport,
    /// Remarks of all passes.
    pub remarks: Vec<Remark>,
    /// Statistics of each pass.
    pub passes: Vec<PassStats>,
    /// Layout changes in the graph that reached `fuse-ops`.
    pub transposes: TransposeReport,
    /// Text of the module before and after passes, where asked for.
    pub printed: Vec<(String, String)>,
    /// The device compiled for.
    pub profile: DeviceProfile,
    /// Milliseconds of the whole compilation; 0 without a clock.
    pub ms: f64,
    /// Milliseconds by part; empty without a clock.
    pub timings: Vec<(String, f64)>,
    /// The text of each stage, where [`CompileOptions::record`] asked for it.
    pub recording: Option<Recording>,
}

impl Compiled {
    /// Of a module without groups, kernels and plan.
    fn empty(module: Module, profile: &DeviceProfile) -> Compiled {
        Compiled {
            module,
            unscheduled: IndexMap::new(),
            versions: FxHashSet::default(),
            groups: vec![],
            plan: Plan::default(),
            open: None,
            memory: MemoryReport::default(),
            remarks: vec![],
            passes: vec![],
            transposes: TransposeReport::default(),
            printed: vec![],
            profile: profile.clone(),
            ms: 0.0,
            timings: vec![],
            recording: None,
        }
    }

    /// The module with its tensor functions unscheduled and their traces pending: what `weft opt` schedules again, byte
    /// for byte. Versions of functions for some sizes are lines of these traces.
    pub fn unscheduled_module(&self) -> Module {
        let mut m = self.all_unscheduled();
        m.tensor_functions.retain(|name, _| !self.versions.contains(name));
        m
    }

    /// The same, with versions as separate, uncalled functions, so that readers can inspect them.
    fn all_unscheduled(&self) -> Module {
        let mut m = self.module.clone();
        for (name, f) in &self.unscheduled {
            m.tensor_functions.insert(*name, f.clone());
        }
        m
    }

    /// Makes this the compilation for some of its open sizes, whose plan and memory these are.
    pub fn take_sizes(&mut self, plan: Plan, memory: MemoryReport) {
        let mut sums: FxHashMap<usize, (u64, u64)> = FxHashMap::default();
        for d in plan.dispatches() {
            let (flops, bytes) = sums.entry(d.group).or_default();
            (*flops, *bytes) = (*flops + d.flops, *bytes + d.bytes);
        }
        for (group, (flops, bytes)) in sums {
            (self.groups[group].flops, self.groups[group].bytes) = (flops, bytes);
        }
        (self.plan, self.memory, self.open) = (plan, memory, None);
    }
}

/// How to compile.
#[derive(Clone, Default)]
pub struct CompileOptions {
    /// Passes and modes.
    pub pipeline: PipelineOptions,
    /// Time, for the passes' statistics.
    pub clock: Option<Arc<dyn Clock>>,
    /// Verify the module after each pass, and plans (debug builds always do).
    pub verify: bool,
    /// Record the text of each stage, for a full [`CompileTrace`](crate::trace::CompileTrace).
    pub record: bool,
    /// Times on the device; costs are estimated without them.
    pub measurements: Option<Arc<KernelTimes>>,
    /// The ranges of open dimensions.
    pub dims: DimRanges,
    /// Storage for kernels of open sizes.
    pub keep: Option<Arc<dyn KeepKernels>>,
    /// Schedules functions that have no schedule; `None` means the rules.
    pub schedules: Option<Arc<dyn ScheduleProvider>>,
}

/// Everything that turns tensor functions into kernels for a device.
#[derive(Clone, Copy)]
struct Backend<'a> {
    target: ScheduleTarget<'a>,
    emitter: &'a dyn EmitKernel,
    schedules: &'a dyn ScheduleProvider,
}

/// Compiles a module for a device: passes, groups, schedules, kernels, plan.
///
/// # Errors
/// A failing pass, open dimensions, modules that only the interpreter can run, bugs.
pub fn compile(
    module: Module,
    options: &CompileOptions,
    profile: &DeviceProfile,
    emitter: &dyn EmitKernel,
    progress: Progress<'_>,
) -> Result<Compiled, CompileError> {
    let now = || options.clock.as_ref().map(|c| c.now_ms());
    let start = now();
    let sources = names::Sources::of(&module);
    let open = !crate::graph::open_dims(&module).is_empty();
    let source = if open { open::as_called(&module) } else { None };
    let mut graph = run_passes(module, options, profile, progress)?;
    let lowering = now();
    let remarks = std::mem::take(&mut graph.cx.remarks);
    let keep = options.keep.as_deref().filter(|_| open);
    let open_sizes = ready::OpenSizes { dims: options.dims.clone(), source: source.as_ref(), keep };
    let schedules = options.schedules.as_deref().unwrap_or(&Rules);
    let device = Backend { target: options.pipeline.scheduling.on(profile), emitter, schedules };
    let verified = (&open_sizes, graph.cx.verify);
    let mut compiled = planning::plan_module(graph.module, device, remarks, &sources, verified, progress)?;
    compiled.passes = graph.cx.stats;
    compiled.printed = graph.cx.printed;
    compiled.transposes = graph.transposes;
    // Laid out again at compile time, and packed when a session opens.
    let packed =
        compiled.plan.buffers.iter().filter(|b| matches!(b.content, Content::Constant { packer: Some(_), .. }));
    compiled.transposes.weight_folded = graph.cx.folded_layouts + packed.count();
    if let (Some(start), Some(lowering), Some(end)) = (start, lowering, now()) {
        compiled.ms = end - start;
        compiled.timings = vec![("passes".into(), lowering - start), ("schedules and kernels".into(), end - lowering)];
    }
    if let Some(recorder) = graph.recorder {
        recorder.add("lowered", &compiled.all_unscheduled());
        recorder.add("scheduled", &compiled.module);
        compiled.recording = Some(recorder.finish());
    }
    Ok(compiled)
}

/// The passes alone: no groups, no kernels, an empty plan. For looking at modules that [`compile`] refuses because only
/// the interpreter runs them.
///
/// # Errors
/// A failing pass.
pub fn compile_graph(
    module: Module,
    options: &CompileOptions,
    profile: &DeviceProfile,
) -> Result<Compiled, CompileError> {
    let now = || options.clock.as_ref().map(|c| c.now_ms());
    let start = now();
    let graph = run_passes(module, options, profile, &mut |_, _, _| {})?;
    let ms = start.zip(now()).map_or(0.0, |(start, end)| end - start);
    Ok(Compiled {
        remarks: graph.cx.remarks,
        passes: graph.cx.stats,
        transposes: TransposeReport { weight_folded: graph.cx.folded_layouts, ..graph.transposes },
        printed: graph.cx.printed,
        ms,
        timings: vec![("passes".into(), ms)],
        recording: graph.recorder.map(|r| r.finish()),
        ..Compiled::empty(graph.module, profile)
    })
}

/// A module behind all passes.
struct Graph {
    module: Module,
    cx: PassContext,
    transposes: TransposeReport,
    recorder: Option<StageRecorder>,
}

fn run_passes(
    mut module: Module,
    options: &CompileOptions,
    profile: &DeviceProfile,
    progress: Progress<'_>,
) -> Result<Graph, CompileError> {
    if module.functions.get(&module.entry).is_none_or(|f| f.primitive) {
        let why =
            format!("the module has no graph function @{} to start in, or it is marked `primitive`", module.entry);
        return Err(CompileError::Option(why));
    }
    module.dims.extend(&options.dims);
    let recorder = options.record.then(|| StageRecorder::new(&module));
    let mut cx = PassContext::new(profile.clone());
    options.pipeline.configure(&mut cx);
    check_listed(&module, &options.pipeline.keep_f32).map_err(CompileError::Option)?;
    check_own_passes(&options.pipeline).map_err(CompileError::Option)?;
    cx.clock = options.clock.clone();
    cx.verify |= options.verify;
    cx.instruments.extend(recorder.iter().map(|r| Box::new(r.clone()) as Box<dyn PassInstrument>));
    cx.cost_model = Some(match &options.measurements {
        Some(m) => Arc::new(MeasuredCost::new(m.clone(), cx.target(), &options.dims)),
        None => Arc::new(EstimatedCost::within(cx.target(), options.dims.clone())),
    });
    let list = default_pipeline(&options.pipeline);
    let (graph, fusion): (Vec<&String>, Vec<&String>) = list.iter().partition(|p| *p != "fuse-ops");
    progress("passes", 0, list.len());
    Sequential::new(graph).run(&mut module, &mut cx)?;
    let transposes = count_transposes(&module);
    Sequential::new(fusion).run(&mut module, &mut cx)?;
    if cx.stats.iter().all(|s| s.name != FuseOps::NAME) {
        make_single_groups(&mut module, &mut cx)?;
    }
    progress("passes", list.len(), list.len());
    Ok(Graph { module, cx, transposes, recorder })
}

/// A pipeline without fusion leaves nodes that no kernel is made of: each becomes a group of its own.
fn make_single_groups(module: &mut Module, cx: &mut PassContext) -> Result<(), CompileError> {
    let alone = FuseOps { mode: Some(FuseMode::Off), ..FuseOps::default() };
    if alone.run(module, cx)? {
        cx.missed(&alone, &[], "the pipeline has no `fuse-ops`: each node has a kernel of its own");
    }
    Ok(())
}

/// Why compilation failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A pass failed.
    #[error(transparent)]
    Pass(#[from] crate::passes::PassError),
    /// An option that does not fit the module.
    #[error("{0}")]
    Option(String),
    /// The module cannot run on a device (recursion, data-dependent sizes); the interpreter can run it.
    #[error("{0}")]
    NeedsCpu(String),
    /// A tensor function came with a schedule for another device.
    #[error("tensor function @{function} is scheduled for another device: {message}")]
    OtherDevice {
        /// The function.
        function: String,
        /// What this device lacks.
        message: String,
    },
    /// A dimension is not known.
    #[error("dimension `{dim}` of `{value}` is open")]
    OpenDim {
        /// The symbol.
        dim: String,
        /// The value it belongs to.
        value: String,
    },
    /// A tensor function that came with the module does not go with its own schedule, or not with the device.
    #[error("tensor function @{function}: {message}")]
    Schedule {
        /// The function.
        function: String,
        /// The mismatch.
        message: String,
    },
    /// No schedule of a group is valid for all of its open sizes. A plan can run it on the host instead.
    #[error("no schedule of @{function} goes with all sizes of {dims}; give the sizes")]
    NoOpenSchedule {
        /// The group's tensor function.
        function: Name,
        /// The open dimensions.
        dims: String,
    },
    /// A bug of ours.
    #[error("internal error in `{at}`: {message}")]
    Bug {
        /// Function or kernel.
        at: String,
        /// The error.
        message: String,
    },
}

/// Called with a stage, the number done and the total.
pub type Progress<'a> = &'a mut dyn FnMut(&str, usize, usize);

/// Lowers a module whose groups are formed, and verifies the plan.
///
/// # Errors
/// Open dimensions, modules only the interpreter can run, bugs.
pub fn lower_module<'a>(
    module: Module,
    target: impl Into<ScheduleTarget<'a>>,
    emitter: &dyn EmitKernel,
    remarks: Vec<Remark>,
    progress: Progress<'_>,
) -> Result<Compiled, CompileError> {
    let sources = names::Sources::of(&module);
    planning::plan_module(
        module,
        Backend { target: target.into(), emitter, schedules: &Rules },
        remarks,
        &sources,
        (&ready::OpenSizes::default(), true),
        progress,
    )
}
