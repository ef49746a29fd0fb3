//! Mixed precision that given inputs calibrate.

use crate::error::Error;
use crate::model::Model;
use crate::options::Options;
use compiler::calibrate::{Limits, calibrate};
use compiler::passes::{FuseMode, PipelineOptions};
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;

impl Options {
    /// With the nodes that mixed precision has to keep in f32 for these inputs, which the CPU executor finds
    /// (`AmpMode::Auto`).
    ///
    /// # Errors
    /// An error of a pass, or of the run.
    pub fn calibrated(mut self, model: &Model, inputs: &[Tensor]) -> Result<Options, Error> {
        let profile = self.profile.clone().unwrap_or_else(DeviceProfile::baseline);
        // The CPU executor stores what every node gives.
        let fuse = if self.profile.is_none() { FuseMode::Off } else { self.pipeline.fuse };
        let pipeline = PipelineOptions { fuse, ..self.pipeline.clone() };
        let found = calibrate(model.module(), &pipeline, &profile, inputs, &Limits::default(), &mut |_| ());
        found?.apply(&mut self.pipeline);
        Ok(self)
    }
}
