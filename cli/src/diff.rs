//! `weft diff`: what differs between two compilations: the verdict first, then the details.

mod lists;
pub(crate) mod models;
mod verdict;

use crate::args::DiffArgs;
use crate::output::{print_text, show_table, table, write_json};
use compiler::remark::{Remark, RemarkKind};
use compiler::trace::TraceDiff;
use compiler::trace::comparison::{Comparison, Row, Source};
use compiler::trace::diff::{Fact, GroupLine, Timing};
use lists::{FIRST, first_of};
use schemars::JsonSchema;
use serde::Serialize;
use verdict::{LayerRecord, Verdict, VerdictRecord};
use workbench::options::Tabled;
use workbench::record::Versioned;
use workbench::settings::Settings;
use workbench::{Error, Result};

/// Characters that a column of the table of facts may have.
const WIDEST: usize = 48;

/// Two compilations.
#[derive(Serialize, JsonSchema)]
pub struct DiffRecord<'d> {
    /// The first file.
    a: String,
    /// The second file.
    b: String,
    /// But for times.
    equal: bool,
    /// The most important differences.
    verdict: VerdictRecord,
    /// Those first that changed most.
    layers: Vec<LayerRecord>,
    /// All differences, each from the first trace to the second.
    #[serde(flatten)]
    differences: &'d TraceDiff,
}

/// Compares two traces, or two models.
pub fn execute(args: &DiffArgs) -> Result<()> {
    let is_trace = |p: &std::path::PathBuf| p.extension().is_some_and(|e| e == "trace");
    match [&args.a, &args.b].map(is_trace) {
        [true, true] => {}
        [false, false] => return models::execute(args),
        _ => return Err(Error::usage("a trace and a model have nothing to be held against each other")),
    }
    let of_models = args.common.given.iter().find_map(|id| Settings::row(id)).map(|row| row.written());
    if let Some(option) = of_models.or(args.rtol.filter(|_| !args.common.is_default("rtol")).map(|_| "--rtol".into())) {
        return Err(Error::usage(format!("{option} is for models: traces are compared as they are")));
    }
    let (a, b) = (workbench::traces::read(&args.a)?, workbench::traces::read(&args.b)?);
    let d = TraceDiff::between(&a, &b).map_err(|e| Error::input(e.to_string()))?;
    let verdict = Verdict::of([&a, &b], [&args.a, &args.b]);
    let record = DiffRecord {
        a: args.a.display().to_string(),
        b: args.b.display().to_string(),
        equal: d.is_empty(),
        verdict: verdict.record(&d),
        layers: verdict.layers(),
        differences: &d,
    };
    if write_json(&args.common, &Versioned::new(record))? {
        return Ok(());
    }
    let most = if args.common.verbose > 0 { usize::MAX } else { FIRST };
    if d.is_empty() {
        print_text("no difference but in time")?;
    }
    verdict.lines(&d).iter().try_for_each(|l| print_text(l))?;
    let names = verdict.names();
    let [first, second] = names;
    facts(names, &d.facts)?;
    passes(names, &d)?;
    groups(&format!("groups only in {first}"), &d.groups_removed, most)?;
    groups(&format!("groups only in {second}"), &d.groups_added, most)?;
    first_of("groups made otherwise", &d.groups_changed, most, |g| {
        format!("{} -> {} ({}): {}", g.a, g.b, g.origins.join(" "), line(&g.facts))
    })?;
    kernels(&d, most)?;
    first_of(&format!("remarks only in {first}"), &d.remarks_removed, most, remark)?;
    first_of(&format!("remarks only in {second}"), &d.remarks_added, most, remark)?;
    layers(names, verdict.comparison(), most)?;
    timings(names, &d.timings)
}

fn line(facts: &[Fact]) -> String {
    facts.iter().map(|f| format!("{} {} -> {}", f.what, f.a, f.b)).collect::<Vec<_>>().join("; ")
}

fn remark(r: &Remark) -> String {
    let kind = if r.kind == RemarkKind::Applied { "applied" } else { "missed" };
    let nodes: Vec<String> = r.nodes.iter().take(4).map(|n| n.to_string()).collect();
    format!("{} {kind} {}: {}", r.pass, nodes.join(" "), r.message)
}

fn facts([first, second]: [&str; 2], list: &[Fact]) -> Result<()> {
    let (long, short): (Vec<&Fact>, Vec<&Fact>) = list.iter().partition(|f| f.a.len().max(f.b.len()) > WIDEST);
    if !short.is_empty() {
        let mut rows = table(&["", first, second]);
        for f in short {
            rows.add_row([&f.what, &f.a, &f.b]);
        }
        print_text(&format!("\n{rows}"))?;
    }
    long.iter().try_for_each(|f| print_text(&format!(" {}\n   {first}: {}\n   {second}: {}", f.what, f.a, f.b)))
}

fn passes([first, second]: [&str; 2], d: &TraceDiff) -> Result<()> {
    if !d.passes.is_empty() {
        let [a, b] = [first, second].map(|name| format!("{name}: nodes"));
        let mut rows = table(&["pass", &a, "changed", &b, "changed"]);
        for p in &d.passes {
            let mut row = vec![if p.run > 1 { format!("{} (run {})", p.name, p.run) } else { p.name.clone() }];
            for side in [&p.a, &p.b] {
                let nodes = |s: &compiler::passes::PassStats| format!("{} -> {}", s.nodes_before, s.nodes_after);
                row.push(side.as_ref().map_or("did not run".into(), nodes));
                row.push(side.as_ref().map_or(String::new(), |s| s.changed.to_string()));
            }
            rows.add_row(row);
        }
        print_text(&format!("\n{rows}"))?;
    }
    first_of("stages whose text differs", &d.stages, usize::MAX, |s| {
        let run = if s.run > 1 { format!(" (run {})", s.run) } else { String::new() };
        format!("{}{run}: {} lines only in {first}, {} only in {second}", s.label, s.removed, s.added)
    })
}

fn groups(title: &str, list: &[GroupLine], most: usize) -> Result<()> {
    first_of(title, list, most, |g| {
        let rule = if g.rule.is_empty() { String::new() } else { format!(" by {}", g.rule) };
        format!("{} {}{rule}: {}", g.id, g.ops.join("+"), g.origins.join(" "))
    })
}

fn kernels(d: &TraceDiff, most: usize) -> Result<()> {
    first_of("kernels that differ", &d.kernels, most, |k| {
        let name = |n: &Option<String>| n.clone().unwrap_or_else(|| "none".into());
        let names = if k.a == k.b { name(&k.a) } else { format!("{} -> {}", name(&k.a), name(&k.b)) };
        let groups: Vec<String> = k.groups.iter().take(6).map(|g| g.to_string()).collect();
        let mut text = format!("{names} (group {}): {}", groups.join(", "), line(&k.facts));
        for l in k.schedule.iter().filter(|l| !l.starts_with(' ')) {
            text += &format!("\n    {l}");
        }
        text
    })
}

/// Times of layers on both sides: the sum, then the layers that changed, with the noise of their runs and the reason.
fn layers([first, second]: [&str; 2], c: &Comparison, most: usize) -> Result<()> {
    let timed: Vec<&Row> = c.rows.iter().filter(|r| r.times.iter().any(Option::is_some)).collect();
    if timed.is_empty() {
        return Ok(());
    }
    let mut changed = [c.changed(true), c.changed(false)].concat();
    changed.sort_by(|x, y| y.delta_us().abs().total_cmp(&x.delta_us().abs()));
    print_text(&format!("\n{} times of {} layers: {} changed", c.source.word(), timed.len(), changed.len()))?;
    let [a, b] = [first, second].map(|name| format!("{name}, us"));
    let mut rows = table(&["layer", &a, &b, "difference, us", "ratio", "noise", "why"]);
    let us = |t: Option<f64>| t.map_or("-".to_string(), |t| format!("{t:.1}"));
    let sum = |side: usize| timed.iter().map(|r| r.median_us()[side]).sum::<f64>();
    let (x, y) = (sum(0), sum(1));
    let ratio = |r: Option<f64>| r.map_or(String::new(), |r| format!("{r:.2}"));
    let whole = (x > 0.0).then(|| y / x);
    let difference = |d: f64| format!("{d:+.1}");
    rows.add_row([
        "all".to_string(),
        us(Some(x)),
        us(Some(y)),
        difference(y - x),
        ratio(whole),
        String::new(),
        String::new(),
    ]);
    for r in changed.iter().take(most) {
        let [a, b] = r.times.map(|t| us(t.map(|t| t.us)));
        let noise = r.noise().filter(|_| c.source == Source::Measured);
        let noise = noise.map_or(String::new(), |n| format!("±{:.0} %", 100.0 * n));
        let why = r.reason.clone().unwrap_or_default();
        rows.add_row([r.name.clone(), a, b, difference(r.delta_us()), ratio(r.ratio()), noise, why]);
    }
    show_table(&rows)?;
    match changed.len().saturating_sub(most) {
        0 => Ok(()),
        more => print_text(&format!("  ... {more} more (-v shows them)")),
    }
}

fn timings([first, second]: [&str; 2], list: &[Timing]) -> Result<()> {
    let [a, b] = [first, second].map(|name| format!("{name}, ms"));
    let mut rows = table(&["time of the compilation", &a, &b, "ratio"]);
    for t in list {
        let ms = |v: Option<f64>| v.map_or("-".to_string(), |v| format!("{v:.2}"));
        let ratio = match (t.a_ms, t.b_ms) {
            (Some(a), Some(b)) if a > 0.0 => format!("{:.2}", b / a),
            _ => String::new(),
        };
        rows.add_row([t.what.clone(), ms(t.a_ms), ms(t.b_ms), ratio]);
    }
    print_text(&format!("\n{rows}"))
}
