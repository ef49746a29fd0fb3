//! Accesses to buffers: listing, rewriting, and keeping them in bounds.

use crate::int::{self, Bounds, Int, IntNode};
use crate::tir::{BufferId, Cond, CondOp, Expr, Stmt, TensorFunction};

/// The buffers that `e` loads from, indices included, without repeats.
pub fn buffers_read(e: &Expr) -> Vec<BufferId> {
    let mut out = Vec::new();
    let mut add = |b| {
        if !out.contains(&b) {
            out.push(b)
        }
    };
    e.loads().iter().for_each(|l| add(l.0));
    e.visit_ints(&mut |i| {
        i.visit(&mut |n| {
            if let IntNode::Load(b, _) = n.node() {
                add(*b)
            }
        });
    });
    out
}

/// Rebuilds `i` bottom-up, replacing each element of an integer buffer for which `f` returns something.
pub fn rewrite_int_loads(i: &Int, f: &mut dyn FnMut(BufferId, Vec<Int>) -> Option<Int>) -> Int {
    match i.node() {
        IntNode::Const(_) | IntNode::Var(_) => i.clone(),
        IntNode::Load(b, ix) => {
            let ix: Vec<Int> = ix.iter().map(|i| rewrite_int_loads(i, f)).collect();
            f(*b, ix.clone()).unwrap_or_else(|| Int::load(*b, ix))
        }
        IntNode::Add(a, b) => rewrite_int_loads(a, f) + rewrite_int_loads(b, f),
        IntNode::Sub(a, b) => rewrite_int_loads(a, f) - rewrite_int_loads(b, f),
        IntNode::Mul(a, b) => rewrite_int_loads(a, f) * rewrite_int_loads(b, f),
        IntNode::Div(a, b) => rewrite_int_loads(a, f).div(rewrite_int_loads(b, f)),
        IntNode::Mod(a, b) => rewrite_int_loads(a, f).rem(rewrite_int_loads(b, f)),
        IntNode::Min(a, b) => rewrite_int_loads(a, f).min(rewrite_int_loads(b, f)),
        IntNode::Max(a, b) => rewrite_int_loads(a, f).max(rewrite_int_loads(b, f)),
    }
}

/// Rewrites the indices of every load and store of `buffer`.
pub fn rewrite_accesses(f: &mut TensorFunction, buffer: BufferId, rewrite: &dyn Fn(&[Int]) -> Vec<Int>) {
    f.body.visit_mut(&mut |s| {
        let Stmt::Block(b) = s else { return };
        let mut ints =
            |i: &Int| rewrite_int_loads(i, &mut |id, ix| (id == buffer).then(|| Int::load(id, rewrite(&ix))));
        b.guards = b.guards.iter().map(|c| c.map(&mut ints)).collect();
        b.indices = b.indices.iter().map(&mut ints).collect();
        b.value = b.value.rewrite(&mut ints, &mut |e| match e {
            Expr::Load(id, ix) if *id == buffer => Some(Expr::Load(*id, rewrite(ix))),
            _ => None,
        });
        if b.buffer == buffer {
            b.indices = rewrite(&b.indices);
        }
    });
}

/// Rewrites every load of `buffer` in one expression.
pub fn rewrite_loads(e: &Expr, buffer: BufferId, rewrite: &dyn Fn(&[Int]) -> Expr) -> Expr {
    e.rewrite(&mut |i| i.clone(), &mut |e| match e {
        Expr::Load(id, ix) if *id == buffer => Some(rewrite(ix)),
        _ => None,
    })
}

/// True when `cond` holds for all values of the variables.
pub fn proves(cond: &Cond, bounds: &Bounds) -> bool {
    match cond.op {
        CondOp::Lt => int::prove(&(cond.rhs.clone() - &cond.lhs), 1, i64::MAX, bounds),
        CondOp::Ge => int::prove(&(cond.lhs.clone() - &cond.rhs), 0, i64::MAX, bounds),
        CondOp::Eq => int::prove(&(cond.lhs.clone() - &cond.rhs), 0, 0, bounds),
    }
}

/// True when `cond` holds for no values of the variables.
pub fn refutes(cond: &Cond, bounds: &Bounds) -> bool {
    let flip = |op| Cond { lhs: cond.lhs.clone(), op, rhs: cond.rhs.clone() };
    match cond.op {
        CondOp::Lt => proves(&flip(CondOp::Ge), bounds),
        CondOp::Ge => proves(&flip(CondOp::Lt), bounds),
        CondOp::Eq => {
            proves(&flip(CondOp::Lt), bounds) || proves(&Cond::lt(cond.rhs.clone(), cond.lhs.clone()), bounds)
        }
    }
}

/// Makes every load of `e` in bounds for all values of the variables, those included for which the value is not
/// needed: an index that is neither proved in bounds nor protected by the condition of a Select around it is clamped,
/// `x[i]` -> `x[min(i, n - 1)]`.
pub fn clamp_loads(f: &TensorFunction, e: &Expr, bounds: &Bounds) -> Expr {
    Clamp { f, bounds }.expr(e, &[])
}

struct Clamp<'a> {
    f: &'a TensorFunction,
    bounds: &'a Bounds,
}
impl Clamp<'_> {
    fn expr(&self, e: &Expr, conds: &[Cond]) -> Expr {
        match e {
            Expr::Const(..) => e.clone(),
            Expr::Index(i, t) => Expr::Index(self.inner(i, conds), *t),
            Expr::Load(b, ix) => {
                let shape = &self.f.buffers[*b].shape;
                Expr::Load(*b, ix.iter().zip(shape).map(|(i, d)| self.index(i, d, conds)).collect())
            }
            Expr::Unary(op, a) => Expr::unary(*op, self.expr(a, conds)),
            Expr::Binary(op, a, b) => Expr::binary(*op, self.expr(a, conds), self.expr(b, conds)),
            Expr::All(list) => Expr::All(list.iter().map(|c| c.map(&mut |i| self.inner(i, conds))).collect()),
            Expr::Select(c, a, b) => {
                let mut inside = conds.to_vec();
                if let Expr::All(list) = &**c {
                    inside.extend(list.iter().cloned());
                }
                Expr::select(self.expr(c, conds), self.expr(a, &inside), self.expr(b, conds))
            }
            Expr::Cast(t, a) => Expr::Cast(*t, Box::new(self.expr(a, conds))),
        }
    }
    /// Clamps the indices of the integer loads inside `i`.
    fn inner(&self, i: &Int, conds: &[Cond]) -> Int {
        rewrite_int_loads(i, &mut |b, ix| {
            let shape = &self.f.buffers[b].shape;
            Some(Int::load(b, ix.iter().zip(shape).map(|(i, d)| self.index(i, d, conds)).collect()))
        })
    }
    fn index(&self, i: &Int, extent: &Int, conds: &[Cond]) -> Int {
        let mut has_load = false;
        i.visit(&mut |n| has_load |= matches!(n.node(), IntNode::Load(..)));
        if has_load {
            // The loaded value is in bounds whenever it is loaded from a valid place.
            return self.inner(i, conds);
        }
        let mut out = i.clone();
        if !self.below(i, extent, conds) {
            out = self.clamp_above(&out, extent);
        }
        if !self.not_negative(i, conds) {
            out = out.max(0);
        }
        out
    }
    fn below(&self, i: &Int, extent: &Int, conds: &[Cond]) -> bool {
        let room = |c: &Cond| {
            // i = lhs + d and lhs < rhs, so extent - i >= extent - rhs - d + 1.
            let d = i.clone() - &c.lhs;
            int::prove(&(extent.clone() - &c.rhs - d), 0, i64::MAX, self.bounds)
        };
        proves(&Cond::lt(i.clone(), extent.clone()), self.bounds) || conds.iter().any(|c| c.op == CondOp::Lt && room(c))
    }
    fn not_negative(&self, i: &Int, conds: &[Cond]) -> bool {
        let room = |c: &Cond| int::prove(&(c.rhs.clone() + (i.clone() - &c.lhs)), 0, i64::MAX, self.bounds);
        int::prove(i, 0, i64::MAX, self.bounds) || conds.iter().any(|c| c.op == CondOp::Ge && room(c))
    }
    /// `min(i, extent - 1)`; where `i = 4*q + r` with `0 <= r < 4` and 4 divides the extent, `min(q, extent/4 - 1)*4 + r`,
    /// so that vectors stay contiguous (for 4, 3, 2).
    fn clamp_above(&self, i: &Int, extent: &Int) -> Int {
        if let Some(n) = extent.as_const() {
            for g in [4, 3, 2] {
                if n % g != 0 {
                    continue;
                }
                let (q, r) = (int::simplify(&i.div(g), self.bounds), int::simplify(&i.rem(g), self.bounds));
                let apart = r.vars().iter().all(|v| !q.uses(*v));
                if apart && !r.vars().is_empty() && !matches!(r.node(), IntNode::Mod(..)) {
                    return q.min(n / g - 1) * g + r;
                }
            }
        }
        i.min(extent.clone() - 1)
    }
}
