//! Orders of execution of nodes of which some stand together in one box.

use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// A graph of nodes `0..count`, in which some nodes share a box: `home[i]` is the first node of the box of node `i`.
#[derive(Clone, Copy)]
pub(super) struct Boxed<'a> {
    pub(super) home: &'a [usize],
    pub(super) edges: &'a [(usize, usize)],
}

impl Boxed<'_> {
    /// The boxes, those that make a value before those that read it, else in the order of their first nodes (Kahn's
    /// algorithm). Boxes on a cycle and behind one are left out.
    pub(super) fn order(&self) -> Vec<usize> {
        let (mut waits, mut next) = (vec![0usize; self.home.len()], vec![vec![]; self.home.len()]);
        for (a, b) in self.outer() {
            waits[b] += 1;
            next[a].push(b);
        }
        let first = (0..self.home.len()).filter(|&i| self.home[i] == i && waits[i] == 0);
        let mut ready: BTreeSet<usize> = first.collect();
        let mut order = Vec::with_capacity(self.home.len());
        while let Some(i) = ready.pop_first() {
            order.push(i);
            for &b in &next[i] {
                waits[b] -= 1;
                if waits[b] == 0 {
                    ready.insert(b);
                }
            }
        }
        order
    }
    fn outer(&self) -> impl Iterator<Item = (usize, usize)> {
        self.edges.iter().map(|&(a, b)| (self.home[a], self.home[b])).filter(|(a, b)| a != b)
    }
    fn boxes(&self) -> usize {
        self.home.iter().enumerate().filter(|(i, h)| i == *h).count()
    }
    /// Whether all boxes can be put in an order.
    fn is_acyclic(&self) -> bool {
        self.order().len() == self.boxes()
    }
    /// The boxes that are neither before nor behind all cycles: every cycle is among them.
    fn core(&self) -> Vec<bool> {
        let turned: Vec<(usize, usize)> = self.edges.iter().map(|&(a, b)| (b, a)).collect();
        let mut core: Vec<bool> = (0..self.home.len()).map(|i| self.home[i] == i).collect();
        for list in [self.order(), Boxed { edges: &turned, ..*self }.order()] {
            list.into_iter().for_each(|i| core[i] = false);
        }
        core
    }
}

/// Which families of nodes can each be one box with all of them together in an order: if closing all of them makes
/// cycles, those on cycles are tried one after the other. Nodes are `0..count`, members of a family ascend.
pub(super) fn closable(count: usize, edges: &[(usize, usize)], families: &[Vec<usize>]) -> Vec<bool> {
    let closed = |keep: &[bool]| {
        let mut home: Vec<usize> = (0..count).collect();
        let kept = families.iter().zip(keep).filter(|(_, k)| **k);
        kept.for_each(|(f, _)| f.iter().for_each(|&i| home[i] = f[0]));
        home
    };
    let mut keep = vec![true; families.len()];
    let home = closed(&keep);
    let all = Boxed { home: &home, edges };
    if all.is_acyclic() {
        return keep;
    }
    // A cycle that only some of the families close runs through the same boxes, so the others need not be looked at.
    let core = all.core();
    let own: Vec<usize> = (0..count).filter(|&i| core[home[i]]).collect();
    let at: FxHashMap<usize, usize> = own.iter().enumerate().map(|(k, &i)| (i, k)).collect();
    let between: Vec<(usize, usize)> = edges.iter().filter_map(|(a, b)| Some((*at.get(a)?, *at.get(b)?))).collect();
    let mut home: Vec<usize> = (0..own.len()).collect();
    for (f, keep) in families.iter().zip(&mut keep).filter(|(f, _)| core[f[0]]) {
        let before = home.clone();
        f.iter().for_each(|i| home[at[i]] = at[&f[0]]);
        *keep = Boxed { home: &home, edges: &between }.is_acyclic();
        if !*keep {
            home = before;
        }
    }
    keep
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_that_close_a_cycle_stay_open() {
        // 0 -> 1 -> 2 -> 3: closing {0, 2} makes a cycle with 1, closing {1, 3} does too, {4, 5} stands apart.
        let edges = [(0, 1), (1, 2), (2, 3), (4, 5)];
        assert_eq!(closable(6, &edges, &[vec![0, 2], vec![1, 3], vec![4, 5]]), [false, false, true]);
        assert_eq!(closable(6, &edges, &[vec![0, 1], vec![2, 3], vec![4, 5]]), [true, true, true]);
    }

    #[test]
    fn of_two_families_that_exclude_each_other_the_first_is_closed() {
        // 0 -> 2 and 3 -> 1: each of {0, 1} and {2, 3} alone has an order, both do not.
        let edges = [(0, 2), (3, 1)];
        assert_eq!(closable(4, &edges, &[vec![0, 1], vec![2, 3]]), [true, false]);
    }
}
