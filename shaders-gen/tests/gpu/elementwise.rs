//! Elementwise kernels, reductions, guards, grids, scalar functions.

use crate::build::*;
use crate::device::gpu;
use crate::{assert_close, random, run, run_bytes};
use compiler::dtype::DType;
use compiler::profile::DeviceProfile;
use compiler::tir::{Access, BinaryOp, BufferId, Combiner, Cond, Expr, LoopKind, Scope, TensorFunction, UnaryOp};
use shaders_gen::emit_kernel;

use LoopKind::{Group, Local, Serial, Unroll, Vectorize};

/// `y = x * 2 + 1` over `n` elements, vectorised by four with a tail guard.
fn affine(n: i64) -> (TensorFunction, BufferId, BufferId) {
    let mut f = TensorFunction::new("affine");
    let x = param(&mut f, "x", DType::F32, &[n], Access::Read);
    let y = param(&mut f, "y", DType::F32, &[n], Access::Write);
    let i = v("g") * 256 + v("t") * 4 + v("l");
    let value = Expr::load(x, vec![i.clone()]) * f32c(2.0) + f32c(1.0);
    let guards = if n % 256 == 0 { vec![] } else { vec![Cond::lt(i.clone(), n)] };
    let body = guarded("y", guards, y, vec![i], value);
    let body = nest(&[("g", (n + 255) / 256, Group(0)), ("t", 64, Local(0)), ("l", 4, Vectorize)], body);
    kernel(&mut f, body);
    (f, x, y)
}

fn check_affine(n: i64, profile: &DeviceProfile) -> String {
    let (f, x, y) = affine(n);
    let data = random(n as usize, 1);
    let got = run(&f, profile, &[(x, &data)], y);
    let want: Vec<f32> = data.iter().map(|x| x * 2.0 + 1.0).collect();
    assert_close(&got, &want, 1e-6);
    let k = emit_kernel(&f, "k".into(), profile).expect("emits");
    assert!(k.bounds_proved, "{}", k.wgsl);
    k.wgsl
}

#[test]
fn vectors_with_and_without_tail() {
    for n in [1024, 1000, 1001, 3] {
        let wgsl = check_affine(n, &gpu().profile);
        assert!(wgsl.contains("array<vec4<f32>>"), "{n}: {wgsl}");
    }
}

#[test]
fn grids_fold_against_the_limit() {
    let profile = DeviceProfile { max_workgroups: 7, ..gpu().profile.clone() };
    for n in [1024, 256 * 13, 256 * 49, 256 * 50, 256 * 97] {
        check_affine(n, &profile);
    }
}

#[test]
fn buffers_beyond_a_binding_come_in_slices() {
    let profile = DeviceProfile { max_binding: 2048 + 512, ..gpu().profile.clone() };
    let bindings = |n: i64| 2 * profile.bindings_for(n as u64 * 4);
    for n in [512, 1024, 1500, 4096].into_iter().filter(|n| bindings(*n) <= profile.max_storage_buffers) {
        let wgsl = check_affine(n, &profile);
        assert_eq!(wgsl.contains("x_slice1"), n * 4 > 2560, "{wgsl}");
    }
}

#[test]
fn limits_are_errors_with_values() {
    let (f, _, _) = affine(1024);
    let small = DeviceProfile { max_invocations: 32, ..DeviceProfile::baseline() };
    let error = emit_kernel(&f, "k".into(), &small).expect_err("64 threads are too many").to_string();
    assert!(error.contains("64") && error.contains("32"), "{error}");
    let few = DeviceProfile { max_storage_buffers: 1, ..DeviceProfile::baseline() };
    let error = emit_kernel(&f, "k".into(), &few).expect_err("two bindings are too many").to_string();
    assert!(error.contains('2') && error.contains("storage"), "{error}");
}

#[test]
fn row_sums_with_register_accumulators() {
    for (rows, cols) in [(8, 16), (5, 7)] {
        let mut f = TensorFunction::new("sum");
        let x = param(&mut f, "x", DType::F32, &[rows, cols], Access::Read);
        let y = param(&mut f, "y", DType::F32, &[rows], Access::Write);
        let acc = buffer(&mut f, "acc", DType::F32, &[1], Scope::Register);
        let body = compiler::tir::Stmt::Seq(vec![
            store("acc_init", acc, vec![0.into()], f32c(0.0)),
            repeat(
                "c",
                cols,
                Serial,
                update("acc", Combiner::Sum, false, acc, vec![0.into()], Expr::load(x, vec![v("r"), v("c")])),
            ),
            store("y", y, vec![v("r")], Expr::load(acc, vec![0.into()])),
        ]);
        kernel(&mut f, repeat("r", rows, Group(0), body));
        let data = random((rows * cols) as usize, 2);
        let got = run(&f, &gpu().profile, &[(x, &data)], y);
        let want: Vec<f32> = data.chunks(cols as usize).map(|r| r.iter().sum()).collect();
        assert_close(&got, &want, 1e-5);
    }
}

/// A reduction that sets its own identity, straight into the output.
#[test]
fn reductions_that_initialise_themselves() {
    for combiner in [Combiner::Sum, Combiner::Prod, Combiner::Max, Combiner::Min] {
        for kind in [Serial, Unroll, Vectorize] {
            let mut f = TensorFunction::new("reduce");
            let x = param(&mut f, "x", DType::F32, &[6, 4], Access::Read);
            let y = param(&mut f, "y", DType::F32, &[6], Access::Write);
            let block = update("y", combiner, true, y, vec![v("r")], Expr::load(x, vec![v("r"), v("c")]));
            kernel(&mut f, nest(&[("r", 6, Local(0)), ("c", 4, kind)], block));
            let mut data = random(24, 3);
            data[..4].fill(if combiner == Combiner::Max { f32::NEG_INFINITY } else { f32::INFINITY });
            let got = run(&f, &gpu().profile, &[(x, &data)], y);
            let fold = |r: &[f32]| match combiner {
                Combiner::Sum => r.iter().sum(),
                Combiner::Prod => r.iter().product(),
                Combiner::Max => r.iter().copied().fold(f32::NEG_INFINITY, f32::max),
                Combiner::Min => r.iter().copied().fold(f32::INFINITY, f32::min),
            };
            let want: Vec<f32> = data.chunks(4).map(fold).collect();
            assert_close(&got, &want, 1e-5);
        }
    }
}

/// A padded window: loads outside are clamped and not chosen, so everything is proved.
#[test]
fn padding_selects_zero() {
    let mut f = TensorFunction::new("pad");
    let x = param(&mut f, "x", DType::F32, &[10, 8], Access::Read);
    let y = param(&mut f, "y", DType::F32, &[14, 8], Access::Write);
    let row = v("r") - 2;
    let conds = vec![Cond::ge(row.clone(), 0), Cond::lt(row.clone(), 10)];
    let value = Expr::guarded(conds, Expr::load(x, vec![row, v("c") * 4 + v("l")]), f32c(0.5));
    let body = store("y", y, vec![v("r"), v("c") * 4 + v("l")], value);
    kernel(&mut f, nest(&[("r", 14, Group(0)), ("c", 2, Local(0)), ("l", 4, Vectorize)], body));
    let data = random(80, 4);
    let got = run(&f, &gpu().profile, &[(x, &data)], y);
    let want: Vec<f32> = (0..14 * 8).map(|i| if (16..96).contains(&i) { data[i - 16] } else { 0.5 }).collect();
    assert_close(&got, &want, 0.0);
    let k = emit_kernel(&f, "k".into(), &gpu().profile).expect("emits");
    assert!(k.bounds_proved, "{}", k.wgsl);
    assert_eq!(k.wgsl.matches("min(").count() + k.wgsl.matches("max(").count(), 2, "clamped once: {}", k.wgsl);
}

/// Applies `value` to each of `data`.
fn map(data: &[f32], value: impl FnOnce(Expr) -> Expr) -> Vec<f32> {
    let n = data.len() as i64;
    let mut f = TensorFunction::new("map");
    let x = param(&mut f, "x", DType::F32, &[n], Access::Read);
    let y = param(&mut f, "y", DType::F32, &[n], Access::Write);
    let value = value(Expr::load(x, vec![v("i")]));
    kernel(&mut f, repeat("i", n, Local(0), store("y", y, vec![v("i")], value)));
    run(&f, &gpu().profile, &[(x, data)], y)
}

#[test]
fn float_tests_and_infinities() {
    let data = [0.0f32, 1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN, f32::MAX];
    let as_f32 = |e: Expr| Expr::Cast(DType::F32, Box::new(e));
    assert_eq!(map(&data, |x| as_f32(Expr::unary(UnaryOp::IsNan, x))), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0]);
    assert_eq!(map(&data, |x| as_f32(Expr::unary(UnaryOp::IsInf, x))), [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    let positive = |x: Expr| Expr::binary(BinaryOp::Gt, x, f32c(0.5));
    let got = map(&data, |x| Expr::select(positive(x), f32c(f64::NEG_INFINITY), f32c(f64::INFINITY)));
    assert_eq!(got[..4], [f32::INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY, f32::INFINITY]);
}

#[test]
fn powers_and_remainders() {
    let data = [-3.0f32, -2.0, -0.5, 0.0, 0.5, 2.0, 3.0];
    for e in [0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, -1.0, -2.0, 1.5] {
        let want: Vec<f32> = data.iter().map(|x| x.powf(e)).collect();
        println!("constant exponent {e}");
        assert_close(&map(&data, |x| Expr::binary(BinaryOp::Pow, x, f32c(f64::from(e)))), &want, 1e-4);
    }
    // The exponent is data: x ^ (x + 1).
    let want: Vec<f32> = data.iter().map(|x| x.powf(x + 1.0)).collect();
    assert_close(&map(&data, |x| Expr::binary(BinaryOp::Pow, x.clone(), x + f32c(1.0))), &want, 1e-4);
    for d in [2.0f32, -2.0, 0.75] {
        let by = || f32c(f64::from(d));
        let want: Vec<f32> = data.iter().map(|x| x - d * (x / d).floor()).collect();
        assert_close(&map(&data, |x| Expr::binary(BinaryOp::FloorMod, x, by())), &want, 1e-5);
        let want: Vec<f32> = data.iter().map(|x| x % d).collect();
        assert_close(&map(&data, |x| Expr::binary(BinaryOp::TruncMod, x, by())), &want, 1e-5);
    }
}

#[test]
fn powers_at_the_ends_of_their_domain() {
    let inf = f32::INFINITY;
    let data = [0.0f32, -0.0, 1.0, -1.0, 2.0, -8.0, inf, -inf, f32::NAN];
    for e in [-3.0f32, -2.0, 1.5, -1.5, 5.0, 6.0, inf, -inf, f32::NAN] {
        let got = map(&data, |x| Expr::binary(BinaryOp::Pow, x, f32c(f64::from(e))));
        for (x, got) in data.iter().zip(got) {
            let want = x.powf(e);
            let near = (got - want).abs() <= 1e-4 * want.abs();
            assert!(near || got == want || got.is_nan() && want.is_nan(), "{x} ^ {e}: {got}, not {want}");
        }
    }
}

#[test]
fn remainders_are_exact() {
    let (inf, nan, tiny) = (f32::INFINITY, f32::NAN, f32::from_bits(3));
    let mut data =
        vec![0.0, -0.0, 7.0, -7.0, 5.3, 1e10, -1e10, 1e30, -1e30, 3.4e38, f32::MAX, 16777216.0, inf, -inf, nan];
    data.extend([f32::MIN_POSITIVE, 1e-40, -1e-40, tiny, 0.1, 1e-3]);
    data.extend(random(43, 5).iter().map(|x| x * 1e12));
    for d in [3.0f32, -3.0, 1e-3, 0.1, 7.0, 1e30, f32::MAX, f32::MIN_POSITIVE, 3e-41, tiny, 0.0, inf, -inf, nan] {
        let got = map(&data, |x| Expr::binary(BinaryOp::TruncMod, x, f32c(f64::from(d))));
        for (x, got) in data.iter().zip(got) {
            let want = x % d;
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{x} % {d}: {got}, not {want}");
        }
    }
}

/// Applies an i32 function of two values.
fn map_ints(a: &[i32], b: &[i32], t: DType, op: BinaryOp) -> Vec<i32> {
    let n = a.len() as i64;
    let mut f = TensorFunction::new("ints");
    let x = param(&mut f, "x", DType::I32, &[n], Access::Read);
    let y = param(&mut f, "y", DType::I32, &[n], Access::Read);
    let z = param(&mut f, "z", DType::I32, &[n], Access::Write);
    let load = |b| Expr::load(b, vec![v("i")]).cast(DType::I32, t);
    let value = Expr::binary(op, load(x), load(y));
    let from = value.dtype(&f);
    kernel(&mut f, repeat("i", n, Local(0), store("z", z, vec![v("i")], value.cast(from, DType::I32))));
    let bytes = |d: &[i32]| bytemuck::cast_slice(d).to_vec();
    let out = run_bytes(&f, &gpu().profile, &[(x, bytes(a)), (y, bytes(b))], z);
    out[..a.len() * 4].chunks_exact(4).map(|c| i32::from_le_bytes(c.try_into().expect("4 bytes"))).collect()
}

#[test]
fn integer_functions() {
    let a = [7, -7, 7, -7, i32::MIN, 5, 0, 200];
    let b = [2, 2, -2, -2, -1, 0, 3, 100];
    let check = |op, want: [i32; 8]| assert_eq!(map_ints(&a, &b, DType::I32, op), want, "{op:?}");
    check(BinaryOp::Div, [3, -3, -3, 3, i32::MIN, 0, 0, 2]);
    check(BinaryOp::FloorMod, [1, 1, -1, -1, 0, 0, 0, 0]);
    check(BinaryOp::TruncMod, [1, -1, 1, -1, 0, 0, 0, 0]);
    check(BinaryOp::Lt, [0, 1, 0, 1, 1, 0, 1, 0]);
    let pow = map_ints(&[2, -2, 3, 0, 1, -1, 2, 7], &[10, 3, 4, 0, -5, -3, -1, 1], DType::I32, BinaryOp::Pow);
    assert_eq!(pow, [1024, -8, 81, 1, 1, -1, 0, 7]);
    let sums = map_ints(&[200, 127, -1, 0], &[100, 1, -1, 5], DType::U8, BinaryOp::Add);
    assert_eq!(sums, [44, 128, 254, 5]);
    let sums = map_ints(&[100, 127, -128, 0], &[100, 1, -1, 5], DType::I8, BinaryOp::Add);
    assert_eq!(sums, [-56, -128, 127, 5]);
    let shifts = map_ints(&[1, 1, 255, 128], &[3, 40, 1, 7], DType::U8, BinaryOp::Shl);
    assert_eq!(shifts, [8, 0, 254, 0]);
}

#[test]
fn casts_saturate() {
    let data = [0.9f32, -0.9, 300.7, -300.7, 3e9, -3e9, f32::NAN, f32::INFINITY];
    let via = |t: DType| map(&data, |x| Expr::Cast(DType::F32, Box::new(Expr::Cast(t, Box::new(x)))));
    assert_eq!(via(DType::I32), [0.0, 0.0, 300.0, -300.0, 2147483647f32, -2147483648f32, 0.0, 2147483647f32]);
    assert_eq!(via(DType::U8), [0.0, 0.0, 255.0, 0.0, 255.0, 0.0, 0.0, 255.0]);
    assert_eq!(via(DType::I8), [0.0, 0.0, 127.0, -128.0, 127.0, -128.0, 0.0, 127.0]);
    assert_eq!(via(DType::Bool), [1.0; 8]);
}

/// A gather whose index comes from memory, out of range indices included.
#[test]
fn gathers_are_clamped() {
    let mut f = TensorFunction::new("gather");
    let x = param(&mut f, "x", DType::F32, &[5, 4], Access::Read);
    let index = param(&mut f, "index", DType::I32, &[6], Access::Read);
    let y = param(&mut f, "y", DType::F32, &[6, 4], Access::Write);
    let row = compiler::int::Int::load(index, vec![v("i")]);
    let body = store("y", y, vec![v("i"), v("l")], Expr::load(x, vec![row, v("l")]));
    kernel(&mut f, nest(&[("i", 6, Local(0)), ("l", 4, Vectorize)], body));
    let data = random(20, 5);
    let indices = [4i32, 0, 2, -7, 100, 1];
    let inputs = [(x, bytemuck::cast_slice(&data).to_vec()), (index, bytemuck::cast_slice(&indices).to_vec())];
    let out = run_bytes(&f, &gpu().profile, &inputs, y);
    let got: &[f32] = bytemuck::cast_slice(&out);
    let want: Vec<f32> = indices.iter().flat_map(|i| data[4 * (*i).clamp(0, 4) as usize..][..4].to_vec()).collect();
    assert_close(got, &want, 0.0);
    let k = emit_kernel(&f, "k".into(), &gpu().profile).expect("emits");
    assert!(k.bounds_proved, "{}", k.wgsl);
}

/// Symbols are immediates: a loop of unknown length and an offset.
#[test]
fn symbols_come_as_immediates() {
    let mut f = TensorFunction::new("prefix");
    f.symbols = vec![("count".into(), 0, 8), ("offset".into(), 0, 4)];
    let x = param(&mut f, "x", DType::F32, &[12], Access::Read);
    let y = param(&mut f, "y", DType::F32, &[1], Access::Write);
    let acc = buffer(&mut f, "acc", DType::F32, &[1], Scope::Register);
    let sum = update("acc", Combiner::Sum, false, acc, vec![0.into()], Expr::load(x, vec![v("i") + v("offset")]));
    let sum = compiler::tir::Stmt::For(Box::new(compiler::tir::For {
        var: "i".into(),
        extent: v("count"),
        kind: Serial,
        body: sum,
    }));
    let body = compiler::tir::Stmt::Seq(vec![
        store("zero", acc, vec![0.into()], f32c(0.0)),
        sum,
        store("y", y, vec![0.into()], Expr::load(acc, vec![0.into()])),
    ]);
    kernel(&mut f, body);
    let data = random(12, 6);
    // Without immediates the kernel reads the same from a uniform buffer.
    let without = DeviceProfile { immediates: 4, ..gpu().profile.clone() };
    for (count, offset) in [(0, 3), (1, 0), (8, 4)] {
        for profile in [&gpu().profile, &without] {
            let inputs = [(x, bytemuck::cast_slice(&data).to_vec())];
            let out = crate::run_symbols(&f, profile, &[count, offset], &inputs, y);
            let want: f32 = data[offset as usize..][..count as usize].iter().sum();
            assert_close(&[f32::from_le_bytes(out[..4].try_into().expect("4 bytes"))], &[want], 1e-5);
        }
    }
    let k = emit_kernel(&f, "k".into(), &gpu().profile).expect("emits");
    assert!(k.bounds_proved && (k.immediate_bytes, k.uniform_bytes) == (8, 0), "{}", k.wgsl);
    let k = emit_kernel(&f, "k".into(), &without).expect("emits");
    assert!(k.bounds_proved && (k.immediate_bytes, k.uniform_bytes) == (0, 8), "{}", k.wgsl);
}

/// A kernel that reads back what other threads of the workgroup wrote to global memory waits for it.
#[test]
fn scratch_in_global_memory_is_ordered() {
    let mut f = TensorFunction::new("reverse");
    let x = param(&mut f, "x", DType::F32, &[64], Access::Read);
    let scratch = buffer(&mut f, "scratch", DType::F32, &[64], Scope::Global);
    let y = param(&mut f, "y", DType::F32, &[64], Access::Write);
    let body = compiler::tir::Stmt::Seq(vec![
        repeat("i", 64, Local(0), store("scratch", scratch, vec![v("i")], Expr::load(x, vec![v("i")]) * f32c(3.0))),
        repeat("j", 64, Local(0), store("y", y, vec![v("j")], Expr::load(scratch, vec![v("j") * -1 + 63]))),
    ]);
    kernel(&mut f, body);
    let data = random(64, 7);
    let want: Vec<f32> = data.iter().rev().map(|x| x * 3.0).collect();
    assert_close(&run(&f, &gpu().profile, &[(x, &data)], y), &want, 1e-6);
    let k = emit_kernel(&f, "k".into(), &gpu().profile).expect("emits");
    assert_eq!(k.wgsl.matches("storageBarrier").count(), 1, "{}", k.wgsl);
    assert_eq!(k.wgsl.matches("workgroupBarrier").count(), 0, "{}", k.wgsl);
}

/// Integers, bools and gathers in one vectorised select whose condition differs between lanes.
#[test]
fn conditions_may_differ_between_lanes() {
    let mut f = TensorFunction::new("triangle");
    let x = param(&mut f, "x", DType::F32, &[8, 8], Access::Read);
    let y = param(&mut f, "y", DType::F32, &[8, 8], Access::Write);
    let col = v("c") * 4 + v("l");
    let lower = Expr::All(vec![Cond::ge(v("r"), col.clone())]);
    let index = Expr::Index(col.clone() * 10 + v("r"), DType::F32);
    let value = Expr::select(lower, Expr::load(x, vec![col.clone(), v("r")]), index);
    kernel(
        &mut f,
        nest(&[("r", 8, Local(0)), ("c", 2, Serial), ("l", 4, Vectorize)], store("y", y, vec![v("r"), col], value)),
    );
    let data = random(64, 8);
    let want: Vec<f32> = (0..64)
        .map(|i| (i / 8, i % 8))
        .map(|(r, c)| if r >= c { data[c * 8 + r] } else { (c * 10 + r) as f32 })
        .collect();
    assert_close(&run(&f, &gpu().profile, &[(x, &data)], y), &want, 0.0);
}

#[test]
fn entry_points_have_the_same_name_in_every_target() {
    let (f, _, _) = affine(256);
    for name in ["conv1", "loop", "a.b/c__d_7", "9lives", "select", "main", "k", "_x_"] {
        let mut f = f.clone();
        if let compiler::tir::Stmt::Kernel(n, _) = &mut f.body {
            *n = name.into();
        }
        let k = emit_kernel(&f, name.into(), &gpu().profile).expect("emits");
        assert!(k.wgsl.contains(&format!("fn {}(", k.name)), "{}: {}", k.name, k.wgsl);
    }
}

/// An index loaded from memory that the kernel changes is loaded again.
#[test]
fn loaded_indices_follow_stores() {
    let mut f = TensorFunction::new("chase");
    let x = param(&mut f, "x", DType::I32, &[8], Access::Read);
    let at = buffer(&mut f, "at", DType::I32, &[1], Scope::Register);
    let y = param(&mut f, "y", DType::I32, &[3], Access::Write);
    let next = || compiler::int::Int::load(at, vec![0.into()]);
    let body = compiler::tir::Stmt::Seq(vec![
        store("start", at, vec![0.into()], Expr::int(1, DType::I32)),
        repeat(
            "i",
            3,
            Unroll,
            compiler::tir::Stmt::Seq(vec![
                store("hop", at, vec![0.into()], Expr::load(x, vec![(next() + 6).rem(8)])),
                store("y", y, vec![v("i")], Expr::Index(next() * 2 + 1, DType::I32)),
            ]),
        ),
    ]);
    kernel(&mut f, body);
    let data = [3i32, 7, 5, 1, 6, 2, 4, 0];
    let out = run_bytes(&f, &gpu().profile, &[(x, bytemuck::cast_slice(&data).to_vec())], y);
    let mut at = 1usize;
    for i in 0..3 {
        at = data[(at + 6) % 8] as usize;
        let got = i32::from_le_bytes(out[4 * i..4 * i + 4].try_into().expect("4 bytes"));
        assert_eq!(got, 2 * at as i32 + 1, "hop {i}");
    }
}
