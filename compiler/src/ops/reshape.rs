//! The same elements in the same order under another shape.

use super::broadcast::same_dim;
use super::permute::{PermutedOp, normalize_axes, normalize_axis, permutation_without, permuted_axis};
use super::{InferContext, Op, OpRef, OpResult};
use crate::attr_struct;
use crate::fault::Fault;
use crate::graph::{TensorType, ValueId};
use crate::int::{Bounds, Dim, Int, flatten_index, gcd, product, simplify, unflatten_index};
use crate::name::Name;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::Expr;

/// Integers that an op has as an attribute or, when that is empty and operand `i` is there, as an operand.
pub(super) fn target_dims(cx: &InferContext<'_>, attr: &[Int], i: usize) -> OpResult<Vec<Dim>> {
    if !attr.is_empty() || cx.input(i).is_none() {
        return Ok(attr.to_vec());
    }
    cx.int_input(i).ok_or_else(|| Fault::unsupported(format!("operand {i} is not known at compile time")))
}

/// The integers of operand `i`, of which a run knows the value.
pub(super) fn read_ints(operands: &[Option<Tensor>], i: usize) -> OpResult<Vec<Int>> {
    let read = operands.get(i).and_then(Option::as_ref).ok_or_else(|| format!("operand {i} is missing"))?;
    Ok(read.to_i64_vec().into_iter().map(Int::new).collect())
}

/// Ranges of the loop variables `index` over `shape`, where it is constant.
pub(super) fn loop_bounds(index: &[Int], shape: &[Int]) -> Bounds {
    let mut bounds = Bounds::new();
    for (i, d) in index.iter().zip(shape) {
        if let (Some(var), Some(d)) = (i.as_var(), d.as_const()) {
            bounds.insert(var, 0, (d - 1).max(0));
        }
    }
    bounds
}

/// Exports an op whose ONNX operand 1 is `ints`: as the operand it has, or else as a constant or
/// computed from shapes.
pub(super) fn export_with_ints(
    cx: &mut ExportContext<'_>,
    op_type: &str,
    ints: &[Int],
    attrs: Vec<(&str, OnnxAttr)>,
) -> OpResult<()> {
    if cx.inputs.len() > 1 && ints.is_empty() {
        cx.simple(op_type, attrs);
        return Ok(());
    }
    let operand = cx.ints(ints)?;
    let (inputs, outputs) = (vec![cx.input(0), operand], cx.outputs.clone());
    cx.node(op_type, inputs, outputs, attrs);
    Ok(())
}

/// Index into shape `from` of the element that has index `index` in shape `to`, both with the same number of elements.
/// Dims are matched in the smallest groups of equal size, so that only what really changes is divided.
pub fn reshape_index(index: &[Int], to: &[Int], from: &[Int]) -> Vec<Int> {
    let bounds = loop_bounds(index, to);
    let mut out = vec![Int::new(0); from.len()];
    let mut t: Vec<usize> = (0..to.len()).filter(|&i| !to[i].is(1)).collect();
    let mut f: Vec<usize> = (0..from.len()).filter(|&i| !from[i].is(1)).collect();
    while let (Some(&ti), Some(&fi)) = (t.last(), f.last())
        && same_dim(&to[ti], &from[fi])
    {
        out[fi] = index[ti].clone();
        t.pop();
        f.pop();
    }
    let (mut t, mut f) = (t.as_slice(), f.as_slice());
    while !t.is_empty() && !f.is_empty() {
        let (nt, nf) = equal_group(t, to, f, from);
        let pick = |list: &[Int], ids: &[usize]| -> Vec<Int> { ids.iter().map(|&i| list[i].clone()).collect() };
        let flat = flatten_index(&pick(index, &t[..nt]), &pick(to, &t[..nt]));
        for (&axis, i) in f[..nf].iter().zip(unflatten_index(&simplify(&flat, &bounds), &pick(from, &f[..nf]))) {
            out[axis] = simplify(&i, &bounds);
        }
        (t, f) = (&t[nt..], &f[nf..]);
    }
    out
}

/// How many leading dims of both shapes have the same product; all of them where that cannot be told.
fn equal_group(t: &[usize], to: &[Int], f: &[usize], from: &[Int]) -> (usize, usize) {
    let (mut nt, mut nf) = (1, 1);
    let (mut a, mut b) = (to[t[0]].clone(), from[f[0]].clone());
    while !same_dim(&a, &b) {
        match (a.as_const(), b.as_const()) {
            (Some(x), Some(y)) if x < y && nt < t.len() => {
                a = a * &to[t[nt]];
                nt += 1;
            }
            (Some(x), Some(y)) if x > y && nf < f.len() => {
                b = b * &from[f[nf]];
                nf += 1;
            }
            _ => return (t.len(), f.len()),
        }
    }
    (nt, nf)
}

/// The stage of every op of this family.
fn compute_reshape(cx: &mut ComputeContext<'_>) -> OpResult<()> {
    let x = cx.require(0)?;
    let (ty, from) = (cx.output_type(0).clone(), cx.shape(x));
    let out = cx.compute("", &ty.shape, ty.dtype, |i| Expr::load(x, reshape_index(i, &ty.shape, &from)));
    cx.output(0, out);
    Ok(())
}

/// `product(all) / product(known)` with common factors cancelled; `None` when the division has a remainder.
pub fn divide_dims(all: &[Dim], known: &[Dim]) -> Option<Dim> {
    let factors = |dims: &[Dim]| {
        let (mut constant, mut rest) = (1i64, Vec::new());
        let mut stack: Vec<Dim> = dims.to_vec();
        while let Some(d) = stack.pop() {
            match d.node() {
                crate::int::IntNode::Const(c) => constant = constant.checked_mul(*c)?,
                crate::int::IntNode::Mul(a, b) => stack.extend([a.clone(), b.clone()]),
                _ => rest.push(simplify(&d, &Bounds::new())),
            }
        }
        Some((constant, rest))
    };
    let (mut n, mut top) = factors(all)?;
    let (mut d, mut bottom) = factors(known)?;
    bottom.retain(|b| match top.iter().position(|t| t == b) {
        Some(i) => {
            top.remove(i);
            false
        }
        None => true,
    });
    if d == 0 {
        return None;
    }
    let common = gcd(n, d).max(1);
    (n, d) = (n / common, d / common);
    if top.is_empty() && bottom.is_empty() && d != 1 {
        return None;
    }
    top.sort_by_key(|t| t.to_string());
    let numerator = top.into_iter().fold(Dim::new(n), |a, t| t * a);
    Some(numerator.div(bottom.into_iter().fold(Dim::new(d), |a, b| b * a)))
}

attr_struct! {
    /// Gives the elements another shape: `shape`, or else the integer operand 1.
    pub struct Reshape("reshape") {
        /// The shape; one entry may be -1 (the rest), and 0 keeps the operand's dim unless `allowzero`.
        pub shape: Vec<Int> = vec![],
        /// Whether 0 means an empty dimension.
        pub allowzero: bool = false,
        /// Result dims where operand 1 is known only at run time.
        pub dims: Vec<Int> = vec![],
    }
}
impl Reshape {
    /// To a shape, which may have one -1; a 0 in it is a dimension without elements.
    pub fn to(shape: Vec<Int>) -> Reshape {
        let allowzero = shape.iter().any(|d| d.is(0));
        Reshape { shape, allowzero, dims: vec![] }
    }
    fn resolve(&self, from: &[Dim], target: &[Dim]) -> OpResult<Vec<Dim>> {
        let mut shape: Vec<Dim> = Vec::with_capacity(target.len());
        let mut rest = None;
        for (i, d) in target.iter().enumerate() {
            match d.as_const() {
                Some(-1) if rest.replace(i).is_some() => return Err("more than one -1 in the shape".into()),
                Some(-1) => shape.push(Dim::new(1)),
                Some(0) if !self.allowzero => {
                    shape.push(from.get(i).cloned().ok_or_else(|| format!("0 at {i} keeps no dimension of {from:?}"))?)
                }
                Some(c) if c < 0 => return Err(format!("negative dimension {c}").into()),
                _ => shape.push(d.clone()),
            }
        }
        let fits = || Fault::from(format!("{from:?} does not reshape to {target:?}"));
        if let Some(i) = rest {
            let others: Vec<Dim> = shape.iter().enumerate().filter(|s| s.0 != i).map(|s| s.1.clone()).collect();
            shape[i] = divide_dims(from, &others).ok_or_else(fits)?;
        } else if let (Some(a), Some(b)) = (product(from).as_const(), product(&shape).as_const())
            && a != b
        {
            return Err(fits());
        }
        Ok(shape)
    }
}
impl Op for Reshape {
    fn arity(&self) -> (usize, usize) {
        (1, 2)
    }
    fn is_view(&self) -> bool {
        true
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        let shape = match self.dims.is_empty() {
            true => self.resolve(&x.shape, &target_dims(cx, &self.shape, 1)?)?,
            false => self.dims.clone(),
        };
        Ok(vec![TensorType::new(x.dtype, shape)])
    }
    fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
        cx.int_input(0)
    }
    fn fusion_kind(&self) -> Option<crate::tir::FusionKind> {
        Some(crate::tir::FusionKind::Injective)
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        compute_reshape(cx)
    }
    fn with_known_sizes(&self, cx: &InferContext<'_>) -> Option<(OpRef, usize)> {
        let open = self.shape.is_empty() && self.dims.is_empty();
        Some((Reshape { shape: cx.int_input(1)?, ..self.clone() }.into(), 1)).filter(|_| open)
    }
    fn has_compute(&self) -> bool {
        self.dims.is_empty()
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        let x = inputs[0].as_ref()?;
        let target = match inputs.get(1).and_then(Option::as_ref) {
            Some(shape) if self.shape.is_empty() => shape.to_i64_vec().into_iter().map(Dim::new).collect(),
            _ => self.shape.clone(),
        };
        if target.iter().any(|d| d.as_const().is_none()) {
            return None;
        }
        let from: Vec<Dim> = x.shape().iter().map(|&d| Dim::from(d)).collect();
        Some(self.resolve(&from, &target).and_then(|s| reshape_host(x, &s)))
    }
    fn defined_symbols(&self) -> Vec<Name> {
        self.dims.iter().filter_map(Int::as_var).collect()
    }
    fn size_operands(&self) -> &'static [usize] {
        &[1]
    }
    fn with_sizes(&self, operands: &[Option<Tensor>]) -> OpResult<(OpRef, Vec<Option<usize>>)> {
        Ok((Reshape { shape: read_ints(operands, 1)?, dims: vec![], ..self.clone() }.into(), vec![Some(0)]))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let attrs = if self.allowzero { vec![("allowzero", OnnxAttr::Int(1))] } else { vec![] };
        export_with_ints(cx, "Reshape", &self.shape, attrs)
    }
}

fn reshape_host(x: &Tensor, shape: &[Dim]) -> OpResult<Vec<Tensor>> {
    let shape = crate::int::const_dims(shape).ok_or("a dimension is negative")?;
    if shape.iter().product::<usize>() != x.len() {
        return Err(format!("{:?} does not reshape to {shape:?}", x.shape()).into());
    }
    Ok(vec![x.reshaped(shape)])
}

/// Implements the parts that the attribute-only reshapes share; each has `fn resolve(&self, &[Dim]) ->
/// OpResult<Vec<Dim>>`.
macro_rules! reshape_op {
    ($name:ident, $op:ident, $cx:ident => $export:block, $perm:ident, $pcx:ident => $permuted:block) => {
        impl Op for $name {
            fn arity(&self) -> (usize, usize) {
                (1, 1)
            }
            fn is_view(&self) -> bool {
                true
            }
            fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
                let x = cx.require(0)?;
                Ok(vec![TensorType::new(x.dtype, self.resolve(&x.shape)?)])
            }
            fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
                cx.int_input(0)
            }
            fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
                compute_reshape(cx)
            }
            fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
                let x = inputs[0].as_ref()?;
                let from: Vec<Dim> = x.shape().iter().map(|&d| Dim::from(d)).collect();
                Some(self.resolve(&from).and_then(|s| reshape_host(x, &s)))
            }
            fn export(&self, $cx: &mut ExportContext<'_>) -> OpResult<()> {
                let $op = self;
                $export
            }
            fn permuted(&self, $perm: &[usize], $pcx: &InferContext<'_>) -> Option<PermutedOp> {
                let $op = self;
                $permuted
            }
        }
    };
}

attr_struct! {
    /// Two dimensions: those before `axis` as one, and the rest as one.
    pub struct Flatten("flatten") {
        /// First axis of the second dimension; -rank to rank.
        pub axis: i64 = 1,
    }
}
impl Flatten {
    fn resolve(&self, from: &[Dim]) -> OpResult<Vec<Dim>> {
        let axis = if self.axis == from.len() as i64 { from.len() } else { normalize_axis(self.axis, from.len())? };
        Ok(vec![product(&from[..axis]), product(&from[axis..])])
    }
}
reshape_op!(Flatten, op, cx => {
    cx.simple("Flatten", vec![("axis", OnnxAttr::Int(op.axis))]);
    Ok(())
}, _perm, _cx => {
    let _ = op;
    None
});

attr_struct! {
    /// Takes out dimensions of size 1: `axes`, or all of them when that is empty.
    pub struct Squeeze("squeeze") {
        /// Axes of the operand.
        pub axes: Vec<i64> = vec![],
    }
}
impl Squeeze {
    fn removed(&self, from: &[Dim]) -> OpResult<Vec<usize>> {
        if self.axes.is_empty() {
            return Ok((0..from.len()).filter(|&i| from[i].is(1)).collect());
        }
        let axes = normalize_axes(&self.axes, from.len())?;
        match axes.iter().find(|&&a| from[a].as_const().is_some_and(|c| c != 1)) {
            Some(a) => Err(format!("dimension {a} of {from:?} is not 1").into()),
            None => Ok(axes),
        }
    }
    fn resolve(&self, from: &[Dim]) -> OpResult<Vec<Dim>> {
        let removed = self.removed(from)?;
        Ok((0..from.len()).filter(|i| !removed.contains(i)).map(|i| from[i].clone()).collect())
    }
}
reshape_op!(Squeeze, op, cx => {
    let axes: Vec<Int> = op.axes.iter().map(|&a| Int::new(a)).collect();
    if axes.is_empty() {
        cx.simple("Squeeze", vec![]);
        return Ok(());
    }
    export_with_ints(cx, "Squeeze", &axes, vec![])
}, perm, cx => {
    let removed = op.removed(&cx.input(0)?.shape).ok()?;
    let axes = removed.iter().map(|&a| permuted_axis(a, perm) as i64).collect();
    let mut out = PermutedOp::uniform(Squeeze { axes }, perm, 1, 1);
    out.results[0] = Some(permutation_without(perm, &removed));
    Some(out)
});

attr_struct! {
    /// Adds dimensions of size 1.
    pub struct Unsqueeze("unsqueeze") {
        /// Axes of the result.
        pub axes: Vec<i64> = vec![],
    }
}
impl Unsqueeze {
    fn resolve(&self, from: &[Dim]) -> OpResult<Vec<Dim>> {
        let rank = from.len() + self.axes.len();
        let axes = normalize_axes(&self.axes, rank)?;
        let mut old = from.iter();
        let next = |i| if axes.contains(&i) { Some(Dim::new(1)) } else { old.next().cloned() };
        Ok((0..rank).filter_map(next).collect())
    }
}
reshape_op!(Unsqueeze, op, cx => {
    let axes: Vec<Int> = op.axes.iter().map(|&a| Int::new(a)).collect();
    export_with_ints(cx, "Unsqueeze", &axes, vec![])
}, perm, _cx => {
    // The new axes stay where they are; the old ones take their places in the new order.
    let rank = perm.len() + op.axes.len();
    let axes = normalize_axes(&op.axes, rank).ok()?;
    let kept: Vec<usize> = (0..rank).filter(|i| !axes.contains(i)).collect();
    let mut old = perm.iter();
    let result = (0..rank).map(|i| if axes.contains(&i) { i } else { kept[*old.next().expect("an old axis")] }).collect();
    let mut out = PermutedOp::uniform(op.clone(), perm, 1, 1);
    out.results[0] = Some(result);
    Some(out)
});

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "Reshape", domain: "", since: 5, import: import_reshape },
    OnnxImport { op_type: "Flatten", domain: "", since: 1, import: import_flatten },
    OnnxImport { op_type: "Squeeze", domain: "", since: 1, import: import_squeeze },
    OnnxImport { op_type: "Unsqueeze", domain: "", since: 1, import: import_unsqueeze },
];

fn import_reshape(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let allowzero = cx.attrs.int("allowzero").unwrap_or(0) != 0;
    if let Some(shape) = cx.int_values(1) {
        return Ok(vec![cx.add(Reshape { shape, allowzero, dims: vec![] }, &[x])?]);
    }
    let dims = cx.fresh_dims("reshape", 1)?;
    let shape = cx.input(1)?;
    Ok(vec![cx.add(Reshape { shape: vec![], allowzero, dims }, &[x, shape])?])
}

fn import_flatten(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    Ok(vec![cx.add(Flatten { axis: cx.attrs.int("axis").unwrap_or(1) }, &[x])?])
}

/// Axes of an op that had them as an attribute before opset 13, and has them as operand 1 since.
fn import_axes(cx: &ImportContext<'_, '_>) -> OpResult<Vec<i64>> {
    match cx.opt(1) {
        Some(_) => cx.const_ints(1).ok_or_else(|| Fault::unsupported("the axes are not known at compile time")),
        None => Ok(cx.attrs.ints("axes").unwrap_or_default().to_vec()),
    }
}

fn import_squeeze(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, axes) = (cx.input(0)?, import_axes(cx)?);
    Ok(vec![cx.add(Squeeze { axes }, &[x])?])
}

fn import_unsqueeze(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, axes) = (cx.input(0)?, import_axes(cx)?);
    Ok(vec![cx.add(Unsqueeze { axes }, &[x])?])
}

#[cfg(test)]
mod tests;
