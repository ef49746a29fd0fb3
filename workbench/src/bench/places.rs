//! The devices of a benchmark: each is opened once, however many settings it has.

use super::request::Request;
use crate::error::Result;
use crate::executor::{Device, open_device, open_to_compile};
use crate::progress::log;
use crate::settings::Settings;
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
    fn open(a: &Request, settings: &Settings) -> Result<Place> {
        let (device, not_timed) = open(a, settings)?;
        let ceilings = match (&device, a.ceilings) {
            (_, true) => Some(ceilings::measure(&device, settings, false)?),
            (device, false) => ceilings::stored(device),
        };
        Ok(Place { device, ceilings, not_timed })
    }

    /// The driver's statistics of the kernels, where they are wanted.
    ///
    /// # Errors
    /// A driver that says nothing.
    pub fn stats(&self, a: &Request, c: &Compiled, settings: &Settings) -> Result<Option<DriverStats>> {
        let ask = || driver_stats::ask(driver_stats::asked(&self.device, DRIVER_STATS)?, c, settings);
        a.driver_stats.then(ask).transpose()
    }
}

/// Opens the device; also why nothing can be timed on it, where its driver's statistics are wanted all the same.
fn open(a: &Request, settings: &Settings) -> Result<(Device, Option<String>)> {
    if !a.driver_stats {
        return Ok((open_device(settings)?, None));
    }
    let device = open_to_compile(settings)?;
    let computes = driver_stats::asked(&device, DRIVER_STATS)?.check_computes();
    match computes {
        Ok(()) => Ok((device, None)),
        Err(e @ GpuError::DoesNotCompute { .. }) if a.not_timed => {
            log(settings, format!("no times, the driver's statistics alone: {e}"));
            Ok((device, Some(e.to_string())))
        }
        Err(e) => Err(e.into()),
    }
}

/// The options that open a device: `--device`, `--target`, `--threads`.
type Key = (String, Option<String>, Option<u32>);

/// The devices that were opened so far, by what opens them: figures of a device are asked only where
/// it is compiled for.
pub struct Places<'a> {
    a: &'a Request,
    opened: Vec<(Key, Place)>,
}

impl<'a> Places<'a> {
    pub fn new(a: &'a Request) -> Places<'a> {
        Places { a, opened: vec![] }
    }
    /// The device of a setting.
    ///
    /// # Errors
    /// No such device, and one that does not compute.
    pub fn open(&mut self, settings: &Settings) -> Result<&Place> {
        let key = (settings.device.clone(), settings.target.clone(), settings.threads);
        let at = match self.opened.iter().position(|o| o.0 == key) {
            Some(at) => at,
            None => {
                let place = Place::open(self.a, settings)?;
                self.opened.push((key, place));
                self.opened.len() - 1
            }
        };
        Ok(&self.opened[at].1)
    }
}
