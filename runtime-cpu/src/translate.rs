//! A kernel of a scheduled function, with values for its symbols, as a [`Program`].

use crate::epilogue::{self, Known};
use crate::find_decoding;
use crate::form::Form;
use crate::index::{Condition, Indices, Slot};
use crate::program::{Access, Extent, Leaf, Memory, Node, Program, Reduction, RegisterTile, Value};
use crate::share;
use crate::strips;
use crate::unread;
use crate::widened;
use rustc_hash::FxHashMap;
use tensor_ir::arena::Id;
use tensor_ir::dtype::DType;
use tensor_ir::int::{Bounds, Int};
use tensor_ir::name::Name;
use tensor_ir::tir::{Block, Buffer, BufferId, Expr, For, LoopKind, Scalar, Scope, Stmt, TensorFunction};

/// Translates kernel `kernel` of `f`, whose symbols have these values.
///
/// # Errors
/// What no task of a CPU can run: loops over the threads of a subgroup, and shapes without a value.
pub(crate) fn translate(f: &TensorFunction, kernel: Name, symbols: &[i64]) -> Result<Program, String> {
    let kernels = f.kernels();
    let body = kernels.iter().find(|k| k.0 == kernel).ok_or_else(|| format!("there is no kernel `{kernel}`"))?.1;
    let known: FxHashMap<Name, i64> = f.symbols.iter().map(|s| s.0).zip(symbols.iter().copied()).collect();
    let widened = widened::find(f, body, &|i| size(i, &known))?;
    let slots = Default::default();
    let ix = Indices { f, slots, known, bounds: Bounds::new(), counts: vec![] };
    let blocks = body.blocks();
    let known = |id: BufferId, b: &Buffer| {
        let own_blocks = || blocks.iter().filter(|block| block.accesses(id)).count();
        let wide = widened.iter().any(|w| w.0 == id);
        Known {
            form: if wide { Form::F32 } else { Form::of(b.dtype, b.encoding, b.scope) },
            own_blocks: (b.scope != Scope::Global).then(own_blocks),
            written: blocks.iter().any(|block| block.buffer == id),
        }
    };
    let buffers = f.buffers.iter().map(|(id, b)| known(id, b)).collect();
    let mut t = Translator { f, ix, buffers, groups: Default::default() };
    let mut body = t.statement(body)?;
    strips::find(&mut body, &t.buffers);
    let mut groups: Vec<(Vec<Slot>, i64)> = t.groups.iter().rev().filter(|g| !g.0.is_empty()).cloned().collect();
    groups.retain(|g| g.1 != 1 || !g.0.is_empty());
    if let Some(tile) = first_tile(&body) {
        order(&mut groups, tile, f);
    }
    let widened = widened.into_iter().map(|(id, elements)| (id.index(), elements)).collect();
    Ok(Program { groups, buffers: t.buffers(kernel)?, slots: t.ix.slots.len(), body, widened })
}

fn size(i: &Int, known: &FxHashMap<Name, i64>) -> Result<i64, String> {
    let value = i.eval(&|v| known.get(&v).copied());
    value.filter(|n| *n >= 0).ok_or_else(|| format!("the size {i} is no number"))
}

/// The first tile of a task.
pub(crate) fn first_tile(nodes: &[Node]) -> Option<&RegisterTile> {
    nodes.iter().find_map(|n| match n {
        Node::Loop(_, _, body) | Node::Within(_, _, body) => first_tile(body),
        Node::Tile(t) => Some(t),
        Node::Leaf(_) => None,
    })
}

/// Bytes of a right operand that stay in the cache of a core beside the left one.
const KEPT: i64 = 1 << 20;

/// Orders the loops over tasks, outermost first: if the whole right operand stays in the cache, the tiles of its
/// columns follow each other, so that they share rows of the left operand and write whole rows of results.
fn order(groups: &mut Vec<(Vec<Slot>, i64)>, t: &RegisterTile, f: &TensorFunction) {
    let Some(right) = &t.right else { return };
    let of = f.buffers.iter().nth(right.buffer).map(|(_, b)| b);
    // A copy of a panel is used while tiles with the same one follow each other.
    let bytes = of.filter(|b| b.dtype.size() == 4).and_then(|b| b.numel().as_const()).map(|n| n.saturating_mul(4));
    let of_columns =
        |g: &(Vec<Slot>, i64)| g.0.iter().any(|s| right.index.uses(*s)) && !g.0.iter().any(|s| t.left.index.uses(*s));
    if let Some(at) = groups.iter().position(of_columns).filter(|_| bytes.is_some_and(|n| n <= KEPT)) {
        let columns = groups.remove(at);
        groups.push(columns);
    }
}

pub(crate) struct Translator<'f> {
    pub f: &'f TensorFunction,
    pub ix: Indices<'f>,
    pub buffers: Vec<Known>,
    groups: [(Vec<Slot>, i64); 3],
}

impl Translator<'_> {
    fn buffers(&self, kernel: Name) -> Result<Vec<Memory>, String> {
        let kernels = self.f.kernels();
        let blocks: Vec<&Block> = kernels.iter().filter(|k| k.0 == kernel).flat_map(|k| k.1.blocks()).collect();
        let each = self.f.buffers.iter().map(|(id, b)| {
            let form = self.buffers[id.index()].form;
            let own = b.scope != Scope::Global && blocks.iter().any(|block| block.accesses(id));
            let own = if own { self.size(&b.numel())?.max(1) as usize } else { 0 };
            Ok(Memory { form, own })
        });
        each.collect()
    }
    pub(crate) fn size(&self, i: &Int) -> Result<i64, String> {
        size(i, &self.ix.known)
    }
    fn statement(&mut self, s: &Stmt) -> Result<Vec<Node>, String> {
        match s {
            Stmt::Barrier => Ok(vec![]),
            Stmt::Seq(list) => {
                let parts = list.iter().map(|s| self.statement(s)).collect::<Result<Vec<_>, _>>()?;
                let mut out = vec![];
                for mut n in parts.into_iter().flatten() {
                    find_decoding::join(&mut out, &mut n, &self.buffers);
                    unread::leave_out(&mut out, &n, &self.buffers);
                    epilogue::push(&mut out, n, &self.buffers);
                }
                Ok(out)
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
                Stmt::Seq(list) => {
                    let Some(blocks) = apart(list, &heads) else { break };
                    let loops = self.bind_all(&heads);
                    return blocks.into_iter().map(|b| self.leaf(&loops, b)).collect();
                }
                _ => break,
            }
        }
        let slot = self.ix.bind(l.var, count);
        Ok(vec![find_decoding::in_one(slot, count, self.statement(&l.body)?)])
    }
    pub(crate) fn bind_all(&mut self, heads: &[(Name, i64)]) -> Vec<Extent> {
        heads.iter().map(|&(var, count)| Extent { slot: self.ix.bind(var, count), count }).collect()
    }
    fn leaf(&mut self, loops: &[Extent], b: &Block) -> Result<Node, String> {
        let mut loops: Vec<Extent> = loops.iter().copied().filter(|l| l.count > 1).collect();
        let store = self.ix.place(b.buffer, &b.indices)?;
        let spatial = |l: &Extent| store.uses(l.slot);
        let one = Extent { slot: usize::MAX, count: 1 };
        // Lanes that add to one element, as in `y[i % 9] += ..`, follow each other.
        let apart = |l: &mut Extent| b.reduce.is_none() || store.stride(l.slot).is_some();
        let columns = loops.pop_if(apart).unwrap_or(one);
        let across = b.reduce.is_some() && columns.slot != usize::MAX && !spatial(&columns);
        let alike = |l: &Extent| b.reduce.is_none() || across && !spatial(l);
        let rows = loops.pop_if(|l| alike(l) && columns.count < LANES_ENOUGH).unwrap_or(one);
        let lanes = [rows.slot, columns.slot];
        let reads_own = b.reads(b.buffer);
        let (lets, value) = share::share(self.value(&b.value, lanes)?);
        let reduce = match b.reduce {
            None => None,
            Some(r) => {
                if !across && let Some(tile) = self.window(b, r, &loops, columns, &store)? {
                    return Ok(tile);
                }
                let dtype = self.f.buffers[b.buffer].dtype;
                let outer = self.f.reduction_loops(b.name);
                let slots = || outer.iter().filter_map(|v| self.ix.slots.get(v).copied()).collect();
                Some(Reduction { combiner: r.combiner, dtype, init: r.init.then(slots), across })
            }
        };
        let guards = self.conditions(&b.guards)?;
        let store = access(b.buffer, store, lanes);
        let cuts = [lanes, [lanes[1], lanes[0]]].map(|[of, other]| {
            let mut list = vec![];
            lets.iter().chain([&value]).for_each(|v| v.conditions_on(of, other, &mut list));
            list
        });
        Ok(Node::Leaf(Box::new(Leaf {
            loops,
            rows,
            columns,
            cuts,
            guards,
            store,
            lets,
            value,
            reduce,
            reads_own,
            strips: None,
            decoding: None,
        })))
    }
    pub(crate) fn conditions(&self, list: &[tensor_ir::int::Cond]) -> Result<Vec<Condition>, String> {
        list.iter().map(|c| self.ix.condition(c)).collect()
    }
    fn value(&self, e: &Expr, lanes: [Slot; 2]) -> Result<Value, String> {
        let sub = |e: &Expr| self.value(e, lanes).map(Box::new);
        Ok(match e {
            Expr::Const(s, t) => constant(*s, *t),
            Expr::Index(i, t) => Value::Index(self.ix.index(i)?, *t),
            Expr::Load(b, ix) => {
                let place = self.ix.place(*b, ix)?;
                let elements = self.size(&self.f.buffers[*b].numel()).unwrap_or(0);
                let certain = self.ix.is_within(&place, elements);
                Value::Load(Access { certain, ..access(*b, place, lanes) })
            }
            Expr::Unary(op, a) => Value::Unary(*op, a.dtype(self.f), sub(a)?),
            Expr::Binary(op, a, b) => Value::Binary(*op, a.dtype(self.f), sub(a)?, sub(b)?),
            Expr::All(c) => Value::All(self.conditions(c)?),
            Expr::Select(c, a, b) => Value::Select(sub(c)?, sub(a)?, sub(b)?),
            Expr::Cast(t, a) => Value::Cast(a.dtype(self.f), *t, sub(a)?),
        })
    }
}

/// Blocks that one nest of loops holds, if each may run in a nest of its own, with all of its lanes at a time: a block
/// stores each element once, and later ones read it in the same iteration.
fn apart<'s>(list: &'s [Stmt], heads: &[(Name, i64)]) -> Option<Vec<&'s Block>> {
    let of = |s: &'s Stmt| if let Stmt::Block(b) = s { Some(&**b) } else { None };
    let blocks = list.iter().map(of).collect::<Option<Vec<&Block>>>()?;
    let once = |b: &Block| {
        let moves = |v: Name| b.indices.iter().any(|i| i.as_var() == Some(v));
        b.reduce.is_none() && heads.iter().all(|h| h.1 == 1 || moves(h.0))
    };
    let same = |a: &Block, b: &Block| {
        let own = |l: &(BufferId, &[Int])| l.0 != a.buffer || l.1 == a.indices.as_slice();
        a.buffer != b.buffer && !a.accesses(b.buffer) && !b.is_indexed_by(a.buffer) && b.value.loads().iter().all(own)
    };
    let pairs = || blocks.iter().enumerate().flat_map(|(n, a)| blocks[n + 1..].iter().map(move |b| (*a, *b)));
    (blocks.iter().all(|b| once(b)) && pairs().all(|(a, b)| same(a, b))).then_some(blocks)
}

/// Lanes from which on one loop is enough.
const LANES_ENOUGH: i64 = 256;

pub(crate) fn access(buffer: BufferId, index: crate::index::Index, lanes: [Slot; 2]) -> Access {
    Access::new(buffer.index(), index, lanes)
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
