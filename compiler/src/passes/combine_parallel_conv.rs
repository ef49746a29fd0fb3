//! combine-parallel-conv: sibling convolutions that read the same data become one wider convolution and a split.
//!
//! ```text
//! %0 = conv %x, %w0                        %0 = conv %x, concat(w0, w1)
//! %1 = conv %x, %w1              =>        %1, %2 = split %0 {axis=1}
//! ```
//!
//! The siblings have equal attributes, one group, and constant weights that differ only in the number of result
//! channels. Equal elementwise ops after all of them are combined too (bias, relu ...). See [`super::combine_parallel`]
//! for costs and limits.

use super::combine_parallel::{Family, combine};
use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::graph::{Module, NodeId, ValueId};
use crate::ops::conv::Conv;
use crate::pattern::{Pattern, constant, op, var};

attr_struct! {
    /// Combines sibling convolutions.
    pub struct CombineParallelConv("combine-parallel-conv") {
        /// Siblings at least.
        pub min_branches: usize = 2,
        /// Combines whatever it costs.
        pub always: bool = false,
    }
}

impl Pass for CombineParallelConv {
    fn opt_level(&self) -> u8 {
        3
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        Ok(combine(self, &Convs, self.min_branches, self.always, module, cx))
    }
}

struct Convs;
impl Family for Convs {
    fn patterns(&self) -> Vec<Pattern> {
        let one_group = |p: Pattern| p.attr::<Conv>("group=1", |c| c.group == 1 && c.layout.block().is_none());
        let (x, w) = (var("x"), constant().named("w"));
        vec![one_group(op::<Conv>([x.clone(), w.clone(), constant().named("b")])), one_group(op::<Conv>([x, w]))]
    }
    fn fits(&self, _r: &super::rewriter::Rewriter<'_>, _n: NodeId, _bias: Option<ValueId>) -> bool {
        true
    }
}
