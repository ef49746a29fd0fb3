//! The memory of a run: a curve of what is held, and the live range of each buffer, in dispatches. A network in parts
//! has them behind each other.

mod chart;
mod curve;

use crate::once::{in_sight, visit};
use crate::state::Viewer;
use crate::units::mega;
use chart::Chart;
use compiler::trace::Content;
use egui::{Align2, FontId, Sense, Shape, Ui, vec2};
use std::sync::Arc;

/// Draws the pane.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    let t = v.trace();
    let (m, constants) = (&t.memory, t.plan.buffers.iter().filter(|b| matches!(b.content, Content::Constant { .. })));
    let saved = 100.0 - m.activations_peak as f64 / m.activations_naive.max(1) as f64 * 100.0;
    ui.horizontal_wrapped(|ui| {
        ui.label(format!("{} of constants in {} buffers", mega(m.weights), constants.count()));
        ui.separator();
        ui.label(format!("{} of activations", mega(m.activations_peak)));
        if m.activations_naive > 0 {
            let text = format!("{} without sharing: {saved:.0}% saved", mega(m.activations_naive));
            ui.weak(text).on_hover_text("The sum over all intermediate results that fusion left");
        }
    });
    ui.separator();
    let room = ui.available_rect_before_wrap();
    let key = [room.min.x, room.min.y, room.max.x, room.max.y].map(|x| x.round() as u32);
    let dark = ui.visuals().dark_mode;
    let accent = ui.visuals().selection.stroke.color;
    let weak = ui.visuals().weak_text_color();
    let width = ui.available_width() - 8.0;
    let height = (room.height() - 360.0).clamp(100.0, 700.0);
    let chart = v.once((v.selection(), key, dark), |v| {
        Chart::of(v, vec2(width, height), [weak.gamma_multiply(0.18), accent], dark)
    });
    if chart.spans.is_empty() {
        ui.weak("This model has no intermediate results on the device.");
        return;
    }
    if chart.parts.len() > 1 {
        let each = chart.parts.iter().map(|(_, name, bytes)| format!("{name}: {}", mega(*bytes)));
        ui.weak(format!("At the peak of each part: {}", each.collect::<Vec<_>>().join(", ")));
    }
    curve::show(ui, v, &chart);
    ranges(ui, v, &chart, vec2(width, height));
    ui.weak("Across: steps of a run. Down: buffers of the pool, each as high as it is large. Grey: it holds a value that is still read. Patches: fused groups that use it.");
}

/// The live ranges.
fn ranges(ui: &mut Ui, v: &mut Viewer, chart: &Chart, size: egui::Vec2) {
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    let painter = ui.painter_at(rect);
    painter.rect_filled(rect, 0.0, ui.visuals().extreme_bg_color);
    let mut placed = chart.placed.borrow_mut();
    if placed.0 != rect.min || placed.1.is_empty() {
        let mut mesh = chart.ranges.clone();
        visit(mesh.vertices.len() / 4);
        mesh.translate(rect.min.to_vec2());
        *placed = (rect.min, Arc::new(mesh));
    }
    painter.add(Shape::Mesh(placed.1.clone()));
    in_sight(chart.labels.len());
    let ink = ui.visuals().text_color();
    for (at, bytes) in &chart.labels {
        let at = rect.min + at.to_vec2();
        painter.text(at, Align2::LEFT_CENTER, mega(*bytes), FontId::proportional(10.0), ink);
    }
    let Some(p) = response.hover_pos().map(|p| p - rect.min.to_vec2()) else { return };
    let step = ((p.x / rect.width() * chart.run.len() as f32) as usize).min(chart.run.len().saturating_sub(1));
    let found = chart.uses.get(step).and_then(|list| list.iter().find(|u| u.place.contains(p)));
    if let Some(u) = found {
        let layer = &v.trace().groups[u.group].label;
        let text = format!("buffer {}, {}\nstep {step}: {layer}", u.buffer, mega(u.bytes));
        if response.on_hover_text_at_pointer(text).clicked() {
            v.select_group(u.group);
        }
    }
}
