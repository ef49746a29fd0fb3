//! What is computed once and read by frames, and a count of what frames look at.
//!
//! A frame takes as long as what it shows: nothing in it walks all nodes, kernels or lines of a network. A pane that
//! needs all of them makes a list with [`Viewer::once`], and frames show its visible rows.

use crate::panes::compare::Compared;
use crate::panes::groups::GroupRow;
use crate::panes::kernel::Facts;
use crate::panes::memory::Chart;
use crate::panes::pages::{LeftRows, WrongRows};
use crate::panes::precision::{Curve, Summary};
use crate::panes::time::{Plotted, Run, Table};
use crate::state::Viewer;
use std::sync::Arc;

/// A value with the key that it was made for.
pub(crate) struct Memo<K, T>(Option<(K, Arc<T>)>);

impl<K, T> Default for Memo<K, T> {
    fn default() -> Self {
        Memo(None)
    }
}

impl<K: PartialEq, T> Memo<K, T> {
    /// The value, if it was made for this key.
    pub(crate) fn of(&self, key: &K) -> Option<Arc<T>> {
        self.0.as_ref().filter(|(k, _)| k == key).map(|(_, value)| value.clone())
    }
    /// Keeps a value in place of the last one.
    pub(crate) fn keep(&mut self, key: K, value: T) -> Arc<T> {
        let value = Arc::new(value);
        self.0 = Some((key, value.clone()));
        value
    }
}

/// What the panes of a viewer keep. A selection is known by its number.
#[derive(Default)]
pub(crate) struct Memos {
    /// Lines of the text pane: the stage, its text, and the selection where only its lines are shown.
    pub(crate) text: Memo<(usize, crate::panes::text::Mode, Option<u64>), Vec<usize>>,
    /// Rows of the groups, whether only selected ones are shown, and the selection.
    pub(crate) groups: Memo<(bool, u64), Vec<GroupRow>>,
    /// Remarks, and the selection where only its own are shown.
    pub(crate) remarks: Memo<Option<u64>, Vec<usize>>,
    /// Rows of the table of times by the way they are sorted.
    pub(crate) times: Memo<crate::panes::time::Sort, Table>,
    /// Points of the roofline plot by the selection.
    pub(crate) roofline: Memo<u64, Plotted>,
    /// The timeline.
    pub(crate) run: Memo<(), Option<Run>>,
    /// The sums of a range of the timeline.
    pub(crate) sums: Memo<[u64; 2], String>,
    /// Memory by the selection, its size on the screen and the theme.
    pub(crate) memory: Memo<(u64, [u32; 4], bool), Chart>,
    /// Element types, casts and what stays in f32, by the stage.
    pub(crate) precision: Memo<usize, Summary>,
    /// Errors along the graph, by the width on the screen.
    pub(crate) errors: Memo<u32, Curve>,
    /// Facts of a kernel.
    pub(crate) kernel: Memo<usize, Facts>,
    /// Rows of the other compilation, by its place in memory.
    pub(crate) compared: Memo<usize, Compared>,
    /// Rows of the page about wrong results, and whether the cost model has answered.
    pub(crate) wrong: Memo<bool, WrongRows>,
    /// Rows of the page about what fusion left.
    pub(crate) left: Memo<(), LeftRows>,
}

impl Viewer {
    /// The value for a key: as it was kept, else made now.
    pub(crate) fn once<K: PartialEq, T>(
        &mut self,
        slot: fn(&mut Memos) -> &mut Memo<K, T>,
        key: K,
        make: impl FnOnce(&mut Viewer) -> T,
    ) -> Arc<T> {
        if let Some(known) = slot(&mut self.memos).of(&key) {
            return known;
        }
        let made = make(self);
        slot(&mut self.memos).keep(key, made)
    }
}

#[cfg(test)]
thread_local! {
    static LOOKED_AT: std::cell::Cell<[usize; 2]> = const { std::cell::Cell::new([0; 2]) };
}

/// Notes that a frame looked at so many nodes, kernels or lines. Tests count them.
#[inline]
pub(crate) fn visit(count: usize) {
    note(0, count);
}

/// Notes so many boxes, edges or rows that are in sight.
#[inline]
pub(crate) fn in_sight(count: usize) {
    note(1, count);
}

#[cfg(not(test))]
#[inline]
fn note(_: usize, _: usize) {}

#[cfg(test)]
fn note(which: usize, count: usize) {
    LOOKED_AT.with(|c| {
        let mut now = c.get();
        now[which] += count;
        c.set(now);
    });
}

/// What was looked at since the last call, and what was in sight.
#[cfg(test)]
pub(crate) fn take_looked_at() -> [usize; 2] {
    LOOKED_AT.with(|c| c.replace([0; 2]))
}
