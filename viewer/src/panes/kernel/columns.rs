//! Several forms of a kernel side by side, in the place of the graph.

use super::code::{code, point};
use super::pane::Form;
use crate::state::Viewer;
use egui::{RichText, Ui, UiBuilder, vec2};

/// Draws the forms over all the room there is.
pub fn columns(ui: &mut Ui, v: &mut Viewer) {
    if v.trace().kernels.is_empty() {
        ui.weak("This trace has no kernels: nothing in it runs on a device.");
        return;
    }
    ui.add_space(4.0);
    super::choose(ui, v);
    super::take_forms(ui, v);
    super::facts(ui, v);
    let kernel = v.kernel();
    let edited = v.kernel_pane.edit.outcome(kernel).is_some();
    ui.horizontal_wrapped(|ui| {
        for form in v.trace_forms(edited) {
            let title = v.form_title(form);
            if ui.selectable_label(v.kernel_pane.columns.contains(&form), title).clicked() {
                v.kernel_pane.turn_column(form);
            }
        }
        ui.separator();
        if ui.checkbox(&mut v.kernel_pane.folded, "Fold unrolled lines").changed() {
            v.kernel_pane.own.clear();
        }
        let place = v.kernel_pane.place(kernel);
        if !place.is_empty() {
            ui.weak(RichText::new(place.words(&v.trace().kernels[kernel])).small());
        }
    });
    ui.separator();
    let shown: Vec<Form> = v.kernel_pane.columns.iter().copied().filter(|f| *f != Form::Edited || edited).collect();
    let area = ui.available_rect_before_wrap();
    let width = area.width() / shown.len().max(1) as f32;
    for (i, form) in shown.into_iter().enumerate() {
        let place = egui::Rect::from_min_size(area.min + vec2(width * i as f32, 0.0), vec2(width - 6.0, area.height()));
        let mut inner = ui.new_child(UiBuilder::new().id_salt(("form", i)).max_rect(place));
        inner.set_clip_rect(place.intersect(ui.clip_rect()));
        inner.label(RichText::new(v.form_title(form)).small().strong());
        match form {
            Form::Schedule if !v.trace().kernels[kernel].schedule.is_empty() => super::edit::show(&mut inner, v),
            form => code(&mut inner, v, form),
        }
        if i > 0 {
            let line = egui::Stroke::new(1.0, ui.visuals().weak_text_color().gamma_multiply(0.4));
            ui.painter().vline(place.min.x - 4.0, place.y_range(), line);
        }
    }
    point(ui, v);
}
