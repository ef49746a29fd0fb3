//! `transform-layout`: splits the dimensions of a buffer and permutes the parts.
//!
//! Dimension `d` of extent `n` with split factor `f > 0` becomes two parts, `n/f` (rounded up) and `f`; with factor 0
//! it stays one part. `order` lists the parts (numbered in the order of their dimensions) in their new order. A read
//! parameter whose elements move is prepacked, with zeros in the padding; for scratch and local buffers only the
//! accesses change.
//!
//! Before -> after, `transform-layout {buffer=w, splits=[0, 32], order=[1, 0, 2]}` for `w: [K, 70]`:
//!
//! ```text
//! b: c[i, j] += a[i, k]*w[k, j]     b: c[i, j] += a[i, k]*w[j/32, k, j%32]      w: [3, K, 32]
//!                                   packer: w_packed[p, k, q] = p*32 + q < 70 ? w[k, p*32 + q] : 0
//! ```

use super::layout::{PhysicalLayout, apply_layout};
use super::loops::find_buffer;
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::int::{self, Int};
use crate::name::Name;
use crate::tir::{Cond, TensorFunction};

attr_struct! {
    /// Splits and permutes the dimensions of a buffer.
    pub struct TransformLayout("transform-layout") {
        /// The buffer.
        pub buffer: Name = "".into(),
        /// Split factor of each dimension; 0 keeps it whole. Missing ones are 0.
        pub splits: Vec<i64> = vec![],
        /// New order of the parts; empty keeps the order.
        pub order: Vec<usize> = vec![],
    }
}

impl TransformLayout {
    fn layout(&self, f: &TensorFunction, shape: &[Int]) -> Result<PhysicalLayout, Refusal> {
        let refuse = |text: String| Refusal::at(self.buffer, text);
        if self.splits.len() > shape.len() || self.splits.iter().any(|&s| s < 0) {
            return Err(refuse(format!("the splits {:?} do not suit rank {}", self.splits, shape.len())));
        }
        let splits: Vec<i64> = (0..shape.len()).map(|d| self.splits.get(d).copied().unwrap_or(0)).collect();
        let bounds = f.bounds();
        let mut parts = Vec::new();
        let mut padded = Vec::new();
        for (d, &s) in splits.iter().enumerate() {
            if s == 0 {
                parts.push(shape[d].clone());
                continue;
            }
            let outer = int::simplify(&shape[d].ceil_div(s), &bounds);
            if !int::simplify(&(outer.clone() * s - &shape[d]), &bounds).is(0) {
                padded.push((d, shape[d].clone()));
            }
            parts.extend([outer, Int::new(s)]);
        }
        let count = parts.len();
        let order: Vec<usize> = if self.order.is_empty() { (0..count).collect() } else { self.order.clone() };
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..count) {
            return Err(refuse(format!("the order {order:?} is not a permutation of {count} parts")));
        }
        let same_order = padded.is_empty() && sorted == order;
        let (to, from, split_to) = (order.clone(), order.clone(), splits.clone());
        Ok(PhysicalLayout {
            shape: order.iter().map(|&p| parts[p].clone()).collect(),
            forward: Box::new(move |ix| {
                let mut out = Vec::new();
                for (i, &s) in ix.iter().zip(&split_to) {
                    if s == 0 {
                        out.push(i.clone());
                    } else {
                        out.extend([i.div(s), i.rem(s)]);
                    }
                }
                to.iter().map(|&p| out[p].clone()).collect()
            }),
            backward: Box::new(move |ix| {
                let part = |p: usize| ix[from.iter().position(|&q| q == p).expect("a permutation")].clone();
                let mut next = 0;
                let mut out = Vec::new();
                for &s in &splits {
                    out.push(if s == 0 { part(next) } else { part(next) * s + part(next + 1) });
                    next += if s == 0 { 1 } else { 2 };
                }
                out
            }),
            exists: Box::new(move |ix| padded.iter().map(|(d, n)| Cond::lt(ix[*d].clone(), n.clone())).collect()),
            same_order,
        })
    }
}

impl Instruction for TransformLayout {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let buffer = find_buffer(f, self.buffer)?;
        let layout = self.layout(f, &f.buffers[buffer].shape)?;
        apply_layout(f, buffer, &layout)
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn a_weight_is_packed_with_padding_and_transforms_compose() {
        let f = matmul(3, 10, 7);
        let g = scheduled(&f, &["transform-layout {buffer=w, splits=[0, 4], order=[1, 0, 2]}"]);
        assert_eq!(g.prepacks.len(), 1);
        assert_same(&f, &g);
        let g = scheduled(
            &g,
            &[
                "transform-layout {buffer=w, splits=[2, 4, 0], order=[0, 2, 1, 4, 3]}",
                "flatten-buffer {buffer=w, dims=[3, 4]}",
            ],
        );
        assert_eq!(g.prepacks.len(), 1);
        assert_same(&f, &g);
    }

    #[test]
    fn exact_splits_in_order_need_no_packing() {
        let f = matmul(3, 10, 8);
        let g = scheduled(
            &f,
            &["transform-layout {buffer=a, splits=[0, 4]}", "transform-layout {buffer=y, splits=[0, 5]}"],
        );
        assert!(g.prepacks.is_empty());
        assert_same(&f, &g);
    }

    #[test]
    fn scratch_buffers_are_rewritten() {
        let f = matmul(3, 10, 8);
        let g = scheduled(&f, &["transform-layout {buffer=mm, splits=[0, 4], order=[1, 2, 0]}"]);
        assert_same(&f, &g);
    }

    #[test]
    fn results_keep_their_order() {
        let f = matmul(3, 10, 8);
        assert!(refusal(&f, "transform-layout {buffer=y, order=[1, 0]}").contains("belongs to the caller"));
        assert!(refusal(&f, "transform-layout {buffer=w, order=[1, 1]}").contains("not a permutation"));
    }
}
