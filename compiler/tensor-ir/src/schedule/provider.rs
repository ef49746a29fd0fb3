//! Who schedules a tensor function that comes without a schedule: the rules, or a table of tuned choices, an expert's text, a search.

use super::ScheduleError;
use super::rules::{self, FunctionVersion, Scheduled};
use crate::profile::DeviceProfile;
use crate::tir::{BufferId, TensorFunction};

/// Schedules tensor functions for a device.
pub trait ScheduleProvider: Send + Sync {
    /// Schedules `function`, which has no schedule. `constants` are read parameters whose values are known when a session opens:
    /// they may be packed beforehand. Every statement of the result is in a kernel; the compiler checks that.
    ///
    /// # Errors
    /// An instruction that does not apply. Then the compilation fails.
    fn schedule(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        profile: &DeviceProfile,
    ) -> Result<Scheduled, ScheduleError>;
    /// Kernels for some sizes only of a function of open sizes, where `all` is its schedule for every size.
    fn versions(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        profile: &DeviceProfile,
        all: &Scheduled,
    ) -> Vec<FunctionVersion> {
        let _ = (function, constants, profile, all);
        vec![]
    }
    /// What its schedules depend on beside function and profile: part of the key of cached plans. Plans are not cached where it is
    /// `None`.
    fn identity(&self) -> Option<String>;
}

/// The schedule rules ([`rules::RULES`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules;

impl ScheduleProvider for Rules {
    fn schedule(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        profile: &DeviceProfile,
    ) -> Result<Scheduled, ScheduleError> {
        rules::schedule(function, constants, profile)
    }
    fn versions(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        profile: &DeviceProfile,
        all: &Scheduled,
    ) -> Vec<FunctionVersion> {
        rules::versions(function, constants, profile, all)
    }
    fn identity(&self) -> Option<String> {
        Some("rules".into())
    }
}
