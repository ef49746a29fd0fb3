//! The machine: walks resolved statements in lockstep, every access checked.

use super::super::scalar::Num;
use super::super::shapes::{element_count, fixed_shape};
use super::code::{BlockCode, Code, CondCode, ExprCode, IntCode, IntOp};
use super::launch::{Sizes, Subgroups};
use super::memory::{BufferInfo, Memory, Touched};
use super::value::Value;
use crate::arena::Id;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::name::Name;
use crate::tensor::{ensure_room, filled, reserve};
use crate::tir::{CondOp, LoopKind, Scope, TensorFunction};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;

/// A write of one thread: `(instance, element, value)`.
type Write<V> = (usize, usize, V);

/// Parts that are skipped in a run that only looks for races and accesses out of bounds.
#[derive(Default)]
pub(super) struct Cuts {
    /// Serial loops that run only their first two iterations and the last one.
    pub(super) loops: FxHashSet<usize>,
    /// Buffers that are therefore stored only in part.
    pub(super) partial: FxHashSet<usize>,
    /// Run some workgroups alone: the first with its neighbours, a middle one, the last.
    pub(super) groups: bool,
}

pub(super) struct Machine<V> {
    pub(super) buffers: Vec<BufferInfo>,
    /// Per buffer, per instance (one; one a thread; one a subgroup): the elements.
    pub(super) stores: Vec<Vec<Memory<V>>>,
    slots: usize,
    /// Loop variables: `slots` per thread.
    env: Vec<i64>,
    local: [usize; 3],
    subgroups: Subgroups,
    group: [usize; 3],
    grid: [usize; 3],
    pub(super) block: Name,
    pub(super) cuts: Option<Cuts>,
    touched: Touched,
    /// Elements of the buffer being stored to that the threads of this statement read, while that is watched.
    reads: RefCell<Vec<(usize, usize)>>,
    /// The buffer that is watched.
    target: Option<usize>,
}

impl<V: Value> Machine<V> {
    /// A machine with fresh memory. With cuts it keeps only the stored elements of global buffers. `subgroup`: threads
    /// of a subgroup, if its size is known.
    ///
    /// # Errors
    /// A buffer has no known size, or is too large for the memory.
    pub(super) fn new(
        f: &TensorFunction,
        slots: usize,
        cuts: Option<Cuts>,
        subgroup: Option<usize>,
    ) -> Result<Machine<V>, Fault> {
        let mut buffers = Vec::new();
        let mut stores = Vec::new();
        for (id, b) in f.buffers.iter() {
            let shape = fixed_shape(f, id)?;
            let numel = element_count(DType::F64, &shape)?;
            let info = BufferInfo { name: b.name, dtype: b.dtype, shape, numel, scope: b.scope };
            let is_input = f.inputs().any(|i| i == id);
            stores.push(match b.scope {
                Scope::Global if cuts.is_some() => vec![Memory::Sparse(FxHashMap::default())],
                Scope::Global if !is_input => vec![fresh(&info, id.index(), 0)?],
                _ => vec![],
            });
            buffers.push(info);
        }
        let (local, group, grid, block) = ([1; 3], [0; 3], [1; 3], Name::new(""));
        let subgroups = Subgroups::new(subgroup);
        let (touched, reads, target) = (Touched::default(), RefCell::new(vec![]), None);
        let env = vec![0; slots];
        Ok(Machine { buffers, stores, slots, env, local, subgroups, group, grid, block, cuts, touched, reads, target })
    }

    /// The top level: kernels one after another; anything else runs as one thread.
    pub(super) fn run_top(&mut self, code: &Code) -> Result<(), String> {
        match code {
            Code::Seq(list) => list.iter().try_for_each(|c| self.run_top(c)),
            Code::Kernel(body) => self.run_kernel(body),
            other => self.run_kernel(other),
        }
    }

    fn run_kernel(&mut self, body: &Code) -> Result<(), String> {
        let sizes = Sizes::of(body)?;
        (self.local, self.grid) = (sizes.local, sizes.grid);
        let threads = self.subgroups.launch(&sizes)?;
        let places = self.slots.saturating_mul(threads);
        let mut stored = FxHashSet::default();
        if self.grid.iter().product::<usize>() > 1 {
            self.stored_globals(body, &mut stored);
        }
        self.touched.start(stored);
        for group in self.groups() {
            self.group = group;
            self.env = filled(places, 0)?;
            self.fill_private(threads)?;
            let active: Vec<usize> = (0..threads).collect();
            for round in 0..self.subgroups.rounds() {
                self.subgroups.round = round;
                self.run(body, &active)?;
            }
        }
        self.touched.start(FxHashSet::default());
        Ok(())
    }

    /// The workgroups that run, in order.
    fn groups(&self) -> Vec<[usize; 3]> {
        let [x, y, z] = self.grid;
        if !self.cuts.as_ref().is_some_and(|c| c.groups) {
            return (0..x * y * z).map(|n| [n % x, n / x % y, n / (x * y)]).collect();
        }
        let at = |f: &dyn Fn(usize) -> usize| self.grid.map(f);
        let next = |axis: usize| std::array::from_fn(|a| usize::from(a == axis).min(self.grid[a] - 1));
        let mut out = vec![at(&|_| 0), next(0), next(1), next(2), at(&|n| n / 2), at(&|n| n - 1)];
        out.sort_unstable_by_key(|[x, y, z]| (*z, *y, *x));
        out.dedup();
        out
    }

    fn stored_globals(&self, code: &Code, out: &mut FxHashSet<usize>) {
        match code {
            Code::Seq(list) => list.iter().for_each(|c| self.stored_globals(c, out)),
            Code::For { body, .. } | Code::Kernel(body) => self.stored_globals(body, out),
            Code::Block(b) if self.buffers[b.buffer].scope == Scope::Global => {
                out.insert(b.buffer);
            }
            Code::Block(_) | Code::Nothing => {}
        }
    }

    /// The running workgroup, counted from 1.
    fn group_number(&self) -> u32 {
        let ([x, y, z], [nx, ny, _]) = (self.group, self.grid);
        (x + nx * (y + ny * z)) as u32 + 1
    }

    /// Fresh shared, register and subgroup memory for a workgroup.
    fn fill_private(&mut self, threads: usize) -> Result<(), Fault> {
        let instances = |scope: Scope| match scope {
            Scope::Global => 0,
            Scope::Shared => 1,
            Scope::Register => threads,
            Scope::Fragment(_) => self.subgroups.count(),
            Scope::Subgroup { size, .. } => threads.div_ceil((size as usize).max(1)),
        };
        let elements = self.buffers.iter().map(|b| b.numel.saturating_mul(instances(b.scope)));
        ensure_room(elements.fold(0usize, usize::saturating_add).saturating_mul(size_of::<V>()))?;
        for (n, (info, store)) in self.buffers.iter().zip(&mut self.stores).enumerate() {
            if info.scope != Scope::Global {
                *store = (0..instances(info.scope)).map(|i| fresh(info, n, i)).collect::<Result<_, _>>()?;
            }
        }
        Ok(())
    }

    fn run(&mut self, code: &Code, active: &[usize]) -> Result<(), String> {
        match code {
            Code::Seq(list) => list.iter().try_for_each(|c| self.run(c, active)),
            Code::Nothing => Ok(()),
            Code::Kernel(_) => Err("a kernel inside a kernel".into()),
            Code::Block(b) => self.run_block(b, active),
            Code::For { slot, extent, kind, body } => self.run_loop(*slot, extent, *kind, body, active),
        }
    }

    fn run_loop(
        &mut self,
        slot: usize,
        extent: &IntCode,
        kind: LoopKind,
        body: &Code,
        active: &[usize],
    ) -> Result<(), String> {
        let extents = active.iter().map(|&t| self.int(extent, t)).collect::<Result<Vec<i64>, _>>()?;
        match kind {
            LoopKind::Group(_) | LoopKind::Local(_) | LoopKind::Subgroup(_) => {
                let mut inside = Vec::with_capacity(active.len());
                for (&t, &n) in active.iter().zip(&extents) {
                    let i = self.axis_index(kind, t) as i64;
                    if i < n {
                        self.env[t * self.slots + slot] = i;
                        inside.push(t);
                    }
                }
                if inside.is_empty() { Ok(()) } else { self.run(body, &inside) }
            }
            LoopKind::Lane if self.subgroups.has_lanes() => {
                let n = extents.iter().copied().max().unwrap_or(0);
                for first in (0..n).step_by(self.subgroups.lanes()) {
                    let mut inside = Vec::with_capacity(active.len());
                    for (&t, &n) in active.iter().zip(&extents) {
                        let i = first + self.subgroups.lane(t) as i64;
                        if i < n && self.subgroups.has_task(t) {
                            self.env[t * self.slots + slot] = i;
                            inside.push(t);
                        }
                    }
                    self.run(body, &inside)?;
                }
                Ok(())
            }
            // One thread runs the loop for its whole subgroup.
            LoopKind::Lane | LoopKind::Tensor if active.iter().any(|t| self.subgroups.lane(*t) != 0) => {
                let first: Vec<usize> = active.iter().copied().filter(|t| self.subgroups.lane(*t) == 0).collect();
                if first.is_empty() { Ok(()) } else { self.run_loop(slot, extent, kind, body, &first) }
            }
            _ => {
                let uniform = extents.iter().all(|n| *n == extents[0]);
                let n = extents.iter().copied().max().unwrap_or(0);
                let cut = n > 3 && self.cuts.as_ref().is_some_and(|c| c.loops.contains(&slot));
                for i in (0..if cut { 2 } else { n }).chain(cut.then_some(n - 1)) {
                    let inside: Vec<usize>;
                    let now: &[usize] = if uniform {
                        active
                    } else {
                        inside = active.iter().zip(&extents).filter(|(_, n)| i < **n).map(|(t, _)| *t).collect();
                        &inside
                    };
                    for &t in now {
                        self.env[t * self.slots + slot] = i;
                    }
                    self.run(body, now)?;
                }
                Ok(())
            }
        }
    }

    fn axis_index(&self, kind: LoopKind, thread: usize) -> usize {
        let [x, y, z] = self.local;
        match kind {
            LoopKind::Group(a) => self.group[a as usize],
            LoopKind::Local(0) => thread % x,
            LoopKind::Local(1) => thread / x % y,
            LoopKind::Subgroup(a) => self.subgroups.task(thread)[a as usize % 2],
            _ => thread / (x * y) % z,
        }
    }

    fn run_block(&mut self, b: &BlockCode, active: &[usize]) -> Result<(), String> {
        self.block = b.name;
        let mut writes: Vec<(usize, Write<V>)> = Vec::with_capacity(active.len());
        self.reads.borrow_mut().clear();
        self.target = b.reads_target.then_some(b.buffer);
        for &t in active {
            if let Some(w) = self.thread_write(b, t)? {
                writes.push((t, w));
            }
        }
        self.check_reads(b, &writes)?;
        self.check_groups(b, &writes)?;
        let info = &self.buffers[b.buffer];
        if writes.len() > 1 && info.scope != Scope::Register {
            let mut seen: FxHashMap<(usize, usize), (usize, V)> = FxHashMap::default();
            for (t, (instance, element, value)) in &writes {
                if let Some((other, old)) = seen.insert((*instance, *element), (*t, *value))
                    && (b.reduce.is_some() || !old.same(*value))
                {
                    return Err(format!(
                        "block `{}`: threads {other} and {t} both write element {element} of `{}`",
                        b.name, info.name
                    ));
                }
            }
        }
        for (_, (instance, element, value)) in writes {
            self.stores[b.buffer][instance].set(element, value);
        }
        Ok(())
    }

    /// No thread may have read an element that another one stores in this statement.
    fn check_reads(&self, b: &BlockCode, writes: &[(usize, Write<V>)]) -> Result<(), String> {
        let reads = self.reads.borrow();
        if !b.reads_target || reads.is_empty() || self.buffers[b.buffer].scope == Scope::Register {
            return Ok(());
        }
        let stored: FxHashMap<usize, usize> = writes.iter().map(|(t, w)| (w.1, *t)).collect();
        match reads.iter().find_map(|(t, e)| stored.get(e).filter(|by| *by != t).map(|by| (t, e, by))) {
            // Lanes of a subgroup read each other's values from before the statement.
            Some((t, e, by)) if !matches!(self.buffers[b.buffer].scope, Scope::Subgroup { .. }) => Err(format!(
                "block `{}`: thread {t} reads element {e} of `{}`, which thread {by} stores in the same statement",
                b.name, self.buffers[b.buffer].name
            )),
            _ => Ok(()),
        }
    }

    /// No workgroup may store an element that another one has read, or store another value than another one did.
    fn check_groups(&self, b: &BlockCode, writes: &[(usize, Write<V>)]) -> Result<(), String> {
        let (now, info) = (self.group_number(), &self.buffers[b.buffer]);
        for (_, (_, e, value)) in writes {
            let Some(other) = self.touched.store(b.buffer, *e, now) else { continue };
            let old = self.stores[b.buffer][0].get(*e);
            if b.reduce.is_some() || !old.is_some_and(|old| old.same(*value)) {
                let (a, n) = (other - 1, now - 1);
                let text = format!("workgroups {a} and {n} of one kernel both touch element {e} of `{}`", info.name);
                return Err(format!("block `{}`: {text}", b.name));
            }
        }
        Ok(())
    }

    /// The write of thread `t`; `None` if a guard does not hold.
    fn thread_write(&self, b: &BlockCode, t: usize) -> Result<Option<Write<V>>, String> {
        for g in &b.guards {
            if !self.cond(g, t)? {
                return Ok(None);
            }
        }
        let (instance, element, index) = self.locate(b.buffer, &b.indices, t)?;
        let info = &self.buffers[b.buffer];
        if let Scope::Subgroup { lane_dim, size } = info.scope {
            let lane = t % (size as usize).max(1);
            if index.get(lane_dim as usize).is_none_or(|&i| i % (size as usize) != lane) {
                return Err(format!("block `{}`: lane {lane} stores to {index:?} of `{}`", b.name, info.name));
            }
        }
        let value = V::cast(b.value_dtype, info.dtype, self.expr(&b.value, t)?);
        let value = match b.reduce {
            None => value,
            Some(r) => {
                let first = r.init && b.reduction.iter().all(|&s| self.env[t * self.slots + s] == 0);
                let old = match first {
                    true => V::identity(r.combiner, info.dtype),
                    false => self.element(b.buffer, instance, element)?,
                };
                V::cast(info.dtype, info.dtype, V::binary(r.combiner.operator(), info.dtype, old, value))
            }
        };
        if info.scope == Scope::Global && !value.is_defined() {
            return Err(format!("block `{}`: stores what was computed from memory that nothing was stored to", b.name));
        }
        Ok(Some((instance, element, value)))
    }

    /// Instance and flat element of an access, checked.
    fn locate(&self, buffer: usize, indices: &[IntCode], t: usize) -> Result<(usize, usize, Vec<usize>), String> {
        let info = &self.buffers[buffer];
        let index = indices.iter().map(|i| self.int(i, t)).collect::<Result<Vec<i64>, _>>()?;
        let inside = index.len() == info.shape.len()
            && index.iter().zip(&info.shape).all(|(i, n)| *i >= 0 && (*i as u64) < *n as u64);
        if !inside {
            return Err(format!(
                "block `{}`: index {index:?} is outside of `{}` with shape {:?}",
                self.block, info.name, info.shape
            ));
        }
        let index: Vec<usize> = index.into_iter().map(|i| i as usize).collect();
        let element = index.iter().zip(&info.shape).fold(0, |at, (i, n)| at * n + i);
        let instance = match info.scope {
            Scope::Global | Scope::Shared => 0,
            Scope::Register => t,
            Scope::Fragment(_) => self.subgroups.number(t),
            Scope::Subgroup { size, .. } => t / (size as usize).max(1),
        };
        Ok((instance, element, index))
    }

    fn load(&self, buffer: usize, indices: &[IntCode], t: usize) -> Result<V, String> {
        let (instance, element, _) = self.locate(buffer, indices, t)?;
        let now = self.group_number();
        if let Some(other) = self.touched.load(buffer, element, now) {
            return Err(format!(
                "block `{}`: workgroup {} reads element {element} of `{}`, which workgroup {} of the same kernel stores",
                self.block,
                now - 1,
                self.buffers[buffer].name,
                other - 1
            ));
        }
        if self.target == Some(buffer) {
            self.reads.borrow_mut().push((t, element));
        }
        self.element(buffer, instance, element)
    }

    fn element(&self, buffer: usize, instance: usize, element: usize) -> Result<V, String> {
        let info = &self.buffers[buffer];
        let Some(memory) = self.stores[buffer].get(instance) else {
            return Err(format!("block `{}`: `{}` has no memory here", self.block, info.name));
        };
        let v = memory.get(element).unwrap_or_else(|| V::untouched((buffer, instance, element), info.dtype, false));
        match &self.cuts {
            Some(c) if !v.is_defined() && c.partial.contains(&buffer) => {
                Ok(V::untouched((buffer, instance, element), info.dtype, false))
            }
            _ => Ok(v),
        }
    }

    fn int(&self, e: &IntCode, t: usize) -> Result<i64, String> {
        Ok(match e {
            IntCode::Const(c) => *c,
            IntCode::Var(s) => self.env[t * self.slots + s],
            IntCode::Load(b, ix) => self.load(*b, ix, t)?.int(),
            IntCode::Op(op, ab) => {
                let (a, b) = (self.int(&ab[0], t)?, self.int(&ab[1], t)?);
                let value = match op {
                    IntOp::Add => a.checked_add(b),
                    IntOp::Sub => a.checked_sub(b),
                    IntOp::Mul => a.checked_mul(b),
                    IntOp::Div => crate::int::floor_div(a, b),
                    IntOp::Mod => crate::int::floor_div(a, b).map(|q| a - q * b),
                    IntOp::Min => Some(a.min(b)),
                    IntOp::Max => Some(a.max(b)),
                };
                value.ok_or_else(|| format!("block `{}`: an index overflows or divides by 0", self.block))?
            }
        })
    }

    fn cond(&self, c: &CondCode, t: usize) -> Result<bool, String> {
        let (a, b) = (self.int(&c.lhs, t)?, self.int(&c.rhs, t)?);
        Ok(match c.op {
            CondOp::Lt => a < b,
            CondOp::Ge => a >= b,
            CondOp::Eq => a == b,
        })
    }

    fn expr(&self, e: &ExprCode, t: usize) -> Result<V, String> {
        Ok(match e {
            ExprCode::Const(c) => V::number(*c),
            ExprCode::Index(i, dtype) => V::cast(DType::I64, *dtype, V::number(Num::I(self.int(i, t)?))),
            ExprCode::Load(b, ix) => self.load(*b, ix, t)?,
            ExprCode::Unary(op, dtype, a) => V::unary(*op, *dtype, self.expr(a, t)?),
            ExprCode::Binary(op, dtype, ab) => V::binary(*op, *dtype, self.expr(&ab[0], t)?, self.expr(&ab[1], t)?),
            ExprCode::All(list) => {
                let mut all = true;
                for c in list {
                    if !self.cond(c, t)? {
                        all = false;
                        break;
                    }
                }
                V::number(Num::I(i64::from(all)))
            }
            ExprCode::Select(cab) => {
                let condition = self.expr(&cab[0], t)?;
                match condition.truth() {
                    Some(c) => self.expr(&cab[if c { 1 } else { 2 }], t)?,
                    None => V::either(condition, self.expr(&cab[1], t)?, self.expr(&cab[2], t)?),
                }
            }
            ExprCode::Cast(from, to, a) => V::cast(*from, *to, self.expr(a, t)?),
        })
    }
}

fn fresh<V: Value>(info: &BufferInfo, buffer: usize, instance: usize) -> Result<Memory<V>, Fault> {
    let mut out = reserve(info.numel)?;
    out.extend((0..info.numel).map(|e| V::untouched((buffer, instance, e), info.dtype, true)));
    Ok(Memory::Dense(out))
}
