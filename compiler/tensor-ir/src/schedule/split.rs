//! `split`: one loop becomes several nested ones.
//!
//! Before -> after, `split {loop=i, factors=[0, 4], into=[io, ii]}` with 10 iterations:
//!
//! ```text
//! for i in 0..10:                   for io in 0..3:
//!   b: y[i] = f(i)                    for ii in 0..4:
//!                                       b: y[io*4 + ii] = f(io*4 + ii)   if io*4 + ii < 10
//! ```

use super::loops::{LoopHead, Substitution, check_new_loop, find_loop, nest, replace_loop, substitute_stmt};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::int::{self, Int};
use crate::name::Name;
use crate::tir::{Cond, For, LoopKind, Stmt, TensorFunction};

attr_struct! {
    /// Splits a serial loop into nested serial loops.
    pub struct Split("split") {
        /// The loop.
        pub r#loop: Name = "".into(),
        /// Extents of the new loops, outermost first; one may be 0, then it is as large as needed.
        pub factors: Vec<i64> = vec![],
        /// Variables of the new loops.
        pub into: Vec<Name> = vec![],
    }
}

/// Iterations that a split may add without asking, which a workgroup of threads for one element does.
const MAX_EXCESS: i64 = 4096;
/// How many it may add for each that there is: a kernel of mostly such iterations would seem to hang.
const MAX_PADDING: i64 = 16;

impl Split {
    /// The extents of the new loops and whether they cover the old one exactly.
    fn extents(&self, l: &For, f: &TensorFunction) -> Result<(Vec<Int>, bool), Refusal> {
        let inferred = self.factors.iter().filter(|&&f| f == 0).count();
        if self.factors.len() < 2 || self.factors.len() != self.into.len() || inferred > 1 {
            let text = "needs at least two factors, as many names, and at most one factor 0";
            return Err(Refusal::at(self.r#loop, text));
        }
        if self.factors.iter().any(|&f| f < 0) {
            return Err(Refusal::at(self.r#loop, "factors must not be negative"));
        }
        let known = self.factors.iter().filter(|&&f| f != 0).try_fold(1i64, |a, &f| a.checked_mul(f));
        let known = known.ok_or_else(|| Refusal::at(self.r#loop, "the factors are too large"))?;
        let bounds = f.bounds();
        let rest = int::simplify(&l.extent.ceil_div(known), &bounds);
        let extents: Vec<Int> = self.factors.iter().map(|&f| if f == 0 { rest.clone() } else { Int::new(f) }).collect();
        let excess = int::simplify(&(int::product(&extents) - &l.extent), &bounds);
        if excess.as_const().is_some_and(|e| e < 0) || (inferred == 0 && excess.as_const().is_none()) {
            let text = format!("the factors {:?} do not cover {} iterations", self.factors, l.extent);
            return Err(Refusal::at(self.r#loop, text));
        }
        if let (Some(excess), Some(n)) = (excess.as_const(), l.extent.as_const())
            && excess > MAX_EXCESS.max(n.saturating_mul(MAX_PADDING))
        {
            let text = format!("{excess} iterations would do nothing for {n} that do");
            return Err(Refusal::at(self.r#loop, text));
        }
        Ok((extents, excess.is(0)))
    }
}

impl Instruction for Split {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let l = find_loop(f, self.r#loop)?;
        if l.kind != LoopKind::Serial {
            return Err(Refusal::at(self.r#loop, "only a serial loop can be split"));
        }
        let (extents, exact) = self.extents(l, f)?;
        let old = l.extent.clone();
        for (n, name) in self.into.iter().enumerate() {
            if self.into[..n].contains(name) {
                return Err(Refusal::at(self.r#loop, format!("the name `{name}` is given twice")));
            }
            if *name != self.r#loop {
                check_new_loop(f, *name)?;
            }
        }
        let vars: Vec<Int> = self.into.iter().map(|v| Int::var(*v)).collect();
        let index = int::flatten_index(&vars, &extents);
        replace_loop(f, self.r#loop, |l| {
            let mut body = l.body;
            substitute_stmt(&mut body, &Substitution::from_iter([(l.var, index.clone())]));
            if !exact {
                body.visit_mut(&mut |s| {
                    if let Stmt::Block(b) = s {
                        b.guards.push(Cond::lt(index.clone(), old.clone()));
                    }
                });
            }
            let heads: Vec<LoopHead> = self.into.iter().zip(extents).map(|(v, e)| LoopHead::serial(*v, e)).collect();
            Ok(nest(&heads, body))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn splits_keep_results_with_and_without_remainder() {
        let f = elementwise_chain(&[10, 6]);
        let g = scheduled(
            &f,
            &[
                "split {loop=t0_i0, factors=[0, 5], into=[a, b]}",
                "split {loop=y_i0, factors=[2, 0, 4], into=[c, d, e]}",
            ],
        );
        let y = g.body.blocks()[2].clone();
        assert_eq!(g.body.blocks()[0].guards.len(), 0);
        assert_eq!(y.guards.len(), 1);
        assert_same(&f, &g);
    }

    #[test]
    fn a_loop_of_mostly_nothing_is_refused() {
        let f = elementwise_chain(&[10, 6]);
        let refused = refusal(&f, "split {loop=t0_i0, factors=[0, 2147483647], into=[a, b]}");
        assert!(refused.contains("2147483637 iterations would do nothing for 10 that do"), "{refused}");
    }

    #[test]
    fn a_reduction_loop_with_a_remainder_is_guarded() {
        let f = matmul(5, 7, 6);
        let g = scheduled(&f, &["split {loop=mm_r0, factors=[0, 4], into=[ko, ki]}"]);
        assert_same(&f, &g);
    }

    #[test]
    fn factors_that_do_not_cover_the_loop_are_refused() {
        let f = elementwise_chain(&[10, 6]);
        let e = refusal(&f, "split {loop=t0_i0, factors=[3, 3], into=[a, b]}");
        assert!(e.contains("do not cover") && e.contains(">  for t0_i0"), "{e}");
        assert!(refusal(&f, "split {loop=t0_i0, factors=[0, 0], into=[a, b]}").contains("at most one factor 0"));
        assert!(refusal(&f, "split {loop=t0_i0, factors=[0, 2], into=[t1_i0, b]}").contains("taken"));
    }
}
