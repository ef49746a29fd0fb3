//! `weft compile`: the result of the pipeline as tables, JSON, text, shader files and a trace.

use crate::args::{BUNDLE, CompileArgs};
use crate::output::{print_text, show_document, write_records};
use crate::terminal::print_log;
use crate::trace::show;
use compiler::attr::{Attr, Attrs};
use compiler::compile::{CompileOptions, Compiled};
use compiler::plan::{PlanKernel, kernel_file};
use compiler::profile::DeviceProfile;
use compiler::trace::json::CompileRecord;
use compiler::trace::{CompileTrace, Contents, DriverStats};
use schemars::JsonSchema;
use serde::Serialize;
use shaders_gen::{EmitError, GeneratedModule, WgslDialect};
use std::path::Path;
use workbench::document::Document;
use workbench::executor::{Device, PRINTS, compile_options, pipeline_for, profile_on, target_profile};
use workbench::explain::record::PartRecord;
use workbench::models::{MADE_FOR, load};
use workbench::parts::{Parted, Parts, compile_parts};
use workbench::progress::log;
use workbench::written::write_file;
use workbench::{Code, Error, Result};

/// Compiles models.
pub fn execute(a: &CompileArgs) -> Result<()> {
    refuse(a)?;
    if let Some(path) = bundle_of(a) {
        return crate::bundling::write(a, path);
    }
    let device = if wants_isa(a) { Some(isa_device(a)?) } else { None };
    let profile = match &device {
        Some(device) => profile_on(&a.common, device)?,
        None => target_profile(&a.common)?,
    };
    if !profile.model().shaders && a.emit.iter().any(|e| e != "weft" && e != GRAPH) {
        let text = format!("--emit {}: kernels of the CPU are tensor functions, not shaders", a.emit.join(","));
        return Err(Error::usage(text).help("--emit weft prints them; --device 0 or --target compiles shaders"));
    }
    let each = a.models.iter().map(|model| one(a, model, &profile, device.as_ref()));
    let compiled = each.collect::<Result<Vec<_>>>()?;
    let records = compiled.iter().map(|(t, parts)| Compilation { trace: t.record(), parts: parts.clone() });
    write_records(&a.common, &records.collect::<Vec<_>>()).map(drop)
}

/// Compiles a model, and shows and writes it as the options say.
fn one(
    a: &CompileArgs,
    model: &str,
    profile: &DeviceProfile,
    device: Option<&Device>,
) -> Result<(CompileTrace, Option<Vec<PartRecord>>)> {
    let given = workbench::inputs::given(&a.input, model, &a.common)?;
    let module = a.common.state.time("import", || load(model, &a.common, given.as_ref()))?;
    let inputs = workbench::models::calibration_inputs(&module, given.as_ref(), &a.common)?;
    let pipeline = pipeline_for(&module, &a.common, profile, &inputs)?;
    let prints = pipeline.passes.iter().flatten().any(|p| p == PRINTS);
    let wants_graph = a.emit.iter().any(|e| e == GRAPH);
    let options = CompileOptions {
        record: a.output.is_some() || prints || wants_graph,
        verify: a.verify,
        ..compile_options(pipeline, &a.common, profile)?
    };
    let parted = compile_parts(module, &options, &a.common, profile)?;
    let Parted { compiled: c, parts, .. } = &parted;
    if a.verify && profile.model().shaders {
        read_back(c)?;
    }
    let stats = device
        .map(|d| workbench::driver_stats::ask(workbench::driver_stats::asked(d, ISA)?, c, &a.common))
        .transpose()?;
    if let Some(dir) = &a.emit_dir {
        let dir = if a.models.len() > 1 { dir.join(workbench::models::short_name(model)) } else { dir.clone() };
        emit_files(a, c, stats.as_ref(), &dir)?;
    } else if a.emit.iter().any(|e| e != GRAPH) {
        emit_text(a, c, stats.as_ref())?;
    }
    let contents = if a.output.is_some() { Contents::Full } else { Contents::Summary };
    let mut trace = parted.trace(model, &options, contents)?;
    if prints || wants_graph {
        show_stages(a, &trace, prints, wants_graph)?;
    }
    trace.driver_stats = stats;
    if let Some(path) = &a.output {
        workbench::traces::write(path, &trace, &a.common)?;
    }
    if a.common.json.is_none() && (a.emit.is_empty() || a.emit_dir.is_some()) {
        show(&trace)?;
        show_document(&further(&trace, parts.as_ref()))?;
    }
    Ok((trace, parts.as_ref().map(Parts::record)))
}

/// A compilation, and the parts of a network in parts.
#[derive(Serialize, JsonSchema)]
pub struct Compilation<'t> {
    /// The compilation.
    #[serde(flatten)]
    trace: CompileRecord<'t>,
    /// Of a network that decides sizes while it runs; kernels are then of the part that is known before.
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<Vec<PartRecord>>,
}

/// Further tables beside groups and sums.
fn further(trace: &CompileTrace, parts: Option<&Parts>) -> Document {
    let mut out = Document::default();
    parts.iter().for_each(|p| p.tell(&mut out));
    trace.stats_record().iter().for_each(|s| workbench::driver_stats::tell(&mut out, s, |_| true));
    out
}

/// Prints the module after a pass, and on stderr where `print-ir` stands among the passes.
fn show_stages(a: &CompileArgs, trace: &CompileTrace, prints: bool, wants_graph: bool) -> Result<()> {
    let texts = trace.stage_texts().map_err(|e| Error::new(Code::Bug, e.to_string()))?;
    let label = |i: usize| trace.stages[i].label.as_str();
    let mut titles = print_labels(a)?.into_iter();
    for i in (1..texts.len()).filter(|&i| prints && label(i) == PRINTS) {
        let title = titles.next().flatten().unwrap_or_else(|| format!("after {}", label(i - 1)));
        print_log(&format!("---- {title}\n{}", texts[i].trim_end()));
    }
    if !wants_graph {
        return Ok(());
    }
    let last = trace.passes.len().min(texts.len().saturating_sub(1));
    let at = match &a.after {
        None => Some(last),
        Some(pass) => (0..=last).rev().find(|&i| label(i) == pass),
    };
    let at = at.ok_or_else(|| {
        let known: Vec<&str> = (0..=last).map(label).collect();
        let text = format!("--after {}: no such pass ran", a.after.as_deref().unwrap_or_default());
        Error::usage(text).help(format!("there are: {}", known.join(", ")))
    })?;
    match &a.emit_dir {
        Some(dir) => Ok(write_file(&dir.join("graph.weft"), texts[at].as_bytes())?),
        None => print_text(texts[at].trim_end()),
    }
}

/// The labels of `print-ir` in the order of `--passes`.
fn print_labels(a: &CompileArgs) -> Result<Vec<Option<String>>> {
    let passes = workbench::executor::named_passes(&a.common)?;
    let prints = passes.into_iter().filter(|p| p.0 == PRINTS);
    let label = |attrs: Attrs| match attrs.get("label") {
        Some(Attr::Str(label)) if !label.is_empty() => Some(label.clone()),
        _ => None,
    };
    Ok(prints.map(|(_, attrs)| label(attrs)).collect())
}

/// Refuses options that do not go together.
fn refuse(a: &CompileArgs) -> Result<()> {
    if a.after.is_some() && !a.emit.iter().any(|e| e == GRAPH) {
        return Err(Error::usage("--after is for the graph").help("add --emit graph"));
    }
    if a.output.is_some() && a.models.len() > 1 {
        return Err(
            Error::usage("-o writes the trace or the bundle of one model").help("compile the models one by one")
        );
    }
    if a.licence.is_some() && bundle_of(a).is_none() {
        return Err(Error::usage("--licence is for a bundle").help("add -o F.bundle"));
    }
    if !a.profiles.is_empty() && bundle_of(a).is_none() {
        return Err(Error::usage("--for names the profiles of a bundle").help("add -o F.bundle, or give --target"));
    }
    if a.dialect != "wgpu" && !a.emit.iter().any(|e| e == "wgsl") {
        return Err(Error::usage("--dialect is for WGSL").help("add --emit wgsl"));
    }
    Ok(())
}

/// The file, if it is to be a bundle.
fn bundle_of(a: &CompileArgs) -> Option<&Path> {
    a.output.as_deref().filter(|o| o.extension().is_some_and(|e| e.eq_ignore_ascii_case(BUNDLE)))
}

/// The form of `--emit` that is the module after the passes.
const GRAPH: &str = "graph";

const ISA: &str = "--emit isa";

fn wants_isa(a: &CompileArgs) -> bool {
    a.emit.iter().any(|e| e == "isa")
}

/// The device whose driver makes the instructions.
fn isa_device(a: &CompileArgs) -> Result<Device> {
    if a.common.target.is_some() && !a.common.names_device() {
        let why = format!("{ISA} asks a device's driver, and --target alone names a device that need not be here");
        return Err(Error::usage(why).help("add --device"));
    }
    let device = workbench::executor::open_to_compile(&a.common)?;
    workbench::driver_stats::asked(&device, ISA)?;
    Ok(device)
}

/// Each kernel's WGSL must be valid for the front end too, with the features that the kernel asks for.
fn read_back(c: &Compiled) -> Result<()> {
    let mut unread = Vec::new();
    for k in &c.plan.kernels {
        let fail = |e| Error::new(Code::Bug, format!("the WGSL of kernel {} does not read back: {e}", k.name));
        if !generated(k)?.reads_back().map_err(fail)? {
            unread.push(k.name.as_str());
        }
    }
    if !unread.is_empty() {
        let (count, which) = (unread.len(), unread.join(", "));
        print_log(&format!(
            "{count} kernels were not read back, since WGSL has square matrices only: {which}; `--emit spirv` writes them"
        ));
    }
    Ok(())
}

/// The module as text that `weft opt` takes: tensor functions unscheduled, their traces pending. Its first line says
/// for which device.
fn weft_text(c: &Compiled) -> String {
    format!("{MADE_FOR}{}\n{}", c.profile.name, compiler::text::print_module(&c.unscheduled_module()))
}

fn generated(k: &PlanKernel) -> Result<&GeneratedModule> {
    k.emitted.module.downcast_ref().ok_or_else(|| Error::new(Code::Bug, "a kernel without a module"))
}

/// The dialect of `--dialect`.
pub fn dialect(name: &str) -> WgslDialect {
    if name == "standard" { WgslDialect::Standard } else { WgslDialect::Wgpu }
}

/// The file extension of a language, and kernel `i` in it: not every kernel can be said in each.
fn kernel_text(
    a: &CompileArgs,
    form: &str,
    (i, k): (usize, &PlanKernel),
    stats: Option<&DriverStats>,
) -> Result<(&'static str, Result<String, String>)> {
    let g = generated(k)?;
    let text = |r: Result<String, EmitError>| r.map_err(|e| e.to_string());
    Ok(match form {
        "isa" => ("isa", stats.and_then(|s| s.isa(i)).ok_or("the driver gives no text of its instructions".into())),
        "wgsl" => ("wgsl", text(g.emit_wgsl_in(dialect(&a.dialect)))),
        "msl" => ("metal", text(g.emit_msl())),
        _ => ("hlsl", text(g.emit_hlsl())),
    })
}

fn emit_text(a: &CompileArgs, c: &Compiled, stats: Option<&DriverStats>) -> Result<()> {
    let mut missing = Vec::new();
    for form in a.emit.iter().filter(|e| *e != GRAPH) {
        if form == "weft" {
            print_text(&weft_text(c))?;
            continue;
        }
        for (i, k) in c.plan.kernels.iter().enumerate() {
            match form.as_str() {
                "spirv" => return Err(Error::usage("--emit spirv writes binary files: give --emit-dir DIR")),
                _ => match kernel_text(a, form, (i, k), stats)?.1 {
                    Ok(text) => print_text(&format!("// kernel {}\n{text}", k.name))?,
                    Err(e) => missing.push(format!("{form} of {}: {e}", k.name)),
                },
            }
        }
    }
    all_written(missing)
}

/// Kernels that could not be written, all of them at once.
fn all_written(missing: Vec<String>) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let text = format!("{} kernels cannot be said in that language:\n  {}", missing.len(), missing.join("\n  "));
    Err(Error::new(Code::Device, text).help("everything else was written"))
}

fn write_spirv(k: &PlanKernel, path: &Path) -> Result<()> {
    let words = generated(k)?.emit_spirv();
    let words = words.map_err(|e| Error::new(Code::Bug, format!("kernel {} has no SPIR-V: {e}", k.name)))?;
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    Ok(write_file(path, &bytes)?)
}

/// Writes each kernel as a file. Without `--emit`, SPIR-V takes the place of WGSL that no reader takes.
fn emit_files(a: &CompileArgs, c: &Compiled, stats: Option<&DriverStats>, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|e| Error::usage(format!("cannot make {}: {e}", dir.display())))?;
    let usual = if c.profile.model().shaders { "wgsl" } else { "weft" };
    let forms: Vec<&str> = if a.emit.is_empty() { vec![usual] } else { a.emit.iter().map(String::as_str).collect() };
    let mut missing = Vec::new();
    for form in forms.iter().filter(|f| **f != GRAPH) {
        if *form == "weft" {
            write_file(&dir.join("module.weft"), weft_text(c).as_bytes())?;
            continue;
        }
        for (i, k) in c.plan.kernels.iter().enumerate() {
            let name = &k.name;
            let base = kernel_file(i, name);
            match *form {
                "spirv" => write_spirv(k, &dir.join(format!("{base}.spv")))?,
                _ => {
                    let (extension, text) = kernel_text(a, form, (i, k), stats)?;
                    match text {
                        Ok(text) => write_file(&dir.join(format!("{base}.{extension}")), text.as_bytes())?,
                        Err(_) if a.emit.is_empty() => write_spirv(k, &dir.join(format!("{base}.spv")))?,
                        Err(e) => missing.push(format!("{form} of {name}: {e}")),
                    }
                }
            }
        }
    }
    log(&a.common, format!("wrote {} kernels as {} to {}", c.plan.kernels.len(), forms.join(", "), dir.display()));
    all_written(missing)
}
