//! A schedule provider that applies tuned schedules: choices of rules, or instructions of a template or of an edited
//! schedule. Functions without one go to another provider.

use super::rules::{Choice, FunctionVersion, Scheduled, schedule_with};
use super::{InstrRef, ScheduleError, ScheduleProvider, ScheduleTarget, accept, schedule_as_written};
use crate::arena::Id;
use crate::fingerprint::Fingerprint;
use crate::profile::DeviceProfile;
use crate::tir::{BufferId, TensorFunction};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The key of tuned choices: the device ([`DeviceProfile::identity`]), the unscheduled tensor function, and which of
/// its operands are constants.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Workload {
    /// Identity of the device.
    pub device: String,
    /// Fingerprint of the unscheduled function.
    pub function: String,
    /// Indices of its constant operands, in ascending order.
    pub constants: Vec<usize>,
}

impl Workload {
    /// The key of the unscheduled `f` on a device.
    pub fn of(f: &TensorFunction, constants: &[BufferId], profile: &DeviceProfile) -> Workload {
        let mut positions: Vec<usize> = constants.iter().map(|b| b.index()).collect();
        positions.sort_unstable();
        Workload { device: profile.identity(), function: f.fingerprint().to_string(), constants: positions }
    }
}

/// How a function is scheduled.
#[derive(Clone, Debug)]
pub struct TunedSchedule {
    /// Values for the choices of the rules.
    pub choices: Vec<Choice>,
    /// Instructions that no rule makes; where there are some, the choices do not count.
    pub instructions: Vec<InstrRef>,
    /// Where it comes from, for people: `tuned choices`, `template NAME`.
    pub by: String,
}

impl TunedSchedule {
    /// Choices that a search made.
    pub fn of_choices(choices: Vec<Choice>) -> TunedSchedule {
        TunedSchedule { choices, instructions: vec![], by: "tuned choices".into() }
    }

    /// Schedules the function in this way.
    fn schedule(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
    ) -> Result<Scheduled, ScheduleError> {
        if self.instructions.is_empty() {
            return schedule_with(function, constants, target, &self.choices);
        }
        let mut written = TensorFunction { pending: self.instructions.clone(), ..function.clone() };
        let mut scheduled = schedule_as_written(&written, constants, target)?;
        // A rule's proposal is right by construction; this may come from anybody's file.
        written.pending.clone_from(&scheduled.function.trace);
        accept(&mut written).map_err(|e| ScheduleError {
            instruction: String::new(),
            message: e.message,
            loops: e.loops,
        })?;
        scheduled.applied.clear();
        Ok(scheduled)
    }
}

/// Tuned schedules by workload, and the provider for all other functions.
pub struct Tuned {
    schedules: FxHashMap<Workload, TunedSchedule>,
    rest: Arc<dyn ScheduleProvider>,
}

impl Tuned {
    /// `rest` schedules the functions without tuned schedules.
    pub fn new(
        schedules: impl IntoIterator<Item = (Workload, TunedSchedule)>,
        rest: Arc<dyn ScheduleProvider>,
    ) -> Tuned {
        Tuned { schedules: schedules.into_iter().collect(), rest }
    }
}

impl ScheduleProvider for Tuned {
    /// If the tuned schedule no longer applies (a rule, its domain or an instruction has changed), `rest` schedules the
    /// function, and `declined` says so.
    fn schedule(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
    ) -> Result<Scheduled, ScheduleError> {
        let workload = Workload::of(function, constants, target.profile);
        // Rules that the user asks for by name precede tuned choices.
        let applies = function.symbols.is_empty() && target.options.rules.is_empty();
        let Some(own) = self.schedules.get(&workload).filter(|_| applies) else {
            return self.rest.schedule(function, constants, target);
        };
        match own.schedule(function, constants, target) {
            Ok(mut tuned) => {
                tuned.applied.insert(0, format!("scheduled by {}", own.by));
                Ok(tuned)
            }
            Err(e) => {
                let mut usual = self.rest.schedule(function, constants, target)?;
                let why = format!("{} are ignored, since they do not apply any more: {}", own.by, e.message);
                usual.declined.push(why);
                Ok(usual)
            }
        }
    }
    fn versions(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
        all: &Scheduled,
    ) -> Vec<FunctionVersion> {
        self.rest.versions(function, constants, target, all)
    }
    fn identity(&self) -> Option<String> {
        let rest = self.rest.identity()?;
        let mut all: Vec<_> = self.schedules.iter().collect();
        all.sort_by(|a, b| a.0.cmp(b.0));
        let digest = Fingerprint::of(|w| all.iter().for_each(|(k, v)| w.text(&format!("{k:?} {v:?}"))));
        Some(format!("{rest}, tuned {digest}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Rules;
    use crate::schedule::rules::{neighbours, values};
    use crate::schedule::testing::matmul;

    fn tuned(f: &TensorFunction, profile: &DeviceProfile, choices: Vec<Choice>) -> Scheduled {
        let workload = Workload::of(f, &[], profile);
        let provider = Tuned::new([(workload, TunedSchedule::of_choices(choices))], Arc::new(Rules));
        provider.schedule(f, &[], profile.into()).expect("a schedule")
    }

    #[test]
    fn each_neighbour_is_made_again_from_its_values() {
        let profile = DeviceProfile::lavapipe();
        let f = matmul(64, 48, 32);
        let own = Rules.schedule(&f, &[], (&profile).into()).expect("a schedule").function;
        let all = neighbours(&f, &[], &profile, &own.trace);
        assert!(all.len() > 5 && all.windows(2).all(|w| w[0].estimate.total() <= w[1].estimate.total()));
        for n in all {
            let again = tuned(&f, &profile, values(&n.scheduled.function.trace));
            assert_eq!(again.function.trace, n.scheduled.function.trace, "{:?}", n.choice);
            assert_ne!(again.function.trace, own.trace, "{:?}", n.choice);
        }
    }

    #[test]
    fn choices_that_do_not_apply_or_are_for_another_device_are_ignored() {
        let profile = DeviceProfile::lavapipe();
        let f = matmul(64, 48, 32);
        let usual = Rules.schedule(&f, &[], (&profile).into()).expect("a schedule").function.trace;
        let mut stale = values(&usual);
        stale[0].value = crate::attr::Attr::Str("no such rule".into());
        let s = tuned(&f, &profile, stale);
        assert_eq!(s.function.trace, usual);
        assert!(s.declined.iter().any(|d| d.contains("tuned choices are ignored")), "{:?}", s.declined);

        let ada = DeviceProfile::named("ada").expect("a profile");
        let other = Tuned::new([(Workload::of(&f, &[], &ada), TunedSchedule::of_choices(vec![]))], Arc::new(Rules));
        assert_eq!(other.schedule(&f, &[], (&profile).into()).expect("a schedule").function.trace, usual);
    }
}
