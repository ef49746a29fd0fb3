//! combine-parallel-matmul: sibling products of the same matrix with constant weights become one wider product and a
//! split, such as the queries, keys and values of attention.
//!
//! ```text
//! %q = matmul %x, %wq                      %0 = matmul %x, concat(wq, wk, wv)
//! %k = matmul %x, %wk            =>        %q, %k, %v = split %0 {axis=-1}
//! %v = matmul %x, %wv
//! ```
//!
//! The siblings are all `matmul` or all `gemm` with equal attributes, and their weights are matrices of the same depth,
//! or packed in the same way (`dequantize_blocks`, perhaps transposed): then what is packed is joined.
//! Equal elementwise ops after all of them are combined too (bias, gelu ...). See [`super::combine_parallel`] for costs
//! and limits.

use super::combine_parallel::{Family, Weights, combine};
use super::rewriter::Rewriter;
use super::scaled_weights::constant_of;
use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::graph::{Module, NodeId, ValueId};
use crate::ops::dequantize_blocks::DequantizeBlocks;
use crate::ops::matmul::{Gemm, MatMul};
use crate::ops::transpose::Transpose;
use crate::pattern::{Found, Pattern, any, constant, either, op, var};

attr_struct! {
    /// Combines sibling matrix products.
    pub struct CombineParallelMatmul("combine-parallel-matmul") {
        /// Siblings at least.
        pub min_branches: usize = 2,
        /// Combines whatever it costs.
        pub always: bool = false,
    }
}

impl Pass for CombineParallelMatmul {
    fn opt_level(&self) -> u8 {
        3
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        Ok(combine(self, &Products, self.min_branches, self.always, module, cx))
    }
}

struct Products;
impl Family for Products {
    fn patterns(&self) -> Vec<Pattern> {
        let packed = || constant().rank(2);
        let decoded = either([
            op::<DequantizeBlocks>([packed().named("w"), packed().named("s"), packed().named("z")]),
            op::<DequantizeBlocks>([packed().named("w"), packed().named("s")]),
        ]);
        let decoded = decoded.named("decoded").optional(|d| op::<Transpose>([d]));
        let weights = either([constant().rank(2).named("w"), decoded]).named("operand");
        // A vector on the left gives a vector: there is no batch to share.
        let data = any().ty("a matrix or more", |t| t.rank() >= 2).named("x");
        vec![
            op::<MatMul>([data, weights.clone()]),
            op::<Gemm>([var("x"), weights.clone(), constant().rank(1).named("b")]),
            op::<Gemm>([var("x"), weights]),
        ]
    }
    /// A gemm's addend has one element for each column.
    fn fits(&self, r: &Rewriter<'_>, n: NodeId, bias: Option<ValueId>) -> bool {
        let columns = r.f.ty(r.f.nodes[n].outputs[0]).shape.last();
        bias.is_none_or(|b| r.f.ty(b).shape.last() == columns)
    }
    /// Packed weights are joined along the axis of their rows: the others share words.
    fn weights(&self, r: &Rewriter<'_>, found: &Found, axis: usize) -> Option<Weights> {
        let part = |name| constant_of(r, found.get(name)).map(|c| c.1);
        let Some(decoded) = found.get("decoded") else {
            return Some(Weights { parts: vec![part("w")?], axis, decode: vec![] });
        };
        let mut decode = vec![r.f.nodes[r.f.def_node(decoded)?].op.clone()];
        let mut along = axis;
        if let Some((n, transpose)) = r.f.def_op::<Transpose>(r.resolve(found.get("operand")?)) {
            along = *transpose.perm.get(axis)?;
            decode.push(r.f.nodes[n].op.clone());
        }
        let parts = ["w", "s", "z"].into_iter().filter_map(part).collect();
        (along == 0).then_some(Weights { parts, axis: along, decode })
    }
}
