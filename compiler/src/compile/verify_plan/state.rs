//! The content of a plan's buffers at one point of a run.

use crate::graph::ValueId;
use crate::name::Name;
use crate::plan::BufferIndex;
use crate::tir::BufferId;
use rustc_hash::FxHashMap;

/// The content of a slice of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Held {
    /// A value of the entry function, joined with what it calls.
    Value(ValueId),
    /// A constant of the module.
    Constant(Name),
    /// Scratch of a group, in a buffer of its function.
    Scratch(usize, BufferId),
}

/// A step that wrote: an index into the verifier's list.
pub(super) type Writer = usize;

/// A slice of a buffer.
type At = (BufferIndex, u32);

#[derive(Clone, Default, PartialEq)]
struct Cell {
    /// Several if they are equal: a copy also counts as its original.
    held: Vec<Held>,
    /// None for what was there before the run.
    writer: Option<Writer>,
}

/// The content of each slice of each buffer.
#[derive(Clone, Default)]
pub(super) struct State {
    cells: FxHashMap<At, Cell>,
}

impl State {
    pub fn holds(&self, at: At, held: Held) -> bool {
        self.cells.get(&at).is_some_and(|c| c.held.contains(&held))
    }
    /// One of those that the slice holds.
    pub fn first(&self, at: At) -> Option<Held> {
        self.cells.get(&at)?.held.first().copied()
    }
    /// The step that wrote the slice last.
    pub fn writer(&self, at: At) -> Option<Writer> {
        self.cells.get(&at)?.writer
    }
    /// The slice holds this and nothing else.
    pub fn put(&mut self, at: At, held: Held, writer: Option<Writer>) {
        self.cells.insert(at, Cell { held: vec![held], writer });
    }
    /// Wherever `held` is, `also` is too.
    pub fn also(&mut self, held: Held, also: Held) {
        for cell in self.cells.values_mut().filter(|c| c.held.contains(&held)) {
            cell.held.push(also);
        }
    }
    /// The first `slices` of one buffer are in another.
    pub fn copy(&mut self, from: BufferIndex, to: BufferIndex, slices: u32, writer: Writer) {
        for s in 0..slices {
            let held = self.cells.get(&(from, s)).map_or(vec![], |c| c.held.clone());
            self.cells.insert((to, s), Cell { held, writer: Some(writer) });
        }
    }
    /// The content of this buffer is lost.
    pub fn lose(&mut self, buffer: BufferIndex, slices: u32, writer: Writer) {
        (0..slices).for_each(|s| drop(self.cells.insert((buffer, s), Cell { held: vec![], writer: Some(writer) })));
    }
    /// The state after both branches: the content that both have. The writer is kept if only one branch wrote.
    pub fn meet(self, mut other: State) -> State {
        let mut cells = FxHashMap::default();
        for (at, mut cell) in self.cells {
            let Some(there) = other.cells.remove(&at) else {
                cells.insert(at, Cell { held: vec![], writer: cell.writer });
                continue;
            };
            cell.held.retain(|h| there.held.contains(h));
            cell.writer = cell.writer.max(there.writer);
            cells.insert(at, cell);
        }
        cells.extend(other.cells.into_iter().map(|(at, c)| (at, Cell { held: vec![], writer: c.writer })));
        State { cells }
    }
}
