//! The memory of a run: a curve of what is held, and the live range of each buffer, in dispatches.

mod curve;

use crate::canvas::colour::pastel;
use crate::state::Viewer;
use crate::units::mega;
use compiler::trace::Content;
use egui::{Align2, FontId, Rect, Sense, Stroke, StrokeKind, Ui, pos2, vec2};
use graphview::memory::{Span, UsedBuffers, spans, steps};

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
    let run = steps(t);
    let spans = spans(t, &run);
    if spans.is_empty() {
        ui.weak("This model has no intermediate results on the device.");
        return;
    }
    curve::show(ui, v, &run, &spans);
    chart(ui, v, &run, &spans);
    ui.weak("Across: steps of a run. Down: buffers of the pool, each as high as it is large. Grey: it holds a value that is still read. Patches: fused groups that use it.");
}

fn chart(ui: &mut Ui, v: &mut Viewer, steps: &[UsedBuffers], spans: &[Span]) {
    let size = vec2(ui.available_width() - 8.0, (ui.available_height() - 60.0).clamp(120.0, 700.0));
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    // The spans of a buffer stand together.
    let buffers: Vec<&[Span]> = spans.chunk_by(|a, b| a.buffer == b.buffer).collect();
    let total: u64 = buffers.iter().map(|b| b[0].bytes).sum();
    let high = |bytes: u64| bytes as f32 / total.max(1) as f32 * rect.height();
    let across = |step: usize| rect.min.x + step as f32 / steps.len().max(1) as f32 * rect.width();
    let painter = ui.painter_at(rect);
    painter.rect_filled(rect, 0.0, ui.visuals().extreme_bg_color);
    let weak = ui.visuals().weak_text_color();
    let mut top = rect.min.y;
    let pointer = response.hover_pos();
    let (mut hovered, mut chosen) = (None, None);
    for own in buffers {
        let s = &own[0];
        let row = Rect::from_min_max(pos2(rect.min.x, top), pos2(rect.max.x, top + high(s.bytes).max(1.0)));
        top = row.max.y;
        for held in own {
            let place = Rect::from_x_y_ranges(across(held.first)..=across(held.last + 1), row.y_range());
            painter.rect_filled(place.shrink2(vec2(0.0, 0.4)), 1.0, weak.gamma_multiply(0.18));
            for (i, step) in steps.iter().enumerate().take(held.last + 1).skip(held.first) {
                let (true, Some(g)) = (step.buffers.contains(&s.buffer), step.group) else { continue };
                let patch = Rect::from_x_y_ranges(across(i)..=across(i + 1), place.shrink2(vec2(0.0, 0.4)).y_range());
                painter.rect_filled(patch.shrink2(vec2(0.4, 0.0)), 0.0, pastel(g, ui.visuals().dark_mode));
                if v.marks(&v.trace().groups[g].origins) {
                    let stroke = Stroke::new(1.5, ui.visuals().selection.stroke.color);
                    painter.rect_stroke(patch, 0.0, stroke, StrokeKind::Inside);
                }
                if pointer.is_some_and(|p| patch.contains(p)) {
                    hovered = Some((s.buffer, s.bytes, i, g));
                }
            }
        }
        if row.height() > 13.0 {
            let at = row.left_center() + vec2(4.0, 0.0);
            let ink = ui.visuals().text_color();
            painter.text(at, Align2::LEFT_CENTER, mega(s.bytes), FontId::proportional(10.0), ink);
        }
    }
    if let Some((buffer, bytes, step, group)) = hovered {
        let layer = &v.trace().groups[group].label;
        let text = format!("buffer {buffer}, {}\nstep {step}: {layer}", mega(bytes));
        if response.on_hover_text_at_pointer(text).clicked() {
            chosen = Some(group);
        }
    }
    if let Some(group) = chosen {
        v.select_group(group);
    }
}
