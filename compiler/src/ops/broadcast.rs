//! Broadcasting: its rules, and the ops that repeat elements along axes.

use super::host_copy::{broadcast_host, check_count, check_sizes, gather_host};
use super::permute::{PermutedOp, permute};
use super::reshape::{read_ints, target_dims};
use super::{InferContext, Op, OpRef, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::int::{Bounds, Dim, Int, simplify};
use crate::name::Name;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::Expr;

/// Shape of a NumPy broadcast. Two different symbolic dims give their maximum, since one of them may be 1; a symbolic
/// and a constant dim above 1 give the constant.
///
/// # Errors
/// When constant dims differ and neither is 1.
pub fn broadcast_dims(a: &[Dim], b: &[Dim]) -> OpResult<Vec<Dim>> {
    let rank = a.len().max(b.len());
    let at = |s: &[Dim], i: usize| (i + s.len()).checked_sub(rank).map_or(Dim::new(1), |j| s[j].clone());
    (0..rank)
        .map(|i| {
            let (x, y) = (at(a, i), at(b, i));
            if x == y || y.is(1) {
                return Ok(x);
            }
            if x.is(1) {
                return Ok(y);
            }
            match (x.as_const(), y.as_const()) {
                (Some(_), Some(_)) => Err(format!("shapes {a:?} and {b:?} do not broadcast").into()),
                (Some(_), None) => Ok(x),
                (None, Some(_)) => Ok(y),
                (None, None) if same_dim(&x, &y) => Ok(x),
                (None, None) => Ok(x.max(y)),
            }
        })
        .collect()
}

/// True when two dims are the same expression, perhaps written differently.
pub fn same_dim(a: &Dim, b: &Dim) -> bool {
    a == b || simplify(&(a.clone() - b), &Bounds::new()).is(0)
}

/// One dim that two operands must share: the constant one where one is symbolic.
///
/// # Errors
/// When they are different constants.
pub fn unify_dims(a: &Dim, b: &Dim) -> OpResult<Dim> {
    match (a.as_const(), b.as_const()) {
        (Some(x), Some(y)) if x != y => Err(format!("dimensions {x} and {y} differ").into()),
        (None, Some(_)) => Ok(b.clone()),
        _ => Ok(a.clone()),
    }
}

/// Index of an operand of shape `shape` that is broadcast to the element `index` of a result of shape `out`. A symbolic
/// dim that is not the result's may be 1: then every index maps to 0.
pub fn operand_index(index: &[Int], out: &[Int], shape: &[Int]) -> Vec<Int> {
    let skip = index.len() - shape.len();
    let one = |i: usize, d: &Int| match d.as_const() {
        Some(1) => Int::new(0),
        Some(_) => index[skip + i].clone(),
        None if *d == out[skip + i] => index[skip + i].clone(),
        None => index[skip + i].min(d.clone() - 1),
    };
    shape.iter().enumerate().map(|(i, d)| one(i, d)).collect()
}

/// The result whose element `i` is an element of operand 0: the one at `at(i, result, operand)`, which also gets both
/// shapes.
fn repeated(cx: &mut ComputeContext<'_>, at: impl Fn(&[Int], &[Int], &[Int]) -> Vec<Int>) -> OpResult<()> {
    let x = cx.require(0)?;
    let (ty, shape) = (cx.output_type(0).clone(), cx.shape(x));
    let out = cx.compute("", &ty.shape, ty.dtype, |i| Expr::load(x, at(i, &ty.shape, &shape)));
    cx.output(0, out);
    Ok(())
}

attr_struct! {
    /// Broadcasts to the shape that `shape`, or else the integer operand 1, broadcasts to together with the operand.
    pub struct Expand("expand") {
        /// The shape.
        pub shape: Vec<Int> = vec![],
        /// Result dims where operand 1 is known only at run time.
        pub dims: Vec<Int> = vec![],
    }
}
impl Op for Expand {
    fn arity(&self) -> (usize, usize) {
        (1, 2)
    }
    fn keeps_elements(&self) -> bool {
        true
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        let shape = match self.dims.is_empty() {
            true => broadcast_dims(&x.shape, &target_dims(cx, &self.shape, 1)?)?,
            false => self.dims.clone(),
        };
        Ok(vec![TensorType::new(x.dtype, shape)])
    }
    fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
        let (x, shape) = (cx.int_input(0)?, self.infer(cx).ok()?.pop()?.shape);
        repeat_value(&x, &shape)
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        repeated(cx, operand_index)
    }
    fn with_known_sizes(&self, cx: &InferContext<'_>) -> Option<(OpRef, usize)> {
        let open = self.shape.is_empty() && self.dims.is_empty();
        Some((Expand { shape: cx.int_input(1)?, ..self.clone() }.into(), 1)).filter(|_| open)
    }
    fn has_compute(&self) -> bool {
        self.dims.is_empty()
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        if self.dims.is_empty() {
            return None;
        }
        let (x, shape) = (inputs[0].as_ref()?, inputs[1].as_ref()?.to_i64_vec());
        Some(check_sizes(&shape).and_then(|s| broadcast_host(x, &s)).map(|t| vec![t]))
    }
    fn defined_symbols(&self) -> Vec<Name> {
        self.dims.iter().filter_map(Int::as_var).collect()
    }
    fn size_operands(&self) -> &'static [usize] {
        &[1]
    }
    fn with_sizes(&self, operands: &[Option<Tensor>]) -> OpResult<(OpRef, Vec<Option<usize>>)> {
        Ok((Expand { shape: read_ints(operands, 1)?, dims: vec![] }.into(), vec![Some(0)]))
    }
    fn permuted(&self, perm: &[usize], cx: &InferContext<'_>) -> Option<PermutedOp> {
        let shape = self.infer(cx).ok()?.pop()?.shape;
        if shape.len() != perm.len() || !self.dims.is_empty() {
            return None;
        }
        Some(PermutedOp::uniform(Expand { shape: permute(&shape, perm), dims: vec![] }, perm, 1, 1))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let target = if self.dims.is_empty() { cx.output_types[0].shape.clone() } else { vec![] };
        super::reshape::export_with_ints(cx, "Expand", &target, vec![])
    }
}

/// Values of a rank-0 or rank-1 integer operand repeated to `shape`.
fn repeat_value(x: &[Dim], shape: &[Dim]) -> Option<Vec<Dim>> {
    let n = match shape {
        [] => 1,
        [n] => usize::try_from(n.as_const()?).ok()?,
        _ => return None,
    };
    match x {
        [one] if n <= 64 => Some(vec![one.clone(); n]),
        _ if x.len() == n => Some(x.to_vec()),
        _ => None,
    }
}

attr_struct! {
    /// Repeats the whole operand along each axis, `repeats[axis]` times.
    pub struct Tile("tile") {
        /// Repetitions of each axis.
        pub repeats: Vec<Int> = vec![],
        /// Result dims where operand 1, the repetitions, is known only at run time.
        pub dims: Vec<Int> = vec![],
    }
}
impl Op for Tile {
    fn arity(&self) -> (usize, usize) {
        (1, 2)
    }
    fn keeps_elements(&self) -> bool {
        true
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        if !self.dims.is_empty() {
            return Ok(vec![TensorType::new(x.dtype, self.dims.clone())]);
        }
        let repeats = target_dims(cx, &self.repeats, 1)?;
        if repeats.len() != x.rank() {
            return Err(format!("{} repeats for rank {}", repeats.len(), x.rank()).into());
        }
        if let Some(r) = repeats.iter().find(|r| r.as_const().is_some_and(|c| c < 0)) {
            return Err(format!("negative repeat {r}").into());
        }
        let shape = x.shape.iter().zip(repeats).map(|(d, r)| d.clone() * r).collect();
        Ok(vec![TensorType::new(x.dtype, shape)])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        repeated(cx, |index, out, shape| {
            let wrap = |(n, i): (usize, &Int)| if shape[n] == out[n] { i.clone() } else { i.rem(&shape[n]) };
            index.iter().enumerate().map(wrap).collect()
        })
    }
    fn with_known_sizes(&self, cx: &InferContext<'_>) -> Option<(OpRef, usize)> {
        let open = self.repeats.is_empty() && self.dims.is_empty();
        Some((Tile { repeats: cx.int_input(1)?, dims: vec![] }.into(), 1)).filter(|_| open)
    }
    fn has_compute(&self) -> bool {
        self.dims.is_empty()
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        if self.dims.is_empty() {
            return None;
        }
        let (x, repeats) = (inputs[0].as_ref()?, inputs[1].as_ref()?.to_i64_vec());
        if repeats.len() != x.shape().len() {
            return Some(Err(format!("{} repeats for rank {}", repeats.len(), x.shape().len()).into()));
        }
        Some(check_sizes(&repeats).and_then(|r| {
            let shape: Vec<usize> = x.shape().iter().zip(&r).map(|(d, r)| d.saturating_mul(*r)).collect();
            check_count(x.dtype(), &shape)?;
            Ok(vec![gather_host(x, &shape, |axis, i| i % x.shape()[axis])])
        }))
    }
    fn defined_symbols(&self) -> Vec<Name> {
        self.dims.iter().filter_map(Int::as_var).collect()
    }
    fn size_operands(&self) -> &'static [usize] {
        &[1]
    }
    fn with_sizes(&self, operands: &[Option<Tensor>]) -> OpResult<(OpRef, Vec<Option<usize>>)> {
        Ok((Tile { repeats: read_ints(operands, 1)?, dims: vec![] }.into(), vec![Some(0)]))
    }
    fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        (self.repeats.len() == perm.len())
            .then(|| PermutedOp::uniform(Tile { repeats: permute(&self.repeats, perm), dims: vec![] }, perm, 1, 1))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        super::reshape::export_with_ints(cx, "Tile", &self.repeats, vec![])
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "Expand", domain: "", since: 8, import: import_expand },
    OnnxImport { op_type: "Tile", domain: "", since: 6, import: import_tile },
];

fn import_expand(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    if let Some(shape) = cx.int_values(1) {
        return Ok(vec![cx.add(Expand { shape, dims: vec![] }, &[x])?]);
    }
    let mut dims = cx.fresh_dims("expand", 1)?;
    for i in dims.len()..cx.ty(0)?.rank() {
        dims.push(cx.fresh_dim("expand", i));
    }
    let shape = cx.input(1)?;
    Ok(vec![cx.add(Expand { shape: vec![], dims }, &[x, shape])?])
}

fn import_tile(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    if let Some(repeats) = cx.int_values(1) {
        return Ok(vec![cx.add(Tile { repeats, dims: vec![] }, &[x])?]);
    }
    if cx.ty(1)?.dtype != DType::I64 {
        return Err("repeats are not i64".into());
    }
    let dims = (0..cx.ty(0)?.rank()).map(|i| cx.fresh_dim("tile", i)).collect();
    let repeats = cx.input(1)?;
    Ok(vec![cx.add(Tile { repeats: vec![], dims }, &[x, repeats])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{run, try_run};

    fn dims(v: &[i64]) -> Vec<Dim> {
        v.iter().map(|&d| Dim::new(d)).collect()
    }

    #[test]
    fn symbolic_dims_that_may_be_one() {
        let (n, m) = (Dim::var("n"), Dim::var("m"));
        let shape = |v: &[&Dim]| v.iter().map(|&d| d.clone()).collect::<Vec<_>>();
        let one = Dim::new(1);
        assert_eq!(broadcast_dims(&shape(&[&n, &one]), &shape(&[&m])), Ok(shape(&[&n, &m])));
        assert_eq!(broadcast_dims(&shape(&[&n]), &dims(&[8])), Ok(dims(&[8])));
        assert_eq!(broadcast_dims(&shape(&[&n]), &shape(&[&m])), Ok(vec![n.max(&m)]));
        let doubled = n.clone() + &n;
        assert_eq!(broadcast_dims(&[n.clone() * 2], &[doubled]).unwrap().len(), 1);
        // The operand that has n of max(n, m) elements is read at min(i, n - 1).
        let i = Int::var("i");
        assert_eq!(operand_index(std::slice::from_ref(&i), &[n.max(&m)], std::slice::from_ref(&n)), [i.min(n - 1)]);
        assert!(broadcast_dims(&dims(&[2]), &dims(&[3])).is_err());
    }

    #[test]
    fn expand_and_tile_repeat() {
        let x = Tensor::from_vec(vec![2, 1], vec![1.0f32, 2.0]);
        let out = run(Expand { shape: dims(&[2, 1, 3]), dims: vec![] }, &[&x]);
        assert_eq!(out.shape(), [2, 2, 3]);
        assert_eq!(out.to_f64_vec()[..6], [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        // A shape with 1 keeps the operand's dimension.
        assert_eq!(run(Expand { shape: dims(&[1, 1]), dims: vec![] }, &[&x]).shape(), [2, 1]);
        let out = run(Tile { repeats: dims(&[1, 2]), dims: vec![] }, &[&Tensor::from_vec(vec![1, 2], vec![1i64, 2])]);
        assert_eq!(out.to_i64_vec(), [1, 2, 1, 2]);
        assert!(try_run(Tile { repeats: dims(&[2]), dims: vec![] }, &[&x]).is_err());
    }

    #[test]
    fn run_time_shapes_give_the_same_on_the_host() {
        let x = Tensor::from_vec(vec![2, 1], vec![1i64, 2]);
        let unknown = vec![Dim::var("a"), Dim::var("b")];
        let host =
            |op: &dyn Op, by: &Tensor| op.eval_host(&[Some(x.clone()), Some(by.clone())]).unwrap().unwrap().remove(0);
        let expand = Expand { shape: vec![], dims: unknown.clone() };
        assert_eq!(host(&expand, &Tensor::ints(&[3])), run(Expand { shape: dims(&[3]), dims: vec![] }, &[&x]));
        let tile = Tile { repeats: vec![], dims: unknown };
        let by = Tensor::ints(&[2, 3]);
        assert_eq!(host(&tile, &by), run(Tile { repeats: dims(&[2, 3]), dims: vec![] }, &[&x]));
        assert_eq!(tile.defined_symbols(), [Name::new("a"), Name::new("b")]);
        assert!(!tile.has_compute());
        let refused =
            |op: &dyn Op, by: &[i64]| op.eval_host(&[Some(x.clone()), Some(Tensor::ints(by))]).unwrap().is_err();
        assert!(refused(&expand, &[3, 1]) && refused(&expand, &[i64::MAX, 1]));
        assert!(refused(&tile, &[3]) && refused(&tile, &[1, i64::MAX]) && refused(&tile, &[-1, 1]));
    }
}
