//! What running an op costs: estimated from sizes, or measured on a device.
//!
//! A [`CostModel`] answers for one node by its op and the types around it, so that a pass can ask about forms that are
//! not in the graph. [`AnalyticCost`] estimates; [`MeasuredCost`] looks the node's kernels up in [`Measurements`] and
//! falls back to the estimate, scaled to the same unit. [`RecordingCost`] remembers what was asked, which is the list of
//! kernels to measure. Deliberately absent: the clock; whoever has a device measures.

mod measured;

pub use measured::{
    KernelTimes, MeasureKernel, MeasuredCost, Measurement, Measurements, code_digest, compile_single, measure_forms,
    single_node_module,
};

use crate::graph::{Module, TensorType};
use crate::ops::{DataLayout, OpRef};
use crate::passes::{PassContext, PassError, PipelineOptions, Sequential, default_pipeline};
use crate::profile::DeviceProfile;
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
