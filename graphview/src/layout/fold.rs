//! Arranges a long picture in columns, since a network is much higher than a page.
//!
//! The layers are cut where few edges cross. The number of columns is the one whose proportions are nearest to the
//! requested ones. Edges over a cut become portals.

use super::{Graph, GraphLayout, Route};

/// Free space between columns, in gaps between vertices.
const GUTTER: f32 = 3.0;
/// Most columns.
const MOST: usize = 24;

/// The extents of the layers.
struct Bands {
    /// Upper and lower side of each layer.
    high: Vec<[f32; 2]>,
    /// Left and right ends of the vertices and edges in each layer.
    wide: Vec<[f32; 2]>,
    /// Edges between each layer and the next.
    crossing: Vec<usize>,
}

/// Folds `laid`; `aspect` is the width of the page for a height of 1.
pub(super) fn fold(graph: &Graph, laid: GraphLayout, aspect: f32, gap: f32) -> GraphLayout {
    let bands = bands(graph, &laid);
    let layers = bands.high.len();
    let best = (1..=MOST.min(layers.max(1)))
        .map(|count| cuts(&bands, count, laid.size[1]))
        .min_by(|a, b| scale(&bands, a, aspect, gap).total_cmp(&scale(&bands, b, aspect, gap)));
    match best {
        Some(starts) if starts.len() > 1 => apply(graph, laid, &bands, &starts, gap),
        _ => laid,
    }
}

fn bands(graph: &Graph, laid: &GraphLayout) -> Bands {
    let layers = laid.ranks.iter().max().map_or(0, |r| r + 1);
    let empty = [f32::INFINITY, f32::NEG_INFINITY];
    let mut b = Bands { high: vec![empty; layers], wide: vec![empty; layers], crossing: vec![0; layers] };
    for (v, &r) in laid.ranks.iter().enumerate() {
        for (axis, band) in [(1, &mut b.high[r]), (0, &mut b.wide[r])] {
            let (middle, half) = (laid.centers[v][axis], graph.sizes[v][axis] / 2.0);
            *band = [band[0].min(middle - half), band[1].max(middle + half)];
        }
    }
    for (&(from, to), route) in graph.edges.iter().zip(&laid.routes) {
        let (first, last) = (laid.ranks[from], laid.ranks[to]);
        if matches!(route, Route::Portal(..)) {
            continue;
        }
        (first..last).for_each(|r| b.crossing[r] += 1);
        if let Route::Line(points) = route {
            for r in first + 1..last {
                let inside = |p: &&[f32; 2]| p[1] >= b.high[r][0] - 0.5 && p[1] <= b.high[r][1] + 0.5;
                for p in points.iter().filter(inside) {
                    b.wide[r] = [b.wide[r][0].min(p[0]), b.wide[r][1].max(p[0])];
                }
            }
        }
    }
    b
}

/// The first layer of each of `count` columns of about the same height, cut where few edges cross.
fn cuts(b: &Bands, count: usize, height: f32) -> Vec<usize> {
    let goal = height / count as f32;
    let mut starts = vec![0];
    for k in 1..count {
        let at = goal * k as f32;
        let last = starts.last().copied().unwrap_or(0);
        let near = (last + 1..b.high.len()).filter(|&r| (b.high[r][0] - at).abs() <= goal * 0.25);
        let price = |r: usize| b.crossing[r - 1] as f32 + (b.high[r][0] - at).abs() / goal;
        if let Some(r) = near.min_by(|&x, &y| price(x).total_cmp(&price(y))) {
            starts.push(r);
        }
    }
    starts
}

/// Left and right, upper and lower side of each column.
fn columns(b: &Bands, starts: &[usize]) -> Vec<[[f32; 2]; 2]> {
    let ends = starts.iter().skip(1).copied().chain([b.high.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(&first, end)| {
            let wide = b.wide[first..end]
                .iter()
                .fold([f32::INFINITY, f32::NEG_INFINITY], |a, w| [a[0].min(w[0]), a[1].max(w[1])]);
            [wide, [b.high[first][0], b.high[end - 1][1]]]
        })
        .collect()
}

/// How much the folded picture has to shrink to fit a page of height 1.
fn scale(b: &Bands, starts: &[usize], aspect: f32, gap: f32) -> f32 {
    let columns = columns(b, starts);
    let wide: f32 = columns.iter().map(|c| c[0][1] - c[0][0] + GUTTER * gap).sum::<f32>() - GUTTER * gap;
    let high = columns.iter().map(|c| c[1][1] - c[1][0]).fold(0.0, f32::max);
    (wide / aspect).max(high)
}

fn apply(graph: &Graph, mut laid: GraphLayout, b: &Bands, starts: &[usize], gap: f32) -> GraphLayout {
    let columns = columns(b, starts);
    let column_of = |rank: usize| starts.partition_point(|&s| s <= rank) - 1;
    let mut left = 0.0;
    let shifts: Vec<[f32; 2]> = columns
        .iter()
        .map(|[wide, high]| {
            let shift = [left - wide[0], -high[0]];
            left += wide[1] - wide[0] + GUTTER * gap;
            shift
        })
        .collect();
    let moved = |p: [f32; 2], column: usize| [p[0] + shifts[column][0], p[1] + shifts[column][1]];
    for (i, route) in laid.routes.iter_mut().enumerate() {
        let (from, to) = graph.edges[i];
        let (a, z) = (column_of(laid.ranks[from]), column_of(laid.ranks[to]));
        *route = match route {
            Route::Line(points) if a == z => Route::Line(points.iter().map(|p| moved(*p, a)).collect()),
            Route::Line(points) => Route::Portal(moved(points[0], a), moved(points[points.len() - 1], z)),
            Route::Portal(p, q) => Route::Portal(moved(*p, a), moved(*q, z)),
        };
    }
    for (v, center) in laid.centers.iter_mut().enumerate() {
        *center = moved(*center, column_of(laid.ranks[v]));
    }
    let high = columns.iter().map(|c| c[1][1] - c[1][0]).fold(0.0, f32::max);
    laid.size = [left - GUTTER * gap, high];
    laid
}
