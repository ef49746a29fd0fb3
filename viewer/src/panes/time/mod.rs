//! Times of dispatches: as a table, as a timeline, and against the peak rates of the device.

mod roofline;
mod table;
mod timeline;

use crate::once::visit;
use crate::state::Viewer;
use compiler::trace::Kind;
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

impl TimePane {
    /// How much wider than the pane the timeline is.
    pub fn zoomed(&self) -> f32 {
        self.zoom.times
    }
}

/// A share of the time of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its position among all.
    pub call: usize,
    /// Group and kernel of a dispatch; `None` for what is no dispatch.
    pub at: Option<(usize, usize)>,
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

/// All dispatches in order; where they were timed, with the rest of the run's time.
pub fn rows(v: &Viewer) -> Vec<Row> {
    let t = v.trace();
    let spent = t.time_spent();
    let layer = |g: usize| match t.parts.get(t.part_of_group(g)) {
        Some(p) => format!("{}: {}", p.name, t.groups[g].label),
        None => t.groups[g].label.clone(),
    };
    let row = |(call, c): (usize, &compiler::trace::Call)| Row {
        call,
        at: Some((c.group, c.kernel)),
        layer: layer(c.group),
        ms: t.times.as_ref().and_then(|times| Some(times.dispatches.get(call)?.us / 1e3)),
        flops: c.flops,
        bytes: c.bytes,
    };
    let mut rows: Vec<Row> = t.calls().enumerate().map(row).collect();
    visit(rows.len());
    for r in spent.into_iter().filter(|r| r.kind != Kind::Kernel) {
        let layer = if r.count > 1 { format!("{} x{}", r.name, r.count) } else { r.name };
        rows.push(Row { call: rows.len(), at: None, layer, ms: Some(r.ms), flops: 0, bytes: 0 });
    }
    rows
}

/// Whether a row is of what is selected.
fn is_marked(v: &Viewer, r: &Row) -> bool {
    r.at.is_some_and(|(group, _)| v.marks(&v.trace().groups[group].origins))
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
                let text = format!("{:.2} ms a run on {}", t.latency_ms, t.device);
                ui.weak(text).on_hover_text(format!(
                    "Median of runs with inputs sent and results read back; {:.2} ms with both on the device. \
                     Shares are of a recorded run of {:.2} ms, by {}.",
                    t.device_ms,
                    v.document().run_ms(),
                    t.source
                ))
            }
            None => ui.weak("no times: `weft bench MODEL -o F.trace` stores them"),
        };
    });
    ui.separator();
    match v.time_pane.part {
        Part::Table => table::show(ui, v),
        Part::Timeline => timeline::show(ui, v),
        Part::Roofline => roofline::show(ui, v),
    }
}
