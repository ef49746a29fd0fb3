//! The compilation pipeline: graph passes, lowering of groups to tensor functions, schedules, kernels, plan.
//!
//! [`compile`] runs all of it, [`compile_graph`] the passes only. [`lower_module`] does the part after the passes. It
//! takes a module whose entry function consists of constants, calls of primitive functions (fused groups) and, if the
//! device cannot run them, other nodes; it leaves `call_tensor`s, tensor functions and a `Plan`.

mod alone;
mod backend;
mod callees;
mod check;
mod compiled;
mod constant_encodings;
mod described;
mod dispatches;
mod edited;
mod error;
mod forms;
mod group_form;
mod groups;
mod host;
mod kept_kernels;
mod kernels;
mod loop_parts;
mod lowered;
mod measure;
mod memory;
mod names;
mod network_parts;
mod numbering;
mod open;
mod options;
mod pipeline;
mod placed;
mod planned;
mod positions;
mod residency;
mod scheduled;
mod shared_layouts;
mod sizes;
mod steps;
mod storage;
mod threads;
mod trace;
mod transposes;
mod verify_plan;
mod work;

pub use crate::report::{GroupKind, MemoryReport, TransposeReport};
pub use alone::{constant_operands, function_alone, operand_buffers};
pub use backend::Progress;
pub use compiled::Compiled;
pub use edited::{EditRefused, Edited, compile_edited};
pub use error::CompileError;
pub use forms::assign_encodings;
pub use groups::Group;
pub use host::{are_of_types, bind_host_steps, renumber_host_steps};
pub use kept_kernels::KeepKernels;
pub use loop_parts::{LoopParts, split_loop};
pub use measure::{AskedFunction, KernelTimes, MeasuredCost};
pub use memory::{Lifetime, assign_pool};
pub use network_parts::{NetworkParts, PartValue, SizedNode, split_network};
pub use open::{KernelVersion, OpenPlan};
pub use options::CompileOptions;
pub use positions::lost_positions;
pub use sizes::{SizeError, check_ranges, check_ranges_of};

use crate::attr::AttrStruct;
use crate::cost::EstimatedCost;
use crate::graph::Module;
use crate::passes::mixed_precision::check_listed;
use crate::passes::{
    FuseMode, FuseOps, Pass, PassContext, PassInstrument, Sequential, check_own_passes, default_pipeline,
};
use crate::plan::{Content, EmitKernel};
use crate::profile::DeviceProfile;
use crate::remark::Remark;
use crate::schedule::{Rules, ScheduleTarget};
use crate::trace::StageRecorder;
use backend::Backend;
use scheduled::OpenSizes;
use std::sync::Arc;
pub use transposes::count_transposes;

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
    let source = if open { sizes::as_called(&module) } else { None };
    let mut graph = run_passes(module, options, profile, progress)?;
    let lowering = now();
    let remarks = std::mem::take(&mut graph.cx.remarks);
    let keep = options.keep.as_deref().filter(|_| open);
    let open_sizes = OpenSizes { dims: options.dims.clone(), source: source.as_ref(), keep };
    let schedules = options.schedules.as_deref().unwrap_or(&Rules);
    let device = Backend { target: options.pipeline.scheduling.on(profile), emitter, schedules };
    let verified = (&open_sizes, graph.cx.verify);
    let mut compiled = pipeline::plan_module(graph.module, device, remarks, &sources, verified, progress)?;
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
    let (graph, fusion) = list.split_at(list.iter().position(|p| p == FuseOps::NAME).unwrap_or(list.len()));
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
    pipeline::plan_module(
        module,
        Backend { target: target.into(), emitter, schedules: &Rules },
        remarks,
        &sources,
        (&OpenSizes::default(), true),
        progress,
    )
}
