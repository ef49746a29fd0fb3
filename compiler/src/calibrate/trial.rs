//! Runs of the f32 graph with some values rounded to f16, to measure the change of its results.

use super::storage::Kernel;
use crate::agreement::{Difference, Tolerance, agree};
use crate::arena::Id;
use crate::graph::{Function, Module, ValueId};
use crate::interpreter::{ExecError, Interpreter, collect_uses};
use crate::tensor::Tensor;
use half::f16;
use half::slice::HalfFloatSliceExt;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;

/// Tensors by the value that they belong to.
pub(super) type Values = FxHashMap<ValueId, Tensor>;

/// Work of a multiply-accumulate in the interpreter, where an element that a node gives is 1.
const MAC: f64 = 0.1;

/// How the results of a run differ from the exact ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outcome {
    /// The largest `norm(a-b) / norm(b)`.
    pub error: f64,
    /// The largest share of the tolerance.
    pub used: f64,
}

/// Runs with values rounded, and what they cost.
pub(super) struct Trial<'a> {
    module: &'a Module,
    interpreter: Interpreter<'a>,
    /// Of the exact run: all values but constants.
    values: &'a Values,
    /// Its results.
    pub exact: &'a [Tensor],
    pub tolerance: Tolerance,
    /// Work of each node of the entry function; all of them are 1.
    work: Vec<f64>,
    /// Rounded constants, which every run reads.
    constants: RefCell<Values>,
    /// Runs of the whole network that the runs so far have cost.
    pub spent: f64,
}

impl<'a> Trial<'a> {
    pub fn new(module: &'a Module, values: &'a Values, exact: &'a [Tensor], tolerance: Tolerance) -> Trial<'a> {
        let work = work_of_nodes(module.main(), values);
        let (interpreter, constants) = (Interpreter::new(module), RefCell::default());
        Trial { module, interpreter, values, exact, tolerance, work, constants, spent: 0.0 }
    }

    /// The share of a run of the network that rounding in these kernels makes necessary.
    pub fn cost<'k>(&self, kernels: impl IntoIterator<Item = &'k Kernel>) -> f64 {
        let rounded = rounded_values(kernels);
        let f = self.module.main();
        let mut changed: FxHashSet<ValueId> = f.params().iter().copied().filter(|v| rounded.contains(v)).collect();
        let mut sum = 0.0;
        for &n in &f.blocks[f.body].nodes {
            let mut used = Vec::new();
            collect_uses(f, n, &mut used);
            let fresh = used.iter().any(|v| changed.contains(v));
            sum += if fresh { self.work[n.index()] } else { 0.0 };
            changed.extend(f.nodes[n].outputs.iter().filter(|v| fresh || rounded.contains(v)));
        }
        sum
    }

    /// The results with these kernels' values rounded. `visit` sees what each node of the entry function gives, rounded
    /// where it is.
    pub fn run<'k>(
        &mut self,
        kernels: impl IntoIterator<Item = &'k Kernel> + Clone,
        visit: &mut dyn FnMut(ValueId, &Tensor),
    ) -> Result<Vec<Tensor>, ExecError> {
        self.spent += self.cost(kernels.clone());
        let rounded = rounded_values(kernels);
        let (values, constants, visit) = (self.values, &self.constants, RefCell::new(visit));
        let change = |v: ValueId, t: &Tensor| {
            let new = rounded.contains(&v).then(|| match values.contains_key(&v) {
                true => halved(t),
                false => constants.borrow_mut().entry(v).or_insert_with(|| halved(t)).clone(),
            });
            (visit.borrow_mut())(v, new.as_ref().unwrap_or(t));
            new
        };
        self.interpreter.rerun(self.module.entry, values, &change)
    }

    /// The effect of rounding in `kernels` on the results.
    pub fn outcome<'k>(&mut self, kernels: impl IntoIterator<Item = &'k Kernel> + Clone) -> Result<Outcome, ExecError> {
        let got = self.run(kernels, &mut |_, _| ())?;
        Ok(self.judge(&got))
    }

    /// How these results differ from the exact ones.
    pub fn judge(&self, got: &[Tensor]) -> Outcome {
        let float = got.iter().zip(self.exact).filter(|(_, b)| b.dtype().is_float());
        let differences: Vec<Difference> = float.map(|(a, b)| agree(a, b, &self.tolerance)).collect();
        let most = |of: fn(&Difference) -> f64| differences.iter().map(of).fold(0.0, f64::max);
        Outcome { error: most(|d| d.rel_l2), used: most(|d| d.used) }
    }
}

fn rounded_values<'k>(kernels: impl IntoIterator<Item = &'k Kernel>) -> FxHashSet<ValueId> {
    kernels.into_iter().flat_map(|k| k.values.iter().copied()).collect()
}

/// The share of each node in the work of the entry function, by the elements that it gives and the products that it
/// adds up.
fn work_of_nodes(f: &Function, values: &Values) -> Vec<f64> {
    let mut work = vec![0.0; f.nodes.len()];
    for &n in &f.blocks[f.body].nodes {
        let (inputs, outputs) = f.node_types(n);
        let elements: usize = f.nodes[n].outputs.iter().filter_map(|v| values.get(v)).map(Tensor::len).sum();
        work[n.index()] = elements as f64 + MAC * f.nodes[n].op.macs(&inputs, &outputs) as f64;
    }
    let whole = work.iter().sum::<f64>().max(1.0);
    work.into_iter().map(|w| w / whole).collect()
}

/// An f32 tensor rounded to f16 and back; others as they are.
pub(super) fn halved(t: &Tensor) -> Tensor {
    let Some(x) = t.as_slice::<f32>() else { return t.clone() };
    let mut half = vec![f16::ZERO; x.len()];
    half.convert_from_f32_slice(&x);
    let mut out = vec![0f32; x.len()];
    half.convert_to_f32_slice(&mut out);
    Tensor::from_vec(t.shape().to_vec(), out)
}
