//! Options that mean the same everywhere.

use super::headings::OUTPUT;
use super::tabled::FromTable;
use clap::Args;
use std::ops::{Deref, DerefMut};
use workbench::settings::Settings;

/// Options that mean the same everywhere.
#[derive(Args, Debug, Clone, Default)]
pub struct Common {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub settings: FromTable<Settings>,
    /// Write JSON to stdout, or to a file
    #[arg(
        long,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "-",
        value_name = "FILE",
        help_heading = OUTPUT
    )]
    pub json: Option<String>,
    /// Take defaults of options from this file, or `none` [default: weft.toml, where the folder has one]
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub config: Option<std::path::PathBuf>,
    /// Print nothing but results
    #[arg(short, long, help_heading = OUTPUT)]
    pub quiet: bool,
    /// Print more
    #[arg(short, long, action = clap::ArgAction::Count, help_heading = OUTPUT)]
    pub verbose: u8,
}

impl Deref for Common {
    type Target = Settings;
    fn deref(&self) -> &Settings {
        &self.settings
    }
}

impl DerefMut for Common {
    fn deref_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }
}
