//! Runs of the f32 graph in which some values are rounded to f16: how far its results move, and by which kernel's rounding.

use super::halved;
use super::storage::Kernel;
use crate::agreement::{Difference, Tolerance, agree};
use crate::cpu::{ExecError, Interpreter};
use crate::dtype::DType;
use crate::graph::{Module, ValueId};
use crate::tensor::Tensor;
use rustc_hash::{FxHashMap, FxHashSet};

/// Kernels that are looked at one by one; in larger networks, neighbours are looked at together.
const MAX_PARTS: usize = 96;

/// Tensors by the value that they belong to.
pub(super) type Values = FxHashMap<ValueId, Tensor>;

/// How the results of a run differ from the exact ones.
#[derive(Clone, Copy)]
pub(super) struct Outcome {
    /// The largest `norm(a-b) / norm(b)`.
    pub error: f64,
    /// The largest share of the tolerance.
    pub used: f64,
}

/// Kernels that are rounded together.
pub(super) struct Part {
    pub kernels: Vec<Kernel>,
    /// The share of the tolerance that their rounding alone takes.
    pub used: f64,
    /// What their rounding alone adds to each element of the float results, as a share of what the element may differ by;
    /// and to the norm.
    errors: Vec<f32>,
    norm: f64,
}

impl Part {
    fn bytes(&self) -> f64 {
        self.kernels.iter().map(|k| k.bytes).sum::<u64>().max(1) as f64
    }
}

/// Runs with values rounded.
pub(super) struct Trial<'a> {
    pub module: &'a Module,
    pub interpreter: Interpreter<'a>,
    /// Of the exact run: all values but constants, and the results.
    pub values: &'a Values,
    pub exact: &'a [Tensor],
}

impl Trial<'_> {
    fn tolerance() -> Tolerance {
        Tolerance::new(DType::F16, None, None)
    }

    fn run<'k>(&mut self, kernels: impl IntoIterator<Item = &'k Kernel>) -> Result<Vec<Tensor>, ExecError> {
        let rounded: FxHashSet<ValueId> = kernels.into_iter().flat_map(|k| k.values.iter().copied()).collect();
        let change = |v: ValueId, t: &Tensor| rounded.contains(&v).then(|| halved(t));
        self.interpreter.rerun(self.module.entry, self.values, &change)
    }

    /// What rounding in `kernels` does to the results.
    pub fn outcome<'k>(&mut self, kernels: impl IntoIterator<Item = &'k Kernel>) -> Result<Outcome, ExecError> {
        let got = self.run(kernels)?;
        let float = got.iter().zip(self.exact).filter(|(_, b)| b.dtype().is_float());
        let differences: Vec<Difference> = float.map(|(a, b)| agree(a, b, &Self::tolerance())).collect();
        let most = |of: fn(&Difference) -> f64| differences.iter().map(of).fold(0.0, f64::max);
        Ok(Outcome { error: most(|d| d.rel_l2), used: most(|d| d.used) })
    }

    /// The kernels, those first whose f32 mends most for each byte.
    ///
    /// Errors of rounding are small and independent, so those of several kernels add as squares, element by element: each is
    /// looked at alone. Where elements are nearest to their limit counts: the derivative of the sum of their errors' eighth powers
    /// stands for that of the largest, which no single draw of rounding errors tells.
    pub fn ranked(&mut self, kernels: &[Kernel]) -> Result<Vec<Part>, ExecError> {
        let mut parts = Vec::new();
        for chunk in kernels.chunks(kernels.len().div_ceil(MAX_PARTS).max(1)) {
            parts.push(self.part(chunk)?);
        }
        let mut squares = vec![0.0f64; parts.first().map_or(0, |p| p.errors.len())];
        for p in &parts {
            squares.iter_mut().zip(&p.errors).for_each(|(s, e)| *s += f64::from(*e).powi(2));
        }
        let elements = squares.iter().map(|s| s.powi(4)).sum::<f64>().powf(0.25);
        let whole = parts.iter().map(|p| p.norm * p.norm).sum::<f64>();
        let weights: Vec<f64> = squares.into_iter().map(|s| s.powi(3)).collect();
        let mended = |p: &Part| match whole > elements {
            true => p.norm * p.norm,
            false => p.errors.iter().zip(&weights).map(|(e, w)| f64::from(*e).powi(2) * w).sum::<f64>(),
        };
        let mut scored: Vec<(f64, Part)> = parts.into_iter().map(|p| (mended(&p) / p.bytes(), p)).collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        Ok(scored.into_iter().map(|s| s.1).collect())
    }

    fn part(&mut self, kernels: &[Kernel]) -> Result<Part, ExecError> {
        let got = self.run(kernels)?;
        let mut part = Part { kernels: kernels.to_vec(), used: 0.0, errors: Vec::new(), norm: 0.0 };
        let tolerance = Self::tolerance();
        for (a, b) in got.iter().zip(self.exact).filter(|(_, b)| b.dtype().is_float()) {
            let d = agree(a, b, &tolerance);
            (part.norm, part.used) = (part.norm.max(d.rel_l2 / tolerance.whole()), part.used.max(d.used));
            let (a, b) = (a.to_f64_vec(), b.to_f64_vec());
            let peak = b.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
            part.errors.extend(a.iter().zip(&b).map(|(a, b)| share(*a, *b, tolerance.allowed(peak, *b))));
        }
        Ok(part)
    }

    /// How many of the first parts must stay in f32 for the rest to take no more than `limit` of the tolerance.
    pub fn fewest(&mut self, ranked: &[Part], limit: f64) -> Result<usize, ExecError> {
        let (mut fails, mut passes) = (0, ranked.len());
        while passes - fails > 1 {
            let middle = fails.midpoint(passes);
            let rest = ranked[middle..].iter().flat_map(|p| &p.kernels);
            match self.outcome(rest)?.used <= limit {
                true => passes = middle,
                false => fails = middle,
            }
        }
        Ok(passes)
    }
}

/// An element's error as a share of what is allowed; one that is not finite counts as very large.
fn share(a: f64, b: f64, allowed: f64) -> f32 {
    let e = match a == b || a.is_nan() && b.is_nan() {
        true => 0.0,
        false => (a - b).abs() / allowed.max(f64::MIN_POSITIVE),
    };
    if e < 1e6 { e as f32 } else { 1e6 }
}
