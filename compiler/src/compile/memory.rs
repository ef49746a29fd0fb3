//! The activation pool: values whose lifetimes do not overlap share a buffer.
//!
//! Greedy by size (the larger value chooses first; Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
//! Inference", 2020, greedy-by-size with separate buffers instead of offsets): wgpu tracks whole buffers, so values
//! never share one at different offsets.

use crate::arena::{Arena, Id};
use crate::define_id;
use crate::dtype::DType;
use crate::int::Int;
use crate::name::Name;
use crate::tir::Encoding;
use std::collections::BTreeSet;

define_id!(/// A value of the activation pool.
    PoolId);

define_id!(/// A buffer that values of the pool share.
    SlotId);

/// The values that kernels leave for later ones, with their lifetimes in steps.
#[derive(Clone, Default)]
pub(super) struct Pool {
    values: Arena<PoolId, PoolValue>,
    /// The function whose values are being added: none for the entry function.
    function: Option<usize>,
}

#[derive(Clone)]
struct PoolValue {
    life: Lifetime,
    /// Elements, where the bytes follow from sizes that are open.
    open: Option<(Int, DType, Encoding)>,
    /// Between kernels of one group.
    scratch: bool,
    /// The function that it is a value of.
    function: Option<usize>,
}

impl Pool {
    /// A value of `bytes` that step `at` defines.
    pub fn add(&mut self, bytes: u64, at: usize) -> PoolId {
        self.push(Lifetime { bytes, first: at, last: at }, false)
    }
    /// A value of as many bytes as another, which step `at` defines.
    pub fn add_like(&mut self, other: PoolId, at: usize) -> PoolId {
        let id = self.add(self.values[other].life.bytes, at);
        self.values[id].open = self.values[other].open.clone();
        id
    }
    /// A value between the kernels of a group, which are the steps from `first` to `last`.
    pub fn add_scratch(&mut self, bytes: u64, first: usize, last: usize) -> PoolId {
        self.push(Lifetime { bytes, first, last }, true)
    }
    fn push(&mut self, life: Lifetime, scratch: bool) -> PoolId {
        self.values.push(PoolValue { life, open: None, scratch, function: self.function })
    }
    /// Values that are added from here on belong to that function. Each active call has its own copies of them, so they
    /// share no slots with other values.
    pub fn enter(&mut self, function: Option<usize>) {
        self.function = function;
    }
    /// The value has `elements`, which are no number yet.
    pub fn leave_open(&mut self, id: PoolId, elements: &Int, dtype: DType, encoding: Encoding) {
        if elements.as_const().is_none() {
            self.values[id].open = Some((elements.clone(), dtype, encoding));
        }
    }
    /// The pool with numbers for open sizes. A size without a number counts as 0.
    pub fn at(&self, size: &dyn Fn(Name) -> Option<i64>) -> Pool {
        let mut pool = self.clone();
        for (_, v) in pool.values.iter_mut() {
            if let Some((elements, dtype, encoding)) = &v.open {
                let n = elements.eval(size).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
                v.life.bytes = encoding.storage_bytes(*dtype, n);
            }
        }
        pool
    }
    /// Step `at` uses the value.
    pub fn touch(&mut self, id: PoolId, at: usize) {
        let last = &mut self.values[id].life.last;
        *last = (*last).max(at);
    }
    /// The steps after `first` up to `last` are a loop: values from before it that are used in it live until `last`.
    pub fn extend_over(&mut self, first: usize, last: usize) {
        for (_, v) in self.values.iter_mut() {
            if v.life.first < first && v.life.last > first {
                v.life.last = v.life.last.max(last);
            }
        }
    }
    /// The slots of the function's values, of those that [`Pool::assign`] gave.
    pub fn slots_of(&self, function: usize, slots: &[SlotId]) -> BTreeSet<SlotId> {
        let own = self.values.iter().filter(|(_, v)| v.function == Some(function));
        own.map(|(id, _)| slots[id.index()]).collect()
    }
    /// Bytes of all values but scratch.
    pub fn naive_bytes(&self) -> u64 {
        self.values.iter().filter(|(_, v)| !v.scratch).map(|(_, v)| v.life.bytes).sum()
    }
    /// The slot of each value and the bytes of each slot. Values larger than `most` bytes, which are several slices,
    /// share slots among themselves only: a slice boundary must be where the kernel expects it. So do the values of a
    /// function: it may run while its caller's are needed.
    pub fn assign(&self, most: u64) -> (Vec<SlotId>, Arena<SlotId, u64>) {
        let mut slots = vec![SlotId::from_index(0); self.values.len()];
        let mut sizes = Arena::new();
        let class = |v: &PoolValue| (v.function, v.life.bytes > most);
        let classes: BTreeSet<_> = self.values.iter().map(|(_, v)| class(v)).collect();
        for one in classes {
            let members = self.values.iter().filter(|(_, v)| class(v) == one);
            let members: Vec<(PoolId, Lifetime)> = members.map(|(id, v)| (id, v.life)).collect();
            let (assigned, bytes) = assign_pool(&members.iter().map(|m| m.1).collect::<Vec<_>>());
            for ((id, _), slot) in members.iter().zip(assigned) {
                slots[id.index()] = SlotId::from_index(slot + sizes.len());
            }
            for b in bytes {
                sizes.push(b);
            }
        }
        (slots, sizes)
    }
}

/// A value to place: its bytes and the steps from its definition to its last use, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Bytes.
    pub bytes: u64,
    /// Defining step.
    pub first: usize,
    /// Last step that uses it.
    pub last: usize,
}

/// Assigns each value a slot; returns the slot of each value and the bytes of each slot.
pub fn assign_pool(values: &[Lifetime]) -> (Vec<usize>, Vec<u64>) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(values[i].bytes), values[i].first, i));
    let mut slots: Vec<(u64, Vec<usize>)> = Vec::new();
    let mut assigned = vec![0; values.len()];
    for i in order {
        let v = values[i];
        let free = |s: &(u64, Vec<usize>)| s.1.iter().all(|&o| values[o].last < v.first || v.last < values[o].first);
        // Slots are created in order of falling size, so every slot is large enough; the smallest free one fits best.
        match slots.iter().enumerate().filter(|(_, s)| free(s)).min_by_key(|(_, s)| s.0) {
            Some((s, _)) => {
                slots[s].1.push(i);
                assigned[i] = s;
            }
            None => {
                assigned[i] = slots.len();
                slots.push((v.bytes, vec![i]));
            }
        }
    }
    (assigned, slots.into_iter().map(|s| s.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn l(bytes: u64, first: usize, last: usize) -> Lifetime {
        Lifetime { bytes, first, last }
    }

    #[test]
    fn a_chain_needs_two_buffers() {
        let v: Vec<_> = (0..10).map(|i| l(100, i, i + 1)).collect();
        let (slots, sizes) = assign_pool(&v);
        assert_eq!(sizes, vec![100, 100]);
        assert!(slots.windows(2).all(|w| w[0] != w[1]));
    }

    #[test]
    fn values_of_several_slices_share_among_themselves() {
        let mut pool = Pool::default();
        let ids: Vec<PoolId> = (0..6).map(|i| pool.add(if i % 2 == 0 { 100 } else { 10 }, 2 * i)).collect();
        let scratch = pool.add_scratch(10, 0, 9);
        let (slots, sizes) = pool.assign(50);
        let of = |id: PoolId| slots[id.index()];
        assert_eq!((of(ids[0]), of(ids[1])), (of(ids[2]), of(ids[3])));
        assert_eq!((sizes[of(ids[0])], sizes[of(ids[1])], sizes[of(scratch)]), (100, 10, 10));
        assert!(of(ids[0]) != of(ids[1]) && of(scratch) != of(ids[1]));
        assert_eq!(pool.naive_bytes(), 330);
    }

    #[test]
    fn values_alive_together_never_share() {
        let v = [l(10, 0, 5), l(50, 1, 2), l(20, 2, 3), l(40, 4, 6), l(5, 0, 6)];
        let (slots, sizes) = assign_pool(&v);
        for i in 0..v.len() {
            assert!(sizes[slots[i]] >= v[i].bytes);
            for j in 0..i {
                let together = v[i].first <= v[j].last && v[j].first <= v[i].last;
                assert!(!(together && slots[i] == slots[j]), "{i} {j}");
            }
        }
    }
}
