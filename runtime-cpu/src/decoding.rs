//! Leaves that decode packed weights, as values: `find_decoding` finds them, `run_decoding` runs them.

use crate::index::{Extent, Index, Slot};

/// A place that moves evenly with all loops of the leaf.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub buffer: usize,
    pub index: Index,
    /// Strides along blocks, steps, rows and columns.
    pub strides: [i64; 4],
}

/// A zero point or scale of an element.
#[derive(Clone, Debug)]
pub(crate) enum Factor {
    Number(f32),
    At(Place),
}

/// A leaf that decodes.
#[derive(Clone, Debug)]
pub(crate) struct Decoding {
    /// Loops outside.
    pub loops: Vec<Extent>,
    /// The two loops around rows, blocks and their steps; rows and columns.
    pub inside: [Extent; 4],
    /// Loops that became blocks.
    pub parts: Vec<Slot>,
    pub packed: Place,
    /// Where the bits of each row begin in a word.
    pub shifts: Vec<u32>,
    pub mask: u32,
    pub zero: Factor,
    pub scale: Factor,
    pub to: Place,
    /// The left operand of the tile that decodes does not change while the kernel runs.
    pub steady_left: bool,
    /// Tiles in a loop share what is decoded.
    pub shared_panel: bool,
}

/// Memory of a thread for zero points, for scales, and for a left operand that is no f32.
#[derive(Default)]
pub(crate) struct Factors(pub [Vec<f32>; 3]);
