//! Devices that run models.

use crate::error::Error;
use crate::interpreted::Reference;
use crate::machine::Machine;
use crate::options::Options;
use crate::plain_files::read_text;
use compiler::profile::DeviceProfile;
use compiler::profile_file::parse_profile;
use compiler::tensor::Tensor;
use runtime_cpu::{CpuError, Isa, Processor};
use runtime_gpu::{DeviceChoice, DeviceTensor, Gpu, GpuError, RunTensor};
use std::path::Path;
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
    /// devices` lists them, `vulkan:0`, `cpu` for the processor (`cpu:avx512`, `cpu:avx2`, `cpu:neon` or `cpu:portable`
    /// with that instruction set), or `interpreter`.
    ///
    /// # Errors
    /// [`Error::Device`]: there is no such device, or it does not open. [`Error::Processor`]: its threads do not start,
    /// or it lacks the instruction set.
    pub fn open(name: &str) -> Result<Device, Error> {
        Device::with_threads(name, 0)
    }
    /// As [`Device::open`]; a processor has so many threads, 0 is one for each core.
    ///
    /// # Errors
    /// As there.
    pub fn with_threads(name: &str, threads: usize) -> Result<Device, Error> {
        match name {
            "cpu" => Device::cpu(threads),
            "interpreter" => Ok(Device::Interpreter),
            _ if Device::is_processor(name) => {
                let isa = Isa::named(&name["cpu:".len()..]).ok_or_else(|| {
                    let there = Isa::ALL.map(|i| format!("cpu:{}", i.short_name())).join(", ");
                    CpuError::Open(format!("no instruction set has the name `{name}`; there are {there}"))
                })?;
                Ok(Device::Cpu(Arc::new(Processor::open(threads, Some(isa))?)))
            }
            _ => match Gpu::open(&DeviceChoice::parse(name)) {
                Err(GpuError::NoDevice { .. }) if name == "auto" => Device::cpu(0),
                gpu => Ok(Device::Gpu(Arc::new(gpu?))),
            },
        }
    }
    /// True if [`Device::open`] opens the processor for this name.
    pub fn is_processor(name: &str) -> bool {
        name == "cpu" || name.starts_with("cpu:")
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
    /// The machine that runs models.
    pub(crate) fn machine(&self) -> Arc<dyn Machine> {
        match self {
            Device::Gpu(gpu) => Arc::new(gpu.clone()),
            Device::Cpu(processor) => Arc::new(processor.clone()),
            Device::Interpreter => Arc::new(Reference),
        }
    }
    /// Name, backend and driver in one text.
    pub fn label(&self) -> String {
        self.machine().label()
    }
    /// Its capabilities. For the interpreter, which has no limits, those that every device has.
    pub fn profile(&self) -> DeviceProfile {
        self.machine().profile()
    }
    /// The elements of a tensor that is on this device, once the device is done with what was submitted before; as a
    /// future that does not block the polling thread.
    ///
    /// # Errors
    /// [`Error::Device`]: a buffer that cannot be copied from, a lost device. [`Error::Input`]: this is no GPU.
    pub async fn read(&self, tensor: &DeviceTensor) -> Result<Tensor, Error> {
        self.machine().read(tensor).await
    }
    /// A result of a run in host memory; blocks until the device is done with what was submitted before.
    ///
    /// # Errors
    /// As [`Device::read`].
    pub fn tensor(&self, result: &RunTensor) -> Result<Tensor, Error> {
        match result {
            RunTensor::Host(t) => Ok(t.clone()),
            RunTensor::Device(t) => pollster::block_on(self.read(t)),
        }
    }
    /// The profile to compile for if the result runs here: the named one, limited to what this device can do, or the
    /// device's own.
    ///
    /// # Errors
    /// [`Error::NoProfile`], [`Error::NoShaders`].
    pub fn profile_as(&self, name: Option<&str>) -> Result<DeviceProfile, Error> {
        let Some(name) = name else { return Ok(self.profile()) };
        self.machine().as_here(named_profile(name)?)
    }
}

/// The profile of that name, or in the file of that name if it ends in `.json`.
///
/// # Errors
/// [`Error::NoProfile`]; a file that cannot be read, or is no profile.
pub fn named_profile(name: &str) -> Result<DeviceProfile, Error> {
    if name.ends_with(".json") {
        let text = read_text(Path::new(name)).map_err(|e| Error::file(Path::new(name), e))?;
        return parse_profile(&text).map_err(|why| Error::Input(format!("{name}: {why}")));
    }
    DeviceProfile::named(name).ok_or_else(|| {
        let there = DeviceProfile::all().into_iter().map(|p| p.name).collect();
        Error::NoProfile { name: name.into(), there }
    })
}

impl Options {
    /// For a device, with its capabilities.
    pub fn for_device(device: &Device) -> Options {
        let machine = device.machine();
        Options { profile: machine.runs_plans().then(|| machine.profile()), ..Options::default() }
    }
}
