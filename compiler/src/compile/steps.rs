//! From the list of pending steps to the tree of steps, with numbered buffers.
//!
//! All pending steps are in one list, and buffer lifetimes are computed in its order. The tree is that of
//! [`plan::steps`](crate::plan).

use super::callees::Bodies;
use super::constant_encodings::constant_encodings;
use super::host::{host_call, host_computation, host_module};
use super::memory::Pool;
use super::numbering::{Numbering, Packers};
use super::storage::{StorageLocation, Tensors};
use super::work::KernelWork;
use super::{CompileError, MemoryReport};
use crate::arena::Id;
use crate::graph::{Function, Module, Node, NodeId, ValueId};
use crate::int::{Cond, Int};
use crate::name::Name;
use crate::ops::control::{CallHost, Loop as LoopOp};
use crate::plan::{
    Branch, BufferView, Call, Carried, Collected, Dispatch, EmittedKernel, Handover, HostStep, KernelIndex, Loop, Plan,
    PlanFunction, PlanKernel, Step, Trips,
};
use crate::profile::DeviceProfile;
use crate::tir::TensorFunction;
use indexmap::IndexMap;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use std::sync::Arc;

/// A step before buffers are numbered. All steps are in one list, with both branches of an `if` one after the other and
/// the body of a loop once. Lifetimes of values are ranges of positions in this list.
pub(super) enum Pending {
    Dispatch {
        kernel: KernelIndex,
        locations: Vec<(StorageLocation, u32)>,
        group: usize,
        /// The work of all kernels of the group, and which of them this is.
        work: Arc<KernelWork>,
        part: usize,
        /// The symbols of the kernel's function as expressions in open sizes of the module.
        symbols: Vec<(Name, Int)>,
        /// For which sizes it runs; none: for all.
        version: Option<VersionChoice>,
    },
    Host {
        node: NodeId,
        group: usize,
    },
    Copy {
        from: StorageLocation,
        to: StorageLocation,
    },
    /// Begin of a branch: the steps up to the first end marker run if the condition is true, those up to the second if
    /// it is false.
    Branch {
        condition: ValueId,
        group: usize,
    },
    EndBranch,
    /// Begin of a loop: the steps up to its end marker are the body.
    Loop(Box<PendingLoop>),
    EndLoop,
    /// A node that calls a function of the plan.
    Call {
        node: NodeId,
        group: usize,
    },
    /// Begin of a function: the steps up to its end marker are its body. Functions follow the steps of the entry
    /// function.
    Function(Name),
    /// The body has so many tensors in host memory, from the first.
    EndFunction {
        on_host: Range<usize>,
    },
}

/// The nodes that run on the host.
pub(super) fn host_nodes(pending: &[Pending]) -> impl Iterator<Item = NodeId> {
    pending.iter().filter_map(|p| if let Pending::Host { node, .. } = p { Some(*node) } else { None })
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

/// A loop before buffers have numbers.
pub(super) struct PendingLoop {
    /// The loop. It says the number of iterations where that follows from sizes.
    pub node: NodeId,
    /// Else the value that says the number.
    pub trips: Option<ValueId>,
    pub begin: Option<ValueId>,
    pub go_on: Option<ValueId>,
    pub index: Option<ValueId>,
    /// For each carried value, the location that an iteration reads and the one that it writes.
    pub carried: Vec<(StorageLocation, StorageLocation)>,
    pub collected: Vec<PendingRows>,
    pub group: usize,
}

/// The collected rows of a loop, before buffers are numbered.
pub(super) struct PendingRows {
    /// The row of one iteration.
    pub row: ValueId,
    /// The location of all rows.
    pub all: StorageLocation,
    pub grows: bool,
}

/// A step whose inner steps are being collected, and the steps around it.
struct Open {
    around: Vec<Step>,
    step: Inner,
}

/// The steps that are being collected.
enum Inner {
    Branch { condition: BufferView, group: usize, then: Option<Vec<Step>> },
    Loop(Box<Loop>),
    Function(Name),
}

/// Kernels of open sizes show the grid of their first dispatch.
fn show_grids(plan: &mut Plan) {
    let first: Vec<(KernelIndex, [u32; 3])> = plan.dispatches().map(|d| (d.kernel, d.grid)).collect();
    for (kernel, grid) in first.into_iter().rev() {
        plan.kernels[kernel].emitted.grid = grid;
    }
}

/// The inputs for making steps.
pub(super) struct Steps<'a> {
    pub module: &'a Module,
    pub main: &'a Function,
    /// The functions that kernels come from, where constants are to be uploaded for this plan.
    pub tensor_functions: &'a IndexMap<Name, TensorFunction>,
    pub profile: &'a DeviceProfile,
    pub location: &'a FxHashMap<ValueId, StorageLocation>,
    pub pool: &'a Pool,
    pub packers: &'a Packers,
    pub growing: &'a FxHashSet<ValueId>,
    pub pending: &'a [Pending],
    /// The values of open sizes.
    pub sizes: &'a FxHashMap<Name, Int>,
}

impl Steps<'_> {
    /// Assigns the pool's slots and makes the plan.
    pub fn number(&self, kernels: Vec<PlanKernel>) -> Result<(Plan, MemoryReport), CompileError> {
        let (slots, sizes) = self.pool.assign(self.profile.max_binding);
        let mut memory = MemoryReport {
            activations_peak: sizes.iter().map(|s| s.1).sum(),
            activations_naive: self.pool.naive_bytes(),
            weights: 0,
        };
        let numbering = Numbering::new(&sizes, self.packers, self.module, self.profile);
        let mut tensors =
            Tensors { main: self.main, location: self.location, slots: &slots, growing: self.growing, numbering };
        let mut plan = Plan { kernels, ..Plan::default() };
        for (i, &p) in self.main.params().iter().enumerate() {
            plan.inputs.push(tensors.view(p, self.location[&p], Name::new(&format!("input{i}")))?);
        }
        (plan.steps, plan.functions) = self.tree(&mut tensors, &plan.kernels)?;
        for (i, &r) in self.main.results().iter().enumerate() {
            let name = self.main.result_names.get(i).copied();
            let name = name.unwrap_or_else(|| Name::new(&format!("output{i}")));
            let view = tensors.view(r, self.location[&r].seen_by_host(), name)?;
            plan.outputs.push(BufferView { name, ..view });
        }
        plan.buffers = tensors.numbering.finish(&mut memory);
        show_grids(&mut plan);
        constant_encodings(&mut plan, self.tensor_functions);
        Ok((plan, memory))
    }

    /// The pending steps as a tree.
    fn tree(
        &self,
        tensors: &mut Tensors<'_>,
        kernels: &[PlanKernel],
    ) -> Result<(Vec<Step>, Vec<PlanFunction>), CompileError> {
        let module = Arc::new(host_module(self.module, self.main, host_nodes(self.pending)));
        let mut open: Vec<Open> = vec![];
        let mut steps: Vec<Step> = vec![];
        let mut functions: Vec<PlanFunction> = vec![];
        for p in self.pending {
            match p {
                Pending::Branch { condition, group } => {
                    let condition = tensors.on_host(&[*condition], Name::new("condition"))?.swap_remove(0);
                    let step = Inner::Branch { condition, group: *group, then: None };
                    open.push(Open { around: std::mem::take(&mut steps), step });
                }
                Pending::Loop(l) => {
                    let step = Inner::Loop(Box::new(self.open_loop(l, tensors)?));
                    open.push(Open { around: std::mem::take(&mut steps), step });
                }
                Pending::Function(name) => {
                    open.push(Open { around: std::mem::take(&mut steps), step: Inner::Function(*name) });
                }
                Pending::EndBranch | Pending::EndLoop | Pending::EndFunction { .. } => {
                    let bug = || CompileError::Bug { at: "plan".into(), message: "an end without a beginning".into() };
                    let Open { around, step } = open.pop().ok_or_else(bug)?;
                    let ended = std::mem::take(&mut steps);
                    let done = match step {
                        Inner::Branch { condition, group, then: None } => {
                            let step = Inner::Branch { condition, group, then: Some(ended) };
                            open.push(Open { around, step });
                            continue;
                        }
                        Inner::Branch { condition, group, then: Some(then) } => {
                            Step::Branch(Branch { condition, then, otherwise: ended, group })
                        }
                        Inner::Loop(l) => Step::Loop(Loop { body: ended, ..*l }),
                        Inner::Function(name) => {
                            functions.push(PlanFunction { name, body: ended, buffers: vec![] });
                            steps = around;
                            continue;
                        }
                    };
                    steps = around;
                    steps.push(done);
                }
                _ => self.step(p, (tensors, kernels), &module, &mut steps)?,
            }
        }
        for (i, f) in functions.iter_mut().enumerate() {
            f.buffers = tensors.buffers_of(&self.pool.slots_of(i, tensors.slots), &self.host_values(i));
        }
        Ok((steps, functions))
    }

    /// The tensors in host memory of the n-th function.
    fn host_values(&self, function: usize) -> Range<usize> {
        let ends = self.pending.iter().filter_map(|p| match p {
            Pending::EndFunction { on_host } => Some(on_host.clone()),
            _ => None,
        });
        ends.into_iter().nth(function).unwrap_or_default()
    }

    /// A call: operands go to the callee's parameters, its results to the caller's.
    fn call(&self, n: NodeId, group: usize, tensors: &mut Tensors<'_>) -> Result<Call, CompileError> {
        let (main, node) = (self.main, &self.main.nodes[n]);
        let bug = || CompileError::Bug { at: node.name.to_string(), message: "its callee is not in the plan".into() };
        let (callee, body) = Bodies::of(main).called(main, n).ok_or_else(bug)?;
        let body = &main.blocks[body];
        let mut hand = |from: ValueId, to: ValueId| -> Result<Handover, CompileError> {
            let (from, to) = (self.location[&from], self.location[&to]);
            let from = if to.is_on_host() { from.seen_by_host() } else { from };
            Ok(Handover { from: tensors.buffer(from, None)?, to: tensors.buffer(to, None)? })
        };
        let operands = node.inputs.iter().flatten().zip(&body.args).filter(|(_, arg)| main.is_used(**arg));
        let arguments = operands.map(|(&v, &arg)| hand(v, arg)).collect::<Result<Vec<_>, _>>()?;
        let results = body.results.iter().zip(&node.outputs).filter(|(_, v)| main.is_used(**v));
        let results = results.map(|(&from, &to)| hand(from, to)).collect::<Result<Vec<_>, _>>()?;
        Ok(Call { callee, arguments, results, group })
    }

    /// A loop without its body.
    fn open_loop(&self, l: &PendingLoop, tensors: &mut Tensors<'_>) -> Result<Loop, CompileError> {
        let mut view = |v: ValueId, what: &str| -> Result<BufferView, CompileError> {
            Ok(tensors.on_host(&[v], Name::new(what))?.swap_remove(0))
        };
        let mut maybe = |v: Option<ValueId>, what: &str| v.map(|v| view(v, what)).transpose();
        let fixed = self.main.nodes[l.node].op.downcast::<LoopOp>().and_then(|op| op.trips.as_ref());
        let trips = match (fixed, maybe(l.trips, "trips")?) {
            (Some(n), _) => {
                let open = || CompileError::OpenDim { dim: n.to_string(), value: "trips".into() };
                Trips::Fixed(u64::try_from(n.as_const().ok_or_else(open)?).unwrap_or(0))
            }
            (None, Some(view)) => Trips::Read(view),
            (None, None) => Trips::Unlimited,
        };
        let (begin, go_on) = (maybe(l.begin, "condition")?, maybe(l.go_on, "condition")?);
        let index = maybe(l.index, "iteration")?;
        let mut carried = vec![];
        for &(now, next) in &l.carried {
            carried.push(Carried { now: tensors.buffer(now, None)?, next: tensors.buffer(next, None)? });
        }
        let mut collected = vec![];
        for c in &l.collected {
            let location = self.location[&c.row];
            let from = if c.all.is_on_host() { location.seen_by_host() } else { location };
            let row = tensors.view(c.row, from, Name::new("row"))?;
            let all = tensors.buffer(c.all, None)?;
            let elements: u64 = row.shape.iter().map(|&n| n as u64).product();
            let row_bytes = elements * u64::from(row.encoding.element_bits(row.dtype)) / 8;
            collected.push(Collected { row, all, row_bytes, grows: c.grows });
        }
        Ok(Loop { trips, begin, go_on, index, body: vec![], carried, collected, group: l.group })
    }

    /// Adds a step without others inside.
    fn step(
        &self,
        pending: &Pending,
        (tensors, kernels): (&mut Tensors<'_>, &[PlanKernel]),
        module: &Arc<Module>,
        steps: &mut Vec<Step>,
    ) -> Result<(), CompileError> {
        match pending {
            Pending::Dispatch { version: Some(v), .. }
                if !v.is_picked(&|v| self.sizes.get(&v).and_then(Int::as_const)) => {}
            Pending::Dispatch { kernel, locations, group, work, part, symbols, version: _ } => {
                let number = |&(location, slice): &(StorageLocation, u32)| Ok((tensors.buffer(location, None)?, slice));
                let buffers = locations.iter().map(number).collect::<Result<Vec<_>, CompileError>>()?;
                let (kernel, group) = (*kernel, *group);
                let size = |v: Name| self.sizes.get(&v).and_then(Int::as_const);
                let flops = work.flops(&size).get(*part).copied().unwrap_or(0);
                let bytes = work.bytes(*part, &size);
                let (grid, symbols) = self.open_values(&kernels[kernel].emitted, symbols)?;
                let d = Dispatch { kernel, buffers, grid, symbols, group, flops, bytes };
                match steps.last_mut() {
                    Some(Step::Gpu(list)) => list.push(d),
                    _ => steps.push(Step::Gpu(vec![d])),
                }
            }
            Pending::Host { node, group } => {
                let (call, run, id) = (host_call(self.main, *node), host_computation(module, self.main, *node), *node);
                let node = &self.main.nodes[id];
                let values: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
                let (inputs, outputs) = match call.is_some_and(|c| c.on_device) {
                    true => self.device_views(node, &values, tensors)?,
                    false => (tensors.on_host(&values, node.name)?, tensors.on_host(&node.outputs, node.name)?),
                };
                steps.push(Step::Host(HostStep {
                    name: node.name,
                    inputs,
                    outputs,
                    node: id.index() as u32,
                    run,
                    call,
                    group: *group,
                }));
            }
            Pending::Copy { from, to } => {
                let from = if to.is_on_host() { from.seen_by_host() } else { *from };
                let (from, to) = (tensors.buffer(from, None)?, tensors.buffer(*to, None)?);
                steps.push(Step::Copy { from, to });
            }
            Pending::Call { node, group } => steps.push(Step::Call(self.call(*node, *group, tensors)?)),
            Pending::Branch { .. } | Pending::EndBranch | Pending::Loop(_) | Pending::EndLoop => {}
            Pending::Function(_) | Pending::EndFunction { .. } => {}
        }
        Ok(())
    }

    /// The grid of a dispatch and the values of its kernel's symbols.
    fn open_values(
        &self,
        kernel: &EmittedKernel,
        symbols: &[(Name, Int)],
    ) -> Result<([u32; 3], Vec<i32>), CompileError> {
        let beyond = |why: String| CompileError::NeedsCpu(format!("kernel {}: {why}", kernel.name));
        let mut values: FxHashMap<Name, i64> = FxHashMap::default();
        for (name, e) in symbols {
            let n = e.eval(&|v| self.sizes.get(&v).and_then(Int::as_const));
            values.insert(*name, n.ok_or_else(|| beyond(format!("`{name}` = {e} has no value")))?);
        }
        let narrow = |(name, _): &(Name, Int)| {
            let n = values.get(name).copied().unwrap_or(0);
            i32::try_from(n).map_err(|_| beyond(format!("`{name}` is {n}, which 32 bits do not hold")))
        };
        let numbers = symbols.iter().map(narrow).collect::<Result<_, _>>()?;
        if let Some((rounds, most)) = &kernel.open_rounds {
            let now = rounds.eval(&|v| values.get(&v).copied()).and_then(|n| u64::try_from(n).ok());
            if let Some(n) = now.filter(|n| n > most) {
                return Err(beyond(format!("{n} rounds of loops in a thread, the driver makes {most}")));
            }
        }
        let grid = match &kernel.open_grid {
            None => kernel.grid,
            Some(open) => open.at(&|v| values.get(&v).copied()).map_err(beyond)?,
        };
        Ok((grid, numbers))
    }

    /// Operands and results of a host function on device buffers. If a result is in place of an operand, the operand is
    /// in the result's buffer: its own buffer, or a copy.
    fn device_views(
        &self,
        node: &Node,
        values: &[ValueId],
        tensors: &mut Tensors<'_>,
    ) -> Result<(Vec<BufferView>, Vec<BufferView>), CompileError> {
        let mut inputs = tensors.on_device(values, node.name)?;
        let outputs = tensors.on_device(&node.outputs, node.name)?;
        let call = node.op.downcast::<CallHost>();
        for (i, output) in outputs.iter().enumerate() {
            let operand = call.and_then(|c| c.in_place_operand(i));
            if let Some(input) = operand.and_then(|operand| inputs.get_mut(operand)) {
                input.buffer = output.buffer;
            }
        }
        Ok((inputs, outputs))
    }
}
