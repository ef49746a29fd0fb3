//! Sizes that stay open until a run: what they may be, and numbers to stand for them where a choice needs some.

use crate::name::Name;
use rustc_hash::FxHashMap;

/// The most that a size may be of which nobody says more.
const MOST: i64 = 1 << 16;

/// Ranges of open dimensions, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DimRanges {
    declared: FxHashMap<Name, (i64, i64)>,
}

impl DimRanges {
    /// Declares that `dim` is from `low` to `high`, both included.
    pub fn declare(&mut self, dim: Name, low: i64, high: i64) {
        self.declared.insert(dim, (low, high));
    }
    /// Declares what `other` declares.
    pub fn extend(&mut self, other: &DimRanges) {
        self.declared.extend(other.declared.iter().map(|(&dim, &range)| (dim, range)));
    }
    /// The declared range of `dim`; 1 to 65,536 without one.
    pub fn range(&self, dim: Name) -> (i64, i64) {
        self.declared.get(&dim).copied().unwrap_or((1, MOST))
    }
    /// The least size of `dim`: what a compilation shows where nothing else is stated.
    pub fn least(&self, dim: Name) -> i64 {
        self.range(dim).0
    }
    /// True when `dim` was declared.
    pub fn is_declared(&self, dim: Name) -> bool {
        self.declared.contains_key(&dim)
    }
}

/// The largest size that a range makes likely which says no more than that a size is small enough to be one.
const LIKELY: i64 = 4096;

/// A size that stands for all of a range where a choice is made for them together, rounded to a multiple of 16 where there is one: the geometric
/// mean of its ends, the upper one (at most 4,096) weighing twice, since what a larger size loses by the choice costs more time.
pub fn typical_size((low, high): (i64, i64)) -> i64 {
    let likely = high.min(LIKELY.max(low)).max(1) as f64;
    let mean = (low.max(1) as f64 * likely * likely).cbrt().round() as i64;
    let rounded = mean / 16 * 16;
    let size = if rounded >= low.max(1) { rounded } else { mean };
    size.clamp(low, high.max(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typical_sizes_lie_within_their_range() {
        assert_eq!(typical_size((1, 64)), 16);
        assert_eq!(typical_size((1, MOST)), 256);
        assert_eq!(typical_size((32, 1024)), 320);
        assert_eq!(typical_size((7, 7)), 7);
        assert_eq!(typical_size((0, 3)), 2);
        let mut r = DimRanges::default();
        r.declare(Name::new("n"), 2, 9);
        assert_eq!((r.range(Name::new("n")), r.range(Name::new("m"))), ((2, 9), (1, MOST)));
    }
}
