//! The `weft` command: flags in, tables and JSON out. Everything of substance is in the libraries.
//!
//! [`run`] is the whole command. A program of one's own calls it with [`Extensions`] and is `weft` with more passes:
//! `cli/examples/scale_constants.rs` is one.

mod args;
mod arrays;
mod bench;
mod cases;
mod compare;
mod compile;
mod devices;
mod diff;
mod error;
mod executor;
mod explain;
mod export;
mod inspect;
mod layout_options;
mod models;
mod node_errors;
mod opt;
mod output;
mod precision;
mod run;
mod trace;
mod view;
mod zoo;

use args::{Cli, Command};
use clap::Parser;
use compiler::passes::PassDef;
use error::{CliError, CliResult, Code, catch_bugs};
use std::ffi::OsString;
use std::process::ExitCode;

/// What a program of one's own adds to the command.
#[derive(Default)]
pub struct Extensions {
    /// Passes that `weft opt --passes` finds by name, before those of the table.
    pub passes: Vec<PassDef>,
}

/// Vulkan loaders print a line on stderr when the session folder is not set; nothing of ours uses it.
fn quiet_loader() {
    if cfg!(target_os = "linux") && std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        // SAFETY: called first in `main`, while there is one thread.
        unsafe { std::env::set_var("XDG_RUNTIME_DIR", std::env::temp_dir()) };
    }
}

/// The command with the arguments `args` (the program's name first). To be called first in `main`: it may set a
/// variable of the environment.
pub fn run(args: impl IntoIterator<Item = OsString>, extensions: &Extensions) -> ExitCode {
    quiet_loader();
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            if !e.use_stderr() {
                let _ = e.print();
                return ExitCode::SUCCESS;
            }
            let code = Code::Usage as u8;
            eprint!("{}", e.render().to_string().replacen("error:", &format!("error[{code}]:"), 1));
            return ExitCode::from(code);
        }
    };
    std::panic::set_hook(Box::new(|_| {}));
    let result = catch_bugs(|| dispatch(&cli.command, extensions));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(e.code as u8)
        }
    }
}

/// Options that no pass of this build honours are refused rather than ignored.
fn check_options(command: &Command) -> CliResult<()> {
    let common = match command {
        Command::Compile(a) => &a.common,
        Command::Run(a) => &a.common,
        Command::Bench(a) => &a.common,
        Command::Compare(a) => &a.common,
        Command::Explain(a) => &a.common,
        Command::Export(a) => &a.common,
        _ => return Ok(()),
    };
    layout_options::check(common)?;
    if common.tuning != "off" {
        return Err(CliError::usage("tuning is not built yet: only --tuning off works"));
    }
    Ok(())
}

fn dispatch(command: &Command, extensions: &Extensions) -> CliResult<()> {
    check_options(command)?;
    match command {
        Command::Devices(a) => devices::execute(a),
        Command::Inspect(a) => inspect::execute(a),
        Command::Compile(a) => compile::execute(a),
        Command::Opt(a) => opt::execute(a, extensions),
        Command::Run(a) => run::execute(a),
        Command::Bench(a) => bench::execute(a),
        Command::Compare(a) => compare::execute(a),
        Command::Explain(a) => explain::execute(a),
        Command::Export(a) => export::execute(a),
        Command::Diff(a) => diff::execute(a),
        Command::View(a) => view::execute(a),
        Command::Zoo(a) => zoo::execute(a),
        Command::Cases(a) => cases::execute(a),
    }
}
