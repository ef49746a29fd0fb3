//! Devices that run models, and the folder for measured facts about devices.

use crate::error::Error;
use compiler::profile::DeviceProfile;
use runtime_gpu::{DeviceChoice, Gpu};
use std::path::PathBuf;
use std::sync::Arc;

/// A device that runs models. Clones are the same device: sessions on it share its queue.
#[derive(Clone)]
pub enum Device {
    /// A GPU or a software driver.
    Gpu(Arc<Gpu>),
    /// The CPU executor, which needs no driver: the reference for every result, and slow.
    Cpu,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.label())
    }
}

impl Device {
    /// Opens a device: `auto` (the best GPU; a software driver only when there is none), a number or a part of a name
    /// as `weft devices` lists them, `vulkan:0`, or `cpu` for the CPU executor.
    ///
    /// # Errors
    /// [`Error::Device`]: there is no such device, or it does not open.
    pub fn open(name: &str) -> Result<Device, Error> {
        match name {
            "cpu" => Ok(Device::Cpu),
            _ => Ok(Device::Gpu(Arc::new(Gpu::open(&DeviceChoice::parse(name))?))),
        }
    }
    /// The best available device; the CPU executor if no adapter can be opened.
    pub fn best() -> Device {
        Device::open("auto").unwrap_or(Device::Cpu)
    }
    /// Name, backend and driver in one text.
    pub fn label(&self) -> String {
        match self {
            Device::Gpu(g) => {
                let d = &g.description;
                format!("{} ({}, {})", d.name, d.backend, d.driver)
            }
            Device::Cpu => "the CPU executor".into(),
        }
    }
    /// Its capabilities. For the CPU executor, which has no limits, those that every device has.
    pub fn profile(&self) -> DeviceProfile {
        match self {
            Device::Gpu(gpu) => gpu.profile.clone(),
            Device::Cpu => DeviceProfile::baseline(),
        }
    }
    /// The profile to compile for if the result runs here: the named one, limited to what this device can do, or the
    /// device's own.
    ///
    /// # Errors
    /// [`Error::NoProfile`].
    pub fn profile_as(&self, name: Option<&str>) -> Result<DeviceProfile, Error> {
        let Some(name) = name else { return Ok(self.profile()) };
        let Some(named) = DeviceProfile::named(name) else {
            let there = DeviceProfile::all().into_iter().map(|p| p.name).collect();
            return Err(Error::NoProfile { name: name.into(), there });
        };
        Ok(match self {
            Device::Gpu(gpu) => named.limited_to(&gpu.profile),
            Device::Cpu => named,
        })
    }
}

/// The user's cache folder: `WEFT_CACHE`, else by the platform's custom.
pub fn cache_dir() -> Option<PathBuf> {
    let var = |n: &str| std::env::var_os(n).filter(|v| !v.is_empty()).map(PathBuf::from);
    var("WEFT_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|p| p.join("weft")))
        .or_else(|| var("LOCALAPPDATA").map(|p| p.join("weft")))
        .or_else(|| {
            var("HOME")
                .map(|p| if cfg!(target_os = "macos") { p.join("Library/Caches/weft") } else { p.join(".cache/weft") })
        })
}
