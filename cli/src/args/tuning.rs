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
    /// Tune one kernel alone, by its name or that of its tensor function
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
    /// Only schedules that sum in the default's order, so that results have the same bits; layouts and fusion stay
    #[arg(long)]
    pub same_sums: bool,
    /// Write what was measured on the device to one file, to send it to Weft's developers: the device and its peak rates,
    /// the time of each schedule beside its estimate, tuned choices
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
    /// Keep the schedule without a question
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

/// The shapes of `weft oracle`.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum OracleShapes {
    /// Those by which the search is chosen
    Known,
    /// Others
    Others,
}

/// `weft oracle`
#[derive(Args, Debug)]
pub struct OracleArgs {
    /// The file of tables: those that it lacks are measured and appended
    pub file: PathBuf,
    /// Shapes to measure
    #[arg(long, value_enum, default_value = "known", value_name = "WHICH")]
    pub shapes: OracleShapes,
    /// Schedules of a table, or candidates of a search, at most
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub most: usize,
    /// Run searches on the tables
    #[arg(long)]
    pub searches: bool,
    /// Seeds of these searches
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub seeds: u64,
    /// Run searches on the device, of the schedules of the tables
    #[arg(long)]
    pub picks: bool,
    /// Calibrate the estimate by the tables
    #[arg(long)]
    pub calibrate: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// What `weft tuning` does.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum TuningAction {
    /// Shows the choices that count
    Show,
    /// Reads all lines and counts them
    Check,
    /// Writes the lines that count
    Merge,
    /// Writes those of one device
    Export,
    /// Fits the estimate of one device to its measured schedules, and appends the factors to the file
    Calibrate,
}

/// `weft tuning`
#[derive(Args, Debug)]
pub struct TuningArgs {
    /// What to do
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
