//! The legend of colours, a strip below the graph so that it covers no box.

use super::dress::Dress;
use super::edges::border_colour;
use super::paint::{Ink, mark_colour};
use egui::epaint::Mesh;
use egui::{Color32, FontId, Painter, Pos2, Rect, Shape, Stroke, StrokeKind, Vec2, pos2, vec2};
use graphview::changes::{Mark, Marks};
use graphview::scene::plain_width;

/// How many boxes have a mark: here, and in the graph at the right where there are two.
fn counted(mark: Mark, here: Option<&Marks>, right: Option<&Marks>) -> Option<String> {
    let [a, b] = [here, right].map(|m| m.map_or(0, |m| m.count(mark)));
    match (a, b) {
        (0, 0) => None,
        (a, b) if a == 0 || b == 0 || a == b => Some(a.max(b).to_string()),
        (a, b) => Some(format!("{a} by {b}")),
    }
}

/// Height of a row.
const ROW: f32 = 16.0;
/// Space around the entries.
const AROUND: f32 = 6.0;
/// Space between two entries.
const GAP: f32 = 16.0;
/// Width of a patch with the space behind it.
const PATCH: f32 = 19.0;
/// Entries of colours that are shown.
const MOST: usize = 15;
/// Size of the text.
const SIZE: f32 = 11.0;

/// The text and colours of a legend.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Legend {
    /// The meaning of the colours.
    heading: String,
    /// Entries, each a colour and its meaning; a transparent one has no patch.
    entries: Vec<(Color32, String)>,
    /// The stops of a scale, which runs without steps from the first to the last.
    ramp: Vec<(Color32, String)>,
}

/// The width of a text in the legend.
fn width(text: &str) -> f32 {
    // Fonts differ: a text that is wider than estimated must not run into the next one.
    plain_width(text) * SIZE / 12.0 * 1.08
}

impl Legend {
    /// Of a graph. `marks`: of this graph, and of the graph at its right.
    pub(crate) fn of(dress: &Dress, marks: [Option<&Marks>; 2]) -> Legend {
        let palette = &dress.palette;
        let mut out = Legend::default();
        match palette.missing {
            Some(why) => out.entries.push((Color32::TRANSPARENT, why.to_string())),
            None => {
                out.heading.clone_from(&palette.heading);
                let list = if palette.scale { &mut out.ramp } else { &mut out.entries };
                list.extend(palette.legend.iter().take(MOST).cloned());
                let more = palette.legend.len().saturating_sub(MOST);
                out.entries.extend((more > 0).then(|| (Color32::TRANSPARENT, format!("{more} more"))));
                out.entries.extend(palette.remarks.iter().cloned());
            }
        }
        let used = |m: Mark| counted(m, marks[0], marks[1]);
        let marks = Mark::ALL.iter().filter_map(|(m, word)| Some((mark_colour(*m), format!("{word}: {}", used(*m)?))));
        out.entries.extend(marks);
        if dress.has_borders {
            out.entries.push((border_colour(), "not fused: why is at the edge".to_string()));
        }
        out
    }
    /// Adds what the legend of a graph beside this one says besides.
    pub(crate) fn join(&mut self, other: &Legend) {
        if self.ramp.is_empty() {
            self.ramp.clone_from(&other.ramp);
        }
        if self.heading.is_empty() {
            self.heading.clone_from(&other.heading);
        }
        let new = other.entries.iter().filter(|e| !self.entries.contains(e)).cloned().collect::<Vec<_>>();
        self.entries.extend(new);
    }
    /// The places of the heading, of the ramp and of each entry in a strip of a width, and the height of the strip.
    fn places(&self, room: f32) -> (Vec<Pos2>, f32) {
        let mut at = pos2(AROUND, AROUND / 2.0);
        let mut out = vec![];
        let mut deep = ROW;
        let mut place = |size: Vec2| {
            if at.x > AROUND && at.x + size.x > room - AROUND {
                at = pos2(AROUND, at.y + std::mem::replace(&mut deep, ROW));
            }
            deep = deep.max(size.y);
            out.push(at);
            at.x += size.x + GAP;
            at.y + deep
        };
        let mut bottom = place(vec2(width(&self.heading), ROW));
        if !self.ramp.is_empty() {
            bottom = place(vec2(self.pitch() * self.ramp.len() as f32, 2.0 * ROW - 4.0));
        }
        for (colour, text) in &self.entries {
            let patch = if *colour == Color32::TRANSPARENT { 0.0 } else { PATCH };
            bottom = place(vec2(patch + width(text), ROW));
        }
        (out, bottom + AROUND / 2.0)
    }
    /// The distance of two stops of the ramp.
    fn pitch(&self) -> f32 {
        self.ramp.iter().map(|r| width(&r.1)).fold(30.0, f32::max) + 10.0
    }
    /// Height of the strip, in points; 0 if there is nothing to say.
    pub(crate) fn height(&self, room: f32) -> f32 {
        let silent = self.heading.is_empty() && self.entries.is_empty() && self.ramp.is_empty();
        if silent { 0.0 } else { self.places(room).1 }
    }
    /// Paints the strip into all of `strip`.
    pub(crate) fn paint(&self, painter: &Painter, strip: Rect, dark: bool) {
        let ink = Ink::new(dark);
        painter.rect_filled(strip, 0.0, ink.ground);
        painter.hline(strip.x_range(), strip.min.y, Stroke::new(1.0, ink.line.gamma_multiply(0.4)));
        let (places, _) = self.places(strip.width());
        let font = FontId::proportional(SIZE);
        let text = |at: Pos2, said: &str| {
            let galley = painter.layout_no_wrap(said.to_string(), font.clone(), ink.weak);
            painter.galley(pos2(at.x, at.y + (ROW - galley.size().y) / 2.0), galley, ink.weak);
        };
        let mut places = places.into_iter().map(|p| strip.min + p.to_vec2());
        if let Some(at) = places.next() {
            text(at, &self.heading);
        }
        if !self.ramp.is_empty()
            && let Some(at) = places.next()
        {
            self.ramp(painter, at);
            for (k, (_, said)) in self.ramp.iter().enumerate() {
                text(at + vec2(self.pitch() * k as f32, ROW - 6.0), said);
            }
        }
        for ((colour, said), at) in self.entries.iter().zip(places) {
            let patch = Rect::from_min_size(at + vec2(0.0, 3.0), vec2(14.0, 10.0));
            match *colour {
                Color32::TRANSPARENT => {
                    text(at, said);
                    continue;
                }
                c if c == border_colour() => {
                    painter.vline(patch.center().x, patch.y_range(), Stroke::new(2.0, c));
                }
                c => {
                    painter.rect(patch, 2.0, c, Stroke::new(0.5, ink.line), StrokeKind::Middle);
                }
            }
            text(at + vec2(PATCH, 0.0), said);
        }
    }
    /// The scale, each stop above its text.
    fn ramp(&self, painter: &Painter, at: Pos2) {
        let mut mesh = Mesh::default();
        for (k, (colour, _)) in self.ramp.iter().enumerate() {
            let x = at.x + self.pitch() * k as f32;
            mesh.colored_vertex(pos2(x, at.y + 2.0), *colour);
            mesh.colored_vertex(pos2(x, at.y + 10.0), *colour);
            if k > 0 {
                let n = 2 * k as u32;
                mesh.add_triangle(n - 2, n - 1, n);
                mesh.add_triangle(n - 1, n, n + 1);
            }
        }
        painter.add(Shape::mesh(mesh));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::text::parse_module;
    use graphview::changes::changes;
    use graphview::picture::Picture;

    #[test]
    fn the_legend_of_two_graphs_counts_what_only_the_right_one_has() {
        let text = |ops: &str| format!("graph @main(%x: f32[4]) -> (y: f32[4]) {{\n{ops}  return %1\n}}\n");
        let one = text("  %1 = relu %x : f32[4] !from(\"a\")\n");
        let two = text("  %0 = exp %x : f32[4] !from(\"new\")\n  %1 = relu %x : f32[4] !from(\"a\")\n");
        let [a, b] = [one, two].map(|t| Picture::of(&parse_module(&t).expect("parses")));
        let (left, right) = changes(&a, &b);
        assert_eq!(left.count(Mark::Added), 0);
        assert_eq!(counted(Mark::Added, Some(&left), Some(&right)).as_deref(), Some("1"));
        assert_eq!(counted(Mark::Removed, Some(&left), Some(&right)), None);
    }

    #[test]
    fn a_narrow_strip_has_more_rows_and_no_entry_runs_out_of_it() {
        let entry = |k: usize| (Color32::from_gray(40 + k as u8), format!("meaning number {k}"));
        let legend = Legend { heading: "kind of work".into(), entries: (0..9).map(entry).collect(), ramp: vec![] };
        let [narrow, wide] = [300.0, 1200.0].map(|room| legend.places(room));
        assert!(narrow.1 > 2.0 * wide.1, "{} and {}", narrow.1, wide.1);
        for (at, (_, said)) in narrow.0[1..].iter().zip(&legend.entries) {
            assert!(at.x + PATCH + width(said) <= 300.0 && at.y + ROW <= narrow.1, "{said} at {at:?}");
        }
    }
}
