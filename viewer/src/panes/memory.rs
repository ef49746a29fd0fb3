//! The memory of a run: a curve of what is held, and the live range of each buffer, in dispatches.

mod curve;
mod live;

use crate::canvas::colour::pastel;
use crate::state::Viewer;
use compiler::trace::{CompileTrace, Content};
use egui::{Align2, FontId, Rect, Sense, Stroke, StrokeKind, Ui, pos2, vec2};
use live::mega;

/// A buffer and when it is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its position in the plan.
    pub buffer: usize,
    /// Bytes.
    pub bytes: u64,
    /// The first and the last step that use it, dispatches counted one by one.
    pub from: usize,
    /// See `from`.
    pub to: usize,
}

/// Steps as the plan has them, dispatches one by one: the buffers of each and its group.
fn steps(t: &CompileTrace) -> Vec<(Vec<usize>, Option<usize>)> {
    live::accesses(t).into_iter().map(|a| ([a.reads, a.writes].concat(), a.group)).collect()
}

/// Buffers of activations with the time that they are in use, the largest first.
pub fn spans(t: &CompileTrace) -> Vec<Span> {
    let mut used: Vec<Option<(usize, usize)>> = vec![None; t.plan.buffers.len()];
    for (i, (buffers, _)) in steps(t).iter().enumerate() {
        for &b in buffers {
            used[b] = Some(used[b].map_or((i, i), |(from, _)| (from, i)));
        }
    }
    let mut out: Vec<Span> = used
        .into_iter()
        .enumerate()
        .filter(|(b, _)| t.plan.buffers[*b].content == Content::Pool)
        .filter_map(|(buffer, span)| {
            span.map(|(from, to)| Span { buffer, bytes: t.plan.buffers[buffer].bytes, from, to })
        })
        .collect();
    out.sort_by_key(|s| (std::cmp::Reverse(s.bytes), s.buffer));
    out
}

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
    let spans = spans(t);
    if spans.is_empty() {
        ui.weak("This model has no intermediate results on the device.");
        return;
    }
    curve::show(ui, v);
    chart(ui, v, &spans);
    ui.weak("Across: steps of a run. Down: buffers of the pool, each as high as it is large. Patches: results in it, by fused group.");
}

fn chart(ui: &mut Ui, v: &mut Viewer, spans: &[Span]) {
    let steps = steps(v.trace());
    let size = vec2(ui.available_width() - 8.0, (ui.available_height() - 40.0).clamp(120.0, 700.0));
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    let total: u64 = spans.iter().map(|s| s.bytes).sum();
    let high = |bytes: u64| bytes as f32 / total.max(1) as f32 * rect.height();
    let across = |step: usize| rect.min.x + step as f32 / steps.len().max(1) as f32 * rect.width();
    let painter = ui.painter_at(rect);
    painter.rect_filled(rect, 0.0, ui.visuals().extreme_bg_color);
    let weak = ui.visuals().weak_text_color();
    let mut top = rect.min.y;
    let pointer = response.hover_pos();
    let (mut hovered, mut chosen) = (None, None);
    for s in spans {
        let row = Rect::from_min_max(pos2(rect.min.x, top), pos2(rect.max.x, top + high(s.bytes).max(1.0)));
        top = row.max.y;
        let held = Rect::from_min_max(pos2(across(s.from), row.min.y), pos2(across(s.to + 1), row.max.y))
            .shrink2(vec2(0.0, 0.4));
        painter.rect_filled(held, 1.0, weak.gamma_multiply(0.18));
        for (i, (buffers, group)) in steps.iter().enumerate().take(s.to + 1).skip(s.from) {
            let (true, Some(g)) = (buffers.contains(&s.buffer), group) else { continue };
            let patch = Rect::from_x_y_ranges(across(i)..=across(i + 1), held.y_range());
            painter.rect_filled(patch.shrink2(vec2(0.4, 0.0)), 0.0, pastel(*g, ui.visuals().dark_mode));
            if v.marks(&v.trace().groups[*g].origins) {
                let stroke = Stroke::new(1.5, ui.visuals().selection.stroke.color);
                painter.rect_stroke(patch, 0.0, stroke, StrokeKind::Inside);
            }
            if pointer.is_some_and(|p| patch.contains(p)) {
                hovered = Some((s.buffer, s.bytes, i, *g));
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
