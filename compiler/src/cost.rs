//! What running an op costs: estimated from sizes, or measured on a device.
//!
//! A [`CostModel`] answers for one node by its op and the types around it, so that a pass can ask about forms that are
//! not in the graph. [`AnalyticCost`] estimates; [`MeasuredCost`] looks a node up in [`Measurements`] by
//! [`measurement_key`] and falls back to the estimate, scaled to the same unit. [`RecordingCost`] remembers what was
//! asked, which is the list of kernels to measure. Deliberately absent: the clock; whoever has a device measures.

use crate::graph::{FunctionBuilder, Module, TensorType, ValueId};
use crate::name::Name;
use crate::ops::{DataLayout, OpRef};
use crate::passes::{PassContext, PassError, PipelineOptions, Sequential, default_pipeline};
use crate::profile::DeviceProfile;
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::text::print_tensor_function;
use crate::tir::{Access, Buffer, Encoding, Param, Scope, TensorFunction};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A node that may or may not be in a graph.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeForm {
    /// The op.
    pub op: OpRef,
    /// Types of its operands, and whether each is a constant; `None` for an absent one.
    pub inputs: Vec<Option<(TensorType, bool)>>,
    /// Types of its results.
    pub outputs: Vec<TensorType>,
}

/// What nodes cost. The unit is the model's own: only comparisons count.
pub trait CostModel: Send + Sync {
    /// The cost of one node that runs alone.
    fn node(&self, form: &NodeForm) -> u64;
    /// The share of a cost that is noise: a choice must gain more than that to be preferred to a simpler one.
    fn uncertainty(&self) -> f64 {
        0.0
    }
}

/// Costs from sizes alone, in bytes of memory traffic.
#[derive(Clone, Copy, Default, Debug)]
pub struct AnalyticCost;
impl AnalyticCost {
    /// What a launch costs.
    pub const LAUNCH: u64 = 65536;
    fn bytes(ty: &TensorType) -> u64 {
        // An open dimension counts as 16.
        let count = ty.numel().eval(&|_| Some(16)).unwrap_or(1).max(0) as u64;
        count.saturating_mul(ty.dtype.size() as u64).min(1 << 40)
    }
}
impl CostModel for AnalyticCost {
    /// Everything is read and written once. An op that computes in NCHW reads across channels: a convolution as if it
    /// moved its data twice more and each multiply-accumulate cost a quarter of a byte, another op half as much again.
    fn node(&self, form: &NodeForm) -> u64 {
        let data = form.inputs.first().and_then(Option::as_ref).map_or(0, |t| Self::bytes(&t.0));
        let traffic = data + form.outputs.iter().map(Self::bytes).sum::<u64>();
        let other: u64 = form.inputs.iter().skip(1).flatten().map(|t| Self::bytes(&t.0)).sum();
        let across = form.op.layout().is_some_and(|l| l.data_layout() == DataLayout::Nchw);
        let inputs: Vec<Option<&TensorType>> = form.inputs.iter().map(|t| t.as_ref().map(|t| &t.0)).collect();
        let macs = form.op.macs(&inputs, &form.outputs.iter().collect::<Vec<_>>());
        let penalty = match (across, macs) {
            (false, _) => 0,
            (true, 0) => traffic / 2,
            (true, macs) => 2 * traffic + macs / 4,
        };
        Self::LAUNCH + traffic + other + penalty
    }
}

/// Times of kernels on a device, by [`measurement_key`]. Plain data: it is kept as JSON.
#[derive(Clone, Default, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Measurements {
    /// One entry for each measured kernel.
    pub entries: BTreeMap<String, Measurement>,
}

/// The time of one kernel.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Measurement {
    /// Time in nanoseconds.
    pub ns: f64,
    /// What the analytic model estimates for it, which gives the unit for kernels that were not measured.
    pub estimate: u64,
}

/// The key of a node's kernel: a digest of its canonical tensor function (names of buffers and loops do not matter, nor
/// which constants it reads), the device's name and driver, and the version of the schedule rules. `None` for a node
/// without a tensor expression.
pub fn measurement_key(form: &NodeForm, profile: &DeviceProfile) -> Option<String> {
    let (f, constants) = tensor_function(form)?;
    let text = format!("{}\n; constants {constants:?}", print_tensor_function(&f));
    let digest = fnv128(text.as_bytes());
    Some(format!("{digest:032x} {} {} r{}", profile.name, profile.driver, crate::schedule::rules::VERSION))
}

/// The tensor function of the node alone, with names that follow from positions.
fn tensor_function(form: &NodeForm) -> Option<(TensorFunction, Vec<bool>)> {
    let mut f = TensorFunction::new("k");
    let mut buffers = Vec::with_capacity(form.inputs.len());
    for (i, input) in form.inputs.iter().enumerate() {
        buffers.push(input.as_ref().map(|(ty, _)| {
            let buffer = f.buffers.push(Buffer {
                name: Name::new(&format!("in{i}")),
                dtype: ty.dtype,
                shape: ty.shape.clone(),
                scope: Scope::Global,
                encoding: Encoding::Native,
            });
            f.params.push(Param { buffer, access: Access::Read });
            buffer
        }));
    }
    let mut cx = ComputeContext::new(&mut f, buffers, vec![None; form.inputs.len()], form.outputs.clone(), "k");
    form.op.compute(&mut cx).ok()?;
    let outputs = cx.into_outputs();
    f.params.extend(outputs.into_iter().flatten().map(|buffer| Param { buffer, access: Access::Write }));
    Some((f.canonical(), form.inputs.iter().flatten().map(|i| i.1).collect()))
}

/// Fowler, Noll and Vo's hash 1a with 128 bits: the same on every machine and in every version.
fn fnv128(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0x6c62272e07bb014262b821756295c58d, |h, &b| {
        (h ^ b as u128).wrapping_mul(0x0000000001000000000000000000013b)
    })
}

/// Measured costs in nanoseconds; the estimate, scaled to nanoseconds, for what was not measured.
#[derive(Clone, Debug)]
pub struct MeasuredCost {
    measurements: Arc<Measurements>,
    profile: DeviceProfile,
    ns_per_unit: f64,
}
impl MeasuredCost {
    /// For a device. The unit of the estimate follows from the measurements: the median of their ratios.
    pub fn new(measurements: Arc<Measurements>, profile: &DeviceProfile) -> MeasuredCost {
        let mut ratios: Vec<f64> =
            measurements.entries.values().filter(|m| m.estimate > 0).map(|m| m.ns / m.estimate as f64).collect();
        ratios.sort_by(f64::total_cmp);
        let ns_per_unit = ratios.get(ratios.len() / 2).copied().unwrap_or(1.0);
        MeasuredCost { measurements, profile: profile.clone(), ns_per_unit }
    }
    /// The time of a node, where it was measured, in nanoseconds.
    pub fn measured(&self, form: &NodeForm) -> Option<f64> {
        measurement_key(form, &self.profile).and_then(|k| self.measurements.entries.get(&k)).map(|m| m.ns)
    }
}
impl CostModel for MeasuredCost {
    fn node(&self, form: &NodeForm) -> u64 {
        let estimate = || AnalyticCost.node(form) as f64 * self.ns_per_unit;
        self.measured(form).unwrap_or_else(estimate).clamp(0.0, 1e15) as u64
    }
    /// Kernels are measured alone and on a device that others use: a tenth.
    fn uncertainty(&self) -> f64 {
        0.1
    }
}

/// Estimates, and remembers every node that it was asked about.
#[derive(Default)]
pub struct RecordingCost {
    forms: Mutex<Vec<NodeForm>>,
}
impl RecordingCost {
    /// The different nodes so far, in the order in which they came up.
    pub fn forms(&self) -> Vec<NodeForm> {
        self.forms.lock().map(|f| f.clone()).unwrap_or_default()
    }
}
impl CostModel for RecordingCost {
    fn node(&self, form: &NodeForm) -> u64 {
        if let Ok(mut forms) = self.forms.lock()
            && !forms.contains(form)
        {
            forms.push(form.clone());
        }
        AnalyticCost.node(form)
    }
}

/// The nodes whose costs the passes of a pipeline ask for, in their order.
///
/// # Errors
/// A failing pass.
pub fn asked_forms(
    module: &Module,
    options: &PipelineOptions,
    profile: &DeviceProfile,
) -> Result<Vec<NodeForm>, PassError> {
    let record = Arc::new(RecordingCost::default());
    let mut cx = PassContext::new(profile.clone());
    options.configure(&mut cx);
    cx.cost_model = Some(record.clone());
    let list: Vec<String> = default_pipeline(options).into_iter().filter(|p| p != "fuse-ops").collect();
    Sequential::new(&list).run(&mut module.clone(), &mut cx)?;
    Ok(record.forms())
}

/// Times a module on a device; implemented by whoever has one.
pub trait MeasureKernel {
    /// The time of one run of the module's entry function on the device, in nanoseconds: inputs and results resident, the
    /// least disturbed of several runs.
    ///
    /// # Errors
    /// Why it cannot run there, in one sentence.
    fn measure(&mut self, module: &Module) -> Result<f64, String>;
}

/// A module that runs the node alone: parameters for its operands, random constants where they are constants.
///
/// # Errors
/// What the op says about operands of these types; open dimensions of constants.
pub fn single_node_module(form: &NodeForm) -> Result<Module, String> {
    let mut module = Module::new("main");
    let mut b = FunctionBuilder::new(&mut module, "main");
    let mut inputs: Vec<Option<ValueId>> = Vec::with_capacity(form.inputs.len());
    for (i, input) in form.inputs.iter().enumerate() {
        inputs.push(match input {
            None => None,
            Some((ty, true)) => {
                let shape = ty.const_shape().ok_or("a constant has open dimensions")?;
                Some(b.constant(&format!("c{i}"), &seeded(ty, &shape)))
            }
            Some((ty, false)) => Some(b.param(format!("x{i}").as_str(), ty.clone())),
        });
    }
    let outputs = b.add_multi(form.op.clone(), inputs, vec![]).map_err(|e| e.to_string())?;
    let results: Vec<(Name, ValueId)> =
        outputs.into_iter().enumerate().map(|(i, v)| (Name::new(&format!("y{i}")), v)).collect();
    b.finish(&results);
    Ok(module)
}

/// Values between 0.5 and 1.5, so that a variance is positive and nothing overflows.
fn seeded(ty: &TensorType, shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    Tensor::from_f64(ty.dtype, shape.to_vec(), (0..count).map(|i| 0.5 + (i * 7919 % 1009) as f64 / 1009.0))
}

/// Measures every node of `forms` that is not in `measurements` yet; returns why nodes could not be measured.
pub fn measure_forms(
    forms: &[NodeForm],
    profile: &DeviceProfile,
    device: &mut dyn MeasureKernel,
    measurements: &mut Measurements,
) -> Vec<String> {
    let mut failures = Vec::new();
    for form in forms {
        let Some(key) = measurement_key(form, profile) else { continue };
        if measurements.entries.contains_key(&key) {
            continue;
        }
        match single_node_module(form).and_then(|m| device.measure(&m)) {
            Ok(ns) => {
                measurements.entries.insert(key, Measurement { ns, estimate: AnalyticCost.node(form) });
            }
            Err(why) => failures.push(format!("{}: {why}", form.op.name())),
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::ops::conv::Conv;
    use crate::ops::transpose::Transpose;

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

    #[test]
    fn keys_tell_kernels_layouts_and_devices_apart() {
        let (a, b) = (DeviceProfile::lavapipe(), DeviceProfile::hopper());
        let key = |f: &NodeForm, p: &DeviceProfile| measurement_key(f, p).expect("it has a tensor expression");
        let nhwc = conv(DataLayout::Nhwc, 8);
        assert_eq!(key(&nhwc, &a), key(&conv(DataLayout::Nhwc, 8), &a));
        let mut seen = vec![key(&nhwc, &a), key(&nhwc, &b)];
        seen.extend([conv(DataLayout::Nchw, 8), conv(DataLayout::Nhwc, 4)].iter().map(|f| key(f, &a)));
        let mut open = nhwc.clone();
        open.inputs[1].as_mut().expect("weights").1 = false;
        seen.push(key(&open, &a));
        let count = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), count);
        assert!(seen.iter().all(|k| k.ends_with(&format!(" r{}", crate::schedule::rules::VERSION))));
    }

    #[test]
    fn measured_times_count_and_the_rest_is_scaled() {
        struct Fixed;
        impl MeasureKernel for Fixed {
            fn measure(&mut self, module: &Module) -> Result<f64, String> {
                let f = module.main();
                let slow = f.walk().iter().any(|&n| f.nodes[n].op.layout_name() == Some("NHWC"));
                Ok(if slow { 9e6 } else { 1e6 })
            }
        }
        let profile = DeviceProfile::lavapipe();
        let (nchw, nhwc) = (conv(DataLayout::Nchw, 8), conv(DataLayout::Nhwc, 8));
        assert!(AnalyticCost.node(&nchw) > AnalyticCost.node(&nhwc));
        let record = RecordingCost::default();
        for f in [&nchw, &nhwc, &nchw] {
            record.node(f);
        }
        let mut m = Measurements::default();
        assert!(measure_forms(&record.forms(), &profile, &mut Fixed, &mut m).is_empty());
        assert_eq!(m.entries.len(), 2);
        let text = serde_json::to_string(&m).expect("serialises");
        let again: Measurements = serde_json::from_str(&text).expect("parses");
        let cost = MeasuredCost::new(Arc::new(again), &profile);
        assert_eq!((cost.node(&nchw), cost.node(&nhwc)), (1_000_000, 9_000_000));
        let ty = TensorType::fixed(DType::F32, &[1, 64, 64, 8]);
        let transpose = NodeForm {
            op: Transpose { perm: vec![0, 3, 1, 2] }.into(),
            inputs: vec![Some((ty.clone(), false))],
            outputs: vec![TensorType::fixed(DType::F32, &[1, 8, 64, 64])],
        };
        assert!(cost.measured(&transpose).is_none() && cost.node(&transpose) > 0);
    }
}
