//! Lanes as arrays: for machines without vectors, and where less than a vector of elements is read.

/// Bytes as numbers.
///
/// # Safety
/// `N` bytes are readable.
#[inline]
pub unsafe fn numbers<const N: usize>(signed: bool, from: *const u8) -> [f32; N] {
    // SAFETY: as said.
    let all = unsafe { from.cast::<[u8; N]>().read() };
    all.map(|x| if signed { f32::from(x as i8) } else { f32::from(x) })
}

/// `n` bytes without a sign as integers, and zeros.
///
/// # Safety
/// `n` bytes are readable, and `n` is at most `N`.
#[inline]
pub unsafe fn ints<const N: usize>(n: usize, from: *const u8) -> [f32; N] {
    // SAFETY: as said.
    unsafe { some::<u8, N>(n, from) }.map(|x| f32::from_bits(u32::from(x)))
}

/// Stores the low bytes of integers.
///
/// # Safety
/// `N` bytes are writable.
#[inline]
pub unsafe fn store_low<const N: usize>(to: *mut u8, v: [f32; N]) {
    // SAFETY: as said.
    unsafe { to.cast::<[u8; N]>().write(v.map(|x| x.to_bits() as u8)) };
}

/// `n` elements and zeros.
///
/// # Safety
/// `n` elements are readable, and `n` is at most `N`.
#[inline]
pub unsafe fn some<T: Copy + Default, const N: usize>(n: usize, from: *const T) -> [T; N] {
    let mut all = [T::default(); N];
    // SAFETY: as said.
    unsafe { from.copy_to_nonoverlapping(all.as_mut_ptr(), n) };
    all
}

/// `n` elements so far apart, and zeros.
///
/// # Safety
/// `n` such elements are readable, and `n` is at most `N`.
#[inline]
pub unsafe fn some_apart<const N: usize>(n: usize, from: *const f32, by: usize) -> [f32; N] {
    let mut all = [0.0; N];
    for (i, to) in all.iter_mut().enumerate().take(n) {
        // SAFETY: as said.
        *to = unsafe { *from.add(i * by) };
    }
    all
}
