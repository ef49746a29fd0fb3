//! A kernel of a scheduled function, with values for its symbols, as a [`Program`].

use crate::index::{Condition, Indices, Slot};
use crate::memory::Form;
use crate::program::{Access, Extent, Leaf, Memory, Node, Program, Reduction, Run, Tap, TapOffset, Tile, Value, Walk};
use tensor_ir::arena::Id;
use tensor_ir::dtype::DType;
use tensor_ir::int::{Bounds, Int};
use tensor_ir::name::Name;
use tensor_ir::tir::intrinsic::{Intrinsic, Nest};
use tensor_ir::tir::{BinaryOp, Block, BufferId, Combiner, Expr, For, LoopKind, Scalar, Scope, Stmt, TensorFunction};

/// Translates kernel `kernel` of `f`, whose symbols have these values.
///
/// # Errors
/// What no task of a CPU can run: loops over the threads of a subgroup, and shapes without a value.
pub(crate) fn translate(f: &TensorFunction, kernel: Name, symbols: &[i64]) -> Result<Program, String> {
    let kernels = f.kernels();
    let body = kernels.iter().find(|k| k.0 == kernel).ok_or_else(|| format!("there is no kernel `{kernel}`"))?.1;
    let known = f.symbols.iter().map(|s| s.0).zip(symbols.iter().copied()).collect();
    let slots = Default::default();
    let ix = Indices { f, slots, known, bounds: Bounds::new() };
    let mut t = Translator { f, ix, groups: Default::default() };
    let body = t.statement(body)?;
    let mut groups: Vec<(Vec<Slot>, i64)> = t.groups.iter().rev().filter(|g| !g.0.is_empty()).cloned().collect();
    groups.retain(|g| g.1 != 1 || !g.0.is_empty());
    Ok(Program { groups, buffers: t.buffers(kernel)?, slots: t.ix.slots.len(), body })
}

struct Translator<'f> {
    f: &'f TensorFunction,
    ix: Indices<'f>,
    groups: [(Vec<Slot>, i64); 3],
}

impl Translator<'_> {
    fn buffers(&self, kernel: Name) -> Result<Vec<Memory>, String> {
        let kernels = self.f.kernels();
        let blocks: Vec<&Block> = kernels.iter().filter(|k| k.0 == kernel).flat_map(|k| k.1.blocks()).collect();
        let each = self.f.buffers.iter().map(|(id, b)| {
            let form = Form::of(b.dtype, b.encoding, b.scope);
            let own = b.scope != Scope::Global && blocks.iter().any(|block| block.accesses(id));
            let own = if own { self.size(&b.numel())?.max(1) as usize } else { 0 };
            Ok(Memory { form, own })
        });
        each.collect()
    }
    fn size(&self, i: &Int) -> Result<i64, String> {
        let value = i.eval(&|v| self.ix.known.get(&v).copied());
        value.filter(|n| *n >= 0).ok_or_else(|| format!("the size {i} is no number"))
    }
    fn statement(&mut self, s: &Stmt) -> Result<Vec<Node>, String> {
        match s {
            Stmt::Barrier => Ok(vec![]),
            Stmt::Seq(list) => {
                let parts = list.iter().map(|s| self.statement(s)).collect::<Result<Vec<_>, _>>()?;
                Ok(with_fresh_tiles(parts.into_iter().flatten()))
            }
            Stmt::Kernel(_, s) => self.statement(s),
            Stmt::Block(b) => Ok(vec![self.leaf(&[], b)?]),
            Stmt::For(l) => self.r#loop(l),
        }
    }
    fn r#loop(&mut self, l: &For) -> Result<Vec<Node>, String> {
        let count = self.size(&l.extent)?;
        match l.kind {
            LoopKind::Group(axis) => {
                let slot = self.ix.bind(l.var, count);
                let group = &mut self.groups[usize::from(axis)];
                group.0.push(slot);
                group.1 = group.1.max(count);
                Ok(vec![Node::Within(slot, count, self.statement(&l.body)?)])
            }
            LoopKind::Tensor => Ok(vec![self.tile(&[], l)?]),
            LoopKind::Combine | LoopKind::Subgroup(_) | LoopKind::Lane => {
                Err(format!("loop `{}` is one over a subgroup, which a CPU has none of", l.var))
            }
            LoopKind::Local(_) if count > 1 => Err(format!("loop `{}` is one over threads; a task has one", l.var)),
            LoopKind::Serial | LoopKind::Unroll | LoopKind::Vectorize | LoopKind::Local(_) => self.nest(l, count),
        }
    }
    /// A serial loop; with the perfect nest below it where that is one.
    fn nest(&mut self, l: &For, count: i64) -> Result<Vec<Node>, String> {
        if count == 0 {
            return Ok(vec![]);
        }
        let mut heads = vec![(l.var, count)];
        let mut inner = &l.body;
        loop {
            match inner {
                Stmt::For(next) if next.kind == LoopKind::Tensor => {
                    let loops = self.bind_all(&heads);
                    return Ok(vec![self.tile(&loops, next)?]);
                }
                Stmt::For(next) if matches!(next.kind, LoopKind::Serial | LoopKind::Unroll | LoopKind::Vectorize) => {
                    let count = self.size(&next.extent)?;
                    if count == 0 {
                        return Ok(vec![]);
                    }
                    heads.push((next.var, count));
                    inner = &next.body;
                }
                Stmt::Block(b) => {
                    let loops = self.bind_all(&heads);
                    return Ok(vec![self.leaf(&loops, b)?]);
                }
                _ => break,
            }
        }
        let slot = self.ix.bind(l.var, count);
        Ok(vec![Node::Loop(slot, count, self.statement(&l.body)?)])
    }
    fn bind_all(&mut self, heads: &[(Name, i64)]) -> Vec<Extent> {
        heads.iter().map(|&(var, count)| Extent { slot: self.ix.bind(var, count), count }).collect()
    }
    fn leaf(&mut self, loops: &[Extent], b: &Block) -> Result<Node, String> {
        let mut loops: Vec<Extent> = loops.iter().copied().filter(|l| l.count > 1).collect();
        let store = self.ix.place(b.buffer, &b.indices)?;
        let spatial = |l: &Extent| store.uses(l.slot);
        let one = Extent { slot: usize::MAX, count: 1 };
        let columns = loops.pop().unwrap_or(one);
        let across = b.reduce.is_some() && columns.slot != usize::MAX && !spatial(&columns);
        let alike = |l: &Extent| b.reduce.is_none() || across && !spatial(l);
        let rows = loops.pop_if(|l| alike(l) && columns.count < LANES_ENOUGH).unwrap_or(one);
        let lanes = [rows.slot, columns.slot];
        let reads_own = b.reads(b.buffer);
        let value = self.value(&b.value, lanes)?;
        let reduce = match b.reduce {
            None => None,
            Some(r) => {
                let dtype = self.f.buffers[b.buffer].dtype;
                let outer = self.f.reduction_loops(b.name);
                let slots = || outer.iter().filter_map(|v| self.ix.slots.get(v).copied()).collect();
                let run = self.run(b, r.combiner, &loops, &store, lanes)?.filter(|_| !across);
                Some(Reduction { combiner: r.combiner, dtype, init: r.init.then(slots), across, run })
            }
        };
        let guards = self.conditions(&b.guards)?;
        let store = access(b.buffer, store, lanes);
        Ok(Node::Leaf(Box::new(Leaf { loops, rows, columns, guards, store, value, reduce, reads_own })))
    }
    fn conditions(&self, list: &[tensor_ir::int::Cond]) -> Result<Vec<Condition>, String> {
        list.iter().map(|c| self.ix.condition(c)).collect()
    }
    /// The run that the innermost reduction loops of a block are, if they are one.
    fn run(
        &self,
        b: &Block,
        combiner: Combiner,
        loops: &[Extent],
        store: &crate::index::Index,
        lanes: [Slot; 2],
    ) -> Result<Option<Run>, String> {
        let taps = loops.iter().rev().take_while(|l| !store.uses(l.slot)).count();
        let buffer = &self.f.buffers[b.buffer];
        let plain = b.guards.iter().all(|c| !self.varies(c, loops, lanes));
        let own = Form::of(buffer.dtype, buffer.encoding, buffer.scope) == Form::F32;
        if taps == 0 || !plain || !own || store.stride(lanes[1]) != Some(1) || b.reads(b.buffer) {
            return Ok(None);
        }
        let (left, right) = match &b.value {
            Expr::Binary(BinaryOp::Mul, x, y) if combiner == Combiner::Sum => (&**x, Some(&**y)),
            one if combiner != Combiner::Prod => (one, None),
            _ => return Ok(None),
        };
        let nothing = match combiner {
            Combiner::Max => f64::NEG_INFINITY,
            Combiner::Min => f64::INFINITY,
            Combiner::Sum | Combiner::Prod => 0.0,
        };
        let Some(left) = self.tap(left, lanes, nothing)? else { return Ok(None) };
        let right = match right {
            None => None,
            Some(r) => match self.tap(r, lanes, nothing)? {
                None => return Ok(None),
                some => some,
            },
        };
        // One operand alone must differ between the lanes: a product of two that do not is the same everywhere.
        let moves = left.moves || right.as_ref().is_some_and(|r| r.moves);
        let walk = loops.len().checked_sub(taps + 1).and_then(|n| walk(loops[n], store, &left, right.as_ref()));
        Ok(moves.then_some(Run { taps, walk, left, right }))
    }
    fn varies(&self, c: &tensor_ir::int::Cond, loops: &[Extent], lanes: [Slot; 2]) -> bool {
        let uses = |i: &crate::index::Index| lanes.iter().chain(loops.iter().map(|l| &l.slot)).any(|s| i.uses(*s));
        self.ix.condition(c).map_or(true, |c| uses(&c.index))
    }
    fn tap(&self, e: &Expr, lanes: [Slot; 2], nothing: f64) -> Result<Option<Tap>, String> {
        let (conditions, e) = match e {
            Expr::Select(c, a, other) => match (&**c, &**other) {
                (Expr::All(c), Expr::Const(Scalar::Float(x), _)) if *x == nothing => (self.conditions(c)?, &**a),
                _ => return Ok(None),
            },
            _ => (vec![], e),
        };
        let Expr::Load(buffer, indices) = e else { return Ok(None) };
        let from = &self.f.buffers[*buffer];
        let index = self.ix.place(*buffer, indices)?;
        let fixed = conditions.iter().all(|c| lanes.iter().all(|l| !c.index.uses(*l)));
        let moves = index.stride(lanes[1]);
        if Form::of(from.dtype, from.encoding, from.scope) != Form::F32 || !fixed || !matches!(moves, Some(0 | 1)) {
            return Ok(None);
        }
        Ok(Some(Tap { access: access(*buffer, index, lanes), moves: moves == Some(1), conditions }))
    }
    fn value(&self, e: &Expr, lanes: [Slot; 2]) -> Result<Value, String> {
        let sub = |e: &Expr| self.value(e, lanes).map(Box::new);
        Ok(match e {
            Expr::Const(s, t) => constant(*s, *t),
            Expr::Index(i, t) => Value::Index(self.ix.index(i)?, *t),
            Expr::Load(b, ix) => Value::Load(access(*b, self.ix.place(*b, ix)?, lanes)),
            Expr::Unary(op, a) => Value::Unary(*op, a.dtype(self.f), sub(a)?),
            Expr::Binary(op, a, b) => Value::Binary(*op, a.dtype(self.f), sub(a)?, sub(b)?),
            Expr::All(c) => Value::All(self.conditions(c)?),
            Expr::Select(c, a, b) => Value::Select(sub(c)?, sub(a)?, sub(b)?),
            Expr::Cast(t, a) => Value::Cast(a.dtype(self.f), *t, sub(a)?),
        })
    }
    /// A nest of tensor loops, with the reduction loops around it that hold nothing else.
    fn tile(&mut self, outer: &[Extent], l: &For) -> Result<Node, String> {
        let refused = |what: &str| format!("loop `{}` is no tile of the CPU: {what}", l.var);
        let nest = Nest::under(l).map_err(|m| m.message)?;
        let intrinsic = Intrinsic::of_nest(self.f, &nest).ok_or_else(|| refused("no intrinsic has its loops"))?;
        let b = nest.block;
        let heads: Vec<(Name, i64)> = nest.loops.clone();
        let [rows, columns, depth] = self.bind_all(&heads)[..] else { return Err(refused(&intrinsic.name)) };
        let Expr::Binary(BinaryOp::Mul, x, y) = &b.value else { return Err(refused("it adds up no products")) };
        // The left operand is the one that moves with the rows.
        let moves = |e: &Expr| {
            let mut found = false;
            e.visit_ints(&mut |i| found |= i.uses(heads[0].0));
            found
        };
        let (x, y) = if moves(y) && !moves(x) { (y, x) } else { (x, y) };
        let (conditions, left) = match &**x {
            Expr::Select(c, a, _) => match &**c {
                Expr::All(c) => (self.conditions(c)?, &**a),
                _ => return Err(refused("a row is chosen by a value")),
            },
            plain => (vec![], plain),
        };
        let (Expr::Load(left, at), Expr::Load(right, to)) = (left, &**y) else {
            return Err(refused("an operand is no buffer"));
        };
        let lanes = [rows.slot, columns.slot];
        let (left, right) =
            (access(*left, self.ix.place(*left, at)?, lanes), access(*right, self.ix.place(*right, to)?, lanes));
        let acc = access(b.buffer, self.ix.place(b.buffer, &b.indices)?, lanes);
        let stride = |a: &Access, e: Extent| a.index.stride(e.slot);
        let (Some(left_stride), Some(right_stride)) = (stride(&left, depth), stride(&right, depth)) else {
            return Err(refused("an operand has no strides"));
        };
        // Columns that are left out are computed too, and read by nobody; rows that are left out read nothing.
        let mut conditions = conditions;
        conditions.extend(self.conditions(&b.guards)?.into_iter().filter(|c| !c.index.uses(columns.slot)));
        let steps: Vec<Option<i64>> = conditions.iter().map(|c| c.index.stride(rows.slot)).collect();
        let (plain, clamps) = left.index.without_clamps();
        let even = |e: &Extent| {
            let indices = conditions.iter().map(|c| &c.index).chain([&plain, &right.index]);
            !acc.index.uses(e.slot) && indices.into_iter().all(|i| i.stride(e.slot).is_some())
        };
        let used = outer.iter().rev().take_while(|e| even(e)).count();
        let (around, taps) = outer.split_at(outer.len() - used);
        let tile = Node::Tile(Box::new(Tile {
            taps: offsets(taps, &plain, &right.index, &conditions),
            inner: taps.iter().chain(&[rows, columns, depth]).map(|e| e.slot).collect(),
            rows: rows.count,
            columns: columns.count,
            depth: depth.count,
            fresh: false,
            acc,
            row: rows.slot,
            row_stride: plain.stride(rows.slot),
            tap_loops: taps.to_vec(),
            clamps,
            left_stride,
            left,
            conditions: conditions.into_iter().zip(steps).collect(),
            right,
            right_stride,
        }));
        Ok(around.iter().rev().fold(tile, |body, e| Node::Loop(e.slot, e.count, vec![body])))
    }
}

/// Nodes in which a tile clears its sums itself, where a leaf before it does only that.
fn with_fresh_tiles(nodes: impl Iterator<Item = Node>) -> Vec<Node> {
    let mut out: Vec<Node> = vec![];
    for mut node in nodes {
        if let (Some(Node::Leaf(l)), Node::Tile(t)) = (out.last(), &mut node)
            && clears(l, t)
        {
            t.fresh = true;
            out.pop();
        }
        out.push(node);
    }
    out
}

/// True if a leaf sets all sums of a tile to 0, and nothing else.
fn clears(l: &Leaf, t: &Tile) -> bool {
    let elements = l.loops.iter().chain([&l.rows, &l.columns]).map(|e| e.count).product::<i64>();
    let zero = matches!(l.value, Value::F(x) if x.to_bits() == 0) && l.guards.is_empty() && l.reduce.is_none();
    zero && l.store.buffer == t.acc.buffer && elements == t.rows * t.columns
}

/// The taps of loops along which all places move evenly.
fn offsets(
    loops: &[Extent],
    left: &crate::index::Index,
    right: &crate::index::Index,
    conditions: &[Condition],
) -> Vec<TapOffset> {
    let mut all = vec![TapOffset { conditions: vec![0; conditions.len()], ..Default::default() }];
    for l in loops {
        let step = |i: &crate::index::Index| i.stride(l.slot).unwrap_or(0);
        let at = |t: &TapOffset, n: i64| TapOffset {
            left: t.left + n * step(left),
            right: t.right + n * step(right),
            conditions: t.conditions.iter().zip(conditions).map(|(o, c)| o + n * step(&c.index)).collect(),
        };
        all = all.iter().flat_map(|t| (0..l.count).map(move |n| at(t, n))).collect();
    }
    all
}

/// Lanes from which on one loop is enough.
const LANES_ENOUGH: i64 = 256;

/// How a run walks along a loop, if it does so evenly.
fn walk(along: Extent, store: &crate::index::Index, left: &Tap, right: Option<&Tap>) -> Option<Walk> {
    let evenly = |t: &Tap| t.conditions.iter().all(|c| c.index.stride(along.slot).is_some());
    let step = |t: &Tap| t.access.index.stride(along.slot).filter(|_| evenly(t));
    let (left, right) = (step(left)?, right.map_or(Some(0), step)?);
    Some(Walk { along, store: store.stride(along.slot)?, left, right })
}

fn access(buffer: BufferId, index: crate::index::Index, lanes: [Slot; 2]) -> Access {
    let strides = index.stride(lanes[0]).zip(index.stride(lanes[1])).map(|(r, c)| [r, c]);
    Access { buffer: buffer.index(), index, strides }
}

fn constant(s: Scalar, t: DType) -> Value {
    use tensor_ir::interpreter::scalar::Num;
    let n = Num::of(s, t);
    match t {
        DType::F64 => Value::D(n.float()),
        t if t.is_float() => Value::F(n.float() as f32),
        _ => Value::I(n.int()),
    }
}
