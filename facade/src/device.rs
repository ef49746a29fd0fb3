//! Devices that run models, and the folder for measured facts about devices.

use crate::error::Error;
use compiler::plan::EmitKernel;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use runtime_cpu::Processor;
use runtime_gpu::{DeviceChoice, DeviceTensor, Gpu, GpuError, processor_model};
use std::path::PathBuf;
use std::sync::Arc;

/// A device that runs models. Clones are the same device: sessions on it share its queue, or its threads.
#[derive(Clone)]
pub enum Device {
    /// A GPU or a software driver.
    Gpu(Arc<Gpu>),
    /// This machine's processor, which runs kernels without a driver.
    Cpu(Arc<Processor>),
    /// The interpreter: the reference for every result, and slow.
    Interpreter,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.label())
    }
}

impl Device {
    /// Opens a device: `auto` (the best GPU; the processor if there is none), a number or a part of a name as `weft
    /// devices` lists them, `vulkan:0`, `cpu` for the processor, or `interpreter`.
    ///
    /// # Errors
    /// [`Error::Device`]: there is no such device, or it does not open. [`Error::Processor`]: its threads do not start.
    pub fn open(name: &str) -> Result<Device, Error> {
        match name {
            "cpu" => Device::cpu(0),
            "interpreter" => Ok(Device::Interpreter),
            _ => match Gpu::open(&DeviceChoice::parse(name)) {
                Err(GpuError::NoDevice { .. }) if name == "auto" => Device::cpu(0),
                gpu => Ok(Device::Gpu(Arc::new(gpu?))),
            },
        }
    }
    /// A device that the program has opened itself through `wgpu` (the version that [`wgpu`](crate::wgpu) is), with its
    /// queue: models use the features and limits that it was opened with, and share its memory and order of work.
    pub fn from_wgpu(device: runtime_gpu::wgpu::Device, queue: runtime_gpu::wgpu::Queue) -> Device {
        Device::Gpu(Arc::new(Gpu::from_device(device, queue)))
    }
    /// The processor with so many threads; 0 is one for each core.
    ///
    /// # Errors
    /// [`Error::Processor`]: the threads do not start.
    pub fn cpu(threads: usize) -> Result<Device, Error> {
        Ok(Device::Cpu(Arc::new(Processor::open(threads, None)?)))
    }
    /// The best available device: `auto`, or the interpreter if that does not open.
    pub fn best() -> Device {
        Device::open("auto").unwrap_or(Device::Interpreter)
    }
    /// Name, backend and driver in one text.
    pub fn label(&self) -> String {
        match self {
            Device::Gpu(g) => {
                let d = &g.description;
                format!("{} ({}, {})", d.name, d.backend, d.driver)
            }
            Device::Cpu(p) => {
                let threads =
                    if p.threads() == 1 { "1 thread".to_string() } else { format!("{} threads", p.threads()) };
                format!("{} ({}, {threads})", processor_name(), p.isa().name())
            }
            Device::Interpreter => "the interpreter".into(),
        }
    }
    /// Its capabilities. For the interpreter, which has no limits, those that every device has.
    pub fn profile(&self) -> DeviceProfile {
        match self {
            Device::Gpu(gpu) => gpu.profile.clone(),
            Device::Cpu(p) => DeviceProfile { processor: processor_model(), ..p.profile() },
            Device::Interpreter => DeviceProfile::baseline(),
        }
    }
    /// The elements of a tensor that is on this device, once the device is done with what was submitted before; as a
    /// future that does not block the polling thread.
    ///
    /// # Errors
    /// [`Error::Device`]: a buffer that cannot be copied from, a lost device. [`Error::Input`]: this is no GPU.
    pub async fn read(&self, tensor: &DeviceTensor) -> Result<Tensor, Error> {
        match self {
            Device::Gpu(gpu) => Ok(tensor.read(gpu).await?),
            Device::Cpu(_) | Device::Interpreter => {
                Err(Error::Input(format!("{} has no tensors of its own", self.label())))
            }
        }
    }
    /// The profile to compile for if the result runs here: the named one, limited to what this device can do, or the
    /// device's own.
    ///
    /// # Errors
    /// [`Error::NoProfile`], [`Error::NoShaders`].
    pub fn profile_as(&self, name: Option<&str>) -> Result<DeviceProfile, Error> {
        let Some(name) = name else { return Ok(self.profile()) };
        let Some(named) = DeviceProfile::named(name) else {
            let there = DeviceProfile::all().into_iter().map(|p| p.name).collect();
            return Err(Error::NoProfile { name: name.into(), there });
        };
        match self {
            Device::Gpu(gpu) => Ok(named.limited_to(&gpu.profile)),
            Device::Cpu(_) => Err(Error::NoShaders { name: name.into() }),
            Device::Interpreter => Ok(named),
        }
    }
}

/// The model of this machine's processor; `CPU` if the system does not say.
pub fn processor_name() -> String {
    let model = processor_model();
    if model.is_empty() { "CPU".into() } else { model }
}

/// The code generator for a profile.
pub fn emitter(profile: &DeviceProfile) -> &'static dyn EmitKernel {
    match profile.model().shaders {
        true => &shaders_gen::Emitter,
        false => &runtime_cpu::Emitter,
    }
}

/// The user's cache folder: `WEFT_CACHE`, which may be `off`, else by the platform's custom.
pub fn cache_dir() -> Option<PathBuf> {
    let var = |n: &str| std::env::var_os(n).filter(|v| !v.is_empty()).map(PathBuf::from);
    let own = var("WEFT_CACHE");
    if own.as_ref().is_some_and(|o| o.as_os_str() == "off") {
        return None;
    }
    own.or_else(|| var("XDG_CACHE_HOME").map(|p| p.join("weft")))
        .or_else(|| var("LOCALAPPDATA").map(|p| p.join("weft")))
        .or_else(|| {
            var("HOME")
                .map(|p| if cfg!(target_os = "macos") { p.join("Library/Caches/weft") } else { p.join(".cache/weft") })
        })
}
