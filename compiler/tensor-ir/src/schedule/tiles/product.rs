//! Tiles of products, as numbers.

use crate::dtype::DType;
use crate::int::{self, Int};
use crate::name::Name;
use crate::tir::{BufferId, Scope, TensorFunction};

/// Elements behind a row of the left tile: rows stay aligned to vectors, and the copy's stores go to different banks.
pub(in crate::schedule) const PAD: i64 = 4;
/// Registers of a thread from which on 8x8 accumulators, both operands and what is loaded ahead fit beside addresses.
pub(in crate::schedule) const LARGE: u32 = 160;

/// The size of a product.
#[derive(Clone, Copy)]
pub(in crate::schedule) struct ProductSize {
    /// Batch, rows (those of windows included), columns, depth.
    pub all: [i64; 4],
    /// Rows of a window.
    pub taps: i64,
    /// How the elements of its reduction lie.
    pub lies: Depth,
}

/// A workgroup's part of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::schedule) struct ProductTile {
    /// Rows of a workgroup, those of windows included.
    pub rows: i64,
    /// Columns of a workgroup.
    pub columns: i64,
    /// Elements of the reduction at a time.
    pub depth: i64,
    /// Threads of a workgroup.
    pub threads: i64,
    /// Rows of a thread.
    pub thread_rows: i64,
    /// Columns of a thread.
    pub thread_columns: i64,
    /// Slices of the reduction that are workgroups of their own.
    pub slices: i64,
}

/// A workgroup's part of a product on matrix units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::schedule) struct MatrixTile {
    pub tile: ProductTile,
    /// Rows of a subgroup.
    pub rows: i64,
    /// Columns of a subgroup.
    pub columns: i64,
    /// Bytes of workgroup memory.
    pub shared_bytes: u64,
}

/// How the elements that a product adds up lie in memory.
#[derive(Clone, Copy, Debug)]
pub(in crate::schedule) struct Depth {
    /// Elements next to each other: the innermost reduction loop.
    pub channels: i64,
    /// Elements of the inner reduction loops that a step goes through whole, where there are few channels: those of a
    /// window's row.
    pub row: Option<i64>,
    /// Bytes of an element of the narrower and of the wider operand in device memory.
    pub bytes: [i64; 2],
}

/// Elements of a vector.
const VECTOR: i64 = 4;
/// Elements of a step through rows of windows, at least and at most.
const ROW: (i64, i64) = (7, 40);

impl Depth {
    /// Bytes of the narrowest and of the widest of the operands' types; of f32 where there are none.
    pub fn bytes(types: impl Iterator<Item = DType>) -> [i64; 2] {
        let sizes: Vec<i64> = types.map(|t| t.size() as i64).collect();
        [sizes.iter().min(), sizes.iter().max()].map(|n| n.copied().unwrap_or(4))
    }
    /// For reduction loops of these extents, outermost first.
    pub fn of(loops: &[i64], bytes: [i64; 2]) -> Depth {
        let channels = loops.last().copied().unwrap_or(1);
        let inner = (1..loops.len()).rev().map(|n| loops[n..].iter().product::<i64>());
        let mut fitting = inner.filter(|n| (ROW.0..=ROW.1).contains(n));
        let row = if channels % VECTOR == 0 { None } else { fitting.next() };
        Depth { channels, row, bytes }
    }
}

/// The loop of a reduction that goes innermost, of `loops` with their iterations, where the left operand is read at
/// these places: the longest that is a dimension by itself (channels), else the longest. Where that makes no whole
/// vectors and a row of windows does, whose elements are vectors in device memory, it is the row: patches of an image
/// of three planes.
pub(in crate::schedule) fn innermost(
    f: &TensorFunction,
    reads: &[(BufferId, &[Int])],
    loops: &[(Name, i64)],
) -> Option<Name> {
    let extent = |v: Name| loops.iter().find(|l| l.0 == v).map(|l| l.1);
    let plain = reads.iter().flat_map(|r| r.1).filter_map(|i| i.as_var()).filter(|v| extent(*v).is_some());
    let longest = plain.max_by_key(|v| extent(*v)).or_else(|| loops.iter().max_by_key(|l| l.1).map(|l| l.0))?;
    let vectors = |n: i64| n % VECTOR == 0;
    let bounds = f.bounds();
    let next = |v: Name| {
        reads.iter().all(|(b, ix)| {
            let flat = int::flatten_index(ix, &f.buffers[*b].shape);
            let start = int::simplify(&flat.substitute(v, &Int::new(0)), &bounds);
            let along = int::simplify(&(flat - &start - Int::var(v)), &bounds);
            f.buffers[*b].scope == Scope::Global && along.is(0) && vectors(int::divisor(&start))
        })
    };
    let row = || loops.iter().find(|l| vectors(l.1) && next(l.0)).map(|l| l.0);
    if extent(longest).is_some_and(vectors) { Some(longest) } else { row().or(Some(longest)) }
}

/// A product of a few rows, of which a workgroup has some columns and its threads share the reduction.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::schedule) struct FewRows {
    /// Rows of the product.
    pub rows: i64,
    /// Columns of a workgroup.
    pub columns: i64,
    /// Threads of a workgroup.
    pub threads: i64,
    /// Neighbours along the reduction that a thread takes at a time.
    pub run: i64,
    /// The loop of the reduction, and which factor of the product is the right one.
    pub depth: Name,
    pub right: usize,
    /// What the right operand reads along the reduction, with how many neighbours share an element.
    pub sharing: Vec<(BufferId, i64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_windows_with_few_channels_are_steps() {
        let row = |loops: &[i64]| Depth::of(loops, [4; 2]).row;
        assert_eq!(row(&[7, 7, 3]), Some(21));
        assert_eq!(row(&[3, 3, 3]), Some(9));
        assert_eq!(row(&[7, 7]), Some(7), "one channel");
        assert_eq!(row(&[16, 16, 3]), None, "48 are too many");
        assert_eq!(row(&[3, 3, 64]), None, "enough channels");
        assert_eq!(row(&[147]), None, "no windows");
    }
}
