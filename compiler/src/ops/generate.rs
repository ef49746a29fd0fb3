//! Tensors that are made from numbers and shapes only.

use super::broadcast::Expand;
use super::cast::{Cast, dtype_of_onnx, onnx_code};
use super::host_copy::{check_count, check_sizes};
use super::permute::normalize_axis;
use super::reshape::target_dims;
use super::{InferContext, Op, OpRef, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{TensorType, ValueId};
use crate::int::{Dim, Int, const_dims};
use crate::name::Name;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport, held_number};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{Cond, Expr};

/// Constants up to this many elements are made at import.
const SMALL: usize = 1024;

attr_struct! {
    /// A tensor whose elements are all `value`; of shape `shape`, or else of that in the integer operand 0.
    pub struct Full("full") {
        /// The shape.
        pub shape: Vec<Int> = vec![],
        /// The value.
        pub value: f64 = 0.0,
        /// The element type.
        pub dtype: DType = DType::F32,
        /// Result dims where operand 0 is known only at run time.
        pub dims: Vec<Int> = vec![],
    }
}
impl Op for Full {
    fn arity(&self) -> (usize, usize) {
        (0, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let shape = if self.dims.is_empty() { target_dims(cx, &self.shape, 0)? } else { self.dims.clone() };
        if let Some(d) = shape.iter().find(|d| d.as_const().is_some_and(|c| c < 0)) {
            return Err(format!("negative dimension {d}").into());
        }
        Ok(vec![TensorType::new(self.dtype, shape)])
    }
    fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
        let n = self.infer(cx).ok()?[0].numel().as_const()?;
        (self.dtype.is_int() && n <= 64).then(|| vec![Dim::new(self.value as i64); n as usize])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let ty = cx.output_type(0).clone();
        let out = cx.compute("", &ty.shape, ty.dtype, |_| Expr::constant(self.value, ty.dtype));
        cx.output(0, out);
        Ok(())
    }
    fn with_known_sizes(&self, cx: &InferContext<'_>) -> Option<(OpRef, usize)> {
        let open = self.shape.is_empty() && self.dims.is_empty();
        Some((Full { shape: cx.int_input(0)?, ..self.clone() }.into(), 0)).filter(|_| open)
    }
    fn has_compute(&self) -> bool {
        self.dims.is_empty()
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        if self.dims.is_empty() {
            return None;
        }
        let shape = check_sizes(&inputs.first()?.as_ref()?.to_i64_vec());
        Some(shape.and_then(|s| check_count(self.dtype, &s).map(|()| vec![filled(self.dtype, s, self.value)])))
    }
    fn defined_symbols(&self) -> Vec<Name> {
        self.dims.iter().filter_map(Int::as_var).collect()
    }
    fn size_operands(&self) -> &'static [usize] {
        &[0]
    }
    fn with_sizes(&self, operands: &[Option<Tensor>]) -> OpResult<(OpRef, Vec<Option<usize>>)> {
        let shape =
            check_sizes(&operands.first().and_then(Option::as_ref).ok_or("the shape is missing")?.to_i64_vec())?;
        let shape = shape.into_iter().map(Int::from).collect();
        Ok((Full { shape, dims: vec![], ..self.clone() }.into(), vec![]))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let shape = match self.dims.is_empty() {
            true => cx.ints(&self.shape)?,
            false => cx.input(0),
        };
        let value = OnnxAttr::Tensor(filled(self.dtype, vec![1], self.value));
        let outputs = cx.outputs.clone();
        cx.node("ConstantOfShape", vec![shape], outputs, vec![("value", value)]);
        Ok(())
    }
}

fn filled(dtype: DType, shape: Vec<usize>, value: f64) -> Tensor {
    let n = shape.iter().product();
    Tensor::from_f64(dtype, shape, std::iter::repeat_n(value, n))
}

attr_struct! {
    /// `start, start + delta ...` of `size` elements; operands are the scalars start, limit and delta. The limit may be
    /// absent where the size is known.
    pub struct Range("range") {
        /// Number of elements.
        pub size: Int = Int::new(0),
        /// Whether the size is known only when the node runs; then `size` is the symbol for it.
        pub dynamic: bool = false,
    }
}
impl Op for Range {
    fn arity(&self) -> (usize, usize) {
        (3, 3)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let dtype = cx.require(0)?.dtype;
        for i in (0..3).filter(|&i| i != 1 || self.dynamic || cx.input(1).is_some()) {
            let t = cx.require(i)?;
            if t.dtype != dtype || !t.numel().is(1) {
                return Err(format!("operand {i} is {t:?}, not one {dtype}").into());
            }
        }
        Ok(vec![TensorType::new(dtype, vec![self.size.clone()])])
    }
    fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
        let (start, delta) = (cx.int_input(0)?.pop()?, cx.int_input(2)?.pop()?);
        let n = self.size.as_const().filter(|&n| n <= 64 && !self.dynamic)?;
        Some((0..n).map(|i| start.clone() + delta.clone() * i).collect())
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (start, delta) = (cx.require(0)?, cx.require(2)?);
        let ty = cx.output_type(0).clone();
        let zeros = |cx: &ComputeContext<'_>, b| vec![Int::new(0); cx.shape(b).len()];
        let (start, delta) = (Expr::load(start, zeros(cx, start)), Expr::load(delta, zeros(cx, delta)));
        let out = cx.compute("", &ty.shape, ty.dtype, |i| start + Expr::Index(i[0].clone(), ty.dtype) * delta);
        cx.output(0, out);
        Ok(())
    }
    fn has_compute(&self) -> bool {
        !self.dynamic
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        let [Some(start), Some(limit), Some(delta)] = inputs else { return None };
        Some(range_size([start, limit, delta]).and_then(|n| {
            check_count(start.dtype(), &[n as usize])?;
            Ok(vec![numbers(start, delta, n)])
        }))
    }
    fn defined_symbols(&self) -> Vec<Name> {
        self.size.as_var().filter(|_| self.dynamic).into_iter().collect()
    }
    fn size_operands(&self) -> &'static [usize] {
        &[0, 1, 2]
    }
    fn with_sizes(&self, operands: &[Option<Tensor>]) -> OpResult<(OpRef, Vec<Option<usize>>)> {
        let [Some(start), Some(limit), Some(delta)] = operands else {
            return Err("start, limit or step is missing".into());
        };
        let size = Int::new(range_size([start, limit, delta])?);
        Ok((Range { size, dynamic: false }.into(), vec![Some(0), None, Some(2)]))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        if !cx.input(1).is_empty() {
            cx.simple("Range", vec![]);
            return Ok(());
        }
        // Without a limit: start + delta * (0, 1 ... size - 1). A limit that is computed in floats may round.
        let [zero, one] = [0, 1].map(|n| cx.constant(Tensor::scalar::<i64>(n)));
        let (size, scalar) = (cx.ints(std::slice::from_ref(&self.size))?, cx.constant(Tensor::ints(&[])));
        let size = cx.emit("Reshape", vec![size, scalar]);
        let counted = cx.emit("Range", vec![zero, size, one]);
        let (to, numbers) = (onnx_code(cx.output_types[0].dtype), cx.fresh());
        cx.node("Cast", vec![counted], vec![numbers.clone()], vec![("to", OnnxAttr::Int(to))]);
        let steps = cx.emit("Mul", vec![numbers, cx.input(2)]);
        let (start, outputs) = (cx.input(0), cx.outputs.clone());
        cx.node("Add", vec![steps, start], outputs, vec![]);
        Ok(())
    }
}

/// Numbers of a range that are refused: 2^36.
const MOST_NUMBERS: f64 = 68_719_476_736.0;

/// How many numbers a range has from its start, limit and step; integers are counted as such.
fn range_size(operands: [&Tensor; 3]) -> OpResult<i64> {
    let refused = |[start, limit, delta]: [String; 3]| -> OpResult<i64> {
        Err(format!("from {start} to {limit} in steps of {delta} are more than 2^36 numbers").into())
    };
    if operands[0].dtype().is_int() {
        let [start, limit, delta] = operands.map(|t| t.to_i64_vec().first().map_or(0, |&n| i128::from(n)));
        if delta == 0 {
            return Err("the step is 0".into());
        }
        let (span, step) = if delta > 0 { (limit - start, delta) } else { (start - limit, -delta) };
        let count = (span.max(0) + step - 1) / step;
        let count = i64::try_from(count).ok().filter(|&n| (n as f64) < MOST_NUMBERS);
        return count.map_or_else(|| refused([start, limit, delta].map(|n| n.to_string())), Ok);
    }
    let [start, limit, delta] = operands.map(|t| t.to_f64_vec().first().copied().unwrap_or(0.0));
    match ((limit - start) / delta).ceil() {
        _ if delta == 0.0 => Err("the step is 0".into()),
        n if n.is_finite() && n < MOST_NUMBERS => Ok(n.max(0.0) as i64),
        _ => refused([start, limit, delta].map(|n| n.to_string())),
    }
}

/// The `n` numbers of a range.
fn numbers(start: &Tensor, delta: &Tensor, n: i64) -> Tensor {
    let (dtype, shape) = (start.dtype(), vec![n as usize]);
    if dtype == DType::I64 {
        let [start, delta] = [start, delta].map(|t| t.to_i64_vec()[0]);
        return Tensor::from_vec(shape, (0..n).map(|i| start.wrapping_add(i.wrapping_mul(delta))).collect());
    }
    let [start, delta] = [start, delta].map(|t| t.to_f64_vec()[0]);
    Tensor::from_f64(dtype, shape, (0..n).map(|i| start + i as f64 * delta))
}

attr_struct! {
    /// A matrix of the operand's shape with 1 where column = row + `k`, else 0.
    pub struct EyeLike("eye_like") {
        /// The diagonal.
        pub k: i64 = 0,
        /// The element type.
        pub dtype: DType = DType::F32,
    }
}
impl Op for EyeLike {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        if x.rank() != 2 {
            return Err(format!("rank {} is not a matrix", x.rank()).into());
        }
        Ok(vec![TensorType::new(self.dtype, x.shape.clone())])
    }
    fn takes_types_alone(&self) -> bool {
        true
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let ty = cx.output_type(0).clone();
        let out = cx.compute("", &ty.shape, ty.dtype, |i| {
            let diagonal = Cond::eq(&i[1], i[0].clone() + self.k);
            Expr::guarded(vec![diagonal], Expr::int(1, ty.dtype), Expr::int(0, ty.dtype))
        });
        cx.output(0, out);
        Ok(())
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let attrs = vec![("k", OnnxAttr::Int(self.k)), ("dtype", OnnxAttr::Int(onnx_code(self.dtype)))];
        cx.simple("EyeLike", attrs);
        Ok(())
    }
}

attr_struct! {
    /// A new dimension of size `depth`: operand 1's second element (on) at the index in the integer operand 0, its
    /// first (off) elsewhere. Negative indices count from the end; those outside are off everywhere.
    pub struct OneHot("one_hot") {
        /// Where the new dimension is in the result; negative counts from the end.
        pub axis: i64 = -1,
        /// Its size.
        pub depth: Int = Int::new(1),
    }
}
impl Op for OneHot {
    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (indices, values) = (cx.require(0)?, cx.require(1)?);
        if !indices.dtype.is_int() || !values.numel().is(2) || values.rank() != 1 {
            return Err(format!("indices are {indices:?}, values {values:?}").into());
        }
        let mut shape = indices.shape.clone();
        shape.insert(normalize_axis(self.axis, shape.len() + 1)?, self.depth.clone());
        Ok(vec![TensorType::new(values.dtype, shape)])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (indices, values) = (cx.require(0)?, cx.require(1)?);
        let ty = cx.output_type(0).clone();
        let axis = normalize_axis(self.axis, ty.rank())?;
        let out = cx.compute("", &ty.shape, ty.dtype, |i| {
            let hot = Int::load(indices, [&i[..axis], &i[axis + 1..]].concat());
            let value = |n: i64| Expr::load(values, vec![Int::new(n)]);
            let from_end = Cond::eq(&hot, i[axis].clone() - &self.depth);
            let rest = Expr::guarded(vec![from_end], value(1), value(0));
            Expr::guarded(vec![Cond::eq(hot, &i[axis])], value(1), rest)
        });
        cx.output(0, out);
        Ok(())
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let depth = cx.ints(std::slice::from_ref(&self.depth))?;
        let (inputs, outputs) = (vec![cx.input(0), depth, cx.input(1)], cx.outputs.clone());
        cx.node("OneHot", inputs, outputs, vec![("axis", OnnxAttr::Int(self.axis))]);
        Ok(())
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "ConstantOfShape", domain: "", since: 9, import: import_constant_of_shape },
    OnnxImport { op_type: "Range", domain: "", since: 11, import: import_range },
    OnnxImport { op_type: "EyeLike", domain: "", since: 9, import: import_eye_like },
    OnnxImport { op_type: "OneHot", domain: "", since: 9, import: import_one_hot },
];

fn import_constant_of_shape(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let value = cx.attrs.tensor("value").cloned().unwrap_or(Tensor::zeros(DType::F32, vec![1]));
    let dtype = value.dtype();
    if value.is_empty() {
        return Err("the value is empty".into());
    }
    let Some(value) = held_number(&value) else { return spread_constant(cx, &value) };
    let Some(shape) = cx.int_values(0) else {
        let dims = cx.fresh_dims("full", 0)?;
        let shape = cx.input(0)?;
        return Ok(vec![cx.add(Full { shape: vec![], value, dtype, dims }, &[shape])?]);
    };
    let small = const_dims(&shape).filter(|s| s.iter().try_fold(1, |a: usize, &d| a.checked_mul(d)) <= Some(SMALL));
    match small {
        Some(s) if s.iter().try_fold(1usize, |a, &d| a.checked_mul(d)).is_some() => {
            Ok(vec![cx.constant(&filled(dtype, s, value))])
        }
        _ => Ok(vec![cx.add(Full { shape, value, dtype, dims: vec![] }, &[])?]),
    }
}

/// A constant in every place of the shape that operand 0 says.
fn spread_constant(cx: &mut ImportContext<'_, '_>, value: &Tensor) -> OpResult<Vec<ValueId>> {
    let value = cx.constant(&value.reshaped(vec![1]));
    Ok(vec![match cx.int_values(0) {
        Some(shape) => cx.add(Expand { shape, dims: vec![] }, &[value])?,
        None => {
            let (dims, shape) = (cx.fresh_dims("full", 0)?, cx.input(0)?);
            cx.add(Expand { shape: vec![], dims }, &[value, shape])?
        }
    }])
}

fn import_range(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let operands = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    let constants = [0, 1, 2].map(|i| cx.const_tensor(i));
    let ints = |i| cx.int_values(i).and_then(|mut v: Vec<Dim>| v.pop());
    let known = if let [Some(start), Some(limit), Some(delta)] = &constants {
        Some(Int::new(range_size([start, limit, delta])?))
    } else if let (Some(start), Some(limit), Some(delta)) = (ints(0), ints(1), ints(2)) {
        delta.as_const().filter(|&c| c != 0).map(|step| {
            let span = if step > 0 { limit - start } else { start - limit };
            cx.b.module.dims.settle(&span.ceil_div(step.saturating_abs()).max(0))
        })
    } else {
        None
    };
    let op = match known {
        Some(size) => Range { size, dynamic: false },
        None => Range { size: cx.fresh_dim("range", 0), dynamic: true },
    };
    Ok(vec![cx.add(op, &operands)?])
}

fn import_eye_like(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let dtype = match cx.attrs.int("dtype") {
        Some(code) => dtype_of_onnx(code)?,
        None => cx.ty(0)?.dtype,
    };
    Ok(vec![cx.add(EyeLike { k: cx.attrs.int("k").unwrap_or(0), dtype }, &[x])?])
}

fn import_one_hot(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (mut indices, values) = (cx.input(0)?, cx.input(2)?);
    let depth = match cx.const_tensor(1) {
        Some(t) => t.to_i64_vec().first().map(|&d| Int::new(d)),
        None => cx.int_values(1).and_then(|mut v| v.pop()),
    };
    let depth = depth.ok_or_else(|| Fault::unsupported("the depth is not known at compile time"))?;
    if !cx.ty(0)?.dtype.is_int() {
        indices = cx.add(Cast::new(DType::I64), &[indices])?;
    }
    Ok(vec![cx.add(OneHot { axis: cx.attrs.int("axis").unwrap_or(-1), depth }, &[indices, values])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{run, try_run};

    #[test]
    fn ranges() {
        let of = |a: f32, b: f32, c: f32, n: i64| {
            let operands = [Tensor::scalar(a), Tensor::scalar(b), Tensor::scalar(c)];
            let known = run(Range { size: Int::new(n), dynamic: false }, &operands.each_ref());
            let host = Range { size: Int::var("n"), dynamic: true }.eval_host(&operands.map(Some)).unwrap().unwrap();
            assert_eq!(known, host[0]);
            known.to_f64_vec()
        };
        assert_eq!(of(1.0, 2.0, 0.5, 2), [1.0, 1.5]);
        assert_eq!(of(3.0, 0.0, -2.0, 2), [3.0, 1.0]);
        assert_eq!(of(3.0, 0.0, 1.0, 0), [0.0; 0]);
        let of = |list: [i64; 3]| {
            let [start, limit, delta] = list.map(Tensor::scalar);
            range_size([&start, &limit, &delta]).map(|n| (n, numbers(&start, &delta, n).to_i64_vec()))
        };
        assert!(of([0, 1, 0]).is_err() && of([0, i64::MAX, 1]).is_err());
        let far = 1 << 60;
        assert_eq!(of([far + 1, far + 9, 3]).unwrap(), (3, vec![far + 1, far + 4, far + 7]));
        assert_eq!(of([far, far - 5, -2]).unwrap(), (3, vec![far, far - 2, far - 4]));
        assert_eq!(of([1, 1, 1]).unwrap().0 + of([2, 1, 1]).unwrap().0, 0);
    }

    #[test]
    fn one_hot_and_identity_matrices() {
        let values = Tensor::from_vec(vec![2], vec![5.0f32, 1.0]);
        let indices = Tensor::ints(&[1, -1, 7]);
        let out = run(OneHot { axis: -1, depth: Int::new(3) }, &[&indices, &values]);
        assert_eq!(out.to_f64_vec(), [5.0, 1.0, 5.0, 5.0, 5.0, 1.0, 5.0, 5.0, 5.0]);
        assert_eq!(run(OneHot { axis: 0, depth: Int::new(2) }, &[&indices, &values]).shape(), [2, 3]);
        let eye = run(EyeLike { k: 1, dtype: DType::I32 }, &[&Tensor::zeros(DType::F32, vec![2, 3])]);
        assert_eq!(eye.to_i64_vec(), [0, 1, 0, 0, 0, 1]);
        assert!(try_run(EyeLike::default(), &[&Tensor::ints(&[1])]).is_err());
        let full = Full { shape: vec![2.into(), 1.into()], value: -1.0, dtype: DType::I64, dims: vec![] };
        assert_eq!(run(full, &[]).to_i64_vec(), [-1, -1]);
    }
}
