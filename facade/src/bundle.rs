//! A compiled network as one file (`docs/bundle.md`).

mod file;
mod packing;
mod write;

use crate::compiled::CompiledModel;
use crate::emitters::emitter;
use crate::error::Error;
use crate::model::Model;
use crate::options::Options;
use crate::origin::refuse_machine_code;
use crate::program::Program;
use crate::tuning::TuningDatabase;
use bytes::Bytes;
use compiler::compile::KeepKernels;
use compiler::cost::code_digest;
use compiler::external::native_targets;
use compiler::graph::Module;
use compiler::int::{DimRange, DimRanges};
use compiler::name::Name;
use compiler::plan::Plan;
use compiler::tensor::ConstData;
use compiler::trace::{CompileTrace, TraceError};
use file::{BundleFile, ConstantPart, Entry};
pub use file::{OpenDim, Part, Port};
use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A network in one file: for each device that it was made for a plan with its kernels, the weights, the network behind
/// its passes, and the compile trace. It opens without the model file and without a pass.
///
/// ```
/// use weft::{Bundle, Device, Model, Options, Tensor, TuningDatabase};
///
/// # fn main() -> Result<(), weft::Error> {
/// let model = Model::from_text("graph @main(%x: f32[4]) -> (y: f32[4]) {\n  %y = neg %x : f32[4]\n  return %y\n}\n")?;
/// let device = Device::cpu(1)?;
/// let options = Options::for_device(&device);
/// let mut file = vec![];
/// Bundle::write(&model, "net", &[options.clone()], &TuningDatabase::default(), &mut file)?;
/// let bundle = Bundle::from_bytes(file)?;
/// assert_eq!(bundle.profiles(), ["cpu"]);
/// let session = bundle.compile(&options, true)?.session(&device)?;
/// let outputs = session.run(&[("x", Tensor::from_vec(vec![4], vec![1f32, 2.0, 3.0, 4.0]))])?;
/// assert_eq!(outputs["y"].to_f32_vec(), [-1.0, -2.0, -3.0, -4.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Bundle {
    file: Arc<BundleFile>,
    /// External targets may run code of the machine.
    allows_native: bool,
}

/// The contents of a bundle.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BundleContents<'b> {
    /// Version of the file.
    pub bundle: u32,
    /// Version that wrote it.
    pub weft: &'b str,
    /// Name of the model.
    pub network: &'b str,
    /// The text of its licence.
    pub licence: Option<&'b str>,
    /// External targets that run code of the machine.
    pub native: &'b [String],
    /// Size of the file.
    pub bytes: u64,
    /// In order.
    pub inputs: &'b [Port],
    /// In order.
    pub outputs: &'b [Port],
    /// Dimensions that stay open.
    pub dims: &'b [OpenDim],
    /// The entries, one for each profile.
    pub entries: Vec<EntryContents<'b>>,
    /// The parts of the file.
    pub parts: &'b [Part],
}

/// The contents of a bundle for one profile. Sizes are bytes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EntryContents<'b> {
    /// Its name.
    pub profile: &'b str,
    /// Encoding of plan and kernels: builds with the same one read them.
    pub form: &'b str,
    /// Whether this build reads them; otherwise a run compiles the network anew.
    pub is_read: bool,
    /// Of kernels and dispatches; none where sizes are open, and for another form.
    pub digest: Option<String>,
    /// 0 where sizes are open.
    pub plan: u64,
    /// 0 where no size is open.
    pub kernels: u64,
    /// Its text.
    pub network: u64,
    /// The compile trace.
    pub trace: u64,
    /// How many.
    pub constants: usize,
    /// Their data.
    pub weights: u64,
    /// Data that no entry before has.
    pub own_weights: u64,
    /// Lines of the tuning database that decided a schedule.
    #[schemars(with = "Vec<serde_json::Value>")]
    pub tuning: &'b [crate::TuningLine],
}

impl Bundle {
    /// Opens a bundle: the file is mapped, and its index read. Each part is read and checked when it is needed.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Bundle`]: another file, another version, a file that is cut off or damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Bundle, Error> {
        Ok(Bundle { file: Arc::new(BundleFile::open(path.as_ref())?), allows_native: false })
    }
    /// As [`Bundle::open`], from the bytes of a file.
    ///
    /// # Errors
    /// [`Error::Bundle`].
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Bundle, Error> {
        Ok(Bundle { file: Arc::new(BundleFile::of_bytes("the bundle".into(), bytes.into())?), allows_native: false })
    }
    /// Writes a bundle of `model`, called `name`, for the profile of each of `targets`. `tuning`: the choices that
    /// their schedule providers have; the lines that decided a schedule are named in the bundle.
    ///
    /// # Errors
    /// As [`Model::compile`]; [`Error::NotPlanned`]: a model whose sizes data decide; [`Error::Write`].
    pub fn write(
        model: &Model,
        name: &str,
        targets: &[Options],
        tuning: &TuningDatabase,
        to: &mut dyn Write,
    ) -> Result<(), Error> {
        write::write(model, name, targets, tuning, to)
    }

    /// With external targets that run code of the machine, such as a library or what a C compiler makes: the bundle
    /// says which, and with what options. Without, [`Bundle::compile`] refuses a bundle that has them.
    pub fn allow_native(self) -> Bundle {
        Bundle { allows_native: true, ..self }
    }

    /// The text of the network's licence.
    pub fn licence(&self) -> Option<&str> {
        self.file.index.licence.as_deref()
    }

    /// The network behind its passes, as it was made for the first profile.
    ///
    /// # Errors
    /// [`Error::Bundle`]: a part that is damaged.
    pub fn model(&self) -> Result<Model, Error> {
        let first = self.file.index.entries.first().ok_or_else(|| self.file.error("the bundle is empty"))?;
        let model = Model::of_module(self.module(first)?, self.ranges());
        Ok(model.with_licence(self.licence().map(String::from)))
    }

    /// The names of the profiles that it was made for, in order.
    pub fn profiles(&self) -> Vec<&str> {
        self.file.index.entries.iter().map(|e| e.profile.name.as_str()).collect()
    }

    /// The network for the profile of `options`, which is that of the device (the interpreter without one): the plan
    /// that suits it; if none does, the network is compiled from behind its passes, and
    /// [`Watch::makes_anew`](crate::Watch::makes_anew) says so. Of `options`, host functions, the cache of pipelines,
    /// runs in flight, the profile and the watch count.
    ///
    /// # Errors
    /// [`Error::NotCompiled`]: with `require`, if anything has to be compiled. [`Error::Native`]: code of the machine
    /// that is not allowed. [`Error::Bundle`]: a part that is damaged. Those of [`Model::compile`].
    pub fn compile(&self, options: &Options, require: bool) -> Result<CompiledModel, Error> {
        let mut options = options.clone();
        options.pipeline.passes = Some(vec![]);
        options.cache.plans = false;
        options.compile.dims = self.ranges();
        let Some(profile) = options.profile.clone() else { return self.model()?.compile(&options) };
        let suited = |e: &&Entry| e.needs.unsuited_to(&profile).is_none();
        let distance = |e: &Entry| match e.profile.name == profile.name {
            true => -1.0,
            false if e.profile.gflops > 0.0 && profile.gflops > 0.0 => (e.profile.gflops / profile.gflops).ln().abs(),
            false => 0.0,
        };
        let all = self.file.index.entries.iter().filter(suited);
        let entry = all.min_by(|a, b| distance(a).total_cmp(&distance(b)));
        let why = match entry {
            Some(entry) if entry.form == Plan::saved_form(emitter(&entry.profile)) => {
                return self.planned(entry, &options, require);
            }
            Some(entry) => {
                format!("the kernels for {} were made by another build ({})", entry.profile.name, entry.form)
            }
            None => {
                let reason = |e: &Entry| Some(format!("{}: {}", e.profile.name, e.needs.unsuited_to(&profile)?));
                let all: Vec<String> = self.file.index.entries.iter().filter_map(reason).collect();
                format!("no plan suits {} ({})", profile.name, all.join("; "))
            }
        };
        if require {
            return Err(Error::NotCompiled { place: self.file.place.clone(), why });
        }
        options.watch.makes_anew(&why);
        match entry {
            Some(entry) => Model::of_module(self.allowed(self.module(entry)?)?, self.ranges()).compile(&options),
            None => Model::of_module(self.allowed(self.model()?.into_module())?, self.ranges()).compile(&options),
        }
    }

    /// The module, if none of its external targets runs code of the machine that is not allowed.
    fn allowed(&self, module: Module) -> Result<Module, Error> {
        let targets = if self.allows_native { vec![] } else { native_targets(&module) };
        match targets.is_empty() {
            true => Ok(module),
            false => Err(Error::Native { place: self.file.place.clone(), targets }),
        }
    }

    /// The network by the plan of an entry.
    fn planned(&self, entry: &Entry, options: &Options, require: bool) -> Result<CompiledModel, Error> {
        let module = self.allowed(self.module(entry)?)?;
        let mut options = Options { profile: Some(entry.profile.clone()), ..options.clone() };
        if let Some(plan) = entry.plan {
            let name = &entry.profile.name;
            let damaged = |why: String| self.file.error(format!("its part `plan` of {name}: {why}"));
            let plan = Plan::from_bytes(&self.file.part(plan)?, emitter(&entry.profile));
            let plan = plan.map_err(|e| damaged(e.to_string()))?;
            let ready = entry.packed.iter().map(|b| Ok((b.buffer, self.file.part(b.part)?, b.source)));
            let ready = ready.collect::<Result<Vec<_>, Error>>()?;
            let program = Program::of_plan(plan, module.clone(), entry.profile.clone(), ready).map_err(damaged)?;
            return Ok(CompiledModel::of_program(module, &options, program));
        }
        let kernels = entry.kernels.ok_or_else(|| self.file.error("an entry has neither a plan nor kernels"))?;
        let kept = Arc::new(KernelPart { bytes: self.file.part(kernels)?, are_made_anew: AtomicBool::new(false) });
        options.compile.keep = Some(kept.clone());
        let compiled = Model::of_module(module, self.ranges()).compile(&options)?;
        if kept.are_made_anew.load(Ordering::Relaxed) {
            let why = format!("its kernels for {} were made for other groups", entry.profile.name);
            if require {
                return Err(Error::NotCompiled { place: self.file.place.clone(), why });
            }
            options.watch.makes_anew(&why);
        }
        Ok(compiled)
    }

    /// The compile trace for a profile, by its name; for the first one without a name. Where another version of Weft
    /// wrote it, it is made anew: of the network behind its passes, so without the passes.
    ///
    /// # Errors
    /// [`Error::NoProfile`]: it was not made for that profile. [`Error::Bundle`]: the part is damaged. Those of
    /// [`Model::trace`].
    pub fn trace(&self, profile: Option<&str>) -> Result<CompileTrace, Error> {
        let named = |e: &&Entry| profile.is_none_or(|p| p == e.profile.name);
        let entry = self.file.index.entries.iter().find(named).ok_or_else(|| Error::NoProfile {
            name: profile.unwrap_or_default().into(),
            there: self.profiles().into_iter().map(String::from).collect(),
        })?;
        match CompileTrace::from_bytes(&self.file.part(entry.trace)?) {
            Err(TraceError::Version { .. }) => {
                let mut options = Options { profile: Some(entry.profile.clone()), ..Options::default() };
                options.pipeline.passes = Some(vec![]);
                let model = Model::of_module(self.module(entry)?, self.ranges());
                model.trace(&self.file.index.network, &options)
            }
            trace => trace.map_err(|e| self.file.error(e.to_string())),
        }
    }

    /// The contents of the file.
    pub fn contents(&self) -> BundleContents<'_> {
        let (index, mut seen) = (&self.file.index, FxHashSet::default());
        BundleContents {
            bundle: file::VERSION,
            weft: &index.weft,
            network: &index.network,
            licence: index.licence.as_deref(),
            native: &index.native,
            bytes: self.file.size(),
            inputs: &index.inputs,
            outputs: &index.outputs,
            dims: &index.dims,
            entries: index.entries.iter().map(|e| self.entry(e, &mut seen)).collect(),
            parts: &index.parts,
        }
    }

    /// The contents for one profile; `seen` are parts with weights that entries before it have.
    fn entry<'b>(&'b self, e: &'b Entry, seen: &mut FxHashSet<usize>) -> EntryContents<'b> {
        let own = |n: Option<usize>| n.and_then(|n| self.file.index.parts.get(n)).map_or(0, |p| p.bytes);
        let is_read = e.form == Plan::saved_form(emitter(&e.profile));
        let plan = e.plan.filter(|_| is_read);
        let plan = plan.and_then(|n| Plan::from_bytes(&self.file.part(n).ok()?, emitter(&e.profile)).ok());
        EntryContents {
            profile: &e.profile.name,
            form: &e.form,
            is_read,
            digest: plan.map(|p| code_digest(&p).to_string()),
            plan: own(e.plan),
            kernels: own(e.kernels),
            network: own(Some(e.network)),
            trace: own(Some(e.trace)),
            constants: e.constants.len(),
            weights: e.weights().into_iter().map(|n| own(Some(n))).sum(),
            own_weights: e.weights().into_iter().filter(|&n| seen.insert(n)).map(|n| own(Some(n))).sum(),
            tuning: &e.tuning,
        }
    }

    /// Checks every part.
    ///
    /// # Errors
    /// [`Error::Bundle`]: the first part that is damaged.
    pub fn check(&self) -> Result<(), Error> {
        (0..self.file.index.parts.len()).try_for_each(|n| self.file.part(n).map(drop))
    }

    /// The module of an entry; its constants are read when they are needed.
    fn module(&self, entry: &Entry) -> Result<Module, Error> {
        let fail = |why: String| self.file.error(format!("its part `network` of {}: {why}", entry.profile.name));
        let bytes = self.file.part(entry.network)?;
        let text = std::str::from_utf8(&bytes).map_err(|e| fail(e.to_string()))?;
        let mut module = compiler::text::parse_module(text).map_err(|e| fail(e.to_string()))?;
        for c in &entry.constants {
            let there = module.constants.get_mut(&Name::new(&c.name));
            let there = there.ok_or_else(|| fail(format!("it has no constant @{}", c.name)))?;
            let (file, entry) = (self.file.clone(), c.clone());
            let part = ConstantPart { file, entry, dtype: there.dtype, shape: there.shape.clone() };
            there.data = ConstData::Lazy(Arc::new(part));
        }
        refuse_machine_code(&module, true)?;
        module.dims = self.ranges();
        compiler::verify::verify_module(&module)
            .map_err(|list| fail(list.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))?;
        Ok(module)
    }

    /// The ranges of the dimensions that are open.
    fn ranges(&self) -> DimRanges {
        let mut out = DimRanges::default();
        for d in &self.file.index.dims {
            out.declare_range(Name::new(&d.name), DimRange { low: d.low, high: d.high, step: d.step });
        }
        out
    }
}

/// The kernels of open sizes in a bundle.
struct KernelPart {
    bytes: Bytes,
    are_made_anew: AtomicBool,
}

impl KeepKernels for KernelPart {
    fn read(&self) -> Option<Vec<u8>> {
        Some(self.bytes.to_vec())
    }
    fn write(&self, _: &[u8]) {
        self.are_made_anew.store(true, Ordering::Relaxed);
    }
}
