//! The panes beside the graph, and the pages in its place.

pub mod again;
pub mod compare;
pub mod groups;
pub mod help;
pub mod kernel;
pub mod memory;
pub mod node;
pub mod pages;
pub mod passes;
pub mod precision;
pub mod remarks;
pub mod text;
pub mod time;

use egui::{ScrollArea, TextStyle, Ui};

/// Rows of one height of which only the visible ones are drawn.
pub(crate) fn rows(ui: &mut Ui, id: &str, shown: &[usize], mut row: impl FnMut(&mut Ui, usize)) {
    let height = ui.text_style_height(&TextStyle::Monospace) + 2.0;
    ui.spacing_mut().item_spacing.y = 2.0;
    ScrollArea::both().id_salt(id).auto_shrink(false).show_rows(ui, height, shown.len(), |ui, range| {
        for &i in &shown[range] {
            ui.push_id(i, |ui| row(ui, i));
        }
    });
}
