//! The interpreter's memory, with the threads that accessed each element.

use super::value::Value;
use crate::dtype::DType;
use crate::name::Name;
use crate::tir::Scope;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;

/// A buffer as the interpreter knows it.
pub(super) struct BufferInfo {
    pub(super) name: Name,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) numel: usize,
    pub(super) scope: Scope,
}

/// The elements of one instance of a buffer.
pub(super) enum Memory<V> {
    /// All of them.
    Dense(Vec<V>),
    /// Those that were stored; nothing is said about others.
    Sparse(FxHashMap<usize, V>),
}

impl<V: Value> Memory<V> {
    pub(super) fn get(&self, element: usize) -> Option<V> {
        match self {
            Memory::Dense(list) => list.get(element).copied(),
            Memory::Sparse(map) => map.get(&element).copied(),
        }
    }
    pub(super) fn set(&mut self, element: usize, v: V) {
        match self {
            Memory::Dense(list) => list[element] = v,
            Memory::Sparse(map) => drop(map.insert(element, v)),
        }
    }
}

/// Which workgroups touched elements of the global buffers that a kernel stores to: the one that stored last and the
/// one that read last, counted from 1; 0 for none.
#[derive(Default)]
pub(super) struct Touched {
    stored: FxHashSet<usize>,
    elements: RefCell<FxHashMap<(usize, usize), (u32, u32)>>,
}

impl Touched {
    /// Starts a kernel that stores to the global buffers `stored`.
    pub(super) fn start(&mut self, stored: FxHashSet<usize>) {
        self.stored = stored;
        self.elements.borrow_mut().clear();
    }
    /// A load of `now`: the other workgroup that stored the element, if there is one.
    pub(super) fn load(&self, buffer: usize, element: usize, now: u32) -> Option<u32> {
        if !self.stored.contains(&buffer) {
            return None;
        }
        let mut elements = self.elements.borrow_mut();
        let slot = elements.entry((buffer, element)).or_default();
        slot.1 = now;
        (slot.0 != 0 && slot.0 != now).then_some(slot.0)
    }
    /// A store of `now`: another workgroup that touched the element, if there is one.
    pub(super) fn store(&self, buffer: usize, element: usize, now: u32) -> Option<u32> {
        if !self.stored.contains(&buffer) {
            return None;
        }
        let mut elements = self.elements.borrow_mut();
        let slot = elements.entry((buffer, element)).or_default();
        let other = [slot.0, slot.1].into_iter().find(|n| *n != 0 && *n != now);
        slot.0 = now;
        other
    }
}
