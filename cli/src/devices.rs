//! `weft devices`

use crate::args::DevicesArgs;
use crate::error::CliResult;
use crate::output::{print_text, table, write_json};
use compiler::profile::{DeviceProfile, MatrixShape};

/// Lists adapters or profiles.
pub fn execute(a: &DevicesArgs) -> CliResult<()> {
    if a.profiles {
        return profiles(a);
    }
    let list = runtime_gpu::list_adapters();
    let json = serde_json::json!({ "schema": 1, "devices": list });
    if write_json(&a.common, &json)? {
        return Ok(());
    }
    if list.is_empty() {
        return print_text(
            "no adapter: models run on the CPU executor (`--device cpu`)\na Vulkan driver gives one, in software too: the package mesa-vulkan-drivers",
        );
    }
    let mut t = table(&[
        "",
        "name",
        "backend",
        "type",
        "driver",
        "f16",
        "subgroup",
        "coop. matrix",
        "shared",
        "binding",
        "buffer",
        "buffers",
        "timestamps",
    ]);
    for d in list {
        t.add_row([
            d.index.to_string(),
            d.name,
            d.backend,
            d.kind,
            d.driver,
            if d.f16 { "yes" } else { "no" }.into(),
            format!("{}..{}", d.subgroup_sizes[0], d.subgroup_sizes[1]),
            shapes(&d.cooperative_matrix),
            format!("{} KiB", d.shared_memory / 1024),
            format!("{} MiB", d.max_binding >> 20),
            format!("{} MiB", d.max_buffer >> 20),
            d.max_storage_buffers.to_string(),
            d.timestamps,
        ]);
    }
    print_text(&t.to_string())
}

/// Cooperative-matrix shapes in one cell.
fn shapes(list: &[MatrixShape]) -> String {
    let words = list.iter().map(|c| format!("{}x{}x{} {}->{}", c.mnk[0], c.mnk[1], c.mnk[2], c.ab, c.cr));
    let words: Vec<String> = words.collect();
    if words.is_empty() { "-".into() } else { words.join(", ") }
}

fn profiles(a: &DevicesArgs) -> CliResult<()> {
    let list = DeviceProfile::all();
    if write_json(&a.common, &serde_json::json!({ "schema": 1, "profiles": list }))? {
        return Ok(());
    }
    let mut t = table(&[
        "profile",
        "software",
        "f16",
        "subgroup",
        "coop. matrix",
        "shared",
        "threads",
        "buffers",
        "binding",
        "cores",
        "GFLOP/s",
        "GB/s",
    ]);
    let rate = |x: f64| if x > 0.0 { x.to_string() } else { "-".into() };
    for p in list {
        t.add_row([
            p.name.clone(),
            if p.software { "yes" } else { "no" }.into(),
            if p.f16 { "yes" } else { "no" }.into(),
            format!("{}..{}", p.subgroup.0, p.subgroup.1),
            shapes(&p.matrix_shapes),
            format!("{} KiB", p.shared_memory / 1024),
            p.max_invocations.to_string(),
            p.max_storage_buffers.to_string(),
            format!("{} MiB", p.max_binding >> 20),
            p.cores.to_string(),
            rate(p.gflops),
            rate(p.gb_s),
        ]);
    }
    print_text(&t.to_string())
}
