//! The tiles that the rules for products would take, in numbers: what the estimate counts with.

use super::{matmul_subgroup, matmul_tiled, split_depth};
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

/// The tile of a product of `[batch, rows, columns, depth]`, of which `channels` steps of the reduction lie next to each other, and
/// windows of `taps` rows go along its rows. `None` where it is too small for tiles or the device has none.
pub(in crate::schedule) fn product_tile(
    p: &DeviceProfile,
    [batch, rows, columns, depth]: [i64; 4],
    taps: i64,
    channels: i64,
) -> Option<ProductTile> {
    let small = |least: i64| columns < least || depth < matmul_tiled::LEAST_DEPTH;
    match p.software {
        true if small(matmul_subgroup::LEAST_COLUMNS) => None,
        true => matmul_subgroup::usual_tile(p, [rows, columns], taps),
        false if small(matmul_tiled::LEAST) || rows < matmul_tiled::LEAST => None,
        false => matmul_tiled::usual_tile(p, (batch, rows, columns), taps, channels),
    }
}

/// Into how many slices the reduction of a product with this tile may be cut, 1 for none; sizes as for [`product_tile`].
pub(in crate::schedule) fn product_slices(
    p: &DeviceProfile,
    tile: &ProductTile,
    [batch, depth]: [i64; 2],
    channels: i64,
) -> Vec<i64> {
    if p.software || batch > 1 {
        return vec![1];
    }
    let steps = if channels % tile.depth == 0 { channels / tile.depth } else { 1 };
    split_depth::slices(depth, steps)
}
