//! The window.

use crate::live::Host;
use crate::start::{Fault, Shot, prepare, select};
use crate::{Viewer, show};
use compiler::trace::CompileTrace;
use std::sync::Arc;

struct App {
    viewer: Viewer,
    /// A node to select as soon as the graph is laid out.
    select: Option<String>,
}

impl eframe::App for App {
    fn ui(&mut self, ui: &mut egui::Ui, _: &mut eframe::Frame) {
        show(ui, &mut self.viewer);
        if self.select.is_some() && !self.viewer.busy() {
            let found = self.select.take().map(|name| select(&mut self.viewer, &name));
            if let Some(Err(Fault::Asked(why) | Fault::Window(why))) = found {
                self.viewer.message = Some(why);
            }
        }
    }
}

/// Opens a window on a trace; returns when it is closed. `host` compiles and measures changes.
///
/// # Errors
/// When the trace is damaged, has no such pass or view, or there is no display or no device to draw with.
pub fn open(trace: CompileTrace, shot: &Shot, host: Arc<dyn Host>) -> Result<(), Fault> {
    let mut viewer = Viewer::new(trace).map_err(|e| Fault::Asked(e.to_string()))?;
    // Opening a device takes a moment: it is there when a schedule is edited.
    let early = host.clone();
    let early = std::thread::spawn(move || early.device().is_ok());
    viewer.host = Some(host);
    prepare(&mut viewer, shot)?;
    let app = App { viewer, select: shot.select.clone() };
    let title = format!("Weft: {}", app.viewer.trace().model);
    let viewport = egui::ViewportBuilder::default().with_inner_size(shot.size).with_title(&title);
    let options = eframe::NativeOptions { viewport, ..eframe::NativeOptions::default() };
    let dark = shot.dark;
    let run = eframe::run_native(
        &title,
        options,
        Box::new(move |cx| {
            if dark {
                cx.egui_ctx.set_theme(egui::Theme::Dark);
            }
            Ok(Box::new(app))
        }),
    );
    // A thread that opens a device while the process ends may crash in the driver.
    let _ = early.join();
    run.map_err(|e| Fault::Window(e.to_string()))
}
