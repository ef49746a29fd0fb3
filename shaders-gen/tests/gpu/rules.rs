//! Kernels of the schedule rules for common workloads and several devices, compared with the host executor.

use crate::device::{gpu, has_f16};
pub use crate::workloads::*;
use crate::{assert_close, random, run_bytes};
use compiler::compile::assign_encodings;
use compiler::dtype::DType;
use compiler::int::const_dims;
use compiler::interpreter::run_tensor_function;
use compiler::ops::DataLayout;
use compiler::profile::{DeviceProfile, Machine};
use compiler::schedule::rules::{Choice, Scheduled, choices, schedule, schedule_with};
use compiler::schedule::{ScheduleOptions, ScheduleTarget};
use compiler::tensor::Tensor;
use compiler::tir::{BufferId, TensorFunction};
use half::f16;

fn workloads(t: DType) -> Vec<(&'static str, TensorFunction)> {
    let mut out = vec![
        ("elementwise 64x32", elementwise(t, &[64, 32])),
        ("elementwise 5x7", elementwise(t, &[5, 7])),
        ("matmul 56x64x16", matmul(t, 56, 64, 16)),
        ("matmul 30x20x12", matmul(t, 30, 20, 12)),
        ("matmul 33x17x13", matmul(t, 33, 17, 13)),
        ("matmul 1x40x64", matmul(t, 1, 40, 64)),
        ("conv 3x3", conv(t, &Conv { n: 1, c: 16, h: 14, oc: 32, k: 3, stride: 1, pad: 1 })),
        ("conv 1x1", conv(t, &Conv { n: 2, c: 12, h: 7, oc: 24, k: 1, stride: 1, pad: 0 })),
        ("conv stem", conv(t, &Conv { n: 1, c: 3, h: 17, oc: 8, k: 7, stride: 2, pad: 3 })),
        ("depthwise 3x3", depthwise(t, &Conv { n: 1, c: 16, h: 14, oc: 16, k: 3, stride: 1, pad: 1 })),
        ("depthwise wide", depthwise(t, &Conv { n: 1, c: 32, h: 60, oc: 32, k: 3, stride: 1, pad: 1 })),
        ("depthwise stride", depthwise(t, &Conv { n: 1, c: 16, h: 21, oc: 16, k: 3, stride: 2, pad: 1 })),
        ("depthwise odd", depthwise(t, &Conv { n: 1, c: 7, h: 19, oc: 7, k: 5, stride: 1, pad: 2 })),
        ("elementwise 3x5x7", elementwise(t, &[3, 5, 7])),
        ("elementwise 1x1", elementwise(t, &[1, 1])),
        ("matmul 21x13x40", matmul(t, 21, 13, 40)),
        ("conv odd", conv(t, &Conv { n: 1, c: 5, h: 9, oc: 11, k: 3, stride: 2, pad: 1 })),
        ("softmax 6x10", softmax(t, 6, 10)),
        ("softmax 7x13", softmax(t, 7, 13)),
        ("softmax 3x1000", softmax(t, 3, 1000)),
        ("softmax 1x777", softmax(t, 1, 777)),
        ("softmax 40x100", softmax(t, 40, 100)),
        ("largest 2x500", largest(t, 2, 500)),
        ("largest 200x70", largest(t, 200, 70)),
        ("joined products", joined(t)),
        ("conv pool", conv_pool(t, &Conv { n: 2, c: 12, h: 15, oc: 24, k: 3, stride: 1, pad: 1 }, 2)),
        ("conv pool 3x3", conv_pool(t, &Conv { n: 1, c: 5, h: 11, oc: 18, k: 1, stride: 1, pad: 0 }, 3)),
        ("conv pool odd", conv_pool(t, &Conv { n: 1, c: 8, h: 9, oc: 11, k: 3, stride: 1, pad: 1 }, 2)),
    ];
    if t == DType::F32 {
        out.push(("transpose", transpose(t, [3, 20, 36])));
        out.push(("max pool", max_pool(12, 8)));
        for (layout, c) in [(DataLayout::Nhwc, 12), (DataLayout::Nhwc, 5), (DataLayout::Nchw, 8)] {
            for tile in [2, 4] {
                out.push(("tiles of data", tiles(tile, [2, 13, 10, c], layout)));
                out.push(("tiles of products", products(tile, [2, 13, 10, c], layout)));
            }
        }
    }
    out
}

fn bytes_of(t: &Tensor) -> Vec<u8> {
    t.bytes().to_vec()
}

fn tensor(dtype: DType, f: &TensorFunction, b: BufferId, seed: u64) -> Tensor {
    let shape = const_dims(&f.buffers[b].shape).expect("constant shape");
    let n = shape.iter().product();
    Tensor::from_f64(dtype, shape, random(n, seed).into_iter().map(f64::from))
}

/// Schedules, emits, runs, compares.
fn check<'a>(what: &str, t: DType, original: &TensorFunction, target: impl Into<ScheduleTarget<'a>>) {
    let target = target.into();
    let profile = target.profile;
    let mut f = original.clone();
    assign_encodings(&mut f, profile).unwrap_or_else(|e| panic!("{what}: {e}"));
    let inputs: Vec<BufferId> = f.inputs().collect();
    let tensors: Vec<Tensor> = inputs.iter().enumerate().map(|(i, b)| tensor(t, &f, *b, i as u64 + 1)).collect();
    let want = run_tensor_function(original, &tensors).expect("the host runs it").remove(0);
    let s = schedule(&f, &inputs[1..], target).unwrap_or_else(|e| panic!("{what}: {e}"));
    println!("{what} {t} on {}: rule {} (declined: {:?})", profile.name, s.rule, s.declined);
    agrees(what, t, &f, (&tensors, &want), &s, profile);
}

/// Runs what is scheduled of `f`.
fn agrees(
    what: &str,
    t: DType,
    f: &TensorFunction,
    (tensors, want): (&[Tensor], &Tensor),
    s: &Scheduled,
    profile: &DeviceProfile,
) {
    let inputs: Vec<BufferId> = f.inputs().collect();
    for (name, _) in s.function.kernels() {
        let k = shaders_gen::emit_kernel(&s.function, name, profile).unwrap_or_else(|e| panic!("{what}: {e}"));
        let generated = k.module.downcast_ref::<shaders_gen::GeneratedModule>().expect("a generated module");
        assert!(k.bounds_proved, "{what}: {:#?}\n{}", generated.unproved, k.wgsl);
    }
    let memory: Vec<(BufferId, Vec<u8>)> = inputs
        .iter()
        .zip(tensors)
        .map(|(b, x)| match s.function.prepacks.iter().find(|p| p.buffer == *b) {
            Some(p) => {
                let packed = run_tensor_function(&p.packer, std::slice::from_ref(x)).expect("packs");
                (*b, bytes_of(&packed[0]))
            }
            None => (*b, bytes_of(x)),
        })
        .collect();
    let out = s.function.outputs().next().expect("an output");
    let got = run_bytes(&s.function, profile, &memory, out);
    let n = want.len();
    let got: Vec<f32> = match t {
        DType::F16 => got[..2 * n].chunks_exact(2).map(|c| f16::from_le_bytes([c[0], c[1]]).to_f32()).collect(),
        _ => got[..4 * n].chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect(),
    };
    let want: Vec<f32> = want.to_f64_vec().into_iter().map(|x| x as f32).collect();
    assert_close(&got, &want, if t == DType::F16 { 4e-3 } else { 2e-4 });
}

pub fn real_device() -> DeviceProfile {
    let name = "no subgroups".into();
    DeviceProfile { name, machine: Machine::Gpu, subgroup: (0, 0), driver: String::new(), ..gpu().profile.clone() }
}

pub fn software_device() -> DeviceProfile {
    let DeviceProfile { subgroup, f16, .. } = gpu().profile;
    DeviceProfile { name: "software".into(), subgroup, f16, ..DeviceProfile::lavapipe() }
}

/// A device with subgroups of the size that is here, whose rules do not count on that size.
pub fn subgroup_device() -> DeviceProfile {
    DeviceProfile { name: "subgroups".into(), subgroup: gpu().profile.subgroup, ..real_device() }
}

/// Sums, products and extremes of random lengths: by one subgroup, by several, and through workgroup memory.
#[test]
fn every_way_to_share_a_reduction() {
    let mut tried = 0;
    for seed in 0..3 {
        let n: Vec<i64> = random(4, 90 + seed).into_iter().map(|x| (x.abs() * 700.0) as i64 % 700).collect();
        let works = [
            ("softmax", softmax(DType::F32, 1 + n[0] % 5, 130 + n[1])),
            ("softmax of vectors", softmax(DType::F32, 2, 4 * (40 + n[2] / 4))),
            ("largest", largest(DType::F32, 1 + n[3] % 3, 200 + n[0])),
            ("largest of columns", largest_of_columns(DType::F32, 70 + n[1] % 130, 17 + n[2] % 60)),
        ];
        for (what, f) in works {
            for base in [subgroup_device(), software_device()] {
                let asked = ScheduleOptions::of_rules(["rows", "reduction-threads"]);
                let base = base.limited_to(&gpu().profile);
                tried += check_choices(what, DType::F32, &f, asked.on(&base));
            }
        }
    }
    assert!(tried > 100, "{tried}");
}

#[test]
fn rules_for_devices_with_subgroups() {
    for (what, f) in workloads(DType::F32) {
        check(what, DType::F32, &f, &subgroup_device());
        // A driver whose compiler unrolls loops.
        check(what, DType::F32, &f, &subgroup_device().with_driver(INTEL));
    }
}

#[test]
fn rules_for_software_devices() {
    for (what, f) in workloads(DType::F32) {
        check(what, DType::F32, &f, &software_device());
    }
}

#[test]
fn rules_for_real_devices() {
    for (what, f) in workloads(DType::F32) {
        check(what, DType::F32, &f, &real_device());
    }
}

/// The product and the convolutions of the workloads in f16, every choice; on Mesa's lavapipe from version 25 on.
#[test]
fn rules_on_matrix_units() {
    let own = &gpu().profile;
    if own.matrix_units().is_ok_and(|all| all.is_empty()) {
        eprintln!("NOT RUN: {} multiplies no matrices of f16 into f32", own.name);
        return;
    }
    let asked = ScheduleOptions::of_rules(["matmul-matrix"]);
    for profile in std::iter::once(own.clone()).chain(with_words(own)) {
        let mut tried = 0;
        // The last one may be cut into slices.
        for (m, n, k) in [(16, 16, 16), (37, 21, 40), (70, 130, 64), (19, 36, 1024)] {
            tried += check_choices("product", DType::F16, &matmul(DType::F16, m, n, k), asked.on(&profile));
        }
        // Its taps are a loop around the K steps, if the compiler wants short loops.
        let wide = conv(DType::F16, &Conv { n: 1, c: 128, h: 9, oc: 24, k: 3, stride: 1, pad: 1 });
        for (what, f) in workloads(DType::F16).into_iter().filter(|w| w.0.contains("conv")).chain([("conv", wide)]) {
            check(what, DType::F16, &f, asked.on(&profile));
        }
        assert!(tried >= 12, "{tried}");
    }
}

const INTEL: &str = "intel open-source mesa driver";

/// This device with the drivers on which memory of halves is words, in each way.
fn with_words(p: &DeviceProfile) -> impl Iterator<Item = DeviceProfile> {
    let driver = |d: &str| DeviceProfile { machine: Machine::Gpu, ..p.clone().with_driver(d) };
    ["nvidia", "radv", INTEL].map(driver).into_iter().filter(|p| p.half_words().is_some())
}

#[test]
fn rules_on_native_halves() {
    if !has_f16("rules_on_native_halves") {
        return;
    }
    for (what, f) in workloads(DType::F16) {
        check(what, DType::F16, &f, &software_device());
        check(what, DType::F16, &f, &real_device());
        with_words(&subgroup_device()).for_each(|p| check(what, DType::F16, &f, &p));
    }
}

#[test]
fn rules_on_packed_halves() {
    for (what, f) in workloads(DType::F16) {
        check(what, DType::F16, &f, &DeviceProfile { f16: false, ..software_device() });
        check(what, DType::F16, &f, &DeviceProfile { f16: false, ..real_device() });
    }
}

/// Every value of each choice that the rule makes which the target asks for.
pub fn check_choices(what: &str, t: DType, original: &TensorFunction, target: ScheduleTarget<'_>) -> usize {
    let ScheduleTarget { profile, options } = target;
    let mut f = original.canonical();
    assign_encodings(&mut f, profile).unwrap_or_else(|e| panic!("{what}: {e}"));
    let inputs: Vec<BufferId> = f.inputs().collect();
    let tensors: Vec<Tensor> = inputs.iter().enumerate().map(|(i, b)| tensor(t, &f, *b, i as u64 + 1)).collect();
    let want = run_tensor_function(original, &tensors).expect("the host runs it").remove(0);
    let first = schedule(&f, &inputs[1..], target).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(options.asks_for(first.rule), "{what} on {}: rule {}: {:?}", profile.name, first.rule, first.declined);
    agrees(what, t, &f, (&tensors, &want), &first, profile);
    let mut tried = 0;
    for c in choices(&first.function.trace).into_iter().filter(|c| !["rule", "function"].contains(&c.point.as_str())) {
        for value in &c.of[1..] {
            let one = Choice { unit: c.unit, point: c.point, value: value.clone() };
            println!("{what} {t} on {}: {one:?}", profile.name);
            let s = schedule_with(&f, &inputs[1..], target, &[one]).unwrap_or_else(|e| panic!("{what}: {e}"));
            agrees(what, t, &f, (&tensors, &want), &s, profile);
            tried += 1;
        }
    }
    tried
}

/// Random shapes, most of which end inside a tile; halves native and packed.
#[test]
fn every_tile_of_a_transpose() {
    let mut tried = 0;
    for seed in 0..6 {
        let sizes = random(3, 70 + seed).into_iter().map(|x| 5 + (x.abs() * 60.0) as i64 % 60).collect::<Vec<_>>();
        // Some divide into vectors along one side, some along both.
        let shape = match seed % 3 {
            0 => [1 + sizes[0] % 3, sizes[1], sizes[2]],
            1 => [1 + sizes[0] % 3, sizes[1] / 4 * 4 + 4, sizes[2]],
            _ => [1 + sizes[0] % 3, sizes[1] / 4 * 4 + 4, sizes[2] / 4 * 4 + 4],
        };
        for (t, f16) in [(DType::F32, true), (DType::F16, true), (DType::F16, false)] {
            if t == DType::F16 && !f16 && shape[1] % 4 != 0 {
                continue;
            }
            for base in [real_device(), software_device()] {
                let f16 = f16 && gpu().profile.f16;
                let profile = DeviceProfile { f16, ..base };
                let asked = ScheduleOptions::of_rules(["transpose-tiled"]);
                tried += check_choices(&format!("transpose {shape:?}"), t, &transpose(t, shape), asked.on(&profile));
            }
        }
    }
    assert!(tried > 60, "{tried}");
}

/// Tiles that do not end at words keep their rule: they go to f32 memory, and one more kernel packs them.
#[test]
fn odd_rows_of_packed_halves_keep_their_tiles() {
    for (profile, rule) in [(software_device(), "matmul-subgroup"), (real_device(), "matmul-tiled")] {
        let profile = DeviceProfile { f16: false, ..profile };
        for (columns, kernels) in [(17, 2), (16, 1)] {
            let mut f = matmul(DType::F16, 33, columns, 16);
            assign_encodings(&mut f, &profile).expect("encodings");
            let inputs: Vec<BufferId> = f.inputs().collect();
            let s = schedule(&f, &inputs[1..], &profile).expect("a schedule");
            assert_eq!((s.rule, s.function.kernels().len()), (rule, kernels), "{columns} columns: {:?}", s.declined);
        }
    }
}

#[test]
fn rules_with_buffer_slices() {
    let profile = DeviceProfile { max_binding: 4096, max_storage_buffers: 32, ..real_device() };
    check("matmul", DType::F32, &matmul(DType::F32, 40, 48, 64), &profile);
    check("elementwise", DType::F32, &elementwise(DType::F32, &[100, 30]), &profile);
}
