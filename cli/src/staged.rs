//! Models whose sizes are decided while they run, on a device: what can be planned runs there.

use crate::args::Common;
use crate::error::{CliError, CliResult};
use crate::executor::{CPU_EXECUTOR, Device, compile_options, compile_with, has_halved, open_session};
use compiler::compile::{CompileError, split_stages};
use compiler::graph::Module;
use compiler::passes::PipelineOptions;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use runtime_gpu::{Gpu, Open, Part, Staged};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A model in parts.
pub struct StagedModel {
    staged: Staged<CliError>,
    names: Vec<String>,
    mixed: Arc<AtomicBool>,
}

impl StagedModel {
    /// Opens the model in parts; none where nothing in it decides sizes.
    ///
    /// # Errors
    /// What compilation says.
    pub fn open(
        module: &Module,
        pipeline: &PipelineOptions,
        common: &Common,
        device: &Device,
        profile: &DeviceProfile,
    ) -> CliResult<Option<StagedModel>> {
        let Device::Gpu(gpu) = device else { return Ok(None) };
        let Some(stages) = split_stages(module).map_err(CompileError::from)? else { return Ok(None) };
        let mixed = Arc::new(AtomicBool::new(false));
        let opener = Opener {
            gpu: gpu.clone(),
            pipeline: pipeline.clone(),
            common: common.clone(),
            profile: profile.clone(),
            mixed: mixed.clone(),
        };
        let staged = Staged::open(stages, common.functions.clone(), opener.open())?;
        let names = module.main().result_names.iter().map(|n| n.to_string()).collect();
        Ok(Some(StagedModel { staged, names, mixed }))
    }
    /// Runs once.
    pub fn run(&self, inputs: &[Tensor]) -> CliResult<Vec<Tensor>> {
        self.staged.run(inputs)
    }
    /// Where runs took place so far.
    pub fn place(&self) -> &'static str {
        if self.staged.has_device_steps() { "device and host" } else { CPU_EXECUTOR }
    }
    /// Names of the results in order.
    pub fn output_names(&self) -> Vec<String> {
        self.names.clone()
    }
    /// True when mixed precision has put anything into f16.
    pub fn is_mixed(&self) -> bool {
        self.mixed.load(Ordering::Relaxed)
    }
}

/// What opens a part.
#[derive(Clone)]
struct Opener {
    gpu: Arc<Gpu>,
    pipeline: PipelineOptions,
    common: Common,
    profile: DeviceProfile,
    mixed: Arc<AtomicBool>,
}

impl Opener {
    fn open(self) -> Open<CliError> {
        Arc::new(move |module| self.part(module))
    }

    fn part(&self, module: Module) -> CliResult<Part<CliError>> {
        let options = compile_options(self.pipeline.clone(), &self.common)?;
        match compile_with(module.clone(), &options, &self.common, &self.profile) {
            Ok(compiled) => {
                if has_halved(&compiled.passes) {
                    self.mixed.store(true, Ordering::Relaxed);
                }
                Ok(Part::Session(Box::new(open_session(&self.gpu, &compiled, &self.common)?)))
            }
            Err(CompileError::NeedsCpu(_)) => match split_stages(&module).map_err(CompileError::from)? {
                Some(stages) => {
                    let staged = Staged::open(stages, self.common.functions.clone(), self.clone().open())?;
                    Ok(Part::Staged(Box::new(staged)))
                }
                None => {
                    crate::memory::check_cpu_memory(&module)?;
                    Ok(Part::Host(Box::new(module)))
                }
            },
            Err(e) => Err(e.into()),
        }
    }
}
