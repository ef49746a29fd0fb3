//! f16 and bf16 in memory, f32 in registers: conversions of many elements, with the instructions of each instruction
//! set that has some. Every body gives the same numbers: widening is exact, narrowing rounds to the nearest, ties to
//! even. NaN stays NaN.

use crate::form::Form;
use crate::integers;
use crate::isa::{Isa, versions};
use crate::tile::Kind;

/// Widens the elements at `from` to f32, as many as `to` has; f32 is copied. Bytes become i32, which are copied too.
///
/// # Safety
/// So many elements of that form are readable at `from`, which is aligned to them. The machine has `isa`.
pub(crate) unsafe fn widen(isa: Isa, form: Form, from: *const u8, to: &mut [f32]) {
    // SAFETY: the caller vouches for the elements.
    unsafe {
        match form {
            Form::F16 => widen_f16(isa, std::slice::from_raw_parts(from.cast(), to.len()), to),
            Form::BF16 => widen_bf16(isa, std::slice::from_raw_parts(from.cast(), to.len()), to),
            Form::I8 | Form::U8 => integers::pack(isa, (Kind::Words, form), from, (to.len(), 1), to),
            _ => to.copy_from_slice(std::slice::from_raw_parts(from.cast(), to.len())),
        }
    }
}

/// Narrows the numbers to elements at `to`; f32 is copied.
///
/// # Safety
/// So many elements of that form are writable at `to`, which is aligned to them; nobody else accesses them. The machine
/// has `isa`.
pub(crate) unsafe fn narrow(isa: Isa, form: Form, from: &[f32], to: *mut u8) {
    // SAFETY: the caller vouches for the elements.
    unsafe {
        match form {
            Form::F16 => narrow_f16(isa, from, std::slice::from_raw_parts_mut(to.cast(), from.len())),
            Form::BF16 => narrow_bf16(isa, from, std::slice::from_raw_parts_mut(to.cast(), from.len())),
            _ => to.cast::<f32>().copy_from_nonoverlapping(from.as_ptr(), from.len()),
        }
    }
}

/// Converts whole vectors of `$lanes` by `$body`, and the rest in one that overlaps the last or is padded.
macro_rules! in_vectors {
    ($body:path, $lanes:literal, $from:ident, $to:ident) => {{
        let (n, whole) = ($from.len(), $from.len() / $lanes * $lanes);
        $body(&$from[..whole], &mut $to[..whole]);
        if whole < n && n >= $lanes {
            $body(&$from[n - $lanes..], &mut $to[n - $lanes..]);
        } else if whole < n {
            let (mut last, mut out) = ([Default::default(); $lanes], [Default::default(); $lanes]);
            last[..n].copy_from_slice($from);
            $body(&last, &mut out);
            $to.copy_from_slice(&out[..n]);
        }
    }};
}

/// Widens f16, by their bits.
pub(crate) fn widen_f16(isa: Isa, from: &[u16], to: &mut [f32]) {
    assert_eq!(from.len(), to.len());
    // SAFETY (each): the machine has `isa`, and both slices have the same whole number of vectors.
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 if from.len() >= 16 => unsafe { in_vectors!(vectors::widen_16, 16, from, to) },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Avx2 => unsafe { in_vectors!(vectors::widen_8, 8, from, to) },
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => unsafe { in_vectors!(vectors::widen_4, 4, from, to) },
        _ => from.iter().zip(to).for_each(|(x, to)| *to = wide(*x)),
    }
}

/// Narrows to f16, as bits.
pub(crate) fn narrow_f16(isa: Isa, from: &[f32], to: &mut [u16]) {
    assert_eq!(from.len(), to.len());
    // SAFETY (each): as in `widen_f16`.
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 if from.len() >= 16 => unsafe { in_vectors!(vectors::narrow_16, 16, from, to) },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Avx2 => unsafe { in_vectors!(vectors::narrow_8, 8, from, to) },
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => unsafe { in_vectors!(vectors::narrow_4, 4, from, to) },
        _ => from.iter().zip(to).for_each(|(x, to)| *to = short(*x)),
    }
}

versions! {
    /// Widens bf16, by their bits: the upper half of an f32.
    fn widen_bf16(from: &[u16], to: &mut [f32]) {
        from.iter().zip(to).for_each(|(x, to)| *to = f32::from_bits(u32::from(*x) << 16));
    }
}
versions! {
    /// Narrows to bf16, as bits.
    fn narrow_bf16(from: &[f32], to: &mut [u16]) {
        from.iter().zip(to).for_each(|(x, to)| {
            let bits = x.to_bits();
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            *to = if x.is_nan() { bits >> 16 | 0x40 } else { rounded } as u16;
        });
    }
}

/// The number of an f16. A multiplication moves the exponent, subnormals included.
#[inline(always)]
fn wide(half: u16) -> f32 {
    const MOVE: f32 = f32::from_bits((127 + 112) << 23);
    let (bits, sign) = (u32::from(half & 0x7fff) << 13, u32::from(half & 0x8000) << 16);
    let moved = (f32::from_bits(bits) * MOVE).to_bits();
    // Infinity and NaN have the greatest exponent.
    let all = if bits >= 31 << 23 { moved | 255 << 23 } else { moved };
    f32::from_bits(all | sign)
}

/// The f16 of a number. In a subnormal, the addition of a number of the right size rounds.
#[inline(always)]
fn short(x: f32) -> u16 {
    const SHIFT: u32 = (127 - 15 + 23 - 10 + 1) << 23;
    let (sign, bits) = (x.to_bits() >> 16 & 0x8000, x.to_bits() & 0x7fff_ffff);
    let small = (f32::from_bits(bits) + f32::from_bits(SHIFT)).to_bits().wrapping_sub(SHIFT);
    let normal = bits.wrapping_add((15u32.wrapping_sub(127) << 23).wrapping_add(0xfff + (bits >> 13 & 1))) >> 13;
    let large = if bits > 255 << 23 { 0x7e00 } else { 0x7c00 };
    let all = if bits >= (127 + 16) << 23 {
        large
    } else if bits < (127 - 14) << 23 {
        small
    } else {
        normal
    };
    (all | sign) as u16
}

/// Conversions of f16 in whole vectors.
#[cfg(target_arch = "x86_64")]
mod vectors {
    use std::arch::x86_64::*;

    /// # Safety
    /// Both have the same whole number of vectors, as in each of these.
    #[target_feature(enable = "avx512f")]
    pub unsafe fn widen_16(from: &[u16], to: &mut [f32]) {
        for (x, to) in from.chunks_exact(16).zip(to.chunks_exact_mut(16)) {
            // SAFETY: 16 elements each.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), _mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast()))) }
        }
    }
    /// # Safety
    /// As [`widen_16`].
    #[target_feature(enable = "avx512f")]
    pub unsafe fn narrow_16(from: &[f32], to: &mut [u16]) {
        for (x, to) in from.chunks_exact(16).zip(to.chunks_exact_mut(16)) {
            // SAFETY: 16 elements each.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtps_ph::<0>(_mm512_loadu_ps(x.as_ptr()))) }
        }
    }
    /// # Safety
    /// As [`widen_16`].
    #[target_feature(enable = "avx2,f16c")]
    pub unsafe fn widen_8(from: &[u16], to: &mut [f32]) {
        for (x, to) in from.chunks_exact(8).zip(to.chunks_exact_mut(8)) {
            // SAFETY: 8 elements each.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast()))) }
        }
    }
    /// # Safety
    /// As [`widen_16`].
    #[target_feature(enable = "avx2,f16c")]
    pub unsafe fn narrow_8(from: &[f32], to: &mut [u16]) {
        for (x, to) in from.chunks_exact(8).zip(to.chunks_exact_mut(8)) {
            // SAFETY: 8 elements each.
            unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), _mm256_cvtps_ph::<0>(_mm256_loadu_ps(x.as_ptr()))) }
        }
    }
}

/// Conversions of f16 in whole vectors. The instructions belong to every AArch64.
#[cfg(target_arch = "aarch64")]
mod vectors {
    use std::arch::aarch64::*;
    use std::arch::asm;

    /// # Safety
    /// Both have the same whole number of vectors.
    #[target_feature(enable = "neon")]
    pub unsafe fn widen_4(from: &[u16], to: &mut [f32]) {
        for (x, to) in from.chunks_exact(4).zip(to.chunks_exact_mut(4)) {
            let wide: float32x4_t;
            // SAFETY: 4 elements each.
            unsafe {
                let short = vld1_u16(x.as_ptr());
                asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) wide, in(vreg) short, options(pure, nomem, nostack));
                vst1q_f32(to.as_mut_ptr(), wide);
            }
        }
    }
    /// # Safety
    /// As [`widen_4`].
    #[target_feature(enable = "neon")]
    pub unsafe fn narrow_4(from: &[f32], to: &mut [u16]) {
        for (x, to) in from.chunks_exact(4).zip(to.chunks_exact_mut(4)) {
            let short: uint16x4_t;
            // SAFETY: 4 elements each.
            unsafe {
                let wide = vld1q_f32(x.as_ptr());
                asm!("fcvtn {0:v}.4h, {1:v}.4s", out(vreg) short, in(vreg) wide, options(pure, nomem, nostack));
                vst1_u16(to.as_mut_ptr(), short);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    fn each(check: impl Fn(Isa)) {
        Isa::ALL.into_iter().filter(|i| i.is_available()).for_each(check);
    }

    #[test]
    fn every_short_float_is_widened() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        each(|isa| {
            for (form, number) in [
                (Form::F16, (|x| f16::from_bits(x).to_f32()) as fn(u16) -> f32),
                (Form::BF16, |x| bf16::from_bits(x).to_f32()),
            ] {
                let mut got = vec![0.0; all.len()];
                // SAFETY: both have as many elements.
                unsafe { widen(isa, form, all.as_ptr().cast(), &mut got) };
                for (x, got) in all.iter().zip(&got) {
                    let want = number(*x);
                    assert!(
                        got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                        "{isa:?} {form:?} {x:#x}"
                    );
                }
            }
        });
    }

    /// Each f16 and bf16, the numbers halfway between two, and their neighbours, in pieces of every length.
    #[test]
    fn numbers_are_rounded_to_the_nearest() {
        let halfway = (0..=u16::MAX).flat_map(|x| {
            let (brain, half) = (u32::from(x) << 16, f16::from_bits(x).to_f32().to_bits());
            [brain, brain | 0x8000, half, half.wrapping_add(0x1000), half.wrapping_add(0x800)]
        });
        let all: Vec<f32> =
            halfway.flat_map(|b| [b.wrapping_sub(1), b, b.wrapping_add(1)]).map(f32::from_bits).collect();
        each(|isa| {
            for (form, number) in [
                (Form::F16, (|x| f16::from_f32(x).to_bits()) as fn(f32) -> u16),
                (Form::BF16, |x| bf16::from_f32(x).to_bits()),
            ] {
                let infinity = if form == Form::F16 { 0x7c00 } else { 0x7f80 };
                for (n, from) in all.chunks(97).enumerate() {
                    let from = &from[..from.len().min(1 + n % 97)];
                    let mut got = vec![0u16; from.len()];
                    // SAFETY: both have as many elements.
                    unsafe { narrow(isa, form, from, got.as_mut_ptr().cast()) };
                    for (x, got) in from.iter().zip(&got) {
                        let same = if x.is_nan() { got & 0x7fff > infinity } else { *got == number(*x) };
                        assert!(same, "{isa:?} {form:?} {x:e}: {got:#x}, not {:#x}", number(*x));
                    }
                }
            }
        });
    }
}
