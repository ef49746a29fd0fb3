//! `partition-loop`: cuts a nest along one of its loops into several nests.
//!
//! Conditions that differ between the parts become constant in each of them. So a concatenation along the loop becomes
//! one block per operand, which stores directly into its part of the result; an operand that is a reduction then has a
//! consumer of its own.
//!
//! Before -> after, `partition-loop {block=y, loop=i, at=[3]}`:
//!
//! ```text
//! for i in 0..8:                                    for y_0_i in 0..3:
//!   y: y[i] = select(i < 3, a[i], b[i - 3])           y_0: y[y_0_i] = a[y_0_i]
//!                                                   for y_1_i in 0..5:
//!                                                     y_1: y[y_1_i + 3] = b[y_1_i]
//! ```

use super::loops::{
    LoopHead, Substitution, any_block, check_new_block, check_new_loop, derived_name, nest, substitute, take_stage,
};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::int::Int;
use crate::name::Name;
use crate::tir::{Block, Stmt, TensorFunction};

attr_struct! {
    /// Cuts the iterations of an unscheduled nest into several nests.
    pub struct PartitionLoop("partition-loop") {
        /// The block; the new ones are named `<block>_0`, `<block>_1` ..., their loops after them and the old ones.
        pub block: Name = "".into(),
        /// The loop, of constant extent, whose variable the block's store uses.
        pub r#loop: Name = "".into(),
        /// First iterations of the second part and of those after it, ascending.
        pub at: Vec<i64> = vec![],
    }
}

impl PartitionLoop {
    /// First iteration and number of iterations of each part.
    fn parts(&self, extent: i64) -> Result<Vec<(i64, i64)>, Refusal> {
        let starts: Vec<i64> = std::iter::once(0).chain(self.at.iter().copied()).collect();
        let ends = self.at.iter().copied().chain([extent]);
        let parts: Vec<(i64, i64)> = starts.into_iter().zip(ends).map(|(from, to)| (from, to - from)).collect();
        if self.at.is_empty() || parts.iter().any(|p| p.1 <= 0) {
            let text = format!("the places {:?} do not ascend inside of {extent} iterations", self.at);
            return Err(Refusal::at(self.r#loop, text));
        }
        Ok(parts)
    }

    fn part(&self, f: &TensorFunction, n: usize, from: i64, extent: i64, stage: &Stage) -> Result<Stmt, Refusal> {
        let name = derived_name(self.block, n.to_string().as_str().into());
        check_new_block(f, name)?;
        let mut heads = Vec::with_capacity(stage.0.len());
        let mut by = Substitution::default();
        for l in &stage.0 {
            let var = derived_name(name, l.var);
            check_new_loop(f, var)?;
            let cut = l.var == self.r#loop;
            by.insert(l.var, if cut { Int::var(var) + from } else { Int::var(var) });
            heads.push(LoopHead::serial(var, if cut { Int::new(extent) } else { l.extent.clone() }));
        }
        let mut block = Block { name, ..stage.1.clone() };
        block.map_ints(&mut |i| substitute(i, &by));
        Ok(nest(&heads, Stmt::Block(Box::new(block))))
    }
}

/// The loops and the block of a nest.
type Stage = (Vec<LoopHead>, Block);

impl Instruction for PartitionLoop {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let position = match &f.body {
            Stmt::Seq(list) => list.iter().position(|s| any_block(s, |b| b.name == self.block)).unwrap_or(0),
            _ => 0,
        };
        let stage = take_stage(f, self.block)?;
        let head = stage.0.iter().find(|l| l.var == self.r#loop);
        let head = head.ok_or_else(|| {
            Refusal::at(self.block, format!("loop `{}` is not around block `{}`", self.r#loop, self.block))
        })?;
        if !stage.1.indices.iter().any(|i| i.uses(self.r#loop)) {
            return Err(Refusal::at(
                self.r#loop,
                "the block's store does not use the loop: the parts would be one sum",
            ));
        }
        let extent = head
            .extent
            .as_const()
            .ok_or_else(|| Refusal::at(self.r#loop, format!("the extent {} is not a constant", head.extent)))?;
        let parts = self.parts(extent)?;
        let nests: Vec<Stmt> = parts
            .iter()
            .enumerate()
            .map(|(n, (from, extent))| self.part(f, n, *from, *extent, &stage))
            .collect::<Result<_, _>>()?;
        let mut list = match std::mem::replace(&mut f.body, Stmt::Seq(vec![])) {
            Stmt::Seq(list) => list,
            one => vec![one],
        };
        list.splice(position..position, nests);
        f.body = Stmt::seq(list);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::dtype::DType;
    use crate::int::Int;
    use crate::schedule::testing::*;
    use crate::tir::{Cond, Expr, TensorFunction};

    /// `y = concat(a, b)` along the second of two dimensions, with an epilogue: block y.
    fn concat(a: i64, b: i64) -> TensorFunction {
        function(&[("a", &[3, a]), ("b", &[3, b])], |c, ids| {
            let (x, z) = (ids[0], ids[1]);
            let shape = [Int::new(3), Int::new(a + b)];
            stage(c, "y", |c| {
                c.compute("", &shape, DType::F32, |i| {
                    let left = Expr::load(x, i.to_vec());
                    let right = Expr::load(z, vec![i[0].clone(), i[1].clone() - a]);
                    Expr::guarded(vec![Cond::lt(i[1].clone(), a)], left, right) * Expr::constant(2.0, DType::F32)
                })
            })
        })
    }

    #[test]
    fn decides_the_conditions_of_a_concatenation() {
        let f = concat(4, 5);
        let g = scheduled(&f, &["partition-loop {block=y, loop=y_i1, at=[4]}"]);
        let blocks = g.body.blocks();
        assert_eq!(blocks.iter().map(|b| b.name.to_string()).collect::<Vec<_>>(), ["y_0", "y_1"]);
        assert!(blocks.iter().all(|b| b.value.loads().len() == 1), "{blocks:?}");
        assert_same(&f, &g);
    }

    #[test]
    fn cuts_anywhere_and_more_than_once() {
        for f in [concat(4, 5), elementwise_chain(&[3, 9])] {
            let g = scheduled(&f, &["partition-loop {block=y, loop=y_i1, at=[1, 2, 7]}"]);
            assert_same(&f, &g);
        }
        let f = matmul(5, 7, 6);
        let g = scheduled(
            &f,
            &["partition-loop {block=y, loop=y_i0, at=[2]}", "split {loop=y_1_y_i1, factors=[0, 4], into=[q, v]}"],
        );
        assert_same(&f, &g);
    }

    #[test]
    fn refuses_places_outside_and_reduction_loops() {
        let f = elementwise_chain(&[5, 3]);
        for at in ["[]", "[0]", "[3]", "[2, 1]"] {
            let e = refusal(&f, &format!("partition-loop {{block=y, loop=y_i1, at={at}}}"));
            assert!(e.contains("do not ascend"), "{e}");
        }
        assert!(refusal(&f, "partition-loop {block=y, loop=t0_i0, at=[1]}").contains("is not around"));
        assert!(refusal(&row_sum(4, 6), "partition-loop {block=y, loop=y_r0, at=[2]}").contains("one sum"));
    }
}
