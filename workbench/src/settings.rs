//! The options that mean the same everywhere.

use crate::error::{Error, Result};
use crate::options;
use crate::options::{Heading, Opt, Tabled, at_least_one, within};
use crate::said::State;
use crate::watcher::Watched;
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

options! {
    /// How models are loaded, compiled and run. Everything has a default.
    pub struct Settings {
        /// Device: auto, cpu (cpu:avx2 with that instruction set), interpreter (slow: the reference), a number, a name, or
        /// vulkan:N
        device: String = "auto" in Device { env: Some("WEFT_DEVICE") };
        /// Threads of the CPU, and of external targets that have threads [default: one for each core]
        threads: Option<u32> = "" in Device { value: "N", check: |t| within(t, 1, 1024) };
        /// Device profile to compile for (`weft devices --profiles`), or its file `.json`; if the kernels run here, as
        /// far as --device can run them
        target: Option<String> = "" in Device { value: "PROFILE" };
        /// Schedule rules to try first, also where the device prefers others; one that cannot be applied is passed over
        rules: Vec<String> = "" in Compiler {
            value: "NAME,...", listed: true, choices: compiler::schedule::rules::names, hides_choices: true };
        /// Kernels for some sizes only, where sizes are open: auto (where the estimate says that they pay), all, off
        versions: String = "auto" in Compiler { choices: || vec!["auto", "all", "off"] };
        /// NaN in Max, Min, Relu, Clip, Sign and pools on a device: keep, or fast (cheaper kernels that may lose it)
        nan: String = "keep" in Compiler { choices: || vec!["keep", "fast"] };
        /// Switch a quirk of the driver off or on (`weft devices --quirks` lists them)
        quirk: Vec<(String, bool)> = "" in Compiler { value: "NAME=off|on" };
        /// Mixed precision: off, fp16, auto
        amp: String = "off" in Compiler { choices: || vec!["off", "fp16", "auto"] };
        /// Keep nodes whose name matches in f32 (`*` matches anything); @FILE reads a pattern a line
        keep_f32: Vec<String> = "" in Compiler { value: "PATTERN", path: true };
        /// Layout: auto, nchw, nhwc, nchw4c, nchw8c, nchw16c, none
        layout: String = "auto" in Compiler {
            choices: || vec!["auto", "nchw", "nhwc", "nchw4c", "nchw8c", "nchw16c", "none"] };
        /// Layout of single nodes by their names in the model (`*` matches anything): nchw, nhwc, packed
        pin_layout: Vec<String> = "" in Compiler { value: "NODE=LAYOUT" };
        /// Fusion: full, classic, off
        fuse: String = "full" in Compiler { choices: || vec!["full", "classic", "off"] };
        /// Optimisation level 0..3
        opt_level: u8 = "3" in Compiler { value: "LEVEL", short: Some('O'), check: |t| within(t, 0, 3) };
        /// Passes to leave out, by name
        disable_pass: Vec<String> = "" in Compiler { value: "PASS" };
        /// Pipeline to run instead of the default: names of passes, with options as in 'fuse-ops {mode=classic}'
        passes: Vec<String> = "" in Compiler { value: "A,B", listed: true };
        /// Host functions in place of nodes: NODE=FUNCTION (`*` matches anything), or op:relu=FUNCTION with Weft's
        /// names of operators
        host_call: Vec<String> = "" in Compiler { value: "NODE=FUNCTION" };
        /// A library of host functions, as docs/weft_host_functions.h declares it
        host_functions: Vec<PathBuf> = "" in Compiler { value: "LIBRARY", path: true };
        /// Other libraries that run the nodes they support, the preferred one first (as execution providers do): dnnl,
        /// c, interpreter; options as in dnnl:min_macs=1e6
        external: Vec<String> = "" in Compiler { value: "TARGET,...", listed: true };
        /// Folder of compiled models (which `run` takes instead of compiling again) and drivers' pipelines, or off
        /// [default: WEFT_CACHE (a folder or off), else the user's cache folder]
        cache: Option<String> = "" in Files { value: "DIR", path: true };
        /// Store weights in the cache folder too, as they are uploaded to the device
        cache_weights: bool = "" in Files;
        /// Database of tuned choices (from `weft tune`), off, or require (an error where it has nothing for the device)
        /// [default: tuning.jsonl in the cache folder]
        tuning: Option<String> = "" in Files { value: "FILE", path: true };
        /// Batch size
        batch: Option<u32> = "" in Model { check: at_least_one };
        /// Size of a named dimension: a number, a range A..B (ends included) or A..B:STEP, or open. One compilation
        /// serves all sizes of a range; random inputs take the least
        dim: Vec<String> = "" in Model { value: "NAME=N", check: size };
        /// Shape of an input
        shape: Vec<String> = "" in Model { value: "INPUT=1x3x224x224" };
        /// Model with the constants of a .weft text that was written without their data; compile options must be the
        /// same
        weights: Option<String> = "" in Model { value: "MODEL", path: true };
        /// Seed of weights of zoo models and of random inputs
        seed: u64 = "0" in Model;
    }
    also {
        /// Names of the options that were asked for, whatever their values.
        given: Vec<String>,
        /// Names of the options that a file of defaults gave: where they change nothing, they are no error.
        defaulted: Vec<String>,
        /// Who schedules kernels, if not the rules.
        schedules: Schedules,
        /// Passes of one's own, which `passes` may name.
        registry: Vec<PassDef>,
        /// The host functions there are.
        functions: HostFunctions,
        /// Messages and times so far; clones share them.
        state: State,
        /// A text may run code of the machine.
        allow_native: bool,
        /// Measured times, if not those of files.
        times: Times,
        /// Who watches the work.
        watch: Watched,
    }
}

/// A size of a dimension, by name.
fn size(text: &str) -> Result<(), String> {
    let (name, value) = text.rsplit_once('=').ok_or("needs NAME=VALUE")?;
    weft::Sizes::default().set_dim(name, value).map_err(str::to_string)
}

impl Settings {
    /// The options that a compilation was asked for with: those whose values are not the default's.
    pub fn asked(&self) -> Vec<(String, String)> {
        let of_compilation = |row: &Opt<Settings>| row.heading == Heading::Compiler || row.name == "target";
        let asked = self.changed().filter(|row| of_compilation(row));
        asked.flat_map(|row| row.given(self).into_iter().map(|t| (row.name.to_string(), t))).collect()
    }
    /// Refuses options if `what` was read, which is compiled already; those of `taken` are taken all the same.
    ///
    /// # Errors
    /// The first other one that was asked for.
    pub fn refuse_but(&self, what: &str, taken: &[&str]) -> Result<()> {
        let asked = self.given.iter().filter_map(|id| Settings::row(id));
        match asked.into_iter().find(|row| !taken.contains(&row.name)) {
            None => Ok(()),
            Some(row) => {
                let why = format!("{} does not apply to {what}, which is compiled already", row.written());
                Err(Error::usage(why).help("compile the model itself with it"))
            }
        }
    }
    /// For a program that asks for what it wants: no folder of the user's is read or written.
    pub fn of_program() -> Settings {
        Settings { cache: Some("off".into()), tuning: Some("off".into()), ..Settings::default() }
    }
    /// Takes an option by name, and notes that it was asked for.
    ///
    /// # Errors
    /// None of that name; a text that it does not take.
    pub fn ask(&mut self, name: &str, text: &str) -> Result<(), String> {
        let row = Settings::row(name).ok_or_else(|| format!("there is no option `{name}`"))?;
        row.set(self, text)?;
        if !self.given.iter().any(|g| g == row.name) {
            self.given.push(row.name.into());
        }
        Ok(())
    }
    /// True when the option stands in a file of defaults, and was not asked for.
    pub fn is_default(&self, name: &str) -> bool {
        self.defaulted.iter().any(|id| id == name)
    }
    /// The same, with nobody who watches.
    pub fn silent(&self) -> Settings {
        Settings { watch: Watched::default(), ..self.clone() }
    }
    /// True when the device was asked for.
    pub fn names_device(&self) -> bool {
        self.device != "auto" && self.given.iter().any(|id| id == "device")
    }
}
