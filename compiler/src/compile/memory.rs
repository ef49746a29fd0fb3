//! The activation pool: values whose lifetimes do not overlap share a buffer.
//!
//! Greedy by size (the larger value chooses first; Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
//! Inference", 2020, greedy-by-size with separate buffers instead of offsets): wgpu tracks whole buffers, so values
//! never share one at different offsets.

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
