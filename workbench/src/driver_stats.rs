//! `weft bench --driver-stats` and `weft compile --emit isa`: the statistics and the code of each kernel from the
//! driver's compiler.

use crate::error::{Code, Error, Result};
use crate::executor::Device;
use crate::progress::Progress;
use crate::settings::Settings;
use compiler::compile::Compiled;
use compiler::plan::kernel_file;
use compiler::trace::DriverStats;
use compiler::trace::driver_stats::StatsRecord;
pub use graphview::driver_table::tell;
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
