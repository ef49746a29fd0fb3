//! Errors of the command: an exit code, one sentence, the place, the reason, and what to do.

use crate::terminal::print_error;
use compiler::compile::CompileError;
use compiler::graph::BindError;
use compiler::onnx::ImportError;
use runtime_cpu::CpuError;
use runtime_gpu::GpuError;
use std::fmt;
use weft::{Advice, Spelling};

/// The exit code of an error.
pub type Code = weft::Code;

/// An error as the command shows it.
#[derive(Debug)]
pub struct CliError {
    /// Exit code.
    pub code: Code,
    /// One sentence.
    pub message: String,
    /// Where: file, node and op.
    pub place: Option<String>,
    /// What to do.
    pub help: Option<String>,
}

/// Result of a command.
pub type CliResult<T> = Result<T, CliError>;

impl CliError {
    /// An error with a code and a sentence.
    pub fn new(code: Code, message: impl Into<String>) -> CliError {
        CliError { code, message: message.into(), place: None, help: None }
    }
    /// Wrong usage.
    pub fn usage(message: impl Into<String>) -> CliError {
        CliError::new(Code::Usage, message)
    }
    /// A bad model or input.
    pub fn input(message: impl Into<String>) -> CliError {
        CliError::new(Code::Input, message)
    }
    /// Adds the place.
    pub fn at(mut self, place: impl Into<String>) -> CliError {
        self.place = Some(place.into());
        self
    }
    /// Adds what to do.
    pub fn help(mut self, help: impl Into<String>) -> CliError {
        self.help = Some(help.into());
        self
    }
    /// Clap's error about the command line.
    pub fn from_usage(e: &clap::Error) -> CliError {
        let text = e.render().to_string();
        let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
        let first = lines.next().unwrap_or("wrong usage");
        let error = CliError::usage(first.strip_prefix("error: ").unwrap_or(first));
        match lines.find_map(|l| l.strip_prefix("tip: ")) {
            Some(tip) => error.help(tip),
            None => error.help("`weft COMMAND --help` shows what it takes"),
        }
    }
    /// As `--json` has it.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "schema": 1, "error": { "code": self.code as u8, "message": self.message,
            "where": self.place, "help": self.help } })
    }
    /// Shows it on stderr.
    pub fn print(&self) {
        print_error(&self.to_string(), &format!("error[{}]:", self.code as u8));
    }
}

/// Runs `f`; a panic becomes an error that says what to do.
pub fn catch_bugs<T>(f: impl FnOnce() -> CliResult<T>) -> CliResult<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        Err(CliError::new(Code::Bug, format!("internal error: {}", panic_text(payload.as_ref())))
            .help("please report this with the model and the command"))
    })
}

/// The message of a panic.
pub fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_else(|| "unknown".into())
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code as u8, self.message)?;
        if let Some(p) = &self.place {
            write!(f, "\n  at: {p}")?;
        }
        if let Some(h) = &self.help {
            write!(f, "\n  help: {h}")?;
        }
        Ok(())
    }
}

/// Options as a command line has them.
struct CommandLine;

impl Spelling for CommandLine {
    fn option(&self, name: &str) -> String {
        format!("--{name}")
    }
    fn dims(&self, sizes: &[(&str, String)]) -> String {
        sizes.iter().map(|(name, size)| format!("--dim {name}={size}")).collect::<Vec<_>>().join(" ")
    }
    fn whole_shape(&self) -> &'static str {
        "--shape INPUT=..."
    }
    fn or_inputs(&self) -> &'static str {
        ", or inputs with -i"
    }
    fn host_functions(&self) -> &'static str {
        "give a library with `--host-functions`, or register it in a program of your own (docs/expert-kernel.md)"
    }
}

impl From<Advice> for CliError {
    fn from(a: Advice) -> CliError {
        CliError { code: a.code, message: a.message, place: a.place, help: a.help }
    }
}

impl From<weft::Error> for CliError {
    fn from(e: weft::Error) -> CliError {
        e.advice(&CommandLine).into()
    }
}

impl From<GpuError> for CliError {
    fn from(e: GpuError) -> CliError {
        weft::Error::from(e).into()
    }
}

impl From<CpuError> for CliError {
    fn from(e: CpuError) -> CliError {
        weft::Error::from(e).into()
    }
}

impl From<CompileError> for CliError {
    fn from(e: CompileError) -> CliError {
        weft::Error::from(e).into()
    }
}

impl From<BindError> for CliError {
    fn from(e: BindError) -> CliError {
        weft::Error::from(e).into()
    }
}

impl From<ImportError> for CliError {
    fn from(e: ImportError) -> CliError {
        Advice::of_import(&e, &CommandLine).into()
    }
}
