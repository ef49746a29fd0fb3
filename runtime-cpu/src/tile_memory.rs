//! Memory of a thread for the tiles and strips that it runs one after another.

use crate::copied::{Copied, Kept};
use crate::memory::Line;
use crate::strip_program::Link;
use crate::tile::Step;

/// Memory for what is found of a tile, used again.
#[derive(Default)]
pub(crate) struct TileMemory {
    /// A pointer for each row, tap after tap, where rows lie unevenly.
    pub table: Vec<*const f32>,
    /// Taps that are not left out.
    pub taps: Vec<[isize; 2]>,
    /// The rows that each tap has.
    pub ranges: Vec<(i64, i64)>,
    /// The columns that each tap has, where some have not all.
    pub spans: Vec<(i64, i64)>,
    /// What each condition's index is in the first row of the first tap.
    pub conditions: Vec<i64>,
    /// What rows in the padding read.
    pub zeros: Vec<f32>,
    /// Bytes behind the end of the depth.
    pub no_bytes: Vec<u8>,
    /// What is computed of its sums.
    pub steps: Vec<Step>,
    /// The steps of rows that are partly padding.
    pub padded: Vec<Step>,
    /// Elements of the left operand that are not read where they lie.
    pub copy: Copied,
    /// The right operand, if its elements are no f32.
    pub right: Kept,
    /// Operands of the steps, if their elements are no f32.
    pub wide: Vec<f32>,
    /// Results, if these are no f32 where they go.
    pub results: Vec<f32>,
}

/// Lanes of a register.
pub(crate) const LANES: usize = 512;
/// From one register to the next: an odd number of lines of the cache, so that a lane of several registers shares no
/// set of it.
pub(crate) const PITCH: usize = LANES + 48;

/// An operand of a step in the strip at work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Lane {
    All(f32),
    At(*const f32),
    /// A number for each row of so many lanes.
    Rows(*const f32, usize),
}

/// Memory of strips.
#[derive(Default)]
pub(crate) struct StripMemory {
    pub registers: Vec<Line>,
    pub uniforms: Vec<f32>,
    /// Integers that are longer or shorter where they lie.
    pub wide: Vec<i64>,
    /// The first row and column of the part at work.
    pub origin: [usize; 2],
    /// Places of a leaf: where they begin, by their number.
    pub first: Vec<i64>,
    /// Where the lanes of places are in the strip at work.
    pub lanes: Vec<Lane>,
    /// Places whose lanes are bytes as they lie, and whether these have a sign.
    pub bytes: Vec<Option<bool>>,
    /// The chain at work.
    pub links: Vec<Link<Lane>>,
    /// The same for a row of the strip.
    pub row_links: Vec<Link<Lane>>,
    /// The element of each row that its lanes are combined into.
    pub folded: Vec<f32>,
}

impl StripMemory {
    pub(crate) fn register(&mut self, n: usize) -> *mut f32 {
        self.registers.as_mut_ptr().cast::<f32>().wrapping_add(n * PITCH)
    }
}
