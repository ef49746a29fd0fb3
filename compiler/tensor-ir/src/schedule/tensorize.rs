//! `tensorize`: replaces a nest of loops by one operation of the device.
//!
//! Before -> after, `tensorize {loop=i, intrinsic=multiply_add_16x16x16_f16_f32}`:
//!
//! ```text
//! for i in 16:                              for i in 16 tensor:
//!   for j in 16:                              for j in 16 tensor:
//!     for k in 16:                              for k in 16 tensor:
//!       mm: c[p, i, j] += f32(a[p, i, k])         mm: c[p, i, j] += f32(a[p, i, k])
//!                         * f32(b[k, j])                            * f32(b[k, j])
//! ```
//!
//! The nest must unify with the description of the intrinsic ([`crate::tir::intrinsic`]). The interpreter still runs
//! the loops. The name is TVM's.

use super::loops::{find_loop, find_loop_mut};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::name::Name;
use crate::tir::intrinsic::{Intrinsic, Mismatch, Nest};
use crate::tir::{LoopKind, TensorFunction};

attr_struct! {
    /// Runs a nest of serial loops as one operation of the device.
    pub struct Tensorize("tensorize") {
        /// The outermost loop of the nest.
        pub r#loop: Name = "".into(),
        /// Name of the intrinsic, such as `load_a_16x16_f16`.
        pub intrinsic: String = String::new(),
    }
}

impl Instruction for Tensorize {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let refused = |m: Mismatch| Refusal::at(m.culprit, m.message);
        let l = find_loop(f, self.r#loop)?;
        let nest = Nest::under(l).map_err(refused)?;
        let intrinsic = Intrinsic::named(&self.intrinsic)
            .ok_or_else(|| Refusal::at(self.r#loop, format!("there is no intrinsic `{}`", self.intrinsic)))?;
        intrinsic.unify(f, &nest, &f.bounds()).map_err(refused)?;
        let loops: Vec<Name> = nest.loops.iter().map(|l| l.0).collect();
        for var in &loops {
            let l = find_loop(f, *var)?;
            if l.kind != LoopKind::Serial {
                return Err(Refusal::at(*var, "only serial loops become one operation"));
            }
        }
        for var in loops {
            find_loop_mut(f, var)?.kind = LoopKind::Tensor;
        }
        Ok(())
    }
}
