//! Help: keys and search terms.

use crate::keys::BINDINGS;
use crate::state::Viewer;
use egui::{Grid, RichText, Ui, Window};
use graphview::query::FIELDS;

/// The actions of the mouse.
const MOUSE: &[(&str, &str)] = &[
    ("drag, wheel", "move"),
    ("Ctrl and wheel", "zoom"),
    ("double-click", "open or close the box"),
    ("click or hover an edge", "its type, and why fusion did not cross it"),
];

/// Every key with what it does, those that belong together once.
pub fn keys() -> Vec<(&'static str, &'static str)> {
    let mut out: Vec<(&str, &str)> = Vec::new();
    for b in BINDINGS {
        if out.iter().all(|(words, _)| *words != b.words) {
            out.push((b.words, b.about));
        }
    }
    out
}

/// Draws the window, while it is wanted.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    let mut open = v.help;
    Window::new("Keys").open(&mut open).resizable(false).collapsible(false).show(ui.ctx(), |ui| {
        table(ui, "keys", &keys());
        ui.separator();
        table(ui, "mouse", MOUSE);
        ui.separator();
        ui.label("Search for words, or for what a box is:");
        ui.monospace("op:conv dtype:f16 time>0.1ms fused:no -name:layer3");
        table(ui, "fields", FIELDS);
    });
    v.help = open;
}

fn table(ui: &mut Ui, id: &str, rows: &[(&str, &str)]) {
    Grid::new(id).num_columns(2).spacing([18.0, 3.0]).show(ui, |ui| {
        for (left, right) in rows {
            ui.label(RichText::new(*left).strong());
            ui.label(*right);
            ui.end_row();
        }
    });
}
