//! Ops whose result depends on comparing or counting elements.

use super::binary::Equal;
use super::counted::{Counted, CountedOperand, Counting, MOST_COUNTED};
use super::gather::Gather;
use super::permute::{PermutedOp, normalize_axis, permuted_axis};
use super::reshape::read_ints;
use super::unary::Not;
use super::{InferContext, Op, OpRef, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::{BuildError, TensorType, ValueId};
use crate::int::{Dim, Int};
use crate::name::Name;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{BinaryOp, Combiner, Cond, Expr, UnaryOp};
use std::cmp::Ordering;
use std::ops::{self, Range};

attr_struct! {
    /// The `k` largest (or smallest) elements along `axis`, in order, and their i64 indices. Equal elements, as 0 and
    /// -0 are, keep their order. A NaN is larger than any number and equal to another NaN.
    pub struct TopK("top_k") {
        /// How many. A symbol when operand 1 says it only at run time.
        pub k: Int = Int::new(1),
        /// The axis; negative counts from the end.
        pub axis: i64 = -1,
        /// Largest, or else smallest.
        pub largest: bool = true,
        /// Whether operand 1 says k.
        pub dynamic: bool = false,
    }
}
impl Op for TopK {
    fn arity(&self) -> (usize, usize) {
        (1, 2)
    }
    fn num_results(&self) -> usize {
        2
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let mut values = cx.require(0)?.clone();
        let axis = normalize_axis(self.axis, values.rank())?;
        if let (Some(k), Some(d)) = (self.k.as_const(), values.shape[axis].as_const())
            && !(0..=d).contains(&k)
        {
            return Err(format!("there are no {k} of {d} elements").into());
        }
        values.shape[axis] = self.k.clone();
        let indices = TensorType::new(DType::I64, values.shape.clone());
        Ok(vec![values, indices])
    }
    fn has_compute(&self) -> bool {
        !self.dynamic
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        self.compute_ranked(cx)
    }
    fn is_less_work_on_host(&self) -> bool {
        true
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        let x = inputs[0].as_ref()?;
        let given = inputs.get(1).and_then(Option::as_ref).and_then(|t| t.to_i64_vec().first().copied());
        let k = if self.dynamic { given } else { self.k.as_const() };
        let k = match k.and_then(|k| usize::try_from(k).ok()) {
            Some(k) => k,
            None => return Some(Err("k is not a size".into())),
        };
        Some(self.select(x, k))
    }
    fn positions(&self, result: usize, operands: &[Option<&TensorType>]) -> Option<Dim> {
        let shape = &operands.first()?.as_ref()?.shape;
        (result == 1).then_some(shape[normalize_axis(self.axis, shape.len()).ok()?].clone())
    }
    fn defined_symbols(&self) -> Vec<Name> {
        self.k.as_var().filter(|_| self.dynamic).into_iter().collect()
    }
    fn size_operands(&self) -> &'static [usize] {
        &[1]
    }
    fn with_sizes(&self, operands: &[Option<Tensor>]) -> OpResult<(OpRef, Vec<Option<usize>>)> {
        let k = read_ints(operands, 1)?.pop().ok_or("k is missing")?;
        Ok((TopK { k, dynamic: false, ..self.clone() }.into(), vec![Some(0)]))
    }
    fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        let axis = permuted_axis(normalize_axis(self.axis, perm.len()).ok()?, perm) as i64;
        let mut out = PermutedOp::uniform(TopK { axis, ..self.clone() }, perm, 1, 2);
        if self.dynamic {
            out.operands.push((1, None));
        }
        Some(out)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let k = match self.dynamic {
            true => cx.input(1),
            false => cx.ints(std::slice::from_ref(&self.k))?,
        };
        let (inputs, outputs) = (vec![cx.input(0), k], cx.outputs.clone());
        let attrs = vec![("axis", OnnxAttr::Int(self.axis)), ("largest", OnnxAttr::Int(self.largest as i64))];
        cx.node("TopK", inputs, outputs, attrs);
        Ok(())
    }
}
/// The longest axis that is ranked by comparing each element with each.
const RANKED: i64 = 4096;

impl TopK {
    /// Each element's rank is the number of those before it: stages `rank`, `place` (of each result, 1 and the place of
    /// the element of that rank; 0 if there were none) and the values. Quadratic in the axis: beyond [`RANKED`] elements
    /// the host sorts.
    fn compute_ranked(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let (ty, shape, dtype) = (cx.output_type(0).clone(), cx.shape(x), cx.dtype(x));
        let axis = normalize_axis(self.axis, shape.len())?;
        let n = shape[axis].clone();
        if n.as_const().is_none_or(|n| n > RANKED) || matches!(dtype, DType::Bool | DType::F64) {
            return Err(format!("ranks at most {RANKED} elements that are comparable on a device").into());
        }
        let along = |i: &[Int], at: &Int| {
            let mut index = i.to_vec();
            index[axis] = at.clone();
            index
        };
        let key = |at: Vec<Int>| Expr::load(x, at).cast(dtype, dtype.accumulator());
        let is_nan = |e: &Expr| Expr::unary(UnaryOp::IsNan, e.clone());
        let both = |a, b| Expr::binary(BinaryOp::And, a, b);
        let either = |a, b| Expr::binary(BinaryOp::Or, a, b);
        let one = |cond: Expr| Expr::select(cond, Expr::int(1, DType::I32), Expr::int(0, DType::I32));
        let before = if self.largest { BinaryOp::Gt } else { BinaryOp::Lt };
        let rank = cx.reduce("rank", &shape, DType::I32, std::slice::from_ref(&n), Combiner::Sum, |i, r| {
            let (other, own) = (key(along(i, &r[0])), key(i.to_vec()));
            let mut ahead = Expr::binary(before, other.clone(), own.clone());
            let mut equal = Expr::binary(BinaryOp::Eq, other.clone(), own.clone());
            if dtype.is_float() {
                let (nan, number) = if self.largest { (&other, &own) } else { (&own, &other) };
                let beyond = both(is_nan(nan), Expr::unary(UnaryOp::Not, is_nan(number)));
                ahead = either(ahead, beyond);
                equal = either(equal, both(is_nan(&other), is_nan(&own)));
            }
            let equal = Expr::guarded(vec![Cond::lt(&r[0], &i[axis])], one(equal), Expr::int(0, DType::I32));
            Expr::select(ahead, Expr::int(1, DType::I32), equal)
        });
        let place = cx.reduce("place", &ty.shape, DType::I32, std::slice::from_ref(&n), Combiner::Sum, |i, r| {
            let wanted = Expr::Index(i[axis].clone(), DType::I32);
            let found = Expr::binary(BinaryOp::Eq, Expr::load(rank, along(i, &r[0])), wanted);
            Expr::select(found, Expr::Index(r[0].clone() + 1, DType::I32), Expr::int(0, DType::I32))
        });
        let values = cx.compute("", &ty.shape, ty.dtype, |i| {
            let at = (Int::load(place, i.to_vec()) - 1).rem(&n);
            Expr::load(x, along(i, &at))
        });
        let places = cx.compute("indices", &ty.shape, DType::I64, |i| {
            (Expr::load(place, i.to_vec()) - Expr::int(1, DType::I32)).cast(DType::I32, DType::I64)
        });
        cx.output(0, values);
        cx.output(1, places);
        Ok(())
    }
    fn select(&self, x: &Tensor, k: usize) -> OpResult<Vec<Tensor>> {
        let axis = normalize_axis(self.axis, x.shape().len())?;
        let (n, inner) = (x.shape()[axis], x.shape()[axis + 1..].iter().product::<usize>());
        if k > n {
            return Err(format!("there are no {k} of {n} elements").into());
        }
        let outer: usize = x.shape()[..axis].iter().product();
        let chosen = match x.as_slice::<f32>() {
            Some(values) => self.chosen([outer, n, inner], k, values.iter().map(|x| place_of_float(*x)).collect()),
            None => self.chosen([outer, n, inner], k, element_places(x)),
        };
        let mut shape = x.shape().to_vec();
        shape[axis] = k;
        let width = x.dtype().size();
        let mut bytes = Vec::with_capacity(chosen.len() * width);
        for (flat, &j) in chosen.iter().enumerate() {
            let (o, i) = (flat / (k * inner), flat % inner);
            let at = ((o * n + j) * inner + i) * width;
            bytes.extend_from_slice(&x.bytes()[at..at + width]);
        }
        let values = Tensor::from_bytes(x.dtype(), shape.clone(), bytes.into())?;
        Ok(vec![values, Tensor::from_vec(shape, chosen.into_iter().map(|j| j as i64).collect())])
    }
    /// The first `k` elements of each line, by their numbers in it; `places` has each element's place in order.
    fn chosen<P>(&self, [outer, n, inner]: [usize; 3], k: usize, mut places: Vec<P>) -> Vec<usize>
    where
        P: Ord + Copy + ops::Not<Output = P>,
    {
        let mut chosen = vec![0; outer * k * inner];
        if k == 0 || chosen.is_empty() {
            return chosen;
        }
        if self.largest {
            places.iter_mut().for_each(|p| *p = !*p);
        }
        let mut lines = vec![];
        for (all, chosen) in places.chunks_exact(n * inner).zip(chosen.chunks_exact_mut(k * inner)) {
            for first in (0..inner).step_by(LINES) {
                let count = LINES.min(inner - first);
                let lines = if inner == 1 { all } else { lines_of(all, inner, first..first + count, &mut lines) };
                for (i, line) in lines.chunks_exact(n).enumerate() {
                    let chosen = chosen[first + i..].iter_mut().step_by(inner);
                    chosen.zip(first_of(line, k)).for_each(|(to, (_, at))| *to = at);
                }
            }
        }
        chosen
    }
}

/// Lines of elements that lie next to each other, which are read together.
const LINES: usize = 16;

/// Some lines of elements `inner` apart, one after another, in `to`.
fn lines_of<'t, P: Copy>(all: &[P], inner: usize, of: Range<usize>, to: &'t mut Vec<P>) -> &'t [P] {
    let n = all.len() / inner;
    to.resize(n * of.len(), all[0]);
    for (j, row) in all.chunks_exact(inner).enumerate() {
        row[of.clone()].iter().enumerate().for_each(|(i, p)| to[i * n + j] = *p);
    }
    to
}

/// Elements that are compared at once with what must be less.
const AT_ONCE: usize = 32;

/// The `k` least of some elements, at least one, in order, each with its number; of equal ones the first.
fn first_of<P: Ord + Copy>(all: &[P], k: usize) -> Vec<(P, usize)> {
    // Twice as many are held: now and then the greater half is left out, and what is no less than the others later.
    let mut held: Vec<(P, usize)> = Vec::with_capacity(2 * k);
    let mut bound: Option<P> = None;
    for (block, some) in all.chunks(AT_ONCE).enumerate() {
        if bound.is_some_and(|b| !some.iter().fold(false, |any, p| any | (*p < b))) {
            continue;
        }
        for (i, one) in some.iter().enumerate() {
            if bound.is_some_and(|b| *one >= b) {
                continue;
            }
            held.push((*one, block * AT_ONCE + i));
            if held.len() == 2 * k {
                bound = Some(held.select_nth_unstable(k - 1).1.0);
                held.truncate(k);
            }
        }
    }
    held.sort_unstable();
    held.truncate(k);
    held
}

/// The place of a number in the order in which numbers are sorted: zeros of either sign have one, NaN the last.
fn place_of_float(x: f32) -> i32 {
    let bits = (x + 0.0).to_bits() as i32;
    let place = if bits < 0 { bits ^ i32::MAX } else { bits };
    if x.is_nan() { i32::MAX } else { place }
}

/// The place of each element in sorted order: elements that come first have a smaller one.
fn element_places(x: &Tensor) -> Vec<i64> {
    let of_float = |x: f64| {
        let bits = (x + 0.0).to_bits() as i64;
        let place = if bits < 0 { bits ^ i64::MAX } else { bits };
        if x.is_nan() { i64::MAX } else { place }
    };
    match x.dtype() {
        t if t.is_float() => x.to_f64_vec().into_iter().map(of_float).collect(),
        DType::U64 => x.to_i64_vec().into_iter().map(|x| x ^ i64::MIN).collect(),
        _ => x.to_i64_vec(),
    }
}

/// The order of floats where elements are sorted: 0 and -0 are equal, and any NaN is larger than all numbers and equal
/// to another.
pub(super) fn compare_numbers(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// The order of the elements at two places of a tensor; floats as [`compare_numbers`] orders them.
pub(super) fn element_order(x: &Tensor) -> impl Fn(usize, usize) -> Ordering {
    let (floats, mut ints) = if x.dtype().is_float() { (x.to_f64_vec(), vec![]) } else { (vec![], x.to_i64_vec()) };
    if x.dtype() == DType::U64 {
        // Its bits as i64 are in order but for the first one.
        ints.iter_mut().for_each(|v| *v ^= i64::MIN);
    }
    move |a, b| if ints.is_empty() { compare_numbers(floats[a], floats[b]) } else { ints[a].cmp(&ints[b]) }
}

attr_struct! {
    /// Coordinates of the elements that are not 0: one i64 column each, in row-major order.
    pub struct NonZero("non_zero") {
        /// Symbol for the number of them.
        pub count: Name = Name::new("non_zero"),
    }
}
impl Op for NonZero {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let rank = cx.require(0)?.rank();
        Ok(vec![TensorType::new(DType::I64, vec![Dim::from(rank), Dim::var(self.count)])])
    }
    fn has_compute(&self) -> bool {
        false
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        let x = inputs[0].as_ref()?;
        let found: Vec<usize> = x.to_f64_vec().iter().enumerate().filter(|v| *v.1 != 0.0).map(|v| v.0).collect();
        let mut stride = x.len();
        let mut out = Vec::with_capacity(found.len() * x.shape().len());
        for &d in x.shape() {
            stride /= d.max(1);
            out.extend(found.iter().map(|flat| (flat / stride % d) as i64));
        }
        Some(Ok(vec![Tensor::from_vec(vec![x.shape().len(), found.len()], out)]))
    }
    fn positions(&self, _result: usize, operands: &[Option<&TensorType>]) -> Option<Dim> {
        operands.first()?.map(TensorType::numel)
    }
    fn defined_symbols(&self) -> Vec<Name> {
        vec![self.count]
    }
    fn counted(&self, c: &mut Counting<'_, '_>, operands: &[CountedOperand]) -> Option<Result<Counted, BuildError>> {
        let x = operands.first()?.value?;
        let shape = c.shape(x)?;
        let fits = !shape.is_empty() && (1..=MOST_COUNTED).contains(&shape.iter().product());
        fits.then(|| count_non_zero(c, x, &shape))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("NonZero", vec![]);
        Ok(())
    }
}

fn count_non_zero(c: &mut Counting<'_, '_>, x: ValueId, shape: &[usize]) -> Result<Counted, BuildError> {
    let n = shape.iter().product();
    let dtype = c.ty(x).dtype;
    let is = match dtype {
        DType::Bool => x,
        _ => {
            let zero = c.number(0.0, dtype);
            let equal = c.add(Equal {}, &[x, zero])?;
            c.add(Not {}, &[equal])?
        }
    };
    let flags = c.cast(is, DType::I32)?;
    let flags = c.reshape(flags, &[n])?;
    let (places, count) = c.places(flags, n)?;
    let rows = c.coordinates(places, shape)?;
    let rows = c.stack(&rows, 0)?;
    Ok(Counted { results: vec![(c.cast(rows, DType::I64)?, Some(1))], count })
}

attr_struct! {
    /// The slices along `axis` (without one, the elements) where the bool operand 1 is true.
    pub struct Compress("compress") {
        /// The axis; negative counts from the end, none flattens.
        pub axis: Option<i64> = None,
        /// Symbol for the number of slices that stay.
        pub count: Name = Name::new("compress"),
    }
}
impl Op for Compress {
    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (mut ty, condition) = (cx.require(0)?.clone(), cx.require(1)?);
        if condition.dtype != DType::Bool || condition.rank() != 1 {
            return Err(format!("the condition is {condition:?}, not a list of bools").into());
        }
        match self.axis {
            Some(axis) => {
                let axis = normalize_axis(axis, ty.rank())?;
                ty.shape[axis] = Dim::var(self.count);
            }
            None => ty.shape = vec![Dim::var(self.count)],
        }
        Ok(vec![ty])
    }
    fn has_compute(&self) -> bool {
        false
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        let (x, condition) = (inputs[0].as_ref()?, inputs[1].as_ref()?);
        let flat = self.axis.is_none();
        let x = if flat { x.reshaped(vec![x.len()]) } else { x.clone() };
        let axis = match normalize_axis(self.axis.unwrap_or(0), x.shape().len()) {
            Ok(a) => a,
            Err(e) => return Some(Err(e)),
        };
        let kept: Vec<usize> = condition.bytes().iter().enumerate().filter(|b| *b.1 != 0).map(|b| b.0).collect();
        if kept.last().is_some_and(|&k| k >= x.shape()[axis]) {
            return Some(Err("the condition is longer than the axis".into()));
        }
        let mut shape = x.shape().to_vec();
        shape[axis] = kept.len();
        let pick = |a: usize, i: usize| if a == axis { kept[i] } else { i };
        Some(Ok(vec![super::host_copy::gather_host(&x, &shape, pick)]))
    }
    fn defined_symbols(&self) -> Vec<Name> {
        vec![self.count]
    }
    fn counted(&self, c: &mut Counting<'_, '_>, operands: &[CountedOperand]) -> Option<Result<Counted, BuildError>> {
        let (x, condition) = (operands.first()?.value?, operands.get(1)?.value?);
        let (mut shape, given) = (c.shape(x)?, c.shape(condition)?[0]);
        if self.axis.is_none() {
            shape = vec![shape.iter().product()];
        }
        let axis = normalize_axis(self.axis.unwrap_or(0), shape.len()).ok()?;
        let fits = (1..=MOST_COUNTED).contains(&given) && given <= shape[axis];
        fits.then(|| {
            let flags = c.cast(condition, DType::I32)?;
            let (places, count) = c.places(flags, given)?;
            let x = c.reshape(x, &shape)?;
            let kept = c.add(Gather { axis: axis as i64 }, &[x, places])?;
            Ok(Counted { results: vec![(kept, Some(axis))], count })
        })
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("Compress", self.axis.map(|a| ("axis", OnnxAttr::Int(a))).into_iter().collect());
        Ok(())
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "TopK", domain: "", since: 1, import: import_top_k },
    OnnxImport { op_type: "NonZero", domain: "", since: 9, import: import_non_zero },
    OnnxImport { op_type: "Compress", domain: "", since: 9, import: import_compress },
];

fn import_top_k(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let rank = cx.ty(0)?.rank();
    let axis = normalize_axis(cx.attrs.int("axis").unwrap_or(-1), rank)? as i64;
    let largest = cx.attrs.int("largest").unwrap_or(1) != 0;
    let given = cx.attrs.int("k").map(Int::new).or_else(|| cx.int_values(1).and_then(|mut v| v.pop()));
    if let Some(k) = given {
        return cx.add_multi(TopK { k, axis, largest, dynamic: false }, vec![Some(x)]);
    }
    let (k, operand) = (cx.fresh_dim("top_k", 0), cx.input(1)?);
    cx.add_multi(TopK { k, axis, largest, dynamic: true }, vec![Some(x), Some(operand)])
}

fn import_non_zero(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let count = cx.fresh_dim("non_zero", 0).as_var().expect("a symbol");
    Ok(vec![cx.add(NonZero { count }, &[x])?])
}

fn import_compress(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let operands = [cx.input(0)?, cx.input(1)?];
    let count = cx.fresh_dim("compress", 0).as_var().expect("a symbol");
    Ok(vec![cx.add(Compress { axis: cx.attrs.int("axis"), count }, &operands)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::try_run;

    #[test]
    fn largest_and_smallest_keep_the_order_of_equals() {
        let x = Tensor::from_vec(vec![2, 4], vec![3.0f32, 1.0, 3.0, 2.0, -1.0, 0.0, 0.0, 5.0]);
        let of = |k: i64, axis, largest| try_run(TopK { k: Int::new(k), axis, largest, dynamic: false }, &[&x]);
        let out = of(2, -1, true).unwrap();
        assert_eq!(out[0].to_f64_vec(), [3.0, 3.0, 5.0, 0.0]);
        assert_eq!(out[1].to_i64_vec(), [0, 2, 3, 1]);
        assert_eq!(of(1, 0, false).unwrap()[1].to_i64_vec(), [1, 1, 1, 0]);
        assert!(of(5, 1, true).is_err());
    }

    #[test]
    fn integers_of_64_bits_are_compared_as_they_are() {
        let of = |x: &Tensor, largest| {
            try_run(TopK { k: Int::new(2), axis: 0, largest, dynamic: false }, &[x]).unwrap()[1].to_i64_vec()
        };
        let far = (1i64 << 60) + 1;
        assert_eq!(of(&Tensor::ints(&[far - 1, far, -far, far + 1]), true), [3, 1]);
        let x = Tensor::from_vec(vec![4], vec![7u64, u64::MAX, (1 << 63) + 5, (1 << 53) + 1]);
        assert_eq!((of(&x, true), of(&x, false)), (vec![1, 2], vec![0, 3]));
    }

    #[test]
    fn zeros_of_either_sign_are_equal_and_nan_is_the_largest() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let x = Tensor::from_vec(vec![2, 5], vec![-0.0f32, 0.0, 0.0, -0.0, -1.0, inf, nan, -inf, -nan, inf]);
        for (largest, want) in [(true, [0, 1, 2, 3, 4, 1, 3, 0, 4, 2]), (false, [4, 0, 1, 2, 3, 2, 0, 4, 1, 3])] {
            let op = OpRef::new(TopK { k: Int::new(5), axis: -1, largest, dynamic: false });
            let host = try_run(op.clone(), &[&x]).unwrap();
            let stages = crate::interpreter::eval_expression(&op, &[Some(x.clone())]).unwrap();
            assert_eq!((host[1].to_i64_vec(), stages[1].to_i64_vec()), (want.to_vec(), want.to_vec()));
        }
    }

    /// Lines that lie next to each other or apart, more of them than are read together, many equal ones.
    #[test]
    fn selections_are_those_of_a_sort() {
        let number = |i: usize| (i * 7919 % 31) as f32 - 15.0;
        for (outer, n, inner) in [(3, 200, 1), (2, 70, 37), (1, 5, 2)] {
            let x: Vec<f32> = (0..outer * n * inner).map(number).collect();
            let t = Tensor::from_vec(vec![outer, n, inner], x.clone());
            for (k, largest) in [(0, true), (1, false), (3, true), (5, false), (n.min(60), true)] {
                let op = TopK { k: Int::new(k as i64), axis: 1, largest, dynamic: false };
                let got = try_run(op, &[&t]).unwrap()[1].to_i64_vec();
                let doubles = try_run(
                    TopK { k: Int::new(k as i64), axis: 1, largest, dynamic: false },
                    &[&Tensor::from_f64(DType::F64, vec![outer, n, inner], x.iter().map(|x| f64::from(*x)))],
                );
                assert_eq!(got, doubles.unwrap()[1].to_i64_vec());
                for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
                    let of = |j: usize| x[(o * n + j) * inner + i];
                    let mut all: Vec<usize> = (0..n).collect();
                    all.sort_by(|a, b| if largest { of(*b).total_cmp(&of(*a)) } else { of(*a).total_cmp(&of(*b)) });
                    let own: Vec<usize> = (0..k).map(|j| got[(o * k + j) * inner + i] as usize).collect();
                    assert_eq!(own, all[..k], "{outer} {n} {inner} {k} {largest}");
                }
            }
        }
    }

    #[test]
    fn counted_results() {
        let x = Tensor::from_vec(vec![2, 2], vec![1.0f32, 0.0, 0.0, -2.0]);
        let out = NonZero::default().eval_host(&[Some(x.clone())]).unwrap().unwrap();
        assert_eq!((out[0].shape(), out[0].to_i64_vec()), (&[2, 2][..], vec![0, 1, 0, 1]));
        let keep = Tensor::from_f64(DType::Bool, vec![2], [0.0, 1.0]);
        let of = |axis| Compress { axis, ..Compress::default() }.eval_host(&[Some(x.clone()), Some(keep.clone())]);
        assert_eq!(of(Some(1)).unwrap().unwrap()[0].to_f64_vec(), [0.0, -2.0]);
        assert_eq!(of(None).unwrap().unwrap()[0].to_f64_vec(), [0.0]);
        assert!(of(Some(2)).unwrap().is_err());
    }
}
