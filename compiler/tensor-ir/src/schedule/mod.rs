//! Schedules are data: a trace of instructions that rewrite the loops of a tensor function.
//!
//! Each [`Instruction`] is an attribute struct in its own file under `schedule/`, with one line in the `instructions!`
//! table. It prints and parses like an op (`split {loop=i, factors=[0,4]}`), and applying a trace to the same function
//! always gives the same result. A tensor function in text may have *pending* instructions (`schedule { ... }`);
//! applied to its unscheduled body they give the same kernels, byte for byte.
//!
//! Two mechanisms move all data:
//!
//! - `stage-in-registers`, `stage-in-shared`, `stage-in-subgroup` and `stage-in-fragment` compute an operand expression
//!   of a block ahead, into a buffer of a nearer memory (`staging.rs`). The expression may be anything, so padding,
//!   im2col, casts and prologues are staged with the load, and no region inference is needed. The copy nest is then
//!   split, fused, bound and vectorised like any other nest.
//! - `compute-at` moves a producer block under a loop of its consumer (`compute_at.rs`). With register scope the
//!   producer's buffer is the accumulator of a matmul or convolution, and the consumer is its epilogue.
//!
//! `inline` substitutes a compute block into its consumers. `transform-layout` reorders a buffer; a read parameter is
//! then prepacked by a tensor function in `TensorFunction::prepacks`. A reduction over windows behind a contraction (a
//! pool behind a convolution) is not a rule of its own: `rules/pooling.rs` joins the two reductions to one unit, which
//! `matmul-subgroup`, `matmul-tiled` or `direct` may take. The choice `windows` records the decision.
//!
//! Barriers are derived by the shader generator, never scheduled. Instructions keep the results of loops that run one
//! after another. Whether the loops may also run in parallel, as they are bound, is proved afterwards on the result
//! ([`crate::check`]): once after a list of instructions or a rule's proposal. If that proof fails, it is repeated
//! after each instruction, to name the one that is wrong.

mod accept;
mod accesses;
mod add_unit_loop;
pub mod estimate;
pub mod estimator;
pub mod loops;
pub mod rules;
mod simplify;
#[cfg(test)]
pub(crate) mod testing;
mod tiles;

mod bind;
mod cache_write;
mod choose;
mod combine;
mod compute_at;
mod cut_kernel;
mod decompose_reduction;
mod error;
mod factor_out;
mod fill_ahead;
mod flatten_buffer;
mod fuse;
mod inline;
mod layout;
mod merge_buffers;
mod merge_nests;
mod offset_loop;
mod pad_reduction;
mod partition_loop;
mod peel_loop;
mod provider;
mod reorder;
mod rfactor;
mod set_scope;
mod software_pipeline;
mod split;
mod split_epilogue;
mod stage_in_fragment;
mod stage_in_registers;
mod stage_in_shared;
mod stage_in_subgroup;
mod staging;
mod target;
pub mod template;
mod tensorize;
mod transform_layout;
mod tuned;
mod unroll;
mod vectorize;
mod version;
mod written;

pub use crate::tir::{InstrRef, Instruction, Refusal, print_loops};
pub use accept::{accept, has_own_schedule};
pub use bind::Axis;
pub use compute_at::LocalScope;
pub use error::ScheduleError;
pub use provider::{Rules, ScheduleProvider};
pub use set_scope::MemoryScope;
pub use simplify::{simplify_conds, simplify_expr, simplify_function};
pub use target::{RefusedCandidate, ScheduleOptions, ScheduleTarget, Versions};
pub use tuned::{FamilyMember, Tuned, TunedSchedule, Workload};
pub use written::schedule_as_written;

use crate::attr::{AttrStruct, Attrs};
use crate::check::sharing::{Violation, violations};
use crate::name::Name;
use crate::registry::Table;
use crate::tir::{LoopKind, Scope, Stmt, TensorFunction};
use crate::verify::verify_tensor_function;

/// A row of the instruction table.
pub struct InstructionDef {
    /// Name in text.
    pub name: &'static str,
    /// Builds the instruction from text attributes.
    pub from_attrs: fn(&Attrs) -> Result<InstrRef, String>,
}

macro_rules! instructions {
    ($($module:ident :: $op:ident),* $(,)?) => {
        $(pub use $module::$op;)*
        /// Every schedule instruction; [`register_instruction`] adds one.
        pub static INSTRUCTIONS: Table<InstructionDef> = Table::new(&[$(InstructionDef {
            name: <$module::$op as AttrStruct>::NAME,
            from_attrs: |a| <$module::$op as AttrStruct>::from_attrs(a).map(InstrRef::new),
        }),*]);
    };
}

instructions! {
    split::Split,
    fuse::Fuse,
    reorder::Reorder,
    bind::Bind,
    vectorize::Vectorize,
    unroll::Unroll,
    offset_loop::OffsetLoop,
    add_unit_loop::AddUnitLoop,
    inline::Inline,
    stage_in_registers::StageInRegisters,
    stage_in_shared::StageInShared,
    stage_in_subgroup::StageInSubgroup,
    stage_in_fragment::StageInFragment,
    compute_at::ComputeAt,
    cache_write::CacheWrite,
    decompose_reduction::DecomposeReduction,
    split_epilogue::SplitEpilogue,
    pad_reduction::PadReduction,
    partition_loop::PartitionLoop,
    merge_nests::MergeNests,
    merge_buffers::MergeBuffers,
    rfactor::Rfactor,
    factor_out::FactorOut,
    transform_layout::TransformLayout,
    flatten_buffer::FlattenBuffer,
    set_scope::SetScope,
    software_pipeline::SoftwarePipeline,
    fill_ahead::FillAhead,
    peel_loop::PeelLoop,
    cut_kernel::CutKernel,
    combine::Combine,
    tensorize::Tensorize,
    choose::Choose,
    version::Version,
}

impl InstructionDef {
    /// The row of an instruction type.
    pub fn of<T: Instruction + AttrStruct>() -> InstructionDef {
        InstructionDef { name: T::NAME, from_attrs: |a| T::from_attrs(a).map(InstrRef::new) }
    }
}

/// Adds an instruction of another crate to the table, so that schedules in text may use it. Call it before anything is
/// parsed.
///
/// # Errors
/// When there is an instruction of this name.
pub fn register_instruction(i: InstructionDef) -> Result<(), String> {
    let name = i.name;
    INSTRUCTIONS.add(i, |d| d.name == name).map_err(|_| format!("there is an instruction `{name}`"))
}

/// The table row of an instruction name.
pub fn find_instruction(name: &str) -> Option<&'static InstructionDef> {
    INSTRUCTIONS.iter().find(|d| d.name == name)
}

/// Applies one instruction, simplifies every index expression under the ranges of the loops, and notes the instruction
/// in the function's trace.
///
/// An instruction keeps the results of loops that run one after another. Whether the loops may run in parallel, as they
/// are bound, is checked here for the whole function ([`sharing`](crate::check::sharing)).
///
/// # Errors
/// When the instruction does not apply; `f` is then as before.
pub fn apply(f: &mut TensorFunction, i: InstrRef) -> Result<(), ScheduleError> {
    if !i.rewrites() {
        return choose::note(f, i);
    }
    let after = rewritten(f, &i)?;
    match new_violation(f, &after) {
        None => *f = after,
        Some(v) => return Err(refused(&after, &i, format!("`{}`: {}", v.culprit, v.message), v.culprit)),
    }
    Ok(())
}

/// The function with one more instruction applied, without the check for parallel loops.
fn rewritten(f: &TensorFunction, i: &InstrRef) -> Result<TensorFunction, ScheduleError> {
    let mut after = f.clone();
    if !i.rewrites() {
        choose::note(&mut after, i.clone())?;
        return Ok(after);
    }
    i.apply(&mut after).map_err(|r| ScheduleError {
        instruction: i.text(),
        message: r.message,
        loops: r.culprit.map(|c| print_loops(f, &f.body, Some(c))),
    })?;
    simplify::simplify_changes(&mut after, f);
    if let Some((var, text)) = loops::too_long(&after) {
        return Err(refused(&after, i, text, var));
    }
    if let Some((buffer, bytes)) = loops::too_large(&after).filter(|found| loops::too_large(f).as_ref() != Some(found))
    {
        let text = format!("`{buffer}` would take {} KiB inside a workgroup, which no device has", bytes >> 10);
        return Err(refused(&after, i, text, buffer));
    }
    if let Some(message) = unfit_for_subgroups(&after) {
        return Err(ScheduleError { instruction: i.text(), message, loops: None });
    }
    after.note_instruction(f, i);
    after.trace.push(i.clone());
    Ok(after)
}

/// Errors of the verifier in kernels with operations of whole subgroups. Example: instructions staged operands in
/// fragments, but left the product to single threads.
fn unfit_for_subgroups(f: &TensorFunction) -> Option<String> {
    let mut used = f.buffers.iter().any(|(_, b)| matches!(b.scope, Scope::Fragment(_)));
    f.body.visit(&mut |s| {
        let kinds = |k: LoopKind| matches!(k, LoopKind::Subgroup(_) | LoopKind::Lane | LoopKind::Tensor);
        used |= matches!(s, Stmt::For(l) if kinds(l.kind));
    });
    if !used || f.kernels().is_empty() {
        return None;
    }
    let errors = verify_tensor_function(f).err()?;
    errors.first().map(|e| format!("{}: {}", e.place.as_deref().unwrap_or("the function"), e.message))
}

/// A refusal of instruction `i`.
fn refused(after: &TensorFunction, i: &InstrRef, message: String, culprit: Name) -> ScheduleError {
    let loops = print_loops(after, &after.body, Some(culprit));
    let loops = Some(format!("the loops would be\n{loops}"));
    ScheduleError { instruction: i.text(), message, loops }
}

/// Why the loops of `after` may not run in parallel. Violations that `before` has too do not count.
fn new_violation(before: &TensorFunction, after: &TensorFunction) -> Option<Violation> {
    let found = violations(after);
    if found.is_empty() {
        return None;
    }
    let known = violations(before);
    found.into_iter().find(|v| !known.contains(v))
}

/// Applies instructions in order. Whether loops may run in parallel is checked on the result only: each instruction
/// keeps the results of serial loops, so the intermediate steps do not matter.
///
/// # Errors
/// At the first instruction that does not apply; `f` then has those before it.
pub fn replay(f: &mut TensorFunction, trace: &[InstrRef]) -> Result<(), ScheduleError> {
    let start = f.clone();
    let done = trace.iter().try_for_each(|i| {
        *f = rewritten(f, i)?;
        Ok(())
    });
    if new_violation(&start, f).is_none() {
        return done;
    }
    // One after another, to find which one is at fault.
    *f = start;
    trace.iter().try_for_each(|i| apply(f, i.clone()))
}

/// Applies the instructions that are pending in `f` (its `schedule` block in text), on the canonical form of the
/// function, so that the text and the function that was printed give the same kernels.
///
/// # Errors
/// At the first instruction that does not apply; it and those after it are then still pending.
pub fn apply_pending(f: &mut TensorFunction) -> Result<(), ScheduleError> {
    if f.trace.is_empty() && !f.pending.is_empty() {
        *f = f.canonical();
    }
    let (list, before) = (std::mem::take(&mut f.pending), f.trace.len());
    let done = replay(f, &list);
    f.pending = list[f.trace.len() - before..].to_vec();
    done
}
