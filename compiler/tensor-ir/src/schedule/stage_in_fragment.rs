//! `stage-in-fragment`: loads an operand ahead into matrices that the lanes of a subgroup hold together.
//!
//! Before -> after, `stage-in-fragment {block=mm, operand="0", at=ki, into=af, matrix=a, order=[p, i, kk]}`:
//!
//! ```text
//! for s in 4 subgroup_x:                    for s in 4 subgroup_x:
//!   for ki in 2:                              for ki in 2:
//!     for p in 2:                               for af_p in 2:
//!       for i in 16:                              for af_i in 16:
//!         for j in 16:                              for af_kk in 16:
//!           for kk in 16:                             af: af[af_p, af_i, af_kk] = as[...]
//!             mm: c[p, i, j] += f32(as[...]) * ...  for p in 2:
//!                                                     ... mm: c[p, i, j] += f32(af[p, i, kk]) * ...
//! ```
//!
//! The last two dimensions are the rows and columns of a matrix; `tensorize` makes their loops one load. If registers
//! are few, the matrices of one operand stay in registers, and those of the other are loaded one after another.

use super::staging::{Arrangement, Staging, Target};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::name::Name;
use crate::tir::{MatrixRole, TensorFunction};

attr_struct! {
    /// Stages an operand of a block in fragments inside a loop.
    pub struct StageInFragment("stage-in-fragment") {
        /// The block.
        pub block: Name = "".into(),
        /// Path of the operand in the value: child positions, looking through casts (`0`, `1.0`; empty for all of it).
        pub operand: String = String::new(),
        /// The loop in whose body, before the block, the operand is loaded.
        pub at: Name = "".into(),
        /// Name of the new buffer and block; its loops are named after it and the loops they copy.
        pub into: Name = "".into(),
        /// The operand that the matrices are: `a` or `b`.
        pub matrix: String = "a".into(),
        /// Loops around the block whose dimensions come first, in this order; the others follow in loop order.
        pub order: Vec<Name> = vec![],
        /// Keeps an f16 that was cast to f32 as f16.
        pub narrow: bool = true,
    }
}

impl Instruction for StageInFragment {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let roles = [MatrixRole::A, MatrixRole::B];
        let Some(role) = roles.into_iter().find(|r| r.word() == self.matrix) else {
            return Err(Refusal::at(self.block, format!("`{}` is no operand: a or b", self.matrix)));
        };
        let target = Target::Fragment(role);
        let arrangement = Arrangement { order: &self.order, narrow: self.narrow, ..Arrangement::default() };
        Staging { block: self.block, operand: &self.operand, at: self.at, into: self.into, target, arrangement }
            .apply(f)
    }
}
