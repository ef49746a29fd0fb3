//! What the lanes name in the iterations of an access, merged to the accesses that a thread does.

use super::transactions::{SECTOR_BYTES, sectors};
use crate::int::gcd;

/// Bytes of the widest access.
pub(super) const WIDEST: i64 = 16;

/// Elements by iteration and lane.
pub(super) struct Offsets {
    pub each: Vec<Vec<i64>>,
    /// What other variables move all lanes by, as a divisor; 0 when they do not.
    pub step: i64,
    pub exact: bool,
    pub lanes: usize,
    pub share: f64,
}

impl Offsets {
    /// The accesses that a thread does: repeated ones once, and up to `most` aligned neighbours as one, with their
    /// number.
    pub fn merged(mut self, most: i64) -> Vec<(Vec<i64>, i64)> {
        self.each.retain(|l| !l.is_empty());
        self.each.sort_unstable();
        self.each.dedup();
        let step = self.step;
        let aligned = |l: &[i64], n: i64| step % n == 0 && l.iter().all(|e| e.rem_euclid(n) == 0);
        let mut out = Vec::new();
        let mut rest = self.each.as_slice();
        while let Some(first) = rest.first() {
            let follows = |n: i64| {
                let run = rest.get(..n as usize);
                run.is_some_and(|run| {
                    (0i64..).zip(run).all(|(k, l)| l.iter().zip(first).all(|(e, start)| *e == start + k))
                })
            };
            let n = [8, 4, 2].into_iter().find(|n| *n <= most && aligned(first, *n) && follows(*n)).unwrap_or(1);
            out.push((first.clone(), n));
            rest = &rest[n as usize..];
        }
        out
    }
}

/// Bytes by which starts are shifted that other variables move by multiples of `step` elements.
pub(super) fn shift(step: i64, element: f64) -> i64 {
    match step {
        0 => SECTOR_BYTES,
        n => ((n as f64 * element) as i64).max(1),
    }
}

/// Accesses of a thread to elements of `element` bytes of device memory, and the sectors that the lanes touch with
/// them. The elements come by unrolled iteration and lane; others move all lanes by sums of `moves`.
pub(super) fn unrolled(each: Vec<Vec<i64>>, moves: &[i64], element: f64) -> (f64, f64) {
    let step = moves.iter().fold(0, |a, b| gcd(a, *b));
    let lanes = each.first().map_or(0, Vec::len);
    let merged = Offsets { each, step, exact: true, lanes, share: 1.0 }.merged((WIDEST as f64 / element) as i64);
    let of = |(starts, count): &(Vec<i64>, i64)| {
        let bytes: Vec<i64> = starts.iter().map(|s| (*s as f64 * element) as i64).collect();
        sectors(&bytes, ((*count as f64 * element) as i64).max(1), shift(step, element))
    };
    (merged.len() as f64, merged.iter().map(of).sum())
}
