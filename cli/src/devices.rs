//! `weft devices`

use crate::args::DevicesArgs;
use crate::error::CliResult;
use crate::output::{print_text, table, write_json};
use compiler::profile::quirks::QUIRKS;
use compiler::profile::{DeviceProfile, MatrixShape, Quirk};
use runtime_gpu::{AdapterDescription, Figure, Source};

/// Lists adapters or profiles.
pub fn execute(a: &DevicesArgs) -> CliResult<()> {
    if a.profiles {
        return profiles(a);
    }
    if a.quirks {
        return quirks(a);
    }
    let mut list = runtime_gpu::list_adapters();
    for d in &mut list {
        if let Some(c) = crate::ceilings::stored(d) {
            d.set_measured(c.fma_gflops, c.copy_gb_s);
        }
    }
    let json = serde_json::json!({ "schema": 1, "devices": list });
    if write_json(&a.common, &json)? {
        return Ok(());
    }
    if list.is_empty() {
        return print_text(
            "no adapter: models run on the CPU executor (`--device cpu`)\na Vulkan driver gives one, in software too: the package mesa-vulkan-drivers",
        );
    }
    let rates = figures(&list);
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
    print_text(&format!("{t}\n\nwhat schedules go by, and who says it:\n{rates}"))
}

/// Every quirk, and the devices and profiles that have it.
fn quirks(a: &DevicesArgs) -> CliResult<()> {
    let devices: Vec<DeviceProfile> = runtime_gpu::list_adapters().into_iter().map(|d| d.profile).collect();
    let profiles = DeviceProfile::all();
    let named = |list: &[DeviceProfile], q: &Quirk| -> Vec<String> {
        list.iter().filter(|p| p.quirks.has(q)).map(|p| p.name.clone()).collect()
    };
    let row = |q: &&'static Quirk| {
        serde_json::json!({
            "name": q.name, "what": q.what, "guards": q.guards, "versions": q.versions, "evidence": q.evidence,
            "goes": q.goes, "devices": named(&devices, q), "profiles": named(&profiles, q),
        })
    };
    let rows: Vec<serde_json::Value> = QUIRKS.iter().map(row).collect();
    if write_json(&a.common, &serde_json::json!({ "schema": 1, "quirks": rows }))? {
        return Ok(());
    }
    let mut t = table(&["quirk", "for", "here", "profiles", "what"]);
    for q in QUIRKS.iter() {
        let aim = if q.guards { "results" } else { "speed" };
        let list = |list: &[DeviceProfile]| match named(list, q) {
            names if names.is_empty() => "-".to_string(),
            names => names.join(", "),
        };
        t.add_row([q.name.into(), aim.into(), list(&devices), list(&profiles), q.what.to_string()]);
    }
    print_text(&format!(
        "{t}\n\n`--quirk NAME=off` compiles without one; docs/drivers.md has the evidence and the effects"
    ))
}

/// Cores and rates of each device, with where they come from.
fn figures(list: &[AdapterDescription]) -> String {
    let mut t = table(&["", "product", "cores", "GFLOP/s", "GFLOP/s in f16", "GB/s"]);
    let rate = |r: &Option<Figure<f64>>| r.map_or("-".into(), |r| said(format!("{:.0}", r.value), r.from));
    for d in list {
        let f = &d.figures;
        t.add_row([
            d.index.to_string(),
            f.product.map_or("-".into(), |p| format!("{p} ({})", f.architecture.unwrap_or("-"))),
            said(f.cores.value.to_string(), f.cores.from),
            rate(&f.gflops),
            rate(&f.f16_gflops),
            rate(&f.gb_s),
        ]);
    }
    let later = if list.iter().any(|d| d.figures.lacking()) {
        "\nwhat is guessed or missing is measured when a model is first compiled for the device"
    } else {
        ""
    };
    format!("{t}{later}")
}

/// A figure and who says it.
fn said(value: String, from: Source) -> String {
    let who = match from {
        Source::Driver => "driver",
        Source::Table => "table",
        Source::System => "system",
        Source::Measured => "measured",
        Source::Guessed => "guessed",
    };
    format!("{value} ({who})")
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
