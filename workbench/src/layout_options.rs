//! Options of the layout pass: pins of nodes, and measured times.

use crate::error::{Error, Result};
use crate::settings::Settings;
use compiler::attr::AttrStruct;
use compiler::compile::KernelTimes;
use compiler::cost::Measurements;
use compiler::name::Name;
use compiler::passes::AutoLayout;
use compiler::profile::DeviceProfile;
use std::sync::Arc;

/// The layout pass with the pins of the command line; `None` without any.
///
/// # Errors
/// A pin that is not `NODE=LAYOUT`.
pub fn pinned_pass(settings: &Settings) -> Result<Option<AutoLayout>> {
    let mut pass = AutoLayout::default();
    for pin in &settings.pin_layout {
        let usage = || Error::usage(format!("--pin-layout {pin}: needs NODE=LAYOUT with nchw, nhwc or packed"));
        let (name, layout) = pin.rsplit_once('=').filter(|p| !p.0.is_empty()).ok_or_else(usage)?;
        match layout {
            "nchw" => &mut pass.nchw,
            "nhwc" => &mut pass.nhwc,
            "packed" | "nchw4c" | "nchw8c" | "nchw16c" => &mut pass.packed,
            _ => return Err(usage()),
        }
        .push(Name::new(name));
    }
    Ok((pass != AutoLayout::default()).then_some(pass))
}

/// The measured times of functions and regions on a device in the tuning database.
///
/// # Errors
/// A file that cannot be read.
pub fn measurements(settings: &Settings, profile: &DeviceProfile) -> Result<Option<Arc<KernelTimes>>> {
    if settings.times.0.is_some() {
        return Ok(settings.times.0.clone());
    }
    let known = crate::tuning::read_or_warn(settings, &profile.identity())?.measurements();
    Ok((known != Measurements::default()).then(|| Arc::new(KernelTimes::new(known))))
}

/// Refuses wrong options before any work is done.
///
/// # Errors
/// An error of [`pass_options`].
pub fn check(settings: &Settings) -> Result<()> {
    pass_options(settings).map(drop)
}

/// The pins, the replaced nodes and the external targets as options by pass name.
///
/// # Errors
/// An error of [`pinned_pass`], a wrong `--host-call`, a wrong `--external`.
pub fn pass_options(settings: &Settings) -> Result<Vec<(String, compiler::attr::Attrs)>> {
    let pins = pinned_pass(settings)?.map(|p| (AutoLayout::NAME.to_string(), p.to_attrs()));
    let external = crate::external::passes(settings)?;
    Ok(pins.into_iter().chain(crate::host_calls::replacing_pass(settings)?).chain(external).collect())
}
