//! A value computed once for a key, and a count of the nodes, kernels and lines that frames look at.
//!
//! A frame takes as long as what it shows: nothing in it walks all nodes, kernels or lines of a network. A pane that
//! needs all of them makes a list with `Viewer::once`, and frames show its visible rows.

use rustc_hash::FxHashMap;
use std::any::{Any, TypeId};
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

/// The values that panes keep: the last one for each pair of types of key and value.
#[derive(Default)]
pub(crate) struct Memos(FxHashMap<TypeId, Box<dyn Any>>);

impl Memos {
    /// The memo of these types.
    pub(crate) fn of<K: PartialEq + 'static, T: 'static>(&mut self) -> &mut Memo<K, T> {
        let kept = self.0.entry(TypeId::of::<(K, T)>()).or_insert_with(|| Box::new(Memo::<K, T>::default()));
        // It is of the type that it is filed under.
        kept.downcast_mut().expect("a memo of these types")
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

/// The counts since the last call: looked at, and in sight.
#[cfg(test)]
pub(crate) fn take_looked_at() -> [usize; 2] {
    LOOKED_AT.with(|c| c.replace([0; 2]))
}
