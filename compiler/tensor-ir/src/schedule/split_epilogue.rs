//! `split-epilogue`: lets a block that writes a parameter write a local buffer instead, and adds a block that copies
//! it.
//!
//! `compute-at` needs a consumer. A reduction whose result is not processed further has none; this instruction adds
//! one.
//!
//! Before -> after, `split-epilogue {block=b, into=out}`:
//!
//! ```text
//! for i in 0..8:                    for i in 0..8:
//!   for r in 0..5:                    for r in 0..5:
//!     b: y[i] += x[i, r]                b: b_local[i] += x[i, r]
//!                                   for out_i in 0..8:
//!                                     out: y[out_i] = b_local[out_i]
//! ```

use super::loops::{
    LoopHead, any_block, check_new_block, check_new_loop, derived_name, nest, only_writer, plain_store, take_stage,
};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::int::Int;
use crate::name::Name;
use crate::tir::{Block, Buffer, Expr, Scope, Stmt, TensorFunction};

attr_struct! {
    /// Lets an unscheduled block write a scratch buffer that a new compute block copies to the original one.
    pub struct SplitEpilogue("split-epilogue") {
        /// The block.
        pub block: Name = "".into(),
        /// Name of the copying block; its loops are named after it and the original loops.
        pub into: Name = "".into(),
        /// Name of the scratch buffer; empty means `<block>_local`.
        pub local: Name = "".into(),
    }
}

impl Instruction for SplitEpilogue {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        check_new_block(f, self.into)?;
        let local = match self.local.as_str() {
            "" => derived_name(self.block, "local".into()),
            _ => self.local,
        };
        check_new_block(f, local)?;
        // The nest is removed, and put back at the same position followed by the copy.
        let position = match &f.body {
            Stmt::Seq(list) => list.iter().position(|s| any_block(s, |b| b.name == self.block)),
            _ => None,
        };
        let (loops, mut block) = take_stage(f, self.block)?;
        let vars = plain_store(f, &block)?;
        only_writer(f, &block)?;
        let original = block.buffer;
        let old = f.buffers[original].clone();
        let (dtype, encoding) = old.unpacked();
        let buffer = f.buffers.push(Buffer { name: local, scope: Scope::Global, dtype, encoding, ..old.clone() });
        // A reduction may sum up in a wider type.
        if dtype != old.dtype && block.reduce.is_none() {
            block.value = block.value.cast(old.dtype, dtype);
        }
        let mut heads = Vec::new();
        let mut indices = Vec::new();
        for (v, d) in vars.iter().zip(&old.shape) {
            let Some(v) = v else {
                indices.push(Int::new(0));
                continue;
            };
            let var = derived_name(self.into, *v);
            check_new_loop(f, var)?;
            heads.push(LoopHead::serial(var, d.clone()));
            indices.push(Int::var(var));
        }
        block.buffer = buffer;
        let load = Expr::Load(buffer, indices.clone());
        let copy = Block {
            name: self.into,
            guards: vec![],
            buffer: original,
            indices,
            value: load.cast(dtype, old.dtype),
            reduce: None,
            stages: block.stages.clone(),
        };
        let mut list = match std::mem::replace(&mut f.body, Stmt::Seq(vec![])) {
            Stmt::Seq(list) => list,
            one => vec![one],
        };
        let position = position.unwrap_or(0);
        list.insert(position, nest(&heads, Stmt::Block(Box::new(copy))));
        list.insert(position, nest(&loops, Stmt::Block(Box::new(block))));
        f.body = Stmt::seq(list);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn a_result_with_two_writers_stays_where_it_is() {
        let g = scheduled(&row_sum(4, 6), &["decompose-reduction {block=y, at=y_i0}"]);
        assert!(refusal(&g, "split-epilogue {block=y, into=out}").contains("stores to `y` too"));
    }

    #[test]
    fn a_plain_reduction_gets_an_epilogue_to_be_computed_at() {
        let f = row_sum(4, 6);
        let g =
            scheduled(&f, &["split-epilogue {block=y, into=out}", "compute-at {block=y, at=out_y_i0, scope=register}"]);
        assert_eq!(g.body.blocks().len(), 2);
        assert_same(&f, &g);
    }
}
