//! A search learns how far off the estimate is: how far times are from it, by the choices of schedules.
//!
//! The logarithms of time by estimate, both relative to the default's, are a Gaussian process (Rasmussen and Williams,
//! Gaussian Processes for Machine Learning, 2006, chapter 2) over schedules; two schedules have more in settings the
//! more choices they share. A schedule is worth measuring if its predicted time may be small: the lower confidence
//! bound.

use super::candidate::Candidate;
use compiler::schedule::rules::{Choice, values};
use std::collections::BTreeSet;

/// Standard deviation of the logarithm before anything is measured, and of a measurement.
const SPREAD: f64 = 0.4;
const NOISE: f64 = 0.03;
/// Choices that differ until two schedules have 1/e in settings.
const LENGTH: f64 = 2.0;
/// Standard deviations below the mean that count.
const DARING: f64 = 0.5;

/// A schedule by its choices.
#[derive(Clone)]
struct Point(BTreeSet<String>);

impl Point {
    fn of(c: &Candidate) -> Point {
        Point(values(&c.trace).iter().map(Choice::to_string).collect())
    }
    fn covariance(&self, other: &Point) -> f64 {
        let differ = self.0.symmetric_difference(&other.0).count() as f64 / 2.0;
        SPREAD * SPREAD * (-differ / LENGTH).exp()
    }
}

/// Measured schedules, with the logarithm of their time by their estimate.
#[derive(Clone, Default)]
pub struct Learned {
    points: Vec<Point>,
    residuals: Vec<f64>,
    /// The lower triangle of the Cholesky factor of their covariances, by rows.
    factor: Vec<Vec<f64>>,
}

impl Learned {
    /// Adds a schedule: its time and its estimate by those of the default.
    pub fn add(&mut self, c: &Candidate, ratio: f64, estimated: f64) {
        let residual = (ratio / estimated).ln();
        if residual.is_finite() {
            self.push(Point::of(c), residual);
        }
    }

    fn push(&mut self, point: Point, residual: f64) {
        let row = self.solve(&point);
        let rest = SPREAD * SPREAD + NOISE * NOISE - row.iter().map(|x| x * x).sum::<f64>();
        self.factor.push(row.into_iter().chain([rest.max(NOISE * NOISE).sqrt()]).collect());
        self.points.push(point);
        self.residuals.push(residual);
    }

    /// The solution of `factor x = covariances with the point`.
    fn solve(&self, point: &Point) -> Vec<f64> {
        let right: Vec<f64> = self.points.iter().map(|p| p.covariance(point)).collect();
        self.substitute(&right)
    }

    fn substitute(&self, right: &[f64]) -> Vec<f64> {
        let mut out: Vec<f64> = Vec::with_capacity(right.len());
        for (row, b) in self.factor.iter().zip(right) {
            let sum: f64 = row.iter().zip(&out).map(|(l, x)| l * x).sum();
            out.push((b - sum) / row[out.len()]);
        }
        out
    }

    /// Mean and standard deviation of the logarithm for a schedule.
    fn predict(&self, point: &Point) -> (f64, f64) {
        let (a, b) = (self.solve(point), self.substitute(&self.residuals));
        let mean = a.iter().zip(&b).map(|(x, y)| x * y).sum();
        (mean, (SPREAD * SPREAD - a.iter().map(|x| x * x).sum::<f64>()).max(0.0).sqrt())
    }

    /// So many of the candidates, those first whose time may be least; each is chosen as if the ones before had been
    /// measured to be as predicted. The others stay in `all`.
    pub fn choose(&self, all: &mut Vec<Candidate>, count: usize) -> Vec<Candidate> {
        let mut learned = self.clone();
        let mut points: Vec<Point> = all.iter().map(Point::of).collect();
        let mut chosen = Vec::new();
        while chosen.len() < count && !all.is_empty() {
            let bound = |i: &usize| {
                let (mean, deviation) = learned.predict(&points[*i]);
                all[*i].estimated_ns.ln() + mean - DARING * deviation
            };
            let bounds: Vec<f64> = (0..all.len()).map(|i| bound(&i)).collect();
            let Some(best) = (0..all.len()).min_by(|a, b| bounds[*a].total_cmp(&bounds[*b])) else { break };
            let (candidate, point) = (all.remove(best), points.remove(best));
            let (mean, _) = learned.predict(&point);
            learned.push(point, mean);
            chosen.push(candidate);
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidate::Origin;
    use super::*;
    use compiler::text::parse_instructions;

    fn candidate(rows: i64, columns: i64, estimated_ns: f64) -> Candidate {
        let choose = |point: &str, value: i64| format!("choose {{unit=u, point={point}, value={value}, of=[1,2,3]}}");
        let text = format!("{}\n{}", choose("rows", rows), choose("columns", columns));
        let trace = parse_instructions(&text).expect("instructions");
        Candidate { trace, estimated_ns, plain: None, origin: Origin::Rules }
    }

    fn first(learned: &Learned, mut all: Vec<Candidate>, count: usize) -> Vec<String> {
        learned.choose(&mut all, count).iter().map(Candidate::key).collect()
    }

    #[test]
    fn what_a_choice_gains_is_expected_of_others_that_share_it() {
        let mut learned = Learned::default();
        let all = || vec![candidate(1, 2, 1e6), candidate(2, 2, 1.05e6)];
        assert_eq!(first(&learned, all(), 1), [candidate(1, 2, 0.0).key()]);
        learned.add(&candidate(1, 1, 1e6), 1.0, 1.0);
        learned.add(&candidate(2, 1, 1e6), 0.5, 1.0);
        assert_eq!(first(&learned, all(), 1), [candidate(2, 2, 0.0).key()]);
    }

    #[test]
    fn schedules_that_are_chosen_together_differ() {
        let all = vec![candidate(2, 1, 1e6), candidate(2, 2, 1.01e6), candidate(3, 3, 1.02e6)];
        let want = [candidate(2, 1, 0.0).key(), candidate(3, 3, 0.0).key()];
        assert_eq!(first(&Learned::default(), all, 2), want);
    }

    #[test]
    fn a_measured_schedule_is_predicted_to_take_as_long_again() {
        let mut learned = Learned::default();
        for (rows, ratio) in [(1, 1.0), (2, 0.7), (3, 1.9)] {
            learned.add(&candidate(rows, 1, 1e6), ratio, 1.0);
        }
        let (mean, deviation) = learned.predict(&Point::of(&candidate(3, 1, 1e6)));
        assert!((mean - 1.9_f64.ln()).abs() < 0.02 && deviation < 0.05, "{mean} {deviation}");
    }
}
