//! Paints edges, and the outline of a group's boxes before fusion.

use super::paint::Paint;
use crate::once::visit;
use egui::epaint::{CubicBezierShape, PathStroke};
use egui::{Align2, Color32, Pos2, Rect, Shape, Stroke, Vec2, pos2, vec2};
use graphview::layout::{Direction, Route, STUB};
use graphview::scene::{SceneEdge, short_type};
use rustc_hash::FxHashSet;

/// Edges that are drawn for one box that is looked at, wherever they go.
const TOUCHED: usize = 400;

impl Paint<'_> {
    /// The hulls of groups that will be: a ground behind each box of one and along the edges between them, so that it
    /// covers no box of another.
    pub(super) fn hulls(&self, seen: &[(usize, Rect)], edges: &[usize]) {
        let d = self.s.dress;
        // Not see-through: parts of a hull lie over each other.
        let colour = |i: usize| self.ink.ground.lerp_to_gamma(d.palette.fills[i], 0.45);
        for e in edges.iter().map(|&k| &d.drawn.scene.edges[k]) {
            let Route::Line(points) = &e.route else { continue };
            if d.hulls[e.from].is_none() || d.hulls[e.from] != d.hulls[e.to] {
                continue;
            }
            let on_screen = |p: &[f32; 2]| self.s.camera.to_screen(self.screen, *p) + self.offset(e.from);
            let points: Vec<Pos2> = points.iter().map(on_screen).collect();
            self.painter.add(Shape::line(points, Stroke::new(22.0 * self.zoom, colour(e.from))));
        }
        for &(i, rect) in seen.iter().filter(|(i, _)| d.hulls[*i].is_some()) {
            self.painter.rect_filled(rect.expand(9.0 * self.zoom), 10.0 * self.zoom, colour(i));
        }
    }

    /// The edges of the chosen box and of what the pointer is on, wherever they are.
    fn touched(&self) -> FxHashSet<usize> {
        let d = self.s.dress;
        let ends = [self.s.focus, self.s.hover].into_iter().flatten();
        let own = ends.flat_map(|i| d.leaving[i].iter().chain(&d.entering[i])).copied();
        own.take(TOUCHED).chain(self.s.hover_edge).collect()
    }
    /// The edges in sight, and those that are looked at.
    pub(super) fn edges(&self, seen: &[usize]) {
        let touched = self.touched();
        let mut labels = Vec::new();
        let mut far: Vec<usize> = touched.iter().filter(|k| seen.binary_search(k).is_err()).copied().collect();
        far.sort_unstable();
        visit(seen.len() + touched.len());
        for k in seen.iter().copied().chain(far) {
            let e = &self.s.dress.drawn.scene.edges[k];
            labels.extend(self.edge(e, k, touched.contains(&k)).map(|colour| (e, colour)));
        }
        // Over all edges: none runs through a label.
        labels.into_iter().for_each(|(e, colour)| self.label(e, colour));
    }
    /// A step along edges, on the screen.
    fn along(&self, by: f32) -> Vec2 {
        let [x, y] = self.direction().turn([0.0, by]);
        vec2(x, y)
    }
    fn direction(&self) -> Direction {
        self.s.dress.drawn.scene.direction
    }

    /// Paints an edge; gives the colour of its label where it has one.
    fn edge(&self, e: &SceneEdge, k: usize, touched: bool) -> Option<Color32> {
        let alpha = self.opacity(e.from).min(self.opacity(e.to));
        let of_layout = e.layout.and_then(|l| self.s.dress.palette.edges.get(l));
        let colour = match (touched, of_layout) {
            (true, _) => self.ink.accent,
            (false, Some(colour)) => colour.lerp_to_gamma(self.ink.line, 0.25).gamma_multiply(alpha),
            (false, None) => self.ink.line.gamma_multiply(alpha),
        };
        let wide = if of_layout.is_some() { 2.5 } else { 1.2 };
        let stroke = Stroke::new(if touched { 2.0 } else { (wide * self.zoom).clamp(0.6, wide) }, colour);
        let (from, to) = (self.offset(e.from), self.offset(e.to));
        match &e.route {
            Route::Line(points) => {
                let last = (points.len() - 1).max(1) as f32;
                let on_screen = |(n, p): (usize, &[f32; 2])| {
                    self.s.camera.to_screen(self.screen, *p) + from + (to - from) * (n as f32 / last)
                };
                let points: Vec<Pos2> = points.iter().enumerate().map(on_screen).collect();
                self.line(&points, stroke);
                if self.s.dress.borders[k] && self.zoom >= 0.4 {
                    self.bar(&points);
                }
            }
            Route::Portal(a, b) => {
                let a = self.s.camera.to_screen(self.screen, *a) + from;
                let b = self.s.camera.to_screen(self.screen, *b) + to;
                self.portal(e, a, b, stroke, touched);
            }
        }
        // It is named where it leaves.
        self.s.dress.named[k].then_some(colour)
    }

    /// A bar across the end of an edge: a reason is known why fusion did not cross it.
    fn bar(&self, points: &[Pos2]) {
        let Some(&tip) = points.last() else { return };
        let at = tip - self.along(11.0 * self.zoom);
        let side = self.along(6.0 * self.zoom).rot90();
        self.painter.line_segment([at - side, at + side], Stroke::new(2.0, border_colour()));
    }

    fn label(&self, e: &SceneEdge, colour: Color32) {
        let Some(font) = self.font(10.0).filter(|_| self.zoom >= 0.6) else { return };
        let text = short_type(&e.label);
        let start = match &e.route {
            Route::Line(points) => points[0],
            Route::Portal(a, _) => *a,
        };
        let start = self.s.camera.to_screen(self.screen, start) + self.offset(e.from);
        let (at, align) = match self.direction() {
            Direction::Down => (start + vec2(0.0, 11.0) * self.zoom, Align2::CENTER_CENTER),
            Direction::Right => (start + vec2(4.0, -2.0) * self.zoom, Align2::LEFT_BOTTOM),
        };
        if !self.screen.expand(100.0).contains(at) {
            return;
        }
        let galley = self.painter.layout_no_wrap(text, font, self.ink.weak.lerp_to_gamma(colour, 0.3));
        let place = align.anchor_size(at, galley.size());
        self.painter.rect_filled(place.expand2(vec2(2.0, 0.0)), 2.0, self.ink.ground);
        self.painter.galley(place.min, galley, self.ink.weak);
    }

    fn line(&self, points: &[Pos2], stroke: Stroke) {
        if self.zoom < super::paint::PLAIN {
            self.painter.add(Shape::line(points.to_vec(), stroke));
            return;
        }
        for pair in points.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            let middle = a.lerp(b, 0.5);
            let (straight, curve) = match self.direction() {
                Direction::Down => ((a.x - b.x).abs() < 0.5, [a, pos2(a.x, middle.y), pos2(b.x, middle.y), b]),
                Direction::Right => ((a.y - b.y).abs() < 0.5, [a, pos2(middle.x, a.y), pos2(middle.x, b.y), b]),
            };
            if straight {
                self.painter.line_segment([a, b], stroke);
                continue;
            }
            let stroke = PathStroke::new(stroke.width, stroke.color);
            self.painter.add(CubicBezierShape::from_points_stroke(curve, false, Color32::TRANSPARENT, stroke));
        }
        if let Some(&tip) = points.last() {
            self.arrow(tip, stroke.color);
        }
    }

    fn arrow(&self, tip: Pos2, colour: Color32) {
        if self.zoom >= 0.35 {
            let (back, side) = (tip - self.along(6.0 * self.zoom), self.along(3.2 * self.zoom).rot90());
            let corners = vec![tip, back - side, back + side];
            self.painter.add(Shape::convex_polygon(corners, colour, Stroke::NONE));
        }
    }

    /// A stub at each end; the whole way only while one of them is looked at.
    fn portal(&self, e: &SceneEdge, a: Pos2, b: Pos2, stroke: Stroke, touched: bool) {
        let reach = self.along(STUB * self.zoom);
        let (a1, b1) = (a + reach, b - reach);
        if touched {
            self.painter.extend(Shape::dashed_line(&[a, b], stroke, 6.0, 4.0));
        }
        self.painter.line_segment([a, a1], stroke);
        self.painter.line_segment([b1, b], stroke);
        let boxes = &self.s.dress.drawn.scene.boxes;
        self.painter.circle_filled(a1, 2.5 * self.zoom, stroke.color);
        self.arrow(b, stroke.color);
        if let Some(font) = self.font(9.0) {
            let name = |i: usize| boxes[i].lines.get(1).or(boxes[i].lines.first()).cloned().unwrap_or_default();
            if self.screen.contains(b1) {
                let text = format!("from {}", name(e.from));
                self.painter.text(b1 + vec2(4.0, 0.0) * self.zoom, Align2::LEFT_BOTTOM, text, font, self.ink.weak);
            }
        }
    }
}

/// The colour of a border that fusion did not cross.
pub(super) fn border_colour() -> Color32 {
    Color32::from_rgb(205, 90, 30)
}
