//! The values of `random(seed)` in text.

use crate::dtype::DType;
use crate::fault::Fault;
use crate::tensor::{DataSource, Tensor};
use bytes::Bytes;
use std::sync::OnceLock;

/// The data of a constant that text fills with `random(seed)`, made when it is first read.
pub struct RandomData {
    dtype: DType,
    shape: Vec<usize>,
    seed: u64,
    made: OnceLock<Bytes>,
}
impl RandomData {
    /// Data of this type, of [`random_tensor`].
    pub fn new(dtype: DType, shape: Vec<usize>, seed: u64) -> RandomData {
        RandomData { dtype, shape, seed, made: OnceLock::new() }
    }
}
impl DataSource for RandomData {
    fn read(&self) -> Result<Bytes, Fault> {
        let made = self.made.get_or_init(|| random_tensor(self.dtype, &self.shape, self.seed).bytes().clone());
        Ok(made.clone())
    }
    fn identity(&self) -> Option<String> {
        Some(format!("{}{:?} = random({})", self.dtype, self.shape, self.seed))
    }
    fn initial_text(&self) -> Option<String> {
        Some(format!("random({})", self.seed))
    }
}

/// Numbers of a fixed sequence: floats uniform in [-1, 1), integers in 0..=7, bools even. The same on every machine.
pub fn random_tensor(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let count: usize = shape.iter().product();
    let values = (0..count).map(|_| {
        let bits = next();
        match dtype {
            DType::Bool => (bits >> 63) as f64,
            t if t.is_int() => (bits >> 61) as f64,
            _ => (bits >> 40) as f64 / (1u64 << 23) as f64 - 1.0,
        }
    });
    Tensor::from_f64(dtype, shape.to_vec(), values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_values_stay_in_range() {
        let f = random_tensor(DType::F32, &[1000], 3).to_f64_vec();
        assert!(f.iter().all(|x| (-1.0..1.0).contains(x)));
        assert!(f.iter().sum::<f64>().abs() < 100.0);
        let i = random_tensor(DType::I64, &[1000], 3).to_i64_vec();
        assert!(i.iter().all(|x| (0..8).contains(x)) && i.contains(&7) && i.contains(&0));
        assert_eq!(random_tensor(DType::F16, &[5], 1), random_tensor(DType::F16, &[5], 1));
        assert_ne!(random_tensor(DType::F32, &[5], 1), random_tensor(DType::F32, &[5], 2));
    }
}
