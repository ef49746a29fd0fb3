//! Measured times of kernels, and the modules that are timed.
//!
//! The key of a time is a digest of the code that ran (shaders, grids, workgroups), the device, its driver version and
//! the processor. A changed rule or lowering emits other code, so its kernels never get the old times.

use super::NodeForm;
use super::regions::RegionTimes;
use crate::fault::Fault;
use crate::fingerprint::Fingerprint;
use crate::graph::{Constant, FunctionBuilder, Module, TensorType, ValueId};
use crate::name::Name;
use crate::plan::Plan;
use crate::profile::DeviceProfile;
use crate::tensor::{ConstData, DataSource, Tensor};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Times of kernels on devices: plain data, which the tuning database keeps.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Measurements {
    /// By [`DeviceProfile::identity`], then by [`code_digest`].
    pub devices: BTreeMap<String, BTreeMap<String, Measurement>>,
    /// Nanoseconds of tensor functions in a network, by [`DeviceProfile::identity`], then by
    /// [`form`](crate::tir::TensorFunction::form).
    pub functions: BTreeMap<String, BTreeMap<String, f64>>,
    /// Times of regions of external targets, by [`DeviceProfile::identity`], then by
    /// [`TargetSpec::times_key`](crate::external::TargetSpec::times_key).
    pub regions: BTreeMap<String, BTreeMap<String, RegionTimes>>,
}

/// The time of one run of a digest's kernels.
#[derive(Clone, PartialEq, Debug)]
pub struct Measurement {
    /// Time in nanoseconds.
    pub ns: f64,
    /// Its estimate in nanoseconds, for the scale of kernels that were not measured; 0 if it was not estimated.
    pub estimated_ns: u64,
}

impl Measurements {
    /// The time of a plan's kernels on a device, where it was measured.
    pub fn get(&self, profile: &DeviceProfile, plan: &Plan) -> Option<&Measurement> {
        self.devices.get(&profile.identity())?.get(&code_digest(plan).to_string())
    }
    /// Keeps the time of a plan's kernels on a device.
    pub fn insert(&mut self, profile: &DeviceProfile, plan: &Plan, measurement: Measurement) {
        self.devices.entry(profile.identity()).or_default().insert(code_digest(plan).to_string(), measurement);
    }
    /// Measured time per estimated time on a device: the median of the ratios; 1 if nothing was measured.
    pub fn scale(&self, profile: &DeviceProfile) -> f64 {
        let own = self.devices.get(&profile.identity()).into_iter().flat_map(BTreeMap::values);
        let mut ratios: Vec<f64> = own.filter(|m| m.estimated_ns > 0).map(|m| m.ns / m.estimated_ns as f64).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(1.0)
    }
}

/// A digest of what a plan runs on the device: the shader, workgroup, grid and immediates of each dispatch, in order.
pub fn code_digest(plan: &Plan) -> Fingerprint {
    let dispatches = plan.dispatches();
    Fingerprint::of(|w| {
        for d in dispatches {
            let e = &plan.kernels[d.kernel].emitted;
            w.text(&e.wgsl);
            e.workgroup.iter().chain(&e.grid).for_each(|&n| w.number(i64::from(n)));
            w.list(d.symbols.iter(), |w, &s| w.number(i64::from(s)));
        }
    })
}

/// A module that runs the node alone: parameters for its operands, constants where they are constants, with values that
/// are made when they are first read.
///
/// # Errors
/// The op refuses operands of these types; or a constant has open dimensions.
pub fn single_node_module(form: &NodeForm) -> Result<Module, String> {
    let mut module = Module::new("main");
    let mut b = FunctionBuilder::new(&mut module, "main");
    let mut inputs: Vec<Option<ValueId>> = Vec::with_capacity(form.inputs.len());
    for (i, input) in form.inputs.iter().enumerate() {
        inputs.push(match input {
            None => None,
            Some((ty, true)) => {
                let shape = ty.const_shape().ok_or("a constant has open dimensions")?;
                let name = Name::new(&format!("c{i}"));
                let data = ConstData::Lazy(Arc::new(Seeded { ty: ty.clone(), shape: shape.clone() }));
                b.module.constants.insert(name, Constant { dtype: ty.dtype, shape, data });
                Some(b.const_ref(name))
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
struct Seeded {
    ty: TensorType,
    shape: Vec<usize>,
}

impl DataSource for Seeded {
    fn read(&self) -> Result<bytes::Bytes, Fault> {
        let count: usize = self.shape.iter().product();
        let values = (0..count).map(|i| 0.5 + (i * 7919 % 1009) as f64 / 1009.0);
        Ok(Tensor::from_f64(self.ty.dtype, self.shape.clone(), values).bytes().clone())
    }
}
