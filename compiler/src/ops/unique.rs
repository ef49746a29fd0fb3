//! Distinct elements or slices. Their number is known only at run time. If there are few slices, a device compares each
//! with each (`counted.rs`); else the host sorts.

use super::binary::{And, Equal, Less, Min, Mul, Or};
use super::counted::{Counted, CountedOperand, Counting};
use super::gather::Gather;
use super::permute::normalize_axis;
use super::reduce::{Reduce, ReduceKind};
use super::search::element_order;
use super::select::Where;
use super::transpose::Transpose;
use super::unary::{IsNan, Not};
use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::{BuildError, TensorType, ValueId};
use crate::int::Dim;
use crate::name::Name;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::tensor::Tensor;
use std::cmp::Ordering;

attr_struct! {
    /// The distinct slices along `axis` (without one, the distinct elements), the place of the first of each, the
    /// number of each slice of the operand among them, and how often each occurs.
    pub struct Unique("unique") {
        /// The axis; negative counts from the end, none flattens.
        pub axis: Option<i64> = None,
        /// Ascending, or else in the order of their first occurrence.
        pub sorted: bool = true,
        /// Symbol for the number of distinct slices.
        pub count: Name = Name::new("unique"),
    }
}
impl Op for Unique {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn num_results(&self) -> usize {
        4
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let mut ty = cx.require(0)?.clone();
        let total = match self.axis {
            None => ty.numel(),
            Some(axis) => ty.shape[normalize_axis(axis, ty.rank())?].clone(),
        };
        let list = |n: Dim| TensorType::new(DType::I64, vec![n]);
        let count = Dim::var(self.count);
        match self.axis {
            None => ty.shape = vec![count.clone()],
            Some(axis) => {
                let axis = normalize_axis(axis, ty.rank())?;
                ty.shape[axis] = count.clone();
            }
        }
        Ok(vec![ty, list(count.clone()), list(total), list(count)])
    }
    fn has_compute(&self) -> bool {
        false
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        Some(self.run(inputs[0].as_ref()?))
    }
    fn positions(&self, result: usize, operands: &[Option<&TensorType>]) -> Option<Dim> {
        matches!(result, 1 | 2).then_some(operands.first()?.as_ref()?.numel())
    }
    fn defined_symbols(&self) -> Vec<Name> {
        vec![self.count]
    }
    fn counted(&self, c: &mut Counting<'_, '_>, operands: &[CountedOperand]) -> Option<Result<Counted, BuildError>> {
        let x = operands.first()?.value?;
        let shape = c.shape(x)?;
        let axis = self.axis.map(|a| normalize_axis(a, shape.len())).transpose().ok()?;
        let total: usize = shape.iter().product();
        let slices = axis.map_or(total, |a| shape[a]);
        let fits = total > 0 && slices <= MOST_SLICES && slices * total <= MOST_COMPARED && c.ty(x).dtype != DType::F64;
        fits.then(|| self.count_distinct(c, x, &shape, axis))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let mut attrs = vec![("sorted", OnnxAttr::Int(self.sorted as i64))];
        attrs.extend(self.axis.map(|a| ("axis", OnnxAttr::Int(a))));
        cx.simple("Unique", attrs);
        Ok(())
    }
}
/// The most slices that are compared with each other on a device.
const MOST_SLICES: usize = 1 << 11;
/// The most elements of slices that are.
const MOST_COMPARED: usize = 1 << 24;

impl Unique {
    /// Compares each of `n` slices with each other one. The number of a slice is the count of distinct slices before
    /// its first equal one; the position of a number is the first slice that has it.
    fn count_distinct(
        &self,
        c: &mut Counting<'_, '_>,
        x: ValueId,
        shape: &[usize],
        axis: Option<usize>,
    ) -> Result<Counted, BuildError> {
        let (flat, rows, n) = slices(c, x, shape, axis)?;
        let order = compare_slices(c, rows, n)?;
        let list = c.indices(n);
        let (row, column) = (c.reshape(list, &[1, n])?, c.reshape(list, &[n, 1])?);
        let end = c.number(n as f64, DType::I32);
        let own = c.add(Where {}, &[order.equal, row, end])?;
        let first = c.add(over(ReduceKind::Min), &[own])?;
        let is_first = c.add(Equal {}, &[first, list])?;
        let is_first = c.cast(is_first, DType::I32)?;
        let count = c.add(Reduce { kind: ReduceKind::Sum, axes: vec![0], keepdims: true }, &[is_first])?;

        let earlier = match self.sorted {
            true => order.greater,
            false => {
                let first = c.reshape(first, &[n, 1])?;
                c.add(Less {}, &[row, first])?
            }
        };
        let earlier = c.cast(earlier, DType::I32)?;
        let earlier = c.add(Mul {}, &[earlier, is_first])?;
        let number = c.add(over(ReduceKind::Sum), &[earlier])?;

        let has = c.add(Equal {}, &[column, number])?;
        let found = c.add(Where {}, &[has, row, end])?;
        let place = c.add(over(ReduceKind::Min), &[found])?;
        let last = c.number((n - 1) as f64, DType::I32);
        let place = c.add(Min {}, &[place, last])?;
        let has = c.cast(has, DType::I32)?;
        let occurs = c.add(over(ReduceKind::Sum), &[has])?;
        let axis = axis.unwrap_or(0);
        let values = c.add(Gather { axis: axis as i64 }, &[flat, place])?;
        let [place, number, occurs, count] = [place, number, occurs, count].map(|v| c.cast(v, DType::I64));
        let results = vec![(values, Some(axis)), (place?, Some(0)), (number?, None), (occurs?, Some(0))];
        Ok(Counted { results, count: count? })
    }
    fn run(&self, x: &Tensor) -> OpResult<Vec<Tensor>> {
        let x = if self.axis.is_none() { x.reshaped(vec![x.len()]) } else { x.clone() };
        let axis = normalize_axis(self.axis.unwrap_or(0), x.shape().len())?;
        let (n, inner) = (x.shape()[axis], x.shape()[axis + 1..].iter().product::<usize>());
        let outer: usize = x.shape()[..axis].iter().product();
        let element = element_order(&x);
        let places =
            |slice: usize| (0..outer * inner).map(move |e| (e / inner.max(1) * n + slice) * inner + e % inner.max(1));
        let compare = |a: usize, b: usize| {
            places(a).zip(places(b)).map(|(p, q)| element(p, q)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
        };
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| compare(a, b).then(a.cmp(&b)));
        // Groups of equal slices; the first of each is its lowest.
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for slice in order {
            match groups.last_mut() {
                Some(g) if compare(g[0], slice).is_eq() => g.push(slice),
                _ => groups.push(vec![slice]),
            }
        }
        if !self.sorted {
            groups.sort_by_key(|g| g[0]);
        }
        let mut numbers = vec![0i64; n];
        for (number, group) in groups.iter().enumerate() {
            group.iter().for_each(|&slice| numbers[slice] = number as i64);
        }
        let mut shape = x.shape().to_vec();
        shape[axis] = groups.len();
        let values = super::host_copy::gather_host(&x, &shape, |a, i| if a == axis { groups[i][0] } else { i });
        let firsts: Vec<i64> = groups.iter().map(|g| g[0] as i64).collect();
        let counts: Vec<i64> = groups.iter().map(|g| g.len() as i64).collect();
        Ok(vec![values, Tensor::ints(&firsts), Tensor::ints(&numbers), Tensor::ints(&counts)])
    }
}

fn over(kind: ReduceKind) -> Reduce {
    Reduce { kind, axes: vec![1], keepdims: false }
}

/// The operand (flat without an axis), its `n` slices as the rows of a matrix, and their number.
fn slices(
    c: &mut Counting<'_, '_>,
    x: ValueId,
    shape: &[usize],
    axis: Option<usize>,
) -> Result<(ValueId, ValueId, usize), BuildError> {
    let total: usize = shape.iter().product();
    let Some(axis) = axis else {
        let flat = c.reshape(x, &[total])?;
        return Ok((flat, c.reshape(flat, &[total, 1])?, total));
    };
    let n = shape[axis];
    let perm: Vec<usize> = std::iter::once(axis).chain((0..shape.len()).filter(|&d| d != axis)).collect();
    let front = c.add(Transpose { perm }, &[x])?;
    Ok((x, c.reshape(front, &[n, total / n])?, n))
}

/// Which rows are equal to which, and greater than which, element by element: bools of `[n, n]`.
struct RowOrder {
    equal: ValueId,
    greater: ValueId,
}

/// Rows are ordered by the first element in which they differ; a NaN is the greatest and equals another.
fn compare_slices(c: &mut Counting<'_, '_>, rows: ValueId, n: usize) -> Result<RowOrder, BuildError> {
    let rows = if c.ty(rows).dtype == DType::Bool { c.cast(rows, DType::I32)? } else { rows };
    let width = c.shape(rows).map_or(1, |s| s[1]);
    let (a, b) = (c.reshape(rows, &[n, 1, width])?, c.reshape(rows, &[1, n, width])?);
    let positions = c.indices(width);
    let end = c.number(width as f64, DType::I32);
    let mut first = |less: (ValueId, ValueId)| -> Result<ValueId, BuildError> {
        let differs = c.add(Less {}, &[less.0, less.1])?;
        let differs = match c.ty(less.0).dtype.is_float() {
            true => {
                let [no, nan] = [c.add(IsNan {}, &[less.0])?, c.add(IsNan {}, &[less.1])?];
                let number = c.add(Not {}, &[no])?;
                let at_end = c.add(And {}, &[number, nan])?;
                c.add(Or {}, &[differs, at_end])?
            }
            false => differs,
        };
        let at = c.add(Where {}, &[differs, positions, end])?;
        c.add(Reduce { kind: ReduceKind::Min, axes: vec![2], keepdims: false }, &[at])
    };
    let (less, greater) = (first((a, b))?, first((b, a))?);
    Ok(RowOrder { equal: c.add(Equal {}, &[less, greater])?, greater: c.add(Less {}, &[greater, less])? })
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[OnnxImport { op_type: "Unique", domain: "", since: 11, import: import_unique }];

fn import_unique(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let count = cx.fresh_dim("unique", 0).as_var().expect("a symbol");
    let sorted = cx.attrs.int("sorted").unwrap_or(1) != 0;
    cx.add_multi(Unique { axis: cx.attrs.int("axis"), sorted, count }, vec![Some(x)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(op: Unique, x: &Tensor) -> Vec<Tensor> {
        op.eval_host(&[Some(x.clone())]).unwrap().unwrap()
    }

    #[test]
    fn elements_in_either_order() {
        let x = Tensor::from_vec(vec![6], vec![2.0f32, 1.0, 1.0, 3.0, 4.0, 3.0]);
        let sorted = of(Unique::default(), &x);
        assert_eq!(sorted[0].to_f64_vec(), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(sorted[1].to_i64_vec(), [1, 0, 3, 4]);
        assert_eq!(sorted[2].to_i64_vec(), [1, 0, 0, 2, 3, 2]);
        assert_eq!(sorted[3].to_i64_vec(), [2, 1, 2, 1]);
        let found = of(Unique { sorted: false, ..Unique::default() }, &x);
        assert_eq!(found[0].to_f64_vec(), [2.0, 1.0, 3.0, 4.0]);
        assert_eq!(found[2].to_i64_vec(), [0, 1, 1, 2, 3, 2]);
    }

    #[test]
    fn integers_of_64_bits_are_compared_as_they_are() {
        let x = Tensor::from_vec(vec![4], vec![u64::MAX, 7, u64::MAX - 1, 7]);
        assert_eq!(of(Unique::default(), &x)[1].to_i64_vec(), [1, 2, 0]);
    }

    #[test]
    fn slices_along_an_axis() {
        let x = Tensor::from_vec(vec![2, 3], vec![1i64, 1, 0, 2, 2, 5]);
        let columns = of(Unique { axis: Some(-1), ..Unique::default() }, &x);
        assert_eq!((columns[0].shape(), columns[0].to_i64_vec()), (&[2, 2][..], vec![0, 1, 5, 2]));
        assert_eq!(columns[1].to_i64_vec(), [2, 0]);
        let none = of(Unique::default(), &Tensor::ints(&[]));
        assert!(none.iter().all(|t| t.is_empty()));
    }
}
