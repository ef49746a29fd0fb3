//! A compiled model on a device, or in the interpreter.

use crate::error::{Error, Result, panic_text};
use crate::precision::{calibrated, faster_of_both, keep_list};
use crate::progress::{Progress, log_once};
use crate::settings::Settings;
use compiler::attr::Attrs;
use compiler::calibrate::Limits;
use compiler::compile::{CompileError, CompileOptions, Compiled, compile};
use compiler::graph::{Function, Module, NodeId};
use compiler::interpreter::Interpreter;
use compiler::name::Name;
use compiler::passes::{
    AmpMode, Clock, FuseMode, LayoutMode, PASSES, PassErrorKind, PipelineOptions, default_pipeline,
};
use compiler::profile::{DeviceProfile, Nan};
use compiler::schedule::{ScheduleOptions, Versions};
use compiler::tensor::Tensor;
use compiler::text::print_module;
use runtime_gpu::{DeviceChoice, Gpu, GpuError};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use weft::Extensions;
pub use weft::INTERPRETER;
use weft::{Cache, Model, Options, Session, Watch};

/// Where models run.
pub type Device = weft::Device;

/// The process's clock.
pub struct WallClock(Instant);
impl WallClock {
    /// Starts at zero.
    pub fn new() -> Arc<WallClock> {
        Arc::new(WallClock(Instant::now()))
    }
}
impl Clock for WallClock {
    fn now_ms(&self) -> f64 {
        self.0.elapsed().as_secs_f64() * 1e3
    }
}

/// Opens what `--device` names to run models there, and says on stderr which and why.
///
/// # Errors
/// No such device, and one that does not compute.
pub fn open_device(settings: &Settings) -> Result<Device> {
    let device = open_to_compile(settings)?;
    if let Device::Gpu(gpu) = &device {
        gpu.check_computes()?;
    }
    Ok(device)
}

/// As [`open_device`], for what runs nothing: the device need not compute.
///
/// # Errors
/// No such device.
pub fn open_to_compile(settings: &Settings) -> Result<Device> {
    let device = match settings.device.as_str() {
        "interpreter" => {
            log_once(settings, "device: the interpreter, as asked");
            Device::Interpreter
        }
        name if Device::is_processor(name) => processor(settings, name, "as asked")?,
        _ => adapter(settings)?,
    };
    let asks_threads = settings.threads.is_some() && !settings.is_default("threads");
    if asks_threads && !matches!(device, Device::Cpu(_)) && !crate::external::use_threads(settings) {
        let text = format!("--threads is for the CPU, and the device is {}", device.label());
        return Err(Error::usage(text).help("add `--device cpu`"));
    }
    Ok(device)
}

/// The processor, with the threads of `--threads`.
fn processor(settings: &Settings, name: &str, why: &str) -> Result<Device> {
    let device = Device::with_threads(name, settings.threads.map_or(0, |n| n as usize))?;
    log_once(settings, format!("device: {}, {why}", device.label()));
    Ok(device)
}

/// The adapter that `--device` names; for `auto` without a GPU the processor.
fn adapter(settings: &Settings) -> Result<Device> {
    let choice = DeviceChoice::parse(&settings.device);
    match Gpu::open(&choice) {
        Ok(gpu) => {
            let d = &gpu.description;
            let why = if choice == DeviceChoice::Auto { "the best GPU" } else { "as asked" };
            log_once(settings, format!("device: {} ({}, {}), {why}", d.name, d.backend, d.driver));
            // A compilation for another device does not need this device's figures.
            let here = settings.target.is_none();
            Ok(Device::Gpu(if here { crate::ceilings::complete(gpu, settings) } else { Arc::new(gpu) }))
        }
        Err(GpuError::NoDevice { there, .. }) if choice == DeviceChoice::Auto => {
            let shaders = if there.is_empty() { "" } else { "; `--device 0` runs shaders on a software driver" };
            processor(settings, "cpu", &format!("no GPU: running on the CPU{shaders}"))
        }
        Err(e) => Err(e.into()),
    }
}

/// The pass that prints the module.
pub const PRINTS: &str = "print-ir";

/// Passes and modes from the command line.
pub fn pipeline_options(settings: &Settings) -> Result<PipelineOptions> {
    let passes = named_passes(settings)?;
    let names = passes.iter().map(|p| p.0.clone()).collect();
    let mut config = crate::layout_options::pass_options(settings)?;
    // Each `print-ir` has a label of its own, which who shows the texts reads.
    for (name, options) in passes.into_iter().filter(|p| !p.1.is_empty() && p.0 != PRINTS) {
        if config.iter().any(|c| c.0 == name && c.1 != options) {
            return Err(Error::usage(format!("--passes: {name} has other options in the same command"))
                .help("`weft opt` runs one pass after another, each with its own options"));
        }
        config.push((name, options));
    }
    Ok(PipelineOptions {
        opt_level: settings.opt_level,
        fuse: FuseMode::parse(&settings.fuse).unwrap_or(FuseMode::Full),
        layout: LayoutMode::parse(&settings.layout).unwrap_or(LayoutMode::Auto),
        amp: AmpMode::parse(&settings.amp).unwrap_or(AmpMode::Off),
        keep_f32: keep_list(settings)?,
        alter_layouts: vec![],
        config,
        disabled: settings.disable_pass.clone(),
        passes: (!settings.passes.is_empty()).then_some(names),
        registry: settings.registry.clone(),
        own: vec![],
        scheduling: scheduling(settings),
        asked: settings.asked(),
    })
}

/// The passes of `--passes`, with their options: `fold-constants,fuse-ops {mode=classic}`. The command line has split
/// the list at every comma, those between options included.
///
/// # Errors
/// A text that is no list of passes.
pub fn named_passes(settings: &Settings) -> Result<Vec<(String, Attrs)>> {
    compiler::text::parse_pipeline(&settings.passes.join(","))
        .map_err(|e| Error::usage(format!("--passes: {e}")).help("as in: fold-constants,fuse-ops {mode=classic}"))
}

/// Options of the schedule rules by `--rules` and `--versions`.
pub fn scheduling(settings: &Settings) -> ScheduleOptions {
    let versions = Versions::parse(&settings.versions).unwrap_or_default();
    ScheduleOptions { rules: settings.rules.clone(), versions, ..ScheduleOptions::default() }
}

/// Refuses names of passes that there are none of, before any work is done.
///
/// # Errors
/// The first such name, with the passes there are.
pub fn check_passes(settings: &Settings, extensions: &Extensions) -> Result<()> {
    let known = || extensions.passes.iter().chain(PASSES).map(|p| p.name);
    match settings.disable_pass.iter().find(|d| !known().any(|k| k == d.as_str())) {
        None => Ok(()),
        Some(name) => Err(Error::usage(format!("--disable-pass {name}: no such pass"))
            .help(format!("there are: {}", known().collect::<Vec<_>>().join(", ")))),
    }
}

/// The profile to compile for if nothing runs: that of `--target` (no such device is needed, unless `--device` names
/// one that must be able to run the result), else that of the device.
pub fn target_profile(settings: &Settings) -> Result<DeviceProfile> {
    match &settings.target {
        Some(name) if !settings.names_device() => {
            let profile = profile_on(settings, &Device::Interpreter)?;
            log_once(settings, format!("device: none; for the profile {name}"));
            Ok(profile)
        }
        _ => profile_on(settings, &open_to_compile(settings)?),
    }
}

/// The profile to compile for if the result runs on `device`: that of `--target`, limited to the device, else that of
/// the device. The interpreter has no limits.
pub fn profile_on(settings: &Settings, device: &Device) -> Result<DeviceProfile> {
    let profile = device.profile_as(settings.target.as_deref())?;
    let nan = Nan::parse(&settings.nan).unwrap_or_default();
    let mut quirks = profile.quirks.clone();
    settings.quirk.iter().try_for_each(|(name, on)| quirks.set(name, *on)).map_err(Error::usage)?;
    let profile = crate::tuning::calibrated(settings, DeviceProfile { nan, quirks, ..profile })?;
    crate::tuning::check_required(settings, &profile)?;
    Ok(if settings.external.is_empty() { profile } else { weft::speed::with_arithmetic(profile) })
}

/// How to compile with these passes and modes for a device.
///
/// # Errors
/// Measured costs that cannot be read.
pub fn compile_options(
    pipeline: PipelineOptions,
    settings: &Settings,
    profile: &DeviceProfile,
) -> Result<CompileOptions> {
    let measurements = crate::layout_options::measurements(settings, profile)?;
    let dims = crate::dims::declared_ranges(settings)?;
    Ok(CompileOptions {
        pipeline,
        clock: Some(WallClock::new()),
        verify: false,
        record: false,
        measurements,
        dims,
        keep: None,
        schedules: settings.schedules.0.clone(),
    })
}

/// Passes and modes for a module: with `--amp auto`, calibrated on `inputs`.
pub fn pipeline_for(
    module: &Module,
    settings: &Settings,
    profile: &DeviceProfile,
    inputs: &[Tensor],
) -> Result<PipelineOptions> {
    Ok(calibrated_pipeline(module, settings, profile, inputs)?.0)
}

/// As [`pipeline_for`], with names of the nodes that calibration keeps in f32; where f16 takes longer here, it is off.
pub fn calibrated_pipeline(
    module: &Module,
    settings: &Settings,
    profile: &DeviceProfile,
    inputs: &[Tensor],
) -> Result<(PipelineOptions, Vec<Name>)> {
    if settings.amp != "off" && !profile.model().shaders {
        let text = "the processor computes in f32: errors are as with f16, times say nothing about a GPU (--device)";
        log_once(settings, format!("note: --amp {}: {text}", settings.amp));
    }
    let (pipeline, kept) = chosen_pipeline(module, settings, profile, inputs)?;
    if settings.amp != "auto" {
        return Ok((pipeline, kept));
    }
    let (here, host_functions) = (Some(profile.clone()), settings.functions.clone());
    let compile = compile_options(pipeline.clone(), settings, profile)?;
    let options = Options { profile: here, pipeline, compile, host_functions, ..Options::default() };
    faster_of_both(module, settings, options, kept, inputs)
}

/// As [`calibrated_pipeline`], where nothing runs here: nothing is said about times.
///
/// # Errors
/// As there; a keep list that names nodes which are not there.
pub fn chosen_pipeline(
    module: &Module,
    settings: &Settings,
    profile: &DeviceProfile,
    inputs: &[Tensor],
) -> Result<(PipelineOptions, Vec<Name>)> {
    let settings = &crate::node_names::resolved(settings, module)?;
    let mut pipeline = pipeline_options(settings)?;
    compiler::passes::mixed_precision::check_listed(module, &pipeline.keep_f32).map_err(Error::usage)?;
    if pipeline.amp != AmpMode::Auto {
        return Ok((pipeline, vec![]));
    }
    let found = calibrated(module, settings, &pipeline, profile, inputs, &Limits::default())?;
    found.apply(&mut pipeline);
    Ok((pipeline, found.listed()))
}

/// Compiles for a profile, with progress. If Weft itself fails, a reproducer is written, and the error names it.
pub fn compile_with(
    module: Module,
    options: &CompileOptions,
    settings: &Settings,
    profile: &DeviceProfile,
) -> Result<Compiled, CompileError> {
    let mut progress = Progress::new(settings, &[("kernels", "scheduling")]);
    let saved = module.clone();
    let mut report = |s: &str, d: usize, t: usize| progress.report(s, d, t);
    let run = AssertUnwindSafe(|| compile(module, options, profile, weft::emitter(profile), &mut report));
    let bug = |at: String, message: String| {
        let written = match write_reproducer(&saved, &default_pipeline(&options.pipeline), settings, profile) {
            Ok(path) => format!("a reproducer was written: {}", path.display()),
            Err(e) => format!("no reproducer could be written: {}", e.message),
        };
        CompileError::Bug { at, message: format!("{message}; {written}") }
    };
    match std::panic::catch_unwind(run) {
        Ok(Err(CompileError::Bug { at, message })) => Err(bug(at, message)),
        Ok(Err(CompileError::Pass(e))) if e.kind != PassErrorKind::Request => {
            Err(bug(format!("pass {}", e.pass), e.message))
        }
        Ok(done) => done.map(|mut compiled| {
            compiled.remarks.splice(0..0, compiler::inspect::packed_operands(&saved));
            compiled
        }),
        Err(payload) => Err(bug("the compiler".into(), panic_text(payload.as_ref()))),
    }
}

/// The model as `.weft` text whose first lines say what was done with it; large constants come by name and shape alone.
fn write_reproducer(
    module: &Module,
    passes: &[String],
    settings: &Settings,
    profile: &DeviceProfile,
) -> Result<PathBuf> {
    let mut options = format!("--target {}", settings.target.as_ref().unwrap_or(&profile.name));
    if settings.target.is_some() && settings.names_device() {
        options += &format!(" --device {}", settings.device);
    }
    if !settings.rules.is_empty() {
        options += &format!(" --rules {}", settings.rules.join(","));
    }
    if profile.nan == Nan::Fast {
        options += " --nan fast";
    }
    let text = format!(
        "; weft {}: weft opt THIS_FILE --passes {} {options}\n{}",
        env!("CARGO_PKG_VERSION"),
        passes.join(","),
        print_module(module)
    );
    let path = std::env::temp_dir().join(format!("weft-reproducer-{}.weft", std::process::id()));
    crate::written::write_file(&path, text.as_bytes())?;
    Ok(path)
}

/// The command watches: bars, reproducers, and where a model runs.
struct Watching {
    settings: Settings,
    /// Compilations record their stages.
    record: bool,
}

impl Watch for Watching {
    fn compile(
        &self,
        module: Module,
        options: &CompileOptions,
        profile: &DeviceProfile,
    ) -> Result<Compiled, CompileError> {
        let options = CompileOptions { record: self.record || options.record, ..options.clone() };
        compile_with(module, &options, &self.settings, profile)
    }
    fn opens(&self) -> weft::Progress<'_> {
        let mut progress = Progress::new(&self.settings, &[("buffers", "upload"), ("kernels", "pipelines")]);
        Box::new(move |s, d, t| progress.report(s, d, t))
    }
    fn leaves_matrix_units(&self, why: &str) {
        log_once(&self.settings, format!("device: kernels without matrix units instead, since {why}"));
    }
    fn makes_anew(&self, why: &str) {
        log_once(&self.settings, format!("bundle: compiling, since {why}"));
    }
    fn moves_to_interpreter(&self, why: &str) {
        log_once(&self.settings, format!("device: the interpreter instead, since {why}"));
    }
}

/// Messages about work on models.
pub fn watching(settings: &Settings) -> Arc<dyn Watch> {
    Arc::new(Watching { settings: settings.clone(), record: false })
}

/// Compiles and opens a session. A module that only the interpreter can run goes there, with a message. `inputs` are
/// for the calibration of `--amp auto`.
pub fn execute(module: Module, settings: &Settings, device: &Device, inputs: &[Tensor]) -> Result<Session> {
    let profile = profile_on(settings, device)?;
    let pipeline = pipeline_for(&module, settings, &profile, inputs)?;
    execute_with(module, pipeline, settings, device, &profile, false)
}

/// As [`execute`], with compilations that record their stages.
pub fn execute_recorded(module: Module, settings: &Settings, device: &Device, inputs: &[Tensor]) -> Result<Session> {
    let profile = profile_on(settings, device)?;
    let pipeline = pipeline_for(&module, settings, &profile, inputs)?;
    let watch = Watching { settings: settings.clone(), record: true };
    open_session(module, pipeline, settings, (device, &profile), false, watch)
}

/// As [`execute`], for commands that need only results: if the cache has the plan, nothing is compiled.
pub fn execute_cached(module: Module, settings: &Settings, device: &Device, inputs: &[Tensor]) -> Result<Session> {
    let profile = profile_on(settings, device)?;
    let pipeline = pipeline_for(&module, settings, &profile, inputs)?;
    execute_with(module, pipeline, settings, device, &profile, true)
}

/// As [`execute`], with passes and modes that are decided; `cached`: a plan from disk will do.
pub fn execute_with(
    module: Module,
    pipeline: PipelineOptions,
    settings: &Settings,
    device: &Device,
    profile: &DeviceProfile,
    cached: bool,
) -> Result<Session> {
    let watch = Watching { settings: settings.clone(), record: false };
    open_session(module, pipeline, settings, (device, profile), cached, watch)
}

fn open_session(
    module: Module,
    pipeline: PipelineOptions,
    settings: &Settings,
    (device, profile): (&Device, &DeviceProfile),
    cached: bool,
    watch: Watching,
) -> Result<Session> {
    let own = cache(settings);
    let options = Options {
        cache: Cache { plans: cached, weights: cached && own.weights, ..own },
        watch: Arc::new(watch),
        ..library_options(settings, pipeline, (device, profile))?
    };
    Ok(Model::from_module(module).compile(&options)?.session(device)?)
}

/// The folder of `--cache`, else the user's cache folder.
pub fn cache(settings: &Settings) -> Cache {
    let cache = match settings.cache.as_deref() {
        Some("off") => Cache::default(),
        Some(folder) => Cache::at(folder),
        None => Cache::of_user(),
    };
    if settings.cache_weights { cache.with_weights() } else { cache }
}

/// Runs the entry function on the interpreter, with progress as the stage `stage`: large networks take minutes there.
pub fn interpret_watched(
    module: &Module,
    inputs: &[Tensor],
    settings: &Settings,
    stage: &str,
    mut observe: impl FnMut(&Function, NodeId, &[Tensor]),
) -> Result<Vec<Tensor>> {
    let mut progress = Progress::new(settings, &[]);
    let (entry, total) = (module.main().name, module.main().walk().len());
    let mut done = 0;
    let mut interpreter =
        Interpreter::new(module).with_host(settings.functions.on_tensors()).observe(|f, n, outputs| {
            if f.name == entry {
                done += 1;
                progress.report(stage, done, total);
                observe(f, n, outputs);
            }
        });
    interpreter.run(entry, inputs).map_err(|e| Error::input(e.to_string()))
}

/// The library's options for a compilation with these settings, without who watches.
///
/// # Errors
/// Measured costs that cannot be read.
pub fn library_options(
    settings: &Settings,
    pipeline: PipelineOptions,
    (device, profile): (&Device, &DeviceProfile),
) -> Result<Options> {
    Ok(Options {
        profile: (!matches!(device, Device::Interpreter)).then(|| profile.clone()),
        pipeline: pipeline.clone(),
        compile: compile_options(pipeline, settings, profile)?,
        cache: cache(settings),
        host_functions: settings.functions.clone(),
        ..Options::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::text::parse_module;

    #[test]
    fn a_reproducer_is_a_module_again() {
        let text = "graph @main(%x: f32[4]) -> (y: f32[4]) {\n  %y = relu %x : f32[4]\n  return %y\n}\n";
        let m = parse_module(text).expect("text");
        let path = write_reproducer(&m, &["infer-types".into()], &Settings::default(), &DeviceProfile::baseline())
            .expect("writes");
        let written = std::fs::read_to_string(&path).expect("is there");
        std::fs::remove_file(&path).expect("removes");
        assert!(written.starts_with("; weft "), "{written}");
        assert_eq!(print_module(&parse_module(&written).expect("parses")), print_module(&m));
    }
}
