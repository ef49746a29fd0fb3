//! Tiles: the parts of a function that workgroups and threads have. They are values that rules choose, and that the
//! estimate counts.
//!
//! Deliberately absent: instructions, and prices.

mod packing;
mod product;
mod transform;
mod transpose;
mod windows;

pub(in crate::schedule) use packing::{dimension_to_pack, neighbours_sharing};
pub(in crate::schedule) use product::{Depth, FewRows, LARGE, MatrixTile, PAD, ProductSize, ProductTile, innermost};
pub(in crate::schedule) use transform::{TransformTile, tile_of, widest};
pub(in crate::schedule) use transpose::{Element, TransposeTile, Transposition, VECTOR};
pub use windows::window_index;
pub(in crate::schedule) use windows::{LARGEST_WINDOW, Neighbours, fits_text};
