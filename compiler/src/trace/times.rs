//! Times and errors of a trace, by groups, kernels and shares of a run.

use super::{CompileTrace, DispatchTime, NodeError, Spent};

impl CompileTrace {
    /// Where the time of a run goes, in milliseconds; the sum is `Times::latency_ms`. Empty if nothing was measured.
    pub fn time_spent(&self) -> Vec<(Spent, f64)> {
        let Some(times) = &self.times else { return vec![] };
        let dispatches = times.dispatches.iter().enumerate().map(|(i, t)| (Spent::Dispatch(i), t.median_us / 1e3));
        let host = self.parts.iter().enumerate().filter_map(|(i, p)| Some((Spent::Host(i), p.host_ms?)));
        let moved =
            [(Spent::Upload, times.upload_ms), (Spent::Work, times.host_ms), (Spent::Readback, times.readback_ms)];
        let mut rows: Vec<(Spent, f64)> = dispatches.chain(host).collect();
        rows.extend(moved.into_iter().filter(|m| m.1 > 0.0));
        let sum: f64 = rows.iter().map(|r| r.1).sum();
        rows.push((Spent::Rest, times.latency_ms - sum));
        rows
    }
    /// The name of a share of the time that is no dispatch.
    pub fn spent_name(&self, spent: Spent, ms: f64) -> String {
        match spent {
            Spent::Dispatch(i) => self.calls().nth(i).map_or(String::new(), |c| self.groups[c.group].label.clone()),
            Spent::Host(i) => format!("part {} on the host", self.parts[i].name),
            Spent::Upload => "upload of inputs".into(),
            Spent::Work => "host: encoding, submitting, steps on tensors".into(),
            Spent::Readback => "readback of results".into(),
            Spent::Rest if ms < 0.0 => "less than the sum: dispatches were timed one by one, in other runs".into(),
            Spent::Rest if self.parts.is_empty() => "waits, copies on the device".into(),
            Spent::Rest => "host steps, waits, uploads, readbacks".into(),
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
