//! Plans for given sizes, if a plan for open sizes cannot run them.

use crate::error::Error;
use crate::options::Options;
use crate::program::Program;
use compiler::compile::CompileError;
use compiler::graph::{Module, bind_dims};
use compiler::name::Name;
use runtime_gpu::{Alone, Gpu, GpuError, Planned};
use std::sync::Arc;

/// Compiles for sizes of the open dimensions alone.
pub(crate) fn plans_alone(module: &Module, gpu: &Arc<Gpu>, options: &Options) -> Arc<Alone> {
    let (module, gpu, options) = (module.clone(), gpu.clone(), options.clone());
    let profile = options.profile.clone().unwrap_or_else(|| gpu.profile.clone());
    let planned = move |sizes: &[(Name, i64)]| -> Result<Planned, Error> {
        let mut module = module.clone();
        bind_dims(&mut module, sizes)?;
        let mut program = Program::new(&module, &profile, &options)?;
        let session = program.open(&gpu, &options)?;
        Ok(Planned { session, compiled: program.compiled })
    };
    Arc::new(move |sizes| {
        planned(sizes).map_err(|e| match e {
            Error::Device(e) => e,
            // As for data that the device cannot hold, there is the interpreter.
            Error::Compile(CompileError::NeedsCpu(why)) => GpuError::TooWide(why),
            other => GpuError::Input(other.to_string()),
        })
    })
}
