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

use crate::once::{in_sight, visit};
use egui::{ScrollArea, TextStyle, TextWrapMode, Ui, vec2};

/// Rows of one height inside of something that scrolls, of which only those in sight are drawn.
pub(crate) fn in_view(ui: &mut Ui, count: usize, height: f32, mut row: impl FnMut(&mut Ui, usize)) {
    ui.scope(|ui| {
        ui.spacing_mut().item_spacing.y = 0.0;
        ui.style_mut().wrap_mode = Some(TextWrapMode::Extend);
        let (top, clip) = (ui.cursor().min.y, ui.clip_rect());
        let at = |y: f32| (((y - top) / height).max(0.0) as usize).min(count);
        let (first, last) = (at(clip.min.y), (at(clip.max.y) + 1).min(count));
        ui.add_space(first as f32 * height);
        for i in first..last {
            in_sight(1);
            visit(1);
            ui.push_id(i, |ui| {
                ui.allocate_ui(vec2(ui.available_width(), height), |ui| {
                    ui.set_min_height(height);
                    row(ui, i);
                });
            });
        }
        ui.add_space((count - last.max(first)) as f32 * height);
    });
}

/// Rows of one height of which only the visible ones are drawn.
pub(crate) fn rows<T>(ui: &mut Ui, id: &str, shown: &[T], mut row: impl FnMut(&mut Ui, &T)) {
    let height = ui.text_style_height(&TextStyle::Monospace) + 2.0;
    ui.spacing_mut().item_spacing.y = 2.0;
    ui.style_mut().wrap_mode = Some(TextWrapMode::Extend);
    ScrollArea::both().id_salt(id).auto_shrink(false).show_rows(ui, height, shown.len(), |ui, range| {
        in_sight(range.len());
        visit(range.len());
        for i in range {
            ui.push_id(i, |ui| row(ui, &shown[i]));
        }
    });
}
