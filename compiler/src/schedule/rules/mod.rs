//! Schedule rules: each looks at a tensor function and a [`DeviceProfile`] and proposes a trace.
//!
//! [`schedule`] first inlines what can be inlined and cuts concatenations of reductions, or of more operands than a kernel binds, apart, then splits the function into *units* (a reduction with the block
//! that consumes it, or a compute block alone) and asks the rules of [`RULES`] in order; the first that takes a unit
//! schedules it, and the reasons of those that declined are kept for `explain`. The last rule takes anything. Before
//! that, the rule `rows` may take the function as a whole.

mod analysis;
mod cooperate;
mod direct;
mod elementwise;
mod matmul_subgroup;
mod matmul_tiled;
mod partition;
mod pooling;
mod reduction_threads;
mod rows;
mod sketch;
#[cfg(test)]
mod tests;
mod windows;

pub use analysis::Unit;
pub use pooling::{Window, WindowWork, window_index};
pub use sketch::{Decline, Sketch};

use super::ScheduleError;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::tir::{BufferId, TensorFunction};
use std::collections::VecDeque;

/// The version of the rules: measurements made with another one say nothing about the kernels of this one.
pub const VERSION: u32 = 3;

/// A scheduled function.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// All instructions applied, kernels cut.
    pub function: TensorFunction,
    /// Name of the rule of the unit with the most work.
    pub rule: &'static str,
    /// Rules that declined, and why.
    pub missed: Vec<String>,
}

/// A schedule rule.
pub struct Rule {
    /// Name: the file's name with dashes.
    pub name: &'static str,
    /// Its threads own tiles of rows and columns rather than neighbours in memory.
    pub tiles: bool,
    /// Schedules the unit in the sketch, or says why not. On a decline the sketch is put back.
    pub apply: fn(&mut Sketch<'_>, &Unit) -> Result<(), Decline>,
}

/// Every rule, in the order they are asked.
pub static RULES: &[Rule] = &[
    Rule { name: "matmul-subgroup", tiles: true, apply: matmul_subgroup::apply },
    Rule { name: "matmul-tiled", tiles: true, apply: matmul_tiled::apply },
    Rule { name: "reduction-threads", tiles: false, apply: reduction_threads::apply },
    Rule { name: "elementwise", tiles: false, apply: elementwise::apply },
    Rule { name: "windows", tiles: false, apply: windows::apply },
    Rule { name: "direct", tiles: false, apply: direct::apply },
];

/// Schedules `f` for `profile`. `constants` are read parameters whose value is known when a session opens: they may be
/// prepacked.
///
/// # Errors
/// When even the last rule fails: a bug.
pub fn schedule(
    f: &TensorFunction,
    constants: &[BufferId],
    profile: &DeviceProfile,
) -> Result<Scheduled, ScheduleError> {
    let mut sketch = Sketch::new(f.clone(), constants, profile);
    sketch.inline_all();
    partition::partition_concats(&mut sketch);
    partition::partition_by_bindings(&mut sketch);
    let mut missed = Vec::new();
    let mut whole = sketch.clone();
    let outputs: Vec<BufferId> = f.outputs().collect();
    match rows::apply_whole(&mut whole).and_then(|()| whole.require_whole_words(&outputs, &[])) {
        Ok(()) => return finished(whole, "rows", missed),
        Err(Decline(why)) if !why.is_empty() => missed.push(format!("rule rows: {why}")),
        Err(_) => {}
    }
    let mut best: (u64, &'static str) = (0, "elementwise");
    let list = sketch.units()?;
    sketch.merge_outputs(&list);
    let mut units: VecDeque<Unit> = list.into();
    for (work, rule) in pooling::schedule_windows(&mut sketch, &mut units, &mut missed) {
        best = best.max((work, rule));
    }
    'units: while let Some(unit) = units.pop_front() {
        let mut done = false;
        if sketch.is_scheduled(&unit) {
            continue;
        }
        let later: Vec<Name> = units.iter().map(|u| u.output).collect();
        for rule in RULES {
            let saved = sketch.clone();
            let target: Vec<BufferId> =
                sketch.f.body.blocks().iter().filter(|b| b.name == unit.output).map(|b| b.buffer).collect();
            let applied = (rule.apply)(&mut sketch, &unit);
            let whole = applied.is_err() || sketch.require_whole_words(&target, &later).is_ok();
            if let (Some(reduce), false, true) = (unit.reduce, whole, rule.tiles) {
                // Tiles do not end at words: they go to f32 memory, and a kernel of its own packs them.
                sketch = saved;
                let copy = sketch.split_epilogue(reduce)?;
                let pack = Unit {
                    reduce: None,
                    window: None,
                    output: unit.output,
                    work: analysis::iterations(&sketch, unit.output),
                };
                units.push_front(pack);
                units.push_front(Unit { output: copy, ..unit });
                continue 'units;
            }
            match applied.and_then(|()| sketch.require_whole_words(&target, &later)) {
                Ok(()) => {
                    if unit.work >= best.0 {
                        best = (unit.work, rule.name);
                    }
                    done = true;
                    break;
                }
                Err(Decline(why)) => {
                    sketch = saved;
                    if !why.is_empty() {
                        missed.push(format!("rule {}: {}: {why}", rule.name, unit.name()));
                    }
                }
            }
        }
        if !done {
            return Err(ScheduleError {
                instruction: format!("schedule {}", unit.name()),
                message: format!("no rule takes it: {}", missed.join("; ")),
                loops: None,
            });
        }
    }
    finished(sketch, best.1, missed)
}

/// Cuts kernels. Debug builds hold the result to what schedules that come from a file are held to.
fn finished(sketch: Sketch<'_>, rule: &'static str, missed: Vec<String>) -> Result<Scheduled, ScheduleError> {
    let function = sketch.finish()?;
    if cfg!(debug_assertions)
        && let Err(e) = crate::check::check_function(&function)
    {
        return Err(ScheduleError { instruction: format!("rule {rule}"), message: e.message, loops: e.loops });
    }
    Ok(Scheduled { function, rule, missed })
}
