//! Regular sub-tensors.

use super::host_copy::gather_host;
use super::packed::{PackedOp, whole_groups};
use super::permute::{PermutedOp, normalize_axes, permuted_axis};
use super::reshape::{loop_bounds, read_ints};
use super::{DataLayout, InferContext, Op, OpRef, OpResult};
use crate::attr_struct;
use crate::graph::{TensorType, ValueId};
use crate::int::{Bounds, Dim, Int, const_dims, simplify};
use crate::name::Name;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::Expr;

attr_struct! {
    /// Elements `start, start + step ...` before `end` along each of `axes`, as ONNX slices them. Where the bounds are
    /// known only at run time they are operands 1 to 4 (starts, ends, axes, steps), and `dims` names the result's dims.
    pub struct Slice("slice") {
        /// First element along each axis; negative counts from the end.
        pub starts: Vec<Int> = vec![],
        /// End along each axis; negative counts from the end, and values beyond it mean all.
        pub ends: Vec<Int> = vec![],
        /// The axes; empty for the leading ones.
        pub axes: Vec<i64> = vec![],
        /// Distance between elements, not 0; empty for 1.
        pub steps: Vec<i64> = vec![],
        /// Result dims where the bounds are operands.
        pub dims: Vec<Int> = vec![],
    }
}

/// One axis of a slice: element `i` of the result is element `start + i * step`.
struct Range {
    axis: usize,
    start: Int,
    step: i64,
    size: Dim,
}

/// Start and size of Python's slice of a dimension of size `d`. Symbolic bounds count as not negative, and symbolic
/// dimensions as large enough for a constant start.
fn resolve(d: &Dim, start: &Int, end: &Int, step: i64) -> (Int, Dim) {
    if let (Some(d), Some(start), Some(end)) = (d.as_const(), start.as_const(), end.as_const()) {
        if d == 0 {
            return (Int::new(0), Int::new(0));
        }
        let wrap = |v: i64| if v < 0 { v.saturating_add(d) } else { v };
        let (low, high) = if step > 0 { (0, d) } else { (-1, d - 1) };
        let start = wrap(start).clamp(low.max(0), high);
        let end = wrap(end).clamp(low, high);
        let span = if step > 0 { end - start } else { start - end };
        let stride = step.unsigned_abs().min(i64::MAX as u64) as i64;
        return (Int::new(start), Int::new(if span <= 0 { 0 } else { (span - 1) / stride + 1 }));
    }
    const HUGE: i64 = i32::MAX as i64;
    let at = |v: &Int, before: i64| match v.as_const() {
        Some(c) if c <= -HUGE => Int::new(before),
        Some(c) if c >= HUGE => d.clone() + before,
        Some(c) if c < 0 => d.clone() + c,
        Some(c) if c > 0 && d.as_const().is_none() => d.clone().min(c),
        _ => v.clone(),
    };
    let before = if step > 0 { 0 } else { -1 };
    let start = match start.as_const() {
        Some(c) if step > 0 && (0..HUGE).contains(&c) => Int::new(c),
        Some(c) if step < 0 && (0..HUGE).contains(&c) => start.min(d.clone() - 1),
        _ => at(start, before),
    };
    let end = at(end, before);
    let span = if step > 0 { end - &start } else { start.clone() - end };
    let size = simplify(&span, &Bounds::new()).ceil_div(step.unsigned_abs().min(HUGE as u64) as i64);
    (simplify(&start, &Bounds::new()), simplify(&size, &Bounds::new()))
}

impl Slice {
    /// The slice of packed data: along the channels in whole groups.
    fn in_groups(&self, layout: DataLayout, cx: &InferContext<'_>) -> OpResult<Slice> {
        if !self.dims.is_empty() {
            return Err("its bounds are known only at run time".into());
        }
        let mut op = self.clone();
        if op.axes.is_empty() {
            op.axes = (0..op.starts.len() as i64).collect();
        }
        op.axes = normalize_axes(&op.axes, 4)?.into_iter().map(|a| a as i64).collect();
        let Some(range) = self.ranges(&cx.require(0)?.shape)?.into_iter().find(|r| r.axis == 1) else { return Ok(op) };
        if range.step != 1 {
            return Err(
                format!("it slices the channels, which {} splits, in steps of {}", layout.title(), range.step).into()
            );
        }
        let bounds = [range.start.clone(), simplify(&(range.start + range.size), &Bounds::new())];
        let bounds = whole_groups(&bounds, layout, "it slices the channels at")?;
        let i = op.axes.iter().position(|&a| a == 1).ok_or("it has no bounds for axis 1")?;
        (op.starts[i], op.ends[i]) = (bounds[0].clone(), bounds[1].clone());
        Ok(op)
    }
    fn ranges(&self, shape: &[Dim]) -> OpResult<Vec<Range>> {
        let n = self.starts.len();
        if self.ends.len() != n || (!self.axes.is_empty() && self.axes.len() != n) {
            return Err(format!("{n} starts, {} ends, {} axes", self.ends.len(), self.axes.len()).into());
        }
        if !self.steps.is_empty() && self.steps.len() != n {
            return Err(format!("{n} starts, {} steps", self.steps.len()).into());
        }
        let axes: Vec<i64> = if self.axes.is_empty() { (0..n as i64).collect() } else { self.axes.clone() };
        let axes = normalize_axes(&axes, shape.len())?;
        let range = |(i, axis): (usize, usize)| -> OpResult<Range> {
            let step = self.steps.get(i).copied().unwrap_or(1);
            if step == 0 {
                return Err("a step is 0".into());
            }
            let (start, size) = resolve(&shape[axis], &self.starts[i], &self.ends[i], step);
            Ok(Range { axis, start, step, size })
        };
        axes.into_iter().enumerate().map(range).collect()
    }
}

impl Slice {
    /// Where the result starts along each axis of `shape`; `None` unless the starts are constant and each step is 1.
    pub fn starts_at(&self, shape: &[Dim]) -> Option<Vec<i64>> {
        let mut starts = vec![0; shape.len()];
        for r in self.ranges(shape).ok().filter(|_| self.dims.is_empty())? {
            starts[r.axis] = r.start.as_const().filter(|_| r.step == 1)?;
        }
        Some(starts)
    }
}

impl Op for Slice {
    fn arity(&self) -> (usize, usize) {
        (1, 5)
    }
    fn keeps_elements(&self) -> bool {
        true
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let mut ty = cx.require(0)?.clone();
        if !self.dims.is_empty() {
            ty.shape = self.dims.clone();
            return Ok(vec![ty]);
        }
        for r in self.ranges(&ty.shape.clone())? {
            ty.shape[r.axis] = r.size;
        }
        Ok(vec![ty])
    }
    fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
        let values = cx.int_input(0)?;
        let mut ranges = self.ranges(&cx.input(0)?.shape).ok()?;
        let r = ranges.pop()?;
        let (start, size) = (r.start.as_const()?, r.size.as_const()?);
        (0..size).map(|i| values.get(usize::try_from(start + i * r.step).ok()?).cloned()).collect()
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let (ty, ranges) = (cx.output_type(0).clone(), self.ranges(&cx.shape(x))?);
        let out = cx.compute("", &ty.shape, ty.dtype, |i| {
            let bounds = loop_bounds(i, &ty.shape);
            let mut at = i.to_vec();
            for r in &ranges {
                at[r.axis] = simplify(&(r.start.clone() + at[r.axis].clone() * r.step), &bounds);
            }
            Expr::load(x, at)
        });
        cx.output(0, out);
        Ok(())
    }
    fn has_compute(&self) -> bool {
        self.dims.is_empty()
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        if self.dims.is_empty() {
            return None;
        }
        let x = inputs[0].as_ref()?;
        Some(self.between(inputs).and_then(|known| known.slice_host(x)).map(|t| vec![t]))
    }
    fn defined_symbols(&self) -> Vec<Name> {
        self.dims.iter().filter_map(Int::as_var).collect()
    }
    fn size_operands(&self) -> &'static [usize] {
        &[1, 2, 3, 4]
    }
    fn with_sizes(&self, operands: &[Option<Tensor>]) -> OpResult<(OpRef, Vec<Option<usize>>)> {
        Ok((self.between(operands)?.into(), vec![Some(0)]))
    }
    fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        if !self.dims.is_empty() {
            return None;
        }
        let axes: Vec<i64> =
            if self.axes.is_empty() { (0..self.starts.len() as i64).collect() } else { self.axes.clone() };
        let axes = normalize_axes(&axes, perm.len()).ok()?.into_iter().map(|a| permuted_axis(a, perm) as i64);
        Some(PermutedOp::uniform(Slice { axes: axes.collect(), ..self.clone() }, perm, 1, 1))
    }
    fn packed(&self, layout: DataLayout, cx: &InferContext<'_>) -> Option<OpResult<PackedOp>> {
        Some(self.in_groups(layout, cx).map(|op| PackedOp::uniform(op, 1, 1)))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        if !self.dims.is_empty() {
            cx.simple("Slice", vec![]);
            return Ok(());
        }
        let n = self.starts.len();
        let axes = if self.axes.is_empty() { (0..n as i64).collect() } else { self.axes.clone() };
        let steps = if self.steps.is_empty() { vec![1; n] } else { self.steps.clone() };
        let mut inputs = vec![cx.input(0), cx.ints(&self.starts)?, cx.ints(&self.ends)?];
        inputs.extend([axes, steps].map(|v| cx.constant(Tensor::ints(&v))));
        let outputs = cx.outputs.clone();
        cx.node("Slice", inputs, outputs, vec![]);
        Ok(())
    }
}

impl Slice {
    /// The slice between the bounds that operands say.
    fn between(&self, operands: &[Option<Tensor>]) -> OpResult<Slice> {
        let list = |i: usize| operands.get(i).and_then(Option::as_ref).map(Tensor::to_i64_vec);
        Ok(Slice {
            starts: read_ints(operands, 1)?,
            ends: read_ints(operands, 2)?,
            axes: list(3).unwrap_or_else(|| self.axes.clone()),
            steps: list(4).unwrap_or_default(),
            dims: vec![],
        })
    }
    fn slice_host(&self, x: &Tensor) -> OpResult<Tensor> {
        let dims: Vec<Dim> = x.shape().iter().map(|&d| Dim::from(d)).collect();
        let mut shape = dims.clone();
        let mut map = vec![(0i64, 1i64); dims.len()];
        for r in self.ranges(&dims)? {
            shape[r.axis] = r.size;
            map[r.axis] = (r.start.as_const().unwrap_or(0), r.step);
        }
        let shape = const_dims(&shape).ok_or("a size is negative")?;
        Ok(gather_host(x, &shape, |axis, i| (map[axis].0 + i as i64 * map[axis].1) as usize))
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "Slice", domain: "", since: 1, import: import_attributes },
    OnnxImport { op_type: "Slice", domain: "", since: 10, import: import_operands },
];

fn import_attributes(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let ints = |name| cx.attrs.ints(name).map(|v| v.iter().map(|&i| Int::new(i)).collect::<Vec<Int>>());
    let op = Slice {
        starts: ints("starts").ok_or("attribute `starts` is missing")?,
        ends: ints("ends").ok_or("attribute `ends` is missing")?,
        axes: cx.attrs.ints("axes").unwrap_or_default().to_vec(),
        ..Slice::default()
    };
    let x = cx.input(0)?;
    Ok(vec![cx.add(op, &[x])?])
}

fn import_operands(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let ty = cx.ty(0)?;
    let optional = |cx: &ImportContext<'_, '_>, i| if cx.opt(i).is_some() { cx.const_ints(i) } else { Some(vec![]) };
    let (axes, steps) = (optional(cx, 3), optional(cx, 4));
    if let (Some(starts), Some(ends), Some(axes), Some(steps)) =
        (cx.int_values(1), cx.int_values(2), axes.clone(), steps)
    {
        return Ok(vec![cx.add(Slice { starts, ends, axes, steps, dims: vec![] }, &[x])?]);
    }
    let count = cx.ty(1)?.numel().as_const().unwrap_or(ty.rank() as i64);
    if count > ty.rank() as i64 {
        return Err(format!("{count} starts for rank {}", ty.rank()).into());
    }
    let axes = match axes {
        Some(axes) if axes.is_empty() => (0..count).collect(),
        Some(axes) => axes,
        None => (0..ty.rank() as i64).collect(),
    };
    let mut dims = ty.shape.clone();
    for a in normalize_axes(&axes, ty.rank())? {
        dims[a] = cx.fresh_dim("slice", a);
    }
    let inputs = cx.inputs.clone();
    cx.add_multi(Slice { axes, dims, ..Slice::default() }, inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::try_run;

    fn ints(v: &[i64]) -> Vec<Int> {
        v.iter().map(|&i| Int::new(i)).collect()
    }

    /// The expression, the host form and a walk agree for every start, end and step.
    #[test]
    fn all_bounds_and_steps_of_a_small_dimension() {
        let x = Tensor::ints(&[0, 1, 2, 3, 4]);
        let bounds = [i64::MIN, -7, -5, -2, 0, 1, 3, 4, 5, 8, i64::MAX];
        for start in bounds {
            for end in bounds {
                for step in [-3, -1, 1, 2, i64::MAX] {
                    let op =
                        Slice { starts: ints(&[start]), ends: ints(&[end]), steps: vec![step], ..Slice::default() };
                    let host = op.slice_host(&x).unwrap();
                    let got = try_run(op, &[&x]).unwrap().remove(0);
                    assert_eq!(got, host);
                    assert_eq!(got.to_i64_vec(), walk(start, end, step), "{start}:{end}:{step}");
                }
            }
        }
    }

    /// `range(5)[start:end:step]`, element by element. A start before the first element is the first one (also when
    /// stepping down, where Python has no element).
    fn walk(start: i64, end: i64, step: i64) -> Vec<i64> {
        let wrap = |v: i64| if v < 0 { v.saturating_add(5) } else { v };
        let (low, high) = if step > 0 { (0, 5) } else { (-1, 4) };
        let (mut i, end) = (wrap(start).clamp(low.max(0), high), wrap(end).clamp(low, high));
        let mut out = Vec::new();
        while (step > 0 && i < end) || (step < 0 && i > end) {
            out.push(i);
            i = i.saturating_add(step);
        }
        out
    }

    #[test]
    fn nothing_has_no_elements_in_any_direction() {
        let nothing = Tensor::ints(&[]);
        for (start, end, step) in [(0, 5, 1), (1, i64::MIN + 1, -1), (-1, i64::MIN, -2)] {
            let op = Slice { starts: ints(&[start]), ends: ints(&[end]), steps: vec![step], ..Slice::default() };
            assert_eq!(op.slice_host(&nothing).unwrap(), nothing);
            assert_eq!(try_run(op, &[&nothing]).unwrap(), std::slice::from_ref(&nothing));
        }
    }

    #[test]
    fn symbolic_dims() {
        let n = Dim::var("n");
        let size = |start: i64, end: i64, step: i64| resolve(&n, &Int::new(start), &Int::new(end), step).1;
        assert_eq!(size(0, i64::MAX, 1), n);
        assert_eq!(size(1, i64::MAX, 1), n.clone() - 1);
        assert_eq!(size(0, -1, 1), n.clone() - 1);
        assert_eq!(size(-3, i64::MAX, 1), Dim::new(3));
        assert_eq!(size(-1, i64::MIN, -1), n);
        assert_eq!(size(0, 10, 1), n.min(10));
        assert_eq!(resolve(&Dim::new(512), &Int::new(0), &n, 1).1, n);
    }

    #[test]
    fn bad_bounds_are_refused() {
        let x = Tensor::ints(&[1, 2]);
        for op in [
            Slice { starts: ints(&[0]), ends: ints(&[1]), steps: vec![0], ..Slice::default() },
            Slice { starts: ints(&[0]), ends: vec![], ..Slice::default() },
            Slice { starts: ints(&[0]), ends: ints(&[1]), axes: vec![1], ..Slice::default() },
            Slice { starts: ints(&[0, 0]), ends: ints(&[1, 1]), axes: vec![0, -1], ..Slice::default() },
        ] {
            assert!(try_run(op, &[&x]).is_err());
        }
    }
}
