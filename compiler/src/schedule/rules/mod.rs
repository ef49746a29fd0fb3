//! Schedule rules: each looks at a tensor function and a [`DeviceProfile`] and proposes a trace.
//!
//! [`schedule`] first inlines what can be inlined and cuts concatenations of reductions, or of more operands than a kernel binds, apart, then splits the function into *units* (a reduction with the block
//! that consumes it, or a compute block alone) and asks the rules of [`RULES`] in order; the first that takes a unit
//! schedules it, and the reasons of those that declined are kept for `explain`. The last rule takes anything. Before
//! that, the rule `rows` may take the function as a whole.

mod analysis;
mod cooperate;
mod describe;
mod direct;
mod elementwise;
mod matmul_subgroup;
mod matmul_tiled;
mod partition;
mod pooling;
mod reduction_threads;
mod rows;
mod sketch;
mod split_depth;
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
use crate::traffic;
use describe::describe_units;
use std::collections::VecDeque;

/// A scheduled function.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// All instructions applied, kernels cut.
    pub function: TensorFunction,
    /// Name of the rule of the unit with the most work.
    pub rule: &'static str,
    /// The rule that took each unit, and the unit's tile.
    pub applied: Vec<String>,
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

/// The rule that takes a function as a whole.
const ROWS: &str = "rows";

/// The names of all rules, in the order they are asked.
pub fn names() -> Vec<&'static str> {
    std::iter::once(ROWS).chain(RULES.iter().map(|r| r.name)).collect()
}

impl Rule {
    /// Schedules the unit in the sketch, or says why not. A rule that is asked for by name does not decline for the sake of
    /// the device's speed.
    fn ask(&self, sketch: &mut Sketch<'_>, unit: &Unit) -> Result<(), Decline> {
        sketch.asked = sketch.profile.asks_for(self.name);
        (self.apply)(sketch, unit)
    }
}

/// The rules of units in the order they are asked for this profile: first those that are asked for by name.
fn in_order(profile: &DeviceProfile) -> Vec<&'static Rule> {
    let named = profile.asked_rules.iter().filter_map(|n| RULES.iter().find(|r| r.name == n));
    named.chain(RULES.iter().filter(|r| !profile.asks_for(r.name))).collect()
}

/// Schedules `f` for `profile`. `constants` are read parameters whose value is known when a session opens: they may be
/// prepacked. Where the profile asks for rules by name, they come before all others; a function of which they take no
/// part is scheduled as it would be without.
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
    if !profile.asked_rules.is_empty() && !profile.asks_for(ROWS) {
        let (scheduled, taken_by) = schedule_units(sketch.clone(), vec![])?;
        if taken_by.iter().any(|rule| profile.asks_for(rule)) {
            return Ok(scheduled);
        }
    }
    let mut missed = Vec::new();
    let mut whole = sketch.clone();
    let outputs: Vec<BufferId> = f.outputs().collect();
    match rows::apply_whole(&mut whole).and_then(|()| whole.require_whole_words(&outputs, &[])) {
        Ok(()) => {
            let last = whole.f.body.blocks().last().map(|b| (b.name, ROWS));
            return finished(whole, ROWS, last.as_slice(), missed);
        }
        Err(Decline(why)) if !why.is_empty() => missed.push(format!("rule {ROWS}: {why}")),
        Err(_) => {}
    }
    schedule_units(sketch, missed).map(|(scheduled, _)| scheduled)
}

/// Schedules the function's units one after another; also gives the rules that took them.
fn schedule_units(
    mut sketch: Sketch<'_>,
    mut missed: Vec<String>,
) -> Result<(Scheduled, Vec<&'static str>), ScheduleError> {
    let list = sketch.units()?;
    sketch.merge_outputs(&list);
    let mut units: VecDeque<Unit> = list.into();
    let mut taken: Vec<(u64, Name, &'static str)> = pooling::schedule_windows(&mut sketch, &mut units, &mut missed);
    while let Some(unit) = units.pop_front() {
        if sketch.is_scheduled(&unit) {
            continue;
        }
        let later: Vec<Name> = units.iter().map(|u| u.output).collect();
        match schedule_unit(&mut sketch, &unit, &later, &mut missed)? {
            Taken::By(rule) => taken.push((unit.work, unit.output, rule)),
            Taken::Apart(parts) => parts.into_iter().rev().for_each(|p| units.push_front(p)),
        }
    }
    // The rule of the unit with the most work, the later one of equals.
    let most = |best: (u64, &'static str), t: &(u64, Name, &'static str)| if t.0 >= best.0 { (t.0, t.2) } else { best };
    let rule = taken.iter().fold((0, "elementwise"), most).1;
    let blocks: Vec<(Name, &'static str)> = taken.iter().map(|t| (t.1, t.2)).collect();
    Ok((finished(sketch, rule, &blocks, missed)?, taken.iter().map(|t| t.2).collect()))
}

/// Cuts kernels. Debug builds hold the result to what schedules that come from a file are held to.
fn finished(
    sketch: Sketch<'_>,
    rule: &'static str,
    taken: &[(Name, &'static str)],
    missed: Vec<String>,
) -> Result<Scheduled, ScheduleError> {
    let profile = sketch.profile;
    let function = sketch.finish()?;
    if cfg!(debug_assertions)
        && let Err(e) = crate::check::check_proposal(&function)
    {
        return Err(ScheduleError { instruction: format!("rule {rule}"), message: e.message, loops: e.loops });
    }
    let mut applied = describe_units(&function, taken);
    if !profile.software && profile.subgroup.1 > 0 {
        applied.extend(traffic::describe(&function, profile));
    }
    Ok(Scheduled { applied, function, rule, missed })
}

/// What became of a unit.
enum Taken {
    /// A rule scheduled it.
    By(&'static str),
    /// It became several, still to be scheduled.
    Apart([Unit; 2]),
}

/// Asks the rules in order; the reasons of those that decline are added to `missed`.
fn schedule_unit(
    sketch: &mut Sketch<'_>,
    unit: &Unit,
    later: &[Name],
    missed: &mut Vec<String>,
) -> Result<Taken, ScheduleError> {
    for rule in in_order(sketch.profile) {
        let saved = sketch.clone();
        let target: Vec<BufferId> =
            sketch.f.body.blocks().iter().filter(|b| b.name == unit.output).map(|b| b.buffer).collect();
        let applied = rule.ask(sketch, unit);
        let whole = applied.is_err() || sketch.require_whole_words(&target, later).is_ok();
        if let (Some(reduce), false, true) = (unit.reduce, whole, rule.tiles) {
            // Tiles do not end at words: they go to f32 memory, and a kernel of its own packs them.
            *sketch = saved;
            let copy = sketch.split_epilogue(reduce)?;
            let work = analysis::iterations(sketch, unit.output);
            let pack = Unit { reduce: None, window: None, output: unit.output, work };
            return Ok(Taken::Apart([Unit { output: copy, ..unit.clone() }, pack]));
        }
        match applied.and_then(|()| sketch.require_whole_words(&target, later)) {
            Ok(()) => return Ok(Taken::By(rule.name)),
            Err(Decline(why)) => {
                *sketch = saved;
                if !why.is_empty() {
                    missed.push(format!("rule {}: {}: {why}", rule.name, unit.name()));
                }
            }
        }
    }
    Err(ScheduleError {
        instruction: format!("schedule {}", unit.name()),
        message: format!("no rule takes it: {}", missed.join("; ")),
        loops: None,
    })
}
