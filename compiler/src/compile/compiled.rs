//! The result of a compilation.

use super::groups::Group;
use super::open::OpenPlan;
use crate::graph::Module;
use crate::name::Name;
use crate::passes::PassStats;
use crate::plan::Plan;
use crate::profile::DeviceProfile;
use crate::remark::Remark;
use crate::report::{MemoryReport, TransposeReport};
use crate::tir::TensorFunction;
use crate::trace::Recording;
use indexmap::IndexMap;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// The result of a compilation.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The module after all passes: `call_tensor`s in the entry function, scheduled tensor functions.
    pub module: Module,
    /// The tensor functions before scheduling, with the trace as pending instructions.
    pub unscheduled: IndexMap<Name, TensorFunction>,
    /// Those of them that are versions of others, for some sizes only.
    pub versions: FxHashSet<Name>,
    /// The groups, in execution order.
    pub groups: Vec<Group>,
    /// The plan; with open sizes, that for the least of them.
    pub plan: Plan,
    /// Makes plans for other sizes; `None` if no size is open.
    pub open: Option<Arc<OpenPlan>>,
    /// Byte counts.
    pub memory: MemoryReport,
    /// Remarks of all passes.
    pub remarks: Vec<Remark>,
    /// Statistics of each pass.
    pub passes: Vec<PassStats>,
    /// Layout changes in the graph that reached `fuse-ops`.
    pub transposes: TransposeReport,
    /// Text of the module before and after passes, where asked for.
    pub printed: Vec<(String, String)>,
    /// The device compiled for.
    pub profile: DeviceProfile,
    /// Milliseconds of the whole compilation; 0 without a clock.
    pub ms: f64,
    /// Milliseconds by part; empty without a clock.
    pub timings: Vec<(String, f64)>,
    /// The text of each stage, where `CompileOptions::record` asked for it.
    pub recording: Option<Recording>,
}

impl Compiled {
    /// Of a module without groups, kernels and plan.
    pub(super) fn empty(module: Module, profile: &DeviceProfile) -> Compiled {
        Compiled {
            module,
            unscheduled: IndexMap::new(),
            versions: FxHashSet::default(),
            groups: vec![],
            plan: Plan::default(),
            open: None,
            memory: MemoryReport::default(),
            remarks: vec![],
            passes: vec![],
            transposes: TransposeReport::default(),
            printed: vec![],
            profile: profile.clone(),
            ms: 0.0,
            timings: vec![],
            recording: None,
        }
    }

    /// The module with its tensor functions unscheduled and their traces pending: what `weft opt` schedules again, byte
    /// for byte. Versions of functions for some sizes are lines of these traces.
    pub fn unscheduled_module(&self) -> Module {
        let mut m = self.all_unscheduled();
        m.tensor_functions.retain(|name, _| !self.versions.contains(name));
        m
    }

    /// The same, with versions as separate, uncalled functions, so that readers can inspect them.
    pub(super) fn all_unscheduled(&self) -> Module {
        let mut m = self.module.clone();
        for (name, f) in &self.unscheduled {
            m.tensor_functions.insert(*name, f.clone());
        }
        m
    }

    /// Makes this the compilation for some of its open sizes, whose plan and memory these are.
    pub fn take_sizes(&mut self, plan: Plan, memory: MemoryReport) {
        let mut sums: FxHashMap<usize, (u64, u64)> = FxHashMap::default();
        for d in plan.dispatches() {
            let (flops, bytes) = sums.entry(d.group).or_default();
            (*flops, *bytes) = (*flops + d.flops, *bytes + d.bytes);
        }
        for (group, (flops, bytes)) in sums {
            (self.groups[group].flops, self.groups[group].bytes) = (flops, bytes);
        }
        (self.plan, self.memory, self.open) = (plan, memory, None);
    }
}
