//! Files dropped onto the window: another trace, in place of the one that is shown or beside it.

use crate::Viewer;
use compiler::trace::CompileTrace;
use egui::{Align2, FontId, Ui};

/// Opens what was dropped, and says where a file may be dropped while one is held over the window.
pub fn dropped(ui: &Ui, v: &mut Viewer) {
    let (files, hovering, beside) =
        ui.input(|i| (i.raw.dropped_files.clone(), !i.raw.hovered_files.is_empty(), i.modifiers.shift));
    if hovering {
        let text = "Drop a trace to open it; with Shift beside this one";
        let (at, colour) = (ui.max_rect().center(), ui.visuals().strong_text_color());
        let painter =
            ui.ctx().layer_painter(egui::LayerId::new(egui::Order::Foreground, egui::Id::unique("viewer drop")));
        painter.rect_filled(ui.max_rect(), 0.0, ui.visuals().panel_fill.gamma_multiply(0.8));
        painter.text(at, Align2::CENTER_CENTER, text, FontId::proportional(22.0), colour);
    }
    let Some(file) = files.last() else { return };
    let name = file.path().display().to_string();
    let trace = file.bytes().and_then(|b| CompileTrace::from_bytes(&b).map_err(|e| e.to_string()));
    let opened = trace.and_then(|t| match beside {
        true => v.put_beside(t).map_err(|e| e.to_string()),
        false => v.replace(t).map_err(|e| e.to_string()),
    });
    if let Err(why) = opened {
        v.message = Some(format!("{name}: {why}; a model has to be compiled first, `weft view {name}` does"));
    }
}
