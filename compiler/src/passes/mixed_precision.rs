//! mixed-precision: stores activations and weights as f16 wherever that is safe.
//!
//! ```text
//! %0 = conv %x, %w : f32                 %x.f16 = cast %x {to=f16}
//! %1 = relu %0     : f32           =>    %0 = conv %x.f16, %w.f16 : f16
//! %2 = exp %1      : f32                 %1 = relu %0             : f16
//! return %2                              %1.f32 = cast %1 {to=f32}
//!                                        %2 = exp %1.f32          : f32
//!                                        return %2
//! ```
//!
//! Each op declares its class ([`Op::precision`](crate::ops::Op::precision)): *always* takes f16 operands, *follow*
//! takes them when all its operands are f16 already, *never* keeps f32. An op that computes in f32 whatever its
//! operands are ([`Op::widens`](crate::ops::Op::widens): softmax, normalisations, means) may read and write f16. Sums
//! of products are kept in f32 by the ops' tensor expressions. f16 is storage only: kernels compute in f32 registers
//! and round a value when it is stored. So this pass only decides the types of buffers, native and packed f16 differ
//! only in the rounding of stored values, and casts inside a kernel cost nothing. See [`ops::cast`](crate::ops::cast)
//! for casts that must round.
//!
//! A node stays in f32 if it is on the keep list, if one of its constants or bounds does not fit f16, or if an operand
//! may exceed f16. Biases and small weights stay f32: rounding them saves almost nothing, and their error affects
//! every element that they are combined with. Inputs and results of functions keep their types. A value gets at most
//! one cast to each type in a block, right before its first user. A cast back to f16 uses the original f16 value, so
//! there is no chain of casts f16 -> f32 -> f16. Constants are converted at compile time, on demand.

mod decide;
mod fit;
mod keep;
mod ports;
mod rewrite;
#[cfg(test)]
mod tests;

pub use fit::{F16_MAX, MAX_LOSS, rounding_loss};
pub use keep::{KeepF32, check_listed, check_patterns, escape_pattern, keep_list, matches_pattern};
pub use ports::halve_ports;

use super::rewriter::rewrite_functions;
use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::graph::{Module, NodeId};
use decide::Choice;
use rustc_hash::FxHashMap;

attr_struct! {
    /// Stores activations and weights as f16.
    pub struct MixedPrecision("mixed-precision") {
        /// Source nodes that stay in f32, as patterns (`*` and `?`), besides those of the context.
        pub keep_f32: Vec<String> = vec![],
        /// Parameters of functions count as f16 (they are cast at the edge): ops that follow need no f16 producer
        /// before.
        pub half_inputs: bool = false,
    }
}

impl Pass for MixedPrecision {
    fn opt_level(&self) -> u8 {
        0
    }
    fn required(&self) -> &'static [&'static str] {
        &["infer-types"]
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        check_patterns(module, self.keep_f32.iter()).map_err(|m| PassError::new("mixed-precision", m))?;
        let mut keep = cx.keep_f32.clone();
        keep.extend(self.keep_f32.iter().map(|p| KeepF32::listed(p)));
        let matrices = cx.target().multiplies_matrices();
        let mut failure = None;
        let mut constants = FxHashMap::default();
        let changed = rewrite_functions(module, |r| {
            let choices = decide::choose(r.module, &r.f, &keep, self.half_inputs, matrices);
            self.remark_choices(r, &choices, cx);
            match rewrite::rewrite(r, &choices, &mut constants) {
                Ok(done) if done.halves > 0 => cx.applied(self, &[], done.summary(r.f.name)),
                Ok(_) => {}
                Err(message) => {
                    failure.get_or_insert(message);
                }
            }
        });
        match failure {
            Some(message) => Err(PassError::new("mixed-precision", message)),
            None => Ok(changed),
        }
    }
}

/// Why the first layers stay in f32.
const READS_INPUTS: &str = "it reads inputs of the model, and few weights";

impl MixedPrecision {
    /// One remark for each node that had a choice.
    fn remark_choices(
        &self,
        r: &super::rewriter::Rewriter<'_>,
        choices: &FxHashMap<NodeId, Choice>,
        cx: &mut PassContext,
    ) {
        for n in r.f.walk() {
            let name = r.f.nodes[n].name;
            match choices.get(&n) {
                Some(Choice::Half { why, .. }) => cx.applied(self, &[name], format!("{name} is in f16: {why}")),
                Some(Choice::ReadsInputs) => {
                    cx.missed(self, &[name], format!("{name} computes in f32, its result is in f16: {READS_INPUTS}"));
                }
                Some(Choice::Full { why, .. }) => cx.missed(self, &[name], format!("{name} stays in f32: {why}")),
                None => {}
            }
        }
    }
}
