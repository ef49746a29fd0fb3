//! Cuts the reduction of a contraction into slices. Each slice is a product of its own; a second kernel sums their
//! results.
//!
//! ```text
//! mm[i, j] += a[i, k] * w[k, j]     =>    part[s, i, j] += a[i, s*C + c] * w[s*C + c, j]
//! y[i, j] = f(mm[i, j])                   mm[i, j] += part[s, i, j];  y[i, j] = f(mm[i, j])
//! ```
//!
//! The slices are the third axis of the workgroups, so a product with few rows and columns still fills the device.

use super::analysis::Contraction;
use super::decline::Decline;
use super::sketch::Sketch;
use super::unit::Unit;
use crate::name::Name;
use crate::schedule::{MemoryScope, Rfactor, TransformLayout};

/// Slices at most.
const MOST: i64 = 8;
/// Multiply-adds of a slice at least: its result is stored and loaded once for that many, which is 64 operations a
/// byte.
const SHORTEST: i64 = 256;

/// The possible numbers of slices; 1 means no cut. A slice has whole K steps; `steps` is the number of K steps of the
/// innermost reduction loop.
pub(super) fn slices(depth: i64, steps: i64) -> Vec<i64> {
    let may = |n: &i64| *n <= MOST && steps % n == 0 && depth / n >= SHORTEST;
    std::iter::once(1).chain([2, 4, 8].into_iter().filter(may)).collect()
}

/// Cuts the innermost reduction loop into `parts` slices. Returns the unit of the slices; `unit` then sums their
/// results.
pub(super) fn split_depth(sketch: &mut Sketch<'_>, unit: &Unit, c: &Contraction, parts: i64) -> Result<Unit, Decline> {
    let reduce = unit.reduce.ok_or_else(Decline::other_kind)?;
    let inner = *c.k.last().ok_or_else(Decline::other_kind)?;
    let slices = sketch.split(inner, &[parts, 0], &["s", "c"])?;
    let part = Name::new(&format!("{reduce}_part"));
    let scope = MemoryScope::Global;
    sketch.apply(Rfactor { block: reduce, r#loop: slices[0], into: part, scope, at: None, axis: None })?;
    // The slice is the outermost dimension, so that the results of each slice are laid out like those of the whole
    // product.
    let rank = sketch.f.buffers.iter().find(|b| b.1.name == part).map_or(0, |b| b.1.shape.len());
    let order: Vec<usize> = (rank.saturating_sub(1)..rank).chain(0..rank.saturating_sub(1)).collect();
    sketch.apply(TransformLayout { buffer: part, splits: vec![], order })?;
    let output = sketch.split_epilogue(part)?;
    Ok(Unit { reduce: Some(part), window: None, output, work: unit.work })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_whole_steps_and_long() {
        assert_eq!(slices(4096, 256), [1, 2, 4, 8]);
        assert_eq!(slices(600, 32), [1, 2], "slices of at least 256");
        assert_eq!(slices(4096, 6), [1, 2], "whole steps");
        assert_eq!(slices(300, 16), [1]);
    }
}
