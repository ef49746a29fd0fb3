//! Arguments of `weft tune` and `weft tuning`.

use super::{Common, InputArgs};
use clap::Args;
use std::path::PathBuf;

/// `weft tune`
#[derive(Args, Debug, Clone)]
pub struct TuneArgs {
    /// Models: paths or zoo names; or folders of models
    #[arg(required = true)]
    pub models: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: InputArgs,
    /// Time to search, for all models together
    #[arg(long, default_value = "300s", value_name = "TIME")]
    pub budget: String,
    /// Tune one kernel alone, by the name of the kernel or of its tensor function
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
    /// Only schedules with bit-identical results (the same order of sums); layouts and fusion stay
    #[arg(long)]
    pub same_sums: bool,
    /// Write what was measured on the device to one file, to send it to Weft's developers: the device and its peak
    /// rates, the time of each schedule beside its estimate, tuned choices
    #[arg(long, value_name = "FILE")]
    pub submit: Option<PathBuf>,
    /// Schedule templates, whose schedules are tried too (docs/tuning.md)
    #[arg(long, value_name = "FILE")]
    pub template: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft edit`
#[derive(Args, Debug, Clone)]
pub struct EditArgs {
    /// Model: a path or a zoo name
    pub model: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: InputArgs,
    /// The kernel, by its name, its layer, or its tensor function
    #[arg(long, value_name = "NAME")]
    pub kernel: String,
    /// The edited schedule; without it, VISUAL or EDITOR opens the schedule
    #[arg(long, value_name = "FILE")]
    pub schedule: Option<PathBuf>,
    /// Store the schedule without asking, faster or not
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft measure`
#[derive(Args, Debug)]
pub struct MeasureArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: InputArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// Actions of `weft tuning`.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum TuningAction {
    /// Shows the choices that count
    Show,
    /// Reads all lines and counts them
    Check,
    /// Writes the lines that count
    Merge,
    /// Writes the lines of one device
    Export,
    /// Fits the estimate of one device to its measured schedules, and appends the factors to the file
    Calibrate,
}

/// `weft tuning`
#[derive(Args, Debug)]
pub struct TuningArgs {
    /// Action
    pub action: TuningAction,
    /// Tuning databases, as `weft tune` writes them
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Only lines whose device has this in its name
    #[arg(long, value_name = "DEVICE")]
    pub of: Option<String>,
    /// Of `check`: drop the lines that do not parse, and keep all others
    #[arg(long)]
    pub mend: bool,
    /// File of `merge` and `export` [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}
