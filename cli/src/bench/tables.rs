//! The output of `weft bench`: a line for each result, and tables below them.

use super::decode;
use super::spread::{self, against, known};
use crate::args::BenchArgs;
use crate::output::{Rows, print_text, show_driver_stats, show_table, table};
use compiler::trace::{Kind, NOT_ATTRIBUTED, TimeRow};
use workbench::Result;
use workbench::bench::record::{BenchRecord, KernelTime, SpentRecord};
use workbench::bench::{Row, Setting};
use workbench::figures::few_ms;
use workbench::statistics::Statistics;

/// The columns of results.
pub struct Columns {
    /// Names, and their least width.
    names: &'static [(&'static str, usize)],
    /// Settings among them.
    settings: &'static [&'static str],
    /// A row's cells; the ratio is of the latency `first` to its own.
    cells: fn(first: Statistics, row: &Row) -> Vec<String>,
}

impl Columns {
    /// Of runs.
    const RUNS: Columns = Columns {
        names: &[
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
        ],
        settings: &["amp", "layout", "fuse", "batch"],
        cells,
    };
    /// Of `--decode`.
    const TOKENS: Columns = Columns { names: &decode::COLUMNS, settings: &["amp", "batch"], cells: decode::cells };
}

/// The column of what is swept beside those of [`Columns`], where anything is.
const SWEPT: &str = "swept";

/// How rows are written.
enum Form {
    Table(Rows),
    Written { csv: bool },
}

/// The results as a table for people, in Markdown, or as comma-separated values (RFC 4180): a row when it is done.
pub struct Lines {
    columns: Columns,
    width: usize,
    form: Form,
}

impl Lines {
    /// Prints the header.
    pub fn new(a: &BenchArgs, settings: &[Setting]) -> Result<Lines> {
        let columns = if a.decoding.decode.is_some() { Columns::TOKENS } else { Columns::RUNS };
        let widest = settings.iter().map(|s| s.others(columns.settings).chars().count()).max().unwrap_or(0);
        let width = columns.names.len() + usize::from(widest > 0);
        let names = || columns.names.iter().copied().chain([(SWEPT, widest)]).take(width);
        if a.format == "table" {
            let name = a.models.iter().map(|m| workbench::models::short_name(m).chars().count()).max().unwrap_or(0);
            let mut all: Vec<(&str, usize)> = names().collect();
            all[0].1 = name;
            let form = Form::Table(Rows::new(&all)?);
            return Ok(Lines { columns, width, form });
        }
        let head: Vec<String> = names().map(|c| c.0.to_string()).collect();
        let csv = a.format == "csv";
        let lines = Lines { columns, width, form: Form::Written { csv } };
        lines.print_cells(&head)?;
        if !csv {
            print_text(&format!("|{}", "---|".repeat(width)))?;
        }
        Ok(lines)
    }
    /// Prints the last result, with its ratio to the first that did not fail.
    pub fn print(&mut self, rows: &[Row]) -> Result<()> {
        let Some(row) = rows.last() else { return Ok(()) };
        let mut cells = (self.columns.cells)(first_latency(rows), row);
        cells.push(row.setting.others(self.columns.settings));
        self.print_cells(&cells)
    }
    fn print_cells(&self, cells: &[String]) -> Result<()> {
        let quoted =
            |c: &String| if c.contains([',', '"']) { format!("\"{}\"", c.replace('"', "\"\"")) } else { c.clone() };
        let width = self.width;
        match &self.form {
            Form::Table(rows) => rows.print(cells),
            Form::Written { csv: true } => print_text(&cells[..width].iter().map(quoted).collect::<Vec<_>>().join(",")),
            Form::Written { .. } => print_text(&format!("| {} |", cells[..width].join(" | "))),
        }
    }
}

/// The latency of the first row that did not fail.
fn first_latency(rows: &[Row]) -> Statistics {
    rows.iter().find_map(|r| Some(r.result.as_ref().ok()?.run.latency_ms.as_ref()?.of)).unwrap_or_default()
}

/// A run's cells in the order of [`Columns::RUNS`].
fn cells(first: Statistics, row: &Row) -> Vec<String> {
    let c = &row.setting.settings;
    let of_setting = [&c.amp, &c.layout, &c.fuse].map(String::clone);
    let (batch, figures) = match &row.result {
        Ok(r) => {
            let (run, device) = (&r.run, r.run.device());
            let latency = run.latency_ms.as_ref().map(|s| s.of).unwrap_or_default();
            let [ratio, by, word] = against(first, latency);
            let figures = [
                format!("{:.2}", latency.median),
                known(latency.plus_minus),
                format!("{device:.2}"),
                format!("{:.1}", run.throughput_per_s.unwrap_or(0.0)),
                run.dispatches.map_or("null".into(), |n| n.to_string()),
                format!("{:.1}", r.flops as f64 / device.max(1e-6) / 1e6),
                ratio,
                by,
                word,
            ];
            (r.batch.to_string(), figures)
        }
        // The message itself is on stderr, and in the JSON.
        Err(_) => {
            let nothing = ["failed", "-", "-", "-", "-", "-", "-", "-", "-"].map(String::from);
            (row.setting.value("batch").unwrap_or("-").to_string(), nothing)
        }
    };
    [row.model.clone(), batch].into_iter().chain(of_setting).chain(figures).collect()
}

/// Tables below the results: the kernels where one was timed `alone`, and what the driver said.
pub fn show_details(results: &[&BenchRecord], alone: bool) -> Result<()> {
    for r in results {
        if let (true, Some(d)) = (alone, &r.decode) {
            decode::show(r, d)?;
        }
        if alone && r.run.latency_ms.is_some() {
            spread::show(r)?;
        }
        if let (true, Some(spent)) = (alone, &r.run.spent) {
            // Of a decoder the last token is recorded, again and again.
            show_spent(spent, if r.decode.is_some() { r.run.device() } else { r.run.latency() })?;
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
