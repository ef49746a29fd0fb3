//! Scatters: updates at indices from an operand.
//!
//! Several updates may have the same target, so no kernel stores by index: each element of the result searches the
//! updates that can target it, in their order. The cost is the number of elements times these updates. Above 2^26
//! comparisons, the host scatters.
//!
//! ONNX forbids an index outside of `-d..d`; its update is dropped ([`super::out_of_range`]).

use super::broadcast::{same_dim, unify_dims};
use super::host_copy::for_each_index;
use super::permute::{PermutedOp, normalize_axis, permuted_axis};
use super::{Checked, InferContext, Op, OpResult};
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{TensorType, ValueId};
use crate::int::{Int, unflatten_index};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{BinaryOp, Combiner, Cond, Expr};
use crate::{attr_enum, attr_struct};

attr_enum! {
    /// How an update and the old element combine.
    pub enum Reduction {
        /// The update replaces it; of several the last one.
        None = "none",
        /// Sum.
        Add = "add",
        /// Product.
        Mul = "mul",
        /// Larger of two.
        Max = "max",
        /// Smaller of two.
        Min = "min",
    }
}
impl Reduction {
    fn combiner(self) -> Combiner {
        match self {
            Reduction::None | Reduction::Max => Combiner::Max,
            Reduction::Add => Combiner::Sum,
            Reduction::Mul => Combiner::Prod,
            Reduction::Min => Combiner::Min,
        }
    }
    fn float(self, a: f64, b: f64) -> f64 {
        match self {
            Reduction::None => b,
            Reduction::Add => a + b,
            Reduction::Mul => a * b,
            Reduction::Max if a.is_nan() || a > b => a,
            Reduction::Min if a.is_nan() || a < b => a,
            Reduction::Max | Reduction::Min => b,
        }
    }
}

/// Combines `updates[n]` into element `places[n]` of `x`, in order; one without a place is dropped.
fn combine(x: &Tensor, updates: &Tensor, places: &[Option<usize>], reduction: Reduction) -> Tensor {
    if reduction == Reduction::None {
        let (width, mut data) = (x.dtype().size(), x.bytes().to_vec());
        for (n, at) in places.iter().enumerate().filter_map(|(n, at)| Some((n, (*at)?))) {
            data[at * width..(at + 1) * width].copy_from_slice(&updates.bytes()[n * width..(n + 1) * width]);
        }
        return Tensor::from_bytes(x.dtype(), x.shape().to_vec(), data.into()).expect("the length is kept");
    }
    if x.dtype().is_float() {
        let (mut data, updates) = (x.to_f64_vec(), updates.to_f64_vec());
        let there = places.iter().zip(updates).filter_map(|(at, u)| Some(((*at)?, u)));
        there.for_each(|(at, u)| data[at] = reduction.float(data[at], u));
        return Tensor::from_f64(x.dtype(), x.shape().to_vec(), data);
    }
    let (mut data, updates) = (x.to_i64_vec(), updates.to_i64_vec());
    let there = places.iter().zip(updates).filter_map(|(at, u)| Some(((*at)?, u)));
    there.for_each(|(at, u)| data[at] = reduction.combiner().operator().of_ints(x.dtype(), data[at], u));
    Tensor::from_i64(x.dtype(), x.shape().to_vec(), &data)
}

/// The place that an index names; none for one that is out of range.
fn wrap(index: i64, d: usize) -> Option<usize> {
    normalize_axis(index, d).ok()
}

fn infer_scatter(cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
    let (x, indices, updates) = (cx.require(0)?, cx.require(1)?, cx.require(2)?);
    if !indices.dtype.is_int() {
        return Err(format!("indices are {}", indices.dtype).into());
    }
    if updates.dtype != x.dtype {
        return Err(format!("updates are {}, the operand is {}", updates.dtype, x.dtype).into());
    }
    Ok(vec![x.clone()])
}

/// Refuses updates whose shape cannot be the one that the indices ask for.
fn require_same(asked: &[Int], updates: &[Int]) -> OpResult<()> {
    if asked.len() != updates.len() {
        return Err(
            format!("the updates have {} dimensions, the indices ask for {}", updates.len(), asked.len()).into()
        );
    }
    asked.iter().zip(updates).try_for_each(|(a, u)| {
        unify_dims(a, u).map(drop).map_err(|_| format!("the updates are {u} where the indices ask for {a}").into())
    })
}

/// Refuses a kernel where the shape of the updates is checked at run time: reads beyond them would be clamped.
fn known_same(asked: &[Int], updates: &[Int]) -> OpResult<()> {
    if asked.len() == updates.len() && asked.iter().zip(updates).all(|(a, u)| same_dim(a, u)) {
        return Ok(());
    }
    Err("whether the updates fit the indices is known at run time: the host scatters".into())
}

fn operands(inputs: &[Option<Tensor>]) -> Option<[&Tensor; 3]> {
    Some([inputs.first()?.as_ref()?, inputs.get(1)?.as_ref()?, inputs.get(2)?.as_ref()?])
}

/// The most comparisons of an index with a place that a kernel makes.
const MOST_COMPARED: i64 = 1 << 26;

/// The scatter of an operand, indices and updates. Of the `count` updates that may target element `i`, `meant(i, n)`
/// says whether the `n`-th one does, and `update(i, n)` is its value; both are evaluated only if `there(i)` holds.
/// `place` has the leading dimensions of the operand that determine the updates; all later dimensions share them.
fn search(
    cx: &mut ComputeContext<'_>,
    reduction: Reduction,
    (count, place): (&Int, usize),
    there: &dyn Fn(&[Int]) -> Vec<Cond>,
    meant: &dyn Fn(&[Int], &Int) -> Expr,
    update: &dyn Fn(&[Int], &Int) -> Expr,
) -> OpResult<()> {
    let (x, ty) = (cx.require(0)?, cx.output_type(0).clone());
    let own = |i: &[Int]| Expr::load(x, i.to_vec());
    let searched = if reduction == Reduction::None { &ty.shape[..place] } else { &ty.shape[..] };
    let work = searched.iter().chain([count]).map(Int::as_const).try_fold(1i64, |n, d| n.checked_mul(d?));
    if work.is_none_or(|n| n > MOST_COMPARED) {
        return Err(format!("more than {MOST_COMPARED} comparisons of indices: the host scatters").into());
    }
    if ty.dtype == DType::F64 || reduction != Reduction::None && !accumulates(ty.dtype) {
        return Err(format!("no kernel combines {} by {}", ty.dtype, reduction.name()).into());
    }
    if count.is(0) {
        let out = cx.compute("", &ty.shape, ty.dtype, own);
        cx.output(0, out);
        return Ok(());
    }
    let extents = std::slice::from_ref(count);
    if reduction == Reduction::None {
        let none = || Expr::int(-1, DType::I32);
        let last = cx.reduce("last", searched, DType::I32, extents, Combiner::Max, |i, r| {
            let found = Expr::select(meant(i, &r[0]), Expr::Index(r[0].clone(), DType::I32), none());
            Expr::guarded(there(i), found, none())
        });
        let out = cx.compute("", &ty.shape, ty.dtype, |i| {
            let n = Int::load(last, i[..place].to_vec());
            let any = Expr::binary(BinaryOp::Ge, Expr::load(last, i[..place].to_vec()), Expr::int(0, DType::I32));
            Expr::guarded(there(i), Expr::select(any, update(i, &n.rem(count)), own(i)), own(i))
        });
        cx.output(0, out);
        return Ok(());
    }
    let combiner = reduction.combiner();
    let all = cx.reduce("updates", &ty.shape, ty.dtype, extents, combiner, |i, r| {
        let neutral = || combiner.identity(ty.dtype);
        Expr::guarded(there(i), Expr::select(meant(i, &r[0]), update(i, &r[0]), neutral()), neutral())
    });
    let out =
        cx.compute("", &ty.shape, ty.dtype, |i| Expr::binary(combiner.operator(), own(i), Expr::load(all, i.to_vec())));
    cx.output(0, out);
    Ok(())
}

/// Element types that kernels combine as the host does, without wrapping at a narrow width.
fn accumulates(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16 | DType::I32 | DType::U32)
}

attr_struct! {
    /// The operand with element `i with i[axis] replaced by indices[i]` updated by `updates[i]`.
    pub struct ScatterElements("scatter_elements") {
        /// The axis; negative counts from the end.
        pub axis: i64 = 0,
        /// How updates combine.
        pub reduction: Reduction = Reduction::None,
    }
}
impl Op for ScatterElements {
    fn arity(&self) -> (usize, usize) {
        (3, 3)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let rank = cx.require(0)?.rank();
        let [x, indices, updates] = [cx.require(0)?, cx.require(1)?, cx.require(2)?].map(|t| &t.shape[..]);
        if indices.len() != rank || updates.len() != rank {
            return Err("operand, indices and updates differ in rank".into());
        }
        require_same(indices, updates)?;
        let axis = normalize_axis(self.axis, rank)?;
        let larger = |d: &usize| indices[*d].as_const().zip(x[*d].as_const()).is_some_and(|(i, x)| i > x);
        if let Some(d) = (0..rank).filter(|d| *d != axis).find(larger) {
            return Err(format!("dimension {d} of the indices is {}, of the operand {}", indices[d], x[d]).into());
        }
        infer_scatter(cx)
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let [indices, updates] = [cx.require(1)?, cx.require(2)?];
        let (shape, given) = (cx.output_type(0).shape.clone(), cx.shape(indices));
        let axis = normalize_axis(self.axis, shape.len())?;
        known_same(&given, &cx.shape(updates))?;
        let smaller: Vec<usize> = (0..shape.len()).filter(|&d| d != axis && !same_dim(&given[d], &shape[d])).collect();
        if smaller.iter().any(|&d| given[d].as_const().is_none() || shape[d].as_const().is_none()) {
            return Err("whether the indices fit the operand is known at run time: the host scatters".into());
        }
        let along = |i: &[Int], n: &Int| {
            let mut at = i.to_vec();
            at[axis] = n.clone();
            at
        };
        let there = |i: &[Int]| smaller.iter().map(|&d| Cond::lt(&i[d], &given[d])).collect();
        let meant = |i: &[Int], n: &Int| names(&Int::load(indices, along(i, n)), &i[axis], &shape[axis]);
        let update = |i: &[Int], n: &Int| Expr::load(updates, along(i, n));
        search(cx, self.reduction, (&given[axis], shape.len()), &there, &meant, &update)
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        let [x, indices, updates] = operands(inputs)?;
        Some(self.places(x, indices, updates).map(|p| vec![combine(x, updates, &p, self.reduction)]))
    }
    fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        let axis = permuted_axis(normalize_axis(self.axis, perm.len()).ok()?, perm) as i64;
        Some(PermutedOp::uniform(ScatterElements { axis, ..self.clone() }, perm, 3, 1))
    }
    fn checked(&self, types: &[Option<&TensorType>]) -> Option<Checked> {
        Checked::along(types, 1, self.axis)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let reduction = OnnxAttr::Str(self.reduction.name().into());
        cx.simple("ScatterElements", vec![("axis", OnnxAttr::Int(self.axis)), ("reduction", reduction)]);
        Ok(())
    }
}
impl ScatterElements {
    fn places(&self, x: &Tensor, indices: &Tensor, updates: &Tensor) -> OpResult<Vec<Option<usize>>> {
        let axis = normalize_axis(self.axis, x.shape().len())?;
        let smaller = |(d, (&i, &s)): (usize, (&usize, &usize))| d == axis || i <= s;
        if indices.shape() != updates.shape() || !indices.shape().iter().zip(x.shape()).enumerate().all(smaller) {
            return Err(format!("indices {:?} do not fit {:?}", indices.shape(), x.shape()).into());
        }
        let values = indices.to_i64_vec();
        let mut places = Vec::with_capacity(values.len());
        for_each_index(indices.shape(), |index| {
            let coordinates = index.iter().enumerate();
            let place = coordinates.zip(x.shape()).try_fold(0, |at, ((d, &i), &size)| {
                let i = if d == axis { wrap(values[places.len()], size)? } else { i };
                Some(at * size + i)
            });
            places.push(place);
        });
        Ok(places)
    }
}

/// True if an index from data is position `at` of a dimension of `d` elements. An index that is out of range has no
/// position.
fn names(index: &Int, at: &Int, d: &Int) -> Expr {
    let equal = |place: &Int| {
        Expr::binary(BinaryOp::Eq, Expr::Index(index.clone(), DType::I32), Expr::Index(place.clone(), DType::I32))
    };
    Expr::binary(BinaryOp::Or, equal(at), equal(&(at.clone() - d)))
}

attr_struct! {
    /// The operand with the sub-tensors at the coordinates in the last dimension of the indices updated.
    pub struct ScatterNd("scatter_nd") {
        /// How updates combine.
        pub reduction: Reduction = Reduction::None,
    }
}
impl Op for ScatterNd {
    fn arity(&self) -> (usize, usize) {
        (3, 3)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let [x, indices, updates] = [cx.require(0)?, cx.require(1)?, cx.require(2)?].map(|t| &t.shape[..]);
        let [outer @ .., depth] = indices else { return Err("indices are a scalar".into()) };
        if let Some(depth) = depth.as_const() {
            let fits = usize::try_from(depth).ok().and_then(|d| x.get(d..));
            let inner = fits.ok_or_else(|| format!("{depth} coordinates of {} dimensions", x.len()))?;
            require_same(&[outer, inner].concat(), updates)?;
        }
        infer_scatter(cx)
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let [indices, updates] = [cx.require(1)?, cx.require(2)?];
        let (shape, given) = (cx.output_type(0).shape.clone(), cx.shape(indices));
        let [outer @ .., depth] = &given[..] else { return Err("indices are a scalar".into()) };
        let depth = depth.as_const().and_then(|d| usize::try_from(d).ok()).filter(|&d| d <= shape.len());
        let depth = depth.ok_or("the number of coordinates is not known, or more than there are dimensions")?;
        known_same(&[outer, &shape[depth..]].concat(), &cx.shape(updates))?;
        let tuples = outer.iter().fold(Int::new(1), |n, d| n * d.clone());
        let tuple = |n: &Int| unflatten_index(n, outer);
        let meant = |i: &[Int], n: &Int| {
            let coordinate = |d: usize| {
                let at = [&tuple(n)[..], &[Int::from(d)]].concat();
                names(&Int::load(indices, at), &i[d], &shape[d])
            };
            let all = (0..depth).map(coordinate).reduce(|a, b| Expr::binary(BinaryOp::And, a, b));
            all.unwrap_or_else(|| Expr::int(1, DType::Bool))
        };
        let update = |i: &[Int], n: &Int| Expr::load(updates, [&tuple(n)[..], &i[depth..]].concat());
        search(cx, self.reduction, (&tuples, depth), &|_| vec![], &meant, &update)
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        let [x, indices, updates] = operands(inputs)?;
        Some(nd_places(x, indices, updates).map(|p| vec![combine(x, updates, &p, self.reduction)]))
    }
    fn checked(&self, types: &[Option<&TensorType>]) -> Option<Checked> {
        Checked::coordinates(types, 0)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("ScatterND", vec![("reduction", OnnxAttr::Str(self.reduction.name().into()))]);
        Ok(())
    }
}

fn nd_places(x: &Tensor, indices: &Tensor, updates: &Tensor) -> OpResult<Vec<Option<usize>>> {
    let (outer, depth) = (&indices.shape()[..indices.shape().len() - 1], indices.shape()[indices.shape().len() - 1]);
    if depth > x.shape().len() || updates.shape() != [outer, &x.shape()[depth..]].concat() {
        return Err(format!("indices {:?} and updates {:?} do not fit", indices.shape(), updates.shape()).into());
    }
    let inner: usize = x.shape()[depth..].iter().product();
    let tuples: usize = outer.iter().product();
    let values = indices.to_i64_vec();
    let mut places = Vec::with_capacity(updates.len());
    for tuple in 0..tuples {
        let mut coordinates = values[tuple * depth..(tuple + 1) * depth].iter().zip(x.shape());
        let at = coordinates.try_fold(0, |at, (&v, &d)| Some(at * d + wrap(v, d)?));
        places.extend((0..inner).map(|i| at.map(|at| at * inner + i)));
    }
    Ok(places)
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "Scatter", domain: "", since: 9, import: import_elements },
    OnnxImport { op_type: "ScatterElements", domain: "", since: 11, import: import_elements },
    OnnxImport { op_type: "ScatterND", domain: "", since: 11, import: import_nd },
];

fn reduction(cx: &ImportContext<'_, '_>) -> OpResult<Reduction> {
    let text = cx.attrs.str("reduction").unwrap_or("none");
    Reduction::parse(text).ok_or_else(|| Fault::unsupported(format!("reduction `{text}` is unsupported")))
}

fn import_elements(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let operands = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    let axis = normalize_axis(cx.attrs.int("axis").unwrap_or(0), cx.ty(0)?.rank())? as i64;
    Ok(vec![cx.add(ScatterElements { axis, reduction: reduction(cx)? }, &operands)?])
}

fn import_nd(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let operands = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    Ok(vec![cx.add(ScatterNd { reduction: reduction(cx)? }, &operands)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::OpRef;
    use crate::ops::testing::{run, try_run};

    #[test]
    fn updates_in_order() {
        let x = Tensor::from_vec(vec![3], vec![1.0f32, 2.0, 3.0]);
        let (at, by) = (Tensor::ints(&[0, -1, 0]), Tensor::from_vec(vec![3], vec![5.0f32, 1.0, 4.0]));
        let of = |reduction| run(ScatterElements { axis: 0, reduction }, &[&x, &at, &by]).to_f64_vec();
        assert_eq!(of(Reduction::None), [4.0, 2.0, 1.0]);
        assert_eq!(of(Reduction::Add), [10.0, 2.0, 4.0]);
        assert_eq!(of(Reduction::Mul), [20.0, 2.0, 3.0]);
        assert_eq!(of(Reduction::Max), [5.0, 2.0, 3.0]);
        assert_eq!(of(Reduction::Min), [1.0, 2.0, 1.0]);
        let nd = |at: Tensor, by: &Tensor| try_run(ScatterNd::default(), &[&x, &at, by]);
        let places = Tensor::from_vec(vec![3, 1], vec![2i64, 1, 0]);
        assert_eq!(nd(places, &by).unwrap()[0].to_f64_vec(), [4.0, 1.0, 5.0]);
        assert!(nd(Tensor::from_vec(vec![3, 2], vec![0i64; 6]), &by).is_err());
        let unsigned = |v: u64| Some(Tensor::from_vec(vec![1], vec![v]));
        for (reduction, want) in [(Reduction::Max, u64::MAX), (Reduction::Min, 7), (Reduction::Add, 6)] {
            let op = ScatterElements { axis: 0, reduction };
            let got = op.eval_host(&[unsigned(7), Some(Tensor::ints(&[0])), unsigned(u64::MAX)]);
            assert_eq!(got.unwrap().unwrap()[0], Tensor::from_vec(vec![1], vec![want]), "{reduction:?}");
        }
        // What a kernel computes.
        for reduction in [Reduction::None, Reduction::Add, Reduction::Mul, Reduction::Max, Reduction::Min] {
            let random = |shape: &[usize], seed| crate::text::random_tensor(DType::F32, shape, seed);
            let index = |shape: &[usize], below: i64| {
                let n: usize = shape.iter().product();
                Tensor::from_vec(
                    shape.to_vec(),
                    (0..n as i64).map(|i| i * i % (2 * below + 3) - below - 1).collect::<Vec<_>>(),
                )
            };
            let same = |op: OpRef, operands: [Tensor; 3]| {
                let operands = operands.map(Some);
                let want = op.eval_host(&operands).unwrap().unwrap();
                let got =
                    crate::interpreter::eval_expression(&op, &operands).unwrap_or_else(|e| panic!("{}", e.message));
                for (g, w) in got[0].to_f32_vec().iter().zip(want[0].to_f32_vec()) {
                    assert!((g - w).abs() <= 1e-5 * (1.0 + w.abs()), "{reduction:?}: {got:?} {want:?}");
                }
            };
            let x = || random(&[4, 5, 3], 1);
            for (axis, shape) in [(0, [6, 5, 3]), (1, [4, 7, 3]), (1, [2, 7, 2]), (-1, [3, 1, 4]), (2, [4, 5, 0])] {
                let below = [4, 5, 3][(axis + 3) as usize % 3];
                same(ScatterElements { axis, reduction }.into(), [x(), index(&shape, below), random(&shape, 2)]);
            }
            for (indices, updates) in [
                (&[7, 1][..], &[7, 5, 3][..]),
                (&[2, 3, 2], &[2, 3, 3]),
                (&[9, 3], &[9]),
                (&[0, 2], &[0, 3]),
                (&[2, 0], &[2, 4, 5, 3]),
            ] {
                same(ScatterNd { reduction }.into(), [x(), index(indices, 3), random(updates, 3)]);
            }
        }
        // Narrow integers wrap.
        let bytes = Tensor::from_vec(vec![1], vec![250u8]);
        let add = ScatterElements { axis: 0, reduction: Reduction::Add };
        assert_eq!(run(add, &[&bytes, &Tensor::ints(&[0]), &Tensor::from_vec(vec![1], vec![10u8])]).to_i64_vec(), [4]);
    }
}
