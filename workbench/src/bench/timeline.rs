//! One run on one axis: host, copies and kernels, in microseconds from the beginning of the run. All figures of a
//! result's tables are of this run. `-o F.trace` stores it; `--timeline F.json` writes it as Chrome's trace format has
//! it, for Perfetto (<https://ui.perfetto.dev>) or `chrome://tracing`.

use super::request::Request;
use crate::error::{Code, Error, Result};
use crate::progress::Progress;
use compiler::compile::{Compiled, Group};
use compiler::plan::Dispatch;
use compiler::remark::{Remark, RemarkKind, SCHEDULING};
use compiler::trace::{DispatchTime, Kind, Lane, RunSpans, Span};
use runtime_gpu::{Doing, Recorder, TimeSource};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Runs that are recorded at most; the one nearest to the median of the timed runs is shown.
const RECORDED: usize = 10;
/// A recorded run that differs from the median by no more than this share will do, once there are so many, or once so
/// much time has passed.
const NEAR: f64 = 0.01;
const ENOUGH: usize = 5;
const LONG: Duration = Duration::from_secs(3);

/// A part of a network before it runs; of a network that is not in parts, all of it.
pub struct Known {
    /// Its name; empty if it is all of the network.
    pub part: String,
    /// Its dispatches in the plan's order.
    pub dispatches: Vec<Of>,
    /// Of each group: the host function that it calls, else its layer; and its source nodes.
    groups: Vec<(String, Vec<String>)>,
    /// Of each group: its schedule rule, and why others declined.
    pub rules: Vec<(&'static str, Vec<String>)>,
}

impl Known {
    /// How many groups it has.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }
}

/// A dispatch before it runs.
pub struct Of {
    pub kernel: usize,
    pub name: String,
    pub group: usize,
    pub flops: u64,
    pub bytes: u64,
}

impl Known {
    /// Of the part of that name.
    pub fn of(part: &str, c: &Compiled) -> Known {
        let one = |d: &Dispatch| {
            let name = c.plan.kernels[d.kernel].name.to_string();
            Of { kernel: d.kernel, name, group: d.group, flops: d.flops, bytes: d.bytes }
        };
        let groups = c.groups.iter().map(|g| {
            let title = g.host_function.map_or(g.layer.to_string(), |f| f.to_string());
            (title, g.origins.iter().map(|o| o.to_string()).collect())
        });
        let declined = |g: &Group| {
            let own =
                |r: &&Remark| r.pass.as_str() == SCHEDULING && r.kind == RemarkKind::Missed && r.nodes == g.origins;
            c.remarks.iter().filter(own).map(|r| r.message.clone()).collect()
        };
        Known {
            part: part.into(),
            dispatches: c.plan.dispatches().map(one).collect(),
            groups: groups.collect(),
            rules: c.groups.iter().map(|g| (g.rule, declined(g))).collect(),
        }
    }
}

/// The run that is shown, and what is known of its dispatches.
#[derive(Default)]
pub struct Shown {
    pub run: RunSpans,
    /// Of each dispatch: in the run, and the least and the most of all recorded runs.
    pub times: Vec<DispatchTime>,
    /// How often the run executed each.
    pub counts: Vec<u64>,
    pub source: TimeSource,
    /// Of each dispatch: group, kernel, layers, FLOPs, bytes.
    about: Vec<Value>,
}

/// The sums of dispatches in a recorded run: microseconds and turns.
type Sums = Vec<(f64, u64)>;

impl Shown {
    /// Records runs of `run`, and takes the one whose length is nearest to `median_ms`.
    ///
    /// # Errors
    /// An error of a run.
    pub fn record(
        a: &Request,
        run: &mut dyn FnMut(&Recorder) -> Result<()>,
        median_ms: f64,
        known: &[Known],
        progress: &mut Progress,
    ) -> Result<Shown> {
        let rounds = a.timing.runs().clamp(1, RECORDED);
        let count: usize = known.iter().map(|k| k.dispatches.len()).sum();
        let off = |run: &runtime_gpu::Recorded| (run.end / 1e3 - median_ms).abs();
        let start = Instant::now();
        let (mut best, mut all): (Option<(runtime_gpu::Recorded, usize)>, Vec<Sums>) = (None, vec![]);
        for round in 0..rounds {
            progress.report("recorded runs", round, rounds);
            let recorder = Recorder::start();
            run(&recorder)?;
            let run = recorder.finish().map_err(weft::Error::from)?;
            all.push(sums(&run, known, count));
            if best.as_ref().is_none_or(|b| off(&run) < off(&b.0)) {
                best = Some((run, round));
            }
            let enough = round + 1 >= ENOUGH || start.elapsed() > LONG;
            if enough && best.as_ref().is_some_and(|b| off(&b.0) <= NEAR * median_ms) {
                break;
            }
        }
        let (run, at) = best.ok_or_else(|| Error::new(Code::Bug, "no run was recorded"))?;
        let time = |i: usize| {
            let each = all.iter().map(|sums| sums[i].0);
            let us = all[at][i].0;
            DispatchTime { us, min_us: each.clone().fold(us, f64::min), max_us: each.fold(us, f64::max) }
        };
        Ok(Shown {
            times: (0..count).map(time).collect(),
            counts: all[at].iter().map(|s| s.1).collect(),
            source: run.source,
            run: spans(run, known),
            about: known.iter().flat_map(about).collect(),
        })
    }

    /// Takes other numbers: dispatch `i` was `order[i]`, and group `i` becomes `groups[i]`.
    pub fn renumber(&mut self, order: &[usize], groups: &[usize]) {
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(now, &was)| places[was] = now);
        let change = |dispatch: &mut Option<usize>, group: &mut Option<usize>| {
            *dispatch = dispatch.and_then(|d| places.get(d).copied());
            *group = group.and_then(|g| groups.get(g).copied());
        };
        self.run.spans.iter_mut().for_each(|s| change(&mut s.dispatch, &mut s.group));
        self.run.rows.iter_mut().for_each(|r| change(&mut r.dispatch, &mut r.group));
        self.times = order.iter().filter_map(|&i| self.times.get(i).copied()).collect();
        self.counts = order.iter().filter_map(|&i| self.counts.get(i).copied()).collect();
        self.about = order.iter().filter_map(|&i| self.about.get(i).cloned()).collect();
    }

    /// As Chrome's trace format has it, where that is asked for. `device` is what the second process is called.
    pub fn timeline(&self, a: &Request, device: &str) -> Option<Value> {
        let about = |i: usize| self.about.get(i).cloned().unwrap_or_default();
        a.timeline.then(|| graphview::timeline::events(&self.run, device, &about))
    }
}

/// The part of a span, by its place among those that are known, and the place of its first dispatch and first group.
fn part_of(known: &[Known], part: &str) -> Option<(usize, usize, usize)> {
    let at = known.iter().position(|k| k.part == part)?;
    let (dispatches, groups) = (|k: &Known| k.dispatches.len(), |k: &Known| k.groups.len());
    Some((at, known[..at].iter().map(dispatches).sum(), known[..at].iter().map(groups).sum()))
}

fn sums(run: &runtime_gpu::Recorded, known: &[Known], count: usize) -> Sums {
    let mut out = vec![(0.0, 0); count];
    for s in &run.spans {
        if let (Doing::Kernel(i), Some((_, first, _))) = (&s.what, part_of(known, &s.part))
            && let Some(sum) = out.get_mut(first + i)
        {
            sum.0 += s.end - s.start;
            sum.1 += 1;
        }
    }
    out
}

/// The run as traces have it.
fn spans(run: runtime_gpu::Recorded, known: &[Known]) -> RunSpans {
    let (source, uncertainty_us, ms) = (run.source, run.uncertainty_us, run.end / 1e3);
    let all = run.spans.iter().map(|s| span(s, known)).collect();
    let groups: Vec<&(String, Vec<String>)> = known.iter().flat_map(|k| &k.groups).collect();
    let nodes = |s: &Span| match s.group {
        Some(g) => groups.get(g).map_or(vec![], |g| g.1.clone()),
        None if s.kind == Kind::Step => vec![s.name.clone()],
        None => vec![],
    };
    RunSpans { kernel_times: source.name().into(), uncertainty_us, ..RunSpans::of(all, ms, &nodes) }
}

fn span(s: &runtime_gpu::Span, known: &[Known]) -> Span {
    let part = part_of(known, &s.part);
    let group = |own: usize| part.map(|(_, _, first)| first + own);
    let is_apart = !s.part.is_empty() || known.iter().any(|k| !k.part.is_empty());
    let (lane, kind, own) = match &s.what {
        Doing::Upload => (Lane::Upload, Kind::Upload, "upload"),
        Doing::Encode => (Lane::Host, Kind::Encode, "encode and submit"),
        Doing::Prepare => (Lane::Host, Kind::Encode, "between kernels: sizes, buffers, loops"),
        Doing::Wait => (Lane::Host, Kind::Wait, "wait"),
        Doing::Readback => (Lane::Readback, Kind::Readback, "readback"),
        Doing::Copy => (Lane::Host, Kind::Copy, "copies of buffers"),
        Doing::Between if is_apart => (Lane::Host, Kind::Between, "between steps: sizes, tensors handed over"),
        Doing::Between => (Lane::Host, Kind::Rest, ""),
        Doing::Step(..) | Doing::Node(..) => (Lane::Host, Kind::Step, ""),
        Doing::Kernel(_) => (Lane::Device, Kind::Kernel, ""),
    };
    let titled = |name: &str| if s.part.is_empty() { name.to_string() } else { format!("{}: {name}", s.part) };
    let base = Span { lane, kind, start_us: s.start, end_us: s.end, waits: kind == Kind::Wait, ..Span::default() };
    let base = if s.on_device { Span { lane: Lane::Device, ..base } } else { base };
    match (&s.what, part) {
        (Doing::Kernel(i), Some((at, first, _))) => {
            let of = known[at].dispatches.get(*i);
            let name = of.map_or(String::new(), |of| of.name.clone());
            Span { name, dispatch: Some(first + i), group: of.and_then(|of| group(of.group)), ..base }
        }
        (Doing::Step(name, g), Some((at, ..))) => {
            let name = known[at].groups.get(*g).map_or(name.clone(), |g| g.0.clone());
            Span { name: titled(&name), group: group(*g), ..base }
        }
        (Doing::Step(name, _) | Doing::Node(name, _), _) => Span { name: titled(name), ..base },
        _ => Span { name: titled(own), ..base },
    }
}

fn about(k: &Known) -> Vec<Value> {
    let one = |d: &Of| {
        let layers = k.groups.get(d.group).map_or(&[][..], |g| &g.1);
        json!({ "group": d.group, "kernel": d.kernel, "layers": layers, "flops": d.flops, "bytes": d.bytes })
    };
    k.dispatches.iter().map(one).collect()
}
