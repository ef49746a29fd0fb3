//! The first tensor function whose schedule gives wrong results, and the rule that made it: the other functions get
//! `direct`, the rule that takes anything.

use super::cause::Cause;
use super::trial::{Case, Setting, Trials, first_wrong};
use crate::error::Result;
use compiler::compile::Compiled;
use compiler::fingerprint::Fingerprint;
use compiler::name::Name;
use compiler::schedule::rules::Scheduled;
use compiler::schedule::{Rules, ScheduleError, ScheduleOptions, ScheduleProvider, ScheduleTarget};
use compiler::tir::{BufferId, TensorFunction};
use std::sync::{Arc, Mutex, PoisonError};

/// The rule that takes anything, and whose kernels are the simplest.
const SIMPLE: &str = "direct";

/// A function that was scheduled, and the rule that took it.
#[derive(Clone, PartialEq)]
struct Scheduling {
    function: Fingerprint,
    name: Name,
    rule: String,
}

/// Schedules some functions as asked, and others by the simple rule.
struct Partly {
    asked: Arc<dyn ScheduleProvider>,
    /// Functions that are scheduled as asked; all of them where it is `None`.
    only: Option<Vec<Fingerprint>>,
    seen: Mutex<Vec<Scheduling>>,
}

impl Partly {
    fn new(setting: &Setting, only: Option<Vec<Fingerprint>>) -> Arc<Partly> {
        let asked = setting.schedules.clone().unwrap_or_else(|| Arc::new(Rules));
        Arc::new(Partly { asked, only, seen: Mutex::new(vec![]) })
    }
    /// The functions, in the order in which they were scheduled.
    fn seen(&self) -> Vec<Scheduling> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ScheduleProvider for Partly {
    fn schedule(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
    ) -> Result<Scheduled, ScheduleError> {
        let fingerprint = function.fingerprint();
        if self.only.as_ref().is_some_and(|only| !only.contains(&fingerprint)) {
            let simple = ScheduleOptions::of_rules([SIMPLE]);
            return Rules.schedule(function, constants, simple.on(target.profile));
        }
        let done = self.asked.schedule(function, constants, target)?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = Scheduling { function: fingerprint, name: function.name, rule: done.rule.to_string() };
        if !seen.iter().any(|s| s.function == fingerprint) {
            seen.push(entry);
        }
        Ok(done)
    }
    fn identity(&self, _: &compiler::profile::DeviceProfile) -> Option<String> {
        None
    }
}

/// Looks for a function whose schedule gives wrong results; `None` where the simple rule for all functions does too.
/// Where it does not, but no single function is to blame, the cause names no function.
///
/// # Errors
/// An error of compilation or of a run.
pub fn wrong_rule(trials: &Trials<'_>, case: &Case, setting: &Setting) -> Result<Option<Cause>> {
    let with = |provider: &Arc<Partly>| Setting { schedules: Some(provider.clone()), ..setting.clone() };
    let simple = Partly::new(setting, Some(vec![]));
    if !trials.run(case, &with(&simple), &format!("all kernels by the rule {SIMPLE}"))?.agrees() {
        return Ok(None);
    }
    let all = Partly::new(setting, None);
    let mut layers = vec![];
    trials.run_compiled(case, &with(&all), "all kernels as asked", |c| layers = layers_by_function(c))?;
    let seen = all.seen();
    let at = first_wrong(seen.len(), |count| {
        let only = seen[..count].iter().map(|s| s.function).collect();
        let what = format!("{count} of {} tensor functions as asked, the others by {SIMPLE}", seen.len());
        Ok(!trials.run(case, &with(&Partly::new(setting, Some(only))), &what)?.agrees())
    })?;
    let found = &seen[at - 1];
    let nodes = layers.into_iter().filter(|l| l.0 == found.name).flat_map(|l| l.1).collect();
    Ok(Some(Cause::Rule { name: found.rule.clone(), function: found.name.to_string(), nodes }))
}

/// The source nodes of each tensor function, a list for each group.
fn layers_by_function(c: &Compiled) -> Vec<(Name, Vec<Name>)> {
    let one = |g: &compiler::compile::Group| Some((g.tensor_function?, g.origins.clone()));
    c.groups.iter().filter_map(one).collect()
}
