//! Places across the layers: U. Brandes and B. Koepf, *Fast and Simple Horizontal Coordinate Assignment* (2001).
//!
//! Vertices are aligned with a middle neighbour of the layer before into vertical blocks, in four ways (from the top or
//! the bottom, leftmost or rightmost first); each way is compacted; a vertex's place is the mean of the two middle ones
//! of its four. Long edges stay straight, since an edge between two bends has priority over others. Blocks are
//! compacted by longest paths in the graph of blocks, first as far left as possible and then towards the next blocks.
//! This avoids the error in the paper's compaction that its authors' erratum (2020) describes.

use super::Layered;
use rustc_hash::FxHashSet;

const NONE: usize = usize::MAX;

/// The place across of the middle of each vertex.
pub(super) fn across(l: &Layered, gap: f32) -> Vec<f32> {
    let at = l.positions();
    let conflicts = conflicts(l, &at);
    let mut ways: Vec<Vec<f32>> = Vec::with_capacity(4);
    for upward in [false, true] {
        for rightmost in [false, true] {
            let root = align(l, &at, &conflicts, upward, rightmost);
            ways.push(compact(l, &root, gap, rightmost));
        }
    }
    balance(l, &mut ways)
}

/// Edges, as (upper, lower), that cross an edge between two bends: they give way.
fn conflicts(l: &Layered, at: &[usize]) -> FxHashSet<(usize, usize)> {
    let mut out = FxHashSet::default();
    for pair in l.layers.windows(2) {
        let (mut left, mut scanned) = (0, 0);
        for (i, &v) in pair[1].iter().enumerate() {
            let inner = inner_upper(l, v);
            if inner.is_none() && i + 1 < pair[1].len() {
                continue;
            }
            let right = inner.map_or(pair[0].len(), |u| at[u]);
            for &w in &pair[1][scanned..=i] {
                for &u in &l.above[w] {
                    let outside = at[u] < left || at[u] > right;
                    if outside && !(l.is_bend(u) && l.is_bend(w)) {
                        out.insert((u, w));
                    }
                }
            }
            (scanned, left) = (i + 1, right);
        }
    }
    out
}

/// The bend above a bend.
fn inner_upper(l: &Layered, v: usize) -> Option<usize> {
    let up = *l.above[v].first()?;
    (l.is_bend(v) && l.is_bend(up)).then_some(up)
}

/// The topmost (or bottommost) vertex of each vertex's block.
fn align(
    l: &Layered,
    at: &[usize],
    conflicts: &FxHashSet<(usize, usize)>,
    upward: bool,
    rightmost: bool,
) -> Vec<usize> {
    let count = l.widths.len();
    let mut root: Vec<usize> = (0..count).collect();
    let mut taken = vec![false; count];
    let depth = l.layers.len();
    let mut sorted = Vec::new();
    for step in 1..depth {
        let layer = &l.layers[if upward { depth - 1 - step } else { step }];
        // The last neighbour taken; the next one has to be beyond it.
        let mut limit = NONE;
        for n in 0..layer.len() {
            let v = layer[if rightmost { layer.len() - 1 - n } else { n }];
            let near = if upward { &l.below[v] } else { &l.above[v] };
            if near.is_empty() {
                continue;
            }
            sorted.clear();
            sorted.extend_from_slice(near);
            sorted.sort_by_key(|&w| at[w]);
            let (low, high) = ((sorted.len() - 1) / 2, sorted.len() / 2);
            for m in if rightmost { [high, low] } else { [low, high] } {
                let u = sorted[m];
                let beyond = limit == NONE || if rightmost { at[u] < limit } else { at[u] > limit };
                let edge = if upward { (v, u) } else { (u, v) };
                if !taken[u] && root[v] == v && beyond && !conflicts.contains(&edge) {
                    taken[u] = true;
                    root[v] = root[u];
                    limit = at[u];
                }
            }
        }
    }
    root
}

/// Places of the vertices when blocks are packed to the left (or to the right).
fn compact(l: &Layered, root: &[usize], gap: f32, rightmost: bool) -> Vec<f32> {
    let count = root.len();
    // Edges between blocks: minimal distances to the right.
    let mut after: Vec<Vec<(usize, f32)>> = vec![vec![]; count];
    let mut missing = vec![0; count];
    for layer in &l.layers {
        for pair in layer.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            // Two bends of one value may stand nearer to each other than boxes.
            let free = if l.is_bend(a) && l.is_bend(b) { gap / 2.0 } else { gap };
            let apart = (l.widths[a] + l.widths[b]) / 2.0 + free;
            after[root[a]].push((root[b], apart));
            missing[root[b]] += 1;
        }
    }
    let mut order: Vec<usize> = (0..count).filter(|&v| root[v] == v && missing[v] == 0).collect();
    let mut x = vec![0.0f32; count];
    let mut next = 0;
    while next < order.len() {
        let v = order[next];
        next += 1;
        for &(w, apart) in &after[v] {
            x[w] = x[w].max(x[v] + apart);
            missing[w] -= 1;
            if missing[w] == 0 {
                order.push(w);
            }
        }
    }
    let end = order.iter().map(|&v| x[v]).fold(0.0, f32::max);
    for &v in order.iter().rev() {
        let room = after[v].iter().map(|&(w, apart)| x[w] - apart).fold(f32::INFINITY, f32::min);
        if room.is_finite() {
            x[v] = x[v].max(room);
        } else if rightmost {
            x[v] = end;
        }
    }
    (0..count).map(|v| x[root[v]]).collect()
}

/// Moves the four ways over each other, and takes the mean of the two middle places of each vertex.
fn balance(l: &Layered, ways: &mut [Vec<f32>]) -> Vec<f32> {
    let edge = |way: &[f32], right: bool| {
        let side = if right { 0.5 } else { -0.5 };
        let ends = (0..way.len()).map(|v| way[v] + side * l.widths[v]);
        if right { ends.fold(f32::NEG_INFINITY, f32::max) } else { ends.fold(f32::INFINITY, f32::min) }
    };
    let spans: Vec<[f32; 2]> = ways.iter().map(|w| [edge(w, false), edge(w, true)]).collect();
    let Some(narrow) = spans.iter().copied().min_by(|a, b| (a[1] - a[0]).total_cmp(&(b[1] - b[0]))) else {
        return vec![];
    };
    for (i, way) in ways.iter_mut().enumerate() {
        // Ways with the rightmost first are aligned at the right.
        let side = i % 2;
        let shift = narrow[side] - spans[i][side];
        way.iter_mut().for_each(|x| *x += shift);
    }
    (0..l.widths.len())
        .map(|v| {
            let mut four: Vec<f32> = ways.iter().map(|w| w[v]).collect();
            four.sort_by(f32::total_cmp);
            (four[1] + four[2]) / 2.0
        })
        .collect()
}
