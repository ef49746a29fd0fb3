//! Where a model runs, and where what was found out about a device is kept.

use runtime_gpu::Gpu;
use std::sync::Arc;

/// Where a model runs.
pub enum Device {
    /// A GPU or a software driver.
    Gpu(Arc<Gpu>),
    /// The CPU executor.
    Cpu,
}
impl Device {
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
    /// Name, backend, driver and type for reports.
    pub fn describe(&self) -> serde_json::Value {
        match self {
            Device::Gpu(g) => serde_json::json!({ "name": g.description.name, "backend": g.description.backend,
                "driver": g.description.driver, "type": g.description.kind }),
            Device::Cpu => {
                serde_json::json!({ "name": "CPU executor", "backend": "host", "driver": "weft", "type": "cpu" })
            }
        }
    }
}

/// The user's cache folder, by the platform's custom.
pub fn cache_dir() -> Option<std::path::PathBuf> {
    let var = |n: &str| std::env::var_os(n).filter(|v| !v.is_empty()).map(std::path::PathBuf::from);
    var("WEFT_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|p| p.join("weft")))
        .or_else(|| var("LOCALAPPDATA").map(|p| p.join("weft")))
        .or_else(|| {
            var("HOME")
                .map(|p| if cfg!(target_os = "macos") { p.join("Library/Caches/weft") } else { p.join(".cache/weft") })
        })
}
