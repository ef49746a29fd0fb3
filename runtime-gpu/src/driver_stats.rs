//! Statistics of a Vulkan driver's compiler about kernels, by `VK_KHR_pipeline_executable_properties`.
//!
//! wgpu makes its pipelines without the flags for these statistics. So the kernels are compiled again on a separate
//! Vulkan device: on the same physical device, with the extensions and features that wgpu uses, and from the SPIR-V,
//! layout and stage flags that wgpu gives the driver, since robust buffer access and varying subgroup sizes change the
//! code. On RADV, ANV and NVK each executable has as many instructions as the pipeline of a session. Nothing is
//! dispatched, so this also works on a device that compiles but does not compute.

use crate::device::Gpu;
use crate::error::GpuError;
use compiler::plan::PlanKernel;
use compiler::trace::DriverStats;

impl Gpu {
    /// Checks that [`Gpu::driver_stats`] is available.
    ///
    /// # Errors
    /// [`GpuError::NoDriverStats`] with what is missing.
    pub fn check_driver_stats(&self) -> Result<(), GpuError> {
        vulkan::check(self).map_err(|why| self.no_stats(why))
    }

    /// Lets the driver compile `kernels`, and reads its statistics about each. `progress` is called with a stage, the
    /// number done and the total.
    ///
    /// # Errors
    /// [`GpuError::NoDriverStats`] if the driver has no statistics; [`GpuError::Internal`] if it refuses a kernel.
    pub fn driver_stats(
        &self,
        kernels: &[PlanKernel],
        progress: &mut dyn FnMut(&str, usize, usize),
    ) -> Result<DriverStats, GpuError> {
        self.check_driver_stats()?;
        let device = vulkan::CaptureDevice::open(self).map_err(|why| self.no_stats(why))?;
        let mut list = Vec::with_capacity(kernels.len());
        for (i, k) in kernels.iter().enumerate() {
            progress("statistics", i, kernels.len());
            let said = device.executables(k).map_err(|why| GpuError::Internal(format!("kernel {}: {why}", k.name)))?;
            list.push(said);
        }
        let d = &self.description;
        Ok(DriverStats { device: format!("{} ({}, {})", d.name, d.backend, d.driver), kernels: list })
    }

    fn no_stats(&self, why: String) -> GpuError {
        let d = &self.description;
        GpuError::NoDriverStats { device: format!("{} ({}, {})", d.name, d.backend, d.driver), why }
    }
}

#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
mod vulkan {
    use crate::device::{Gpu, wanted_features};
    use ash::khr::pipeline_executable_properties as executables;
    use ash::vk;
    use compiler::plan::PlanKernel;
    use compiler::trace::driver_stats::{Executable, Statistic, StatisticValue, names_isa};
    use shaders_gen::{GeneratedModule, SpirvForm};
    use std::ffi::{CStr, CString, c_char};
    use wgpu::hal::{api::Vulkan, vulkan::Adapter};

    /// Why there are no statistics.
    pub fn check(gpu: &Gpu) -> Result<(), String> {
        let adapter = gpu.adapter.as_ref().ok_or("the device was opened elsewhere")?;
        // SAFETY: what the guard gives is only read.
        let hal = unsafe { adapter.as_hal::<Vulkan>() };
        let backend = &gpu.description.backend;
        let hal = hal.ok_or_else(|| format!("they come from Vulkan drivers, and its backend is {backend}"))?;
        let extension = executables::NAME.to_string_lossy();
        match hal.physical_device_capabilities().supports_extension(executables::NAME) && offered(&hal) {
            true => Ok(()),
            false => Err(format!("its driver lacks {extension}")),
        }
    }

    /// The feature behind the extension.
    fn offered(hal: &Adapter) -> bool {
        let mut offered = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default();
        query(hal, &mut offered);
        offered.pipeline_executable_info == vk::TRUE
    }

    /// Asks for a structure of features, of Vulkan 1.1 or an extension that the device has.
    fn query<T: vk::ExtendsPhysicalDeviceFeatures2>(hal: &Adapter, into: &mut T) {
        let mut all = vk::PhysicalDeviceFeatures2::default().push_next(into);
        let instance = hal.shared_instance().raw_instance();
        // SAFETY: the physical device is of this instance; both live as long as the adapter.
        unsafe { instance.get_physical_device_features2(hal.raw_physical_device(), &mut all) };
    }

    /// The version of Vulkan that the device is used with.
    fn version(hal: &Adapter) -> u32 {
        let device = hal.physical_device_capabilities().properties().api_version;
        device.min(hal.shared_instance().instance_api_version())
    }

    /// The form of SPIR-V that wgpu chooses for this adapter.
    fn spirv_form(hal: &Adapter, extensions: &[&'static CStr]) -> SpirvForm {
        let version = version(hal);
        let mut robust = vk::PhysicalDeviceRobustness2FeaturesEXT::default();
        if extensions.contains(&ash::ext::robustness2::NAME) {
            query(hal, &mut robust);
        }
        let mut dot = vk::PhysicalDeviceShaderIntegerDotProductFeatures::default();
        if version >= vk::API_VERSION_1_3 || extensions.contains(&ash::khr::shader_integer_dot_product::NAME) {
            query(hal, &mut dot);
        }
        SpirvForm {
            version: match version {
                v if v >= vk::API_VERSION_1_3 => (1, 6),
                v if v >= vk::API_VERSION_1_2 => (1, 5),
                _ => (1, 3),
            },
            robust_buffers: robust.robust_buffer_access2 == vk::TRUE,
            integer_dot_product: dot.shader_integer_dot_product == vk::TRUE,
        }
    }

    /// A Vulkan device whose pipelines have statistics.
    pub struct CaptureDevice {
        device: ash::Device,
        executables: executables::Device,
        form: SpirvForm,
        stage: vk::PipelineShaderStageCreateFlags,
        /// Outlives `device`: the instance is its.
        _adapter: wgpu::Adapter,
    }

    impl Drop for CaptureDevice {
        fn drop(&mut self) {
            // SAFETY: all that was made on the device is destroyed; `Pieces` does so.
            unsafe { self.device.destroy_device(None) };
        }
    }

    impl CaptureDevice {
        /// Opens the physical device of the adapter once more.
        pub fn open(gpu: &Gpu) -> Result<CaptureDevice, String> {
            let adapter = gpu.adapter.clone().ok_or("the device was opened elsewhere")?;
            // SAFETY: the guard ends before the adapter, and nothing of it is destroyed.
            let hal = unsafe { adapter.as_hal::<Vulkan>() }.ok_or("its backend is not Vulkan")?;
            let features = adapter.features() & wanted_features();
            let mut extensions = hal.required_device_extensions(features);
            let mut enabled = hal.physical_device_features(&extensions, features);
            let form = spirv_form(&hal, &extensions);
            extensions.push(executables::NAME);
            let names: Vec<*const c_char> = extensions.iter().map(|e| e.as_ptr()).collect();
            let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(0).queue_priorities(&[1.0])];
            let mut capture =
                vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default().pipeline_executable_info(true);
            let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_extension_names(&names);
            let info = enabled.add_to_device_create(info.push_next(&mut capture));
            let instance = hal.shared_instance().raw_instance();
            // SAFETY: as wgpu opens it, and one extension more that the device has.
            let device = unsafe { instance.create_device(hal.raw_physical_device(), &info, None) };
            let device = device.map_err(|e| format!("its driver opens no second device: {e}"))?;
            let executables = executables::Device::new(instance, &device);
            let stage = match features.contains(wgpu::Features::SUBGROUP) {
                true => vk::PipelineShaderStageCreateFlags::ALLOW_VARYING_SUBGROUP_SIZE,
                false => vk::PipelineShaderStageCreateFlags::empty(),
            };
            drop(hal);
            Ok(CaptureDevice { device, executables, form, stage, _adapter: adapter })
        }

        /// Compiles a kernel and asks for its executables.
        pub fn executables(&self, kernel: &PlanKernel) -> Result<Vec<Executable>, String> {
            let module = kernel.emitted.module.downcast_ref::<GeneratedModule>();
            let module = module.ok_or("it was not made by this shader generator")?;
            let words = module.emit_spirv_as(self.form).map_err(|e| e.to_string())?;
            let pieces = self.pipeline(kernel, &words)?;
            let info = vk::PipelineInfoKHR::default().pipeline(pieces.pipeline);
            // SAFETY: the pipeline is of this device, and was made with both flags of capture.
            let list = unsafe { self.executables.get_pipeline_executable_properties(&info) };
            let list = list.map_err(|e| format!("the driver tells of no executables: {e}"))?;
            let one = |(i, e): (usize, &vk::PipelineExecutablePropertiesKHR<'_>)| {
                let info =
                    vk::PipelineExecutableInfoKHR::default().pipeline(pieces.pipeline).executable_index(i as u32);
                Ok(Executable {
                    name: text(&e.name),
                    subgroup_size: e.subgroup_size,
                    statistics: self.statistics(&info)?,
                    isa: self.isa(&info)?,
                })
            };
            list.iter().enumerate().map(one).collect()
        }

        fn statistics(&self, info: &vk::PipelineExecutableInfoKHR<'_>) -> Result<Vec<Statistic>, String> {
            // SAFETY: as in `executables`.
            let list = unsafe { self.executables.get_pipeline_executable_statistics(info) };
            let list = list.map_err(|e| format!("the driver tells no statistics: {e}"))?;
            let one = |s: &vk::PipelineExecutableStatisticKHR<'_>| {
                // SAFETY: the format says which member of the union was written; all have every bit pattern.
                let value = unsafe {
                    match s.format {
                        vk::PipelineExecutableStatisticFormatKHR::BOOL32 => StatisticValue::Bool(s.value.b32 != 0),
                        vk::PipelineExecutableStatisticFormatKHR::INT64 => StatisticValue::Int(s.value.i64),
                        vk::PipelineExecutableStatisticFormatKHR::UINT64 => StatisticValue::Uint(s.value.u64),
                        _ => StatisticValue::Float(s.value.f64),
                    }
                };
                Statistic { name: text(&s.name), meaning: text(&s.description), value }
            };
            Ok(list.iter().map(one).collect())
        }

        /// The representation that is the device's own instructions, as text.
        fn isa(&self, info: &vk::PipelineExecutableInfoKHR<'_>) -> Result<Option<String>, String> {
            let fail = |e: vk::Result| format!("the driver tells no representations: {e}");
            // SAFETY: as in `executables`; without a place for the data each says its size.
            let list = unsafe { self.executables.get_pipeline_executable_internal_representations(info) };
            let mut list = list.map_err(fail)?;
            let mut data: Vec<Vec<u8>> = list.iter().map(|r| vec![0; r.data_size]).collect();
            for (r, bytes) in list.iter_mut().zip(&mut data) {
                r.p_data = bytes.as_mut_ptr().cast();
            }
            let mut count = list.len() as u32;
            let device = self.device.handle();
            let fill = self.executables.fp().get_pipeline_executable_internal_representations_khr;
            // SAFETY: `list` has `count` structures, each with a place for as many bytes as it says.
            unsafe { fill(device, info, &mut count, list.as_mut_ptr()) }.result().map_err(fail)?;
            let written = list.iter().zip(&data).take(count as usize);
            let found = written.rev().find(|(r, _)| r.is_text == vk::TRUE && names_isa(&text(&r.name)));
            Ok(found.map(|(_, bytes)| {
                let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
                String::from_utf8_lossy(&bytes[..end]).into_owned()
            }))
        }

        /// A compute pipeline as wgpu makes it, with the flags of capture.
        fn pipeline(&self, kernel: &PlanKernel, words: &[u32]) -> Result<Pieces<'_>, String> {
            let fail = |e: vk::Result| format!("the driver does not compile it: {e}");
            let (device, emitted) = (&self.device, &kernel.emitted);
            let binding = |i: usize| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(i as u32)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            };
            let mut bindings: Vec<_> = (0..emitted.bindings.len()).map(binding).collect();
            if emitted.uniform_bytes > 0 {
                bindings.push(binding(bindings.len()).descriptor_type(vk::DescriptorType::UNIFORM_BUFFER));
            }
            let entry = CString::new(emitted.name.as_str()).map_err(|e| e.to_string())?;
            let mut p = Pieces::of(device);
            // SAFETY: the words are validated SPIR-V; the layout has what they bind; `Pieces` destroys what is made
            // here.
            unsafe {
                let set = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
                p.set = device.create_descriptor_set_layout(&set, None).map_err(fail)?;
                let sets = [p.set];
                let immediates = [vk::PushConstantRange::default()
                    .stage_flags(vk::ShaderStageFlags::ALL)
                    .size(emitted.immediate_bytes)];
                let mut layout = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
                if emitted.immediate_bytes > 0 {
                    layout = layout.push_constant_ranges(&immediates);
                }
                p.layout = device.create_pipeline_layout(&layout, None).map_err(fail)?;
                let module = vk::ShaderModuleCreateInfo::default().code(words);
                p.module = device.create_shader_module(&module, None).map_err(fail)?;
                let stage = vk::PipelineShaderStageCreateInfo::default()
                    .flags(self.stage)
                    .stage(vk::ShaderStageFlags::COMPUTE)
                    .module(p.module)
                    .name(&entry);
                let capture = vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR
                    | vk::PipelineCreateFlags::CAPTURE_INTERNAL_REPRESENTATIONS_KHR;
                let info = [vk::ComputePipelineCreateInfo::default().flags(capture).stage(stage).layout(p.layout)];
                let made = device.create_compute_pipelines(vk::PipelineCache::null(), &info, None);
                p.pipeline = made.map_err(|(_, e)| fail(e))?[0];
            }
            Ok(p)
        }
    }

    /// A pipeline and what it was made of; null handles are nothing yet.
    struct Pieces<'d> {
        device: &'d ash::Device,
        set: vk::DescriptorSetLayout,
        layout: vk::PipelineLayout,
        module: vk::ShaderModule,
        pipeline: vk::Pipeline,
    }

    impl<'d> Pieces<'d> {
        fn of(device: &'d ash::Device) -> Pieces<'d> {
            Pieces {
                device,
                set: Default::default(),
                layout: Default::default(),
                module: Default::default(),
                pipeline: Default::default(),
            }
        }
    }

    impl Drop for Pieces<'_> {
        fn drop(&mut self) {
            // SAFETY: nothing uses them any more; destroying null does nothing.
            unsafe {
                self.device.destroy_pipeline(self.pipeline, None);
                self.device.destroy_shader_module(self.module, None);
                self.device.destroy_pipeline_layout(self.layout, None);
                self.device.destroy_descriptor_set_layout(self.set, None);
            }
        }
    }

    /// A text in a fixed array, up to its first zero.
    fn text(chars: &[c_char]) -> String {
        let bytes: Vec<u8> = chars.iter().map(|&c| c as u8).take_while(|&b| b != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(not(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd")))]
mod vulkan {
    use crate::device::Gpu;
    use compiler::plan::PlanKernel;
    use compiler::trace::driver_stats::Executable;

    const WHY: &str = "they come from Vulkan drivers, and this build has none";

    pub fn check(_: &Gpu) -> Result<(), String> {
        Err(WHY.into())
    }

    pub struct CaptureDevice;
    impl CaptureDevice {
        pub fn open(_: &Gpu) -> Result<CaptureDevice, String> {
            Err(WHY.into())
        }
        pub fn executables(&self, _: &PlanKernel) -> Result<Vec<Executable>, String> {
            Err(WHY.into())
        }
    }
}
