//! Elements of sequences with lengths and positions from operands.

use super::permute::normalize_axis;
use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::graph::{TensorType, ValueId};
use crate::int::{Bounds, Int, simplify};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{Cond, Expr};

attr_struct! {
    /// The first `lengths[b]` elements along the time axis in reverse order, the others as they are, for each entry `b`
    /// of the batch axis.
    pub struct ReverseSequence("reverse_sequence") {
        /// Axis of the sequences: 0 or 1.
        pub batch_axis: usize = 1,
        /// Axis of time: the other one.
        pub time_axis: usize = 0,
    }
}
impl Op for ReverseSequence {
    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
    fn keeps_elements(&self) -> bool {
        true
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (x, lengths) = (cx.require(0)?, cx.require(1)?);
        if x.rank() < 2 || self.batch_axis + self.time_axis != 1 {
            return Err(format!("batch axis {} and time axis {} of {x:?}", self.batch_axis, self.time_axis).into());
        }
        if !lengths.dtype.is_int() || lengths.rank() != 1 {
            return Err(format!("the lengths are {lengths:?}, not a list of integers").into());
        }
        Ok(vec![x.clone()])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (x, lengths) = (cx.require(0)?, cx.require(1)?);
        let ty = cx.output_type(0).clone();
        let steps = ty.shape[self.time_axis].clone();
        let out = cx.compute("", &ty.shape, ty.dtype, |i| {
            let length = Int::load(lengths, vec![i[self.batch_axis].clone()]);
            let mut mirrored = i.to_vec();
            // In range for every length that is; the remainder proves it.
            mirrored[self.time_axis] = (length.clone() - 1 - &i[self.time_axis]).rem(&steps);
            let inside = vec![Cond::lt(&i[self.time_axis], length)];
            Expr::guarded(inside, Expr::load(x, mirrored), Expr::load(x, i.to_vec()))
        });
        cx.output(0, out);
        Ok(())
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let axes = [("batch_axis", self.batch_axis), ("time_axis", self.time_axis)];
        cx.simple("ReverseSequence", axes.map(|(k, v)| (k, OnnxAttr::Int(v as i64))).to_vec());
        Ok(())
    }
}

attr_struct! {
    /// Operand 0 (a cache) with the elements from place `indices[b]` on along `axis` replaced by operand 1 (an update),
    /// for each entry `b` of axis 0; without operand 2 the places are 0.
    pub struct TensorScatter("tensor_scatter") {
        /// The axis; negative counts from the end.
        pub axis: i64 = -2,
        /// Whether places beyond the end go on at the beginning.
        pub circular: bool = false,
        /// How long the result is along the axis: the cache then ends where the update begins, and zeros follow the
        /// update. The same with operand 3, whose length is added to the cache's, and whose elements are not
        /// read. Without both the result is as long as the cache and keeps its elements behind the update.
        pub size: Option<Int> = None,
    }
}
impl TensorScatter {
    /// The length of a result that ends with zeros.
    fn grown(&self, held: &Int, room: Option<&Int>) -> Option<Int> {
        let sum = room.map(|n| simplify(&(n.clone() + held), &Bounds::new()));
        sum.or_else(|| self.size.clone())
    }
}
impl Op for TensorScatter {
    fn arity(&self) -> (usize, usize) {
        (2, 4)
    }
    fn keeps_elements(&self) -> bool {
        true
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (cache, update) = (cx.require(0)?, cx.require(1)?);
        let axis = normalize_axis(self.axis, cache.rank())?;
        let grown = self.grown(&cache.shape[axis], cx.input(3).and_then(|t| t.shape.first()));
        let fits = |(a, (c, u)): (usize, (&Int, &Int))| match (c.as_const(), u.as_const()) {
            (Some(c), Some(u)) => c == u || a == axis && (u < c || grown.is_some()),
            _ => true,
        };
        if let (Some(size), Some(held)) = (grown.as_ref().and_then(Int::as_const), cache.shape[axis].as_const())
            && size < held
        {
            return Err(format!("a result of {size} elements along axis {axis} of {cache:?}").into());
        }
        let same = cache.dtype == update.dtype && cache.rank() == update.rank() && axis > 0;
        if !same || !cache.shape.iter().zip(&update.shape).enumerate().all(fits) {
            return Err(format!("an update {update:?} of {cache:?} along axis {axis}").into());
        }
        match cx.input(2) {
            Some(i) if !i.dtype.is_int() || i.rank() != 1 => {
                Err(format!("the places are {i:?}, not a list of integers").into())
            }
            _ => {
                let mut out = cache.clone();
                out.shape[axis] = grown.unwrap_or_else(|| out.shape[axis].clone());
                Ok(vec![out])
            }
        }
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (cache, update, places) = (cx.require(0)?, cx.require(1)?, cx.input(2));
        let ty = cx.output_type(0).clone();
        let axis = normalize_axis(self.axis, ty.rank())?;
        let (size, count) = (ty.shape[axis].clone(), cx.shape(update)[axis].clone());
        let (held, grows) = (cx.shape(cache)[axis].clone(), self.size.is_some() || cx.input(3).is_some());
        if count.is(0) {
            return Err("the update is empty".into());
        }
        let out = cx.compute("", &ty.shape, ty.dtype, |i| {
            let start = places.map_or(Int::new(0), |p| Int::load(p, vec![i[0].clone()]));
            let off = i[axis].clone() - start;
            let off = if self.circular { off.rem(&size) } else { off };
            let mut at = i.to_vec();
            at[axis] = if count.is(1) { Int::new(0) } else { off.max(0).min(count.clone() - 1) };
            let mut kept = Expr::load(cache, i.to_vec());
            if grows {
                let within = (held != size).then(|| Cond::lt(&i[axis], &held));
                let own = [Cond::lt(&off, 0)].into_iter().chain(within).collect();
                kept = Expr::guarded(own, kept, Expr::constant(0.0, ty.dtype));
            }
            let inside = vec![Cond::ge(&off, 0), Cond::lt(&off, &count)];
            Expr::guarded(inside, Expr::load(update, at), kept)
        });
        cx.output(0, out);
        Ok(())
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        // TensorScatter is newer than the opset that is written: each element goes to the place of its batch and row.
        let (out, update) = (cx.output_types[0].clone(), cx.input_types[1].ok_or("the update is missing")?.clone());
        let cache = cx.input_types[0].ok_or("the cache is missing")?.clone();
        let axis = normalize_axis(self.axis, cache.rank())?;
        let along =
            |d: usize| Tensor::ints(&(0..cache.rank()).map(|i| if i == d { -1 } else { 1 }).collect::<Vec<_>>());
        let [zero, one] = [0, 1].map(|n: i64| cx.constant(Tensor::scalar(n)));
        let (scalar, by_row, by_batch) =
            (cx.constant(Tensor::ints(&[])), cx.constant(along(axis)), cx.constant(along(0)));
        let numbers = |cx: &mut ExportContext<'_>, count: &[Int]| -> OpResult<String> {
            let count = cx.ints(count)?;
            let count = cx.emit("Reshape", vec![count, scalar.clone()]);
            let numbers = cx.emit("Range", vec![zero.clone(), count, one.clone()]);
            Ok(cx.emit("Reshape", vec![numbers, by_row.clone()]))
        };
        let starts = match cx.input(2).is_empty() {
            true => None,
            false => Some(cx.emit("Reshape", vec![cx.input(2), by_batch])),
        };
        let mut data = cx.input(0);
        if self.grown(&cache.shape[axis], cx.input_types.get(3).copied().flatten().map(|t| &t.shape[0])).is_some() {
            let mut room = out.shape.clone();
            room[axis] = out.shape[axis].clone() - &cache.shape[axis];
            let room = cx.ints(&room)?;
            let nothing = OnnxAttr::Tensor(Tensor::zeros(cache.dtype, vec![1]));
            let zeros = cx.fresh();
            cx.node("ConstantOfShape", vec![room], vec![zeros.clone()], vec![("value", nothing)]);
            let longer = cx.fresh();
            cx.node("Concat", vec![data, zeros], vec![longer.clone()], vec![("axis", OnnxAttr::Int(axis as i64))]);
            let at = numbers(cx, &out.shape[axis..=axis])?;
            let kept = cx.emit("Less", vec![at, starts.clone().unwrap_or_else(|| zero.clone())]);
            let nothing = cx.constant(Tensor::zeros(cache.dtype, vec![]));
            data = cx.emit("Where", vec![kept, longer, nothing]);
        }
        let mut places = numbers(cx, &update.shape[axis..=axis])?;
        if let Some(starts) = starts {
            places = cx.emit("Add", vec![places, starts]);
        }
        if self.circular {
            let size = cx.ints(&out.shape[axis..=axis])?;
            places = cx.emit("Mod", vec![places, size]);
        }
        let shape = cx.emit("Shape", vec![cx.input(1)]);
        places = cx.emit("Expand", vec![places, shape]);
        let (inputs, outputs) = (vec![data, places, cx.input(1)], cx.outputs.clone());
        cx.node("ScatterElements", inputs, outputs, vec![("axis", OnnxAttr::Int(axis as i64))]);
        Ok(())
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "ReverseSequence", domain: "", since: 10, import: import_reverse },
    OnnxImport { op_type: "TensorScatter", domain: "", since: 24, import: import_scatter },
];

fn import_reverse(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, lengths) = (cx.input(0)?, cx.input(1)?);
    let axis = |name: &str, default| normalize_axis(cx.attrs.int(name).unwrap_or(default), cx.ty(0)?.rank());
    let op = ReverseSequence { batch_axis: axis("batch_axis", 1)?, time_axis: axis("time_axis", 0)? };
    Ok(vec![cx.add(op, &[x, lengths])?])
}

fn import_scatter(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let circular = match cx.attrs.str("mode").unwrap_or("linear") {
        "linear" => false,
        "circular" => true,
        other => return Err(format!("mode `{other}` is unknown").into()),
    };
    let op = TensorScatter { axis: cx.attrs.int("axis").unwrap_or(-2), circular, size: None };
    let inputs = cx.inputs.iter().copied().filter(|i| i.is_some()).collect();
    cx.add_multi(op, inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::ops::testing::{run, try_run};
    use crate::tensor::Tensor;

    #[test]
    fn only_the_length_of_each_sequence_is_reversed() {
        let x = Tensor::from_vec(vec![2, 3], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let rows = ReverseSequence { batch_axis: 0, time_axis: 1 };
        let of = |lengths: &[i64]| run(rows.clone(), &[&x, &Tensor::ints(lengths)]).to_f64_vec();
        assert_eq!(of(&[2, 3]), [2.0, 1.0, 3.0, 6.0, 5.0, 4.0]);
        assert_eq!(of(&[0, 1]), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let columns = run(ReverseSequence::default(), &[&x, &Tensor::ints(&[2, 1, 2])]).to_f64_vec();
        assert_eq!(columns, [4.0, 2.0, 6.0, 1.0, 5.0, 3.0]);
        assert!(try_run(ReverseSequence { batch_axis: 0, time_axis: 0 }, &[&x, &Tensor::ints(&[1, 1])]).is_err());
    }

    #[test]
    fn updates_go_where_the_places_say() {
        let cache = Tensor::from_vec(vec![2, 4, 1], vec![0i32; 8]);
        let update = Tensor::from_vec(vec![2, 2, 1], vec![1i32, 2, 3, 4]);
        let of = |circular, places: &[i64]| {
            run(TensorScatter { axis: 1, circular, size: None }, &[&cache, &update, &Tensor::ints(places)]).to_i64_vec()
        };
        assert_eq!(of(false, &[0, 2]), [1, 2, 0, 0, 0, 0, 3, 4]);
        assert_eq!(of(true, &[3, 1]), [2, 0, 0, 1, 0, 3, 4, 0]);
        let first = run(TensorScatter { axis: 1, ..TensorScatter::default() }, &[&cache, &update]);
        assert_eq!((first.dtype(), first.to_i64_vec()), (DType::I32, vec![1, 2, 0, 0, 3, 4, 0, 0]));
    }

    #[test]
    fn a_cache_grows_and_ends_with_zeros() {
        let cache = Tensor::from_vec(vec![2, 3, 1], vec![1i32, 2, 3, 4, 5, 6]);
        let update = Tensor::from_vec(vec![2, 2, 1], vec![7i32, 8, 9, 10]);
        let of = |size| TensorScatter { axis: 1, circular: false, size };
        let (places, room) = (Tensor::ints(&[3, 1]), Tensor::ints(&[0, 0, 0]));
        let want = [1, 2, 3, 7, 8, 0, 4, 9, 10, 0, 0, 0];
        let grown = run(of(Some(Int::new(6))), &[&cache, &update, &places]);
        assert_eq!((grown.shape(), &grown.to_i64_vec()[..]), (&[2usize, 6, 1][..], &want[..]));
        assert_eq!(run(of(None), &[&cache, &update, &places, &room]).to_i64_vec(), want);
    }
}
