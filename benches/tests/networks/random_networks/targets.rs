//! Targets of compilation: the device itself, or another profile limited to the device, possibly with a schedule rule
//! requested by name. So schedules for other devices are run on the device at hand.

use compiler::passes::PipelineOptions;
use compiler::profile::DeviceProfile;
use compiler::schedule::{ScheduleOptions, rules};
use proptest::prelude::*;

/// The target of compilation.
#[derive(Clone, Debug)]
pub struct Target {
    /// A named profile; none for the device itself.
    profile: Option<String>,
    /// Schedule rules asked for by name.
    rules: Vec<String>,
    /// Without the device's own f16: halves are packed in words.
    packed: bool,
}

impl Target {
    /// The device itself.
    pub fn device() -> Target {
        Target { profile: None, rules: vec![], packed: false }
    }
    /// The profile that `device` can run.
    pub fn on(&self, device: &DeviceProfile) -> DeviceProfile {
        let named = self.profile.as_deref().and_then(DeviceProfile::named);
        let profile = named.map_or_else(|| device.clone(), |p| p.limited_to(device));
        DeviceProfile { f16: profile.f16 && !self.packed, ..profile }
    }
    /// These options, with the rules that are asked for.
    pub fn asking(&self, pipeline: PipelineOptions) -> PipelineOptions {
        let scheduling = ScheduleOptions::of_rules(self.rules.clone());
        PipelineOptions { scheduling, ..pipeline }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(name) = &self.profile {
            write!(f, " --target {name}")?;
        }
        if !self.rules.is_empty() {
            write!(f, " --rules {}", self.rules.join(","))?;
        }
        if self.packed { write!(f, " with packed f16") } else { Ok(()) }
    }
}

/// The device itself, or any named profile; mostly with the rules that the profile suggests.
pub fn target() -> impl Strategy<Value = Target> {
    let names: Vec<String> = DeviceProfile::all().into_iter().map(|p| p.name).collect();
    let profile = prop_oneof![1 => Just(None), 2 => prop::sample::select(names).prop_map(Some)];
    let asked: Vec<String> = rules::names().into_iter().map(String::from).collect();
    let rules = prop_oneof![3 => Just(vec![]), 1 => prop::sample::select(asked).prop_map(|r| vec![r])];
    (profile, rules).prop_map(|(profile, rules)| Target { profile, rules, packed: false })
}

/// As [`target`], half of them with halves packed in words, as devices without f16 need them.
pub fn half_target() -> impl Strategy<Value = Target> {
    (target(), any::<bool>()).prop_map(|(target, packed)| Target { packed, ..target })
}
