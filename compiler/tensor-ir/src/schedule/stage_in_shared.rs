//! `stage-in-shared`: loads an operand ahead into workgroup memory.
//!
//! The new buffer also gets dimensions for the thread loops around `at` that the operand uses. As long as the loops of
//! the copy are not bound to thread axes, every thread copies the whole buffer.
//!
//! Before -> after, `stage-in-shared {block=b, operand="0", at=ko, into=as}`:
//!
//! ```text
//! for i in 0..16 local_x:           for i in 0..16 local_x:
//!   for ko in 0..8:                   for ko in 0..8:
//!     for ki in 0..4:                   for as_i in 0..16:
//!       b: c[i] += a[i, ko*4 + ki]        for as_ki in 0..4:
//!                                           as: as[as_i, as_ki] = a[as_i, ko*4 + as_ki]
//!                                       for ki in 0..4:
//!                                         b: c[i] += as[i, ki]
//! ```
//!
//! With `order=[ki], pad=4` the buffer is `as: [4, 16 + 4]` and element `[i, ki]` lies at `as[ki, i]`: threads that
//! read neighbouring rows in one step then read neighbouring words, and copies along `ki` store to different banks.

use super::staging::{Arrangement, Staging, Target};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::name::Name;
use crate::tir::TensorFunction;

attr_struct! {
    /// Stages an operand of a block in workgroup memory inside a loop.
    pub struct StageInShared("stage-in-shared") {
        /// The block.
        pub block: Name = "".into(),
        /// Path of the operand in the value: child positions, looking through casts (`0`, `1.0`; empty for all of it).
        pub operand: String = String::new(),
        /// The loop in whose body, before the block, the operand is computed.
        pub at: Name = "".into(),
        /// Name of the new buffer and block; its loops are named after it and the loops they copy.
        pub into: Name = "".into(),
        /// Loops around the block whose dimensions come first in the buffer, in this order; the others follow in loop
        /// order.
        pub order: Vec<Name> = vec![],
        /// Unused elements after each row, so that rows begin in different banks.
        pub pad: i64 = 0,
        /// Number of leading dimensions that number the padded rows; a row is everything after them.
        pub rows: i64 = 1,
        /// Keeps an f16 that was cast to f32 as f16, and bytes that were cast to i32 as bytes in packed words.
        pub narrow: bool = false,
    }
}

impl Instruction for StageInShared {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let target = Target::Shared;
        let rows = usize::try_from(self.rows).unwrap_or(0);
        let arrangement = Arrangement { order: &self.order, pad: self.pad, rows, narrow: self.narrow };
        Staging { block: self.block, operand: &self.operand, at: self.at, into: self.into, target, arrangement }
            .apply(f)
    }
}

#[cfg(test)]
mod tests {
    use crate::dtype::DType;
    use crate::schedule::testing::*;

    #[test]
    fn thread_loops_around_become_dimensions() {
        let f = matmul(6, 5, 8);
        let g = scheduled(
            &f,
            &[
                "split {loop=mm_i0, factors=[0, 4], into=[io, ii]}",
                "split {loop=mm_r0, factors=[2, 4], into=[ko, ki]}",
                "bind {loop=io, axis=group_x}",
                "bind {loop=ii, axis=local_x}",
                "stage-in-shared {block=mm, operand=\"0\", at=ko, into=as}",
                "fuse {loops=[as_ii, as_ki], into=c}",
                "split {loop=c, factors=[0, 4], into=[c0, c1]}",
                "bind {loop=c1, axis=local_x}",
            ],
        );
        let shape = &g.buffers.iter().find(|b| b.1.name == "as".into()).expect("buffer").1.shape;
        assert_eq!(format!("{shape:?}"), "[4, 4]");
        assert_same(&f, &g);
    }

    #[test]
    fn dimensions_change_places_and_rows_are_padded() {
        let f = matmul(6, 5, 8);
        let staged = |layout: &str| {
            let stage = format!("stage-in-shared {{block=mm, operand=\"0\", at=ko, into=as, {layout}}}");
            let steps = [
                "split {loop=mm_i0, factors=[0, 4], into=[io, ii]}",
                "split {loop=mm_r0, factors=[2, 4], into=[ko, ki]}",
                "bind {loop=ii, axis=local_x}",
                &stage,
                "bind {loop=as_ii, axis=local_x}",
            ];
            let g = scheduled(&f, &steps);
            assert_same(&f, &g);
            format!("{:?}", g.buffers.iter().find(|b| b.1.name == "as".into()).expect("buffer").1.shape)
        };
        assert_eq!(staged("order=[ki]"), "[4, 4]");
        assert_eq!(staged("order=[ki], pad=3"), "[4, 7]");
        assert_eq!(staged("pad=1"), "[4, 5]");
        let refused = |layout: &str| {
            refusal(&f, &format!("stage-in-shared {{block=mm, operand=\"0\", at=mm_r0, into=as, {layout}}}"))
        };
        assert!(refused("order=[y_i0]").contains("not around"));
        assert!(refused("pad=4").contains("cannot have rows"));
    }

    #[test]
    fn only_halves_and_bytes_are_kept_narrow() {
        let of = |dtype: &str, value: &str| {
            parsed(&format!(
                "tensor @f(%a: {dtype}[6,8], %b: f32[8,5], out %y: f32[6,5]) {{
  for i in 0..6 {{ for j in 0..5 {{ for k in 0..8 {{
    block y reduce sum init {{ %y[i, j] <- {value} * %b[k, j] }}
  }} }} }}
}}"
            ))
        };
        let stage = "stage-in-shared {block=y, operand=\"0\", at=k, into=as, narrow=true}";
        let g = scheduled(&of("f16", "f32(%a[i, k])"), &[stage]);
        assert_eq!(g.buffers.iter().find(|b| b.1.name == "as".into()).expect("buffer").1.dtype, DType::F16);
        for f in [of("i32", "f32(%a[i, k])"), of("f32", "%a[i, k]")] {
            assert!(refusal(&f, stage).contains("no f16 and no byte that was cast"));
        }
    }
}
