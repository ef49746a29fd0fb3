//! Weights in a trace: hash, shape and histogram of each.

use crate::dtype::DType;
use crate::graph::Constant;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Bars of a histogram.
pub const BARS: usize = 32;

/// A constant of the model, without its data.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WeightSummary {
    /// Name in the model.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// SHA-256 of the little-endian bytes.
    pub sha256: [u8; 32],
    /// Smallest finite value; 0 where there is none.
    pub min: f64,
    /// Largest finite value; 0 where there is none.
    pub max: f64,
    /// Mean of the finite values.
    pub mean: f64,
    /// Standard deviation of the finite values.
    pub std: f64,
    /// Infinities and nans.
    pub not_finite: u64,
    /// How many finite values lie in each of [`BARS`] equal parts from `min` to `max`.
    pub histogram: Vec<u64>,
}

impl WeightSummary {
    /// Reads a constant once and sums it up.
    ///
    /// # Errors
    /// An error of the constant's source.
    pub fn of(name: &str, constant: &Constant) -> Result<WeightSummary, String> {
        let tensor = constant.load().map_err(|e| format!("weight `{name}`: {e}"))?;
        let mut summary = match tensor.as_slice::<f32>() {
            Some(values) => distribution(values.len(), || values.iter().map(|&v| f64::from(v))),
            None => {
                let values = tensor.to_f64_vec();
                distribution(values.len(), || values.iter().copied())
            }
        };
        summary.name = name.to_string();
        summary.dtype = tensor.dtype();
        summary.shape = tensor.shape().to_vec();
        summary.sha256 = Sha256::digest(tensor.bytes()).into();
        Ok(summary)
    }
    /// The hash in hexadecimal digits.
    pub fn hash(&self) -> String {
        self.sha256.iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// Moments and histogram of `n` values, in two walks over them.
fn distribution<I: Iterator<Item = f64>>(n: usize, values: impl Fn() -> I) -> WeightSummary {
    let (mut min, mut max, mut sum, mut square, mut count) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0.0, 0u64);
    for v in values().filter(|v| v.is_finite()) {
        (min, max) = (min.min(v), max.max(v));
        sum += v;
        square += v * v;
        count += 1;
    }
    let total = count.max(1) as f64;
    let mean = sum / total;
    let mut histogram = vec![0u64; BARS];
    if count == 0 {
        (min, max) = (0.0, 0.0);
    }
    let scale = if max > min { BARS as f64 / (max - min) } else { 0.0 };
    for v in values().filter(|v| v.is_finite()) {
        histogram[(((v - min) * scale) as usize).min(BARS - 1)] += 1;
    }
    WeightSummary {
        name: String::new(),
        dtype: DType::F32,
        shape: vec![],
        sha256: [0; 32],
        min,
        max,
        mean,
        std: (square / total - mean * mean).max(0.0).sqrt(),
        not_finite: n as u64 - count,
        histogram,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Tensor;

    fn summary(t: &Tensor) -> WeightSummary {
        WeightSummary::of("w", &Constant::from_tensor(t)).unwrap()
    }

    #[test]
    fn values_are_summed_up() {
        let s = summary(&Tensor::from_vec(vec![2, 3], vec![-1.0f32, 0.0, 1.0, 1.0, f32::NAN, f32::INFINITY]));
        assert_eq!((s.min, s.max, s.mean, s.not_finite), (-1.0, 1.0, 0.25, 2));
        assert!((s.std - 0.6875f64.sqrt()).abs() < 1e-12, "{}", s.std);
        assert_eq!((s.histogram[0], s.histogram[16], s.histogram[31]), (1, 1, 2));
        assert_eq!(s.histogram.iter().sum::<u64>(), 4);
        assert_eq!(s.shape, [2, 3]);
    }

    #[test]
    fn the_hash_is_that_of_the_bytes() {
        let s = summary(&Tensor::from_vec(vec![1], vec![0i32]));
        assert_eq!(s.hash(), "df3f619804a92fdb4057192dc43dd748ea778adc52bc498ce80524c014b81119");
        let empty = summary(&Tensor::zeros(DType::F32, vec![0]));
        assert_eq!((empty.min, empty.max, empty.mean, empty.std), (0.0, 0.0, 0.0, 0.0));
        assert!(empty.hash().starts_with("e3b0c442"));
    }

    #[test]
    fn huge_values_do_not_break_the_histogram() {
        let s = summary(&Tensor::from_vec(vec![2], vec![f64::MAX, f64::MIN]));
        assert_eq!(s.histogram.iter().sum::<u64>(), 2);
    }
}
