//! The device of a run, for reports.

use schemars::JsonSchema;
use serde::Serialize;
use weft::Device;

/// The device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct DeviceRecord {
    /// The adapter's, or the processor's; `interpreter`.
    pub name: String,
    /// `vulkan`, `metal`, `dx12`, `cpu`, or `host` for the interpreter.
    pub backend: String,
    /// With its version.
    pub driver: String,
    /// `discrete`, `integrated`, `cpu` and so on.
    #[serde(rename = "type")]
    pub kind: String,
}

/// Name, backend, driver and type for reports.
pub fn describe(device: &Device) -> DeviceRecord {
    let record = |name: &str, backend: &str, driver: &str, kind: &str| DeviceRecord {
        name: name.into(),
        backend: backend.into(),
        driver: driver.into(),
        kind: kind.into(),
    };
    match device {
        Device::Gpu(g) => {
            let d = &g.description;
            record(&d.name, &d.backend, &d.driver, &d.kind)
        }
        Device::Cpu(p) => {
            let driver = format!("weft, {}, {} threads", p.isa().name(), p.threads());
            record(&weft::processor_name(), "cpu", &driver, "cpu")
        }
        Device::Interpreter => record("interpreter", "host", "weft", "cpu"),
    }
}
