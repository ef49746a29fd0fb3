//! Encodings: f16 native and packed, bytes, narrow integers, bools.

use crate::build::*;
use crate::device::{gpu, has_f16};
use crate::{assert_close, random, run_bytes};
use compiler::dtype::DType;
use compiler::profile::DeviceProfile;
use compiler::tir::{Access, BufferId, Cond, Encoding, Expr, LoopKind, TensorFunction};
use half::{bf16, f16};
use shaders_gen::emit_kernel;

use LoopKind::{Local, Vectorize};

/// `y[i] = x[n - 1 - i] + x[i]` (one run and one reversed access), vectorised, with a tail.
fn mirror(n: i64, dtype: DType, encoding: Encoding, lanes: i64) -> (TensorFunction, BufferId, BufferId) {
    let mut f = TensorFunction::new("mirror");
    let x = param(&mut f, "x", dtype, &[n], Access::Read);
    let y = param(&mut f, "y", dtype, &[n], Access::Write);
    f.buffers[x].encoding = encoding;
    f.buffers[y].encoding = encoding;
    let i = v("t") * lanes + v("l");
    let back = i.clone() * -1 + (n - 1);
    let value = Expr::load(x, vec![i.clone()]) + Expr::load(x, vec![back]);
    let guards = if n % lanes == 0 { vec![] } else { vec![Cond::lt(i.clone(), n)] };
    let body = guarded("y", guards, y, vec![i], value);
    kernel(&mut f, nest(&[("t", (n + lanes - 1) / lanes, Local(0)), ("l", lanes, Vectorize)], body));
    (f, x, y)
}

fn check_halves(n: i64, encoding: Encoding, lanes: i64, profile: &DeviceProfile) -> String {
    let (f, x, y) = mirror(n, DType::F16, encoding, lanes);
    let data: Vec<f16> = random(n as usize, 1).into_iter().map(f16::from_f32).collect();
    let out = run_bytes(&f, profile, &[(x, bytemuck::cast_slice(&data).to_vec())], y);
    let got: Vec<f32> = out[..2 * n as usize]
        .chunks_exact(2)
        .map(|c| f16::from_le_bytes(c.try_into().expect("2 bytes")).to_f32())
        .collect();
    let want: Vec<f32> = (0..n as usize).map(|i| data[i].to_f32() + data[n as usize - 1 - i].to_f32()).collect();
    assert_close(&got, &want, 1e-3);
    let k = emit_kernel(&f, "k".into(), profile).expect("emits");
    assert!(k.bounds_proved, "{}", k.wgsl);
    k.wgsl
}

#[test]
fn halves_packed_in_words() {
    let profile = DeviceProfile { f16: false, ..gpu().profile.clone() };
    for n in [64, 61, 62, 63] {
        for lanes in [4, 2, 8] {
            let wgsl = check_halves(n, Encoding::HalfPair, lanes, &profile);
            assert!(wgsl.contains("pack2x16float") && !wgsl.contains("enable f16"), "{wgsl}");
        }
    }
}

#[test]
fn native_halves() {
    if !has_f16("native_halves") {
        return;
    }
    for n in [64, 61] {
        let wgsl = check_halves(n, Encoding::Native, 4, &gpu().profile);
        assert!(wgsl.contains("enable f16") && wgsl.contains("vec4<f16>"), "{wgsl}");
    }
}

#[test]
fn brain_halves() {
    let (f, x, y) = mirror(30, DType::BF16, Encoding::HalfPair, 2);
    let data: Vec<bf16> = random(30, 1).into_iter().map(bf16::from_f32).collect();
    let out = run_bytes(&f, &gpu().profile, &[(x, bytemuck::cast_slice(&data).to_vec())], y);
    for i in 0..30 {
        let got = bf16::from_le_bytes([out[2 * i], out[2 * i + 1]]);
        assert_eq!(got, bf16::from_f32(data[i].to_f32() + data[29 - i].to_f32()), "element {i}");
    }
}

#[test]
fn bytes_in_quads() {
    for dtype in [DType::U8, DType::I8] {
        for n in [32, 30] {
            let (f, x, y) = mirror(n, dtype, Encoding::ByteQuad, 4);
            let data: Vec<u8> = (0..n as u32).map(|i| (i * 37 % 256) as u8).collect();
            let out = run_bytes(&f, &gpu().profile, &[(x, data.clone())], y);
            let n = n as usize;
            let want: Vec<u8> = (0..n).map(|i| data[i].wrapping_add(data[n - 1 - i])).collect();
            assert_eq!(out[..n], want, "{dtype} {n}");
        }
    }
}

#[test]
fn packed_stores_need_vectors() {
    let (f, _, _) = mirror(64, DType::F16, Encoding::HalfPair, 1);
    let error = emit_kernel(&f, "k".into(), &gpu().profile).expect_err("a half word").to_string();
    assert!(error.contains("packed store needs a vectorised innermost loop"), "{error}");
}

/// i64 as i32, compared into a bool in bytes and back out of native bools.
#[test]
fn narrow_integers_and_bools() {
    let n = 12;
    let mut f = TensorFunction::new("compare");
    let x = param(&mut f, "x", DType::I64, &[n], Access::Read);
    f.buffers[x].encoding = Encoding::Narrow;
    let flag = param(&mut f, "flag", DType::Bool, &[n], Access::Read);
    let y = param(&mut f, "y", DType::Bool, &[n], Access::Write);
    f.buffers[y].encoding = Encoding::ByteQuad;
    let i = v("t") * 4 + v("l");
    let over = Expr::binary(compiler::tir::BinaryOp::Gt, Expr::load(x, vec![i.clone()]), Expr::int(3, DType::I64));
    let value = Expr::binary(compiler::tir::BinaryOp::Xor, over, Expr::load(flag, vec![i.clone()]));
    kernel(&mut f, nest(&[("t", 3, Local(0)), ("l", 4, Vectorize)], store("y", y, vec![i], value)));
    let xs: Vec<i32> = (-4..8).collect();
    let flags: Vec<u32> = (0..12).map(|i| u32::from(i % 3 == 0)).collect();
    let inputs = [(x, bytemuck::cast_slice(&xs).to_vec()), (flag, bytemuck::cast_slice(&flags).to_vec())];
    let out = run_bytes(&f, &gpu().profile, &inputs, y);
    let want: Vec<u8> = xs.iter().zip(&flags).map(|(x, f)| u8::from((*x > 3) != (*f != 0))).collect();
    assert_eq!(out[..12], want);
}
