//! Two compilations of a model side by side, with a verdict: what differs in the options, how many dispatches and how
//! much time each has, and the time of each layer on both sides with the reason where one is slower.
//!
//! Rows cover everything that runs: groups of both sides that have source nodes in common are one row, however they
//! were fused. Groups that passes inserted (transposes, casts) belong to the row of the node that they serve.
//!
//! `weft diff`, the viewer and reports show this one comparison; [`TraceDiff`](super::TraceDiff) lists everything else
//! that differs.

mod match_groups;
mod reason;

use super::diff::{Fact, facts};
use super::{CompileTrace, DispatchTime};
use crate::schedule::estimate::times;
use match_groups::{Matched, match_groups};
use serde::Serialize;

/// Where times come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Both sides were measured.
    Measured,
    /// At least one was not: the cost model's times of both.
    Estimated,
}
impl Source {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Source::Measured => "measured",
            Source::Estimated => "estimated",
        }
    }
}

/// A layer on both sides.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The name of the group in it that computes most.
    pub name: String,
    /// Its groups on each side, in the order they run.
    pub groups: [Vec<usize>; 2],
    /// Dispatches of each side.
    pub dispatches: [usize; 2],
    /// Source nodes, sorted.
    pub origins: Vec<String>,
    /// The time of each side; `None` if it is not known. Estimated times have no spread.
    pub times: [Option<DispatchTime>; 2],
    /// Whether the times differ by more than their noise: every run of one took longer than every run of the other; of
    /// single runs and estimates, by more than a twentieth.
    pub changed: bool,
    /// Why the second side is made otherwise, where it is known.
    pub reason: Option<String>,
    /// The same in a few words, for a list of layers.
    pub brief: Option<String>,
}
impl Row {
    /// Microseconds of the second side less those of the first; one that a side does not have takes none there.
    pub fn delta_us(&self) -> f64 {
        let [a, b] = self.median_us();
        b - a
    }
    /// Microseconds of each side, 0 where it has none.
    pub fn median_us(&self) -> [f64; 2] {
        self.times.map(|t| t.map_or(0.0, |t| t.us))
    }
    /// The time of the second side as a multiple of the first one's.
    pub fn ratio(&self) -> Option<f64> {
        let [a, b] = self.median_us();
        (a > 0.0 && b > 0.0).then(|| b / a)
    }
    /// Half of the spread of the runs, as a share of the time, of the side where it is larger. `None` where a side
    /// has one run.
    pub fn noise(&self) -> Option<f64> {
        let one = |t: DispatchTime| t.has_spread().then(|| (t.max_us - t.min_us) / t.us.max(1e-9) / 2.0);
        let each: Option<Vec<f64>> = self.times.into_iter().flatten().map(one).collect();
        each?.into_iter().reduce(f64::max)
    }
}

/// Two compilations side by side.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// What differs in what both were given: model, device, options.
    pub given: Vec<Fact>,
    /// Dispatches of each side.
    pub dispatches: [usize; 2],
    /// Milliseconds of a run on each side: with inputs sent and results read back if measured, of all dispatches if
    /// estimated. `None` if one side has neither.
    pub run_ms: Option<[f64; 2]>,
    /// The part by which the ratio of both may differ from other measurements, if both sides know it.
    pub noise: Option<f64>,
    /// Where the times come from.
    pub source: Source,
    /// All that runs, in the order of the first side.
    pub rows: Vec<Row>,
}

/// Estimates that are closer than this are no difference.
const ALIKE: f64 = 0.05;
/// Runs of a whole network that are closer than this are as fast.
const AS_FAST: f64 = 0.02;
/// If the ratio of the dispatches' sums differs from that of the runs by more than this factor's logarithm, the verdict
/// says both.
const APART: f64 = 0.2;

impl Comparison {
    /// Compares two traces.
    pub fn of(a: &CompileTrace, b: &CompileTrace) -> Comparison {
        let sides = [a, b];
        let source = match sides.iter().all(|t| t.times.is_some()) {
            true => Source::Measured,
            false => Source::Estimated,
        };
        let by_group = sides.map(|t| times_of_groups(t, source));
        let run_ms = match source {
            Source::Measured => both(sides.map(|t| t.times.as_ref().map(|m| m.latency_ms))),
            Source::Estimated => both(sides.map(|t| {
                let (cost, missing) = t.estimated_cost(&t.estimates().ok()?);
                (missing == 0).then_some(cost.total() / 1e6)
            })),
        };
        let is_given = |f: &Fact| is_option(&f.what);
        let reasons = reason::Reasons::new(sides);
        let rows = match_groups(sides).into_iter().map(|m| row(sides, &by_group, source, m, &reasons));
        Comparison {
            given: facts(a, b).into_iter().filter(is_given).collect(),
            dispatches: sides.map(|t| t.calls().count()),
            run_ms,
            noise: both(sides.map(noise)).filter(|_| source == Source::Measured).map(|[a, b]| a.hypot(b)),
            source,
            rows: rows.collect(),
        }
    }

    /// The verdict in one line: `82 -> 56 dispatches, 1.4 times as fast (612 -> 437 ms, measured); slower: 4 layers by
    /// 93 ms, most layer1.0.conv2 14.2 -> 40.0 ms (no winograd); faster: 31 layers by 268 ms`. The rows say more.
    pub fn headline(&self) -> String {
        let [a, b] = self.dispatches;
        let dispatches = if a == b { format!("{a} dispatches in both") } else { format!("{a} -> {b} dispatches") };
        let time = self.run_ms.map(|ms| format!(", {}", self.speed(ms)));
        let [slower, faster] = [self.changed(true), self.changed(false)];
        // A layer is named on one side: where some are slower, how much the others gained is enough.
        let plain = if slower.is_empty() { said("faster", &faster) } else { sum_of("faster", &faster) };
        let lists: String = said("slower", &slower).into_iter().chain(plain).collect();
        format!("{dispatches}{}{lists}", time.unwrap_or_default())
    }

    /// `1.4 times as fast (612 -> 437 ms, measured)`
    fn speed(&self, [a, b]: [f64; 2]) -> String {
        let ratio = if b > 0.0 { a / b } else { 1.0 };
        let how = match ratio {
            r if (r - 1.0).abs() < AS_FAST.max(self.noise.unwrap_or(0.0)) => "as fast".to_string(),
            r if r > 1.0 => format!("{} times as fast", few_digits(r)),
            r => format!("{} times as slow", few_digits(1.0 / r)),
        };
        let sum = |side: usize| self.rows.iter().map(|r| r.median_us()[side] * 1e3).sum::<f64>();
        let [p, q] = [sum(0), sum(1)];
        // A run has waits and copies besides, and other runs other noise: where both do not agree, both are said.
        let apart = self.source == Source::Measured && q > 0.0 && b > 0.0 && (p / q / (a / b)).ln().abs() > APART;
        let alone = if apart { format!("; dispatches alone {}", from_to([p, q])) } else { String::new() };
        let noise = self.noise.map_or(String::new(), |n| format!(" +-{:.1} %", 100.0 * n));
        format!("{how} ({}{noise}, {}{alone})", from_to([a * 1e6, b * 1e6]), self.source.word())
    }

    /// Rows that changed for the worse or the better, those first that changed most.
    pub fn changed(&self, slower: bool) -> Vec<&Row> {
        let mut list: Vec<&Row> = self.rows.iter().filter(|r| r.changed && (r.delta_us() > 0.0) == slower).collect();
        list.sort_by(|x, y| y.delta_us().abs().total_cmp(&x.delta_us().abs()));
        list
    }

    /// What tells the sides apart: the options that differ, else `names`.
    pub fn titles(&self, names: [&str; 2]) -> [String; 2] {
        const LONGEST: usize = 60;
        let told = |side: fn(&Fact) -> &String| {
            let short = self.given.iter().filter(|f| f.a.len().max(f.b.len()) <= LONGEST);
            let one = |f: &Fact| match (f.what.trim_start_matches('-'), side(f)) {
                ("model" | "device", value) => value.clone(),
                (what, value) if value.is_empty() => format!("{what} none"),
                (what, value) => format!("{what} {value}"),
            };
            short.map(one).collect::<Vec<_>>().join(", ")
        };
        match [told(|f| &f.a), told(|f| &f.b)] {
            [a, b] if a.is_empty() && b.is_empty() => names.map(str::to_string),
            titles => titles,
        }
    }
}

/// Whether a fact is something that a compilation was given.
pub fn is_option(what: &str) -> bool {
    what.starts_with('-') || ["model", "Weft", "device", "disabled passes"].contains(&what)
}

/// `; slower: 4 layers by 93 ms, most layer1.0.conv2 14.2 -> 40.0 ms (no winograd)`
fn said(word: &str, list: &[&Row]) -> Option<String> {
    let r = list.first()?;
    let sum = if list.len() == 1 { format!("; {word}:") } else { format!("{}, most", sum_of(word, list)?) };
    let why = r.brief.as_ref().map_or(String::new(), |why| format!(" ({why})"));
    // What is fused with a layer stands behind its name.
    let name = r.name.split('+').next().unwrap_or(&r.name);
    Some(format!("{sum} {name} {}{why}", from_to(r.median_us().map(|us| us * 1e3))))
}

/// `; faster: 31 layers by 268 ms`
fn sum_of(word: &str, list: &[&Row]) -> Option<String> {
    let [total] = times([list.iter().map(|r| r.delta_us().abs() * 1e3).sum()]);
    let layers = if list.len() == 1 { "layer" } else { "layers" };
    (!list.is_empty()).then(|| format!("; {word}: {} {layers} by {total}", list.len()))
}

/// `14.2 -> 40.0 ms`, of nanoseconds.
fn from_to(ns: [f64; 2]) -> String {
    let [a, b] = times(ns);
    let unit = b.rfind(' ').map_or("", |at| &b[at..]);
    format!("{} -> {b}", a.strip_suffix(unit).unwrap_or(&a))
}

/// A ratio above 1.
fn few_digits(ratio: f64) -> String {
    if ratio < 1.1 { format!("{ratio:.2}") } else { format!("{ratio:.1}") }
}

fn both<T>([a, b]: [Option<T>; 2]) -> Option<[T; 2]> {
    Some([a?, b?])
}

/// The part by which the median of another measurement of a model may differ.
fn noise(t: &CompileTrace) -> Option<f64> {
    let times = t.times.as_ref()?;
    times.plus_minus_ms.filter(|_| times.latency_ms > 0.0).map(|by| by / times.latency_ms)
}

/// The time of each group: of its dispatches, or estimated for them.
fn times_of_groups(t: &CompileTrace, source: Source) -> Vec<Option<DispatchTime>> {
    let mut out: Vec<Option<DispatchTime>> = vec![None; t.groups.len()];
    let mut put = |group: usize, time: DispatchTime| out[group] = Some(out[group].map_or(time, |old| old.plus(time)));
    match (source, &t.times) {
        (Source::Measured, Some(times)) => t.calls().zip(&times.dispatches).for_each(|(c, time)| put(c.group, *time)),
        _ => {
            let estimates = t.estimates().unwrap_or_default();
            for c in t.calls() {
                if let Some(Some(e)) = estimates.get(c.kernel) {
                    let us = e.cost.total() / 1e3;
                    put(c.group, DispatchTime { us, min_us: us, max_us: us });
                }
            }
        }
    }
    out
}

fn row(
    sides: [&CompileTrace; 2],
    by_group: &[Vec<Option<DispatchTime>>; 2],
    source: Source,
    m: Matched,
    reasons: &reason::Reasons<'_>,
) -> Row {
    let time = |side: usize| m.groups[side].iter().filter_map(|&g| by_group[side][g]).reduce(DispatchTime::plus);
    let times = [time(0), time(1)];
    let changed = match (times, source) {
        ([Some(a), Some(b)], Source::Measured) if a.has_spread() && b.has_spread() => a.differs(b),
        ([Some(a), Some(b)], _) => (b.us - a.us).abs() > ALIKE * a.us,
        ([None, None], _) => false,
        _ => true,
    };
    let calls = |side: usize| m.groups[side].iter().map(|g| reasons.calls(side, *g)).sum();
    let heaviest = |side: usize| {
        let groups = m.groups[side].iter().map(|&g| &sides[side].groups[g]);
        groups.max_by_key(|g| g.flops).map(|g| g.label.clone())
    };
    let why = reasons.of(&m).filter(|_| changed);
    Row {
        name: heaviest(0).or_else(|| heaviest(1)).unwrap_or_default(),
        dispatches: [calls(0), calls(1)],
        brief: why.as_ref().map(|r| r.brief.clone()),
        reason: why.map(|r| r.whole),
        groups: m.groups,
        origins: m.origins,
        times,
        changed,
    }
}

#[cfg(test)]
mod tests;
