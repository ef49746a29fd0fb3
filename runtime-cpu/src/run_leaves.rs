//! Leaves that are runs: what their taps read is found once for a loop that they walk along.

use crate::execute::{Task, holding, identity, wrong};
use crate::lanes::Lanes;
use crate::memory::{Source, Span};
use crate::program::{Extent, Leaf, Reduction, Run, Tap, Walk};
use crate::runs::{self, Operand, PlacedTap};
use std::mem::MaybeUninit;

impl<'p> Task<'p> {
    /// Reduces all taps of a run into the lanes of the leaf, for each iteration of the loop that it walks along.
    pub(crate) fn run(&mut self, l: &Leaf, r: &Reduction, run: &Run, taps: &[Extent]) {
        let none = Walk { along: Extent { slot: usize::MAX, count: 1 }, store: 0, left: 0, right: 0 };
        let walk = run.walk.unwrap_or(none);
        let at = walk.along.slot;
        for slot in taps.iter().map(|t| t.slot).chain([l.columns.slot, at]).filter(|s| *s != usize::MAX) {
            self.env[slot] = 0;
        }
        if !l.guards.iter().all(|g| g.holds(self.scene())) {
            return;
        }
        let (n, pixels) = (l.columns.count as usize, walk.along.count as usize);
        let store = l.store.index.eval(self.scene());
        let view = self.views[l.store.buffer];
        view.require(&Span { first: store, rows: pixels, columns: n, row_stride: walk.store, column_stride: 1 });
        let first = self.is_first(r);
        let mut table = std::mem::take(&mut self.own.taps);
        table.clear();
        self.each(taps, &mut |t| t.add_tap(run, &walk, n, &mut table));
        let splat = match &run.right {
            Some(right) if !run.left.moves || !right.moves => 1 + usize::from(run.left.moves),
            _ => 0,
        };
        let mut list: [MaybeUninit<Operand<'p>>; AT_ONCE] = [MaybeUninit::uninit(); AT_ONCE];
        for pixel in 0..pixels as i64 {
            // SAFETY: in bounds, as checked above for all iterations; the operands are other buffers
            // (`Translator::run`), and this task alone writes here.
            let acc = unsafe { std::slice::from_raw_parts_mut(view.pointer::<f32>(store + pixel * walk.store), n) };
            if first {
                let Lanes::F(Source::Splat(x)) = identity(r.combiner, r.dtype) else { wrong() };
                acc.fill(x);
            }
            let mut inside = table.iter().filter(|t| t.low <= pixel && pixel < t.high).peekable();
            while inside.peek().is_some() {
                let mut count = 0;
                for (to, tap) in list.iter_mut().zip(inside.by_ref()) {
                    to.write(tap.operand(pixel, &walk));
                    count += 1;
                }
                // SAFETY: so many were written.
                let list = unsafe { std::slice::from_raw_parts(list.as_ptr().cast::<Operand<'p>>(), count) };
                match run.right.is_some() {
                    true => runs::products(self.isa, acc, list, splat),
                    false => runs::combine(self.isa, acc, list, r.combiner),
                }
            }
        }
        self.own.taps = table;
    }
    /// Finds what a tap reads in the first iteration, and in which iterations it lies in no padding.
    fn add_tap(&self, run: &Run, walk: &Walk, n: usize, table: &mut Vec<PlacedTap>) {
        let (mut low, mut high) = (0, walk.along.count);
        for c in [Some(&run.left), run.right.as_ref()].into_iter().flatten().flat_map(|t| &t.conditions) {
            let step = c.index.stride(walk.along.slot).unwrap_or(0);
            let (l, h) = holding(c.op, c.index.eval(self.scene()), step, walk.along.count);
            (low, high) = (low.max(l), high.min(h));
        }
        if low >= high {
            return;
        }
        let place = |t: &Tap, step: i64| {
            let columns = if t.moves { n } else { 1 };
            let first = t.access.index.eval(self.scene());
            let view = &self.views[t.access.buffer];
            let rows = (high - low) as usize;
            view.require(&Span { first: first + low * step, rows, columns, row_stride: step, column_stride: 1 });
            (view.pointer::<f32>(0).cast_const().wrapping_offset(first as isize), columns)
        };
        let left = place(&run.left, walk.left);
        let right = run.right.as_ref().map_or(left, |t| place(t, walk.right));
        table.push(PlacedTap { left, right, low, high });
    }
}

/// Taps whose operands are handed over at once.
const AT_ONCE: usize = 64;
