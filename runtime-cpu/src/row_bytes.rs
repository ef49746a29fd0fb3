//! Rows that are bytes times a scale for each block: what rounding to 8 bits (the pass `round-rows`) leaves, found
//! again. A row of other numbers is none, and is multiplied as it is.

use crate::isa::{Isa, versions};

/// Rows of the left operand whose blocks are bytes times a scale.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "x86-64 alone multiplies bytes"))]
pub(crate) struct LeftBytes {
    /// Words of four bytes in the order of the right operand's: elements so many rows apart, as a word of few bits has
    /// them in its bytes.
    pub words: *const f32,
    /// A scale for each block, and the sum of its bytes.
    pub scales: *const f32,
    pub sums: *const f32,
}

/// Rows as bytes, in memory of a thread that is used again.
#[derive(Default)]
pub(crate) struct RowBytes {
    /// Those that were looked for in this run come first.
    all: Vec<Found>,
    used: usize,
    /// The bytes of a block, in order.
    bytes: Vec<i8>,
}

/// The rows of a tile.
#[derive(Default)]
struct Found {
    /// The tile, and its first element of the left operand.
    of: [i64; 2],
    /// They are bytes.
    are: bool,
    words: Vec<f32>,
    scales: Vec<f32>,
    sums: Vec<f32>,
}

impl Found {
    fn left(&self) -> Option<LeftBytes> {
        let all = LeftBytes { words: self.words.as_ptr(), scales: self.scales.as_ptr(), sums: self.sums.as_ptr() };
        self.are.then_some(all)
    }
}

impl RowBytes {
    /// Forgets all rows: memory may have changed.
    pub(crate) fn forget(&mut self) {
        self.used = 0;
    }
    /// The rows `of` a tile, if they were looked for; `Some` of nothing if they are no bytes.
    pub(crate) fn known(&self, of: [i64; 2]) -> Option<Option<LeftBytes>> {
        self.all[..self.used].iter().rfind(|f| f.of == of).map(Found::left)
    }
    /// The rows `of` as bytes, unless one is none. `shape`: rows, blocks, words of a block and elements of a word,
    /// which has `planes` of four bytes. An element differs by at most `error` of its block's largest magnitude from
    /// what it is found to be.
    ///
    /// # Safety
    /// The rows are readable, so far apart.
    pub(crate) unsafe fn find(
        &mut self,
        isa: Isa,
        of: [i64; 2],
        (left, stride): (*const f32, usize),
        ([rows, blocks, steps, each], planes): ([usize; 4], usize),
        error: f32,
    ) -> Option<LeftBytes> {
        let size = steps * each;
        if self.used == self.all.len() {
            self.all.push(Found::default());
        }
        let found = &mut self.all[self.used];
        self.used += 1;
        found.words.resize(rows * blocks * size / 4, 0.0);
        found.scales.resize(rows * blocks, 0.0);
        found.sums.resize(rows * blocks, 0.0);
        self.bytes.resize(size, 0);
        let results = found.scales.iter_mut().zip(&mut found.sums);
        let mut all = true;
        for (n, ((scale, sum), words)) in results.zip(found.words.chunks_exact_mut(size / 4)).enumerate() {
            let at = left.wrapping_add(n / blocks * stride + n % blocks * size);
            // SAFETY: the caller vouches for the rows.
            let block = unsafe { std::slice::from_raw_parts(at, size) };
            round_block(isa, block, error, &mut self.bytes, (scale, sum), &mut all);
            if !all {
                break;
            }
            for (word, bytes) in words.chunks_exact_mut(planes).zip(self.bytes.chunks_exact(each)) {
                for (plane, word) in word.iter_mut().enumerate() {
                    let four = [0, 1, 2, 3].map(|i| bytes[plane + planes * i] as u8);
                    *word = f32::from_bits(u32::from_le_bytes(four));
                }
            }
        }
        (found.of, found.are) = (of, all);
        found.left()
    }
}

versions! {
    /// The bytes of a block, their scale and their sum; `all` becomes false if an element is none.
    fn round_block(block: &[f32], error: f32, bytes: &mut [i8], found: (&mut f32, &mut f32), all: &mut bool) {
        let most = block.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let step = (most / 127.0).max(f32::MIN_POSITIVE);
        let allowed = error * most;
        let (mut right, mut total) = (0u32, 0i32);
        for (x, byte) in block.iter().zip(bytes) {
            let q = (x / step).round_ties_even();
            // NaN is not right.
            right += u32::from((q * step - x).abs() <= allowed);
            *byte = q as i8;
            total += i32::from(q as i8);
        }
        (*found.0, *found.1) = (step, total as f32);
        *all &= right as usize == block.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_rows_are_bytes_and_others_are_not() {
        let exact: Vec<f32> = (0..64).map(|i| (i as f32 * 0.7).sin()).collect();
        let rounded: Vec<f32> = exact
            .chunks(32)
            .flat_map(|block| {
                let step = block.iter().fold(0.0f32, |m, x| m.max(x.abs())) / 127.0;
                block.iter().map(move |x| (x / step).round_ties_even() * step)
            })
            .collect();
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            let mut rows = RowBytes::default();
            let mut of = |x: &[f32]| {
                // SAFETY: a row of two blocks.
                unsafe { rows.find(isa, [0, 0], (x.as_ptr(), 64), ([1, 2, 4, 8], 2), 5e-7) }.is_some()
            };
            assert!(of(&rounded) && of(&[0.0; 64]));
            assert!(!of(&exact) && !of(&[f32::NAN; 64]));
        }
    }
}
