//! Finds the kernels whose rounding changes the results, and the cheapest set of them to keep in f32.
//!
//! Errors of rounding are small, so errors of several kernels add up element by element: the effect of one half of a
//! part is the effect of the part minus the effect of the other half. Parts of neighbouring kernels are halved where
//! kernels would be kept. So few runs, most of them of the end of the network only, find the kernels that matter.

use super::storage::Kernel;
use super::trial::Trial;
use crate::agreement::Tolerance;
use crate::interpreter::ExecError;
use crate::tensor::Tensor;
use std::ops::Range;

/// Above this share, an error is not small, and its effect does not simply add to others.
const WILD: f32 = 1e6;

/// Neighbouring kernels that are rounded together.
pub(super) struct KernelRange {
    pub kernels: Range<usize>,
    /// The fraction of the tolerance that their rounding alone uses.
    pub used: f64,
    /// The error that their rounding alone adds to each element of the float results, as a fraction of the element's
    /// tolerance.
    errors: Vec<f32>,
    bytes: f64,
}

/// The float results' elements.
struct Elements {
    /// Where each result ends.
    ends: Vec<usize>,
    /// The weight of an element in the norm, as a fraction of the norm's tolerance.
    weights: Vec<f32>,
}

/// Looks for the kernels whose rounding matters.
pub(super) struct Search<'s> {
    kernels: &'s [Kernel],
    exact: &'s [Tensor],
    tolerance: Tolerance,
    elements: Elements,
    parts: Vec<KernelRange>,
}

impl<'s> Search<'s> {
    /// Of `kernels`, whose rounding together gives `results` and not those of the trial's exact run.
    pub fn new(trial: &Trial<'s>, kernels: &'s [Kernel], results: &[Tensor]) -> Search<'s> {
        let (exact, tolerance) = (trial.exact, trial.tolerance);
        let mut elements = Elements { ends: vec![], weights: vec![] };
        for b in exact.iter().filter(|b| b.dtype().is_float()) {
            let b = b.to_f64_vec();
            let finite = || b.iter().filter(|x| x.is_finite());
            let peak = finite().fold(0.0f64, |m, x| m.max(x.abs()));
            let norm = finite().map(|x| x * x).sum::<f64>().sqrt() * tolerance.whole();
            let weight = |x: &f64| (tolerance.allowed(peak, *x) / norm.max(f64::MIN_POSITIVE)) as f32;
            elements.weights.extend(b.iter().map(|x| if x.is_finite() { weight(x) } else { 0.0 }));
            elements.ends.push(elements.weights.len());
        }
        let mut s = Search { kernels, exact, tolerance, elements, parts: vec![] };
        let all = s.part(0..kernels.len(), s.shares(results));
        s.parts.push(all);
        s
    }

    /// The parts to keep in f32 for the others to take no more than `limit` of the tolerance, as far as their errors
    /// alone tell.
    pub fn kept(&self, limit: f64) -> Vec<&KernelRange> {
        let n = self.elements.weights.len();
        let (mut sums, mut squares) = (vec![0f64; n], vec![0f64; n]);
        let add = |p: &KernelRange, sign: f64, sums: &mut [f64], squares: &mut [f64]| {
            for ((s, q), e) in sums.iter_mut().zip(squares).zip(&p.errors) {
                let e = f64::from(*e);
                *s += sign * e;
                *q = (*q + sign * e * e).max(0.0);
            }
        };
        self.parts.iter().for_each(|p| add(p, 1.0, &mut sums, &mut squares));
        let mut kept: Vec<usize> = Vec::new();
        while self.elements.used(&sums, &squares) > limit && kept.len() < self.parts.len() {
            let mended = self.elements.mended(&squares);
            let score = |i: &usize| {
                let p = &self.parts[*i];
                p.errors.iter().zip(&mended).map(|(e, m)| f64::from(*e).powi(2) * m).sum::<f64>() / p.bytes
            };
            let left = (0..self.parts.len()).filter(|i| !kept.contains(i));
            let Some(best) = left.map(|i| (score(&i), i)).max_by(|a, b| a.0.total_cmp(&b.0)) else { break };
            add(&self.parts[best.1], -1.0, &mut sums, &mut squares);
            kept.push(best.1);
        }
        // Only together they show which errors affect the same elements: the most expensive kernel that is kept without
        // effect goes back to f16.
        let mut order = kept.clone();
        order.sort_by(|a, b| self.parts[*b].bytes.total_cmp(&self.parts[*a].bytes));
        for i in order {
            add(&self.parts[i], 1.0, &mut sums, &mut squares);
            match self.elements.used(&sums, &squares) <= limit {
                true => kept.retain(|k| *k != i),
                false => add(&self.parts[i], -1.0, &mut sums, &mut squares),
            }
        }
        kept.sort_unstable();
        kept.into_iter().map(|i| &self.parts[i]).collect()
    }

    /// Halves the parts that would be kept, the dearest first, as long as runs of the network are left: `runs` in all.
    ///
    /// # Errors
    /// An error of a run.
    pub fn refine(
        &mut self,
        trial: &mut Trial<'_>,
        (limit, runs): (f64, f64),
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), ExecError> {
        loop {
            let several = |p: &&KernelRange| p.kernels.len() > 1;
            let dearest = self.kept(limit).into_iter().filter(several).max_by(|a, b| a.bytes.total_cmp(&b.bytes));
            let Some(whole) = dearest.map(|p| p.kernels.clone()) else { return Ok(()) };
            let (early, late) =
                (whole.start..whole.start.midpoint(whole.end), whole.start.midpoint(whole.end)..whole.end);
            if trial.spent + trial.cost(&self.kernels[late.clone()]) > runs {
                return Ok(());
            }
            let errors = self.alone(trial, late.clone())?;
            let Some(at) = self.parts.iter().position(|p| p.kernels == whole) else { return Ok(()) };
            let wild = |e: &[f32]| e.iter().any(|e| e.abs() >= WILD);
            let rest = match wild(&self.parts[at].errors) || wild(&errors) {
                true => self.alone(trial, early.clone())?,
                false => self.parts[at].errors.iter().zip(&errors).map(|(a, b)| a - b).collect(),
            };
            self.parts[at] = self.part(early, rest);
            let late = self.part(late, errors);
            self.parts.insert(at + 1, late);
            progress(trial.spent);
        }
    }

    fn alone(&self, trial: &mut Trial<'_>, kernels: Range<usize>) -> Result<Vec<f32>, ExecError> {
        let got = trial.run(&self.kernels[kernels], &mut |_, _| ())?;
        Ok(self.shares(&got))
    }

    fn part(&self, kernels: Range<usize>, errors: Vec<f32>) -> KernelRange {
        let sums: Vec<f64> = errors.iter().map(|e| f64::from(*e)).collect();
        let squares: Vec<f64> = sums.iter().map(|e| e * e).collect();
        let bytes = self.kernels[kernels.clone()].iter().map(|k| k.bytes).sum::<u64>().max(1) as f64;
        KernelRange { used: self.elements.used(&sums, &squares), kernels, errors, bytes }
    }

    /// The error of each element, as a share of what is allowed; one that is not finite counts as very large.
    fn shares(&self, got: &[Tensor]) -> Vec<f32> {
        let mut out = Vec::with_capacity(self.elements.weights.len());
        for (a, b) in got.iter().zip(self.exact).filter(|(_, b)| b.dtype().is_float()) {
            let (a, b) = (a.to_f64_vec(), b.to_f64_vec());
            let peak = b.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
            let share = |(&a, &b): (&f64, &f64)| {
                let same = a == b || a.is_nan() && b.is_nan();
                let e = (a - b) / self.tolerance.allowed(peak, b).max(f64::MIN_POSITIVE);
                if same {
                    0.0
                } else if e.abs() < f64::from(WILD) {
                    e as f32
                } else {
                    WILD
                }
            };
            out.extend(a.iter().zip(&b).map(share));
        }
        out
    }
}

impl Elements {
    /// The fraction of the tolerance that errors use: the larger of the actual sums, which may cancel by chance, and an
    /// estimate from their squares.
    fn used(&self, sums: &[f64], squares: &[f64]) -> f64 {
        let (mut most, mut from) = (0.0f64, 0);
        for &end in &self.ends {
            let (mut by_sum, mut by_square) = (0.0f64, 0.0f64);
            let all = sums[from..end].iter().zip(&squares[from..end]).zip(&self.weights[from..end]);
            for ((s, q), w) in all.map(|((s, q), w)| ((*s, *q), f64::from(*w))) {
                most = most.max(s.abs()).max(q.sqrt());
                (by_sum, by_square) = (by_sum + (s * w).powi(2), by_square + q * w * w);
            }
            (most, from) = (most.max(by_sum.sqrt()).max(by_square.sqrt()), end);
        }
        most
    }

    /// The weight of the square of an element's error. If single elements are nearest to their limit, it is the
    /// derivative of the sum of the errors' eighth powers, as an approximation of the largest error; else its
    /// contribution to the norm.
    fn mended(&self, squares: &[f64]) -> Vec<f64> {
        let elements = squares.iter().map(|s| s.powi(4)).sum::<f64>().powf(0.25);
        let norms = squares.iter().zip(&self.weights).map(|(s, w)| s * f64::from(*w).powi(2));
        match norms.sum::<f64>() > elements {
            true => self.weights.iter().map(|w| f64::from(*w).powi(2)).collect(),
            false => squares.iter().map(|s| s.powi(3)).collect(),
        }
    }
}
