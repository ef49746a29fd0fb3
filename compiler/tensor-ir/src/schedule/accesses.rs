//! Accesses to buffers: listing, rewriting, and keeping them in bounds.

use super::loops::LoopHead;
use crate::int::{self, Bounds, Facts, Int, IntNode};
use crate::tir::{BufferId, Cond, Expr, Stmt, TensorFunction};

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

/// Lets every load and store of `from` go to `into`.
pub fn replace_buffer(f: &mut TensorFunction, from: BufferId, into: BufferId) {
    f.body.visit_mut(&mut |s| {
        let Stmt::Block(b) = s else { return };
        let mut ints = |i: &Int| rewrite_int_loads(i, &mut |id, ix| (id == from).then(|| Int::load(into, ix)));
        b.guards = b.guards.iter().map(|c| c.map(&mut ints)).collect();
        b.indices = b.indices.iter().map(&mut ints).collect();
        b.value = b.value.rewrite(&mut ints, &mut |e| match e {
            Expr::Load(id, ix) if *id == from => Some(Expr::Load(into, ix.clone())),
            _ => None,
        });
        if b.buffer == from {
            b.buffer = into;
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
    int::prove_cond(cond, bounds) == Some(true)
}

/// True when `cond` holds for no values of the variables.
pub fn refutes(cond: &Cond, bounds: &Bounds) -> bool {
    int::prove_cond(cond, bounds) == Some(false)
}

/// Makes every load of `e` in bounds for all values of the variables, those included for which the value is not
/// needed: an index that is neither proved in bounds nor protected by the condition of a Select around it is clamped,
/// `x[i]` -> `x[min(i, n - 1)]`.
pub fn clamp_loads(f: &TensorFunction, e: &Expr, bounds: &Bounds) -> Expr {
    clamp_loads_inside(f, e, bounds, &[])
}

/// The same inside these loops, whose lengths may be open.
pub fn clamp_loads_inside(f: &TensorFunction, e: &Expr, bounds: &Bounds, loops: &[LoopHead]) -> Expr {
    let mut facts = Facts::new(bounds.clone());
    let open = loops.iter().filter(|l| l.extent.as_const().is_none());
    facts.assume(&open.map(|l| Cond::lt(Int::var(l.var), l.extent.clone())).collect::<Vec<_>>());
    Clamp { f, facts }.expr(e)
}

struct Clamp<'a> {
    f: &'a TensorFunction,
    /// The ranges of the variables, and the conditions of the Selects around.
    facts: Facts,
}
impl Clamp<'_> {
    fn expr(&mut self, e: &Expr) -> Expr {
        match e {
            Expr::Const(..) => e.clone(),
            Expr::Index(i, t) => Expr::Index(self.inner(i), *t),
            Expr::Load(b, ix) => Expr::Load(*b, self.element(*b, ix)),
            Expr::Unary(op, a) => Expr::unary(*op, self.expr(a)),
            Expr::Binary(op, a, b) => Expr::binary(*op, self.expr(a), self.expr(b)),
            Expr::All(list) => Expr::All(list.iter().map(|c| c.map(&mut |i| self.inner(i))).collect()),
            Expr::Select(c, a, b) => {
                let mark = self.facts.mark();
                if let Expr::All(list) = &**c {
                    self.facts.assume(list);
                }
                let inside = self.expr(a);
                self.facts.forget(mark);
                Expr::select(self.expr(c), inside, self.expr(b))
            }
            Expr::Cast(t, a) => Expr::Cast(*t, Box::new(self.expr(a))),
        }
    }
    fn element(&mut self, b: BufferId, ix: &[Int]) -> Vec<Int> {
        let f = self.f;
        let last = ix.len().saturating_sub(1);
        ix.iter().zip(&f.buffers[b].shape).enumerate().map(|(n, (i, d))| self.index(i, d, n == last)).collect()
    }
    /// Clamps the indices of the integer loads inside `i`.
    fn inner(&mut self, i: &Int) -> Int {
        rewrite_int_loads(i, &mut |b, ix| Some(Int::load(b, self.element(b, &ix))))
    }
    fn index(&mut self, i: &Int, extent: &Int, innermost: bool) -> Int {
        let mut has_load = false;
        i.visit(&mut |n| has_load |= matches!(n.node(), IntNode::Load(..)));
        if has_load {
            // The loaded value is in bounds whenever it is loaded from a valid place.
            return self.inner(i);
        }
        let mut out = i.clone();
        if !self.facts.prove(&(extent.clone() - i), 1, i64::MAX) {
            out = self.clamp_above(&out, extent, innermost);
        }
        if !self.facts.prove(i, 0, i64::MAX) {
            out = out.max(0);
        }
        out
    }
    /// `min(i, extent - 1)`; where `i = 4*q + r` with `0 <= r < 4` and 4 divides the extent, `min(q, extent/4 - 1)*4 +
    /// r`, so that vectors stay contiguous (for 4, 3, 2, and in the innermost dimension for 8, which are two vectors of
    /// halves).
    fn clamp_above(&mut self, i: &Int, extent: &Int, innermost: bool) -> Int {
        if let Some(n) = extent.as_const() {
            for g in [8, 4, 3, 2] {
                if n % g != 0 || g == 8 && !innermost {
                    continue;
                }
                let (q, r) = (self.facts.simplify(&i.div(g)), self.facts.simplify(&i.rem(g)));
                let apart = r.vars().iter().all(|v| !q.uses(*v));
                if apart && !r.vars().is_empty() && !matches!(r.node(), IntNode::Mod(..)) {
                    return q.min(n / g - 1) * g + r;
                }
            }
        }
        i.min(extent.clone() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;
    use crate::schedule::testing::parsed;

    /// A load of `x[index]`, of 16 elements, in bounds for `q` below 5 and `r` below 4.
    fn clamped(index: &str) -> Int {
        let f = parsed(&format!(
            "tensor @f(%x: f32[16], out %y: f32[5,4]) {{
  for q in 0..5 {{ for r in 0..4 {{ block y {{ %y[q, r] <- %x[{index}] }} }} }}
}}"
        ));
        let Expr::Load(_, ix) = clamp_loads(&f, &f.body.blocks()[0].value, &f.bounds()) else { panic!("a load") };
        ix[0].clone()
    }

    #[test]
    fn clamps_keep_groups_together() {
        let (q, r) = (Int::var(Name::new("q")), Int::var(Name::new("r")));
        assert_eq!(clamped("q*4 + r"), q.clone().min(3) * 4 + r.clone());
        assert_eq!(clamped("q*5 + r"), (q.clone() * 5 + r.clone()).min(15));
        assert_eq!(clamped("q*2 + r"), q.clone() * 2 + r.clone());
        assert_eq!(clamped("q*4 - r"), ((q * 4 - r).min(15)).max(0));
    }
}
