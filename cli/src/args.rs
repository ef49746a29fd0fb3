//! The command line.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Weft: compiles neural networks to GPU compute shaders and runs them on any Vulkan, Metal or DX12 device.
#[derive(Parser, Debug)]
#[command(name = "weft", version, about, max_term_width = 100, disable_help_subcommand = true)]
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
    /// Write a model as ONNX
    Export(ExportArgs),
    /// Look at a compilation in a window
    View(ViewArgs),
    /// Show what differs between two compile traces
    Diff(DiffArgs),
    /// List the built-in models
    Zoo(ZooArgs),
    /// Run the ONNX test cases that stdin lists
    #[command(hide = true)]
    Cases(CasesArgs),
}

/// Options that mean the same everywhere.
#[derive(Args, Debug, Clone, Default)]
pub struct Common {
    /// Device: auto, cpu, a number, a name, or vulkan:N
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Compile for a named profile instead of a device that is here
    #[arg(long, value_name = "PROFILE")]
    pub target: Option<String>,
    /// Mixed precision: off, fp16, auto
    #[arg(long, default_value = "off", value_parser = ["off", "fp16", "auto"])]
    pub amp: String,
    /// Keep nodes whose name matches in f32 (`*` matches anything); @FILE reads a pattern a line
    #[arg(long = "keep-f32", value_name = "PATTERN")]
    pub keep_f32: Vec<String>,
    /// Layout: auto, nchw, nhwc, nchw4c, nchw8c, nchw16c, none
    #[arg(long, default_value = "auto", value_parser = ["auto", "nchw", "nhwc", "nchw4c", "nchw8c", "nchw16c", "none"])]
    pub layout: String,
    /// Pin nodes to a layout (`*` in the name matches anything)
    #[arg(long = "pin-layout", value_name = "NODE=LAYOUT")]
    pub pin_layout: Vec<String>,
    /// Measured times of kernels for the choice of layouts (as benches' layout_choice writes them)
    #[arg(long = "layout-costs", value_name = "F.json")]
    pub layout_costs: Option<PathBuf>,
    /// Fusion: full, classic, off
    #[arg(long, default_value = "full", value_parser = ["full", "classic", "off"])]
    pub fuse: String,
    /// Optimisation level 0..3
    #[arg(short = 'O', value_name = "LEVEL", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub opt_level: u8,
    /// Passes never to run
    #[arg(long, value_name = "PASS")]
    pub disable_pass: Vec<String>,
    /// A pipeline of one's own
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub passes: Vec<String>,
    /// Tuning database, or off
    #[arg(long, default_value = "off")]
    pub tuning: String,
    /// Batch size
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: Option<u32>,
    /// Size of a named dimension
    #[arg(long, value_name = "NAME=N")]
    pub dim: Vec<String>,
    /// Shape of an input
    #[arg(long, value_name = "INPUT=1x3x224x224")]
    pub shape: Vec<String>,
    /// Take the constants that a .weft text names without data from this model, compiled with the same options
    #[arg(long, value_name = "MODEL")]
    pub weights: Option<String>,
    /// Seed of weights of zoo models and of random inputs
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Write JSON to stdout, or to a file
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "-", value_name = "FILE")]
    pub json: Option<String>,
    /// Print nothing but results
    #[arg(short, long)]
    pub quiet: bool,
    /// Print more
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// `weft devices`
#[derive(Args, Debug)]
pub struct DevicesArgs {
    /// List the named profiles instead
    #[arg(long)]
    pub profiles: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft inspect`
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// Models: paths or zoo names; or compile traces
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
    /// Write the compile trace
    #[arg(short, long, value_name = "F.trace")]
    pub output: Option<PathBuf>,
    /// What to print, or to write with --emit-dir
    #[arg(long, value_parser = ["weft", "wgsl", "spirv", "msl", "hlsl"])]
    pub emit: Vec<String>,
    /// Write every kernel as a file into this folder
    #[arg(long, value_name = "DIR")]
    pub emit_dir: Option<PathBuf>,
    /// Check the module after each pass, and read every WGSL text back
    #[arg(long)]
    pub verify: bool,
    /// Inputs whose shapes decide open dimensions
    #[arg(short, long)]
    pub input: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft opt`
#[derive(Args, Debug)]
pub struct OptArgs {
    /// The text; `-` or nothing for stdin
    #[arg(default_value = "-")]
    pub file: String,
    /// Where to write; stdout by default
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// What to print instead of the module: the kernels' WGSL
    #[arg(long, value_parser = ["weft", "wgsl"], default_value = "weft")]
    pub emit: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft run`
#[derive(Args, Debug, Default)]
pub struct RunArgs {
    /// Model: a path or a zoo name
    pub model: String,
    /// Inputs by name
    #[arg(short, long, value_name = "in.npz")]
    pub input_npz: Option<PathBuf>,
    /// One input
    #[arg(long = "input", value_name = "NAME=FILE.npy")]
    pub inputs: Vec<String>,
    /// ONNX test data: input_*.pb, and output_*.pb to compare with
    #[arg(long, value_name = "DIR")]
    pub test_dir: Option<PathBuf>,
    /// Where to write the results
    #[arg(short, long, value_name = "out.npz")]
    pub output: Option<PathBuf>,
    /// Relative tolerance of --test-dir
    #[arg(long)]
    pub rtol: Option<f64>,
    /// Absolute tolerance of --test-dir
    #[arg(long)]
    pub atol: Option<f64>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft bench`
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Models: paths or zoo names
    #[arg(required = true)]
    pub models: Vec<String>,
    /// Inputs by name; random ones otherwise
    #[arg(short, long, value_name = "in.npz")]
    pub input: Option<PathBuf>,
    /// Runs before the timed ones
    #[arg(long, default_value_t = 10)]
    pub warmup: usize,
    /// Timed runs
    #[arg(long, default_value_t = 100)]
    pub runs: usize,
    /// Timed for so long instead: 3s, 500ms
    #[arg(long)]
    pub duration: Option<String>,
    /// Settings to sweep: amp=off,fp16 layout=nchw,nhwc batch=1,16
    #[arg(long, num_args = 1.., value_name = "KEY=A,B")]
    pub sweep: Vec<String>,
    /// Compare with a stored --json result
    #[arg(long, value_name = "F.json")]
    pub baseline: Option<PathBuf>,
    /// How much slower than the baseline may be
    #[arg(long, default_value = "5%")]
    pub max_slowdown: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft compare`
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// Model: a path or a zoo name
    pub model: String,
    /// Inputs by name; random ones otherwise
    #[arg(short, long, value_name = "in.npz")]
    pub input: Option<PathBuf>,
    /// What to compare with: cpu, fp32, or a file of results
    #[arg(long, default_value = "cpu", value_name = "cpu|fp32|ref.npz")]
    pub against: String,
    /// Relative tolerance
    #[arg(long)]
    pub rtol: Option<f64>,
    /// Absolute tolerance, as a share of the largest magnitude
    #[arg(long)]
    pub atol: Option<f64>,
    /// Errors of each node with the errors before it (otherwise each node alone gets exact inputs)
    #[arg(long)]
    pub cumulative: bool,
    /// Write the names of nodes to keep in f32
    #[arg(long, value_name = "F")]
    pub write_keep: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft explain`
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// Model: a path or a zoo name; or a compile trace
    pub model: String,
    /// One source node
    #[arg(long)]
    pub node: Option<String>,
    /// Inputs whose shapes decide open dimensions
    #[arg(short, long)]
    pub input: Option<PathBuf>,
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
    #[arg(short, long, value_name = "M.onnx")]
    pub output: PathBuf,
    /// Write the optimised graph, fused groups as ONNX functions
    #[arg(long)]
    pub optimized: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft view`
#[derive(Args, Debug)]
pub struct ViewArgs {
    /// Model: a path or a zoo name, which is compiled; or a compile trace
    pub model: String,
    /// Inputs whose shapes decide open dimensions
    #[arg(short, long)]
    pub input: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft diff`
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// The first trace
    #[arg(value_name = "A.trace")]
    pub a: PathBuf,
    /// The second trace
    #[arg(value_name = "B.trace")]
    pub b: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft zoo`
#[derive(Args, Debug)]
pub struct ZooArgs {
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
