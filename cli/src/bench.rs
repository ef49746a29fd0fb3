//! `weft bench`: what was measured, shown.

mod decode;
mod spread;
mod tables;

use crate::args::{BenchArgs, Common};
use crate::output::{print_records, write_records};
use crate::{ceilings, host_calls};
use compiler::bare::shown_in_json;
use serde::Deserialize;
use tables::{Lines, show_details};
use workbench::bench::record::BenchRecord;
use workbench::bench::{Request, Row, RowRecord, bench, ceilings_of, failure};
use workbench::progress::log;
use workbench::statistics::{Ratio, Statistics};
use workbench::written::write_file;
use workbench::{Code, Error, Result};

/// Times models, and the device itself with `--ceilings`.
pub fn execute(a: &BenchArgs) -> Result<()> {
    let baseline = a.baseline.as_ref().map(|p| read_baseline(p)).transpose()?;
    let slowdown = percent(&a.max_slowdown)?;
    let request = request(a);
    if a.models.is_empty() {
        let (device, found) = ceilings_of(&request)?;
        return ceilings::show(&found, &device, &a.common);
    }
    let json_alone = a.common.json.as_deref() == Some("-");
    let quiet = json_alone || a.format != "table";
    // Rows that are written to be read by programs stand there also where nothing is timed.
    let rows_alone = !json_alone && a.format != "table" && a.format != "json";
    let lines = std::cell::RefCell::new(None);
    let rows = bench(
        &request,
        &mut |settings, timed| {
            if rows_alone || timed && !quiet {
                *lines.borrow_mut() = Some(Lines::new(a, settings));
            }
            Ok(())
        },
        &mut |rows| lines.borrow_mut().as_mut().map_or(Ok(()), |lines| lines.print(rows)),
    )?;
    write_files(a, &rows)?;
    let results: Vec<&BenchRecord> = rows.iter().filter_map(|r| r.result.as_ref().ok()).collect();
    if !quiet {
        show_details(&results, rows.len() == 1, a.per_kernel)?;
        if let ([_], [one]) = (&rows[..], &results[..]) {
            host_calls::show(one)?;
        }
    }
    write_results(a, &rows)?;
    baseline.map_or(Ok(()), |b| check_baseline(&a.common, &results, &b, slowdown))?;
    failure(&rows).map_or(Ok(()), Err)
}

fn request(a: &BenchArgs) -> Request {
    Request {
        models: a.models.clone(),
        input: a.input.0.clone(),
        timing: a.timing.0.clone(),
        decoding: a.decoding.0.clone(),
        ceilings: a.ceilings,
        driver_stats: a.driver_stats,
        sweep: a.sweep.clone(),
        timeline: a.timeline.is_some(),
        trace: a.output.is_some(),
        not_timed: !a.ceilings && a.baseline.is_none(),
        bundle: a.bundle.0,
        settings: a.common.settings.0.clone(),
    }
}

/// The files of one run, which are of the last row.
fn write_files(a: &BenchArgs, rows: &[Row]) -> Result<()> {
    let Some(row) = rows.last() else { return Ok(()) };
    if let (Some(path), Some(timeline)) = (&a.timeline, &row.timeline) {
        write_file(path, shown_in_json(&timeline.to_string()).as_bytes())?;
        log(&a.common, format!("wrote the timeline to {}: ui.perfetto.dev shows it", path.display()));
    }
    if let (Some(path), Some(trace)) = (&a.output, &row.trace) {
        workbench::traces::write(path, trace, &a.common)?;
    }
    Ok(())
}

fn write_results(a: &BenchArgs, rows: &[Row]) -> Result<()> {
    let records: Vec<RowRecord<'_>> = rows.iter().map(Row::record).collect();
    let written_json = write_records(&a.common, &records)?;
    match a.format.as_str() {
        "json" if !written_json => print_records(&records),
        _ => Ok(()),
    }
}

fn percent(text: &str) -> Result<f64> {
    text.trim_end_matches('%')
        .parse::<f64>()
        .map(|v| v / 100.0)
        .map_err(|_| Error::usage(format!("--max-slowdown {text}: needs a percentage such as 5%")))
}

/// A result that later ones are held against.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Baseline {
    model: String,
    batch: Option<usize>,
    dtype: String,
    latency_ms: Samples,
}

/// Statistics, which earlier versions did not have all of.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Samples {
    median: f64,
    samples: Option<Vec<f64>>,
}

impl Baseline {
    fn latency(&self) -> Statistics {
        let Samples { median, samples } = &self.latency_ms;
        samples.as_ref().map_or(Statistics { median: *median, ..Statistics::default() }, |s| Statistics::of(s))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Baselines {
    Several(Vec<Baseline>),
    One(Baseline),
}

fn read_baseline(path: &std::path::Path) -> Result<Vec<Baseline>> {
    let text =
        weft::plain_files::read_text(path).map_err(|e| Error::input(format!("cannot read {}: {e}", path.display())))?;
    let read = serde_json::from_str(&text)
        .map_err(|e| Error::input(format!("{} is not a bench result: {e}", path.display())))?;
    Ok(match read {
        Baselines::Several(list) => list,
        Baselines::One(one) => vec![one],
    })
}

fn check_baseline(common: &Common, results: &[&BenchRecord], baseline: &[Baseline], slowdown: f64) -> Result<()> {
    let mut slow = Vec::new();
    for r in results {
        let same = |b: &&Baseline| (&b.model, b.batch, b.dtype.as_str()) == (&r.model, Some(r.batch), r.dtype);
        let Some(b) = baseline.iter().find(same) else { continue };
        let Some(now) = &r.run.latency_ms else { continue };
        let ratio = Ratio::of(&now.of, &b.latency());
        let by = ratio.plus_minus.map_or(String::new(), |by| format!(" +-{by:.3}"));
        let word = if ratio.word() == "even" { ", which is within the noise" } else { "" };
        log(common, format!("{}: {:.3}{by} of the baseline's time{word}", r.model, ratio.value));
        let (limit, percent) = (1.0 + slowdown, |by: f64| format!("{:.1} %", 100.0 * by));
        if ratio.is_above(limit) {
            slow.push(format!("{} is {} slower", r.model, percent(ratio.value - 1.0)));
        } else if ratio.value > limit {
            let (more, noise) = (percent(ratio.value - 1.0), percent(ratio.plus_minus.unwrap_or(0.0)));
            let why = format!("{more} slower, with a noise of {noise}: whether that is more than --max-slowdown");
            log(common, format!("warning: {}: {why} is not known; measure longer with --duration 10s", r.model));
        }
    }
    if slow.is_empty() { Ok(()) } else { Err(Error::new(Code::Check, slow.join("; "))) }
}
