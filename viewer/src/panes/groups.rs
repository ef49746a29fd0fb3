//! Fused groups: their nodes, how they run, and why they end where they do.

use super::rows;
use crate::canvas::colour::{milliseconds, pastel};
use crate::document::group_title;
use crate::once::visit;
use crate::state::Viewer;
use compiler::remark::RemarkKind;
use egui::{RichText, Ui};

/// A row of the pane.
pub(crate) enum GroupRow {
    /// A group.
    Group(usize),
    /// The source nodes of a selected group.
    From(String),
    /// A remark about it.
    Remark(usize),
}

/// Source nodes that a row names.
const NAMED: usize = 24;

/// Draws the list.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    ui.checkbox(&mut v.only_selected, "Only what is selected");
    let shown = v.once((v.only_selected, v.selection()), |v| list(v));
    let t = v.trace();
    if shown.is_empty() {
        let none = "This compilation made no groups: it stopped before fusion.";
        ui.weak(if t.groups.is_empty() { none } else { "No group has to do with what is selected." });
    }
    let mut chosen = None;
    rows(ui, "groups", &shown, |ui, row| match row {
        GroupRow::Group(i) => {
            let g = &t.groups[*i];
            ui.horizontal(|ui| {
                let (patch, _) = ui.allocate_exact_size(egui::vec2(8.0, 14.0), egui::Sense::hover());
                ui.painter().rect_filled(patch, 2.0, pastel(*i, ui.visuals().dark_mode));
                let title = group_title(*i, g);
                // The time stands at the right, and the title is cut before it.
                ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                    if let Some(ms) = v.document().time_of_group(*i) {
                        ui.weak(milliseconds(ms));
                    }
                    ui.with_layout(egui::Layout::left_to_right(egui::Align::Center), |ui| {
                        let whole = format!("{}\n{title}", g.label);
                        let row = egui::Button::selectable(v.marks(&g.origins), title).truncate();
                        if ui.add(row).on_hover_text(whole).clicked() {
                            chosen = Some(*i);
                        }
                    });
                });
            });
        }
        GroupRow::From(text) => within(ui, |ui| ui.label(text)),
        GroupRow::Remark(i) => within(ui, |ui| {
            let r = &t.remarks[*i];
            let text = RichText::new(format!("{}: {}", r.pass, r.message)).small();
            match r.kind {
                RemarkKind::Missed => ui.label(text.color(egui::Color32::from_rgb(200, 110, 30))),
                RemarkKind::Applied => ui.weak(text),
            }
        }),
    });
    if let Some(i) = chosen {
        v.select_group(i);
    }
}

/// A row below its group.
fn within(ui: &mut Ui, row: impl FnOnce(&mut Ui) -> egui::Response) {
    ui.horizontal(|ui| {
        ui.add_space(18.0);
        row(ui);
    });
}

/// The groups, and below each selected one where it came from and the remarks about it.
fn list(v: &Viewer) -> Vec<GroupRow> {
    let t = v.trace();
    visit(t.groups.len());
    let mut out = vec![];
    for (i, g) in t.groups.iter().enumerate() {
        let marked = v.marks(&g.origins);
        if marked || !v.only_selected {
            out.push(GroupRow::Group(i));
        }
        if marked {
            let named = &g.origins[..g.origins.len().min(NAMED)];
            let more = g.origins.len() - named.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            out.push(GroupRow::From(format!("from {}{more}", named.join("  "))));
            out.extend(v.document().remarks_of_group(i).into_iter().map(GroupRow::Remark));
        }
    }
    out
}
