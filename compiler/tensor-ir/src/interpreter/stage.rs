//! Runs unscheduled tensor functions stage by stage: vectors of lanes, threads over results, matrix products for
//! contractions.
//!
//! If a stage has guards, an index that cannot be compiled, or a store that is not simply indexed by its spatial loops,
//! the whole function is run by the interpreter instead. That is slower and gives the same results.

mod contract;
mod form;
mod frame;
mod lanes;
mod nest;
mod program;
mod reduce;
#[cfg(test)]
mod tests;
mod view;

use super::bind::{Bound, bind};
use super::lockstep::interpret;
use super::shapes::{element_count, fixed_shape};
use crate::arena::Id;
use crate::fault::Fault;
use crate::name::Name;
use crate::tensor::Tensor;
use crate::tir::{BufferId, Scope, Stage, TensorFunction};
use contract::Contraction;
use form::Loop;
use frame::Nest;
use reduce::Reduction;
use view::{Storage, View};

/// Runs the stages of an unscheduled tensor function; anything else goes to the interpreter. Symbols are bound by the
/// operands' shapes. Results are in parameter order.
///
/// # Errors
/// Operands that do not fit, or an access out of bounds.
pub fn run_tensor_function(f: &TensorFunction, inputs: &[Tensor]) -> Result<Vec<Tensor>, Fault> {
    run_tensor_function_with(f, &[], inputs)
}

/// [`run_tensor_function`] with values for symbols that the operands' shapes do not bind.
///
/// # Errors
/// As [`run_tensor_function`].
pub fn run_tensor_function_with(
    f: &TensorFunction,
    symbols: &[(Name, i64)],
    inputs: &[Tensor],
) -> Result<Vec<Tensor>, Fault> {
    let Bound { f, inputs, results } = bind(f, symbols, inputs)?;
    let outputs: Vec<BufferId> = f.outputs().collect();
    Ok(Bound::shaped(execute(&f, &inputs, &outputs)?, results))
}

/// Runs a concrete function and gives the content of `outputs`, any of its global buffers.
pub fn execute(f: &TensorFunction, inputs: &[Tensor], outputs: &[BufferId]) -> Result<Vec<Tensor>, Fault> {
    let Some(plan) = plan(f) else { return interpret(f, inputs, outputs, None) };
    let mut memory: Vec<Option<Tensor>> = vec![None; f.buffers.len()];
    for (b, t) in f.inputs().zip(inputs) {
        memory[b.index()] = Some(t.clone());
    }
    for (i, stage) in plan.iter().enumerate() {
        let shape = fixed_shape(f, stage.buffer)?;
        let buffer = &f.buffers[stage.buffer];
        let mut out = Storage::new(element_count(buffer.dtype, &shape)? * buffer.dtype.size())?;
        if !out.as_ref().is_empty() {
            let views: Vec<Option<View<'_>>> = memory.iter().map(|t| t.as_ref().map(View::of)).collect();
            match &stage.work {
                Work::Compute(nest) => nest.fill(&views, &[], buffer.dtype, out.bytes_mut(), true),
                Work::Reduce(r) => r.run(&views, out.bytes_mut()),
                Work::Contract(c) => c.run(&views, out.bytes_mut()),
            }
            .map_err(|m| format!("@{}, stage `{}`: {m}", f.name, stage.name))?;
        }
        memory[stage.buffer.index()] = Some(out.into_tensor(buffer.dtype, shape)?);
        for (b, slot) in f.buffers.ids().zip(&mut memory) {
            if !outputs.contains(&b) && !plan[i + 1..].iter().any(|s| s.reads.contains(&b)) {
                *slot = None;
            }
        }
    }
    outputs
        .iter()
        .map(|b| {
            let written = memory[b.index()].clone();
            written.ok_or_else(|| format!("`{}` is never written", f.buffers[*b].name).into())
        })
        .collect()
}

/// How a stage of an unscheduled function is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StageKind {
    /// Element by element, in vectors.
    Compute,
    /// By a reduction in vectors.
    Reduce,
    /// By matrix products.
    Contract,
}

/// How the stages of a function without symbols are run; `None` if [`run_scheduled`](super::run_scheduled) runs it.
pub fn stage_kinds(f: &TensorFunction) -> Option<Vec<StageKind>> {
    let kind = |s: StagePlan| match s.work {
        Work::Compute(_) => StageKind::Compute,
        Work::Reduce(_) => StageKind::Reduce,
        Work::Contract(_) => StageKind::Contract,
    };
    Some(plan(f)?.into_iter().map(kind).collect())
}

struct StagePlan {
    name: Name,
    buffer: BufferId,
    reads: Vec<BufferId>,
    work: Work,
}

enum Work {
    Compute(Nest),
    Reduce(Reduction),
    Contract(Contraction),
}

/// `None` when the interpreter has to run the function.
fn plan(f: &TensorFunction) -> Option<Vec<StagePlan>> {
    let stages = f.stages().filter(|_| f.updates.is_empty())?;
    let mut written: Vec<BufferId> = f.inputs().collect();
    let mut out = Vec::with_capacity(stages.len());
    for stage in &stages {
        let b = stage.block;
        if written.contains(&b.buffer) || f.buffers[b.buffer].scope != Scope::Global || !b.guards.is_empty() {
            return None;
        }
        written.push(b.buffer);
        let work = plan_stage(f, stage)?;
        let reads = f.buffers.ids().filter(|id| b.reads(*id)).collect();
        out.push(StagePlan { name: b.name, buffer: b.buffer, reads, work });
    }
    Some(out)
}

fn plan_stage(f: &TensorFunction, stage: &Stage<'_>) -> Option<Work> {
    let b = stage.block;
    let mut loops = Vec::with_capacity(stage.loops.len());
    for (var, extent) in &stage.loops {
        loops.push(Loop { var: *var, extent: usize::try_from(extent.as_const()?).ok()? });
    }
    let spatial = result_loops(f, stage, &loops)?;
    let reduction: Vec<Loop> = loops.iter().filter(|l| !spatial.iter().any(|s| s.var == l.var)).copied().collect();
    let dtype = f.buffers[b.buffer].dtype;
    let value = b.value.dtype(f);
    let Some(r) = b.reduce else {
        // A loop of one iteration that the store leaves out is in no index.
        let fits = program::class(value) == program::class(dtype) && reduction.iter().all(|l| l.extent == 1);
        return if fits { Nest::new(f, &b.value, &[], &spatial).map(Work::Compute) } else { None };
    };
    if !r.init || !reduce::fits(value, dtype) {
        return None;
    }
    if let Some(c) = Contraction::new(f, &b.value, &spatial, &reduction, r.combiner, dtype) {
        return Some(Work::Contract(c));
    }
    Reduction::new(f, &b.value, &spatial, &reduction, r.combiner, dtype).map(Work::Reduce)
}

/// The loops of the result's dimensions, in their order; `None` unless the store visits every element once.
fn result_loops(f: &TensorFunction, stage: &Stage<'_>, loops: &[Loop]) -> Option<Vec<Loop>> {
    let shape = fixed_shape(f, stage.block.buffer).ok()?;
    let mut out: Vec<Loop> = Vec::with_capacity(shape.len());
    if stage.block.indices.len() != shape.len() {
        return None;
    }
    for (index, n) in stage.block.indices.iter().zip(shape) {
        if index.is(0) && n == 1 {
            continue;
        }
        let l = loops.iter().find(|l| index.as_var() == Some(l.var))?;
        if l.extent != n || out.iter().any(|o| o.var == l.var) {
            return None;
        }
        out.push(*l);
    }
    Some(out)
}
