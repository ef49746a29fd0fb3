//! Statistics of repeated measurements.

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
}

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
        Statistics { median: quantile(0.5), p90: quantile(0.9), p99: quantile(0.99), min: sorted[0], mean, stddev }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        let s = Statistics::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!((s.median, s.min, s.mean), (2.5, 1.0, 2.5));
        assert!((s.p90 - 3.7).abs() < 1e-12 && (s.stddev - 1.2909944487358056).abs() < 1e-12);
        assert_eq!(Statistics::of(&[]), Statistics::default());
    }
}
