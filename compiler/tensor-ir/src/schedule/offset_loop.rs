//! `offset-loop`: makes a loop longer and moves its iterations to the end.
//!
//! If the loop is bound to threads, its iterations run on later threads, and the first threads are free for other work.
//! Example: if a thread would copy less than 16 bytes of each operand of a product, the first threads copy one operand
//! and the later threads the other, through the same registers ([`MergeBuffers`](super::MergeBuffers)).
//!
//! Before -> after, `offset-loop {loop=i, by=4}`:
//!
//! ```text
//! for i in 0..8:                    for i in 0..12:
//!   b: y[i] = f(i)                    b: y[i - 4] = f(i - 4)   if i >= 4
//! ```

use super::loops::{Substitution, find_loop, replace_loop, substitute_stmt};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::int::Int;
use crate::name::Name;
use crate::tir::{Cond, LoopKind, Stmt, TensorFunction};

attr_struct! {
    /// Puts empty iterations before the iterations of a serial loop.
    pub struct OffsetLoop("offset-loop") {
        /// The loop.
        pub r#loop: Name = "".into(),
        /// Their number.
        pub by: i64 = 0,
    }
}

/// Iterations that do nothing, at most: the threads of a workgroup.
const MOST: i64 = 4096;

impl Instruction for OffsetLoop {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let l = find_loop(f, self.r#loop)?;
        if l.kind != LoopKind::Serial {
            return Err(Refusal::at(self.r#loop, "only a serial loop can be offset"));
        }
        if !(1..=MOST).contains(&self.by) {
            return Err(Refusal::at(self.r#loop, format!("offset by {}, not by 1 to {MOST} iterations", self.by)));
        }
        let reductions = l.body.blocks().into_iter().filter(|b| b.reduce.is_some_and(|r| r.init));
        if let Some(b) = reductions.map(|b| b.name).find(|b| f.reduction_loops(*b).contains(&self.r#loop)) {
            return Err(Refusal::at(b, "sets its identity where the loop is at 0: decompose the reduction first"));
        }
        replace_loop(f, self.r#loop, |mut l| {
            let var = Int::var(l.var);
            substitute_stmt(&mut l.body, &Substitution::from_iter([(l.var, var.clone() - self.by)]));
            l.body.visit_mut(&mut |s| {
                if let Stmt::Block(b) = s {
                    b.guards.push(Cond::ge(var.clone(), self.by));
                }
            });
            l.extent = l.extent + self.by;
            Ok(Stmt::For(Box::new(l)))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn the_last_threads_of_a_workgroup_run_the_loop() {
        let f = elementwise_chain(&[10, 6]);
        let g = scheduled(&f, &["offset-loop {loop=y_i0, by=3}", "bind {loop=y_i0, axis=local_x}"]);
        assert_eq!(g.body.blocks()[2].guards.len(), 1);
        assert_same(&f, &g);
        assert!(refusal(&g, "offset-loop {loop=y_i0, by=3}").contains("only a serial loop"));
        assert!(refusal(&f, "offset-loop {loop=y_i0}").contains("not by 1 to 4096"));
    }

    #[test]
    fn reductions_start_at_their_first_iteration() {
        let f = matmul(5, 7, 6);
        assert!(refusal(&f, "offset-loop {loop=mm_r0, by=2}").contains("decompose the reduction first"));
        let steps = ["decompose-reduction {block=mm, at=mm_r0}", "offset-loop {loop=mm_r0, by=2}"];
        assert_same(&f, &scheduled(&f, &steps));
    }
}
