//! The keys, and what one can search for.

use crate::state::Viewer;
use egui::{Grid, RichText, Ui, Window};
use graphview::query::FIELDS;

/// Every key with what it does.
pub const KEYS: &[(&str, &str)] = &[
    ("?", "this list"),
    ("Left, Right or [, ]", "the pass that changed something before, after"),
    ("N, P", "the next box that the pass changed, the one before"),
    ("B", "before and after the pass side by side"),
    ("C", "all of a long graph in columns"),
    ("F, T", "show everything, show the top"),
    ("+, -, Ctrl and wheel", "zoom"),
    ("drag, wheel, W A S D", "move"),
    ("Alt Left, Alt Right", "back to where you were, and forward"),
    ("double-click, O", "open or close the box: a fused group, a branch, a loop"),
    ("Ctrl F", "search; Enter goes to the next one found"),
    ("Ctrl D", "attributes in the boxes"),
    ("Ctrl U", "names in the boxes"),
    ("Ctrl I", "constants in the boxes"),
    ("Esc", "select nothing, close this"),
];

/// Draws the window, while it is wanted.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    let mut open = v.help;
    Window::new("Keys").open(&mut open).resizable(false).collapsible(false).show(ui.ctx(), |ui| {
        table(ui, "keys", KEYS);
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
