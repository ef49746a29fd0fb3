//! Groups of two traces that belong together: those with source nodes in common, on either side.

use crate::trace::{CompileTrace, Group};
use rustc_hash::FxHashMap;

/// Groups of both sides that belong together.
pub(super) struct Matched {
    /// Of each side, in the order they run.
    pub groups: [Vec<usize>; 2],
    /// Their source nodes, sorted.
    pub origins: Vec<String>,
}

/// Sets of source nodes, each with a representative (union-find with path halving).
#[derive(Default)]
struct Sets<'a> {
    number: FxHashMap<&'a str, usize>,
    parent: Vec<usize>,
}

impl<'a> Sets<'a> {
    fn number(&mut self, name: &'a str) -> usize {
        *self.number.entry(name).or_insert_with(|| {
            self.parent.push(self.parent.len());
            self.parent.len() - 1
        })
    }
    fn find(&mut self, mut i: usize) -> usize {
        while self.parent[i] != i {
            self.parent[i] = self.parent[self.parent[i]];
            i = self.parent[i];
        }
        i
    }
    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.parent[b] = a;
    }
}

/// What a group is known by: one of its source nodes, else its ops.
fn key<'a>(sets: &mut Sets<'a>, g: &'a Group) -> Option<usize> {
    let first = g.origins.first()?;
    let number = sets.number(first);
    Some(sets.find(number))
}

/// All groups of both sides, in the order of the first side, then those of the second side alone.
pub(super) fn match_groups(sides: [&CompileTrace; 2]) -> Vec<Matched> {
    let mut sets = Sets::default();
    for g in sides.iter().flat_map(|t| &t.groups).filter(|g| !g.inserted) {
        let numbers: Vec<usize> = g.origins.iter().map(|o| sets.number(o)).collect();
        numbers.windows(2).for_each(|pair| sets.join(pair[0], pair[1]));
    }
    let mut rows: Vec<Matched> = Vec::new();
    let mut by_set: FxHashMap<usize, usize> = FxHashMap::default();
    // Groups without source nodes are the same if they have the same ops: the n-th of each side.
    let mut by_ops: FxHashMap<(&[String], usize), usize> = FxHashMap::default();
    for (side, t) in sides.iter().enumerate() {
        let mut seen: FxHashMap<&[String], usize> = FxHashMap::default();
        for (i, g) in t.groups.iter().enumerate() {
            let mut fresh = || {
                rows.push(Matched { groups: [vec![], vec![]], origins: vec![] });
                rows.len() - 1
            };
            let at = match key(&mut sets, g) {
                Some(set) => *by_set.entry(set).or_insert_with(&mut fresh),
                None => {
                    let count = seen.entry(&g.ops).or_default();
                    *count += 1;
                    *by_ops.entry((&g.ops, *count)).or_insert_with(&mut fresh)
                }
            };
            rows[at].groups[side].push(i);
            rows[at].origins.extend(g.origins.iter().cloned());
        }
    }
    for r in &mut rows {
        r.origins.sort();
        r.origins.dedup();
    }
    rows
}
