//! Sampling at coordinates from an operand, and the grids of affine maps.
//!
//! For each spatial axis two small stages give the source index and the weight of every tap; the result is a reduction
//! over the combinations of taps. Padding is decided per tap, so the source index is always inside.

use super::matmul::MatMul;
use super::transpose::Transpose;
use super::unary::math_dtype;
use super::{InferContext, Op, OpResult};
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{TensorType, ValueId};
use crate::int::{Dim, Int};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{BinaryOp, BufferId, Combiner, Cond, Expr, UnaryOp};
use crate::{attr_enum, attr_struct};

attr_enum! {
    /// How a sample is made of elements.
    pub enum SampleMode {
        /// The nearest one; halves to even.
        Nearest = "nearest",
        /// Linear in each axis.
        Linear = "linear",
        /// Cubic convolution in each axis, with coefficient -3/4.
        Cubic = "cubic",
    }
}
attr_enum! {
    /// The values outside of the data.
    pub enum SamplePadding {
        /// Zeros.
        Zeros = "zeros",
        /// The nearest element.
        Border = "border",
        /// The mirror image.
        Reflection = "reflection",
    }
}
attr_struct! {
    /// Samples of operand 0 `[n, c, spatial...]` at the coordinates in the last dimension of operand 1 `[n, out...,
    /// axes]`: -1 and 1 are the ends of an axis, and the last axis comes first.
    pub struct GridSample("grid_sample") {
        /// Interpolation.
        pub mode: SampleMode = SampleMode::Linear,
        /// Outside.
        pub padding: SamplePadding = SamplePadding::Zeros,
        /// Whether the ends are the centres of the corner elements, or else their outer edges.
        pub align_corners: bool = false,
    }
}

/// Source index (i32) and weight of each tap along one axis, indexed by `[n, out..., tap]`.
struct Taps {
    index: BufferId,
    weight: BufferId,
}

fn call(op: UnaryOp, x: Expr) -> Expr {
    Expr::unary(op, x)
}

/// `x` mirrored at `low` and `high` until it is between them: a triangle wave.
fn reflect(x: Expr, low: f64, high: f64, t: DType) -> Expr {
    let number = |v: f64| Expr::constant(v, t);
    let span = high - low;
    if span <= 0.0 {
        return number(low);
    }
    let off = call(UnaryOp::Abs, x - number(low));
    let turns = call(UnaryOp::Floor, off.clone() / number(span));
    let rest = off - turns.clone() * number(span);
    let half = turns.clone() * number(0.5);
    let even = Expr::binary(BinaryOp::Eq, call(UnaryOp::Floor, half.clone()), half);
    Expr::select(even, number(low) + rest.clone(), number(high) - rest)
}

impl GridSample {
    fn taps(&self) -> i64 {
        match self.mode {
            SampleMode::Nearest => 1,
            SampleMode::Linear => 2,
            SampleMode::Cubic => 4,
        }
    }
    /// Lowest and highest coordinate of an axis of `size` elements.
    fn border(&self, size: f64) -> (f64, f64) {
        if self.align_corners { (0.0, size - 1.0) } else { (-0.5, size - 0.5) }
    }
    /// The source coordinate for the grid's `x`, moved inside where the padding repeats the data.
    fn coordinate(&self, x: Expr, size: f64, t: DType) -> Expr {
        let number = |v: f64| Expr::constant(v, t);
        let at = match self.align_corners {
            true => (x + number(1.0)) * number(0.5 * (size - 1.0)),
            false => ((x + number(1.0)) * number(size) - number(1.0)) * number(0.5),
        };
        let at = if self.mode == SampleMode::Nearest { call(UnaryOp::Round, at) } else { at };
        let (low, high) = self.border(size);
        let at = match self.padding {
            SamplePadding::Zeros => at,
            // Of a cubic sample each tap is moved inside instead: beyond the border it still leans on the elements
            // inside.
            SamplePadding::Border if self.mode == SampleMode::Cubic => at,
            SamplePadding::Border => at.max(number(0.0)).min(number(size - 1.0)),
            SamplePadding::Reflection => {
                let inside = reflect(at.clone(), low, high, t);
                let outside = Expr::binary(
                    BinaryOp::Or,
                    Expr::binary(BinaryOp::Lt, at.clone(), number(low)),
                    Expr::binary(BinaryOp::Gt, at.clone(), number(high)),
                );
                Expr::select(outside, inside, at)
            }
        };
        // Far outside nothing changes any more, and what is floored fits an integer.
        at.max(number(-4.0)).min(number(size + 4.0))
    }
    /// The weight of tap `tap` at distance `f` in 0..1 from tap 0 (linear) or tap 1 (cubic).
    fn weight(&self, f: Expr, tap: i64, t: DType) -> Expr {
        let number = |v: f64| Expr::constant(v, t);
        let a = -0.75;
        let near = |x: Expr| ((number(a + 2.0) * x.clone()) - number(a + 3.0)) * x.clone() * x + number(1.0);
        let far = |x: Expr| {
            let y = x + number(1.0);
            ((number(a) * y.clone() - number(5.0 * a)) * y.clone() + number(8.0 * a)) * y - number(4.0 * a)
        };
        let other = number(1.0) - f.clone();
        match (self.mode, tap) {
            (SampleMode::Nearest, _) => number(1.0),
            (SampleMode::Linear, 0) => other,
            (SampleMode::Linear, _) => f,
            (SampleMode::Cubic, 0) => far(f),
            (SampleMode::Cubic, 1) => near(f),
            (SampleMode::Cubic, 2) => near(other),
            (SampleMode::Cubic, _) => far(other),
        }
    }
    fn axis_taps(&self, cx: &mut ComputeContext<'_>, axis: usize, size: &Int, axes: usize) -> OpResult<Taps> {
        let grid = cx.require(1)?;
        let (from, mut shape) = (cx.dtype(grid), cx.shape(grid));
        let t = math_dtype(from);
        let size = size
            .as_const()
            .ok_or_else(|| Fault::unsupported("samples data of a size that is not known at compile time"))?
            as f64;
        shape.pop();
        let at = cx.compute("at", &shape, t, |i| {
            let component = Int::new((axes - 1 - axis) as i64);
            self.coordinate(Expr::load(grid, [i, &[component]].concat()).cast(from, t), size, t)
        });
        let first = cx.compute("first", &shape, DType::I32, |i| {
            call(UnaryOp::Floor, Expr::load(at, i.to_vec())).cast(t, DType::I32)
        });
        shape.push(Int::new(self.taps()));
        let before = if self.mode == SampleMode::Cubic { 1 } else { 0 };
        let place = |i: &[Int]| Int::load(first, i[..i.len() - 1].to_vec()) + &i[i.len() - 1] - before;
        let index = cx.compute("index", &shape, DType::I32, |i| {
            let tap = place(i);
            match self.padding {
                SamplePadding::Reflection => {
                    let (low, high) = self.border(size);
                    let inside = reflect(Expr::Index(tap.clone(), t), low, high, t).cast(t, DType::I32);
                    let own = vec![Cond::ge(&tap, 0), Cond::lt(&tap, size as i64)];
                    Expr::guarded(own, Expr::Index(tap, DType::I32), inside)
                }
                _ => Expr::Index(tap.max(0).min(size as i64 - 1), DType::I32),
            }
        });
        let weight = cx.compute("weight", &shape, t, |i| {
            let whole = i[..i.len() - 1].to_vec();
            let f = Expr::load(at, whole.clone()) - Expr::Index(Int::load(first, whole), t);
            let zero = Expr::constant(0.0, t);
            let w = (0..self.taps()).rev().fold(zero.clone(), |rest, tap| match tap + 1 == self.taps() {
                true => self.weight(f.clone(), tap, t),
                false => Expr::guarded(vec![Cond::eq(&i[i.len() - 1], tap)], self.weight(f.clone(), tap, t), rest),
            });
            match self.padding {
                SamplePadding::Zeros => {
                    let tap = place(i);
                    Expr::guarded(vec![Cond::ge(&tap, 0), Cond::lt(tap, size as i64)], w, zero)
                }
                _ => w,
            }
        });
        Ok(Taps { index, weight })
    }
}

impl Op for GridSample {
    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (x, grid) = (cx.require(0)?, cx.require(1)?);
        if x.rank() < 3 || grid.rank() != x.rank() || !x.dtype.is_float() || !grid.dtype.is_float() {
            return Err(format!("samples {x:?} at {grid:?}").into());
        }
        if grid.shape[grid.rank() - 1].as_const().is_some_and(|n| n != x.rank() as i64 - 2) {
            return Err(format!("coordinates {:?} for data {:?}", grid.shape, x.shape).into());
        }
        if x.shape[2..].iter().any(|d| d.is(0)) {
            return Err(format!("samples empty data {:?}", x.shape).into());
        }
        let shape = [&x.shape[..2], &grid.shape[1..grid.rank() - 1]].concat();
        Ok(vec![TensorType::new(x.dtype, shape)])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let (ty, shape) = (cx.output_type(0).clone(), cx.shape(x));
        let t = math_dtype(ty.dtype);
        let axes = shape.len() - 2;
        let mut taps = Vec::with_capacity(axes);
        for axis in 0..axes {
            taps.push(self.axis_taps(cx, axis, &shape[axis + 2], axes)?);
        }
        let weights = taps.first().map_or(t, |t| cx.dtype(t.weight));
        let extents = vec![Int::new(self.taps()); axes];
        let sum = cx.reduce("", &ty.shape, t, &extents, Combiner::Sum, |i, r| {
            let place = |axis: usize| [&i[..1], &i[2..], std::slice::from_ref(&r[axis])].concat();
            let index = |axis: usize| Int::load(taps[axis].index, place(axis)).max(0).min(shape[axis + 2].clone() - 1);
            let at = [i[..2].to_vec(), (0..axes).map(index).collect()].concat();
            let value = Expr::load(x, at).cast(ty.dtype, t);
            (0..axes).fold(value, |v, axis| v * Expr::load(taps[axis].weight, place(axis)).cast(weights, t))
        });
        let out = super::matmul::narrow(cx, sum, &ty);
        cx.output(0, out);
        Ok(())
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let text = |s: &str| OnnxAttr::Str(s.into());
        let attrs = vec![
            ("mode", text(self.mode.name())),
            ("padding_mode", text(self.padding.name())),
            ("align_corners", OnnxAttr::Int(self.align_corners as i64)),
        ];
        cx.simple("GridSample", attrs);
        Ok(())
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "GridSample", domain: "", since: 16, import: import_grid_sample },
    OnnxImport { op_type: "AffineGrid", domain: "", since: 20, import: import_affine_grid },
];

/// Before opset 20 the modes are called bilinear and bicubic.
fn import_grid_sample(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, grid) = (cx.input(0)?, cx.input(1)?);
    let mode = match cx.attrs.str("mode").unwrap_or("linear") {
        "bilinear" => SampleMode::Linear,
        "bicubic" => SampleMode::Cubic,
        other => SampleMode::parse(other).ok_or_else(|| format!("mode `{other}` is unknown"))?,
    };
    let padding = cx.attrs.str("padding_mode").unwrap_or("zeros");
    let padding = SamplePadding::parse(padding).ok_or_else(|| format!("padding_mode `{padding}` is unknown"))?;
    let align_corners = cx.attrs.int("align_corners").unwrap_or(0) != 0;
    Ok(vec![cx.add(GridSample { mode, padding, align_corners }, &[x, grid])?])
}

/// The most elements of the constant that holds the untransformed grid.
const GRID_LIMIT: i64 = 1 << 26;

/// The product of the untransformed homogeneous grid, a constant, with each matrix of operand 0.
fn import_affine_grid(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let theta = cx.input(0)?;
    let size = cx.const_ints(1).ok_or_else(|| Fault::unsupported("the size is not known at compile time"))?;
    let align = cx.attrs.int("align_corners").unwrap_or(0) != 0;
    let spatial = size.get(2..).filter(|s| matches!(s.len(), 2 | 3)).ok_or(format!("size {size:?} is no image's"))?;
    let points = spatial.iter().try_fold(1i64, |n, &d| if d > 0 { n.checked_mul(d) } else { None });
    let points = points.filter(|&n| n <= GRID_LIMIT).ok_or(format!("a grid of size {spatial:?}"))?;
    let axes = spatial.len();
    let place = |at: i64, n: i64| match (align, n) {
        (true, 1) => -1.0,
        (true, _) => -1.0 + 2.0 * at as f64 / (n - 1) as f64,
        (false, _) => -1.0 + (2 * at + 1) as f64 / n as f64,
    };
    let mut grid = Vec::with_capacity(points as usize * (axes + 1));
    for point in 0..points {
        // The last axis comes first; then a 1 for the translation.
        let mut rest = point;
        for &n in spatial.iter().rev() {
            grid.push(place(rest % n, n));
            rest /= n;
        }
        grid.push(1.0);
    }
    let dtype = cx.ty(0)?.dtype;
    let grid = cx.constant(&Tensor::from_f64(dtype, vec![points as usize, axes + 1], grid));
    let columns = cx.add(Transpose { perm: vec![0, 2, 1] }, &[theta])?;
    let out = cx.add(MatMul {}, &[grid, columns])?;
    let mut shape = vec![cx.type_of(theta).shape[0].clone()];
    shape.extend(spatial.iter().map(|&d| Dim::new(d)));
    shape.push(Dim::from(axes));
    Ok(vec![cx.reshape(out, shape)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{assert_close, random, run, try_run};

    /// The grid whose samples are the elements of an `h` by `w` image themselves.
    fn identity(h: usize, w: usize, align: bool) -> Tensor {
        let at = |i: usize, n: usize| match align {
            true if n == 1 => 0.0,
            true => 2.0 * i as f32 / (n - 1) as f32 - 1.0,
            false => (2 * i + 1) as f32 / n as f32 - 1.0,
        };
        let points = (0..h).flat_map(|y| (0..w).flat_map(move |x| [at(x, w), at(y, h)])).collect();
        Tensor::from_vec(vec![1, h, w, 2], points)
    }

    #[test]
    fn the_elements_own_places_give_them_back() {
        let x = random(&[1, 2, 3, 5], 1);
        for &mode in SampleMode::ALL {
            for &padding in SamplePadding::ALL {
                for align_corners in [false, true] {
                    let got = run(GridSample { mode, padding, align_corners }, &[&x, &identity(3, 5, align_corners)]);
                    assert_close(&got, &x, 1e-5);
                }
            }
        }
    }

    #[test]
    fn outside_is_what_the_padding_says() {
        let x = Tensor::from_vec(vec![1, 1, 1, 4], vec![1.0f32, 2.0, 3.0, 4.0]);
        // Element 4.5 to the right of the first, and far away.
        let grid = Tensor::from_vec(vec![1, 1, 2, 2], vec![1.5f32, 0.0, 1e9, 0.0]);
        let of = |mode, padding| run(GridSample { mode, padding, align_corners: false }, &[&x, &grid]).to_f64_vec();
        assert_eq!(of(SampleMode::Linear, SamplePadding::Zeros), [0.0, 0.0]);
        assert_eq!(of(SampleMode::Linear, SamplePadding::Border), [4.0, 4.0]);
        assert_eq!(of(SampleMode::Linear, SamplePadding::Reflection)[0], 3.5);
        // Half an element beyond the last: the taps are 3, 4, and twice what the border gives.
        let grid = Tensor::from_vec(vec![1, 1, 2, 2], vec![1.0f32, 0.0, -1e9, 0.0]);
        let op = GridSample { mode: SampleMode::Cubic, padding: SamplePadding::Border, align_corners: false };
        let got = run(op, &[&x, &grid]);
        assert_close(&got, &Tensor::from_vec(vec![1, 1, 1, 2], vec![4.09375f32, 1.0]), 1e-6);
        assert!(try_run(GridSample::default(), &[&x, &random(&[1, 1, 2, 3], 1)]).is_err());
    }
}
