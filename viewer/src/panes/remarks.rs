//! Remarks: what passes did and did not do, and why.

use super::rows;
use crate::once::visit;
use crate::state::Viewer;
use compiler::remark::RemarkKind;
use egui::{Color32, RichText, Ui};

/// Draws the list.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    ui.checkbox(&mut v.only_selected, "Only what is selected");
    let own = v.only_selected.then(|| v.selection());
    let shown = v.once(own, |v| {
        let all = &v.trace().remarks;
        visit(all.len());
        (0..all.len()).filter(|&i| own.is_none() || v.marks_remark(&all[i])).collect::<Vec<usize>>()
    });
    let t = v.trace();
    if shown.is_empty() {
        ui.weak("No remark has to do with what is selected.");
        return;
    }
    let mut chosen = None;
    rows(ui, "remarks", &shown, |ui, &i: &usize| {
        let r = &t.remarks[i];
        let kind = if r.kind == RemarkKind::Applied { "applied" } else { "missed" };
        let text = RichText::new(format!("{} {kind}: {}", r.pass, r.message));
        let text = if r.kind == RemarkKind::Missed { text.color(Color32::from_rgb(200, 110, 30)) } else { text };
        if ui.selectable_label(v.marks_remark(r), text).clicked() {
            chosen = Some(i);
        }
    });
    if let Some(i) = chosen {
        v.select_remark(i);
    }
}
