//! The emitter: a kernel as the parameters and the body of a C function.

use crate::kernel::{self, Parameter};
use std::sync::Arc;
use tensor_ir::name::Name;
use tensor_ir::plan::{Binding, EmitFailure, EmitKernel, EmittedKernel};
use tensor_ir::profile::DeviceProfile;
use tensor_ir::tir::TensorFunction;

/// Prints kernels. [`EmittedKernel::module`] holds what [`crate::program()`] reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Emitter;

impl EmitKernel for Emitter {
    fn emit(&self, f: &TensorFunction, kernel: Name, _: &DeviceProfile) -> Result<EmittedKernel, EmitFailure> {
        let made = kernel::print(f, kernel).map_err(EmitFailure::BeyondDevice)?;
        let binding = |p: &Parameter| Binding {
            buffer: p.buffer,
            slice: 0,
            access: if p.written { tensor_ir::tir::Access::Write } else { tensor_ir::tir::Access::Read },
        };
        Ok(EmittedKernel {
            name: kernel.to_string(),
            workgroup: [1; 3],
            grid: [1; 3],
            open_grid: None,
            open_rounds: None,
            bindings: made.parameters.iter().map(binding).collect(),
            immediate_bytes: 0,
            uniform_bytes: 0,
            shared_bytes: 0,
            bounds_proved: true,
            wgsl: format!("static void {kernel}({})\n{{\n{}}}\n", made.signature(), made.body),
            lines: vec![],
            module: Arc::new(made),
        })
    }
    /// None: kernels are text.
    fn spirv(&self, _: &EmittedKernel) -> Result<Vec<u32>, String> {
        Ok(vec![])
    }
}
