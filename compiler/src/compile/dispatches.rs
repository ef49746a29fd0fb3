//! The dispatches of a group: its kernels for all sizes, and their versions for some sizes.

use super::group_form::symbols_of;
use super::kernels::{Built, BuiltVersion};
use super::scheduled::{Origin, Scheduled};
use super::work::KernelWork;
use crate::graph::{Function, NodeId};
use crate::int::{Cond, Int};
use crate::name::Name;
use crate::plan::KernelIndex;
use std::sync::Arc;

/// A dispatch of one kernel of a group, for any sizes.
pub(super) struct AnyDispatch {
    pub kernel: KernelIndex,
    /// The work of all kernels of the group, and which of them this is.
    pub work: Arc<KernelWork>,
    pub part: usize,
    /// The symbols of the kernel's function as expressions in open sizes of the module.
    pub symbols: Vec<(Name, Int)>,
    /// For which sizes it runs; none: for all.
    pub version: Option<VersionChoice>,
}

/// One of several versions of the kernels of a group.
#[derive(Clone)]
pub(super) struct VersionChoice {
    /// The conditions of each version, in open sizes of the module, in the order in which they are tested.
    pub when: Arc<Vec<Vec<Cond>>>,
    /// Which of them this is; their number for the one for all sizes.
    pub index: usize,
}

impl VersionChoice {
    /// The conditions of this one; none where it is for all sizes.
    pub fn conditions(&self) -> Option<&[Cond]> {
        self.when.get(self.index).map(Vec::as_slice)
    }
    /// True when a run of these sizes takes this version: it is the first whose conditions hold.
    pub fn is_picked(&self, size: &dyn Fn(Name) -> Option<i64>) -> bool {
        let holds = |when: &Vec<Cond>| when.iter().all(|c| c.holds(size) == Some(true));
        self.when.iter().position(holds).unwrap_or(self.when.len()) == self.index
    }
}

impl AnyDispatch {
    /// True when a run of these sizes dispatches it.
    pub fn is_picked(&self, size: &dyn Fn(Name) -> Option<i64>) -> bool {
        self.version.as_ref().is_none_or(|v| v.is_picked(size))
    }
}

/// The dispatches of node `n` of `main`: first by the versions of its function, then for all sizes.
pub(super) fn dispatches(main: &Function, n: NodeId, origin: &Origin, scheduled: &Scheduled) -> Vec<AnyDispatch> {
    let (built, first_kernel) = scheduled.function(origin);
    let symbols = symbols_of(main, n, &built.function);
    let own = |e: &Int| e.replace(&mut |v| symbols.iter().find(|s| s.0 == v).map(|s| s.1.clone()));
    let conditions = |v: &BuiltVersion| v.when.iter().map(|c| c.map(&mut |e| own(e))).collect();
    let when: Arc<Vec<Vec<Cond>>> = Arc::new(built.versions.iter().map(conditions).collect());
    let mut out = vec![];
    let mut add = |built: &Built, first: KernelIndex, symbols: Vec<(Name, Int)>, version: Option<VersionChoice>| {
        let work = Arc::new(KernelWork::of(main, n, origin.work.clone(), built, &symbols));
        let of_part = |part: usize| {
            let (work, symbols, version) = (work.clone(), symbols.clone(), version.clone());
            AnyDispatch { kernel: first + part, work, part, symbols, version }
        };
        out.extend((0..built.kernels.len()).map(of_part));
    };
    for (index, v) in built.versions.iter().enumerate() {
        let symbols = v.symbols.iter().map(|(q, e)| (*q, own(e))).collect();
        add(&v.built, first_kernel[index + 1], symbols, Some(VersionChoice { when: when.clone(), index }));
    }
    let all = (!when.is_empty()).then(|| VersionChoice { index: when.len(), when: when.clone() });
    add(built, first_kernel[0], symbols.clone(), all);
    out
}
