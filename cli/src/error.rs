//! Errors of the command: an exit code, one sentence, the place, the reason, and what to do.

use compiler::compile::CompileError;
use compiler::graph::BindError;
use compiler::onnx::ImportError;
use compiler::passes::PassErrorKind;
use runtime_cpu::CpuError;
use runtime_gpu::GpuError;
use std::fmt;

/// Exit codes of the command (the contract of scripts).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// A check failed: tolerance, regression.
    Check = 1,
    /// Usage, or an output path that cannot be written.
    Usage = 2,
    /// Bad model or input file.
    Input = 3,
    /// Unsupported operators.
    Unsupported = 4,
    /// No such device, a missing feature, not enough memory.
    Device = 5,
    /// A bug of ours.
    Bug = 6,
}

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
    /// As a terminal has it.
    pub fn render(&self) -> String {
        let label = format!("error[{}]:", self.code as u8);
        self.to_string().replacen(&label, &crate::terminal::alarming(&label), 1)
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

/// A size that networks often have for a dimension of this name.
fn example_size(dim: &str) -> u32 {
    let name = dim.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|w| name.contains(w));
    match () {
        () if says(&["batch"]) => 1,
        () if says(&["height", "width"]) || matches!(name.as_str(), "h" | "w") => 640,
        () if says(&["sample", "audio"]) => 16000,
        () => 128,
    }
}

impl From<weft::Error> for CliError {
    fn from(e: weft::Error) -> CliError {
        use weft::Error as E;
        let text = e.to_string();
        match e {
            E::Trace(_) => CliError::input(text).help("`weft inspect`, `explain`, `diff` and `view` read traces"),
            E::Onnx { place, source } => CliError::from(source).at(place),
            E::Shape(e) => e.into(),
            E::Compile(e) => e.into(),
            E::Device(e) => e.into(),
            E::Processor(e) => e.into(),
            E::Run(e) if e.is_no_room() => CliError::new(Code::Device, text),
            E::NoRoom { .. } => {
                CliError::new(Code::Device, text).help("give smaller sizes with --batch, --dim or --shape")
            }
            E::Schedule(_) => {
                CliError::input(text).help("the loops show the culprit; docs/schedule.md says what is held")
            }
            E::OpenSizes { dims, inputs } => {
                let options = dims.iter().map(|d| format!("--dim {d}={}", example_size(d.as_str())));
                let options = options.collect::<Vec<_>>().join(" ");
                let first = dims.first().map_or("NAME", |d| d.as_str());
                CliError::usage(text).at(format!("input {inputs}")).help(format!(
                    "give sizes, for example {options}, or inputs with -i; --dim {first}=A..B keeps one open for sizes from A to B"
                ))
            }
            E::NoEntry => CliError::input(text).help(
                "`weft opt` takes tensor functions alone; a model needs `graph @main(...) { ... }` that calls them",
            ),
            E::Extension(_) => CliError::usage(text),
            _ => CliError::input(text),
        }
    }
}

impl From<GpuError> for CliError {
    fn from(e: GpuError) -> CliError {
        let text = e.to_string();
        match e {
            GpuError::Input(_) => CliError::input(text),
            GpuError::Internal(_) => {
                CliError::new(Code::Bug, text).help("please report this with the model and `weft devices`")
            }
            GpuError::Host(_) | GpuError::Depth { .. } => CliError::input(text),
            GpuError::HostFunction(_) => CliError::input(text).help(
                "give a library with `--host-functions`, or register it in a program of your own (docs/expert-kernel.md)",
            ),
            GpuError::NoDevice { .. } => CliError::new(Code::Device, text)
                .help("`weft devices` lists what is there; `--device cpu` and `--device interpreter` need no driver"),
            GpuError::DoesNotCompute { .. } => CliError::new(Code::Device, text).help(
                "`weft compile` and `weft bench --driver-stats` need no results; run on another `--device` (`weft devices` lists them), or renew the driver",
            ),
            GpuError::NoDriverStats { .. } => CliError::new(Code::Device, text).help(
                "Mesa's drivers of AMD, Intel and NVIDIA GPUs (RADV, ANV, NVK) and NVIDIA's own have it; software drivers do not",
            ),
            GpuError::HostMemory { .. } => {
                CliError::new(Code::Device, text).help("other programs may hold it, or a limit on the process (`ulimit -v`)")
            }
            GpuError::OutOfMemory { .. } | GpuError::BufferTooLarge { .. } => {
                CliError::new(Code::Device, text).help("try a smaller --batch or --shape, or another --device")
            }
            _ => CliError::new(Code::Device, text),
        }
    }
}

impl From<CpuError> for CliError {
    fn from(e: CpuError) -> CliError {
        let text = e.to_string();
        match e {
            CpuError::Internal(_) => CliError::new(Code::Bug, text)
                .help("please report this with the model; `--device interpreter` needs no kernels"),
            CpuError::Open(_) => CliError::new(Code::Device, text),
            _ => CliError::input(text),
        }
    }
}

impl From<CompileError> for CliError {
    fn from(e: CompileError) -> CliError {
        match &e {
            CompileError::OpenDim { dim, .. } => CliError::usage(e.to_string())
                .help(format!("give it a size with `--dim {dim}=N`, `--shape INPUT=...`, or inputs with -i")),
            CompileError::OtherDevice { .. } => CliError::new(Code::Device, e.to_string())
                .help("write the text again for this device: `weft compile MODEL --emit weft`"),
            CompileError::Option(_) => CliError::usage(e.to_string()),
            CompileError::NeedsCpu(_) => {
                CliError::new(Code::Device, e.to_string()).help("run it with `--device interpreter`")
            }
            CompileError::Pass(p) if p.kind == PassErrorKind::Request => CliError::usage(e.to_string()),
            CompileError::Schedule { .. } => CliError::input(e.to_string()),
            _ => CliError::new(Code::Bug, e.to_string()).help("please report this with the model"),
        }
    }
}

impl From<BindError> for CliError {
    fn from(e: BindError) -> CliError {
        match &e {
            BindError::TooLarge(_) => too_large(&e),
            _ => CliError::usage(e.to_string()),
        }
    }
}

/// Sizes that no memory holds.
fn too_large(e: &dyn fmt::Display) -> CliError {
    CliError::new(Code::Device, e.to_string()).help("give smaller sizes with --batch, --dim or --shape")
}

impl From<ImportError> for CliError {
    fn from(e: ImportError) -> CliError {
        match &e {
            ImportError::Unsupported(list) => {
                let mut text = format!(
                    "the model uses {} operator{} that Weft does not have",
                    list.len(),
                    if list.len() == 1 { "" } else { "s" }
                );
                for u in list {
                    let domain = if u.domain.is_empty() { String::new() } else { format!("{}.", u.domain) };
                    text += &format!(
                        "\n  {domain}{} ({} node{}: {})",
                        u.op,
                        u.nodes.len(),
                        if u.nodes.len() == 1 { "" } else { "s" },
                        first_few(&u.nodes)
                    );
                    if !u.why.is_empty() {
                        text += &format!(": {}", u.why);
                    }
                }
                CliError::new(Code::Unsupported, text).help("`weft inspect MODEL` shows the whole model all the same")
            }
            ImportError::UnsupportedType { .. } | ImportError::OldOpset { .. } => {
                CliError::new(Code::Unsupported, e.to_string())
            }
            ImportError::Shape(e) => CliError::from(e.clone()),
            ImportError::TooLarge { .. } => too_large(&e),
            _ => CliError::input(e.to_string()),
        }
    }
}

fn first_few<T: fmt::Display>(names: &[T]) -> String {
    let mut text = names.iter().take(4).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    if names.len() > 4 {
        text += ", ...";
    }
    text
}
