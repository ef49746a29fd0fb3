//! `weft bench --driver-stats` and `weft compile --emit isa`: the statistics and the code of each kernel from the
//! driver's compiler.

use crate::document::Document;
use crate::error::{Code, Error, Result};
use crate::executor::Device;
use crate::figures::si;
use crate::progress::Progress;
use crate::settings::Settings;
use compiler::compile::Compiled;
use compiler::plan::kernel_file;
use compiler::trace::DriverStats;
use compiler::trace::driver_stats::{ExecutableRecord, StatsRecord};
use runtime_gpu::Gpu;
use std::sync::Arc;

/// The device whose driver `option` asks.
///
/// # Errors
/// Code 5 for the interpreter, and where the driver does not tell.
pub fn asked<'d>(device: &'d Device, option: &str) -> Result<&'d Arc<Gpu>> {
    match device {
        Device::Gpu(gpu) => {
            gpu.check_driver_stats()?;
            Ok(gpu)
        }
        Device::Cpu(_) | Device::Interpreter => {
            Err(Error::new(Code::Device, format!("{option} asks a device's driver; {} has none", device.label()))
                .help("`weft devices` lists what is there"))
        }
    }
}

/// Has the driver compile the kernels once more, and asks what it made of them.
///
/// # Errors
/// Code 5 where the driver does not tell, and for a model without kernels.
pub fn ask(gpu: &Gpu, c: &Compiled, settings: &Settings) -> Result<DriverStats> {
    let mut progress = Progress::new(settings, &[]);
    Ok(gpu.driver_stats(&c.plan.kernels, &mut |s, d, t| progress.report(s, d, t))?)
}

/// As `--json` has it.
pub fn record(stats: &DriverStats, c: &Compiled) -> StatsRecord {
    let kernels = c.plan.kernels.iter().enumerate();
    stats.record(kernels.map(|(i, k)| (k.name.as_str(), kernel_file(i, &k.name))))
}

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
