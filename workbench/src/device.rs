//! The device of a run, for reports.

use weft::Device;

/// Name, backend, driver and type for reports.
pub fn describe(device: &Device) -> serde_json::Value {
    match device {
        Device::Gpu(g) => serde_json::json!({ "name": g.description.name, "backend": g.description.backend,
            "driver": g.description.driver, "type": g.description.kind }),
        Device::Cpu(p) => {
            let driver = format!("weft, {}, {} threads", p.isa().name(), p.threads());
            serde_json::json!({ "name": weft::processor_name(), "backend": "cpu", "driver": driver, "type": "cpu" })
        }
        Device::Interpreter => {
            serde_json::json!({ "name": "interpreter", "backend": "host", "driver": "weft", "type": "cpu" })
        }
    }
}
