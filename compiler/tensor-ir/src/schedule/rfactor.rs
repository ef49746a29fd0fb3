//! `rfactor`: makes a reduction loop parallel by keeping one partial result for each of its iterations.
//!
//! Before -> after, `rfactor {block=b, loop=k, into=part}`:
//!
//! ```text
//! for i in 0..8:                    for part_i in 0..8:
//!   for r in 0..5:                    for part_k in 0..4:
//!     for k in 0..4:                    for part_r in 0..5:
//!       b: y[i] += x[i, r, k]             part: part[part_i, part_k] += x[part_i, part_r, part_k]
//!                                   for i in 0..8:
//!                                     for k in 0..4:
//!                                       b: y[i] += part[i, k]
//! ```
//!
//! In workgroup memory the buffer also has a dimension for each loop around the nest that is bound to threads.

use super::accesses::buffers_read;
use super::bind::{Axis, Bind};
use super::loops::{
    LoopHead, Substitution, check_new_block, check_new_loop, derived_name, find_block, find_loop, loops_around_block,
    nest, perfect_chain, position_around, reductions_into, replace_loop, substitute,
};
use super::set_scope::MemoryScope;
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::int::Int;
use crate::name::Name;
use crate::tir::{Block, Buffer, Cond, Encoding, Expr, LoopKind, Reduce, Stmt, TensorFunction};

attr_struct! {
    /// Factors a reduction loop into a spatial dimension of an intermediate buffer.
    pub struct Rfactor("rfactor") {
        /// The reduce block.
        pub block: Name = "".into(),
        /// The reduction loop.
        pub r#loop: Name = "".into(),
        /// Name of the intermediate buffer and its block; the new loops are named after it.
        pub into: Name = "".into(),
        /// Memory of the intermediate buffer.
        pub scope: MemoryScope = MemoryScope::Global,
        /// The nest that is factored starts inside this loop; without it, at the outermost loop possible.
        pub at: Option<Name> = None,
        /// Binds the new nest's loop over partial results. If there are loops over threads already, this is required:
        /// until the new loop is bound, every thread would reduce into every partial result.
        pub axis: Option<Axis> = None,
    }
}

impl Rfactor {
    /// The threads that run the nest behind `first` side by side: in workgroup memory each has partial results of its
    /// own.
    fn threads(&self, f: &TensorFunction, first: Name) -> Result<Vec<LoopHead>, Refusal> {
        if self.scope != MemoryScope::Shared {
            return Ok(vec![]);
        }
        let path = loops_around_block(f, self.block)?;
        let around = path.into_iter().take_while(|l| l.var != first);
        Ok(around.filter(|l| matches!(l.kind, LoopKind::Local(_))).collect())
    }
    /// The loops of the perfect nest that is factored.
    fn chain(&self, f: &TensorFunction, block: &Block, reduction: &[Name]) -> Result<Vec<LoopHead>, Refusal> {
        let path = loops_around_block(f, self.block)?;
        let first = match self.at {
            Some(at) => position_around(&path, at, self.block)? + 1,
            None => 0,
        };
        for l in &path[first..] {
            let (heads, body) = perfect_chain(find_loop(f, l.var)?);
            let ends_here = matches!(body, Stmt::Block(b) if b.name == self.block);
            let known = |l: &LoopHead| reduction.contains(&l.var) || block.indices.iter().any(|i| i.uses(l.var));
            if ends_here && heads.iter().all(known) && heads.iter().any(|l| l.var == self.r#loop) {
                return Ok(heads);
            }
        }
        Err(Refusal::at(self.block, format!("there is no perfect nest from around `{}` to the block", self.r#loop)))
    }
}

impl Instruction for Rfactor {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        check_new_block(f, self.into)?;
        let block = find_block(f, self.block)?.clone();
        let Some(reduce) = block.reduce else { return Err(Refusal::at(self.block, "is not a reduction")) };
        let reduction = f.reduction_loops(self.block);
        if !reduction.contains(&self.r#loop) {
            return Err(Refusal::at(self.r#loop, format!("is not a reduction loop of `{}`", self.block)));
        }
        let chain = self.chain(f, &block, &reduction)?;
        if buffers_read(&block.value).contains(&block.buffer) {
            return Err(Refusal::at(self.block, "reads what it writes"));
        }
        let mut by = Substitution::default();
        for l in &chain {
            let var = derived_name(self.into, l.var);
            check_new_loop(f, var)?;
            by.insert(l.var, Int::var(var));
        }
        let (spatial, inner): (Vec<LoopHead>, Vec<LoopHead>) =
            chain.iter().cloned().partition(|l| !reduction.contains(&l.var));
        let (factored, others): (Vec<LoopHead>, Vec<LoopHead>) = inner.into_iter().partition(|l| l.var == self.r#loop);
        let kept: Vec<LoopHead> = spatial.into_iter().chain(factored).collect();
        let dims: Vec<LoopHead> = self.threads(f, chain[0].var)?.into_iter().chain(kept.iter().cloned()).collect();
        let whole = &f.buffers[block.buffer];
        let (dtype, encoding) = match self.scope {
            MemoryScope::Global => whole.unpacked(),
            _ => (whole.dtype, Encoding::Native),
        };
        let buffer = f.buffers.push(Buffer {
            name: self.into,
            dtype,
            shape: dims.iter().map(|l| l.extent.clone()).collect(),
            scope: self.scope.scope(),
            encoding,
        });
        // Guards on reduction loops become the identity, so that every partial result is set.
        let on_reduction = |c: &Cond| reduction.iter().any(|v| c.lhs.uses(*v) || c.rhs.uses(*v));
        let (conds, guards): (Vec<Cond>, Vec<Cond>) = block.guards.iter().cloned().partition(on_reduction);
        let otherwise = reduce.combiner.identity(block.value.dtype(f));
        let mut partial = Block {
            name: self.into,
            guards: guards.clone(),
            buffer,
            indices: dims.iter().map(|l| Int::var(l.var)).collect(),
            value: Expr::guarded(conds, block.value.clone(), otherwise),
            reduce: Some(Reduce { combiner: reduce.combiner, init: true }),
            stages: block.stages.clone(),
        };
        partial.map_ints(&mut |i| substitute(i, &by));
        let renamed = |l: &LoopHead| LoopHead { var: derived_name(self.into, l.var), ..l.clone() };
        let partial_loops: Vec<LoopHead> = kept.iter().chain(&others).map(renamed).collect();
        let load = Expr::Load(buffer, dims.iter().map(|l| Int::var(l.var)).collect());
        let last = Block { guards, value: load, ..block };
        let first = chain[0].var;
        replace_loop(f, first, |_| {
            Ok(Stmt::seq(vec![
                nest(&partial_loops, Stmt::Block(Box::new(partial))),
                nest(&kept, Stmt::Block(Box::new(last))),
            ]))
        })?;
        let several = |l: &&LoopHead| !l.extent.is(1);
        let expected: Vec<Name> = others.iter().filter(several).map(|l| derived_name(self.into, l.var)).collect();
        if reductions_into(f, buffer).iter().any(|r| r.1 != expected) {
            let text = "a loop around the new nest would count as its reduction: take another memory";
            return Err(Refusal::at(self.into, text));
        }
        match self.axis {
            Some(axis) => Bind { r#loop: derived_name(self.into, self.r#loop), axis }.apply(f),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn a_matmul_is_split_along_k() {
        let f = matmul(3, 4, 11);
        let g = scheduled(
            &f,
            &["split {loop=mm_r0, factors=[2, 6], into=[ko, ki]}", "rfactor {block=mm, loop=ko, into=part}"],
        );
        assert_eq!(g.body.blocks().len(), 3);
        assert_same(&f, &g);
    }

    #[test]
    fn threads_share_the_reduction_of_a_row() {
        let f = softmax(3, 21);
        let g = scheduled(
            &f,
            &[
                "compute-at {block=sum, at=y_i0, scope=register}",
                "split {loop=sum_r0, factors=[0, 8], into=[so, si]}",
                "rfactor {block=sum, loop=si, into=part, scope=shared}",
                "split {loop=y_i1, factors=[0, 8], into=[yo, yi]}",
                "bind {loop=y_i0, axis=group_x}",
                "bind {loop=part_si, axis=local_x}",
                "bind {loop=yi, axis=local_x}",
                "cut-kernel {}",
            ],
        );
        assert_same(&f, &g);
    }

    #[test]
    fn threads_around_have_partial_results_of_their_own() {
        let f = softmax(8, 21);
        let g = scheduled(
            &f,
            &[
                "split {loop=y_i0, factors=[0, 4], into=[yg, yn]}",
                "bind {loop=yg, axis=group_x}",
                "bind {loop=yn, axis=local_x}",
                "compute-at {block=sum, at=yn, scope=register}",
                "split {loop=sum_r0, factors=[0, 8], into=[so, si]}",
                "rfactor {block=sum, loop=si, into=part, scope=shared, at=yn, axis=local_y}",
                "split {loop=y_i1, factors=[0, 8], into=[yo, yi]}",
                "bind {loop=yi, axis=local_y}",
                "cut-kernel {}",
            ],
        );
        assert_same(&f, &g);
    }

    #[test]
    fn only_reduction_loops_can_be_factored() {
        assert!(
            refusal(&matmul(3, 4, 5), "rfactor {block=mm, loop=mm_i0, into=part}").contains("not a reduction loop")
        );
    }
}
