//! The family of a function: functions that differ in their sizes alone, so that the choices for one of them may suit
//! another one.

use crate::arena::Arena;
use crate::fingerprint::Fingerprint;
use crate::int::Int;
use crate::tir::{Block, Cond, Expr, For, Stmt, TensorFunction};

/// A function's family and its sizes.
#[derive(Clone, PartialEq, Debug)]
pub struct Family {
    /// Equal for functions that differ in extents of loops, shapes, and numbers that indices are compared with. Names
    /// count, since choices name blocks.
    pub fingerprint: Fingerprint,
    /// The extents of the loops, in order; an open one is that of its typical size.
    pub extents: Vec<i64>,
}

impl TensorFunction {
    /// The family of the unscheduled function.
    pub fn family(&self) -> Family {
        let sized = match self.symbols.is_empty() {
            true => self.clone(),
            false => self.with_sizes(&self.typical_sizes(false).into_iter().collect()),
        };
        let mut out = TensorFunction { pending: vec![], ..sized.clone() };
        out.buffers = Arena::new();
        for (_, b) in sized.buffers.iter() {
            let mut b = b.clone();
            b.shape.iter_mut().for_each(|d| *d = Int::new(1));
            out.buffers.push(b);
        }
        let mut extents = Vec::new();
        out.body = stmt(&sized.body, &mut extents);
        Family { fingerprint: out.fingerprint(), extents }
    }
}

impl TensorFunction {
    /// The size of the one symbol at which the function has loops of these extents; `None` if there is none, or if more
    /// than one symbol is open.
    pub fn size_of(&self, extents: &[i64]) -> Option<i64> {
        let [(symbol, low, high)] = self.symbols[..] else { return None };
        let mut own = Vec::new();
        self.body.visit(&mut |s| {
            if let Stmt::For(l) = s {
                own.push(l.extent.clone());
            }
        });
        let at = own.iter().position(|e| e.as_var() == Some(symbol))?;
        let size = *extents.get(at)?;
        let sized = own.iter().map(|e| e.eval(&|v| (v == symbol).then_some(size)));
        ((low..=high).contains(&size) && sized.eq(extents.iter().map(|e| Some(*e)))).then_some(size)
    }
}

/// How far sizes are apart: the root of the summed squares of the logarithms of their ratios, base 2. `None` for
/// lists that cannot be compared.
pub fn log2_distance(a: &[i64], b: &[i64]) -> Option<f64> {
    let comparable = a.len() == b.len() && a.iter().chain(b).all(|&e| e > 0);
    let square = |(a, b): (&i64, &i64)| (*a as f64 / *b as f64).log2().powi(2);
    comparable.then(|| a.iter().zip(b).map(square).sum::<f64>().sqrt())
}

fn stmt(s: &Stmt, extents: &mut Vec<i64>) -> Stmt {
    match s {
        Stmt::Seq(list) => Stmt::seq(list.iter().map(|s| stmt(s, extents)).collect()),
        Stmt::For(l) => {
            extents.push(l.extent.as_const().unwrap_or(0));
            let body = stmt(&l.body, extents);
            // Loops of one iteration are often left out of indices, so that they make another family.
            let extent = Int::new(if l.extent.is(1) { 1 } else { 2 });
            Stmt::For(Box::new(For { var: l.var, extent, kind: l.kind, body }))
        }
        Stmt::Block(b) => {
            let guards = b.guards.iter().map(without_bound).collect();
            let value = b.value.rewrite(&mut Int::clone, &mut |e| match e {
                Expr::All(list) => Some(Expr::All(list.iter().map(without_bound).collect())),
                _ => None,
            });
            Stmt::Block(Box::new(Block { guards, value, ..(**b).clone() }))
        }
        Stmt::Barrier => Stmt::Barrier,
        Stmt::Kernel(name, s) => Stmt::Kernel(*name, Box::new(stmt(s, extents))),
    }
}

fn without_bound(c: &Cond) -> Cond {
    let rhs = if c.rhs.as_const().is_some() { Int::new(0) } else { c.rhs.clone() };
    Cond { lhs: c.lhs.clone(), op: c.op, rhs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse_tensor_function;

    fn pool(rows: i64, columns: i64, stride: i64) -> Family {
        let high = rows * stride;
        let text = format!(
            "tensor @f(%x: f32[{high},{columns}], out %y: f32[{rows},{columns}]) {{
  for i in 0..{rows} {{ for j in 0..{columns} {{ for r in 0..3 {{
    block y reduce max init {{ %y[i, j] <- select(all(i*{stride} + r < {high}), %x[i*{stride} + r, j], 0.0) }}
  }} }} }}
}}"
        );
        parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}")).family()
    }

    #[test]
    fn sizes_alone_make_no_other_family() {
        let (a, b) = (pool(8, 6, 2), pool(32, 6, 2));
        assert_eq!(a.fingerprint, b.fingerprint);
        assert_eq!((&a.extents[..], &b.extents[..]), (&[8, 6, 3][..], &[32, 6, 3][..]));
        assert_eq!(log2_distance(&a.extents, &b.extents), Some(2.0));
        assert_ne!(a.fingerprint, pool(8, 6, 1).fingerprint);
        assert_eq!(log2_distance(&a.extents, &[8, 6]), None);
    }
}
