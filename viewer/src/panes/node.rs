//! Details of a box: what it is, its source nodes, what passes did with it, and why.

use crate::canvas::colour::milliseconds;
use crate::details::{Details, Rows};
use crate::drawing::split_attributes;
use crate::state::{Ends, Tab, Viewer};
use crate::units::counted;
use compiler::trace::WeightSummary;
use egui::{CollapsingHeader, Color32, Grid, Label, RichText, ScrollArea, Sense, Ui, vec2};
use graphview::picture::Node;

/// The colour of remarks about work that was not done.
const MISSED: Color32 = Color32::from_rgb(200, 110, 30);

/// Draws the pane.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    if let Some(ends) = v.edge().cloned() {
        edge(ui, v, &ends);
        return;
    }
    let Some(d) = v.details() else {
        nothing(ui, v);
        return;
    };
    let node = &d.node;
    ScrollArea::both().id_salt("node").auto_shrink(false).show(ui, |ui| {
        ui.heading(&node.op);
        facts(ui, v, &d);
        results(ui, node);
        attributes(ui, node);
        weights(ui, v, node);
        origins(ui, v, &d);
        became(ui, v, &d);
        borders(ui, v, &d);
        reasons(ui, &d);
    });
}

/// Help while nothing is chosen, and a selection without a box here.
fn nothing(ui: &mut Ui, v: &mut Viewer) {
    if v.selected().is_empty() {
        ui.add_space(12.0);
        ui.weak("Click a box to see what it is, where it came from and what became of it.");
        ui.weak("Drag to move, scroll to move, Ctrl and scroll to zoom; F shows everything, ? lists the keys.");
        return;
    }
    let names: Vec<&str> = v.selected().iter().take(12).map(String::as_str).collect();
    let more = v.selected().len() - names.len();
    ui.label(format!(
        "Selected: {}{}",
        names.join("  "),
        if more > 0 { format!(" and {more} more") } else { "".into() }
    ));
    ui.weak("No box of this graph came from them alone.");
    if ui.button("Clear").clicked() {
        v.select([]);
    }
}

fn copyable(ui: &mut Ui, text: &str) {
    let label = Label::new(RichText::new(text).monospace().small()).wrap().sense(Sense::click());
    if ui.add(label).on_hover_text("Click to copy").clicked() {
        ui.ctx().copy_text(text.to_string());
    }
}

/// How many rows of a list are not shown, and where they are.
fn more<T>(ui: &mut Ui, rows: &Rows<T>, place: &str) {
    if rows.more > 0 {
        ui.weak(format!("and {} more{place}", rows.more));
    }
}

fn facts(ui: &mut Ui, v: &Viewer, d: &Details) {
    let n = &d.node;
    if !n.name.is_empty() {
        copyable(ui, &n.name);
    }
    ui.horizontal_wrapped(|ui| {
        ui.weak(n.category.title());
        if let Some(layout) = n.layout {
            ui.weak(layout);
        }
        if let Some(ms) = d.ms {
            let of = v.document().run_ms();
            let share = if of > 0.0 { format!(", {:.1}% of the run", ms / of * 100.0) } else { String::new() };
            ui.label(format!("{}{share}", milliseconds(ms)));
        }
        if let Some((error, pass)) = d.error {
            let text = RichText::new(format!("relative error {error:.1e}"));
            ui.label(if pass { text } else { text.color(Color32::from_rgb(210, 60, 60)) });
        }
    });
}

fn results(ui: &mut Ui, n: &Node) {
    ui.separator();
    for (i, ty) in n.outputs.iter().enumerate() {
        ui.horizontal_wrapped(|ui| {
            ui.weak(if n.outputs.len() > 1 { format!("result {i}") } else { "result".to_string() });
            ui.monospace(ty);
        });
    }
}

fn attributes(ui: &mut Ui, n: &Node) {
    if n.attrs.is_empty() {
        return;
    }
    Grid::new("attributes").num_columns(2).spacing([12.0, 2.0]).show(ui, |ui| {
        for part in split_attributes(&n.attrs) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            ui.weak(name.trim());
            copyable(ui, value.trim());
            ui.end_row();
        }
    });
}

fn weights(ui: &mut Ui, v: &Viewer, n: &Node) {
    for w in &n.weights {
        ui.separator();
        ui.horizontal_wrapped(|ui| {
            ui.weak(format!("operand {}", w.operand));
            let ty = RichText::new(v.document().packed(&w.name).unwrap_or(&w.ty)).small();
            ui.monospace(ty).on_hover_text(format!("stored as {}", w.ty));
        });
        copyable(ui, &w.name);
        match v.document().weight(&w.name) {
            Some(summary) => histogram(ui, summary),
            None => {
                ui.weak(RichText::new("a pass made it; only the model's own constants are summed up").small());
            }
        }
    }
}

fn histogram(ui: &mut Ui, w: &WeightSummary) {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width().min(260.0), 40.0), Sense::hover());
    let most = w.histogram.iter().copied().max().unwrap_or(0).max(1) as f32;
    let bar = rect.width() / w.histogram.len().max(1) as f32;
    let colour = ui.visuals().selection.bg_fill;
    for (i, &count) in w.histogram.iter().enumerate() {
        let height = (count as f32 / most).sqrt() * rect.height();
        let left = rect.min.x + i as f32 * bar;
        let corners = [egui::pos2(left, rect.max.y - height), egui::pos2(left + bar - 0.5, rect.max.y)];
        ui.painter().rect_filled(egui::Rect::from_two_pos(corners[0], corners[1]), 0.0, colour);
    }
    let text = format!("{:.3} to {:.3}, mean {:.3}, std {:.3}", w.min, w.max, w.mean, w.std);
    ui.weak(RichText::new(text).small());
    if w.not_finite > 0 {
        ui.colored_label(Color32::from_rgb(210, 60, 60), format!("{} are infinite or no numbers", w.not_finite));
    }
    response.on_hover_text(format!("heights are roots of counts\nsha256 {}", w.hash()));
}

fn origins(ui: &mut Ui, v: &mut Viewer, d: &Details) {
    if d.node.origins.is_empty() {
        return;
    }
    ui.separator();
    let title = format!("From {} of the model", counted(d.node.origins.len(), "node"));
    CollapsingHeader::new(title).default_open(true).show(ui, |ui| {
        for (o, op) in &d.origins.shown {
            ui.horizontal_wrapped(|ui| {
                if ui.link(RichText::new(o).small()).on_hover_text("Show it in the model as it came").clicked() {
                    v.show_stage(0);
                    v.select([o.clone()]);
                }
                ui.weak(RichText::new(op).small());
            });
        }
        more(ui, &d.origins, "");
    });
}

fn became(ui: &mut Ui, v: &mut Viewer, d: &Details) {
    if d.groups.shown.is_empty() {
        return;
    }
    ui.separator();
    ui.strong("Became");
    for g in &d.groups.shown {
        if ui.link(&g.title).clicked() {
            v.select_group(g.group);
            v.tab = Tab::Groups;
        }
        for k in &g.kernels {
            ui.horizontal_wrapped(|ui| {
                ui.weak("kernel");
                if ui.link(RichText::new(&k.name).monospace().small()).clicked() {
                    v.show_kernel(k.kernel);
                    v.tab = Tab::Kernel;
                }
                if k.lines > 0 {
                    let form = if v.document().runs_tensor_ir() { "tensor IR" } else { "WGSL" };
                    ui.weak(RichText::new(format!("{} lines of {form} are its own", k.lines)).small());
                }
            });
        }
    }
    more(ui, &d.groups, ": see Groups");
}

/// The value of an edge, and why fusion did not cross it.
fn edge(ui: &mut Ui, v: &mut Viewer, ends: &Ends) {
    ui.heading("Edge");
    copyable(ui, &ends.ty);
    for (word, n) in [("from", &ends.from), ("to", &ends.to)] {
        ui.horizontal_wrapped(|ui| {
            ui.weak(word);
            if ui.link(format!("{} {}", n.op, n.name)).clicked() {
                v.focus_key(&n.key);
            }
        });
    }
    ui.separator();
    match &ends.why {
        None => ui.weak("Its ends are not in one fused group each."),
        Some((one, other, _)) if one == other => {
            ui.label(format!("Both ends are in group {one}: the value stays in its kernel."))
        }
        Some((_, _, why)) => {
            ui.strong("Why they are not one group");
            match why.is_empty() {
                true => ui.weak("No remark says: no rule of fusion asked whether they could be one."),
                false => ui.label(why),
            }
        }
    };
}

/// The inputs and outputs of a box's group, and why they were not fused with it.
fn borders(ui: &mut Ui, v: &mut Viewer, d: &Details) {
    if d.border.is_empty() {
        return;
    }
    ui.separator();
    ui.strong("Why the group ends here");
    for why in &d.border {
        ui.label(RichText::new(why).small().color(MISSED));
    }
    for n in &d.neighbours.shown {
        ui.horizontal_wrapped(|ui| {
            ui.weak(n.word);
            let link = ui.link(RichText::new(&n.title).small());
            let link = if n.why.is_empty() { link } else { link.on_hover_text(n.why.join("\n")) };
            if link.clicked() {
                v.select_group(n.group);
            }
        });
    }
    more(ui, &d.neighbours, "");
}

fn reasons(ui: &mut Ui, d: &Details) {
    if d.reasons.shown.is_empty() {
        return;
    }
    ui.separator();
    ui.strong("Why, and why not");
    for r in &d.reasons.shown {
        let text = RichText::new(&r.text).small();
        ui.label(if r.missed { text.color(MISSED) } else { text });
    }
    more(ui, &d.reasons, ": see Remarks");
}
