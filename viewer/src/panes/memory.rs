//! The memory of a run: a curve of what is held, and the live range of each buffer, in dispatches. A network in parts
//! has them behind each other.

mod curve;

use crate::canvas::colour::pastel;
use crate::once::{in_sight, visit};
use crate::state::Viewer;
use crate::units::mega;
use compiler::trace::{CompileTrace, Content};
use egui::epaint::Mesh;
use egui::{Align2, FontId, Rect, Sense, Shape, Ui, pos2, vec2};
use graphview::memory::{Span, UsedBuffers, curve as held, spans, steps};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A use of a buffer in a step, as it is drawn.
struct Patch {
    place: Rect,
    /// The buffer, its bytes and the group that uses it.
    buffer: usize,
    bytes: u64,
    group: usize,
}

/// The drawing, made once for a selection and a place on the screen.
pub(crate) struct Chart {
    run: Vec<UsedBuffers>,
    spans: Vec<Span>,
    /// Bytes held in each step, and the most in each column of the curve.
    held: Vec<u64>,
    columns: Vec<u64>,
    /// The first step in which most is held.
    peak: Option<usize>,
    /// The largest values that are held in each step, by their places among the spans, and how many there are.
    living: Vec<(Vec<usize>, usize)>,
    /// The first step of each part with its name and the most bytes that it holds; empty for one part.
    parts: Vec<(usize, String, u64)>,
    /// The live ranges and what uses them, and the same where it was last drawn.
    ranges: Mesh,
    placed: RefCell<(egui::Pos2, Arc<Mesh>)>,
    /// The uses in each step.
    uses: Vec<Vec<Patch>>,
    /// Buffers that are high enough for a label: its place and bytes.
    labels: Vec<(egui::Pos2, u64)>,
}

/// The parts of a network by their steps.
fn parts(t: &CompileTrace, run: &[UsedBuffers], held: &[u64]) -> Vec<(usize, String, u64)> {
    let mut out: Vec<(usize, usize, u64)> = vec![];
    for (i, (step, &bytes)) in run.iter().zip(held).enumerate() {
        let Some(part) = step.group.map(|g| t.part_of_group(g)) else { continue };
        match out.last_mut().filter(|o| o.1 == part) {
            Some(last) => last.2 = last.2.max(bytes),
            None => out.push((i, part, bytes)),
        }
    }
    let named = |(i, part, bytes): (usize, usize, u64)| Some((i, t.parts.get(part)?.name.clone(), bytes));
    out.into_iter().filter_map(named).collect()
}

/// The most bytes in each point of a curve of this width.
fn columns(held: &[u64], width: f32) -> Vec<u64> {
    let count = (width.max(1.0) as usize).min(held.len());
    let mut out = vec![0; count];
    held.iter().enumerate().for_each(|(i, &bytes)| {
        let column = &mut out[i * count / held.len()];
        *column = bytes.max(*column);
    });
    out
}

/// The values that are held in each step, the largest first.
fn living(spans: &[Span], steps: usize) -> Vec<(Vec<usize>, usize)> {
    let mut change: Vec<[Vec<usize>; 2]> = (0..=steps).map(|_| Default::default()).collect();
    for (i, s) in spans.iter().enumerate() {
        change[s.first][0].push(i);
        change[s.last + 1][1].push(i);
    }
    let mut now = BTreeSet::new();
    let key = |i: usize| (std::cmp::Reverse(spans[i].bytes), spans[i].first, i);
    let each = change.iter().map(|[begin, end]| {
        end.iter().for_each(|&i| {
            now.remove(&key(i));
        });
        now.extend(begin.iter().map(|&i| key(i)));
        (now.iter().take(curve::LISTED).map(|k| k.2).collect(), now.len())
    });
    each.take(steps).collect()
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

impl Chart {
    fn of(v: &Viewer, size: egui::Vec2, [grey, accent]: [egui::Color32; 2], dark: bool) -> Chart {
        let t = v.trace();
        let run = steps(t);
        let spans = spans(t, &run);
        visit(run.len() + spans.len());
        let held = held(&spans, run.len());
        let total: u64 = spans.chunk_by(|a, b| a.buffer == b.buffer).map(|own| own[0].bytes).sum();
        let across = |step: usize| step as f32 / run.len().max(1) as f32 * size.x;
        let mut out = Chart {
            parts: parts(t, &run, &held),
            columns: columns(&held, size.x),
            living: living(&spans, run.len()),
            peak: (0..held.len()).max_by_key(|&i| (held[i], usize::MAX - i)).filter(|&i| held[i] > 0),
            held,
            ranges: Mesh::default(),
            placed: RefCell::default(),
            uses: run.iter().map(|_| vec![]).collect(),
            labels: vec![],
            run: vec![],
            spans: vec![],
        };
        let mut mesh = Mesh::default();
        let mut top = 0.0;
        // The spans of a buffer stand together.
        for own in spans.chunk_by(|a, b| a.buffer == b.buffer) {
            let (buffer, bytes) = (own[0].buffer, own[0].bytes);
            let high = (bytes as f32 / total.max(1) as f32 * size.y).max(1.0);
            let down = top + 0.4..=top + high - 0.4;
            for held in own {
                let place = Rect::from_x_y_ranges(across(held.first)..=across(held.last + 1), down.clone());
                mesh.add_colored_rect(place, grey);
                for i in held.first..=held.last {
                    let (true, Some(group)) = (run[i].buffers.contains(&buffer), run[i].group) else { continue };
                    let place = Rect::from_x_y_ranges(across(i)..=across(i + 1), down.clone());
                    if v.marks(&t.groups[group].origins) {
                        mesh.add_colored_rect(place.expand2(vec2(0.0, 1.0)), accent);
                    }
                    let inner = place.shrink2(vec2((place.width() * 0.2).min(0.4), 0.0));
                    mesh.add_colored_rect(inner, pastel(group, dark));
                    out.uses[i].push(Patch { place, buffer, bytes, group });
                }
            }
            if high > 13.0 {
                out.labels.push((pos2(4.0, top + high / 2.0), bytes));
            }
            top += high;
        }
        (out.ranges, out.run, out.spans) = (mesh, run, spans);
        out
    }
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
