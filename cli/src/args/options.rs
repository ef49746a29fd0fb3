//! Options that mean the same everywhere.

use super::shared::{COMPILER, DEVICE, MODEL, OUTPUT};
use crate::said::State;
use clap::Args;
use compiler::compile::KernelTimes;
use compiler::passes::PassDef;
use compiler::schedule::ScheduleProvider;
use runtime_gpu::HostFunctions;
use std::path::PathBuf;
use std::sync::Arc;

/// A schedule provider of another crate.
#[derive(Clone, Default)]
pub struct Schedules(pub Option<Arc<dyn ScheduleProvider>>);

impl std::fmt::Debug for Schedules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "one's own" } else { "the rules" })
    }
}

/// Times that decide about layouts and fusion.
#[derive(Clone, Default)]
pub struct Times(pub Option<Arc<KernelTimes>>);

impl std::fmt::Debug for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "given" } else { "of files" })
    }
}

/// `NAME=off` or `NAME=on`.
fn quirk(text: &str) -> Result<(String, bool), String> {
    let (name, on) = match text.split_once('=') {
        Some((name, "off")) => (name, false),
        Some((name, "on")) => (name, true),
        _ => return Err("give NAME=off or NAME=on".into()),
    };
    // The table may get more rows before a profile is made, which refuses unknown names.
    Ok((name.to_string(), on))
}

/// Options that mean the same everywhere.
#[derive(Args, Debug, Clone, Default)]
pub struct Common {
    /// Device: auto, cpu, interpreter (slow: the reference), a number, a name, or vulkan:N
    #[arg(long, env = "WEFT_DEVICE", hide_env_values = true, default_value = "auto", help_heading = DEVICE)]
    pub device: String,
    /// Threads of the CPU, and of external targets that have threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = DEVICE)]
    pub threads: Option<u32>,
    /// Compile for a named profile; what runs on a device is compiled as far as that device can run it
    #[arg(long, value_name = "PROFILE", help_heading = DEVICE)]
    pub target: Option<String>,
    /// Schedule rules to ask before all others, whether or not they suit the device
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        hide_possible_values = true,
        value_parser = clap::builder::PossibleValuesParser::new(compiler::schedule::rules::names()),
        help_heading = COMPILER
    )]
    pub rules: Vec<String>,
    /// Kernels for some sizes only, where sizes are open: auto (where the estimate says that they pay), all, off
    #[arg(long, default_value = "auto", value_parser = ["auto", "all", "off"], help_heading = COMPILER)]
    pub versions: String,
    /// NaN in Max, Min, Relu, Clip, Sign and pools on a device: keep, or fast (cheaper kernels that may lose it)
    #[arg(long, default_value = "keep", value_parser = ["keep", "fast"], help_heading = COMPILER)]
    pub nan: String,
    /// Switch a quirk of the driver off or on (`weft devices --quirks` lists them)
    #[arg(long, value_name = "NAME=off", value_parser = quirk, help_heading = COMPILER)]
    pub quirk: Vec<(String, bool)>,
    /// Mixed precision: off, fp16, auto
    #[arg(long, default_value = "off", value_parser = ["off", "fp16", "auto"], help_heading = COMPILER)]
    pub amp: String,
    /// Keep nodes whose name matches in f32 (`*` matches anything); @FILE reads a pattern a line
    #[arg(long = "keep-f32", value_name = "PATTERN", help_heading = COMPILER)]
    pub keep_f32: Vec<String>,
    /// Layout: auto, nchw, nhwc, nchw4c, nchw8c, nchw16c, none
    #[arg(
        long,
        default_value = "auto",
        value_parser = ["auto", "nchw", "nhwc", "nchw4c", "nchw8c", "nchw16c", "none"],
        help_heading = COMPILER
    )]
    pub layout: String,
    /// Pin nodes to a layout (`*` in the name matches anything)
    #[arg(long = "pin-layout", value_name = "NODE=LAYOUT", help_heading = COMPILER)]
    pub pin_layout: Vec<String>,
    /// Fusion: full, classic, off
    #[arg(long, default_value = "full", value_parser = ["full", "classic", "off"], help_heading = COMPILER)]
    pub fuse: String,
    /// Optimisation level 0..3
    #[arg(
        short = 'O',
        long,
        value_name = "LEVEL",
        default_value_t = 3,
        value_parser = clap::value_parser!(u8).range(0..=3),
        help_heading = COMPILER
    )]
    pub opt_level: u8,
    /// Passes never to run
    #[arg(long, value_name = "PASS", help_heading = COMPILER)]
    pub disable_pass: Vec<String>,
    /// A pipeline of one's own
    #[arg(long, value_delimiter = ',', value_name = "A,B", help_heading = COMPILER)]
    pub passes: Vec<String>,
    /// Let host functions take the place of nodes, by name (`*` matches anything) or as op:NAME
    #[arg(long = "host-call", value_name = "NODE=FUNCTION", help_heading = COMPILER)]
    pub host_call: Vec<String>,
    /// A library of host functions, as docs/weft_host_functions.h declares it
    #[arg(long = "host-functions", value_name = "LIBRARY", help_heading = COMPILER)]
    pub host_functions: Vec<PathBuf>,
    /// Let external targets run what they support, the preferred one first, each with options: dnnl:min_macs=1e6
    #[arg(long, value_name = "TARGET,...", value_delimiter = ',', help_heading = COMPILER)]
    pub external: Vec<String>,
    /// Folder of compiled models (which `run` takes instead of compiling again) and drivers' pipelines, or off
    /// [default: WEFT_CACHE (a folder or off), else the user's cache folder]
    #[arg(long, value_name = "DIR", help_heading = COMPILER)]
    pub cache: Option<String>,
    /// Keep weights there too, as they go to the device
    #[arg(long, help_heading = COMPILER)]
    pub cache_weights: bool,
    /// Database of tuned choices (`weft tune` makes it), off, or require [default: tuning.jsonl in the cache folder]
    #[arg(long, value_name = "FILE", help_heading = COMPILER)]
    pub tuning: Option<String>,
    /// Batch size
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), help_heading = MODEL)]
    pub batch: Option<u32>,
    /// Size of a named dimension; with a range it stays open, and one compilation serves all sizes in it: NAME=0..64,
    /// or NAME=32..640:32 for every 32nd size, or NAME=open for any
    #[arg(long, value_name = "NAME=N", help_heading = MODEL)]
    pub dim: Vec<String>,
    /// Shape of an input
    #[arg(long, value_name = "INPUT=1x3x224x224", help_heading = MODEL)]
    pub shape: Vec<String>,
    /// Take the constants that a .weft text names without data from this model, compiled with the same options
    #[arg(long, value_name = "MODEL", help_heading = MODEL)]
    pub weights: Option<String>,
    /// Seed of weights of zoo models and of random inputs
    #[arg(long, default_value_t = 0, help_heading = MODEL)]
    pub seed: u64,
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
    /// Print nothing but results
    #[arg(short, long, help_heading = OUTPUT)]
    pub quiet: bool,
    /// Print more
    #[arg(short, long, action = clap::ArgAction::Count, help_heading = OUTPUT)]
    pub verbose: u8,
    /// Names of the shared options that stand on the command line.
    #[arg(skip)]
    pub given: Vec<String>,
    /// Who schedules kernels, if not the rules.
    #[arg(skip)]
    pub schedules: Schedules,
    /// Passes of one's own, which `--passes` may name.
    #[arg(skip)]
    pub registry: Vec<PassDef>,
    /// The host functions there are.
    #[arg(skip)]
    pub functions: HostFunctions,
    /// Messages and times so far; clones share them.
    #[arg(skip)]
    pub state: State,
    /// A text may run code of the machine.
    #[arg(skip)]
    pub allow_native: bool,
    /// Measured times, if not those of files.
    #[arg(skip)]
    pub times: Times,
}

impl Common {
    /// True when the command line names a device.
    pub fn names_device(&self) -> bool {
        self.device != "auto" && self.given.iter().any(|id| id == "device")
    }
}
