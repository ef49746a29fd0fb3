//! The devices of a benchmark: each is opened once, however many settings it has.

use crate::args::{BenchArgs, Common};
use crate::error::CliResult;
use crate::executor::{Device, open_device, open_to_compile};
use crate::output::log;
use crate::{ceilings, driver_stats};
use compiler::compile::Compiled;
use compiler::trace::{Ceilings, DriverStats};
use runtime_gpu::GpuError;

pub const DRIVER_STATS: &str = "--driver-stats";

/// A device, and what is known of it.
pub struct Place {
    pub device: Device,
    pub ceilings: Option<Ceilings>,
    /// Why nothing is timed: with `--driver-stats` on a device that does not compute.
    pub not_timed: Option<String>,
}

impl Place {
    fn open(a: &BenchArgs, common: &Common) -> CliResult<Place> {
        let (device, not_timed) = open(a, common)?;
        let ceilings = match (&device, a.ceilings) {
            (_, true) => Some(ceilings::measure(&device, common)?),
            (device, false) => ceilings::stored(device),
        };
        Ok(Place { device, ceilings, not_timed })
    }

    /// What the driver says of the kernels, where that is asked.
    ///
    /// # Errors
    /// A driver that says nothing.
    pub fn stats(&self, a: &BenchArgs, c: &Compiled, common: &Common) -> CliResult<Option<DriverStats>> {
        let ask = || driver_stats::ask(driver_stats::asked(&self.device, DRIVER_STATS)?, c, common);
        a.driver_stats.then(ask).transpose()
    }
}

/// Opens the device; also why nothing can be timed on it, where its driver's statistics are wanted all the same.
fn open(a: &BenchArgs, common: &Common) -> CliResult<(Device, Option<String>)> {
    if !a.driver_stats {
        return Ok((open_device(common)?, None));
    }
    let device = open_to_compile(common)?;
    let computes = driver_stats::asked(&device, DRIVER_STATS)?.check_computes();
    match computes {
        Ok(()) => Ok((device, None)),
        Err(e @ GpuError::DoesNotCompute { .. }) if !a.ceilings && a.baseline.is_none() => {
            log(common, format!("no times, the driver's statistics alone: {e}"));
            Ok((device, Some(e.to_string())))
        }
        Err(e) => Err(e.into()),
    }
}

/// The devices that were opened so far, by what `--device` and `--target` say: figures of a device are asked only where it is compiled for.
pub struct Places<'a> {
    a: &'a BenchArgs,
    opened: Vec<((String, Option<String>), Place)>,
}

impl<'a> Places<'a> {
    pub fn new(a: &'a BenchArgs) -> Places<'a> {
        Places { a, opened: vec![] }
    }
    /// The device of a setting.
    ///
    /// # Errors
    /// No such device, and one that does not compute.
    pub fn open(&mut self, common: &Common) -> CliResult<&Place> {
        let key = (common.device.clone(), common.target.clone());
        let at = match self.opened.iter().position(|o| o.0 == key) {
            Some(at) => at,
            None => {
                let place = Place::open(self.a, common)?;
                self.opened.push((key, place));
                self.opened.len() - 1
            }
        };
        Ok(&self.opened[at].1)
    }
}
