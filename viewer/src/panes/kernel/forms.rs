//! Forms of a kernel that a trace does not have: made again from its scheduled tensor function, on a separate thread.

use crate::document::Document;
use crate::worker::Worker;
use compiler::graph::Module;
use compiler::name::Name;
use compiler::plan::{EmittedKernel, LineSpan};
use compiler::profile::DeviceProfile;
use compiler::text::print_stmt;
use compiler::tir::TensorFunction;
use compiler::traffic::{AccessTraffic, describe, traffic};
use rspirv::binary::Disassemble;
use rustc_hash::FxHashMap;
use shaders_gen::{GeneratedModule, emit_kernel, lines_by_names};
use std::sync::Arc;

/// A text with the origin of its lines.
pub struct Listing {
    /// The text.
    pub text: String,
    /// Blocks and loops of its lines, in order; lines of the whole kernel are left out.
    pub lines: Vec<LineSpan>,
}

/// The memory accesses of one block.
pub struct Access {
    /// The block.
    pub block: String,
    /// Banks or sectors of one of its accesses, in words.
    pub text: String,
}

/// Forms of a kernel that a trace does not have. Each is a text, or the reason why there is none.
pub struct Forms {
    /// The tensor function before its schedule, with the work of its other kernels.
    pub lowered: Result<String, String>,
    /// Its part of the scheduled tensor function.
    pub tensor: Result<String, String>,
    /// SPIR-V, disassembled.
    pub spirv: Result<Listing, String>,
    /// Metal Shading Language.
    pub msl: Result<Listing, String>,
    /// HLSL.
    pub hlsl: Result<Listing, String>,
    /// Accesses to workgroup and device memory, block by block.
    pub accesses: Vec<Access>,
    /// The same for the whole kernel, a line for each buffer.
    pub summary: Vec<String>,
    /// The shader made now is the one in the trace, which an older Weft may have made.
    pub same: bool,
}

/// Makes forms and keeps them, by the kernel's position in the trace.
pub type Deriver = Worker<usize, Arc<Forms>>;

impl Deriver {
    /// Starts the thread; `wake` is called when a kernel is done.
    pub fn start(document: Arc<Document>, wake: impl Fn() + Send + 'static) -> Deriver {
        let workshop = move || {
            let mut sources: FxHashMap<usize, Result<Source, String>> = FxHashMap::default();
            move |kernel: &usize| {
                let part = document.trace().part_of_kernel(*kernel);
                Arc::new(match sources.entry(part).or_insert_with(|| Source::new(&document, part)) {
                    Ok(source) => source.forms(&document, *kernel),
                    Err(why) => nothing(why),
                })
            }
        };
        Worker::new(workshop, wake)
    }
}

/// The scheduled module, and the device that it was scheduled for.
struct Source {
    module: Module,
    profile: DeviceProfile,
    /// The module before its schedules.
    lowered: Result<Module, String>,
}

impl Source {
    fn new(document: &Document, part: usize) -> Result<Source, String> {
        let (module, profile) = document.functions("scheduled", part)?;
        let lowered = document.functions("lowered", part).map(|l| l.0);
        Ok(Source { module, profile, lowered })
    }

    fn forms(&self, document: &Document, kernel: usize) -> Forms {
        let k = &document.trace().kernels[kernel];
        let Some(f) = self.module.tensor_functions.get(&Name::new(&k.function)) else {
            return nothing(&format!("the tensor function `{}` is not in the trace", k.function));
        };
        let mut last = format!("the tensor function `{}` has no kernel `{}`", k.function, k.entry);
        for (name, body) in f.kernels() {
            match emit_kernel(f, name, &self.profile) {
                Ok(e) if e.name == k.entry => {
                    let mut forms = texts(&e);
                    forms.tensor = Ok(print_stmt(body, f));
                    forms.lowered = self.unscheduled(&k.function);
                    forms.same = e.wgsl == k.wgsl;
                    let list = traffic(f, body, &self.profile);
                    forms.accesses = list.iter().map(|a| access(f, a)).collect();
                    let start = format!("{name} ");
                    let own = describe(f, &self.profile)
                        .into_iter()
                        .filter_map(|l| l.strip_prefix(&start).map(str::to_string));
                    forms.summary = own.collect();
                    return forms;
                }
                Ok(_) => {}
                Err(why) => last = why.to_string(),
            }
        }
        nothing(&last)
    }
}

impl Source {
    /// The text of a tensor function before its schedule.
    fn unscheduled(&self, name: &str) -> Result<String, String> {
        let f = self.lowered.as_ref().map_err(String::clone)?.tensor_functions.get(&Name::new(name));
        let f = f.ok_or_else(|| format!("the tensor function `{name}` is not in the trace"))?;
        Ok(print_stmt(&f.body, f))
    }
}

fn nothing(why: &str) -> Forms {
    Forms {
        lowered: Err(why.to_string()),
        tensor: Err(why.to_string()),
        spirv: Err(why.to_string()),
        msl: Err(why.to_string()),
        hlsl: Err(why.to_string()),
        accesses: vec![],
        summary: vec![],
        same: true,
    }
}

fn texts(e: &EmittedKernel) -> Forms {
    let Some(g) = e.module.downcast_ref::<GeneratedModule>() else { return nothing("the kernel has no shader") };
    let named = |text: String| Listing { lines: lines_by_names(&e.wgsl, &e.lines, &text), text };
    Forms {
        spirv: spirv(g),
        msl: g.emit_msl().map(named).map_err(|e| e.to_string()),
        hlsl: g.emit_hlsl().map(named).map_err(|e| e.to_string()),
        ..nothing("")
    }
}

/// SPIR-V as the driver gets it. The origin of its lines comes from the same words with `OpLine` between them.
fn spirv(g: &GeneratedModule) -> Result<Listing, String> {
    let disassembled = |words: Vec<u32>| {
        let module = rspirv::dr::load_words(words).map_err(|e| format!("the SPIR-V cannot be taken apart: {e}"))?;
        Ok::<String, String>(module.disassemble())
    };
    let text = disassembled(g.emit_spirv().map_err(|e| e.to_string())?)?;
    let (words, sources) = g.emit_spirv_with_lines().map_err(|e| e.to_string())?;
    let marked = disassembled(words)?;
    let mut lines: Vec<LineSpan> = Vec::new();
    let (mut at, mut source) = (0u32, None);
    for line in marked.lines() {
        let word = line.trim_start().split(' ').next().unwrap_or("");
        if word == "OpLine" {
            let number = line.split(' ').nth(2).and_then(|n| n.parse::<usize>().ok());
            source =
                number.and_then(|n| sources.get(n.checked_sub(1)?)).filter(|s| s.block.is_some() || s.r#loop.is_some());
            continue;
        }
        // They stand for the file that `OpLine` is about.
        if matches!(word, "OpSource" | "OpNoLine") || line.contains(" = OpString") {
            continue;
        }
        if word == "OpFunctionEnd" {
            source = None;
        }
        if let Some(s) = source {
            match lines.last_mut() {
                Some(l) if (l.first + l.count, l.block, l.r#loop) == (at, s.block, s.r#loop) => l.count += 1,
                _ => lines.push(LineSpan { first: at, count: 1, ..*s }),
            }
        }
        at += 1;
    }
    let plain = text.lines().filter(|l| !l.starts_with("OpSource")).count();
    if plain != at as usize || text.lines().count() != plain {
        lines.clear();
    }
    Ok(Listing { text, lines })
}

/// Banks or sectors of an access, in words.
fn access(f: &TensorFunction, a: &AccessTraffic) -> Access {
    let verb = if a.store { "stores to" } else { "loads from" };
    let what = format!("{verb} {}", f.buffers[a.buffer].name);
    let about = if a.exact { "" } else { "about " };
    let cost = match (a.unknown, a.shared) {
        (true, _) => "at places that data decides".to_string(),
        (_, true) => format!(
            "{about}{:.1} passes over the banks of workgroup memory, {:.1} needed ({:.1} times)",
            a.passes,
            a.least_passes,
            a.conflict()
        ),
        _ => format!("{about}{:.1} sectors of device memory, {:.0}% of their bytes used", a.sectors, 100.0 * a.used()),
    };
    let often = match (&a.inside, a.times) {
        (_, 0) => String::new(),
        (Some(l), n) => format!("; {n} times a thread, in loop {l}"),
        (None, n) => format!("; {n} times a thread"),
    };
    let wide = format!("{} of {} bytes a lane, {} lanes", a.accesses, a.width, a.lanes);
    Access { block: a.block.to_string(), text: format!("{what}: {wide}: {cost}{often}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::tests::trace;

    #[test]
    fn kernels_are_made_anew_from_the_trace_alone() {
        let document = Document::new(trace()).unwrap();
        let source = Source::new(&document, 0).unwrap();
        for k in 0..document.trace().kernels.len() {
            let forms = source.forms(&document, k);
            assert!(forms.same, "another shader for {}", document.trace().kernels[k].name);
            assert!(forms.tensor.as_ref().unwrap().contains("block "));
            let signs =
                [(&forms.spirv, "OpEntryPoint GLCompute"), (&forms.msl, "kernel void"), (&forms.hlsl, "[numthreads(")];
            for (listing, sign) in signs {
                let listing = listing.as_ref().unwrap_or_else(|why| panic!("{sign}: {why}"));
                assert!(listing.text.contains(sign));
                // SPIR-V tells of each block. In the other languages a block is known by the values that it defines.
                let known = |b: &str| listing.lines.iter().any(|l| l.block.is_some_and(|x| x.as_str() == b));
                let kernel = &document.trace().kernels[k];
                let wgsl: Vec<&str> = kernel.wgsl.lines().collect();
                let defines = |l: &&compiler::trace::KernelLines| {
                    let mut own = wgsl.iter().skip(l.first as usize).take(l.count as usize);
                    sign.starts_with("Op") || own.any(|t| t.trim().starts_with("let "))
                };
                let block = |l: &compiler::trace::KernelLines| l.block.map(|b| kernel.blocks[b as usize].name.as_str());
                let written: Vec<&str> = kernel.lines.iter().filter(defines).filter_map(block).collect();
                assert!(written.iter().all(|b| known(b)), "{sign}: {:?} {written:?}\n{}", listing.lines, listing.text);
            }
            assert!(!forms.accesses.is_empty() && !forms.summary.is_empty());
        }
    }
}
