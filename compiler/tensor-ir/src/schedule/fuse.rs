//! `fuse`: perfectly nested adjacent loops become one.
//!
//! Before -> after, `fuse {loops=[i, j], into=p}`:
//!
//! ```text
//! for i in 0..3:                    for p in 0..12:
//!   for j in 0..4:                    b: y[p/4, p%4] = f(p/4, p%4)
//!     b: y[i, j] = f(i, j)
//! ```

use super::loops::{
    LoopHead, Substitution, check_new_loop, find_loop, nest, perfect_chain, replace_loop, substitute_stmt,
};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::int::{self, Int};
use crate::name::Name;
use crate::tir::{LoopKind, Stmt, TensorFunction};

attr_struct! {
    /// Fuses perfectly nested serial loops, given outermost first, into one.
    pub struct Fuse("fuse") {
        /// The loops.
        pub loops: Vec<Name> = vec![],
        /// Variable of the new loop.
        pub into: Name = "".into(),
    }
}

impl Instruction for Fuse {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let Some(&first) = self.loops.first() else { return Err(Refusal::new("needs loops to fuse")) };
        if !self.loops.contains(&self.into) {
            check_new_loop(f, self.into)?;
        }
        let (heads, _) = perfect_chain(find_loop(f, first)?);
        let heads: Vec<LoopHead> = heads.into_iter().take(self.loops.len()).collect();
        for (n, var) in self.loops.iter().enumerate() {
            match heads.get(n) {
                Some(h) if h.var == *var && h.kind == LoopKind::Serial => {}
                Some(h) if h.var == *var => return Err(Refusal::at(*var, "only serial loops can be fused")),
                _ => {
                    let text = format!("loop `{var}` is not directly and perfectly nested in the one before it");
                    return Err(Refusal::at(*var, text));
                }
            }
        }
        let extents: Vec<Int> = heads.iter().map(|h| h.extent.clone()).collect();
        let parts = int::unflatten_index(&Int::var(self.into), &extents);
        let by: Substitution = self.loops.iter().copied().zip(parts).collect();
        replace_loop(f, first, |l| {
            let mut body = Stmt::For(Box::new(l));
            for _ in &self.loops {
                let Stmt::For(l) = body else { unreachable!("checked above") };
                body = l.body;
            }
            substitute_stmt(&mut body, &by);
            Ok(nest(&[LoopHead::serial(self.into, int::product(&extents))], body))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn fusing_keeps_results() {
        let f = conv(2, 3, 5, 6, 4, 3, 1, 1);
        let g = scheduled(
            &f,
            &["fuse {loops=[y_i0, y_i1, y_i2], into=p}", "fuse {loops=[conv_r0, conv_r1, conv_r2], into=k}"],
        );
        assert_same(&f, &g);
    }

    #[test]
    fn a_reduction_loop_stays_apart_from_others() {
        let e = refusal(&matmul(3, 4, 5), "fuse {loops=[mm_i1, mm_r0], into=p}");
        assert!(e.contains("not told from others"), "{e}");
    }

    #[test]
    fn a_reduction_loop_stays_apart_from_others_in_large_nests() {
        // More elements than are tried one by one: the fused loop alone shows it.
        let f = conv(2, 8, 16, 16, 8, 3, 1, 1);
        let g = scheduled(&f, &["reorder {loops=[conv_i2, conv_r0, conv_i3]}"]);
        assert!(refusal(&g, "fuse {loops=[conv_r0, conv_i3], into=p}").contains("not told from others"));
    }

    #[test]
    fn loops_must_be_adjacent() {
        let f = matmul(3, 4, 5);
        assert!(refusal(&f, "fuse {loops=[mm_i0, mm_r0], into=p}").contains("not directly"));
    }

    #[test]
    fn the_new_loop_takes_the_name_of_one_of_its_own_or_a_free_one() {
        let f = elementwise_chain(&[3, 4]);
        assert_same(&f, &scheduled(&f, &["fuse {loops=[y_i0, y_i1], into=y_i1}"]));
        assert!(refusal(&f, "fuse {loops=[y_i0, y_i1], into=t0_i0}").contains("taken"));
    }
}
