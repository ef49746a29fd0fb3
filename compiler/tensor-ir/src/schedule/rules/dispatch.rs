//! The dispatcher: chooses the rule and the candidate of a unit, the cheapest of all.
//!
//! A rule that is requested by name is tried before all others. Among the rest the estimate decides; if candidates cost
//! the same, the rule that is first in the table is taken.

use super::candidate::Candidate;
use super::decline::Decline;
use super::script::{APART, FUNCTION, NOTHING, RULE, Script};
use super::sketch::Sketch;
use super::unit::Unit;
use super::view::View;
use super::{Rule, Takes, all, in_order};
use crate::schedule::estimate::KernelEstimate;
use crate::schedule::{ScheduleOptions, ScheduleTarget};

/// Largest number of candidates of a rule that are tried if each declines when it is applied.
const TRIES: usize = 4;

/// In the remark on a candidate that was chosen and does not apply.
pub const GIVEN_UP: &str = "was chosen and does not apply";

/// A rule that is asked for a unit.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub rule: &'static Rule,
    /// It was requested by name: it takes every unit that it can, whether or not that suits the device.
    pub by_name: bool,
}

/// The rules to ask for a unit: a requested one comes first.
pub(super) fn rules_for(target: ScheduleTarget<'_>, script: &Script, unit: &Unit) -> Vec<Asked> {
    let of = |rule: &'static Rule| Asked { rule, by_name: target.options.asks_for(rule.name) };
    let takes = |r: &&Rule| r.takes.fits(unit) && script.admits(unit.name(), r.name);
    let usual = in_order(target).filter(takes).map(of);
    let Some((name, required)) = script.wished_word(unit.name(), RULE) else { return usual.collect() };
    let wished = in_order(target).filter(|r| r.name == name && takes(r)).map(|rule| Asked { rule, by_name: true });
    match required {
        true => wished.collect(),
        // It took the unit before, perhaps only because it was requested.
        false => wished.chain(usual).collect(),
    }
}

/// Rules are asked for by name, and all of them take units rather than whole functions.
pub(super) fn asks_for_units(options: &ScheduleOptions) -> bool {
    !options.rules.is_empty() && !all().any(|r| r.takes.whole() && options.asks_for(r.name))
}

/// What may become of a function that a rule takes as a whole.
pub(super) fn function_domain(target: ScheduleTarget<'_>) -> Vec<String> {
    let rules = in_order(target).filter(|r| r.takes.whole());
    rules.map(|r| r.name).chain([APART]).map(String::from).collect()
}

/// The rules that may take a unit.
pub(super) fn rule_domain(target: ScheduleTarget<'_>, unit: &Unit) -> Vec<String> {
    in_order(target).filter(|r| r.takes.fits(unit)).map(|r| r.name.to_string()).collect()
}

impl Rule {
    /// Records that this rule is at work on the unit, with the others that could be.
    pub(super) fn begin(&self, sketch: &mut Sketch<'_>, unit: &Unit, by_name: bool) {
        sketch.asked = by_name;
        sketch.unit = unit.name();
        let (point, domain) = match self.takes {
            Takes::Functions | Takes::Chains => (FUNCTION, function_domain(sketch.target)),
            _ => (RULE, rule_domain(sketch.target, unit)),
        };
        sketch.note_choice(unit.name(), point, &self.name.to_string(), &domain);
    }
}

/// A candidate with its cost.
#[derive(Clone)]
pub(super) struct Pick {
    pub rule: &'static Rule,
    pub by_name: bool,
    pub candidate: Candidate,
    /// Its kernels; empty if the estimate cannot weigh it.
    pub kernels: Vec<KernelEstimate>,
    /// The position of its rule among those that are asked.
    position: usize,
}

impl Pick {
    /// Nanoseconds; `None` if the estimate cannot weigh it.
    pub fn cost(&self) -> Option<f64> {
        (!self.kernels.is_empty()).then(|| total(&self.kernels))
    }
    /// That it was chosen for the unit, and does not apply. At fixed sizes that does not happen in the zoo
    /// (`cli/tests/prices.rs`).
    pub fn given_up(&self, unit: &Unit, why: &str) -> String {
        let choices = self.candidate.to_string();
        let with = if choices.is_empty() { choices } else { format!(" with {choices}") };
        format!("rule {}: {}{with} {GIVEN_UP}: {why}", self.rule.name, unit.name())
    }
    /// Schedules the unit in the sketch, or says why not. A rule that is asked for by name does not decline for the
    /// sake of the device's speed.
    pub fn apply(&self, sketch: &mut Sketch<'_>, unit: &Unit) -> Result<(), Decline> {
        self.rule.begin(sketch, unit, self.by_name);
        sketch.together(|s| (self.rule.apply)(s, unit, &self.candidate))
    }
}

pub(super) fn total(kernels: &[KernelEstimate]) -> f64 {
    kernels.iter().map(KernelEstimate::total).sum()
}

/// The candidates of all rules that fit, to be tried from the cheapest on.
pub(super) struct Picks {
    /// [`MachineModel::least_gain`](crate::profile::MachineModel::least_gain).
    least_gain: f64,
    rest: Vec<Pick>,
    /// Rules that have none, by position, and why.
    declined: Vec<(usize, &'static str, String)>,
    tries: Vec<usize>,
}

impl Picks {
    /// Asks the rules for their candidates and prices. If values are requested and some candidates have them, only
    /// these are considered.
    ///
    /// A requested value is one of the rule that would take the unit without it, unless a rule is requested, too.
    pub fn of(view: &View<'_>, unit: &Unit, rules: &[Asked], script: &Script) -> Picks {
        let alone = script.requires(unit.name()) && script.wish(unit.name(), RULE).is_none();
        let usual = alone.then(|| Picks::of(view, unit, rules, &NOTHING).next()).flatten();
        let own: Vec<Asked> =
            rules.iter().copied().filter(|r| usual.as_ref().is_none_or(|u| u.rule.name == r.rule.name)).collect();
        let rules = &own[..];
        let least_gain = view.profile.model().least_gain;
        let mut picks = Picks { least_gain, rest: vec![], declined: vec![], tries: vec![0; rules.len()] };
        // One view for all rules, so that the counts of the estimate are reused.
        let asking = View::new(view.f, view.constants, view.target, true);
        for (position, &Asked { rule, by_name }) in rules.iter().enumerate() {
            let view = if by_name { &asking } else { view };
            match (rule.candidates)(view, unit) {
                Ok(list) => {
                    let list = considered(list, unit, script);
                    let list = picks.without_refused(&view.target, unit, (position, rule), list);
                    picks.rest.extend(list.into_iter().map(|candidate| {
                        let kernels = (rule.price)(view, unit, &candidate);
                        Pick { rule, by_name, candidate, kernels, position }
                    }));
                }
                Err(Decline(why)) => picks.declined.push((position, rule.name, why)),
            }
        }
        picks
    }
    /// The candidates of a rule that the shader generator did not refuse; the others are noted.
    fn without_refused(
        &mut self,
        target: &ScheduleTarget<'_>,
        unit: &Unit,
        (position, rule): (usize, &'static Rule),
        mut list: Vec<Candidate>,
    ) -> Vec<Candidate> {
        list.retain(|c| {
            let why = target.options.refusal(unit.name(), rule.name, &c.printed());
            let noted = self.declined.iter().any(|d| d.0 == position);
            if let Some(why) = why.filter(|_| !noted) {
                self.declined.push((position, rule.name, refusal(c, why)));
            }
            why.is_none()
        });
        list
    }
    /// The cheapest of those that were not tried yet.
    pub fn next(&mut self) -> Option<Pick> {
        let at = self.best()?;
        let pick = self.rest.swap_remove(at);
        self.tries[pick.position] += 1;
        if self.tries[pick.position] == TRIES {
            self.rest.retain(|p| p.position != pick.position);
        }
        Some(pick)
    }
    /// The position of the best one.
    fn best(&self) -> Option<usize> {
        let by_name = self.rest.iter().filter(|p| p.by_name).map(|p| p.position).min();
        let counts = |p: &Pick| by_name.is_none_or(|position| p.position == position);
        let priced = self.rest.iter().any(|p| counts(p) && p.cost().is_some());
        let mut best: Option<(usize, f64)> = None;
        let mut order: Vec<usize> = (0..self.rest.len()).collect();
        order.sort_by_key(|&i| self.rest[i].position);
        for i in order.into_iter().filter(|&i| counts(&self.rest[i])) {
            let pick = &self.rest[i];
            let cost = match pick.cost() {
                Some(cost) => cost,
                None if priced => continue,
                None => f64::INFINITY,
            };
            let better = |(b, least): (usize, f64)| match self.rest[b].position == pick.position {
                true => cost < least,
                false => cost < (1.0 - self.least_gain) * least,
            };
            if best.is_none_or(better) {
                best = Some((i, cost));
            }
        }
        best.map(|b| b.0)
    }
    /// Why rules that stand before the one that was taken did not take the unit.
    pub fn reasons(&self, unit: &Unit, taken: &Pick) -> Vec<String> {
        let before = |position: usize| position < taken.position;
        let mut lines: Vec<(usize, String)> = Vec::new();
        for (position, rule, why) in self.declined.iter().filter(|d| before(d.0) && !d.2.is_empty()) {
            lines.push((*position, format!("rule {rule}: {}: {why}", unit.name())));
        }
        if let Some(cost) = taken.cost() {
            for position in (0..taken.position).filter(|p| self.tries[*p] == 0) {
                let own = self.rest.iter().filter(|p| p.position == position);
                let best = own.filter_map(|p| Some((p.rule.name, p.cost()?))).min_by(|a, b| a.1.total_cmp(&b.1));
                if let Some((rule, own)) = best {
                    let [own, cost] = [own, cost].map(|ns| ns / 1e3);
                    let by = taken.rule.name;
                    lines.push((
                        position,
                        format!("rule {rule}: {}: takes {own:.1} us, {by} {cost:.1} us", unit.name()),
                    ));
                }
            }
        }
        lines.sort_by_key(|l| l.0);
        lines.into_iter().map(|l| l.1).collect()
    }
    /// Why no rule takes the unit.
    pub fn all_reasons(&self, unit: &Unit) -> Vec<String> {
        let with_reason = self.declined.iter().filter(|d| !d.2.is_empty());
        with_reason.map(|(_, rule, why)| format!("rule {rule}: {}: {why}", unit.name())).collect()
    }
}

/// That a candidate was chosen, and the shader generator refused its kernel.
fn refusal(c: &Candidate, why: &str) -> String {
    let choices = c.to_string();
    let with = if choices.is_empty() { choices } else { format!("with {choices} ") };
    format!("{with}{GIVEN_UP}: {why}")
}

/// For each point, the candidates with the requested values if there are any; else those that need no request.
fn considered(mut list: Vec<Candidate>, unit: &Unit, script: &Script) -> Vec<Candidate> {
    let points: Vec<&'static str> = list.first().map_or(vec![], |c| c.points().into_iter().map(|p| p.0).collect());
    for point in points {
        let Some((wish, _)) = script.wish(unit.name(), point) else { continue };
        let has = |c: &Candidate| c.value(point).as_ref() == Some(wish);
        if list.iter().any(has) {
            list.retain(has);
        }
    }
    if list.iter().any(|c| !c.is_on_request()) {
        list.retain(|c| !c.is_on_request());
    }
    list
}
