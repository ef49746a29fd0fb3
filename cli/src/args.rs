//! The command line: the options of each command. [`Common`] has options that several commands share; [`shared`] lists
//! which command supports which.

pub mod headings;
mod listing;
mod options;
mod paths;
mod results;
pub mod shared;
mod surgery;
mod tabled;
mod tuning;
mod view;

use clap::{Args, Parser, Subcommand};
pub use listing::{CasesArgs, CompletionsArgs, ZooArgs};
pub use options::Common;
pub use paths::BUNDLE;
use paths::{npz_or_folder, path_of, trace_or_bundle};
pub use results::{ResultsAction, ResultsArgs};
use std::path::{Path, PathBuf};
pub use surgery::{BisectArgs, ExtractArgs};
use tabled::FromTable;
pub use tuning::{EditArgs, MeasureArgs, TuneArgs, TuningAction, TuningArgs};
pub use view::{ReportArgs, ViewArgs};
use workbench::bench::{Decoding, Timing, can_sweep};
use workbench::bundles::BundleOptions;
use workbench::compare::Against;
use workbench::inputs::Inputs;

/// The end of `weft --help`.
const FIRST_STEPS: &str = "\
First steps with a network of one's own:
  weft inspect model.onnx        inputs, operators, what is not supported
  weft run model.onnx            random inputs, or -i in.npz, or -i cat.jpg --preset imagenet
  weft bench model.onnx          latency and the time of each kernel
  weft view model.onnx           the graph before and after every pass, fusion, kernels
  weft help bench                the options of a command";

/// Weft compiles neural networks (ONNX, its own text, built-in models) to GPU compute shaders and runs them on any
/// Vulkan, Metal or DX12 device
///
/// It folds and simplifies the graph, chooses fp16 and layouts by cost, fuses elementwise chains into convolutions and
/// products, and generates a scheduled kernel for each group. Every step can be looked at.
#[derive(Parser, Debug)]
#[command(name = "weft", version, about, max_term_width = 100, after_help = FIRST_STEPS)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// List the adapters, or the named device profiles
    Devices(DevicesArgs),
    /// Show inputs, outputs, operators, parameters and MACs of a model
    Inspect(InspectArgs),
    /// Compile a model and show or write what came out
    Compile(CompileArgs),
    /// Run passes on .weft text
    Opt(OptArgs),
    /// Run a model on inputs
    Run(RunArgs),
    /// Time models
    Bench(BenchArgs),
    /// Compare a device with the CPU, with fp32, or with stored results
    Compare(CompareArgs),
    /// Say why each node is in its kernel, and what stopped the next fusion
    Explain(ExplainArgs),
    /// Write a model as ONNX, as C, as a Rust crate on wgpu, or as a web page
    Export(ExportArgs),
    /// Write a part of a model as ONNX, with the values at the cut
    Extract(ExtractArgs),
    /// Find the node, pass, schedule rule or precision choice that makes a result wrong
    Bisect(BisectArgs),
    /// Find faster schedules by measuring, and keep them for all other commands
    Tune(TuneArgs),
    /// Look at tuning databases, and join them
    Tuning(TuningArgs),
    /// Change the schedule of a kernel in an editor, time it, and keep it
    Edit(EditArgs),
    /// Look at a compilation in a window
    View(ViewArgs),
    /// Show what differs between two compile traces, or between two models
    Diff(DiffArgs),
    /// Write a compilation as one HTML page: graphs of every pass, groups, reasons, kernels
    Report(ReportArgs),
    /// File benchmarks of many machines in a folder, and show them as one HTML page
    Results(ResultsArgs),
    /// List the built-in models
    Zoo(ZooArgs),
    /// Write a script that completes commands and options in a shell
    Completions(CompletionsArgs),
    /// Run the ONNX test cases that stdin lists
    #[command(hide = true)]
    Cases(CasesArgs),
    /// Verify and time the candidates of `weft tune`
    #[command(hide = true)]
    Measure(MeasureArgs),
}

/// Inputs of a model.
pub type InputArgs = FromTable<Inputs>;

/// Options about a bundle.
pub type BundleArgs = FromTable<BundleOptions>;

/// `weft devices`
#[derive(Args, Debug)]
pub struct DevicesArgs {
    /// List the named profiles instead
    #[arg(long)]
    pub profiles: bool,
    /// List the quirks of drivers that kernels work round, and where each is in force
    #[arg(long, conflicts_with = "profiles")]
    pub quirks: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft inspect`
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// Models: paths or zoo names; or compile traces, or bundles
    #[arg(required = true)]
    pub models: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft compile`
#[derive(Args, Debug)]
pub struct CompileArgs {
    /// Models: paths or zoo names
    #[arg(required = true)]
    pub models: Vec<String>,
    /// Write the compile trace, or a bundle: the network, its weights, plans and kernels as one file that `weft run`
    /// takes
    #[arg(short, long, value_name = "F.trace|F.bundle", value_parser = trace_or_bundle())]
    pub output: Option<PathBuf>,
    /// Profiles that a bundle is made for, as `weft devices --profiles` lists them, and `cpu` [default: the device]
    #[arg(long = "for", value_name = "PROFILE,...", value_delimiter = ',')]
    pub profiles: Vec<String>,
    /// Text of the licence, which a bundle keeps [default: what the ONNX file says of it]
    #[arg(long, value_name = "FILE")]
    pub licence: Option<PathBuf>,
    /// Print these texts, or write them with --emit-dir; graph is the module after the passes; isa is what the driver
    /// of --device makes of each kernel, and
    /// comes with its statistics in tables, --json and the trace. Nothing runs: the device need not compute
    #[arg(long, value_parser = ["graph", "weft", "wgsl", "spirv", "msl", "hlsl", "isa"])]
    pub emit: Vec<String>,
    /// With --emit graph: the module after this pass, or as it came (source)
    #[arg(long, value_name = "PASS", requires = "emit")]
    pub after: Option<String>,
    /// WGSL as wgpu takes it, or as the standard has it, for browsers
    #[arg(long, value_parser = ["wgpu", "standard"], default_value = "wgpu")]
    pub dialect: String,
    /// Write every kernel as a file into this folder
    #[arg(long, value_name = "DIR")]
    pub emit_dir: Option<PathBuf>,
    /// Check the module after each pass, and read every WGSL text back
    #[arg(long)]
    pub verify: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: InputArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft opt`
#[derive(Args, Debug)]
pub struct OptArgs {
    /// The text, or a model: a path or a zoo name; `-` or nothing for stdin
    #[arg(default_value = "-")]
    pub file: String,
    /// Where to write; stdout by default
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Text to print: the module, or the kernels' WGSL
    #[arg(long, value_parser = ["weft", "wgsl"], default_value = "weft")]
    pub emit: String,
    /// WGSL as wgpu takes it, or as the standard has it, for browsers
    #[arg(long, value_parser = ["wgpu", "standard"], default_value = "wgpu")]
    pub dialect: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft run`
#[derive(Args, Debug, Default)]
pub struct RunArgs {
    /// Model: a path or a zoo name; or a bundle
    pub model: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: InputArgs,
    /// ONNX test data: input_*.pb, and output_*.pb to compare with
    #[arg(long, value_name = "DIR")]
    pub test_dir: Option<PathBuf>,
    /// Show the N largest values of a classifier's results
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub top: Option<u32>,
    /// Names of classes: one a line, or JSON
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,
    /// Where to write the results: an .npz file, or a folder for an .npy file of each
    #[arg(short, long, value_name = "out.npz|DIR", value_parser = npz_or_folder())]
    pub output: Option<PathBuf>,
    /// Intermediate tensors as further results, by the tensor's or node's name in the model (`*` matches anything);
    /// fused ones too
    #[arg(long, value_name = "NODE,...", value_delimiter = ',', conflicts_with = "test_dir")]
    pub dump: Vec<String>,
    /// Relative tolerance of --test-dir
    #[arg(long, requires = "test_dir")]
    pub rtol: Option<f64>,
    /// Tolerance of --test-dir as a share of the largest magnitude
    #[arg(long, requires = "test_dir")]
    pub atol: Option<f64>,
    /// Turn small inputs of --test-dir into constants: auto (where the import or the device needs their values), never
    #[arg(long, default_value = "auto", value_parser = ["auto", "never"])]
    pub constant_inputs: String,
    /// Count indices beyond a dimension and divisions of integers by 0, node by node, in a run of the interpreter
    #[arg(long)]
    pub check_indices: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub bundle: BundleArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft bench`
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Models: paths or zoo names; or bundles
    #[arg(required_unless_present_any = ["ceilings", "sweep"])]
    pub models: Vec<String>,
    /// Measure the device's bandwidth and FLOP/s, and store them for the column `of the roof`
    #[arg(long)]
    pub ceilings: bool,
    /// Add what the device's driver says of each kernel: registers, spills, occupancy, code, latency, ISA. On a device
    /// that compiles but does not compute, that alone, without times: any other `bench` ends with exit 5 there
    #[arg(long)]
    pub driver_stats: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: InputArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub timing: FromTable<Timing>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub decoding: FromTable<Decoding>,
    /// Write one run as a timeline for Perfetto or Chrome: upload, encoding, queue, kernels, readback
    #[arg(long, value_name = "F.json", value_parser = path_of("json"))]
    pub timeline: Option<PathBuf>,
    /// Settings to sweep: amp=off,fp16 layout=nchw,nhwc batch=1,16 device=0,cpu target=ada,apple dim=height=320,640
    /// keep=none,@list
    #[arg(long, num_args = 1.., value_name = "KEY=A,B")]
    pub sweep: Vec<String>,
    /// How results are written: a table for people, md (Markdown), csv, json
    #[arg(long, default_value = "table", value_parser = ["table", "md", "csv", "json"])]
    pub format: String,
    /// Show all kernels, and not those with the most time alone; with md and csv a row is a kernel
    #[arg(long)]
    pub per_kernel: bool,
    /// Compare with a stored --json result
    #[arg(long, value_name = "F.json")]
    pub baseline: Option<PathBuf>,
    /// Largest slowdown against --baseline; with more, the exit code is 1
    #[arg(long, default_value = "5%", requires = "baseline")]
    pub max_slowdown: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub bundle: BundleArgs,
    /// Write the compile trace with the time of each dispatch
    #[arg(short, long, value_name = "F.trace", value_parser = path_of("trace"))]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

impl BenchArgs {
    /// Models that stand behind the settings of `--sweep`, which takes all words up to the next option.
    fn take_models_from_sweep(&mut self) {
        let is_setting = |s: &String| {
            // A key without values is a slip, which is said before anything runs.
            let key = s.split_once('=').map_or_else(|| can_sweep(s).then_some(s.as_str()), |(key, _)| Some(key));
            key.is_some_and(|key| !key.contains(['/', '\\', '.']) && !Path::new(s).is_file())
        };
        let (settings, models) = std::mem::take(&mut self.sweep).into_iter().partition(is_setting);
        self.sweep = settings;
        self.models.extend::<Vec<String>>(models);
    }
}

/// `weft compare`
#[derive(Args, Debug, Clone)]
pub struct CompareArgs {
    /// Model: a path or a zoo name
    pub model: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: InputArgs,
    /// A folder of inputs, one a file: how the errors are distributed, whether the best classes agree, the worst inputs
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["files", "write_keep", "cumulative", "check_indices"]
    )]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub against: FromTable<Against>,
    /// Errors of each node with the errors before it (otherwise each node alone gets exact inputs)
    #[arg(long)]
    pub cumulative: bool,
    /// Write the names of nodes to keep in f32
    #[arg(long, value_name = "F")]
    pub write_keep: Option<PathBuf>,
    /// Write the compile trace with the error of each node; with --data, of the worst input, and with the ranges of
    /// values in f16 over all inputs
    #[arg(short, long, value_name = "F.trace", value_parser = path_of("trace"))]
    pub output: Option<PathBuf>,
    /// Count indices beyond a dimension and divisions of integers by 0, node by node, in a run of the interpreter
    #[arg(long)]
    pub check_indices: bool,
    /// Compare with another runtime, and show its time beside ours: onnxruntime, which your Python has to have. It
    /// runs in a process of its own
    #[arg(long, value_name = "RUNTIME", value_parser = ["onnxruntime"], conflicts_with_all = ["against", "data"])]
    pub peer: Option<String>,
    /// The Python that has the other runtime [default: python3 of PATH]
    #[arg(long, value_name = "PATH", requires = "peer")]
    pub peer_python: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft explain`
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// Model: a path or a zoo name; or a compile trace, or a bundle (--target chooses one of its profiles)
    pub model: String,
    /// One source node
    #[arg(long)]
    pub node: Option<String>,
    /// One kernel, by its name: what its schedule chose, and what the other choices are estimated to cost
    #[arg(long, value_name = "NAME", conflicts_with_all = ["node", "sort"])]
    pub kernel: Option<String>,
    /// Show what fusion left: results that go from kernel to kernel through memory, why, and what one kernel would gain
    #[arg(long, conflicts_with_all = ["node", "kernel", "sort"])]
    pub left: bool,
    /// A table of the groups by what was measured of them: their times, or their errors
    #[arg(long, value_name = "time|error", value_parser = ["time", "error"])]
    pub sort: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: InputArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft export`
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// Model: a path or a zoo name
    pub model: String,
    /// Where to write
    #[arg(short, long, value_name = "M.onnx", value_parser = path_of("onnx"))]
    #[arg(required_unless_present_any = ["c", "rust", "web"])]
    pub output: Option<PathBuf>,
    /// Write the compiled network as C into this folder, which a C compiler builds with nothing else: kernels of this
    /// machine's CPU, weights beside them
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "optimized"])]
    pub c: Option<PathBuf>,
    /// Write the compiled network as a crate into this folder, which depends on wgpu alone: kernels of the device or of
    /// --target as WGSL, weights beside them
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "optimized", "c"])]
    pub rust: Option<PathBuf>,
    /// Write the compiled network as a page into this folder, which runs and times it on WebGPU in a browser: kernels
    /// of --target (of `baseline`, which every browser takes, without it), weights and a runner in JavaScript
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "optimized", "c", "rust"])]
    pub web: Option<PathBuf>,
    /// Write the optimised graph, fused groups as ONNX functions; without Winograd's transforms, which ONNX has no
    /// operators for
    #[arg(long)]
    pub optimized: bool,
    /// With --amp: inputs and results of the file are f16 too; otherwise they keep their types
    #[arg(long, conflicts_with_all = ["c", "rust", "web"])]
    pub f16_ports: bool,
    /// Write constants into a file beside the model, M.onnx.data, as is done for more than 2 GB of them
    #[arg(long, conflicts_with_all = ["c", "rust", "web"])]
    pub external_data: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: InputArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft diff`
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// The first trace, or the first model: a path or a zoo name
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// The second trace or model
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Of models: results that differ by at most this share of their norm are equal [default: 1e-4]
    #[arg(long)]
    pub rtol: Option<f64>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}
