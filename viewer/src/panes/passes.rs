//! The passes: change of the number of nodes, and time.

use crate::canvas::colour::milliseconds;
use crate::state::Viewer;
use egui::{Align, Button, CollapsingHeader, Layout, RichText, ScrollArea, Slider, Ui, vec2};

/// Draws the list with its slider. Passes in a row that changed nothing are one line that opens.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    ui.horizontal(|ui| {
        ui.strong("Passes");
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            ui.checkbox(&mut v.all_passes, "unchanged").on_hover_text("Passes that changed nothing, one by one");
        });
    });
    slider(ui, v);
    ui.separator();
    let last = v.document().last_graph();
    let changed = |v: &Viewer, stage: usize| stage == 0 || stage > last || !v.trace().stages[stage].delta.is_empty();
    ScrollArea::vertical().id_salt("passes").auto_shrink(false).show(ui, |ui| {
        ui.spacing_mut().item_spacing.y = 1.0;
        let (mut stage, count) = (0, v.trace().stages.len());
        while stage < count {
            let same = (stage..count).take_while(|&s| !changed(v, s)).count();
            if same > 1 && !v.all_passes {
                let text = RichText::new(format!("{same} without changes")).small().weak();
                let own = (stage..stage + same).contains(&v.stage());
                CollapsingHeader::new(text).id_salt(stage).default_open(own).show_unindented(ui, |ui| {
                    (stage..stage + same).for_each(|s| row(ui, v, s, false));
                });
            } else {
                (stage..stage + same.max(1)).for_each(|s| row(ui, v, s, same == 0));
            }
            stage += same.max(1);
        }
    });
}

fn slider(ui: &mut Ui, v: &mut Viewer) {
    let last = v.document().last_graph();
    let mut stage = v.stage().min(last);
    ui.horizontal(|ui| {
        if ui.small_button("‹").on_hover_text("The change before (Left, or [)").clicked() {
            v.step(false);
        }
        ui.spacing_mut().slider_width = (ui.available_width() - 40.0).max(40.0);
        let slider = ui.add(Slider::new(&mut stage, 0..=last).show_value(false));
        slider.widget_info(|| egui::WidgetInfo::slider(true, stage as f64, "Pass"));
        if slider.changed() {
            v.go_to_stage(stage);
        }
        if ui.small_button("›").on_hover_text("The next change (Right, or ])").clicked() {
            v.step(true);
        }
    });
}

fn row(ui: &mut Ui, v: &mut Viewer, stage: usize, changed: bool) {
    let label = v.trace().stages[stage].label.clone();
    let pass = v.pass_of(stage).cloned();
    let name = pass.as_ref().map_or(label, |p| p.name.clone());
    let text = if changed { RichText::new(name) } else { RichText::new(name).weak() };
    ui.horizontal(|ui| {
        let room = ui.available_width();
        let button = Button::selectable(v.stage() == stage, text).truncate();
        let size = vec2(room * 0.62, 18.0);
        let names =
            ui.allocate_ui_with_layout(size, Layout::top_down_justified(Align::LEFT), |ui| ui.add(button).clicked());
        let clicked = names.inner;
        if clicked {
            v.go_to_stage(stage);
        }
        let Some(p) = pass else { return };
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let time = if p.ms > 0.0 { milliseconds(p.ms) } else { String::new() };
            ui.label(RichText::new(time).small().weak());
            let by = p.nodes_after as i64 - p.nodes_before as i64;
            let (text, colour) = match by {
                0 => (if p.changed { "±0".to_string() } else { String::new() }, ui.visuals().weak_text_color()),
                n if n < 0 => (format!("{n}"), egui::Color32::from_rgb(40, 150, 70)),
                n => (format!("+{n}"), egui::Color32::from_rgb(200, 110, 30)),
            };
            let hover = format!("{} nodes before, {} after", p.nodes_before, p.nodes_after);
            ui.label(RichText::new(text).small().color(colour)).on_hover_text(hover);
        });
    });
}
