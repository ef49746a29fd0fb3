//! Estimated costs of a compilation's kernels, computed from its scheduled tensor functions.

use super::CompileTrace;
use crate::dtype::DType;
use crate::graph::{Module, ValueId};
use crate::name::Name;
use crate::ops::control::Const;
use crate::profile::DeviceProfile;
use crate::schedule::estimate::{Cost, KernelEstimate, cost_of_bytes};
use crate::schedule::estimator::estimate;
use crate::schedule::rules::{Alternative, alternatives, estimate_pending};
use crate::text::parse_module;
use crate::tir::Stmt;
use rustc_hash::FxHashMap;

/// What a group stores.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Stored {
    /// Element type of its first result; `None` for a group that is not called.
    pub dtype: Option<DType>,
    /// The nanoseconds that the estimate gives for the bytes that would be added if its results and constants were f32:
    /// `None` if none of them is f16.
    pub f32_ns: Option<f64>,
}

impl CompileTrace {
    /// The estimate of each kernel on the device of the compilation; `None` for one that the scheduled text does not
    /// have.
    ///
    /// # Errors
    /// A trace without scheduled tensor functions, or of a device or text that this version does not read.
    pub fn estimates(&self) -> Result<Vec<Option<KernelEstimate>>, String> {
        let (module, profile) = self.functions_of("scheduled")?;
        let lowered = if profile.model().shaders { None } else { Some(self.functions_of("lowered")?.0) };
        let mut known: FxHashMap<&str, Vec<KernelEstimate>> = FxHashMap::default();
        let mut out = Vec::with_capacity(self.kernels.len());
        for k in &self.kernels {
            let function = module.tensor_functions.get(&Name::new(&k.function));
            let target = self.options.scheduling.on(&profile);
            let of = || {
                let found = match &lowered {
                    None => function.map(|f| estimate(f, &[], target)),
                    Some(m) => m.tensor_functions.get(&Name::new(&k.function)).map(|f| estimate_pending(f, target)),
                };
                found.and_then(Result::ok).map_or(vec![], |e| e.kernels)
            };
            let list = known.entry(&k.function).or_insert_with(of);
            // A shader's entry point may have another name than the kernel; blocks keep theirs.
            let has =
                |body: &Stmt| k.blocks.iter().any(|b| body.blocks().iter().any(|own| own.name.as_str() == b.name));
            let at = function.and_then(|f| f.kernels().iter().position(|(_, body)| has(body)));
            out.push(at.and_then(|i| list.get(i)).cloned());
        }
        Ok(out)
    }
    /// The module of a stage, and the device of the compilation.
    fn functions_of(&self, label: &str) -> Result<(Module, DeviceProfile), String> {
        let at = self.stages.iter().rposition(|s| s.label == label);
        self.functions_of_stage(at.ok_or_else(|| format!("this trace has no {label} tensor functions"))?)
    }
    fn functions_of_stage(&self, at: usize) -> Result<(Module, DeviceProfile), String> {
        let label = self.stages.get(at).map_or("", |s| s.label.as_str());
        let profile: DeviceProfile = serde_json::from_str(&self.profile)
            .map_err(|e| format!("the trace's device is not one that this Weft knows: {e}"))?;
        let text = self.stage_text(at).map_err(|e| e.to_string())?.unwrap_or_default();
        let module = parse_module(&text).map_err(|e| format!("the {label} text does not parse: {e}"))?;
        Ok((module, profile))
    }
    /// The schedule of a kernel's function, and the others that differ from it in one choice, each with its estimate.
    ///
    /// # Errors
    /// As for [`CompileTrace::estimates`], and for a kernel whose function the trace does not have.
    pub fn alternatives(&self, kernel: usize) -> Result<Vec<Alternative>, String> {
        let (module, profile) = self.functions_of("lowered")?;
        let name = &self.kernels[kernel].function;
        let f = module.tensor_functions.get(&Name::new(name)).ok_or_else(|| format!("the trace has no @{name}"))?;
        alternatives(f, self.options.scheduling.on(&profile)).map_err(|e| e.to_string())
    }
    /// The same for every tensor function that kernels came from, in the order of the kernels. A function whose
    /// schedule does not apply is left out.
    ///
    /// # Errors
    /// As for [`CompileTrace::estimates`].
    pub fn all_alternatives(&self) -> Result<Vec<(String, Vec<Alternative>)>, String> {
        let (module, profile) = self.functions_of("lowered")?;
        let mut out: Vec<(String, Vec<Alternative>)> = vec![];
        for k in &self.kernels {
            if out.iter().all(|(name, _)| *name != k.function) {
                let f = module.tensor_functions.get(&Name::new(&k.function));
                let list = f.and_then(|f| alternatives(f, self.options.scheduling.on(&profile)).ok());
                out.extend(list.map(|list| (k.function.clone(), list)));
            }
        }
        Ok(out)
    }
    /// What each group stores.
    ///
    /// # Errors
    /// A trace without stages, or of a device or text that this version does not read.
    pub fn stored(&self) -> Result<Vec<Stored>, String> {
        let (module, profile) = self.functions_of_stage(self.passes.len())?;
        let readers = self.readers();
        let mut out = vec![Stored::default(); self.groups.len()];
        for f in module.functions.values().filter(|f| !f.primitive) {
            for node in f.walk().into_iter().map(|n| &f.nodes[n]) {
                let Some(callee) = node.op.callee() else { continue };
                let Some(group) = self.groups.iter().position(|g| g.function == callee.as_str()) else { continue };
                let half = |v: ValueId| f.ty(v).bytes().filter(|_| f.ty(v).dtype == DType::F16).unwrap_or(0);
                let results: usize = node.outputs.iter().map(|&v| half(v)).sum();
                let constants = node.inputs.iter().flatten().filter(|v| f.def_op::<Const>(**v).is_some());
                let constants: usize = constants.map(|&v| half(v)).sum();
                let more = results * (1 + readers[group].len()) + constants;
                let cost = |bytes: usize| cost_of_bytes(&profile, bytes as f64).total();
                out[group] = Stored {
                    dtype: node.outputs.first().map(|&v| f.ty(v).dtype),
                    f32_ns: (more > 0).then(|| cost(2 * more) - cost(more)),
                };
            }
        }
        Ok(out)
    }
    /// The cost of all dispatches, by these estimates of kernels; and how many dispatches have none.
    pub fn estimated_cost(&self, estimates: &[Option<KernelEstimate>]) -> (Cost, usize) {
        let all = self.calls().map(|c| estimates.get(c.kernel).and_then(Option::as_ref));
        all.fold((Cost::default(), 0), |(sum, missing), e| match e {
            Some(e) => (sum + e.cost, missing),
            None => (sum, missing + 1),
        })
    }
}
