//! The tiles that the rules for products would take, in numbers: what the estimate counts with.

use super::{matmul_subgroup, matmul_tiled};
use crate::profile::DeviceProfile;

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
    /// Elements of the inner reduction loops that a step goes through whole, where there are few channels: those of a window's row.
    pub row: Option<i64>,
    /// Bytes of an element of the wider operand.
    pub bytes: i64,
}

/// Elements of a step through rows of windows, at least and at most.
const ROW: (i64, i64) = (7, 40);

impl Depth {
    /// For reduction loops of these extents, outermost first.
    pub fn of(loops: &[i64], bytes: i64) -> Depth {
        let channels = loops.last().copied().unwrap_or(1);
        let inner = (1..loops.len()).rev().map(|n| loops[n..].iter().product::<i64>());
        let mut fitting = inner.filter(|n| (ROW.0..=ROW.1).contains(n));
        let row = if channels % 4 == 0 { None } else { fitting.next() };
        Depth { channels, row, bytes }
    }
}

/// The tiles that a product of `[batch, rows, columns, depth]` may have, whose reduction lies like `lies`, and windows of `taps` rows
/// go along its rows; on GPUs with each number of slices that the reduction may be cut into. None where it is too small for tiles or
/// the device has none.
pub(in crate::schedule) fn product_candidates(
    p: &DeviceProfile,
    size: [i64; 4],
    taps: i64,
    lies: Depth,
) -> Vec<ProductTile> {
    let [_, rows, columns, depth] = size;
    let small = |least: i64| columns < least || depth < matmul_tiled::LEAST_DEPTH;
    match p.software {
        true if small(matmul_subgroup::LEAST_COLUMNS) => vec![],
        true => matmul_subgroup::usual_tile(p, [rows, columns], taps).into_iter().collect(),
        false if small(matmul_tiled::LEAST) || rows < matmul_tiled::LEAST => vec![],
        false => matmul_tiled::candidates(p, size, taps, lies),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_windows_with_few_channels_are_steps() {
        let row = |loops: &[i64]| Depth::of(loops, 4).row;
        assert_eq!(row(&[7, 7, 3]), Some(21));
        assert_eq!(row(&[3, 3, 3]), Some(9));
        assert_eq!(row(&[7, 7]), Some(7), "one channel");
        assert_eq!(row(&[16, 16, 3]), None, "48 are too many");
        assert_eq!(row(&[3, 3, 64]), None, "enough channels");
        assert_eq!(row(&[147]), None, "no windows");
    }
}
