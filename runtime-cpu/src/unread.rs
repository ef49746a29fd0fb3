//! Tails: what a leaf leaves out under its guards is not computed before it, if nothing else reads it.
//!
//! ```text
//! for i in 0..14 { sums[i] = .. }                                 for i in 0..min(14, n - t * 14) { sums[i] = .. }
//! for j in 0..14 { y[t * 14 + j] = f(sums[j]) if t * 14 + j < n }   for j ..
//! ```

use crate::epilogue::Known;
use crate::index::{Condition, Index, Slot};
use crate::program::{Access, End, Extent, Leaf, Node, Value};
use tensor_ir::int::CondOp;

/// Leaves out what the next node does not read of memory that these nodes write for it alone.
pub(crate) fn leave_out(nodes: &mut [Node], next: &Node, buffers: &[Known]) {
    let reader = match next {
        Node::Leaf(l) if !l.guards.is_empty() => l,
        _ => return,
    };
    let mut read = vec![];
    reader.lets.iter().chain([&reader.value]).for_each(|v| loads(v, &mut read));
    for a in &read {
        let same = read.iter().all(|b| b.buffer != a.buffer || b.index == a.index);
        let writers = nodes.iter().map(|n| writers(n, a.buffer)).sum::<usize>();
        if same && writers > 0 && buffers[a.buffer].own_blocks == Some(writers + 1) {
            let ends = reader.guards.iter().filter_map(|g| Unread::of(g, reader, a)).collect::<Vec<_>>();
            nodes.iter_mut().for_each(|n| shorten(n, a.buffer, &ends));
        }
    }
}

fn loads<'v>(v: &'v Value, to: &mut Vec<&'v Access>) {
    if let Value::Load(a) = v {
        to.push(a);
    }
    v.operands().into_iter().for_each(|v| loads(v, to));
}

/// Blocks of the node that write the buffer.
fn writers(n: &Node, buffer: usize) -> usize {
    match n {
        Node::Loop(_, _, body) | Node::Within(_, _, body) => body.iter().map(|n| writers(n, buffer)).sum(),
        Node::Leaf(l) => usize::from(l.store.buffer == buffer),
        Node::Tile(t) => {
            if t.epilogue.is_none() && t.acc.buffer == buffer {
                t.blocks
            } else {
                0
            }
        }
    }
}

/// A guard that holds for the first iterations of one loop of a reader.
struct Unread {
    /// The guard in the first one.
    first: Condition,
    step: i64,
    count: i64,
    /// The distance in memory between what two iterations read.
    stride: i64,
}

impl Unread {
    fn of(g: &Condition, reader: &Leaf, read: &Access) -> Option<Unread> {
        let loops = || reader.loops.iter().chain([&reader.rows, &reader.columns]).filter(|e| e.count > 1);
        let mut own = loops().filter(|e| g.index.uses(e.slot));
        let (Some(l), None) = (own.next(), own.next()) else { return None };
        let step = g.index.stride(l.slot)?;
        let falls = match g.op {
            CondOp::Lt => step > 0,
            CondOp::Ge => step < 0,
            CondOp::Eq => false,
        };
        let stride = read.index.stride(l.slot)?;
        let alone = loops().filter(|e| read.index.stride(e.slot) == Some(stride)).count() == 1;
        let first = Condition { op: g.op, index: g.index.without(&[l.slot]) };
        (falls && alone && stride != 0).then_some(Unread { first, step, count: l.count, stride })
    }
    /// True if the loop of a writer goes over the same elements.
    fn is_loop(&self, slot: Slot, count: i64, place: &Index) -> bool {
        count == self.count && place.stride(slot) == Some(self.stride)
    }
}

/// Lets the node write only what is read of the buffer.
fn shorten(n: &mut Node, buffer: usize, ends: &[Unread]) {
    match n {
        Node::Loop(_, _, body) | Node::Within(_, _, body) => body.iter_mut().for_each(|n| shorten(n, buffer, ends)),
        Node::Tile(t) if t.epilogue.is_none() && t.acc.buffer == buffer => {
            let loops = [(t.row, t.rows, false), (t.column, t.columns, true)];
            for e in ends {
                let own = loops.iter().filter(|l| e.is_loop(l.0, l.1, &t.acc.index));
                if let [(_, _, of_columns)] = own.collect::<Vec<_>>()[..] {
                    t.ends.push(End { condition: e.first.clone(), step: e.step, of_columns: *of_columns });
                }
            }
        }
        Node::Leaf(l) if l.store.buffer == buffer => {
            let loops: Vec<Extent> = l.loops.iter().chain([&l.rows, &l.columns]).copied().collect();
            for e in ends {
                if let [own] =
                    loops.iter().filter(|l0| e.is_loop(l0.slot, l0.count, &l.store.index)).collect::<Vec<_>>()[..]
                {
                    l.guards.push(Condition { op: e.first.op, index: e.first.index.clone().and(own.slot, e.step) });
                }
            }
        }
        Node::Tile(_) | Node::Leaf(_) => {}
    }
}
