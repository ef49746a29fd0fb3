//! The post-dominator tree of a forward graph.
//!
//! Users come after what they use, so one walk from the last node to the first builds the tree: a node's parent is the
//! least common ancestor of its users. The tree edge to the parent keeps the largest kind over the node's own edges and
//! all tree edges climbed to find it. Skip links (one per node, of depths chosen as in Myers' "An applicative
//! random-access stack", 1983) make each ancestor search logarithmic.

use super::forward::ForwardGraph;
use crate::tir::FusionKind;

/// The tree.
#[derive(Clone, Debug)]
pub struct PostDominators {
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Parent; the last entry is the virtual root of those that have none.
    parent: usize,
    depth: u32,
    /// Largest kind on the way to the parent.
    kind: FusionKind,
    skip: usize,
    skip_kind: FusionKind,
}

impl PostDominators {
    /// Builds the tree.
    pub fn new(g: &ForwardGraph) -> PostDominators {
        let root = g.nodes.len();
        let top = Entry {
            parent: root,
            depth: 0,
            kind: FusionKind::Elementwise,
            skip: root,
            skip_kind: FusionKind::Elementwise,
        };
        let mut tree = PostDominators { entries: vec![top; root + 1] };
        for (i, node) in g.nodes.iter().enumerate().rev() {
            let mut kind = FusionKind::Elementwise;
            let mut parent = root;
            if node.escapes {
                kind = FusionKind::Opaque;
            } else if let Some((&(first, k), rest)) = node.users.split_first() {
                (parent, kind) = (first, k);
                for &(u, k) in rest {
                    kind = kind.max(k);
                    parent = tree.ancestor(parent, u, &mut kind);
                }
            }
            tree.entries[i] = tree.entry(parent, kind);
        }
        tree
    }
    fn entry(&self, parent: usize, kind: FusionKind) -> Entry {
        let p = self.entries[parent];
        let far = self.entries[p.skip];
        let depth = p.depth + 1;
        if p.depth - far.depth == far.depth - self.entries[far.skip].depth && p.depth > 0 {
            let skip_kind = kind.max(p.skip_kind).max(far.skip_kind);
            Entry { parent, depth, kind, skip: far.skip, skip_kind }
        } else {
            Entry { parent, depth, kind, skip: parent, skip_kind: kind }
        }
    }
    /// The least common ancestor of `a` and `b`; `kind` grows by every tree edge climbed.
    fn ancestor(&self, mut a: usize, mut b: usize, kind: &mut FusionKind) -> usize {
        let e = &self.entries;
        if e[a].depth < e[b].depth {
            std::mem::swap(&mut a, &mut b);
        }
        while e[a].depth > e[b].depth {
            if e[e[a].skip].depth >= e[b].depth {
                *kind = (*kind).max(e[a].skip_kind);
                a = e[a].skip;
            } else {
                *kind = (*kind).max(e[a].kind);
                a = e[a].parent;
            }
        }
        while a != b {
            if e[a].skip != e[b].skip {
                *kind = (*kind).max(e[a].skip_kind).max(e[b].skip_kind);
                (a, b) = (e[a].skip, e[b].skip);
            } else {
                *kind = (*kind).max(e[a].kind).max(e[b].kind);
                (a, b) = (e[a].parent, e[b].parent);
            }
        }
        a
    }
    /// The immediate post-dominator of `node`, with the kind of the tree edge; `None` for roots.
    pub fn parent(&self, node: usize) -> Option<(usize, FusionKind)> {
        let e = self.entries[node];
        (e.parent + 1 < self.entries.len()).then_some((e.parent, e.kind))
    }
}

#[cfg(test)]
mod tests {
    use super::super::forward::{ForwardNode, Source};
    use super::*;
    use crate::arena::Id;
    use crate::graph::NodeId;

    const KINDS: [FusionKind; 5] = [
        FusionKind::Elementwise,
        FusionKind::Broadcast,
        FusionKind::Injective,
        FusionKind::Reduction,
        FusionKind::OutElementwiseFusable,
    ];

    /// A small linear congruential generator: the tests need no quality, only variety.
    struct Random(u64);
    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((self.0 >> 33) as usize) % n
        }
    }

    fn random_graph(r: &mut Random, n: usize) -> ForwardGraph {
        let mut g = ForwardGraph::default();
        for i in 0..n {
            let mut users = vec![];
            if i + 1 < n {
                for _ in 0..1 + r.below(3) {
                    let span = (n - i - 1).min(1 + r.below(8));
                    users.push((i + 1 + r.below(span), KINDS[r.below(5)]));
                }
            }
            let escapes = i + 1 == n || r.below(12) == 0;
            let source = Source::Node(NodeId::from_index(i));
            g.nodes.push(ForwardNode { source, kind: KINDS[r.below(5)], users, escapes });
        }
        g
    }

    /// Reaches an escape from `from` without passing through `avoid`.
    fn escapes_without(g: &ForwardGraph, from: usize, avoid: usize) -> bool {
        if from == avoid {
            return false;
        }
        let node = &g.nodes[from];
        node.escapes || node.users.is_empty() || node.users.iter().any(|u| escapes_without(g, u.0, avoid))
    }

    /// Largest edge kind on any path from `from` to `to`.
    fn largest(g: &ForwardGraph, from: usize, to: usize) -> FusionKind {
        let mut best = FusionKind::Elementwise;
        for &(u, k) in g.nodes[from].users.iter().filter(|_| from != to) {
            best = best.max(k).max(largest(g, u, to));
        }
        best
    }

    #[test]
    fn agrees_with_brute_force_on_random_dags() {
        let mut r = Random(7);
        for round in 0..300 {
            let g = random_graph(&mut r, 2 + round % 14);
            let tree = PostDominators::new(&g);
            for i in 0..g.nodes.len() {
                let want = (i + 1..g.nodes.len()).find(|&d| !escapes_without(&g, i, d));
                assert_eq!(tree.parent(i).map(|p| p.0), want, "round {round}, node {i} of {g:?}");
                if let Some((p, kind)) = tree.parent(i) {
                    assert_eq!(kind, largest(&g, i, p), "round {round}, node {i} of {g:?}");
                }
            }
        }
    }

    #[test]
    fn long_chains_with_skips_are_fast() {
        let n = 200_000;
        let mut g = ForwardGraph::default();
        for i in 0..n {
            let mut users = vec![];
            if i + 1 < n {
                users.push((i + 1, FusionKind::Elementwise));
                users.push((n - 1, FusionKind::Broadcast));
            }
            let source = Source::Node(NodeId::from_index(i));
            g.nodes.push(ForwardNode { source, kind: FusionKind::Elementwise, users, escapes: i + 1 == n });
        }
        let tree = PostDominators::new(&g);
        assert_eq!(tree.parent(0), Some((n - 1, FusionKind::Broadcast)));
    }
}
