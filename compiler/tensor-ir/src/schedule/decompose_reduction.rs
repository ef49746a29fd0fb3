//! `decompose-reduction`: moves the initialisation of a reduction into a block of its own, before loop `at`.
//!
//! Before -> after, `decompose-reduction {block=b, at=k}`:
//!
//! ```text
//! for k in 0..8:                    for b_init_i in 0..4:
//!   for i in 0..4:                    b_init: c[b_init_i] = 0
//!     b: c[i] += a[i, k]            for k in 0..8:
//!                                     for i in 0..4:
//!                                       b: c[i] += a[i, k]   (no longer sets the identity)
//! ```

use super::loops::{
    LoopHead, Substitution, check_new_block, check_new_loop, derived_name, find_block, find_block_mut,
    loops_around_block, nest, position_around, replace_loop, substitute,
};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::int::Int;
use crate::name::Name;
use crate::tir::{Block, Stmt, TensorFunction};

attr_struct! {
    /// Puts the initialisation of a reduction before a loop, over the spatial loops inside it.
    pub struct DecomposeReduction("decompose-reduction") {
        /// The reduce block.
        pub block: Name = "".into(),
        /// The loop before which the elements are set; all reduction loops must be inside it or be it.
        pub at: Name = "".into(),
    }
}

impl Instruction for DecomposeReduction {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let path = loops_around_block(f, self.block)?;
        let at = position_around(&path, self.at, self.block)?;
        let block = find_block(f, self.block)?.clone();
        let Some(reduce) = block.reduce.filter(|r| r.init) else {
            return Err(Refusal::at(self.block, "is not a reduction that sets its identity itself"));
        };
        let reduction = f.reduction_loops(self.block);
        if let Some(l) = path[..at].iter().find(|l| reduction.contains(&l.var) && !l.extent.is(1)) {
            let text = format!("`{}` is a reduction loop outside of `{}`", l.var, self.at);
            return Err(Refusal::at(l.var, text));
        }
        // Outside of the buffer's life, one initialisation would serve several lives.
        let used = |v: Name| block.indices.iter().any(|i| i.uses(v)) || reduction.contains(&v);
        if let Some(l) = path[at..].iter().find(|l| !used(l.var) && !l.extent.is(1)) {
            let text = format!("`{}` starts anew in each iteration of `{}`", f.buffers[block.buffer].name, l.var);
            return Err(Refusal::at(l.var, text));
        }
        let name = derived_name(self.block, "init".into());
        check_new_block(f, name)?;
        let mut heads = Vec::new();
        let mut by = Substitution::default();
        for l in path[at..].iter().filter(|l| block.indices.iter().any(|i| i.uses(l.var))) {
            let var = derived_name(name, l.var);
            check_new_loop(f, var)?;
            by.insert(l.var, Int::var(var));
            heads.push(LoopHead { var, extent: l.extent.clone(), kind: l.kind });
        }
        let available =
            |i: &Int| i.vars().iter().all(|v| by.contains_key(v) || !path[at..].iter().any(|l| l.var == *v));
        let guards: Vec<_> = block
            .guards
            .iter()
            .filter(|g| available(&g.lhs) && available(&g.rhs))
            .map(|g| g.map(&mut |i| substitute(i, &by)))
            .collect();
        let init = Block {
            name,
            guards,
            buffer: block.buffer,
            indices: block.indices.iter().map(|i| substitute(i, &by)).collect(),
            value: reduce.combiner.identity(f.buffers[block.buffer].dtype),
            reduce: None,
            stages: block.stages.clone(),
        };
        if let Some(r) = &mut find_block_mut(f, self.block)?.reduce {
            r.init = false;
        }
        replace_loop(f, self.at, |l| {
            Ok(Stmt::seq(vec![nest(&heads, Stmt::Block(Box::new(init))), Stmt::For(Box::new(l))]))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn the_identity_is_set_before_the_loop() {
        let f = matmul(5, 6, 7);
        for (order, at) in
            [("mm_i0, mm_r0, mm_i1", "mm_r0"), ("mm_r0, mm_i0, mm_i1", "mm_r0"), ("mm_i0, mm_i1, mm_r0", "mm_i1")]
        {
            let steps = [format!("reorder {{loops=[{order}]}}"), format!("decompose-reduction {{block=mm, at={at}}}")];
            let g = scheduled(&f, &[&steps[0], &steps[1]]);
            assert_same(&f, &g);
        }
    }

    #[test]
    fn only_the_guards_of_spatial_loops_hold_for_the_initialisation() {
        let f = matmul(5, 6, 7);
        let g = scheduled(
            &f,
            &[
                "split {loop=mm_r0, factors=[0, 4], into=[ko, ki]}",
                "split {loop=mm_i1, factors=[0, 4], into=[jo, ji]}",
                "reorder {loops=[ko, ji, ki]}",
                "decompose-reduction {block=mm, at=ko}",
            ],
        );
        let init = g.body.blocks().into_iter().find(|b| b.name == "mm_init".into()).expect("block").clone();
        assert_eq!(init.guards.len(), 1);
        assert_same(&f, &g);
    }

    #[test]
    fn an_accumulator_that_starts_anew_is_not_set_outside() {
        let g = scheduled(&matmul(3, 4, 5), &["compute-at {block=mm, at=y_i1, scope=register}"]);
        assert!(refusal(&g, "decompose-reduction {block=mm, at=y_i1}").contains("starts anew"));
    }

    #[test]
    fn an_outer_reduction_loop_is_refused() {
        let f = conv(1, 3, 5, 5, 4, 3, 1, 1);
        assert!(refusal(&f, "decompose-reduction {block=conv, at=conv_r1}").contains("outside"));
        assert!(refusal(&f, "decompose-reduction {block=y, at=y_i0}").contains("not a reduction"));
    }
}
