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

/// The tiles that a product of `[batch, rows, columns, depth]` may have, of which so many steps of the reduction lie next to
/// each other, of so many bytes at most, and windows of `taps` rows go along its rows; on GPUs with each number of slices that the reduction may be cut into. None
/// where it is too small for tiles or the device has none.
pub(in crate::schedule) fn product_candidates(
    p: &DeviceProfile,
    size: [i64; 4],
    taps: i64,
    channels: (i64, i64),
) -> Vec<ProductTile> {
    let [_, rows, columns, depth] = size;
    let small = |least: i64| columns < least || depth < matmul_tiled::LEAST_DEPTH;
    match p.software {
        true if small(matmul_subgroup::LEAST_COLUMNS) => vec![],
        true => matmul_subgroup::usual_tile(p, [rows, columns], taps).into_iter().collect(),
        false if small(matmul_tiled::LEAST) || rows < matmul_tiled::LEAST => vec![],
        false => matmul_tiled::candidates(p, size, taps, channels),
    }
}
