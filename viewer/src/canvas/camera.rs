//! The camera: position and zoom.

use egui::{Pos2, Rect, Vec2, pos2, vec2};
use graphview::layout::Direction;

/// Smallest and largest magnification.
const RANGE: (f32, f32) = (0.01, 4.0);
/// Steps that "back" remembers.
const HISTORY: usize = 64;

/// A place and a magnification.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct View {
    /// The point of the scene in the middle.
    pub center: Pos2,
    /// Points of the screen for a unit of the scene.
    pub zoom: f32,
}

/// A view, where it is moving to, and where it was.
#[derive(Clone, Debug)]
pub struct Camera {
    /// The view.
    pub view: View,
    target: Option<View>,
    past: Vec<View>,
    future: Vec<View>,
}
impl Default for Camera {
    fn default() -> Self {
        Camera { view: View { center: Pos2::ZERO, zoom: 1.0 }, target: None, past: vec![], future: vec![] }
    }
}

impl Camera {
    /// From the scene to the screen.
    pub fn to_screen(&self, screen: Rect, p: [f32; 2]) -> Pos2 {
        screen.center() + (pos2(p[0], p[1]) - self.view.center) * self.view.zoom
    }
    /// A rectangle (left, top, width, height) on the screen.
    pub fn rect(&self, screen: Rect, r: [f32; 4]) -> Rect {
        Rect::from_min_size(self.to_screen(screen, [r[0], r[1]]), vec2(r[2], r[3]) * self.view.zoom)
    }
    /// From the screen to the scene.
    pub fn to_scene(&self, screen: Rect, p: Pos2) -> [f32; 2] {
        let q = self.view.center + (p - screen.center()) / self.view.zoom;
        [q.x, q.y]
    }
    /// The visible part of the scene.
    pub fn seen(&self, screen: Rect) -> Rect {
        Rect::from_center_size(self.view.center, screen.size() / self.view.zoom)
    }
    /// Moves at once, by points of the screen.
    pub fn pan(&mut self, by: Vec2) {
        self.target = None;
        self.view.center -= by / self.view.zoom;
    }
    /// Zooms at once; the point under `at` stays there.
    pub fn zoom(&mut self, screen: Rect, at: Pos2, factor: f32) {
        self.target = None;
        let fixed = self.to_scene(screen, at);
        self.view.zoom = (self.view.zoom * factor).clamp(RANGE.0, RANGE.1);
        self.view.center = pos2(fixed[0], fixed[1]) - (at - screen.center()) / self.view.zoom;
    }
    /// Moves there smoothly.
    pub fn glide(&mut self, to: View) {
        self.remember();
        self.target = Some(View { zoom: to.zoom.clamp(RANGE.0, RANGE.1), ..to });
    }
    /// Is there at once.
    pub fn jump(&mut self, to: View) {
        self.view = View { zoom: to.zoom.clamp(RANGE.0, RANGE.1), ..to };
        self.target = None;
    }
    /// Moves with the scene under it.
    pub fn shift(&mut self, by: Vec2) {
        self.view.center += by;
        if let Some(t) = &mut self.target {
            t.center += by;
        }
    }
    /// The view that shows all of `size`, or its start if everything would be too small to read.
    pub fn fitting(screen: Rect, size: [f32; 2], whole: bool, direction: Direction) -> View {
        const MARGIN: f32 = 24.0;
        let room = (screen.size() - Vec2::splat(2.0 * MARGIN)).max(Vec2::splat(16.0));
        let (wide, high) = (room.x / size[0].max(1.0), room.y / size[1].max(1.0));
        // A network is much longer than a window, so its width must be visible.
        let (across, long, end) = match direction {
            Direction::Down => (wide, size[1], room.y),
            Direction::Right => (high, size[0], room.x),
        };
        // Readable, if not all of it is asked for.
        let zoom = if whole { wide.min(high) } else { across.max(0.5) }.min(1.0);
        let middle = pos2(size[0] / 2.0, size[1] / 2.0);
        if whole || zoom * long <= end {
            return View { center: middle, zoom };
        }
        let start = (screen.size() / 2.0 - Vec2::splat(MARGIN)) / zoom;
        let center = match direction {
            Direction::Down => pos2(middle.x, start.y),
            Direction::Right => pos2(start.x, middle.y),
        };
        View { center, zoom }
    }
    /// Goes on with a movement; true while it lasts.
    pub fn step(&mut self, dt: f32) -> bool {
        let Some(t) = self.target else { return false };
        let share = 1.0 - (-dt * 14.0).exp();
        let v = &mut self.view;
        v.center += (t.center - v.center) * share;
        v.zoom *= (t.zoom / v.zoom).powf(share);
        let near = (t.center - v.center).length() * t.zoom < 0.5 && (t.zoom / v.zoom).ln().abs() < 0.002;
        if near {
            self.jump(t);
        }
        !near
    }
    /// Where it will be when it has stopped moving.
    pub fn resting(&self) -> View {
        self.target.unwrap_or(self.view)
    }
    /// Notes the view for "back".
    pub fn remember(&mut self) {
        if self.past.last() != Some(&self.view) {
            self.past.push(self.view);
            self.future.clear();
            if self.past.len() > HISTORY {
                self.past.remove(0);
            }
        }
    }
    /// The view before.
    pub fn back(&mut self) {
        if let Some(v) = self.past.pop() {
            self.future.push(self.view);
            self.target = Some(v);
        }
    }
    /// The next view, after going back.
    pub fn forward(&mut self) {
        if let Some(v) = self.future.pop() {
            self.past.push(self.view);
            self.target = Some(v);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zooming_keeps_what_is_under_the_pointer() {
        let screen = Rect::from_min_size(pos2(10.0, 20.0), vec2(400.0, 300.0));
        let mut c = Camera::default();
        let at = pos2(100.0, 90.0);
        let before = c.to_scene(screen, at);
        c.zoom(screen, at, 1.7);
        let after = c.to_scene(screen, at);
        assert!((before[0] - after[0]).abs() < 1e-3 && (before[1] - after[1]).abs() < 1e-3);
        let there = c.to_screen(screen, after);
        assert!((there - at).length() < 1e-3);
    }

    #[test]
    fn back_and_forward_return() {
        let mut c = Camera::default();
        let (first, second) = (c.view, View { center: pos2(500.0, 40.0), zoom: 0.5 });
        c.glide(second);
        while c.step(0.1) {}
        assert_eq!(c.view, second);
        c.back();
        while c.step(0.1) {}
        assert_eq!(c.view, first);
        c.forward();
        while c.step(0.1) {}
        assert_eq!(c.view, second);
    }

    #[test]
    fn a_long_network_starts_at_its_top_and_a_small_one_in_the_middle() {
        let screen = Rect::from_min_size(pos2(0.0, 0.0), vec2(800.0, 600.0));
        let long = Camera::fitting(screen, [400.0, 9000.0], false, Direction::Down);
        assert!(long.zoom >= 0.5);
        let top = long.center.y - 300.0 / long.zoom;
        assert!((-60.0..=0.0).contains(&top), "{top}");
        let whole = Camera::fitting(screen, [400.0, 9000.0], true, Direction::Down);
        assert!(whole.zoom * 9000.0 <= 600.0);
        let flat = Camera::fitting(screen, [9000.0, 400.0], false, Direction::Right);
        let left = flat.center.x - 400.0 / flat.zoom;
        assert!((-60.0..=0.0).contains(&left) && flat.zoom >= 0.5, "{left}");
        assert_eq!(Camera::fitting(screen, [400.0, 200.0], false, Direction::Down).center, pos2(200.0, 100.0));
    }
}
