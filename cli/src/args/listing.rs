//! Arguments of commands that take little else.

use super::Common;
use clap::Args;

/// `weft zoo`
#[derive(Args, Debug)]
pub struct ZooArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft completions`
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft cases`
#[derive(Args, Debug)]
pub struct CasesArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}
