//! `weft bench`: what was measured, shown.

mod spread;
mod tables;

use crate::args::{BenchArgs, Common};
use crate::output::{print_text, write_json};
use crate::{ceilings, host_calls};
use compiler::bare::shown_in_json;
use serde_json::Value;
use tables::{Lines, show_details, written};
use workbench::bench::{Request, Row, bench, ceilings_of, failure, number};
use workbench::progress::log;
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
    let lines = std::cell::RefCell::new(None);
    let rows = bench(
        &request,
        &mut |settings, timed| {
            if timed && !quiet {
                *lines.borrow_mut() = Some(Lines::new(&a.models, settings)?);
            }
            Ok(())
        },
        &mut |rows| lines.borrow_mut().as_mut().map_or(Ok(()), |lines| lines.print(&values(rows))),
    )?;
    write_files(a, &rows)?;
    let results = values(&rows);
    if !quiet {
        show_details(&results)?;
        if let [one] = results.as_slice() {
            host_calls::show(one)?;
        }
    }
    write_results(a, &results)?;
    baseline.map_or(Ok(()), |b| check_baseline(&a.common, &results, &b, slowdown))?;
    failure(&rows).map_or(Ok(()), Err)
}

fn request(a: &BenchArgs) -> Request {
    Request {
        models: a.models.clone(),
        input: a.input.0.clone(),
        timing: a.timing.0.clone(),
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

fn values(rows: &[Row]) -> Vec<Value> {
    rows.iter().map(|r| r.value.clone()).collect()
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

fn write_results(a: &BenchArgs, results: &[Value]) -> Result<()> {
    let all = if let [one] = results { one.clone() } else { results.to_vec().into() };
    let written_json = write_json(&a.common, &all)?;
    match a.format.as_str() {
        "table" => Ok(()),
        "json" if !written_json => print_text(&format!("{all:#}")),
        "json" => Ok(()),
        _ if a.common.json.as_deref() == Some("-") => Ok(()),
        format => print_text(&written(results, format == "csv")),
    }
}

fn percent(text: &str) -> Result<f64> {
    text.trim_end_matches('%')
        .parse::<f64>()
        .map(|v| v / 100.0)
        .map_err(|_| Error::usage(format!("--max-slowdown {text}: needs a percentage such as 5%")))
}

fn read_baseline(path: &std::path::Path) -> Result<Vec<Value>> {
    let text =
        weft::plain_files::read_text(path).map_err(|e| Error::input(format!("cannot read {}: {e}", path.display())))?;
    let v: Value = serde_json::from_str(&text)
        .map_err(|e| Error::input(format!("{} is not a bench result: {e}", path.display())))?;
    Ok(match v {
        Value::Array(list) => list,
        one => vec![one],
    })
}

fn check_baseline(common: &Common, results: &[Value], baseline: &[Value], slowdown: f64) -> Result<()> {
    let mut slow = Vec::new();
    for r in results {
        if r["error"].is_object() {
            continue;
        }
        let same = |b: &&Value| ["model", "batch", "dtype"].iter().all(|k| b[*k] == r[*k]);
        let Some(b) = baseline.iter().find(same) else { continue };
        let ratio = number(r, &["latency_ms", "median"]) / number(b, &["latency_ms", "median"]).max(1e-9);
        log(common, format!("{}: {ratio:.3} of the baseline's time", r["model"].as_str().unwrap_or("")));
        if ratio > 1.0 + slowdown {
            slow.push(format!("{} is {:.1}% slower", r["model"].as_str().unwrap_or(""), (ratio - 1.0) * 100.0));
        }
    }
    if slow.is_empty() { Ok(()) } else { Err(Error::new(Code::Check, slow.join("; "))) }
}
