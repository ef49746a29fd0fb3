//! The forms of a module's groups: tensor functions with kernels, views, or host steps.

use super::kept_kernels::{self, KeepKernels};
use super::kernels::{Built, Requests};
use super::planning::{Lowering, Origin, Origins};
use super::residency::{Lowered, check_bindings, constant_values, device_values, lower_all, symbols_of};
use super::work::GroupWork;
use super::{Backend, CompileError, Progress};
use crate::arena::Id;
use crate::graph::{Function, Module, NodeId, ValueId};
use crate::int::DimRanges;
use crate::name::Name;
use crate::ops::control::CallTensor;
use crate::schedule::ScheduleTarget;
use crate::tir::TensorFunction;
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

/// The forms of a module's groups, with kernels.
pub(super) struct Ready {
    pub lowered: Lowering,
    pub on_device: FxHashSet<ValueId>,
    pub constants: FxHashMap<ValueId, Name>,
    pub functions: Origins,
    pub built: Vec<Built>,
}

impl Ready {
    /// Schedules all groups. One that no schedule for all of its open sizes is found for runs on the host.
    pub fn of(
        module: &Module,
        main: &Function,
        backend: Backend<'_>,
        open_sizes: &OpenSizes<'_>,
        progress: Progress<'_>,
    ) -> Result<Ready, CompileError> {
        let Backend { target: ScheduleTarget { profile, .. }, emitter, .. } = backend;
        let mut on_host: FxHashMap<NodeId, String> = FxHashMap::default();
        loop {
            let mut lowered = lower_all(module, main, profile, &open_sizes.dims);
            lowered.extend(on_host.iter().map(|(&n, why)| (n, Lowered::Host(why.clone()))));
            check_bindings(main, &lowered, profile)?;
            let on_device = device_values(main, &lowered);
            let constants = constant_values(main, &lowered);
            let (requests, functions) = requests_of(module, &mut lowered, &constants);
            let kept = open_sizes.keep.and_then(|keep| kept_kernels::read(keep, &requests, emitter));
            let built = match kept {
                Some(built) => return Ok(Ready { lowered, on_device, constants, functions, built }),
                None => requests.build(backend, progress),
            };
            match built {
                Ok(built) => {
                    if let Some(keep) = open_sizes.keep {
                        kept_kernels::write(keep, &requests, &built, emitter)?;
                    }
                    return Ok(Ready { lowered, on_device, constants, functions, built });
                }
                Err(CompileError::NoOpenSchedule { function, dims }) => {
                    let of = |o: &Origin| requests.list[o.function.index()].function.name == function;
                    let nodes: Vec<NodeId> = functions.iter().filter(|(_, o)| of(o)).map(|(&n, _)| n).collect();
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
}

/// The tensor functions that become kernels, each different one once, and what each node's come from.
fn requests_of(module: &Module, lowered: &mut Lowering, constants: &FxHashMap<ValueId, Name>) -> (Requests, Origins) {
    let main = module.main();
    let mut requests = Requests::new(module.tensor_functions.keys().copied());
    let mut functions: Origins = FxHashMap::default();
    for n in main.walk() {
        if let Some(Lowered::Kernel(t)) = lowered.get_mut(&n) {
            let stages = std::mem::take(&mut t.stages);
            let t = std::mem::replace(&mut t.function, TensorFunction::new(""));
            let operands = main.nodes[n].inputs.iter().flatten();
            let constant =
                t.inputs().zip(operands).filter(|(_, v)| constants.contains_key(v)).map(|(b, _)| b).collect();
            let own = main.nodes[n].op.is::<CallTensor>();
            let called = main.nodes[n].op.callee().and_then(|c| module.functions.get(&c));
            let work = Arc::new(match called {
                Some(f) => GroupWork::of(f, &stages, &t),
                None => GroupWork::written(&t, &symbols_of(main, n, &t)),
            });
            functions.insert(n, Origin { stages, work, function: requests.add(t, constant, own) });
        }
    }
    (requests, functions)
}
