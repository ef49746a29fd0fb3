//! The whole scene in a strip beside the graph, with a frame around the visible part.

use super::dress::Dress;
use super::paint::Ink;
use egui::epaint::Mesh;
use egui::{Painter, Pos2, Rect, Shape, Stroke, StrokeKind, Vec2, pos2, vec2};
use std::sync::Arc;

/// Most room it takes.
const MOST: Vec2 = vec2(120.0, 260.0);
/// Least width and height, so that a chain of boxes is no mere line.
const LEAST: f32 = 36.0;
/// Larger parts of the scene than these are no help.
const LARGEST: f32 = 0.16;
/// Space around it.
const AROUND: f32 = 12.0;

/// The position of the minimap, and of the scene in it.
pub struct Minimap {
    /// Its place on the screen.
    pub rect: Rect,
    scale: Vec2,
}

impl Minimap {
    /// In a strip of `room` for a scene of this size, with the rest of `room` for the graph; `None` if there is no room
    /// for both.
    pub fn beside(room: Rect, size: [f32; 2]) -> Option<(Minimap, Rect)> {
        let whole = vec2(size[0], size[1]);
        let most = (room.size() * vec2(0.2, 0.4)).min(MOST);
        if most.min_elem() < LEAST || whole.min_elem() < 1.0 {
            return None;
        }
        let scale = (most.x / size[0]).min(most.y / size[1]).min(LARGEST);
        let used = (whole * scale).max(Vec2::splat(LEAST)).min(most);
        let rect = Rect::from_min_size(room.max - used - Vec2::splat(AROUND), used);
        // Beside a long graph, below a wide one: the narrower strip of both.
        let graph = match used.x / room.width() <= used.y / room.height() {
            true => room.with_max_x(rect.min.x - AROUND),
            false => room.with_max_y(rect.min.y - AROUND),
        };
        Some((Minimap { rect, scale: used / whole }, graph))
    }
    fn place(&self, r: [f32; 4]) -> Rect {
        let at = self.rect.min + vec2(r[0], r[1]) * self.scale;
        Rect::from_min_size(at, (vec2(r[2], r[3]) * self.scale).max(Vec2::splat(1.0)))
    }
    /// The point of the scene under a point of the screen.
    pub fn to_scene(&self, p: Pos2) -> Pos2 {
        pos2((p.x - self.rect.min.x) / self.scale.x, (p.y - self.rect.min.y) / self.scale.y)
    }
    /// The boxes of the scene, made once for a place.
    pub fn boxes(&self, dress: &Dress) -> Arc<Mesh> {
        let ink = Ink::new(dress.dark);
        let mut mesh = Mesh::default();
        for (b, fill) in dress.drawn.scene.boxes.iter().zip(&dress.palette.fills) {
            // Pale fills hardly show at this size. Of an open frame only the place is seen.
            let colour = if b.open { ink.line.gamma_multiply(0.2) } else { fill.lerp_to_gamma(ink.line, 0.25) };
            mesh.add_colored_rect(self.place(b.rect), colour);
        }
        Arc::new(mesh)
    }
    /// Paints it.
    pub fn paint(&self, painter: &Painter, boxes: Arc<Mesh>, dress: &Dress, seen: Rect, focus: Option<usize>) {
        let ink = Ink::new(dress.dark);
        let edge = Stroke::new(1.0, ink.line.gamma_multiply(0.6));
        let around = self.rect.expand(5.0);
        painter.rect(around, 4.0, ink.ground, edge, StrokeKind::Middle);
        painter.add(Shape::Mesh(boxes));
        if let Some(b) = focus.and_then(|i| dress.drawn.scene.boxes.get(i)) {
            painter.rect_filled(self.place(b.rect).expand(2.0), 0.0, ink.accent);
        }
        let frame = self.place([seen.min.x, seen.min.y, seen.width(), seen.height()]).intersect(around);
        let inside = ink.accent.gamma_multiply(0.12);
        painter.rect(frame, 2.0, inside, Stroke::new(1.2, ink.accent), StrokeKind::Inside);
    }
}
