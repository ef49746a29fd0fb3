//! Measured costs of nodes: each node is compiled alone, a device times its kernels, and the times are looked up.

use super::{CompileOptions, Compiled, compile};
use crate::cost::{CostModel, EstimatedCost, Measurement, Measurements, NodeForm, RegionTimes, single_node_module};
use crate::int::DimRanges;
use crate::passes::{LayoutMode, PipelineOptions};
use crate::plan::EmitKernel;
use crate::profile::DeviceProfile;
use crate::schedule::estimate::Estimate;
use crate::schedule::{ScheduleOptions, ScheduleTarget};
use crate::tir::{Access, BufferId, Param, TensorFunction};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Measured times, and the shader generator that made the measured kernels.
pub struct KernelTimes {
    /// The times.
    pub measurements: Measurements,
    /// The generator.
    pub emitter: Arc<dyn EmitKernel>,
    unmeasured: Option<Mutex<BTreeMap<String, AskedFunction>>>,
}

impl KernelTimes {
    /// Times of kernels that this generator made.
    pub fn new(measurements: Measurements, emitter: Arc<dyn EmitKernel>) -> KernelTimes {
        KernelTimes { measurements, emitter, unmeasured: None }
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
        AskedFunction { function, constants: positions, estimated_ns }
    }
}

/// Measured costs in nanoseconds; the estimate, scaled to nanoseconds, for what was not measured.
pub struct MeasuredCost {
    times: Arc<KernelTimes>,
    profile: DeviceProfile,
    scheduling: ScheduleOptions,
    estimated: EstimatedCost,
    scale: f64,
    /// [`DeviceProfile::identity`].
    identity: String,
    /// Answers to earlier questions: a time needs the node's kernels, and compiling these takes time.
    known: Mutex<Vec<(NodeForm, Option<f64>)>>,
}

impl MeasuredCost {
    /// For a device, where open sizes have these ranges. The scale of the estimate follows from the measurements on
    /// that device.
    pub fn new<'a>(times: Arc<KernelTimes>, target: impl Into<ScheduleTarget<'a>>, dims: &DimRanges) -> MeasuredCost {
        let target = target.into();
        let ScheduleTarget { profile, options } = target;
        let scale = times.measurements.scale(profile);
        let estimated = EstimatedCost::within(target, dims.clone());
        let (identity, known) = (profile.identity(), Mutex::default());
        let (profile, scheduling) = (profile.clone(), options.clone());
        MeasuredCost { times, profile, scheduling, estimated, scale, identity, known }
    }
    /// True if nodes were measured on the device.
    fn has_nodes(&self) -> bool {
        self.times.measurements.devices.contains_key(&self.identity)
    }
    /// The time of a node, where it was measured, in nanoseconds.
    pub fn measured(&self, form: &NodeForm) -> Option<f64> {
        if !self.has_nodes() {
            return None;
        }
        let mut known = self.known.lock().ok()?;
        if let Some((_, ns)) = known.iter().find(|k| k.0 == *form) {
            return *ns;
        }
        let compiled = compile_single(form, self.scheduling.on(&self.profile), &*self.times.emitter).ok();
        let found = compiled.and_then(|c| self.times.measurements.get(&self.profile, &c.plan)).map(|m| m.ns);
        known.push((form.clone(), found));
        found
    }
}

impl CostModel for MeasuredCost {
    fn node(&self, form: &NodeForm) -> u64 {
        let estimate = || self.estimated.node(form) as f64 * self.scale;
        self.measured(form).unwrap_or_else(estimate).clamp(0.0, 1e15) as u64
    }
    fn function(&self, f: &TensorFunction, constants: &[BufferId]) -> Arc<Result<Estimate, String>> {
        let found = self.estimated.function(f, constants);
        let functions = self.times.measurements.functions.get(&self.identity);
        let (Some(functions), Ok(estimate)) = (functions, found.as_ref()) else { return found };
        let form = f.form(constants).to_string();
        if let Some(&ns) = functions.get(&form) {
            return Arc::new(Ok(Estimate { measured: Some(ns), ..estimate.clone() }));
        }
        if let Some(mut list) = self.times.unmeasured.as_ref().and_then(|list| list.lock().ok()) {
            list.entry(form).or_insert_with(|| AskedFunction::new(f, constants, estimate.total()));
        }
        found
    }
    fn region(&self, key: &str) -> Option<RegionTimes> {
        self.times.measurements.regions.get(&self.identity)?.get(key).copied()
    }
    fn measures_functions(&self) -> bool {
        self.times.measurements.functions.contains_key(&self.identity)
    }
    /// Kernels are measured alone and on a device that others use: a tenth.
    fn uncertainty(&self) -> f64 {
        if self.has_nodes() { 0.1 } else { 0.0 }
    }
}

/// Times a compiled module on a device. The runtime implements it.
pub trait MeasureKernel {
    /// The time of one run on the device, in nanoseconds: inputs and results resident, the least disturbed of several
    /// runs.
    ///
    /// # Errors
    /// Why it cannot run there, in one sentence.
    fn measure(&mut self, compiled: &Compiled) -> Result<f64, String>;
}

/// Compiles a node alone, in the layout that it has.
///
/// # Errors
/// An error of [`single_node_module`] or of the compilation.
pub fn compile_single<'a>(
    form: &NodeForm,
    target: impl Into<ScheduleTarget<'a>>,
    emitter: &dyn EmitKernel,
) -> Result<Compiled, String> {
    let ScheduleTarget { profile, options } = target.into();
    let (layout, scheduling) = (LayoutMode::None, options.clone());
    let pipeline = PipelineOptions { layout, scheduling, ..PipelineOptions::default() };
    let options = CompileOptions { pipeline, ..CompileOptions::default() };
    compile(single_node_module(form)?, &options, profile, emitter, &mut |_, _, _| ()).map_err(|e| e.to_string())
}

/// Measures every node of `forms` that is not in `measurements` yet; returns why nodes could not be measured.
pub fn measure_forms(
    forms: &[NodeForm],
    profile: &DeviceProfile,
    emitter: &dyn EmitKernel,
    device: &mut dyn MeasureKernel,
    measurements: &mut Measurements,
) -> Vec<String> {
    let mut failures = Vec::new();
    let estimated = EstimatedCost::new(profile);
    for form in forms {
        let measured = compile_single(form, profile, emitter).and_then(|c| {
            if measurements.get(profile, &c.plan).is_none() {
                let ns = device.measure(&c)?;
                measurements.insert(profile, &c.plan, Measurement { ns, estimated_ns: estimated.node(form) });
            }
            Ok(())
        });
        failures.extend(measured.err().map(|why| format!("{}: {why}", form.op.name())));
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::code_digest;
    use crate::dtype::DType;
    use crate::fingerprint::Fingerprint;
    use crate::graph::TensorType;
    use crate::ops::DataLayout;
    use crate::ops::conv::Conv;
    use crate::ops::transpose::Transpose;
    use crate::plan::StandInEmitter;

    fn conv(layout: DataLayout, channels: usize) -> NodeForm {
        let shape = |c| match layout {
            DataLayout::Nhwc => [1, 8, 8, c],
            _ => [1, c, 8, 8],
        };
        let ty = |s: &[usize]| TensorType::fixed(DType::F32, s);
        NodeForm {
            op: Conv { layout, ..Conv::default() }.into(),
            inputs: vec![Some((ty(&shape(channels)), false)), Some((ty(&[16, channels, 1, 1]), true))],
            outputs: vec![ty(&shape(16))],
        }
    }

    fn digest(f: &NodeForm, p: &DeviceProfile, version: u32) -> Fingerprint {
        code_digest(&compile_single(f, p, &StandInEmitter { version }).expect("it compiles").plan)
    }

    #[test]
    fn digests_tell_kernels_and_lowerings_apart() {
        let a = DeviceProfile::lavapipe();
        let nhwc = conv(DataLayout::Nhwc, 8);
        assert_eq!(digest(&nhwc, &a, 1), digest(&conv(DataLayout::Nhwc, 8), &a, 1));
        let mut open = nhwc.clone();
        open.inputs[1].as_mut().expect("weights").1 = false;
        let others = [conv(DataLayout::Nchw, 8), conv(DataLayout::Nhwc, 4), open];
        let mut seen: Vec<Fingerprint> = others.iter().map(|f| digest(f, &a, 1)).collect();
        seen.extend([digest(&nhwc, &a, 1), digest(&nhwc, &a, 2)]);
        let count = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }

    /// One time for NHWC convolutions and another for everything else.
    struct Fixed;
    impl MeasureKernel for Fixed {
        fn measure(&mut self, compiled: &Compiled) -> Result<f64, String> {
            let slow = compiled.groups.iter().any(|g| g.layout == Some("NHWC"));
            Ok(if slow { 9e6 } else { 1e6 })
        }
    }

    fn measured_on(profile: &DeviceProfile, forms: &[NodeForm]) -> Measurements {
        let mut m = Measurements::default();
        assert!(measure_forms(forms, profile, &StandInEmitter { version: 1 }, &mut Fixed, &mut m).is_empty());
        m
    }

    fn cost(m: &Measurements, profile: &DeviceProfile, version: u32) -> MeasuredCost {
        let times = KernelTimes::new(m.clone(), Arc::new(StandInEmitter { version }));
        MeasuredCost::new(Arc::new(times), profile, &DimRanges::default())
    }

    #[test]
    fn measured_times_count_and_the_rest_is_scaled() {
        let profile = DeviceProfile::lavapipe();
        let (nchw, nhwc) = (conv(DataLayout::Nchw, 8), conv(DataLayout::Nhwc, 8));
        let estimated = EstimatedCost::new(&profile);
        assert!(estimated.node(&nchw) > estimated.node(&nhwc));
        let record = crate::cost::RecordingCost::new(&profile);
        for f in [&nchw, &nhwc, &nchw] {
            record.node(f);
        }
        let m = measured_on(&profile, &record.forms());
        assert_eq!(m.devices[&profile.identity()].len(), 2);
        let measured = cost(&m, &profile, 1);
        assert_eq!((measured.node(&nchw), measured.node(&nhwc)), (1_000_000, 9_000_000));
        let ty = TensorType::fixed(DType::F32, &[1, 64, 64, 8]);
        let transpose = NodeForm {
            op: Transpose { perm: vec![0, 3, 1, 2] }.into(),
            inputs: vec![Some((ty.clone(), false))],
            outputs: vec![TensorType::fixed(DType::F32, &[1, 8, 64, 64])],
        };
        assert!(measured.measured(&transpose).is_none() && measured.node(&transpose) > 0);
    }

    #[test]
    fn times_of_other_code_processors_and_drivers_are_not_used() {
        let profile = DeviceProfile { driver_version: "1".into(), processor: "a".into(), ..DeviceProfile::lavapipe() };
        let nchw = conv(DataLayout::Nchw, 8);
        let m = measured_on(&profile, std::slice::from_ref(&nchw));
        assert_eq!(cost(&m, &profile, 1).measured(&nchw), Some(1e6));
        assert_eq!(cost(&m, &profile, 2).measured(&nchw), None);
        for other in [
            DeviceProfile { driver_version: "2".into(), ..profile.clone() },
            DeviceProfile { processor: "b".into(), ..profile.clone() },
        ] {
            assert_eq!(cost(&m, &other, 1).measured(&nchw), None);
        }
    }

    #[test]
    fn the_unit_comes_from_the_device_alone() {
        let (a, b) = (DeviceProfile::lavapipe(), DeviceProfile::hopper());
        let entry = |ns: f64| Measurement { ns, estimated_ns: 1000 };
        let mut m = Measurements::default();
        for (i, ns) in [2000.0, 3000.0, 4000.0].into_iter().enumerate() {
            m.devices.entry(a.identity()).or_default().insert(i.to_string(), entry(ns));
        }
        for i in 0..9 {
            m.devices.entry(b.identity()).or_default().insert(i.to_string(), entry(7.0));
        }
        assert_eq!((m.scale(&a), m.scale(&b)), (3.0, 0.007));
        assert_eq!(m.scale(&DeviceProfile::baseline()), 1.0);
    }
}
