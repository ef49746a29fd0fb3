//! How a model is compiled and run.

use crate::emitters::emitter;
use compiler::attr::AttrStruct;
use compiler::compile::{CompileError, CompileOptions, Compiled, compile};
use compiler::graph::Module;
use compiler::passes::{PipelineOptions, ReplaceWithHostCalls};
use compiler::profile::DeviceProfile;
use runtime_gpu::HostFunctions;
use runtime_gpu::cache::CacheFolder;
use std::path::PathBuf;
use std::sync::Arc;

/// Progress callback: a stage, the number done and the total.
pub type Progress<'a> = Box<dyn FnMut(&str, usize, usize) + 'a>;

/// Who watches the work on a model. Everything has a default; the command shows bars and writes reproducers.
pub trait Watch: Send + Sync {
    /// Compiles a module.
    ///
    /// # Errors
    /// As [`compiler::compile::compile`].
    fn compile(
        &self,
        module: Module,
        options: &CompileOptions,
        profile: &DeviceProfile,
    ) -> Result<Compiled, CompileError> {
        compile(module, options, profile, emitter(profile), &mut |_, _, _| ())
    }
    /// A session opens.
    fn opens(&self) -> Progress<'_> {
        Box::new(|_, _, _| ())
    }
    /// The driver's subgroups are none that kernels on matrix units were made for, so other kernels run.
    fn leaves_matrix_units(&self, _why: &str) {}
    /// A bundle has no plan for the device, so the network is compiled.
    fn makes_anew(&self, _why: &str) {}
    /// Called if the interpreter runs a model instead of the device.
    fn moves_to_interpreter(&self, _why: &str) {}
}

/// Nobody watches.
struct Unwatched;
impl Watch for Unwatched {}

/// The cache on disk, for later starts of a program.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    /// The folder; `None` means no cache.
    pub folder: Option<CacheFolder>,
    /// Compiled plans, by the model, the options, the device and this program's build.
    pub plans: bool,
    /// Weights as sessions upload them: as many bytes again as the model has, for starts that pack nothing.
    pub weights: bool,
}

impl Cache {
    /// Plans and pipelines in that folder.
    pub fn at(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: Some(CacheFolder::new(folder)), plans: true, weights: false }
    }
    /// Plans and pipelines in the user's cache folder, or in `WEFT_CACHE`; no cache if that is `off`, or if the
    /// system has no such folder.
    pub fn of_user() -> Cache {
        cache_dir().map_or_else(Cache::default, Cache::at)
    }
    /// Weights too.
    pub fn with_weights(self) -> Cache {
        Cache { weights: true, ..self }
    }
}

/// The user's cache folder: `WEFT_CACHE`, which may be `off`, else by the platform's custom.
pub fn cache_dir() -> Option<PathBuf> {
    let var = |n: &str| std::env::var_os(n).filter(|v| !v.is_empty()).map(PathBuf::from);
    let own = var("WEFT_CACHE");
    if own.as_ref().is_some_and(|o| o.as_os_str() == "off") {
        return None;
    }
    own.or_else(|| var("XDG_CACHE_HOME").map(|p| p.join("weft")))
        .or_else(|| var("LOCALAPPDATA").map(|p| p.join("weft")))
        .or_else(|| {
            var("HOME")
                .map(|p| if cfg!(target_os = "macos") { p.join("Library/Caches/weft") } else { p.join(".cache/weft") })
        })
}

/// How a model is compiled and run.
#[derive(Clone)]
pub struct Options {
    /// The device that the result is for; none: the interpreter.
    pub profile: Option<DeviceProfile>,
    /// Passes, layouts, precision.
    pub pipeline: PipelineOptions,
    /// Other options of the compiler: clocks, measurements. Passes and modes come from `pipeline`.
    pub compile: CompileOptions,
    /// The cache on disk.
    pub cache: Cache,
    /// Functions that the model calls by name.
    pub host_functions: HostFunctions,
    /// Runs of a session that may be under way at once, each with memory of its own for activations; 0 is 1.
    pub runs_in_flight: usize,
    /// Who watches.
    pub watch: Arc<dyn Watch>,
}

impl Default for Options {
    /// For any device, with limits that all devices have. [`Options::for_device`] makes faster kernels.
    fn default() -> Options {
        Options {
            profile: Some(DeviceProfile::baseline()),
            pipeline: PipelineOptions::default(),
            compile: CompileOptions::default(),
            cache: Cache::default(),
            host_functions: HostFunctions::new(),
            runs_in_flight: 1,
            watch: Arc::new(Unwatched),
        }
    }
}

impl Options {
    /// With a cache on disk.
    pub fn cache(self, cache: Cache) -> Options {
        Options { cache, ..self }
    }
    /// With host functions.
    pub fn host_functions(self, host_functions: HostFunctions) -> Options {
        Options { host_functions, ..self }
    }
    /// With external targets, each `NAME[:OPTION=VALUE]...`, which take what they support in this order of preference.
    /// They are registered with [`Extensions`](crate::Extensions). Beside the processor one product is measured, see
    /// [`with_arithmetic`](crate::speed::with_arithmetic).
    pub fn external(mut self, targets: &[&str]) -> Options {
        self.profile = self.profile.map(crate::speed::with_arithmetic);
        let targets: Vec<String> = targets.iter().map(|t| t.to_string()).collect();
        self.pipeline.config.extend(compiler::passes::external_passes(&targets));
        self
    }
    /// With host functions in the place of nodes: `(node, function)`. A node is named as in the model, or is `op:NAME`
    /// for all of an operator; `*` stands for any text.
    pub fn host_calls(mut self, calls: &[(&str, &str)]) -> Options {
        let nodes = calls.iter().map(|c| c.0.to_string()).collect();
        let functions = calls.iter().map(|c| c.1.into()).collect();
        let pass = ReplaceWithHostCalls { nodes, functions, ..ReplaceWithHostCalls::default() };
        self.pipeline.config.push((ReplaceWithHostCalls::NAME.to_string(), pass.to_attrs()));
        self
    }
    /// With so many runs in flight.
    pub fn runs_in_flight(self, runs_in_flight: usize) -> Options {
        Options { runs_in_flight, ..self }
    }
    /// The options for the compiler.
    pub(crate) fn compile_options(&self) -> CompileOptions {
        CompileOptions { pipeline: self.pipeline.clone(), ..self.compile.clone() }
    }
}
