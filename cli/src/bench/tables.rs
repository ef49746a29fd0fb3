//! The output of `weft bench`: a line for each result, and tables below them.

use super::spread;
use crate::output::{Rows, print_text, show_driver_stats, show_table, table};
use serde_json::Value;
use workbench::Result;
use workbench::bench::{Setting, number};

/// Names of the columns, and their least width.
const COLUMNS: [(&str, usize); 12] = [
    ("model", 0),
    ("batch", 0),
    ("amp", 4),
    ("layout", 0),
    ("fuse", 7),
    ("latency ms", 0),
    ("p90", 8),
    ("device ms", 0),
    ("per s", 8),
    ("dispatches", 0),
    ("GFLOP/s", 0),
    ("ratio", 0),
];

/// The column of what is swept beside those of [`COLUMNS`], where anything is.
const SWEPT: &str = "swept";

/// The table of results: a row when it is done.
pub struct Lines(Rows);
impl Lines {
    pub fn new(models: &[String], settings: &[Setting]) -> Result<Lines> {
        let name = models.iter().map(|m| workbench::models::short_name(m).chars().count()).max().unwrap_or(0);
        let mut columns = COLUMNS.to_vec();
        columns[0].1 = name;
        let widest = settings.iter().map(|s| s.others().chars().count()).max().unwrap_or(0);
        if widest > 0 {
            columns.push((SWEPT, widest));
        }
        Rows::new(&columns).map(Lines)
    }
    /// Prints the last result, with its ratio to the first that did not fail.
    pub fn print(&mut self, results: &[Value]) -> Result<()> {
        let right = results.iter().find(|r| r["error"].is_null());
        let (Some(first), Some(r)) = (right.or(results.first()), results.last()) else { return Ok(()) };
        self.0.print(&cells(first, r))
    }
}

/// Swept options without a column of their own, as [`Setting::others`].
fn others(r: &Value) -> String {
    let swept = r["settings"]["swept"].as_object();
    let with_columns = ["model", "batch", "amp", "layout", "fuse"];
    let others = swept.into_iter().flatten().filter(|(k, _)| !with_columns.contains(&k.as_str()));
    others.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or(""))).collect::<Vec<_>>().join(" ")
}

/// A result's cells in the order of [`COLUMNS`], and what else was swept; the ratio is to `first`.
fn cells(first: &Value, r: &Value) -> Vec<String> {
    let s = |k: &str| r["settings"][k].as_str().unwrap_or("").to_string();
    let latency = number(r, &["latency_ms", "median"]);
    let device = number(r, &["device_ms", "median"]);
    let named =
        [r["model"].as_str().unwrap_or("").to_string(), r["batch"].to_string(), s("amp"), s("layout"), s("fuse")];
    let mut row = named.to_vec();
    match r["error"]["message"].as_str() {
        // The message itself is on stderr, and in the JSON.
        Some(_) => {
            row[1] = r["settings"]["swept"]["batch"].as_str().unwrap_or("-").to_string();
            row.push("failed".into());
            row.extend(vec!["-".to_string(); COLUMNS.len() - 6]);
        }
        None => row.extend([
            format!("{latency:.2}"),
            format!("{:.2}", number(r, &["latency_ms", "p90"])),
            format!("{device:.2}"),
            format!("{:.1}", number(r, &["throughput_per_s"])),
            r["dispatches"].to_string(),
            format!("{:.1}", number(r, &["flops"]) / device.max(1e-6) / 1e6),
            format!("{:.2}", number(first, &["latency_ms", "median"]) / latency.max(1e-9)),
        ]),
    }
    row.push(others(r));
    row
}

/// All results as a table in Markdown, or as comma-separated values (RFC 4180).
pub fn written(results: &[Value], csv: bool) -> String {
    let Some(first) = results.iter().find(|r| r["error"].is_null()).or(results.first()) else { return String::new() };
    let wide = results.iter().any(|r| !others(r).is_empty());
    let width = COLUMNS.len() + usize::from(wide);
    let header = COLUMNS.iter().map(|c| c.0).chain([SWEPT]).map(String::from);
    let quoted =
        |c: &str| if c.contains([',', '"']) { format!("\"{}\"", c.replace('"', "\"\"")) } else { c.to_string() };
    let line = |cells: &[String]| match csv {
        true => cells.iter().map(|c| quoted(c)).collect::<Vec<_>>().join(","),
        false => format!("| {} |", cells.join(" | ")),
    };
    let mut lines = vec![line(&header.collect::<Vec<_>>()[..width])];
    if !csv {
        lines.push(format!("|{}", "---|".repeat(width)));
    }
    lines.extend(results.iter().map(|r| line(&cells(first, r)[..width])));
    lines.join("\n")
}

/// Tables below that of the results: the kernels where one was timed, and what the driver said.
pub fn show_details(results: &[Value]) -> Result<()> {
    if let [one] = results
        && one["latency_ms"].is_object()
    {
        spread::show(one)?;
    }
    if let [one] = results
        && one["per_kernel"].is_array()
    {
        show_kernels(one)?;
    }
    for r in results.iter().filter(|r| r["driver_stats"].is_object()) {
        let s = |k: &str| r["settings"][k].as_str().unwrap_or("").to_string();
        let model = r["model"].as_str().unwrap_or("");
        print_text(&format!("{model}, batch {}, amp {}, layout {}", r["batch"], s("amp"), s("layout")))?;
        show_driver_stats(&r["driver_stats"])?;
    }
    Ok(())
}

/// The kernels that take the longest.
fn show_kernels(one: &Value) -> Result<()> {
    let mut rows: Vec<&Value> = one["per_kernel"].as_array().map(|l| l.iter().collect()).unwrap_or_default();
    rows.sort_by(|a, b| number(b, &["us_total"]).total_cmp(&number(a, &["us_total"])));
    let total: f64 = rows.iter().map(|r| number(r, &["us_total"])).sum();
    let roof = rows.iter().any(|r| r["roofline_fraction"].is_number());
    let parts = rows.iter().any(|r| r["part"].is_string());
    let mut header = if parts { vec!["part"] } else { vec![] };
    header.extend(["kernel", "calls", "us each", "share", "GFLOP/s", "GB/s"]);
    if roof {
        header.push("of the roof");
    }
    let mut t = table(&header);
    for r in rows.iter().take(12) {
        let mut row = if parts { vec![r["part"].as_str().unwrap_or("").to_string()] } else { vec![] };
        row.extend([
            r["name"].as_str().unwrap_or("").to_string(),
            r["calls"].to_string(),
            format!("{:.1}", number(r, &["us_median"])),
            format!("{:.1}%", 100.0 * number(r, &["us_total"]) / total.max(1e-9)),
            format!("{:.1}", number(r, &["gflops"])),
            format!("{:.1}", number(r, &["gb_s"])),
        ]);
        if roof {
            row.push(format!("{:.0}%", 100.0 * number(r, &["roofline_fraction"])));
        }
        t.add_row(row);
    }
    show_table(&t)?;
    print_text(&format!("time source: {}", one["time_source"].as_str().unwrap_or("")))
}
