//! Seeded tensors that are generated when they are read.
//!
//! Every tensor has its own stream, seeded by the model's seed and the tensor's name, so that it does not depend on
//! which others were read. The same bits come out on every machine: only sums, products and square roots are used.

use bytes::Bytes;
use compiler::fault::Fault;
use compiler::tensor::{DataSource, Tensor, reserve};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// How elements are drawn.
#[derive(Clone, Debug)]
pub enum Fill {
    /// Near-normal with mean 0.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Near-normal, and every row of so many elements sums to 0: a filter that ignores what all its inputs share, so
    /// that the part of the signal that tells one image from another survives a deep network. With a `share` below 1
    /// some of the sum stays, and the layer magnifies rounding less.
    Centered {
        /// Standard deviation before the row's mean is taken off.
        std: f64,
        /// The share of the row's mean that is taken off.
        share: f64,
        /// Elements of a row.
        row: usize,
    },
    /// `base` for each run of channels, each element plus a near-normal part and times an even factor from
    /// `1 - spread` to `1 + spread`.
    Runs {
        /// Channels, their value, and the standard deviation of what is added.
        runs: Vec<(usize, f64, f64)>,
        /// Relative spread.
        spread: f64,
    },
    /// Rows of so many elements, near-normal but for this: the square of a row's sum equals its sum of squares, which
    /// is `row * std^2`. Such a depthwise filter gives the same variance whether neighbouring pixels are independent or
    /// equal.
    Balanced {
        /// Root mean square.
        std: f64,
        /// Elements of a row.
        row: usize,
    },
    /// One element for each row of `weight`: its sum times the mean of its channel.
    RowSums {
        /// The rows.
        weight: Box<Generated>,
        /// Elements of a row.
        row: usize,
        /// Runs of channels and their mean.
        means: Vec<(usize, f64)>,
    },
}

/// A tensor of f32 to be generated.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The stream.
    pub stream: u64,
    /// Number of elements.
    pub len: usize,
    /// How they are drawn.
    pub fill: Fill,
}

/// The stream of tensor `name` in a model of seed `seed`: FNV-1a of the name, mixed with the seed.
pub fn stream_of(seed: u64, name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ b as u64).wrapping_mul(0x0100_0000_01b3));
    hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Draws numbers of mean 0 and variance 1.
struct Draw(ChaCha8Rng);
impl Draw {
    /// The sum of four even numbers: close to normal, and within 3.5.
    fn normal(&mut self) -> f64 {
        let bits = self.0.next_u64();
        let sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        // Four even numbers from 0 to 65535: mean 131070, variance 4 * (65536^2 - 1) / 12.
        (sum as f64 - 131_070.0) / 37_837.22
    }
    /// Even in -1..1.
    fn even(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * 2f64.powi(-52) - 1.0
    }
}

impl Generated {
    /// The elements.
    ///
    /// # Errors
    /// Where there is no room for them.
    pub fn values(&self) -> Result<Vec<f32>, Fault> {
        let mut draw = Draw(ChaCha8Rng::seed_from_u64(self.stream));
        let mut out = reserve(self.len)?;
        match &self.fill {
            Fill::Normal { std } => out.extend((0..self.len).map(|_| (draw.normal() * std) as f32)),
            Fill::Centered { std, share, row } => centered(&mut draw, &mut out, self.len, (*std, *share), *row),
            Fill::Runs { runs, spread } => {
                let elements = runs.iter().flat_map(|&(n, base, std)| std::iter::repeat_n((base, std), n));
                out.extend(
                    elements.map(|(base, std)| ((base + std * draw.normal()) * (1.0 + spread * draw.even())) as f32),
                );
            }
            Fill::Balanced { std, row } => balanced(&mut draw, &mut out, self.len, *std, *row),
            Fill::RowSums { weight, row, means } => {
                let means = means.iter().flat_map(|&(n, mean)| std::iter::repeat_n(mean, n));
                let sum = |w: &[f32]| w.iter().map(|&w| w as f64).sum::<f64>();
                let weight = weight.values()?;
                out.extend(weight.chunks_exact(*row).zip(means).map(|(w, mean)| (sum(w) * mean) as f32));
            }
        }
        Ok(out)
    }
}

fn centered(draw: &mut Draw, out: &mut Vec<f32>, len: usize, (std, share): (f64, f64), row: usize) {
    let mut buffer = vec![0f64; row];
    while out.len() < len {
        buffer.iter_mut().for_each(|x| *x = draw.normal() * std);
        let mean = share * buffer.iter().sum::<f64>() / row as f64;
        out.extend(buffer.iter().take(len - out.len()).map(|x| (x - mean) as f32));
    }
}

fn balanced(draw: &mut Draw, out: &mut Vec<f32>, len: usize, std: f64, row: usize) {
    let k = row as f64;
    let mut buffer = vec![0f64; row];
    while out.len() < len {
        buffer.iter_mut().for_each(|x| *x = draw.normal());
        let mean = buffer.iter().sum::<f64>() / k;
        buffer.iter_mut().for_each(|x| *x -= mean);
        // With c of sum 0 and w = c + m: (k m)^2 = |c|^2 + k m^2.
        let rest: f64 = buffer.iter().map(|x| x * x).sum();
        let offset = if row > 1 { (rest / (k * (k - 1.0))).sqrt() } else { 1.0 };
        let scale = std * (k / (rest + k * offset * offset)).sqrt();
        let signed = if mean < 0.0 { -offset } else { offset };
        out.extend(buffer.iter().take(len - out.len()).map(|x| ((x + signed) * scale) as f32));
    }
}

impl DataSource for Generated {
    fn read(&self) -> Result<Bytes, Fault> {
        let values = self.values()?;
        Ok(Tensor::from_vec(vec![values.len()], values).bytes().clone())
    }
    fn identity(&self) -> Option<String> {
        Some(format!("zoo stream {} of {}, {:?}", self.stream, self.len, self.fill))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(v: &[f32]) -> (f64, f64) {
        let n = v.len() as f64;
        let mean = v.iter().map(|&x| x as f64).sum::<f64>() / n;
        (mean, v.iter().map(|&x| (x as f64 - mean).powi(2)).sum::<f64>() / n)
    }

    #[test]
    fn draws_have_the_moments_they_claim() {
        let g = Generated { stream: stream_of(7, "w"), len: 100_000, fill: Fill::Normal { std: 2.0 } };
        let (mean, var) = moments(&g.values().unwrap());
        assert!(mean.abs() < 0.03 && (var - 4.0).abs() < 0.1, "{mean} {var}");
    }

    #[test]
    fn tensors_without_room_are_an_error() {
        for fill in [Fill::Normal { std: 1.0 }, Fill::Balanced { std: 1.0, row: 9 }] {
            let e = Generated { stream: 0, len: 1 << 59, fill }.values().expect_err("no machine has so much");
            assert_eq!(e.kind, compiler::fault::FaultKind::NoRoom, "{e}");
        }
    }

    #[test]
    fn filters_are_centered_and_streams_differ() {
        let fill = Fill::Centered { std: 1.0, share: 1.0, row: 27 };
        let a = Generated { stream: stream_of(7, "a"), len: 27 * 8, fill: fill.clone() };
        for row in a.values().unwrap().chunks(27) {
            assert!(row.iter().sum::<f32>().abs() < 1e-4);
        }
        let b = Generated { stream: stream_of(7, "b"), ..a.clone() };
        let other_seed = Generated { stream: stream_of(8, "a"), ..a.clone() };
        assert_eq!(a.values().unwrap(), a.clone().values().unwrap());
        assert!(a.values().unwrap() != b.values().unwrap() && a.values().unwrap() != other_seed.values().unwrap());
    }

    #[test]
    fn balanced_filters_have_equal_sums() {
        let fill = Fill::Balanced { std: 0.5, row: 9 };
        for row in (Generated { stream: 3, len: 9 * 16, fill }).values().unwrap().chunks(9) {
            let (sum, squares) = (row.iter().sum::<f32>(), row.iter().map(|w| w * w).sum::<f32>());
            assert!((sum * sum - 2.25).abs() < 1e-3 && (squares - 2.25).abs() < 1e-3, "{sum} {squares}");
        }
    }

    #[test]
    fn the_bits_never_change() {
        let g = Generated { stream: stream_of(0, "conv1.weight"), len: 3, fill: Fill::Normal { std: 1.0 } };
        let bits: Vec<u32> = g.values().unwrap().iter().map(|v| v.to_bits()).collect();
        assert_eq!(bits, [3217320306, 3214473867, 1057346553]);
    }
}
