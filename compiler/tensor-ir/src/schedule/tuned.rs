//! A schedule provider that applies tuned schedules: choices of rules, or instructions of a template or of an edited
//! schedule. Functions without one go to another provider.

use super::rules::{Choice, FunctionVersion, Scheduled, schedule_with, version_by};
use super::{InstrRef, ScheduleError, ScheduleProvider, ScheduleTarget, Version, accept, schedule_as_written};
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

/// Functions of open sizes have tuned choices for so many sizes, at most.
const BUCKETS: usize = 4;

/// Tuned choices for one size of a family ([`Family`](crate::tir::canonical::Family)).
#[derive(Clone, Debug)]
pub struct FamilyMember {
    /// Identity of the device.
    pub device: String,
    /// Positions of constant operands.
    pub constants: Vec<usize>,
    /// Fingerprint of the family.
    pub family: String,
    /// The extents of the loops.
    pub extents: Vec<i64>,
    /// The choices.
    pub choices: Vec<Choice>,
}

/// Tuned schedules by workload, and the provider for all other functions.
pub struct Tuned {
    schedules: FxHashMap<Workload, TunedSchedule>,
    members: Vec<FamilyMember>,
    rest: Arc<dyn ScheduleProvider>,
}

impl Tuned {
    /// `rest` schedules the functions without tuned schedules.
    pub fn new(
        schedules: impl IntoIterator<Item = (Workload, TunedSchedule)>,
        rest: Arc<dyn ScheduleProvider>,
    ) -> Tuned {
        Tuned { schedules: schedules.into_iter().collect(), members: vec![], rest }
    }
    /// With choices for functions of open sizes of these families.
    pub fn with_families(self, members: impl IntoIterator<Item = FamilyMember>) -> Tuned {
        Tuned { members: members.into_iter().collect(), ..self }
    }

    /// The sizes of a function with one open size for which choices were tuned, in ascending order.
    fn buckets(&self, f: &TensorFunction, constants: &[BufferId], target: ScheduleTarget<'_>) -> Vec<(i64, &[Choice])> {
        if f.symbols.len() != 1 || self.members.is_empty() || !target.options.are_open() {
            return vec![];
        }
        let (own, family) = (Workload::of(f, constants, target.profile), f.family().fingerprint.to_string());
        let mine = |m: &&FamilyMember| (&m.device, &m.constants, &m.family) == (&own.device, &own.constants, &family);
        let sized = |m: &FamilyMember| f.size_of(&m.extents);
        let mut all: Vec<(i64, &[Choice])> =
            self.members.iter().filter(mine).filter_map(|m| Some((sized(m)?, &m.choices[..]))).collect();
        all.sort_by_key(|b| b.0);
        all.dedup_by_key(|b| b.0);
        // Of many, some that are spread over all.
        let last = all.len().saturating_sub(1);
        let kept: Vec<usize> = (0..BUCKETS).map(|n| n * last / (BUCKETS - 1)).collect();
        let few = all.len() <= BUCKETS;
        all.into_iter().enumerate().filter(|(n, _)| few || kept.contains(n)).map(|b| b.1).collect()
    }
}

/// A size between two others: the root of their product.
fn between(low: i64, high: i64) -> i64 {
    ((low as f64 * high as f64).sqrt().ceil() as i64).clamp(low + 1, high)
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
        // Rules that the user asks for by name precede tuned choices, and refused kernels are not made again.
        let applies = function.symbols.is_empty() && target.options.are_open();
        if let Some((size, choices)) = self.buckets(function, constants, target).last()
            && let Ok(mut tuned) = schedule_with(function, constants, target, choices)
        {
            let (symbol, _, _) = function.symbols[0];
            tuned.applied.insert(0, format!("scheduled by choices that were tuned for {symbol} = {size}"));
            return Ok(tuned);
        }
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
        let buckets = self.buckets(function, constants, target);
        let below = buckets.windows(2).filter_map(|pair| {
            let line = Version { symbol: function.symbols[0].0, below: between(pair[0].0, pair[1].0), multiple_of: 0 };
            let mut v = version_by(function, &line, constants, target, (all, pair[0].1))?;
            let how = format!("scheduled by choices that were tuned for {} = {}", line.symbol, pair[0].0);
            v.scheduled.applied.insert(0, how);
            Some(v)
        });
        let mut out: Vec<FunctionVersion> = below.collect();
        out.extend(self.rest.versions(function, constants, target, all));
        out
    }
    fn identity(&self, profile: &DeviceProfile) -> Option<String> {
        let rest = self.rest.identity(profile)?;
        if self.schedules.is_empty() && self.members.is_empty() {
            return Some(rest);
        }
        let mut all: Vec<_> = self.schedules.iter().collect();
        all.sort_by(|a, b| a.0.cmp(b.0));
        let mut members: Vec<String> = self.members.iter().map(|m| format!("{m:?}")).collect();
        members.sort_unstable();
        let digest = Fingerprint::of(|w| {
            all.iter().for_each(|(k, v)| w.text(&format!("{k:?} {v:?}")));
            members.iter().for_each(|m| w.text(m));
        });
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

    #[test]
    fn an_open_size_gets_the_choices_of_the_nearest_tuned_ones() {
        let profile = DeviceProfile::lavapipe();
        let product = |rows: &str, range: &str| {
            let text = format!(
                "tensor @f(%a: f32[{rows},48], %w: f32[48,32], out %y: f32[{rows},32]) {{
  {range}
  for i in 0..{rows} {{ for j in 0..32 {{ for k in 0..48 {{
    block y reduce sum init {{ %y[i, j] <- %a[i, k] * %w[k, j] }}
  }} }} }}
}}"
            );
            crate::text::parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}"))
        };
        let member = |rows: i64| {
            let f = product(&rows.to_string(), "");
            let own = Rules.schedule(&f, &[], (&profile).into()).expect("a schedule").function;
            // The neighbour of the rule's own, so that it differs from what the rule would do.
            let near = neighbours(&f, &[], &profile, &own.trace).remove(0);
            let family = f.family();
            FamilyMember {
                device: profile.identity(),
                constants: vec![],
                family: family.fingerprint.to_string(),
                extents: family.extents,
                choices: values(&near.scheduled.function.trace),
            }
        };
        let f = product("n", "symbol n in 1..=4096");
        let members: Vec<FamilyMember> = [8, 64, 1024, 16, 256, 512].map(member).into();
        let provider = |members: Vec<FamilyMember>| Tuned::new([], Arc::new(Rules)).with_families(members);
        let tuned = provider(members.clone());
        let sizes: Vec<i64> = tuned.buckets(&f, &[], (&profile).into()).iter().map(|b| b.0).collect();
        assert_eq!(sizes, [8, 16, 256, 1024]);
        let all = tuned.schedule(&f, &[], (&profile).into()).expect("a schedule");
        assert_eq!(all.applied[0], "scheduled by choices that were tuned for n = 1024");
        let versions = tuned.versions(&f, &[], (&profile).into(), &all);
        let below: Vec<i64> = versions.iter().map(|v| v.line.below).filter(|b| *b > 0).collect();
        assert!(below.starts_with(&[12, 64, 512]), "{below:?}");
        // The order of the lines does not matter, and those of other functions are left alone.
        assert_eq!(tuned.identity(&profile), provider(members.into_iter().rev().collect()).identity(&profile));
        let other = FamilyMember { extents: vec![8, 32, 50], ..member(8) };
        assert!(provider(vec![other]).buckets(&f, &[], (&profile).into()).is_empty());
    }
}
