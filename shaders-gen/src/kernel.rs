//! The emitter of one kernel: state, declarations, statements.

mod symbols;

use crate::builder::{Builder, Kind, Value};
use crate::error::EmitError;
use crate::grid::{Axes, Grid};
use crate::lanes::Lane;
use crate::layout::StorageLayout;
use crate::lines::Source;
use crate::tree::{Leaf, Node};
use naga::{AddressSpace, Barrier, BinaryOperator, Expression, Handle, Statement, StorageAccess};
use rustc_hash::FxHashMap;
use tensor_ir::int::{Facts, Int};
use tensor_ir::name::Name;
use tensor_ir::plan::{Binding, OpenGrid};
use tensor_ir::profile::DeviceProfile;
use tensor_ir::tir::{BinaryOp, BufferId, Cond, Expr, Scope, TensorFunction};

/// Bytes of a function's symbols as immediates, and in a uniform buffer: one of them is 0.
pub(crate) fn symbol_bytes(f: &TensorFunction, profile: &DeviceProfile) -> (u32, u32) {
    let bytes = 4 * f.symbols.len() as u32;
    if bytes > profile.immediates { (0, bytes) } else { (bytes, 0) }
}

/// Where a buffer's units are.
#[derive(Clone, Debug)]
pub(crate) enum StorageLocation {
    /// One storage binding for each slice.
    Slices(Vec<Handle<naga::GlobalVariable>>),
    /// Workgroup memory.
    Workgroup(Handle<naga::GlobalVariable>),
    /// A local array.
    Array(Handle<naga::LocalVariable>),
    /// A local variable for each unit, made on first use.
    Variables(FxHashMap<i64, Handle<naga::LocalVariable>>),
}

/// Emits the body of one kernel.
pub(crate) struct KernelEmitter<'a> {
    pub f: &'a TensorFunction,
    pub kernel: Name,
    pub axes: &'a Axes,
    pub ranges: &'a mut Facts,
    pub layouts: FxHashMap<BufferId, StorageLayout>,
    pub b: Builder,
    pub locations: FxHashMap<BufferId, StorageLocation>,
    /// Loop and axis variables: value and the scope that defines it.
    pub vars: FxHashMap<Name, (Handle<Expression>, usize)>,
    pub levels: FxHashMap<Int, usize>,
    pub lane: Option<Lane>,
    pub block: Name,
    /// The properties that could not be proved, for messages.
    pub unproved: Vec<String>,
    pub shared_bytes: u32,
    symbols: Option<Handle<naga::GlobalVariable>>,
    /// The binding of the uniform buffer that has the symbols; `None` if they are immediates.
    symbols_at: Option<u32>,
    pub unknown_zero: Option<Value>,
    pub profile: &'a DeviceProfile,
    /// A workgroup's index on the device, and how many there are along x, at most.
    pub workgroup: (Option<Handle<Expression>>, u32),
    /// On a side of a branch: a sum, and the value that replaces it there.
    pub shared_base: Option<(Int, Handle<Expression>)>,
    /// True in subgroups with a task of their own, if there may be more subgroups than tasks.
    pub has_task: Option<Handle<Expression>>,
    pub subgroup_builtins: Vec<(naga::BuiltIn, Handle<Expression>)>,
    /// No thread waits for others, and each stores often.
    pub long_without_barriers: bool,
    /// Whether it has operations on matrices.
    pub on_matrices: bool,
}

impl<'a> KernelEmitter<'a> {
    pub fn new(
        f: &'a TensorFunction,
        kernel: Name,
        axes: &'a Axes,
        ranges: &'a mut Facts,
        layouts: FxHashMap<BufferId, StorageLayout>,
        profile: &'a DeviceProfile,
    ) -> Self {
        KernelEmitter {
            f,
            kernel,
            axes,
            ranges,
            layouts,
            b: Builder::new(),
            locations: FxHashMap::default(),
            vars: FxHashMap::default(),
            levels: FxHashMap::default(),
            lane: None,
            block: kernel,
            unproved: vec![],
            shared_bytes: 0,
            symbols: None,
            symbols_at: None,
            unknown_zero: None,
            profile,
            workgroup: (None, 1),
            shared_base: None,
            has_task: None,
            subgroup_builtins: vec![],
            long_without_barriers: false,
            on_matrices: false,
        }
    }

    /// Declares the storage bindings, in order.
    pub fn declare_bindings(&mut self, bindings: &[Binding]) {
        self.symbols_at = (symbol_bytes(self.f, self.profile).1 > 0).then_some(bindings.len() as u32);
        for (index, binding) in bindings.iter().enumerate() {
            let layout = self.layouts[&binding.buffer].clone();
            let kind = layout.word.kind();
            let unit = self.b.lanes_ty(kind, layout.width as u8);
            let ty = self.b.array_ty(unit, layout.word.bytes() * layout.width, None);
            let access = if layout.written { StorageAccess::LOAD | StorageAccess::STORE } else { StorageAccess::LOAD };
            let base = self.f.buffers[binding.buffer].name;
            let name = if layout.slices > 1 { format!("{base}_slice{}", binding.slice) } else { base.to_string() };
            let var = self.b.global_var(&name, AddressSpace::Storage { access }, ty, Some(index as u32));
            match self.locations.entry(binding.buffer).or_insert_with(|| StorageLocation::Slices(vec![])) {
                StorageLocation::Slices(list) => list.push(var),
                _ => unreachable!("storage buffers have slices"),
            }
        }
        for u in &self.f.updates {
            if let (Some(of), Some(at)) = (u.of, self.locations.get(&u.result).cloned()) {
                self.locations.entry(of).or_insert(at);
            }
        }
    }

    /// Declares workgroup memory and registers.
    pub fn declare_locals(&mut self) {
        let mut ids: Vec<BufferId> = self.layouts.keys().copied().collect();
        ids.sort();
        for id in ids {
            let buffer = &self.f.buffers[id];
            let layout = self.layouts[&id].clone();
            let units = layout.units().unwrap_or(1) as u32;
            let bytes = layout.word.bytes() * layout.width;
            let location = match buffer.scope {
                Scope::Global => continue,
                Scope::Fragment(_) => StorageLocation::Variables(FxHashMap::default()),
                Scope::Register | Scope::Subgroup { .. } if layout.constant => {
                    StorageLocation::Variables(FxHashMap::default())
                }
                scope => {
                    let unit = self.b.lanes_ty(layout.word.kind(), layout.width as u8);
                    let ty = self.b.array_ty(unit, bytes, Some(units));
                    if scope == Scope::Shared {
                        self.shared_bytes = self.shared_bytes.saturating_add((units * bytes).next_multiple_of(16));
                        StorageLocation::Workgroup(self.b.global_var(
                            buffer.name.as_str(),
                            AddressSpace::WorkGroup,
                            ty,
                            None,
                        ))
                    } else {
                        StorageLocation::Array(self.b.local_var(buffer.name.as_str(), ty))
                    }
                }
            };
            self.locations.insert(id, location);
        }
    }

    /// Emits the whole kernel: axis variables, then the body.
    pub fn kernel(&mut self, grid: &Grid, root: &Node) -> Result<(), EmitError> {
        self.declare_symbols();
        self.workgroup.1 = grid.most_along_x();
        self.long_without_barriers = root.is_long_without_barriers();
        root.visit_leaves(&mut |leaf| self.on_matrices |= !leaf.tensor.is_empty());
        let beyond = self.axis_variables(grid)?;
        self.ranges.assume(&self.axes.open_ends());
        match beyond {
            Some(inside) => self.branch(inside, |this| this.subgroup_tasks(root)),
            None => self.subgroup_tasks(root),
        }
    }

    fn axis_component(&mut self, argument: Handle<Expression>, axis: u32) -> Value {
        let handle = self.b.emit(Expression::AccessIndex { base: argument, index: axis });
        let v = Value { handle, kind: Kind::U32, lanes: 1 };
        self.b.convert(v, Kind::I32)
    }

    /// Defines the group and local variables; returns the condition under which a folded group exists.
    fn axis_variables(&mut self, grid: &Grid) -> Result<Option<Handle<Expression>>, EmitError> {
        let mut inside = None;
        if self.axes.group.iter().flatten().any(|a| a.extent > 1) {
            let id = self.workgroup_id();
            match grid {
                Grid::Folded { dispatch, total, exact } => {
                    let linear = self.folded_index(id, *dispatch);
                    let extents = self.axes.group.map(|a| a.map(|a| self.b.i32(a.extent as i32)));
                    self.unfold(linear, extents);
                    if !exact {
                        let total = Value { handle: self.b.i32(*total as i32), ..linear };
                        inside = Some(self.b.binary(BinaryOperator::Less, linear, total).handle);
                    }
                }
                Grid::Direct(_) | Grid::Open(OpenGrid { row: None, .. }) => self.direct(id),
                Grid::Open(OpenGrid { row: Some(row), extents, .. }) => {
                    let linear = self.folded_index(id, [*row, u32::MAX, 1]);
                    let mut sizes = [self.b.i32(1); 3];
                    for (size, e) in sizes.iter_mut().zip(extents) {
                        *size = self.int(e)?;
                    }
                    self.unfold(linear, sizes.map(Some));
                    let [x, y, z] = sizes.map(|handle| Value { handle, ..linear });
                    let plane = self.b.mul(x, y);
                    let total = self.b.mul(plane, z);
                    inside = Some(self.b.binary(BinaryOperator::Less, linear, total).handle);
                }
            }
        }
        if self.axes.local.iter().flatten().any(|a| a.extent > 1) {
            let id = self.builtin(naga::BuiltIn::LocalInvocationId, "local");
            let flat = self.axes.is_flat().then(|| self.axis_component(id, 0));
            let mut before = 1;
            for axis in 0..3 {
                let Some(a) = self.axes.local[axis].filter(|a| a.extent > 1) else { continue };
                let v = match flat {
                    Some(all) => self.digit(all, before, a.extent),
                    None => self.axis_component(id, axis as u32),
                };
                before *= a.extent;
                self.define(a.var, v.handle);
            }
        }
        for axis in self.axes.group.iter().chain(&self.axes.local).flatten().filter(|a| a.extent == 1) {
            let zero = self.b.i32(0);
            self.vars.insert(axis.var, (zero, 0));
        }
        Ok(inside)
    }

    /// Defines the group variables by one axis of the grid each.
    fn direct(&mut self, id: Handle<Expression>) {
        for axis in 0..3 {
            if let Some(a) = self.axes.group[axis].filter(|a| a.extent > 1) {
                let v = self.axis_component(id, axis as u32);
                self.define(a.var, v.handle);
            }
        }
    }

    /// Defines the group variables as digits of the linear workgroup index.
    fn unfold(&mut self, linear: Value, extents: [Option<Handle<Expression>>; 3]) {
        let mut rest = linear;
        let axes: Vec<_> = self.axes.group.into_iter().zip(extents).filter_map(|(a, e)| Some((a?, e?))).collect();
        for (i, (axis, handle)) in axes.iter().enumerate() {
            let (extent, last) = (Value { handle: *handle, ..rest }, i + 1 == axes.len());
            let v = if last { rest } else { self.b.binary(BinaryOperator::Modulo, rest, extent) };
            self.define(axis.var, v.handle);
            if !last {
                rest = self.b.binary(BinaryOperator::Divide, rest, extent);
            }
        }
    }

    /// `index / before % extent`, where all digits up to `before * extent` may be the last.
    fn digit(&mut self, index: Value, before: i64, extent: i64) -> Value {
        let all: i64 = self.axes.workgroup().iter().map(|n| i64::from(*n)).product();
        let mut out = index;
        if before > 1 {
            let by = Value { handle: self.b.i32(before as i32), ..index };
            out = self.b.binary(BinaryOperator::Divide, out, by);
        }
        if before * extent < all {
            let by = Value { handle: self.b.i32(extent as i32), ..index };
            out = self.b.binary(BinaryOperator::Modulo, out, by);
        }
        out
    }

    fn folded_index(&mut self, id: Handle<Expression>, dispatch: [u32; 3]) -> Value {
        let mut linear = self.axis_component(id, 0);
        let mut stride = dispatch[0] as i32;
        for axis in 1..3u32 {
            if dispatch[axis as usize] > 1 {
                let part = self.axis_component(id, axis);
                let by = Value { handle: self.b.i32(stride), ..part };
                let part = self.b.mul(part, by);
                linear = self.b.add(linear, part);
            }
            stride = stride.saturating_mul(dispatch[axis as usize] as i32);
        }
        linear
    }

    pub fn define(&mut self, var: Name, value: Handle<Expression>) {
        // A literal or an argument has no statement of its own that could carry the name.
        if !matches!(self.b.function.expressions[value], Expression::Literal(_)) {
            self.b.name(value, var.as_str());
        }
        let top = self.b.top();
        self.vars.insert(var, (value, top));
    }

    /// `if condition { body }`
    pub fn branch(
        &mut self,
        condition: Handle<Expression>,
        body: impl FnOnce(&mut Self) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        self.b.open();
        body(self)?;
        let accept = self.b.close();
        self.b.statement(Statement::If { condition, accept, reject: naga::Block::new() });
        Ok(())
    }

    pub fn node(&mut self, node: &Node) -> Result<(), EmitError> {
        match node {
            Node::Seq(list) => self.sequence(list),
            Node::Loop { var, extent, spread: false, body } => self.serial_loop(*var, extent, body),
            Node::Loop { var, extent, spread: true, body } => self.spread_loop(*var, extent, body),
            Node::If { conds, body } => {
                let source = Source { block: body.last_block(), ..self.b.sources.current() };
                let before = self.b.sources.enter(source);
                let done = self.conditional(conds, body);
                self.b.sources.leave(before);
                done
            }
            Node::Leaf(leaf) => self.leaf(leaf),
            Node::Barrier => {
                let both =
                    |scope| self.layouts.iter().any(|(b, l)| l.read && l.written && self.f.buffers[*b].scope == scope);
                let (shared, global) = (both(Scope::Shared), both(Scope::Global));
                if shared || !global {
                    self.b.statement(Statement::ControlBarrier(Barrier::WORK_GROUP));
                }
                if global {
                    self.b.statement(Statement::ControlBarrier(Barrier::STORAGE));
                }
                let f = self.f;
                self.b.forget(&|b| matches!(f.buffers[b].scope, Scope::Shared | Scope::Global));
                Ok(())
            }
        }
    }

    /// A store: guards, value, combination with the old element.
    fn leaf(&mut self, leaf: &Leaf) -> Result<(), EmitError> {
        self.within(leaf, |this| {
            if this.is_of_subgroup(leaf) {
                this.ranges.assume(&leaf.facts);
                this.matrix_operation(leaf)
            } else if leaf.across {
                let value = this.value(&leaf.value)?;
                let value = this.across_threads(leaf, vec![value])?.pop();
                this.guarded_store(leaf, value)
            } else if this.is_collective(leaf) && !leaf.guards.is_empty() {
                // All threads compute the value; the guards hold only at the store.
                this.value(&leaf.value).and_then(|value| this.guarded_store(leaf, Some(value)))
            } else {
                this.ranges.assume(&leaf.facts);
                this.guarded_store(leaf, None)
            }
        })
    }

    pub fn guarded_store(&mut self, leaf: &Leaf, value: Option<Value>) -> Result<(), EmitError> {
        if leaf.guards.is_empty() {
            return self.combined_store(leaf, value);
        }
        let lane = self.lane.take();
        let condition = self.all(&leaf.guards)?;
        self.lane = lane;
        let mark = self.ranges.mark();
        self.ranges.assume(&leaf.facts);
        let done = self.branch(condition.handle, |this| this.combined_store(leaf, value));
        self.ranges.forget(mark);
        done
    }

    fn combined_store(&mut self, leaf: &Leaf, value: Option<Value>) -> Result<(), EmitError> {
        let t = self.f.buffers[leaf.buffer].dtype;
        let Some(combiner) = leaf.combiner else {
            if value.is_none() && self.copied_word(leaf)? {
                return Ok(());
            }
            let value = match value {
                Some(v) => v,
                None => self.value(self.before_rounding_store(leaf))?,
            };
            return self.store(leaf.buffer, &leaf.indices, value);
        };
        let kind = crate::ops::kind_of(t)?;
        let old = match &leaf.init {
            Some(conds) if conds.is_empty() => self.b.identity(combiner, kind, 1, t),
            Some(conds) => {
                let old = self.load(leaf.buffer, &leaf.indices)?;
                let identity = self.b.identity(combiner, kind, old.lanes, t);
                let first = self.all(conds)?;
                self.b.select(first, identity, old)
            }
            None => self.load(leaf.buffer, &leaf.indices)?,
        };
        let sum = match (&leaf.value, value) {
            (_, Some(v)) => self.b.combine(combiner, old, v, t),
            (_, None) if !leaf.tensor.is_empty() => {
                let v = self.packed_dot(leaf)?;
                self.b.combine(combiner, old, v, t)
            }
            // Always fused: some drivers do not contract a product and a sum on their own.
            (Expr::Binary(BinaryOp::Mul, x, y), None)
                if combiner == tensor_ir::tir::Combiner::Sum && kind == Kind::F32 =>
            {
                let (x, y) = self.pinned_operands(BinaryOp::Mul, x, y)?;
                self.b.math(naga::MathFunction::Fma, &[x, y, old])
            }
            (value, None) => {
                let v = self.value(value)?;
                match &leaf.init {
                    // The first of them all: of the identity and a float it is the float, NaN included.
                    Some(conds) if conds.is_empty() && combiner.is_extremum() && kind == Kind::F32 => v,
                    _ => self.b.combine(combiner, old, v, t),
                }
            }
        };
        self.store(leaf.buffer, &leaf.indices, sum)
    }

    /// Notes that something could not be proved.
    pub fn require(&mut self, proved: bool, what: impl FnOnce(&Self) -> String) {
        if !proved {
            let what = what(self);
            self.unproved.push(what);
        }
    }

    /// True when an index reads memory that this kernel changes.
    pub fn is_volatile(&self, e: &Int) -> bool {
        let mut found = false;
        crate::tree::visit_int_loads(e, &mut |b, _| found |= self.layouts.get(&b).is_none_or(|l| l.written));
        found
    }

    /// True when the leaf reads other lanes' registers.
    pub fn is_collective(&self, leaf: &Leaf) -> bool {
        leaf.reads_subgroup(self.f)
    }

    /// Conditions joined by "and"; a vector of bools when a condition differs between lanes.
    pub fn all(&mut self, conds: &[Cond]) -> Result<Value, EmitError> {
        let mut out: Option<Value> = None;
        let (uniform, lanes): (Vec<Cond>, Vec<Cond>) =
            conds.iter().cloned().partition(|c| !self.lane.is_some_and(|l| c.lhs.uses(l.var) || c.rhs.uses(l.var)));
        if !uniform.is_empty() {
            let handle = self.uniform_conds(&uniform)?;
            out = Some(Value { handle, kind: Kind::Bool, lanes: 1 });
        }
        for c in &lanes {
            let v = self.lane_cond(c)?;
            out = Some(match out {
                Some(o) => self.b.binary(BinaryOperator::And, o, v),
                None => v,
            });
        }
        match out {
            Some(v) => Ok(v),
            None => Ok(Value { handle: self.b.bool(true), kind: Kind::Bool, lanes: 1 }),
        }
    }
}
