//! The verdict on two compilations: dispatches, time, memory, and what changed.

use compiler::trace::comparison::{Comparison, Row, Source, is_option};
use compiler::trace::{CompileTrace, TraceDiff};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;
use workbench::figures::si;

/// The verdict.
#[derive(Serialize, JsonSchema)]
pub struct VerdictRecord {
    /// In one line.
    line: String,
    /// Of a run.
    dispatches: Pair,
    /// Of a run.
    time: Option<TimeRecord>,
    /// Bytes.
    weights: Pair,
    /// Bytes of intermediates.
    activations_peak: Pair,
    /// Options, and how many passes, groups and kernels.
    changed: String,
}

/// A number of each file.
#[derive(Serialize, JsonSchema)]
struct Pair {
    /// Of the first.
    a: u64,
    /// Of the second.
    b: u64,
}

/// Milliseconds.
#[derive(Serialize, JsonSchema)]
struct TimeRecord {
    /// Of the first.
    a_ms: f64,
    /// Of the second.
    b_ms: f64,
    /// Who says them.
    source: Source,
    /// The part by which the ratio of both may differ in other measurements; null where that is not known.
    noise: Option<f64>,
}

/// A layer on both sides.
#[derive(Serialize, JsonSchema)]
pub struct LayerRecord {
    /// The group in it that computes most.
    name: String,
    /// Source nodes.
    origins: Vec<String>,
    /// Groups of the first.
    a: Vec<usize>,
    /// Groups of the second.
    b: Vec<usize>,
    /// Microseconds of the first.
    a_us: Option<f64>,
    /// Microseconds of the second.
    b_us: Option<f64>,
    /// Of the times.
    ratio: Option<f64>,
    /// The share by which single runs differ.
    noise: Option<f64>,
    /// The times differ by more than their noise.
    changed: bool,
    /// Why the second side is made otherwise, where it is known.
    reason: Option<String>,
}

/// Two compilations, and what their files are called.
pub struct Verdict<'a> {
    sides: [&'a CompileTrace; 2],
    names: [String; 2],
    comparison: Comparison,
}

/// The names of both files: the file names, with their folders where these are equal.
fn names(paths: [&Path; 2]) -> [String; 2] {
    let short = paths.map(|p| p.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned()));
    if short[0] == short[1] { paths.map(|p| p.display().to_string()) } else { short }
}

impl<'a> Verdict<'a> {
    /// Of the traces in these files.
    pub fn of(sides: [&'a CompileTrace; 2], paths: [&Path; 2]) -> Verdict<'a> {
        Verdict { sides, names: names(paths), comparison: Comparison::of(sides[0], sides[1]) }
    }

    /// The names of the files.
    pub fn names(&self) -> [&str; 2] {
        [&self.names[0], &self.names[1]]
    }

    /// The layers of both, in one table.
    pub fn comparison(&self) -> &Comparison {
        &self.comparison
    }

    fn bytes(&self, of: fn(&CompileTrace) -> u64) -> [u64; 2] {
        self.sides.map(of)
    }

    /// Lines for people.
    pub fn lines(&self, d: &TraceDiff) -> Vec<String> {
        let [a, b] = &self.names;
        let mut rows = vec![self.comparison.headline()];
        let mut row = |what: &str, [x, y]: [String; 2], change: String| {
            rows.push(match x == y {
                true => format!("{what}: {x} in both"),
                false => format!("{what}: {x} in {a}, {y} in {b}{change}"),
            });
        };
        for (what, of) in MEMORY {
            let [x, y] = self.bytes(of);
            row(what, [x, y].map(|n| format!("{}B", si(n as f64))), percent(x as f64, y as f64));
        }
        rows.push(format!("changed: {}", changed(d)));
        rows
    }

    /// The same as `--json` has it.
    pub fn record(&self, d: &TraceDiff) -> VerdictRecord {
        let c = &self.comparison;
        let pair = |[a, b]: [u64; 2]| Pair { a, b };
        VerdictRecord {
            line: c.headline(),
            dispatches: pair(c.dispatches.map(|n| n as u64)),
            time: c.run_ms.map(|[a_ms, b_ms]| TimeRecord { a_ms, b_ms, source: c.source, noise: c.noise }),
            weights: pair(self.bytes(MEMORY[0].1)),
            activations_peak: pair(self.bytes(MEMORY[1].1)),
            changed: changed(d),
        }
    }

    /// The table of layers, those first that changed most.
    pub fn layers(&self) -> Vec<LayerRecord> {
        let mut rows: Vec<&Row> = self.comparison.rows.iter().filter(|r| r.times.iter().any(Option::is_some)).collect();
        rows.sort_by(|x, y| y.changed.cmp(&x.changed).then(y.delta_us().abs().total_cmp(&x.delta_us().abs())));
        let layer = |r: &Row| {
            let ([a, b], [a_us, b_us]) = (r.groups.clone(), r.times.map(|t| t.map(|t| t.us)));
            let (ratio, noise, changed) = (r.ratio(), r.noise(), r.changed);
            let (name, origins, reason) = (r.name.clone(), r.origins.clone(), r.reason.clone());
            LayerRecord { name, origins, a, b, a_us, b_us, ratio, noise, changed, reason }
        };
        rows.into_iter().map(layer).collect()
    }
}

type Bytes = fn(&CompileTrace) -> u64;

const MEMORY: [(&str, Bytes); 2] =
    [("memory, weights", |t| t.memory.weights), ("memory, intermediates at the peak", |t| t.memory.activations_peak)];

/// Characters of a value that the line of changes shows.
const LONGEST: usize = 40;

/// ` (-5.3 %)`
fn percent(a: f64, b: f64) -> String {
    if a > 0.0 { format!(" ({:+.1} %)", (b / a - 1.0) * 100.0) } else { String::new() }
}

/// The differences, in one line.
fn changed(d: &TraceDiff) -> String {
    let count = |n: usize, one: &str, many: &str| (n > 0).then(|| format!("{n} {}", if n == 1 { one } else { many }));
    let groups = d.groups_removed.len().max(d.groups_added.len()) + d.groups_changed.len();
    let options = d.facts.iter().filter(|f| is_option(&f.what) && f.a.len().max(f.b.len()) <= LONGEST);
    let quoted = |v: &str| if v.is_empty() { "none".to_string() } else { v.to_string() };
    let mut out: Vec<String> = options.map(|f| format!("{} ({} -> {})", f.what, quoted(&f.a), quoted(&f.b))).collect();
    out.extend(count(d.passes.len(), "pass", "passes"));
    out.extend(count(groups, "group", "groups"));
    out.extend(count(d.kernels.len(), "kernel", "kernels"));
    if out.is_empty() { "nothing but times".into() } else { out.join(", ") }
}
