//! Compares emitted kernels with plain Rust, on the adapter at hand; each is also printed as WGSL, parsed again, and
//! written for the other targets.

mod build;
mod choices;
mod device;

mod edits;
mod elementwise;
mod gemm;
mod rules;
mod storage;
mod words;
mod workloads;

use compiler::profile::DeviceProfile;
use compiler::tir::{BufferId, TensorFunction};
use device::{Memory, gpu};
use shaders_gen::{GeneratedModule, check_wgsl, emit_kernel};

/// Emits every kernel, checks all targets, runs them, and returns the bytes of `out`.
fn run_bytes(f: &TensorFunction, profile: &DeviceProfile, inputs: &[(BufferId, Vec<u8>)], out: BufferId) -> Vec<u8> {
    run_symbols(f, profile, &[], inputs, out)
}

/// [`run_bytes`] with values of the function's symbols.
fn run_symbols(
    f: &TensorFunction,
    profile: &DeviceProfile,
    symbols: &[i32],
    inputs: &[(BufferId, Vec<u8>)],
    out: BufferId,
) -> Vec<u8> {
    let mut kernels = vec![];
    for (name, _) in f.kernels() {
        let k = emit_kernel(f, name, profile).unwrap_or_else(|e| panic!("{e}"));
        if std::env::var_os("WEFT_PRINT_WGSL").is_some() {
            println!("{}\n{:?} bounds_proved={}", k.wgsl, k, k.bounds_proved);
        }
        check_wgsl(&k.wgsl).unwrap_or_else(|e| panic!("{e}\n{}", k.wgsl));
        let module = k.module.downcast_ref::<GeneratedModule>().expect("a generated module");
        assert_eq!(module.emit_spirv().expect("SPIR-V")[0], 0x0723_0203);
        module.emit_msl().expect("MSL");
        let beyond = module.uses_matrices() || module.takes_halves_from_integers();
        assert_eq!(module.emit_hlsl().is_ok(), !beyond, "HLSL, but for matrices and 16-bit integers");
        kernels.push(k);
    }
    let mut memory: Memory = inputs.iter().cloned().collect();
    gpu().run(f, &kernels, symbols, &mut memory, profile.slice_bytes().max(16));
    memory.remove(&out).expect("the kernels write the output")
}

/// [`run_bytes`] on f32 inputs and output.
fn run(f: &TensorFunction, profile: &DeviceProfile, inputs: &[(BufferId, &[f32])], out: BufferId) -> Vec<f32> {
    let inputs: Vec<(BufferId, Vec<u8>)> = inputs.iter().map(|(b, d)| (*b, bytemuck::cast_slice(d).to_vec())).collect();
    let bytes = run_bytes(f, profile, &inputs, out);
    let numel = f.buffers[out].numel().as_const().expect("constant") as usize;
    bytes[..numel * 4].chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().expect("4 bytes"))).collect()
}

fn random(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 24) as f32 * 2.0 - 1.0
        })
        .collect()
}

fn assert_close(got: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let ok = g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= tolerance * w.abs().max(1.0);
        assert!(ok, "element {i}: got {g}, want {w}");
    }
}
