//! canonicalize-ops: one form for computations that models write in different ways, so that later passes and schedules
//! handle only one.
//!
//! ```text
//! %0 = add %x, 3.0
//! %1 = clip %0 {min=0.0, max=6.0}
//! %2 = mul %x, %1                   =>     %0 = hard_swish %x
//! %3 = div %2, 6.0
//!
//! %4 = average_pool %3 {kernel=[7,7]}      %1 = global_average_pool %0      (of 7x7 data)
//! %5 = conv %4, %w                         %2 = conv %1, %w, %b
//! %6 = add %5, %b
//! ```
//!
//! Written-out activations, softmax, layer and RMS normalisation become their ops; pools and means over the whole
//! picture become global pools; a constant added after a convolution or gemm becomes its bias; a gemm's factors move
//! into its constants; comparisons with a number become clips. Each rule is listed under its equation in
//! `canonicalize_ops/`. Batch normalisation is handled by `fold-batch-norm`. Rules may change results by some units in
//! the last place. A division by a constant without an exact reciprocal is not changed, since a later rounding could go
//! the other way.

mod activations;
mod arithmetic;
mod norms;
mod windows;

use super::rules::RuleSet;
use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::graph::Module;

attr_struct! {
    /// Brings ops to one form.
    pub struct CanonicalizeOps("canonicalize-ops") {
        /// Sweeps over a function at most.
        pub max_sweeps: usize = 10,
    }
}

impl Pass for CanonicalizeOps {
    fn opt_level(&self) -> u8 {
        2
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let rules = RuleSet::new(&[arithmetic::RULES, activations::RULES, norms::RULES, windows::RULES]);
        Ok(rules.apply(self, module, cx, self.max_sweeps))
    }
}

#[cfg(test)]
mod tests;
