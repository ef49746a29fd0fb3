//! The targets by name.

use super::interpreter::InterpreterTarget;
use super::options::TargetOptions;
use super::region::Region;
use super::target::ExternalTarget;
use crate::fingerprint::Fingerprint;
use crate::graph::Module;
use crate::name::Name;
use crate::ops::control::CallHost;
use crate::ops::external_scope::External;
use crate::registry::Table;
use std::collections::BTreeSet;

/// The targets of this crate.
const OWN: &[&dyn ExternalTarget] = &[
    // One a line.
    &InterpreterTarget,
];

/// Every target; [`register_target`] adds one.
static TARGETS: Table<&'static dyn ExternalTarget> = Table::new(OWN);

/// Adds a target for as long as the program runs. Call it before anything is compiled.
///
/// # Errors
/// When there is a target of this name.
pub fn register_target(target: &'static dyn ExternalTarget) -> Result<(), String> {
    let name = target.name();
    TARGETS.add(target, |t| t.name() == name).map_err(|_| format!("there is an external target `{name}`"))
}

/// The target of this name.
///
/// # Errors
/// An unknown name, with those there are.
pub fn find_target(name: Name) -> Result<&'static dyn ExternalTarget, String> {
    TARGETS.iter().find(|t| t.name() == name.as_str()).copied().ok_or_else(|| {
        let known: Vec<&str> = TARGETS.iter().map(|t| t.name()).collect();
        format!("there is no external target `{name}`{}", crate::attr::known(&known))
    })
}

/// The targets that a module names and that run code of the machine, by name, each once. One that is not registered
/// counts.
pub fn native_targets(module: &Module) -> Vec<String> {
    let named = targets_of(module).map(|t| t.0);
    let native: BTreeSet<String> =
        named.filter(|&t| find_target(t).map_or(true, |t| t.is_native())).map(|t| t.to_string()).collect();
    native.into_iter().collect()
}

/// The options in a module that name a program, a library or a folder of the machine, as `TARGET:OPTION`, each once. A
/// target does not run with options that it does not have, so those do not count.
pub fn machine_options(module: &Module) -> Vec<String> {
    let specs = targets_of(module).filter_map(|(target, options)| TargetSpec::new(target, options).ok());
    let given = |spec: TargetSpec| {
        let names = spec.target.machine_options().iter().filter(move |o| spec.options.get(o).is_some());
        names.map(move |o| format!("{}:{o}", spec.target.name())).collect::<Vec<_>>()
    };
    specs.flat_map(given).collect::<BTreeSet<String>>().into_iter().collect()
}

/// The targets that nodes of a module name, with the options of each.
fn targets_of(module: &Module) -> impl Iterator<Item = (Name, &str)> {
    let nodes = module.functions.values().flat_map(|f| f.nodes.iter().map(|n| n.1));
    nodes.filter_map(|n| match n.op.downcast::<CallHost>() {
        Some(call) => Some((call.external_target()?, call.options.as_str())),
        None => n.op.downcast::<External>().map(|e| (e.target, e.options.as_str())),
    })
}

/// A target with options.
#[derive(Clone)]
pub struct TargetSpec {
    /// The target.
    pub target: &'static dyn ExternalTarget,
    /// Its options.
    pub options: TargetOptions,
    /// Its options as they were given.
    pub text: String,
}

impl TargetSpec {
    /// Reads `NAME[:OPTION=VALUE]...`.
    ///
    /// # Errors
    /// An unknown target or option, and a value that the option does not take.
    pub fn parse(text: &str) -> Result<TargetSpec, String> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        TargetSpec::new(Name::new(name), options)
    }
    /// The target `name` with options.
    ///
    /// # Errors
    /// As [`TargetSpec::parse`].
    pub fn new(name: Name, options: &str) -> Result<TargetSpec, String> {
        let target = find_target(name)?;
        let text = options.to_string();
        let options = TargetOptions::parse(target.name(), target.options(), options)?;
        target.check_options(&options)?;
        Ok(TargetSpec { target, options, text })
    }
    /// What times of a region are found by: the target with the options that matter for times, and what the region
    /// computes.
    pub fn times_key(&self, region: &Region) -> String {
        let fingerprint = Fingerprint::of(|w| {
            w.text(self.target.name());
            self.options.of_times().for_each(|(name, value)| {
                w.text(name);
                w.text(value);
            });
            w.text(&region.form());
        });
        fingerprint.to_string()
    }
    /// Name of the target.
    pub fn name(&self) -> Name {
        Name::new(self.target.name())
    }
}
