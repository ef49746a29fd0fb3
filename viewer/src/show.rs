//! Drawing the viewer with egui.

use crate::state::{Mark, Mode, Tab, Viewer};
use compiler::compile::GroupKind;
use compiler::remark::RemarkKind;
use egui::{Color32, Panel, RichText, ScrollArea, TextStyle, Ui};

/// Lines only the text after has.
const ADDED: Color32 = Color32::from_rgb(60, 150, 70);
/// Lines only the text before has.
const REMOVED: Color32 = Color32::from_rgb(190, 70, 70);

/// Draws everything into `ui`.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    Panel::top("summary").show(ui, |ui| summary(ui, v));
    Panel::bottom("selection").show(ui, |ui| selection(ui, v));
    Panel::left("stages").default_size(280.0).show(ui, |ui| stages(ui, v));
    egui::CentralPanel::default().show(ui, |ui| match v.tab {
        Tab::Ir => ir(ui, v),
        Tab::Groups => groups(ui, v),
        Tab::Kernels => kernels(ui, v),
        Tab::Remarks => remarks(ui, v),
    });
}

fn summary(ui: &mut Ui, v: &mut Viewer) {
    let t = v.trace();
    let counts = format!(
        "{} for {}: {} nodes, {} groups, {} dispatches of {} kernels, {:.0} ms",
        t.model,
        t.profile_name,
        t.sources.len(),
        t.groups.len(),
        t.calls().count(),
        t.kernels.len(),
        t.compile_ms
    );
    ui.horizontal_wrapped(|ui| {
        ui.strong(counts);
        ui.separator();
        for (tab, title) in Tab::ALL {
            ui.selectable_value(&mut v.tab, tab, title);
        }
    });
}

fn selection(ui: &mut Ui, v: &mut Viewer) {
    ui.horizontal_wrapped(|ui| {
        ui.checkbox(&mut v.only_selected, "Only what is selected");
        if v.selected().is_empty() {
            ui.weak("Choose a line, a group, a kernel or a remark: all that came from the same nodes is marked.");
            return;
        }
        if ui.button("Clear").clicked() {
            v.select([]);
        }
        let names: Vec<&str> = v.selected().iter().take(8).map(String::as_str).collect();
        let more = v.selected().len().saturating_sub(names.len());
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        ui.label(format!("Selected: {}{rest}", names.join("  ")));
    });
}

/// Passes with their times and what they did to the number of nodes.
fn stages(ui: &mut Ui, v: &mut Viewer) {
    ui.heading("Passes");
    ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
        for i in 0..v.trace().stages.len() {
            let stage = &v.trace().stages[i];
            let about = match v.pass_of(i) {
                Some(p) if p.changed => {
                    format!("{}: {} -> {} nodes, {:.1} ms", p.name, p.nodes_before, p.nodes_after, p.ms)
                }
                Some(p) => format!("{}: nothing, {:.1} ms", p.name, p.ms),
                None => stage.label.clone(),
            };
            let text = match stage.delta.is_empty() {
                true => RichText::new(about).weak(),
                false => RichText::new(about),
            };
            if ui.selectable_label(v.stage() == i, text).clicked() {
                let mode = v.mode();
                v.show_stage(i, mode);
                v.tab = Tab::Ir;
            }
        }
    });
}

/// Rows of one height of which only the visible ones are drawn.
fn rows(ui: &mut Ui, id: &str, shown: &[usize], mut row: impl FnMut(&mut Ui, usize)) {
    let height = ui.text_style_height(&TextStyle::Monospace) + 4.0;
    ScrollArea::both().id_salt(id).auto_shrink(false).show_rows(ui, height, shown.len(), |ui, range| {
        for &i in &shown[range] {
            ui.push_id(i, |ui| row(ui, i));
        }
    });
}

fn ir(ui: &mut Ui, v: &mut Viewer) {
    let (stage, mut mode) = (v.stage(), v.mode());
    ui.horizontal(|ui| {
        let label = v.trace().stages.get(stage).map_or(String::new(), |s| s.label.clone());
        ui.heading(label);
        for (m, title) in Mode::ALL {
            ui.selectable_value(&mut mode, m, title);
        }
    });
    v.show_stage(stage, mode);
    let all = 0..v.lines().len();
    let shown: Vec<usize> = all.filter(|&i| !v.only_selected || v.marks(&v.lines()[i].origins)).collect();
    let mut chosen = None;
    rows(ui, "ir", &shown, |ui, i| {
        let line = &v.lines()[i];
        let mark = match line.mark {
            Mark::Same => "  ",
            Mark::Added => "+ ",
            Mark::Removed => "- ",
        };
        let mut text = RichText::new(format!("{mark}{}", line.text)).monospace();
        match line.mark {
            Mark::Same => {}
            Mark::Added => text = text.color(ADDED),
            Mark::Removed => text = text.color(REMOVED),
        }
        if line.origins.is_empty() {
            ui.label(text);
        } else if ui.selectable_label(v.marks(&line.origins), text).clicked() {
            chosen = Some(i);
        }
    });
    if let Some(i) = chosen {
        v.select_line(i);
    }
}

fn groups(ui: &mut Ui, v: &mut Viewer) {
    let t = v.trace();
    let shown: Vec<usize> =
        (0..t.groups.len()).filter(|&i| !v.only_selected || v.marks(&t.groups[i].origins)).collect();
    let mut chosen = None;
    ScrollArea::both().id_salt("groups").auto_shrink(false).show(ui, |ui| {
        for i in shown {
            let g = &t.groups[i];
            let how = match g.kind {
                GroupKind::Kernel => format!("by {}", g.rule),
                GroupKind::View => "a view".to_string(),
                GroupKind::Host => "on the host".to_string(),
            };
            let anchor = g.anchor.as_ref().map_or(String::new(), |a| format!(", anchor {a}"));
            let layout = g.layout.as_ref().map_or(String::new(), |l| format!(", {l}"));
            let marked = v.marks(&g.origins);
            if ui.selectable_label(marked, format!("{i}  {} ({how}{anchor}{layout})", g.ops.join(" + "))).clicked() {
                chosen = Some(i);
            }
            if marked {
                ui.indent(i, |ui| {
                    ui.label(format!("from {}", g.origins.join("  ")));
                    for r in v.boundaries(g) {
                        ui.weak(format!("{}: {}", r.pass, r.message));
                    }
                });
            }
        }
    });
    if let Some(i) = chosen {
        v.select_group(i);
    }
}

fn kernels(ui: &mut Ui, v: &mut Viewer) {
    let mut chosen = None;
    Panel::left("kernels").default_size(240.0).show(ui, |ui| {
        ui.heading("Kernels");
        ScrollArea::vertical().id_salt("kernel list").auto_shrink(false).show(ui, |ui| {
            for (i, k) in v.trace().kernels.iter().enumerate() {
                if v.only_selected && !v.marks_kernel(i) {
                    continue;
                }
                let name = RichText::new(&k.name);
                let name = if v.marks_kernel(i) { name.strong() } else { name };
                if ui.selectable_label(v.kernel() == i, name).clicked() {
                    chosen = Some(i);
                }
            }
        });
    });
    if let Some(i) = chosen {
        v.select_kernel(i);
    }
    let Some(k) = v.trace().kernels.get(v.kernel()) else { return };
    ui.heading(format!("Kernel {}", k.name));
    let proved = if k.bounds_proved { "bounds proved" } else { "bounds checked by the driver" };
    let (bindings, shared) = (k.bindings.len(), k.shared_bytes);
    let sizes =
        format!("workgroup {:?}, grid {:?}, {bindings} bindings, {shared} shared bytes, {proved}", k.workgroup, k.grid);
    ui.label(sizes);
    let lines: Vec<&str> = ["schedule"]
        .into_iter()
        .chain(k.schedule.iter().map(String::as_str))
        .chain(["", "WGSL"])
        .chain(k.wgsl.lines())
        .collect();
    let shown: Vec<usize> = (0..lines.len()).collect();
    rows(ui, "kernel text", &shown, |ui, i| {
        ui.monospace(lines[i]);
    });
}

fn remarks(ui: &mut Ui, v: &mut Viewer) {
    let t = v.trace();
    let shown: Vec<usize> =
        (0..t.remarks.len()).filter(|&i| !v.only_selected || v.marks_remark(&t.remarks[i])).collect();
    let mut chosen = None;
    rows(ui, "remarks", &shown, |ui, i| {
        let r = &t.remarks[i];
        let kind = if r.kind == RemarkKind::Applied { "applied" } else { "missed" };
        let text = RichText::new(format!("{} {kind}: {}", r.pass, r.message));
        let text = if r.kind == RemarkKind::Missed { text.weak() } else { text };
        if ui.selectable_label(v.marks_remark(r), text).clicked() {
            chosen = Some(i);
        }
    });
    if let Some(i) = chosen {
        v.select_remark(i);
    }
}

#[cfg(test)]
pub(crate) mod tests;
