//! Precision: casts that the compiler inserted, nodes that it kept in f32 and why, and errors against a reference.

mod chart;

pub(crate) use chart::show as chart;

use super::in_view;
use crate::canvas::scale::ErrorScale;
use crate::once::visit;
use crate::state::Viewer;
use crate::units::{counted, ending, si};
use crate::words;
use compiler::remark::RemarkKind;
use egui::{Color32, Grid, RichText, ScrollArea, Sense, Stroke, StrokeKind, Ui, Vec2, vec2};
use graphview::maps::{Share, shares};
use graphview::names::path;
use graphview::picture::{Category, Node, Picture};
use graphview::reasons::{LARGEST_F16, magnitude};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Height of a row of a list.
const LINE: f32 = 20.0;

/// The pass that decides what is stored in f16.
const PASS: &str = "mixed-precision";

/// Draws the pane.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    ScrollArea::both().id_salt("precision").auto_shrink(false).show(ui, |ui| {
        ui.label(format!("Mixed precision: {}", v.trace().options.amp));
        let Some(summary) = summed(v) else { return };
        parts(ui, v, &summary);
        errors(ui, v, &summary);
        casts(ui, v, &summary);
        kept(ui, v, &summary);
    });
}

/// What is stored in which type: shares, casts, and what stays in f32.
pub(crate) fn summary(ui: &mut Ui, v: &mut Viewer) {
    ui.separator();
    let Some(summary) = summed(v) else { return };
    parts(ui, v, &summary);
    casts(ui, v, &summary);
    kept(ui, v, &summary);
}

/// Element types, casts and what stays in f32, made once for a graph.
pub(crate) struct Summary {
    shares: Vec<(String, Share)>,
    /// A line for each form of packed weights.
    packed: Vec<String>,
    /// All casts of the graph, and those that were put in, with their keys.
    casts: usize,
    inserted: Vec<(String, String)>,
    /// Remarks that say what stays in f32, and how many say what does not.
    kept: Vec<usize>,
    applied: usize,
    /// The compared nodes, the largest errors first, with the scale of their colours.
    order: Vec<usize>,
    scale: Option<ErrorScale>,
    /// Whether errors with those before are known.
    both: bool,
}

impl Summary {
    fn of(v: &Viewer, picture: &Picture) -> Summary {
        let t = v.trace();
        let nodes = picture.walk();
        visit(nodes.len() + t.sources.len() + t.remarks.len());
        let sources: BTreeSet<&str> = t.sources.iter().map(|s| s.name.as_str()).collect();
        let casts: Vec<&Node> = nodes.into_iter().filter(|n| n.category == Category::Cast).collect();
        let inserted = casts.iter().filter(|n| !sources.contains(n.name.as_str()));
        let to = |n: &Node| n.outputs.first().cloned().unwrap_or_default();
        let about = |i: &usize| t.remarks[*i].pass.as_str() == PASS;
        let (kept, applied): (Vec<usize>, Vec<usize>) =
            (0..t.remarks.len()).filter(about).partition(|&i| t.remarks[i].kind == RemarkKind::Missed);
        let errors = t.errors.as_ref();
        let list = errors.map_or(&[][..], |e| &e.nodes);
        let mut order: Vec<usize> = (0..list.len()).collect();
        order.sort_by(|&a, &b| list[b].rel_l2.total_cmp(&list[a].rel_l2));
        Summary {
            shares: shares(t, picture).into_iter().collect(),
            packed: packed(v),
            inserted: inserted.map(|n| (n.key.clone(), format!("{}  to {}", n.name, to(n)))).collect(),
            casts: casts.len(),
            kept,
            applied: applied.len(),
            order,
            scale: errors.and_then(|e| ErrorScale::of(e, e.cumulative)),
            both: list.iter().any(|n| n.accumulated.is_some()),
        }
    }
}

/// The summary of the shown graph; `None` until it is laid out.
fn summed(v: &mut Viewer) -> Option<Arc<Summary>> {
    let drawn = v.after()?.ok()?;
    Some(v.once(drawn.want.stage, |v| Summary::of(v, &drawn.picture)))
}

/// What each element type has of the run.
fn parts(ui: &mut Ui, v: &Viewer, summary: &Summary) {
    let timed = v.trace().times.is_some();
    let heads = ["", "bytes", "FLOPs", if timed { "time" } else { "" }];
    Grid::new("element types").num_columns(4).spacing([18.0, 2.0]).show(ui, |ui| {
        heads.iter().for_each(|h| {
            ui.weak(*h);
        });
        ui.end_row();
        for (name, s) in &summary.shares {
            let cells = [Some(s.bytes), Some(s.flops), timed.then_some(s.ms)];
            ui.label(name);
            cells.into_iter().flatten().for_each(|x| {
                ui.label(format!("{:.1} %", 100.0 * x));
            });
            ui.end_row();
        }
    });
    ui.weak("FLOPs and time: of kernels that read or write such tensors, f16 first. Arithmetic is f32.");
    summary.packed.iter().for_each(|line| {
        ui.label(line);
    });
}

/// Weights whose elements share words, by type and block: the table of types counts their bytes as u32.
fn packed(v: &Viewer) -> Vec<String> {
    let mut forms: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for (_, ty) in v.document().all_packed() {
        let Some((form, dims)) = ty.split_once(" [") else { continue };
        let sizes = dims.trim_end_matches(']').split(',').map(|d| d.parse::<f64>().unwrap_or(1.0));
        let form = forms.entry(form).or_default();
        *form = (form.0 + 1, form.1 + sizes.product::<f64>());
    }
    let line = |(form, (count, elements)): (&str, (usize, f64))| {
        let operands = counted(count, "operand");
        format!("{form}: {operands}, {} elements, decoded by the kernels that read them", si(elements))
    };
    forms.into_iter().map(line).collect()
}

fn casts(ui: &mut Ui, v: &mut Viewer, summary: &Summary) {
    ui.separator();
    ui.strong(format!("{} in this graph, {} of them put in", counted(summary.casts, "cast"), summary.inserted.len()));
    let mut chosen = None;
    in_view(ui, summary.inserted.len(), LINE, |ui, i| {
        let (key, text) = &summary.inserted[i];
        if ui.link(RichText::new(text).small()).clicked() {
            chosen = Some(key.clone());
        }
    });
    if let Some(key) = chosen {
        v.focus_key(&key);
    }
}

fn kept(ui: &mut Ui, v: &mut Viewer, summary: &Summary) {
    ui.separator();
    ui.strong(format!(
        "{} remarks say what stays in f32 and why, {} what does not",
        summary.kept.len(),
        summary.applied
    ));
    if summary.kept.is_empty() && summary.applied == 0 {
        ui.weak("Everything is as the model has it. `--amp fp16` or `--amp auto` stores tensors in f16.");
    }
    let mut chosen = None;
    in_view(ui, summary.kept.len(), LINE, |ui, i| {
        if ui.link(RichText::new(&v.trace().remarks[summary.kept[i]].message).small()).clicked() {
            chosen = Some(summary.kept[i]);
        }
    });
    if let Some(i) = chosen {
        v.select_remark(i);
    }
}

/// The patch of colour before a node's errors.
const PATCH: Vec2 = vec2(10.0, 10.0);
/// Characters of a column of errors.
const WIDE: usize = 7;
/// Points of a character of a small text, on an average.
const SMALL_CHARACTER: f32 = 5.9;
/// Characters of a name where there is no room for it.
const LEAST_NAME: usize = 8;
/// Columns of errors, with what they are.
const COLUMNS: [(&str, &str); 4] = [
    ("alone", "norm of the difference, relative to the norm of the reference"),
    ("summed", "the same with the errors of the nodes before it"),
    ("at most", "largest difference of an element"),
    ("reaches", "largest magnitude of the reference; f16 ends at 65504"),
];

/// The headings of the list of errors.
fn heads(ui: &mut Ui, first: (&str, &str), both: bool) {
    let shown = [Some(first), both.then_some(COLUMNS[1]), Some(COLUMNS[2]), Some(COLUMNS[3])];
    ui.horizontal(|ui| {
        ui.allocate_exact_size(PATCH, Sense::hover());
        for (word, about) in shown.into_iter().flatten() {
            ui.label(RichText::new(format!("{word:<WIDE$}")).monospace().small().weak()).on_hover_text(about);
        }
        ui.weak(RichText::new("node").small());
    });
}

fn errors(ui: &mut Ui, v: &mut Viewer, summary: &Summary) {
    ui.separator();
    let Some(e) = &v.trace().errors else {
        ui.strong("Errors");
        ui.weak("This trace has none: `weft compare MODEL -o F.trace` stores them, node by node.");
        return;
    };
    ui.strong(format!("Errors on {} against {}", e.device, e.against));
    let cumulative = e.cumulative;
    chart::show(ui, v);
    let Some(scale) = &summary.scale else { return };
    words::weak(ui, &scale.about());
    let (mut chosen, red, dark) = (None, Color32::from_rgb(210, 60, 60), ui.visuals().dark_mode);
    heads(ui, if cumulative { COLUMNS[1] } else { COLUMNS[0] }, summary.both);
    let list = v.trace().errors.as_ref().map_or(&[][..], |e| &e.nodes);
    in_view(ui, summary.order.len(), LINE, |ui, i| {
        let n = &list[summary.order[i]];
        ui.horizontal(|ui| {
            let (patch, response) = ui.allocate_exact_size(PATCH, Sense::hover());
            ui.painter().rect_filled(patch, 2.0, scale.colour(n.rel_l2, dark));
            if let Some(about) = scale.outlier(n.rel_l2) {
                ui.painter().rect_stroke(patch.expand(1.0), 2.0, Stroke::new(1.5, red), StrokeKind::Outside);
                response.on_hover_text(about);
            }
            let cell = |x: String| RichText::new(format!("{x:<WIDE$}")).monospace().small();
            ui.label(cell(format!("{:.1e}", n.rel_l2)));
            if summary.both {
                ui.label(cell(n.accumulated.map_or(String::new(), |sum| format!("{sum:.1e}"))));
            }
            ui.label(cell(format!("{:.1e}", n.max_abs)));
            let largest = cell(magnitude(n.max_magnitude));
            ui.label(if n.max_magnitude > LARGEST_F16 { largest.color(red) } else { largest });
            // The end of a name tells more than its beginning.
            let room = ui.available_width() - 2.0 * ui.spacing().button_padding.x;
            let name = ending(&path(&n.name), ((room / SMALL_CHARACTER) as usize).max(LEAST_NAME));
            let name = RichText::new(name).small();
            let name = if n.pass { name } else { name.color(red) };
            if ui.selectable_label(v.marks(std::slice::from_ref(&n.name)), name).on_hover_text(&n.name).clicked() {
                chosen = Some(n.name.clone());
            }
        });
    });
    if let Some(name) = chosen {
        v.select([name]);
    }
}
