//! `test schedule`, `test wgsl` and `test spirv`: from tensor functions to kernels.

use crate::file::TestFile;
use crate::verbs::{check, profile, scheduling};
use compiler::graph::Module;
use compiler::plan::EmitKernel;
use compiler::schedule::ScheduleTarget;
use compiler::schedule::apply_pending;
use compiler::schedule::rules::schedule;
use compiler::text::{compare_modules, parse_module, print_module};
use compiler::tir::{BufferId, TensorFunction};
use shaders_gen::{Emitter, GeneratedModule};
use std::fmt::Write;

/// Read parameters of the header's `constants A B` line: they may be prepacked.
fn constants(t: &TestFile<'_>, f: &TensorFunction) -> Vec<BufferId> {
    let named: Vec<&str> = t.setting("constants").unwrap_or("").split_whitespace().collect();
    f.inputs().filter(|&b| named.contains(&f.buffers[b].name.as_str())).collect()
}

/// The module with the rules' traces as `schedule` blocks, the rule of each function, and the rules that declined.
/// Replaying the text must give the very function that the rule made.
pub fn propose(t: &TestFile<'_>, mut m: Module) -> Result<String, String> {
    let (profile, scheduling) = (profile(t)?, scheduling(t)?);
    let mut notes = String::new();
    let mut scheduled = m.clone();
    for (name, f) in &mut m.tensor_functions {
        *f = f.canonical();
        let s = schedule(f, &constants(t, f), scheduling.on(&profile)).map_err(|e| e.to_string())?;
        if !t.arguments.is_empty() && s.rule != t.arguments {
            return Err(format!("@{name} is scheduled by {}, not {}: {:?}", s.rule, t.arguments, s.declined));
        }
        let _ = writeln!(notes, "@{name} by {}", s.rule);
        for why in &s.declined {
            let _ = writeln!(notes, "declined: {why}");
        }
        f.pending = s.function.trace.clone();
        scheduled.tensor_functions.insert(*name, s.function);
    }
    check(&scheduled)?;
    let text = print_module(&m);
    let mut replayed = parse_module(&text).map_err(|e| format!("{e}\n{text}"))?;
    for f in replayed.tensor_functions.values_mut() {
        apply_pending(f).map_err(|e| e.to_string())?;
    }
    compare_modules(&scheduled, &replayed).map_err(|e| format!("the text replays to another function: {e}"))?;
    Ok(format!("{text}\n{notes}"))
}

/// The function with its kernels: by its `schedule` block, or by the rules where it has none.
fn with_kernels(t: &TestFile<'_>, f: &TensorFunction, target: ScheduleTarget<'_>) -> Result<TensorFunction, String> {
    let mut f = f.canonical();
    if f.pending.is_empty() && f.kernels().is_empty() {
        return Ok(schedule(&f, &constants(t, &f), target).map_err(|e| e.to_string())?.function);
    }
    apply_pending(&mut f).map_err(|e| e.to_string())?;
    Ok(f)
}

/// Every kernel: a line of numbers, then `text` of the generated module.
fn emit(
    t: &TestFile<'_>,
    m: &Module,
    text: impl Fn(&GeneratedModule) -> Result<String, String>,
) -> Result<String, String> {
    let (profile, scheduling) = (profile(t)?, scheduling(t)?);
    let mut out = String::new();
    for f in m.tensor_functions.values() {
        let f = with_kernels(t, f, scheduling.on(&profile))?;
        for (name, _) in f.kernels() {
            let k = match Emitter.emit(&f, name, &profile) {
                Ok(k) => k,
                Err(e) => return Ok(e.to_string()),
            };
            let generated = k.module.downcast_ref::<GeneratedModule>().ok_or("another kind of module")?;
            let proved = if k.bounds_proved { "proved" } else { "checked" };
            let (bindings, shared) = (k.bindings.len(), k.shared_bytes);
            let _ = writeln!(
                out,
                "// {}: workgroup {:?}, grid {:?}, {bindings} bindings, {shared} shared bytes, bounds {proved}\n{}",
                k.name,
                k.workgroup,
                k.grid,
                text(generated)?
            );
        }
    }
    Ok(out)
}

/// WGSL text of every kernel, which must be read back by the front end.
pub fn emit_wgsl(t: &TestFile<'_>, m: &Module) -> Result<String, String> {
    emit(t, m, |g| {
        let text = g.emit_wgsl().map_err(|e| e.to_string())?;
        shaders_gen::check_wgsl(&text)?;
        Ok(text)
    })
}

/// What the SPIR-V of every kernel needs: version, capabilities, extensions.
pub fn emit_spirv(t: &TestFile<'_>, m: &Module) -> Result<String, String> {
    emit(t, m, |g| describe_spirv(&g.emit_spirv().map_err(|e| e.to_string())?))
}

/// Walks the instructions of a SPIR-V module.
fn describe_spirv(words: &[u32]) -> Result<String, String> {
    const CAPABILITY: u32 = 17;
    const EXTENSION: u32 = 10;
    let (&magic, &version) = words.first().zip(words.get(1)).ok_or("no header")?;
    if magic != 0x0723_0203 {
        return Err("no SPIR-V".to_string());
    }
    let mut out = format!("SPIR-V {}.{}\n", version >> 16 & 255, version >> 8 & 255);
    let mut at = 5;
    while let Some(&head) = words.get(at) {
        let (length, code) = ((head >> 16) as usize, head & 0xffff);
        let operands = words.get(at + 1..at + length).filter(|_| length > 0).ok_or("a broken instruction")?;
        match code {
            CAPABILITY => {
                let _ = writeln!(out, "capability {}", operands.first().ok_or("no capability")?);
            }
            EXTENSION => {
                let bytes: Vec<u8> = operands.iter().flat_map(|w| w.to_le_bytes()).take_while(|b| *b != 0).collect();
                let _ = writeln!(out, "extension {}", String::from_utf8_lossy(&bytes));
            }
            _ => {}
        }
        at += length;
    }
    Ok(out)
}
