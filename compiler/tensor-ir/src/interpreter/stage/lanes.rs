//! One instruction, executed for all lanes of a block.

use super::super::scalar::{Num, binary, cast, unary};
use super::program::Class;
use crate::dtype::DType;
use crate::tir::{BinaryOp, UnaryOp, WithBinary, WithUnary};
use half::{bf16, f16};

/// Lanes of a register.
pub(super) const LANES: usize = 512;

/// A register.
pub(super) enum Lanes {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I64(Vec<i64>),
    Bool(Vec<u8>),
}

impl Lanes {
    pub(super) fn new(class: Class, value: Option<Num>) -> Lanes {
        let v = value.unwrap_or(Num::I(0));
        match class {
            Class::F32 => Lanes::F32(vec![v.float() as f32; LANES]),
            Class::F64 => Lanes::F64(vec![v.float(); LANES]),
            Class::I64 => Lanes::I64(vec![v.int(); LANES]),
            Class::Bool => Lanes::Bool(vec![v.truth() as u8; LANES]),
        }
    }
    /// A register without lanes, in the place of one that is being written.
    pub(super) fn none() -> Lanes {
        Lanes::Bool(Vec::new())
    }
    pub(super) fn bools(&self) -> &[u8] {
        match self {
            Lanes::Bool(v) => v,
            _ => &[],
        }
    }
    fn get(&self, i: usize) -> Num {
        match self {
            Lanes::F32(v) => Num::F(v[i] as f64),
            Lanes::F64(v) => Num::F(v[i]),
            Lanes::I64(v) => Num::I(v[i]),
            Lanes::Bool(v) => Num::I(v[i] as i64),
        }
    }
    fn set(&mut self, i: usize, x: Num) {
        match self {
            Lanes::F32(v) => v[i] = x.float() as f32,
            Lanes::F64(v) => v[i] = x.float(),
            Lanes::I64(v) => v[i] = x.int(),
            Lanes::Bool(v) => v[i] = x.truth() as u8,
        }
    }
}

/// The results, and the operands, of a function in a loop.
struct Into<'a, D, T> {
    to: &'a mut [D],
    a: &'a [T],
    b: &'a [T],
}

impl<T: Copy> WithUnary<T> for Into<'_, T, T> {
    type Out = ();
    fn with(self, f: impl Fn(T) -> T) {
        self.to.iter_mut().zip(self.a).for_each(|(d, a)| *d = f(*a));
    }
}

impl<T: Copy, R, D: From<R>> WithBinary<T, R> for Into<'_, D, T> {
    type Out = ();
    fn with(self, f: impl Fn(T, T) -> R) {
        self.to.iter_mut().zip(self.a).zip(self.b).for_each(|((d, a), b)| *d = f(*a, *b).into());
    }
}

pub(super) fn apply_unary(op: UnaryOp, dtype: DType, d: &mut Lanes, a: &Lanes, n: usize) {
    match (d, a) {
        (Lanes::F32(d), Lanes::F32(a)) => op.with(Into { to: &mut d[..n], a: &a[..n], b: &[] }),
        (Lanes::F64(d), Lanes::F64(a)) => op.with(Into { to: &mut d[..n], a: &a[..n], b: &[] }),
        (Lanes::I64(d), Lanes::I64(a)) => {
            d[..n].iter_mut().zip(&a[..n]).for_each(|(d, a)| *d = op.of_int(dtype, *a));
        }
        (d, a) => (0..n).for_each(|i| d.set(i, unary(op, dtype, a.get(i)))),
    }
}

pub(super) fn apply_binary(op: BinaryOp, dtype: DType, d: &mut Lanes, a: &Lanes, b: &Lanes, n: usize) {
    match (d, a, b) {
        (Lanes::F32(d), Lanes::F32(a), Lanes::F32(b)) => op.with(Into { to: &mut d[..n], a: &a[..n], b: &b[..n] }),
        (Lanes::F64(d), Lanes::F64(a), Lanes::F64(b)) => op.with(Into { to: &mut d[..n], a: &a[..n], b: &b[..n] }),
        (Lanes::I64(d), Lanes::I64(a), Lanes::I64(b)) => {
            op.with_ints(dtype, Into { to: &mut d[..n], a: &a[..n], b: &b[..n] });
        }
        (Lanes::Bool(d), Lanes::F32(a), Lanes::F32(b)) => {
            op.with_comparison(Into { to: &mut d[..n], a: &a[..n], b: &b[..n] });
        }
        (Lanes::Bool(d), Lanes::I64(a), Lanes::I64(b)) if dtype != DType::U64 => {
            op.with_comparison(Into { to: &mut d[..n], a: &a[..n], b: &b[..n] });
        }
        (d, a, b) => (0..n).for_each(|i| d.set(i, binary(op, dtype, a.get(i), b.get(i)))),
    }
}

pub(super) fn apply_cast(from: DType, to: DType, d: &mut Lanes, a: &Lanes, n: usize) {
    match (d, a) {
        (Lanes::F32(d), Lanes::F32(a)) => {
            let pairs = d[..n].iter_mut().zip(&a[..n]);
            match to {
                DType::F16 => pairs.for_each(|(d, a)| *d = f16::from_f32(*a).to_f32()),
                DType::BF16 => pairs.for_each(|(d, a)| *d = bf16::from_f32(*a).to_f32()),
                _ => pairs.for_each(|(d, a)| *d = *a),
            }
        }
        (Lanes::F64(d), Lanes::F32(a)) => d[..n].iter_mut().zip(&a[..n]).for_each(|(d, a)| *d = *a as f64),
        (Lanes::F32(d), Lanes::F64(a)) if to == DType::F32 => {
            d[..n].iter_mut().zip(&a[..n]).for_each(|(d, a)| *d = *a as f32);
        }
        (Lanes::I64(d), Lanes::I64(a)) => d[..n].iter_mut().zip(&a[..n]).for_each(|(d, a)| *d = to.wrap(*a)),
        (Lanes::I64(d), Lanes::F32(a)) => {
            d[..n].iter_mut().zip(&a[..n]).for_each(|(d, a)| *d = to.saturate(*a as f64));
        }
        (Lanes::F32(d), Lanes::I64(a)) if to == DType::F32 && from != DType::U64 => {
            d[..n].iter_mut().zip(&a[..n]).for_each(|(d, a)| *d = *a as f32);
        }
        (Lanes::I64(d), Lanes::Bool(a)) => d[..n].iter_mut().zip(&a[..n]).for_each(|(d, a)| *d = *a as i64),
        (Lanes::Bool(d), Lanes::Bool(a)) => d[..n].copy_from_slice(&a[..n]),
        (d, a) => (0..n).for_each(|i| d.set(i, cast(from, to, a.get(i)))),
    }
}

pub(super) fn apply_select(d: &mut Lanes, cond: &[u8], a: &Lanes, b: &Lanes, n: usize) {
    fn pick<T: Copy>(d: &mut [T], cond: &[u8], a: &[T], b: &[T]) {
        for (((d, c), a), b) in d.iter_mut().zip(cond).zip(a).zip(b) {
            *d = if *c != 0 { *a } else { *b };
        }
    }
    match (d, a, b) {
        (Lanes::F32(d), Lanes::F32(a), Lanes::F32(b)) => pick(&mut d[..n], cond, a, b),
        (Lanes::F64(d), Lanes::F64(a), Lanes::F64(b)) => pick(&mut d[..n], cond, a, b),
        (Lanes::I64(d), Lanes::I64(a), Lanes::I64(b)) => pick(&mut d[..n], cond, a, b),
        (Lanes::Bool(d), Lanes::Bool(a), Lanes::Bool(b)) => pick(&mut d[..n], cond, a, b),
        _ => {}
    }
}

/// Indices as values of `dtype`.
pub(super) fn store_index(d: &mut Lanes, dtype: DType, values: &[i64]) {
    match d {
        Lanes::I64(d) => d.iter_mut().zip(values).for_each(|(d, v)| *d = dtype.wrap(*v)),
        d => values.iter().enumerate().for_each(|(i, v)| d.set(i, cast(DType::I64, dtype, Num::I(*v)))),
    }
}

/// Writes the first `n` lanes as elements of `dtype`, rounding narrow floats.
pub(super) fn write_elements(out: &mut [u8], dtype: DType, lanes: &Lanes, n: usize) {
    macro_rules! go {
        ($v:expr, $t:ty, $f:expr) => {{
            let out: &mut [$t] = bytemuck::cast_slice_mut(out);
            out[..n].iter_mut().zip(&$v[..n]).for_each(|(o, x)| *o = $f(*x))
        }};
    }
    match (lanes, dtype) {
        (Lanes::F32(v), DType::F32) => out[..n * 4].copy_from_slice(bytemuck::cast_slice(&v[..n])),
        (Lanes::F32(v), DType::F16) => go!(v, f16, f16::from_f32),
        (Lanes::F32(v), DType::BF16) => go!(v, bf16, bf16::from_f32),
        (Lanes::F64(v), DType::F64) => out[..n * 8].copy_from_slice(bytemuck::cast_slice(&v[..n])),
        (Lanes::F64(v), DType::F32) => go!(v, f32, |x| x as f32),
        (Lanes::F64(v), DType::F16) => go!(v, f16, |x| f16::from_f32(x as f32)),
        (Lanes::F64(v), DType::BF16) => go!(v, bf16, |x| bf16::from_f32(x as f32)),
        (Lanes::Bool(v), DType::Bool) => out[..n].copy_from_slice(&v[..n]),
        (Lanes::I64(v), DType::Bool) => go!(v, u8, |x| (x != 0) as u8),
        (Lanes::I64(v), DType::U8) => go!(v, u8, |x| x as u8),
        (Lanes::I64(v), DType::I8) => go!(v, i8, |x| x as i8),
        (Lanes::I64(v), DType::U16) => go!(v, u16, |x| x as u16),
        (Lanes::I64(v), DType::I16) => go!(v, i16, |x| x as i16),
        (Lanes::I64(v), DType::U32) => go!(v, u32, |x| x as u32),
        (Lanes::I64(v), DType::I32) => go!(v, i32, |x| x as i32),
        (Lanes::I64(v), DType::I64) => out[..n * 8].copy_from_slice(bytemuck::cast_slice(&v[..n])),
        (Lanes::I64(v), DType::U64) => go!(v, u64, |x| x as u64),
        _ => {}
    }
}
