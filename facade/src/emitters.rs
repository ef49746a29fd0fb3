//! Code generators.

use compiler::plan::EmitKernel;
use compiler::profile::DeviceProfile;

/// The code generator for a profile.
pub fn emitter(profile: &DeviceProfile) -> &'static dyn EmitKernel {
    match profile.model().shaders {
        true => &shaders_gen::Emitter,
        false => &runtime_cpu::Emitter,
    }
}
