//! Mean and variance of activations, carried through a network that is being built.
//!
//! Weights are random with known variance, so the mean and variance of each layer's output follow from those of its
//! input, taken as normal and independent. Batch norms get these values as their running statistics, so their results
//! have about unit variance. Since those are fixed, an error of the prediction scales everything after it. Networks
//! with piecewise linear activations pass such a factor on unchanged. Smooth activations amplify or damp it at unit
//! scale, so these networks run at a larger scale (see `net::SMOOTH_GAIN`), and gates are kept near their middle.

/// Mean and variance of a run of channels.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Run {
    /// Number of channels.
    pub channels: usize,
    /// Mean over images, positions and channels.
    pub mean: f64,
    /// Variance.
    pub var: f64,
}

/// Moments of an activation, by runs of channels.
#[derive(Clone, PartialEq, Debug)]
pub struct Moments(pub Vec<Run>);

impl Moments {
    /// The same moments for all channels.
    pub fn uniform(channels: usize, mean: f64, var: f64) -> Moments {
        Moments(vec![Run { channels, mean, var }])
    }
    /// Number of channels.
    pub fn channels(&self) -> usize {
        self.0.iter().map(|r| r.channels).sum()
    }
    /// Mean over all channels.
    pub fn mean(&self) -> f64 {
        self.0.iter().map(|r| r.channels as f64 * r.mean).sum::<f64>() / self.channels() as f64
    }
    /// Mean square over all channels.
    pub fn square(&self) -> f64 {
        self.0.iter().map(|r| r.channels as f64 * (r.var + r.mean * r.mean)).sum::<f64>() / self.channels() as f64
    }
    /// Variance over all channels, the differences of their means included.
    pub fn var(&self) -> f64 {
        (self.square() - self.mean().powi(2)).max(1e-12)
    }
    /// After an elementwise function: integrates over the normal distribution.
    pub fn map(&self, f: impl Fn(f64) -> f64) -> Moments {
        Moments(self.0.iter().map(|r| through(r, &f)).collect())
    }
    /// With every variance times `factor`: after a mean over positions.
    pub fn shrink(&self, factor: f64) -> Moments {
        Moments(self.0.iter().map(|r| Run { var: r.var * factor, ..*r }).collect())
    }
    /// After the maximum over a window of what left a ReLU. The largest of four such values has mean 1.03 and variance
    /// 0.47 where they are independent, and the moments of one, 0.40 and 0.34, where they are equal.
    pub fn max_pooled(&self) -> Moments {
        Moments(self.0.iter().map(|r| Run { mean: r.mean + r.var.sqrt(), var: 1.3 * r.var, ..*r }).collect())
    }
    /// The sum of two independent activations.
    pub fn add(&self, other: &Moments) -> Moments {
        Moments::uniform(self.channels(), self.mean() + other.mean(), self.var() + other.var())
    }
    /// The product of two independent activations.
    pub fn mul(&self, other: &Moments) -> Moments {
        let mean = self.mean() * other.mean();
        Moments::uniform(self.channels(), mean, (self.square() * other.square() - mean * mean).max(1e-12))
    }
    /// Activations one after another along the channels.
    pub fn concat(parts: &[&Moments]) -> Moments {
        Moments(parts.iter().flat_map(|m| m.0.iter().copied()).collect())
    }
}

fn through(r: &Run, f: &impl Fn(f64) -> f64) -> Run {
    const STEPS: i32 = 240;
    let (mut weight, mut mean, mut square) = (0.0, 0.0, 0.0);
    for step in -STEPS..=STEPS {
        let z = step as f64 * 6.0 / STEPS as f64;
        let density = (-0.5 * z * z).exp();
        let y = f(r.mean + r.var.sqrt() * z);
        weight += density;
        mean += density * y;
        square += density * y * y;
    }
    let mean = mean / weight;
    Run { channels: r.channels, mean, var: (square / weight - mean * mean).max(1e-12) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relu_of_a_unit_normal() {
        let m = Moments::uniform(8, 0.0, 1.0).map(|x| x.max(0.0));
        // 1 / sqrt(2 pi) and 1/2 - 1 / (2 pi).
        assert!((m.mean() - 0.398_942).abs() < 1e-3 && (m.var() - 0.340_845).abs() < 1e-3, "{m:?}");
    }

    #[test]
    fn concat_counts_the_differences_of_means() {
        let (a, b) = (Moments::uniform(1, 0.0, 1.0), Moments::uniform(3, 4.0, 1.0));
        let c = Moments::concat(&[&a, &b]);
        assert_eq!((c.channels(), c.mean(), c.var()), (4, 3.0, 4.0));
    }
}
