//! The table of what a driver says of kernels.

use crate::document::Document;
use crate::figures::si;
use compiler::trace::driver_stats::{ExecutableRecord, StatsRecord};

/// A column of the table: its title, the figure, and how it is written.
type Column = (&'static str, fn(&ExecutableRecord) -> Option<u64>, fn(f64) -> String);

const COLUMNS: &[Column] = &[
    ("subgroup", |e| Some(e.subgroup_size.into()), whole),
    ("registers", |e| e.figures.registers, whole),
    ("scalar", |e| e.figures.scalar_registers, whole),
    ("live", |e| e.figures.live_registers, whole),
    ("spills", |e| e.figures.spills, whole),
    ("fills", |e| e.figures.fills, whole),
    ("scratch", |e| e.figures.scratch_bytes, whole),
    ("occupancy", |e| e.figures.occupancy, whole),
    ("code", |e| e.figures.code_bytes, bytes),
    ("instructions", |e| e.figures.instructions, whole),
    ("latency", |e| e.figures.latency_cycles, whole),
];

fn whole(v: f64) -> String {
    format!("{v:.0}")
}

fn bytes(v: f64) -> String {
    format!("{}B", si(v))
}

/// Tells the statistics of a model: a row for each executable, and the columns that its driver fills. Of the kernels
/// alone that `wanted` takes, by their position.
pub fn tell(out: &mut Document, stats: &StatsRecord, wanted: impl Fn(usize) -> bool) {
    let kernels = stats.kernels.iter().filter(|k| wanted(k.id));
    let rows: Vec<_> = kernels.flat_map(|k| k.executables.iter().map(|e| (k.name.clone(), e))).collect();
    let filled: Vec<_> = COLUMNS.iter().filter(|c| rows.iter().any(|r| c.1(r.1).is_some())).collect();
    let header: Vec<&str> = std::iter::once("kernel").chain(filled.iter().map(|c| c.0)).collect();
    let cells = |(name, e): &(String, &ExecutableRecord)| {
        let cell = |c: &&Column| c.1(e).map_or(String::new(), |n| c.2(n as f64));
        std::iter::once(name.clone()).chain(filled.iter().map(cell)).collect()
    };
    out.table(&header, rows.iter().map(cells));
    let of = rows.iter().find_map(|r| r.1.figures.occupancy_of);
    let occupancy = of.map_or(String::new(), |of| format!("; occupancy in subgroups of {of}"));
    let device = &stats.device;
    out.say(format!(
        "by the driver of {device}; registers of a thread{occupancy}; latency in cycles by the driver's own model"
    ));
}
