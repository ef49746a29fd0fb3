//! A compiled network, with the files that a page takes from it.

use crate::rest::{NODE, Rest, result};
use crate::{Files, Request};
use compiler::compile::{CompileError, CompileOptions, Compiled, Progress, compile};
use compiler::interpreter::HostFunctions;
use compiler::name::Name;
use compiler::passes::Clock;
use compiler::tensor::Tensor;
use compiler::trace::{CompileTrace, Contents, DispatchTime, Times};
use rust_source::{File, Group, WeightPart, weight_parts};
use shaders_gen::Emitter;
use std::collections::BTreeMap;
use std::sync::Arc;
use tensor_ir::interpreter::run_tensor_function;
use tensor_ir::plan::storage::encode_tensor;
use tensor_ir::plan::{BufferView, Content, HostContent, HostStep, Plan, PlanBuffer, Step};
use tensor_ir::tir::Encoding;

/// A compiled network.
pub struct Network {
    name: String,
    compiled: Compiled,
    /// The plan for the sizes that the page runs.
    plan: Plan,
    parts: Vec<WeightPart>,
    /// A buffer with its packed constant.
    kept: Option<(usize, Vec<u8>)>,
    options: CompileOptions,
    request_dims: BTreeMap<String, String>,
    /// The parts behind a node that decides sizes.
    rest: Option<Rest>,
}

/// Times that a page measured, for a trace.
#[derive(serde::Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The adapter's name.
    pub device: String,
    /// `gpu-timestamps` or `host-clock`.
    pub source: String,
    /// Microseconds of each dispatch, in the plan's order.
    pub us: Vec<f64>,
    /// Milliseconds of a run with inputs sent and results read back.
    pub latency_ms: f64,
}

impl Network {
    /// Compiles the model in `files`, whose names and sizes the request has, or a network of the zoo if it has none.
    /// `clock` times the passes.
    ///
    /// # Errors
    /// A model, sizes or a profile that are wrong; operators that the compiler does not have.
    pub fn compile(
        request: &Request,
        files: Arc<dyn Files>,
        clock: Option<Arc<dyn Clock>>,
        progress: Progress<'_>,
    ) -> Result<Network, String> {
        // Matrix units are in no browser: `weft export --web` leaves them out as well.
        let profile = compiler::profile::DeviceProfile { matrix_shapes: vec![], ..request.profile()? };
        if !profile.model().shaders {
            return Err(format!("the profile {} is of a processor, and a page runs shaders", profile.name));
        }
        progress("reading the model", 0, 1);
        let (module, dims) = request.module(files)?;
        let options = CompileOptions { clock, dims, record: request.record, ..CompileOptions::default() };
        let mut rest = None;
        let compiled = match compile(module.clone(), &options, &profile, &Emitter, progress) {
            Err(why @ CompileError::NeedsCpu(_)) => {
                let (head, behind) = Rest::of(&module, &why)?;
                rest = Some(behind);
                compile(head, &options, &profile, &Emitter, progress)
            }
            done => done,
        };
        let compiled = compiled.map_err(|e| e.to_string())?;
        let name = short_name(&request.model);
        let (plan, parts) = (compiled.plan.clone(), weight_parts(&compiled.plan));
        let request_dims = request.dims.clone();
        Ok(Network { name, compiled, plan, parts, kept: None, options, request_dims, rest })
    }

    /// The files of `weft export --web` that are the network's own, without the weights: `plan.json` and kernels.
    ///
    /// # Errors
    /// Steps that a browser does not run, by name.
    pub fn files(&self) -> Result<Vec<File>, String> {
        self.written(&self.compiled.plan)
    }

    /// The part of `weights.bin` that begins at `at`. Large constants have several parts, best asked for in order: the
    /// constant is read and packed for the first one, and kept until the last.
    ///
    /// # Errors
    /// A place where no part begins; weights that cannot be read.
    pub fn weights(&mut self, at: usize) -> Result<Vec<u8>, String> {
        let part = self.parts.iter().find(|p| p.at == at).copied();
        let part = part.ok_or_else(|| format!("no weights begin at {at}"))?;
        if self.kept.as_ref().is_none_or(|(buffer, _)| *buffer != part.buffer) {
            self.kept = None;
            self.kept = Some((part.buffer, self.packed(&self.compiled.plan.buffers[part.buffer])?));
        }
        let whole = |packed: &Vec<u8>| part.last && part.start == 0 && packed.len() == part.bytes;
        match self.kept.take_if(|(_, packed)| whole(packed)) {
            Some((_, packed)) => Ok(packed),
            None => {
                let kept = if part.last { &self.kept.take() } else { &self.kept };
                Ok(kept.as_ref().map_or(vec![], |(_, packed)| part.of(packed)))
            }
        }
    }

    /// The file `plan.json` for other sizes of the dimensions that stayed open: kernels and weights are the same.
    ///
    /// # Errors
    /// A network without open dimensions; sizes that are missing or beyond their range.
    pub fn plan_at(&mut self, sizes: &BTreeMap<String, i64>) -> Result<File, String> {
        let open = self.compiled.open.as_ref().ok_or("no dimension of the network is open")?;
        let sizes: Vec<(Name, i64)> = sizes.iter().map(|(name, n)| (Name::new(name), *n)).collect();
        let (plan, _) = open.at(&sizes).map_err(|e| e.to_string())?;
        let files = self.written(&plan)?;
        self.plan = plan;
        files.into_iter().find(|f| f.path == "plan.json").ok_or_else(|| "there is no plan".into())
    }

    /// The names of the dimensions that stayed open, with their ranges, as JSON.
    pub fn open_dims(&self) -> String {
        let open = self.compiled.open.as_ref().map_or(vec![], |o| o.dims());
        let range = |d: &Name| self.request_dims.get(d.as_str()).cloned().unwrap_or_default();
        let all = open.iter().map(|d| (d.to_string(), serde_json::Value::String(range(d))));
        serde_json::Value::Object(all.collect()).to_string()
    }

    fn written(&self, plan: &Plan) -> Result<Vec<File>, String> {
        let texts = |all: &[Name]| all.iter().map(Name::to_string).collect();
        let groups = self.compiled.groups.iter();
        let groups: Vec<Group> = groups.map(|g| Group { label: g.label.clone(), nodes: texts(&g.origins) }).collect();
        let mut files = rust_source::network(plan, &self.compiled.profile, &self.name, &groups)?;
        if let Some(rest) = &self.rest {
            files.iter_mut().filter(|f| f.path == "plan.json").try_for_each(|f| rest.add_to(f))?;
        }
        Ok(files)
    }

    /// The bytes of a constant's buffer as kernels read them; none for other buffers. Constants are laid out by the
    /// interpreter.
    fn packed(&self, b: &PlanBuffer) -> Result<Vec<u8>, String> {
        let Content::Constant { name, packer } = &b.content else { return Ok(vec![]) };
        let mut t = self.constant(name)?;
        if let Some(packer) = packer {
            let results = run_tensor_function(packer, &[t]).map_err(|e| e.to_string())?;
            t = results.into_iter().next().ok_or_else(|| format!("the packer of {name} has no result"))?;
        }
        let narrow = if t.dtype().size() == 8 { Encoding::Narrow } else { Encoding::Native };
        let bytes = encode_tensor(&t, b.encoding.unwrap_or(narrow)).map_err(|e| e.to_string())?;
        Ok(bytes.into_owned())
    }

    /// Computes a node that the plan gives to the host, by the interpreter: its operands as bytes in, its results out,
    /// each as a file whose name is its shape. Constants that only the host reads are not among the operands.
    ///
    /// # Errors
    /// A node that the host does not compute, operands that are not its own, what the node says.
    pub fn host(&self, node: u32, operands: Vec<Vec<u8>>) -> Result<Vec<File>, String> {
        if let Some(rest) = self.rest.as_ref().filter(|_| node == NODE) {
            return rest.run(&self.plan, operands);
        }
        let h = self.host_step(node).ok_or_else(|| format!("the host has no node {node}"))?;
        let mut given = operands.into_iter();
        let of = |v: &BufferView| match &self.plan.buffers[v.buffer].content {
            Content::Host(HostContent::Constant(name)) => self.constant(name),
            _ => {
                let bytes = given.next().ok_or_else(|| format!("`{}` has no operand `{}`", h.name, v.name))?;
                Tensor::from_bytes(v.dtype, v.shape.clone(), bytes.into())
            }
        };
        let inputs = h.inputs.iter().map(of).collect::<Result<_, _>>()?;
        let results = (h.run)(inputs, &HostFunctions::default()).map_err(|e| format!("`{}`: {e}", h.name))?;
        let file = |(v, t): (&BufferView, Tensor)| match (t.dtype(), t.shape()) == (v.dtype, &v.shape) {
            true => Ok(result(&t)),
            false => Err(format!(
                "`{}` gives {}{:?}, and {}{:?} was planned",
                h.name,
                t.dtype(),
                t.shape(),
                v.dtype,
                v.shape
            )),
        };
        h.outputs.iter().zip(results).map(file).collect()
    }

    fn host_step(&self, node: u32) -> Option<&HostStep> {
        let mut steps = self.plan.all_steps().into_iter();
        steps.find_map(|s| if let Step::Host(h) = s { Some(h).filter(|h| h.node == node) } else { None })
    }

    /// The elements of a constant that only the host reads.
    ///
    /// # Errors
    /// A buffer that has none; weights that cannot be read.
    pub fn host_constant(&self, buffer: usize) -> Result<Vec<u8>, String> {
        match self.plan.buffers.get(buffer).map(|b| &b.content) {
            Some(Content::Host(HostContent::Constant(name))) => Ok(self.constant(name)?.bytes().to_vec()),
            _ => Err(format!("buffer {buffer} is no constant of the host")),
        }
    }

    fn constant(&self, name: &Name) -> Result<Tensor, String> {
        let constant = self.compiled.module.constants.get(name);
        constant.ok_or_else(|| format!("there is no constant {name}"))?.load().map_err(|e| e.to_string())
    }

    /// The record of the compilation, with what was measured: what `weft view` and `weft report` open.
    ///
    /// # Errors
    /// Weights that cannot be read; times of another network.
    pub fn trace(&self, measured: Option<Measured>) -> Result<CompileTrace, String> {
        let mut trace = CompileTrace::new(&self.name, &self.compiled, &self.options, &Emitter, Contents::Full)?;
        if let Some(m) = measured {
            let count = trace.calls().count();
            if m.us.len() != count {
                return Err(format!("{} times were measured of {count} dispatches", m.us.len()));
            }
            let dispatches: Vec<_> = m.us.iter().map(|&us| DispatchTime { us, min_us: us, max_us: us }).collect();
            let device_ms = m.us.iter().sum::<f64>() / 1e3;
            let (device, source, latency_ms) = (m.device, m.source, m.latency_ms);
            trace.times = Some(Times { device, source, dispatches, latency_ms, device_ms, ..Times::default() });
        }
        Ok(trace)
    }

    /// The bytes of the trace's file, and the page of `weft report` of it.
    ///
    /// # Errors
    /// As [`Network::trace`].
    pub fn report(&self, measured: Option<Measured>) -> Result<[File; 2], String> {
        let trace = self.trace(measured)?;
        let html = html(&trace)?;
        let bytes = trace.to_bytes().map_err(|e| e.to_string())?;
        Ok([File { path: format!("{}.trace", self.name), bytes }, html])
    }
}

fn html(trace: &CompileTrace) -> Result<File, String> {
    let html = graphview::report::report(trace).map_err(|e| e.to_string())?;
    Ok(File { path: "report.html".into(), bytes: html.into_bytes() })
}

/// The page of `weft report` of a trace that the command or a page wrote.
///
/// # Errors
/// Bytes that are no trace.
pub fn report_of(trace: &[u8]) -> Result<File, String> {
    html(&CompileTrace::from_bytes(trace).map_err(|e| e.to_string())?)
}

/// The model's name without its folders and its end, as the command has it.
fn short_name(model: &str) -> String {
    let file = model.rsplit(['/', '\\']).next().unwrap_or(model);
    let stem = file.strip_suffix(".onnx").or_else(|| file.strip_suffix(".weft")).unwrap_or(file);
    if stem.is_empty() { "model".into() } else { stem.into() }
}
