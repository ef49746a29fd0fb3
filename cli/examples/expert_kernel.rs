//! The `weft` command with two host functions: a kernel on device buffers, and a function on host tensors. See
//! `docs/expert-kernel.md`.

use cli::Extensions;
use compiler::tensor::Tensor;
use runtime_gpu::wgpu::{ComputePipelineDescriptor, ShaderModuleDescriptor, ShaderSource};
use runtime_gpu::{DeviceCall, HostFunctions};
use std::process::ExitCode;

const RELU: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn relu(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&y) { y[id.x] = max(x[id.x], 0.0); }
}";

/// The mean of each plane of an NCHW tensor.
fn means(x: &Tensor) -> Tensor {
    let (n, c) = (x.shape()[0], x.shape()[1]);
    let plane = x.len() / (n * c);
    let values = x.to_f32_vec();
    let mean = |p: &[f32]| p.iter().sum::<f32>() / plane as f32;
    Tensor::from_vec(vec![n, c, 1, 1], values.chunks(plane).map(mean).collect())
}

fn main() -> ExitCode {
    let mut functions = HostFunctions::new();
    functions.register_on_device("my_relu", |gpu| {
        let source = ShaderSource::Wgsl(RELU.into());
        let module = &gpu.device().create_shader_module(ShaderModuleDescriptor { label: None, source });
        let (label, layout, entry_point) = (Some("my_relu"), None, Some("relu"));
        let compilation_options = Default::default();
        let pipeline =
            ComputePipelineDescriptor { label, layout, module, entry_point, compilation_options, cache: None };
        let pipeline = gpu.device().create_compute_pipeline(&pipeline);
        Ok(move |call: &mut DeviceCall<'_>| {
            let elements: usize = call.outputs[0].view.shape.iter().product();
            call.dispatch(&pipeline, [elements.div_ceil(64) as u32, 1, 1]);
            Ok(())
        })
    });
    functions.register("my_means", |inputs| Ok(vec![means(&inputs[0])]));
    cli::run(std::env::args_os(), Extensions { host_functions: functions, ..Extensions::default() })
}
