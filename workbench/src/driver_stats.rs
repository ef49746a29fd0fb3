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
use runtime_gpu::Gpu;
use serde_json::Value;
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
pub fn to_json(stats: &DriverStats, c: &Compiled) -> Value {
    let kernels = c.plan.kernels.iter().enumerate();
    stats.to_json(kernels.map(|(i, k)| (k.name.as_str(), kernel_file(i, &k.name))))
}

/// A column of the table: its title, the figure of the JSON, and how it is written.
const COLUMNS: &[(&str, &str, fn(f64) -> String)] = &[
    ("subgroup", "subgroup_size", whole),
    ("registers", "registers", whole),
    ("scalar", "scalar_registers", whole),
    ("live", "live_registers", whole),
    ("spills", "spills", whole),
    ("fills", "fills", whole),
    ("scratch", "scratch_bytes", whole),
    ("occupancy", "occupancy", whole),
    ("code", "code_bytes", bytes),
    ("instructions", "instructions", whole),
    ("latency", "latency_cycles", whole),
];

fn whole(v: f64) -> String {
    format!("{v:.0}")
}

fn bytes(v: f64) -> String {
    format!("{}B", si(v))
}

/// Tells the JSON `driver_stats` of a model: a row for each executable, and the columns that its driver fills. Of the
/// kernels alone that `wanted` takes, by their position.
pub fn tell(out: &mut Document, stats: &Value, wanted: impl Fn(usize) -> bool) {
    let mut rows: Vec<(&str, &Value)> = Vec::new();
    for (i, k) in stats["kernels"].as_array().into_iter().flatten().enumerate() {
        let own = k["executables"].as_array().into_iter().flatten();
        rows.extend(own.filter(|_| wanted(i)).map(|e| (k["name"].as_str().unwrap_or(""), e)));
    }
    let filled: Vec<_> = COLUMNS.iter().filter(|c| rows.iter().any(|r| r.1[c.1].is_number())).collect();
    let header: Vec<&str> = std::iter::once("kernel").chain(filled.iter().map(|c| c.0)).collect();
    let cells = |(name, e): &(&str, &Value)| {
        let cell = |c: &&(_, &str, fn(f64) -> String)| e[c.1].as_f64().map_or(String::new(), c.2);
        std::iter::once(name.to_string()).chain(filled.iter().map(cell)).collect()
    };
    out.table(&header, rows.iter().map(cells));
    let of = rows.iter().find_map(|r| r.1["occupancy_of"].as_str());
    let occupancy = of.map_or(String::new(), |of| format!("; occupancy in subgroups of {of}"));
    let device = stats["device"].as_str().unwrap_or("");
    out.say(format!(
        "by the driver of {device}; registers of a thread{occupancy}; latency in cycles by the driver's own model"
    ));
}
