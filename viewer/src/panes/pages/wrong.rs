//! Why a result in mixed precision is wrong: errors by node, magnitudes, and which nodes to keep in f32.

use super::model::{Modeller, Question};
use super::table::{Cell, Table};
use crate::canvas::colour::milliseconds;
use crate::once::visit;
use crate::panes::precision;
use crate::state::Viewer;
use crate::units::{cut_apart, ending};
use compiler::passes::mixed_precision::{escape_pattern, keep_list};
use compiler::trace::Stored;
use egui::{Color32, Ui};
use graphview::reasons::{Keep, LARGEST_F16, Proposal, WrongNode, findings, keep_first, magnitude, wrong_nodes};

/// Nodes that are proposed.
const PROPOSED: usize = 8;
const BAD: Color32 = Color32::from_rgb(210, 60, 60);

/// Draws the page.
pub(super) fn show(ui: &mut Ui, v: &mut Viewer) {
    let Some(e) = &v.trace().errors else {
        ui.label(
            "This trace has no errors. These commands store each node's error alone, and with the nodes before it:",
        );
        ui.monospace("weft compare MODEL --amp fp16 -o F.trace");
        if v.host.is_some() && v.again.progress().is_none() && ui.button("Compile in fp16 and compare now").clicked() {
            compare(ui, v, vec![]);
        }
        precision::summary(ui, v);
        return;
    };
    ui.weak(format!(
        "{} on {}, held against {}; mixed precision: {}",
        v.trace().model,
        e.device,
        e.against,
        v.trace().options.amp
    ));
    let (document, ctx) = (v.document().clone(), ui.ctx().clone());
    let modeller = v.pages.modeller.get_or_insert_with(|| Modeller::start(document, move || ctx.request_repaint()));
    let costs = modeller.get(&Question::Stored);
    let stored = costs.as_ref().map_or(&[][..], |m| m.stored.as_slice());
    let rows = v.once(costs.is_some(), |v| WrongRows::of(v, stored));
    ui.add_space(4.0);
    for said in &rows.findings {
        ui.label(format!("- {said}"));
    }
    kept_now(ui, v);
    ui.add_space(8.0);
    ui.strong("Errors along the run");
    precision::chart(ui, v);
    ui.add_space(8.0);
    ui.strong("Nodes to keep in f32 first");
    match costs {
        None => {
            ui.spinner();
        }
        Some(_) => keep(ui, v, &rows),
    }
    ui.add_space(8.0);
    ui.strong("Every compared node");
    every(ui, v, &rows);
    precision::summary(ui, v);
}

/// The layer of a node, as boxes have it.
fn layer<'a>(v: &'a Viewer, n: &'a WrongNode) -> &'a str {
    let label = n.group.map(|g| v.trace().groups[g].label.as_str());
    label.and_then(|l| l.split('+').next()).unwrap_or(&n.name)
}

/// Characters of a layer.
const NAME: usize = 27;

/// The rows of the page, made once, and again when the cost model has answered.
pub(crate) struct WrongRows {
    /// The compared nodes by name.
    names: Vec<String>,
    findings: Vec<String>,
    every: Table,
    /// Nodes that are proposed, with their places among the compared ones.
    keep: Option<(Proposal, Table)>,
}

impl WrongRows {
    fn of(v: &Viewer, stored: &[Stored]) -> WrongRows {
        let nodes = wrong_nodes(v.trace(), stored);
        visit(nodes.len());
        let layers: Vec<&str> = nodes.iter().map(|n| layer(v, n)).collect();
        let cut = cut_apart(&layers, NAME, |i, most| ending(layers[i], most));
        let name = |i: usize| Cell::text(&cut[i]).about(&nodes[i].name);
        let every = nodes.iter().enumerate().map(|(i, n)| compared(n, name(i))).collect();
        let proposed = |p: &Proposal| p.first.iter().map(|k| kept_row(k, &nodes[k.at], name(k.at))).collect();
        let keep = keep_first(v.trace(), &nodes, PROPOSED).map(|p| {
            let rows = proposed(&p);
            (p, Table::new("keep", &["layer", "alone", "result without it", "f32 costs"], rows))
        });
        WrongRows {
            findings: findings(v.trace(), &nodes),
            every: Table::new("compared", &HEADS, every),
            keep,
            names: nodes.into_iter().map(|n| n.name).collect(),
        }
    }
}

fn kept_row(k: &Keep, n: &WrongNode, name: Cell) -> Vec<Cell> {
    vec![
        name,
        Cell::number(n.alone, |x| format!("{x:.1e}")),
        Cell::number(k.left, |x| format!("{x:.1e}")),
        Cell::number(n.f32_ms, milliseconds),
    ]
}

fn keep(ui: &mut Ui, v: &mut Viewer, rows: &WrongRows) {
    let Some((Proposal { first, far, verdict }, table)) = &rows.keep else {
        ui.weak("Nothing of what was compared is stored in f16, or the errors of nodes alone are not in this trace.");
        return;
    };
    if v.trace().errors.as_ref().is_some_and(|e| e.outputs.iter().all(|o| o.pass)) {
        ui.label("Every result is within the tolerance: nothing more has to be kept. To come nearer still:");
    }
    ui.label(verdict);
    let names: Vec<&str> = first.iter().map(|k| rows.names[k.at].as_str()).collect();
    let clicked = table.show(ui, &mut None, &|i| v.marks(std::slice::from_ref(&rows.names[first[i].at])));
    kept(ui, v, &names, (*far).clamp(1, names.len()));
    if let Some(i) = clicked {
        v.select([names[i].to_string()]);
    }
}

/// What can be done with the first of the nodes.
fn kept(ui: &mut Ui, v: &mut Viewer, names: &[&str], proposed: usize) {
    let mut count = v.pages.keep.unwrap_or(proposed).min(names.len());
    ui.horizontal_wrapped(|ui| {
        let label = ui.label("The first");
        let number = ui.add(egui::DragValue::new(&mut count).range(1..=names.len())).labelled_by(label.id);
        if number.changed() {
            v.pages.keep = Some(count);
        }
        let patterns: Vec<String> = names[..count].iter().map(|n| escape_pattern(n)).collect();
        if v.host.is_some() && v.again.progress().is_none() {
            let about = "Compiles the model with these in f32, and compares it once more";
            if ui.button("Compile with these in f32").on_hover_text(about).clicked() {
                compare(ui, v, patterns.clone());
            }
            let about = "Measures which nodes have to stay in f32, as `weft compare --write-keep`; compiles with these";
            if ui.button("Find the smallest list").on_hover_text(about).clicked() {
                v.again.wanted.find_keep = true;
                compare(ui, v, vec![]);
            }
        }
        write_list(ui, v, "Write this list", &patterns, "proposed by the viewer");
        if ui.button("Copy as options").clicked() {
            ui.ctx().copy_text(patterns.iter().map(|p| format!("--keep-f32 '{p}'")).collect::<Vec<_>>().join(" "));
        }
    });
    if v.host.is_none() {
        ui.weak("`weft compare --write-keep F` finds the smallest list that passes, by measuring.");
    }
}

/// A button that writes a list for `--keep-f32 @FILE`; the window says where it is.
fn write_list(ui: &mut Ui, v: &mut Viewer, title: &str, patterns: &[String], about: &str) {
    if ui.button(title).on_hover_text("A file for --keep-f32 @FILE").clicked() {
        v.message = Some(crate::export::save(v, "keep.txt", &keep_list(patterns, about)));
    }
}

/// What this compilation keeps in f32 since the window asked for it.
fn kept_now(ui: &mut Ui, v: &mut Viewer) {
    let patterns = v.again.wanted.keep_f32.clone();
    if patterns.is_empty() || v.again.progress().is_some() {
        return;
    }
    ui.horizontal_wrapped(|ui| {
        ui.strong(format!("Kept in f32: {}", patterns.join(", ")));
        write_list(ui, v, "Write the keep list", &patterns, "from the viewer");
    });
}

/// Compiles the model in fp16, with more nodes in f32, and compares it node by node.
fn compare(ui: &Ui, v: &mut Viewer, keep_f32: Vec<String>) {
    let w = &mut v.again.wanted;
    if w.amp == "off" {
        w.amp = "fp16".into();
    }
    let more: Vec<String> = keep_f32.into_iter().filter(|k| !w.keep_f32.contains(k)).collect();
    w.keep_f32.extend(more);
    (w.times, w.errors) = (false, true);
    // The page goes on with the new compilation alone.
    v.again.beside = false;
    v.start_again(ui.ctx());
}

/// Columns of the compared nodes.
const HEADS: [&str; 9] =
    ["layer", "op", "alone", "accumulated", "times what it reads", "largest", "of 65504", "stores", "f32 costs"];

fn compared(n: &WrongNode, name: Cell) -> Vec<Cell> {
    let red = |bad: bool| bad.then_some(BAD);
    let scientific = |x: f64| format!("{x:.1e}");
    vec![
        name.coloured(red(!n.pass)),
        Cell::text(&n.op),
        Cell::number(n.alone, scientific),
        Cell::number(n.accumulated, scientific),
        Cell::number(n.growth, |x| format!("{x:.1}")),
        Cell::number(Some(n.magnitude), magnitude).coloured(red(n.magnitude > LARGEST_F16)),
        Cell::number(Some(100.0 * n.magnitude / LARGEST_F16), |x| format!("{x:.1} %")),
        Cell::text(&n.stores),
        Cell::number(n.f32_ms, milliseconds),
    ]
}

fn every(ui: &mut Ui, v: &mut Viewer, rows: &WrongRows) {
    let mut sort = std::mem::take(&mut v.pages.sort);
    let clicked = rows.every.show(ui, &mut sort, &|i| v.marks(std::slice::from_ref(&rows.names[i])));
    v.pages.sort = sort;
    if let Some(i) = clicked {
        v.select([rows.names[i].clone()]);
    }
}
