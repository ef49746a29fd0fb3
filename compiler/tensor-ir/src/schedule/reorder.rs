//! `reorder`: permutes loops of one perfect chain.
//!
//! The listed loops take each other's places, in the listed order; other loops of the chain stay where they are.
//!
//! Before -> after, `reorder {loops=[k, i]}`:
//!
//! ```text
//! for i in 0..3:                    for k in 0..5:
//!   for j in 0..4:                    for j in 0..4:
//!     for k in 0..5:                    for i in 0..3:
//!       b: ...                            b: ...
//! ```

use super::loops::{LoopHead, find_loop, loops_around_loop, nest, perfect_chain, replace_loop};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::name::Name;
use crate::tir::TensorFunction;

attr_struct! {
    /// Permutes loops that lie on one perfect chain.
    pub struct Reorder("reorder") {
        /// The loops in their new order, outermost first.
        pub loops: Vec<Name> = vec![],
    }
}

impl Instruction for Reorder {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let mut outermost: Option<(usize, Name)> = None;
        for (n, var) in self.loops.iter().enumerate() {
            if self.loops[..n].contains(var) {
                return Err(Refusal::at(*var, "is listed twice"));
            }
            let depth = loops_around_loop(f, *var)?.len();
            if outermost.is_none_or(|(d, _)| depth < d) {
                outermost = Some((depth, *var));
            }
        }
        let Some((_, first)) = outermost else { return Err(Refusal::new("needs loops to reorder")) };
        let (chain, _) = perfect_chain(find_loop(f, first)?);
        for var in &self.loops {
            if !chain.iter().any(|h| h.var == *var) {
                let text = format!("loop `{var}` is not on one perfect chain with `{first}`");
                return Err(Refusal::at(*var, text));
            }
        }
        let mut next = self.loops.iter();
        let heads: Vec<LoopHead> = chain
            .iter()
            .map(|h| {
                let var =
                    if self.loops.contains(&h.var) { *next.next().expect("as many places as loops") } else { h.var };
                chain.iter().find(|c| c.var == var).expect("checked above").clone()
            })
            .collect();
        for (n, h) in heads.iter().enumerate() {
            if let Some(l) = heads[n..].iter().find(|l| h.extent.uses(l.var)) {
                return Err(Refusal::at(h.var, format!("its extent {} depends on `{}`", h.extent, l.var)));
            }
        }
        replace_loop(f, first, |l| {
            let (_, body) = perfect_chain(&l);
            Ok(nest(&heads, body.clone()))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn permutes_and_leaves_other_loops_in_place() {
        let f = matmul(3, 4, 5);
        let g = scheduled(&f, &["reorder {loops=[mm_r0, mm_i0]}"]);
        let around = crate::schedule::loops::loops_around_block(&g, "mm".into()).expect("block");
        let order: Vec<String> = around.iter().map(|l| l.var.to_string()).collect();
        assert_eq!(order, ["mm_r0", "mm_i1", "mm_i0"]);
        assert_same(&f, &g);
    }

    #[test]
    fn loops_of_two_nests_are_refused() {
        let f = elementwise_chain(&[3, 4]);
        assert!(refusal(&f, "reorder {loops=[t0_i0, y_i0]}").contains("perfect chain"));
    }
}
