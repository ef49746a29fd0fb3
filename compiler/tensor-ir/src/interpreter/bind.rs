//! Binds a tensor function to given operands: checks and prepacks the operands, and replaces symbols by their values.

use super::lockstep::interpret;
use crate::int::{Int, const_dims};
use crate::name::Name;
use crate::tensor::Tensor;
use crate::tir::{BufferId, TensorFunction};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// A function without symbols and its operands in parameter order.
pub(super) struct Bound<'a> {
    pub(super) f: Cow<'a, TensorFunction>,
    pub(super) inputs: Vec<Tensor>,
    /// Shapes of the results for callers.
    pub(super) results: Vec<Vec<usize>>,
}

/// Checks the operands, prepacks them where the function requires it, and replaces the symbols by values from the
/// operands' shapes and from `given`.
pub(super) fn bind<'a>(f: &'a TensorFunction, given: &[(Name, i64)], inputs: &[Tensor]) -> Result<Bound<'a>, String> {
    let buffers: Vec<_> = f.inputs().collect();
    if buffers.len() != inputs.len() {
        return Err(format!("@{} reads {} tensors, got {}", f.name, buffers.len(), inputs.len()));
    }
    let shapes: Vec<Vec<Int>> = inputs.iter().map(|t| t.shape().iter().map(|&n| Int::from(n)).collect()).collect();
    let known = f.unify(buffers.iter().copied().zip(shapes.iter().map(Vec::as_slice)));
    let mut values: FxHashMap<Name, i64> = known.into_iter().filter_map(|(v, n)| Some((v, n.as_const()?))).collect();
    values.extend(given.iter().copied());
    let mut ready = Vec::with_capacity(inputs.len());
    for (&b, t) in buffers.iter().zip(inputs) {
        let buffer = &f.buffers[b];
        if buffer.dtype != t.dtype() {
            return Err(format!("`{}` of @{} is {}, got {}", buffer.name, f.name, buffer.dtype, t.dtype()));
        }
        let packer = f.prepacks.iter().find(|p| p.buffer == b).map(|p| &*p.packer);
        let wanted: Vec<Option<i64>> = f.caller_shape(b).iter().map(|d| d.eval(&|v| values.get(&v).copied())).collect();
        let same = |(want, &n): (&Option<i64>, &usize)| want.is_none_or(|want| want == n as i64);
        if wanted.len() != t.shape().len() || !wanted.iter().zip(t.shape()).all(same) {
            return Err(shape_error(f, f.caller_shape(b), buffer.name, t.shape()));
        }
        ready.push(match packer {
            Some(p) => bind(p, &[], std::slice::from_ref(t))?.run(None)?.pop().ok_or("a packer without result")?,
            None => t.clone(),
        });
    }
    for (s, low, high) in &f.symbols {
        match values.get(s) {
            None => return Err(format!("symbol {s} of @{} has no value", f.name)),
            Some(v) if v < low || v > high => {
                return Err(format!("symbol {s} of @{} is {v}, declared {low} to {high}", f.name));
            }
            _ => {}
        }
    }
    let size = |d: &Int| d.eval(&|v| values.get(&v).copied()).and_then(|n| usize::try_from(n).ok());
    let declared = |b: BufferId| f.declared_shape(b).iter().map(size).collect::<Option<Vec<usize>>>();
    let bound = if values.is_empty() { Cow::Borrowed(f) } else { Cow::Owned(f.with_sizes(&values)) };
    for (&b, t) in buffers.iter().zip(&mut ready) {
        let buffer = &bound.buffers[b];
        let shape = const_dims(&buffer.shape).filter(|s| s == t.shape() || declared(b).is_some_and(|d| d == t.shape()));
        *t = match shape {
            Some(s) => t.reshaped(s),
            None => return Err(shape_error(f, f.declared_shape(b), buffer.name, t.shape())),
        };
    }
    let results = f.outputs().map(|b| {
        let buffer = &f.buffers[b];
        declared(b).ok_or_else(|| format!("`{}` of @{} has the symbolic shape {:?}", buffer.name, f.name, buffer.shape))
    });
    let results = results.collect::<Result<_, _>>()?;
    Ok(Bound { f: bound, inputs: ready, results })
}

impl Bound<'_> {
    /// Its results, on subgroups of so many threads.
    pub(super) fn run(self, subgroup: Option<usize>) -> Result<Vec<Tensor>, String> {
        let outputs: Vec<BufferId> = self.f.outputs().collect();
        Ok(Bound::shaped(interpret(&self.f, &self.inputs, &outputs, subgroup)?, self.results))
    }
    /// The results in the shapes that callers know.
    pub(super) fn shaped(results: Vec<Tensor>, shapes: Vec<Vec<usize>>) -> Vec<Tensor> {
        results.into_iter().zip(shapes).map(|(t, shape)| t.reshaped(shape)).collect()
    }
}

fn shape_error(f: &TensorFunction, want: &[Int], name: Name, got: &[usize]) -> String {
    format!("`{name}` of @{} has shape {want:?}, got {got:?}", f.name)
}
