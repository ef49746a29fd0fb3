//! The window.

use crate::{Viewer, show};
use compiler::trace::CompileTrace;

struct App(Viewer);
impl eframe::App for App {
    fn ui(&mut self, ui: &mut egui::Ui, _: &mut eframe::Frame) {
        show(ui, &mut self.0);
    }
}

/// Opens a window on a trace; returns when it is closed.
///
/// # Errors
/// When the trace is damaged, or there is no display or no device to draw with.
pub fn open(trace: CompileTrace) -> Result<(), String> {
    let viewer = Viewer::new(trace).map_err(|e| e.to_string())?;
    let title = format!("Weft: {}", viewer.trace().model);
    let viewport = egui::ViewportBuilder::default().with_inner_size([1400.0, 900.0]).with_title(&title);
    let options = eframe::NativeOptions { viewport, ..eframe::NativeOptions::default() };
    eframe::run_native(&title, options, Box::new(|_| Ok(Box::new(App(viewer))))).map_err(|e| e.to_string())
}
