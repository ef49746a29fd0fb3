//! The tensor-IR interpreter: runs any statement exactly as the conventions of [`crate::tir`] say.
//!
//! A kernel runs workgroup after workgroup. Inside one, each leaf statement is executed for all threads before the next
//! one; within a leaf all threads read before any of them writes. Every index is checked against its buffer, stores to
//! subgroup buffers against the lane, and two threads that in one statement give one element different values, or both
//! reduce into it, are an error, since on a device that is a race.
//!
//! Slow and simple on purpose: this is what schedules are held against.

mod code;

use super::bind::{Bound, bind, element_count, fixed_shape};
use super::scalar::{Num, binary, cast, combiner_op, identity, unary};
use crate::arena::Id;
use crate::dtype::DType;
use crate::name::Name;
use crate::tensor::Tensor;
use crate::tir::{BufferId, CondOp, LoopKind, Scope, TensorFunction};
use code::{BlockCode, Code, CondCode, ExprCode, IntCode, IntOp, Resolver};
use rustc_hash::FxHashMap;

/// Runs a tensor function, scheduled or not. Operands that have a prepacking are given unpacked; symbols are bound by
/// the operands' shapes. Results are in parameter order.
///
/// # Errors
/// Operands that do not fit; any access out of bounds, with block, buffer and index; a race within one statement.
pub fn run_scheduled(f: &TensorFunction, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    run_scheduled_with(f, &[], inputs)
}

/// [`run_scheduled`] with values for symbols that the operands' shapes do not bind.
///
/// # Errors
/// As [`run_scheduled`].
pub fn run_scheduled_with(
    f: &TensorFunction,
    symbols: &[(Name, i64)],
    inputs: &[Tensor],
) -> Result<Vec<Tensor>, String> {
    let Bound { f, inputs } = bind(f, symbols, inputs)?;
    let outputs: Vec<BufferId> = f.outputs().collect();
    interpret(&f, &inputs, &outputs)
}

/// Runs a concrete function and gives the content of `outputs`, any of its global buffers.
pub(super) fn interpret(f: &TensorFunction, inputs: &[Tensor], outputs: &[BufferId]) -> Result<Vec<Tensor>, String> {
    let mut resolver = Resolver::new(f);
    let code = resolver.stmt(&f.body)?;
    let mut m = Machine::new(f, resolver.count)?;
    for (b, t) in f.inputs().zip(inputs) {
        m.stores[b.index()] = vec![read_tensor(t)];
    }
    m.run_top(&code)?;
    outputs
        .iter()
        .map(|b| {
            let (info, store) = (&m.buffers[b.index()], &m.stores[b.index()]);
            let data = store.first().ok_or_else(|| format!("`{}` is no global buffer", info.name))?;
            Ok(write_tensor(info.dtype, info.shape.clone(), data))
        })
        .collect()
}

fn read_tensor(t: &Tensor) -> Vec<Num> {
    if t.dtype().is_float() {
        t.to_f64_vec().into_iter().map(Num::F).collect()
    } else {
        t.to_i64_vec().into_iter().map(Num::I).collect()
    }
}

fn write_tensor(dtype: DType, shape: Vec<usize>, data: &[Num]) -> Tensor {
    match dtype {
        DType::I64 => Tensor::from_vec(shape, data.iter().map(|x| x.int()).collect()),
        DType::U64 => Tensor::from_vec(shape, data.iter().map(|x| x.int() as u64).collect()),
        _ => Tensor::from_f64(dtype, shape, data.iter().map(|x| x.float())),
    }
}

struct BufferInfo {
    name: Name,
    dtype: DType,
    shape: Vec<usize>,
    numel: usize,
    scope: Scope,
}

/// A write of one thread: `(instance, element, value)`.
type Write = (usize, usize, Num);

struct Machine {
    buffers: Vec<BufferInfo>,
    /// Per buffer, per instance (one; one a thread; one a subgroup): the elements.
    stores: Vec<Vec<Vec<Num>>>,
    slots: usize,
    /// Loop variables: `slots` per thread.
    env: Vec<i64>,
    local: [usize; 3],
    group: [usize; 3],
    block: Name,
}

impl Machine {
    fn new(f: &TensorFunction, slots: usize) -> Result<Machine, String> {
        let mut buffers = Vec::new();
        let mut stores = Vec::new();
        for (id, b) in f.buffers.iter() {
            let shape = fixed_shape(f, id)?;
            let numel = element_count(DType::F64, &shape)?;
            let info = BufferInfo { name: b.name, dtype: b.dtype, shape, numel, scope: b.scope };
            let is_input = f.inputs().any(|i| i == id);
            stores.push(if b.scope == Scope::Global && !is_input { vec![info.poison()] } else { vec![] });
            buffers.push(info);
        }
        Ok(Machine { buffers, stores, slots, env: vec![0; slots], local: [1; 3], group: [0; 3], block: Name::new("") })
    }

    /// The top level: kernels one after another; anything else runs as one thread.
    fn run_top(&mut self, code: &Code) -> Result<(), String> {
        match code {
            Code::Seq(list) => list.iter().try_for_each(|c| self.run_top(c)),
            Code::Kernel(body) => self.run_kernel(body),
            other => self.run_kernel(other),
        }
    }

    fn run_kernel(&mut self, body: &Code) -> Result<(), String> {
        let (mut grid, mut local) = ([1usize; 3], [1usize; 3]);
        self.axis_sizes(body, &mut grid, &mut local)?;
        self.local = local;
        let threads: usize = local.iter().product();
        for z in 0..grid[2] {
            for y in 0..grid[1] {
                for x in 0..grid[0] {
                    self.group = [x, y, z];
                    self.env = vec![0; self.slots * threads];
                    self.fill_private(threads);
                    let active: Vec<usize> = (0..threads).collect();
                    self.run(body, &active)?;
                }
            }
        }
        Ok(())
    }

    /// Sizes of the launch: per axis the largest extent of a loop that is bound to it.
    fn axis_sizes(&self, code: &Code, grid: &mut [usize; 3], local: &mut [usize; 3]) -> Result<(), String> {
        match code {
            Code::Seq(list) => list.iter().try_for_each(|c| self.axis_sizes(c, grid, local)),
            Code::For { extent, kind, body, .. } => {
                let axis = match kind {
                    LoopKind::Group(a) => Some((&mut *grid, *a)),
                    LoopKind::Local(a) => Some((&mut *local, *a)),
                    _ => None,
                };
                if let Some((sizes, axis)) = axis {
                    let IntCode::Const(n) = extent else { return Err("a bound loop has no constant extent".into()) };
                    let size = sizes.get_mut(axis as usize).ok_or_else(|| format!("no axis {axis}"))?;
                    *size = (*size).max(usize::try_from(*n).unwrap_or(0));
                }
                self.axis_sizes(body, grid, local)
            }
            Code::Kernel(_) => Err("a kernel inside a kernel".into()),
            Code::Block(_) | Code::Nothing => Ok(()),
        }
    }

    /// Fresh shared, register and subgroup memory for a workgroup.
    fn fill_private(&mut self, threads: usize) {
        for (info, store) in self.buffers.iter().zip(&mut self.stores) {
            let instances = match info.scope {
                Scope::Global => continue,
                Scope::Shared => 1,
                Scope::Register => threads,
                Scope::Subgroup { size, .. } => threads.div_ceil((size as usize).max(1)),
            };
            *store = vec![info.poison(); instances];
        }
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
            LoopKind::Group(_) | LoopKind::Local(_) => {
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
            _ => {
                let uniform = extents.iter().all(|n| *n == extents[0]);
                for i in 0..extents.iter().copied().max().unwrap_or(0) {
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
        let [x, y, _] = self.local;
        match kind {
            LoopKind::Group(a) => self.group[a as usize],
            LoopKind::Local(0) => thread % x,
            LoopKind::Local(1) => thread / x % y,
            _ => thread / (x * y),
        }
    }

    fn run_block(&mut self, b: &BlockCode, active: &[usize]) -> Result<(), String> {
        self.block = b.name;
        let mut writes: Vec<(usize, Write)> = Vec::with_capacity(active.len());
        for &t in active {
            if let Some(w) = self.thread_write(b, t)? {
                writes.push((t, w));
            }
        }
        let info = &self.buffers[b.buffer];
        if writes.len() > 1 && info.scope != Scope::Register {
            let mut seen: FxHashMap<(usize, usize), (usize, Num)> = FxHashMap::default();
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
            self.stores[b.buffer][instance][element] = value;
        }
        Ok(())
    }

    /// What thread `t` writes; `None` when a guard does not hold.
    fn thread_write(&self, b: &BlockCode, t: usize) -> Result<Option<Write>, String> {
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
        let value = cast(b.value_dtype, info.dtype, self.expr(&b.value, t)?);
        let value = match b.reduce {
            None => value,
            Some(r) => {
                let first = r.init && b.reduction.iter().all(|&s| self.env[t * self.slots + s] == 0);
                let old =
                    if first { identity(r.combiner, info.dtype) } else { self.stores[b.buffer][instance][element] };
                cast(info.dtype, info.dtype, binary(combiner_op(r.combiner), info.dtype, old, value))
            }
        };
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
            Scope::Subgroup { size, .. } => t / (size as usize).max(1),
        };
        Ok((instance, element, index))
    }

    fn load(&self, buffer: usize, indices: &[IntCode], t: usize) -> Result<Num, String> {
        let (instance, element, _) = self.locate(buffer, indices, t)?;
        self.stores[buffer]
            .get(instance)
            .and_then(|s| s.get(element))
            .copied()
            .ok_or_else(|| format!("block `{}`: `{}` has no memory here", self.block, self.buffers[buffer].name))
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

    fn expr(&self, e: &ExprCode, t: usize) -> Result<Num, String> {
        Ok(match e {
            ExprCode::Const(c) => *c,
            ExprCode::Index(i, dtype) => cast(DType::I64, *dtype, Num::I(self.int(i, t)?)),
            ExprCode::Load(b, ix) => self.load(*b, ix, t)?,
            ExprCode::Unary(op, dtype, a) => unary(*op, *dtype, self.expr(a, t)?),
            ExprCode::Binary(op, dtype, ab) => binary(*op, *dtype, self.expr(&ab[0], t)?, self.expr(&ab[1], t)?),
            ExprCode::All(list) => {
                let mut all = true;
                for c in list {
                    if !self.cond(c, t)? {
                        all = false;
                        break;
                    }
                }
                Num::I(all as i64)
            }
            ExprCode::Select(cab) => self.expr(&cab[if self.expr(&cab[0], t)?.truth() { 1 } else { 2 }], t)?,
            ExprCode::Cast(from, to, a) => cast(*from, *to, self.expr(a, t)?),
        })
    }
}

impl BufferInfo {
    /// Content of memory that nothing was written to: NaN, or a value that is unlikely to be right.
    fn poison(&self) -> Vec<Num> {
        let value =
            if self.dtype.is_float() { Num::F(f64::NAN) } else { Num::I(super::scalar::wrap(self.dtype, 0x5a)) };
        vec![value; self.numel]
    }
}

#[cfg(test)]
mod tests;
