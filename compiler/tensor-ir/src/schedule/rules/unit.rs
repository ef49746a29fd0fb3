//! Units: the parts of a function that become one kernel each.

use crate::int::Int;
use crate::name::Name;
use crate::schedule::tiles::{ProductTile, window_index};
use crate::tir::{Block, BufferId, TensorFunction};

/// A part of a function that becomes one kernel: a reduction and the one block that consumes it, or a lone compute
/// block.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The reduction.
    pub reduce: Option<Name>,
    /// A second reduction between the first and the output.
    pub window: Option<PoolingWindow>,
    /// The block that writes the unit's result.
    pub output: Name,
    /// Estimated scalar operations.
    pub work: u64,
}
impl Unit {
    /// A name for messages.
    pub fn name(&self) -> Name {
        self.reduce.unwrap_or(self.output)
    }
}

/// A reduction over windows of a unit's reduction, computed from the same tile.
#[derive(Clone, Debug)]
pub struct PoolingWindow {
    /// The block that reduces the windows.
    pub block: Name,
    /// Elements of a window.
    pub taps: i64,
    /// The cheapest tile for both, if the estimate was used.
    pub(in crate::schedule) tile: Option<ProductTile>,
}

/// The block of that name.
pub(super) fn block_of(f: &TensorFunction, name: Name) -> Option<&Block> {
    f.body.blocks().into_iter().find(|b| b.name == name)
}

/// Blocks that read `buffer`.
pub(super) fn readers(f: &TensorFunction, buffer: BufferId) -> Vec<Name> {
    f.body.blocks().iter().filter(|b| b.reads(buffer)).map(|b| b.name).collect()
}

/// True when `block` stands between a reduction and the one block that reduces windows of what it makes of it: inlining
/// it would leave the first reduction without an epilogue.
pub(super) fn stands_before_window(f: &TensorFunction, block: Name) -> bool {
    let Some(b) = block_of(f, block).filter(|b| b.reduce.is_none()) else { return false };
    let users = readers(f, b.buffer);
    let [user] = users.as_slice() else { return false };
    let windows = block_of(f, *user).is_some_and(|u| window_index(f, u, b.buffer).is_some());
    windows && is_epilogue(f, b, *user)
}

/// True when `b` makes something of a reduction's results, element by element, perhaps through blocks that do so too;
/// nobody else reads them, and `but` is not the reduction.
fn is_epilogue(f: &TensorFunction, b: &Block, but: Name) -> bool {
    let one = |d: usize| f.buffers[b.buffer].shape[d].is(1);
    let own = |l: &(BufferId, &[Int])| {
        let same = |d: usize| l.1[d] == b.indices[d] || (l.1[d].is(0) && one(d));
        l.1.len() == b.indices.len() && (0..l.1.len()).all(same) && readers(f, l.0) == [b.name]
    };
    let loads = b.value.loads();
    let read: Vec<BufferId> = loads.iter().filter(|l| own(l)).map(|l| l.0).collect();
    let makers = f.body.blocks().into_iter().filter(|m| read.contains(&m.buffer) && m.name != but && m.name != b.name);
    makers.into_iter().any(|m| m.reduce.is_some() || is_epilogue(f, m, but))
}
