//! Compilation through the cache on disk.
//!
//! The key of a plan is the fingerprint of the module (`text::module_fingerprint`: its text, and for large constants
//! the identity of their source, so that none is read), the profile, the pipeline's options and the build of the
//! program. Its ops and rules are part of the build, so two programs share no plans. Plans are saved without closures:
//! if host steps compute, or weights have to be packed, the passes run again (`compile_graph`), but nothing is
//! scheduled. Weights are mapped and copied to the device. Pipelines are saved by device, driver and shaders.

use crate::build::build;
use crate::emitters::emitter;
use crate::error::Error;
use crate::memory::check_weights;
use crate::options::Options;
use bytes::Bytes;
use compiler::compile::{
    CompileError, CompileOptions, Compiled, KeepKernels, are_of_types, bind_host_steps, compile_graph,
};
use compiler::fingerprint::Fingerprint;
use compiler::graph::{Module, open_dims};
use compiler::name::Name;
use compiler::plan::{Plan, Step};
use compiler::profile::DeviceProfile;
use compiler::remark::{Remark, RemarkKind};
use compiler::schedule::{Rules, ScheduleProvider};
use compiler::text::module_fingerprint;
use runtime_cpu::Processor;
use runtime_gpu::cache::{CacheFolder, KERNELS, PLAN};
use runtime_gpu::{Gpu, GpuError, Prepacked, Session, SessionOptions};
use std::sync::Arc;

/// A plan and the source of its constants.
pub(crate) struct Program {
    pub(crate) plan: Plan,
    /// The whole compilation; `None` if the plan came from disk.
    pub(crate) compiled: Option<Box<Compiled>>,
    /// The module as it was before compilation.
    source: Module,
    /// `source` is the module behind its passes, from which host steps are bound.
    is_passed: bool,
    /// Data of buffers as kernels read them, and the digests of their constants.
    ready: Vec<(usize, Bytes, Fingerprint)>,
    profile: DeviceProfile,
    key: Option<Fingerprint>,
}

impl Program {
    /// Takes the plan from disk, or compiles and keeps it there.
    ///
    /// # Errors
    /// As [`compiler::compile::compile`].
    pub(crate) fn new(module: &Module, profile: &DeviceProfile, options: &Options) -> Result<Program, CompileError> {
        let key = key(module, profile, options);
        let (source, is_passed) = (module.clone(), false);
        let (profile_of, ready) = (profile.clone(), vec![]);
        let program = |plan, compiled| Program { plan, compiled, source, is_passed, ready, profile: profile_of, key };
        let folder = options.cache.folder.as_ref();
        if let Some(plan) = folder.zip(key).and_then(|(folder, key)| {
            // A complete file that cannot be read is from another build with the same name; the plan is made again.
            Plan::from_bytes(&folder.read(PLAN, key)?, emitter(profile)).ok()
        }) {
            return Ok(program(plan, None));
        }
        let keep: Option<Arc<dyn KeepKernels>> = match open_key(module, profile, options).zip(folder) {
            Some((key, folder)) => Some(Arc::new(KernelFile { folder: folder.clone(), key })),
            None => options.compile.keep.clone(),
        };
        let compile = CompileOptions { keep, ..options.compile_options() };
        let compiled = options.watch.compile(module.clone(), &compile, profile)?;
        if let Some((folder, key)) = folder.zip(key)
            && let Ok(bytes) = compiled.plan.to_bytes(emitter(profile))
        {
            // A folder that cannot be written costs the next start its time.
            let _ = folder.write(PLAN, key, |to| to.write_all(&bytes));
        }
        Ok(program(compiled.plan.clone(), Some(Box::new(compiled))))
    }

    /// A saved plan, with the module behind its passes; `ready` has data of its buffers as kernels read them, and the
    /// digests of their constants.
    ///
    /// # Errors
    /// A module of another plan, data that are larger than their buffer.
    pub(crate) fn of_plan(
        mut plan: Plan,
        passed: Module,
        profile: DeviceProfile,
        ready: Vec<(usize, Bytes, Fingerprint)>,
    ) -> Result<Program, String> {
        bind_host_steps(&mut plan, &passed)?;
        let f = passed.main();
        if !(are_of_types(&plan.inputs, f, f.params().iter()) && are_of_types(&plan.outputs, f, f.results().iter())) {
            return Err("it has other inputs or results than its network".into());
        }
        let fits = |b: &(usize, Bytes, Fingerprint)| {
            plan.buffers.get(b.0).is_some_and(|buffer| b.1.len() as u64 <= buffer.bytes)
        };
        match ready.iter().find(|b| !fits(b)) {
            Some((buffer, ..)) => Err(format!("the data of buffer {buffer} are larger than the buffer")),
            None => Ok(Program { plan, compiled: None, source: passed, is_passed: true, ready, profile, key: None }),
        }
    }

    /// The plan is from a bundle, which may come from a stranger.
    pub(crate) fn is_foreign(&self) -> bool {
        self.is_passed
    }

    /// The passes have to run for the module that constants are read from.
    fn lacks_passes(&self) -> bool {
        self.compiled.is_none() && !self.is_passed
    }

    /// Opens a session. If the driver chooses subgroup sizes that kernels on matrix units do not support, everything is
    /// compiled again without matrix units and subgroups, with a remark.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub(crate) fn open(&mut self, gpu: &Arc<Gpu>, options: &Options) -> Result<Session, Error> {
        match self.open_as_it_is(gpu, options) {
            Err(Error::Device(e @ GpuError::SubgroupSize { .. })) if !self.profile.matrix_shapes.is_empty() => {
                let why = e.to_string();
                options.watch.leaves_matrix_units(&why);
                // Nothing that counts on the announced size.
                let profile = DeviceProfile { matrix_shapes: vec![], subgroup: (0, 0), ..self.profile.clone() };
                *self = Program::new(&self.source.clone(), &profile, options)?;
                if let Some(compiled) = &mut self.compiled {
                    let pass = Name::new("schedule");
                    compiled.remarks.push(Remark {
                        pass,
                        kind: RemarkKind::Missed,
                        nodes: vec![],
                        message: why,
                        detail: String::new(),
                    });
                }
                self.open_as_it_is(gpu, options)
            }
            other => other,
        }
    }

    /// Opens a session on the processor.
    ///
    /// # Errors
    /// Constants that cannot be read.
    pub(crate) fn open_on(
        &mut self,
        processor: &Arc<Processor>,
        options: &Options,
    ) -> Result<runtime_cpu::Session, Error> {
        let passed = if self.lacks_passes() { Some(self.pass_again(options)?) } else { None };
        let module = self.compiled.as_ref().map(|c| &c.module).or(passed.as_ref()).unwrap_or(&self.source);
        let load = |name: Name| module.constants.get(&name).ok_or("there is no such constant")?.load();
        let ready = |buffer: usize| self.ready.iter().find(|b| b.0 == buffer).map(|b| b.1.clone());
        check_weights(&self.plan, |buffer| self.ready.iter().any(|b| b.0 == buffer))?;
        let session = runtime_cpu::Session::open_packed(processor.clone(), &self.plan, &load, &ready)?;
        Ok(if self.is_foreign() { session.of_foreign_plan() } else { session })
    }

    /// The module after its passes, for a plan from disk, whose host steps then compute.
    fn pass_again(&mut self, options: &Options) -> Result<Module, Error> {
        let module = compile_graph(self.source.clone(), &options.compile_options(), &self.profile)?.module;
        bind_host_steps(&mut self.plan, &module)
            .map_err(|message| CompileError::Bug { at: "a plan from disk".into(), message })?;
        Ok(module)
    }

    /// Opens a session. The passes run again only if constants have to be packed, or host steps compute.
    fn open_as_it_is(&mut self, gpu: &Arc<Gpu>, options: &Options) -> Result<Session, Error> {
        let kept = options.cache.folder.as_ref().zip(self.key).filter(|_| options.cache.weights);
        let mut prepacked = kept.and_then(|(folder, key)| Prepacked::open(folder, key, &self.plan));
        if !self.ready.is_empty() {
            prepacked = Some(Prepacked::of(self.ready.iter().cloned()));
        }
        let mut passed = None;
        let on_tensors = |s: &&Step| matches!(s, Step::Host(h) if h.device_function().is_none());
        let computes = self.plan.all_steps().iter().any(on_tensors);
        if self.lacks_passes() && (prepacked.is_none() || computes) {
            passed = Some(self.pass_again(options)?);
        }
        let module = self.compiled.as_ref().map(|c| &c.module).or(passed.as_ref()).unwrap_or(&self.source);
        if let (Some((folder, key)), None) = (kept, &prepacked)
            && Prepacked::write(folder, key, &self.plan, module).is_ok()
        {
            prepacked = Prepacked::open(folder, key, &self.plan);
        }
        let opening = SessionOptions {
            cache: options.cache.folder.clone(),
            prepacked: prepacked.map(Arc::new),
            host_functions: options.host_functions.clone(),
            runs_in_flight: options.runs_in_flight,
            is_foreign: self.is_foreign(),
        };
        Ok(Session::open(gpu.clone(), &self.plan, module, &opening, &mut options.watch.opens())?)
    }
}

/// The key of a plan. `None` if plans are not cached, are for open sizes ([`open_key`]), or depend on things without a
/// key: callbacks, recordings.
fn key(module: &Module, profile: &DeviceProfile, options: &Options) -> Option<Fingerprint> {
    if open_dims(module).is_empty() { told(module, profile, options) } else { None }
}

/// The key of the kernels of a module of open sizes; `None` as for [`key`].
fn open_key(module: &Module, profile: &DeviceProfile, options: &Options) -> Option<Fingerprint> {
    let open = open_dims(module);
    let all = told(module, profile, options).filter(|_| !open.is_empty())?;
    Some(Fingerprint::of(|w| {
        w.part(all);
        for dim in open {
            w.text(&format!("{dim} {:?}", options.compile.dims.sizes(dim)));
        }
    }))
}

/// The kernels of open sizes in the cache.
struct KernelFile {
    folder: CacheFolder,
    key: Fingerprint,
}

impl KeepKernels for KernelFile {
    fn read(&self) -> Option<Vec<u8>> {
        self.folder.read(KERNELS, self.key)
    }
    fn write(&self, bytes: &[u8]) {
        // A folder that cannot be written costs the next start its time.
        let _ = self.folder.write(KERNELS, self.key, |to| to.write_all(bytes));
    }
}

/// The key of a module, a device and options; `None` if plans are not cached or depend on more than these.
fn told(module: &Module, profile: &DeviceProfile, options: &Options) -> Option<Fingerprint> {
    let callbacks = !options.pipeline.alter_layouts.is_empty() || !options.pipeline.own.is_empty();
    let told = !callbacks && !options.compile.record;
    if !(options.cache.plans && options.cache.folder.is_some() && told) {
        return None;
    }
    let schedules = match &options.compile.schedules {
        Some(provider) => provider.identity(profile)?,
        None => Rules.identity(profile)?,
    };
    let module = module_fingerprint(module).ok()?;
    let profile = serde_json::to_vec(profile).ok()?;
    let build = build()?;
    Some(Fingerprint::of(|w| {
        w.text(env!("CARGO_PKG_VERSION"));
        w.text(&build);
        w.part(module);
        w.bytes(&profile);
        w.text(&format!("{:?}", options.pipeline));
        w.text(&schedules);
        if let Some(times) = &options.compile.measurements {
            w.text(&format!("{:?}", times.measurements));
        }
    }))
}
