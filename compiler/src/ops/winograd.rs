//! Convolution by Winograd's minimal filtering: the transforms around a batched matrix product.
//!
//! F(m, 3) computes m x m neighbouring results of a 3x3 convolution of step 1 from t x t elements, t = m + 2, with t *
//! t products instead of 9 * m * m for each pair of channels: `Y = A ((G w G') * (B x B')) A'`, where the products of
//! all tiles and channels are t * t matrix products. Source of the method: Lavin and Gray, Fast Algorithms for
//! Convolutional Neural Networks (arXiv:1509.09308); of the points: Barabasz et al., Error Analysis and Improving the
//! Accuracy of Winograd Convolution (arXiv:1803.10986). The sums of a tile have more roundings than those of the
//! convolution. With 256 channels of normal data in f32, the largest error relative to the results' root mean square is
//! about 2e-6 for F(2, 3) and 1e-5 for F(4, 3); the convolution itself has 1e-6 (`tests::errors_are_as_stated`).
//!
//! Tiles that reach beyond the result are computed completely. The pass `winograd` makes these ops; no importer does.

use super::data_layout::DataLayout;
use super::window::tidy;
use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::TensorType;
use crate::int::Int;
use crate::ops::onnx::OnnxImport;
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{Combiner, Cond, Expr, UnaryOp};

/// ONNX importers: none makes these ops.
pub const ONNX: &[OnnxImport] = &[];

attr_struct! {
    /// Data `[n, h, w, c]` (or `[n, c, h, w]`) as transformed tiles `[t, t, tiles, c]` (or `[t, t, c, tiles]`), t =
    /// tile + 2. The tiles of an image are in row order; if they are the innermost dimension, zeros may follow the last
    /// one.
    pub struct WinogradInput("winograd_input") {
        /// Results of a tile along each axis: 2 or 4.
        pub tile: i64 = 4,
        /// Padding of the convolution: both beginnings, then both ends.
        pub pads: Vec<i64> = vec![0, 0, 0, 0],
        /// Layout of the data.
        pub layout: DataLayout = DataLayout::Nchw,
    }
}
attr_struct! {
    /// Weights `[out, c, 3, 3]` as transformed ones `[t, t, c, out]`, or `[t, t, out, c]` for data in NCHW.
    pub struct WinogradWeights("winograd_weights") {
        /// Results of a tile along each axis: 2 or 4.
        pub tile: i64 = 4,
        /// Layout of the data that they meet.
        pub layout: DataLayout = DataLayout::Nchw,
    }
}
attr_struct! {
    /// Products `[t, t, tiles, c]` (or `[t, t, c, tiles]`) as results `[n, height, width, c]` (or `[n, c, height,
    /// width]`), with an optional bias `[c]`.
    pub struct WinogradOutput("winograd_output") {
        /// Results of a tile along each axis: 2 or 4.
        pub tile: i64 = 4,
        /// Rows of the result.
        pub height: Int = Int::new(0),
        /// Columns of the result.
        pub width: Int = Int::new(0),
        /// Layout of the result.
        pub layout: DataLayout = DataLayout::Nchw,
    }
}

/// A matrix with constant coefficients, by rows.
type Matrix = &'static [&'static [f64]];

/// The matrices of F(m, 3).
struct Transform {
    input: Matrix,
    weights: Matrix,
    output: Matrix,
}

/// Elements of a vector.
const VECTOR: i64 = 4;

const TWO: Transform = Transform {
    input: &[&[1., 0., -1., 0.], &[0., 1., 1., 0.], &[0., -1., 1., 0.], &[0., 1., 0., -1.]],
    weights: &[&[1., 0., 0.], &[0.5, 0.5, 0.5], &[0.5, -0.5, 0.5], &[0., 0., 1.]],
    output: &[&[1., 1., 1., 0.], &[0., 1., -1., -1.]],
};
/// With the points 0, 3/4, -3/4, 3/2, -3/2 and infinity: the largest error is a quarter of that with whole numbers, and
/// the coefficients for data and products are exact in f32.
const FOUR: Transform = Transform {
    input: &[
        &[81. / 64., 0., -45. / 16., 0., 1., 0.],
        &[0., -27. / 16., -9. / 4., 3. / 4., 1., 0.],
        &[0., 27. / 16., -9. / 4., -3. / 4., 1., 0.],
        &[0., -27. / 32., -9. / 16., 3. / 2., 1., 0.],
        &[0., 27. / 32., -9. / 16., -3. / 2., 1., 0.],
        &[0., 81. / 64., 0., -45. / 16., 0., 1.],
    ],
    weights: &[
        &[64. / 81., 0., 0.],
        &[-128. / 243., -32. / 81., -8. / 27.],
        &[-128. / 243., 32. / 81., -8. / 27.],
        &[32. / 243., 16. / 81., 8. / 27.],
        &[32. / 243., -16. / 81., 8. / 27.],
        &[0., 0., 1.],
    ],
    output: &[
        &[1., 1., 1., 1., 1., 0.],
        &[0., 3. / 4., -3. / 4., 3. / 2., -3. / 2., 0.],
        &[0., 9. / 16., 9. / 16., 9. / 4., 9. / 4., 0.],
        &[0., 27. / 64., -27. / 64., 27. / 8., -27. / 8., 1.],
    ],
};

fn transform(tile: i64) -> OpResult<&'static Transform> {
    match tile {
        2 => Ok(&TWO),
        4 => Ok(&FOUR),
        _ => Err(format!("tile is {tile}, needs 2 or 4").into()),
    }
}

fn channels_last(layout: DataLayout) -> OpResult<bool> {
    match layout {
        DataLayout::Nhwc => Ok(true),
        DataLayout::Nchw => Ok(false),
        _ => Err(format!("layout {} has no tiles", layout.title()).into()),
    }
}

/// The coefficient at `[row, column]`, whose index picks it.
fn coefficient(m: Matrix, row: &Int, column: &Int, dtype: DType) -> Expr {
    let all = m.iter().enumerate().flat_map(|(i, r)| r.iter().enumerate().map(move |(j, &c)| (i, j, c)));
    all.filter(|x| x.2 != 1.0 && x.2 != 0.0)
        .fold(Expr::constant(1.0, dtype), |rest, (i, j, c)| at(row, i, column, j, Expr::constant(c, dtype), rest))
}

/// `value` at `[i, j]`, elsewhere `rest`.
fn at(row: &Int, i: usize, column: &Int, j: usize, value: Expr, rest: Expr) -> Expr {
    Expr::guarded(vec![Cond::eq(row.clone(), i as i64), Cond::eq(column.clone(), j as i64)], value, rest)
}

/// `m[row, column] * value`, and 0 where the coefficient is 0 whatever the value.
fn weighted(m: Matrix, row: &Int, column: &Int, value: Expr, dtype: DType) -> Expr {
    let zeros = m.iter().enumerate().flat_map(|(i, r)| r.iter().enumerate().map(move |(j, &c)| (i, j, c)));
    let product = coefficient(m, row, column, dtype) * value;
    zeros
        .filter(|x| x.2 == 0.0)
        .fold(product, |rest, (i, j, _)| at(row, i, column, j, Expr::constant(0.0, dtype), rest))
}

/// The sum of `row[j] * value(j)`, written with the operations that it takes.
fn combination(row: &[f64], value: &dyn Fn(usize) -> Expr, dtype: DType) -> Expr {
    let terms = row.iter().enumerate().filter(|(_, c)| **c != 0.0);
    let sum = terms.fold(None, |sum: Option<Expr>, (j, &c)| {
        let size = if c.abs() == 1.0 { value(j) } else { Expr::constant(c.abs(), dtype) * value(j) };
        Some(match sum {
            Some(s) if c > 0.0 => s + size,
            Some(s) => s - size,
            None if c > 0.0 => size,
            None => Expr::unary(UnaryOp::Neg, size),
        })
    });
    sum.unwrap_or_else(|| Expr::constant(0.0, dtype))
}

/// Row `row` of the matrix times the values.
fn row_times(m: Matrix, row: &Int, value: &dyn Fn(usize) -> Expr, dtype: DType) -> Expr {
    let rows = m.iter().enumerate().rev();
    let all = rows.fold(None, |rest, (i, r)| {
        let own = combination(r, value, dtype);
        Some(match rest {
            None => own,
            Some(rest) => Expr::guarded(vec![Cond::eq(row.clone(), i as i64)], own, rest),
        })
    });
    all.unwrap_or_else(|| Expr::constant(0.0, dtype))
}

/// Tiles along an axis of so many results.
fn tiles(results: &Int, tile: i64) -> Int {
    tidy(&results.ceil_div(tile))
}

/// The number of tiles for `images` with `each` tiles. If tiles are innermost, it is rounded up to whole vectors if
/// that adds at most an eighth, so that rows are aligned (rows of 49 would begin at any word).
fn count(images: &Int, each: Int, layout: DataLayout) -> OpResult<Int> {
    let count = tidy(&(images.clone() * &each));
    let (n, each) = match (count.as_const(), each.as_const()) {
        (Some(n), Some(each)) if !channels_last(layout)? => (n, each),
        _ => return Ok(count),
    };
    let whole = (n + VECTOR - 1) / VECTOR * VECTOR;
    // Fewer zeros than an image has tiles: how many images they are can be told.
    Ok(if each >= VECTOR && (whole - n) * 8 <= n { Int::new(whole) } else { count })
}

fn below_one(d: &Int) -> bool {
    d.as_const().is_some_and(|d| d < 1)
}

impl WinogradInput {
    /// The type of the tiles of such data.
    ///
    /// # Errors
    /// When the data are no images.
    pub fn result(&self, x: &TensorType) -> OpResult<TensorType> {
        self.layout.check(x)?;
        if x.rank() != 4 || !x.dtype.is_float() {
            return Err(format!("data is {x:?}, needs images of a float type").into());
        }
        let t = Int::new(transform(self.tile)?.input.len() as i64);
        let [h, w] = self.results(&x.shape)?;
        let count = count(&x.shape[0], tiles(&h, self.tile) * tiles(&w, self.tile), self.layout)?;
        let channels = self.layout.channels(&x.shape);
        let inner = if channels_last(self.layout)? { [count, channels] } else { [channels, count] };
        Ok(TensorType::new(x.dtype, [t.clone(), t].into_iter().chain(inner).collect()))
    }
    /// Rows and columns of the convolution's result.
    fn results(&self, data: &[Int]) -> OpResult<[Int; 2]> {
        let [top, left, bottom, right] = self.pads[..] else {
            return Err(format!("pads are {:?}, needs four", self.pads).into());
        };
        let spatial = self.layout.spatial(data);
        let result = |d: &Int, pads: i64| tidy(&(d.clone() + (pads - 2)));
        let (h, w) = (result(&spatial[0], top + bottom), result(&spatial[1], left + right));
        if below_one(&h) || below_one(&w) || self.pads.iter().any(|p| *p < 0) {
            return Err(format!("3x3 windows with pads {:?} do not fit data {data:?}", self.pads).into());
        }
        Ok([h, w])
    }
}

impl Op for WinogradInput {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn images(&self) -> Option<(DataLayout, Vec<usize>, Vec<usize>)> {
        Some((self.layout, vec![0], vec![]))
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        self.result(cx.require(0)?).map(|t| vec![t])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let (xs, out, last) = (cx.shape(x), cx.output_type(0).clone(), channels_last(self.layout)?);
        let (matrix, acc) = (transform(self.tile)?.input, out.dtype.accumulator());
        let [h, w] = self.results(&xs)?;
        let (down, across) = (tiles(&h, self.tile), tiles(&w, self.tile));
        let side = [Int::new(matrix.len() as i64)];
        let each = down.clone() * &across;
        let has_zeros = out.shape[if last { 2 } else { 3 }] != tidy(&(xs[0].clone() * &each));
        let rows = cx.reduce("rows", &out.shape, acc, &side, Combiner::Sum, |o, r| {
            let (tile, channel) = if last { (&o[2], &o[3]) } else { (&o[3], &o[2]) };
            let corner = [tile.div(&across).rem(&down), tile.rem(&across)];
            let (spatial, image) = (self.layout.spatial(&xs), tile.div(&each));
            let (mut at, mut conds) = (Vec::with_capacity(2), vec![]);
            if has_zeros {
                conds.push(Cond::lt(image.clone(), xs[0].clone()));
            }
            for (d, inside) in [&r[0], &o[1]].into_iter().enumerate() {
                let i = corner[d].clone() * self.tile + inside - self.pads[d];
                if self.pads[d] > 0 {
                    conds.push(Cond::ge(i.clone(), 0));
                }
                conds.push(Cond::lt(i.clone(), spatial[d].clone()));
                at.push(i);
            }
            let index = self.layout.with_spatial(&own_index(last, image, channel), at);
            let value = Expr::load(x, index).cast(out.dtype, acc);
            weighted(matrix, &o[0], &r[0], Expr::guarded(conds, value, Expr::constant(0.0, acc)), acc)
        });
        let result = cx.compute("", &out.shape, out.dtype, |o| {
            let value = |b: usize| Expr::load(rows, vec![o[0].clone(), Int::from(b), o[2].clone(), o[3].clone()]);
            row_times(matrix, &o[1], &value, acc).cast(acc, out.dtype)
        });
        cx.output(0, result);
        Ok(())
    }
}

/// An index of images at their first pixel.
fn own_index(last: bool, image: Int, channel: &Int) -> Vec<Int> {
    let zero = || Int::new(0);
    if last { vec![image, zero(), zero(), channel.clone()] } else { vec![image, channel.clone(), zero(), zero()] }
}

impl Op for WinogradWeights {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        self.result(cx.require(0)?).map(|t| vec![t])
    }
    fn has_compute(&self) -> bool {
        false
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        Some(self.transformed(inputs.first().and_then(Option::as_ref)?).map(|t| vec![t]))
    }
}

impl WinogradWeights {
    /// The type of such weights when transformed.
    ///
    /// # Errors
    /// When they are no weights of 3x3 windows in f32.
    pub fn result(&self, w: &TensorType) -> OpResult<TensorType> {
        if w.rank() != 4 || !w.shape[2].is(3) || !w.shape[3].is(3) || w.dtype != DType::F32 {
            return Err(format!("weights are {w:?}, needs f32[out, c, 3, 3]").into());
        }
        let t = Int::new(transform(self.tile)?.input.len() as i64);
        let (out, c) = (w.shape[0].clone(), w.shape[1].clone());
        let inner = if channels_last(self.layout)? { [c, out] } else { [out, c] };
        Ok(TensorType::new(w.dtype, [t.clone(), t].into_iter().chain(inner).collect()))
    }
    fn transformed(&self, w: &Tensor) -> OpResult<Tensor> {
        let (matrix, last) = (transform(self.tile)?.weights, channels_last(self.layout)?);
        let [out, c, 3, 3] = w.shape()[..] else {
            return Err(format!("weights are {:?}, needs [out, c, 3, 3]", w.shape()).into());
        };
        let (t, values) = (matrix.len(), w.to_f32_vec());
        let mut made = vec![0f32; t * t * out * c];
        for o in 0..out {
            for i in 0..c {
                let own = &values[(o * c + i) * 9..][..9];
                let place = if last { i * out + o } else { o * c + i };
                for (row, g) in matrix.iter().enumerate() {
                    let half: [f64; 3] =
                        std::array::from_fn(|b| (0..3).map(|a| g[a] * f64::from(own[a * 3 + b])).sum::<f64>());
                    for (column, g) in matrix.iter().enumerate() {
                        let sum: f64 = (0..3).map(|b| g[b] * half[b]).sum();
                        made[(row * t + column) * out * c + place] = sum as f32;
                    }
                }
            }
        }
        let shape = if last { vec![t, t, c, out] } else { vec![t, t, out, c] };
        Ok(Tensor::from_vec(shape, made))
    }
}

impl Op for WinogradOutput {
    fn arity(&self) -> (usize, usize) {
        (1, 2)
    }
    fn images(&self) -> Option<(DataLayout, Vec<usize>, Vec<usize>)> {
        Some((self.layout, vec![], vec![0]))
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let m = cx.require(0)?;
        let t = transform(self.tile)?.input.len() as i64;
        if m.rank() != 4 || !m.shape[0].is(t) || !m.shape[1].is(t) || !m.dtype.is_float() {
            return Err(format!("products are {m:?}, needs [{t}, {t}, tiles, c] of a float type").into());
        }
        if below_one(&self.height) || below_one(&self.width) {
            return Err(format!("the result is {}x{}", self.height, self.width).into());
        }
        let images = self.images(&m.shape)?;
        let channels = self.tiles_and_channels(&m.shape)?.1;
        super::conv::check_vector(cx, 1, "bias", channels)?;
        let spatial = vec![self.height.clone(), self.width.clone()];
        Ok(vec![TensorType::new(m.dtype, self.layout.shape(&images, channels, spatial)?)])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let m = cx.require(0)?;
        let (shape, out, last) = (cx.shape(m), cx.output_type(0).clone(), channels_last(self.layout)?);
        let (matrix, acc, dtype) = (transform(self.tile)?.output, out.dtype.accumulator(), cx.dtype(m));
        let side = [Int::from(shape[0].as_const().unwrap_or(0) as usize)];
        let own = vec![Int::new(self.tile), shape[1].clone(), shape[2].clone(), shape[3].clone()];
        let rows = cx.reduce("rows", &own, acc, &side, Combiner::Sum, |o, r| {
            let index = vec![r[0].clone(), o[1].clone(), o[2].clone(), o[3].clone()];
            weighted(matrix, &o[0], &r[0], Expr::load(m, index).cast(dtype, acc), acc)
        });
        let (down, across) = (tiles(&self.height, self.tile), tiles(&self.width, self.tile));
        let bias = cx.input(1).map(|b| (b, cx.dtype(b)));
        let result = cx.compute("", &out.shape, out.dtype, |o| {
            let (at, channel) = (self.layout.spatial(o), self.layout.channel(o));
            let tile = (o[0].clone() * &down + at[0].div(self.tile)) * &across + at[1].div(self.tile);
            let row = at[0].rem(self.tile);
            let value = |b: usize| {
                let inner = if last { [&tile, &channel] } else { [&channel, &tile] };
                let index = [&row, &Int::from(b)].into_iter().chain(inner).cloned().collect();
                Expr::load(rows, index)
            };
            let sum = row_times(matrix, &at[1].rem(self.tile), &value, acc);
            let sum = match bias {
                Some((b, from)) => sum + Expr::load(b, vec![channel.clone()]).cast(from, acc),
                None => sum,
            };
            sum.cast(acc, out.dtype)
        });
        cx.output(0, result);
        Ok(())
    }
}

impl WinogradOutput {
    /// How many images products of this shape are.
    ///
    /// # Errors
    /// Tiles that are no whole images.
    pub fn images(&self, products: &[Int]) -> OpResult<Int> {
        let made = self.tiles_and_channels(products)?.0;
        let each = tiles(&self.height, self.tile) * tiles(&self.width, self.tile);
        let images = tidy(&made.div(&each));
        if made.as_const().is_some() && each.as_const().is_some() && count(&images, each, self.layout)? != *made {
            return Err(format!("{made} tiles are no images of {}x{}", self.height, self.width).into());
        }
        Ok(images)
    }
    fn tiles_and_channels<'a>(&self, shape: &'a [Int]) -> OpResult<(&'a Int, &'a Int)> {
        Ok(if channels_last(self.layout)? { (&shape[2], &shape[3]) } else { (&shape[3], &shape[2]) })
    }
}

#[cfg(test)]
mod tests;
