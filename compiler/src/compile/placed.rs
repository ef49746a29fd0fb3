//! The fourth stage: a storage location for each value, and how long it is in use, for any sizes.
//!
//! Lifetimes are ranges of positions in one list of all steps. The steps of both sides of a branch follow each other,
//! and the body of a loop is listed once, so their buffers are assigned once. A value that a loop reads from outside
//! lives until the end of the loop. The result of a region is computed directly in its buffer if possible, else copied:
//! a copy is wherever a value has another location than its destination.

use super::callees::Joined;
use super::error::CompileError;
use super::forms::value_encoding;
use super::kernels::Built;
use super::memory::{Pool, PoolId};
use super::numbering::{BufferKey, Packers};
use super::scheduled::Scheduled;
use super::sizes::Shown;
use super::steps::{Action, AnyStep, FunctionSteps, LoopValues, Steps};
use super::storage::StorageLocation;
use crate::graph::{BlockId, Function, Node, NodeId, ValueId};
use crate::int::{Int, divisor};
use crate::name::Name;
use crate::ops::control::CallHost;
use crate::plan::{Binding, EmittedKernel, HostContent};
use crate::profile::DeviceProfile;
use crate::tir::{BufferId, Scope, TensorFunction, Update};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// Where the values of a network are.
pub(super) struct Placed {
    pub location: FxHashMap<ValueId, StorageLocation>,
    /// For each argument of a loop's body that is carried, where an iteration writes it for the next one.
    pub next: FxHashMap<ValueId, StorageLocation>,
    /// For each group with kernels, what each of its dispatches binds: locations and slices.
    pub bindings: FxHashMap<usize, Vec<Vec<(StorageLocation, u32)>>>,
    /// For each node with kernels, the operands that its results update, with these results.
    pub updates: FxHashMap<NodeId, Vec<(ValueId, ValueId)>>,
    pub pool: Pool,
    pub packers: Packers,
    /// Values that grow as a loop runs.
    pub growing: FxHashSet<ValueId>,
    /// For each function that calls reach, its tensors in host memory.
    pub on_host: Vec<Range<usize>>,
}

impl Placed {
    /// Places the values of all steps. `shown` says which sizes are known before a run.
    ///
    /// # Errors
    /// Rows of a loop that the device cannot collect; bugs.
    pub fn of(
        joined: &Joined,
        shown: &Shown,
        scheduled: &Scheduled,
        steps: &Steps,
        profile: &DeviceProfile,
    ) -> Result<Placed, CompileError> {
        let placed = Placed {
            location: FxHashMap::default(),
            next: FxHashMap::default(),
            bindings: FxHashMap::default(),
            updates: FxHashMap::default(),
            pool: Pool::default(),
            packers: Packers::default(),
            growing: FxHashSet::default(),
            on_host: vec![],
        };
        let (main, shown) = (&joined.main, shown.module.main());
        let results = FxHashMap::default();
        let mut placing = Placing { main, shown, scheduled, profile, placed, position: 0, on_host: 0, results };
        placing.network(steps)?;
        Ok(placing.placed)
    }
}

/// Walks over the steps and places their values.
struct Placing<'a> {
    main: &'a Function,
    /// The same with numbers for open sizes.
    shown: &'a Function,
    scheduled: &'a Scheduled,
    profile: &'a DeviceProfile,
    placed: Placed,
    /// The position of the next step.
    position: usize,
    /// Tensors in host memory so far.
    on_host: usize,
    /// Values that a region computes directly in the buffers of its results.
    results: FxHashMap<ValueId, PoolId>,
}

impl Placing<'_> {
    fn network(&mut self, steps: &Steps) -> Result<(), CompileError> {
        let main = self.main;
        for (i, &p) in main.params().iter().enumerate() {
            let host = BufferKey::Host(HostContent::Input(i));
            let own = if self.is_on_device(p) { BufferKey::Input(i) } else { host };
            self.placed.location.insert(p, StorageLocation::Own(own));
        }
        let constants = self.scheduled.lowered.constants.iter();
        let constants = constants.map(|(&v, &name)| (v, StorageLocation::Own(BufferKey::Constant(name, None))));
        self.placed.location.extend(constants);
        self.steps(&steps.entry)?;
        for (i, f) in steps.functions.iter().enumerate() {
            self.function(i, f)?;
        }
        main.results().iter().for_each(|&r| self.touch(r, usize::MAX));
        Ok(())
    }

    /// A function that calls reach, whose values have places of their own.
    fn function(&mut self, i: usize, f: &FunctionSteps) -> Result<(), CompileError> {
        let body = &self.main.blocks[f.body];
        self.placed.pool.enter(Some(i));
        self.results.clear();
        let on_host = self.on_host;
        self.position += 1;
        body.args.iter().for_each(|&arg| self.new_value(arg, self.position));
        self.steps(&f.steps)?;
        body.results.iter().for_each(|&v| self.touch(v, self.position));
        self.placed.on_host.push(on_host..self.on_host);
        self.position += 1;
        self.placed.pool.enter(None);
        Ok(())
    }

    fn steps(&mut self, steps: &[AnyStep]) -> Result<(), CompileError> {
        for step in steps {
            let node = &self.main.nodes[step.node];
            match &step.action {
                Action::View => self.view(node),
                Action::Kernels(_) => self.kernels(step)?,
                Action::Host => self.host(node),
                Action::HostCall => {
                    self.in_place_results(step.node, node);
                    self.host(node);
                }
                Action::Branch(sides) => self.branch(node, sides)?,
                Action::Loop(body) => self.repeat(node, body)?,
                Action::Call => self.call(node),
            }
        }
        Ok(())
    }

    fn is_on_device(&self, v: ValueId) -> bool {
        self.scheduled.lowered.on_device.contains(&v)
    }

    fn touch(&mut self, v: ValueId, position: usize) {
        if let Some(&StorageLocation::Pool(id)) = self.placed.location.get(&v) {
            self.placed.pool.touch(id, position);
        }
    }

    /// Assigns a storage location to a new value: in the pool, or in host memory if no kernel uses it.
    fn new_value(&mut self, v: ValueId, position: usize) {
        let location = if !self.is_on_device(v) {
            self.on_host_value()
        } else if let Some(id) = self.results.remove(&v) {
            self.placed.pool.touch(id, position);
            StorageLocation::Pool(id)
        } else {
            let ty = self.main.ty(v);
            let n = ty.numel().as_const().unwrap_or(0) as u64;
            let encoding = value_encoding(ty.dtype, self.profile).unwrap_or_default();
            let id = self.placed.pool.add(encoding.storage_bytes(ty.dtype, n), position);
            self.placed.pool.leave_open(id, &ty.numel(), ty.dtype, encoding);
            StorageLocation::Pool(id)
        };
        self.placed.location.insert(v, location);
    }

    /// A place for one more tensor in host memory.
    fn on_host_value(&mut self) -> StorageLocation {
        self.on_host += 1;
        StorageLocation::Own(BufferKey::Host(HostContent::Value(self.on_host - 1)))
    }

    fn view(&mut self, node: &Node) {
        let from = node.inputs.iter().flatten().next().copied();
        if let Some(location) = from.and_then(|v| self.placed.location.get(&v).copied()) {
            self.placed.location.insert(node.outputs[0], location);
        }
    }

    fn host(&mut self, node: &Node) {
        let at = self.position;
        node.inputs.iter().flatten().for_each(|&v| self.touch(v, at));
        for &v in &node.outputs {
            if self.placed.location.contains_key(&v) {
                self.touch(v, at);
            } else {
                self.new_value(v, at);
            }
        }
        self.position += 1;
    }

    /// Results of a host function in place of an operand take its buffer, or that of a copy where the operand is still
    /// needed.
    fn in_place_results(&mut self, n: NodeId, node: &Node) {
        let Some(call) = node.op.downcast::<CallHost>().filter(|c| c.on_device) else { return };
        for (operand, result) in in_place(call, node) {
            self.in_place_result(n, operand, result);
        }
    }

    /// A result of node `n` takes the buffer of this operand, or of its copy.
    fn in_place_result(&mut self, n: NodeId, operand: ValueId, result: ValueId) {
        let from = self.placed.location[&operand];
        let aliases = &self.scheduled.lowered.aliases;
        if matches!(from, StorageLocation::Pool(_)) && aliases.ends_at(self.main, operand, n) {
            self.placed.location.insert(result, from);
            return;
        }
        self.touch(operand, self.position);
        self.new_value(result, self.position);
        self.position += 1;
    }

    fn call(&mut self, node: &Node) {
        let at = self.position;
        node.inputs.iter().flatten().for_each(|&v| self.touch(v, at));
        node.outputs.iter().for_each(|&v| self.new_value(v, at));
        self.position += 1;
    }

    fn kernels(&mut self, step: &AnyStep) -> Result<(), CompileError> {
        let Action::Kernels(dispatches) = &step.action else { return Ok(()) };
        let Some(origin) = self.scheduled.origin(step.node) else { return Ok(()) };
        let built = self.scheduled.function(origin).0;
        let parameters = self.parameters(step.node, built, dispatches.len());
        let (mut bindings, mut left) = (vec![], dispatches.as_slice());
        for built in built.versions.iter().map(|v| &v.built).chain([built]) {
            let (own, others) = left.split_at(built.kernels.len());
            let mut locations = parameters.clone();
            self.scratch(built, own.first().map_or(&[], |d| &d.symbols), &mut locations);
            let bound = |k: &EmittedKernel| bound_by(k, &locations, built);
            bindings.extend(built.kernels.iter().map(bound).collect::<Result<Vec<_>, _>>()?);
            self.position += own.len();
            left = others;
        }
        self.placed.bindings.insert(step.group, bindings);
        Ok(())
    }

    /// The storage locations of the operands and results of a group, which all versions of its kernels bind.
    fn parameters(&mut self, n: NodeId, built: &Built, dispatches: usize) -> FxHashMap<BufferId, StorageLocation> {
        let (node, f) = (&self.main.nodes[n], &built.function);
        let updated = updated(f, node);
        for &(operand, result) in &updated {
            self.in_place_result(n, operand, result);
        }
        self.placed.updates.insert(n, updated.clone());
        let first = self.position;
        let last = first + dispatches.saturating_sub(1);
        let mut locations: FxHashMap<BufferId, StorageLocation> = FxHashMap::default();
        for (b, &v) in f.inputs().zip(node.inputs.iter().flatten()) {
            self.touch(v, last);
            let mut location = self.placed.location[&v];
            let prepack = f.prepacks.iter().find(|p| p.buffer == b);
            if let (StorageLocation::Own(BufferKey::Constant(name, None)), Some(p)) = (location, prepack) {
                let packer = self.placed.packers.add(&p.packer);
                location = StorageLocation::Own(BufferKey::Constant(name, Some(packer)));
            }
            locations.insert(b, location);
        }
        for (b, &v) in f.outputs().zip(&node.outputs) {
            if updated.iter().all(|u| u.1 != v) {
                self.new_value(v, first);
            }
            self.touch(v, last);
            locations.insert(b, self.placed.location[&v]);
        }
        locations
    }

    /// Adds the storage locations of the buffers that only the kernels of `built` bind, whose first one comes next.
    fn scratch(
        &mut self,
        built: &Built,
        symbols: &[(Name, Int)],
        locations: &mut FxHashMap<BufferId, StorageLocation>,
    ) {
        let f = &built.function;
        let first = self.position;
        let last = first + built.kernels.len().saturating_sub(1);
        // Scratch is what kernels really bind: buffers of inlined stages are left behind in the arena.
        let bound: FxHashSet<BufferId> = built.kernels.iter().flat_map(|k| &k.bindings).map(|b| b.buffer).collect();
        for (b, buffer) in f.buffers.iter() {
            if buffer.scope == Scope::Global && !locations.contains_key(&b) && bound.contains(&b) {
                let of = |v: Name| symbols.iter().find(|s| s.0 == v).map(|s| s.1.clone());
                let elements = buffer.numel().replace(&mut |v| of(v));
                let known = elements.as_const().unwrap_or(0) as u64;
                let pool = &mut self.placed.pool;
                let id = pool.add_scratch(buffer.encoding.storage_bytes(buffer.dtype, known), first, last);
                pool.leave_open(id, &elements, buffer.dtype, buffer.encoding);
                locations.insert(b, StorageLocation::Pool(id));
            }
        }
    }

    /// An `if`: the branch that a run takes is decided by one value that the host reads.
    fn branch(&mut self, node: &Node, sides: &[Vec<AnyStep>]) -> Result<(), CompileError> {
        let main = self.main;
        let at = self.position;
        node.inputs.iter().take(1).flatten().for_each(|&condition| self.touch(condition, at));
        node.outputs.iter().for_each(|&v| self.new_value(v, at));
        self.position += 1;
        for (&region, side) in node.regions.iter().zip(sides) {
            let yields = &main.blocks[region].results;
            let to: Vec<StorageLocation> = node.outputs.iter().map(|v| self.placed.location[v]).collect();
            self.aim(region, yields.iter().copied().zip(to));
            self.steps(side)?;
            for (&from, &to) in yields.iter().zip(&node.outputs) {
                self.touch(from, self.position);
                self.touch(to, self.position);
                self.position += 1;
            }
            self.position += 1;
        }
        Ok(())
    }

    /// Lets a region compute its results directly in their final buffers.
    fn aim(&mut self, region: BlockId, results: impl Iterator<Item = (ValueId, StorageLocation)>) {
        let main = self.main;
        self.results.clear();
        for (from, to) in results {
            let root = self.scheduled.lowered.aliases.root(from);
            let here = main.def_node(root).is_some_and(|d| main.nodes[d].block == Some(region));
            if let (true, StorageLocation::Pool(id)) = (here, to) {
                self.results.entry(root).or_insert(id);
            }
        }
    }

    /// A loop: each carried value has two buffers, one that an iteration reads and one that it writes for the next.
    fn repeat(&mut self, node: &Node, body: &[AnyStep]) -> Result<(), CompileError> {
        let values = LoopValues::of(self.main, node);
        self.carry(&values);
        self.new_value(values.index, self.position);
        for &(row, all) in &values.rows {
            self.collect(node, row, all)?;
        }
        let first = self.position;
        // The host reads these when the loop begins, which is behind the copies of the first values.
        [values.trips, values.begin].into_iter().flatten().for_each(|v| self.touch(v, first));
        self.position += 1;
        let next: Vec<(ValueId, StorageLocation)> =
            values.carried.iter().map(|c| (c.next, self.placed.next[&c.now])).collect();
        self.aim(node.regions[0], next.iter().copied());
        self.steps(body)?;
        for &(from, _) in &next {
            self.touch(from, self.position);
            self.position += 1;
        }
        let last = self.position;
        for location in next.iter().map(|n| n.1) {
            if let StorageLocation::Pool(id) = location {
                self.placed.pool.touch(id, last);
            }
        }
        let (args, yields) = values.ends;
        node.outputs.iter().chain(yields).chain(args).for_each(|&v| self.touch(v, last));
        self.position += 1;
        self.placed.pool.extend_over(first, last);
        Ok(())
    }

    /// Two places for each value that a loop carries, with the first value in the one that iterations read. The results
    /// are there in the end.
    fn carry(&mut self, values: &LoopValues<'_>) {
        for c in &values.carried {
            let at = self.position;
            self.new_value(c.now, at);
            let now = self.placed.location[&c.now];
            let next = match now {
                StorageLocation::Pool(id) => StorageLocation::Pool(self.placed.pool.add_like(id, at)),
                StorageLocation::Own(_) => self.on_host_value(),
            };
            self.placed.location.insert(c.result, now);
            self.placed.next.insert(c.now, next);
            if let Some(first) = c.first {
                self.touch(first, at);
                self.position += 1;
            }
        }
    }

    /// Places the collected rows of a loop. If only a run decides how many there are, they grow.
    fn collect(&mut self, node: &Node, row: ValueId, all: ValueId) -> Result<(), CompileError> {
        // The open sizes of a network are known before a run, other symbols are not.
        if self.shown.ty(all).const_shape().is_some() {
            self.new_value(all, self.position);
            return self.check_rows(node, row, self.placed.location[&all]);
        }
        let own = StorageLocation::Own(BufferKey::Growing(self.placed.growing.len()));
        let location = if self.is_on_device(all) { own } else { self.on_host_value() };
        self.placed.location.insert(all, location);
        self.placed.growing.insert(all);
        self.check_rows(node, row, location)
    }

    /// Rows that are collected on the device stand one behind the other, and are copied in words.
    fn check_rows(&self, node: &Node, row: ValueId, all: StorageLocation) -> Result<(), CompileError> {
        let ty = self.main.ty(row);
        let bits = i64::from(value_encoding(ty.dtype, self.profile).unwrap_or_default().element_bits(ty.dtype));
        let elements = ty.numel();
        if all.is_on_host() || divisor(&(elements.clone() * bits)) % 32 == 0 {
            return Ok(());
        }
        let why = format!("`{}` collects rows of {elements} {}, which are no whole words", node.name, ty.dtype);
        Err(CompileError::NeedsCpu(why))
    }
}

/// The operands that results of a host function are in place of, with these results.
pub(super) fn in_place(call: &CallHost, node: &Node) -> Vec<(ValueId, ValueId)> {
    let operand = |i: usize| node.inputs.get(call.in_place_operand(i)?).copied().flatten();
    node.outputs.iter().enumerate().filter_map(|(i, &result)| Some((operand(i)?, result))).collect()
}

/// The operands that results of a tensor function update, with these results.
fn updated(f: &TensorFunction, node: &Node) -> Vec<(ValueId, ValueId)> {
    let pair = |u: &Update| {
        let operand = f.inputs().position(|b| Some(b) == u.of)?;
        let result = f.outputs().position(|b| b == u.result)?;
        Some(((*node.inputs.get(operand)?)?, *node.outputs.get(result)?))
    };
    f.updates.iter().filter_map(pair).collect()
}

/// The locations and slices that a kernel binds.
fn bound_by(
    kernel: &EmittedKernel,
    locations: &FxHashMap<BufferId, StorageLocation>,
    built: &Built,
) -> Result<Vec<(StorageLocation, u32)>, CompileError> {
    let bound = |b: &Binding| {
        let location = locations.get(&b.buffer).copied().ok_or_else(|| CompileError::Bug {
            at: built.name().to_string(),
            message: format!("{} binds a buffer without a storage location", kernel.name),
        })?;
        Ok((location, b.slice))
    };
    kernel.bindings.iter().map(bound).collect()
}
