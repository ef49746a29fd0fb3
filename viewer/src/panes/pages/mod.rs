//! Pages in the place of the graph: why a result in mixed precision is wrong, why a kernel is slow, and what fusion
//! left on the table.

mod left;
mod model;
mod open;
mod slow;
mod table;
mod wrong;

use crate::state::Viewer;
use egui::{ScrollArea, Ui};
pub use open::{Page, Pages};

/// Draws a page.
pub(crate) fn show(ui: &mut Ui, v: &mut Viewer, page: Page) {
    let title = Page::ALL.iter().find(|p| p.0 == page).map_or("", |p| p.2);
    ui.heading(title);
    ScrollArea::both().id_salt(title).auto_shrink(false).show(ui, |ui| match page {
        Page::Wrong => wrong::show(ui, v),
        Page::Slow => slow::show(ui, v),
        Page::Left => left::show(ui, v),
    });
}

/// A menu of the pages.
pub(crate) fn menu(ui: &mut Ui, v: &mut Viewer) {
    ui.menu_button("Why?", |ui| {
        for (page, _, title) in Page::ALL {
            if ui.button(title).clicked() {
                open(v, page);
                ui.close();
            }
        }
    });
}

/// Shows a page. Where nothing is selected, the slow kernel is the one that takes longest.
pub(crate) fn open(v: &mut Viewer, page: Page) {
    v.pages.shown = Some(page);
    v.kernel_pane.wide = false;
    if page == Page::Slow && v.selected().is_empty() {
        slow::take_longest(v);
    }
}
