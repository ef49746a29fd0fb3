//! A compiled model on a device, or in the interpreter.

use crate::Extensions;
use crate::args::Common;
use crate::error::{CliError, CliResult, panic_text};
use crate::output::{Progress, log_once};
use crate::precision::{calibrated, keep_list};
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
pub fn open_device(common: &Common) -> CliResult<Device> {
    let device = open_to_compile(common)?;
    if let Device::Gpu(gpu) = &device {
        gpu.check_computes()?;
    }
    Ok(device)
}

/// As [`open_device`], for what runs nothing: the device need not compute.
///
/// # Errors
/// No such device.
pub fn open_to_compile(common: &Common) -> CliResult<Device> {
    let device = match common.device.as_str() {
        "interpreter" => {
            log_once(common, "device: the interpreter, as asked");
            Device::Interpreter
        }
        "cpu" => processor(common, "as asked")?,
        _ => adapter(common)?,
    };
    if common.threads.is_some() && !matches!(device, Device::Cpu(_)) && !crate::external::use_threads(common) {
        let text = format!("--threads is for the CPU, and the device is {}", device.label());
        return Err(CliError::usage(text).help("add `--device cpu`"));
    }
    Ok(device)
}

/// The processor, with the threads of `--threads`.
fn processor(common: &Common, why: &str) -> CliResult<Device> {
    let device = Device::cpu(common.threads.map_or(0, |n| n as usize))?;
    log_once(common, format!("device: {}, {why}", device.label()));
    Ok(device)
}

/// The adapter that `--device` names; for `auto` without a GPU the processor.
fn adapter(common: &Common) -> CliResult<Device> {
    let choice = DeviceChoice::parse(&common.device);
    match Gpu::open(&choice) {
        Ok(gpu) => {
            let d = &gpu.description;
            let why = if choice == DeviceChoice::Auto { "the best GPU" } else { "as asked" };
            log_once(common, format!("device: {} ({}, {}), {why}", d.name, d.backend, d.driver));
            // A compilation for another device does not need this device's figures.
            let here = common.target.is_none();
            Ok(Device::Gpu(if here { crate::ceilings::complete(gpu, common) } else { Arc::new(gpu) }))
        }
        Err(GpuError::NoDevice { there, .. }) if choice == DeviceChoice::Auto => {
            let shaders = if there.is_empty() { "" } else { "; `--device 0` runs shaders on a software driver" };
            processor(common, &format!("no GPU: running on the CPU{shaders}"))
        }
        Err(e) => Err(e.into()),
    }
}

/// Passes and modes from the command line.
pub fn pipeline_options(common: &Common) -> CliResult<PipelineOptions> {
    Ok(PipelineOptions {
        opt_level: common.opt_level,
        fuse: FuseMode::parse(&common.fuse).unwrap_or(FuseMode::Full),
        layout: LayoutMode::parse(&common.layout).unwrap_or(LayoutMode::Auto),
        amp: AmpMode::parse(&common.amp).unwrap_or(AmpMode::Off),
        keep_f32: keep_list(common)?,
        alter_layouts: vec![],
        config: crate::layout_options::pass_options(common)?,
        disabled: common.disable_pass.clone(),
        passes: (!common.passes.is_empty()).then(|| common.passes.clone()),
        registry: common.registry.clone(),
        own: vec![],
        scheduling: scheduling(common),
    })
}

/// What `--rules` and `--versions` ask of the schedule rules.
pub fn scheduling(common: &Common) -> ScheduleOptions {
    let versions = Versions::parse(&common.versions).unwrap_or_default();
    ScheduleOptions { rules: common.rules.clone(), versions, ..ScheduleOptions::default() }
}

/// Refuses names of passes that there are none of, before any work is done.
///
/// # Errors
/// The first such name, with the passes there are.
pub fn check_passes(common: &Common, extensions: &Extensions) -> CliResult<()> {
    let known = || extensions.passes.iter().chain(PASSES).map(|p| p.name);
    match common.disable_pass.iter().find(|d| !known().any(|k| k == d.as_str())) {
        None => Ok(()),
        Some(name) => Err(CliError::usage(format!("--disable-pass {name}: no such pass"))
            .help(format!("there are: {}", known().collect::<Vec<_>>().join(", ")))),
    }
}

/// The profile to compile for if nothing runs: that of `--target` (no such device is needed, unless `--device` names
/// one that must be able to run the result), else that of the device.
pub fn target_profile(common: &Common) -> CliResult<DeviceProfile> {
    match &common.target {
        Some(name) if !common.names_device() => {
            let profile = profile_on(common, &Device::Interpreter)?;
            log_once(common, format!("device: none; for the profile {name}"));
            Ok(profile)
        }
        _ => profile_on(common, &open_to_compile(common)?),
    }
}

/// The profile to compile for if the result runs on `device`: that of `--target`, limited to the device, else that of
/// the device. The interpreter has no limits.
pub fn profile_on(common: &Common, device: &Device) -> CliResult<DeviceProfile> {
    let profile = device.profile_as(common.target.as_deref())?;
    let nan = Nan::parse(&common.nan).unwrap_or_default();
    let mut quirks = profile.quirks.clone();
    common.quirk.iter().try_for_each(|(name, on)| quirks.set(name, *on)).map_err(CliError::usage)?;
    let profile = crate::tuning::calibrated(common, DeviceProfile { nan, quirks, ..profile })?;
    crate::tuning::check_required(common, &profile)?;
    Ok(profile)
}

/// How to compile with these passes and modes for a device.
///
/// # Errors
/// Measured costs that cannot be read.
pub fn compile_options(
    pipeline: PipelineOptions,
    common: &Common,
    profile: &DeviceProfile,
) -> CliResult<CompileOptions> {
    let measurements = crate::layout_options::measurements(common, profile)?;
    let dims = crate::dims::declared_ranges(common)?;
    Ok(CompileOptions {
        pipeline,
        clock: Some(WallClock::new()),
        verify: false,
        record: false,
        measurements,
        dims,
        keep: None,
        schedules: common.schedules.0.clone(),
    })
}

/// Passes and modes for a module: with `--amp auto`, calibrated on `inputs`.
pub fn pipeline_for(
    module: &Module,
    common: &Common,
    profile: &DeviceProfile,
    inputs: &[Tensor],
) -> CliResult<PipelineOptions> {
    Ok(calibrated_pipeline(module, common, profile, inputs)?.0)
}

/// As [`pipeline_for`], with the names of the model that mean the nodes which calibration keeps in f32.
pub fn calibrated_pipeline(
    module: &Module,
    common: &Common,
    profile: &DeviceProfile,
    inputs: &[Tensor],
) -> CliResult<(PipelineOptions, Vec<Name>)> {
    let mut pipeline = pipeline_options(common)?;
    if pipeline.amp != AmpMode::Off && profile.is_processor() {
        let text = "no schedule of the processor computes f16 in tiles yet, so it takes 60 to 180 times the time of f32; \
                    --amp off is fast here, and a GPU (--device) is fast with f16";
        log_once(common, format!("warning: --amp {}: {text}", common.amp));
    }
    let mut kept = vec![];
    if pipeline.amp == AmpMode::Auto {
        let found = calibrated(module, common, &pipeline, profile, inputs, &Limits::default())?;
        found.apply(&mut pipeline);
        kept = found.listed();
    }
    Ok((pipeline, kept))
}

/// Compiles for a profile, with progress. If Weft itself fails, a reproducer is written, and the error names it.
pub fn compile_with(
    module: Module,
    options: &CompileOptions,
    common: &Common,
    profile: &DeviceProfile,
) -> Result<Compiled, CompileError> {
    let mut progress = Progress::new(common, &[("kernels", "scheduling")]);
    let saved = module.clone();
    let mut report = |s: &str, d: usize, t: usize| progress.report(s, d, t);
    let run = AssertUnwindSafe(|| compile(module, options, profile, weft::emitter(profile), &mut report));
    let bug = |at: String, message: String| {
        let written = match write_reproducer(&saved, &default_pipeline(&options.pipeline), common, profile) {
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
        Ok(done) => done,
        Err(payload) => Err(bug("the compiler".into(), panic_text(payload.as_ref()))),
    }
}

/// The model as `.weft` text whose first lines say what was done with it; large constants come by name and shape alone.
fn write_reproducer(
    module: &Module,
    passes: &[String],
    common: &Common,
    profile: &DeviceProfile,
) -> CliResult<PathBuf> {
    let mut options = format!("--target {}", common.target.as_ref().unwrap_or(&profile.name));
    if common.target.is_some() && common.names_device() {
        options += &format!(" --device {}", common.device);
    }
    if !common.rules.is_empty() {
        options += &format!(" --rules {}", common.rules.join(","));
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
    crate::output::write_file(&path, text.as_bytes())?;
    Ok(path)
}

/// The command watches: bars, reproducers, and where a model runs.
struct Watching {
    common: Common,
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
        compile_with(module, &options, &self.common, profile)
    }
    fn opens(&self) -> weft::Progress<'_> {
        let mut progress = Progress::new(&self.common, &[("buffers", "upload"), ("kernels", "pipelines")]);
        Box::new(move |s, d, t| progress.report(s, d, t))
    }
    fn leaves_matrix_units(&self, why: &str) {
        log_once(&self.common, format!("device: kernels without matrix units instead, since {why}"));
    }
    fn makes_anew(&self, why: &str) {
        log_once(&self.common, format!("bundle: compiling, since {why}"));
    }
    fn moves_to_interpreter(&self, why: &str) {
        log_once(&self.common, format!("device: the interpreter instead, since {why}"));
    }
}

/// What the command says of work on models.
pub fn watching(common: &Common) -> Arc<dyn Watch> {
    Arc::new(Watching { common: common.clone(), record: false })
}

/// Compiles and opens a session. A module that only the interpreter can run goes there, with a message. `inputs` are
/// for the calibration of `--amp auto`.
pub fn execute(module: Module, common: &Common, device: &Device, inputs: &[Tensor]) -> CliResult<Session> {
    let profile = profile_on(common, device)?;
    let pipeline = pipeline_for(&module, common, &profile, inputs)?;
    execute_with(module, pipeline, common, device, &profile, false)
}

/// As [`execute`], with compilations that record their stages.
pub fn execute_recorded(module: Module, common: &Common, device: &Device, inputs: &[Tensor]) -> CliResult<Session> {
    let profile = profile_on(common, device)?;
    let pipeline = pipeline_for(&module, common, &profile, inputs)?;
    let watch = Watching { common: common.clone(), record: true };
    open_session(module, pipeline, common, (device, &profile), false, watch)
}

/// As [`execute`], for commands that need only results: if the cache has the plan, nothing is compiled.
pub fn execute_cached(module: Module, common: &Common, device: &Device, inputs: &[Tensor]) -> CliResult<Session> {
    let profile = profile_on(common, device)?;
    let pipeline = pipeline_for(&module, common, &profile, inputs)?;
    execute_with(module, pipeline, common, device, &profile, true)
}

/// As [`execute`], with passes and modes that are decided; `cached`: a plan from disk will do.
pub fn execute_with(
    module: Module,
    pipeline: PipelineOptions,
    common: &Common,
    device: &Device,
    profile: &DeviceProfile,
    cached: bool,
) -> CliResult<Session> {
    let watch = Watching { common: common.clone(), record: false };
    open_session(module, pipeline, common, (device, profile), cached, watch)
}

fn open_session(
    module: Module,
    pipeline: PipelineOptions,
    common: &Common,
    (device, profile): (&Device, &DeviceProfile),
    cached: bool,
    watch: Watching,
) -> CliResult<Session> {
    let cache = cache(common);
    let options = Options {
        profile: (!matches!(device, Device::Interpreter)).then(|| profile.clone()),
        pipeline: pipeline.clone(),
        compile: compile_options(pipeline, common, profile)?,
        cache: Cache { plans: cached, weights: cached && cache.weights, ..cache },
        host_functions: common.functions.clone(),
        watch: Arc::new(watch),
        ..Options::default()
    };
    Ok(Model::from_module(module).compile(&options)?.session(device)?)
}

/// The folder of `--cache`, else the user's cache folder.
pub fn cache(common: &Common) -> Cache {
    let cache = match common.cache.as_deref() {
        Some("off") => Cache::default(),
        Some(folder) => Cache::at(folder),
        None => Cache::of_user(),
    };
    if common.cache_weights { cache.with_weights() } else { cache }
}

/// Runs the entry function on the interpreter, with progress as the stage `stage`: large networks take minutes there.
pub fn interpret_watched(
    module: &Module,
    inputs: &[Tensor],
    common: &Common,
    stage: &str,
    mut observe: impl FnMut(&Function, NodeId, &[Tensor]),
) -> CliResult<Vec<Tensor>> {
    let mut progress = Progress::new(common, &[]);
    let (entry, total) = (module.main().name, module.main().walk().len());
    let mut done = 0;
    let mut interpreter = Interpreter::new(module).with_host(common.functions.on_tensors()).observe(|f, n, outputs| {
        if f.name == entry {
            done += 1;
            progress.report(stage, done, total);
            observe(f, n, outputs);
        }
    });
    interpreter.run(entry, inputs).map_err(|e| CliError::input(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::text::parse_module;

    #[test]
    fn a_reproducer_is_a_module_again() {
        let text = "graph @main(%x: f32[4]) -> (y: f32[4]) {\n  %y = relu %x : f32[4]\n  return %y\n}\n";
        let m = parse_module(text).expect("text");
        let path = write_reproducer(&m, &["infer-types".into()], &Common::default(), &DeviceProfile::baseline())
            .expect("writes");
        let written = std::fs::read_to_string(&path).expect("is there");
        std::fs::remove_file(&path).expect("removes");
        assert!(written.starts_with("; weft "), "{written}");
        assert_eq!(print_module(&parse_module(&written).expect("parses")), print_module(&m));
    }
}
