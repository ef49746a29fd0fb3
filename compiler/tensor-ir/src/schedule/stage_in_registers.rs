//! `stage-in-registers`: loads an operand ahead into registers.
//!
//! Before -> after, `stage-in-registers {block=b, operand="1", at=k, into=wr}`:
//!
//! ```text
//! for k in 0..8:                    for k in 0..8:
//!   for i in 0..4:                    for wr_j in 0..4:
//!     for j in 0..4:                    wr: wr[wr_j] = w[k, wr_j]
//!       b: c[i, j] += a[i, k]*w[k, j]   for i in 0..4:
//!                                       for j in 0..4:
//!                                         b: c[i, j] += a[i, k]*wr[j]
//! ```

use super::staging::{Arrangement, Staging, Target};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::name::Name;
use crate::tir::TensorFunction;

attr_struct! {
    /// Stages an operand of a block in registers inside a loop.
    pub struct StageInRegisters("stage-in-registers") {
        /// The block.
        pub block: Name = "".into(),
        /// Path of the operand in the value: child positions, looking through casts (`0`, `1.0`; empty for all of it).
        pub operand: String = String::new(),
        /// The loop in whose body, before the block, the operand is computed.
        pub at: Name = "".into(),
        /// Name of the new buffer and block; its loops are named after it and the loops they copy.
        pub into: Name = "".into(),
        /// Keeps an f16 that was cast to f32 as f16, and bytes that were cast to i32 as bytes in packed words.
        pub narrow: bool = false,
    }
}

impl Instruction for StageInRegisters {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let target = Target::Register;
        let arrangement = Arrangement { narrow: self.narrow, ..Arrangement::default() };
        Staging { block: self.block, operand: &self.operand, at: self.at, into: self.into, target, arrangement }
            .apply(f)
    }
}

#[cfg(test)]
mod tests {
    use crate::dtype::DType;
    use crate::int::Int;
    use crate::schedule::testing::*;
    use crate::tir::{BinaryOp, Expr};

    #[test]
    fn stages_what_varies_inside_the_loop() {
        let f = matmul(5, 6, 8);
        let steps = [
            "reorder {loops=[mm_r0, mm_i0, mm_i1]}",
            "stage-in-registers {block=mm, operand=\"1\", at=mm_r0, into=wr}",
            "stage-in-registers {block=mm, operand=\"0\", at=mm_i0, into=ar}",
        ];
        let g = scheduled(&f, &steps);
        let shape = |n: &str| g.buffers.iter().find(|b| b.1.name == n.into()).expect("buffer").1.shape.len();
        assert_eq!((shape("wr"), shape("ar")), (1, 0));
        assert_same(&f, &g);
    }

    #[test]
    fn guarded_tails_stay_in_bounds() {
        let f = matmul(5, 7, 6);
        let g = scheduled(
            &f,
            &[
                "split {loop=mm_i1, factors=[0, 4], into=[jo, ji]}",
                "split {loop=mm_r0, factors=[0, 4], into=[ko, ki]}",
                "reorder {loops=[ko, ki, ji]}",
                "stage-in-registers {block=mm, operand=\"1\", at=ko, into=wr}",
            ],
        );
        assert_same(&f, &g);
    }

    #[test]
    fn a_padded_operand_is_staged_with_its_condition() {
        let f = conv(1, 3, 5, 5, 4, 3, 2, 1);
        let g = scheduled(
            &f,
            &[
                "reorder {loops=[conv_r0, conv_r1, conv_r2, conv_i3]}",
                "stage-in-registers {block=conv, operand=\"0\", at=conv_r1, into=xr}",
            ],
        );
        assert_same(&f, &g);
        let g = scheduled(
            &f,
            &[
                "reorder {loops=[conv_r0, conv_r1, conv_r2, conv_i3]}",
                "stage-in-registers {block=conv, operand=\"0.1\", at=conv_r1, into=xr}",
            ],
        );
        assert_same(&f, &g);
    }

    #[test]
    fn what_is_written_inside_the_loop_is_staged_after_it() {
        let f = matmul(5, 6, 8);
        let g = scheduled(
            &f,
            &[
                "reorder {loops=[mm_r0, mm_i0, mm_i1]}",
                "stage-in-registers {block=mm, operand=\"1\", at=mm_r0, into=w1}",
                "stage-in-registers {block=mm, operand=\"1\", at=mm_r0, into=w2}",
            ],
        );
        assert_same(&f, &g);
    }

    #[test]
    fn unknown_operands_are_refused() {
        let f = matmul(5, 6, 8);
        assert!(refusal(&f, "stage-in-registers {block=mm, operand=\"2\", at=mm_r0, into=wr}").contains("no operand"));
        assert!(refusal(&f, "stage-in-registers {block=mm, operand=x, at=mm_r0, into=wr}").contains("operand path"));
        assert!(refusal(&f, "stage-in-registers {block=mm, operand=\"0\", at=y_i0, into=wr}").contains("not around"));
    }

    #[test]
    fn an_operand_of_a_condition_is_staged() {
        let f = function(&[("x", &[6, 4])], |c, ids| {
            let load = |i: &[Int]| Expr::load(ids[0], i.to_vec());
            let zero = || Expr::constant(0.0, DType::F32);
            stage(c, "y", |c| {
                c.compute("", &ints(&[6, 4]), DType::F32, |i| {
                    Expr::select(Expr::binary(BinaryOp::Lt, load(i), zero()), zero(), load(i))
                })
            })
        });
        for operand in ["0.0", "2"] {
            let g =
                scheduled(&f, &[&format!("stage-in-registers {{block=y, operand=\"{operand}\", at=y_i0, into=xr}}")]);
            assert_eq!(g.body.blocks().len(), 2);
            assert_same(&f, &g);
        }
    }
}
