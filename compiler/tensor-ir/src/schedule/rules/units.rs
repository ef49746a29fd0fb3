//! Scheduling of a function: as a whole by one rule, or unit by unit.

use super::analysis::{iterations, whole_unit};
use super::decline::Decline;
use super::describe::describe_units;
use super::dispatch::{Asked, Pick, Picks, asks_for_units, function_domain, rule_domain, rules_for};
use super::pooling::schedule_windows;
use super::predict::{cheaper_apart, function_picks, prepare};
use super::script::{APART, FUNCTION, RULE, Script, WRITTEN};
use super::sketch::Sketch;
use super::unit::Unit;
use super::{LOOP_BY_LOOP, Scheduled, groups};
use crate::check::check_proposal;
use crate::name::Name;
use crate::schedule::{InstrRef, ScheduleError, ScheduleTarget, SplitEpilogue};
use crate::tir::{BufferId, TensorFunction};
use std::collections::VecDeque;

/// Schedules a function, as far as the script does not say how.
pub(super) fn schedule(
    f: &TensorFunction,
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
    script: &Script,
) -> Result<Scheduled, ScheduleError> {
    let mut sketch = Sketch::new(f.clone(), constants, target, script);
    match &script.before {
        Some(list) => sketch.replay(list)?,
        None => prepare(&mut sketch, script.whole),
    }
    let done = schedule_parts(sketch)?;
    // Debug builds hold the result to what schedules that come from a file are held to.
    if cfg!(debug_assertions)
        && let Err(e) = check_proposal(&done.function, f)
    {
        return Err(ScheduleError { instruction: format!("rule {}", done.rule), message: e.message, loops: e.loops });
    }
    script.require(&done.function.trace, &done.declined)?;
    Ok(done)
}

fn schedule_parts(mut sketch: Sketch<'_>) -> Result<Scheduled, ScheduleError> {
    let whole = whole_unit(&sketch.view());
    let wished = whole.as_ref().is_some_and(|u| sketch.script.wish(u.name(), FUNCTION).is_some());
    if asks_for_units(sketch.target.options) && !wished {
        let (scheduled, taken_by) = schedule_units(sketch.clone(), vec![])?;
        if taken_by.iter().any(|rule| sketch.target.options.asks_for(rule)) {
            return Ok(scheduled);
        }
    }
    let mut declined = Vec::new();
    if let Some(unit) = whole
        && let Some(done) = schedule_whole(&mut sketch, &unit, &mut declined)?
    {
        return Ok(done);
    }
    schedule_units(sketch, declined).map(|(scheduled, _)| scheduled)
}

/// Schedules the function as one unit, where a rule takes it and its units are not wished apart.
fn schedule_whole(
    sketch: &mut Sketch<'_>,
    unit: &Unit,
    declined: &mut Vec<String>,
) -> Result<Option<Scheduled>, ScheduleError> {
    let wish = sketch.script.wished_word(unit.name(), FUNCTION).map(|w| w.0);
    if let Some(list) = sketch.script.written(unit.name(), FUNCTION) {
        sketch.replay(list)?;
        if wish == Some(APART) {
            return Ok(None);
        }
        return finished(sketch.clone(), WRITTEN, &[(unit.output, WRITTEN)], vec![]).map(Some);
    }
    if wish == Some(APART) {
        sketch.note_choice(unit.name(), FUNCTION, &APART.to_string(), &function_domain(sketch.target));
        return Ok(None);
    }
    let mut picks = function_picks(sketch, unit, wish);
    let mut refused = Vec::new();
    while let Some(pick) = picks.next() {
        if let Some(apart) = cheaper_apart(sketch, &pick) {
            let [one, apart] = [pick.cost().unwrap_or(0.0), apart].map(|ns| ns / 1e3);
            refused.push(format!("rule {}: one kernel takes {one:.1} us, several {apart:.1}", pick.rule.name));
            break;
        }
        let mut whole = sketch.clone();
        let target = target_of(&whole, unit);
        match pick.apply(&mut whole, unit).and_then(|()| whole.require_whole_words(&target, &[])) {
            Ok(()) => {
                let taken = [(unit.output, pick.rule.name)];
                declined.extend(refused);
                return finished(whole, pick.rule.name, &taken, std::mem::take(declined)).map(Some);
            }
            Err(Decline(why)) if !why.is_empty() => refused.push(pick.given_up(unit, &why)),
            Err(_) => {}
        }
    }
    declined.extend(picks.all_reasons(unit));
    declined.extend(refused);
    Ok(None)
}

/// Gives each block of a unit a kernel of its own: its outer loops are bound to workgroups as they stand.
fn take_apart(sketch: &mut Sketch<'_>, unit: &Unit) -> Result<(), Decline> {
    let blocks: Vec<Name> = sketch.f.body.blocks().iter().map(|b| b.name).collect();
    let own = [unit.reduce, unit.window.as_ref().map(|w| w.block), Some(unit.output)];
    blocks.into_iter().filter(|b| own.contains(&Some(*b))).try_for_each(|b| sketch.bind_outer_loops(b))
}

/// The buffer that a unit stores its result to.
fn target_of(sketch: &Sketch<'_>, unit: &Unit) -> Vec<BufferId> {
    sketch.f.body.blocks().iter().filter(|b| b.name == unit.output).map(|b| b.buffer).collect()
}

/// Schedules the function's units one after another; also gives the rules that took them.
fn schedule_units(
    mut sketch: Sketch<'_>,
    mut declined: Vec<String>,
) -> Result<(Scheduled, Vec<&'static str>), ScheduleError> {
    let list = sketch.together(|s| {
        let list = groups::units(s)?;
        if s.script.leaves_merging() {
            s.merge_outputs(&list);
        }
        Ok::<_, ScheduleError>(list)
    })?;
    let mut units: VecDeque<Unit> = list.into();
    let mut taken: Vec<(u64, Name, &'static str)> = schedule_windows(&mut sketch, &mut units, &mut declined)?;
    while let Some(unit) = units.pop_front() {
        if sketch.is_scheduled(&unit) {
            continue;
        }
        let later: Vec<Name> = units.iter().map(|u| u.output).collect();
        let part = match sketch.script.written(unit.name(), RULE) {
            Some(list) => as_written(&mut sketch, &unit, list)?,
            None => schedule_unit(&mut sketch, &unit, &later, &mut declined)?,
        };
        taken.push((unit.work, part.output, part.rule));
        if let Some(rest) = part.rest {
            units.push_front(rest);
        }
    }
    // The rule of the unit with the most work, the later one of equals.
    let most = |best: (u64, &'static str), t: &(u64, Name, &'static str)| if t.0 >= best.0 { (t.0, t.2) } else { best };
    let rule = taken.iter().fold((0, "elementwise"), most).1;
    let blocks: Vec<(Name, &'static str)> = taken.iter().map(|t| (t.1, t.2)).collect();
    Ok((finished(sketch, rule, &blocks, declined)?, taken.iter().map(|t| t.2).collect()))
}

/// Cuts kernels.
fn finished(
    sketch: Sketch<'_>,
    rule: &'static str,
    taken: &[(Name, &'static str)],
    declined: Vec<String>,
) -> Result<Scheduled, ScheduleError> {
    let function = sketch.finish()?;
    Ok(Scheduled { applied: describe_units(&function, taken), function, rule, declined, compromise: false })
}

/// A unit that is scheduled.
struct Taken {
    rule: &'static str,
    /// The block that writes its result.
    output: Name,
    /// What is left of it to schedule: the block that packs its result.
    rest: Option<Unit>,
}

/// A unit as it is written.
fn as_written(sketch: &mut Sketch<'_>, unit: &Unit, list: &[InstrRef]) -> Result<Taken, ScheduleError> {
    sketch.replay(list)?;
    let cuts = list.iter().filter_map(|i| i.as_any().downcast_ref::<SplitEpilogue>());
    let copy = cuts.filter(|s| Some(s.block) == unit.reduce).map(|s| s.into).next();
    let rest = copy.map(|_| packing_unit(sketch, unit));
    Ok(Taken { rule: WRITTEN, output: copy.unwrap_or(unit.output), rest })
}

/// The block that packs the result of a unit that was cut off from it.
fn packing_unit(sketch: &Sketch<'_>, unit: &Unit) -> Unit {
    let work = iterations(&sketch.view(), unit.output);
    Unit { reduce: None, window: None, output: unit.output, work }
}

/// Asks the rules; the reasons of those that decline are added to `declined`.
fn schedule_unit(
    sketch: &mut Sketch<'_>,
    unit: &Unit,
    later: &[Name],
    declined: &mut Vec<String>,
) -> Result<Taken, ScheduleError> {
    let rules = rules_for(sketch.target, sketch.script, unit);
    schedule_by_rules(sketch, unit, later, declined, &rules)
}

/// Schedules the unit as a candidate says. Tiles do not end at words: where the result is packed, they go to f32
/// memory, and a kernel of its own packs them.
fn schedule_as(sketch: &mut Sketch<'_>, unit: &Unit, later: &[Name], pick: &Pick) -> Result<Taken, Decline> {
    let saved = sketch.clone();
    let target = target_of(sketch, unit);
    let applied = pick.apply(sketch, unit);
    let rule = pick.rule.name;
    let why = match applied.and_then(|()| sketch.require_whole_words(&target, later)) {
        Ok(()) => return Ok(Taken { rule, output: unit.output, rest: None }),
        Err(why) => why,
    };
    let halfway = std::mem::replace(sketch, saved);
    let (Some(reduce), true) = (unit.reduce, pick.rule.tiles) else { return Err(why) };
    if halfway.require_whole_words(&target, later).is_ok() {
        return Err(why);
    }
    let whole = sketch.clone();
    pick.rule.begin(sketch, unit, pick.by_name);
    let output = sketch.split_epilogue(reduce)?;
    let inner = Unit { output, ..unit.clone() };
    match sketch.together(|s| (pick.rule.apply)(s, &inner, &pick.candidate)) {
        Ok(()) => Ok(Taken { rule, output, rest: Some(packing_unit(sketch, unit)) }),
        Err(_) => {
            *sketch = whole;
            Err(why)
        }
    }
}

/// [`schedule_unit`] by these rules. Where none takes the unit and nothing of the schedule is given, it is taken apart.
fn schedule_by_rules(
    sketch: &mut Sketch<'_>,
    unit: &Unit,
    later: &[Name],
    declined: &mut Vec<String>,
    rules: &[Asked],
) -> Result<Taken, ScheduleError> {
    // Not as the rule of the unit before was asked.
    sketch.asked = false;
    let mut picks = Picks::of(&sketch.view(), unit, rules, sketch.script);
    let mut refused: Vec<String> = Vec::new();
    while let Some(pick) = picks.next() {
        let saved = sketch.clone();
        match schedule_as(sketch, unit, later, &pick) {
            Ok(taken) => {
                let lines = picks.reasons(unit, &pick).into_iter().chain(refused);
                lines.for_each(|line| {
                    if !declined.contains(&line) {
                        declined.push(line);
                    }
                });
                return Ok(taken);
            }
            Err(Decline(why)) => {
                *sketch = saved;
                let line = pick.given_up(unit, &why);
                if !why.is_empty() && !refused.contains(&line) {
                    refused.push(line);
                }
            }
        }
    }
    declined.extend(picks.all_reasons(unit).into_iter().chain(refused));
    let mut why = declined.join("; ");
    let wish = sketch.script.wished_word(unit.name(), RULE).filter(|w| w.1);
    if sketch.script.is_empty() {
        let mut apart = sketch.clone();
        let target = target_of(&apart, unit);
        if take_apart(&mut apart, unit).is_ok() && apart.require_whole_words(&target, later).is_ok() {
            *sketch = apart;
            return Ok(Taken { rule: LOOP_BY_LOOP, output: unit.output, rest: None });
        }
    }
    if let Some((name, _)) = wish {
        let domain = rule_domain(sketch.target, unit);
        why = match (rules.is_empty(), why.is_empty()) {
            (true, _) => format!("`rule` is one of {}, not {name}", domain.join(", ")),
            (_, true) => format!("rule {name} takes nothing of this kind"),
            _ => why,
        };
    }
    Err(ScheduleError {
        instruction: format!("schedule {}", unit.name()),
        message: format!("no rule takes it: {why}"),
        loops: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::DeviceProfile;
    use crate::schedule::testing::{assert_same, matmul, softmax};

    #[test]
    fn a_unit_that_no_rule_takes_is_taken_apart() {
        for f in [matmul(5, 4, 3), softmax(4, 7)] {
            let profile = DeviceProfile::baseline();
            let script = &super::super::script::NOTHING;
            let mut sketch = Sketch::new(f.clone(), &[], (&profile).into(), script);
            for unit in sketch.units().unwrap_or_else(|e| panic!("{e}")) {
                let taken = schedule_by_rules(&mut sketch, &unit, &[], &mut vec![], &[]);
                assert_eq!(taken.unwrap_or_else(|e| panic!("{e}")).rule, LOOP_BY_LOOP);
            }
            let g = sketch.finish().unwrap_or_else(|e| panic!("{e}"));
            crate::check::check_kernels(&g).unwrap_or_else(|e| panic!("{e}"));
            assert_same(&f, &g);
        }
    }
}
