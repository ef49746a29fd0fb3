//! Errors: an exit code, one sentence, the place, the reason, and what to do.

use crate::record::Versioned;
use compiler::compile::CompileError;
use compiler::graph::{BindError, SizesError};
use compiler::onnx::ImportError;
use runtime_cpu::CpuError;
use runtime_gpu::GpuError;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;
use weft::{Advice, Spelling};

/// The exit code of an error.
pub type Code = weft::Code;

/// An error as it is shown.
#[derive(Debug)]
pub struct Error {
    /// Exit code.
    pub code: Code,
    /// One sentence.
    pub message: String,
    /// Where: file, node and op.
    pub place: Option<String>,
    /// Advice.
    pub help: Option<String>,
}

/// Result of work.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with a code and a sentence.
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), place: None, help: None }
    }
    /// Wrong usage.
    pub fn usage(message: impl Into<String>) -> Error {
        Error::new(Code::Usage, message)
    }
    /// A bad model or input.
    pub fn input(message: impl Into<String>) -> Error {
        Error::new(Code::Input, message)
    }
    /// The error as another surface spells its options: where a sentence names one as a command line has it (`--amp`),
    /// it gets the name that `by` gives it.
    pub fn spelled(&self, by: &dyn Spelling) -> Advice {
        let text = |t: &String| spelled(t, by);
        Advice {
            code: self.code,
            message: text(&self.message),
            place: self.place.clone(),
            help: self.help.as_ref().map(text),
        }
    }
    /// Adds the place.
    pub fn at(mut self, place: impl Into<String>) -> Error {
        self.place = Some(place.into());
        self
    }
    /// Adds what to do.
    pub fn help(mut self, help: impl Into<String>) -> Error {
        self.help = Some(help.into());
        self
    }
    /// The part of its record that says why.
    pub fn failure(&self) -> Failure {
        let (message, place, help) = (self.message.clone(), self.place.clone(), self.help.clone());
        Failure { code: self.code as u8, message, place, help }
    }
    /// As `--json` has it.
    pub fn record(&self) -> Versioned<ErrorRecord> {
        Versioned::new(ErrorRecord { error: self.failure() })
    }
}

/// An error in the place of a result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ErrorRecord {
    /// The error.
    pub error: Failure,
}

/// An error as `--json` has it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Failure {
    /// 1 a check failed, 2 usage, 3 bad input, 4 unsupported operators, 5 device or memory, 6 a bug.
    pub code: u8,
    /// One sentence.
    pub message: String,
    /// File, node and op.
    #[serde(rename = "where")]
    pub place: Option<String>,
    /// Advice.
    pub help: Option<String>,
}

/// `text` with each option as `by` spells it.
fn spelled(text: &str, by: &dyn Spelling) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("--") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        let end =
            after.find(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '-').unwrap_or(after.len());
        let begins = before.chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '-');
        out += before;
        if !begins || !after.starts_with(|c: char| c.is_ascii_lowercase()) {
            out += "--";
            rest = after;
            continue;
        }
        let option = by.option(&after[..end]);
        rest = &after[end..];
        // `--amp fp16` is `amp=fp16` where a value follows at once.
        if option.ends_with('=') && rest.starts_with(' ') && !rest.starts_with(" and ") && !rest.starts_with(" or ") {
            rest = &rest[1..];
        }
        out += &option;
    }
    out + rest
}

/// Runs `f`; a panic becomes an error that says what to do.
pub fn catch_bugs<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        Err(Error::new(Code::Bug, format!("internal error: {}", panic_text(payload.as_ref())))
            .help("please report this with the model and the command"))
    })
}

/// The message of a panic.
pub fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_else(|| "unknown".into())
}

impl fmt::Display for Error {
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

impl From<Advice> for Error {
    fn from(a: Advice) -> Error {
        Error { code: a.code, message: a.message, place: a.place, help: a.help }
    }
}

impl From<weft::Error> for Error {
    fn from(e: weft::Error) -> Error {
        e.advice(&CommandLine).into()
    }
}

impl From<GpuError> for Error {
    fn from(e: GpuError) -> Error {
        weft::Error::from(e).into()
    }
}

impl From<CpuError> for Error {
    fn from(e: CpuError) -> Error {
        weft::Error::from(e).into()
    }
}

impl From<CompileError> for Error {
    fn from(e: CompileError) -> Error {
        weft::Error::from(e).into()
    }
}

impl From<SizesError> for Error {
    fn from(e: SizesError) -> Error {
        weft::Error::from(e).into()
    }
}

impl From<BindError> for Error {
    fn from(e: BindError) -> Error {
        weft::Error::from(e).into()
    }
}

impl From<ImportError> for Error {
    fn from(e: ImportError) -> Error {
        Advice::of_import(&e, &CommandLine).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Keys;
    impl Spelling for Keys {
        fn option(&self, name: &str) -> String {
            format!("{}=", name.replace('-', "_"))
        }
        fn dims(&self, _: &[(&str, String)]) -> String {
            String::new()
        }
        fn whole_shape(&self) -> &'static str {
            ""
        }
        fn or_inputs(&self) -> &'static str {
            ""
        }
        fn host_functions(&self) -> &'static str {
            ""
        }
    }

    #[test]
    fn options_are_spelled_as_the_surface_has_them() {
        let said = |text: &str| spelled(text, &Keys);
        assert_eq!(said("--keep-f32 @list: cannot read"), "keep_f32=@list: cannot read");
        assert_eq!(said("give --batch or --dim NAME=N (a--b, --, ---)"), "give batch= or dim=NAME=N (a--b, --, ---)");
    }
}
