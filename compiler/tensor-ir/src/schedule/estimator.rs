//! The estimate of any function: kernels of scheduled functions are weighed as they are; for an unscheduled function,
//! the rules predict the kernels that they would make.

use super::estimate::{Estimate, estimate_scheduled};
use super::rules::predicted;
use super::{ScheduleOptions, ScheduleTarget};
use crate::arena::Id;
use crate::fingerprint::Fingerprint;
use crate::int::{DimRanges, Int, typical_size};
use crate::profile::DeviceProfile;
use crate::tir::{BufferId, TensorFunction};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex};

/// Estimates `f`; open sizes count with typical values. `constants` are read buffers that may be prepacked, as for
/// [`rules::schedule`](super::rules::schedule).
///
/// # Errors
/// The device lacks something; or a part of the function is neither scheduled nor a sequence of plain stages.
pub fn estimate<'a>(
    f: &TensorFunction,
    constants: &[BufferId],
    target: impl Into<ScheduleTarget<'a>>,
) -> Result<Estimate, String> {
    let target = target.into();
    if !f.kernels().is_empty() {
        return estimate_scheduled(f, target.profile);
    }
    let f = f.at_typical_sizes(&DimRanges::default());
    Estimate::of(predicted(&f, constants, target)?, target.profile)
}

/// Estimates for one device; each different function once.
pub struct Estimator {
    profile: DeviceProfile,
    /// What the user asks of the rules.
    options: ScheduleOptions,
    /// Ranges of open sizes; typical sizes count.
    dims: DimRanges,
    known: Mutex<FxHashMap<Key, Arc<Result<Estimate, String>>>>,
}

/// A function by its structure, and the positions of its constants.
type Key = (Fingerprint, Vec<usize>);

impl Estimator {
    /// For a device, where open sizes have these ranges.
    pub fn within<'a>(target: impl Into<ScheduleTarget<'a>>, dims: DimRanges) -> Estimator {
        let ScheduleTarget { profile, options } = target.into();
        Estimator { profile: profile.clone(), options: options.clone(), dims, known: Mutex::default() }
    }
    /// The device.
    pub fn profile(&self) -> &DeviceProfile {
        &self.profile
    }
    /// A number of elements; an open size counts with its typical value.
    pub fn elements(&self, count: &Int) -> f64 {
        count.eval(&|v| Some(typical_size(self.dims.range(v)))).map_or(1.0, |n| n.max(0) as f64)
    }
    /// [`estimate`], remembered.
    pub fn estimate(&self, f: &TensorFunction, constants: &[BufferId]) -> Arc<Result<Estimate, String>> {
        let f = &*f.at_typical_sizes(&self.dims);
        let mut constants = constants.to_vec();
        constants.sort_unstable();
        let key = (f.fingerprint(), constants.iter().map(|b| b.index()).collect());
        if let Ok(known) = self.known.lock()
            && let Some(found) = known.get(&key)
        {
            return found.clone();
        }
        let made = Arc::new(estimate(f, &constants, self.options.on(&self.profile)));
        if let Ok(mut known) = self.known.lock() {
            known.insert(key, made.clone());
        }
        made
    }
}
