//! The legend of colours, and the description of the box under the pointer.

use super::colour::milliseconds;
use super::dress::Dress;
use super::edges::border_colour;
use super::paint::{Ink, mark_colour};
use crate::document::Document;
use egui::epaint::Mesh;
use egui::{Color32, FontId, Painter, Rect, Response, Shape, Stroke, StrokeKind, pos2, vec2};
use graphview::changes::{Mark, Marks};
use graphview::scene::short;

/// How many boxes have a mark: here, and in the graph at the right where there are two.
fn counted(mark: Mark, here: Option<&Marks>, right: Option<&Marks>) -> Option<String> {
    let [a, b] = [here, right].map(|m| m.map_or(0, |m| m.count(mark)));
    match (a, b) {
        (0, 0) => None,
        (a, b) if a == 0 || b == 0 || a == b => Some(a.max(b).to_string()),
        (a, b) => Some(format!("{a} by {b}")),
    }
}

/// Height of an entry.
const ROW: f32 = 16.0;
/// Entries of colours that are shown.
const MOST: usize = 15;

/// The entries, with what the colours say first where that is to be said.
fn entries(dress: &Dress, marks: [Option<&Marks>; 2]) -> Vec<(Color32, String)> {
    let mut entries: Vec<(Color32, String)> = match &dress.palette.missing {
        Some(why) => vec![(Color32::TRANSPARENT, (*why).to_string())],
        None => dress.palette.legend.clone(),
    };
    if dress.palette.scale {
        entries.reverse();
    }
    entries.splice(0..0, heading(dress).map(|h| (Color32::TRANSPARENT, h.clone())));
    if entries.len() > MOST {
        let more = entries.len() - MOST;
        entries.truncate(MOST);
        entries.push((Color32::TRANSPARENT, format!("{more} more")));
    }
    entries.extend(dress.palette.remarks.iter().filter(|_| dress.palette.missing.is_none()).cloned());
    let used = |m: Mark| counted(m, marks[0], marks[1]);
    entries.extend(Mark::ALL.iter().filter_map(|(m, word)| Some((mark_colour(*m), format!("{word}: {}", used(*m)?)))));
    if dress.borders.contains(&true) {
        entries.push((border_colour(), "not fused: why is at the edge".to_string()));
    }
    entries
}

fn heading(dress: &Dress) -> Option<&String> {
    Some(&dress.palette.heading).filter(|h| !h.is_empty() && dress.palette.missing.is_none())
}

/// Height of the legend in points; 0 if there is nothing to say.
pub fn height(dress: &Dress, marks: [Option<&Marks>; 2]) -> f32 {
    match entries(dress, marks).len() {
        0 => 0.0,
        n => ROW * n as f32 + 8.0,
    }
}

/// Paints the legend into the lower left corner. `marks` are those of this graph and of the graph at its right.
pub fn paint(painter: &Painter, screen: Rect, dress: &Dress, marks: [Option<&Marks>; 2]) {
    let ink = Ink::new(dress.dark);
    let font = FontId::proportional(11.0);
    let (entries, first) = (entries(dress, marks), usize::from(heading(dress).is_some()));
    if entries.is_empty() {
        return;
    }
    let galleys: Vec<_> =
        entries.iter().map(|(_, t)| painter.layout_no_wrap(t.clone(), font.clone(), ink.weak)).collect();
    let width = galleys.iter().map(|g| g.size().x).fold(0.0, f32::max) + 34.0;
    let height = ROW * entries.len() as f32 + 8.0;
    let corner = pos2(screen.min.x + 10.0, screen.max.y - 10.0 - height);
    let rect = Rect::from_min_size(corner, vec2(width, height));
    let edge = Stroke::new(1.0, ink.line.gamma_multiply(0.5));
    painter.rect(rect, 4.0, ink.ground, edge, StrokeKind::Middle);
    for (k, ((colour, _), galley)) in entries.iter().zip(galleys).enumerate() {
        let y = rect.min.y + 4.0 + ROW * k as f32;
        let patch = Rect::from_min_size(pos2(rect.min.x + 8.0, y + 3.0), vec2(14.0, 10.0));
        if *colour == border_colour() {
            painter.vline(patch.center().x, patch.y_range(), Stroke::new(2.0, *colour));
        } else if *colour != Color32::TRANSPARENT {
            painter.rect(patch, 2.0, *colour, Stroke::new(0.5, ink.line), StrokeKind::Middle);
        }
        let left = if *colour == Color32::TRANSPARENT { 10.0 } else { 27.0 };
        painter.galley(pos2(rect.min.x + left, y + (ROW - galley.size().y) / 2.0), galley, ink.weak);
    }
    if dress.palette.scale {
        let below = rect.with_min_y(rect.min.y + ROW * first as f32);
        ramp(painter, below, &entries[first..(first + dress.palette.legend.len()).min(entries.len())]);
    }
}

/// A scale runs without steps.
fn ramp(painter: &Painter, rect: Rect, entries: &[(Color32, String)]) {
    let mut mesh = Mesh::default();
    for (k, (colour, _)) in entries.iter().enumerate() {
        let y = rect.min.y + 12.0 + 16.0 * k as f32;
        mesh.colored_vertex(pos2(rect.min.x + 8.0, y), *colour);
        mesh.colored_vertex(pos2(rect.min.x + 22.0, y), *colour);
        if k > 0 {
            let n = 2 * k as u32;
            mesh.add_triangle(n - 2, n - 1, n);
            mesh.add_triangle(n - 1, n, n + 1);
        }
    }
    painter.add(Shape::mesh(mesh));
}

/// The tooltip of a box.
pub fn tip(response: &Response, document: &Document, dress: &Dress, i: usize) {
    let b = &dress.drawn.scene.boxes[i];
    let n = &b.node;
    response.clone().on_hover_ui_at_pointer(|ui| {
        ui.set_max_width(420.0);
        ui.strong(&n.op);
        if !n.name.is_empty() {
            ui.label(&n.name);
        }
        for ty in &n.outputs {
            ui.monospace(ty);
        }
        if !n.attrs.is_empty() {
            ui.weak(&n.attrs);
        }
        if let Some(ms) = document.time_of(n) {
            ui.label(milliseconds(ms));
        }
        if let Some(pair) = dress.delta.as_ref().and_then(|d| d.of(document, n)) {
            let [a, b] = pair.ms.map(milliseconds);
            let words = if pair.changed { "" } else { ", within noise" };
            ui.label(format!("{a} at the left, {b} at the right{words}"));
        }
        if let Some((error, pass)) = document.error_of(n) {
            ui.label(format!("relative error {error:.1e}{}", if pass { "" } else { ", beyond the tolerance" }));
        }
        let words = match (b.can_open(), b.open) {
            (false, _) => "",
            (true, true) => "Double-click closes it.",
            (true, false) => "Double-click opens it in place.",
        };
        if !words.is_empty() {
            ui.weak(words);
        }
    });
}

/// The tooltip of an edge: the value, and why fusion did not cross it.
pub fn edge_tip(response: &Response, document: &Document, dress: &Dress, i: usize) {
    let scene = &dress.drawn.scene;
    let e = &scene.edges[i];
    let name = |i: usize| {
        let n = &scene.boxes[i].node;
        let name = document.layer_of(n).unwrap_or_else(|| n.name.clone());
        if name.is_empty() { n.op.clone() } else { format!("{} {}", n.op, short(&name)) }
    };
    let why = dress.border(document, i);
    response.clone().on_hover_ui_at_pointer(|ui| {
        ui.set_max_width(460.0);
        ui.monospace(&e.label);
        ui.label(format!("from {} to {}", name(e.from), name(e.to)));
        if !why.is_empty() {
            ui.separator();
            ui.colored_label(border_colour(), "Why they are not one group");
            why.iter().take(6).for_each(|w| {
                ui.label(w);
            });
        }
    });
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
}
