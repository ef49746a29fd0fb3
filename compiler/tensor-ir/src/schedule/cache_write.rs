//! `cache-write`: keeps the elements of a reduction in registers while its loop runs.
//!
//! Without it, each step of the loop would load and store elements in workgroup or device memory.
//!
//! Before -> after, `cache-write {block=b, at=k, into=out}`:
//!
//! ```text
//! for i in 0..8 local_x:          for i in 0..8 local_x:
//!   for k in 0..4:                  for k in 0..4:
//!     b: c[i] += a[i, k]              b: b_acc += a[i, k]
//!                                   out: c[i] = b_acc
//! ```
//!
//! The name is TVM's.

use super::loops::{
    LoopHead, Substitution, check_new_block, check_new_loop, derived_name, find_block, find_block_mut, find_loop,
    loops_around_block, nest, position_around, replace_loop, substitute,
};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::int::Int;
use crate::name::Name;
use crate::tir::{Block, Buffer, Expr, Scope, Stmt, TensorFunction};

attr_struct! {
    /// Accumulates in registers inside a loop, and stores the result behind it.
    pub struct CacheWrite("cache-write") {
        /// The reduction; it sets its identity itself. The registers are named after it (`<block>_acc`).
        pub block: Name = "".into(),
        /// The loop; all reduction loops must be inside it or be it, and nothing else may be.
        pub at: Name = "".into(),
        /// Name of the storing block; its loops are named after it and the original loops.
        pub into: Name = "".into(),
    }
}

impl CacheWrite {
    /// The loops inside `at` that the block's store uses, under new names, and the substitution of the old names.
    fn heads(&self, f: &TensorFunction, block: &Block) -> Result<(Vec<LoopHead>, Vec<Name>, Substitution), Refusal> {
        let path = loops_around_block(f, self.block)?;
        let at = position_around(&path, self.at, self.block)?;
        let reduction = f.reduction_loops(self.block);
        if let Some(l) = path[..at].iter().find(|l| reduction.contains(&l.var) && !l.extent.is(1)) {
            let text = format!("`{}` is a reduction loop outside of `{}`", l.var, self.at);
            return Err(Refusal::at(l.var, text));
        }
        let (mut heads, mut inner, mut by) = (Vec::new(), Vec::new(), Substitution::default());
        for l in &path[at..] {
            if !block.indices.iter().any(|i| i.uses(l.var)) {
                if !reduction.contains(&l.var) && !l.extent.is(1) {
                    return Err(Refusal::at(l.var, "neither moves the element nor is one of the reduction's loops"));
                }
                continue;
            }
            let var = derived_name(self.into, l.var);
            check_new_loop(f, var)?;
            by.insert(l.var, Int::var(var));
            inner.push(l.var);
            heads.push(LoopHead { var, extent: l.extent.clone(), kind: l.kind });
        }
        Ok((heads, inner, by))
    }
}

impl Instruction for CacheWrite {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let block = find_block(f, self.block)?.clone();
        if !block.reduce.is_some_and(|r| r.init) {
            return Err(Refusal::at(self.block, "is not a reduction that sets its identity itself"));
        }
        let old = f.buffers[block.buffer].clone();
        if !matches!(old.scope, Scope::Global | Scope::Shared) {
            return Err(Refusal::at(self.block, format!("`{}` is in registers already", old.name)));
        }
        let (heads, inner, by) = self.heads(f, &block)?;
        if let Some(other) = find_loop(f, self.at)?.body.blocks().into_iter().find(|b| b.name != self.block) {
            return Err(Refusal::at(other.name, format!("stands inside `{}`, too", self.at)));
        }
        let accumulator = derived_name(self.block, "acc".into());
        check_new_block(f, self.into)?;
        check_new_block(f, accumulator)?;
        let (dtype, encoding) = old.unpacked();
        let shape = heads.iter().map(|l| l.extent.clone()).collect();
        let buffer = f.buffers.push(Buffer { name: accumulator, scope: Scope::Register, dtype, encoding, shape });
        let known = |i: &Int| i.vars().iter().all(|v| by.contains_key(v) || !f.reduction_loops(self.block).contains(v));
        let guards = block.guards.iter().filter(|g| known(&g.lhs) && known(&g.rhs));
        let load = Expr::Load(buffer, heads.iter().map(|l| Int::var(l.var)).collect());
        let store = Block {
            name: self.into,
            guards: guards.map(|g| g.map(&mut |i| substitute(i, &by))).collect(),
            buffer: block.buffer,
            indices: block.indices.iter().map(|i| substitute(i, &by)).collect(),
            value: load.cast(dtype, old.dtype),
            reduce: None,
            stages: block.stages.clone(),
        };
        let own = find_block_mut(f, self.block)?;
        own.buffer = buffer;
        own.indices = inner.into_iter().map(Int::var).collect();
        replace_loop(f, self.at, |l| {
            Ok(Stmt::seq(vec![Stmt::For(Box::new(l)), nest(&heads, Stmt::Block(Box::new(store)))]))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn what_is_accumulated_is_stored_behind_the_loop() {
        let f = matmul(5, 6, 7);
        for at in ["mm_r0", "mm_i1"] {
            let g = scheduled(&f, &[&format!("cache-write {{block=mm, at={at}, into=out}}")]);
            assert_eq!(g.body.blocks().len(), f.body.blocks().len() + 1);
            assert_same(&f, &g);
        }
        let split = ["split {loop=mm_r0, factors=[0, 4], into=[ko, ki]}", "cache-write {block=mm, at=ko, into=out}"];
        assert_same(&f, &scheduled(&f, &split));
        let decomposed = [split[0], split[1], "decompose-reduction {block=mm, at=ko}"];
        assert_same(&f, &scheduled(&f, &decomposed));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let f = matmul(5, 6, 7);
        let order = scheduled(&f, &["reorder {loops=[mm_r0, mm_i0, mm_i1]}"]);
        assert!(refusal(&order, "cache-write {block=mm, at=mm_i0, into=out}").contains("outside of `mm_i0`"));
        let set = scheduled(&f, &["decompose-reduction {block=mm, at=mm_r0}"]);
        assert!(refusal(&set, "cache-write {block=mm, at=mm_r0, into=out}").contains("sets its identity itself"));
        assert!(refusal(&f, "cache-write {block=mm, at=mm_r0, into=mm}").contains("is taken"));
    }
}
