//! The last stage: the plan for given sizes, with numbered buffers.

use super::callees::Bodies;
use super::constant_encodings::constant_encodings;
use super::dispatches::AnyDispatch;
use super::error::CompileError;
use super::host::{host_call, host_computation, host_module};
use super::numbering::{BufferKey, Numbering};
use super::placed::{Placed, in_place};
use super::sizes::{Sizes, number_in};
use super::steps::{Action, AnyStep, LoopValues, Steps};
use super::storage::{StorageLocation, Tensors};
use crate::arena::Id;
use crate::graph::{Function, Module, Node, ValueId};
use crate::int::Int;
use crate::name::Name;
use crate::ops::control::{CallHost, Loop as LoopOp};
use crate::plan::{
    Branch, BufferIndex, BufferView, Call, Carried, Collected, Dispatch, EmittedKernel, Handover, HostStep, Loop, Plan,
    PlanFunction, PlanKernel, Step, Trips,
};
use crate::profile::DeviceProfile;
use crate::report::MemoryReport;
use crate::tir::TensorFunction;
use indexmap::IndexMap;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A plan, and what memory it takes.
pub(super) struct Planned {
    pub plan: Plan,
    pub memory: MemoryReport,
}

/// The stages that a plan is made of.
#[derive(Clone, Copy)]
pub(super) struct PlanOf<'a> {
    pub steps: &'a Steps,
    pub placed: &'a Placed,
    pub profile: &'a DeviceProfile,
    /// The functions that kernels come from, where constants are to be uploaded for this plan.
    pub tensor_functions: &'a IndexMap<Name, TensorFunction>,
}

impl Planned {
    /// Assigns the pool's slots for these sizes, which `module` has in the place of open ones, and makes the plan.
    ///
    /// # Errors
    /// Data without a storage form on the device, sizes that a kernel does not take, bugs.
    pub fn of(
        of: PlanOf<'_>,
        module: &Module,
        sizes: &Sizes,
        kernels: Vec<PlanKernel>,
    ) -> Result<Planned, CompileError> {
        let PlanOf { steps, placed, profile, tensor_functions } = of;
        let main = module.main();
        let pool = placed.pool.at(&number_in(sizes));
        let (slots, bytes) = pool.assign(profile.max_binding);
        let mut memory = MemoryReport {
            activations_peak: bytes.iter().map(|s| s.1).sum(),
            activations_naive: pool.naive_bytes(),
            weights: 0,
        };
        let numbering = Numbering::new(&bytes, &placed.packers, module, profile);
        let (location, growing) = (&placed.location, &placed.growing);
        let tensors = Tensors { main, location, slots: &slots, growing, numbering };
        let on_host = Arc::new(host_module(module, main, steps.host_nodes()));
        let mut n = Numbered { main, placed, sizes, kernels: &kernels, on_host, tensors };
        let mut plan = Plan::default();
        for (i, &p) in main.params().iter().enumerate() {
            plan.inputs.push(n.tensors.view(p, location[&p], Name::new(&format!("input{i}")))?);
        }
        plan.steps = n.list(&steps.entry)?;
        let bodies = steps.functions.iter().map(|f| n.list(&f.steps)).collect::<Result<Vec<_>, _>>()?;
        for (i, (f, body)) in steps.functions.iter().zip(bodies).enumerate() {
            let buffers = n.tensors.buffers_of(&pool.slots_of(i, &slots), &placed.on_host[i]);
            plan.functions.push(PlanFunction { name: f.name, body, buffers });
        }
        for (i, &r) in main.results().iter().enumerate() {
            let name = main.result_names.get(i).copied();
            let name = name.unwrap_or_else(|| Name::new(&format!("output{i}")));
            let view = n.tensors.view(r, location[&r].seen_by_host(), name)?;
            plan.outputs.push(BufferView { name, ..view });
        }
        plan.buffers = n.tensors.numbering.finish(&mut memory);
        plan.kernels = kernels;
        show_grids(&mut plan);
        constant_encodings(&mut plan, tensor_functions);
        Ok(Planned { plan, memory })
    }
}

/// Kernels of open sizes show the grid of their first dispatch.
fn show_grids(plan: &mut Plan) {
    let first: Vec<_> = plan.dispatches().map(|d| (d.kernel, d.grid)).collect();
    for (kernel, grid) in first.into_iter().rev() {
        plan.kernels[kernel].emitted.grid = grid;
    }
}

/// Numbers the buffers of steps.
struct Numbered<'a> {
    main: &'a Function,
    placed: &'a Placed,
    sizes: &'a Sizes,
    kernels: &'a [PlanKernel],
    /// The module that host steps compute with.
    on_host: Arc<Module>,
    tensors: Tensors<'a>,
}

impl Numbered<'_> {
    fn list(&mut self, steps: &[AnyStep]) -> Result<Vec<Step>, CompileError> {
        let mut out = vec![];
        for step in steps {
            let node = &self.main.nodes[step.node];
            match &step.action {
                Action::View => {}
                Action::Kernels(dispatches) => self.dispatches(step, dispatches, &mut out)?,
                Action::Host | Action::HostCall => self.host_step(step, node, &mut out)?,
                Action::Branch(sides) => out.push(self.branch(step, node, sides)?),
                Action::Loop(body) => self.repeat(step, node, body, &mut out)?,
                Action::Call => out.push(Step::Call(self.call(step, node)?)),
            }
        }
        Ok(out)
    }

    fn buffer(&mut self, location: StorageLocation) -> Result<BufferIndex, CompileError> {
        self.tensors.buffer(location, None)
    }

    /// Moves a value to another location, if it is not there.
    fn copy(&mut self, from: ValueId, to: StorageLocation, out: &mut Vec<Step>) -> Result<(), CompileError> {
        let from = self.placed.location[&from];
        if from != to {
            let from = if to.is_on_host() { from.seen_by_host() } else { from };
            out.push(Step::Copy { from: self.buffer(from)?, to: self.buffer(to)? });
        }
        Ok(())
    }

    /// A value that the host reads.
    fn read(&mut self, v: ValueId, what: &str) -> Result<BufferView, CompileError> {
        Ok(self.tensors.on_host(&[v], Name::new(what))?.swap_remove(0))
    }

    fn dispatches(&mut self, step: &AnyStep, list: &[AnyDispatch], out: &mut Vec<Step>) -> Result<(), CompileError> {
        let (placed, group) = (self.placed, step.group);
        for &(operand, result) in placed.updates.get(&step.node).into_iter().flatten() {
            self.copy(operand, placed.location[&result], out)?;
        }
        let size = number_in(self.sizes);
        for (d, bindings) in list.iter().zip(&placed.bindings[&group]).filter(|(d, _)| d.is_picked(&size)) {
            let number = |&(location, slice): &(StorageLocation, u32)| Ok((self.buffer(location)?, slice));
            let buffers = bindings.iter().map(number).collect::<Result<Vec<_>, CompileError>>()?;
            let flops = d.work.flops(&size).get(d.part).copied().unwrap_or(0);
            let bytes = d.work.bytes(d.part, &size);
            let (grid, symbols) = self.open_values(&self.kernels[d.kernel].emitted, &d.symbols)?;
            let d = Dispatch { kernel: d.kernel, buffers, grid, symbols, group, flops, bytes };
            match out.last_mut() {
                Some(Step::Gpu(list)) => list.push(d),
                _ => out.push(Step::Gpu(vec![d])),
            }
        }
        // Plans for other sizes take their constants from this one: a version may read what the others do not.
        let others = list.iter().zip(&placed.bindings[&group]).filter(|(d, _)| !d.is_picked(&size));
        for (location, _) in others.flat_map(|(_, bindings)| bindings) {
            if matches!(location, StorageLocation::Own(BufferKey::Constant(..))) {
                self.buffer(*location)?;
            }
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
            let n = e.eval(&number_in(self.sizes));
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

    fn host_step(&mut self, step: &AnyStep, node: &Node, out: &mut Vec<Step>) -> Result<(), CompileError> {
        let on_device = node.op.downcast::<CallHost>().filter(|c| c.on_device);
        for (operand, result) in on_device.map_or(vec![], |call| in_place(call, node)) {
            self.copy(operand, self.placed.location[&result], out)?;
        }
        let values: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        let (inputs, outputs) = match on_device {
            Some(call) => self.device_views(call, node, &values)?,
            None => (self.tensors.on_host(&values, node.name)?, self.tensors.on_host(&node.outputs, node.name)?),
        };
        out.push(Step::Host(HostStep {
            name: node.name,
            inputs,
            outputs,
            node: step.node.index() as u32,
            run: host_computation(&self.on_host, self.main, step.node),
            call: host_call(self.main, step.node),
            group: step.group,
        }));
        Ok(())
    }

    /// Operands and results of a host function on device buffers. If a result is in place of an operand, the operand is
    /// in the result's buffer: its own buffer, or a copy.
    fn device_views(
        &mut self,
        call: &CallHost,
        node: &Node,
        values: &[ValueId],
    ) -> Result<(Vec<BufferView>, Vec<BufferView>), CompileError> {
        let mut inputs = self.tensors.on_device(values, node.name)?;
        let outputs = self.tensors.on_device(&node.outputs, node.name)?;
        for (i, output) in outputs.iter().enumerate() {
            let operand = call.in_place_operand(i);
            if let Some(input) = operand.and_then(|operand| inputs.get_mut(operand)) {
                input.buffer = output.buffer;
            }
        }
        Ok((inputs, outputs))
    }

    fn branch(&mut self, step: &AnyStep, node: &Node, sides: &[Vec<AnyStep>]) -> Result<Step, CompileError> {
        let bug = || CompileError::Bug { at: node.name.to_string(), message: "a branch without two sides".into() };
        let (Some(condition), &[then, otherwise], [first, second]) =
            (node.inputs.first().copied().flatten(), node.regions.as_slice(), sides)
        else {
            return Err(bug());
        };
        let condition = self.read(condition, "condition")?;
        let mut lists = vec![];
        for (region, side) in [(then, first), (otherwise, second)] {
            let mut list = self.list(side)?;
            for (&from, to) in self.main.blocks[region].results.iter().zip(&node.outputs) {
                self.copy(from, self.placed.location[to], &mut list)?;
            }
            lists.push(list);
        }
        let otherwise = lists.pop().unwrap_or_default();
        Ok(Step::Branch(Branch { condition, then: lists.pop().unwrap_or_default(), otherwise, group: step.group }))
    }

    fn repeat(
        &mut self,
        step: &AnyStep,
        node: &Node,
        body: &[AnyStep],
        out: &mut Vec<Step>,
    ) -> Result<(), CompileError> {
        let (main, placed) = (self.main, self.placed);
        let values = LoopValues::of(main, node);
        for (first, c) in values.carried.iter().filter_map(|c| Some((c.first?, c))) {
            self.copy(first, placed.location[&c.now], out)?;
        }
        let mut l = self.open_loop(step.group, node, &values)?;
        l.body = self.list(body)?;
        for c in &values.carried {
            self.copy(c.next, placed.next[&c.now], &mut l.body)?;
        }
        out.push(Step::Loop(l));
        Ok(())
    }

    /// A loop without its body.
    fn open_loop(&mut self, group: usize, node: &Node, values: &LoopValues<'_>) -> Result<Loop, CompileError> {
        let placed = self.placed;
        let fixed = node.op.downcast::<LoopOp>().and_then(|op| op.trips.as_ref());
        let index = Some(values.index).filter(|v| self.main.is_used(*v));
        let mut maybe = |v: Option<ValueId>, what: &str| v.map(|v| self.read(v, what)).transpose();
        let trips = match (fixed, maybe(values.trips, "trips")?) {
            (Some(n), _) => {
                let open = || CompileError::OpenDim { dim: n.to_string(), value: "trips".into() };
                Trips::Fixed(u64::try_from(n.as_const().ok_or_else(open)?).unwrap_or(0))
            }
            (None, Some(view)) => Trips::Read(view),
            (None, None) => Trips::Unlimited,
        };
        let (begin, go_on) = (maybe(values.begin, "condition")?, maybe(values.go_on, "condition")?);
        let index = maybe(index, "iteration")?;
        let mut carried = vec![];
        for c in &values.carried {
            let now = self.buffer(placed.location[&c.now])?;
            carried.push(Carried { now, next: self.buffer(placed.next[&c.now])? });
        }
        let mut collected = vec![];
        for &(row, all) in &values.rows {
            let (from, to) = (placed.location[&row], placed.location[&all]);
            let from = if to.is_on_host() { from.seen_by_host() } else { from };
            let view = self.tensors.view(row, from, Name::new("row"))?;
            let elements: u64 = view.shape.iter().map(|&n| n as u64).product();
            let row_bytes = elements * u64::from(view.encoding.element_bits(view.dtype)) / 8;
            let (all, grows) = (self.buffer(to)?, placed.growing.contains(&all));
            collected.push(Collected { row: view, all, row_bytes, grows });
        }
        Ok(Loop { trips, begin, go_on, index, body: vec![], carried, collected, group })
    }

    /// A call: operands go to the callee's parameters, its results to the caller's.
    fn call(&mut self, step: &AnyStep, node: &Node) -> Result<Call, CompileError> {
        let main = self.main;
        let bug = || CompileError::Bug { at: node.name.to_string(), message: "its callee is not in the plan".into() };
        let (callee, body) = Bodies::of(main).called(main, step.node).ok_or_else(bug)?;
        let body = &main.blocks[body];
        let mut hand = |from: ValueId, to: ValueId| -> Result<Handover, CompileError> {
            let (from, to) = (self.placed.location[&from], self.placed.location[&to]);
            let from = if to.is_on_host() { from.seen_by_host() } else { from };
            Ok(Handover { from: self.buffer(from)?, to: self.buffer(to)? })
        };
        let operands = node.inputs.iter().flatten().zip(&body.args).filter(|(_, arg)| main.is_used(**arg));
        let arguments = operands.map(|(&v, &arg)| hand(v, arg)).collect::<Result<Vec<_>, _>>()?;
        let results = body.results.iter().zip(&node.outputs).filter(|(_, v)| main.is_used(**v));
        let results = results.map(|(&from, &to)| hand(from, to)).collect::<Result<Vec<_>, _>>()?;
        Ok(Call { callee, arguments, results, group: step.group })
    }
}
