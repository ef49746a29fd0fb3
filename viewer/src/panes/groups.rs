//! Fused groups: their nodes, how they run, and why they end where they do.

use crate::canvas::colour::{milliseconds, pastel};
use crate::document::group_title;
use crate::state::Viewer;
use compiler::remark::RemarkKind;
use egui::{RichText, ScrollArea, Ui};

/// Draws the list.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    ui.checkbox(&mut v.only_selected, "Only what is selected");
    let t = v.trace();
    let shown: Vec<usize> =
        (0..t.groups.len()).filter(|&i| !v.only_selected || v.marks(&t.groups[i].origins)).collect();
    if shown.is_empty() {
        let none = "This compilation made no groups: it stopped before fusion.";
        ui.weak(if t.groups.is_empty() { none } else { "No group has to do with what is selected." });
    }
    let mut chosen = None;
    ScrollArea::both().id_salt("groups").auto_shrink(false).show(ui, |ui| {
        for i in shown {
            let g = &t.groups[i];
            let marked = v.marks(&g.origins);
            ui.horizontal(|ui| {
                let (patch, _) = ui.allocate_exact_size(egui::vec2(8.0, 14.0), egui::Sense::hover());
                ui.painter().rect_filled(patch, 2.0, pastel(i, ui.visuals().dark_mode));
                if ui.selectable_label(marked, group_title(i, g)).clicked() {
                    chosen = Some(i);
                }
                if let Some(ms) = v.document().time_of_group(i) {
                    ui.weak(milliseconds(ms));
                }
            });
            if marked {
                ui.indent(i, |ui| inside(ui, v, i));
            }
        }
    });
    if let Some(i) = chosen {
        v.select_group(i);
    }
}

/// Where a group came from, and the remarks about it.
pub fn inside(ui: &mut Ui, v: &Viewer, group: usize) {
    let t = v.trace();
    ui.label(format!("from {}", t.groups[group].origins.join("  ")));
    for r in t.remarks_of_group(group).into_iter().map(|i| &t.remarks[i]) {
        let text = RichText::new(format!("{}: {}", r.pass, r.message)).small();
        match r.kind {
            RemarkKind::Missed => ui.label(text.color(egui::Color32::from_rgb(200, 110, 30))),
            RemarkKind::Applied => ui.weak(text),
        };
    }
}
