//! Paints edges, and the outline of a group's boxes before fusion.

use super::dress::Runs;
use super::paint::Paint;
use egui::epaint::{CubicBezierShape, PathStroke};
use egui::{Align2, Color32, Pos2, Rect, Shape, Stroke, Vec2, pos2, vec2};
use graphview::layout::{Direction, Route, STUB};
use graphview::scene::{SceneEdge, short_type};
use rustc_hash::FxHashSet;

impl Paint<'_> {
    /// The hulls of groups that will be: a ground behind each box of one and along the edges between them, so that it
    /// covers no box of another.
    pub(super) fn hulls(&self, seen: &[(usize, Rect)]) {
        let d = self.s.dress;
        let group = |i: usize| d.groups[i].filter(|_| d.runs[i] == Runs::Op);
        // Not see-through: parts of a hull lie over each other.
        let colour = |i: usize| self.ink.ground.lerp_to_gamma(d.palette.fills[i], 0.45);
        let regions = &d.palette.regions;
        let group = |i: usize| if regions.is_empty() { group(i) } else { regions[i] };
        let mut joined = FxHashSet::default();
        for e in &d.drawn.scene.edges {
            let Route::Line(points) = &e.route else { continue };
            if group(e.from).is_none() || group(e.from) != group(e.to) {
                continue;
            }
            joined.extend([e.from, e.to]);
            let on_screen = |p: &[f32; 2]| self.s.camera.to_screen(self.screen, *p) + self.offset(e.from);
            let points: Vec<Pos2> = points.iter().map(on_screen).collect();
            self.painter.add(Shape::line(points, Stroke::new(22.0 * self.zoom, colour(e.from))));
        }
        for &(i, rect) in seen.iter().filter(|(i, _)| joined.contains(i)) {
            self.painter.rect_filled(rect.expand(9.0 * self.zoom), 10.0 * self.zoom, colour(i));
        }
    }

    /// All edges that are seen.
    pub(super) fn edges(&self) {
        let seen = self.s.camera.seen(self.screen).expand(40.0 / self.zoom);
        let moving = self.s.change.is_some();
        let mut labels = Vec::new();
        for (k, e) in self.s.dress.drawn.scene.edges.iter().enumerate() {
            let ends = [e.from, e.to];
            let touched = ends.iter().any(|i| Some(*i) == self.s.focus || Some(*i) == self.s.hover);
            let touched = touched || self.s.hover_edge == Some(k);
            if moving || touched || bounds(&e.route).intersects(seen) {
                labels.extend(self.edge(e, k, touched).map(|colour| (e, colour)));
            }
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
        // Several edges carry one value: it is named once, where it leaves.
        let first = self.s.dress.leaving[e.from].iter().find(|&&i| {
            let other = &self.s.dress.drawn.scene.edges[i];
            other.label == e.label
        });
        (first == Some(&k)).then_some(colour)
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

/// What a route covers of the scene.
fn bounds(route: &Route) -> Rect {
    let points: &[[f32; 2]] = match route {
        Route::Line(points) => points,
        Route::Portal(a, b) => &[*a, *b],
    };
    Rect::from_points(&points.iter().map(|p| pos2(p[0], p[1])).collect::<Vec<_>>())
}
