//! `add-unit-loop`: puts a loop of one iteration around a block.
//!
//! A block that stores a scalar has no loops. With one, it can be bound to a thread, and others can be computed at it.
//!
//! Before -> after, `add-unit-loop {block=b, into=i}`:
//!
//! ```text
//! b: y[] = f(s[])           for i in 0..1:
//!                             b: y[] = f(s[])
//! ```

use super::loops::{LoopHead, check_new_loop, loops_around_block, nest};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::int::Int;
use crate::name::Name;
use crate::tir::{LoopKind, Stmt, TensorFunction};

attr_struct! {
    /// Puts a loop of one iteration around a block, inside its other loops.
    pub struct AddUnitLoop("add-unit-loop") {
        /// The block.
        pub block: Name = "".into(),
        /// The new loop.
        pub into: Name = "".into(),
    }
}

impl Instruction for AddUnitLoop {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        if loops_around_block(f, self.block)?.iter().any(|l| l.kind == LoopKind::Tensor) {
            return Err(Refusal::at(self.block, "is computed as one operation, in which no loop has a place"));
        }
        check_new_loop(f, self.into)?;
        let head = LoopHead::serial(self.into, Int::new(1));
        let mut done = false;
        f.body.visit_mut(&mut |s| {
            if !done && matches!(s, Stmt::Block(b) if b.name == self.block) {
                done = true;
                let block = std::mem::replace(s, Stmt::Seq(vec![]));
                *s = nest(std::slice::from_ref(&head), block);
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn a_scalar_can_be_bound() {
        let f = matmul(1, 1, 6);
        let steps = [
            "add-unit-loop {block=mm, into=one}",
            "reorder {loops=[one,mm_i0,mm_i1,mm_r0]}",
            "bind {loop=one, axis=group_x}",
        ];
        let g = scheduled(&f, &steps);
        assert_same(&f, &g);
        assert!(refusal(&g, "add-unit-loop {block=mm, into=one}").contains("one"));
        assert!(refusal(&f, "add-unit-loop {block=none, into=one}").contains("none"));
    }

    #[test]
    fn an_operation_has_no_loops_inside() {
        let steps = [
            "split {loop=y_i0, factors=[0,4], into=[yo,yi]}",
            "bind {loop=yo, axis=group_x}",
            "compute-at {block=mm, at=yo}",
            "split {loop=mm_r0, factors=[0,3], into=[ko,ki]}",
            "reorder {loops=[ko,mm_yi,mm_y_i1,ki]}",
            "decompose-reduction {block=mm, at=ko}",
            "tensorize {loop=mm_yi, intrinsic=tile_4x16x3_f32}",
        ];
        let g = scheduled(&matmul(8, 16, 6), &steps);
        assert!(refusal(&g, "add-unit-loop {block=mm, into=one}").contains("one operation"));
    }
}
