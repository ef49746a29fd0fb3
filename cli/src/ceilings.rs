//! `weft bench --ceilings`: the peak rates of a device, shown.

use crate::args::Common;
use crate::output::{print_text, show_table, table, write_json};
use compiler::trace::Ceilings;
use schemars::JsonSchema;
use serde::Serialize;
use weft::Device;
use workbench::Result;
use workbench::device::{DeviceRecord, describe};
use workbench::record::Versioned;

/// Peak rates of a device.
#[derive(Serialize, JsonSchema)]
pub struct CeilingsRecord {
    /// The measured device.
    device: DeviceRecord,
    /// Its peak rates.
    ceilings: Ceilings,
}

/// Prints them alone.
pub fn show(c: &Ceilings, device: &Device, common: &Common) -> Result<()> {
    if write_json(common, &Versioned::new(CeilingsRecord { device: describe(device), ceilings: *c }))? {
        return Ok(());
    }
    let mut t = table(&["ceiling", ""]);
    t.add_row(["copy".to_string(), format!("{:.1} GB/s", c.copy_gb_s)]);
    t.add_row(["multiply-add in f32".to_string(), format!("{:.1} GFLOP/s", c.fma_gflops)]);
    for (name, value, unit) in [
        ("product by matrix units", c.matrix_gflops, "GFLOP/s"),
        ("read from caches", c.cache_gb_s, "GB/s"),
        ("read from workgroup memory", c.workgroup_gb_s, "GB/s"),
        ("the same from one bank", c.conflicting_gb_s, "GB/s"),
        ("combined by subgroups", c.subgroup_gops, "10^9 values/s"),
        ("a dispatch", c.launch_us, "us"),
    ] {
        value.map(|v| t.add_row([name.to_string(), format!("{v:.1} {unit}")]));
    }
    show_table(&t)?;
    print_text(&c.taken.words())
}
