//! Schedules by choices that measurements made, and by another provider where there are none.

use super::rules::{Choice, FunctionVersion, Scheduled, schedule_with};
use super::{ScheduleError, ScheduleProvider};
use crate::arena::Id;
use crate::fingerprint::Fingerprint;
use crate::profile::DeviceProfile;
use crate::tir::{BufferId, TensorFunction};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What choices are for: a device ([`DeviceProfile::identity`]), and a tensor function with the operands that are
/// constants.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Workload {
    /// The device.
    pub device: String,
    /// The function, unscheduled.
    pub function: String,
    /// Positions of its constant operands.
    pub constants: Vec<usize>,
}

impl Workload {
    /// Of the unscheduled `f` on a device.
    pub fn of(f: &TensorFunction, constants: &[BufferId], profile: &DeviceProfile) -> Workload {
        let mut positions: Vec<usize> = constants.iter().map(|b| b.index()).collect();
        positions.sort_unstable();
        Workload { device: profile.identity(), function: f.fingerprint().to_string(), constants: positions }
    }
}

/// Choices for workloads; another provider schedules everything else.
pub struct Tuned {
    choices: FxHashMap<Workload, Vec<Choice>>,
    rest: Arc<dyn ScheduleProvider>,
    required: bool,
}

impl Tuned {
    /// With `required`, a device without any choices is an error.
    pub fn new(
        choices: impl IntoIterator<Item = (Workload, Vec<Choice>)>,
        rest: Arc<dyn ScheduleProvider>,
        required: bool,
    ) -> Tuned {
        Tuned { choices: choices.into_iter().collect(), rest, required }
    }
}

impl ScheduleProvider for Tuned {
    /// Choices that do not apply any more (a rule or its domain has changed) are ignored, with a line in `declined`.
    fn schedule(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        profile: &DeviceProfile,
    ) -> Result<Scheduled, ScheduleError> {
        let workload = Workload::of(function, constants, profile);
        if self.required && !self.choices.keys().any(|w| w.device == workload.device) {
            let message = format!("tuned choices are required, and there are none for {}", workload.device);
            return Err(ScheduleError { instruction: function.name.to_string(), message, loops: None });
        }
        let Some(values) = self.choices.get(&workload).filter(|_| function.symbols.is_empty()) else {
            return self.rest.schedule(function, constants, profile);
        };
        match schedule_with(function, constants, profile, values) {
            Ok(mut tuned) => {
                tuned.applied.insert(0, "scheduled by tuned choices".into());
                Ok(tuned)
            }
            Err(e) => {
                let mut usual = self.rest.schedule(function, constants, profile)?;
                usual
                    .declined
                    .push(format!("tuned choices are ignored, since they do not apply any more: {}", e.message));
                Ok(usual)
            }
        }
    }
    fn versions(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        profile: &DeviceProfile,
        all: &Scheduled,
    ) -> Vec<FunctionVersion> {
        self.rest.versions(function, constants, profile, all)
    }
    fn identity(&self) -> Option<String> {
        let rest = self.rest.identity()?;
        let mut all: Vec<_> = self.choices.iter().collect();
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
        let provider = Tuned::new([(workload, choices)], Arc::new(Rules), true);
        provider.schedule(f, &[], profile).expect("a schedule")
    }

    #[test]
    fn each_neighbour_is_made_again_from_its_values() {
        let profile = DeviceProfile::lavapipe();
        let f = matmul(64, 48, 32);
        let own = Rules.schedule(&f, &[], &profile).expect("a schedule").function;
        let all = neighbours(&f, &[], &profile, &own.trace);
        assert!(all.len() > 5 && all.windows(2).all(|w| w[0].estimate.total() <= w[1].estimate.total()));
        for n in all {
            let again = tuned(&f, &profile, values(&n.scheduled.function.trace));
            assert_eq!(again.function.trace, n.scheduled.function.trace, "{:?}", n.choice);
            assert_ne!(again.function.trace, own.trace, "{:?}", n.choice);
        }
    }

    #[test]
    fn choices_that_do_not_apply_are_ignored_and_other_devices_are_told() {
        let profile = DeviceProfile::lavapipe();
        let f = matmul(64, 48, 32);
        let usual = Rules.schedule(&f, &[], &profile).expect("a schedule").function.trace;
        let mut stale = values(&usual);
        stale[0].value = crate::attr::Attr::Str("no such rule".into());
        let s = tuned(&f, &profile, stale);
        assert_eq!(s.function.trace, usual);
        assert!(s.declined.iter().any(|d| d.contains("tuned choices are ignored")), "{:?}", s.declined);

        let ada = DeviceProfile::named("ada").expect("a profile");
        let none = Tuned::new([(Workload::of(&f, &[], &ada), vec![])], Arc::new(Rules), true);
        let e = none.schedule(&f, &[], &profile).expect_err("no choices");
        assert!(e.message.contains("lavapipe"), "{e}");
    }
}
