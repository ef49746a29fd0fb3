//! `merge-nests`: runs a compute block in the loops of an earlier one over the same elements.
//!
//! The later block reads the elements that the earlier one stored in the same iteration, so one kernel writes several
//! results.
//!
//! Before -> after, `merge-nests {block=y, into=s}`:
//!
//! ```text
//! for i in 0..8:                    for i in 0..8:
//!   s: s[i] = a[i] + b[i]             s: s[i] = a[i] + b[i]
//! for j in 0..8:                      y: y[i] = max(s[i], 0)
//!   y: y[j] = max(s[j], 0)
//! ```

use super::accesses::buffers_read;
use super::loops::{LoopHead, Substitution, any_block, nest, only_writer, plain_store, substitute, take_stage};
use super::staging::bounds_with;
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::int::{self, Int};
use crate::name::Name;
use crate::tir::{Block, BufferId, Stmt, TensorFunction};

attr_struct! {
    /// Moves a block, still in its own unscheduled nest, behind another one in the same position.
    pub struct MergeNests("merge-nests") {
        /// The later block.
        pub block: Name = "".into(),
        /// The earlier block, whose loops stay.
        pub into: Name = "".into(),
    }
}

impl MergeNests {
    /// Checks that everything the moved block reads is written before its new place, and that it reads from the other
    /// block's buffer only the element of its own iteration.
    fn check_reads(
        &self,
        f: &TensorFunction,
        block: &Block,
        (heads, into): (&[LoopHead], &Block),
        place: usize,
    ) -> Result<(), Refusal> {
        let bounds = bounds_with(f, heads);
        // If a loop has one iteration, its variable and 0 are the same index.
        let same =
            |ix: &[Int]| ix.iter().zip(&into.indices).all(|(a, b)| int::simplify(&(a.clone() - b), &bounds).is(0));
        for (b, ix) in block.value.loads() {
            if b == into.buffer && !same(ix) {
                let text = format!("reads other elements of what `{}` writes", self.into);
                return Err(Refusal::at(self.block, text));
            }
        }
        let reads: Vec<BufferId> = buffers_read(&block.value).into_iter().filter(|b| *b != into.buffer).collect();
        // The remaining statements may be one nest.
        let rest: &[Stmt] = match &f.body {
            Stmt::Seq(list) => list,
            one => std::slice::from_ref(one),
        };
        match rest[place.min(rest.len())..].iter().any(|s| any_block(s, |b| reads.contains(&b.buffer))) {
            true => Err(Refusal::at(self.block, format!("reads what is written after `{}`", self.into))),
            false => Ok(()),
        }
    }
}

impl Instruction for MergeNests {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let (loops, mut block) = take_stage(f, self.block)?;
        let place = match &f.body {
            Stmt::Seq(list) => list.iter().position(|s| any_block(s, |b| b.name == self.into)).unwrap_or(0),
            _ => 0,
        };
        let (heads, into) = take_stage(f, self.into)?;
        if block.reduce.is_some() || into.reduce.is_some() || !block.guards.is_empty() {
            return Err(Refusal::at(self.block, "only compute blocks without guards share their loops"));
        }
        only_writer(f, &block)?;
        only_writer(f, &into)?;
        plain_store(f, &block)?;
        plain_store(f, &into)?;
        // Loops of one iteration come and go; the others are the same.
        let wide = |list: &[LoopHead]| -> Vec<LoopHead> { list.iter().filter(|l| !l.extent.is(1)).cloned().collect() };
        let (own, theirs) = (wide(&loops), wide(&heads));
        let same = own.len() == theirs.len() && own.iter().zip(&theirs).all(|(a, b)| a.extent == b.extent);
        if !same || into.value.loads().iter().any(|l| l.0 == block.buffer) {
            return Err(Refusal::at(self.block, format!("does not go over the elements of `{}`", self.into)));
        }
        let mut by: Substitution = own.iter().zip(&theirs).map(|(a, b)| (a.var, Int::var(b.var))).collect();
        by.extend(loops.iter().filter(|l| l.extent.is(1)).map(|l| (l.var, Int::new(0))));
        block.map_ints(&mut |i| substitute(i, &by));
        self.check_reads(f, &block, (&heads, &into), place)?;
        let body = Stmt::seq(vec![Stmt::Block(Box::new(into)), Stmt::Block(Box::new(block))]);
        let mut list = match std::mem::replace(&mut f.body, Stmt::Seq(vec![])) {
            Stmt::Seq(list) => list,
            one => vec![one],
        };
        list.insert(place.min(list.len()), nest(&heads, body));
        f.body = Stmt::seq(list);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::dtype::DType;
    use crate::int::Int;
    use crate::schedule::loops::substitute_stmt;
    use crate::schedule::testing::*;
    use crate::tir::{Access, Expr, Param, Stmt, TensorFunction};

    /// `s = x + z`, `y = max(s, 0)` or its transpose's, both results.
    fn two(shape: [i64; 2], transposed: bool) -> TensorFunction {
        let mut s = None;
        let mut f = function(&[("x", &shape), ("z", &shape)], |c, ids| {
            let dims = shape.map(Int::new);
            let (x, z) = (ids[0], ids[1]);
            let sum = stage(c, "s", |c| {
                c.compute("", &dims, DType::F32, |i| Expr::load(x, i.to_vec()) + Expr::load(z, i.to_vec()))
            });
            s = Some(sum);
            stage(c, "y", |c| {
                c.compute("", &dims, DType::F32, |i| {
                    let first = if shape[0] == 1 { Int::new(0) } else { i[0].clone() };
                    let at = if transposed { vec![i[1].clone(), first] } else { vec![first, i[1].clone()] };
                    Expr::load(sum, at).max(Expr::constant(0.0, DType::F32))
                })
            })
        });
        f.params.push(Param { buffer: s.expect("built"), access: Access::Write });
        f
    }

    #[test]
    fn one_nest_writes_both_results() {
        let f = two([3, 5], false);
        let g = scheduled(
            &f,
            &[
                "merge-nests {block=y, into=s}",
                "fuse {loops=[s_i0, s_i1], into=p}",
                "split {loop=p, factors=[0, 4], into=[q, v]}",
            ],
        );
        assert_eq!(g.body.blocks().len(), 2);
        assert_same(&f, &g);
    }

    #[test]
    fn a_loop_of_one_iteration_is_index_0() {
        let f = two([1, 5], false);
        let g = scheduled(&f, &["merge-nests {block=y, into=s}"]);
        assert_same(&f, &g);
        let mut short = f.clone();
        if let Stmt::Seq(list) = &mut short.body
            && let Stmt::For(l) = &mut list[0]
        {
            let (var, mut body) = (l.var, l.body.clone());
            substitute_stmt(&mut body, &[(var, Int::new(0))].into_iter().collect());
            list[0] = body;
        }
        let g = scheduled(&short, &["merge-nests {block=y, into=s}"]);
        assert_same(&f, &g);
    }

    #[test]
    fn refuses_other_elements_and_other_shapes() {
        assert!(refusal(&two([4, 4], true), "merge-nests {block=y, into=s}").contains("other elements"));
        assert!(refusal(&softmax(4, 7), "merge-nests {block=y, into=exp}").contains("written after"));
        assert!(refusal(&row_sum(4, 6), "merge-nests {block=y, into=y}").contains("no block"));
    }

    #[test]
    fn what_is_made_between_the_two_is_made_before_both() {
        let text = "tensor @f(%x: f32[8], out %s: f32[8], out %y: f32[8]) {
  buffer %t: f32[8] global
  for i in 0..8 { block s { %s[i] <- max(%x[i], 0.0) } }
  for j in 0..8 { block t { %t[j] <- %x[j] * 2.0 } }
  for k in 0..8 { block y { %y[k] <- %t[k] - %s[k] } }
}";
        let f = crate::text::parse_tensor_function(text).expect("a tensor function");
        assert!(refusal(&f, "merge-nests {block=y, into=s}").contains("reads what is written after `s`"));
    }

    #[test]
    fn what_is_made_before_both_stays_before_them() {
        let text = "tensor @f(%x: f32[8], out %s: f32[8], out %y: f32[8]) {
  buffer %t: f32[8] global
  for j in 0..8 { block t { %t[j] <- %x[j] * 2.0 } }
  for i in 0..8 { block s { %s[i] <- max(%t[i], 0.0) } }
  for k in 0..8 { block y { %y[k] <- %t[k] - %s[k] } }
}";
        let f = parsed(text);
        let g = scheduled(&f, &["merge-nests {block=y, into=s}"]);
        let order: Vec<&str> = g.body.blocks().iter().map(|b| b.name.as_str()).collect();
        assert_eq!(order, ["t", "s", "y"]);
        assert_same(&f, &g);
    }
}
