//! `weft compile`: the pipeline's result as tables, JSON, text and shader files.

use crate::args::CompileArgs;
use crate::arrays::read_npz;
use crate::error::{CliError, CliResult, Code};
use crate::executor::{compile_for, target_profile};
use crate::models::load;
use crate::output::{log, print_text, si, table, write_file, write_json};
use compiler::compile::{Compiled, GroupKind};
use compiler::graph::Module;
use compiler::plan::{PlanKernel, Step};
use shaders_gen::GeneratedModule;
use std::path::Path;

/// Compiles models.
pub fn execute(a: &CompileArgs) -> CliResult<()> {
    let profile = target_profile(&a.common)?;
    let given = a.input.as_ref().map(|p| read_npz(p)).transpose()?;
    let mut values = Vec::new();
    for model in &a.models {
        let module = load(model, &a.common, given.as_ref())?;
        let c = compile_for(module, &a.common, &profile)?;
        if let Some(dir) = &a.emit_dir {
            let dir = if a.models.len() > 1 { dir.join(crate::models::short_name(model)) } else { dir.clone() };
            emit_files(a, &c, &dir)?;
        } else if !a.emit.is_empty() {
            emit_text(a, &c)?;
        }
        if let Some(path) = &a.output {
            let text = serde_json::to_vec(&to_json(model, a, &c)).map_err(|e| CliError::usage(e.to_string()))?;
            write_file(path, &text)?;
        }
        values.push(to_json(model, a, &c));
        if a.common.json.is_none() && (a.emit.is_empty() || a.emit_dir.is_some()) {
            show(model, &c)?;
        }
    }
    let json = if values.len() == 1 { values.swap_remove(0) } else { values.into() };
    write_json(&a.common, &json)?;
    Ok(())
}

/// Dispatches in plan order.
pub fn dispatches(c: &Compiled) -> impl Iterator<Item = &compiler::plan::Dispatch> {
    c.plan.steps.iter().flat_map(|s| if let Step::Gpu(l) = s { l.as_slice() } else { &[] })
}

fn show(model: &str, c: &Compiled) -> CliResult<()> {
    let count = |k: GroupKind| c.groups.iter().filter(|g| g.kind == k).count();
    print_text(&format!("{model} for {}", c.profile.name))?;
    let mut t = table(&["", "rule", "layout", "ops", "flops", "bytes"]);
    for (i, g) in c.groups.iter().enumerate() {
        let rule = match g.kind {
            GroupKind::Kernel => g.rule,
            GroupKind::View => "(view)",
            GroupKind::Host => "(host)",
        };
        t.add_row([
            i.to_string(),
            rule.into(),
            g.layout.unwrap_or("").into(),
            g.ops.join("+"),
            si(g.flops as f64),
            si(g.bytes as f64),
        ]);
    }
    print_text(&t.to_string())?;
    print_text(&format!(
        "{} groups: {} kernels, {} views, {} on the host; {} dispatches of {} distinct kernels",
        c.groups.len(),
        count(GroupKind::Kernel),
        count(GroupKind::View),
        count(GroupKind::Host),
        dispatches(c).count(),
        c.plan.kernels.len()
    ))?;
    print_text(&format!(
        "weights {}B, activations {}B at the peak of {}B without reuse; transposes: {} of activations, {} of weights at run time; {:.0} ms",
        si(c.memory.weights as f64),
        si(c.memory.activations_peak as f64),
        si(c.memory.activations_naive as f64),
        c.transposes.activation,
        c.transposes.weight_runtime,
        c.ms
    ))
}

/// The module as text that `weft opt` takes: tensor functions unscheduled, their traces pending.
fn weft_text(c: &Compiled) -> String {
    let mut m: Module = c.module.clone();
    for (name, f) in &c.unscheduled {
        m.tensor_functions.insert(*name, f.clone());
    }
    compiler::text::print_module(&m)
}

fn generated(k: &PlanKernel) -> CliResult<&GeneratedModule> {
    k.emitted.module.downcast_ref().ok_or_else(|| CliError::new(Code::Bug, "a kernel without a module"))
}

fn emit_text(a: &CompileArgs, c: &Compiled) -> CliResult<()> {
    for form in &a.emit {
        if form == "weft" {
            print_text(&weft_text(c))?;
            continue;
        }
        for k in &c.plan.kernels {
            match form.as_str() {
                "wgsl" => print_text(&format!("// kernel {}\n{}", k.emitted.name, k.emitted.wgsl))?,
                "spirv" => return Err(CliError::usage("--emit spirv writes binary files: give --emit-dir DIR")),
                "msl" => print_text(&msl(k)?)?,
                _ => print_text(&hlsl(k)?)?,
            }
        }
    }
    Ok(())
}

fn failed(k: &PlanKernel, form: &str) -> impl Fn(shaders_gen::EmitError) -> CliError {
    let name = k.emitted.name.clone();
    let form = form.to_string();
    move |e| CliError::new(Code::Bug, format!("kernel {name} has no {form}: {e}"))
}

fn msl(k: &PlanKernel) -> CliResult<String> {
    generated(k)?.emit_msl().map_err(failed(k, "MSL"))
}

fn hlsl(k: &PlanKernel) -> CliResult<String> {
    generated(k)?.emit_hlsl().map_err(failed(k, "HLSL"))
}

fn emit_files(a: &CompileArgs, c: &Compiled, dir: &Path) -> CliResult<()> {
    std::fs::create_dir_all(dir).map_err(|e| CliError::usage(format!("cannot make {}: {e}", dir.display())))?;
    let forms: Vec<&str> = if a.emit.is_empty() { vec!["wgsl"] } else { a.emit.iter().map(String::as_str).collect() };
    for form in &forms {
        if *form == "weft" {
            write_file(&dir.join("module.weft"), weft_text(c).as_bytes())?;
            continue;
        }
        for (i, k) in c.plan.kernels.iter().enumerate() {
            let base = format!("{i:03}_{}", k.emitted.name.replace(|ch: char| !ch.is_alphanumeric() && ch != '_', "_"));
            match *form {
                "wgsl" => write_file(&dir.join(format!("{base}.wgsl")), k.emitted.wgsl.as_bytes())?,
                "spirv" => {
                    let words = generated(k)?.emit_spirv().map_err(failed(k, "SPIR-V"))?;
                    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
                    write_file(&dir.join(format!("{base}.spv")), &bytes)?;
                }
                "msl" => write_file(&dir.join(format!("{base}.metal")), msl(k)?.as_bytes())?,
                _ => write_file(&dir.join(format!("{base}.hlsl")), hlsl(k)?.as_bytes())?,
            }
        }
    }
    log(&a.common, format!("wrote {} kernels as {} to {}", c.plan.kernels.len(), forms.join(", "), dir.display()));
    Ok(())
}

fn to_json(model: &str, a: &CompileArgs, c: &Compiled) -> serde_json::Value {
    let o = &a.common;
    let groups: Vec<_> = c
        .groups
        .iter()
        .enumerate()
        .map(|(i, g)| {
            serde_json::json!({ "id": i, "origins": g.origins, "ops": g.ops, "anchor": g.anchor, "rule": g.rule, "layout": g.layout,
                "kind": g.kind, "flops": g.flops, "bytes": g.bytes })
        })
        .collect();
    let kernels: Vec<_> = c
        .plan
        .kernels
        .iter()
        .map(|k| {
            let f = c.module.tensor_functions.get(&k.function);
            let schedule: Vec<String> = f.map(|f| f.trace.iter().map(compiler::text::print_instruction).collect()).unwrap_or_default();
            let half = f.is_some_and(|f| f.outputs().any(|b| f.buffers[b].dtype == compiler::dtype::DType::F16));
            let e = &k.emitted;
            serde_json::json!({ "name": e.name, "schedule": schedule, "workgroup": e.workgroup, "bindings": e.bindings.len(),
                "shared_bytes": e.shared_bytes, "dtype": if half { "f16" } else { "f32" }, "bounds_proved": e.bounds_proved,
                "wgsl_bytes": e.wgsl.len() })
        })
        .collect();
    let calls: Vec<_> = dispatches(c)
        .map(|d| serde_json::json!({ "kernel": c.plan.kernels[d.kernel].emitted.name, "group": d.group, "grid": c.plan.kernels[d.kernel].emitted.grid }))
        .collect();
    serde_json::json!({
        "schema": 1, "model": model, "profile": c.profile.name,
        "options": { "amp": o.amp, "layout": o.layout, "fuse": o.fuse, "opt_level": o.opt_level },
        "passes": c.passes, "groups": groups, "kernels": kernels, "calls": calls, "transposes": c.transposes,
        "memory": c.memory, "remarks": c.remarks, "compile_ms": c.ms,
    })
}
