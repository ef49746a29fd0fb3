//! Measured costs: the times of functions that were measured, and a list of those that were asked about and were not.

use crate::cost::{CostModel, ESTIMATE_DEVIATION, EstimatedCost, Measurements, NodeForm, RegionTimes};
use crate::int::DimRanges;
use crate::schedule::ScheduleTarget;
use crate::schedule::estimate::Estimate;
use crate::tir::{Access, BufferId, Param, TensorFunction};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Measured times.
#[derive(Default)]
pub struct KernelTimes {
    /// The times.
    pub measurements: Measurements,
    unmeasured: Option<Mutex<BTreeMap<String, AskedFunction>>>,
}

impl KernelTimes {
    /// These times.
    pub fn new(measurements: Measurements) -> KernelTimes {
        KernelTimes { measurements, unmeasured: None }
    }
    /// The same, with a list of the functions that passes ask about and that are not measured.
    pub fn recording(self) -> KernelTimes {
        KernelTimes { unmeasured: Some(Mutex::default()), ..self }
    }
    /// The functions that were asked about and are not measured, by their form.
    pub fn unmeasured(&self) -> BTreeMap<String, AskedFunction> {
        self.unmeasured.as_ref().and_then(|list| Some(list.lock().ok()?.clone())).unwrap_or_default()
    }
}

/// A function that a pass asked the cost of.
#[derive(Clone)]
pub struct AskedFunction {
    /// Unscheduled, with parameters: the buffers that it only reads, then those that it only writes.
    pub function: TensorFunction,
    /// Positions of operands that are constants.
    pub constants: Vec<usize>,
    /// Its estimate.
    pub estimated_ns: f64,
    /// Nanoseconds that choices between it and other functions are expected to gain if it is measured.
    pub gain_ns: f64,
}

impl AskedFunction {
    fn new(f: &TensorFunction, constants: &[BufferId], estimated_ns: f64) -> AskedFunction {
        let mut function = f.clone();
        let blocks = f.body.blocks();
        let written: Vec<BufferId> = blocks.iter().map(|b| b.buffer).collect();
        let read: Vec<BufferId> = f.buffers.ids().filter(|b| blocks.iter().any(|k| k.reads(*b))).collect();
        let inputs: Vec<BufferId> = read.iter().copied().filter(|b| !written.contains(b)).collect();
        let results = f.buffers.ids().filter(|b| written.contains(b) && !read.contains(b));
        function.params = inputs.iter().map(|&buffer| Param { buffer, access: Access::Read }).collect();
        function.params.extend(results.map(|buffer| Param { buffer, access: Access::Write }));
        let positions = (0..inputs.len()).filter(|&i| constants.contains(&inputs[i])).collect();
        let mut function = function.canonical();
        function.number_stages();
        AskedFunction { function, constants: positions, estimated_ns, gain_ns: 0.0 }
    }
}

/// Costs in nanoseconds: the estimate, with the times that were measured.
pub struct MeasuredCost {
    times: Arc<KernelTimes>,
    estimated: EstimatedCost,
    /// [`DeviceProfile::identity`](crate::profile::DeviceProfile::identity).
    identity: String,
}

impl MeasuredCost {
    /// For a device, where open sizes have these ranges.
    pub fn new<'a>(times: Arc<KernelTimes>, target: impl Into<ScheduleTarget<'a>>, dims: &DimRanges) -> MeasuredCost {
        let target = target.into();
        let identity = target.profile.identity();
        MeasuredCost { times, estimated: EstimatedCost::within(target, dims.clone()), identity }
    }
}

impl CostModel for MeasuredCost {
    fn node(&self, form: &NodeForm) -> u64 {
        self.estimated.node(form)
    }
    fn function(&self, f: &TensorFunction, constants: &[BufferId]) -> Arc<Result<Estimate, String>> {
        let found = self.estimated.function(f, constants);
        let functions = self.times.measurements.functions.get(&self.identity);
        let (Some(functions), Ok(estimate)) = (functions, found.as_ref()) else { return found };
        let form = f.form(constants).to_string();
        if let Some(&ns) = functions.get(&form) {
            return Arc::new(Ok(Estimate { measured: Some(ns), ..estimate.clone() }));
        }
        let Some(list) = &self.times.unmeasured else { return found };
        let asked = Some(Arc::from(form.as_str()));
        if let Ok(mut list) = list.lock() {
            list.entry(form).or_insert_with(|| AskedFunction::new(f, constants, estimate.total()));
        }
        Arc::new(Ok(Estimate { asked, ..estimate.clone() }))
    }
    fn compares(&self, sides: [&[Estimate]; 2]) {
        let Some(mut list) = self.times.unmeasured.as_ref().and_then(|list| list.lock().ok()) else { return };
        for (form, gain_ns) in expected_gains(sides) {
            if let Some(asked) = list.get_mut(form) {
                asked.gain_ns += gain_ns;
            }
        }
    }
    fn region(&self, key: &str) -> Option<RegionTimes> {
        self.times.measurements.regions.get(&self.identity)?.get(key).copied()
    }
    fn measures_functions(&self) -> bool {
        self.times.measurements.functions.contains_key(&self.identity)
    }
}

/// The expected gain of a choice between two sides from measuring them, for each function that is not measured. Each
/// gets the whole gain, since the choice needs the times of all. Assumes a Laplace distribution for the error of the
/// difference of both estimates.
fn expected_gains([one, other]: [&[Estimate]; 2]) -> Vec<(&str, f64)> {
    let ns = |side: &[Estimate]| side.iter().map(Estimate::total).sum::<f64>();
    let open = || one.iter().chain(other).filter_map(|e| Some((e.asked.as_deref()?, ESTIMATE_DEVIATION * e.total())));
    let scale = (open().map(|e| e.1 * e.1).sum::<f64>() / 2.0).sqrt().max(f64::MIN_POSITIVE);
    let gain = scale / 2.0 * (-(ns(one) - ns(other)).abs() / scale).exp();
    open().map(|(form, _)| (form, gain)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::estimate::Cost;

    fn estimate(ns: f64, asked: Option<&str>) -> Estimate {
        let cost = Cost { arithmetic: ns, ..Cost::default() };
        Estimate { kernels: vec![], cost, measured: None, asked: asked.map(Arc::from) }
    }

    #[test]
    fn close_choices_between_long_functions_gain_most() {
        let gain = |one: f64, other: f64| {
            let (one, other) = ([estimate(one, Some("f"))], [estimate(other, None)]);
            expected_gains([&one, &other]).iter().map(|g| g.1).sum::<f64>()
        };
        assert!(gain(100.0, 101.0) > gain(100.0, 140.0) && gain(100.0, 140.0) > gain(100.0, 300.0));
        assert!(gain(100.0, 100.0) > 9.0 * gain(10.0, 10.0));
        let (two, measured) = ([estimate(4.0, Some("f")), estimate(2.0, Some("g"))], [estimate(6.0, None)]);
        let found = expected_gains([&two, &measured]);
        assert!(found[0].0 == "f" && found[1] == ("g", found[0].1), "{found:?}");
        assert!(expected_gains([&measured, &measured]).is_empty());
    }
}
