//! `flatten-buffer`: joins adjacent dimensions of a buffer.
//!
//! The order of the elements does not change, so parameters can be flattened too.
//!
//! Before -> after, `flatten-buffer {buffer=y, dims=[0, 1]}` for `y: [4, 6]`:
//!
//! ```text
//! for p in 0..24:                   for p in 0..24:
//!   b: y[p/6, p%6] = f(p)             b: y[p] = f(p)                            y: [24]
//! ```

use super::layout::{apply_layout, flatten};
use super::loops::find_buffer;
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::name::Name;
use crate::tir::TensorFunction;

attr_struct! {
    /// Fuses adjacent dimensions of a buffer.
    pub struct FlattenBuffer("flatten-buffer") {
        /// The buffer.
        pub buffer: Name = "".into(),
        /// Adjacent dimensions in ascending order.
        pub dims: Vec<usize> = vec![],
    }
}

impl Instruction for FlattenBuffer {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let buffer = find_buffer(f, self.buffer)?;
        let shape = f.buffers[buffer].shape.clone();
        let adjacent = self.dims.windows(2).all(|w| w[0].checked_add(1) == Some(w[1]));
        let Some(&start) = self.dims.first() else { return Err(Refusal::at(self.buffer, "needs dimensions")) };
        if !adjacent || self.dims.iter().any(|&d| d >= shape.len()) {
            let text = format!("{:?} are not adjacent dimensions of {shape:?}", self.dims);
            return Err(Refusal::at(self.buffer, text));
        }
        apply_layout(f, buffer, &flatten(&shape, start, self.dims.len()))
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn parameters_and_scratch_are_flattened() {
        let f = conv(2, 3, 5, 6, 4, 3, 1, 1);
        let g = scheduled(
            &f,
            &[
                "flatten-buffer {buffer=y, dims=[0, 1, 2]}",
                "flatten-buffer {buffer=w, dims=[0, 1, 2]}",
                "flatten-buffer {buffer=conv, dims=[2, 3]}",
            ],
        );
        assert!(g.prepacks.is_empty());
        assert_same(&f, &g);
        assert!(refusal(&f, "flatten-buffer {buffer=y, dims=[0, 2]}").contains("not adjacent"));
    }
}
