//! The device of a run, for reports.

use weft::Device;

/// Name, backend, driver and type for reports.
pub fn describe(device: &Device) -> serde_json::Value {
    match device {
        Device::Gpu(g) => serde_json::json!({ "name": g.description.name, "backend": g.description.backend,
            "driver": g.description.driver, "type": g.description.kind }),
        Device::Cpu => {
            serde_json::json!({ "name": "CPU executor", "backend": "host", "driver": "weft", "type": "cpu" })
        }
    }
}
