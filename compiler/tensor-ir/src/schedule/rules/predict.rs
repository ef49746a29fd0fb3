//! The kernels that the rules would make of an unscheduled function, without making them: the estimate of such
//! functions.
//!
//! The function is prepared as for scheduling and split into the same units; for each unit the dispatcher gives the
//! cheapest candidate. Not predicted: candidates that decline when they are applied, and units that run in the loops of
//! another unit.

use super::analysis::{iterations, whole_unit};
use super::candidate::Candidate;
use super::decline::Decline;
use super::dispatch::{Asked, Pick, Picks, asks_for_units, rules_for, total};
use super::partition::{partition_by_bindings, partition_concats};
use super::pooling::{feeds_windows, one_or_two};
use super::script::{APART, Choice, FUNCTION, NOTHING, Script, values};
use super::sketch::Sketch;
use super::unit::Unit;
use super::view::View;
use super::{Rule, Takes, groups, in_order};
use crate::int::DimRanges;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::estimate::{Estimate, KernelEstimate, estimate_scheduled, least_cost_of_bytes, scheduled_kernels};
use crate::schedule::{ScheduleError, ScheduleTarget, TransformLayout};
use crate::tir::{Access, BufferId, Param, TensorFunction};
use crate::traffic::element_bytes;

/// Inlines what can be inlined, and cuts concatenations apart: of reductions unless they are left `whole`, and of more
/// operands than a kernel binds.
pub(super) fn prepare(sketch: &mut Sketch<'_>, whole: bool) {
    sketch.together(|s| {
        s.inline_all();
        if !whole {
            partition_concats(s);
        }
        partition_by_bindings(s);
    });
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
    let mut sketch = Sketch::new(f.clone(), constants, target.into(), &NOTHING);
    prepare(&mut sketch, false);
    sketch.together(|s| groups::units(s).map(drop))?;
    Ok(sketch.f)
}

/// The kernels that the rules would make of a function that is a sequence of plain stages.
///
/// # Errors
/// What the estimate cannot weigh.
pub(in crate::schedule) fn predicted(
    f: &TensorFunction,
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
) -> Result<Vec<KernelEstimate>, String> {
    predicted_by(f, constants, target, &NOTHING)
}

/// The estimate of the unscheduled `f` where these choices are made: the prices by which the rules choose.
///
/// # Errors
/// The estimate cannot weigh it, or the device lacks something.
pub fn price_of_choices<'a>(
    f: &TensorFunction,
    constants: &[BufferId],
    target: impl Into<ScheduleTarget<'a>>,
    choices: &[Choice],
) -> Result<Estimate, String> {
    let target = target.into();
    Estimate::of(predicted_by(f, constants, target, &Script::of_choices(choices))?, target.profile)
}

/// The estimate of the unscheduled `f` as the rules have scheduled it: of its kernels as they are; on processors, where
/// these do not show what runs in registers, the prices of its choices.
///
/// # Errors
/// As [`price_of_choices`].
pub fn estimate_as_made<'a>(
    f: &TensorFunction,
    constants: &[BufferId],
    target: impl Into<ScheduleTarget<'a>>,
    made: &TensorFunction,
) -> Result<Estimate, String> {
    let target = target.into();
    if target.profile.model().shaders {
        return estimate_scheduled(made, target.profile);
    }
    price_of_choices(&f.at_typical_sizes(&DimRanges::default()), constants, target, &values(&made.trace))
}

/// The estimate of a function with a pending schedule of the rules, on a processor: [`estimate_as_made`]. Parameters
/// that the schedule packs are constants.
///
/// # Errors
/// As [`price_of_choices`].
pub fn estimate_pending<'a>(f: &TensorFunction, target: impl Into<ScheduleTarget<'a>>) -> Result<Estimate, String> {
    let (plain, constants) = without_pending(f);
    let choices = values(&f.pending);
    price_of_choices(&plain.at_typical_sizes(&DimRanges::default()), &constants, target, &choices)
}

/// A function without its pending schedule, and the parameters that the schedule packs.
pub(super) fn without_pending(f: &TensorFunction) -> (TensorFunction, Vec<BufferId>) {
    let mut plain = f.canonical();
    plain.pending.clear();
    let packed: Vec<Name> =
        f.pending.iter().filter_map(|i| i.as_any().downcast_ref::<TransformLayout>()).map(|t| t.buffer).collect();
    let constants = plain.inputs().filter(|&b| packed.contains(&plain.buffers[b].name)).collect();
    (plain, constants)
}

fn predicted_by(
    f: &TensorFunction,
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
    script: &Script,
) -> Result<Vec<KernelEstimate>, String> {
    if f.stages().is_none() {
        return Err("it is scheduled in part".into());
    }
    let mut sketch = Sketch::to_predict(with_parameters(f), constants, target, script);
    if !sketch.view().stages().can_be_counted() {
        return Err("it has more iterations than can be counted".into());
    }
    prepare(&mut sketch, false);
    let asked_for_units = asks_for_units(target.options);
    let unit = whole_unit(&sketch.view());
    let one = unit.and_then(|unit| {
        let wish = script.wished_word(unit.name(), FUNCTION).map(|w| w.0);
        function_picks(&sketch, &unit, wish).next().filter(|_| wish != Some(APART))
    });
    let one = one.filter(|one| !one.kernels.is_empty());
    let Some(one) = one else { return Ok(kernels_of(kernels_apart(&sketch, f64::INFINITY, script)?)) };
    let limit = if asked_for_units { f64::INFINITY } else { pays_below(&one, target.profile) };
    Ok(match kernels_apart(&sketch, limit, script) {
        Ok(apart) if asked_for_units && apart.iter().any(|p| p.by_name) => kernels_of(apart),
        Ok(apart) if cost_of(&apart) < pays_below(&one, target.profile) => kernels_of(apart),
        _ => one.kernels,
    })
}

/// The kernels that a candidate gives, found by scheduling it: a price for rules of which the estimate knows nothing.
/// It takes as long as scheduling does, a millisecond or so.
pub fn price_as_scheduled(
    view: &View<'_>,
    unit: &Unit,
    candidate: &Candidate,
    apply: fn(&mut Sketch<'_>, &Unit, &Candidate) -> Result<(), Decline>,
) -> Vec<KernelEstimate> {
    let mut sketch = Sketch::of_view(view);
    sketch.unit = unit.name();
    let made = sketch.together(|s| apply(s, unit, candidate)).is_ok();
    let cut = sketch.finish().ok().filter(|_| made);
    cut.map_or(vec![], |f| scheduled_kernels(&f, view.profile))
}

/// The candidates of the rules for functions as a whole; of one rule where that is wished for.
pub(super) fn function_picks(sketch: &Sketch<'_>, unit: &Unit, wish: Option<&str>) -> Picks {
    let admits = |r: &Rule| wish.is_none_or(|n| n == r.name) && sketch.script.admits(unit.name(), r.name);
    let one = sketch.f.body.blocks().iter().all(|b| b.reduce.is_some() || b.name == unit.output);
    let takes = |r: &Rule| r.takes == Takes::Chains || r.takes == Takes::Functions && one;
    let rules = in_order(sketch.target).filter(|r| takes(r) && admits(r));
    let of = |rule| Asked { rule, by_name: wish.is_some() || sketch.target.options.asks_for(rule.name) };
    Picks::of(&sketch.view(), unit, &rules.map(of).collect::<Vec<_>>(), sketch.script)
}

/// What the units of a function may cost in nanoseconds, at most, to be worth more than one kernel for all.
fn pays_below(one: &Pick, profile: &DeviceProfile) -> f64 {
    one.cost().filter(|_| !one.by_name).map_or(0.0, |ns| (1.0 - profile.model().least_gain) * ns)
}

/// What the units of a prepared function cost in nanoseconds, where that is less than one kernel for all.
pub(super) fn cheaper_apart(sketch: &Sketch<'_>, one: &Pick) -> Option<f64> {
    let limit = pays_below(one, sketch.profile);
    let apart = cost_of(&kernels_apart(sketch, limit, &NOTHING).ok()?);
    (apart < limit).then_some(apart)
}

fn cost_of(parts: &[UnitPrice]) -> f64 {
    parts.iter().map(|p| total(&p.kernels)).sum()
}

fn kernels_of(parts: Vec<UnitPrice>) -> Vec<KernelEstimate> {
    parts.into_iter().flat_map(|p| p.kernels).collect()
}

/// What becomes of a unit, or of two that are one kernel.
struct UnitPrice {
    kernels: Vec<KernelEstimate>,
    by_name: bool,
}

/// The kernels of the units of a prepared function.
///
/// # Errors
/// What the estimate cannot weigh, and units that cost `limit` nanoseconds or more.
fn kernels_apart(sketch: &Sketch<'_>, limit: f64, script: &Script) -> Result<Vec<UnitPrice>, String> {
    let mut sketch = sketch.clone();
    sketch.script = &NOTHING;
    let units = sketch.together(groups::units).map_err(|e| e.to_string())?;
    let view = sketch.view();
    let partner = |unit: &Unit| {
        (0..units.len()).find(|&j| units[j].name() != unit.name() && feeds_windows(&sketch, unit, &units[j]))
    };
    let pairs: Vec<Option<usize>> = units.iter().map(partner).collect();
    if pairs.iter().all(Option::is_none) && units.iter().map(|u| least_cost(&view, u)).sum::<f64>() >= limit {
        return Err("one kernel costs less".into());
    }
    let mut out = Vec::with_capacity(units.len());
    let mut done: Vec<usize> = Vec::new();
    for (i, unit) in units.iter().enumerate() {
        if done.contains(&i) {
            continue;
        }
        let both = pairs[i].and_then(|j| Some((j, one_or_two(&view, unit, &units[j])?)));
        if let Some((j, pair)) = both.filter(|(_, pair)| pair.pays()) {
            done.push(j);
            out.push(UnitPrice { kernels: vec![pair.one], by_name: false });
            continue;
        }
        let rules = rules_for(sketch.target, script, unit);
        let pick = Picks::of(&view, unit, &rules, script).next();
        let pick = pick.filter(|p| !p.kernels.is_empty());
        let pick = pick.ok_or_else(|| format!("no rule says what {} costs", unit.name()))?;
        out.push(UnitPrice { kernels: pick.kernels, by_name: pick.by_name });
    }
    Ok(out)
}

/// What a kernel costs in nanoseconds that stores a unit's result, at least.
fn least_cost(view: &View<'_>, unit: &Unit) -> f64 {
    let elements = iterations(view, unit.output) as f64;
    let bytes = view.block(unit.output).map_or(0.0, |b| element_bytes(&view.f.buffers[b.buffer], view.profile));
    least_cost_of_bytes(view.profile, elements * bytes)
}

/// The function with parameters, where it has none: what it only reads, and what nobody reads.
pub(super) fn with_parameters(f: &TensorFunction) -> TensorFunction {
    let mut f = f.clone();
    if f.params.is_empty() {
        let blocks = f.body.blocks();
        let is = &|b: BufferId, access: Access| match access {
            Access::Read => blocks.iter().all(|x| x.buffer != b),
            Access::Write => blocks.iter().any(|x| x.buffer == b) && !blocks.iter().any(|x| x.reads(b)),
        };
        let of = |access| {
            f.buffers.iter().filter(move |(b, _)| is(*b, access)).map(move |(buffer, _)| Param { buffer, access })
        };
        let params: Vec<Param> = of(Access::Read).chain(of(Access::Write)).collect();
        f.params = params;
    }
    f
}
