//! Statistics of repeated measurements.

use runtime_gpu::error_of_median;

/// Summary of samples, in their unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Statistics {
    /// Middle value.
    pub median: f64,
    /// 90 % of the samples are not above this.
    pub p90: f64,
    /// 99 % of the samples are not above this.
    pub p99: f64,
    /// Smallest.
    pub min: f64,
    /// Average.
    pub mean: f64,
    /// Sample standard deviation.
    pub stddev: f64,
    /// By how much the median of another measurement may differ: two standard errors of the median, or half of what
    /// lies between the medians of the first and the second half of the samples, if that is more. Null for fewer than
    /// four samples.
    #[serde(default)]
    pub plus_minus: Option<f64>,
}

/// Samples from which on their spread says something.
const FEWEST: usize = 4;

impl Statistics {
    /// Summarises `samples`; all zero for none. Quantiles interpolate linearly between order statistics.
    pub fn of(samples: &[f64]) -> Statistics {
        if samples.is_empty() {
            return Statistics::default();
        }
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let quantile = |q: f64| {
            let at = q * (sorted.len() - 1) as f64;
            let (low, part) = (at.floor() as usize, at.fract());
            let high = (low + 1).min(sorted.len() - 1);
            sorted[low] * (1.0 - part) + sorted[high] * part
        };
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        let squares: f64 = samples.iter().map(|s| (s - mean).powi(2)).sum();
        let stddev = if samples.len() > 1 { (squares / (samples.len() - 1) as f64).sqrt() } else { 0.0 };
        let [median, p90, p99] = [0.5, 0.9, 0.99].map(quantile);
        Statistics { median, p90, p99, min: sorted[0], mean, stddev, plus_minus: plus_minus(samples) }
    }
    /// [`Statistics::plus_minus`] as a share of the median.
    pub fn noise(&self) -> Option<f64> {
        self.plus_minus.filter(|_| self.median > 0.0).map(|by| by / self.median)
    }
}

/// A time as a multiple of another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratio {
    /// The ratio of the medians.
    pub value: f64,
    /// By how much other measurements may differ from it; `None` if either side does not know its own.
    pub plus_minus: Option<f64>,
}

impl Ratio {
    /// The median of `a` over the one of `b`.
    pub fn of(a: &Statistics, b: &Statistics) -> Ratio {
        let value = a.median / b.median.max(1e-12);
        Ratio { value, plus_minus: a.noise().zip(b.noise()).map(|(a, b)| value * a.hypot(b)) }
    }
    /// True when it is above `limit` by more than its noise.
    pub fn is_above(&self, limit: f64) -> bool {
        self.value - self.plus_minus.unwrap_or(0.0) > limit
    }
    /// `faster`, `slower` or `even`, of `b` beside `a`; empty if the noise is not known.
    pub fn word(&self) -> &'static str {
        match self.plus_minus {
            None => "",
            Some(by) if (self.value - 1.0).abs() <= by => "even",
            Some(_) if self.value > 1.0 => "faster",
            Some(_) => "slower",
        }
    }
}

fn plus_minus(samples: &[f64]) -> Option<f64> {
    let half = |list: &[f64]| Statistics::of(list).median;
    let (first, second) = samples.split_at(samples.len() / 2);
    (samples.len() >= FEWEST).then(|| (2.0 * error_of_median(samples)).max((half(second) - half(first)).abs() / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_median_may_be_off_by() {
        let by = |samples: &[f64]| Statistics::of(samples).plus_minus;
        assert_eq!(by(&[1.0, 2.0, 3.0]), None);
        assert_eq!(by(&[5.0; 8]), Some(0.0));
        // Four steps of 1 around 10: deviations of .5 and 1.5, a standard error of 1.2533 * 1.4826 * 1 / 2.
        assert!((by(&[10.0, 9.0, 11.0, 12.0]).expect("four") - 1.2533 * 1.4826).abs() < 1e-9);
        // The second half takes 4 more.
        assert_eq!(by(&[1.0, 1.0, 1.0, 5.0, 5.0, 5.0]), Some(2.0 * 1.2533 * 1.4826 * 2.0 / 6f64.sqrt()));
        assert_eq!(by(&[[1.0; 40], [5.0; 40]].concat()), Some(2.0));
    }

    #[test]
    fn a_ratio_is_held_against_its_noise() {
        let of = |median: f64, by: f64| Statistics { median, plus_minus: Some(by), ..Statistics::default() };
        let ratio = |a: (f64, f64), b: (f64, f64)| Ratio::of(&of(a.0, a.1), &of(b.0, b.1));
        let r = ratio((10.0, 0.3), (8.0, 0.32));
        assert!((r.value, r.word()) == (1.25, "faster") && (r.plus_minus.expect("known") - 0.0625).abs() < 1e-9);
        assert!(r.is_above(1.15) && !r.is_above(1.2));
        assert_eq!(ratio((8.0, 0.32), (10.0, 0.3)).word(), "slower");
        assert_eq!(ratio((10.0, 0.5), (9.8, 0.0)).word(), "even");
        assert_eq!(Ratio::of(&Statistics::of(&[1.0]), &of(1.0, 0.1)).word(), "");
    }

    #[test]
    fn quantiles_interpolate() {
        let s = Statistics::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!((s.median, s.min, s.mean), (2.5, 1.0, 2.5));
        assert!((s.p90 - 3.7).abs() < 1e-12 && (s.stddev - 1.2909944487358056).abs() < 1e-12);
        assert_eq!(Statistics::of(&[]), Statistics::default());
    }
}
