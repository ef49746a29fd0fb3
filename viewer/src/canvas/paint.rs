//! Paints a scene: only visible parts, and only details that are large enough to read.

use super::camera::Camera;
use super::change::Change;
use super::colour::ColourBy;
use super::dress::{Dress, Runs};
use crate::once::{in_sight, visit};
use egui::epaint::Mesh;
use egui::{Align2, Color32, FontId, Painter, Rect, Shape, Stroke, StrokeKind, Vec2, vec2};
use graphview::changes::{Mark, Marks};
use graphview::picture::Category;
use graphview::scene::{INSET, LINE, SceneBox};
use std::collections::BTreeSet;

/// Below this magnification boxes are plain rectangles, and edges straight.
pub(super) const PLAIN: f32 = 0.14;
/// Below this one boxes show their first line alone.
const TITLES: f32 = 0.5;
/// Smallest text that is painted, in points.
const READABLE: f32 = 6.0;

/// Everything to paint.
pub struct Sight<'a> {
    /// The scene with colours.
    pub dress: &'a Dress,
    /// The camera.
    pub camera: &'a Camera,
    /// A movement between two scenes.
    pub change: Option<&'a Change>,
    /// Which boxes are selected; empty for none.
    pub selected: &'a [bool],
    /// The box that the inspector shows.
    pub focus: Option<usize>,
    /// The box under the pointer.
    pub hover: Option<usize>,
    /// The edge under the pointer, where it is on no box.
    pub hover_edge: Option<usize>,
    /// The changes of a pass.
    pub marks: Option<&'a Marks>,
    /// Whether marks go around boxes rather than into a corner.
    pub strong_marks: bool,
    /// Boxes that a query finds; the others step back.
    pub found: Option<&'a BTreeSet<usize>>,
}

/// Colours of everything except boxes.
pub struct Ink {
    /// Behind everything.
    pub ground: Color32,
    /// Edges and borders.
    pub line: Color32,
    /// Text on the ground.
    pub weak: Color32,
    /// The colour of the selection.
    pub accent: Color32,
    frame: Color32,
    /// Behind what a map says at a box.
    note: Color32,
}
impl Ink {
    /// For a theme.
    pub fn new(dark: bool) -> Ink {
        if dark {
            Ink {
                ground: Color32::from_gray(22),
                line: Color32::from_gray(120),
                weak: Color32::from_gray(150),
                accent: Color32::from_rgb(90, 170, 255),
                frame: Color32::from_gray(32),
                note: Color32::from_rgb(255, 176, 60),
            }
        } else {
            Ink {
                ground: Color32::from_gray(252),
                line: Color32::from_gray(140),
                weak: Color32::from_gray(110),
                accent: Color32::from_rgb(10, 100, 220),
                frame: Color32::from_rgb(243, 246, 250),
                note: Color32::from_rgb(176, 78, 0),
            }
        }
    }
}

/// The colour of a mark.
pub fn mark_colour(mark: Mark) -> Color32 {
    match mark {
        Mark::Added => Color32::from_rgb(40, 160, 70),
        Mark::Removed => Color32::from_rgb(210, 60, 60),
        Mark::Replaced => Color32::from_rgb(225, 140, 20),
        Mark::Changed => Color32::from_rgb(140, 90, 210),
    }
}

/// The contrast of two colours as WCAG 2 defines it, from 1 to 21.
pub fn contrast(a: Color32, b: Color32) -> f32 {
    let luminance = |c: Color32| {
        let [r, g, b, _] = egui::Rgba::from(c).to_array();
        0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05
    };
    let (a, b) = (luminance(a), luminance(b));
    a.max(b) / a.min(b)
}

/// A title as large as a small box lets it be, in up to three lines, and its size. What would be too small to read is
/// cut short; `None` for a box without room for that.
fn fitted(title: &str, room: Vec2) -> Option<(String, f32)> {
    // A character is some 0.57 of its size wide.
    const WIDE: f32 = 1.75;
    let of = |lines: usize| {
        let text = in_lines(title, lines);
        let longest = text.lines().map(|l| l.chars().count()).max().unwrap_or(0).max(6);
        let high = match text.lines().count() {
            0 | 1 => room.y * 0.62,
            n => room.y / (1.3 * n as f32),
        };
        let size = high.min(room.x / longest as f32 * WIDE).min(13.0);
        (text, (size * 2.0).floor() / 2.0)
    };
    let best = (1..=3).map(of).reduce(|a, b| if b.1 > a.1 { b } else { a })?;
    if best.1 >= READABLE {
        return Some(best);
    }
    let most = (room.x * WIDE / READABLE) as usize;
    let fits = room.y >= 1.2 * READABLE && most >= 4;
    fits.then(|| (format!("{}…", title.chars().take(most - 1).collect::<String>().trim_end()), READABLE))
}

/// A text broken at blanks into lines of much the same length.
fn in_lines(text: &str, lines: usize) -> String {
    let (mut out, mut length) = (String::new(), 0);
    let most = text.chars().count().div_ceil(lines);
    for word in text.split(' ') {
        let own = word.chars().count();
        if length > 0 {
            let next = length + 1 + own > most;
            out.push(if next { '\n' } else { ' ' });
            length = if next { 0 } else { length + 1 };
        }
        out.push_str(word);
        length += own;
    }
    out
}

/// Paints the scene into `screen`.
pub fn paint(painter: &Painter, screen: Rect, s: &Sight<'_>) {
    let p = Paint { painter, screen, s, ink: Ink::new(s.dress.dark), zoom: s.camera.view.zoom };
    painter.rect_filled(screen, 0.0, p.ink.ground);
    let boxes = &s.dress.drawn.scene.boxes;
    let near = p.near();
    let [listed, edges] = [s.dress.drawn.near.boxes(near), s.dress.drawn.near.edges(near)];
    visit(listed.len());
    let seen: Vec<(usize, Rect)> =
        listed.into_iter().map(|i| (i, p.place(i))).filter(|(_, r)| r.intersects(screen)).collect();
    in_sight(seen.len());
    for &(i, rect) in seen.iter().filter(|(i, _)| boxes[*i].open) {
        p.frame(i, rect);
    }
    if matches!(s.dress.by, ColourBy::Group | ColourBy::Layout) && p.zoom >= PLAIN {
        p.hulls(&seen, &edges);
    }
    for &(i, rect) in seen.iter().filter(|(i, _)| boxes[*i].open) {
        p.outline(&boxes[i], i, rect);
    }
    p.edges(&edges);
    if p.zoom < PLAIN {
        p.plain(&seen);
    } else {
        for &(i, rect) in seen.iter().filter(|(i, _)| !boxes[*i].open) {
            p.node(&boxes[i], i, rect);
        }
    }
    p.captions(near);
}

/// A painting in progress.
pub(super) struct Paint<'a> {
    pub(super) painter: &'a Painter,
    pub(super) screen: Rect,
    pub(super) s: &'a Sight<'a>,
    pub(super) ink: Ink,
    pub(super) zoom: f32,
}

impl Paint<'_> {
    /// The part of the scene whose boxes and edges may be in sight: left, top, right, bottom. While boxes move to their
    /// places, those that come from beside it.
    fn near(&self) -> [f32; 4] {
        let seen = self.s.camera.seen(self.screen);
        let around = if self.s.change.is_some() { seen.size().max_elem() } else { 40.0 / self.zoom };
        let seen = seen.expand(around);
        [seen.min.x, seen.min.y, seen.max.x, seen.max.y]
    }
    pub(super) fn offset(&self, i: usize) -> Vec2 {
        self.s.change.map_or(Vec2::ZERO, |c| c.offset(i)) * self.zoom
    }
    fn place(&self, i: usize) -> Rect {
        self.s.camera.rect(self.screen, self.s.dress.drawn.scene.boxes[i].rect).translate(self.offset(i))
    }
    pub(super) fn opacity(&self, i: usize) -> f32 {
        let found = self.s.found.is_none_or(|f| f.contains(&i));
        self.s.change.map_or(1.0, |c| c.opacity(i)) * if found { 1.0 } else { 0.25 }
    }
    fn mark(&self, b: &SceneBox) -> Option<Mark> {
        // What is changed in an open layer shows in its boxes.
        let inside = b.open && b.node.category == Category::Layer;
        self.s.marks.filter(|_| !inside).and_then(|m| m.of(&b.node.key))
    }
    fn is_selected(&self, i: usize) -> bool {
        self.s.selected.get(i) == Some(&true)
    }
    /// A text size that changes in steps while one zooms, as the font's atlas has one picture for each.
    pub(super) fn font(&self, size: f32) -> Option<FontId> {
        let size = (size * self.zoom * 2.0).floor() / 2.0;
        (size >= READABLE).then(|| FontId::proportional(size))
    }

    /// All boxes as one mesh: there may be thousands.
    fn plain(&self, seen: &[(usize, Rect)]) {
        let mut mesh = Mesh::default();
        for &(i, rect) in seen {
            let b = &self.s.dress.drawn.scene.boxes[i];
            if b.open {
                continue;
            }
            let rect = Rect::from_center_size(rect.center(), rect.size().max(Vec2::splat(1.5)));
            if self.is_selected(i) || self.s.focus == Some(i) {
                mesh.add_colored_rect(rect.expand(2.0), self.ink.accent);
            } else if let Some(m) = self.mark(b).filter(|_| self.s.strong_marks) {
                mesh.add_colored_rect(rect.expand(1.5), mark_colour(m));
            } else {
                mesh.add_colored_rect(rect.expand(0.5), self.ink.line.gamma_multiply(0.6 * self.opacity(i)));
            }
            mesh.add_colored_rect(rect, self.s.dress.palette.fills[i].gamma_multiply(self.opacity(i)));
            self.stripes(&mut mesh, i, rect);
        }
        self.painter.add(Shape::mesh(mesh));
    }

    /// The border of a box: the selection has priority, then the change of the pass, then how it runs.
    fn border(&self, b: &SceneBox, i: usize) -> Stroke {
        let width = self.zoom.clamp(0.5, 1.2);
        if self.s.focus == Some(i) {
            return Stroke::new(3.0, self.ink.accent);
        }
        if self.is_selected(i) {
            return Stroke::new(2.0, self.ink.accent);
        }
        if let Some(m) = self.mark(b).filter(|_| self.s.strong_marks) {
            return Stroke::new(2.5, mark_colour(m));
        }
        let line = self.ink.line.gamma_multiply(self.opacity(i));
        Stroke::new(if self.s.hover == Some(i) { 2.0 } else { width }, line)
    }

    fn frame(&self, i: usize, rect: Rect) {
        let radius = (6.0 * self.zoom).clamp(0.0, 8.0);
        let fill = match self.s.dress.groups[i] {
            Some(_) => self.ink.frame.lerp_to_gamma(self.s.dress.palette.fills[i], 0.25),
            None => self.ink.frame,
        };
        self.painter.rect_filled(rect, radius, fill);
    }

    /// The border and the title of a frame, over the grounds of regions.
    fn outline(&self, b: &SceneBox, i: usize, rect: Rect) {
        let radius = (6.0 * self.zoom).clamp(0.0, 8.0);
        self.painter.rect_stroke(rect, radius, self.border(b, i), StrokeKind::Middle);
        if let (Some(font), Some(title)) = (self.font(12.0), b.lines.first()) {
            let at = rect.min + vec2(INSET, 4.0) * self.zoom;
            let painter = self.painter.with_clip_rect(rect.intersect(self.screen));
            painter.text(at, Align2::LEFT_TOP, title, font, self.ink.weak);
        }
    }

    fn node(&self, b: &SceneBox, i: usize, rect: Rect) {
        let alpha = self.opacity(i);
        let fill = self.s.dress.palette.fills[i].gamma_multiply(alpha);
        let radius = (4.0 * self.zoom).clamp(0.0, 6.0);
        let border = self.border(b, i);
        match self.s.dress.runs[i] {
            // Nothing runs: only its outline is there.
            Runs::View => {
                self.painter.rect_filled(rect, radius, fill.gamma_multiply(0.35));
                let corners = [rect.left_top(), rect.right_top(), rect.right_bottom(), rect.left_bottom()];
                let path = [corners[0], corners[1], corners[2], corners[3], corners[0]];
                self.painter.extend(Shape::dashed_line(&path, border, 5.0, 3.0));
            }
            Runs::Host => {
                self.painter.rect(rect, radius, fill, border, StrokeKind::Middle);
                let inner = Stroke::new(0.8, border.color);
                self.painter.rect_stroke(rect.shrink(3.0 * self.zoom), radius, inner, StrokeKind::Middle);
            }
            _ if self.is_striped(i) => {
                let mut mesh = Mesh::default();
                self.stripes(&mut mesh, i, rect);
                self.painter.add(Shape::mesh(mesh));
                self.painter.rect_stroke(rect, 0.0, border, StrokeKind::Middle);
            }
            runs => {
                if let Runs::Kernel(n) = runs {
                    // A pile, for as many dispatches as can be told apart.
                    for k in (1..n.min(4)).rev() {
                        let behind = rect.translate(Vec2::splat(3.0 * self.zoom * k as f32));
                        self.painter.rect(behind, radius, fill, border, StrokeKind::Middle);
                    }
                }
                self.painter.rect(rect, radius, fill, border, StrokeKind::Middle);
            }
        }
        if self.s.dress.anchors[i] {
            let bar = Rect::from_min_size(rect.min, vec2(4.0 * self.zoom, rect.height()));
            self.painter.rect_filled(bar, radius, self.ink.accent.gamma_multiply(alpha));
        }
        if let Some(m) = self.mark(b).filter(|_| !self.s.strong_marks) {
            let side = 9.0 * self.zoom;
            let corner = rect.right_bottom();
            let corners = vec![corner, corner - vec2(side, 0.0), corner - vec2(0.0, side)];
            self.painter.add(Shape::convex_polygon(corners, mark_colour(m), Stroke::NONE));
        }
        self.text(b, i, rect, alpha);
    }

    fn is_striped(&self, i: usize) -> bool {
        self.s.dress.palette.stripes.get(i).is_some_and(|s| !s.is_empty())
    }
    /// The colours of a box with several, side by side.
    fn stripes(&self, mesh: &mut Mesh, i: usize, rect: Rect) {
        let Some(colours) = self.s.dress.palette.stripes.get(i) else { return };
        let width = rect.width() / colours.len().max(1) as f32;
        for (k, c) in colours.iter().enumerate() {
            let corner = rect.min + vec2(width * k as f32, 0.0);
            let stripe = Rect::from_min_size(corner, vec2(width, rect.height()));
            mesh.add_colored_rect(stripe, c.gamma_multiply(self.opacity(i)));
        }
    }

    fn text(&self, b: &SceneBox, i: usize, rect: Rect, alpha: f32) {
        let fill = self.s.dress.palette.fills[i];
        let light = contrast(fill, Color32::from_gray(15)) >= contrast(fill, Color32::from_gray(240));
        let strong = if light { Color32::from_gray(15) } else { Color32::from_gray(240) }.gamma_multiply(alpha);
        let weak = strong.gamma_multiply(if light { 0.72 } else { 0.85 });
        let painter = self.painter.with_clip_rect(rect.expand(1.0).intersect(self.screen));
        if self.zoom < TITLES {
            if let Some((title, size)) = b.lines.first().and_then(|t| fitted(t, rect.size())) {
                painter.text(rect.center(), Align2::CENTER_CENTER, title, FontId::proportional(size), strong);
            }
            return;
        }
        let (Some(title), Some(body)) = (self.font(12.0), self.font(11.0).or(self.font(12.0))) else { return };
        for (k, line) in b.lines.iter().enumerate() {
            let at = rect.min + vec2(INSET, INSET / 2.0 + k as f32 * LINE) * self.zoom;
            let (font, colour) = if k == 0 { (title.clone(), strong) } else { (body.clone(), weak) };
            painter.text(at, Align2::LEFT_TOP, line, font, colour);
        }
        let note = self.s.dress.palette.notes.get(i).cloned().flatten();
        let ground = if note.is_some() { self.ink.note } else { self.ink.weak };
        if let (Some(badge), Some(font)) = (note.or(self.s.dress.runs[i].badge()), self.font(9.5)) {
            let at = rect.right_top() + vec2(-4.0, -3.0) * self.zoom;
            let galley = self.painter.layout_no_wrap(badge, font, self.ink.ground);
            let tag = Align2::RIGHT_CENTER.anchor_size(at, galley.size() + vec2(6.0, 1.0));
            self.painter.rect_filled(tag, 3.0, ground);
            self.painter.galley(tag.min + vec2(3.0, 0.5), galley, self.ink.ground);
        }
    }

    fn captions(&self, near: [f32; 4]) {
        let Some(font) = self.font(12.0) else { return };
        let drawn = &self.s.dress.drawn;
        for c in drawn.near.captions(near).into_iter().map(|i| &drawn.scene.captions[i]) {
            let at = self.s.camera.to_screen(self.screen, c.at);
            if self.screen.contains(at) {
                self.painter.text(at, Align2::LEFT_TOP, &c.text, font.clone(), self.ink.weak);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_box_with_room_for_a_word_is_blank() {
        assert_eq!(fitted("model.2", vec2(66.0, 26.0)), Some(("model.2".into(), 13.0)));
        let (title, size) = fitted("transpose + conv 3x3 + swish", vec2(84.0, 34.0)).expect("it has room");
        assert_eq!(title, "transpose +\nconv 3x3 +\nswish");
        assert!(size >= READABLE, "{size}");
        let (title, size) = fitted("fused_conv_hard_swish_22", vec2(40.0, 12.0)).expect("it has room");
        assert_eq!((title.as_str(), size), ("fused_conv…", READABLE));
        assert_eq!(fitted("conv", vec2(8.0, 3.0)), None);
    }
}
