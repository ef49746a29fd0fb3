//! Precision: casts that the compiler inserted, nodes that it kept in f32 and why, and errors against a reference.

mod chart;

pub(crate) use chart::show as chart;

use crate::canvas::scale::ErrorScale;
use crate::state::Viewer;
use crate::units::si;
use compiler::remark::RemarkKind;
use egui::{Color32, Grid, RichText, ScrollArea, Sense, Ui, Vec2, vec2};
use graphview::maps::shares;
use graphview::picture::{Category, Node};
use graphview::reasons::{LARGEST_F16, magnitude};
use std::collections::{BTreeMap, BTreeSet};

/// The pass that decides what is stored in f16.
const PASS: &str = "mixed-precision";

/// Draws the pane.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    ScrollArea::both().id_salt("precision").auto_shrink(false).show(ui, |ui| {
        ui.label(format!("Mixed precision: {}", v.trace().options.amp));
        parts(ui, v);
        errors(ui, v);
        casts(ui, v);
        kept(ui, v);
    });
}

/// What is stored in which type: shares, casts, and what stays in f32.
pub(crate) fn summary(ui: &mut Ui, v: &mut Viewer) {
    ui.separator();
    parts(ui, v);
    casts(ui, v);
    kept(ui, v);
}

/// What each element type has of the run.
fn parts(ui: &mut Ui, v: &mut Viewer) {
    let Some(Ok(drawn)) = v.after() else { return };
    let all = shares(v.trace(), &drawn.picture);
    let timed = v.trace().times.is_some();
    let heads = ["", "bytes", "FLOPs", if timed { "time" } else { "" }];
    Grid::new("element types").num_columns(4).spacing([18.0, 2.0]).show(ui, |ui| {
        heads.iter().for_each(|h| {
            ui.weak(*h);
        });
        ui.end_row();
        for (name, s) in &all {
            let cells = [Some(s.bytes), Some(s.flops), timed.then_some(s.ms)];
            ui.label(name);
            cells.into_iter().flatten().for_each(|x| {
                ui.label(format!("{:.1} %", 100.0 * x));
            });
            ui.end_row();
        }
    });
    ui.weak("FLOPs and time: of kernels that read or write such tensors, f16 first. Arithmetic is f32.");
    packed(ui, v);
}

/// Weights whose elements share words, by type and block: the table above counts their bytes as u32.
fn packed(ui: &mut Ui, v: &Viewer) {
    let mut forms: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for (_, ty) in v.document().all_packed() {
        let Some((form, dims)) = ty.split_once(" [") else { continue };
        let sizes = dims.trim_end_matches(']').split(',').map(|d| d.parse::<f64>().unwrap_or(1.0));
        let form = forms.entry(form).or_default();
        *form = (form.0 + 1, form.1 + sizes.product::<f64>());
    }
    for (form, (count, elements)) in forms {
        let operands = if count == 1 { "1 operand".into() } else { format!("{count} operands") };
        ui.label(format!("{form}: {operands}, {} elements, decoded by the kernels that read them", si(elements)));
    }
}

fn casts(ui: &mut Ui, v: &mut Viewer) {
    let Some(Ok(drawn)) = v.after() else { return };
    let sources: BTreeSet<&str> = v.trace().sources.iter().map(|s| s.name.as_str()).collect();
    let all: Vec<Node> = drawn.picture.walk().into_iter().filter(|n| n.category == Category::Cast).cloned().collect();
    let inserted: Vec<&Node> = all.iter().filter(|n| !sources.contains(n.name.as_str())).collect();
    ui.separator();
    ui.strong(format!("{} casts in this graph, {} of them put in", all.len(), inserted.len()));
    let mut chosen = None;
    for n in inserted.iter().take(200) {
        let to = n.outputs.first().map_or("", String::as_str);
        if ui.link(RichText::new(format!("{}  to {to}", n.name)).small()).clicked() {
            chosen = Some(n.key.clone());
        }
    }
    if let Some(key) = chosen {
        v.focus_key(&key);
    }
}

fn kept(ui: &mut Ui, v: &mut Viewer) {
    let t = v.trace();
    let about = |i: &usize| t.remarks[*i].pass.as_str() == PASS;
    let (missed, applied): (Vec<usize>, Vec<usize>) =
        (0..t.remarks.len()).filter(about).partition(|&i| t.remarks[i].kind == RemarkKind::Missed);
    ui.separator();
    ui.strong(format!("{} remarks say what stays in f32 and why, {} what does not", missed.len(), applied.len()));
    if missed.is_empty() && applied.is_empty() {
        ui.weak("Everything is as the model has it. `--amp fp16` or `--amp auto` stores tensors in f16.");
    }
    let mut chosen = None;
    for i in missed.into_iter().take(300) {
        if ui.link(RichText::new(&t.remarks[i].message).small()).clicked() {
            chosen = Some(i);
        }
    }
    if let Some(i) = chosen {
        v.select_remark(i);
    }
}

/// The patch of colour before a node's errors.
const PATCH: Vec2 = vec2(10.0, 10.0);
/// Characters of a column of errors.
const WIDE: usize = 8;
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

fn errors(ui: &mut Ui, v: &mut Viewer) {
    ui.separator();
    let Some(e) = &v.trace().errors else {
        ui.strong("Errors");
        ui.weak("This trace has none: `weft compare MODEL -o F.trace` stores them, node by node.");
        return;
    };
    ui.strong(format!("Errors on {} against {}", e.device, e.against));
    let (e, dark) = (e.clone(), ui.visuals().dark_mode);
    chart::show(ui, v);
    let Some(scale) = ErrorScale::of(&e, e.cumulative) else { return };
    let mut order: Vec<usize> = (0..e.nodes.len()).collect();
    order.sort_by(|&a, &b| e.nodes[b].rel_l2.total_cmp(&e.nodes[a].rel_l2));
    let (mut chosen, red) = (None, Color32::from_rgb(210, 60, 60));
    let both = e.nodes.iter().any(|n| n.accumulated.is_some());
    heads(ui, if e.cumulative { COLUMNS[1] } else { COLUMNS[0] }, both);
    for i in order.into_iter().take(400) {
        let n = &e.nodes[i];
        ui.horizontal(|ui| {
            let (patch, _) = ui.allocate_exact_size(PATCH, Sense::hover());
            ui.painter().rect_filled(patch, 2.0, scale.colour(n.rel_l2, dark));
            let cell = |x: String| RichText::new(format!("{x:<WIDE$}")).monospace().small();
            ui.label(cell(format!("{:.1e}", n.rel_l2)));
            if both {
                ui.label(cell(n.accumulated.map_or(String::new(), |sum| format!("{sum:.1e}"))));
            }
            ui.label(cell(format!("{:.1e}", n.max_abs)));
            let largest = cell(magnitude(n.max_magnitude));
            ui.label(if n.max_magnitude > LARGEST_F16 { largest.color(red) } else { largest });
            let name = RichText::new(&n.name).small();
            let name = if n.pass { name } else { name.color(red) };
            if ui.selectable_label(v.marks(std::slice::from_ref(&n.name)), name).clicked() {
                chosen = Some(n.name.clone());
            }
        });
    }
    if let Some(name) = chosen {
        v.select([name]);
    }
}
