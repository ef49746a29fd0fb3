//! Times and errors of a trace, by groups, kernels and shares of a run.

use super::spans::NOT_ATTRIBUTED;
use super::{Call, CompileTrace, DispatchTime, Kind, NodeError, TimeRow};

impl CompileTrace {
    /// Where the time of a run goes: the rows of the recorded run. Where none was recorded, its dispatches, and what is
    /// left of the latency. Empty if nothing was measured.
    pub fn time_spent(&self) -> Vec<TimeRow> {
        let Some(times) = &self.times else { return vec![] };
        if let Some(run) = &times.run {
            return run.rows.clone();
        }
        let row = |(i, (c, t)): (usize, (&Call, &DispatchTime))| TimeRow {
            kind: Kind::Kernel,
            name: self.groups[c.group].label.clone(),
            dispatch: Some(i),
            group: Some(c.group),
            nodes: self.groups[c.group].origins.clone(),
            ms: t.us / 1e3,
            count: c.runs,
        };
        let mut rows: Vec<TimeRow> = self.calls().zip(&times.dispatches).enumerate().map(row).collect();
        let ms = (times.latency_ms - rows.iter().map(|r| r.ms).sum::<f64>()).max(0.0);
        rows.push(TimeRow { name: NOT_ATTRIBUTED.into(), ms, ..TimeRow::default() });
        rows
    }
    /// Milliseconds of the run that all shares are of: the recorded one, else the sum of its rows. 0 if nothing was
    /// measured.
    pub fn run_ms(&self) -> f64 {
        let recorded = self.times.as_ref().and_then(|t| Some(t.run.as_ref()?.ms));
        recorded.unwrap_or_else(|| self.time_spent().iter().map(|r| r.ms).sum())
    }
    /// The title of a row: of a dispatch, its layer with what is fused with it.
    pub fn row_title(&self, row: &TimeRow) -> String {
        match (row.dispatch, row.group) {
            (Some(_), Some(g)) => self.groups.get(g).map_or(row.name.clone(), |g| g.label.clone()),
            _ => row.name.clone(),
        }
    }
    /// The time of a group: of all its dispatches. `None` where nothing was measured, or nothing runs on the device.
    pub fn time_of_group(&self, group: usize) -> Option<DispatchTime> {
        self.sum_times(|c| c.group == group)
    }
    /// The time of a kernel: of all its dispatches.
    pub fn time_of_kernel(&self, kernel: usize) -> Option<DispatchTime> {
        self.sum_times(|c| c.kernel == kernel)
    }
    fn sum_times(&self, wanted: impl Fn(&super::Call) -> bool) -> Option<DispatchTime> {
        let times = self.times.as_ref()?;
        let own = self.calls().zip(&times.dispatches).filter(|(c, _)| wanted(c)).map(|(_, t)| *t);
        own.reduce(DispatchTime::plus)
    }
    /// The largest error among the source nodes of a group.
    pub fn error_of_group(&self, group: usize) -> Option<&NodeError> {
        let origins = &self.groups[group].origins;
        let nodes = self.errors.as_ref()?.nodes.iter().filter(|n| origins.contains(&n.name));
        nodes.max_by(|a, b| a.rel_l2.total_cmp(&b.rel_l2))
    }
    /// The remarks about a group: those that name one of its source nodes or its own nodes.
    pub fn remarks_of_group(&self, group: usize) -> Vec<usize> {
        let g = &self.groups[group];
        let about = |n: &str| g.origins.iter().chain(&g.nodes).any(|o| o == n);
        (0..self.remarks.len()).filter(|&i| self.remarks[i].nodes.iter().any(|n| about(n.as_str()))).collect()
    }
}
