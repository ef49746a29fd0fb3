//! Mixed precision that given inputs calibrate, where a processor runs the network by its time too.

use crate::device::Device;
use crate::error::Error;
use crate::model::Model;
use crate::options::{Cache, Options};
use crate::races::Place;
use compiler::calibrate::{Limits, calibrate};
use compiler::cost::TIME_NOISE;
use compiler::passes::{AmpMode, FuseMode, PipelineOptions};
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use runtime_cpu::Processor;
use std::sync::Arc;

/// Rounds of the race of f32 with mixed precision.
const ROUNDS: usize = 7;

/// Whether mixed precision takes longer than f32 by more than such times differ from run to run.
pub fn is_slower(ratio: f64) -> bool {
    ratio > 1.0 + TIME_NOISE
}

/// How many times as long as in f32 a network takes with these options on this machine's processor, which computes in
/// f32: it converts what is stored in f16, and reads fewer bytes. `None` where the options are for another machine, or
/// put nothing in f16.
///
/// # Errors
/// An error of the compilation or of a run.
pub fn mixed_over_f32(model: &Model, options: &Options, inputs: &[Tensor]) -> Result<Option<f64>, Error> {
    let here = options.profile.as_ref().and_then(|p| Some((p.cores, Processor::isa_of(p)?)));
    let Some((cores, isa)) = here else { return Ok(None) };
    let device = Device::Cpu(Arc::new(Processor::open(cores as usize, Some(isa))?));
    let open = |amp: AmpMode| {
        let pipeline = PipelineOptions { amp, ..options.pipeline.clone() };
        model.compile(&Options { pipeline, cache: Cache::default(), ..options.clone() })?.session(&device)
    };
    let mixed = open(options.pipeline.amp)?;
    let Some(place) = Place::of(&device).filter(|_| mixed.is_mixed()) else { return Ok(None) };
    let standings = place.race_networks(&[open(AmpMode::Off)?, mixed], inputs, ROUNDS, 1)?;
    Ok(standings.get(1).map(|s| s.ratio()))
}

impl Options {
    /// With the nodes that mixed precision has to keep in f32 for these inputs, which the CPU executor finds
    /// (`AmpMode::Auto`); all of them where the network runs on this machine's processor, and takes longer there with
    /// f16 ([`mixed_over_f32`]).
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
        if mixed_over_f32(model, &self, inputs)?.is_some_and(is_slower) {
            self.pipeline.amp = AmpMode::Off;
        }
        Ok(self)
    }
}
