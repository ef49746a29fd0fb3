//! Layered layout of a directed acyclic graph, from top to bottom.
//!
//! The steps are those of Sugiyama, Tagawa and Toda (1981): `rank` gives each vertex a layer, long edges get one bend a
//! layer, `order` sorts the layers so that few edges cross, `coordinates` gives places across (Brandes and Koepf,
//! 2001). Time goes into the bends of long edges, not into vertices: an edge over more than [`Options::longest`] layers
//! is cut, and drawn as a pair of labelled stubs (a *portal*) instead.
//!
//! Always holds: vertices do not overlap; every edge except portals goes down (or right); the same graph gives the same
//! picture.
//!
//! Deliberately absent: cycles (a graph of operations has none) and nested boxes. For regions, lay out the inner graph
//! first, and use its size as the size of a vertex.

mod coordinates;
mod fold;
mod order;
mod rank;

use coordinates::across;

/// A directed acyclic graph of boxes.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Width and height of each vertex.
    pub sizes: Vec<[f32; 2]>,
    /// Edges from a vertex to a later one in the graph's order; the same pair may stand here several times.
    pub edges: Vec<(usize, usize)>,
    /// Positions across of the vertices in a previous picture that this one should resemble, as the initial order of
    /// layers. Empty without such a picture.
    pub before: Vec<Option<f32>>,
}

/// Where edges go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Direction {
    /// From top to bottom.
    #[default]
    Down,
    /// From left to right.
    Right,
}
impl Direction {
    /// The point for one of a picture that goes down, and back.
    pub fn turn(self, [x, y]: [f32; 2]) -> [f32; 2] {
        match self {
            Direction::Down => [x, y],
            Direction::Right => [y, x],
        }
    }
}

/// Distances, and how long an edge may be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Free space between neighbours of a layer.
    pub gap: f32,
    /// Free space between layers.
    pub layer_gap: f32,
    /// Layers that an edge may span before it becomes a portal.
    pub longest: usize,
    /// Edges out of one vertex that may be longer than one layer before the rest become portals.
    pub most_long: usize,
    /// How often the layers are sorted down and up again.
    pub sweeps: usize,
    /// Fold the layers into columns (rows, if edges go right) for a page of this width and height 1.
    pub fold: Option<f32>,
    /// The direction of edges. Up, down and across are described for edges that go down.
    pub direction: Direction,
}
impl Default for Options {
    fn default() -> Self {
        Options {
            gap: 24.0,
            layer_gap: 36.0,
            longest: 24,
            most_long: 6,
            sweeps: 6,
            fold: None,
            direction: Direction::Down,
        }
    }
}

/// How an edge is drawn.
#[derive(Clone, PartialEq, Debug)]
pub enum Route {
    /// Through these points, the first on the lower side of its source and the last on the upper side of its target.
    Line(Vec<[f32; 2]>),
    /// As two stubs: it leaves its source at the first point, and enters its target at the second.
    Portal([f32; 2], [f32; 2]),
}

/// How far beyond its box a stub of a portal reaches.
pub const STUB: f32 = 10.0;

impl Route {
    /// Straight pieces that run along the drawn line: several for each curve between layers.
    pub fn pieces(points: &[[f32; 2]], direction: Direction) -> Vec<[f32; 2]> {
        const STEPS: u8 = 8;
        let mut out: Vec<[f32; 2]> = points.first().copied().into_iter().collect();
        for pair in points.windows(2) {
            let ([x0, y0], [x1, y1]) = (direction.turn(pair[0]), direction.turn(pair[1]));
            if (x0 - x1).abs() < 0.05 {
                out.push(pair[1]);
                continue;
            }
            // The cubic curve whose inner points lie half way along: across it follows 3t^2 - 2t^3.
            for step in 1..=STEPS {
                let t = f32::from(step) / f32::from(STEPS);
                let along = y0 + (y1 - y0) * (1.5 * t * (1.0 - t) + t * t * t);
                let across = x0 + (x1 - x0) * t * t * (3.0 - 2.0 * t);
                out.push(direction.turn([across, along]));
            }
        }
        out
    }
    /// The distance of a point from the drawn line, if it is at most `reach`.
    pub fn distance(&self, point: [f32; 2], direction: Direction, reach: f32) -> Option<f32> {
        let stub = |p: [f32; 2], by: f32| {
            let [x, y] = direction.turn(p);
            [p, direction.turn([x, y + by])]
        };
        let least = match self {
            Route::Line(points) => {
                let inside = |axis: usize| {
                    let ends = points
                        .iter()
                        .fold([f32::INFINITY, f32::NEG_INFINITY], |e, p| [e[0].min(p[axis]), e[1].max(p[axis])]);
                    (ends[0] - reach..=ends[1] + reach).contains(&point[axis])
                };
                if !(inside(0) && inside(1)) {
                    return None;
                }
                let pieces = Route::pieces(points, direction);
                pieces.windows(2).map(|p| to_segment(point, p[0], p[1])).fold(f32::INFINITY, f32::min)
            }
            Route::Portal(a, b) => {
                let [a, b] = [stub(*a, STUB), stub(*b, -STUB)];
                to_segment(point, a[0], a[1]).min(to_segment(point, b[0], b[1]))
            }
        };
        (least <= reach).then_some(least)
    }
}

/// The distance of `p` from the line between `a` and `b`.
fn to_segment(p: [f32; 2], a: [f32; 2], b: [f32; 2]) -> f32 {
    let (ab, ap) = ([b[0] - a[0], b[1] - a[1]], [p[0] - a[0], p[1] - a[1]]);
    let length = ab[0] * ab[0] + ab[1] * ab[1];
    let t = if length > 0.0 { ((ap[0] * ab[0] + ap[1] * ab[1]) / length).clamp(0.0, 1.0) } else { 0.0 };
    (ap[0] - t * ab[0]).hypot(ap[1] - t * ab[1])
}

/// A graph with places.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct GraphLayout {
    /// The middle of each vertex.
    pub centers: Vec<[f32; 2]>,
    /// The layer of each vertex.
    pub ranks: Vec<usize>,
    /// One for each edge.
    pub routes: Vec<Route>,
    /// Width and height of everything; the upper left corner is at the origin.
    pub size: [f32; 2],
}

/// The graph with one vertex for each layer that an edge crosses, and only edges between neighbouring layers.
pub(crate) struct Layered {
    /// Vertices of the graph; those behind them are bends.
    pub(crate) real: usize,
    /// Vertices of each layer, from left to right.
    pub(crate) layers: Vec<Vec<usize>>,
    /// Neighbours in the layer above, in the order of the edges.
    pub(crate) above: Vec<Vec<usize>>,
    /// Neighbours in the layer below.
    pub(crate) below: Vec<Vec<usize>>,
    /// Widths.
    pub(crate) widths: Vec<f32>,
}
impl Layered {
    /// Whether a vertex is a bend of an edge.
    pub(crate) fn is_bend(&self, v: usize) -> bool {
        v >= self.real
    }
    /// The place of each vertex in its layer.
    pub(crate) fn positions(&self) -> Vec<usize> {
        let mut at = vec![0; self.widths.len()];
        for layer in &self.layers {
            layer.iter().enumerate().for_each(|(i, &v)| at[v] = i);
        }
        at
    }
}

/// An edge through the layers: its bends, or nothing for a portal.
enum Way {
    Through(Vec<usize>),
    Cut,
}

/// Lays `graph` out. Edges that go backwards in the order of vertices' layers cannot be: they are taken as portals.
pub fn layout(graph: &Graph, options: &Options) -> GraphLayout {
    if options.direction == Direction::Down {
        return layout_down(graph, options);
    }
    let turn = |p: &[f32; 2]| options.direction.turn(*p);
    let turned = Graph { sizes: graph.sizes.iter().map(turn).collect(), ..graph.clone() };
    let fold = options.fold.map(|aspect| 1.0 / aspect);
    let down = layout_down(&turned, &Options { fold, direction: Direction::Down, ..*options });
    let route = |r: &Route| match r {
        Route::Line(points) => Route::Line(points.iter().map(turn).collect()),
        Route::Portal(a, b) => Route::Portal(turn(a), turn(b)),
    };
    GraphLayout {
        centers: down.centers.iter().map(turn).collect(),
        routes: down.routes.iter().map(route).collect(),
        size: turn(&down.size),
        ranks: down.ranks,
    }
}

fn layout_down(graph: &Graph, options: &Options) -> GraphLayout {
    let ranks = rank::ranks(graph.sizes.len(), &graph.edges);
    let (mut layered, ways) = insert_bends(graph, &ranks, options);
    order::sort(&mut layered, &graph.before, options.sweeps);
    let x = across(&layered, options.gap);
    let laid = place(graph, options, ranks, &layered, &ways, &x);
    match options.fold {
        Some(aspect) => fold::fold(graph, laid, aspect, options.gap),
        None => laid,
    }
}

fn insert_bends(graph: &Graph, ranks: &[usize], options: &Options) -> (Layered, Vec<Way>) {
    let real = graph.sizes.len();
    let depth = ranks.iter().max().map_or(0, |r| r + 1);
    let mut layers = vec![Vec::new(); depth];
    (0..real).for_each(|v| layers[ranks[v]].push(v));
    let mut l = Layered {
        real,
        layers,
        above: vec![vec![]; real],
        below: vec![vec![]; real],
        widths: graph.sizes.iter().map(|s| s[0]).collect(),
    };
    let mut long = vec![0; real];
    let mut ways = Vec::with_capacity(graph.edges.len());
    for &(from, to) in &graph.edges {
        let span = ranks[to].saturating_sub(ranks[from]);
        long[from] += usize::from(span > 1);
        if span == 0 || span > options.longest || (span > 1 && long[from] > options.most_long) {
            ways.push(Way::Cut);
            continue;
        }
        let mut bends = Vec::with_capacity(span - 1);
        let mut last = from;
        for layer in &mut l.layers[ranks[from] + 1..ranks[to]] {
            let bend = l.widths.len();
            layer.push(bend);
            l.widths.push(0.0);
            l.above.push(vec![last]);
            l.below.push(vec![]);
            l.below[last].push(bend);
            bends.push(bend);
            last = bend;
        }
        l.below[last].push(to);
        l.above[to].push(last);
        ways.push(Way::Through(bends));
    }
    (l, ways)
}

fn place(graph: &Graph, options: &Options, ranks: Vec<usize>, l: &Layered, ways: &[Way], x: &[f32]) -> GraphLayout {
    let mut middles = Vec::with_capacity(l.layers.len());
    let mut heights = Vec::with_capacity(l.layers.len());
    let mut y = 0.0;
    for layer in &l.layers {
        let height = layer.iter().filter(|&&v| !l.is_bend(v)).map(|&v| graph.sizes[v][1]).fold(0.0, f32::max);
        middles.push(y + height / 2.0);
        heights.push(height);
        y += height + options.layer_gap;
    }
    let left = (0..l.widths.len()).map(|v| x[v] - l.widths[v] / 2.0).fold(f32::INFINITY, f32::min);
    let right = (0..l.widths.len()).map(|v| x[v] + l.widths[v] / 2.0).fold(f32::NEG_INFINITY, f32::max);
    let centers: Vec<[f32; 2]> = (0..l.real).map(|v| [x[v] - left, middles[ranks[v]]]).collect();
    let lower = |v: usize| [centers[v][0], centers[v][1] + graph.sizes[v][1] / 2.0];
    let upper = |v: usize| [centers[v][0], centers[v][1] - graph.sizes[v][1] / 2.0];
    // An edge runs straight beside a box that is much higher than its own.
    let beside = |v: usize| (heights[ranks[v]] - graph.sizes[v][1]) / 2.0 > options.layer_gap / 2.0;
    let border = |v: usize, side: f32| [centers[v][0], middles[ranks[v]] + side * heights[ranks[v]] / 2.0];
    let routes = graph.edges.iter().zip(ways).map(|(&(from, to), way)| match way {
        Way::Cut => Route::Portal(lower(from), upper(to)),
        Way::Through(bends) => {
            let mut points = vec![lower(from)];
            points.extend(beside(from).then(|| border(from, 1.0)));
            for (i, &b) in bends.iter().enumerate() {
                let layer = ranks[from] + 1 + i;
                // A bend passes its layer straight, beside the boxes of it.
                let half = heights[layer] / 2.0;
                points.push([x[b] - left, middles[layer] - half]);
                points.push([x[b] - left, middles[layer] + half]);
            }
            points.extend(beside(to).then(|| border(to, -1.0)));
            points.push(upper(to));
            Route::Line(points)
        }
    });
    let routes = routes.collect();
    let size = if l.real == 0 { [0.0, 0.0] } else { [right - left, y - options.layer_gap] };
    GraphLayout { centers, ranks, routes, size }
}

#[cfg(test)]
mod tests;
