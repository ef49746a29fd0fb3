//! `unroll`: repeats a loop's body in the shader's text.
//!
//! Before -> after, `unroll {loop=i}`:
//!
//! ```text
//! for i in 0..4:                    for i in 0..4 unroll:
//!   b: ...                            b: ...
//! ```

use super::loops::find_loop_mut;
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::name::Name;
use crate::tir::{LoopKind, TensorFunction};

attr_struct! {
    /// Unrolls a serial loop of a constant extent.
    pub struct Unroll("unroll") {
        /// The loop.
        pub r#loop: Name = "".into(),
    }
}

/// Most iterations that a loop is unrolled to: more would only make the shader slow to compile.
const MAX_UNROLL: i64 = 256;

impl Instruction for Unroll {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let l = find_loop_mut(f, self.r#loop)?;
        if l.kind != LoopKind::Serial {
            return Err(Refusal::at(self.r#loop, "only a serial loop can be unrolled"));
        }
        if l.extent.as_const().is_none_or(|e| e > MAX_UNROLL) {
            return Err(Refusal::at(self.r#loop, format!("needs a constant extent of at most {MAX_UNROLL}")));
        }
        l.kind = LoopKind::Unroll;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn marks_the_loop() {
        let f = elementwise_chain(&[3, 4]);
        let g = scheduled(&f, &["unroll {loop=y_i1}"]);
        assert!(crate::schedule::print_loops(&g, &g.body, None).contains("for y_i1 in 4 unroll"));
        assert_same(&f, &g);
        scheduled(&elementwise_chain(&[256]), &["unroll {loop=y_i0}"]);
        assert!(refusal(&elementwise_chain(&[257]), "unroll {loop=y_i0}").contains("at most 256"));
    }
}
