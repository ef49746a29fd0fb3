//! How often the kernels of a decode step load what it reads: each load of each thread is counted, not the sizes of
//! operands.
//!
//! `WEFT_DECODER=FILE` with `--nocapture` prints the figures of a decoder, behind a cache of 127.

use compiler::compile::{CompileOptions, Compiled, compile};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::ops::control::{CallTensor, Const};
use compiler::plan::EmitKernel;
use compiler::profile::DeviceProfile;
use compiler::tir::{BufferId, Scope, Stmt, TensorFunction};
use std::collections::HashMap;
use weft::{Model, Sizes};

const SIZES: [(&str, usize); 4] =
    [("batch_size", 1), ("sequence_length", 1), ("past_sequence_length", 127), ("total_sequence_length", 128)];

/// Products behind the attention of a layer, and logits: weights of 4 bits with a scale for each 32, some with zero
/// points.
const LAYER: &str = "
const @up : u32[2048,128] = random(1)
const @ups : f32[2048,32] = random(2)
const @upz : u8[2048,32] = random(7)
const @down : u32[1024,256] = random(3)
const @downs : f32[1024,64] = random(4)
const @head : u32[2000,128] = random(5)
const @heads : f16[2000,32] = random(6)
graph @main(%x: f32[1,1024]) -> (y: f16[1,2000]) {
  %up = const @up
  %ups = const @ups
  %upz = const @upz
  %down = const @down
  %downs = const @downs
  %head = const @head
  %heads = const @heads
  %0 = dequantize_blocks %up, %ups, %upz {block=32, size=1024}
  %1 = permuted_matmul %x, %0 {perm_b=[1, 0]}
  %2 = dequantize_blocks %down, %downs {block=32, size=2048}
  %3 = permuted_matmul %1, %2 {perm_b=[1, 0]}
  %4 = add %x, %3
  %5 = cast %4 {to=f16}
  %6 = dequantize_blocks %head, %heads {block=32, size=1024}
  %7 = permuted_matmul %5, %6 {perm_b=[1, 0]}
  return %7
}
";

/// Loads and stores of the elements of a buffer in device memory by all threads.
#[derive(Clone, Copy, Default)]
struct Accesses {
    loads: f64,
    stores: f64,
}

/// The accesses of a scheduled function: a block runs once for each iteration of the loops around it.
fn accesses(f: &TensorFunction) -> HashMap<BufferId, Accesses> {
    fn go(f: &TensorFunction, s: &Stmt, times: f64, out: &mut HashMap<BufferId, Accesses>) {
        match s {
            Stmt::Seq(list) => list.iter().for_each(|s| go(f, s, times, out)),
            Stmt::Kernel(_, s) => go(f, s, times, out),
            Stmt::For(l) => go(f, &l.body, times * l.extent.as_const().expect("a size") as f64, out),
            Stmt::Barrier => {}
            Stmt::Block(b) => {
                let global = |b: &BufferId| f.buffers[*b].scope == Scope::Global;
                let mut loads = b.value.loads();
                loads.dedup();
                for (buffer, _) in loads.into_iter().filter(|l| global(&l.0)) {
                    out.entry(buffer).or_default().loads += times;
                }
                if global(&b.buffer) {
                    out.entry(b.buffer).or_default().stores += times;
                }
            }
        }
    }
    let mut out = HashMap::new();
    go(f, &f.body, 1.0, &mut out);
    out
}

/// Bytes of one decode step.
#[derive(Default, Debug)]
struct Step {
    /// Of packed weights with their scales and zero points, and bytes that threads load of them.
    packed: [f64; 2],
    /// The same for other constants and for what kernels give each other.
    others: [f64; 2],
    /// How often an element of a packed operand is loaded, at most; on a processor, how often a weight is decoded.
    most: f64,
}

fn compiled(model: &Model, profile: &DeviceProfile) -> Compiled {
    let emitter: &dyn EmitKernel = match profile.model().shaders {
        true => &shaders_gen::Emitter,
        false => &runtime_cpu::Emitter,
    };
    compile(model.module().clone(), &CompileOptions::default(), profile, emitter, &mut |_, _, _| ())
        .unwrap_or_else(|e| panic!("{}: {e}", profile.name))
}

/// Bits of a weight.
const BITS: f64 = 4.0;

/// Where `shared`, bodies of a processor keep the word and the scale that neighbours are decoded with: a loop over
/// weights that decodes each once loads both once.
fn step(module: &Module, shared: bool) -> Step {
    let (f, mut out) = (module.main(), Step::default());
    for &n in &f.blocks[f.body].nodes {
        let node = &f.nodes[n];
        let Some(call) = node.op.downcast::<CallTensor>() else { continue };
        let t = &module.tensor_functions[&call.callee];
        let found = accesses(t);
        let elements = |b: BufferId| t.buffers[b].numel().as_const().expect("a size") as f64;
        let words: f64 = t.inputs().filter(|b| t.buffers[*b].dtype == DType::U32).map(elements).sum();
        let weights = words * 32.0 / BITS;
        let operands = t.inputs().zip(&node.inputs);
        let constant = |v| f.def_node(v).is_some_and(|n| f.nodes[n].op.is::<Const>());
        let constants: Vec<BufferId> = operands.filter(|(_, v)| v.is_some_and(constant)).map(|o| o.0).collect();
        for (b, a) in found {
            let buffer = &t.buffers[b];
            let elements = elements(b);
            let size = f64::from(buffer.encoding.element_bits(buffer.dtype)) / 8.0;
            let packed = words > 0.0 && constants.contains(&b);
            let times = a.loads / if packed && shared { weights } else { elements };
            let loads = times * elements;
            let to = if packed { &mut out.packed } else { &mut out.others };
            (to[0], to[1]) = (to[0] + size * elements, to[1] + size * (loads + a.stores));
            if packed && times > 1.01 {
                println!("  {}: {} is loaded {times:.2} times", t.name, buffer.name);
            }
            if packed {
                out.most = out.most.max(times);
            }
        }
    }
    out
}

#[test]
fn packed_weights_are_loaded_once() {
    let dims = SIZES.map(|(name, size)| (name.to_string(), size)).to_vec();
    let sizes = Sizes { dims, ..Sizes::default() };
    let file = std::env::var("WEFT_DECODER").ok();
    let model = file.as_ref().map_or_else(|| Model::from_text(LAYER), |f| Model::load_with(f, &sizes));
    let model = model.unwrap_or_else(|e| panic!("{e}"));
    let processor = DeviceProfile::processor(1, [14, 32]);
    let profiles = ["ada", "navi31", "bmg"].map(|n| DeviceProfile::named(n).expect("a profile"));
    for profile in profiles.iter().chain([&processor]) {
        let shared = !profile.model().shaders;
        let step = step(&compiled(&model, profile).module, shared);
        println!("{}: {step:?}", profile.name);
        assert!(step.packed[0] > 0.0 && step.most <= 1.01, "{}: {step:?}", profile.name);
        // Beside the weights a step moves few bytes.
        assert!(step.others[0] <= 0.05 * step.packed[0], "{}: {step:?}", profile.name);
    }
}
