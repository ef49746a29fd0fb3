//! Compiles and runs the model with other options, off the window's thread.

use crate::live::{Made, Wanted};
use crate::state::Viewer;
use egui::{ComboBox, Grid, ProgressBar, Ui, Window};

const AMP: &[&str] = &["off", "fp16", "auto"];
const LAYOUT: &[&str] = &["auto", "nchw", "nhwc", "nchw4c", "nchw8c", "nchw16c", "none"];
const FUSE: &[&str] = &["full", "classic", "off"];

/// Draws the window while it is wanted, and takes a compilation in that is done.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    if let Some(Made { trace, keep_f32 }) = v.again.take() {
        // A page of the old compilation is one of the new one, too.
        let (page, wanted) = (v.pages.shown, Wanted { keep_f32, find_keep: false, ..v.again.wanted.clone() });
        let taken = if v.again.beside { v.put_beside(trace) } else { v.replace(trace) };
        match taken {
            Ok(()) => {
                v.again.wanted = wanted;
                page.into_iter().for_each(|p| super::pages::open(v, p));
            }
            Err(why) => v.message = Some(why.to_string()),
        }
    }
    if v.host.is_none() {
        return;
    }
    let mut open = v.again.open;
    let (mut start, mut cancel) = (false, false);
    Window::new("Compile again").open(&mut open).resizable(false).collapsible(false).show(ui.ctx(), |ui| {
        let running = v.again.progress();
        ui.add_enabled_ui(running.is_none(), |ui| options(ui, &mut v.again.wanted));
        ui.checkbox(&mut v.again.beside, "Beside this compilation, boxes matched by their nodes");
        ui.separator();
        match running {
            Some((stage, share)) => {
                ui.add(ProgressBar::new(share).text(stage).desired_width(300.0));
                cancel = ui.button("Cancel").clicked();
            }
            None => start = ui.button("Compile").clicked(),
        }
        if let Some(why) = &v.again.fault {
            ui.colored_label(egui::Color32::from_rgb(210, 60, 60), why);
        }
    });
    v.again.open = open;
    if start {
        v.start_again(ui.ctx());
    }
    if cancel {
        v.again.cancel();
    }
    if v.again.progress().is_some() {
        // The bar moves with what the work says.
        ui.ctx().request_repaint_after(std::time::Duration::from_millis(100));
    }
}

fn options(ui: &mut Ui, w: &mut Wanted) {
    Grid::new("again").num_columns(2).spacing([14.0, 4.0]).show(ui, |ui| {
        let mut row = |label: &str, value: &mut String, all: &[&str]| {
            let label = ui.label(label);
            let combo = ComboBox::from_id_salt(label.id).selected_text(value.clone()).show_ui(ui, |ui| {
                for one in all {
                    ui.selectable_value(value, (*one).to_string(), *one);
                }
            });
            combo.response.labelled_by(label.id);
            ui.end_row();
        };
        row("mixed precision", &mut w.amp, AMP);
        row("layout", &mut w.layout, LAYOUT);
        row("fusion", &mut w.fuse, FUSE);
        let mut level = w.opt_level.to_string();
        row("opt level", &mut level, &["0", "1", "2", "3"]);
        w.opt_level = level.parse().unwrap_or(3);
    });
    if !w.keep_f32.is_empty() {
        ui.horizontal(|ui| {
            ui.label(format!("{} stay in f32", crate::units::counted(w.keep_f32.len(), "node")));
            if ui.small_button("Forget them").clicked() {
                w.keep_f32.clear();
            }
        });
    }
    ui.checkbox(&mut w.times, "Run it, and show its times");
    ui.checkbox(&mut w.errors, "Hold each node against the interpreter, and show errors");
}
