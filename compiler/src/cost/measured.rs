//! Measured times of functions and regions, and digests of the code that runs.

use super::regions::RegionTimes;
use crate::fingerprint::Fingerprint;
use crate::plan::Plan;
use std::collections::BTreeMap;

/// Times on devices: plain data, which the tuning database keeps.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Measurements {
    /// Nanoseconds of tensor functions in a network, by
    /// [`DeviceProfile::identity`](crate::profile::DeviceProfile::identity), then by
    /// [`form`](crate::tir::TensorFunction::form).
    pub functions: BTreeMap<String, BTreeMap<String, f64>>,
    /// Times of regions of external targets, by [`DeviceProfile::identity`](crate::profile::DeviceProfile::identity),
    /// then by [`TargetSpec::times_key`](crate::external::TargetSpec::times_key).
    pub regions: BTreeMap<String, BTreeMap<String, RegionTimes>>,
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
