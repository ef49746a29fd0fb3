//! Options of `weft results`.

use super::Common;
use super::paths::path_of;
use clap::Args;
use std::path::PathBuf;

/// Actions of `weft results`.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultsAction {
    /// Checks bench files and files their results, without names of hosts and paths
    Add,
    /// Writes the results of a folder as one HTML page
    Page,
}

/// `weft results`
#[derive(Args, Debug)]
pub struct ResultsArgs {
    /// Action
    pub action: ResultsAction,
    /// Of `add`: files that `weft bench --json=F.json` wrote
    #[arg(required_if_eq("action", "add"), value_name = "F.json")]
    pub files: Vec<PathBuf>,
    /// Folder of the results
    #[arg(long, value_name = "DIR")]
    pub folder: PathBuf,
    /// Page of `page`
    #[arg(short, long, value_name = "page.html", required_if_eq("action", "page"), value_parser = path_of("html"))]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}
