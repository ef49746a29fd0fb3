//! A search for faster schedules.

use crate::inputs::Inputs;
use crate::settings::Settings;
use std::path::PathBuf;
use std::time::Duration;

/// A search for faster schedules.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Paths or zoo names, or folders of models.
    pub models: Vec<String>,
    /// Values for their inputs.
    pub input: Inputs,
    /// Time to search, for all models together.
    pub budget: Duration,
    /// Tune one kernel alone, by its name or that of its tensor function.
    pub kernel: Option<String>,
    /// Only schedules that sum in the default's order.
    pub same_sums: bool,
    /// Where to write what was measured of the device.
    pub submit: Option<PathBuf>,
    /// Files of schedule templates, whose schedules are tried too.
    pub template: Vec<PathBuf>,
    /// Everything else.
    pub settings: Settings,
}
