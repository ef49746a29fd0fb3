//! Which boxes and edges of a scene are near a place: a grid of cells, so that nobody looks at all of them.

use crate::layout::{Direction, Route, STUB};
use crate::scene::Scene;

/// Least side of a cell: a box and the space around it.
const LEAST: f32 = 300.0;

/// A grid over a scene.
#[derive(Default)]
pub struct Near {
    side: f32,
    columns: usize,
    rows: usize,
    boxes: Vec<Vec<u32>>,
    edges: Vec<Vec<u32>>,
    captions: Vec<Vec<u32>>,
}

/// A rectangle by its corners: left, top, right, bottom.
type Corners = [f32; 4];

impl Near {
    /// Of a scene.
    pub fn of(scene: &Scene) -> Near {
        let [width, height] = scene.size.map(|s| s.max(1.0));
        let count = (scene.boxes.len() + scene.edges.len() + 1) as f32;
        // About as many cells as there are things.
        let side = (width * height / count).sqrt().max(LEAST);
        let [columns, rows] = [width, height].map(|s| (s / side) as usize + 1);
        let empty = || vec![Vec::new(); columns * rows];
        let mut near = Near { side, columns, rows, boxes: empty(), edges: empty(), captions: empty() };
        for (i, b) in scene.boxes.iter().enumerate() {
            let [x, y, w, h] = b.rect;
            near.cells([x, y, x + w, y + h]).into_iter().for_each(|c| near.boxes[c].push(i as u32));
        }
        for (i, e) in scene.edges.iter().enumerate() {
            for part in parts(&e.route, scene.direction) {
                near.cells(part).into_iter().for_each(|c| near.edges[c].push(i as u32));
            }
        }
        for (i, c) in scene.captions.iter().enumerate() {
            let [x, y] = c.at;
            near.cells([x, y, x, y]).into_iter().for_each(|cell| near.captions[cell].push(i as u32));
        }
        near
    }
    /// The cells that a rectangle touches.
    fn cells(&self, [left, top, right, bottom]: Corners) -> Vec<usize> {
        let at = |x: f32, count: usize| ((x / self.side).max(0.0) as usize).min(count - 1);
        let across = at(left, self.columns)..=at(right, self.columns);
        let down = at(top, self.rows)..=at(bottom, self.rows);
        down.flat_map(|row| across.clone().map(move |column| row * self.columns + column)).collect()
    }
    fn found(&self, lists: &[Vec<u32>], corners: Corners) -> Vec<usize> {
        if lists.is_empty() {
            return vec![];
        }
        let mut out: Vec<usize> =
            self.cells(corners).into_iter().flat_map(|c| &lists[c]).map(|&i| i as usize).collect();
        out.sort_unstable();
        out.dedup();
        out
    }
    /// Boxes that may touch a rectangle, given by left, top, right and bottom, in the order of the scene.
    pub fn boxes(&self, corners: [f32; 4]) -> Vec<usize> {
        self.found(&self.boxes, corners)
    }
    /// Edges that may touch it.
    pub fn edges(&self, corners: [f32; 4]) -> Vec<usize> {
        self.found(&self.edges, corners)
    }
    /// Captions that may touch it.
    pub fn captions(&self, corners: [f32; 4]) -> Vec<usize> {
        self.found(&self.captions, corners)
    }
    /// Index of the innermost box at a point.
    pub fn box_at(&self, scene: &Scene, [px, py]: [f32; 2]) -> Option<usize> {
        let inside = |i: &usize| {
            let [x, y, w, h] = scene.boxes[*i].rect;
            (x..=x + w).contains(&px) && (y..=y + h).contains(&py)
        };
        self.boxes([px, py, px, py]).into_iter().filter(inside).max_by_key(|&i| scene.boxes[i].depth)
    }
    /// Index of the edge that passes a point within `reach`, the nearest of them.
    pub fn edge_at(&self, scene: &Scene, [x, y]: [f32; 2], reach: f32) -> Option<usize> {
        let all = self.edges([x - reach, y - reach, x + reach, y + reach]);
        let near = |i: usize| Some((i, scene.edges[i].route.distance([x, y], scene.direction, reach)?));
        all.into_iter().filter_map(near).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i)
    }
}

/// The rectangles that a route covers: the pieces of a line, the stubs at both ends of a cut edge.
fn parts(route: &Route, direction: Direction) -> Vec<Corners> {
    let around = |a: [f32; 2], b: [f32; 2]| [a[0].min(b[0]), a[1].min(b[1]), a[0].max(b[0]), a[1].max(b[1])];
    match route {
        Route::Line(points) if points.len() > 1 => points.windows(2).map(|p| around(p[0], p[1])).collect(),
        Route::Line(points) => points.iter().map(|&p| around(p, p)).collect(),
        Route::Portal(a, b) => {
            let [x, y] = direction.turn([0.0, STUB]);
            vec![around(*a, [a[0] + x, a[1] + y]), around([b[0] - x, b[1] - y], *b)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Picture;
    use crate::scene::Arrangement;
    use compiler::text::parse_module;

    /// A chain of so many nodes.
    fn chain(nodes: usize) -> Scene {
        let read = |i: usize| if i == 0 { "%x".into() } else { format!("%{}", i - 1) };
        let lines: String = (0..nodes).map(|i| format!("  %{i} = exp {} : f32[4]\n", read(i))).collect();
        let text = format!("graph @main(%x: f32[4]) -> (y: f32[4]) {{\n{lines}  return %{}\n}}\n", nodes - 1);
        let picture = Picture::of(&parse_module(&text).expect("it parses"));
        Scene::arrange(&picture, &Arrangement::plain(&|_| false))
    }

    #[test]
    fn what_is_near_is_found_and_little_else_is_looked_at() {
        let scene = chain(1000);
        let near = Near::of(&scene);
        for i in [0, 17, 500, 999] {
            let [x, y, w, h] = scene.boxes[i].rect;
            assert_eq!(near.box_at(&scene, [x + w / 2.0, y + h / 2.0]), Some(i));
            let Route::Line(points) = &scene.edges[i].route else { panic!("a chain has no long edges") };
            let middle = [(points[0][0] + points[1][0]) / 2.0, (points[0][1] + points[1][1]) / 2.0];
            assert_eq!(near.edge_at(&scene, middle, 4.0), Some(i));
        }
        let [x, y, ..] = scene.boxes[500].rect;
        assert!(near.boxes([x, y, x, y]).len() < 20 && near.edges([x, y, x, y]).len() < 20);
        assert_eq!(near.box_at(&scene, [-50.0, -50.0]), None);
        let all = near.boxes([0.0, 0.0, scene.size[0], scene.size[1]]);
        assert_eq!(all, (0..scene.boxes.len()).collect::<Vec<_>>());
    }
}
