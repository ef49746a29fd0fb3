//! Interpolation to another size along axes.
//!
//! Source coordinates are exact fractions `(a * i + b) / c` of the result index `i`, so that the nearest source index
//! is integer arithmetic (the same on every device) and its bounds can be proved. Scales, which ONNX gives as f32, are
//! taken as the simplest fractions that round to them.

mod antialias;
mod coordinate;
mod import;
pub use import::ONNX;

use coordinate::{Coordinate, simple_fraction};

use super::permute::{PermutedOp, permute};
use super::reshape::loop_bounds;
use super::unary::math_dtype;
use super::window::DataLayout;
use super::{InferContext, LayoutRule, Op, OpRef, OpResult};
use crate::dtype::DType;
use crate::graph::TensorType;
use crate::int::{Bounds, Dim, Int, simplify};
use crate::ops::onnx::{ExportContext, OnnxAttr};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{BufferId, Cond, Expr};
use crate::{attr_enum, attr_struct};

attr_enum! {
    /// How elements between source elements are made.
    pub enum ResizeMode {
        /// The nearest source element.
        Nearest = "nearest",
        /// Linear in each axis.
        Linear = "linear",
        /// Cubic convolution in each axis.
        Cubic = "cubic",
    }
}

attr_enum! {
    /// Which source coordinate a result index stands for.
    pub enum Coordinates {
        /// `(i + 0.5) / scale - 0.5`.
        HalfPixel = "half_pixel",
        /// As half pixel, with both centres aligned where the size was rounded.
        HalfPixelSymmetric = "half_pixel_symmetric",
        /// As half pixel, but 0 for a result of size 1.
        PytorchHalfPixel = "pytorch_half_pixel",
        /// The corner elements' centres coincide.
        AlignCorners = "align_corners",
        /// `i / scale`.
        Asymmetric = "asymmetric",
        /// `(i + 0.5) / scale`.
        TfHalfPixelForNn = "tf_half_pixel_for_nn",
        /// Within the region of interest, whose corners coincide with the result's.
        TfCropAndResize = "tf_crop_and_resize",
    }
}

attr_enum! {
    /// Which source element is nearest.
    pub enum NearestMode {
        /// Round, halves down.
        RoundPreferFloor = "round_prefer_floor",
        /// Round, halves up.
        RoundPreferCeil = "round_prefer_ceil",
        /// Round down.
        Floor = "floor",
        /// Round up.
        Ceil = "ceil",
    }
}

attr_struct! {
    /// Resizes to `sizes`, or by `scales` when there are no sizes; with both, the scales only place the source
    /// coordinates. Every list has one entry per dimension (`roi` two: all starts, then all ends).
    pub struct Resize("resize") {
        /// Interpolation.
        pub mode: ResizeMode = ResizeMode::Nearest,
        /// Source coordinates.
        pub coordinates: Coordinates = Coordinates::HalfPixel,
        /// Rounding of nearest.
        pub nearest: NearestMode = NearestMode::RoundPreferFloor,
        /// Coefficient of the cubic kernel.
        pub cubic_coeff_a: f64 = -0.75,
        /// Whether cubic weights of elements outside count as 0 (else the edge repeats).
        pub exclude_outside: bool = false,
        /// Whether linear and cubic kernels are stretched over all source elements where the result is smaller.
        pub antialias: bool = false,
        /// Value outside the source for `tf_crop_and_resize`.
        pub extrapolation_value: f64 = 0.0,
        /// Result size over operand size of each dimension.
        pub scales: Vec<f64> = vec![],
        /// Result dims.
        pub sizes: Vec<Int> = vec![],
        /// Region of interest, as fractions of each dimension.
        pub roi: Vec<f64> = vec![],
        /// Layout of the data, for the layout pass; the lists above are in the order of the dimensions.
        pub layout: DataLayout = DataLayout::Nchw,
    }
}

/// Source positions along one axis, and their weights (`None` for 1).
struct Taps {
    axis: usize,
    taps: Vec<(Int, Option<Expr>)>,
}

impl Resize {
    fn check(&self, rank: usize) -> OpResult<()> {
        let fits = |n: usize| n == 0 || n == rank;
        if !fits(self.scales.len()) || !fits(self.sizes.len()) || (self.scales.is_empty() && self.sizes.is_empty()) {
            return Err(format!("{} scales and {} sizes for rank {rank}", self.scales.len(), self.sizes.len()).into());
        }
        if let Some(s) = self.scales.iter().find(|s| !(1e-6..=1e6).contains(*s)) {
            return Err(format!("scale {s} is not a positive number of reasonable size").into());
        }
        if let Some(r) = self.roi.iter().find(|r| !(-1e3..=1e3).contains(*r)) {
            return Err(format!("{r} in the region of interest is no fraction").into());
        }
        if let Some(s) = self.sizes.iter().find(|s| s.as_const().is_some_and(|c| c < 0)) {
            return Err(format!("negative size {s}").into());
        }
        if self.coordinates == Coordinates::TfCropAndResize && self.roi.len() != 2 * rank {
            return Err(format!("{} values in the region of interest for rank {rank}", self.roi.len()).into());
        }
        Ok(())
    }
    fn result_dims(&self, shape: &[Dim]) -> OpResult<Vec<Dim>> {
        self.check(shape.len())?;
        if !self.sizes.is_empty() {
            return Ok(self.sizes.clone());
        }
        let scaled = |(d, &s): (&Dim, &f64)| match d.as_const() {
            Some(d) => Dim::new((d as f64 * s).floor() as i64),
            None => {
                let (p, q) = simple_fraction(s);
                simplify(&(d.clone() * p).div(q), &Bounds::new())
            }
        };
        Ok(shape.iter().zip(&self.scales).map(scaled).collect())
    }
    /// Result size over operand size, as a fraction.
    fn scale(&self, axis: usize, from: &Dim, to: &Dim) -> (Int, Int) {
        match self.scales.get(axis) {
            Some(&s) => {
                let (p, q) = simple_fraction(s);
                (Int::new(p), Int::new(q))
            }
            None => (to.clone(), from.clone()),
        }
    }
    /// True when the kernel depends on the scale.
    fn stretches(&self) -> bool {
        self.antialias && self.mode != ResizeMode::Nearest && self.coordinates != Coordinates::TfCropAndResize
    }
    /// True when the axis is left as it is.
    fn keeps(&self, axis: usize, from: &Dim, to: &Dim) -> bool {
        let whole = self.coordinates != Coordinates::TfCropAndResize
            || (self.roi[axis] == 0.0 && self.roi[axis + self.roi.len() / 2] == 1.0);
        let (p, q) = self.scale(axis, from, to);
        from == to && p == q && whole
    }
    /// The source coordinate of a result index, with scale `p / q`, operand size `from` and result size `to`.
    fn coordinate(&self, axis: usize, from: &Dim, to: &Dim) -> OpResult<Coordinate> {
        let (p, q) = self.scale(axis, from, to);
        let zero = || Coordinate::new(Int::new(0), Int::new(0), Int::new(1));
        let half_pixel = |b: Int| Coordinate::new(q.clone() * 2, b, p.clone() * 2);
        Ok(match self.coordinates {
            Coordinates::PytorchHalfPixel if to.is(1) => zero(),
            Coordinates::HalfPixel | Coordinates::PytorchHalfPixel => half_pixel(q.clone() - &p),
            Coordinates::HalfPixelSymmetric => {
                let offset = from.clone() * &p - to.clone() * &q;
                half_pixel(q.clone() - &p + offset)
            }
            Coordinates::Asymmetric => Coordinate::new(q.clone(), Int::new(0), p.clone()),
            Coordinates::TfHalfPixelForNn => half_pixel(q.clone()),
            Coordinates::AlignCorners => {
                // The result's exact size is from * p / q, which need not be an integer. A result of one element is at
                // 0.
                let (last, q) = match self.scales.get(axis) {
                    Some(_) => (simplify(&(p.clone() * from - &q), &Bounds::new()), q),
                    None => (to.clone() - 1, Int::new(1)),
                };
                match last.as_const() {
                    Some(c) if c <= 0 => zero(),
                    Some(_) => Coordinate::new((from.clone() - 1) * &q, Int::new(0), last),
                    None => Coordinate::new((from.clone() - 1) * &q, Int::new(0), last.max(1)),
                }
            }
            Coordinates::TfCropAndResize => self.crop(axis, from, &p, &q)?,
        })
    }
    fn crop(&self, axis: usize, from: &Dim, p: &Int, q: &Int) -> OpResult<Coordinate> {
        let known = |d: &Int| d.as_const().map(i128::from).ok_or("cropping needs constant sizes");
        let (from, p, q) = (known(from)?, known(p)?, known(q)?);
        let (start, end) = (self.roi[axis], self.roi[axis + self.roi.len() / 2]);
        let wide = |f: (i64, i64)| (f.0 as i128, f.1 as i128);
        let ((s, sd), (t, td)) = (wide(simple_fraction(start)), wide(simple_fraction(end - start)));
        // source = start * (from - 1) + i * span * (from - 1) / (from * p / q - 1)
        let last = p * from - q;
        let all = if last > 0 {
            Coordinate::constant(t * (from - 1) * q * sd, s * (from - 1) * td * last, td * last * sd)
        } else {
            Coordinate::constant(0, (from - 1) * (t * sd + 2 * s * td), 2 * td * sd)
        };
        all.ok_or_else(|| "the region of interest is too fine".into())
    }
    fn taps(&self, axis: usize, at: &Coordinate, i: &Int, from: &Dim, t: DType, bounds: &Bounds) -> Taps {
        let n = simplify(&at.at(i), bounds);
        let c = &at.c;
        let inside = |e: Int| simplify(&e.max(0).min(from.clone() - 1), bounds);
        if self.mode == ResizeMode::Nearest {
            let index = match self.nearest {
                NearestMode::Floor => n.div(c),
                NearestMode::Ceil => n.ceil_div(c),
                NearestMode::RoundPreferFloor => (n * 2 + c - 1).div(c.clone() * 2),
                NearestMode::RoundPreferCeil => (n * 2 + c).div(c.clone() * 2),
            };
            return Taps { axis, taps: vec![(inside(index), None)] };
        }
        let first = simplify(&n.div(c), bounds);
        let rest = Expr::Index(simplify(&n.rem(c), bounds), t);
        let fraction = match c.as_const() {
            Some(c) => rest * Expr::constant(1.0 / c as f64, t),
            None => rest / Expr::Index(c.clone(), t),
        };
        let one = || Expr::constant(1.0, t);
        if self.mode == ResizeMode::Linear {
            let weights = [one() - fraction.clone(), fraction];
            let tap = |(k, w)| (inside(first.clone() + k as i64), Some(w));
            return Taps { axis, taps: weights.into_iter().enumerate().map(tap).collect() };
        }
        let other = one() - fraction.clone();
        let a = self.cubic_coeff_a;
        let mut weights = [
            cubic_outer(&fraction, a, t),
            cubic_inner(&fraction, a, t),
            cubic_inner(&other, a, t),
            cubic_outer(&other, a, t),
        ];
        let place = |k: usize| first.clone() + (k as i64 - 1);
        if self.exclude_outside {
            let mut sum = Expr::constant(0.0, t);
            for (k, w) in weights.iter_mut().enumerate() {
                let conds = vec![Cond::ge(place(k), 0), Cond::lt(place(k), from)];
                *w = Expr::guarded(conds, w.clone(), Expr::constant(0.0, t));
                sum = sum + w.clone();
            }
            weights = weights.map(|w| w / sum.clone());
        }
        Taps { axis, taps: weights.into_iter().enumerate().map(|(k, w)| (inside(place(k)), Some(w))).collect() }
    }
}

/// Weight of the elements beside the coordinate: `((a + 2) x - (a + 3)) x^2 + 1` at distance `x` below 1.
fn cubic_inner(x: &Expr, a: f64, t: DType) -> Expr {
    let k = |v: f64| Expr::constant(v, t);
    (k(a + 2.0) * x.clone() - k(a + 3.0)) * x.clone() * x.clone() + k(1.0)
}

/// `a (x^3 - 5 x^2 + 8 x - 4)` at distance `x` of 1 to 2.
fn cubic_beyond(x: &Expr, a: f64, t: DType) -> Expr {
    cubic_outer(&(x.clone() - Expr::constant(1.0, t)), a, t)
}

/// Weight of the elements beyond: `a (y^3 - 5 y^2 + 8 y - 4)` at distance `y = x + 1`, which is `a x (x - 1)^2`.
fn cubic_outer(x: &Expr, a: f64, t: DType) -> Expr {
    let rest = x.clone() - Expr::constant(1.0, t);
    Expr::constant(a, t) * x.clone() * rest.clone() * rest
}

/// The weighted sum over all combinations of taps.
fn sample(x: BufferId, index: &mut Vec<Int>, axes: &[Taps], from: DType, t: DType) -> Expr {
    let Some((first, rest)) = axes.split_first() else {
        return Expr::load(x, index.clone()).cast(from, t);
    };
    let mut sum: Option<Expr> = None;
    for (at, weight) in &first.taps {
        index[first.axis] = at.clone();
        let value = sample(x, index, rest, from, t);
        let term = match weight {
            Some(w) => value * w.clone(),
            None => value,
        };
        sum = Some(match sum {
            Some(s) => s + term,
            None => term,
        });
    }
    sum.expect("at least one tap")
}

impl Op for Resize {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        Ok(vec![TensorType::new(x.dtype, self.result_dims(&x.shape)?)])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let (ty, shape) = (cx.output_type(0).clone(), cx.shape(x));
        self.check(shape.len())?;
        let t = match self.mode {
            ResizeMode::Nearest => ty.dtype,
            _ if ty.dtype.is_float() => math_dtype(ty.dtype),
            _ => DType::F32,
        };
        if self.stretches() {
            return antialias::compute(self, cx, t);
        }
        let mut axes = Vec::new();
        for (axis, (from, to)) in shape.iter().zip(&ty.shape).enumerate() {
            if !self.keeps(axis, from, to) {
                axes.push((axis, self.coordinate(axis, from, to)?));
            }
        }
        let out = cx.compute("", &ty.shape, ty.dtype, |i| {
            let bounds = loop_bounds(i, &ty.shape);
            let taps: Vec<Taps> =
                axes.iter().map(|(axis, at)| self.taps(*axis, at, &i[*axis], &shape[*axis], t, &bounds)).collect();
            let value = sample(x, &mut i.to_vec(), &taps, ty.dtype, t).cast(t, ty.dtype);
            if self.coordinates != Coordinates::TfCropAndResize {
                return value;
            }
            let mut inside = Vec::new();
            for (axis, at) in &axes {
                let n = simplify(&at.at(&i[*axis]), &bounds);
                inside.push(Cond::ge(&n, 0));
                inside.push(Cond::lt(n, (shape[*axis].clone() - 1) * &at.c + 1));
            }
            Expr::guarded(inside, value, Expr::constant(self.extrapolation_value, ty.dtype))
        });
        cx.output(0, out);
        Ok(())
    }
    fn layout(&self) -> Option<&dyn LayoutRule> {
        Some(self)
    }
    fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        self.check(perm.len()).ok()?;
        Some(PermutedOp::uniform(self.transposed(perm), perm, 1, 1))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let roi = match self.roi.is_empty() {
            true => String::new(),
            false => cx.constant(Tensor::from_f64(DType::F32, vec![self.roi.len()], self.roi.iter().copied())),
        };
        let mut inputs = vec![cx.input(0), roi];
        if self.sizes.is_empty() {
            let n = self.scales.len();
            inputs.push(cx.constant(Tensor::from_f64(DType::F32, vec![n], self.scales.iter().copied())));
        } else {
            inputs.push(String::new());
            inputs.push(cx.ints(&self.sizes)?);
        }
        let text = |s: &str| OnnxAttr::Str(s.into());
        let attrs = vec![
            ("mode", text(self.mode.name())),
            ("coordinate_transformation_mode", text(self.coordinates.name())),
            ("nearest_mode", text(self.nearest.name())),
            ("cubic_coeff_a", OnnxAttr::Float(self.cubic_coeff_a as f32)),
            ("exclude_outside", OnnxAttr::Int(self.exclude_outside as i64)),
            ("antialias", OnnxAttr::Int(self.antialias as i64)),
            ("extrapolation_value", OnnxAttr::Float(self.extrapolation_value as f32)),
        ];
        let outputs = cx.outputs.clone();
        cx.node("Resize", inputs, outputs, attrs);
        Ok(())
    }
}

impl Resize {
    /// The op for data `shape` in NCHW on packed data: the channels stay, so that the split axis is left alone.
    fn packed(&self, layout: DataLayout, block: i64, shape: &[Int]) -> OpResult<Resize> {
        let to = self.result_dims(shape)?;
        if !self.keeps(1, &shape[1], &to[1]) {
            return Err(format!("it resizes the channels, which {} splits", layout.title()).into());
        }
        let groups = layout.groups(&to[1]).ok_or_else(|| format!("{} channels do not divide by {block}", to[1]))?;
        let append = |v: &[f64], last: f64| if v.is_empty() { vec![] } else { [v, &[last]].concat() };
        let (starts, ends) = self.roi.split_at(self.roi.len() / 2);
        let mut sizes = self.sizes.clone();
        if !sizes.is_empty() {
            sizes[1] = groups;
            sizes.push(Int::new(block));
        }
        let roi = [append(starts, 0.0), append(ends, 1.0)].concat();
        Ok(Resize { scales: append(&self.scales, 1.0), sizes, roi, ..self.clone() })
    }
    /// The same op for an operand transposed by `perm`.
    fn transposed(&self, perm: &[usize]) -> Resize {
        let list = |v: &[f64]| if v.is_empty() { vec![] } else { permute(v, perm) };
        let (starts, ends) = self.roi.split_at(self.roi.len() / 2);
        Resize {
            scales: list(&self.scales),
            sizes: if self.sizes.is_empty() { vec![] } else { permute(&self.sizes, perm) },
            roi: [list(starts), list(ends)].concat(),
            ..self.clone()
        }
    }
}

impl LayoutRule for Resize {
    fn data_layout(&self) -> DataLayout {
        self.layout
    }
    fn operands_to_convert(&self) -> Vec<usize> {
        vec![0]
    }
    fn results_to_convert(&self) -> Vec<usize> {
        vec![0]
    }
    fn in_layout(&self, layout: DataLayout, cx: &InferContext<'_>) -> OpResult<OpRef> {
        let rank = self.scales.len().max(self.sizes.len());
        if rank != 4 || self.layout.block().is_some() {
            return Err(format!("it has {rank} sizes in {}", self.layout.title()).into());
        }
        let nchw = match self.layout {
            DataLayout::Nhwc => self.transposed(&[0, 3, 1, 2]),
            _ => self.clone(),
        };
        let op = match layout.block() {
            None if layout == DataLayout::Nhwc => nchw.transposed(&[0, 2, 3, 1]),
            None => nchw,
            Some(block) => nchw.packed(layout, block, &cx.require(0)?.shape)?,
        };
        Ok(Resize { layout, ..op }.into())
    }
}
