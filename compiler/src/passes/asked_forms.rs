//! The nodes whose costs passes ask for, as the list of kernels to measure.

use super::{PassContext, PassError, PipelineOptions, Sequential, default_pipeline};
use crate::cost::{NodeForm, RecordingCost};
use crate::graph::Module;
use crate::profile::DeviceProfile;
use std::sync::Arc;

/// The nodes whose costs the passes of a pipeline ask for, in their order.
///
/// # Errors
/// A failing pass.
pub fn asked_forms(
    module: &Module,
    options: &PipelineOptions,
    profile: &DeviceProfile,
) -> Result<Vec<NodeForm>, PassError> {
    let record = Arc::new(RecordingCost::new(options.scheduling.on(profile)));
    let mut cx = PassContext::new(profile.clone());
    options.configure(&mut cx);
    cx.cost_model = Some(record.clone());
    let list: Vec<String> = default_pipeline(options).into_iter().filter(|p| p != "fuse-ops").collect();
    Sequential::new(&list).run(&mut module.clone(), &mut cx)?;
    Ok(record.forms())
}
