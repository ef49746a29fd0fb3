//! Painted shapes as SVG: what a picture of pixels shows, as text and lines.

use egui::epaint::{CircleShape, ClippedShape, ColorMode, Mesh, PathStroke, RectShape, TextShape};
use egui::{Color32, FontFamily, Pos2, Rect, Shape, Stroke, StrokeKind, Vec2};
use graphview::svg::escape;
use rustc_hash::FxHashMap;
use std::fmt::Write;

/// A document of `size` points with these shapes, in the order in which they are painted.
pub(crate) fn document(shapes: &[ClippedShape], size: Vec2) -> String {
    let whole = Rect::from_min_size(Pos2::ZERO, size);
    let mut out = Out { whole, ..Out::default() };
    for s in shapes {
        out.clipped(s);
    }
    let [w, h] = [size.x.ceil(), size.y.ceil()];
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\">\n<defs>\n{}</defs>\n{}</svg>\n",
        out.clips, out.body
    )
}

struct Out {
    body: String,
    clips: String,
    known: FxHashMap<[i32; 4], usize>,
    whole: Rect,
}
impl Default for Out {
    fn default() -> Self {
        Out { body: String::new(), clips: String::new(), known: FxHashMap::default(), whole: Rect::NOTHING }
    }
}

/// A colour as the value of an attribute, and its opacity where it is less than one.
fn paint(attribute: &str, c: Color32) -> String {
    let [r, g, b, a] = c.to_srgba_unmultiplied();
    match a {
        0 => format!("{attribute}=\"none\""),
        255 => format!("{attribute}=\"#{r:02x}{g:02x}{b:02x}\""),
        a => format!("{attribute}=\"#{r:02x}{g:02x}{b:02x}\" {attribute}-opacity=\"{:.3}\"", f32::from(a) / 255.0),
    }
}

fn stroke(s: Stroke) -> String {
    match s.width > 0.0 {
        true => format!("{} stroke-width=\"{:.2}\"", paint("stroke", s.color), s.width),
        false => String::new(),
    }
}

fn path_stroke(s: &PathStroke) -> String {
    let ColorMode::Solid(colour) = s.color else { return String::new() };
    stroke(Stroke::new(s.width, colour))
}

fn points(list: &[Pos2]) -> String {
    let pair = |p: &Pos2| format!("{:.1},{:.1}", p.x, p.y);
    list.iter().map(pair).collect::<Vec<_>>().join(" ")
}

impl Out {
    fn clipped(&mut self, s: &ClippedShape) {
        let clip = s.clip_rect.intersect(self.whole);
        if !clip.is_positive() || !clip.intersects(s.shape.visual_bounding_rect()) {
            return;
        }
        if clip == self.whole {
            return self.shape(&s.shape);
        }
        let key = [clip.min.x, clip.min.y, clip.max.x, clip.max.y].map(|x| (x * 4.0) as i32);
        let next = self.known.len();
        let id = *self.known.entry(key).or_insert(next);
        if id == next {
            let Vec2 { x: w, y: h } = clip.size();
            let (x, y) = (clip.min.x, clip.min.y);
            let rect = format!("<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\"/>");
            let _ = writeln!(self.clips, "<clipPath id=\"c{id}\">{rect}</clipPath>");
        }
        let start = self.body.len();
        let _ = write!(self.body, "<g clip-path=\"url(#c{id})\">");
        let inner = self.body.len();
        self.shape(&s.shape);
        if self.body.len() == inner {
            self.body.truncate(start);
        } else {
            self.body.push_str("</g>\n");
        }
    }

    fn shape(&mut self, s: &Shape) {
        let line =
            |list: &[Pos2], stroke: String| format!("<polyline points=\"{}\" fill=\"none\" {stroke}/>\n", points(list));
        let written = match s {
            Shape::Vec(list) => return list.iter().for_each(|s| self.shape(s)),
            Shape::Mesh(m) => return self.mesh(m),
            Shape::Text(t) => return self.text(t),
            Shape::Rect(r) => rect(r),
            Shape::Circle(CircleShape { center, radius, fill, stroke: s }) => format!(
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius:.1}\" {} {}/>\n",
                center.x,
                center.y,
                paint("fill", *fill),
                stroke(*s)
            ),
            Shape::LineSegment { points, stroke: s } => line(points, stroke(*s)),
            Shape::Path(p) if p.closed => format!(
                "<polygon points=\"{}\" {} {}/>\n",
                points(&p.points),
                paint("fill", p.fill),
                path_stroke(&p.stroke)
            ),
            Shape::Path(p) => line(&p.points, path_stroke(&p.stroke)),
            Shape::CubicBezier(c) => {
                let [a, b, d, e] = c.points.map(|p| format!("{:.1} {:.1}", p.x, p.y));
                let (fill, stroke) = (paint("fill", c.fill), path_stroke(&c.stroke));
                format!("<path d=\"M{a}C{b} {d} {e}\" {fill} {stroke}/>\n")
            }
            Shape::QuadraticBezier(q) => {
                let [a, b, c] = q.points.map(|p| format!("{:.1} {:.1}", p.x, p.y));
                format!("<path d=\"M{a}Q{b} {c}\" {} {}/>\n", paint("fill", q.fill), path_stroke(&q.stroke))
            }
            // The canvas paints none of these.
            Shape::Noop | Shape::Ellipse(_) | Shape::Band(_) | Shape::Callback(_) => return,
        };
        self.body.push_str(&written);
    }

    /// Triangles of one colour each.
    fn mesh(&mut self, m: &Mesh) {
        for t in m.indices.chunks_exact(3) {
            let corners = [t[0], t[1], t[2]].map(|i| m.vertices[i as usize]);
            let colour = corners[0].color.lerp_to_gamma(corners[1].color, 0.5).lerp_to_gamma(corners[2].color, 0.33);
            let places = corners.map(|v| v.pos);
            let _ = writeln!(self.body, "<polygon points=\"{}\" {}/>", points(&places), paint("fill", colour));
        }
    }

    /// A row is as wide as it was painted, whatever fonts the reader has.
    fn text(&mut self, t: &TextShape) {
        let Some(format) = t.galley.job.sections.first().map(|s| &s.format) else { return };
        let own = if format.color == Color32::PLACEHOLDER { t.fallback_color } else { format.color };
        let colour = t.override_text_color.unwrap_or(own).gamma_multiply(t.opacity_factor);
        let family = match format.font_id.family {
            FontFamily::Monospace => "Hack, 'DejaVu Sans Mono', monospace",
            _ => "Ubuntu, 'DejaVu Sans', Helvetica, Arial, sans-serif",
        };
        for row in &t.galley.rows {
            let Some(first) = row.glyphs.first() else { continue };
            let text: String = row.glyphs.iter().map(|g| g.chr).collect();
            let at = t.pos + row.pos.to_vec2() + first.pos.to_vec2();
            let wide = if row.glyphs.len() > 1 { format!(" textLength=\"{:.1}\"", row.size.x) } else { String::new() };
            let _ = writeln!(
                self.body,
                "<text x=\"{:.1}\" y=\"{:.1}\" font-family=\"{family}\" font-size=\"{}\"{wide} lengthAdjust=\"spacingAndGlyphs\" {}>{}</text>",
                at.x,
                at.y,
                format.font_id.size,
                paint("fill", colour),
                escape(&text)
            );
        }
    }
}

fn rect(r: &RectShape) -> String {
    let half = r.stroke.width / 2.0;
    let place = match r.stroke_kind {
        StrokeKind::Inside => r.rect.shrink(half),
        StrokeKind::Middle => r.rect,
        StrokeKind::Outside => r.rect.expand(half),
    };
    let (min, size) = (place.min, place.size());
    let round = if r.corner_radius.nw > 0 { format!(" rx=\"{}\"", r.corner_radius.nw) } else { String::new() };
    format!(
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"{round} {} {}/>\n",
        min.x,
        min.y,
        size.x.max(0.0),
        size.y.max(0.0),
        paint("fill", r.fill),
        stroke(r.stroke)
    )
}
