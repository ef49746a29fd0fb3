//! Trace files: bytes are mutated in the file, and before compression, so that damage passes the checksum.

use crate::corpus::filetests;
use crate::raw::{self, one_in};
use crate::target::{Outcome, Random, Target};
use compiler::compile::{CompileOptions, compile};
use compiler::profile::DeviceProfile;
use compiler::text::parse_module;
use compiler::trace::{CompileTrace, Contents, MAGIC, TraceDiff};
use shaders_gen::Emitter;
use std::io::Read;

/// The row of the table.
pub const TARGET: Target = Target { name: "trace", help: "trace files: read, show, compare", seeds, mutate, run };

/// Bytes before the compressed part: a mark and a version.
const HEADER: usize = MAGIC.len() + 4;

/// What a small file may unpack to.
const MOST_PLAIN: u64 = 1 << 24;

/// Traces of the smallest filetests that compile.
fn seeds() -> Vec<Vec<u8>> {
    let mut texts = filetests();
    texts.sort_by_key(String::len);
    let modules = texts.iter().filter_map(|t| parse_module(t).ok()).filter(|m| m.functions.contains_key(&m.entry));
    modules.filter_map(trace_of).take(12).collect()
}

fn trace_of(module: compiler::graph::Module) -> Option<Vec<u8>> {
    let options = CompileOptions { record: true, ..CompileOptions::default() };
    let c = compile(module, &options, &DeviceProfile::lavapipe(), &Emitter, &mut |_, _, _| ()).ok()?;
    CompileTrace::new("seed", &c, &options, &Emitter, Contents::Full).ok()?.to_bytes().ok()
}

fn mutate(random: &mut Random, from: Vec<u8>, others: &[Vec<u8>]) -> Vec<u8> {
    let plain = |b: &Vec<u8>| unpack(b);
    match plain(&from) {
        Some(inside) if !one_in(random, 8) => {
            let others: Vec<Vec<u8>> = others.iter().filter_map(plain).collect();
            let mut out = from[..HEADER].to_vec();
            let changed = raw::mutate(random, inside, &others);
            out.extend(zstd::encode_all(changed.as_slice(), 1).unwrap_or_default());
            out
        }
        _ => raw::mutate(random, from, others),
    }
}

fn unpack(trace: &[u8]) -> Option<Vec<u8>> {
    let mut decoder = zstd::Decoder::new(trace.get(HEADER..)?).ok()?;
    decoder.window_log_max(31).ok()?;
    let mut out = Vec::new();
    decoder.take(MOST_PLAIN).read_to_end(&mut out).ok()?;
    Some(out)
}

fn run(input: &[u8]) -> Outcome {
    let Ok(trace) = CompileTrace::from_bytes(input) else { return Ok("refused") };
    let _ = serde_json::to_string(&trace.record());
    let texts = trace.stage_texts();
    for i in 0..texts.map_or(0, |t| t.len()) {
        let _ = trace.origin_map(i);
    }
    for i in 0..trace.groups.len() {
        let _ = trace.kernels_of(i);
    }
    let _ = TraceDiff::between(&trace, &trace).map(|d| d.is_empty());
    let again = trace.to_bytes().map_err(|e| format!("what was read cannot be written: {e}"))?;
    CompileTrace::from_bytes(&again).map_err(|e| format!("what was written cannot be read: {e}"))?;
    Ok("read")
}
