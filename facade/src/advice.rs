//! What an error tells its reader: a code, one sentence, the place, and what to do.
//!
//! The command and the bindings for other languages show the same errors; each spells options in its own way
//! ([`Spelling`]): `--dim height=640` is `dims={"height": 640}` in Python.

use crate::error::Error;
use compiler::compile::CompileError;
use compiler::graph::BindError;
use compiler::interpreter::ExecError;
use compiler::onnx::{ImportError, UnsupportedOp};
use compiler::passes::PassErrorKind;
use runtime_cpu::CpuError;
use runtime_gpu::GpuError;
use std::fmt::Display;

/// What kind of error it is: the exit code of the command.
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

/// How options are written where an error is shown.
pub trait Spelling {
    /// The option of that name, by its name on the command line without `--`.
    fn option(&self, name: &str) -> String;
    /// Sizes for dimensions, each a number or a range such as `A..B`.
    fn dims(&self, sizes: &[(&str, String)]) -> String;
    /// The whole shape of some input.
    fn whole_shape(&self) -> &'static str;
    /// Where inputs are given whose shapes decide sizes, as the end of a list.
    fn or_inputs(&self) -> &'static str;
    /// How host functions are given.
    fn host_functions(&self) -> &'static str;
}

/// An error for its reader.
#[derive(Clone, PartialEq, Debug)]
pub struct Advice {
    /// The kind of error.
    pub code: Code,
    /// One sentence.
    pub message: String,
    /// Where: file, node and op.
    pub place: Option<String>,
    /// What to do.
    pub help: Option<String>,
}

/// Turns errors into advice, with options as `.0` spells them.
struct Adviser<'a>(&'a dyn Spelling);

impl Error {
    /// The code, sentence, place and help of the error, with options as `spelling` writes them.
    pub fn advice(&self, spelling: &dyn Spelling) -> Advice {
        Adviser(spelling).of(self)
    }
}

impl Advice {
    fn new(code: Code, e: &dyn Display) -> Advice {
        Advice { code, message: e.to_string(), place: None, help: None }
    }
    fn help(self, help: impl Into<String>) -> Advice {
        Advice { help: Some(help.into()), ..self }
    }
    fn at(self, place: impl Into<String>) -> Advice {
        Advice { place: Some(place.into()), ..self }
    }
    /// Advice about a model file that cannot be imported.
    pub fn of_import(e: &ImportError, spelling: &dyn Spelling) -> Advice {
        Adviser(spelling).of_import(e)
    }
}

impl Adviser<'_> {
    fn of(&self, e: &Error) -> Advice {
        match e {
            Error::Trace(_) => {
                Advice::new(Code::Input, e).help("`weft inspect`, `explain`, `diff` and `view` read traces")
            }
            Error::IsBundle(_) => {
                Advice::new(Code::Input, e).help("`weft run`, `bench`, `inspect`, `explain` and `view` read bundles")
            }
            Error::Bundle { place, .. } => Advice::new(Code::Input, e).at(place),
            Error::NotCompiled { place, .. } => Advice::new(Code::Device, e)
                .at(place)
                .help("`weft compile MODEL -o F.bundle --for PROFILE,...` makes plans for further devices"),
            Error::NotPlanned(_) => Advice::new(Code::Unsupported, e)
                .help("run the model itself; its parts are compiled when a run has decided their sizes"),
            Error::Write(_) => Advice::new(Code::Usage, e),
            Error::Onnx { place, source } => self.of_import(source).at(place),
            Error::Shape(e) => self.of_bind(e),
            Error::Compile(e) => self.of_compile(e),
            Error::Device(e) => self.of_gpu(e),
            Error::Processor(CpuError::Internal(_)) => Advice::new(Code::Bug, e).help(format!(
                "please report this with the model; `{} interpreter` needs no kernels",
                self.0.option("device")
            )),
            Error::Processor(CpuError::Open(_) | CpuError::NoRoom(_)) => Advice::new(Code::Device, e),
            Error::NoShaders { .. } => Advice::new(Code::Usage, e)
                .help(format!("`{} 0` runs them on the first adapter of `weft devices`", self.0.option("device"))),
            Error::Processor(CpuError::HostFunction(_)) | Error::Run(ExecError::UnknownHostFunction { .. }) => {
                Advice::new(Code::Input, e).help(self.0.host_functions())
            }
            Error::Run(run) if run.is_no_room() => Advice::new(Code::Device, e),
            Error::NoRoom { .. } => self.too_large(e),
            Error::Schedule(_) => {
                Advice::new(Code::Input, e).help("the loops show the culprit; docs/schedule.md says what is held")
            }
            Error::OpenSizes { dims, inputs } => {
                let dims: Vec<&str> = dims.iter().map(|d| d.as_str()).collect();
                self.of_open_sizes(e, &dims, inputs)
            }
            Error::NoEntry => Advice::new(Code::Input, e).help(
                "`weft opt` takes tensor functions alone; a model needs `graph @main(...) { ... }` that calls them",
            ),
            Error::NoProfile { .. } => Advice::new(Code::Device, e).help(format!(
                "`weft devices --profiles` shows what each one is; `{}` chooses among the devices that are here",
                self.0.option("device")
            )),
            Error::Native { place, .. } => Advice::new(Code::Usage, e).at(place.clone()).help(format!(
                "{} allows it; run bundles of people that you would run a program of",
                self.0.option("allow-native")
            )),
            Error::NativeText(_) => Advice::new(Code::Usage, e).help(
                "load the network without the calls, and let the option `external` give its parts to the target; \
                 `weft run` and `weft bench` also have --allow-native, for texts that you would run as a program",
            ),
            Error::MachineOptions(options) => Advice::new(Code::Usage, e).help(format!(
                "leave them out of the file; `{} {}=...` sets them for a network whose parts it gives to the target",
                self.0.option("external"),
                options.first().map_or("", String::as_str)
            )),
            Error::Extension(_) => Advice::new(Code::Usage, e),
            _ => Advice::new(Code::Input, e),
        }
    }

    fn of_open_sizes(&self, e: &Error, dims: &[&str], inputs: &str) -> Advice {
        let examples: Vec<_> = dims.iter().map(|&d| (d, example_size(d).to_string())).collect();
        let first = dims.first().copied().unwrap_or("NAME");
        let range = self.0.dims(&[(first, "A..B".into())]);
        Advice::new(Code::Usage, e).at(format!("input {inputs}")).help(format!(
            "give sizes, for example {}{}; {range} keeps one open for sizes from A to B",
            self.0.dims(&examples),
            self.0.or_inputs()
        ))
    }

    fn of_gpu(&self, e: &GpuError) -> Advice {
        let option = |name| self.0.option(name);
        let device = Advice::new(Code::Device, e);
        match e {
            GpuError::Input(_) | GpuError::Host(_) | GpuError::Plan(_) | GpuError::Depth { .. } => Advice::new(Code::Input, e),
            GpuError::Internal(_) => {
                Advice::new(Code::Bug, e).help("please report this with the model and `weft devices`")
            }
            GpuError::HostFunction(_) => Advice::new(Code::Input, e).help(self.0.host_functions()),
            GpuError::NoDevice { .. } => device.help(format!(
                "`weft devices` lists what is there; `{0} cpu` and `{0} interpreter` need no driver",
                option("device")
            )),
            GpuError::DoesNotCompute { .. } => device.help(format!(
                "`weft compile` and `weft bench --driver-stats` need no results; run on another `{}` (`weft devices` lists them), or renew the driver",
                option("device")
            )),
            GpuError::NoDriverStats { .. } => device.help(
                "Mesa's drivers of AMD, Intel and NVIDIA GPUs (RADV, ANV, NVK) and NVIDIA's own have it; software drivers do not",
            ),
            GpuError::HostMemory { .. } => {
                device.help("other programs may hold it, or a limit on the process (`ulimit -v`)")
            }
            GpuError::OutOfMemory { .. } | GpuError::BufferTooLarge { .. } => device.help(format!(
                "try a smaller {} or {}, or another {}",
                option("batch"),
                option("shape"),
                option("device")
            )),
            _ => device,
        }
    }

    fn of_compile(&self, e: &CompileError) -> Advice {
        let option = |name| self.0.option(name);
        match e {
            CompileError::OpenDim { dim, .. } => Advice::new(Code::Usage, e).help(format!(
                "give it a size with `{}`, `{}`{}",
                self.0.dims(&[(dim.as_str(), "N".into())]),
                self.0.whole_shape(),
                self.0.or_inputs()
            )),
            CompileError::OtherDevice { .. } => Advice::new(Code::Device, e)
                .help("write the text again for this device: `weft compile MODEL --emit weft`"),
            CompileError::Option(_) => Advice::new(Code::Usage, e),
            CompileError::NeedsCpu(_) => {
                Advice::new(Code::Device, e).help(format!("run it with `{} interpreter`", option("device")))
            }
            CompileError::Pass(p) if p.kind == PassErrorKind::Request => Advice::new(Code::Usage, e),
            CompileError::Schedule { .. } => Advice::new(Code::Input, e),
            _ => Advice::new(Code::Bug, e).help("please report this with the model"),
        }
    }

    fn of_bind(&self, e: &BindError) -> Advice {
        match e {
            BindError::TooLarge(_) => self.too_large(e),
            _ => Advice::new(Code::Usage, e),
        }
    }

    /// Sizes that no memory holds.
    fn too_large(&self, e: &dyn Display) -> Advice {
        let [batch, dim, shape] = ["batch", "dim", "shape"].map(|name| self.0.option(name));
        Advice::new(Code::Device, e).help(format!("give smaller sizes with {batch}, {dim} or {shape}"))
    }

    fn of_import(&self, e: &ImportError) -> Advice {
        match e {
            ImportError::Unsupported(list) => {
                let lines: String = list.iter().map(unsupported).collect();
                let text = format!("the model uses {} that Weft does not have{lines}", count(list.len(), "operator"));
                Advice::new(Code::Unsupported, &text).help("`weft inspect MODEL` shows the whole model all the same")
            }
            ImportError::UnsupportedType { .. } | ImportError::OldOpset { .. } => Advice::new(Code::Unsupported, e),
            ImportError::Shape(e) => self.of_bind(e),
            ImportError::TooLarge { .. } => self.too_large(e),
            _ => Advice::new(Code::Input, e),
        }
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

/// A line about an operator, with its first nodes.
fn unsupported(u: &UnsupportedOp) -> String {
    let domain = if u.domain.is_empty() { String::new() } else { format!("{}.", u.domain) };
    let why = if u.why.is_empty() { String::new() } else { format!(": {}", u.why) };
    format!("\n  {domain}{} ({}: {}){why}", u.op, count(u.nodes.len(), "node"), first_few(&u.nodes))
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn first_few<T: Display>(names: &[T]) -> String {
    let mut text = names.iter().take(4).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    if names.len() > 4 {
        text += ", ...";
    }
    text
}
