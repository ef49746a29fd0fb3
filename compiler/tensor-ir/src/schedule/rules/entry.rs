//! Scheduling by the rules, with or without given values of choices.

use super::script::{self, Choice, FUNCTION, RULE, Script};
use super::sketch::Sketch;
use super::{Scheduled, groups, open, predict, units};
use crate::attr::Attr;
use crate::attr::print::print_value;
use crate::name::Name;
use crate::schedule::{Choose, InstrRef, RefusedCandidate, ScheduleError, ScheduleTarget, TransformLayout, Version};
use crate::tir::{BufferId, TensorFunction};

/// Schedules `f` for `target`, a profile or a device with options. `constants` are read parameters whose value is known
/// when a session opens: they may be prepacked. Rules that the options request by name are tried before all others. If
/// none of them applies, the default order is used.
///
/// # Errors
/// When even the last rule fails: a bug.
pub fn schedule<'a>(
    f: &TensorFunction,
    constants: &[BufferId],
    target: impl Into<ScheduleTarget<'a>>,
) -> Result<Scheduled, ScheduleError> {
    let target = target.into();
    if !f.symbols.is_empty() {
        return open::schedule(f, constants, target);
    }
    units::schedule(f, constants, target, &script::NOTHING)
}

/// [`schedule`] with given values for some choices. [`choices`] lists the choices of a schedule; a choice may depend on
/// earlier ones.
///
/// # Errors
/// A value that is not in its domain, that its rule cannot take, or for which there is no choice.
pub fn schedule_with<'a>(
    f: &TensorFunction,
    constants: &[BufferId],
    target: impl Into<ScheduleTarget<'a>>,
    values: &[Choice],
) -> Result<Scheduled, ScheduleError> {
    schedule_by(f, constants, target.into(), &Script::of_choices(values))
}

/// The unscheduled `f` as the rules begin with it: compute blocks are inlined, and a reduction that writes a result
/// has a block behind it that does so. Its trace has the instructions.
///
/// # Errors
/// A reduction that cannot be cut off from its result.
pub fn prepared<'a>(
    f: &TensorFunction,
    constants: &[BufferId],
    target: impl Into<ScheduleTarget<'a>>,
) -> Result<TensorFunction, ScheduleError> {
    let mut sketch = Sketch::new(f.clone(), constants, target.into(), &script::NOTHING);
    predict::prepare(&mut sketch, false);
    sketch.together(|s| groups::units(s).map(drop))?;
    Ok(sketch.f)
}

/// Schedules by a script, also for open sizes.
pub(super) fn schedule_by(
    f: &TensorFunction,
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
    script: &Script,
) -> Result<Scheduled, ScheduleError> {
    match f.symbols.is_empty() {
        true => units::schedule(f, constants, target, script),
        false => open::schedule_by(f, constants, target, script),
    }
}

/// The script of a schedule's text. Lines that request versions concern the function as a whole.
pub(super) fn script_of(pending: &[InstrRef]) -> Script {
    let own = pending.iter().filter(|i| Version::of_instruction(i).is_none());
    Script::read(&own.cloned().collect::<Vec<_>>())
}

/// The choices that a schedule was made with, in order, each with its domain.
pub fn choices(trace: &[InstrRef]) -> Vec<&Choose> {
    trace.iter().filter_map(Choose::of_instruction).collect()
}

/// The candidates that a schedule took for the blocks of a kernel, by the `choose` lines of its trace, as refused ones.
/// `blocks` are the kernel's; where no unit has one of them, all units of the schedule are given.
pub fn taken_candidates(trace: &[InstrRef], blocks: &[Name], why: &str) -> Vec<RefusedCandidate> {
    let mut all: Vec<RefusedCandidate> = Vec::new();
    for c in trace.iter().filter_map(Choose::of_instruction) {
        match (&c.value, c.point.as_str()) {
            (Attr::Str(rule), FUNCTION | RULE) => {
                let (unit, rule, why) = (c.unit, rule.clone(), why.to_string());
                all.push(RefusedCandidate { unit, rule, values: vec![], why });
            }
            _ => {
                if let Some(last) = all.last_mut().filter(|l| l.unit == c.unit) {
                    last.values.push((c.point, print_value(&c.value)));
                }
            }
        }
    }
    let own = |r: &RefusedCandidate| blocks.iter().any(|b| b.as_str().starts_with(r.unit.as_str()));
    if all.iter().any(own) {
        all.retain(own);
    }
    all
}

/// Where choices in the pending schedule of `f` were edited: asks the rules again for their units, and makes that the
/// pending schedule. What is written for other units stays; what was written for these is replaced. True when there
/// were any. `constants` as for [`schedule`]; parameters that the schedule has packed are constants too.
///
/// # Errors
/// A value that is not in its domain or that its rule cannot take, and instructions that do not apply.
pub fn follow_choices<'a>(
    f: &mut TensorFunction,
    constants: &[BufferId],
    target: impl Into<ScheduleTarget<'a>>,
) -> Result<bool, ScheduleError> {
    if !has_edited_choices(f) {
        return Ok(false);
    }
    let script = script_of(&f.pending);
    let mut plain = if f.trace.is_empty() { f.canonical() } else { f.clone() };
    plain.pending.clear();
    let packed: Vec<Name> =
        f.pending.iter().filter_map(|i| i.as_any().downcast_ref::<TransformLayout>()).map(|t| t.buffer).collect();
    let inputs = plain.inputs().filter(|&b| constants.contains(&b) || packed.contains(&plain.buffers[b].name));
    let constants: Vec<BufferId> = inputs.collect();
    let made = schedule_by(&plain, &constants, target.into(), &script)?.function;
    let done = plain.trace.len();
    *f = plain;
    f.pending = made.trace[done..].to_vec();
    Ok(true)
}

/// True if a choice in the pending schedule of `f` differs from the value that the schedule was made with.
pub fn has_edited_choices(f: &TensorFunction) -> bool {
    f.pending.iter().filter_map(Choose::of_instruction).any(Choose::is_edited)
}
