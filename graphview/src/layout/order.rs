//! The order of vertices in their layers: sweeps down and up that sort each layer by the middle of its neighbours in
//! the layer before (the barycenter heuristic of Sugiyama, Tagawa and Toda). The best order is kept. Crossings are
//! counted as Barth, Juenger and Mutzel do (2002), in `edges * log(layer)`.

use super::Layered;
use rustc_hash::FxHashMap;

/// Sorts the layers, starting with the positions of a previous picture if there are any.
pub(super) fn sort(l: &mut Layered, before: &[Option<f32>], sweeps: usize) {
    start_depth_first(l);
    if before.iter().any(Option::is_some) {
        start_as_before(l, before);
    }
    let mut best = (crossings(l), l.layers.clone());
    let mut idle = 0;
    for sweep in 0..sweeps {
        if best.0 == 0 || idle == 3 {
            break;
        }
        let down = sweep % 2 == 0;
        let count = l.layers.len();
        for i in 1..count {
            let layer = if down { i } else { count - 1 - i };
            sort_layer(l, layer, down);
        }
        let now = crossings(l);
        idle += 1;
        if now < best.0 {
            best = (now, l.layers.clone());
            idle = 0;
        }
    }
    l.layers = best.1;
}

/// The initial order of a depth-first walk from the top, which keeps connected vertices together.
fn start_depth_first(l: &mut Layered) {
    let mut seen = vec![false; l.widths.len()];
    let mut number = vec![0; l.widths.len()];
    let mut next = 0;
    for layer in 0..l.layers.len() {
        for i in 0..l.layers[layer].len() {
            let mut stack = vec![l.layers[layer][i]];
            while let Some(v) = stack.pop() {
                if std::mem::replace(&mut seen[v], true) {
                    continue;
                }
                number[v] = next;
                next += 1;
                stack.extend(l.below[v].iter().rev().filter(|&&w| !seen[w]));
            }
        }
    }
    for layer in &mut l.layers {
        layer.sort_by_key(|&v| number[v]);
    }
}

/// The initial order of a previous picture; new vertices and bends take the position of their predecessor.
fn start_as_before(l: &mut Layered, before: &[Option<f32>]) {
    let mut x: Vec<Option<f32>> = (0..l.widths.len()).map(|v| before.get(v).copied().flatten()).collect();
    let mean = |x: &[Option<f32>], near: &[usize]| {
        let known: Vec<f32> = near.iter().filter_map(|&v| x[v]).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f32>() / known.len() as f32)
    };
    for layer in &l.layers {
        for &v in layer {
            x[v] = x[v].or_else(|| mean(&x, &l.above[v]));
        }
    }
    for layer in l.layers.iter_mut().rev() {
        for &v in layer.iter() {
            x[v] = x[v].or_else(|| mean(&x, &l.below[v]));
        }
        // Those without any place keep that of the walk relative to their neighbours in the layer.
        let mut last = f32::NEG_INFINITY;
        let places: FxHashMap<usize, f32> = layer
            .iter()
            .map(|&v| {
                last = x[v].unwrap_or(last);
                (v, last)
            })
            .collect();
        layer.sort_by(|a, b| places[a].total_cmp(&places[b]));
    }
}

/// Sorts one layer by its neighbours above (or below). A vertex without neighbours keeps its place.
fn sort_layer(l: &mut Layered, layer: usize, down: bool) {
    let fixed = if down { layer.checked_sub(1) } else { Some(layer + 1) };
    let Some(fixed) = fixed.and_then(|f| l.layers.get(f)) else { return };
    let mut at = FxHashMap::default();
    at.extend(fixed.iter().enumerate().map(|(i, &v)| (v, i)));
    let list = std::mem::take(&mut l.layers[layer]);
    let key = |v: usize| -> Option<f32> {
        let near = if down { &l.above[v] } else { &l.below[v] };
        let sum: usize = near.iter().filter_map(|w| at.get(w)).sum();
        (!near.is_empty()).then(|| sum as f32 / near.len() as f32)
    };
    let keys: Vec<Option<f32>> = list.iter().map(|&v| key(v)).collect();
    let mut movable: Vec<usize> = (0..list.len()).filter(|&i| keys[i].is_some()).collect();
    movable.sort_by(|&a, &b| keys[a].unwrap_or(0.0).total_cmp(&keys[b].unwrap_or(0.0)));
    let mut movable = movable.into_iter();
    let sorted =
        (0..list.len()).filter_map(|i| if keys[i].is_some() { movable.next() } else { Some(i) }).map(|i| list[i]);
    l.layers[layer] = sorted.collect();
}

/// Crossings between all neighbouring layers.
pub(super) fn crossings(l: &Layered) -> u64 {
    let at = l.positions();
    l.layers.windows(2).map(|pair| crossings_between(l, &at, &pair[0], pair[1].len())).sum()
}

fn crossings_between(l: &Layered, at: &[usize], upper: &[usize], width: usize) -> u64 {
    let mut tree = vec![0u64; width + 1];
    let (mut crossings, mut total) = (0, 0);
    let mut ends = Vec::new();
    for &v in upper {
        ends.clear();
        ends.extend(l.below[v].iter().map(|&w| at[w]));
        // Edges of one vertex do not cross: all are counted before any is entered.
        for &end in &ends {
            crossings += total - sum(&tree, end + 1);
        }
        for &end in &ends {
            add(&mut tree, end);
            total += 1;
        }
    }
    crossings
}

fn sum(tree: &[u64], mut count: usize) -> u64 {
    let mut s = 0;
    while count > 0 {
        s += tree[count];
        count &= count - 1;
    }
    s
}

fn add(tree: &mut [u64], at: usize) {
    let mut i = at + 1;
    while i < tree.len() {
        tree[i] += 1;
        i += i & i.wrapping_neg();
    }
}
