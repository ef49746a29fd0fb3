//! `stage-in-subgroup`: loads an operand ahead; each lane of the subgroup loads an equal share.
//!
//! The dimension of loop `dim` is distributed over the lanes of loop `lane`: lane `l` loads and holds the elements `l`,
//! `l + size`, ...; if the extent is not a multiple of the size, the buffer is padded and the last loads are repeated.
//! Every lane can read every element by a broadcast.
//!
//! Before -> after, `stage-in-subgroup {block=b, operand="0", at=k, into=as, lane=l, dim=p}`:
//!
//! ```text
//! for l in 0..8 local_x:            for l in 0..8 local_x:
//!   for k in 0..8:                    for k in 0..8:
//!     for p in 0..28:                   for as_p in 0..4:
//!       b: c[p] += a[p, k]*w[k, l]        for as_p_lane in 0..8 local_x:
//!                                           as: as[as_p*8 + as_p_lane] = a[min(as_p*8 + as_p_lane, 27), k]
//!                                       for p in 0..28:
//!                                         b: c[p] += as[p]*w[k, l]
//! ```

use super::staging::{Arrangement, Staging, Target};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::name::Name;
use crate::tir::TensorFunction;

attr_struct! {
    /// Stages an operand of a block across the lanes of a subgroup inside a loop.
    pub struct StageInSubgroup("stage-in-subgroup") {
        /// The block.
        pub block: Name = "".into(),
        /// Path of the operand in the value: child positions, looking through casts (`0`, `1.0`; empty for all of it).
        pub operand: String = String::new(),
        /// The loop in whose body, before the block, the operand is computed.
        pub at: Name = "".into(),
        /// Name of the new buffer and block; its loops are named after it and the loops they copy.
        pub into: Name = "".into(),
        /// The loop bound to local_x whose iterations are the lanes; around `at`.
        pub lane: Name = "".into(),
        /// The loop inside `at` whose dimension is distributed.
        pub dim: Name = "".into(),
    }
}

impl Instruction for StageInSubgroup {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let target = Target::Subgroup { lane: self.lane, dim: self.dim };
        let arrangement = Arrangement::default();
        Staging { block: self.block, operand: &self.operand, at: self.at, into: self.into, target, arrangement }
            .apply(f)
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    const PREPARE: [&str; 4] = [
        "split {loop=mm_i0, factors=[0, 7], into=[po, p]}",
        "split {loop=mm_i1, factors=[0, 4], into=[jo, l]}",
        "reorder {loops=[po, jo, l, mm_r0, p]}",
        "bind {loop=l, axis=local_x}",
    ];

    #[test]
    fn lanes_share_the_loads() {
        let f = matmul(15, 6, 3);
        let g = scheduled(&f, &PREPARE);
        let g = scheduled(&g, &["stage-in-subgroup {block=mm, operand=\"0\", at=mm_r0, into=as, lane=l, dim=p}"]);
        let shape = &g.buffers.iter().find(|b| b.1.name == "as".into()).expect("buffer").1.shape;
        assert_eq!(format!("{shape:?}"), "[8]");
        assert_same(&f, &g);
    }

    #[test]
    fn operands_that_differ_between_lanes_are_refused() {
        let g = scheduled(&matmul(15, 6, 3), &PREPARE);
        let e = refusal(&g, "stage-in-subgroup {block=mm, operand=\"1\", at=mm_r0, into=ws, lane=l, dim=p}");
        assert!(e.contains("from lane to lane"), "{e}");
        let e = refusal(&g, "stage-in-subgroup {block=mm, operand=\"0\", at=mm_r0, into=ws, lane=l, dim=jo}");
        assert!(e.contains("does not vary"), "{e}");
    }

    #[test]
    fn lanes_that_are_no_part_of_a_subgroup_are_refused() {
        for lanes in ["1", "3"] {
            let split = format!("split {{loop=mm_i1, factors=[0, {lanes}], into=[jo, l]}}");
            let prepare = [PREPARE[0], &split, PREPARE[2], PREPARE[3]];
            let g = scheduled(&matmul(15, 6, 3), &prepare);
            let e = refusal(&g, "stage-in-subgroup {block=mm, operand=\"0\", at=mm_r0, into=as, lane=l, dim=p}");
            assert!(e.contains("not a power of two from 2"), "{e}");
        }
    }
}
