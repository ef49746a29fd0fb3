//! The number of cores that a Vulkan driver reports, through vendor extensions.

#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
mod vulkan {
    use ash::vk;
    use std::ffi::CStr;
    use wgpu::hal::{api::Vulkan, vulkan::InstanceShared};

    pub fn of_adapter(adapter: &wgpu::Adapter) -> Option<u32> {
        // SAFETY: what the guard gives is only read, and outlives the calls below.
        let hal = unsafe { adapter.as_hal::<Vulkan>() }?;
        counted(hal.shared_instance(), hal.raw_physical_device())
    }
    pub fn of_device(device: &wgpu::Device) -> Option<u32> {
        // SAFETY: as above.
        let hal = unsafe { device.as_hal::<Vulkan>() }?;
        counted(hal.shared_instance(), hal.raw_physical_device())
    }

    /// `VK_AMD_shader_core_properties2` counts the active compute units, the extension before it those that the chip's
    /// grid has; `VK_NV_shader_sm_builtins` counts SMs and `VK_ARM_shader_core_builtins` shader cores.
    fn counted(shared: &InstanceShared, physical: vk::PhysicalDevice) -> Option<u32> {
        let instance = shared.raw_instance();
        // SAFETY: the physical device is of this instance, which lives as long as the adapter.
        let (properties, extensions) = unsafe {
            let extensions = instance.enumerate_device_extension_properties(physical).ok()?;
            (instance.get_physical_device_properties(physical), extensions)
        };
        // What asks for more than these properties is of Vulkan 1.1.
        if properties.api_version.min(shared.instance_api_version()) < vk::API_VERSION_1_1 {
            return None;
        }
        let has = |name: &CStr| extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(name));
        let mut amd = vk::PhysicalDeviceShaderCorePropertiesAMD::default();
        let mut amd_2 = vk::PhysicalDeviceShaderCoreProperties2AMD::default();
        let mut nv = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV::default();
        let mut arm = vk::PhysicalDeviceShaderCoreBuiltinsPropertiesARM::default();
        let mut all = vk::PhysicalDeviceProperties2::default();
        if has(ash::amd::shader_core_properties::NAME) {
            all = all.push_next(&mut amd);
        }
        if has(ash::amd::shader_core_properties2::NAME) {
            all = all.push_next(&mut amd_2);
        }
        if has(ash::nv::shader_sm_builtins::NAME) {
            all = all.push_next(&mut nv);
        }
        if has(ash::arm::shader_core_builtins::NAME) {
            all = all.push_next(&mut arm);
        }
        // SAFETY: as above; only structures of extensions that the device has are asked for.
        unsafe { instance.get_physical_device_properties2(physical, &mut all) };
        let grid = amd.shader_engine_count * amd.shader_arrays_per_engine_count * amd.compute_units_per_shader_array;
        let counts = [amd_2.active_compute_unit_count, grid, nv.shader_sm_count, arm.shader_core_count];
        counts.into_iter().find(|&n| n > 0)
    }
}

#[cfg(not(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd")))]
mod vulkan {
    pub fn of_adapter(_: &wgpu::Adapter) -> Option<u32> {
        None
    }
    pub fn of_device(_: &wgpu::Device) -> Option<u32> {
        None
    }
}

pub(crate) use vulkan::{of_adapter, of_device};
