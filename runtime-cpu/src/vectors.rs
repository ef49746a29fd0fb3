//! Vectors of f32 for the bodies of tiles: one module for each instruction set, all with the same functions.
//!
//! Loads and stores take the elements that a mask has; other lanes of a load are 0. `max` and `min` of a number and
//! NaN are NaN; `keep_max` and `keep_min` also those of NaN and a number.

/// The module of an instruction set: items of its own, its types, what each function is.
macro_rules! vectors {
    (
        $(#[$cfg:meta])* mod $name:ident $features:tt: $vector:ty, $mask:ty, $lanes:literal;
        { $($item:item)* }
        { $($op:ident($($arg:ident),*) = $body:expr;)* }
        splat($x:ident) = $splat:expr;
        mask($n:ident) = $make:expr;
        load($m:ident, $from:ident) = $load:expr;
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
                /// # Safety
                /// As many elements as the mask has are readable.
                pub unsafe fn load($m: Mask, $from: *const f32) -> Vector {
                    // SAFETY: as said.
                    unsafe { $load }
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
    mod avx512 ["avx512f"]: __m512, __mmask16, 16;
    { use std::arch::x86_64::*; }
    {
        fma(a, b, c) = _mm512_fmadd_ps(a, b, c);
        add(a, b) = _mm512_add_ps(a, b);
        mul(a, b) = _mm512_mul_ps(a, b);
        max(a, b) = _mm512_max_ps(a, b);
        min(a, b) = _mm512_min_ps(a, b);
        keep_max(a, b) = _mm512_mask_mov_ps(_mm512_max_ps(a, b), _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a), a);
        keep_min(a, b) = _mm512_mask_mov_ps(_mm512_min_ps(a, b), _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a), a);
    }
    splat(x) = _mm512_set1_ps(x);
    mask(n) = if n >= LANES { !0 } else { (1 << n) - 1 };
    load(m, from) = _mm512_maskz_loadu_ps(m, from);
    store(m, to, v) = _mm512_mask_storeu_ps(to, m, v);
}

vectors! {
    #[cfg(target_arch = "x86_64")]
    mod avx2 ["avx2,fma"]: __m256, usize, 8;
    {
        use std::arch::x86_64::*;

        #[target_feature(enable = "avx2,fma")]
        #[inline]
        fn lanes(n: usize) -> __m256i {
            _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
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
    }
    splat(x) = _mm256_set1_ps(x);
    mask(n) = n.min(LANES);
    load(m, from) = if m == LANES { _mm256_loadu_ps(from) } else { _mm256_maskload_ps(from, lanes(m)) };
    store(m, to, v) = if m == LANES { _mm256_storeu_ps(to, v) } else { _mm256_maskstore_ps(to, lanes(m), v) };
}

vectors! {
    #[cfg(target_arch = "aarch64")]
    mod neon ["neon"]: float32x4_t, usize, 4;
    {
        use std::arch::aarch64::*;

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
    }
    splat(x) = vdupq_n_f32(x);
    mask(n) = n.min(LANES);
    load(m, from) = if m == LANES { vld1q_f32(from) } else { vld1q_f32(super::some::<4>(m, from).as_ptr()) };
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
    }
    {
        fma(a, b, c) = each(|i| a[i] * b[i] + c[i]);
        add(a, b) = each(|i| a[i] + b[i]);
        mul(a, b) = each(|i| a[i] * b[i]);
        max(a, b) = each(|i| if a[i] > b[i] { a[i] } else { b[i] });
        min(a, b) = each(|i| if a[i] < b[i] { a[i] } else { b[i] });
        keep_max(a, b) = each(|i| if a[i].is_nan() || a[i] > b[i] { a[i] } else { b[i] });
        keep_min(a, b) = each(|i| if a[i].is_nan() || a[i] < b[i] { a[i] } else { b[i] });
    }
    splat(x) = [x; LANES];
    mask(n) = n.min(LANES);
    load(m, from) = if m == LANES { from.cast::<Vector>().read() } else { super::some(m, from) };
    store(m, to, v) = if m == LANES { to.cast::<Vector>().write(v) } else { v.as_ptr().copy_to_nonoverlapping(to, m) };
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
