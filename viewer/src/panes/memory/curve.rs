//! Memory over the steps of a run: the bytes of pool buffers that hold a value somebody still reads, and what holds
//! them at the peak.

use super::chart::Chart;
use crate::canvas::colour::pastel;
use crate::once::{in_sight, visit};
use crate::state::Viewer;
use crate::units::{ending, mega};
use compiler::trace::Group;
use egui::epaint::Mesh;
use egui::{Align2, FontId, RichText, Sense, Shape, Stroke, Ui, pos2, vec2};

const HEIGHT: f32 = 96.0;

/// Points of a small character, on an average.
const SMALL: f32 = 5.2;
/// Characters of `  steps 100 to 101`.
const STEPS: usize = 18;

/// Draws the curve, and lists the inhabitants of the step under the pointer, else of the peak.
pub(super) fn show(ui: &mut Ui, v: &mut Viewer, chart: &Chart) {
    let (curve, steps) = (&chart.held, chart.run.len());
    let Some(peak) = chart.peak else { return };
    visit(chart.columns.len());
    in_sight(chart.columns.len());
    let size = vec2((ui.available_width() - 8.0).max(100.0), HEIGHT);
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    let painter = ui.painter_at(rect);
    painter.rect_filled(rect, 0.0, ui.visuals().extreme_bg_color);
    let x = |step: usize| rect.min.x + step as f32 / steps as f32 * rect.width();
    let y = |bytes: u64| rect.max.y - bytes as f32 / curve[peak] as f32 * (rect.height() - 16.0);
    let accent = ui.visuals().selection.bg_fill;
    let mut mesh = Mesh::default();
    let column = |i: usize| rect.min.x + i as f32 / chart.columns.len() as f32 * rect.width();
    for (i, &bytes) in chart.columns.iter().enumerate() {
        let column = egui::Rect::from_min_max(pos2(column(i), y(bytes)), pos2(column(i + 1), rect.max.y));
        mesh.add_colored_rect(column, accent);
    }
    painter.add(Shape::mesh(mesh));
    for (step, name, _) in chart.parts.iter().filter(|_| chart.parts.len() > 1) {
        let weak = ui.visuals().weak_text_color();
        painter.vline(x(*step), rect.y_range(), Stroke::new(1.0, weak));
        let (at, align) = match x(*step) < rect.center().x {
            true => (pos2(x(*step) + 3.0, rect.max.y - 2.0), Align2::LEFT_BOTTOM),
            false => (pos2(x(*step) - 3.0, rect.max.y - 2.0), Align2::RIGHT_BOTTOM),
        };
        painter.text(at, align, name, FontId::proportional(10.0), ui.visuals().text_color());
    }
    let pointed = response.hover_pos().map(|p| ((p.x - rect.min.x) / rect.width() * steps as f32) as usize);
    let step = pointed.filter(|s| *s < steps).unwrap_or(peak);
    let ink = ui.visuals().text_color();
    painter.vline((x(step) + x(step + 1)) / 2.0, rect.y_range(), Stroke::new(1.0, ink));
    let word = if step == peak { "peak" } else { "step" };
    let text = format!("{word}: {} held in step {step} of {steps}", mega(curve[step]));
    painter.text(rect.left_top() + vec2(4.0, 2.0), Align2::LEFT_TOP, text, FontId::proportional(11.0), ink);
    inhabitants(ui, v, chart, step);
}

/// The label of a group; of a loop or a branch, which has none, what it is.
fn title_of(g: &Group) -> String {
    if g.label.is_empty() { g.ops.join(" + ") } else { g.label.clone() }
}

/// The values that are held in a step, the largest first.
fn inhabitants(ui: &mut Ui, v: &mut Viewer, chart: &Chart, step: usize) {
    let run = &chart.run;
    let Some((list, all)) = chart.living.get(step) else { return };
    let more = all - list.len();
    let mut chosen = None;
    for h in list.iter().map(|&i| &chart.spans[i]) {
        ui.horizontal(|ui| {
            let (patch, _) = ui.allocate_exact_size(vec2(10.0, 10.0), Sense::hover());
            let writer = run[h.first].group;
            let name = match writer {
                Some(g) => {
                    ui.painter().rect_filled(patch, 2.0, pastel(g, ui.visuals().dark_mode));
                    title_of(&v.trace().groups[g])
                }
                None => "a copy".into(),
            };
            ui.monospace(RichText::new(format!("{:>9}", mega(h.bytes))).small());
            // A long name must not widen the pane: the end of the layer's, and all of it at the pointer.
            let layer = name.split('+').next().unwrap_or(&name);
            let room = (ui.available_width() / SMALL) as usize;
            let short = ending(layer, room.saturating_sub(STEPS).max(12));
            let text = RichText::new(format!("{short}  steps {} to {}", h.first, h.last)).small();
            if ui.selectable_label(false, text).on_hover_text(name).clicked() {
                chosen = writer;
            }
        });
    }
    if more > 0 {
        ui.weak(RichText::new(format!("and {more} smaller ones")).small());
    }
    if let Some(group) = chosen {
        v.select_group(group);
    }
}
