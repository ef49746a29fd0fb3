//! `weft devices`

use crate::args::DevicesArgs;
use crate::output::{print_text, show_table, table, write_json};
use compiler::profile::quirks::QUIRKS;
use compiler::profile::{DeviceProfile, MatrixShape, Quirk};
use runtime_cpu::Processor;
use runtime_gpu::{AdapterDescription, DeviceFigures, Figure, Source};
use schemars::JsonSchema;
use serde::Serialize;
use workbench::Result;
use workbench::record::Versioned;

/// Devices that models can run on.
#[derive(Serialize, JsonSchema)]
pub struct DevicesRecord {
    /// Adapters, real GPUs first.
    devices: Vec<AdapterDescription>,
    /// The processor.
    cpu: ProcessorRecord,
}

/// The processor.
#[derive(Serialize, JsonSchema)]
struct ProcessorRecord {
    /// The model; `CPU` where the system does not say.
    name: String,
    /// The instruction set of native kernels: `avx512f`, `avx2+fma`, `neon` or `portable`.
    instructions: &'static str,
    /// That kernels run on without `--threads`.
    threads: usize,
}

/// Faults of drivers, and operations that are slow there.
#[derive(Serialize, JsonSchema)]
pub struct QuirksRecord {
    /// Every one.
    quirks: Vec<QuirkRecord>,
}

/// A quirk of a driver.
#[derive(Serialize, JsonSchema)]
struct QuirkRecord {
    /// The name that `--quirk NAME=off` takes.
    name: &'static str,
    /// The behaviour of the driver, and how kernels avoid it.
    what: &'static str,
    /// Results depend on it; else speed alone.
    guards: bool,
    /// For which it was measured.
    versions: &'static str,
    /// The file that shows it.
    evidence: &'static str,
    /// When the row can go.
    goes: &'static str,
    /// Names of adapters here that have it.
    devices: Vec<String>,
    /// Names of profiles that have it.
    profiles: Vec<String>,
}

/// Devices to compile for.
#[derive(Serialize, JsonSchema)]
pub struct ProfilesRecord {
    /// Limits and features of each: `name` is what `--target` takes, `software` a CPU behind a GPU's interface, `f16`
    /// arithmetic in shaders, `max_invocations` threads and `shared_memory` bytes of a workgroup.
    #[schemars(with = "Vec<serde_json::Map<String, serde_json::Value>>")]
    profiles: Vec<DeviceProfile>,
}

/// Lists adapters or profiles.
pub fn execute(a: &DevicesArgs) -> Result<()> {
    if a.profiles {
        return profiles(a);
    }
    if a.quirks {
        return quirks(a);
    }
    let mut list = runtime_gpu::list_adapters();
    for d in &mut list {
        if let Some(c) = workbench::ceilings::stored_of(d) {
            d.set_measured(&c);
        }
    }
    let processor = Processor::open(0, None)?;
    let (name, threads) = (weft::processor_name(), processor.threads());
    let cpu = ProcessorRecord { name, instructions: processor.isa().name(), threads };
    if write_json(&a.common, &Versioned::new(DevicesRecord { devices: list.clone(), cpu }))? {
        return Ok(());
    }
    if list.is_empty() {
        let advice = "no adapter; a Vulkan driver gives one, in software too: the package mesa-vulkan-drivers";
        return print_text(&format!("{}\n\n{advice}", cpu_block(&processor)));
    }
    let later = if list.iter().any(|d| d.figures.lacking()) {
        "\n\n`weft bench --ceilings --device N` measures what is guessed or unknown"
    } else {
        ""
    };
    let blocks: Vec<String> = list.iter().map(block).chain([cpu_block(&processor)]).collect();
    print_text(&format!("{}{later}", blocks.join("\n\n")))
}

/// The processor, as [`block`] shows adapters.
fn cpu_block(p: &Processor) -> String {
    let threads = format!("{} (`--threads` takes another number)", p.threads());
    let rows = [("kernels", format!("native, {}", p.isa().name())), ("threads", threads)];
    format!("cpu {}\n{}", weft::processor_name(), lines(&rows))
}

/// A device in lines of a name and a value.
fn block(d: &AdapterDescription) -> String {
    let rows = [
        ("driver", format!("{}: {}, {}", d.backend, d.kind, d.driver)),
        ("f16", if d.f16 { "yes" } else { "no" }.into()),
        ("subgroups", format!("{} to {} lanes", d.subgroup_sizes[0], d.subgroup_sizes[1])),
        ("matrices", shapes(&d.cooperative_matrix)),
        ("memory", format!("{} KiB shared by a workgroup", d.shared_memory / 1024)),
        ("buffers", format!("{} MiB each, {} MiB bound", d.max_buffer >> 20, d.max_binding >> 20)),
        ("bindings", format!("{} buffers a kernel", d.max_storage_buffers)),
        ("timestamps", d.timestamps.clone()),
        ("speed", speed(&d.figures)),
    ];
    format!("{:>2}  {}\n{}", d.index, d.name, lines(&rows))
}

/// A line for each name and value.
fn lines(rows: &[(&str, String)]) -> String {
    rows.iter().map(|(name, value)| format!("    {name:<11} {value}")).collect::<Vec<_>>().join("\n")
}

/// Cores and rates that schedules go by, each with where it comes from.
fn speed(f: &DeviceFigures) -> String {
    let rate = |r: &Option<Figure<f64>>, unit: &str| match r {
        Some(r) => said(format!("{:.0} {unit}", r.value), r.from),
        None => format!("{unit} unknown"),
    };
    let product = f.product.map(|p| format!("{p} ({})", f.architecture.unwrap_or("-")));
    let cores = said(format!("{} cores", f.cores.value), f.cores.from);
    let rates = [rate(&f.gflops, "GFLOP/s"), rate(&f.f16_gflops, "GFLOP/s in f16"), rate(&f.gb_s, "GB/s")];
    let measured = [
        (&f.cache_gb_s, "GB/s from caches"),
        (&f.workgroup_gb_s, "GB/s from workgroup memory"),
        (&f.matrix_gflops, "GFLOP/s by matrix units"),
        (&f.subgroup_gops, "10^9 values a second combined by subgroups"),
    ];
    let measured = measured.into_iter().filter(|(r, _)| r.is_some()).map(|(r, unit)| rate(r, unit));
    let launch = f.launch_us.map(|r| said(format!("{:.1} us a dispatch", r.value), r.from));
    product.into_iter().chain([cores]).chain(rates).chain(measured).chain(launch).collect::<Vec<_>>().join(", ")
}

/// Every quirk, and the devices and profiles that have it.
fn quirks(a: &DevicesArgs) -> Result<()> {
    let devices: Vec<DeviceProfile> = runtime_gpu::list_adapters().into_iter().map(|d| d.profile).collect();
    let profiles = DeviceProfile::all();
    let named = |list: &[DeviceProfile], q: &Quirk| -> Vec<String> {
        list.iter().filter(|p| p.quirks.has(q)).map(|p| p.name.clone()).collect()
    };
    let row = |q: &&'static Quirk| QuirkRecord {
        name: q.name,
        what: q.what,
        guards: q.guards,
        versions: q.versions,
        evidence: q.evidence,
        goes: q.goes,
        devices: named(&devices, q),
        profiles: named(&profiles, q),
    };
    if write_json(&a.common, &Versioned::new(QuirksRecord { quirks: QUIRKS.iter().map(row).collect() }))? {
        return Ok(());
    }
    let block = |q: &&'static Quirk| {
        let aim = if q.guards { "for right results" } else { "for speed" };
        let list = |list: &[DeviceProfile]| match named(list, q) {
            names if names.is_empty() => "none".to_string(),
            names => names.join(", "),
        };
        let rows = [("what", q.what.to_string()), ("here", list(&devices)), ("profiles", list(&profiles))];
        format!("{} ({aim})\n{}", q.name, lines(&rows))
    };
    let blocks: Vec<String> = QUIRKS.iter().map(block).collect();
    print_text(&format!(
        "{}\n\n`--quirk NAME=off` compiles without one; docs/drivers.md has the evidence and the effects",
        blocks.join("\n\n")
    ))
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

/// Shapes of matrix units in one cell, those of equal types together: `f16->f32 16x16x16 16x8x16`.
fn shapes(list: &[MatrixShape]) -> String {
    let mut types: Vec<(String, Vec<String>)> = vec![];
    for c in list {
        let (types_of, shape) = (format!("{}->{}", c.ab, c.cr), format!("{}x{}x{}", c.mnk[0], c.mnk[1], c.mnk[2]));
        match types.iter_mut().find(|t| t.0 == types_of) {
            Some(t) => t.1.push(shape),
            None => types.push((types_of, vec![shape])),
        }
    }
    let words: Vec<String> = types.iter().map(|(types, shapes)| format!("{types} {}", shapes.join(" "))).collect();
    if words.is_empty() { "none".into() } else { words.join(", ") }
}

fn profiles(a: &DevicesArgs) -> Result<()> {
    let list = DeviceProfile::all();
    if write_json(&a.common, &Versioned::new(ProfilesRecord { profiles: list.clone() }))? {
        return Ok(());
    }
    let mut t = table(&[
        "profile", "software", "f16", "subgroup", "cores", "GFLOP/s", "GB/s", "shared", "threads", "buffers",
        "binding", "matrices",
    ]);
    let rate = |x: f64| if x > 0.0 { x.to_string() } else { "-".into() };
    for p in list {
        t.add_row([
            p.name.clone(),
            if p.model().on_host { "yes" } else { "no" }.into(),
            if p.f16 { "yes" } else { "no" }.into(),
            format!("{}..{}", p.subgroup.0, p.subgroup.1),
            p.cores.to_string(),
            rate(p.gflops),
            rate(p.gb_s),
            format!("{} KiB", p.shared_memory / 1024),
            p.max_invocations.to_string(),
            p.max_storage_buffers.to_string(),
            format!("{} MiB", p.max_binding >> 20),
            shapes(&p.matrix_shapes),
        ]);
    }
    show_table(&t)
}
