//! Triangles, running sums and running products.

use super::permute::{PermutedOp, normalize_axis, permuted_axis};
use super::unary::{Domain, infer_map, math_dtype};
use super::window::tidy;
use super::{InferContext, Op, OpResult, Precision};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::int::{Int, const_dims};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{BinaryOp, BufferId, Combiner, Cond, Expr};

attr_struct! {
    /// The upper or lower triangle of the last two dimensions; 0 elsewhere. The diagonal that bounds it may be the
    /// integer operand 1.
    pub struct Trilu("trilu") {
        /// Whether the upper triangle stays.
        pub upper: bool = true,
        /// The diagonal that bounds it, counted to the right, where it is no operand.
        pub k: i64 = 0,
    }
}
impl Op for Trilu {
    fn arity(&self) -> (usize, usize) {
        (1, 2)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        cx.input(1).map_or(Ok(()), |t| require_one_integer("the diagonal", t))?;
        match cx.require(0)?.rank() {
            0 | 1 => Err("takes matrices".into()),
            _ => infer_map(cx, Domain::Any),
        }
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let ty = cx.output_type(0).clone();
        if let Some(k) = cx.input(1) {
            let dtype = cx.dtype(k);
            let k = Expr::load(k, vec![Int::new(0); cx.shape(k).len()]);
            let kept = if self.upper { BinaryOp::Ge } else { BinaryOp::Le };
            let out = cx.compute("", &ty.shape, ty.dtype, |i| {
                let diagonal = Expr::Index(i[i.len() - 1].clone() - &i[i.len() - 2], dtype);
                Expr::select(Expr::binary(kept, diagonal, k), Expr::load(x, i.to_vec()), Expr::int(0, ty.dtype))
            });
            cx.output(0, out);
            return Ok(());
        }
        let out = cx.compute("", &ty.shape, ty.dtype, |i| {
            let (row, column) = (i[i.len() - 2].clone(), &i[i.len() - 1]);
            // Beyond any dimension all diagonals are alike, and sums of indices stay small.
            let k = self.k.clamp(-(1 << 30), 1 << 30);
            let kept = if self.upper { Cond::ge(column, row + k) } else { Cond::lt(column, row + k + 1) };
            Expr::guarded(vec![kept], Expr::load(x, i.to_vec()), Expr::int(0, ty.dtype))
        });
        cx.output(0, out);
        Ok(())
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let given = cx.input(1);
        let k = if given.is_empty() { cx.constant(Tensor::scalar(self.k)) } else { given };
        let (inputs, outputs) = (vec![cx.input(0), k], cx.outputs.clone());
        cx.node("Trilu", inputs, outputs, vec![("upper", OnnxAttr::Int(self.upper as i64))]);
        Ok(())
    }
}

/// An operand that gives a number: an integer tensor of one element.
fn require_one_integer(what: &str, t: &TensorType) -> OpResult<()> {
    if t.dtype.is_int() && t.numel().is(1) { Ok(()) } else { Err(format!("{what} is {t:?}, not one integer").into()) }
}

macro_rules! running_ops {
    ($($(#[$doc:meta])* $name:ident($text:literal), $onnx:literal, $combiner:ident, $one:literal, $ints:expr, $floats:expr;)*) => { $(
        attr_struct! {
            $(#[$doc])*
            pub struct $name($text) {
                /// The axis; negative counts from the end. Not used with `dynamic`.
                pub axis: i64 = 0,
                /// Whether an element's own value is left out.
                pub exclusive: bool = false,
                /// Whether to start from the end.
                pub reverse: bool = false,
                /// Whether the axis is the integer operand 1.
                pub dynamic: bool = false,
            }
        }
        impl $name {
            fn running(&self) -> Running<impl Fn(i64, i64) -> i64, impl Fn(f64, f64) -> f64> {
                let (axis, exclusive, reverse) = (self.axis, self.exclusive, self.reverse);
                let (combiner, first) = (Combiner::$combiner, $one);
                Running { axis, exclusive, reverse, combiner, first, ints: $ints, floats: $floats }
            }
        }
        impl Op for $name {
            fn arity(&self) -> (usize, usize) {
                if self.dynamic { (2, 2) } else { (1, 1) }
            }
            fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
                match self.dynamic {
                    true => require_one_integer("the axis", cx.require(1)?)?,
                    false => normalize_axis(self.axis, cx.require(0)?.rank()).map(|_| ())?,
                }
                infer_map(cx, Domain::Number)
            }
            fn has_compute(&self) -> bool {
                !self.dynamic
            }
            fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
                self.running().compute(cx)
            }
            fn is_less_work_on_host(&self) -> bool {
                true
            }
            fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
                let mut running = self.running();
                if self.dynamic {
                    running.axis = inputs.get(1)?.as_ref()?.to_i64_vec().first().copied()?;
                }
                Some(running.eval(inputs[0].as_ref()?).map(|t| vec![t]))
            }
            fn precision(&self) -> Precision {
                Precision::Never
            }
            fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
                if self.dynamic {
                    return None;
                }
                let axis = permuted_axis(normalize_axis(self.axis, perm.len()).ok()?, perm) as i64;
                Some(PermutedOp::uniform($name { axis, ..self.clone() }, perm, 1, 1))
            }
            fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
                let axis = if self.dynamic { cx.input(1) } else { cx.constant(Tensor::scalar(self.axis)) };
                let (inputs, outputs) = (vec![cx.input(0), axis], cx.outputs.clone());
                let flags = [("exclusive", self.exclusive), ("reverse", self.reverse)];
                cx.node($onnx, inputs, outputs, flags.map(|(k, v)| (k, OnnxAttr::Int(v as i64))).to_vec());
                Ok(())
            }
        }
    )* };
}

running_ops! {
    /// Running sums along an axis.
    CumSum("cumsum"), "CumSum", Sum, 0, i64::wrapping_add, |a, b| a + b;
    /// Running products along an axis.
    CumProd("cumprod"), "CumProd", Prod, 1, i64::wrapping_mul, |a, b| a * b;
}

/// The common part of running sums and products, with how integers and floats are combined.
struct Running<I, F> {
    axis: i64,
    exclusive: bool,
    reverse: bool,
    combiner: Combiner,
    first: i64,
    ints: I,
    floats: F,
}
/// Elements that one level of a scan combines: of each block its total, and of each element those before it in its
/// block.
const BLOCK: i64 = 4;
/// The longest axis that is scanned at once: each element combines all before it.
const AT_ONCE: i64 = 32;
/// Steps up to which a scan at once is no more work than starting the kernels of several levels.
const FEW_STEPS: i64 = 1 << 16;
/// Levels of an axis whose length is open.
const OPEN_LEVELS: usize = 7;

/// One level of a scan: the operand, or the totals of blocks of the level below.
struct Level {
    data: BufferId,
    dtype: DType,
    /// Elements along the axis.
    count: Int,
    /// Elements are taken from the end.
    reverse: bool,
}

impl Level {
    /// The place of the element at `index` along the axis, in the order of the scan; or the other way round.
    fn turned(&self, index: Int) -> Int {
        if self.reverse { self.count.clone() - 1 - index } else { index }
    }
    /// The element that comes at `place` in the order of the scan, as `t`.
    fn element(&self, index: &[Int], axis: usize, place: Int, t: DType) -> Expr {
        let at = along(index, axis, self.turned(place));
        Expr::load(self.data, at).cast(self.dtype, t)
    }
    /// Whether its elements are scanned at once, as level number `number` of a scan of data of this shape.
    fn at_once(&self, shape: &[Int], axis: usize, number: usize) -> bool {
        let Some(count) = self.count.as_const() else { return number + 1 >= OPEN_LEVELS };
        let all = const_dims(&along(shape, axis, self.count.clone()));
        let steps = all.map(|dims| dims.iter().fold(count, |n, &d| n.saturating_mul(d as i64)));
        count <= AT_ONCE || steps.is_some_and(|n| n <= FEW_STEPS)
    }
}

/// `list` with `value` for the axis.
fn along(list: &[Int], axis: usize, value: Int) -> Vec<Int> {
    let mut list = list.to_vec();
    list[axis] = value;
    list
}

impl<I: Fn(i64, i64) -> i64, F: Fn(f64, f64) -> f64> Running<I, F> {
    /// A scan in levels (G. Blelloch, Prefix Sums and Their Applications). Stages `totals` combine blocks of [`BLOCK`]
    /// elements until few totals are left; each of these is combined with all before it. Then each level, from the top
    /// down, combines for each element the total before its block with the elements before it in the block, in order.
    /// The work is linear in the length of the axis. Floats are combined in this order, in f32 at least; integers are
    /// exact.
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let ty = cx.output_type(0).clone();
        let axis = normalize_axis(self.axis, ty.rank())?;
        let (shape, t) = (&ty.shape, math_dtype(ty.dtype));
        let count = shape[axis].clone();
        let mut levels = vec![Level { data: x, dtype: ty.dtype, count, reverse: self.reverse }];
        while let Some(level) = levels.last().filter(|l| !l.at_once(shape, axis, levels.len() - 1)) {
            let count = tidy(&level.count.ceil_div(BLOCK));
            let data = cx.reduce(
                "totals",
                &along(shape, axis, count.clone()),
                t,
                &[Int::new(BLOCK)],
                self.combiner,
                |i, r| {
                    let place = i[axis].clone() * BLOCK + &r[0];
                    let inside = Cond::lt(place.clone(), &level.count);
                    Expr::guarded(vec![inside], level.element(i, axis, place, t), self.combiner.identity(t))
                },
            );
            levels.push(Level { data, dtype: t, count, reverse: false });
        }
        let mut carried = None;
        for (number, level) in levels.iter().enumerate().rev() {
            let to = if number == 0 { ty.dtype } else { t };
            carried = Some(self.descend(cx, level, carried, (shape, axis), (t, to, number == 0)));
        }
        let out = carried.ok_or("a scan has no level")?;
        cx.output(0, out);
        Ok(())
    }
    /// What is before each element of a level (at the lowest level up to it, unless the scan is exclusive), combined in
    /// `t` and given as `to`. `carried` is what is before each block; without it the level is one block.
    fn descend(
        &self,
        cx: &mut ComputeContext<'_>,
        level: &Level,
        carried: Option<BufferId>,
        (shape, axis): (&[Int], usize),
        (t, to, lowest): (DType, DType, bool),
    ) -> BufferId {
        let shape = along(shape, axis, level.count.clone());
        let own = i64::from(lowest && !self.exclusive);
        let label = if lowest && t == to { "" } else { "before" };
        let extent = if carried.is_some() { Int::new(BLOCK + 1) } else { level.count.clone() };
        let all = cx.reduce(label, &shape, t, &[extent], self.combiner, |i, r| {
            let place = level.turned(i[axis].clone());
            let none = self.combiner.identity(t);
            let Some(carried) = carried else {
                let counts = Cond::lt(&r[0], place + own);
                return Expr::guarded(vec![counts], level.element(i, axis, r[0].clone(), t), none);
            };
            let (block, place) = (place.div(BLOCK), place.rem(BLOCK));
            let other = r[0].clone() - 1;
            let counts = vec![Cond::ge(&r[0], 1), Cond::lt(other.clone(), place + own)];
            let other = level.element(i, axis, block.clone() * BLOCK + other, t);
            let before = Expr::load(carried, along(i, axis, block));
            Expr::guarded(vec![Cond::eq(&r[0], 0)], before, Expr::guarded(counts, other, none))
        });
        match t == to {
            true => all,
            false => cx.compute("", &shape, to, |i| Expr::load(all, i.to_vec()).cast(t, to)),
        }
    }
    fn eval(&self, x: &Tensor) -> OpResult<Tensor> {
        let axis = normalize_axis(self.axis, x.shape().len())?;
        let shape = x.shape().to_vec();
        let (first, same) = (self.first as f64, |x| x);
        if let Some(values) = x.as_slice::<f32>() {
            let values = self.scan(values.into_owned(), &shape, axis, first, (f64::from, |x| x as f32), &self.floats);
            return Ok(Tensor::from_vec(shape, values));
        }
        if x.dtype().is_int() {
            let values = self.scan(x.to_i64_vec(), &shape, axis, self.first, (|x| x, |x| x), &self.ints);
            // Wrap as the element type does, rather than saturate.
            return Ok(Tensor::from_i64(x.dtype(), shape, &values));
        }
        let values = self.scan(x.to_f64_vec(), &shape, axis, first, (same, same), &self.floats);
        Ok(Tensor::from_f64(x.dtype(), shape, values))
    }
    /// Combines elements in `S`, which they are converted to and from.
    fn scan<T: Copy, S: Copy>(
        &self,
        mut out: Vec<T>,
        shape: &[usize],
        axis: usize,
        first: S,
        (widen, narrow): (impl Fn(T) -> S, impl Fn(S) -> T),
        combine: impl Fn(S, S) -> S,
    ) -> Vec<T> {
        let (n, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
        // Rows of the scans that lie next to each other go together.
        let mut so_far = vec![first; inner];
        for all in out.chunks_exact_mut((n * inner).max(1)) {
            so_far.fill(first);
            for k in 0..n {
                let at = inner * if self.reverse { n - 1 - k } else { k };
                for (so_far, x) in so_far.iter_mut().zip(&mut all[at..at + inner]) {
                    let next = combine(*so_far, widen(*x));
                    *x = narrow(if self.exclusive { *so_far } else { next });
                    *so_far = next;
                }
            }
        }
        out
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "Trilu", domain: "", since: 14, import: import_trilu },
    OnnxImport { op_type: "CumSum", domain: "", since: 11, import: import_cumsum },
    OnnxImport { op_type: "CumProd", domain: "", since: 26, import: import_cumprod },
];

fn import_trilu(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let upper = cx.attrs.int("upper").unwrap_or(1) != 0;
    match (cx.opt(1), cx.const_ints(1)) {
        (Some(k), None) => Ok(vec![cx.add(Trilu { upper, k: 0 }, &[x, k])?]),
        (_, known) => {
            let k = known.and_then(|v| v.first().copied()).unwrap_or(0);
            Ok(vec![cx.add(Trilu { upper, k }, &[x])?])
        }
    }
}

/// The constant axis, if it is one; whether sums are exclusive and reversed; and the operands.
fn import_running(cx: &ImportContext<'_, '_>) -> OpResult<(Option<i64>, bool, bool, Vec<ValueId>)> {
    let axis = cx.const_ints(1).and_then(|v| v.first().copied());
    let flag = |name| cx.attrs.int(name).unwrap_or(0) != 0;
    let mut operands = vec![cx.input(0)?];
    if axis.is_none() {
        operands.push(cx.input(1)?);
    }
    Ok((axis, flag("exclusive"), flag("reverse"), operands))
}

fn import_cumsum(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (axis, exclusive, reverse, operands) = import_running(cx)?;
    let op = CumSum { axis: axis.unwrap_or(0), exclusive, reverse, dynamic: axis.is_none() };
    Ok(vec![cx.add(op, &operands)?])
}

fn import_cumprod(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (axis, exclusive, reverse, operands) = import_running(cx)?;
    let op = CumProd { axis: axis.unwrap_or(0), exclusive, reverse, dynamic: axis.is_none() };
    Ok(vec![cx.add(op, &operands)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{random, run, run_both, try_run};

    #[test]
    fn triangles() {
        let x = Tensor::from_vec(vec![2, 3], vec![1i64, 2, 3, 4, 5, 6]);
        assert_eq!(run(Trilu { upper: true, k: 0 }, &[&x]).to_i64_vec(), [1, 2, 3, 0, 5, 6]);
        assert_eq!(run(Trilu { upper: true, k: 1 }, &[&x]).to_i64_vec(), [0, 2, 3, 0, 0, 6]);
        assert_eq!(run(Trilu { upper: false, k: 0 }, &[&x]).to_i64_vec(), [1, 0, 0, 4, 5, 0]);
        assert_eq!(run(Trilu { upper: false, k: i64::MAX }, &[&x]), x);
        for k in [-2i64, -1, 0, 1, 3] {
            for upper in [false, true] {
                let given = run(Trilu { upper, k: 0 }, &[&x, &Tensor::scalar(k)]);
                assert_eq!(given, run(Trilu { upper, k }, &[&x]), "{upper} {k}");
            }
        }
        assert!(try_run(Trilu::default(), &[&Tensor::ints(&[1])]).is_err());
    }

    #[test]
    fn scans_in_levels_agree_with_the_host() {
        // Two, three and four levels; blocks that are full, and ones that are not.
        for (shape, axis) in [([300, 3], 0), ([3, 300], 1), ([1, 4096], 1), ([2, 2051], 1), ([1000, 33], 1)] {
            let n: usize = shape.iter().product();
            let x = Tensor::from_f64(DType::I32, shape.to_vec(), (0..n).map(|i| (i * 7919 % 1013) as f64 - 500.0));
            for (exclusive, reverse) in [(false, false), (false, true), (true, false), (true, true)] {
                let op = CumSum { axis, exclusive, reverse, dynamic: false };
                let host = try_run(op.clone(), &[&x]).expect("runs");
                let stages = crate::interpreter::eval_expression(&op.into(), &[Some(x.clone())]).expect("runs");
                assert_eq!(host, stages, "{shape:?} {axis} {exclusive} {reverse}");
            }
        }
        let inf = f32::INFINITY;
        let x: Vec<f32> = (0..300).map(|i| if i == 70 { inf } else { 1.0 }).collect();
        let x = Tensor::from_vec(vec![300], x);
        let op = CumSum { exclusive: true, ..CumSum::default() };
        let stages = crate::interpreter::eval_expression(&op.into(), &[Some(x)]).expect("runs").remove(0).to_f64_vec();
        assert_eq!((stages[70], stages[71], stages[299]), (70.0, f64::INFINITY, f64::INFINITY));
    }

    #[test]
    fn running_sums_in_all_directions() {
        let x = random(&[2, 5, 3], 1);
        for axis in -1..2 {
            for (exclusive, reverse) in [(false, false), (false, true), (true, false), (true, true)] {
                run_both(CumSum { axis, exclusive, reverse, dynamic: false }, &[&x]);
                run_both(CumProd { axis, exclusive, reverse, dynamic: false }, &[&x]);
                let at = Tensor::ints(&[axis]);
                let dynamic = run(CumSum { axis: 0, exclusive, reverse, dynamic: true }, &[&x, &at]);
                assert_eq!(dynamic, run(CumSum { axis, exclusive, reverse, dynamic: false }, &[&x]));
            }
        }
        let x = Tensor::ints(&[1, 2, 3]);
        let of = |exclusive, reverse| run(CumSum { axis: 0, exclusive, reverse, dynamic: false }, &[&x]).to_i64_vec();
        assert_eq!(of(false, false), [1, 3, 6]);
        assert_eq!(of(true, true), [5, 3, 0]);
        let product =
            |exclusive, reverse| run(CumProd { axis: 0, exclusive, reverse, dynamic: false }, &[&x]).to_i64_vec();
        assert_eq!(product(false, false), [1, 2, 6]);
        assert_eq!(product(true, true), [6, 3, 1]);
    }
}
