//! Writes bundles.

use super::file::{ConstantEntry, Entry, Index, OpenDim, PackedBuffer, Port, Writer};
use super::packing::Packing;
use crate::emitters::emitter;
use crate::error::Error;
use crate::model::Model;
use crate::options::Options;
use crate::origin::refuse_machine_code;
use crate::tuning::TuningDatabase;
use compiler::compile::{CompileError, CompileOptions, Compiled, KeepKernels, compile_graph, renumber_host_steps};
use compiler::external::native_targets;
use compiler::graph::{Constant, Module, open_dims};
use compiler::name::Name;
use compiler::plan::{Content, Plan, PlanBuffer};
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use compiler::text::{compare_modules, parse_module, print_module};
use compiler::trace::{CompileTrace, Contents};
use runtime_cpu::{Isa, pack_constant};
use runtime_gpu::source_digest;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Writes the bundle of `model`, called `name`, with an entry for each of `targets`, whose options name profiles.
/// `tuning`: the choices that their schedule providers have.
///
/// # Errors
/// As [`Model::compile`]; a model whose sizes data decide; weights that cannot be read; `to` that takes no bytes.
pub(super) fn write(
    model: &Model,
    name: &str,
    targets: &[Options],
    tuning: &TuningDatabase,
    to: &mut dyn Write,
) -> Result<(), Error> {
    let mut writer = Writer::new(to).map_err(fail)?;
    let mut index = Index { weft: env!("CARGO_PKG_VERSION").into(), network: name.into(), ..Index::default() };
    index.licence = model.licence().map(String::from);
    let port = |(name, ty): (String, _)| Port { name, r#type: format!("{ty:?}") };
    index.inputs = model.inputs().into_iter().map(port).collect();
    index.outputs = model.outputs().into_iter().zip(model.output_types()).map(port).collect();
    for options in targets {
        let options = model.ranged(options);
        let made = Made::new(model.module(), name, &options, tuning)?;
        index.native.extend(made.native.iter().filter(|n| !index.native.contains(n)).cloned().collect::<Vec<_>>());
        if index.dims.is_empty() {
            let open = open_dims(model.module()).into_iter().map(|d| (d, options.compile.dims.sizes(d)));
            let dim = |(d, r): (Name, compiler::int::DimRange)| OpenDim {
                name: d.to_string(),
                low: r.low,
                high: r.high,
                step: r.step,
            };
            index.dims = open.map(dim).collect();
        }
        index.entries.push(made.entry(&mut writer)?);
    }
    writer.finish(index).map_err(fail)
}

fn fail(e: io::Error) -> Error {
    Error::Write(format!("the bundle: {e}"))
}

/// What goes into an entry.
struct Made {
    profile: DeviceProfile,
    needs: DeviceProfile,
    text: String,
    /// Constants whose data are not in the text.
    constants: Vec<(Name, Constant)>,
    /// The buffers of the plan that such constants go to.
    buffers: Vec<(usize, Name, PlanBuffer)>,
    form: String,
    plan: Option<Vec<u8>>,
    kernels: Option<Vec<u8>>,
    trace: Vec<u8>,
    tuning: TuningDatabase,
    native: Vec<String>,
}

impl Made {
    fn new(module: &Module, name: &str, options: &Options, tuning: &TuningDatabase) -> Result<Made, Error> {
        let profile = options.profile.clone().unwrap_or_else(DeviceProfile::baseline);
        let emitter = emitter(&profile);
        let graph = compile_graph(module.clone(), &options.compile_options(), &profile)?.module;
        // The bundle would be refused when it is read.
        refuse_machine_code(&graph, true)?;
        let (text, read) = as_text(&graph)?;
        let kept = Arc::new(Kept::default());
        let recorded = CompileOptions { record: true, keep: Some(kept.clone()), ..options.compile_options() };
        let compiled = options.watch.compile(module.clone(), &recorded, &profile).map_err(|e| match e {
            CompileError::NeedsCpu(why) => Error::NotPlanned(why),
            other => other.into(),
        })?;
        let trace = CompileTrace::new(name, &compiled, &recorded, emitter, Contents::Full);
        let trace = trace.map_err(Error::Input)?.to_bytes().map_err(|e| Error::Write(e.to_string()))?;
        let bug = |message: String| CompileError::Bug { at: "a bundle".into(), message };
        let kernels = kept.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let plan = match compiled.open {
            Some(_) => None,
            None => {
                let mut plan = compiled.plan.clone();
                renumber_host_steps(&mut plan, &graph, &read).map_err(bug)?;
                Some(plan.to_bytes(emitter).map_err(|e| bug(e.to_string()))?)
            }
        };
        let absent = read.constants.iter().filter(|(_, c)| c.load().is_err()).map(|c| *c.0);
        let constants: Vec<(Name, Constant)> =
            absent.filter_map(|name| Some((name, graph.constants.get(&name)?.clone()))).collect();
        let goes = |(i, b): (usize, &PlanBuffer)| match b.content {
            Content::Constant { name, .. } if plan.is_some() && constants.iter().any(|c| c.0 == name) => {
                Some((i, name, b.clone()))
            }
            _ => None,
        };
        let buffers = compiled.plan.buffers.iter().enumerate().filter_map(goes).collect();
        Ok(Made {
            native: native_targets(&graph),
            needs: compiled.plan.needs(&profile),
            text,
            constants,
            buffers,
            form: Plan::saved_form(emitter),
            plan,
            kernels,
            trace,
            tuning: used(tuning, &compiled, &profile),
            profile,
        })
    }

    fn entry(self, to: &mut Writer<'_>) -> Result<Entry, Error> {
        let name = &self.profile.name;
        let (mut constants, mut packed) = (vec![], vec![]);
        for (name, c) in &self.constants {
            let data = c.load().map_err(|e| Error::Input(format!("constant {name}: {e}")))?;
            constants.push(self.constant(*name, &data, &mut packed, to)?);
        }
        let mut part = |kind: &str, bytes: &[u8]| to.part(kind, name, bytes).map_err(fail);
        Ok(Entry {
            plan: self.plan.map(|bytes| part("plan", &bytes)).transpose()?,
            kernels: self.kernels.map(|bytes| part("kernels", &bytes)).transpose()?,
            network: part("network", self.text.as_bytes())?,
            trace: part("trace", &self.trace)?,
            needs: self.needs,
            constants,
            packed,
            form: self.form,
            tuning: self.tuning.lines,
            profile: self.profile,
        })
    }

    /// Writes a constant: packed, as the buffers of the plan have it, where it can be had back from that; else as it
    /// is.
    fn constant(
        &self,
        name: Name,
        data: &Tensor,
        packed: &mut Vec<PackedBuffer>,
        to: &mut Writer<'_>,
    ) -> Result<ConstantEntry, Error> {
        let mut write = |bytes: &[u8]| to.part("constant", name.as_str(), bytes).map_err(fail);
        let mut plain = None;
        let mut first: Option<(usize, Packing)> = None;
        let source = source_digest(data);
        for (buffer, _, b) in self.buffers.iter().filter(|b| b.1 == name) {
            let Content::Constant { packer, .. } = &b.content else { continue };
            let part = match packer {
                Some(packer) => match Packing::of(data, packer, b) {
                    Some((packing, bytes)) => {
                        let part = write(&bytes)?;
                        first.get_or_insert((part, packing));
                        part
                    }
                    None => continue,
                },
                None if pack_constant(b, data.clone(), None, Isa::best()).is_ok_and(|e| e == data.bytes()[..]) => {
                    *plain.insert(write(data.bytes())?)
                }
                None => continue,
            };
            packed.push(PackedBuffer { buffer: *buffer, part, source });
        }
        let (part, packing) = match (plain, first) {
            (Some(part), _) => (part, None),
            (None, Some((part, packing))) => (part, Some(packing)),
            (None, None) => (write(data.bytes())?, None),
        };
        Ok(ConstantEntry { name: name.to_string(), part, packing })
    }
}

/// The text of a module, and the module that is read from it.
fn as_text(module: &Module) -> Result<(String, Module), Error> {
    let bug = |message: String| CompileError::Bug { at: "the text of a bundle's network".into(), message };
    let text = print_module(module);
    let read = parse_module(&text).map_err(|e| bug(e.to_string()))?;
    compare_modules(module, &read).map_err(bug)?;
    Ok((text, read))
}

/// The lines of `tuning` that decided schedules.
fn used(tuning: &TuningDatabase, compiled: &Compiled, profile: &DeviceProfile) -> TuningDatabase {
    let device = profile.identity();
    let functions: Vec<String> = compiled.unscheduled.values().map(|f| f.fingerprint().to_string()).collect();
    let lines = tuning.best().into_values().filter(|l| l.device == device && functions.contains(&l.function));
    TuningDatabase { lines: lines.cloned().collect(), ..TuningDatabase::default() }
}

/// Kernels of open sizes on their way into a bundle.
#[derive(Default)]
struct Kept(Mutex<Option<Vec<u8>>>);

impl KeepKernels for Kept {
    fn read(&self) -> Option<Vec<u8>> {
        None
    }
    fn write(&self, bytes: &[u8]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes.to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::TuningLine;
    use compiler::compile::compile;
    use compiler::schedule::rules::values;

    #[test]
    fn tuned_lines_that_decided_a_schedule_are_named() {
        let text = "graph @main(%x: f32[64,32], %w: f32[32,48]) -> (y: f32[64,48]) {
  %y = matmul %x, %w : f32[64,48]
  return %y
}
";
        let (module, profile) = (parse_module(text).expect("parses"), DeviceProfile::lavapipe());
        let c = compile(module, &CompileOptions::default(), &profile, emitter(&profile), &mut |_, _, _| ());
        let c = c.expect("compiles");
        let (name, before) = c.unscheduled.first().expect("a function");
        let line = |device: String| TuningLine {
            device,
            function: before.fingerprint().to_string(),
            constants: vec![],
            name: name.to_string(),
            family: String::new(),
            extents: vec![],
            choices: TuningLine::print_choices(&values(&c.module.tensor_functions[name].trace)),
            schedule: vec![],
            withdrawn: false,
            ratio: 0.5,
            rounds: [15, 15],
            us: [2.0, 1.0],
            estimated_us: [2.0, 1.0],
            seed: 0,
            by: "tune".into(),
            kept_at: 0,
            weft: "0.1.0".into(),
        };
        let own = line(profile.identity());
        let others = [line("another device".into()), TuningLine { function: "another".into(), ..own.clone() }];
        let all =
            TuningDatabase { lines: others.into_iter().chain([own.clone()]).collect(), ..TuningDatabase::default() };
        assert_eq!(used(&all, &c, &profile).lines, [own]);
    }
}
