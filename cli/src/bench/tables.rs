//! The output of `weft bench`: a line for each result, and tables below them.

use super::spread;
use crate::output::{Rows, print_text, show_driver_stats, show_table, table};
use compiler::trace::{Kind, NOT_ATTRIBUTED, TimeRow};
use workbench::Result;
use workbench::bench::record::{BenchRecord, KernelTime, SpentRecord};
use workbench::bench::{Row, Setting};
use workbench::figures::few_ms;
use workbench::statistics::{Ratio, Statistics};

/// Names of the columns, and their least width.
const COLUMNS: [(&str, usize); 14] = [
    ("model", 0),
    ("batch", 0),
    ("amp", 4),
    ("layout", 0),
    ("fuse", 7),
    ("latency ms", 0),
    ("+- ms", 8),
    ("device ms", 0),
    ("per s", 8),
    ("dispatches", 0),
    ("GFLOP/s", 0),
    ("ratio", 0),
    ("+- ratio", 0),
    ("verdict", 7),
];

/// The column of what is swept beside those of [`COLUMNS`], where anything is.
const SWEPT: &str = "swept";

/// The results as a table for people, in Markdown, or as comma-separated values (RFC 4180): a row when it is done.
pub enum Lines {
    Table(Rows),
    Written { csv: bool, width: usize },
}
impl Lines {
    /// Prints the header. `format` is that of `--format`.
    pub fn new(format: &str, models: &[String], settings: &[Setting]) -> Result<Lines> {
        let widest = settings.iter().map(|s| s.others().chars().count()).max().unwrap_or(0);
        let width = COLUMNS.len() + usize::from(widest > 0);
        if format == "table" {
            let name = models.iter().map(|m| workbench::models::short_name(m).chars().count()).max().unwrap_or(0);
            let mut columns: Vec<(&str, usize)> = COLUMNS.into_iter().chain([(SWEPT, widest)]).take(width).collect();
            columns[0].1 = name;
            return Rows::new(&columns).map(Lines::Table);
        }
        let lines = Lines::Written { csv: format == "csv", width };
        let head: Vec<String> = COLUMNS.iter().map(|c| c.0).chain([SWEPT]).map(String::from).collect();
        lines.print_cells(&head)?;
        if format != "csv" {
            print_text(&format!("|{}", "---|".repeat(width)))?;
        }
        Ok(lines)
    }
    /// Prints the last result, with its ratio to the first that did not fail.
    pub fn print(&mut self, rows: &[Row]) -> Result<()> {
        rows.last().map_or(Ok(()), |r| self.print_cells(&cells(first_latency(rows), r)))
    }
    fn print_cells(&self, cells: &[String]) -> Result<()> {
        let quoted =
            |c: &String| if c.contains([',', '"']) { format!("\"{}\"", c.replace('"', "\"\"")) } else { c.clone() };
        match self {
            Lines::Table(rows) => rows.print(cells),
            Lines::Written { csv: true, width } => {
                print_text(&cells[..*width].iter().map(quoted).collect::<Vec<_>>().join(","))
            }
            Lines::Written { width, .. } => print_text(&format!("| {} |", cells[..*width].join(" | "))),
        }
    }
}

/// The latency of the first row that did not fail.
fn first_latency(rows: &[Row]) -> Statistics {
    rows.iter().find_map(|r| Some(r.result.as_ref().ok()?.run.latency_ms.as_ref()?.of)).unwrap_or_default()
}

/// A row's cells in the order of [`COLUMNS`], and what else was swept; the ratio is of the latency `first` to its own.
fn cells(first: Statistics, row: &Row) -> Vec<String> {
    let c = &row.setting.settings;
    let of_setting = [&c.amp, &c.layout, &c.fuse].map(String::clone);
    let (batch, figures) = match &row.result {
        Ok(r) => {
            let (run, device) = (&r.run, r.run.device());
            let latency = run.latency_ms.as_ref().map(|s| s.of).unwrap_or_default();
            let ratio = Ratio::of(&first, &latency);
            let is_first = first == latency;
            let known = |by: Option<f64>| by.map_or(String::new(), |by| format!("{by:.2}"));
            let figures = [
                format!("{:.2}", latency.median),
                known(latency.plus_minus),
                format!("{device:.2}"),
                format!("{:.1}", run.throughput_per_s.unwrap_or(0.0)),
                run.dispatches.map_or("null".into(), |n| n.to_string()),
                format!("{:.1}", r.flops as f64 / device.max(1e-6) / 1e6),
                format!("{:.2}", ratio.value),
                known(ratio.plus_minus.filter(|_| !is_first)),
                if is_first { "" } else { ratio.word() }.to_string(),
            ];
            (r.batch.to_string(), figures)
        }
        // The message itself is on stderr, and in the JSON.
        Err(_) => {
            let nothing = ["failed", "-", "-", "-", "-", "-", "-", "-", "-"].map(String::from);
            (row.setting.value("batch").unwrap_or("-").to_string(), nothing)
        }
    };
    let others = row.setting.others();
    [row.model.clone(), batch].into_iter().chain(of_setting).chain(figures).chain([others]).collect()
}

/// Tables below the results: the kernels where one was timed `alone`, and what the driver said.
pub fn show_details(results: &[&BenchRecord], alone: bool) -> Result<()> {
    for r in results {
        if alone && r.run.latency_ms.is_some() {
            spread::show(r)?;
        }
        if let (true, Some(spent)) = (alone, &r.run.spent) {
            show_spent(spent, r.run.latency())?;
        }
        if let (true, Some(kernels)) = (alone, &r.run.per_kernel) {
            show_kernels(kernels, r.run.spent.as_ref().map_or(0.0, |s| s.run_ms))?;
            r.doubt.iter().try_for_each(|why| print_text(why))?;
            print_text(&format!("time source: {}", r.run.time_source.map_or("", |t| t.name())))?;
        }
        if let Some(stats) = &r.driver_stats {
            let s = &r.settings;
            print_text(&format!("{}, batch {}, amp {}, layout {}", r.model, r.batch, s.amp, s.layout))?;
            show_driver_stats(stats)?;
        }
    }
    Ok(())
}

/// Rows of a table of times that are shown.
const SHOWN: usize = 12;

/// Where the time of a run goes: all of its kernels as one row, then the others, those with the most time first.
fn show_spent(spent: &SpentRecord, median: f64) -> Result<()> {
    let run_ms = spent.run_ms;
    print_text(&format!("\none run of {} ms, the nearest to the median of {} ms:", few_ms(run_ms), few_ms(median)))?;
    let (kernels, others): (Vec<&TimeRow>, Vec<&TimeRow>) = spent.rows.iter().partition(|r| r.kind == Kind::Kernel);
    let (rest, named): (Vec<&TimeRow>, Vec<&TimeRow>) = others.into_iter().partition(|r| r.kind == Kind::Rest);
    let mut t = table(&["where its time goes", "times", "ms", "share"]);
    let mut add = |name: &str, rows: &[&TimeRow]| {
        let (count, ms) = rows.iter().fold((0, 0.0), |(n, ms), r| (n + r.count, ms + r.ms));
        let count = if count > 0 { count.to_string() } else { String::new() };
        t.add_row([name.to_string(), count, few_ms(ms), format!("{:.1}%", 100.0 * ms / run_ms.max(1e-9))]);
    };
    if !kernels.is_empty() {
        add("kernels", &kernels);
    }
    named.iter().take(SHOWN).for_each(|r| add(&r.name, &[r]));
    if named.len() > SHOWN {
        add(&format!("{} more rows", named.len() - SHOWN), &named[SHOWN..]);
    }
    add(NOT_ATTRIBUTED, &rest);
    show_table(&t)
}

/// The kernels that take the longest, with their shares of the run.
fn show_kernels(kernels: &[KernelTime], run_ms: f64) -> Result<()> {
    let mut rows: Vec<&KernelTime> = kernels.iter().collect();
    rows.sort_by(|a, b| b.us_total.total_cmp(&a.us_total));
    let total = run_ms * 1e3;
    let roof = rows.iter().any(|r| r.roofline_fraction.is_some());
    let parts = rows.iter().any(|r| r.part.is_some());
    let mut header = if parts { vec!["part"] } else { vec![] };
    header.extend(["kernel", "calls", "us each", "share", "GFLOP/s", "GB/s"]);
    if roof {
        header.push("of the roof");
    }
    let mut t = table(&header);
    for r in rows.iter().take(SHOWN) {
        let mut row = if parts { vec![r.part.clone().unwrap_or_default()] } else { vec![] };
        row.extend([
            r.name.clone(),
            r.calls.to_string(),
            format!("{:.1}", r.us_median),
            format!("{:.1}%", 100.0 * r.us_total / total.max(1e-9)),
            format!("{:.1}", r.gflops),
            format!("{:.1}", r.gb_s),
        ]);
        if roof {
            row.push(format!("{:.0}%", 100.0 * r.roofline_fraction.unwrap_or(0.0)));
        }
        t.add_row(row);
    }
    show_table(&t)
}
