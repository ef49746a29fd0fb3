//! Alternatives of a schedule: for each of its choices, the schedules with the other values, each with its estimate.

use super::entry::{schedule_by, script_of};
use super::predict::{estimate_as_made, without_pending};
use super::script::{Script, values};
use super::{Choice, Scheduled, choices};
use crate::schedule::estimate::Estimate;
use crate::schedule::{Choose, InstrRef, ScheduleError, ScheduleTarget};
use crate::tir::{BufferId, TensorFunction};

/// Alternatives that are made, at most.
const MOST: usize = 24;

/// A schedule that differs from the one at hand in one choice; the choices behind it follow from it.
#[derive(Clone, Debug)]
pub struct Alternative {
    /// The choice; none for the schedule at hand.
    pub choice: Option<Choice>,
    /// All choices of the schedule, where there is one.
    pub choices: Vec<Choice>,
    /// The cost of the function with this choice, or why it cannot be scheduled or run with it.
    pub estimate: Result<Estimate, String>,
}

impl Alternative {
    /// Nanoseconds, if it can be estimated.
    pub fn total(&self) -> Option<f64> {
        self.estimate.as_ref().ok().map(Estimate::total)
    }
}

/// The pending schedule of `f` and its alternatives on `target`: first the pending schedule, then the others from the
/// cheapest to the dearest, then those that are impossible. Parameters that the schedule packs are constants.
///
/// # Errors
/// When the pending schedule does not apply.
pub fn alternatives<'a>(
    f: &TensorFunction,
    target: impl Into<ScheduleTarget<'a>>,
) -> Result<Vec<Alternative>, ScheduleError> {
    let target = target.into();
    let (plain, constants) = without_pending(f);
    let made = |script: &Script, choice: Option<Choice>| -> Result<Alternative, ScheduleError> {
        let g = schedule_by(&plain, &constants, target, script)?.function;
        Ok(Alternative {
            choice,
            choices: values(&g.trace),
            estimate: estimate_as_made(&plain, &constants, target, &g),
        })
    };
    let own = made(&script_of(&f.pending), None)?;
    let lines = choices(&f.pending);
    let mut others: Vec<Alternative> = Vec::new();
    // The last choices first: earlier ones decide which later choices exist, and whole rules are of interest last.
    for (at, line) in lines.iter().enumerate().rev() {
        for value in line.of.iter().filter(|v| **v != line.value) {
            if others.len() == MOST {
                break;
            }
            let choice = Choice { unit: line.unit, point: line.point, value: value.clone() };
            let script = Script::read(&with(&lines, at, &choice));
            others.push(made(&script, Some(choice.clone())).unwrap_or_else(|e| Alternative {
                choice: Some(choice),
                choices: vec![],
                estimate: Err(e.message),
            }));
        }
    }
    let key = |a: &Alternative| a.total().unwrap_or(f64::INFINITY);
    others.sort_by(|a, b| key(a).total_cmp(&key(b)));
    Ok(std::iter::once(own).chain(others).collect())
}

/// A schedule that differs from another in one choice, and can run.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// The choice; those behind it follow from it.
    pub choice: Choice,
    /// The function with this schedule.
    pub scheduled: Scheduled,
    /// Its cost.
    pub estimate: Estimate,
}

/// All schedules of the unscheduled `f` that differ in one choice from the schedule with this trace, the cheapest
/// first. `constants` as for [`schedule`](super::schedule).
pub fn neighbours<'a>(
    f: &TensorFunction,
    constants: &[BufferId],
    target: impl Into<ScheduleTarget<'a>>,
    trace: &[InstrRef],
) -> Vec<Neighbour> {
    let target = target.into();
    let lines = choices(trace);
    let mut out: Vec<Neighbour> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        for value in line.of.iter().filter(|v| **v != line.value) {
            let choice = Choice { unit: line.unit, point: line.point, value: value.clone() };
            let made = schedule_by(f, constants, target, &Script::read(&with(&lines, at, &choice)));
            let Ok(scheduled) = made else { continue };
            let Ok(estimate) = estimate_as_made(f, constants, target, &scheduled.function) else { continue };
            out.push(Neighbour { choice, scheduled, estimate });
        }
    }
    out.sort_by(|a, b| a.estimate.total().total_cmp(&b.estimate.total()));
    out
}

/// The choices with one edited. Later choices of its unit are left to the rules.
fn with(lines: &[&Choose], at: usize, choice: &Choice) -> Vec<InstrRef> {
    let keeps = |(n, c): &(usize, &&Choose)| *n < at || c.unit != choice.unit;
    let edited = Choose { value: choice.value.clone(), ..lines[at].clone() };
    let before = lines.iter().enumerate().filter(keeps).map(|(_, c)| InstrRef::new((*c).clone()));
    before.chain([InstrRef::new(edited)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::DeviceProfile;
    use crate::schedule::rules::schedule;
    use crate::schedule::testing::matmul;

    #[test]
    fn the_pick_of_a_product_is_the_cheapest_by_its_own_estimate_or_nearly() {
        let profile = DeviceProfile::named("ada").expect("a profile");
        for (m, n, k) in [(3136, 64, 64), (196, 256, 1024), (49, 2048, 512)] {
            let mut f = matmul(m, n, k);
            let constants: Vec<BufferId> = f.inputs().skip(1).collect();
            f.pending = schedule(&f, &constants, &profile).expect("a schedule").function.trace;
            let list = alternatives(&f, &profile).expect("alternatives");
            let estimated = list.iter().filter(|a| a.total().is_some()).count();
            assert!((6..=MOST + 1).contains(&estimated), "{estimated} of {}", list.len());
            assert!(list[0].choice.is_none() && list[1..].iter().all(|a| a.choice.is_some()));
            assert!(
                list[1..]
                    .windows(2)
                    .all(|w| w[0].total().unwrap_or(f64::INFINITY) <= w[1].total().unwrap_or(f64::INFINITY))
            );
            let (own, next) = (list[0].total().expect("an estimate"), list[1].total().expect("an estimate"));
            // The rule decides by what it predicts, this compares what came out.
            assert!(own < 1.25 * next, "{m}x{n}x{k}: {own} {next} {:?}", list[1].choice);
        }
    }
}
