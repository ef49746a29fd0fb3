//! Passes and sectors of one access, from the bytes that the lanes of a subgroup touch.

use rustc_hash::FxHashSet;

/// Banks of workgroup memory.
pub const BANKS: i64 = 32;
/// Bytes that one bank gives in a pass.
pub const BANK_BYTES: i64 = 4;
/// Bytes of device memory that are fetched together.
pub const SECTOR_BYTES: i64 = 32;

/// Words of `width` bytes at each of `starts` (bytes), without repeats.
fn pieces(starts: &[i64], width: i64, piece: i64, shift: i64) -> FxHashSet<i64> {
    let mut out = FxHashSet::default();
    for start in starts {
        let start = start + shift;
        out.extend(start.div_euclid(piece)..=(start + width - 1).div_euclid(piece));
    }
    out
}

/// Passes over the banks for accesses of `width` bytes at `starts`, and the passes that as many words need at least.
pub fn bank_passes(starts: &[i64], width: i64) -> (i64, i64) {
    let words = pieces(starts, width, BANK_BYTES, 0);
    let mut load = [0i64; BANKS as usize];
    for w in &words {
        load[w.rem_euclid(BANKS) as usize] += 1;
    }
    let least = (words.len() as i64 + BANKS - 1) / BANKS;
    (load.into_iter().max().unwrap_or(0), least)
}

/// Sectors for accesses of `width` bytes at `starts`: the mean over starts that are all shifted by 0, `step`, 2 `step`
/// ... bytes within a sector.
pub(super) fn sectors(starts: &[i64], width: i64, step: i64) -> f64 {
    let step = step.clamp(1, SECTOR_BYTES);
    let shifts: Vec<i64> = (0..SECTOR_BYTES / step).map(|n| n * step).collect();
    let sum: usize = shifts.iter().map(|s| pieces(starts, width, SECTOR_BYTES, *s).len()).sum();
    sum as f64 / shifts.len() as f64
}

/// Bytes that are touched at least once.
pub(super) fn distinct_bytes(starts: &[i64], width: i64) -> i64 {
    let different: FxHashSet<i64> = starts.iter().copied().collect();
    different.len() as i64 * width
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(f: impl Fn(i64) -> i64) -> Vec<i64> {
        (0..32).map(f).collect()
    }

    #[test]
    fn words_of_one_bank_take_turns() {
        assert_eq!(bank_passes(&lanes(|l| l * 4), 4), (1, 1));
        assert_eq!(bank_passes(&lanes(|_| 64), 4), (1, 1), "a broadcast");
        assert_eq!(bank_passes(&lanes(|l| l * 8), 4), (2, 1), "every second word");
        assert_eq!(bank_passes(&lanes(|l| l * 128), 4), (32, 1), "all in bank 0");
        assert_eq!(bank_passes(&lanes(|l| l * 132), 4), (1, 1), "rows of 32 words, padded by one");
        assert_eq!(bank_passes(&lanes(|l| l * 16), 16), (4, 4), "vectors of four words");
        assert_eq!(bank_passes(&lanes(|l| l * 32), 16), (8, 4), "every second vector");
        assert_eq!(bank_passes(&lanes(|l| l * 2), 2), (1, 1), "two halves of each word");
    }

    #[test]
    fn sectors_are_fetched_whole() {
        assert_eq!(sectors(&lanes(|l| l * 4), 4, 32), 4.0);
        assert_eq!(sectors(&lanes(|l| l * 16), 16, 32), 16.0);
        assert_eq!(sectors(&lanes(|l| l * 1024), 16, 32), 32.0, "a row for each lane");
        assert_eq!(sectors(&lanes(|l| (l / 2) * 1024 + l % 2 * 16), 16, 32), 16.0, "two lanes a row");
        // Shifted by 4 bytes or more, not by 0: one sector more in 7 of 8 places.
        assert_eq!(sectors(&lanes(|l| l * 4), 4, 4), 4.0 + 7.0 / 8.0);
        assert_eq!(distinct_bytes(&lanes(|l| l / 4 * 16), 16), 128);
    }
}
