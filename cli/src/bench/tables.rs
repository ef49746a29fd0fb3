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
    /// How many come before figures: the model and settings.
    behind_settings: usize,
    /// Those that a table of one row, and one of several, leaves out.
    left_out: [&'static [&'static str]; 2],
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
        behind_settings: 5,
        left_out: [&[], &["per s", "dispatches", "GFLOP/s"]],
        cells,
    };
    /// Of `--decode`.
    const TOKENS: Columns = Columns {
        names: &decode::COLUMNS,
        settings: &["amp", "batch"],
        behind_settings: 3,
        left_out: [&["GB/s", "dispatches"], &["GB/s", "dispatches", "ms a token"]],
        cells: decode::cells,
    };
    /// Whether a table shows the column: settings where they are given or differ, and figures by the number of rows.
    fn says(&self, name: &str, a: &BenchArgs, settings: &[Setting]) -> bool {
        let usual = |s: &Setting| match name {
            "amp" => s.settings.amp == "off",
            "layout" => s.settings.layout == "auto",
            "fuse" => s.settings.fuse == "full",
            "batch" => s.settings.batch.is_none(),
            _ => a.decoding.past.unwrap_or(0) == 0,
        };
        let several = a.models.len() * settings.len() > 1;
        match name {
            "amp" | "layout" | "fuse" | "batch" | "past" => !settings.iter().all(usual),
            "ratio" | "+- ratio" | "verdict" => settings.len() > 1,
            _ => !self.left_out[usize::from(several)].contains(&name),
        }
    }
}

/// The columns of a kernel.
const OF_KERNELS: [&str; 7] = ["kernel", "calls", "us each", "us", "share", "GFLOP/s", "GB/s"];
/// The columns of the machine in written forms.
const OF_MACHINE: [&str; 3] = ["device", "driver", "build"];

/// The column of what is swept beside those of [`Columns`], where anything is.
const SWEPT: &str = "swept";

/// Characters of a line.
const LINE: usize = 80;
/// Figures that a table leaves out where it would be wider, in this order.
const SPARE: [&str; 4] = ["device ms", "+- ratio", "+- ms", "verdict"];

/// How rows are written.
enum Form {
    Table(Rows),
    Written { csv: bool },
}

/// The results as a table for people, in Markdown, or as comma-separated values (RFC 4180): a row when it is done.
/// Written
/// forms have every column, and device, driver and build; a table has the columns that say something, so that it fits
/// 80 characters.
pub struct Lines {
    columns: Columns,
    /// Positions of the columns that are shown.
    shown: Vec<usize>,
    /// Rows of kernels in place of results.
    per_kernel: bool,
    form: Form,
    /// Names of the columns of a written form, until they are printed above the first row.
    head: Vec<String>,
}

impl Lines {
    /// Prints nothing: the header comes with the first row, so that a model that cannot be read has none.
    pub fn new(a: &BenchArgs, settings: &[Setting]) -> Lines {
        let columns = if a.decoding.decode.is_some() { Columns::TOKENS } else { Columns::RUNS };
        let widest = settings.iter().map(|s| s.others(columns.settings).chars().count()).max().unwrap_or(0);
        let written = a.format != "table";
        let per_kernel = a.per_kernel && written;
        let results = || columns.names.iter().copied();
        let kernels = || results().take(columns.behind_settings).chain(OF_KERNELS.map(|name| (name, 0)));
        let own: Vec<(&str, usize)> = if per_kernel { kernels().collect() } else { results().collect() };
        let swept = [(SWEPT, widest)].into_iter();
        let mut all: Vec<(&str, usize)> =
            own.into_iter().chain(swept).chain(OF_MACHINE.map(|name| (name, 0))).collect();
        all[0].1 = a.models.iter().map(|m| workbench::models::short_name(m).chars().count()).max().unwrap_or(0);
        let says = |name: &str| match name {
            SWEPT => widest > 0,
            name if OF_MACHINE.contains(&name) => written,
            name => written || columns.says(name, a, settings),
        };
        let mut shown: Vec<usize> = (0..all.len()).filter(|&i| says(all[i].0)).collect();
        let wide = |shown: &[usize]| -> usize {
            shown.iter().map(|&i| all[i].1.max(all[i].0.chars().count()) + 2).sum::<usize>()
        };
        // Several swept settings need room: figures that follow from others give way first.
        for spare in SPARE {
            if !written && wide(&shown) > LINE {
                shown.retain(|&i| all[i].0 != spare);
            }
        }
        let head: Vec<(&str, usize)> = shown.iter().map(|&i| all[i]).collect();
        if !written {
            return Lines { columns, shown, per_kernel, form: Form::Table(Rows::new(&head)), head: vec![] };
        }
        let csv = a.format == "csv";
        let head = head.iter().map(|c| c.0.to_string()).collect();
        Lines { columns, shown, per_kernel, form: Form::Written { csv }, head }
    }
    /// Prints the last result, with its ratio to the first of its model that did not fail; or the kernels of it.
    pub fn print(&mut self, rows: &[Row]) -> Result<()> {
        let Some(row) = rows.last() else { return Ok(()) };
        self.print_head()?;
        let cells = (self.columns.cells)(first_latency(rows), row);
        let behind = [vec![row.setting.others(self.columns.settings)], machine(row)].concat();
        let kernels = row.result.as_ref().ok().and_then(|r| r.run.per_kernel.as_ref().map(|k| (r, k)));
        match (self.per_kernel, kernels) {
            (false, _) => self.print_cells([cells, behind].concat()),
            (true, None) => Ok(()),
            (true, Some((r, kernels))) => by_time(kernels).into_iter().try_for_each(|k| {
                let first = cells[..self.columns.behind_settings].to_vec();
                self.print_cells([first, of_kernel(k, r), behind.clone()].concat())
            }),
        }
    }
    fn print_head(&mut self) -> Result<()> {
        let head = std::mem::take(&mut self.head);
        if head.is_empty() {
            return Ok(());
        }
        self.write(&head)?;
        match self.form {
            Form::Written { csv: false } => print_text(&format!("|{}", "---|".repeat(head.len()))),
            _ => Ok(()),
        }
    }
    fn print_cells(&self, cells: Vec<String>) -> Result<()> {
        self.write(&self.shown.iter().map(|&i| cells[i].clone()).collect::<Vec<_>>())
    }
    fn write(&self, cells: &[String]) -> Result<()> {
        let quoted =
            |c: &String| if c.contains([',', '"']) { format!("\"{}\"", c.replace('"', "\"\"")) } else { c.clone() };
        match &self.form {
            Form::Table(rows) => rows.print(cells),
            Form::Written { csv: true } => print_text(&cells.iter().map(quoted).collect::<Vec<_>>().join(",")),
            Form::Written { .. } => print_text(&format!("| {} |", cells.join(" | "))),
        }
    }
}

/// Device, driver and build of a row.
fn machine(row: &Row) -> Vec<String> {
    let Ok(r) = &row.result else { return vec!["-".to_string(); OF_MACHINE.len()] };
    let commit = r.env.commit.map_or(String::new(), |c| format!(" {c}"));
    vec![r.device.name.clone(), r.device.driver.clone(), format!("{} {}{commit}", r.env.weft, r.env.profile)]
}

/// The kernels of a result, those with the most time first.
fn by_time(kernels: &[KernelTime]) -> Vec<&KernelTime> {
    let mut rows: Vec<&KernelTime> = kernels.iter().collect();
    rows.sort_by(|a, b| b.us_total.total_cmp(&a.us_total));
    rows
}

/// The cells of [`OF_KERNELS`].
fn of_kernel(k: &KernelTime, r: &BenchRecord) -> Vec<String> {
    vec![
        k.part.as_ref().map_or(k.name.clone(), |part| format!("{part}/{}", k.name)),
        k.calls.to_string(),
        format!("{:.2}", k.us_median),
        format!("{:.2}", k.us_total),
        share(k, r.run.spent.as_ref().map_or(0.0, |s| s.run_ms)),
        format!("{:.1}", k.gflops),
        format!("{:.1}", k.gb_s),
    ]
}

/// Of a run of so many milliseconds.
fn share(k: &KernelTime, run_ms: f64) -> String {
    format!("{:.1}%", 100.0 * k.us_total / (run_ms * 1e3).max(1e-9))
}

/// The latency of the first row of the last row's model that did not fail.
fn first_latency(rows: &[Row]) -> Statistics {
    let mut of_model = rows.iter().filter(|r| rows.last().is_some_and(|last| last.model == r.model));
    of_model.find_map(|r| Some(r.result.as_ref().ok()?.run.latency_ms.as_ref()?.of)).unwrap_or_default()
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

/// Tables below the results: the kernels where one was timed `alone`, all of them with `--per-kernel`, and what the
/// driver said.
pub fn show_details(results: &[&BenchRecord], alone: bool, all_kernels: bool) -> Result<()> {
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
            let most = if all_kernels { usize::MAX } else { SHOWN };
            show_kernels(kernels, r.run.spent.as_ref().map_or(0.0, |s| s.run_ms), most)?;
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

/// The `most` kernels that take the longest, with their shares of the run.
fn show_kernels(kernels: &[KernelTime], run_ms: f64, most: usize) -> Result<()> {
    let rows = by_time(kernels);
    let roof = rows.iter().any(|r| r.roofline_fraction.is_some());
    let parts = rows.iter().any(|r| r.part.is_some());
    let mut header = if parts { vec!["part"] } else { vec![] };
    header.extend(["kernel", "calls", "us each", "share", "GFLOP/s", "GB/s"]);
    if roof {
        header.push("of the roof");
    }
    let mut t = table(&header);
    for r in rows.iter().take(most) {
        let mut row = if parts { vec![r.part.clone().unwrap_or_default()] } else { vec![] };
        row.extend([
            r.name.clone(),
            r.calls.to_string(),
            format!("{:.1}", r.us_median),
            share(r, run_ms),
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
