//! Layers of vertices.

use std::collections::VecDeque;

/// The layer of each vertex: below all predecessors. If a vertex has more outgoing than incoming edges, it is as near
/// as possible to its successors (a value made early and used late is drawn where it is used). Back edges of a cycle
/// are ignored.
pub(super) fn ranks(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let (after, before) = neighbours(count, edges);
    let order = topological(&after, &before);
    let mut place = vec![usize::MAX; count];
    order.iter().enumerate().for_each(|(i, &v)| place[v] = i);
    let mut rank = vec![0; count];
    for &v in &order {
        for &w in after[v].iter().filter(|&&w| place[w] > place[v]) {
            rank[w] = rank[w].max(rank[v] + 1);
        }
    }
    for &v in order.iter().rev() {
        let followers = || after[v].iter().filter(|&&w| place[w] > place[v]);
        if after[v].len() > before[v].len()
            && let Some(nearest) = followers().map(|&w| rank[w]).min()
        {
            rank[v] = rank[v].max(nearest - 1);
        }
    }
    rank
}

type Lists = Vec<Vec<usize>>;

fn neighbours(count: usize, edges: &[(usize, usize)]) -> (Lists, Lists) {
    let (mut after, mut before) = (vec![vec![]; count], vec![vec![]; count]);
    for &(from, to) in edges.iter().filter(|(from, to)| from != to) {
        after[from].push(to);
        before[to].push(from);
    }
    (after, before)
}

/// Kahn's order; vertices of a cycle come last, in the order in which they are given.
fn topological(after: &Lists, before: &Lists) -> Vec<usize> {
    let mut missing: Vec<usize> = before.iter().map(Vec::len).collect();
    let mut ready: VecDeque<usize> = (0..missing.len()).filter(|&v| missing[v] == 0).collect();
    let mut order = Vec::with_capacity(missing.len());
    let mut done = vec![false; missing.len()];
    while let Some(v) = ready.pop_front() {
        done[v] = true;
        order.push(v);
        for &w in &after[v] {
            missing[w] -= 1;
            if missing[w] == 0 {
                ready.push_back(w);
            }
        }
    }
    order.extend((0..done.len()).filter(|&v| !done[v]));
    order
}
