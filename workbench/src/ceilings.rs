//! `weft bench --ceilings`: the peak rates of a device, kept in the tuning database of the cache folder.

use crate::error::{Code, Error, Result};
use crate::progress::{Progress, log_once};
use crate::settings::Settings;
use crate::state::State;
use crate::tuning;
use compiler::trace::{Ceilings, Taken};
use runtime_gpu::{AdapterDescription, Gpu};
use std::sync::Arc;
use weft::races::Place;
use weft::{CeilingsLine, Device, TuningDatabase};

/// Measures a device and keeps the result in the tuning database of the cache folder. `on_the_side`: beside other work
/// of this command, so that a later measurement of its own replaces it.
///
/// # Errors
/// No device, or one that cannot run the kernels.
pub fn measure(device: &Device, settings: &Settings, on_the_side: bool) -> Result<Ceilings> {
    let machine = Place::of(device).ok_or_else(|| {
        let why = format!("--ceilings measures a device by its kernels; {} runs none", device.label());
        Error::new(Code::Device, why).help("`weft devices` lists what is there")
    })?;
    if let Device::Gpu(gpu) = device {
        gpu.check_computes()?;
    }
    let taken = taken(on_the_side);
    let mut progress = Progress::new(settings, &[]);
    let found = weft::ceilings::measure(&machine, &mut |s, d, t| progress.report(s, d, t));
    let found = Ceilings { taken, ..found.map_err(|e| Error::new(Code::Device, e.why()))? };
    store(device.profile().identity(), found)?;
    Ok(found)
}

/// Now.
fn taken(on_the_side: bool) -> Taken {
    let State { at, load, .. } = State::now();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    Taken { at, load, threads, on_the_side }
}

/// Fills in figures of a device that neither the driver nor the table of products has, from an earlier measurement.
/// Where there was none the guesses stay, which is said: opening a device measures nothing.
pub fn complete(gpu: Gpu, settings: &Settings) -> Arc<Gpu> {
    let mut gpu = gpu;
    match stored_of(&gpu.description) {
        Some(found) => gpu.set_measured(&found),
        None if gpu.description.figures.lacking() => {
            let name = &gpu.description.name;
            let text = "its cores or rates are not known, and kernels are chosen by guesses; `weft bench --ceilings` measures them once";
            log_once(settings, format!("device: {name}: {text}"));
        }
        None => {}
    }
    Arc::new(gpu)
}

/// Earlier measurements on this device.
pub fn stored_of(device: &AdapterDescription) -> Option<Ceilings> {
    let device = device.profile.identity();
    tuning::in_cache(&device).ceilings_of(&device)
}

/// Earlier measurements on an opened device.
pub fn stored(device: &Device) -> Option<Ceilings> {
    let device = device.profile().identity();
    tuning::in_cache(&device).ceilings_of(&device)
}

/// The line of the database for an opened device.
pub fn line(device: &Device, ceilings: Ceilings) -> CeilingsLine {
    line_of(device.profile().identity(), ceilings)
}

fn line_of(device: String, ceilings: Ceilings) -> CeilingsLine {
    CeilingsLine { device, ceilings, weft: env!("CARGO_PKG_VERSION").into() }
}

fn store(device: String, found: Ceilings) -> Result<()> {
    let Some(path) = tuning::file_in_cache() else { return Ok(()) };
    TuningDatabase::append(&path, line_of(device, found)).map_err(Error::usage)
}
