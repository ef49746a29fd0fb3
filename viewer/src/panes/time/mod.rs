//! Times of dispatches: as a table, as a timeline, and against the peak rates of the device.

mod roofline;
mod table;
mod timeline;

use crate::state::Viewer;
use egui::Ui;

/// The part that the pane shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Part {
    /// A row for each dispatch.
    #[default]
    Table,
    /// One after the other.
    Timeline,
    /// Rates against intensity.
    Roofline,
}

/// The state of the pane.
#[derive(Default)]
pub struct TimePane {
    /// The part that is shown.
    pub part: Part,
    sort: table::Sort,
    zoom: timeline::Zoom,
}

/// A dispatch.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its position in the plan.
    pub call: usize,
    /// Its kernel.
    pub kernel: usize,
    /// Its group.
    pub group: usize,
    /// The layer.
    pub layer: String,
    /// Milliseconds.
    pub ms: Option<f64>,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes of its buffers.
    pub bytes: u64,
}
impl Row {
    /// 10^9 operations a second.
    pub fn gflops(&self) -> Option<f64> {
        self.ms.filter(|ms| *ms > 0.0).map(|ms| self.flops as f64 / ms / 1e6)
    }
    /// 10^9 bytes a second.
    pub fn gb_s(&self) -> Option<f64> {
        self.ms.filter(|ms| *ms > 0.0).map(|ms| self.bytes as f64 / ms / 1e6)
    }
}

/// All dispatches in order.
pub fn rows(v: &Viewer) -> Vec<Row> {
    let t = v.trace();
    let time = |i: usize| t.times.as_ref().and_then(|all| all.dispatches.get(i)).map(|d| d.median_us / 1000.0);
    let row = |(call, c): (usize, &compiler::trace::Call)| Row {
        call,
        kernel: c.kernel,
        group: c.group,
        layer: t.groups[c.group].label.clone(),
        ms: time(call),
        flops: c.flops,
        bytes: c.bytes,
    };
    t.calls().enumerate().map(row).collect()
}

/// Draws the pane.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    ui.horizontal_wrapped(|ui| {
        let parts = [(Part::Table, "Table"), (Part::Timeline, "Timeline"), (Part::Roofline, "Roofline")];
        for (part, title) in parts {
            ui.selectable_value(&mut v.time_pane.part, part, title);
        }
        match &v.trace().times {
            Some(t) => {
                let text = format!("{:.2} ms on {}, by {}", t.device_ms, t.device, t.source);
                ui.weak(text).on_hover_text(format!("{:.2} ms with inputs sent and results read back", t.latency_ms))
            }
            None => ui.weak("no times: `weft bench MODEL -o F.trace` stores them"),
        };
    });
    ui.separator();
    let rows = rows(v);
    if rows.is_empty() {
        ui.weak("Nothing of this model runs on a device.");
        return;
    }
    match v.time_pane.part {
        Part::Table => table::show(ui, v, rows),
        Part::Timeline => timeline::show(ui, v, &rows),
        Part::Roofline => roofline::show(ui, v, &rows),
    }
}
