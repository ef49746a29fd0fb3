//! The drawing of a run's memory, made once.

use crate::canvas::colour::pastel;
use crate::once::visit;
use crate::state::Viewer;
use compiler::trace::CompileTrace;
use egui::epaint::Mesh;
use egui::{Rect, pos2, vec2};
use graphview::memory::{Span, UsedBuffers, curve as held, spans, steps};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Inhabitants of a step that are listed.
pub(super) const LISTED: usize = 6;

/// A use of a buffer in a step, as it is drawn.
pub(super) struct Patch {
    pub(super) place: Rect,
    /// The buffer, its bytes and the group that uses it.
    pub(super) buffer: usize,
    pub(super) bytes: u64,
    pub(super) group: usize,
}

/// The drawing, made once for a selection and a place on the screen.
pub(super) struct Chart {
    pub(super) run: Vec<UsedBuffers>,
    pub(super) spans: Vec<Span>,
    /// Bytes held in each step, and the most in each column of the curve.
    pub(super) held: Vec<u64>,
    pub(super) columns: Vec<u64>,
    /// The first step in which most is held.
    pub(super) peak: Option<usize>,
    /// The largest values that are held in each step, by their places among the spans, and how many there are.
    pub(super) living: Vec<(Vec<usize>, usize)>,
    /// The first step of each part with its name and the most bytes that it holds; empty for one part.
    pub(super) parts: Vec<(usize, String, u64)>,
    /// The live ranges and what uses them, and the same where it was last drawn.
    pub(super) ranges: Mesh,
    pub(super) placed: RefCell<(egui::Pos2, Arc<Mesh>)>,
    /// The uses in each step.
    pub(super) uses: Vec<Vec<Patch>>,
    /// Buffers that are high enough for a label: its place and bytes.
    pub(super) labels: Vec<(egui::Pos2, u64)>,
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
        (now.iter().take(LISTED).map(|k| k.2).collect(), now.len())
    });
    each.take(steps).collect()
}

impl Chart {
    pub(super) fn of(v: &Viewer, size: egui::Vec2, [grey, accent]: [egui::Color32; 2], dark: bool) -> Chart {
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
                for (i, step) in run.iter().enumerate().take(held.last + 1).skip(held.first) {
                    let (true, Some(group)) = (step.buffers.contains(&buffer), step.group) else { continue };
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
