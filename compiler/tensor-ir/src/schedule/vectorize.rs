//! `vectorize`: the iterations of an innermost loop become the lanes of vector operations.
//!
//! Before -> after, `vectorize {loop=i}`:
//!
//! ```text
//! for i in 0..4:                    for i in 0..4 vectorize:
//!   b: ...                            b: ...
//! ```

use super::loops::find_loop_mut;
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::name::Name;
use crate::tir::{LoopKind, Stmt, TensorFunction};

attr_struct! {
    /// Vectorizes an innermost serial loop of 2, 3 or 4 iterations.
    pub struct Vectorize("vectorize") {
        /// The loop.
        pub r#loop: Name = "".into(),
    }
}

impl Instruction for Vectorize {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let l = find_loop_mut(f, self.r#loop)?;
        if l.kind != LoopKind::Serial {
            return Err(Refusal::at(self.r#loop, "only a serial loop can be vectorized"));
        }
        if !l.extent.as_const().is_some_and(|e| (2..=4).contains(&e)) {
            return Err(Refusal::at(self.r#loop, format!("needs 2, 3 or 4 iterations, not {}", l.extent)));
        }
        let mut innermost = true;
        l.body.visit(&mut |s| innermost &= !matches!(s, Stmt::For(_)));
        if !innermost {
            return Err(Refusal::at(self.r#loop, "must be an innermost loop"));
        }
        l.kind = LoopKind::Vectorize;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn marks_an_innermost_loop_of_two_to_four() {
        let f = elementwise_chain(&[4, 4]);
        let g = scheduled(&f, &["vectorize {loop=y_i1}"]);
        assert!(crate::schedule::print_loops(&g, &g.body, None).contains("for y_i1 in 4 vectorize"));
        assert_same(&f, &g);
        assert!(refusal(&f, "vectorize {loop=y_i0}").contains("innermost"));
        assert!(refusal(&elementwise_chain(&[7]), "vectorize {loop=y_i0}").contains("2, 3 or 4"));
    }
}
