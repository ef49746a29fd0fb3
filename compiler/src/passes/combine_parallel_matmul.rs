//! combine-parallel-matmul: sibling products of the same matrix with constant weights become one wider product and a
//! split, such as the queries, keys and values of attention.
//!
//! ```text
//! %q = matmul %x, %wq                      %0 = matmul %x, concat(wq, wk, wv)
//! %k = matmul %x, %wk            =>        %q, %k, %v = split %0 {axis=-1}
//! %v = matmul %x, %wv
//! ```
//!
//! The siblings are all `matmul` or all `gemm` with equal attributes, and their weights are matrices of the same depth.
//! Equal elementwise ops after all of them are combined too (bias, gelu ...). See [`super::combine_parallel`] for costs
//! and limits.

use super::combine_parallel::{Family, combine};
use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::graph::{Module, NodeId, ValueId};
use crate::ops::matmul::{Gemm, MatMul};
use crate::pattern::{Pattern, any, constant, op, var};

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
        let weights = constant().rank(2).named("w");
        // A vector on the left gives a vector: there is no batch to share.
        let data = any().ty("a matrix or more", |t| t.rank() >= 2).named("x");
        vec![
            op::<MatMul>([data, weights.clone()]),
            op::<Gemm>([var("x"), weights.clone(), constant().rank(1).named("b")]),
            op::<Gemm>([var("x"), weights]),
        ]
    }
    /// A gemm's addend has one element for each column.
    fn fits(&self, r: &super::rewriter::Rewriter<'_>, n: NodeId, bias: Option<ValueId>) -> bool {
        let columns = r.f.ty(r.f.nodes[n].outputs[0]).shape.last();
        bias.is_none_or(|b| r.f.ty(b).shape.last() == columns)
    }
}
