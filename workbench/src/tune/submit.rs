//! `--submit FILE`: what was measured on a device, as a tuning database of its own. Its first line is the device.

use super::request::Request;
use crate::ceilings;
use crate::error::{Error, Result};
use crate::executor::{Device, profile_on};
use crate::progress::log;
use crate::written::write_file;
use compiler::profile::{CostFactors, DeviceProfile};
use std::path::Path;
use weft::{DeviceLine, Line, TuningDatabase};

/// # Errors
/// There is a file already.
pub fn check(path: &Path) -> Result<()> {
    match path.exists() {
        true => Err(Error::usage(format!("--submit {}: there is such a file already", path.display()))),
        false => Ok(()),
    }
}

/// Writes the lines of the database that are of the device.
///
/// # Errors
/// Files that cannot be read or written.
pub fn write(a: &Request, device: &Device, database: &Path, path: &Path) -> Result<()> {
    let profile = profile_on(&a.settings, device)?;
    let identity = profile.identity();
    let profile = DeviceProfile { factors: CostFactors::default(), ..profile };
    let mut own = TuningDatabase::read_for(database, &[&identity]).map_err(Error::input)?;
    let about =
        Line::Device(Box::new(DeviceLine { device: identity, profile, weft: env!("CARGO_PKG_VERSION").into() }));
    own.ceilings.extend(ceilings::stored(device).map(|c| ceilings::line(device, c)));
    let mut text = String::new();
    for line in std::iter::once(about).chain(own.merged()) {
        text.push_str(&serde_json::to_string(&line).map_err(|e| Error::input(e.to_string()))?);
        text.push('\n');
    }
    write_file(path, text.as_bytes())?;
    log(&a.settings, format!("tune: {} has {} lines about this device", path.display(), text.lines().count()));
    Ok(())
}
