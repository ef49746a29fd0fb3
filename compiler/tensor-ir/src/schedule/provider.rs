//! Schedule providers: they schedule a tensor function that has no schedule. The rules are one provider; a table of
//! tuned choices, an expert's text or a search may be others.

use super::rules::{self, FunctionVersion, Scheduled};
use super::{ScheduleError, ScheduleTarget};
use crate::profile::DeviceProfile;
use crate::tir::{BufferId, TensorFunction};

/// Schedules tensor functions for a device, as the user asks.
pub trait ScheduleProvider: Send + Sync {
    /// Schedules `function`, which has no schedule. `constants` are read parameters whose values are known when a
    /// session opens: they may be packed beforehand. Every statement of the result is in a kernel; the compiler checks
    /// that.
    ///
    /// # Errors
    /// An instruction that does not apply. Then the compilation fails.
    fn schedule(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
    ) -> Result<Scheduled, ScheduleError>;
    /// Versions of a function of open sizes: kernels for some sizes only. `all` is its schedule for every size.
    fn versions(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
        all: &Scheduled,
    ) -> Vec<FunctionVersion> {
        let _ = (function, constants, target, all);
        vec![]
    }
    /// Everything besides function and target that its schedules for a device depend on, as part of the key of cached
    /// plans. With `None`, plans are not cached.
    fn identity(&self, profile: &DeviceProfile) -> Option<String>;
}

/// The schedule rules ([`rules::RULES`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules;

impl ScheduleProvider for Rules {
    fn schedule(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
    ) -> Result<Scheduled, ScheduleError> {
        let all = rules::schedule(function, constants, target)?;
        Ok(rules::in_one_order(function, constants, target, &all).unwrap_or(all))
    }
    fn versions(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
        all: &Scheduled,
    ) -> Vec<FunctionVersion> {
        rules::versions(function, constants, target, all)
    }
    fn identity(&self, _: &DeviceProfile) -> Option<String> {
        Some("rules".into())
    }
}
