//! Functions of lanes: one operation, many elements.

use crate::isa::{Isa, versions};
use crate::math::{self, Fused};
use crate::memory::Source;
use crate::strip_bodies::Chosen;
use std::rc::Rc;
use tensor_ir::dtype::DType;
use tensor_ir::interpreter::scalar::{self, Num};
use tensor_ir::tir::{BinaryOp, Real, UnaryOp, WithBinary, WithUnary};

/// Elements that are computed at once, at most.
pub(crate) const CHUNK: usize = 512;

/// Lanes of the type that a dtype is computed in: f32 for f32 and shorter, f64, and i64 for integers and bool.
pub(crate) enum Lanes<'m> {
    F(Source<'m, f32>),
    D(Source<'m, f64>),
    I(Source<'m, i64>),
}

/// Memory for lanes that is used again.
#[derive(Default)]
pub(crate) struct Free {
    f: Vec<Box<[f32]>>,
    d: Vec<Box<[f64]>>,
    i: Vec<Box<[i64]>>,
}

/// A lane type's own memory.
pub(crate) trait Lane: Copy + Default + 'static {
    fn list(free: &mut Free) -> &mut Vec<Box<[Self]>>;
}
macro_rules! lanes {
    ($($t:ty, $field:ident;)*) => { $(
        impl Lane for $t {
            fn list(free: &mut Free) -> &mut Vec<Box<[$t]>> { &mut free.$field }
        }
    )* };
}
lanes! { f32, f; f64, d; i64, i; }

impl Free {
    /// Memory for [`CHUNK`] lanes, with anything in it.
    pub(crate) fn take<T: Lane>(&mut self) -> Box<[T]> {
        T::list(self).pop().unwrap_or_else(|| vec![T::default(); CHUNK].into())
    }
    pub(crate) fn give<T: Lane>(&mut self, s: Source<'_, T>) {
        match s {
            Source::Own(lanes) => T::list(self).push(lanes),
            Source::Kept(lanes) => T::list(self).extend(Rc::try_unwrap(lanes)),
            Source::Splat(_) | Source::Memory(_) => {}
        }
    }
    pub(crate) fn give_lanes(&mut self, l: Lanes<'_>) {
        match l {
            Lanes::F(s) => self.give(s),
            Lanes::D(s) => self.give(s),
            Lanes::I(s) => self.give(s),
        }
    }
    /// `n` lanes of one's own with the content of `s`.
    pub(crate) fn own<T: Lane>(&mut self, s: Source<'_, T>, n: usize) -> Box<[T]> {
        match s {
            Source::Own(lanes) => lanes,
            Source::Splat(x) => {
                let mut to = self.take::<T>();
                to[..n].fill(x);
                to
            }
            other => {
                let mut to = self.take::<T>();
                to[..n].copy_from_slice(&other.lanes().unwrap_or(&[])[..n]);
                self.give(other);
                to
            }
        }
    }
}

impl<'m> Lanes<'m> {
    /// The same lanes twice.
    pub(crate) fn keep(self) -> [Lanes<'m>; 2] {
        match self {
            Lanes::F(s) => s.keep().map(Lanes::F),
            Lanes::D(s) => s.keep().map(Lanes::D),
            Lanes::I(s) => s.keep().map(Lanes::I),
        }
    }
}

versions! {
    fn map_f<F: Fn(f32) -> f32>(f: F, a: &mut [f32]) {
        for x in a {
            *x = f(*x);
        }
    }
}
versions! {
    fn map_from_f<F: Fn(f32) -> f32>(f: F, a: &mut [f32], from: &[f32]) {
        for (x, y) in a.iter_mut().zip(from) {
            *x = f(*y);
        }
    }
}
versions! {
    fn zip_f<F: Fn(f32, f32) -> f32>(f: F, to: &mut [f32], a: &[f32], b: &[f32]) {
        for ((t, a), b) in to.iter_mut().zip(a).zip(b) {
            *t = f(*a, *b);
        }
    }
}
versions! {
    fn into_f<F: Fn(f32, f32) -> f32>(f: F, a: &mut [f32], b: &[f32]) {
        for (a, b) in a.iter_mut().zip(b) {
            *a = f(*a, *b);
        }
    }
}
/// Elements whose polynomials are computed at once: a few vectors of any width.
const AT_ONCE: usize = 32;
versions! {
    fn polynomial_f(numbers: &[f32], a: &mut [f32]) {
        let mut chunks = a.chunks_exact_mut(AT_ONCE);
        for x in &mut chunks {
            let mut sums = [numbers[0]; AT_ONCE];
            for c in &numbers[1..] {
                sums.iter_mut().zip(x.iter()).for_each(|(s, x)| *s = *s * x + c);
            }
            x.copy_from_slice(&sums);
        }
        let rest = chunks.into_remainder();
        rest.iter_mut().for_each(|x| *x = numbers[1..].iter().fold(numbers[0], |s, c| s * *x + c));
    }
}
versions! {
    /// A function of each lane, of any type.
    fn map_any<A: Copy, B: Copy, F: Fn(A) -> B>(f: F, to: &mut [B], from: &[A]) {
        to.iter_mut().zip(from).for_each(|(t, x)| *t = f(*x));
    }
}
versions! {
    /// The same of two operands.
    fn zip_any<A: Copy, B: Copy, F: Fn(A, A) -> B>(f: F, to: &mut [B], a: &[A], b: &[A]) {
        to.iter_mut().zip(a.iter().zip(b)).for_each(|(t, (x, y))| *t = f(*x, *y));
    }
}
versions! {
    fn compare_f<F: Fn(f32, f32) -> bool>(f: F, to: &mut [i64], a: &[f32], b: &[f32]) {
        to.iter_mut().zip(a).zip(b).for_each(|((t, a), b)| *t = i64::from(f(*a, *b)));
    }
}

/// What the lanes of a chunk are computed with.
pub(crate) struct Ops<'a> {
    pub isa: Isa,
    pub free: &'a mut Free,
    /// Lanes.
    pub n: usize,
}

impl Ops<'_> {
    fn map(&mut self, a: Source<'_, f32>, f: impl Fn(f32) -> f32) -> Lanes<'static> {
        let n = self.n;
        Lanes::F(match a {
            Source::Splat(x) => Source::Splat(f(x)),
            Source::Own(mut lanes) => {
                map_f(self.isa, f, &mut lanes[..n]);
                Source::Own(lanes)
            }
            other => {
                let mut to = self.free.take::<f32>();
                map_from_f(self.isa, f, &mut to[..n], &other.lanes().unwrap_or(&[])[..n]);
                self.free.give(other);
                Source::Own(to)
            }
        })
    }
    fn zip(&mut self, a: Source<'_, f32>, b: Source<'_, f32>, f: impl Fn(f32, f32) -> f32) -> Lanes<'static> {
        let n = self.n;
        match (a, b) {
            (a, Source::Splat(y)) => self.map(a, |x| f(x, y)),
            (Source::Splat(x), b) => self.map(b, |y| f(x, y)),
            (Source::Own(mut to), b) => {
                into_f(self.isa, f, &mut to[..n], &b.lanes().unwrap_or(&[])[..n]);
                self.free.give(b);
                Lanes::F(Source::Own(to))
            }
            (a, Source::Own(mut to)) => {
                into_f(self.isa, |y, x| f(x, y), &mut to[..n], &a.lanes().unwrap_or(&[])[..n]);
                self.free.give(a);
                Lanes::F(Source::Own(to))
            }
            (a, b) => {
                let mut to = self.free.take::<f32>();
                let sides = [&a, &b].map(|s| s.lanes().unwrap_or(&[]));
                zip_f(self.isa, f, &mut to[..n], &sides[0][..n], &sides[1][..n]);
                self.free.give(a);
                self.free.give(b);
                Lanes::F(Source::Own(to))
            }
        }
    }
    fn compare(&mut self, a: Source<'_, f32>, b: Source<'_, f32>, f: impl Fn(f32, f32) -> bool) -> Lanes<'static> {
        if let (Source::Splat(x), Source::Splat(y)) = (&a, &b) {
            return Lanes::I(Source::Splat(i64::from(f(*x, *y))));
        }
        let (n, mut to) = (self.n, self.free.take::<i64>());
        let (a, b) = (self.free.own(a, n), self.free.own(b, n));
        compare_f(self.isa, f, &mut to[..n], &a[..n], &b[..n]);
        self.free.give(Source::Own(a));
        self.free.give(Source::Own(b));
        Lanes::I(Source::Own(to))
    }
    /// A function of lanes of any type.
    pub(crate) fn each<A: Lane, B: Lane>(&mut self, a: Source<'_, A>, f: impl Fn(A) -> B) -> Source<'static, B> {
        if let Source::Splat(x) = a {
            return Source::Splat(f(x));
        }
        let mut to = self.free.take::<B>();
        map_any(self.isa, f, &mut to[..self.n], a.lanes().unwrap_or(&[]));
        self.free.give(a);
        Source::Own(to)
    }
    /// The same of two.
    fn both<A: Lane, B: Lane>(
        &mut self,
        a: Source<'_, A>,
        b: Source<'_, A>,
        f: impl Fn(A, A) -> B,
    ) -> Source<'static, B> {
        if let (Err(x), Err(y)) = (a.lanes(), b.lanes()) {
            return Source::Splat(f(x, y));
        }
        let mut to = self.free.take::<B>();
        let lanes = &mut to[..self.n];
        match (a.lanes(), b.lanes()) {
            (Ok(x), Ok(y)) => zip_any(self.isa, f, lanes, x, y),
            (Ok(x), Err(y)) => map_any(self.isa, |x| f(x, y), lanes, x),
            (Err(x), Ok(y)) => map_any(self.isa, |y| f(x, y), lanes, y),
            (Err(x), Err(y)) => lanes.fill(f(x, y)),
        }
        self.free.give(a);
        self.free.give(b);
        Source::Own(to)
    }

    /// A function of one value of `dtype`.
    pub(crate) fn unary(&mut self, op: UnaryOp, dtype: DType, a: Lanes<'_>) -> Lanes<'static> {
        match (op, a) {
            (op, Lanes::I(a)) => Lanes::I(self.each(a, |x| op.of_int(dtype, x))),
            (op, Lanes::D(a)) if op.is_test() => Lanes::I(self.each(a, |x| (f64::unary(op, x) != 0.0) as i64)),
            (op, Lanes::D(a)) => Lanes::D(self.each(a, |x| f64::unary(op, x))),
            (op, Lanes::F(a)) if op.is_test() => Lanes::I(self.each(a, |x| (f32::unary(op, x) != 0.0) as i64)),
            // The system's own have branches.
            (UnaryOp::Exp, Lanes::F(a)) => self.map(a, |x| math::exp(Fused::<false>, x)),
            (UnaryOp::Tanh, Lanes::F(a)) => self.map(a, |x| math::tanh(Fused::<false>, x)),
            (op, Lanes::F(a)) => op.with(Mapped { ops: self, a }),
        }
    }
    /// A function of two values of `dtype`.
    pub(crate) fn binary(&mut self, op: BinaryOp, dtype: DType, a: Lanes<'_>, b: Lanes<'_>) -> Lanes<'static> {
        match (a, b) {
            (Lanes::F(a), Lanes::F(b)) => match op.is_comparison() {
                true => op.with_comparison(Zipped { ops: self, a, b }).unwrap_or_else(|| unreachable!("a comparison")),
                false => op.with::<f32, _>(Zipped { ops: self, a, b }),
            },
            (Lanes::D(a), Lanes::D(b)) if op.is_comparison() => {
                Lanes::I(self.both(a, b, |x, y| op.compare(x, y) as i64))
            }
            (Lanes::D(a), Lanes::D(b)) => Lanes::D(self.both(a, b, |x, y| f64::binary(op, x, y))),
            (Lanes::I(a), Lanes::I(b)) => op.with_ints(dtype, Zipped { ops: self, a, b }),
            _ => unreachable!("the verifier gives both operands one type"),
        }
    }
    /// `a` where `x` and `y`, of `dtype`, compare so; else `b`.
    pub(crate) fn choose(&mut self, op: BinaryOp, dtype: DType, [x, y, a, b]: [Lanes<'_>; 4]) -> Lanes<'static> {
        match (x, y, a, b) {
            (Lanes::F(x), Lanes::F(y), Lanes::F(a), Lanes::F(b)) => Lanes::F(self.choose_floats(op, [x, y], [a, b])),
            (x, y, a, b) => {
                let chosen = self.binary(op, dtype, x, y);
                let Lanes::I(chosen) = chosen else { unreachable!("a comparison gives a bool") };
                let mask: Vec<u8> = (0..self.n).map(|i| u8::from(chosen.at(i) != 0)).collect();
                self.free.give(chosen);
                self.select(&mask, a, b)
            }
        }
    }
    fn choose_floats(
        &mut self,
        op: BinaryOp,
        by: [Source<'_, f32>; 2],
        from: [Source<'_, f32>; 2],
    ) -> Source<'static, f32> {
        let n = self.n;
        let mut to = self.free.take::<f32>();
        let all = [by, from].map(|pair| pair.map(|s| self.filled(s)));
        let [by, from] = [0, 1].map(|i| [0, 1].map(|j| &all[i][j].lanes().unwrap_or(&[])[..n]));
        op.with_comparison::<f32, _>(Chosen { isa: self.isa, to: &mut to[..n], by, limit: None, from });
        all.into_iter().flatten().for_each(|s| self.free.give(s));
        Source::Own(to)
    }
    /// The lanes in memory, also where they are all the same.
    fn filled<'m>(&mut self, s: Source<'m, f32>) -> Source<'m, f32> {
        match s {
            Source::Splat(_) => Source::Own(self.free.own(s, self.n)),
            other => other,
        }
    }
    /// A polynomial, by its numbers, that of the highest power first.
    pub(crate) fn polynomial(&mut self, numbers: &[f32], x: Lanes<'_>) -> Lanes<'static> {
        let Lanes::F(x) = x else { unreachable!("the numbers of a polynomial have the type of its lanes") };
        match x {
            Source::Splat(x) => Lanes::F(Source::Splat(numbers[1..].iter().fold(numbers[0], |s, c| s * x + c))),
            x => {
                let mut to = self.free.own(x, self.n);
                polynomial_f(self.isa, numbers, &mut to[..self.n]);
                Lanes::F(Source::Own(to))
            }
        }
    }
    /// A conversion.
    pub(crate) fn cast<'m>(&mut self, from: DType, to: DType, a: Lanes<'m>) -> Lanes<'m> {
        let number = |x: f64| match scalar::cast(DType::F64, to, Num::F(x)) {
            Num::I(i) => i,
            Num::F(x) => x as i64,
        };
        match (a, to) {
            (Lanes::F(a), DType::F64) => Lanes::D(self.each(a, f64::from)),
            // Halves keep the precision of f32 until they are stored.
            (Lanes::F(a), t) if t.is_float() => Lanes::F(a),
            (Lanes::F(a), DType::U8) => Lanes::I(self.each(a, |x| i64::from(x as u8))),
            (Lanes::F(a), DType::I8) => Lanes::I(self.each(a, |x| i64::from(x as i8))),
            (Lanes::F(a), DType::I32) => Lanes::I(self.each(a, |x| i64::from(x as i32))),
            (Lanes::F(a), _) => Lanes::I(self.each(a, |x| number(f64::from(x)))),
            (Lanes::D(a), DType::F64) => Lanes::D(a),
            (Lanes::D(a), t) if t.is_float() => Lanes::F(self.each(a, |x| x as f32)),
            (Lanes::D(a), _) => Lanes::I(self.each(a, number)),
            (Lanes::I(a), DType::F64) => Lanes::D(self.each(a, |x| real(from, x))),
            // Exact in f64, so one rounding.
            (Lanes::I(a), DType::F32) if from.size() < 8 => Lanes::F(self.each(a, |x| x as f32)),
            (Lanes::I(a), t) if t.is_float() => Lanes::F(self.each(a, |x| t.round(real(from, x)) as f32)),
            (Lanes::I(a), t) => Lanes::I(self.each(a, |x| t.wrap(x))),
        }
    }
    /// `a` where the mask is set, else `b`.
    pub(crate) fn select(&mut self, mask: &[u8], a: Lanes<'_>, b: Lanes<'_>) -> Lanes<'static> {
        match (a, b) {
            (Lanes::F(a), Lanes::F(b)) => Lanes::F(self.blend(mask, a, b)),
            (Lanes::D(a), Lanes::D(b)) => Lanes::D(self.blend(mask, a, b)),
            (Lanes::I(a), Lanes::I(b)) => Lanes::I(self.blend(mask, a, b)),
            _ => unreachable!("the verifier gives both sides one type"),
        }
    }
    fn blend<T: Lane>(&mut self, mask: &[u8], a: Source<'_, T>, b: Source<'_, T>) -> Source<'static, T> {
        let mut to = self.free.own(a, self.n);
        for (i, t) in to[..self.n].iter_mut().enumerate() {
            *t = if mask[i] != 0 { *t } else { b.at(i) };
        }
        self.free.give(b);
        Source::Own(to)
    }
}

/// The function of one operand.
struct Mapped<'o, 'a, 's> {
    ops: &'o mut Ops<'a>,
    a: Source<'s, f32>,
}

impl WithUnary<f32> for Mapped<'_, '_, '_> {
    type Out = Lanes<'static>;
    fn with(self, f: impl Fn(f32) -> f32) -> Lanes<'static> {
        self.ops.map(self.a, f)
    }
}

/// The function of two operands.
struct Zipped<'o, 'a, 's, T: Lane> {
    ops: &'o mut Ops<'a>,
    a: Source<'s, T>,
    b: Source<'s, T>,
}

impl WithBinary<f32, f32> for Zipped<'_, '_, '_, f32> {
    type Out = Lanes<'static>;
    fn with(self, f: impl Fn(f32, f32) -> f32) -> Lanes<'static> {
        self.ops.zip(self.a, self.b, f)
    }
}

impl WithBinary<f32, bool> for Zipped<'_, '_, '_, f32> {
    type Out = Lanes<'static>;
    fn with(self, f: impl Fn(f32, f32) -> bool) -> Lanes<'static> {
        self.ops.compare(self.a, self.b, f)
    }
}

impl WithBinary<i64, i64> for Zipped<'_, '_, '_, i64> {
    type Out = Lanes<'static>;
    fn with(self, f: impl Fn(i64, i64) -> i64) -> Lanes<'static> {
        Lanes::I(self.ops.both(self.a, self.b, f))
    }
}

fn real(from: DType, x: i64) -> f64 {
    if from == DType::U64 { x as u64 as f64 } else { x as f64 }
}
