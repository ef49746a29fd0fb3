//! The form of a module for the interpreter.

use crate::error::Error;
use compiler::attr::AttrStruct;
use compiler::compile::CompileError;
use compiler::graph::Module;
use compiler::passes::mixed_precision::check_listed;
use compiler::passes::{
    AmpMode, MixedPrecision, PassBase, PassContext, PassStats, PipelineOptions, ReplaceWithHostCalls, Sequential,
    check_own_passes, default_pipeline,
};
use compiler::profile::DeviceProfile;

/// The module for the interpreter: as loaded, on request with host calls, own passes or in mixed precision; and
/// whether any value
/// is then in f16.
pub(crate) fn cpu_module(mut module: Module, pipeline: &PipelineOptions) -> Result<(Module, bool), Error> {
    let list = default_pipeline(pipeline);
    let behind = |name: &str| list.iter().position(|p| p == name).map_or(0, |i| i + 1);
    let mixed = if pipeline.amp == AmpMode::Off { 0 } else { behind(MixedPrecision::NAME) };
    let own = pipeline.own.iter().map(|p| behind(p.name())).max().unwrap_or(0);
    let until = mixed.max(behind(ReplaceWithHostCalls::NAME)).max(own);
    if until == 0 {
        return Ok((module, false));
    }
    check_listed(&module, &pipeline.keep_f32).map_err(CompileError::Option)?;
    check_own_passes(pipeline).map_err(CompileError::Option)?;
    let mut cx = PassContext::new(DeviceProfile::baseline());
    pipeline.configure(&mut cx);
    Sequential::new(&list[..until]).run(&mut module, &mut cx)?;
    Ok((module, has_halved(&cx.stats)))
}

/// True when mixed precision has put anything into f16.
pub fn has_halved(passes: &[PassStats]) -> bool {
    passes.iter().any(|p| p.name == MixedPrecision::NAME && p.changed)
}
