//! Interval arithmetic: the range of an operator's result from the ranges of its operands, sound for every pair of
//! operands.
//!
//! An interval may be open on either side: `i64::MIN` as the lower end and `i64::MAX` as the upper end mean that there
//! is no end. An end that leaves i64 becomes open on the outside and saturates on the inside. So an interval always
//! contains every possible value, also values beyond i64.

/// An inclusive range of integers; `i64::MIN` and `i64::MAX` stand for ends that are not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// The smallest value, or `i64::MIN` for none.
    pub low: i64,
    /// The largest value, or `i64::MAX` for none.
    pub high: i64,
}

/// An open end in products: beyond i64 after multiplication with anything except 0.
const OPEN: i128 = 1 << 66;

impl Interval {
    /// Every integer.
    pub const ALL: Interval = Interval { low: i64::MIN, high: i64::MAX };
    /// The range of a shader's 32-bit registers.
    pub const I32: Interval = Interval { low: i32::MIN as i64, high: i32::MAX as i64 };

    /// `low..=high`; an end of i64 is open.
    pub fn new(low: i64, high: i64) -> Interval {
        Interval { low, high }
    }
    /// The one value `c`.
    pub fn point(c: i64) -> Interval {
        Interval { low: c, high: c }
    }
    /// Both ends, when neither is open.
    pub fn finite(self) -> Option<(i64, i64)> {
        (self.low != i64::MIN && self.high != i64::MAX).then_some((self.low, self.high))
    }
    fn as_point(self) -> Option<i64> {
        self.finite().filter(|(low, high)| low == high).map(|p| p.0)
    }
    /// True if every value is at least `low` and at most `high`; `i64::MIN` and `i64::MAX` mean no bound.
    pub fn within(self, low: i64, high: i64) -> bool {
        self.low >= low && self.high <= high
    }
    /// The values in both; if there are none, `low > high`.
    pub fn intersect(self, other: Interval) -> Interval {
        Interval { low: self.low.max(other.low), high: self.high.min(other.high) }
    }
    /// Every value times `k`.
    pub(super) fn scale(self, k: i64) -> Interval {
        // An open end stays open; a negative factor turns it round, and `!` takes one open end to the other.
        let times = |end: i64, open: i64| match end == open {
            true if k > 0 => open,
            true => !open,
            false => end.saturating_mul(k),
        };
        match k {
            0 => Interval::point(0),
            k if k > 0 => Interval { low: times(self.low, i64::MIN), high: times(self.high, i64::MAX) },
            _ => Interval { low: times(self.high, i64::MAX), high: times(self.low, i64::MIN) },
        }
    }
    /// Floor division; anything for a divisor that may not be positive.
    pub(super) fn floor_div(self, by: Interval) -> Interval {
        if by.low < 1 {
            return Interval::ALL;
        }
        // Monotone in the dividend; in the divisor falling for dividends from 0 on, rising below.
        let low = match self.low {
            i64::MIN => i64::MIN,
            low if low < 0 => low.div_euclid(by.low),
            _ if by.high == i64::MAX => 0,
            low => low / by.high,
        };
        let high = match self.high {
            i64::MAX => i64::MAX,
            high if high >= 0 => high / by.low,
            _ if by.high == i64::MAX => -1,
            high => high.div_euclid(by.high),
        };
        Interval { low, high }
    }
    /// Floor modulo; anything for a divisor that may not be positive.
    pub(super) fn floor_mod(self, by: Interval) -> Interval {
        if by.low < 1 {
            return Interval::ALL;
        }
        let below = if by.high == i64::MAX { i64::MAX } else { by.high - 1 };
        if let (Some((low, high)), Some(c)) = (self.finite(), by.as_point())
            && low.div_euclid(c) == high.div_euclid(c)
        {
            return Interval { low: low.rem_euclid(c), high: high.rem_euclid(c) };
        }
        match self.low >= 0 {
            true if self.high < by.low => self,
            true => Interval { low: 0, high: self.high.min(below) },
            false => Interval { low: 0, high: below },
        }
    }
    /// The smaller of two.
    pub(super) fn min(self, other: Interval) -> Interval {
        Interval { low: self.low.min(other.low), high: self.high.min(other.high) }
    }
    /// The larger of two.
    pub(super) fn max(self, other: Interval) -> Interval {
        Interval { low: self.low.max(other.low), high: self.high.max(other.high) }
    }
}

impl std::ops::Add for Interval {
    type Output = Interval;
    fn add(self, other: Interval) -> Interval {
        let open = |a: i64, b: i64, end: i64| if a == end || b == end { end } else { a.saturating_add(b) };
        Interval { low: open(self.low, other.low, i64::MIN), high: open(self.high, other.high, i64::MAX) }
    }
}
impl std::ops::Sub for Interval {
    type Output = Interval;
    fn sub(self, other: Interval) -> Interval {
        self + other.scale(-1)
    }
}
impl std::ops::Mul for Interval {
    type Output = Interval;
    fn mul(self, other: Interval) -> Interval {
        match (self.as_point(), other.as_point()) {
            (Some(k), _) => return other.scale(k),
            (_, Some(k)) => return self.scale(k),
            _ => {}
        }
        let ends = |r: Interval| {
            let low = if r.low == i64::MIN { -OPEN } else { i128::from(r.low) };
            let high = if r.high == i64::MAX { OPEN } else { i128::from(r.high) };
            [low, high]
        };
        let [a, b] = [ends(self), ends(other)];
        let corners = [a[0], a[1]].map(|x| [b[0], b[1]].map(|y| x.saturating_mul(y)));
        let clamp = |x: i128| x.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let low = corners.iter().flatten().min().copied().map_or(i64::MIN, clamp);
        let high = corners.iter().flatten().max().copied().map_or(i64::MAX, clamp);
        Interval { low, high }
    }
}
