//! Code generators.

use compiler::plan::EmitKernel;
use compiler::profile::DeviceProfile;

/// The code generator for a profile.
pub fn emitter(profile: &DeviceProfile) -> &'static dyn EmitKernel {
    match profile.is_processor() {
        true => &runtime_cpu::Emitter,
        false => &shaders_gen::Emitter,
    }
}
