//! The whole scene in a corner, with a frame around the visible part.

use super::dress::Dress;
use super::paint::Ink;
use egui::epaint::Mesh;
use egui::{Painter, Pos2, Rect, Shape, Stroke, StrokeKind, Vec2, pos2, vec2};

/// Most room it takes.
const MOST: Vec2 = vec2(190.0, 300.0);
/// Least width and height, so that a chain of boxes is no mere line.
const LEAST: f32 = 36.0;
/// Larger parts of the scene than these are no help, and hide what is behind them.
const LARGEST: f32 = 0.16;

/// The position of the minimap, and of the scene in it.
pub struct Minimap {
    /// Its place on the screen.
    pub rect: Rect,
    scale: Vec2,
}

impl Minimap {
    /// In the lower right corner of `screen`; `None` if the whole scene is visible, or there is no room.
    pub fn new(screen: Rect, size: [f32; 2], seen: Rect) -> Option<Minimap> {
        let whole = Rect::from_min_size(Pos2::ZERO, vec2(size[0], size[1]));
        let room = (screen.size() * vec2(0.25, 0.4)).min(MOST);
        if seen.contains_rect(whole) || room.min_elem() < LEAST || size[0] < 1.0 || size[1] < 1.0 {
            return None;
        }
        let scale = (room.x / size[0]).min(room.y / size[1]).min(LARGEST);
        let used = (whole.size() * scale).max(Vec2::splat(LEAST)).min(room);
        let rect = Rect::from_min_size(screen.max - used - Vec2::splat(12.0), used);
        Some(Minimap { rect, scale: used / whole.size() })
    }
    fn place(&self, r: [f32; 4]) -> Rect {
        let at = self.rect.min + vec2(r[0], r[1]) * self.scale;
        Rect::from_min_size(at, (vec2(r[2], r[3]) * self.scale).max(Vec2::splat(1.0)))
    }
    /// The point of the scene under a point of the screen.
    pub fn to_scene(&self, p: Pos2) -> Pos2 {
        pos2((p.x - self.rect.min.x) / self.scale.x, (p.y - self.rect.min.y) / self.scale.y)
    }
    /// Paints it.
    pub fn paint(&self, painter: &Painter, dress: &Dress, seen: Rect, focus: Option<usize>) {
        let ink = Ink::new(dress.dark);
        let edge = Stroke::new(1.0, ink.line.gamma_multiply(0.6));
        let around = self.rect.expand(5.0);
        painter.rect(around, 4.0, ink.ground.gamma_multiply(0.94), edge, StrokeKind::Middle);
        let mut mesh = Mesh::default();
        for (b, fill) in dress.drawn.scene.boxes.iter().zip(&dress.palette.fills) {
            // Pale fills hardly show at this size. Of an open frame only the place is seen.
            let colour = if b.open { ink.line.gamma_multiply(0.2) } else { fill.lerp_to_gamma(ink.line, 0.25) };
            mesh.add_colored_rect(self.place(b.rect), colour);
        }
        if let Some(b) = focus.and_then(|i| dress.drawn.scene.boxes.get(i)) {
            mesh.add_colored_rect(self.place(b.rect).expand(2.0), ink.accent);
        }
        painter.add(Shape::mesh(mesh));
        let frame = self.place([seen.min.x, seen.min.y, seen.width(), seen.height()]).intersect(around);
        let inside = ink.accent.gamma_multiply(0.12);
        painter.rect(frame, 2.0, inside, Stroke::new(1.2, ink.accent), StrokeKind::Inside);
    }
}
