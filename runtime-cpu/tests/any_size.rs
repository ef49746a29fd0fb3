//! Networks of open sizes on the processor: one plan, whose kernels are tiles, gives the interpreter's results at any
//! size.

use compiler::agreement::{Tolerance, agree};
use compiler::compile::{CompileOptions, Compiled, compile};
use compiler::dtype::DType;
use compiler::graph::{Module, bind_dims, input_ports};
use compiler::interpreter::{HostFunctions, run_function};
use compiler::name::Name;
use compiler::tensor::Tensor;
use compiler::text::{parse_module, random_tensor};
use runtime_cpu::{Emitter, Isa, Processor, Session};
use std::sync::Arc;

fn sizes(of: &[(&str, i64)]) -> Vec<(Name, i64)> {
    of.iter().map(|(d, n)| (Name::new(d), *n)).collect()
}

/// Inputs of the network at these sizes, and what the interpreter makes of them.
fn reference(m: &Module, at: &[(Name, i64)]) -> (Vec<Tensor>, Vec<Tensor>) {
    let mut fixed = m.clone();
    bind_dims(&mut fixed, at).unwrap_or_else(|e| panic!("{e}"));
    let ports = input_ports(&fixed).into_iter().enumerate();
    let inputs = ports.map(|(i, (_, ty))| random_tensor(DType::F32, &ty.const_shape().expect("sizes"), 7 + i as u64));
    let inputs: Vec<Tensor> = inputs.collect();
    let want = run_function(&fixed, fixed.entry, &inputs).unwrap_or_else(|e| panic!("{e}"));
    (inputs, want)
}

/// Compiles once for every instruction set, and compares at each of the sizes; no kernel runs loop by loop.
fn check(text: &str, dims: &[(&str, i64, i64)], runs: &[&[(&str, i64)]]) {
    let m = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
    let mut options = CompileOptions { verify: true, ..CompileOptions::default() };
    dims.iter().for_each(|&(name, low, high)| options.dims.declare(Name::new(name), low, high));
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let processor = Arc::new(Processor::open(2, Some(isa)).unwrap_or_else(|e| panic!("{e}")));
        let c: Compiled = compile(m.clone(), &options, &processor.profile(), &Emitter, &mut |_, _, _| ())
            .unwrap_or_else(|e| panic!("{e}"));
        let constants = &c.module.constants;
        let load = |name| constants.get(&name).ok_or("no such constant")?.load();
        let first = Session::open(processor, &c.plan, &load).unwrap_or_else(|e| panic!("{e}"));
        let open = c.open.as_ref().expect("sizes are open");
        for run in runs {
            let at = sizes(run);
            let (inputs, want) = reference(&m, &at);
            let session = first.with_plan(open.at(&at).unwrap_or_else(|e| panic!("{e}")).0);
            let got = session.run(&inputs, &HostFunctions::default()).unwrap_or_else(|e| panic!("{e}"));
            for (g, w) in got.iter().zip(&want) {
                let d = agree(g, w, &Tolerance::new(DType::F32, None, None));
                assert!(d.pass, "{} {run:?}: {d:?}", isa.name());
            }
        }
    }
}

const SIZES: [&[(&str, i64)]; 6] = [
    &[("n", 1), ("h", 8), ("w", 8)],
    &[("n", 2), ("h", 33), ("w", 17)],
    &[("n", 1), ("h", 5), ("w", 200)],
    &[("n", 3), ("h", 64), ("w", 31)],
    &[("n", 1), ("h", 3), ("w", 3)],
    &[("n", 4), ("h", 1), ("w", 1)],
];
const DIMS: [(&str, i64, i64); 3] = [("n", 1, 8), ("h", 1, 640), ("w", 1, 640)];

#[test]
fn convolutions_and_pools_of_open_sizes() {
    for layout in ["", ", layout=nhwc"] {
        let shape = |c: &str, h: &str, w: &str| {
            if layout.is_empty() { format!("n,{c},{h},{w}") } else { format!("n,{h},{w},{c}") }
        };
        let text = format!(
            "const @a : f32[16,3,3,3] = random(1)
const @d : f32[16,1,3,3] = random(2)
const @c : f32[40,16,1,1] = random(3)
const @e : f32[24,40,3,3] = random(4)
graph @main(%x: f32[{}]) -> (y: f32[{}], g: f32[{}]) {{
  %a = const @a
  %d = const @d
  %c = const @c
  %e = const @e
  %0 = conv %x, %a {{pads=[1,1,1,1]{layout}}}
  %1 = swish %0
  %2 = conv %1, %d {{pads=[1,1,1,1], group=16{layout}}}
  %3 = relu %2
  %4 = conv %3, %c {{strides=[1,1]{layout}}}
  %5 = max_pool %4 {{kernel=[3,3], strides=[2,2], pads=[1,1,1,1]{layout}}}
  %6 = conv %5, %e {{pads=[1,1,1,1]{layout}}}
  %7 = sigmoid %6
  %8 = global_average_pool %7 {{layout=LAYOUT}}
  return %7, %8
}}",
            shape("3", "h", "w"),
            shape("24", "(h + 1)/2", "(w + 1)/2"),
            shape("24", "1", "1"),
        );
        let text = text.replace("{layout=LAYOUT}", if layout.is_empty() { "" } else { "{layout=nhwc}" });
        check(&text, &DIMS, &SIZES);
    }
}

/// Windows that end inside of the picture: rows beyond the end of a part of a row would read beyond it.
#[test]
fn windows_without_padding_of_open_sizes() {
    let text = "const @d : f32[16,1,3,3] = random(2)
const @e : f32[24,16,3,3] = random(4)
graph @main(%x: f32[n,16,h + 4,w + 4]) -> (y: f32[n,24,h,w]) {
  %d = const @d
  %e = const @e
  %2 = conv %x, %d {group=16}
  %3 = conv %2, %e
  return %3
}";
    check(text, &DIMS, &SIZES);
}

#[test]
fn products_of_open_rows_columns_and_depth() {
    let text = "const @w : f32[24,72] = random(1)
graph @main(%x: f32[n,h,24], %k: f32[n,24,w], %v: f32[n,w,40]) -> (y: f32[n,h,40], z: f32[n,h,72]) {
  %w = const @w
  %0 = matmul %x, %k
  %1 = softmax %0 {axes=[2]}
  %2 = matmul %1, %v
  %3 = matmul %x, %w
  %4 = relu %3
  return %2, %4
}";
    check(text, &DIMS, &SIZES);
}
