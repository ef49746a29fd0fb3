//! `peel-loop`: runs the last iteration of a loop behind it.
//!
//! Conditions that hold in all iterations but the last are constant in both parts, and blocks that never run in a part
//! are left out of it. Example: the last iteration of an inner loop also loads for the next iteration of the outer
//! loop ([`SoftwarePipeline`](super::SoftwarePipeline) with `around`). The address arithmetic for these loads is then
//! outside of the inner loop.
//!
//! Before -> after, `peel-loop {loop=i}`:
//!
//! ```text
//! for i in 0..8:                    for i in 0..7:
//!   for j in 0..4:                    for j in 0..4:
//!     b: y[i, j] = f(i, j)              b: y[i, j] = f(i, j)
//!                                   for i_last_j in 0..4:
//!                                     i_last_b: y[7, i_last_j] = f(7, i_last_j)
//! ```

use super::accesses::refutes;
use super::loops::{
    Substitution, check_new_block, check_new_loop, derived_name, find_loop, replace_loop, substitute_stmt,
};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::int::{Bounds, Int};
use crate::name::Name;
use crate::tir::{LoopKind, Stmt, TensorFunction};

attr_struct! {
    /// Runs the last iteration of a serial loop behind it.
    pub struct PeelLoop("peel-loop") {
        /// The loop, of a constant extent of at least 2.
        pub r#loop: Name = "".into(),
    }
}

impl PeelLoop {
    /// The loop's body for its last iteration, with names of its own.
    fn last(&self, f: &TensorFunction, body: &Stmt, at: i64) -> Result<Stmt, Refusal> {
        let prefix = derived_name(self.r#loop, "last".into());
        let mut last = body.clone();
        let mut by = Substitution::from_iter([(self.r#loop, Int::new(at))]);
        let mut taken = Ok(());
        last.visit_mut(&mut |s| match s {
            Stmt::For(l) => {
                let var = derived_name(prefix, l.var);
                taken = taken.clone().and_then(|()| check_new_loop(f, var));
                by.insert(l.var, Int::var(var));
                l.var = var;
            }
            Stmt::Block(b) => {
                b.name = derived_name(prefix, b.name);
                taken = taken.clone().and_then(|()| check_new_block(f, b.name));
            }
            _ => {}
        });
        substitute_stmt(&mut last, &by);
        taken.map(|()| last)
    }
}

/// The statement without blocks that have a condition which never holds in these ranges.
fn without_empty_blocks(s: Stmt, bounds: &Bounds) -> Stmt {
    match s {
        Stmt::Seq(list) => {
            let runs = |s: &Stmt| !s.blocks().is_empty() || matches!(s, Stmt::Barrier);
            Stmt::seq(list.into_iter().map(|s| without_empty_blocks(s, bounds)).filter(runs).collect())
        }
        Stmt::For(mut l) => {
            l.body = without_empty_blocks(l.body, bounds);
            Stmt::For(l)
        }
        Stmt::Block(b) if b.guards.iter().any(|c| refutes(c, bounds)) => Stmt::Seq(vec![]),
        other => other,
    }
}

impl Instruction for PeelLoop {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let l = find_loop(f, self.r#loop)?;
        if l.kind != LoopKind::Serial {
            return Err(Refusal::at(self.r#loop, "only a serial loop can be peeled"));
        }
        let Some(extent) = l.extent.as_const().filter(|n| *n > 1) else {
            return Err(Refusal::at(self.r#loop, "needs a constant extent of at least 2"));
        };
        let reductions = l.body.blocks().into_iter().filter(|b| b.reduce.is_some_and(|r| r.init));
        if let Some(b) = reductions.map(|b| b.name).find(|b| f.reduction_loops(*b).contains(&self.r#loop)) {
            return Err(Refusal::at(b, "sets its identity where the loop is at 0: decompose the reduction first"));
        }
        let last = self.last(f, &l.body, extent - 1)?;
        let mut bounds = f.bounds();
        bounds.insert(self.r#loop, 0, extent - 2);
        replace_loop(f, self.r#loop, |mut l| {
            l.extent = Int::new(extent - 1);
            let both = Stmt::seq(vec![Stmt::For(Box::new(l)), last]);
            Ok(without_empty_blocks(both, &bounds))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn the_last_iteration_runs_behind_the_loop() {
        let f = elementwise_chain(&[5, 6]);
        for var in ["y_i0", "y_i1"] {
            let g = scheduled(&f, &[&format!("peel-loop {{loop={var}}}")]);
            assert_eq!(g.body.blocks().len(), f.body.blocks().len() + 1);
            assert_same(&f, &g);
            let other = scheduled(&g, &[if var == "y_i0" { "peel-loop {loop=y_i1}" } else { "peel-loop {loop=y_i0}" }]);
            assert_same(&f, &other);
        }
        assert!(refusal(&elementwise_chain(&[1, 6]), "peel-loop {loop=y_i0}").contains("at least 2"));
        let bound = scheduled(&f, &["bind {loop=y_i0, axis=local_x}"]);
        assert!(refusal(&bound, "peel-loop {loop=y_i0}").contains("only a serial loop"));
    }

    /// The remainder of a split: the blocks of the last part are gone where their condition never holds.
    #[test]
    fn blocks_that_never_run_are_left_out() {
        let f = elementwise_chain(&[9]);
        let g = scheduled(&f, &["split {loop=y_i0, factors=[4, 3], into=[o, i]}", "peel-loop {loop=o}"]);
        assert!(g.body.blocks().iter().all(|b| b.name != "o_last_y".into()), "9 elements are in 3 parts of 3");
        assert_same(&f, &g);
    }

    #[test]
    fn reductions_start_at_their_first_iteration() {
        let f = matmul(5, 7, 6);
        assert!(refusal(&f, "peel-loop {loop=mm_r0}").contains("decompose the reduction first"));
        let steps = ["decompose-reduction {block=mm, at=mm_r0}", "peel-loop {loop=mm_r0}"];
        assert_same(&f, &scheduled(&f, &steps));
    }
}
