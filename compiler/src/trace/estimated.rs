//! Estimated costs of a compilation's kernels, computed from its scheduled tensor functions.

use super::CompileTrace;
use crate::graph::Module;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::estimate::{Cost, KernelEstimate, estimate};
use crate::schedule::rules::{Alternative, alternatives};
use crate::text::parse_module;
use crate::tir::Stmt;
use rustc_hash::FxHashMap;

impl CompileTrace {
    /// The estimate of each kernel on the device of the compilation; `None` for one that the scheduled text does not
    /// have.
    ///
    /// # Errors
    /// A trace without scheduled tensor functions, or of a device or text that this version does not read.
    pub fn estimates(&self) -> Result<Vec<Option<KernelEstimate>>, String> {
        let (module, profile) = self.functions_of("scheduled")?;
        let mut known: FxHashMap<&str, Vec<KernelEstimate>> = FxHashMap::default();
        let mut out = Vec::with_capacity(self.kernels.len());
        for k in &self.kernels {
            let function = module.tensor_functions.get(&Name::new(&k.function));
            let of = || function.and_then(|f| estimate(f, &[], &profile).ok()).map_or(vec![], |e| e.kernels);
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
        let at = at.ok_or_else(|| format!("this trace has no {label} tensor functions"))?;
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
        alternatives(f, &profile).map_err(|e| e.to_string())
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
