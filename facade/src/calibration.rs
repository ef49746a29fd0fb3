//! Calibrates the estimate by measured schedules: factors on its parts ([`CostFactors`]) for one device.
//!
//! The factors are not negative and minimise the squared logarithms of estimate by time, with equal weight for each
//! function, and a small penalty for factors other than 1, which decides about parts that no schedule has. They are
//! found by Gauss-Newton steps, each a non-negative least-squares problem (Lawson and Hanson, Solving Least Squares
//! Problems, 1974), solved by descent along coordinates. How well they rank is judged on functions that were left out.

use crate::tuning::{CalibrationLine, TuningDatabase};
use compiler::profile::CostFactors;
use compiler::schedule::estimate::{self, Cost};
use std::collections::BTreeMap;

/// Gauss-Newton steps, and sweeps over the factors in each.
const STEPS: usize = 60;
const SWEEPS: usize = 60;
/// Weight of a factor's distance from 1, beside that of a function.
const PENALTY: f64 = 1e-6;
/// A factor is at most this, and its reciprocal at least, unless it is 0.
const MOST: f64 = 1e3;
/// Functions and schedules of each that a calibration needs.
const LEAST_FUNCTIONS: usize = 4;
const LEAST_SCHEDULES: usize = 4;

/// A schedule: its estimate with all factors 1, and its time in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The estimate.
    pub cost: Cost,
    /// The time.
    pub ns: f64,
}

/// Measured schedules by function.
pub type Samples = BTreeMap<String, Vec<Sample>>;

/// What a calibration found.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The factors, by all functions.
    pub factors: CostFactors,
    /// For each function Spearman's rank correlation of estimates with times: without factors, and with the factors of
    /// all other functions.
    pub ranks: BTreeMap<String, [f64; 2]>,
}

impl Calibration {
    /// The means of both correlations.
    pub fn mean_ranks(&self) -> [f64; 2] {
        [0, 1].map(|at| self.ranks.values().map(|r| r[at]).sum::<f64>() / self.ranks.len().max(1) as f64)
    }
    /// Whether the factors rank functions that they have not seen better than none do.
    pub fn is_better(&self) -> bool {
        let [before, after] = self.mean_ranks();
        after > before
    }
    /// The line of the database.
    pub fn line(&self, device: &str, samples: &Samples) -> CalibrationLine {
        CalibrationLine {
            device: device.into(),
            factors: self.factors,
            functions: self.ranks.len(),
            schedules: samples.values().map(Vec::len).sum(),
            ranks: self.mean_ranks(),
            estimator: estimate::digest().into(),
            weft: env!("CARGO_PKG_VERSION").into(),
        }
    }
}

/// Calibrates by these samples. Functions with fewer than four schedules are left out.
///
/// # Errors
/// Fewer than four functions.
pub fn calibrate(samples: &Samples) -> Result<Calibration, String> {
    let usable: Samples =
        samples.iter().filter(|(_, s)| s.len() >= LEAST_SCHEDULES).map(|(f, s)| (f.clone(), s.clone())).collect();
    if usable.len() < LEAST_FUNCTIONS {
        let count = usable.len();
        return Err(format!(
            "a calibration takes {LEAST_FUNCTIONS} functions with {LEAST_SCHEDULES} measured schedules each, not {count}"
        ));
    }
    let mut ranks = BTreeMap::new();
    for (name, own) in &usable {
        let others = usable.iter().filter(|(f, _)| *f != name).map(|(_, s)| s.as_slice());
        let factors = fit(&others.collect::<Vec<_>>());
        let times: Vec<f64> = own.iter().map(|s| s.ns).collect();
        let rank =
            |f: &CostFactors| spearman(&own.iter().map(|s| s.cost.scaled(f).total()).collect::<Vec<_>>(), &times);
        ranks.insert(name.clone(), [rank(&CostFactors::default()), rank(&factors)]);
    }
    let all: Vec<&[Sample]> = usable.values().map(Vec::as_slice).collect();
    Ok(Calibration { factors: fit(&all), ranks })
}

/// The samples of a database on a device, by this estimate.
pub fn samples(database: &TuningDatabase, device: &str) -> Samples {
    let mut out = Samples::new();
    for l in database.best_samples().into_values() {
        if l.device == device && l.estimator == estimate::digest() {
            out.entry(l.function.clone()).or_default().push(Sample { cost: l.estimate, ns: l.us * 1e3 });
        }
    }
    out
}

fn fit(functions: &[&[Sample]]) -> CostFactors {
    let mut c = CostFactors::default().to_array();
    let rows: Vec<(f64, &Sample)> =
        functions.iter().flat_map(|all| all.iter().map(|s| (1.0 / all.len() as f64, s))).collect();
    for _ in 0..STEPS {
        let current = CostFactors::of_array(c);
        // With the estimate t at these factors: sum of (part / t) * factor = 1 + ln(time / t), to the first order.
        let mut equations: Vec<(f64, [f64; CostFactors::COUNT], f64)> = Vec::new();
        for (weight, s) in &rows {
            let t = s.cost.scaled(&current).total().max(1.0);
            let parts = s.cost.by_factor(&current).map(|p| p / t);
            equations.push((
                *weight,
                parts,
                parts.iter().zip(c).map(|(p, c)| p * c).sum::<f64>() + (s.ns.max(1.0) / t).ln(),
            ));
        }
        let mut next = c;
        for _ in 0..SWEEPS {
            for j in 0..CostFactors::COUNT {
                let (mut above, mut below) = (PENALTY, PENALTY);
                for (weight, parts, wanted) in &equations {
                    let rest: f64 = (0..CostFactors::COUNT).filter(|k| *k != j).map(|k| parts[k] * next[k]).sum();
                    above += weight * parts[j] * (wanted - rest);
                    below += weight * parts[j] * parts[j];
                }
                next[j] = (above / below).clamp(0.0, MOST);
            }
        }
        // Half a step: far from the solution the first order is a poor guide.
        c = std::array::from_fn(|j| f64::midpoint(c[j], next[j]));
    }
    CostFactors::of_array(c.map(|f| if f < 1.0 / MOST { 0.0 } else { f }))
}

/// Spearman's rank correlation; 0 where one list is constant. Equal values have the mean of their ranks.
pub fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 + 1.0) / 2.0;
    let product = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    let norm = (product(&a, &a) * product(&b, &b)).sqrt();
    if norm > 0.0 { product(&a, &b) / norm } else { 0.0 }
}

fn ranks(list: &[f64]) -> Vec<f64> {
    let rank = |x: f64| {
        let below = list.iter().filter(|y| **y < x).count() as f64;
        let equal = list.iter().filter(|y| **y == x).count() as f64;
        below + (equal + 1.0) / 2.0
    };
    list.iter().map(|x| rank(*x)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Schedules of a device on which a load costs five times what the estimate says, a launch a third, and shared
    /// passes nothing.
    fn planted() -> Samples {
        let mut out = Samples::new();
        for f in 0..6_u32 {
            let schedule = |n: u32| {
                let x = |k: u32| f64::from((f * 37 + n * 101 + k * 53) % 97 + 1) * 1e3;
                let cost = Cost {
                    arithmetic: x(1) * f64::from(f + 1),
                    issue: x(2),
                    shared_passes: x(3),
                    launch: 3e4,
                    ..Cost::default()
                };
                Sample { cost, ns: cost.arithmetic + 5.0 * cost.issue + cost.launch / 3.0 }
            };
            out.insert(format!("f{f}"), (0..12).map(schedule).collect());
        }
        out
    }

    #[test]
    fn planted_factors_are_found_and_rank_what_was_left_out() {
        let found = calibrate(&planted()).expect("enough samples");
        let f = found.factors;
        let near = |a: f64, b: f64| (a - b).abs() < 0.02 * b.max(1.0);
        assert!(near(f.arithmetic, 1.0) && near(f.issue, 5.0) && near(f.shared_passes, 0.0), "{f:?}");
        assert!(near(f.launch, 1.0 / 3.0), "{f:?}");
        let [before, after] = found.mean_ranks();
        assert!(before < 0.9 && after > 0.99 && found.is_better(), "{before} {after}");
    }

    #[test]
    fn too_few_samples_are_refused() {
        let few: Samples = planted().into_iter().take(3).collect();
        let e = calibrate(&few).expect_err("three functions");
        assert!(e.ends_with("not 3"), "{e}");
    }

    #[test]
    fn rank_correlations() {
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[10.0, 20.0, 90.0]), 1.0);
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), -1.0);
        assert_eq!(spearman(&[1.0, 1.0, 1.0], &[3.0, 2.0, 1.0]), 0.0);
        // Ranks 1.5 1.5 3 4 against 1 2 3 4.
        assert!((spearman(&[1.0, 1.0, 2.0, 3.0], &[1.0, 2.0, 3.0, 4.0]) - 0.948_683).abs() < 1e-6);
    }
}
