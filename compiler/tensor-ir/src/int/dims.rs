//! Sizes that stay open until a run: the range of each ([`DimRange`]), and typical sizes where a choice needs a number.
//!
//! A range has a lower end (0 or more), an upper end and a step; a dimension without a declared range has 1 to 65,536.
//! [`typical_size`] takes a size between the ends, nearer to the upper one, since large runs cost more time.

use super::{Bounds, Cond, Int, interval, prove, prove_cond, simplify};
use crate::name::Name;
use rustc_hash::FxHashMap;
use std::fmt;

/// The largest size of a dimension without a declared range.
const MOST: i64 = 1 << 16;

/// The sizes that a dimension may have: `low`, `low + step` ... `high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DimRange {
    /// The least size.
    pub low: i64,
    /// The largest size; a whole number of steps above the least.
    pub high: i64,
    /// The distance of one size from the next, at least 1.
    pub step: i64,
}

impl DimRange {
    /// The sizes from `low` to `high` in steps of `step`; `None` if the range is empty or has a negative size.
    pub fn new(low: i64, high: i64, step: i64) -> Option<DimRange> {
        let there = 0 <= low && low <= high && step >= 1;
        there.then(|| DimRange { low, high: low + (high - low) / step * step, step })
    }
    /// True for a size that a run may have.
    pub fn contains(self, size: i64) -> bool {
        (self.low..=self.high).contains(&size) && (size - self.low) % self.step == 0
    }
    /// True if the range begins at 1 and `size` is 0. An input without elements (for example no boxes) is accepted all
    /// the same: it is compiled separately.
    pub fn takes_empty(self, size: i64) -> bool {
        size == 0 && self.low == 1
    }
}

impl fmt::Display for DimRange {
    /// `from 32 to 640 in steps of 32`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {} to {}", self.low, self.high)?;
        if self.step > 1 { write!(f, " in steps of {}", self.step) } else { Ok(()) }
    }
}

/// Ranges of open dimensions, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DimRanges {
    declared: FxHashMap<Name, DimRange>,
}

impl DimRanges {
    /// Declares that `dim` is from `low` to `high`, both included.
    pub fn declare(&mut self, dim: Name, low: i64, high: i64) {
        self.declare_range(dim, DimRange { low, high, step: 1 });
    }
    /// Declares the sizes that `dim` may have.
    pub fn declare_range(&mut self, dim: Name, range: DimRange) {
        self.declared.insert(dim, range);
    }
    /// Adds the declarations of `other`.
    pub fn extend(&mut self, other: &DimRanges) {
        self.declared.extend(other.declared.iter().map(|(&dim, &range)| (dim, range)));
    }
    /// The least and the largest size of `dim`; 1 and 65,536 where nothing is declared.
    pub fn range(&self, dim: Name) -> (i64, i64) {
        let DimRange { low, high, .. } = self.sizes(dim);
        (low, high)
    }
    /// The sizes that `dim` may have.
    pub fn sizes(&self, dim: Name) -> DimRange {
        self.declared.get(&dim).copied().unwrap_or(DimRange { low: 1, high: MOST, step: 1 })
    }
    /// The least size of `dim`. Reports show the numbers for it unless other sizes are requested.
    pub fn least(&self, dim: Name) -> i64 {
        self.range(dim).0
    }
    /// Bounds of the symbols of expressions: any size for a symbol that is not declared, and 0 included if a range
    /// begins at 1 ([`DimRange::takes_empty`]).
    pub fn bounds_of(&self, exprs: &[&Int]) -> Bounds {
        let mut bounds = Bounds::new();
        for v in exprs.iter().flat_map(|e| e.vars()) {
            let (low, high) = self.declared.get(&v).map_or((0, i64::MAX), |r| (r.low, r.high));
            bounds.insert(v, if low == 1 { 0 } else { low }, high);
        }
        bounds
    }
    /// `expr` as a number if these ranges allow only one value; else simplified.
    pub fn settle(&self, expr: &Int) -> Int {
        if expr.as_const().is_some() {
            return expr.clone();
        }
        let bounds = self.bounds_of(&[expr]);
        let simple = simplify(expr, &bounds);
        let span = interval(&simple, &bounds);
        if span.low == span.high { Int::new(span.low) } else { simple }
    }
    /// True if `expr` never has an absolute value above `most`. Sizes without a declared range are at most 65,536.
    pub fn is_within(&self, expr: &Int, most: i64) -> bool {
        let mut bounds = self.bounds_of(&[expr]);
        for v in expr.vars().into_iter().filter(|&v| !self.is_declared(v)) {
            bounds.insert(v, 0, MOST);
        }
        prove(expr, -most, most, &bounds)
    }
    /// True if `expr` is at least `low` for all sizes.
    pub fn proves(&self, expr: &Int, low: i64) -> bool {
        prove(expr, low, i64::MAX, &self.bounds_of(&[expr]))
    }
    /// The condition as an expression of 0 or 1; a number if these ranges decide it.
    pub fn truth(&self, cond: &Cond) -> Int {
        match prove_cond(cond, &self.bounds_of(&[&cond.lhs, &cond.rhs])) {
            Some(holds) => Int::new(i64::from(holds)),
            None => cond.truth(),
        }
    }
    /// True when `dim` was declared.
    pub fn is_declared(&self, dim: Name) -> bool {
        self.declared.contains_key(&dim)
    }
}

/// The largest size that a range makes likely which says no more than that a size is small enough to be one.
const LIKELY: i64 = 4096;

/// The size for which choices are made that hold for a whole range: the geometric mean of its ends, rounded to a
/// multiple of 16 if the range has one. The upper end (at most 4,096) counts twice, since a bad choice costs more time
/// at larger sizes.
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

    #[test]
    fn ranges_have_steps() {
        let r = DimRange::new(32, 655, 32).unwrap();
        assert_eq!(r.to_string(), "from 32 to 640 in steps of 32");
        assert_eq!(
            [31, 32, 33, 64, 640, 655, 672].map(|n| r.contains(n)),
            [false, true, false, true, true, false, false]
        );
        assert_eq!((DimRange::new(3, 2, 1), DimRange::new(1, 2, 0), DimRange::new(-1, 2, 1)), (None, None, None));
        let from_one = DimRange::new(1, 8, 1).unwrap();
        assert!(from_one.takes_empty(0) && !from_one.contains(0) && !r.takes_empty(0));
    }

    #[test]
    fn ranges_decide_conditions() {
        let (n, m) = (Int::var("n"), Int::var("m"));
        let mut r = DimRanges::default();
        r.declare(Name::new("n"), 4, 64);
        r.declare(Name::new("m"), 1, 64);
        // No size is negative, whatever is declared.
        assert!(r.truth(&Cond::eq(Int::var("k"), -1)).is(0));
        assert!(r.truth(&Cond::lt(&n, 65)).is(1) && r.truth(&Cond::ge(&n, 4)).is(1));
        assert!(r.truth(&Cond::eq(n.clone() * 2, 9)).is(0));
        // A run may have no elements where the range begins at 1.
        assert!(r.truth(&Cond::ge(&m, 1)).as_const().is_none());
        assert!(r.settle(&n.max(3).min(2)).is(2));
        assert_eq!(r.settle(&n.max(0)), n);
        for (cond, holds) in [(Cond::lt(&n, 7), [1, 0, 0]), (Cond::ge(&n, 7), [0, 1, 1]), (Cond::eq(&n, 7), [0, 1, 0])]
        {
            let truth = r.truth(&cond);
            let at = [6, 7, 8].map(|size| truth.eval(&|_| Some(size)));
            assert_eq!(at, holds.map(Some), "{cond}");
        }
    }
}
