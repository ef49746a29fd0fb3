//! Operations of whole subgroups: tasks, loops over lanes, and operations on matrices.
//!
//! The driver chooses the subgroup size, per kernel. So no address depends on the number of lanes or subgroups.
//! Subgroup i runs task i; if there may be fewer subgroups than tasks, the workgroup repeats that in rounds until all
//! tasks are done. A subgroup beyond the last task repeats the last one and stores nothing. `lane` loops are strided by
//! the subgroup size. A `tensor` nest is one operation on matrices, which is recognised by the memory that it accesses.
//!
//! Loops over subgroups that are not nested follow each other like statements of the workgroup; the emitter refuses
//! rounds there. If a kernel distinguishes subgroups, its workgroup is one-dimensional, and threads along x and y are
//! digits of its index.

use crate::access::resolve;
use crate::builder::{Kind, Value};
use crate::error::EmitError;
use crate::kernel::{KernelEmitter, StorageLocation};
use crate::lines::Source;
use crate::memory::{Address, UnitPart};
use crate::tree::{Leaf, Node};
use naga::{BinaryOperator as B, BuiltIn, CooperativeRole, CooperativeSize, Expression, Handle, Statement, TypeInner};
use tensor_ir::int::Int;
use tensor_ir::name::Name;
use tensor_ir::tir::{BufferId, Expr, MatrixRole, Scope, intrinsic};

/// Iterations of a lane that stand one after another instead of in a loop, at most.
const MOST_ROUNDS: i64 = 4;

/// Where the elements of a fragment lie in memory.
struct FragmentSource {
    pointer: Handle<Expression>,
    stride: Handle<Expression>,
    row_major: bool,
}

impl KernelEmitter<'_> {
    /// The body, once for each round of tasks.
    pub fn subgroup_tasks(&mut self, root: &Node) -> Result<(), EmitError> {
        let tasks = self.axes.subgroup_tasks();
        if tasks == 0 {
            return self.node(root);
        }
        let threads: u32 = self.axes.workgroup().iter().product();
        let (least, largest) = self.profile.subgroup;
        let (fewest, most) = ((threads / largest.max(1)).max(1), threads.div_ceil(least.max(1)));
        let id = self.subgroup_builtin(BuiltIn::SubgroupId, "subgroup");
        let id = self.b.convert(id, Kind::I32);
        if fewest >= tasks {
            self.take_task(id, tasks, most > tasks);
            return self.node(root);
        }
        if self.axes.task_loops > 1 {
            return Err(EmitError::unsupported(format!(
                "kernel `{}` has {tasks} tasks for at least {fewest} subgroups: a loop over them may read what another one stored",
                self.kernel
            )));
        }
        let there = self.subgroup_builtin(BuiltIn::NumSubgroups, "subgroups");
        let there = self.b.convert(there, Kind::I32);
        let counter = self.b.counter("task".into());
        let pointer = self.b.local(counter);
        let zero = self.b.i32(0);
        self.b.store(pointer, zero);
        self.forget_written(root);
        self.b.open();
        let first = self.b.load(pointer, Kind::I32, 1, None);
        let task = self.b.add(first, id);
        self.take_task(task, tasks, true);
        self.node(root)?;
        self.levels.clear();
        let body = self.b.close();
        self.b.open();
        let next = self.b.add(first, there);
        self.b.store(pointer, next.handle);
        let end = Value { handle: self.b.i32(tasks as i32), ..next };
        let break_if = Some(self.b.binary(B::GreaterEqual, next, end).handle);
        let continuing = self.b.close();
        self.b.statement(Statement::Loop { body, continuing, break_if });
        Ok(())
    }

    /// Defines the axes of subgroups for a task; `beyond`: it may be none.
    fn take_task(&mut self, task: Value, tasks: u32, beyond: bool) {
        let mut own = task;
        if beyond {
            let count = Value { handle: self.b.i32(tasks as i32), ..task };
            let last = Value { handle: self.b.i32(tasks as i32 - 1), ..task };
            self.has_task = Some(self.b.binary(B::Less, task, count).handle);
            own = self.b.math(naga::MathFunction::Min, &[task, last]);
        }
        let [x, y] = self.axes.subgroup;
        let columns = x.map_or(1, |x| x.extent);
        let width = Value { handle: self.b.i32(columns as i32), ..own };
        if let Some(y) = y {
            let row = if columns == 1 { own } else { self.b.binary(B::Divide, own, width) };
            self.define(y.var, row.handle);
        }
        if let Some(x) = x {
            let column = if y.is_none() { own } else { self.b.binary(B::Modulo, own, width) };
            self.define(x.var, column.handle);
        }
    }

    /// A loop whose iterations are distributed over the lanes of the subgroup.
    pub fn spread_loop(&mut self, var: Name, extent: &Int, body: &Node) -> Result<(), EmitError> {
        // Matrices beyond the last row or column leave nothing to do.
        let mut any = false;
        body.visit_leaves(&mut |_| any = true);
        if !any {
            return Ok(());
        }
        let before = self.b.sources.enter(Source { block: body.only_block(), around: Some(var) });
        let lane = self.subgroup_builtin(BuiltIn::SubgroupInvocationId, "subgroup_lane");
        let lane = self.b.convert(lane, Kind::I32);
        let size = self.subgroup_builtin(BuiltIn::SubgroupSize, "subgroup_size");
        let size = self.b.convert(size, Kind::I32);
        let (least, extent_now) = (i64::from(self.profile.subgroup.0.max(1)), extent.as_const());
        if let Some(n) = extent_now.filter(|n| *n <= MOST_ROUNDS * least) {
            let rounds = (n + least - 1) / least;
            let done = self.spread_rounds(var, n, rounds, body, (lane, size));
            self.b.sources.leave(before);
            return done;
        }
        let every_lane = self.ranges.prove(extent, i64::from(self.profile.subgroup.1.max(1)), i64::MAX);
        let bounds = (Some([lane.handle, size.handle]), every_lane);
        let done = match self.has_task {
            Some(condition) => self.branch(condition, |this| this.counted_from(var, extent, body, bounds)),
            None => self.counted_from(var, extent, body, bounds),
        };
        self.b.sources.leave(before);
        done
    }

    /// The iterations of the lanes, one after another: with the fewest lanes there are so many `rounds`.
    fn spread_rounds(
        &mut self,
        var: Name,
        extent: i64,
        rounds: i64,
        body: &Node,
        (lane, size): (Value, Value),
    ) -> Result<(), EmitError> {
        let end = Value { handle: self.b.i32(extent as i32), ..lane };
        for round in 0..rounds {
            let mut at = lane;
            if round > 0 {
                let by = Value { handle: self.b.i32(round as i32), ..lane };
                let by = self.b.mul(size, by);
                at = self.b.add(lane, by);
            }
            // With the most lanes, is there one for each iteration, and none without?
            let most = i64::from(self.profile.subgroup.1) * (round + 1);
            let mut condition = (most > extent).then(|| self.b.binary(B::Less, at, end).handle);
            if let Some(own) = self.has_task {
                let both = |c: Handle<Expression>, this: &mut Self| {
                    let flag = |handle| Value { handle, kind: Kind::Bool, lanes: 1 };
                    this.b.binary(B::LogicalAnd, flag(c), flag(own)).handle
                };
                condition = Some(condition.map_or(own, |c| both(c, self)));
            }
            match condition {
                Some(c) => self.branch(c, |this| this.spread_once(var, at, body))?,
                None => {
                    // A new scope, since values that depend on the iteration are valid only there.
                    self.b.open();
                    self.spread_once(var, at, body)?;
                    let block = self.b.close();
                    self.b.statement(Statement::Block(block));
                }
            }
        }
        Ok(())
    }

    fn spread_once(&mut self, var: Name, at: Value, body: &Node) -> Result<(), EmitError> {
        let top = self.b.top();
        self.vars.insert(var, (at.handle, top));
        self.node(body)?;
        self.vars.remove(&var);
        self.levels.clear();
        Ok(())
    }

    /// A leaf that is one operation, which is determined by the memory of its buffers.
    pub fn matrix_operation(&mut self, leaf: &Leaf) -> Result<(), EmitError> {
        let refused = |this: &Self| {
            let text = format!("kernel `{}`: block `{}` is no operation on matrices", this.kernel, leaf.block);
            EmitError::unsupported(text)
        };
        if !leaf.guards.is_empty() || leaf.init.is_some() || self.profile.subgroup.0 == 0 {
            return Err(refused(self));
        }
        self.b.capabilities |= naga::valid::Capabilities::COOPERATIVE_MATRIX | naga::valid::Capabilities::SUBGROUP;
        let is_fragment = |this: &Self, b: BufferId| matches!(this.f.buffers[b].scope, Scope::Fragment(_));
        let loads = leaf.value.loads();
        match (is_fragment(self, leaf.buffer), leaf.combiner, loads.as_slice()) {
            (true, Some(_), [a, b]) if is_fragment(self, a.0) && is_fragment(self, b.0) => {
                let (a, b) = (self.matrix(a.0, a.1)?, self.matrix(b.0, b.1)?);
                let into = self.matrix_variable(leaf.buffer, &leaf.indices)?;
                let c = self.b.emit(Expression::Load { pointer: into });
                let sum = self.b.emit(Expression::CooperativeMultiplyAdd { a, b, c });
                self.b.store(into, sum);
            }
            (true, None, []) => {
                let (ty, ..) = self.matrix_type(leaf.buffer)?;
                let zero = self.b.declare(Expression::ZeroValue(ty));
                let into = self.matrix_variable(leaf.buffer, &leaf.indices)?;
                self.b.store(into, zero);
            }
            (true, None, [(from, indices)]) if matches!(leaf.value, Expr::Load(..)) => {
                let place = self.place(leaf, *from, indices)?;
                let (_, rows, columns, role) = self.matrix_type(leaf.buffer)?;
                let FragmentSource { pointer, stride, row_major } = place;
                let data = naga::CooperativeData { pointer, stride, row_major };
                let loaded = self.b.emit(Expression::CooperativeLoad { columns, rows, role, data });
                let into = self.matrix_variable(leaf.buffer, &leaf.indices)?;
                self.b.store(into, loaded);
            }
            (false, None, [(from, indices)]) if is_fragment(self, *from) && matches!(leaf.value, Expr::Load(..)) => {
                let target = self.matrix(*from, indices)?;
                let FragmentSource { pointer, stride, row_major } = self.place(leaf, leaf.buffer, &leaf.indices)?;
                let data = naga::CooperativeData { pointer, stride, row_major };
                self.b.statement(Statement::CooperativeStore { target, data });
                self.b.forget(&|b| b == leaf.buffer);
            }
            _ => return Err(refused(self)),
        }
        Ok(())
    }

    /// The value of a fragment.
    fn matrix(&mut self, buffer: BufferId, indices: &[Int]) -> Result<Handle<Expression>, EmitError> {
        let pointer = self.matrix_variable(buffer, indices)?;
        Ok(self.b.emit(Expression::Load { pointer }))
    }

    /// The variable of a fragment, which the indices before rows and columns name.
    fn matrix_variable(&mut self, buffer: BufferId, indices: &[Int]) -> Result<Handle<Expression>, EmitError> {
        let shape = &self.f.buffers[buffer].shape;
        let outer = shape.len().saturating_sub(2);
        let at = tensor_ir::int::flatten_index(&indices[..outer], &shape[..outer]);
        let name = self.f.buffers[buffer].name;
        let Some(at) = self.ranges.simplify(&at).as_const() else {
            let text = format!("kernel `{}`: the loops over the matrices of `{name}` are not unrolled", self.kernel);
            return Err(EmitError::unsupported(text));
        };
        let (ty, ..) = self.matrix_type(buffer)?;
        let known = match self.locations.get(&buffer) {
            Some(StorageLocation::Variables(map)) => map.get(&at).copied(),
            _ => None,
        };
        let var = match known {
            Some(v) => v,
            None => {
                let var = self.b.local_var(&format!("{name}_{at}_"), ty);
                if let Some(StorageLocation::Variables(map)) = self.locations.get_mut(&buffer) {
                    map.insert(at, var);
                }
                var
            }
        };
        Ok(self.b.local(var))
    }

    /// The type of a buffer's matrices: with rows, columns and role.
    fn matrix_type(
        &mut self,
        buffer: BufferId,
    ) -> Result<(Handle<naga::Type>, CooperativeSize, CooperativeSize, CooperativeRole), EmitError> {
        let b = &self.f.buffers[buffer];
        let size = |n: Option<&Int>| match n.and_then(Int::as_const) {
            Some(8) => Some(CooperativeSize::Eight),
            Some(16) => Some(CooperativeSize::Sixteen),
            _ => None,
        };
        let mut last = b.shape.iter().rev();
        let (columns, rows) = (size(last.next()), size(last.next()));
        let (Scope::Fragment(role), Some(rows), Some(columns)) = (b.scope, rows, columns) else {
            let text = format!("`{}` is no matrix of 8 or 16 rows and columns", b.name);
            return Err(EmitError::unsupported(text));
        };
        let role = match role {
            MatrixRole::A => CooperativeRole::A,
            MatrixRole::B => CooperativeRole::B,
            MatrixRole::C => CooperativeRole::C,
        };
        let kind = crate::ops::kind_of(b.dtype)?;
        let kind = if b.dtype == tensor_ir::dtype::DType::F16 { Kind::F16 } else { kind };
        self.b.lanes_ty(kind, 1);
        let ty = self.b.ty(TypeInner::CooperativeMatrix { columns, rows, scalar: kind.scalar(), role });
        Ok((ty, rows, columns, role))
    }

    /// The memory of the operation, with the variables of its loops in `indices`.
    fn place(&mut self, leaf: &Leaf, buffer: BufferId, indices: &[Int]) -> Result<FragmentSource, EmitError> {
        let b = &self.f.buffers[buffer];
        let refused = |why: &str| EmitError::unsupported(format!("block `{}`: `{}` {why}", leaf.block, b.name));
        let vars: Vec<Name> = leaf.tensor.iter().map(|l| l.0).collect();
        let mut bounds = tensor_ir::int::Bounds::new();
        leaf.tensor.iter().for_each(|(v, n)| bounds.insert(*v, 0, n - 1));
        let strides = intrinsic::strides(b, indices, &vars, &bounds);
        let layout = strides.as_deref().and_then(intrinsic::matrix_layout);
        let (row_major, stride) = layout.ok_or_else(|| refused("has no constant stride between rows or columns"))?;
        let proved = resolve(b, indices, None, self.ranges).proved;
        self.require(proved, |this| format!("block `{}` may go beyond `{}`", this.block, b.name));
        let first: Vec<Int> =
            indices.iter().map(|i| vars.iter().fold(i.clone(), |i, v| i.substitute(*v, &Int::new(0)))).collect();
        let flat = self.ranges.simplify(&tensor_ir::int::flatten_index(&first, &b.shape));
        let unit = self.layout(buffer).unit();
        let at = self.ranges.simplify(&flat.div(unit));
        if self.layout(buffer).slices > 1 || stride % unit != 0 || tensor_ir::int::divisor(&flat) % unit != 0 {
            return Err(refused("is read in vectors that its matrices do not begin with"));
        }
        let pointer = self.pointer(buffer, 0, &Address { unit: at, part: UnitPart::Whole })?;
        let stride = self.b.u32(u32::try_from(stride / unit).map_err(|_| refused("is too large"))?);
        Ok(FragmentSource { pointer, stride, row_major })
    }
}
