//! Reductions of whole runs of f32: each of many lanes adds up the taps of a window, or takes their extremum.

use crate::isa::Isa;
use crate::isa::versions;
use crate::program::Walk;
use tensor_ir::tir::Combiner;

/// Lanes whose sums are kept while taps go by.
const BLOCK: usize = 64;

/// The operands of one tap: `None` for the right one of a plain sum.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'m> {
    /// All lanes, or the one element that all of them read.
    pub left: &'m [f32],
    pub right: &'m [f32],
}

/// `a * b + c`, in one rounding where the machine has that.
#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Adds a product of two operands, of which `SPLAT` (1 or 2; 0 for none) is one element, for `N` lanes from `at` on.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn block<const FUSED: bool, const SPLAT: usize, const N: usize>(acc: &mut [f32], at: usize, taps: &[Operand<'_>]) {
    let out: &mut [f32; N] = (&mut acc[at..at + N]).try_into().expect("N lanes");
    let mut sums = *out;
    for t in taps {
        let lanes = |s: &[f32]| -> [f32; N] { s[at..at + N].try_into().expect("N lanes") };
        let a = if SPLAT == 1 { [t.left[0]; N] } else { lanes(t.left) };
        let b = if SPLAT == 2 { [t.right[0]; N] } else { lanes(t.right) };
        for i in 0..N {
            sums[i] = multiply_add::<FUSED>(a[i], b[i], sums[i]);
        }
    }
    *out = sums;
}

#[inline(always)]
fn all_blocks<const FUSED: bool, const SPLAT: usize>(acc: &mut [f32], taps: &[Operand<'_>]) {
    let mut at = 0;
    while at + BLOCK <= acc.len() {
        block::<FUSED, SPLAT, BLOCK>(acc, at, taps);
        at += BLOCK;
    }
    while at + 16 <= acc.len() {
        block::<FUSED, SPLAT, 16>(acc, at, taps);
        at += 16;
    }
    while at + 8 <= acc.len() {
        block::<FUSED, SPLAT, 8>(acc, at, taps);
        at += 8;
    }
    while at < acc.len() {
        block::<FUSED, SPLAT, 1>(acc, at, taps);
        at += 1;
    }
}

#[inline(always)]
fn products_by<const FUSED: bool>(acc: &mut [f32], taps: &[Operand<'_>], splat: usize) {
    match splat {
        1 => all_blocks::<FUSED, 1>(acc, taps),
        2 => all_blocks::<FUSED, 2>(acc, taps),
        _ => all_blocks::<FUSED, 0>(acc, taps),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn products_avx512(acc: &mut [f32], taps: &[Operand<'_>], splat: usize) {
    products_by::<true>(acc, taps, splat)
}
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn products_avx2(acc: &mut [f32], taps: &[Operand<'_>], splat: usize) {
    products_by::<true>(acc, taps, splat)
}

/// Adds the products of each tap to `acc`; `splat` says which operand is one element.
pub(crate) fn products(isa: Isa, acc: &mut [f32], taps: &[Operand<'_>], splat: usize) {
    match isa {
        // SAFETY: only available instruction sets are asked for.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { products_avx512(acc, taps, splat) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { products_avx2(acc, taps, splat) },
        Isa::Neon => products_by::<true>(acc, taps, splat),
        _ => products_by::<false>(acc, taps, splat),
    }
}

versions! {
    /// Combines each tap into `acc`; a tap of one element is the same for all lanes.
    fn combine(acc: &mut [f32], taps: &[Operand<'_>], combiner: Combiner) {
        for t in taps {
            combine_one(acc, t.left, combiner);
        }
    }
}

#[inline(always)]
fn combine_one(acc: &mut [f32], tap: &[f32], combiner: Combiner) {
    #[inline(always)]
    fn all(acc: &mut [f32], tap: &[f32], f: impl Fn(f32, f32) -> f32) {
        match tap {
            [one] => acc.iter_mut().for_each(|a| *a = f(*a, *one)),
            lanes => acc.iter_mut().zip(lanes).for_each(|(a, x)| *a = f(*a, *x)),
        }
    }
    match combiner {
        Combiner::Sum => all(acc, tap, |a, x| a + x),
        Combiner::Prod => all(acc, tap, |a, x| a * x),
        Combiner::Max => all(acc, tap, |a, x| if a.is_nan() || a > x { a } else { x }),
        Combiner::Min => all(acc, tap, |a, x| if a.is_nan() || a < x { a } else { x }),
    }
}

versions! {
    /// Combines all lanes into one.
    fn fold(lanes: &[f32], combiner: Combiner, out: &mut f32) {
        let mut parts = [lanes[0]; 32];
        let n = lanes.len() / 32 * 32;
        if n > 0 {
            parts.copy_from_slice(&lanes[..32]);
            for chunk in lanes[32..n].chunks_exact(32) {
                combine_one(&mut parts, chunk, combiner);
            }
        }
        let (mut rest, used) = if n > 0 { (parts[0], &parts[1..]) } else { (lanes[0], &lanes[1..1]) };
        let tail = if n > 0 { &lanes[n..] } else { &lanes[1..] };
        for x in used.iter().chain(tail) {
            let mut one = [rest];
            combine_one(&mut one, std::slice::from_ref(x), combiner);
            rest = one[0];
        }
        *out = rest;
    }
}

/// A tap of a run: pointers to what it reads in iteration 0 and the lanes there, and the iterations in which it is no
/// padding.
pub(crate) struct PlacedTap {
    pub left: (*const f32, usize),
    pub right: (*const f32, usize),
    pub low: i64,
    pub high: i64,
}

impl PlacedTap {
    /// What it reads in an iteration from `low` to `high`.
    pub(crate) fn operand<'m>(&self, pixel: i64, walk: &Walk) -> Operand<'m> {
        // SAFETY: `Task::add_tap` has checked these iterations against the buffers, which nothing else writes
        // meanwhile.
        let lanes = |(at, n): (*const f32, usize), step: i64| unsafe {
            std::slice::from_raw_parts(at.wrapping_offset((pixel * step) as isize), n)
        };
        Operand { left: lanes(self.left, walk.left), right: lanes(self.right, walk.right) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_folds_are_those_of_single_lanes() {
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            for n in [1, 7, 16, 31, 64, 100, 203] {
                let number = |i: usize| ((i * 5 + 1) % 9) as f32 - 4.0;
                let x: Vec<f32> = (0..n + 3).map(number).collect();
                let y: Vec<f32> = (0..n + 3).map(|i| number(i + 2)).collect();
                for splat in 0..3 {
                    let of = |s: &'static str, v: &'_ [f32], t: usize| -> Vec<f32> {
                        let one = (s == "left" && splat == 1) || (s == "right" && splat == 2);
                        if one { vec![v[t]] } else { v[t..t + n].to_vec() }
                    };
                    let operands: Vec<(Vec<f32>, Vec<f32>)> =
                        (0..3).map(|t| (of("left", &x, t), of("right", &y, t))).collect();
                    let taps: Vec<Operand<'_>> = operands.iter().map(|o| Operand { left: &o.0, right: &o.1 }).collect();
                    let mut acc = vec![1.0; n];
                    products(isa, &mut acc, &taps, splat);
                    let at = |v: &[f32], i: usize| v[i.min(v.len() - 1)];
                    for (i, a) in acc.iter().enumerate() {
                        let want: f32 = operands.iter().map(|o| at(&o.0, i) * at(&o.1, i)).sum();
                        assert_eq!(*a, 1.0 + want, "{isa:?} {n} {splat} {i}");
                    }
                }
                let mut sum = 0.0;
                fold(isa, &x[..n], Combiner::Sum, &mut sum);
                assert_eq!(sum, x[..n].iter().sum::<f32>(), "{isa:?} {n}");
                fold(isa, &x[..n], Combiner::Max, &mut sum);
                assert_eq!(sum, x[..n].iter().copied().fold(f32::NEG_INFINITY, f32::max), "{isa:?} {n}");
            }
        }
    }
}
