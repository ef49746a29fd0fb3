//! `pad-reduction`: turns the guards on reduction loops into zeros (or the combiner's identity).
//!
//! The block then runs in every iteration, and staged operands are zero beyond the end of the reduction. Both operands
//! of a product are set to zero, since 0 times an infinity beyond the end would be NaN.
//!
//! Before -> after, `pad-reduction {block=b}`:
//!
//! ```text
//! for k in 0..12:                   for k in 0..12:
//!   b: c[i] += a[i, k]*w[k]           b: c[i] += (k < 10 ? a[i, k] : 0)*(k < 10 ? w[k] : 0)
//!      if k < 10
//! ```

use super::loops::{find_block, find_block_mut};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::name::Name;
use crate::tir::{BinaryOp, Combiner, Cond, Expr, TensorFunction};

attr_struct! {
    /// Moves the guards of a block that depend on its reduction loops into its value.
    pub struct PadReduction("pad-reduction") {
        /// The reduce block.
        pub block: Name = "".into(),
    }
}

fn padded(f: &TensorFunction, e: &Expr, conds: &[Cond], combiner: Combiner) -> Expr {
    match e {
        Expr::Cast(t, a) if combiner == Combiner::Sum => Expr::Cast(*t, Box::new(padded(f, a, conds, combiner))),
        Expr::Binary(BinaryOp::Mul, a, b) if combiner == Combiner::Sum => {
            padded(f, a, conds, combiner) * padded(f, b, conds, combiner)
        }
        e => Expr::guarded(conds.to_vec(), e.clone(), combiner.identity(e.dtype(f))),
    }
}

impl Instruction for PadReduction {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let reduction = f.reduction_loops(self.block);
        let block = find_block(f, self.block)?.clone();
        let Some(reduce) = block.reduce else { return Err(Refusal::at(self.block, "is not a reduction")) };
        let on_reduction = |c: &Cond| reduction.iter().any(|v| c.lhs.uses(*v) || c.rhs.uses(*v));
        let (conds, guards): (Vec<Cond>, Vec<Cond>) = block.guards.iter().cloned().partition(on_reduction);
        let value = padded(f, &block.value, &conds, reduce.combiner);
        let b = find_block_mut(f, self.block)?;
        b.guards = guards;
        b.value = value;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn guards_on_the_reduction_become_zeros() {
        let f = matmul(5, 6, 7);
        let g = scheduled(
            &f,
            &[
                "split {loop=mm_r0, factors=[0, 4], into=[ko, ki]}",
                "split {loop=mm_i0, factors=[0, 4], into=[io, ii]}",
                "pad-reduction {block=mm}",
                "stage-in-registers {block=mm, operand=\"0\", at=ko, into=as}",
            ],
        );
        assert_eq!(g.body.blocks()[1].guards.len(), 1);
        assert_same(&f, &g);
    }

    #[test]
    fn a_maximum_is_padded_with_its_identity() {
        let f = softmax(3, 7);
        let g = scheduled(&f, &["split {loop=max_r0, factors=[0, 4], into=[ko, ki]}", "pad-reduction {block=max}"]);
        assert_same(&f, &g);
    }
}
