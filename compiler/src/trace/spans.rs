//! One run of a compiled model on one axis: the host, the copies and the device; and where its time goes.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Where a part of a run takes place.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// The host: encoding, submitting, waiting, steps on tensors.
    #[default]
    Host,
    /// Inputs on their way to the device.
    Upload,
    /// The device: kernels, and what its queue holds.
    Device,
    /// Results on their way back.
    Readback,
}

impl Lane {
    /// Every lane with its name, in the order in which they are drawn.
    pub const ALL: [(Lane, &'static str); 4] =
        [(Lane::Host, "host"), (Lane::Upload, "upload"), (Lane::Device, "device"), (Lane::Readback, "readback")];
    /// Its name.
    pub fn name(self) -> &'static str {
        Lane::ALL.iter().find(|l| l.0 == self).map_or("", |l| l.1)
    }
}

/// The kinds of shares of a run's time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A dispatch.
    Kernel,
    /// A node that the host computes: a host step, a host function, a region of an external target.
    Step,
    /// Tensors on their way to kernels.
    Upload,
    /// The host encodes and submits, or prepares dispatches.
    Encode,
    /// The host waits for the device, and no kernel runs.
    Wait,
    /// The device goes from one kernel to the next.
    Gap,
    /// Copies of buffers.
    Copy,
    /// Tensors on their way back from kernels.
    Readback,
    /// The host goes from one part of a network to the next: sizes, tensors that are handed over.
    Between,
    /// The time that none of the others has.
    #[default]
    Rest,
}

/// The name of the row of [`Kind::Rest`].
pub const NOT_ATTRIBUTED: &str = "not attributed";

/// A part of a run, in microseconds from its beginning.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Span {
    /// Where it took place.
    pub lane: Lane,
    /// The kind of its time.
    pub kind: Kind,
    /// What it was: `upload`, `wait`, the name of a kernel or of a host step.
    pub name: String,
    /// The dispatch, by its place among the calls of the plan; `None` for everything else.
    pub dispatch: Option<usize>,
    /// The group of a dispatch or of a host step.
    pub group: Option<usize>,
    /// Nothing is done in it: the host waits for the device, or commands wait in the device's queue.
    pub waits: bool,
    /// Its beginning.
    pub start_us: f64,
    /// Its end.
    pub end_us: f64,
}

/// A share of the time of a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TimeRow {
    /// The kind of the time.
    pub kind: Kind,
    /// The kernel, the node or the host function; else what is done.
    pub name: String,
    /// The dispatch, by its place among the calls of the plan.
    pub dispatch: Option<usize>,
    /// The group of a dispatch or of a host step.
    pub group: Option<usize>,
    /// Source nodes.
    pub nodes: Vec<String>,
    /// Milliseconds of all of them: never below 0. Those of all rows are the time of the run.
    pub ms: f64,
    /// How often, in all turns of loops.
    pub count: u64,
}

/// One run on one axis.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunSpans {
    /// Its parts, without what is not attributed. Those of a lane do not overlap. Of a long run the first ones.
    pub spans: Vec<Span>,
    /// Where its time goes: all of it.
    pub rows: Vec<TimeRow>,
    /// Its length in milliseconds.
    pub ms: f64,
    /// Spans that are not in the list: the run has more than are kept.
    pub left_out: usize,
    /// The clock that told when kernels ran: `gpu-timestamps`, or `host-clock`.
    pub kernel_times: String,
    /// How far the device's spans may be off on the axis of the host, in microseconds.
    pub uncertainty_us: f64,
}

/// Spans of a run that are kept.
const KEPT: usize = 20_000;

impl RunSpans {
    /// A run of `ms` milliseconds: `spans` of the host one after the other, and of the device.
    pub fn of(mut spans: Vec<Span>, ms: f64, nodes: &dyn Fn(&Span) -> Vec<String>) -> RunSpans {
        spans.sort_by(|a, b| a.start_us.total_cmp(&b.start_us));
        spans.retain(|s| s.kind != Kind::Rest);
        let rows = rows(&spans, ms, nodes);
        let left_out = spans.len().saturating_sub(KEPT);
        spans.truncate(KEPT);
        RunSpans { spans, rows, ms, left_out, ..RunSpans::default() }
    }
    /// Milliseconds of the rows of a kind.
    pub fn ms_of(&self, kind: Kind) -> f64 {
        self.rows.iter().filter(|r| r.kind == kind).fold(0.0, |sum, r| sum + r.ms)
    }
    /// The end of the last span, in microseconds.
    pub fn end_us(&self) -> f64 {
        self.spans.iter().map(|s| s.end_us).fold(0.0, f64::max)
    }
}

/// The time of a run as rows: kernels have all of theirs, the host what no kernel runs beside; the longest first, what
/// is left last. Kernels beside a wait divide it.
fn rows(spans: &[Span], ms: f64, nodes: &dyn Fn(&Span) -> Vec<String>) -> Vec<TimeRow> {
    let kernels: Vec<[f64; 2]> =
        spans.iter().filter(|s| s.lane == Lane::Device).map(|s| [s.start_us, s.end_us]).collect();
    let mut sums = Sums { rows: vec![], by: HashMap::new(), nodes };
    let mut next = 0;
    for s in spans {
        if s.lane == Lane::Device {
            sums.add(s, s.kind, &s.name, s.end_us - s.start_us, 1);
            continue;
        }
        while kernels.get(next).is_some_and(|k| k[1] <= s.start_us) {
            next += 1;
        }
        let beside: Vec<[f64; 2]> =
            kernels[next..].iter().take_while(|k| k[0] < s.end_us).filter(|k| k[1] > s.start_us).copied().collect();
        let mut at = s.start_us;
        for (i, k) in beside.iter().enumerate() {
            let (kind, name) = match (s.kind, i) {
                (Kind::Wait, 0) => (Kind::Wait, "wait before the first kernel"),
                (Kind::Wait, _) => (Kind::Gap, "gaps between kernels"),
                (kind, _) => (kind, s.name.as_str()),
            };
            sums.add(s, kind, name, (k[0] - at).max(0.0), u64::from(i == 0));
            at = at.max(k[1]);
        }
        let behind = s.kind == Kind::Wait && !beside.is_empty();
        let name = if behind { "wait behind the last kernel" } else { &s.name };
        sums.add(s, s.kind, name, (s.end_us - at).max(0.0), u64::from(beside.is_empty()));
    }
    let mut rows = sums.rows;
    rows.retain(|r| r.ms > 0.0 || r.kind == Kind::Kernel);
    let sum: f64 = rows.iter().map(|r| r.ms).sum();
    rows.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    rows.push(TimeRow { name: NOT_ATTRIBUTED.into(), ms: (ms - sum).max(0.0), ..TimeRow::default() });
    rows
}

/// Rows in the making, by what they are of.
struct Sums<'a> {
    rows: Vec<TimeRow>,
    by: HashMap<(Kind, String, Option<usize>, Option<usize>), usize>,
    nodes: &'a dyn Fn(&Span) -> Vec<String>,
}

impl Sums<'_> {
    fn add(&mut self, s: &Span, kind: Kind, name: &str, us: f64, count: u64) {
        let key = (kind, name.to_string(), s.dispatch, s.group);
        let at = *self.by.entry(key).or_insert_with(|| {
            let (dispatch, group, nodes) = (s.dispatch, s.group, (self.nodes)(s));
            self.rows.push(TimeRow { kind, name: name.into(), dispatch, group, nodes, ..TimeRow::default() });
            self.rows.len() - 1
        });
        self.rows[at].ms += us / 1e3;
        self.rows[at].count += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(lane: Lane, kind: Kind, name: &str, [start_us, end_us]: [f64; 2]) -> Span {
        Span { lane, kind, name: name.into(), start_us, end_us, ..Span::default() }
    }

    #[test]
    fn every_moment_has_one_row() {
        let kernel = |i: usize, at: [f64; 2]| Span { dispatch: Some(i), ..span(Lane::Device, Kind::Kernel, "k", at) };
        let spans = vec![
            span(Lane::Upload, Kind::Upload, "upload", [0.0, 10.0]),
            span(Lane::Host, Kind::Encode, "encode", [10.0, 30.0]),
            span(Lane::Host, Kind::Wait, "wait", [30.0, 100.0]),
            kernel(0, [25.0, 40.0]),
            kernel(1, [50.0, 61.0]),
            kernel(0, [61.0, 70.0]),
            span(Lane::Host, Kind::Step, "f", [100.0, 150.0]),
            span(Lane::Host, Kind::Rest, "", [150.0, 151.0]),
        ];
        let run = RunSpans::of(spans, 0.155, &|_| vec![]);
        let rows: Vec<(&str, u64, u64)> =
            run.rows.iter().map(|r| (r.name.as_str(), (r.ms * 1e3).round() as u64, r.count)).collect();
        assert_eq!(
            rows,
            [
                ("f", 50, 1),
                ("wait behind the last kernel", 30, 0),
                ("k", 24, 2),
                ("encode", 15, 1),
                ("k", 11, 1),
                ("upload", 10, 1),
                ("gaps between kernels", 10, 0),
                (NOT_ATTRIBUTED, 5, 0),
            ]
        );
        assert!((run.rows.iter().map(|r| r.ms).sum::<f64>() - run.ms).abs() < 1e-9);
    }
}
