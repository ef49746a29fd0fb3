//! The context of passes: options, target, instruments, remarks, statistics.

use super::{PassBase, PassDef, PassError, PassInstrument, find_pass};
use crate::attr::{AttrStruct, Attrs};
use crate::attr_enum;
use crate::cost::{CostModel, EstimatedCost};
use crate::graph::{Function, Module};
use crate::name::Name;
use crate::ops::control::Const;
use crate::profile::DeviceProfile;
use crate::remark::{Remark, RemarkKind};
use crate::schedule::{ScheduleOptions, ScheduleTarget};
use std::sync::Arc;

attr_enum! {
    /// The mode of `fuse-ops`.
    pub enum FuseMode {
        /// Beyond the classic rules, each with a remark.
        Full = "full",
        /// TVM's rules exactly.
        Classic = "classic",
        /// Every node is its own group.
        Off = "off",
    }
}

attr_enum! {
    /// The mode of `auto-layout`.
    pub enum LayoutMode {
        /// The cheapest layout for each region.
        Auto = "auto",
        /// Everything in NCHW.
        Nchw = "nchw",
        /// Anchors in NHWC wherever the op allows it.
        Nhwc = "nhwc",
        /// Convolutions with channels in groups of 4, and what lies between them.
        Nchw4c = "nchw4c",
        /// The same with groups of 8.
        Nchw8c = "nchw8c",
        /// The same with groups of 16.
        Nchw16c = "nchw16c",
        /// The pass is not run.
        None = "none",
    }
}

attr_enum! {
    /// Mixed precision.
    pub enum AmpMode {
        /// As in the model.
        Off = "off",
        /// f16 storage wherever it is safe by class.
        Fp16 = "fp16",
        /// f16 where calibration allows it.
        Auto = "auto",
    }
}

/// The clock; the compiler has none of its own.
pub trait Clock: Send + Sync {
    /// Milliseconds since some fixed moment.
    fn now_ms(&self) -> f64;
}

/// Statistics of one run of a pass.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct PassStats {
    /// The pass.
    pub name: String,
    /// Wall time; 0 without a clock.
    pub ms: f64,
    /// Live nodes of all graph functions before, without constants.
    pub nodes_before: usize,
    /// Live nodes of all graph functions after, without constants.
    pub nodes_after: usize,
    /// Whether the pass reported a change.
    pub changed: bool,
}

/// The context that all passes share.
pub struct PassContext {
    /// Opt level; 2 by default, as in TVM.
    pub opt_level: u8,
    /// Passes that run at any opt level.
    pub required: Vec<String>,
    /// Passes that never run.
    pub disabled: Vec<String>,
    /// Options by pass name.
    pub config: Vec<(String, Attrs)>,
    /// Passes of other crates, found by name before those of the table.
    pub registry: Vec<PassDef>,
    /// Passes that are functions, found by name before all others.
    pub own: Vec<super::OwnPass>,
    /// The device compiled for.
    pub profile: DeviceProfile,
    /// What the user asks of the schedule rules there.
    pub scheduling: ScheduleOptions,
    /// The mode of fusion.
    pub fuse: FuseMode,
    /// Layout mode.
    pub layout: LayoutMode,
    /// Mixed precision.
    pub amp: AmpMode,
    /// Source nodes that mixed precision leaves in f32.
    pub keep_f32: Vec<super::KeepF32>,
    /// Callbacks that say in which layout ops have to run; the first that answers counts.
    pub alter_layouts: Vec<super::AlterLayout>,
    /// Costs of nodes and groups; absent means the estimate for the device ([`PassContext::costs`]).
    pub cost_model: Option<Arc<dyn CostModel>>,
    /// Constants that passes laid out again at compile time.
    pub folded_layouts: usize,
    /// Callbacks around passes.
    pub instruments: Vec<Box<dyn PassInstrument>>,
    /// Time.
    pub clock: Option<Arc<dyn Clock>>,
    /// Run the verifier after each pass (on in debug builds).
    pub verify: bool,
    /// Remarks so far.
    pub remarks: Vec<Remark>,
    /// One entry for each pass that ran.
    pub stats: Vec<PassStats>,
    /// Text that printing passes and instruments made: `(label, module text)`.
    pub printed: Vec<(String, String)>,
}

impl Default for PassContext {
    fn default() -> PassContext {
        PassContext::new(DeviceProfile::baseline())
    }
}

impl PassContext {
    /// Level 2, nothing required or disabled, for the device `profile`.
    pub fn new(profile: DeviceProfile) -> PassContext {
        PassContext {
            opt_level: 2,
            required: vec![],
            disabled: vec![],
            config: vec![],
            registry: vec![],
            own: vec![],
            profile,
            scheduling: ScheduleOptions::default(),
            fuse: FuseMode::Full,
            layout: LayoutMode::Auto,
            amp: AmpMode::Off,
            keep_f32: vec![],
            alter_layouts: vec![],
            cost_model: None,
            folded_layouts: 0,
            instruments: vec![],
            clock: None,
            verify: cfg!(debug_assertions),
            remarks: vec![],
            stats: vec![],
            printed: vec![],
        }
    }
    /// TVM's rule: a pass runs when it is not disabled and it is required or its level is within the context's.
    pub fn enabled(&self, name: &str, opt_level: u8) -> bool {
        let has = |list: &[String]| list.iter().any(|n| n == name);
        !has(&self.disabled) && (has(&self.required) || opt_level <= self.opt_level)
    }
    /// The row of a pass name: first the registry, then the table.
    pub fn find(&self, name: &str) -> Option<PassDef> {
        self.registry.iter().find(|d| d.name == name).or_else(|| find_pass(name)).copied()
    }
    /// Builds the pass `name` with the options that the context has for it.
    ///
    /// # Errors
    /// An unknown name (with the known ones) or a wrong option.
    pub fn build(&self, name: &str) -> Result<Box<dyn super::Pass>, PassError> {
        let options = self.config.iter().rev().find(|c| c.0 == name).map(|c| c.1.clone()).unwrap_or_default();
        self.build_with(name, &options)
    }
    /// Builds the pass `name` with `options`.
    ///
    /// # Errors
    /// An unknown name (with the known ones) or a wrong option.
    pub fn build_with(&self, name: &str, options: &Attrs) -> Result<Box<dyn super::Pass>, PassError> {
        if let Some(own) = self.own.iter().find(|p| p.name() == name) {
            return match options.is_empty() {
                true => Ok(Box::new(own.clone())),
                false => Err(PassError::request(name, "it is a function, which takes no options")),
            };
        }
        let def = self.find(name).ok_or_else(|| {
            let own = self.own.iter().map(|p| p.name());
            let known: Vec<&str> = own.chain(self.registry.iter().chain(super::PASSES).map(|d| d.name)).collect();
            PassError::request(name, format!("no such pass{}", crate::attr::known(&known)))
        })?;
        (def.from_attrs)(options).map_err(|message| PassError::request(name, message))
    }
    /// Options of the pass `T`: those of the context, else the defaults.
    ///
    /// # Errors
    /// A wrong option.
    pub fn options<T: AttrStruct>(&self) -> Result<T, PassError> {
        match self.config.iter().rev().find(|c| c.0 == T::NAME) {
            Some((_, a)) => T::from_attrs(a).map_err(|message| PassError::request(T::NAME, message)),
            None => Ok(T::default()),
        }
    }
    /// Costs of nodes and groups: one model for all passes, which caches its answers.
    pub fn costs(&mut self) -> Arc<dyn CostModel> {
        let target = self.scheduling.on(&self.profile);
        self.cost_model.get_or_insert_with(|| Arc::new(EstimatedCost::new(target))).clone()
    }
    /// What functions are scheduled for.
    pub fn target(&self) -> ScheduleTarget<'_> {
        self.scheduling.on(&self.profile)
    }
    /// A context with the same options, target and costs, for a trial: without instruments, and with remarks of its
    /// own.
    pub fn apart(&mut self) -> PassContext {
        PassContext {
            opt_level: self.opt_level,
            required: self.required.clone(),
            disabled: self.disabled.clone(),
            config: self.config.clone(),
            registry: self.registry.clone(),
            own: self.own.clone(),
            scheduling: self.scheduling.clone(),
            fuse: self.fuse,
            layout: self.layout,
            amp: self.amp,
            keep_f32: self.keep_f32.clone(),
            alter_layouts: self.alter_layouts.clone(),
            cost_model: Some(self.costs()),
            verify: false,
            ..PassContext::new(self.profile.clone())
        }
    }
    /// Says that a pass changed something.
    pub fn applied(&mut self, pass: &dyn PassBase, nodes: &[Name], message: impl Into<String>) {
        self.remark(pass, RemarkKind::Applied, nodes, message.into());
    }
    /// Says that a pass could not, and which condition failed with which values.
    pub fn missed(&mut self, pass: &dyn PassBase, nodes: &[Name], message: impl Into<String>) {
        self.remark(pass, RemarkKind::Missed, nodes, message.into());
    }
    /// As [`PassContext::missed`], with the condition in the pass's own terms.
    pub fn missed_in_detail(&mut self, pass: &dyn PassBase, nodes: &[Name], message: String, detail: String) {
        self.remark(pass, RemarkKind::Missed, nodes, message);
        self.remarks.last_mut().into_iter().for_each(|r| r.detail.clone_from(&detail));
    }
    fn remark(&mut self, pass: &dyn PassBase, kind: RemarkKind, nodes: &[Name], message: String) {
        let (pass, nodes, detail) = (Name::new(pass.name()), nodes.to_vec(), String::new());
        self.remarks.push(Remark { pass, kind, nodes, message, detail });
    }
    /// Runs `body` between the instruments' enter and exit callbacks.
    pub fn scope<R>(&mut self, body: impl FnOnce(&mut PassContext) -> R) -> R {
        self.with_instruments(|list, _| list.iter_mut().for_each(|i| i.enter_context()));
        let r = body(self);
        self.with_instruments(|list, _| list.iter_mut().rev().for_each(|i| i.exit_context()));
        r
    }
    /// Calls `f` with the instruments taken out, so that they may look at the context.
    pub(super) fn with_instruments<R>(
        &mut self,
        f: impl FnOnce(&mut Vec<Box<dyn PassInstrument>>, &mut PassContext) -> R,
    ) -> R {
        let mut list = std::mem::take(&mut self.instruments);
        let r = f(&mut list, self);
        list.append(&mut self.instruments);
        self.instruments = list;
        r
    }
}

/// Live nodes of all graph functions, without constants: folding a node into a constant makes one node fewer.
pub(super) fn count_nodes(module: &Module) -> usize {
    let of = |f: &Function| f.walk().iter().filter(|&&n| !f.nodes[n].op.is::<Const>()).count();
    module.functions.values().map(of).sum()
}
