//! The cost of an op or a group: estimated, or measured on a device.
//!
//! A [`CostModel`] answers for one node by its op and the types around it, so a pass can ask about nodes that are not
//! in the graph; and for tensor functions. [`EstimatedCost`] uses the one estimate,
//! [`schedule::estimate`](crate::schedule::estimate), and asks each question once.
//! [`MeasuredCost`](crate::compile::MeasuredCost) adds the times of functions that were measured, and records the
//! functions that were not: they are the list of what to measure. Costs are nanoseconds.
//!
//! Deliberately absent: the clock. A caller with a device measures.

mod measured;
mod regions;
mod weighed;

pub use measured::{Measurements, code_digest};
pub use regions::RegionTimes;
pub use weighed::Weighed;

use crate::graph::{Function, NodeId, TensorType, ValueId};
use crate::int::DimRanges;
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::Const;
use crate::schedule::ScheduleTarget;
use crate::schedule::estimate::{Estimate, cost_of_bytes};
use crate::schedule::estimator::Estimator;
use crate::te::ComputeContext;
use crate::tir::{Buffer, BufferId, Encoding, Scope, TensorFunction};
use rustc_hash::FxHashMap;
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

impl NodeForm {
    /// The form of an existing node.
    pub fn of(f: &Function, n: NodeId) -> NodeForm {
        let node = &f.nodes[n];
        let operand = |v: &Option<ValueId>| v.map(|v| (f.ty(v).clone(), f.def_op::<Const>(v).is_some()));
        let outputs = node.outputs.iter().map(|&v| f.ty(v).clone()).collect();
        NodeForm { op: node.op.clone(), inputs: node.inputs.iter().map(operand).collect(), outputs }
    }
}

/// Measured times of functions that differ by less than this share count as equal: the same function differs by so much
/// from run to run.
pub const TIME_NOISE: f64 = 0.05;

/// Assumed standard deviation of an estimate, as a share of it.
pub const ESTIMATE_DEVIATION: f64 = 0.3;

/// Costs of nodes and groups, in nanoseconds.
pub trait CostModel: Send + Sync {
    /// The cost of one node that runs alone.
    fn node(&self, form: &NodeForm) -> u64;
    /// The estimate of a tensor function, `constants` of which are buffers that may be prepacked, or why it cannot run;
    /// with its measured time, if there is one. Times that are measured are compared with such times alone.
    fn function(&self, f: &TensorFunction, constants: &[BufferId]) -> Arc<Result<Estimate, String>>;
    /// The estimate of one node that runs alone, by its tensor function. `None` if it has no tensor function, or if no
    /// function was measured on the device.
    fn function_of_node(&self, form: &NodeForm) -> Option<Estimate> {
        let (te, constants) = self.measures_functions().then(|| expression(form).ok()).flatten()?;
        self.function(&te, &constants).as_ref().as_ref().ok().cloned()
    }
    /// A pass reports that it chooses between two sides by the costs of these functions. A model that lists unmeasured
    /// functions orders them by it.
    fn compares(&self, _sides: [&[Estimate]; 2]) {}
    /// True if times of functions were measured on the device.
    fn measures_functions(&self) -> bool {
        false
    }
    /// Measured times of a region of an external target, by
    /// [`TargetSpec::times_key`](crate::external::TargetSpec::times_key).
    fn region(&self, _key: &str) -> Option<RegionTimes> {
        None
    }
}

/// Costs by [`schedule::estimate`](crate::schedule::estimate) for one device, each different question answered once.
pub struct EstimatedCost {
    estimator: Estimator,
    nodes: Mutex<FxHashMap<String, u64>>,
}

impl EstimatedCost {
    /// For a device.
    pub fn new<'a>(target: impl Into<ScheduleTarget<'a>>) -> EstimatedCost {
        EstimatedCost::within(target, DimRanges::default())
    }
    /// For a device, where open sizes have these ranges.
    pub fn within<'a>(target: impl Into<ScheduleTarget<'a>>, dims: DimRanges) -> EstimatedCost {
        EstimatedCost { estimator: Estimator::within(target, dims), nodes: Mutex::default() }
    }
    fn ask(&self, form: &NodeForm) -> u64 {
        let estimated = expression(form).and_then(|(te, constants)| {
            let found = self.function(&te, &constants);
            found.as_ref().as_ref().map(Estimate::total).map_err(String::clone)
        });
        // A node without a tensor expression moves its operands and results once.
        let moved = || {
            let types = form.inputs.iter().flatten().map(|t| &t.0).chain(&form.outputs);
            let bytes = types.map(|ty| self.estimator.elements(&ty.numel()) * ty.dtype.size() as f64).sum::<f64>();
            cost_of_bytes(self.estimator.profile(), bytes).total()
        };
        estimated.unwrap_or_else(|_| moved()).clamp(0.0, 1e15) as u64
    }
}

impl CostModel for EstimatedCost {
    fn node(&self, form: &NodeForm) -> u64 {
        let key = format!("{form:?}");
        if let Some(found) = self.nodes.lock().ok().and_then(|known| known.get(&key).copied()) {
            return found;
        }
        let cost = self.ask(form);
        if let Ok(mut known) = self.nodes.lock() {
            known.insert(key, cost);
        }
        cost
    }
    fn function(&self, f: &TensorFunction, constants: &[BufferId]) -> Arc<Result<Estimate, String>> {
        self.estimator.estimate(f, constants)
    }
}

/// A node's tensor expression, and the buffers of its constant operands.
fn expression(form: &NodeForm) -> Result<(TensorFunction, Vec<BufferId>), String> {
    if !form.op.has_compute() {
        return Err(format!("{} has no tensor expression", form.op.name()));
    }
    let mut te = TensorFunction::new("k");
    let (mut buffers, mut constants) = (Vec::with_capacity(form.inputs.len()), vec![]);
    for (i, input) in form.inputs.iter().enumerate() {
        buffers.push(input.as_ref().map(|(ty, constant)| {
            let name = Name::new(&format!("in{i}"));
            let (dtype, shape) = (ty.dtype, ty.shape.clone());
            let b = te.buffers.push(Buffer { name, dtype, shape, scope: Scope::Global, encoding: Encoding::Native });
            constants.extend(constant.then_some(b));
            b
        }));
    }
    let values = vec![None; form.inputs.len()];
    let mut cx = ComputeContext::new(&mut te, buffers, values, form.outputs.clone(), "k");
    form.op.compute(&mut cx)?;
    Ok((te, constants))
}
