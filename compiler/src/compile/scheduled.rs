//! The second stage: groups as tensor functions with schedules and kernels, each different one once.

use super::backend::{Backend, Progress};
use super::callees::Joined;
use super::error::CompileError;
use super::group_form::{Form, symbols_of};
use super::kept_kernels::{self, KeepKernels};
use super::kernels::{Built, FunctionId, Requests};
use super::lowered::Lowered;
use super::shared_layouts::{Readers, share};
use super::work::GroupWork;
use crate::arena::Id;
use crate::graph::{Module, NodeId};
use crate::int::{DimRanges, Int};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::CallTensor;
use crate::plan::{EmitKernel, KernelIndex, PlanKernel};
use crate::tir::{BufferId, TensorFunction};
use indexmap::IndexMap;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// The open sizes of a network.
#[derive(Default)]
pub(super) struct OpenSizes<'a> {
    /// The ranges of its dimensions.
    pub dims: DimRanges,
    /// The network before its passes.
    pub source: Option<&'a Module>,
    /// Where its kernels are kept.
    pub keep: Option<&'a dyn KeepKernels>,
}

/// The groups of a module with their kernels.
pub(super) struct Scheduled {
    pub lowered: Lowered,
    /// The origin of each node's kernels.
    origins: FxHashMap<NodeId, Origin>,
    built: Vec<Built>,
    /// Kernels of all functions in a row, without names.
    pub kernels: Vec<PlanKernel>,
    /// For each function the positions of its first one and of the first one of each version.
    first_kernel: Vec<Vec<KernelIndex>>,
}

/// The origin of a node's kernels.
pub(super) struct Origin {
    function: FunctionId,
    /// The nodes of the tensor function's stages, in the primitive function that was lowered.
    pub stages: Vec<Option<NodeId>>,
    /// The work of the group.
    pub work: Arc<GroupWork>,
}

/// The tensor functions of a module as they were before they were scheduled, and which of them are versions of others.
type Unscheduled = (IndexMap<Name, TensorFunction>, FxHashSet<Name>);

impl Scheduled {
    /// Schedules all groups. One that no schedule for all of its open sizes is found for runs on the host.
    ///
    /// # Errors
    /// A group whose tensors a kernel has no bindings for; a schedule of the module's own that does not apply; bugs.
    pub fn of(
        joined: &Joined,
        backend: Backend<'_>,
        open_sizes: &OpenSizes<'_>,
        progress: Progress<'_>,
    ) -> Result<Scheduled, CompileError> {
        let mut on_host: FxHashMap<NodeId, String> = FxHashMap::default();
        loop {
            let mut lowered = Lowered::of(joined, (backend.target.profile, &open_sizes.dims), &on_host)?;
            let (requests, origins, readers) = requests_of(joined, &mut lowered);
            match build(&requests, &readers, backend, open_sizes.keep, progress) {
                Ok(built) => {
                    let (kernels, first_kernel) = in_a_row(&built);
                    return Ok(Scheduled { lowered, origins, built, kernels, first_kernel });
                }
                Err(CompileError::NoOpenSchedule { function, dims }) => {
                    let of = |o: &Origin| requests.list[o.function.index()].function.name == function;
                    let nodes: Vec<NodeId> = origins.iter().filter(|(_, o)| of(o)).map(|(&n, _)| n).collect();
                    let why = format!("no schedule goes with all sizes of {dims}; for given sizes it is a kernel");
                    if nodes.is_empty() {
                        return Err(CompileError::NoOpenSchedule { function, dims });
                    }
                    on_host.extend(nodes.into_iter().map(|n| (n, why.clone())));
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// The origin of the kernels that node `n` runs.
    pub fn origin(&self, n: NodeId) -> Option<&Origin> {
        self.origins.get(&n)
    }

    /// The function of these kernels, and the positions of its first one and of the first one of each version.
    pub fn function(&self, origin: &Origin) -> (&Built, &[KernelIndex]) {
        let at = origin.function.index();
        (&self.built[at], &self.first_kernel[at])
    }

    /// Puts the scheduled functions into the module, and calls of them in the place of groups.
    pub fn enter(&self, joined: &mut Joined) -> Unscheduled {
        let Joined { module, main, .. } = joined;
        let (mut unscheduled, mut versions) = Unscheduled::default();
        for b in &self.built {
            let own = b.versions.iter().map(|v| &v.built);
            versions.extend(own.clone().map(Built::name));
            for b in std::iter::once(b).chain(own) {
                unscheduled.insert(b.name(), b.before.clone());
                module.tensor_functions.insert(b.name(), b.function.clone());
            }
        }
        for (&n, origin) in &self.origins {
            let built = self.function(origin).0;
            let f = &built.before;
            // The symbols that the shapes of its operands do not tell are the caller's.
            let shapes = main.nodes[n].inputs.iter().flatten().map(|&v| main.ty(v).shape.as_slice());
            let told = f.unify(f.inputs().zip(shapes));
            let untold = symbols_of(main, n, f).into_iter().filter(|s| !told.contains_key(&s.0));
            let (symbols, sizes): (Vec<Name>, Vec<Int>) = untold.unzip();
            module.main_mut().nodes[n].op = OpRef::new(CallTensor { callee: built.name(), symbols, sizes });
        }
        (unscheduled, versions)
    }
}

/// The kernels of all requests: those that are kept, or new ones, which are kept then.
fn build(
    requests: &Requests,
    readers: &Readers,
    backend: Backend<'_>,
    keep: Option<&dyn KeepKernels>,
    progress: Progress<'_>,
) -> Result<Vec<Built>, CompileError> {
    let emitter: &dyn EmitKernel = backend.emitter;
    if let Some(built) = keep.and_then(|keep| kept_kernels::read(keep, requests, emitter)) {
        return Ok(built);
    }
    let mut built = requests.build(backend, progress)?;
    share(&mut built, readers, backend);
    if let Some(keep) = keep {
        kept_kernels::write(keep, requests, &built, emitter)?;
    }
    Ok(built)
}

/// The tensor functions that become kernels, each different one once, what each node's come from, and who reads which
/// constant.
fn requests_of(joined: &Joined, lowered: &mut Lowered) -> (Requests, FxHashMap<NodeId, Origin>, Readers) {
    let Joined { module, main, .. } = joined;
    let mut requests = Requests::new(module.tensor_functions.keys().copied());
    let mut origins = FxHashMap::default();
    let mut readers = Readers::default();
    for n in main.walk() {
        if let Some(Form::Kernel(t)) = lowered.forms.get_mut(&n) {
            let stages = std::mem::take(&mut t.stages);
            let t = std::mem::replace(&mut t.function, TensorFunction::new(""));
            let operands = t.inputs().zip(main.nodes[n].inputs.iter().flatten());
            let known: Vec<(BufferId, Name)> =
                operands.filter_map(|(b, v)| lowered.constants.get(v).map(|name| (b, *name))).collect();
            let constant = known.iter().map(|(b, _)| *b).collect();
            let own = main.nodes[n].op.is::<CallTensor>();
            let called = main.nodes[n].op.callee().and_then(|c| module.functions.get(&c));
            let work = Arc::new(match called {
                Some(f) => GroupWork::of(f, &stages, &t),
                None => GroupWork::written(&t, &symbols_of(main, n, &t)),
            });
            let function = requests.add(t, constant, own);
            for (b, name) in known {
                let of: &mut Vec<_> = readers.entry(name).or_default();
                if !of.contains(&(function, b)) {
                    of.push((function, b));
                }
            }
            origins.insert(n, Origin { stages, work, function });
        }
    }
    (requests, origins, readers)
}

/// The kernels of all functions, and for each function where its first one is and the first one of each version.
fn in_a_row(built: &[Built]) -> (Vec<PlanKernel>, Vec<Vec<KernelIndex>>) {
    let mut kernels = vec![];
    let mut add = |b: &Built| {
        let first = kernels.len();
        kernels.extend(b.kernels.iter().zip(b.function.kernels()).map(|(e, (part, _))| PlanKernel {
            name: String::new(),
            emitted: e.clone(),
            function: b.name(),
            part,
        }));
        first
    };
    let of = |b: &Built| std::iter::once(b).chain(b.versions.iter().map(|v| &v.built)).map(&mut add).collect();
    let first = built.iter().map(of).collect();
    (kernels, first)
}
