//! Opening a device.

use crate::adapters::{AdapterDescription, adapters, backend_name, describe, driver_family, profile_from};
use crate::counted_cores;
use crate::error::GpuError;
use crate::figures::DeviceFigures;
use crate::poller::Poller;
use crate::shared_parts::SharedParts;
use compiler::fingerprint::Fingerprint;
use compiler::profile::DeviceProfile;
use compiler::trace::Ceilings;
use std::sync::{Arc, Mutex, OnceLock};

/// Which device to open.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceChoice {
    /// The best real GPU: no software driver.
    Auto,
    /// The n-th of [`crate::list_adapters`].
    Index(usize),
    /// The n-th adapter of one backend: `vulkan:0`.
    Backend(String, usize),
    /// The first device whose name contains this text, ignoring case; else the first whose driver's name does
    /// (lavapipe's device is called llvmpipe).
    Name(String),
}
impl DeviceChoice {
    /// Reads `auto`, `0`, `vulkan:1` or a name.
    pub fn parse(text: &str) -> DeviceChoice {
        if text == "auto" {
            return DeviceChoice::Auto;
        }
        if let Ok(n) = text.parse() {
            return DeviceChoice::Index(n);
        }
        if let Some((b, n)) = text.split_once(':')
            && let Ok(n) = n.parse()
        {
            return DeviceChoice::Backend(b.to_lowercase(), n);
        }
        DeviceChoice::Name(text.to_string())
    }
}

/// An open device with its queue and profile.
pub struct Gpu {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    /// Its capabilities.
    pub profile: DeviceProfile,
    /// How it introduces itself.
    pub description: AdapterDescription,
    pub(crate) lost: Arc<Mutex<Option<String>>>,
    pub(crate) cache_key: Option<String>,
    /// The adapter, if the device was opened by Weft.
    pub(crate) adapter: Option<wgpu::Adapter>,
    poller: OnceLock<Result<Poller, String>>,
    /// Parts that its sessions share.
    pub(crate) parts: SharedParts,
}

/// Features that Weft uses if the adapter has them.
pub(crate) fn wanted_features() -> wgpu::Features {
    use wgpu::Features as F;
    F::SHADER_F16
        | F::SHADER_I16
        | F::SUBGROUP
        | F::SUBGROUP_BARRIER
        | F::TIMESTAMP_QUERY
        | F::TIMESTAMP_QUERY_INSIDE_ENCODERS
        | F::TIMESTAMP_QUERY_INSIDE_PASSES
        | F::IMMEDIATES
        | F::PIPELINE_CACHE
        | F::EXPERIMENTAL_COOPERATIVE_MATRIX
}

impl Gpu {
    /// The result of `f`, or an error if the device refuses a call in it.
    pub(crate) fn validated<T>(&self, f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let given = f();
        match pollster::block_on(scope.pop()) {
            Some(e) => Err(e.to_string()),
            None => given,
        }
    }
    /// The wgpu device, for the caller's own commands and resources.
    pub fn device(&self) -> &wgpu::Device {
        &self.device
    }
    /// Its queue. The caller's submissions run after those that Weft has made so far.
    pub fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }
    /// Opens a device.
    ///
    /// # Errors
    /// [`GpuError::NoDevice`] with what is there, or [`GpuError::Open`].
    pub fn open(choice: &DeviceChoice) -> Result<Gpu, GpuError> {
        let (_instance, list) = adapters();
        let infos: Vec<_> = list.iter().map(|a| a.get_info()).collect();
        let found = match choice {
            DeviceChoice::Auto => infos.iter().position(|i| i.device_type != wgpu::DeviceType::Cpu),
            DeviceChoice::Index(n) => (*n < list.len()).then_some(*n),
            DeviceChoice::Backend(b, n) => {
                infos.iter().enumerate().filter(|(_, i)| backend_name(i.backend) == b).nth(*n).map(|(i, _)| i)
            }
            DeviceChoice::Name(text) => {
                let wanted = text.to_lowercase();
                let named = |name: &str| name.to_lowercase().contains(&wanted);
                let by_driver = || infos.iter().position(|i| named(&i.driver) || named(&driver_family(i)));
                infos.iter().position(|i| named(&i.name)).or_else(by_driver)
            }
        };
        let Some(index) = found else {
            let asked = match choice {
                DeviceChoice::Auto => "auto".into(),
                DeviceChoice::Index(n) => n.to_string(),
                DeviceChoice::Backend(b, n) => format!("{b}:{n}"),
                DeviceChoice::Name(n) => n.clone(),
            };
            let there = infos.iter().enumerate().map(|(i, a)| format!("{i} {}", a.name)).collect();
            return Err(GpuError::NoDevice { asked, there });
        };
        Gpu::from_adapter(index, &list[index])
    }

    fn from_adapter(index: usize, adapter: &wgpu::Adapter) -> Result<Gpu, GpuError> {
        let info = adapter.get_info();
        let features = adapter.features() & wanted_features();
        let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some("weft"),
            required_features: features,
            required_limits: adapter.limits(),
            memory_hints: wgpu::MemoryHints::Performance,
            // SAFETY: of the experimental features only matrices of subgroups are used, whose sizes, types and bounds
            // the lowering checks itself.
            experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
            ..Default::default()
        }))
        .map_err(|e| GpuError::Open { name: info.name.clone(), why: e.to_string() })?;
        Ok(Gpu { adapter: Some(adapter.clone()), ..Gpu::wrap(device, queue, describe(index, adapter)) })
    }

    /// Uses a caller's own device: only the features it was opened with are used.
    pub fn from_device(device: wgpu::Device, queue: wgpu::Queue) -> Gpu {
        let (info, limits, features) = (device.adapter_info(), device.limits(), device.features());
        let figures = DeviceFigures::of(&info, counted_cores::of_device(&device));
        let p = profile_from(&info, &limits, features, &figures);
        let description = AdapterDescription {
            index: 0,
            name: info.name.clone(),
            backend: backend_name(info.backend).into(),
            driver: format!("{} {}", info.driver, info.driver_info).trim().to_string(),
            kind: crate::adapters::kind_name(info.device_type).into(),
            f16: p.f16,
            subgroup_sizes: [p.subgroup.0, p.subgroup.1],
            cooperative_matrix: vec![],
            shared_memory: p.shared_memory,
            max_binding: p.max_binding,
            max_buffer: p.max_buffer,
            max_storage_buffers: p.max_storage_buffers,
            timestamps: "as opened".into(),
            vendor_id: info.vendor,
            device_id: info.device,
            figures,
            profile: p.clone(),
        };
        Gpu::wrap(device, queue, description)
    }

    fn wrap(device: wgpu::Device, queue: wgpu::Queue, description: AdapterDescription) -> Gpu {
        let info = device.adapter_info();
        let lost = Arc::new(Mutex::new(None));
        let seen = lost.clone();
        device.set_device_lost_callback(move |reason, message| {
            if reason != wgpu::DeviceLostReason::Destroyed
                && let Ok(mut slot) = seen.lock()
            {
                *slot = Some(message);
            }
        });
        let mut profile = profile_from(&info, &device.limits(), device.features(), &description.figures);
        if device.features().contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX) {
            profile.matrix_shapes.clone_from(&description.cooperative_matrix);
        }
        let driver = Fingerprint::of(|w| w.text(&format!("{} {}", info.driver, info.driver_info)));
        let cache_key = wgpu::util::pipeline_cache_key(&info).map(|k| format!("{k}-{driver}"));
        Gpu {
            device,
            queue,
            profile,
            description,
            lost,
            cache_key,
            adapter: None,
            poller: OnceLock::new(),
            parts: SharedParts::default(),
        }
    }

    /// Sets rates for later compilations that were measured on this device, unless its driver or its maker gives them.
    pub fn set_measured(&mut self, c: &Ceilings) {
        self.description.set_measured(c);
        self.description.figures.put(&mut self.profile);
    }

    /// An error when the device was lost.
    ///
    /// # Errors
    /// [`GpuError::Lost`].
    pub fn check_lost(&self) -> Result<(), GpuError> {
        match self.lost.lock().ok().and_then(|l| l.clone()) {
            Some(message) => Err(GpuError::Lost(message)),
            None => Ok(()),
        }
    }

    /// The thread that polls the device for futures, started by the first future.
    pub(crate) fn poller(&self) -> Result<&Poller, GpuError> {
        let started = self.poller.get_or_init(|| Poller::start(self.device.clone()).map_err(|e| e.to_string()));
        started.as_ref().map_err(|e| GpuError::Host(format!("no thread to wait for the device: {e}")))
    }

    /// Blocks until a submission is done. Its buffers are mapped only after their callback ran, maybe on another thread
    /// that polls the device.
    ///
    /// # Errors
    /// [`GpuError::Lost`] when the device does not answer.
    pub(crate) fn wait_for(&self, index: wgpu::SubmissionIndex) -> Result<(), GpuError> {
        let wait = wgpu::PollType::Wait { submission_index: Some(index), timeout: None };
        self.device.poll(wait).map_err(|e| GpuError::Lost(e.to_string()))?;
        self.check_lost()
    }

    /// Blocks until everything submitted is done.
    ///
    /// # Errors
    /// [`GpuError::Lost`] when the device does not answer.
    pub fn wait(&self) -> Result<(), GpuError> {
        self.device.poll(wgpu::PollType::wait_indefinitely()).map_err(|e| GpuError::Lost(e.to_string()))?;
        self.check_lost()
    }
}
