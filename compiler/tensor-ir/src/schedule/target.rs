//! What functions are scheduled for: a device, and what the user asks of the rules.
//!
//! A profile has facts about a device. Which rules to try first and which versions to make are wishes of the user.
//! Both decide schedules and their estimates, so both are part of the keys of cached plans and of traces.

use crate::name::Name;
use crate::profile::DeviceProfile;

crate::attr_enum! {
    /// Which kernels for some sizes only a function of open sizes gets.
    #[derive(Default)]
    pub enum Versions {
        /// Those that pay, by the estimate.
        #[default]
        Auto = "auto",
        /// All that there are.
        All = "all",
        /// None.
        Off = "off",
    }
}

/// What a user asks of the schedule rules.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct ScheduleOptions {
    /// Names of rules that are tried before all others, in this order, whether or not they suit the device.
    pub rules: Vec<String>,
    /// Which versions functions of open sizes get.
    pub versions: Versions,
    /// Candidates that are not to be taken, since the shader generator refused them.
    #[serde(skip)]
    pub refused: Vec<RefusedCandidate>,
}

/// Nothing is asked for.
static NOTHING: ScheduleOptions = ScheduleOptions { rules: Vec::new(), versions: Versions::Auto, refused: Vec::new() };

/// Candidates of a rule for one unit that the shader generator refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusedCandidate {
    /// The block that names the unit.
    pub unit: Name,
    /// The rule.
    pub rule: String,
    /// The choices, as (point, value in text). Those of all candidates that have these values; of all the rule's
    /// without any.
    pub values: Vec<(Name, String)>,
    /// The generator's message.
    pub why: String,
}

impl RefusedCandidate {
    /// True if a candidate of the rule for the unit has these values at its points.
    fn is(&self, unit: Name, rule: &str, points: &[(&'static str, String)]) -> bool {
        let value = |point: &str| self.values.iter().find(|v| v.0.as_str() == point).map(|v| &v.1);
        let same = |(point, v): &(&str, String)| value(point).is_none_or(|given| given == v);
        self.unit == unit && self.rule == rule && points.iter().all(same)
    }
}

impl ScheduleOptions {
    /// Asks for these rules, in this order.
    pub fn of_rules<S: Into<String>>(rules: impl IntoIterator<Item = S>) -> ScheduleOptions {
        ScheduleOptions { rules: rules.into_iter().map(S::into).collect(), ..ScheduleOptions::default() }
    }
    /// True if the rule `name` is asked for.
    pub fn asks_for(&self, name: &str) -> bool {
        self.rules.iter().any(|r| r == name)
    }
    /// True if nothing speaks for or against a candidate.
    pub(in crate::schedule) fn are_open(&self) -> bool {
        self.rules.is_empty() && self.refused.is_empty()
    }
    /// Why the shader generator refused the candidate with these values, if it did.
    pub(in crate::schedule) fn refusal(
        &self,
        unit: Name,
        rule: &str,
        points: &[(&'static str, String)],
    ) -> Option<&str> {
        self.refused.iter().find(|r| r.is(unit, rule, points)).map(|r| r.why.as_str())
    }
    /// These options on a device.
    pub fn on<'a>(&'a self, profile: &'a DeviceProfile) -> ScheduleTarget<'a> {
        ScheduleTarget { profile, options: self }
    }
}

/// A device, and what the user asks of the rules there. `(&profile).into()` is a target of which nothing is asked.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleTarget<'a> {
    /// The device.
    pub profile: &'a DeviceProfile,
    /// What the user asks for.
    pub options: &'a ScheduleOptions,
}

impl<'a> From<&'a DeviceProfile> for ScheduleTarget<'a> {
    fn from(profile: &'a DeviceProfile) -> ScheduleTarget<'a> {
        NOTHING.on(profile)
    }
}

impl ScheduleTarget<'_> {
    /// Products of f16 operands run on matrix units. Software devices use them only if their rule is asked for.
    pub fn multiplies_matrices(&self) -> bool {
        let asked = || self.options.asks_for("matmul-matrix") && self.profile.has_matrix_units();
        self.profile.multiplies_matrices() || asked()
    }
    /// Products of four bytes and their sum are one operation; on any device if the rule for them is asked for.
    pub fn multiplies_bytes(&self) -> bool {
        self.options.asks_for("matmul-dot") || self.profile.multiplies_bytes()
    }
}
