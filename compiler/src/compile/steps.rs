//! From what is planned, in order, to the tree of steps, with numbered buffers.

use super::constant_encodings::constant_encodings;
use super::host::{host_call, host_computation, host_module};
use super::memory::Pool;
use super::numbering::{Numbering, Packers};
use super::storage::{StorageLocation, Tensors};
use super::{CompileError, MemoryReport};
use crate::graph::{Function, Module, Node, NodeId, ValueId};
use crate::name::Name;
use crate::ops::control::CallHost;
use crate::plan::{Branch, BufferView, Dispatch, HostStep, KernelIndex, Plan, PlanKernel, Step};
use crate::profile::DeviceProfile;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A step before buffers have numbers. They stand in one list, whose positions the lifetimes of values are told in: both branches of
/// an `if` one after the other.
pub(super) enum Pending {
    Dispatch {
        kernel: KernelIndex,
        locations: Vec<(StorageLocation, u32)>,
        group: usize,
        flops: u64,
        bytes: u64,
    },
    Host {
        node: NodeId,
        group: usize,
    },
    Copy {
        from: StorageLocation,
        to: StorageLocation,
    },
    /// What follows, up to the first end, runs where the condition is true; from there to the second, where it is false.
    Branch {
        condition: ValueId,
        group: usize,
    },
    EndBranch,
}

/// A branch whose steps are being collected, and the steps around it.
struct Open {
    around: Vec<Step>,
    condition: BufferView,
    group: usize,
    then: Option<Vec<Step>>,
}

/// What the steps are made of.
pub(super) struct Steps<'a> {
    pub module: &'a Module,
    pub main: &'a Function,
    pub profile: &'a DeviceProfile,
    pub location: &'a FxHashMap<ValueId, StorageLocation>,
    pub pool: &'a Pool,
    pub packers: &'a Packers,
    pub pending: &'a [Pending],
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
        let mut tensors = Tensors { main: self.main, location: self.location, slots: &slots, numbering };
        let mut plan = Plan { kernels, ..Plan::default() };
        for (i, &p) in self.main.params().iter().enumerate() {
            plan.inputs.push(tensors.view(p, self.location[&p], Name::new(&format!("input{i}")))?);
        }
        plan.steps = self.tree(&mut tensors)?;
        for (i, &r) in self.main.results().iter().enumerate() {
            let name = self.main.result_names.get(i).copied();
            let name = name.unwrap_or_else(|| Name::new(&format!("output{i}")));
            let view = tensors.view(r, self.location[&r].seen_by_host(), name)?;
            plan.outputs.push(BufferView { name, ..view });
        }
        plan.buffers = tensors.numbering.finish(&mut memory);
        constant_encodings(&mut plan, self.module);
        Ok((plan, memory))
    }

    /// The pending steps as a tree.
    fn tree(&self, tensors: &mut Tensors<'_>) -> Result<Vec<Step>, CompileError> {
        let module = Arc::new(host_module(self.module));
        let mut open: Vec<Open> = vec![];
        let mut steps: Vec<Step> = vec![];
        for p in self.pending {
            match p {
                Pending::Branch { condition, group } => {
                    let condition = tensors.on_host(&[*condition], Name::new("condition"))?.swap_remove(0);
                    open.push(Open { around: std::mem::take(&mut steps), condition, group: *group, then: None });
                }
                Pending::EndBranch => {
                    let bug = || CompileError::Bug { at: "plan".into(), message: "an end without a branch".into() };
                    let mut inner = open.pop().ok_or_else(bug)?;
                    let ended = std::mem::take(&mut steps);
                    match inner.then.take() {
                        None => open.push(Open { then: Some(ended), ..inner }),
                        Some(then) => {
                            let Open { around, condition, group, .. } = inner;
                            steps = around;
                            steps.push(Step::Branch(Branch { condition, then, otherwise: ended, group }));
                        }
                    }
                }
                _ => self.step(p, tensors, &module, &mut steps)?,
            }
        }
        Ok(steps)
    }

    /// Adds a step without others inside.
    fn step(
        &self,
        pending: &Pending,
        tensors: &mut Tensors<'_>,
        module: &Arc<Module>,
        steps: &mut Vec<Step>,
    ) -> Result<(), CompileError> {
        match pending {
            Pending::Dispatch { kernel, locations, group, flops, bytes } => {
                let number = |&(location, slice): &(StorageLocation, u32)| Ok((tensors.buffer(location, None)?, slice));
                let buffers = locations.iter().map(number).collect::<Result<Vec<_>, CompileError>>()?;
                let (kernel, group, flops, bytes) = (*kernel, *group, *flops, *bytes);
                let d = Dispatch { kernel, buffers, symbols: vec![], group, flops, bytes };
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
                    node: id,
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
            Pending::Branch { .. } | Pending::EndBranch => {}
        }
        Ok(())
    }

    /// Operands and results of a host function on device buffers. An operand whose place a result takes is seen there: in its own
    /// buffer, or in the copy of it.
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
