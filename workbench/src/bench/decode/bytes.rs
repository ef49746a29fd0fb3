//! Bytes that a step loads and stores, by what they are.

use super::decoder::Decoder;
use super::record::TokenBytes;
use compiler::compile::Compiled;
use compiler::name::Name;
use compiler::plan::{Binding, BufferIndex, BufferView, Content, Dispatch, Step};
use compiler::tir::operations::{iterations, visit_loops};
use compiler::tir::{BufferId, TensorFunction};
use rustc_hash::{FxHashMap, FxHashSet};

/// Of the plan of a step. A dispatch counts each element of a buffer once, and no more elements than it loads and
/// stores: of a table from which rows are gathered, the rows.
pub fn of_step(c: &Compiled, decoder: &Decoder) -> TokenBytes {
    let fed = |v: &&BufferView| decoder.cache.iter().any(|f| v.name == f.input || v.name == f.output);
    let cache: FxHashSet<BufferIndex> =
        c.plan.inputs.iter().chain(&c.plan.outputs).filter(fed).map(|v| v.buffer).collect();
    let mut out = TokenBytes::default();
    let mut add = |buffer: BufferIndex, bytes: u64| {
        let kind = match &c.plan.buffers[buffer].content {
            _ if cache.contains(&buffer) => &mut out.cache,
            Content::Constant { .. } => &mut out.weights,
            _ => &mut out.rest,
        };
        *kind += bytes;
    };
    for step in c.plan.all_steps() {
        match step {
            Step::Gpu(list) => list.iter().flat_map(|d| moved(c, d)).for_each(|(b, bytes)| add(b, bytes)),
            Step::Host(h) => h.inputs.iter().chain(&h.outputs).for_each(|v| add(v.buffer, bytes_of(v))),
            Step::Copy { from, to } => [from, to].map(|&b| add(b, c.plan.buffers[b].bytes)).into_iter().collect(),
            _ => {}
        }
    }
    out
}

fn bytes_of(v: &BufferView) -> u64 {
    v.shape.iter().fold(v.dtype.size() as u64, |n, &d| n.saturating_mul(d as u64))
}

/// Of a dispatch.
pub fn of_dispatch(c: &Compiled, d: &Dispatch) -> u64 {
    moved(c, d).iter().map(|m| m.1).sum()
}

/// The bytes of each buffer that a dispatch loads and stores.
fn moved(c: &Compiled, d: &Dispatch) -> Vec<(BufferIndex, u64)> {
    let kernel = &c.plan.kernels[d.kernel];
    let Some(f) = c.module.tensor_functions.get(&kernel.function) else { return vec![] };
    let accesses = accesses(f, kernel.part, &d.symbols);
    let mut seen = FxHashSet::default();
    let bound = d.buffers.iter().zip(&kernel.emitted.bindings);
    // A buffer beyond one binding has several.
    let once = bound.filter(|(_, binding)| seen.insert(binding.buffer));
    let bytes = |(&(buffer, _), binding): (&(BufferIndex, u32), &Binding)| {
        let own = &f.buffers[binding.buffer];
        // A buffer that only indices read counts whole.
        let elements = accesses.get(&binding.buffer).copied().unwrap_or(u64::MAX);
        let bits = elements.saturating_mul(u64::from(own.encoding.element_bits(own.dtype)));
        (buffer, bits.div_ceil(8).min(c.plan.buffers[buffer].bytes))
    };
    once.map(bytes).collect()
}

/// How often a kernel loads or stores an element of each buffer, for these values of the function's symbols.
fn accesses(f: &TensorFunction, kernel: Name, symbols: &[i32]) -> FxHashMap<BufferId, u64> {
    let value = |name: Name| {
        let at = f.symbols.iter().position(|s| s.0 == name)?;
        symbols.get(at).map(|&v| i64::from(v))
    };
    let mut out: FxHashMap<BufferId, u64> = FxHashMap::default();
    let Some((_, body)) = f.kernels().into_iter().find(|k| k.0 == kernel) else { return out };
    visit_loops(body, &mut vec![], &mut |loops, block| {
        // A size that no symbol says counts as the whole buffer.
        let times = iterations(loops).eval(&value).and_then(|n| u64::try_from(n).ok()).unwrap_or(u64::MAX);
        let mut touch = |b: BufferId| {
            let sum = out.entry(b).or_default();
            *sum = sum.saturating_add(times);
        };
        touch(block.buffer);
        block.value.loads().iter().for_each(|(b, _)| touch(*b));
    });
    out
}
