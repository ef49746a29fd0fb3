//! Random edits of schedules: every edit that the instructions accept computes the same as the unscheduled function, in
//! the interpreter and on the device.
//!
//! A real schedule (the rules' proposal for a workload and a device) is edited: instructions are deleted, repeated,
//! swapped and invented, and attributes changed. Instructions that refuse are left out, so every edit ends as an
//! accepted schedule. Operands are small whole numbers, so that sums are exact in any order.
//!
//! A schedule's text is edited too: lines are dropped, repeated and swapped, and the result is accepted or refused as a
//! whole, like a file. Only kernels run, as on a device: a statement outside of kernels computes nothing.
//!
//! `WEFT_EDITS` and `WEFT_DEVICE_EDITS` set the number of edits (default 2000 and 100), `WEFT_SEED` the first seed; a
//! failure prints its seed and the schedule.

mod draw;
mod hold;

use crate::device::{Memory, gpu};
use crate::rules::{real_device, software_device};
use compiler::dtype::DType;
use compiler::interpreter::run_scheduled;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use compiler::tir::TensorFunction;
pub use hold::setting;
use hold::{Base, bases_for, edited, edited_text, hold, kernels_of};

fn bases() -> Vec<Base> {
    let halves = DeviceProfile { f16: false, ..real_device() };
    let each = [(software_device(), true), (real_device(), true), (halves, false)];
    let types = |all: bool| if all { &[DType::F32, DType::F16][..] } else { &[DType::F16] };
    each.into_iter().flat_map(|(profile, all)| bases_for(&profile, types(all))).collect()
}

#[test]
fn in_the_interpreter() {
    hold(&bases(), setting("WEFT_EDITS", 2000), 4, edited, &|base, f| Some(interpret(f, base)));
}

#[test]
fn of_lines_in_the_interpreter() {
    hold(&bases(), setting("WEFT_EDITS", 2000) / 2, 8, edited_text, &|base, f| Some(interpret(&kernels_of(f), base)));
}

fn interpret(f: &TensorFunction, base: &Base) -> Result<Vec<f64>, String> {
    run_scheduled(f, &base.inputs).map(|r| r.iter().flat_map(Tensor::to_f64_vec).collect())
}

#[test]
fn on_the_device() {
    hold(&bases(), setting("WEFT_DEVICE_EDITS", 100), 4, edited, &on_device_if_taken);
}

#[test]
fn of_lines_on_the_device() {
    hold(&bases(), setting("WEFT_DEVICE_EDITS", 100) / 2, 8, edited_text, &on_device_if_taken);
}

/// What the device gives; `None` where it does not take the kernels.
fn on_device_if_taken(base: &Base, f: &TensorFunction) -> Option<Result<Vec<f64>, String>> {
    let mut kernels = Vec::new();
    for (name, _) in f.kernels() {
        kernels.push(shaders_gen::emit_kernel(f, name, &base.profile).ok()?);
    }
    if kernels.is_empty() {
        return None;
    }
    Some(run_on_device(base, f, &kernels))
}

fn run_on_device(
    base: &Base,
    f: &TensorFunction,
    kernels: &[compiler::plan::EmittedKernel],
) -> Result<Vec<f64>, String> {
    let mut memory = Memory::new();
    for (b, t) in f.inputs().zip(&base.inputs) {
        let packed = match f.prepacks.iter().find(|p| p.buffer == b) {
            Some(p) => run_scheduled(&p.packer, std::slice::from_ref(t))?.remove(0),
            None => t.clone(),
        };
        memory.insert(b, packed.bytes().to_vec());
    }
    gpu().run(f, kernels, &[], &mut memory, base.profile.slice_bytes().max(16));
    let mut out = Vec::new();
    for b in f.outputs() {
        let n = base.want.len();
        let bytes = memory.remove(&b).ok_or("the kernels do not write the result")?;
        let t = match f.buffers[b].dtype {
            DType::F16 => bytes[..2 * n]
                .chunks_exact(2)
                .map(|c| half::f16::from_le_bytes([c[0], c[1]]).to_f64())
                .collect::<Vec<f64>>(),
            _ => bytes[..4 * n]
                .chunks_exact(4)
                .map(|c| f64::from(f32::from_le_bytes([c[0], c[1], c[2], c[3]])))
                .collect(),
        };
        out.extend(t);
    }
    Ok(out)
}
