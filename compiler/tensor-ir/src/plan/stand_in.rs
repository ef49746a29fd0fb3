//! A shader generator that makes no shaders, for tests and for compilations without a back end.

use super::{Binding, EmitFailure, EmitKernel, EmittedKernel};
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::text::print_tensor_function;
use crate::tir::TensorFunction;
use std::sync::Arc;

/// A stand-in for a shader generator, with a version: its "shader" is the kernel's name and the printed function.
pub struct StandInEmitter {
    /// Other versions make other code of equal functions.
    pub version: u32,
}

impl EmitKernel for StandInEmitter {
    fn emit(&self, f: &TensorFunction, kernel: Name, _: &DeviceProfile) -> Result<EmittedKernel, EmitFailure> {
        let bindings = f.params.iter().map(|p| Binding { buffer: p.buffer, slice: 0, access: p.access });
        Ok(EmittedKernel {
            name: kernel.to_string(),
            workgroup: [64, 1, 1],
            grid: [2, 1, 1],
            open_grid: None,
            open_rounds: None,
            bindings: bindings.collect(),
            immediate_bytes: 0,
            uniform_bytes: 0,
            shared_bytes: 0,
            bounds_proved: true,
            wgsl: format!("shader of {kernel}\n// version {}\n{}", self.version, print_tensor_function(f)),
            lines: vec![],
            module: Arc::new(()),
        })
    }
    fn spirv(&self, kernel: &EmittedKernel) -> Result<Vec<u32>, String> {
        Ok(vec![0x0723_0203, kernel.wgsl.len() as u32])
    }
    fn save(&self, _: &EmittedKernel) -> Result<Vec<u8>, String> {
        Ok(vec![])
    }
    fn restore(&self, _: &[u8]) -> Result<Arc<dyn std::any::Any + Send + Sync>, String> {
        Ok(Arc::new(()))
    }
}
