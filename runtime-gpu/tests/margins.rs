//! Before a candidate is timed, its kernels must write all of their results and nothing behind them.

use compiler::compile::{CompileOptions, compile};
use compiler::tensor::Tensor;
use compiler::text::{parse_module, random_tensor};
use runtime_gpu::{DeviceChoice, Gpu, Runner};
use std::sync::Arc;

/// Elements that the kernel writes.
const WRITTEN: usize = 80;

/// The results of a kernel in a buffer for `declared` elements, and whether nothing was written behind them.
fn results(gpu: &Arc<Gpu>, declared: usize) -> (Vec<Tensor>, bool) {
    let text = format!(
        "graph @main(%x: f32[{WRITTEN}]) -> (y: f32[{WRITTEN}]) {{\n  %y = exp %x : f32[{WRITTEN}]\n  return %y\n}}\n"
    );
    let module = parse_module(&text).expect("text");
    let quiet = &mut |_: &str, _: usize, _: usize| ();
    let options = CompileOptions::default();
    let mut compiled = compile(module, &options, &gpu.profile, &shaders_gen::Emitter, quiet).expect("compiles");
    let output = &mut compiled.plan.outputs[0];
    output.shape = vec![declared];
    let buffer = &mut compiled.plan.buffers[output.buffer];
    buffer.bytes = 4 * declared as u64;
    buffer.slice_bytes = buffer.bytes;
    let inputs = [random_tensor(compiled.plan.inputs[0].dtype, &[WRITTEN], 1)];
    let runner = Runner::open(gpu, &compiled, &inputs).expect("opens");
    runner.results(&inputs).expect("runs")
}

#[test]
fn stores_behind_results_and_missing_ones_are_found() {
    let Ok(gpu) = Gpu::open(&DeviceChoice::Index(0)).map(Arc::new) else {
        eprintln!("NOT RUN: there is no adapter");
        return;
    };
    let unwritten = |list: &[Tensor]| list[0].to_f32_vec().iter().filter(|v| v.is_nan()).count();
    let (right, inside) = results(&gpu, WRITTEN);
    assert!(inside && unwritten(&right) == 0, "{right:?}");
    let (_, inside) = results(&gpu, WRITTEN - 16);
    assert!(!inside);
    let (short, inside) = results(&gpu, WRITTEN + 16);
    assert!(inside && unwritten(&short) == 16, "{short:?}");
}
