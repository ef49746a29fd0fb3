//! Vectors of f32 for the bodies of tiles: one module for each instruction set, all with the same functions.
//!
//! Loads and stores take the elements that a mask has; other lanes of a load are 0.

/// Functions of one operation each, for machines with a feature.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! functions {
    ($feature:literal $vector:ty; $($name:ident($($arg:ident),*) = $body:expr;)*) => { $(
        #[target_feature(enable = $feature)]
        #[inline]
        pub fn $name($($arg: $vector),*) -> $vector {
            $body
        }
    )* };
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512 {
    use std::arch::x86_64::*;
    pub type Vector = __m512;
    pub type Mask = __mmask16;
    pub const LANES: usize = 16;

    functions! {
        "avx512f" __m512;
        fma(a, b, c) = _mm512_fmadd_ps(a, b, c);
        add(a, b) = _mm512_add_ps(a, b);
        mul(a, b) = _mm512_mul_ps(a, b);
        max(a, b) = _mm512_max_ps(a, b);
        min(a, b) = _mm512_min_ps(a, b);
        keep_max(a, b) = _mm512_mask_mov_ps(_mm512_max_ps(a, b), _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a), a);
        keep_min(a, b) = _mm512_mask_mov_ps(_mm512_min_ps(a, b), _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a), a);
    }
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub fn splat(x: f32) -> Vector {
        _mm512_set1_ps(x)
    }
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub fn mask(n: usize) -> Mask {
        if n >= LANES { !0 } else { (1 << n) - 1 }
    }
    /// # Safety
    /// As many elements as the mask has are readable.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub unsafe fn load(m: Mask, from: *const f32) -> Vector {
        // SAFETY: as said.
        unsafe { _mm512_maskz_loadu_ps(m, from) }
    }
    /// # Safety
    /// As many elements as the mask has are writable.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub unsafe fn store(m: Mask, to: *mut f32, v: Vector) {
        // SAFETY: as said.
        unsafe { _mm512_mask_storeu_ps(to, m, v) }
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2 {
    use std::arch::x86_64::*;
    pub type Vector = __m256;
    /// Elements, 8 at most.
    pub type Mask = usize;
    pub const LANES: usize = 8;

    functions! {
        "avx2,fma" __m256;
        fma(a, b, c) = _mm256_fmadd_ps(a, b, c);
        add(a, b) = _mm256_add_ps(a, b);
        mul(a, b) = _mm256_mul_ps(a, b);
        max(a, b) = _mm256_max_ps(a, b);
        min(a, b) = _mm256_min_ps(a, b);
        keep_max(a, b) = _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a));
        keep_min(a, b) = _mm256_blendv_ps(_mm256_min_ps(a, b), a, _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a));
    }
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    pub fn splat(x: f32) -> Vector {
        _mm256_set1_ps(x)
    }
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    pub fn mask(n: usize) -> Mask {
        n.min(LANES)
    }
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    fn lanes(n: usize) -> __m256i {
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
    }
    /// # Safety
    /// As many elements as the mask has are readable.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    pub unsafe fn load(m: Mask, from: *const f32) -> Vector {
        // SAFETY: as said.
        unsafe { if m == LANES { _mm256_loadu_ps(from) } else { _mm256_maskload_ps(from, lanes(m)) } }
    }
    /// # Safety
    /// As many elements as the mask has are writable.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    pub unsafe fn store(m: Mask, to: *mut f32, v: Vector) {
        // SAFETY: as said.
        unsafe { if m == LANES { _mm256_storeu_ps(to, v) } else { _mm256_maskstore_ps(to, lanes(m), v) } }
    }
}

#[cfg(target_arch = "aarch64")]
pub(crate) mod neon {
    use std::arch::aarch64::*;
    pub type Vector = float32x4_t;
    /// Elements, 4 at most.
    pub type Mask = usize;
    pub const LANES: usize = 4;

    functions! {
        "neon" float32x4_t;
        fma(a, b, c) = vfmaq_f32(c, a, b);
        add(a, b) = vaddq_f32(a, b);
        mul(a, b) = vmulq_f32(a, b);
        max(a, b) = vmaxq_f32(a, b);
        min(a, b) = vminq_f32(a, b);
        keep_max(a, b) = vmaxq_f32(a, b);
        keep_min(a, b) = vminq_f32(a, b);
    }
    #[target_feature(enable = "neon")]
    #[inline]
    pub fn splat(x: f32) -> Vector {
        vdupq_n_f32(x)
    }
    #[target_feature(enable = "neon")]
    #[inline]
    pub fn mask(n: usize) -> Mask {
        n.min(LANES)
    }
    /// # Safety
    /// As many elements as the mask has are readable.
    #[target_feature(enable = "neon")]
    #[inline]
    pub unsafe fn load(m: Mask, from: *const f32) -> Vector {
        // SAFETY: as said; the array has four elements.
        unsafe { if m == LANES { vld1q_f32(from) } else { vld1q_f32(super::some::<4>(m, from).as_ptr()) } }
    }
    /// # Safety
    /// As many elements as the mask has are writable.
    #[target_feature(enable = "neon")]
    #[inline]
    pub unsafe fn store(m: Mask, to: *mut f32, v: Vector) {
        if m == LANES {
            // SAFETY: as said.
            return unsafe { vst1q_f32(to, v) };
        }
        let mut all = [0.0; LANES];
        // SAFETY: as said; the array has four elements.
        unsafe {
            vst1q_f32(all.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(all.as_ptr(), to, m);
        }
    }
}

/// Arrays, for machines without any of the above.
pub(crate) mod portable {
    pub type Vector = [f32; LANES];
    /// Elements, 8 at most.
    pub type Mask = usize;
    pub const LANES: usize = 8;

    #[inline]
    fn each(f: impl Fn(usize) -> f32) -> Vector {
        std::array::from_fn(f)
    }
    #[inline]
    pub fn fma(a: Vector, b: Vector, c: Vector) -> Vector {
        each(|i| a[i] * b[i] + c[i])
    }
    #[inline]
    pub fn add(a: Vector, b: Vector) -> Vector {
        each(|i| a[i] + b[i])
    }
    #[inline]
    pub fn mul(a: Vector, b: Vector) -> Vector {
        each(|i| a[i] * b[i])
    }
    #[inline]
    pub fn max(a: Vector, b: Vector) -> Vector {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline]
    pub fn min(a: Vector, b: Vector) -> Vector {
        each(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline]
    pub fn keep_max(a: Vector, b: Vector) -> Vector {
        each(|i| if a[i].is_nan() || a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline]
    pub fn keep_min(a: Vector, b: Vector) -> Vector {
        each(|i| if a[i].is_nan() || a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline]
    pub fn splat(x: f32) -> Vector {
        [x; LANES]
    }
    #[inline]
    pub fn mask(n: usize) -> Mask {
        n.min(LANES)
    }
    /// # Safety
    /// As many elements as the mask has are readable.
    #[inline]
    pub unsafe fn load(m: Mask, from: *const f32) -> Vector {
        // SAFETY: as said.
        unsafe { if m == LANES { from.cast::<Vector>().read() } else { super::some(m, from) } }
    }
    /// # Safety
    /// As many elements as the mask has are writable.
    #[inline]
    pub unsafe fn store(m: Mask, to: *mut f32, v: Vector) {
        // SAFETY: as said.
        unsafe { if m == LANES { to.cast::<Vector>().write(v) } else { v.as_ptr().copy_to_nonoverlapping(to, m) } }
    }
}

/// `n` elements and zeros.
///
/// # Safety
/// `n` elements are readable, and `n` is at most `N`.
#[inline]
unsafe fn some<const N: usize>(n: usize, from: *const f32) -> [f32; N] {
    let mut all = [0.0; N];
    // SAFETY: as said.
    unsafe { from.copy_to_nonoverlapping(all.as_mut_ptr(), n) };
    all
}
