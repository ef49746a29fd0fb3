//! Vectors of f32 for the bodies of tiles: one module for each instruction set, all with the same functions.
//!
//! Loads and stores take the elements that a mask has; other lanes of a load are 0. `max` and `min` of a number and
//! NaN are NaN; `keep_max` and `keep_min` also those of NaN and a number. `known` is the first one that is no NaN.
//! Functions of integers take the lanes' bits as i32, shifts as u32.

/// The module of an instruction set: items of its own, its types, what each function is.
macro_rules! vectors {
    (
        $(#[$cfg:meta])* mod $name:ident $features:tt: $vector:ty, $mask:ty, $lanes:literal;
        { $($item:item)* }
        { $($op:ident($($arg:ident),*) = $body:expr;)* }
        splat($x:ident) = $splat:expr;
        mask($n:ident) = $make:expr;
        to_int($t:ident, $low:ident, $high:ident) = $to_int:expr;
        load($m:ident, $from:ident) = $load:expr;
        load_halves($h:ident, $half:ident) = $load_halves:expr;
        pick($l:ident, $place:ident, $by:ident) = $pick:expr;
        store($k:ident, $to:ident, $v:ident) = $store:expr;
    ) => {
        $(#[$cfg])*
        pub(crate) mod $name {
            $($item)*
            pub type Vector = $vector;
            /// The first elements of a vector.
            pub type Mask = $mask;
            pub const LANES: usize = $lanes;
            $(vectors!(@function $features pub fn $op($($arg: Vector),*) -> Vector { $body });)*
            vectors!(@function $features pub fn splat($x: f32) -> Vector { $splat });
            vectors!(@function $features pub fn mask($n: usize) -> Mask { $make });
            vectors!(
                @function $features
                /// Numbers held between two and rounded towards 0, as i32; NaN is 0.
                pub fn to_int($t: Vector, $low: f32, $high: f32) -> Vector { $to_int }
            );
            vectors!(
                @function $features
                /// A quotient by a moderate number with its reciprocal: a product, corrected twice (P. Markstein,
                /// Computation of Elementary Functions on the IBM RISC System/6000 Processor), in less time. Where it
                /// is less than 2^-100, its last bit may differ.
                pub fn quotient(a: Vector, by: f32, reciprocal: f32) -> Vector {
                    if !FUSED {
                        return div(a, splat(by));
                    }
                    // By a number that is not negative, so that zeros keep their signs.
                    let a = if by < 0.0 { sub(splat(-0.0), a) } else { a };
                    let (of, back, less) = (splat(by.abs()), splat(-reciprocal.abs()), sub(splat(-0.0), a));
                    let first = mul(a, splat(reciprocal.abs()));
                    let second = fma(fma(first, of, less), back, first);
                    // Infinite ones have no remainder.
                    known(fma(fma(second, of, less), back, second), first)
                }
            );
            vectors!(
                @function $features
                /// # Safety
                /// As many elements as the mask has are readable.
                pub unsafe fn load($m: Mask, $from: *const f32) -> Vector {
                    // SAFETY: as said.
                    unsafe { $load }
                }
            );
            vectors!(
                @function $features
                /// Elements of f16, by their bits.
                ///
                /// # Safety
                /// As many elements as the mask has are readable.
                pub unsafe fn load_halves($h: Mask, $half: *const u16) -> Vector {
                    // SAFETY: as said.
                    unsafe { $load_halves }
                }
            );
            vectors!(
                @function $features
                /// Elements so far apart, at least 1.
                ///
                /// # Safety
                /// As many elements as the mask has are readable, and those between them.
                pub unsafe fn pick($l: Mask, $place: *const f32, $by: usize) -> Vector {
                    // SAFETY: as said.
                    unsafe { $pick }
                }
            );
            vectors!(
                @function $features
                /// # Safety
                /// As many elements as the mask has are writable.
                pub unsafe fn store($k: Mask, $to: *mut f32, $v: Vector) {
                    // SAFETY: as said.
                    unsafe { $store }
                }
            );
        }
    };
    // A function for machines that have these features.
    (@function [$($feature:literal)?] $($function:tt)*) => {
        $(#[target_feature(enable = $feature)])?
        #[inline]
        $($function)*
    };
}

vectors! {
    #[cfg(target_arch = "x86_64")]
    mod avx512 ["avx512f,avx512bw"]: __m512, __mmask16, 16;
    {
        use std::arch::x86_64::*;
        /// Products with a sum are rounded once.
        const FUSED: bool = true;
        pub use std::arch::x86_64::{_mm512_castps_si512 as bits, _mm512_castsi512_ps as words};

        #[inline(always)]
        fn first(n: u32) -> Mask {
            ((1u32 << n.min(16)) - 1) as Mask
        }
        /// Bytes as numbers.
        ///
        /// # Safety
        /// A vector of bytes is readable.
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        pub unsafe fn load_bytes(signed: bool, from: *const u8) -> Vector {
            // SAFETY: as said.
            let all = unsafe { _mm_loadu_si128(from.cast()) };
            _mm512_cvtepi32_ps(if signed { _mm512_cvtepi8_epi32(all) } else { _mm512_cvtepu8_epi32(all) })
        }
        /// Bytes without a sign as integers.
        ///
        /// # Safety
        /// As many bytes as the mask has are readable.
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        pub unsafe fn load_ints(m: Mask, from: *const u8) -> Vector {
            // SAFETY: as said.
            let all = unsafe {
                match m {
                    Mask::MAX => _mm_loadu_si128(from.cast()),
                    _ => _mm512_castsi512_si128(_mm512_maskz_loadu_epi8(u64::from(m), from.cast())),
                }
            };
            words(_mm512_cvtepu8_epi32(all))
        }
        /// The low bytes of integers.
        ///
        /// # Safety
        /// A vector of bytes is writable.
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        pub unsafe fn store_bytes(to: *mut u8, v: Vector) {
            // SAFETY: as said.
            unsafe { _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(bits(v))) };
        }
    }
    {
        fma(a, b, c) = _mm512_fmadd_ps(a, b, c);
        add(a, b) = _mm512_add_ps(a, b);
        mul(a, b) = _mm512_mul_ps(a, b);
        max(a, b) = _mm512_max_ps(a, b);
        min(a, b) = _mm512_min_ps(a, b);
        keep_max(a, b) = _mm512_mask_mov_ps(_mm512_max_ps(a, b), _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a), a);
        keep_min(a, b) = _mm512_mask_mov_ps(_mm512_min_ps(a, b), _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a), a);
        known(a, b) = _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a), b);
        div(a, b) = _mm512_div_ps(a, b);
        round(a) = _mm512_roundscale_ps::<8>(a);
        add_int(a, b) = words(_mm512_add_epi32(bits(a), bits(b)));
        sub_int(a, b) = words(_mm512_sub_epi32(bits(a), bits(b)));
        mul_int(a, b) = words(_mm512_mullo_epi32(bits(a), bits(b)));
        to_float(a) = _mm512_cvtepi32_ps(bits(a));
        sub(a, b) = _mm512_sub_ps(a, b);
        and(a, b) = words(_mm512_and_si512(bits(a), bits(b)));
        shift_right(a, by) = words(_mm512_srlv_epi32(bits(a), bits(by)));
        shift_left(a, by) = words(_mm512_sllv_epi32(bits(a), bits(by)));
    }
    splat(x) = _mm512_set1_ps(x);
    mask(n) = if n >= LANES { !0 } else { (1 << n) - 1 };
    to_int(a, low, high) = {
        let held = _mm512_min_ps(_mm512_max_ps(a, splat(low)), splat(high));
        words(_mm512_maskz_cvttps_epi32(_mm512_cmp_ps_mask::<_CMP_ORD_Q>(a, a), held))
    };
    load(m, from) = _mm512_maskz_loadu_ps(m, from);
    load_halves(m, from) = {
        let all = _mm512_maskz_loadu_epi16(u32::from(m), from.cast());
        _mm512_cvtph_ps(_mm512_castsi512_si256(all))
    };
    pick(m, from, by) = {
        if by == 2 {
            // The even elements of a vector, and the odd ones of another that begins with its last element.
            let n = m.count_ones();
            let low = _mm512_maskz_loadu_ps(first((2 * n).saturating_sub(1)), from);
            let high = _mm512_maskz_loadu_ps(first((2 * n).saturating_sub(16)), from.wrapping_add(15));
            let places = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
            return _mm512_permutex2var_ps(low, places, high);
        }
        let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let places = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(by as i32));
        _mm512_mask_i32gather_ps::<4>(splat(0.0), m, places, from)
    };
    store(m, to, v) = _mm512_mask_storeu_ps(to, m, v);
}

vectors! {
    #[cfg(target_arch = "x86_64")]
    mod avx2 ["avx2,fma,f16c"]: __m256, usize, 8;
    {
        use std::arch::x86_64::*;
        const FUSED: bool = true;
        pub use std::arch::x86_64::{_mm256_castps_si256 as bits, _mm256_castsi256_ps as words};

        #[target_feature(enable = "avx2,fma,f16c")]
        #[inline]
        fn lanes(n: usize) -> __m256i {
            _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
        }
        /// Bytes as numbers.
        ///
        /// # Safety
        /// A vector of bytes is readable.
        #[target_feature(enable = "avx2,fma,f16c")]
        #[inline]
        pub unsafe fn load_bytes(signed: bool, from: *const u8) -> Vector {
            // SAFETY: as said.
            let all = unsafe { _mm_loadl_epi64(from.cast()) };
            _mm256_cvtepi32_ps(if signed { _mm256_cvtepi8_epi32(all) } else { _mm256_cvtepu8_epi32(all) })
        }
        /// Bytes without a sign as integers.
        ///
        /// # Safety
        /// As many bytes as the mask has are readable.
        #[target_feature(enable = "avx2,fma,f16c")]
        #[inline]
        pub unsafe fn load_ints(m: Mask, from: *const u8) -> Vector {
            // SAFETY: as said.
            let all = unsafe {
                match m {
                    LANES => _mm_loadl_epi64(from.cast()),
                    _ => _mm_loadl_epi64(crate::some_lanes::some::<u8, LANES>(m, from).as_ptr().cast()),
                }
            };
            words(_mm256_cvtepu8_epi32(all))
        }
        /// The low bytes of integers.
        ///
        /// # Safety
        /// A vector of bytes is writable.
        #[target_feature(enable = "avx2,fma,f16c")]
        #[inline]
        pub unsafe fn store_bytes(to: *mut u8, v: Vector) {
            let low = _mm256_and_si256(bits(v), _mm256_set1_epi32(255));
            let pairs = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256::<1>(low));
            // SAFETY: as said.
            unsafe { _mm_storel_epi64(to.cast(), _mm_packus_epi16(pairs, pairs)) };
        }
    }
    {
        fma(a, b, c) = _mm256_fmadd_ps(a, b, c);
        add(a, b) = _mm256_add_ps(a, b);
        mul(a, b) = _mm256_mul_ps(a, b);
        max(a, b) = _mm256_max_ps(a, b);
        min(a, b) = _mm256_min_ps(a, b);
        keep_max(a, b) = _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a));
        keep_min(a, b) = _mm256_blendv_ps(_mm256_min_ps(a, b), a, _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a));
        known(a, b) = _mm256_blendv_ps(a, b, _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a));
        div(a, b) = _mm256_div_ps(a, b);
        round(a) = _mm256_round_ps::<8>(a);
        add_int(a, b) = words(_mm256_add_epi32(bits(a), bits(b)));
        sub_int(a, b) = words(_mm256_sub_epi32(bits(a), bits(b)));
        mul_int(a, b) = words(_mm256_mullo_epi32(bits(a), bits(b)));
        to_float(a) = _mm256_cvtepi32_ps(bits(a));
        sub(a, b) = _mm256_sub_ps(a, b);
        and(a, b) = _mm256_and_ps(a, b);
        shift_right(a, by) = words(_mm256_srlv_epi32(bits(a), bits(by)));
        shift_left(a, by) = words(_mm256_sllv_epi32(bits(a), bits(by)));
    }
    splat(x) = _mm256_set1_ps(x);
    mask(n) = n.min(LANES);
    to_int(a, low, high) = {
        let held = _mm256_min_ps(_mm256_max_ps(a, splat(low)), splat(high));
        words(_mm256_cvttps_epi32(_mm256_and_ps(held, _mm256_cmp_ps::<_CMP_ORD_Q>(a, a))))
    };
    load(m, from) = if m == LANES { _mm256_loadu_ps(from) } else { _mm256_maskload_ps(from, lanes(m)) };
    load_halves(m, from) = {
        if m == LANES {
            return _mm256_cvtph_ps(_mm_loadu_si128(from.cast()));
        }
        let some = crate::some_lanes::some::<u16, LANES>(m, from);
        _mm256_cvtph_ps(_mm_loadu_si128(some.as_ptr().cast()))
    };
    pick(m, from, by) = {
        if by != 2 || m != LANES {
            let some = crate::some_lanes::some_apart::<LANES>(m, from, by);
            return _mm256_loadu_ps(some.as_ptr());
        }
        // The even elements of a vector, and the odd ones of another that begins with its last element.
        let (low, high) = (_mm256_loadu_ps(from), _mm256_loadu_ps(from.wrapping_add(7)));
        let pairs = _mm256_castps_pd(_mm256_shuffle_ps::<0b11_01_10_00>(low, high));
        _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(pairs))
    };
    store(m, to, v) = if m == LANES { _mm256_storeu_ps(to, v) } else { _mm256_maskstore_ps(to, lanes(m), v) };
}

vectors! {
    #[cfg(target_arch = "aarch64")]
    mod neon ["neon"]: float32x4_t, usize, 4;
    {
        use std::arch::aarch64::*;
        const FUSED: bool = true;
        use {vreinterpretq_f32_s32 as words, vreinterpretq_s32_f32 as bits};

        /// Bytes as numbers.
        ///
        /// # Safety
        /// A vector of bytes is readable.
        #[target_feature(enable = "neon")]
        #[inline]
        pub unsafe fn load_bytes(signed: bool, from: *const u8) -> Vector {
            // SAFETY: as said.
            unsafe { vld1q_f32(crate::some_lanes::numbers::<LANES>(signed, from).as_ptr()) }
        }
        /// Bytes without a sign as integers.
        ///
        /// # Safety
        /// As many bytes as the mask has are readable.
        #[target_feature(enable = "neon")]
        #[inline]
        pub unsafe fn load_ints(m: Mask, from: *const u8) -> Vector {
            // SAFETY: as said.
            unsafe { vld1q_f32(crate::some_lanes::ints::<LANES>(m, from).as_ptr()) }
        }
        /// The low bytes of integers.
        ///
        /// # Safety
        /// A vector of bytes is writable.
        #[target_feature(enable = "neon")]
        #[inline]
        pub unsafe fn store_bytes(to: *mut u8, v: Vector) {
            let mut all = [0.0; LANES];
            // SAFETY: as said.
            unsafe {
                vst1q_f32(all.as_mut_ptr(), v);
                crate::some_lanes::store_low(to, all);
            }
        }
        /// # Safety
        /// `m` elements, at most 4, are writable.
        #[target_feature(enable = "neon")]
        #[inline]
        unsafe fn store_some(m: usize, to: *mut f32, v: Vector) {
            let mut all = [0.0; LANES];
            // SAFETY: as said; the array has four elements.
            unsafe {
                vst1q_f32(all.as_mut_ptr(), v);
                all.as_ptr().copy_to_nonoverlapping(to, m);
            }
        }
    }
    {
        fma(a, b, c) = vfmaq_f32(c, a, b);
        add(a, b) = vaddq_f32(a, b);
        mul(a, b) = vmulq_f32(a, b);
        max(a, b) = vmaxq_f32(a, b);
        min(a, b) = vminq_f32(a, b);
        keep_max(a, b) = vmaxq_f32(a, b);
        keep_min(a, b) = vminq_f32(a, b);
        known(a, b) = vbslq_f32(vceqq_f32(a, a), a, b);
        div(a, b) = vdivq_f32(a, b);
        round(a) = vrndnq_f32(a);
        add_int(a, b) = words(vaddq_s32(bits(a), bits(b)));
        sub_int(a, b) = words(vsubq_s32(bits(a), bits(b)));
        mul_int(a, b) = words(vmulq_s32(bits(a), bits(b)));
        to_float(a) = vcvtq_f32_s32(bits(a));
        sub(a, b) = vsubq_f32(a, b);
        and(a, b) = words(vandq_s32(bits(a), bits(b)));
        shift_right(a, by) = vreinterpretq_f32_u32(vshlq_u32(vreinterpretq_u32_f32(a), vnegq_s32(bits(by))));
        shift_left(a, by) = words(vshlq_s32(bits(a), bits(by)));
    }
    splat(x) = vdupq_n_f32(x);
    mask(n) = n.min(LANES);
    // NaN is 0 as an integer.
    to_int(a, low, high) = words(vcvtq_s32_f32(vminq_f32(vmaxq_f32(a, splat(low)), splat(high))));
    load(m, from) = {
        if m == LANES {
            return vld1q_f32(from);
        }
        vld1q_f32(crate::some_lanes::some::<f32, 4>(m, from).as_ptr())
    };
    load_halves(m, from) = {
        let all = crate::some_lanes::some::<u16, LANES>(m, from).map(|x| half::f16::from_bits(x).to_f32());
        vld1q_f32(all.as_ptr())
    };
    pick(m, from, by) = {
        if by != 2 || m != LANES {
            return vld1q_f32(crate::some_lanes::some_apart::<LANES>(m, from, by).as_ptr());
        }
        // The even elements of a vector, and the odd ones of another that begins with its last element.
        let (low, high) = (vld1q_f32(from), vld1q_f32(from.wrapping_add(3)));
        vcombine_f32(vget_low_f32(vuzp1q_f32(low, low)), vget_low_f32(vuzp2q_f32(high, high)))
    };
    store(m, to, v) = if m == LANES { vst1q_f32(to, v) } else { store_some(m, to, v) };
}

// Arrays, for machines without any of the above.
vectors! {
    mod portable []: [f32; LANES], usize, 8;
    {
        #[inline]
        fn each(f: impl Fn(usize) -> f32) -> Vector {
            std::array::from_fn(f)
        }
        #[inline]
        fn bits(x: f32) -> i32 {
            x.to_bits() as i32
        }
        #[inline]
        fn words(x: i32) -> f32 {
            f32::from_bits(x as u32)
        }
        const FUSED: bool = false;
        pub use crate::some_lanes::{ints as load_ints, numbers as load_bytes, store_low as store_bytes};
    }
    {
        fma(a, b, c) = each(|i| a[i] * b[i] + c[i]);
        add(a, b) = each(|i| a[i] + b[i]);
        mul(a, b) = each(|i| a[i] * b[i]);
        max(a, b) = each(|i| if a[i] > b[i] { a[i] } else { b[i] });
        min(a, b) = each(|i| if a[i] < b[i] { a[i] } else { b[i] });
        keep_max(a, b) = each(|i| if a[i].is_nan() || a[i] > b[i] { a[i] } else { b[i] });
        keep_min(a, b) = each(|i| if a[i].is_nan() || a[i] < b[i] { a[i] } else { b[i] });
        known(a, b) = each(|i| if a[i].is_nan() { b[i] } else { a[i] });
        div(a, b) = each(|i| a[i] / b[i]);
        round(a) = each(|i| a[i].round_ties_even());
        add_int(a, b) = each(|i| words(bits(a[i]).wrapping_add(bits(b[i]))));
        sub_int(a, b) = each(|i| words(bits(a[i]).wrapping_sub(bits(b[i]))));
        mul_int(a, b) = each(|i| words(bits(a[i]).wrapping_mul(bits(b[i]))));
        to_float(a) = each(|i| bits(a[i]) as f32);
        sub(a, b) = each(|i| a[i] - b[i]);
        and(a, b) = each(|i| words(bits(a[i]) & bits(b[i])));
        shift_right(a, by) = each(|i| f32::from_bits(a[i].to_bits() >> (by[i].to_bits() & 31)));
        shift_left(a, by) = each(|i| f32::from_bits(a[i].to_bits() << (by[i].to_bits() & 31)));
    }
    splat(x) = [x; LANES];
    mask(n) = n.min(LANES);
    to_int(a, low, high) = each(|i| words(a[i].clamp(low, high) as i32));
    load(m, from) = if m == LANES { from.cast::<Vector>().read() } else { crate::some_lanes::some(m, from) };
    load_halves(m, from) = crate::some_lanes::some::<u16, LANES>(m, from).map(|x| half::f16::from_bits(x).to_f32());
    pick(m, from, by) = crate::some_lanes::some_apart(m, from, by);
    store(m, to, v) = if m == LANES { to.cast::<Vector>().write(v) } else { v.as_ptr().copy_to_nonoverlapping(to, m) };
}

/// Words of 32 bits from one that is read to one that is loaded into the first cache meanwhile, which stays as fast
/// from 128 to 2048: one run of memory after another is read where some processors load nothing ahead by themselves.
pub(crate) const AHEAD: usize = 1024;

/// Loads the lines of `n` elements, if they are in memory, into the first cache.
#[inline(always)]
pub(crate) fn prefetch(at: *const f32, n: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..n).step_by(16) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: an address without memory is left alone.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, n);
}
