//! Bodies of the steps of strips, compiled for each instruction set: a few vectors at once, the last ones padded.

use crate::isa::{Isa, versions};
use crate::math::{self, Fused};
use crate::turned::turn;
use tensor_ir::tir::{Combiner, UnaryOp, WithBinary};

/// Lanes that are computed at once: a few vectors of any width.
const AT_ONCE: usize = 32;
type Block = [f32; AT_ONCE];
/// Rows whose partial results are joined together, and these of each.
const ROWS: usize = 16;
const PARTS: usize = 16;
/// Partial results of a fold.
pub(crate) const SUMS: usize = 64;

/// Does `$body` with blocks of lanes one after another, each under its name. Behind the whole blocks some lanes are
/// computed twice, as part of another block; where they replace an operand, or are fewer than a block, they are a block
/// that is filled with ones. A macro, so that its loop is part of the function around it, whose instructions others do
/// not have.
macro_rules! blocks {
    ($to:ident, [$($from:ident),*], $body:expr) => {{
        let lanes = $to;
        let n = lanes.len();
        $(let $from = &$from[..n];)*
        let replaces = false $(|| std::ptr::eq($from.as_ptr().cast(), lanes.as_ptr().cast::<f32>()))*;
        let end = if replaces || n < AT_ONCE { n / AT_ONCE * AT_ONCE } else { n };
        // No call is in this loop, so that registers keep numbers.
        for at in (0..end).step_by(AT_ONCE) {
            let at = at.min(n - AT_ONCE);
            let ($to, $($from),*) = (block_mut(lanes, at), $(block_of($from, at)),*);
            $body;
        }
        if end < n {
            let mut last = [Default::default(); AT_ONCE];
            $(let $from = &padded(&$from[end..]);)*
            let $to = &mut last;
            $body;
            lanes[end..].copy_from_slice(&last[..n - end]);
        }
    }};
}

/// The block of lanes from `at` on.
#[inline(always)]
fn block_of<T>(lanes: &[T], at: usize) -> &[T; AT_ONCE] {
    lanes[at..].first_chunk().expect("operands have the lanes of the result")
}

/// The block of lanes from `at` on.
#[inline(always)]
fn block_mut<T>(lanes: &mut [T], at: usize) -> &mut [T; AT_ONCE] {
    lanes[at..].first_chunk_mut().expect("lanes have a whole block there")
}

/// A block of these lanes, filled with ones.
#[inline(always)]
fn padded<T: From<i8> + Copy>(lanes: &[T]) -> [T; AT_ONCE] {
    let mut all = [T::from(1); AT_ONCE];
    all[..lanes.len()].copy_from_slice(lanes);
    all
}

/// Lanes of four bytes: f32 or i32.
pub(crate) trait Word: Copy + Default + From<i8> {}
impl Word for f32 {}
impl Word for i32 {}

/// Lanes of two operands, by a comparison of two others.
pub(crate) struct Chosen<'l, T> {
    pub isa: Isa,
    pub to: &'l mut [f32],
    pub by: [&'l [T]; 2],
    /// The first is compared with it instead of the second.
    pub limit: Option<T>,
    pub from: [&'l [f32]; 2],
}

impl<T: Word> WithBinary<T, bool> for Chosen<'_, T> {
    type Out = ();
    fn with(self, f: impl Fn(T, T) -> bool) {
        let ([x, y], [a, b]) = (self.by, self.from);
        match self.limit {
            Some(limit) => choose(self.isa, |x, _| f(x, limit), self.to, x, x, a, b),
            None => choose(self.isa, f, self.to, x, y, a, b),
        }
    }
}

versions! {
    fn map<T: Word, F: Fn(T) -> T>(f: F, to: &mut [T], a: &[T]) {
        blocks!(to, [a], for (to, x) in to.iter_mut().zip(a) { *to = f(*x) });
    }
}
versions! {
    fn zip<T: Word, F: Fn(T, T) -> T>(f: F, to: &mut [T], a: &[T], b: &[T]) {
        blocks!(to, [a, b], for (to, (x, y)) in to.iter_mut().zip(a.iter().zip(b)) { *to = f(*x, *y) });
    }
}
versions! {
    fn choose<T: Word, F: Fn(T, T) -> bool>(f: F, to: &mut [f32], x: &[T], y: &[T], a: &[f32], b: &[f32]) {
        blocks!(to, [x, y, a, b], for (i, to) in to.iter_mut().enumerate() {
            let (a, b) = (a[i], b[i]);
            *to = if f(x[i], y[i]) { a } else { b };
        });
    }
}
versions! {
    fn compare<F: Fn(f32, f32) -> bool>(f: F, to: &mut [i32], a: &[f32], b: &[f32]) {
        blocks!(to, [a, b], for (to, (x, y)) in to.iter_mut().zip(a.iter().zip(b)) { *to = i32::from(f(*x, *y)) });
    }
}
versions! {
    /// Lanes that have integers, as numbers.
    fn numbers(lanes: &mut [f32]) {
        lanes.iter_mut().for_each(|x| *x = x.to_bits() as i32 as f32);
    }
}
versions! {
    fn floats(to: &mut [f32], a: &[i32]) {
        blocks!(to, [a], for (to, x) in to.iter_mut().zip(a) { *to = *x as f32 });
    }
}
versions! {
    /// Integers between two, which floats have exactly; NaN is 0.
    fn to_ints(ends: [f32; 2], to: &mut [i32], a: &[f32]) {
        blocks!(to, [a], for (to, x) in to.iter_mut().zip(a) {
            let known = if x.is_nan() { 0.0 } else { *x };
            let above = if known < ends[0] { ends[0] } else { known };
            let held = if above > ends[1] { ends[1] } else { above };
            // SAFETY: a number between two that an i32 has.
            *to = unsafe { held.to_int_unchecked::<i32>() };
        });
    }
}
versions! {
    /// Numbers as integers of 64 bits, rounded towards 0; NaN is 0.
    fn to_longs(to: &mut [i64], a: &[f32]) {
        for (to, a) in to.chunks_mut(AT_ONCE).zip(a.chunks(AT_ONCE)) {
            // Vectors have no other conversion everywhere.
            if a.iter().fold(true, |all, x| all & (x.abs() < 2_147_483_648.0)) {
                // SAFETY: a number that an i32 has.
                to.iter_mut().zip(a).for_each(|(to, x)| *to = i64::from(unsafe { x.to_int_unchecked::<i32>() }));
            } else {
                to.iter_mut().zip(a).for_each(|(to, x)| *to = *x as i64);
            }
        }
    }
}
versions! {
    /// Bytes as integers of 32 bits.
    fn widen_bytes(signed: bool, from: &[u8], to: &mut [f32]) {
        match signed {
            true => to.iter_mut().zip(from).for_each(|(to, x)| *to = f32::from_bits(i32::from(*x as i8) as u32)),
            false => to.iter_mut().zip(from).for_each(|(to, x)| *to = f32::from_bits(u32::from(*x))),
        }
    }
}
versions! {
    /// Combines integers with partial results, as many of each.
    fn fold_ints<F: Fn(i32, i32) -> i32>(f: F, lanes: &[i32], sums: &mut [i32; SUMS]) {
        for block in lanes.chunks(SUMS) {
            for (sum, x) in sums.iter_mut().zip(block) {
                *sum = f(*sum, *x);
            }
        }
    }
}
/// Calls a function with what a combiner does with two numbers.
macro_rules! with_combiner {
    ($combiner:expr, |$f:ident| $e:expr) => {
        match $combiner {
            Combiner::Sum => {
                let $f = |a: f32, x: f32| a + x;
                $e
            }
            Combiner::Prod => {
                let $f = |a: f32, x: f32| a * x;
                $e
            }
            Combiner::Max => {
                let $f = max;
                $e
            }
            Combiner::Min => {
                let $f = min;
                $e
            }
        }
    };
}

/// Combines as many numbers with as many others. Loops here are no iterators with closures: those are compiled for the
/// plain machine where they are not inlined.
#[inline(always)]
fn pairs(sums: &mut [f32], others: &[f32], f: &impl Fn(f32, f32) -> f32) {
    for (sum, x) in sums.iter_mut().zip(others) {
        *sum = f(*sum, *x);
    }
}

/// Combines the second half of the first `N` numbers with the first half.
#[inline(always)]
fn halve<const N: usize>(sums: &mut [f32], f: &impl Fn(f32, f32) -> f32) {
    let (low, high) = sums[..N].split_at_mut(N / 2);
    pairs(low, high, f);
}

/// Combines lanes with partial results, as many of each.
#[inline(always)]
fn combine(lanes: &[f32], sums: &mut [f32; SUMS], f: impl Fn(f32, f32) -> f32) {
    let chunks = lanes.chunks_exact(SUMS);
    let rest = chunks.remainder();
    let mut own = *sums;
    for c in chunks {
        pairs(&mut own, c, &f);
    }
    *sums = own;
    if rest.is_empty() {
        return;
    }
    // In halves: vectors of any width.
    let (short, last) = rest.split_at(rest.len() / 16 * 16);
    for (sums, c) in sums.chunks_exact_mut(16).zip(short.chunks_exact(16)) {
        pairs(sums, c, &f);
    }
    pairs(sums, last, &f);
}

/// All partial results as one.
#[inline(always)]
fn joined(sums: &mut [f32; SUMS], f: impl Fn(f32, f32) -> f32) -> f32 {
    halve::<64>(sums, &f);
    halve::<32>(sums, &f);
    halve::<16>(sums, &f);
    halve::<8>(sums, &f);
    halve::<4>(sums, &f);
    f(sums[0], sums[1])
}

versions! {
    /// Combines lanes with partial results, as many of each.
    fn fold(lanes: &[f32], combiner: Combiner, sums: &mut [f32; SUMS]) {
        with_combiner!(combiner, |f| combine(lanes, sums, f));
    }
}
/// Partial results of some rows, and the same turned.
type Parts = [[f32; PARTS]; ROWS];

/// Combines the lanes of each row, as many of all, into its result; `nothing` changes none.
pub(crate) fn fold_rows(isa: Isa, lanes: &[f32], combiner: Combiner, nothing: f32, to: &mut [f32]) {
    let length = lanes.len() / to.len();
    let (mut parts, mut turned): (Parts, Parts) = ([[nothing; PARTS]; ROWS], [[nothing; PARTS]; ROWS]);
    for (rows, to) in lanes.chunks(length * ROWS).zip(to.chunks_mut(ROWS)) {
        if to.len() == 1 {
            let mut sums = [nothing; SUMS];
            fold(isa, rows, combiner, &mut sums);
            one(isa, combiner, &mut sums, &mut to[0]);
            continue;
        }
        fold_parts(isa, rows, combiner, nothing, &mut parts[..to.len()]);
        let (from, into) = (parts.as_ptr().cast(), turned.as_mut_ptr().cast());
        // SAFETY: both have as many rows as columns.
        unsafe { turn::<f32>(isa, (from, PARTS as isize), (into, ROWS as isize), [PARTS, ROWS]) };
        join_parts(isa, combiner, &turned, to);
    }
}

versions! {
    /// Combines the lanes of each row to partial results.
    fn fold_parts(lanes: &[f32], combiner: Combiner, nothing: f32, parts: &mut [[f32; PARTS]]) {
        #[inline(always)]
        fn each(lanes: &[f32], nothing: f32, parts: &mut [[f32; PARTS]], f: impl Fn(f32, f32) -> f32) {
            for (row, part) in lanes.chunks_exact(lanes.len() / parts.len()).zip(parts) {
                let mut sums = [nothing; SUMS];
                combine(row, &mut sums, &f);
                halve::<64>(&mut sums, &f);
                halve::<32>(&mut sums, &f);
                part.copy_from_slice(&sums[..PARTS]);
            }
        }
        with_combiner!(combiner, |f| each(lanes, nothing, parts, f));
    }
}
versions! {
    /// Combines partial results, which lie below each other for a row.
    fn join_parts(combiner: Combiner, turned: &Parts, to: &mut [f32]) {
        #[inline(always)]
        fn all(turned: &Parts, to: &mut [f32], f: impl Fn(f32, f32) -> f32) {
            let mut joined = turned[0];
            for x in &turned[1..] {
                pairs(&mut joined, x, &f);
            }
            to.copy_from_slice(&joined[..to.len()]);
        }
        with_combiner!(combiner, |f| all(turned, to, f));
    }
}

/// The larger one; NaN if one is.
#[inline(always)]
fn max(a: f32, b: f32) -> f32 {
    let larger = if a > b { a } else { b };
    if a.is_nan() { a } else { larger }
}

/// The smaller one; NaN if one is.
#[inline(always)]
fn min(a: f32, b: f32) -> f32 {
    let smaller = if a < b { a } else { b };
    if a.is_nan() { a } else { smaller }
}

versions! {
    /// All partial results as one.
    fn one(combiner: Combiner, sums: &mut [f32; SUMS], to: &mut f32) {
        *to = with_combiner!(combiner, |f| joined(sums, f));
    }
}

/// Functions whose own bodies have products and sums in one step where the machine has that.
macro_rules! fused {
    ($($name:ident($to:ident $(, $arg:ident: $t:ty)*) = |$m:ident, $a:ident| $body:expr;)*) => { $(
        pub(crate) fn $name(isa: Isa, $($arg: $t,)* $to: &mut [f32], $a: &[f32]) {
            #[inline(always)]
            fn body<const FUSED: bool>($($arg: $t,)* $to: &mut [f32], $a: &[f32]) {
                let $m = Fused::<FUSED>;
                blocks!($to, [$a], $body);
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f")]
            fn avx512($($arg: $t,)* $to: &mut [f32], $a: &[f32]) { body::<true>($($arg,)* $to, $a) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $t,)* $to: &mut [f32], $a: &[f32]) { body::<true>($($arg,)* $to, $a) }
            match isa {
                // SAFETY (both): such values come from `Isa::is_available`, which asks the processor.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => unsafe { avx512($($arg,)* $to, $a) },
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => unsafe { avx2($($arg,)* $to, $a) },
                Isa::Neon => body::<true>($($arg,)* $to, $a),
                _ => body::<false>($($arg,)* $to, $a),
            }
        }
    )* };
}

/// A polynomial of each lane.
#[inline(always)]
fn polynomials<const F: bool>(m: Fused<F>, numbers: &[f32], to: &mut Block, a: &Block) {
    let mut sums = [numbers[0]; AT_ONCE];
    for c in &numbers[1..] {
        for (sum, x) in sums.iter_mut().zip(a) {
            *sum = m.fma(*sum, *x, *c);
        }
    }
    *to = sums;
}

/// Computes lanes again whose angles are too great for the body without branches.
#[inline(always)]
fn beyond(f: fn(f32) -> f32, to: &mut Block, a: &Block) {
    let within = |x: &f32| x.abs() <= math::GREATEST_ANGLE;
    if !a.iter().fold(true, |all, x| all & within(x)) {
        to.iter_mut().zip(a).filter(|(_, x)| !within(x)).for_each(|(to, x)| *to = f(*x));
    }
}

fused! {
    sin(to) = |m, a| {
        for (to, x) in to.iter_mut().zip(a) { *to = math::sin(m, *x) }
        beyond(f32::sin, to, a);
    };
    cos(to) = |m, a| {
        for (to, x) in to.iter_mut().zip(a) { *to = math::cos(m, *x) }
        beyond(f32::cos, to, a);
    };
    exp(to) = |m, a| for (to, x) in to.iter_mut().zip(a) { *to = math::exp(m, *x) };
    tanh(to) = |m, a| for (to, x) in to.iter_mut().zip(a) { *to = math::tanh(m, *x) };
    log(to) = |m, a| for (to, x) in to.iter_mut().zip(a) { *to = math::log(m, *x) };
    polynomial(to, numbers: &[f32]) = |m, a| polynomials(m, numbers, to, a);
}

/// The function, if there is a body without branches of it.
pub(crate) fn special(isa: Isa, op: UnaryOp, to: &mut [f32], a: &[f32]) -> bool {
    match op {
        UnaryOp::Exp => exp(isa, to, a),
        UnaryOp::Tanh => tanh(isa, to, a),
        UnaryOp::Log => log(isa, to, a),
        UnaryOp::Sin => sin(isa, to, a),
        UnaryOp::Cos => cos(isa, to, a),
        _ => return false,
    }
    true
}
