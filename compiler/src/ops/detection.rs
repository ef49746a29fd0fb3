//! Boxes and regions of object detectors. The sample positions of a region depend on data, so the host computes them.

use super::arg_reduce::ArgReduce;
use super::binary::{Add, And, Div, Equal, Greater, Less, Max, Min, Mul, Or, Sub};
use super::broadcast::Expand;
use super::control::Loop;
use super::counted::{Counted, CountedOperand, Counting, MOST_COUNTED};
use super::gather::{Gather, GatherElements};
use super::reduce::{Reduce, ReduceKind};
use super::search::compare_numbers;
use super::select::Where;
use super::slice::Slice;
use super::transpose::Transpose;
use super::{InferContext, Op, OpResult};
use crate::dtype::DType;
use crate::graph::{BuildError, TensorType, ValueId};
use crate::int::{Dim, Int};
use crate::name::Name;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::tensor::{Tensor, reserve};
use crate::{attr_enum, attr_struct};

attr_struct! {
    /// Batch, class and box number of all boxes that do not overlap a better box of their class. Operands: boxes
    /// `[batch, boxes, 4]`, scores `[batch, classes, boxes]`, and optional numbers: the most boxes per class, the
    /// overlap (intersection over union) above which the worse box is removed, and the score that a box must exceed.
    pub struct NonMaxSuppression("non_max_suppression") {
        /// Whether boxes are centre and size (x, y, width, height), or else two opposite corners (y, x, y, x).
        pub center_point_box: bool = false,
        /// Symbol for the number of boxes that stay.
        pub count: Name = Name::new("boxes"),
    }
}
impl Op for NonMaxSuppression {
    fn arity(&self) -> (usize, usize) {
        (2, 5)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (boxes, scores) = (cx.require(0)?, cx.require(1)?);
        let corners = boxes.rank() == 3 && boxes.shape[2].as_const().is_none_or(|n| n == 4);
        if !corners || scores.rank() != 3 || !boxes.dtype.is_float() || !scores.dtype.is_float() {
            return Err(format!("boxes {boxes:?} with scores {scores:?}").into());
        }
        Ok(vec![TensorType::new(DType::I64, vec![Dim::var(self.count), Int::new(3)])])
    }
    fn has_compute(&self) -> bool {
        false
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        let (boxes, scores) = (inputs[0].as_ref()?, inputs[1].as_ref()?);
        let number = |i: usize| inputs.get(i)?.as_ref()?.to_f64_vec().first().copied();
        let most = number(2).unwrap_or(0.0).max(0.0) as usize;
        Some(self.select(boxes, scores, most, number(3).unwrap_or(0.0), number(4)).map(|t| vec![t]))
    }
    fn positions(&self, _result: usize, operands: &[Option<&TensorType>]) -> Option<Dim> {
        operands.get(1)?.map(TensorType::numel)
    }
    fn defined_symbols(&self) -> Vec<Name> {
        vec![self.count]
    }
    fn counted(&self, c: &mut Counting<'_, '_>, operands: &[CountedOperand]) -> Option<Result<Counted, BuildError>> {
        let value = |i: usize| operands.get(i).and_then(|o| o.value);
        let (boxes, scores) = (value(0)?, value(1)?);
        let (&[batch, n, 4], &[batches, classes, scored]) = (&*c.shape(boxes)?, &*c.shape(scores)?) else {
            return None;
        };
        let most = value(2)?;
        // If the number is known only at run time, all boxes are allocated.
        let known = operands.get(2)?.constant.as_ref().and_then(|t| t.to_i64_vec().first().copied());
        let rounds = known.map_or(n, |k| usize::try_from(k).unwrap_or(0).min(n));
        let total = batch * classes * rounds;
        let fits = batch == batches && n == scored && (1..=MOST_ROUNDS).contains(&rounds);
        let suppression =
            Suppression { classes, rounds, shape: [batch, classes, n], center_point: self.center_point_box };
        let fits = fits && (1..=MOST_COUNTED).contains(&total);
        fits.then(|| suppression.build(c, (boxes, scores), (most, value(3), value(4))))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("NonMaxSuppression", vec![("center_point_box", OnnxAttr::Int(self.center_point_box as i64))]);
        Ok(())
    }
}
impl NonMaxSuppression {
    fn select(
        &self,
        boxes: &Tensor,
        scores: &Tensor,
        most: usize,
        overlap: f64,
        least: Option<f64>,
    ) -> OpResult<Tensor> {
        let (&[batch, n, 4], &[batches, classes, scored]) = (boxes.shape(), scores.shape()) else {
            return Err(format!("boxes {:?} with scores {:?}", boxes.shape(), scores.shape()).into());
        };
        if batch != batches || n != scored {
            return Err(format!("boxes {:?} with scores {:?}", boxes.shape(), scores.shape()).into());
        }
        let (corners, scores) = (self.corners(&boxes.to_f64_vec()), scores.to_f64_vec());
        let mut out = Vec::new();
        for b in 0..batch {
            for c in 0..classes {
                let of = |i: usize| scores[(b * classes + c) * n + i];
                let counts = |i: &usize| of(*i) > least.unwrap_or(TAKEN).max(TAKEN);
                let mut order: Vec<usize> = (0..n).filter(counts).collect();
                order.sort_by(|&i, &j| compare_numbers(of(j), of(i)).then(i.cmp(&j)));
                let mut kept: Vec<usize> = Vec::new();
                for i in order {
                    if kept.len() >= most {
                        break;
                    }
                    if kept.iter().all(|&k| common_share(&corners[b * n + k], &corners[b * n + i]) <= overlap) {
                        kept.push(i);
                    }
                }
                out.extend(kept.into_iter().flat_map(|i| [b as i64, c as i64, i as i64]));
            }
        }
        Ok(Tensor::from_vec(vec![out.len() / 3, 3], out))
    }
    /// Lowest and highest coordinates of each box.
    fn corners(&self, boxes: &[f64]) -> Vec<[f64; 4]> {
        let one = |v: &[f64]| match self.center_point_box {
            true => [v[0] - v[2] / 2.0, v[1] - v[3] / 2.0, v[0] + v[2] / 2.0, v[1] + v[3] / 2.0],
            false => [v[0].min(v[2]), v[1].min(v[3]), v[0].max(v[2]), v[1].max(v[3])],
        };
        boxes.chunks_exact(4).map(one).collect()
    }
}

/// The most boxes of a class that are found on a device, in as many rounds; more are for the host.
const MOST_ROUNDS: usize = 256;
/// The score of a removed box. A box whose score is NaN or at most this is never selected.
const TAKEN: f64 = f32::MIN as f64;

/// Suppression in rounds, in all classes and images at once: each takes the best box and removes boxes that overlap it.
struct Suppression {
    classes: usize,
    rounds: usize,
    /// Images, classes, boxes.
    shape: [usize; 3],
    center_point: bool,
}

impl Suppression {
    /// `most`, `overlap` and `least`: the operands for the largest number of boxes per class, the overlap above which a
    /// box is removed, and the least score.
    fn build(
        &self,
        c: &mut Counting<'_, '_>,
        (boxes, scores): (ValueId, ValueId),
        (most, overlap, least): (ValueId, Option<ValueId>, Option<ValueId>),
    ) -> Result<Counted, BuildError> {
        let corners = self.corners(c, boxes)?;
        let scores = c.cast(scores, DType::F32)?;
        let taken = c.number(TAKEN, DType::F32);
        let least = least.map_or(Ok(taken), |least| one_number(c, least))?;
        let counts = c.add(Greater {}, &[scores, least])?;
        let scores = c.add(Where {}, &[counts, scores, taken])?;
        let overlap = match overlap {
            Some(overlap) => one_number(c, overlap)?,
            None => c.number(0.0, DType::F32),
        };
        let most = c.reshape(most, &[])?;
        let (best, kept) = self.repeat(c, scores, &corners, (most, overlap, taken))?;
        let n = self.shape[0] * self.classes * self.rounds;
        let mut flat = |v| {
            let v = c.add(Transpose { perm: vec![1, 2, 0, 3] }, &[v])?;
            c.reshape(v, &[n])
        };
        let (best, kept) = (flat(best)?, flat(kept)?);
        let (places, count) = c.places(kept, n)?;
        let mut columns = c.coordinates(places, &[self.shape[0], self.classes, self.rounds])?;
        columns[2] = c.add(Gather { axis: 0 }, &[best, places])?;
        let rows = c.stack(&columns, 1)?;
        Ok(Counted { results: vec![(c.cast(rows, DType::I64)?, Some(0))], count })
    }

    /// Lowest and highest coordinates of the boxes, and their areas, each `f32[images, classes, boxes]`.
    fn corners(&self, c: &mut Counting<'_, '_>, boxes: ValueId) -> Result<[ValueId; 5], BuildError> {
        let boxes = c.cast(boxes, DType::F32)?;
        let mut column = |k: i64| {
            let (starts, ends) = (vec![Int::new(k)], vec![Int::new(k + 1)]);
            let v = c.add(Slice { starts, ends, axes: vec![2], ..Slice::default() }, &[boxes])?;
            c.add(Transpose { perm: vec![0, 2, 1] }, &[v])
        };
        let v = [column(0)?, column(1)?, column(2)?, column(3)?];
        let mut out = vec![];
        let half = c.number(0.5, DType::F32);
        for (low, high) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
            out.push(match (self.center_point, low) {
                (true, _) => {
                    let half = c.add(Mul {}, &[v[high + 2], half])?;
                    if low { c.add(Sub {}, &[v[high], half])? } else { c.add(Add {}, &[v[high], half])? }
                }
                (false, true) => c.add(Min {}, &[v[high], v[high + 2]])?,
                (false, false) => c.add(Max {}, &[v[high], v[high + 2]])?,
            });
        }
        let (height, width) = (c.add(Sub {}, &[out[2], out[0]])?, c.add(Sub {}, &[out[3], out[1]])?);
        out.push(c.add(Mul {}, &[height, width])?);
        let shape: Vec<Int> = self.shape.iter().map(|&d| Int::from(d)).collect();
        let mut whole = |v| c.add(Expand { shape: shape.clone(), ..Expand::default() }, &[v]);
        Ok([whole(out[0])?, whole(out[1])?, whole(out[2])?, whole(out[3])?, whole(out[4])?])
    }

    /// The best box of each round, and whether there was one: `i32[rounds, images, classes, 1]`.
    fn repeat(
        &self,
        c: &mut Counting<'_, '_>,
        scores: ValueId,
        corners: &[ValueId; 5],
        (most, overlap, taken): (ValueId, ValueId, ValueId),
    ) -> Result<(ValueId, ValueId), BuildError> {
        let numbers = c.indices(self.shape[2]);
        let body = c.b.new_block();
        let round = c.b.block_arg(body, None, TensorType::new(DType::I64, vec![]));
        let left = c.b.block_arg(body, None, TensorType::fixed(DType::F32, &self.shape));
        let yields = c.b.in_block(body, |b| {
            let mut c = Counting { b };
            let best = c.add(ArgReduce { axis: 2, keepdims: true, ..ArgReduce::default() }, &[left])?;
            let score = c.add(Reduce { kind: ReduceKind::Max, axes: vec![2], keepdims: true }, &[left])?;
            let kept = c.add(Greater {}, &[score, taken])?;
            let counts = c.add(Less {}, &[round, most])?;
            let kept = c.add(And {}, &[kept, counts])?;
            let goes = overlaps(&mut c, corners, best, overlap)?;
            let best = c.cast(best, DType::I32)?;
            let own = c.add(Equal {}, &[numbers, best])?;
            let goes = c.add(Or {}, &[goes, own])?;
            let next = c.add(Where {}, &[goes, taken, left])?;
            Ok(vec![next, best, c.cast(kept, DType::I32)?])
        })?;
        c.b.set_block_results(body, yields);
        let op = Loop { trips: Some(Int::from(self.rounds)), ..Loop::default() };
        let results = c.b.add_multi(op, vec![None, None, Some(scores)], vec![body])?;
        Ok((results[1], results[2]))
    }
}

/// A number operand, of any shape with one element, as an `f32[]`.
fn one_number(c: &mut Counting<'_, '_>, v: ValueId) -> Result<ValueId, BuildError> {
    let v = c.cast(v, DType::F32)?;
    c.reshape(v, &[])
}

/// Which boxes overlap the box `best` of their class by more than `overlap`; none overlaps a box without an area.
fn overlaps(
    c: &mut Counting<'_, '_>,
    corners: &[ValueId; 5],
    best: ValueId,
    overlap: ValueId,
) -> Result<ValueId, BuildError> {
    let mut of_best = vec![];
    for &v in corners {
        of_best.push(c.add(GatherElements { axis: 2 }, &[v, best])?);
    }
    let mut span = |low: usize, high: usize| {
        let end = c.add(Min {}, &[corners[high], of_best[high]])?;
        let start = c.add(Max {}, &[corners[low], of_best[low]])?;
        c.add(Sub {}, &[end, start])
    };
    let (height, width) = (span(0, 2)?, span(1, 3)?);
    let zero = c.number(0.0, DType::F32);
    let common = c.add(Mul {}, &[height, width])?;
    let areas = c.add(Add {}, &[corners[4], of_best[4]])?;
    let union = c.add(Sub {}, &[areas, common])?;
    let share = c.add(Div {}, &[common, union])?;
    let mut goes = c.add(Greater {}, &[share, overlap])?;
    for positive in [height, width, corners[4], of_best[4]] {
        let positive = c.add(Greater {}, &[positive, zero])?;
        goes = c.add(And {}, &[goes, positive])?;
    }
    Ok(goes)
}

/// Intersection over union, in f32 as everywhere this is compared with a threshold; 0 for boxes without an area.
fn common_share(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    let area = |v: &[f64; 4]| (v[2] - v[0]) * (v[3] - v[1]);
    let (height, width) = (a[2].min(b[2]) - a[0].max(b[0]), a[3].min(b[3]) - a[1].max(b[1]));
    if height <= 0.0 || width <= 0.0 || area(a) <= 0.0 || area(b) <= 0.0 {
        return 0.0;
    }
    let common = height * width;
    f64::from((common / (area(a) + area(b) - common)) as f32)
}

attr_enum! {
    /// How the samples of a cell are combined.
    pub enum RoiMode {
        /// Their mean.
        Average = "avg",
        /// The largest weighted element of any sample.
        Max = "max",
    }
}
attr_struct! {
    /// Each region of operand 1 (`[regions, 4]`: x, y, x, y) of the image that operand 2 names, out of operand 0
    /// `[images, c, h, w]`, as a grid of cells, each from bilinear samples (K. He et al., Mask R-CNN).
    pub struct RoiAlign("roi_align") {
        /// Combination.
        pub mode: RoiMode = RoiMode::Average,
        /// Whether coordinates are those of elements' centres (half a pixel off).
        pub half_pixel: bool = true,
        /// Cells of a column.
        pub height: i64 = 1,
        /// Cells of a row.
        pub width: i64 = 1,
        /// Samples of a cell along each axis; 0 for as many as it has elements.
        pub samples: i64 = 0,
        /// From the regions' coordinates to those of the data.
        pub scale: f64 = 1.0,
    }
}
/// The most samples of a cell along an axis.
const SAMPLE_LIMIT: i64 = 10_000;

impl Op for RoiAlign {
    fn arity(&self) -> (usize, usize) {
        (3, 3)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (x, rois, images) = (cx.require(0)?, cx.require(1)?, cx.require(2)?);
        if x.rank() != 4 || rois.rank() != 2 || images.rank() != 1 || !x.dtype.is_float() || !images.dtype.is_int() {
            return Err(format!("regions {rois:?} of {x:?} in images {images:?}").into());
        }
        if self.height < 1 || self.width < 1 || !(0..=SAMPLE_LIMIT).contains(&self.samples) {
            return Err(format!("{} by {} cells of {} samples", self.height, self.width, self.samples).into());
        }
        let cells = [Int::new(self.height), Int::new(self.width)];
        let shape = [&images.shape[..], &x.shape[1..2], &cells].concat();
        Ok(vec![TensorType::new(x.dtype, shape)])
    }
    fn has_compute(&self) -> bool {
        false
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        let [x, rois, images] = [inputs[0].as_ref()?, inputs[1].as_ref()?, inputs[2].as_ref()?];
        Some(self.align(x, &rois.to_f64_vec(), rois.shape(), &images.to_i64_vec()).map(|t| vec![t]))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let coordinates = if self.half_pixel { "half_pixel" } else { "output_half_pixel" };
        let attrs = vec![
            ("coordinate_transformation_mode", OnnxAttr::Str(coordinates.into())),
            ("mode", OnnxAttr::Str(self.mode.name().into())),
            ("output_height", OnnxAttr::Int(self.height)),
            ("output_width", OnnxAttr::Int(self.width)),
            ("sampling_ratio", OnnxAttr::Int(self.samples)),
            ("spatial_scale", OnnxAttr::Float(self.scale as f32)),
        ];
        cx.simple("RoiAlign", attrs);
        Ok(())
    }
}

/// Two neighbours along an axis and their weights; none for a sample outside.
fn neighbours(at: f64, size: usize) -> Option<[(usize, f64); 2]> {
    if at < -1.0 || at > size as f64 {
        return None;
    }
    let at = at.max(0.0);
    let low = at as usize;
    if low + 1 >= size {
        return Some([(size - 1, 1.0), (size - 1, 0.0)]);
    }
    Some([(low, 1.0 - (at - low as f64)), (low + 1, at - low as f64)])
}

impl RoiAlign {
    fn align(&self, x: &Tensor, rois: &[f64], shape: &[usize], images: &[i64]) -> OpResult<Tensor> {
        let &[count, channels, h, w] = x.shape() else { return Err("data is not of rank 4".into()) };
        if shape.get(1) != Some(&4) || shape[0] != images.len() || h == 0 || w == 0 {
            return Err(format!("regions {shape:?} for {} images in data {:?}", images.len(), x.shape()).into());
        }
        let data = x.to_f64_vec();
        let (rows, columns) = (self.height as usize, self.width as usize);
        let total = [images.len(), channels, rows, columns].iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let mut out = reserve(total.unwrap_or(usize::MAX))?;
        for (roi, &image) in rois.chunks_exact(4).zip(images) {
            let image =
                usize::try_from(image).ok().filter(|&i| i < count).ok_or(format!("there is no image {image}"))?;
            let offset = if self.half_pixel { 0.5 } else { 0.0 };
            let edge = |i: usize| roi[i] * self.scale - offset;
            let span = |low: usize| {
                let s = edge(low + 2) - edge(low);
                if self.half_pixel { s } else { s.max(1.0) }
            };
            let (cell_w, cell_h) = (span(0) / columns as f64, span(1) / rows as f64);
            let samples = |cell: f64| {
                if self.samples > 0 {
                    self.samples as usize
                } else {
                    cell.ceil().clamp(0.0, SAMPLE_LIMIT as f64) as usize
                }
            };
            let (nx, ny) = (samples(cell_w), samples(cell_h));
            let places = |start: f64, cell: f64, n: usize, k: usize, size: usize| -> Vec<_> {
                let at = |s: usize| start + k as f64 * cell + (s as f64 + 0.5) * cell / n as f64;
                (0..n).map(|s| neighbours(at(s), size)).collect()
            };
            for c in 0..channels {
                let plane = &data[(image * channels + c) * h * w..][..h * w];
                for row in 0..rows {
                    let ys = places(edge(1), cell_h, ny, row, h);
                    for column in 0..columns {
                        let xs = places(edge(0), cell_w, nx, column, w);
                        out.push(self.cell(plane, w, &ys, &xs));
                    }
                }
            }
        }
        Ok(Tensor::from_f64(x.dtype(), vec![images.len(), channels, rows, columns], out))
    }
    fn cell(&self, plane: &[f64], w: usize, ys: &[Option<[(usize, f64); 2]>], xs: &[Option<[(usize, f64); 2]>]) -> f64 {
        let (mut sum, mut most) = (0.0, f64::NEG_INFINITY);
        for y in ys {
            for x in xs {
                let (Some(y), Some(x)) = (y, x) else {
                    most = most.max(0.0);
                    continue;
                };
                for (row, a) in y {
                    for (column, b) in x {
                        let v = a * b * plane[row * w + column];
                        sum += v;
                        most = most.max(v);
                    }
                }
            }
        }
        let count = (ys.len() * xs.len()).max(1);
        match self.mode {
            RoiMode::Average => sum / count as f64,
            RoiMode::Max if ys.is_empty() || xs.is_empty() => 0.0,
            RoiMode::Max => most,
        }
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "NonMaxSuppression", domain: "", since: 10, import: import_suppression },
    OnnxImport { op_type: "RoiAlign", domain: "", since: 10, import: import_align },
];

fn import_suppression(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let count = cx.fresh_dim("boxes", 0).as_var().expect("a symbol");
    let op = NonMaxSuppression { center_point_box: cx.attrs.int("center_point_box").unwrap_or(0) != 0, count };
    let inputs = cx.inputs.clone();
    cx.add_multi(op, inputs)
}

/// Before opset 16 coordinates are not moved by half a pixel.
fn import_align(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let operands = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    let default = if cx.opset < 16 { "output_half_pixel" } else { "half_pixel" };
    let half_pixel = match cx.attrs.str("coordinate_transformation_mode").unwrap_or(default) {
        "half_pixel" => true,
        "output_half_pixel" => false,
        other => return Err(format!("coordinate_transformation_mode `{other}` is unknown").into()),
    };
    let mode = cx.attrs.str("mode").unwrap_or("avg");
    let op = RoiAlign {
        mode: RoiMode::parse(mode).ok_or_else(|| format!("mode `{mode}` is unknown"))?,
        half_pixel,
        height: cx.attrs.int("output_height").unwrap_or(1),
        width: cx.attrs.int("output_width").unwrap_or(1),
        samples: cx.attrs.int("sampling_ratio").unwrap_or(0),
        scale: cx.attrs.float("spatial_scale").unwrap_or(1.0),
    };
    Ok(vec![cx.add(op, &operands)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_boxes_go() {
        let boxes = Tensor::from_vec(
            vec![1, 4, 4],
            vec![0.0f32, 0.0, 1.0, 1.0, 0.0, 0.1, 1.0, 1.1, 2.0, 2.0, 3.0, 3.0, 1.0, 1.1, 0.0, 0.1],
        );
        let scores = Tensor::from_vec(vec![1, 1, 4], vec![0.6f32, 0.9, 0.5, 0.9]);
        let of = |most, overlap, least| {
            NonMaxSuppression::default().select(&boxes, &scores, most, overlap, least).unwrap().to_i64_vec()
        };
        assert_eq!(of(9, 0.5, None), [0, 0, 1, 0, 0, 2]);
        assert_eq!(of(1, 0.5, None), [0, 0, 1]);
        assert_eq!(of(9, 1.0, Some(0.55)), [0, 0, 1, 0, 0, 3, 0, 0, 0]);
        assert_eq!(of(0, 0.5, None), [0i64; 0]);
    }

    #[test]
    fn one_sample_a_cell_in_the_centre_of_elements_gives_the_elements() {
        let x = Tensor::from_vec(vec![1, 1, 2, 3], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let op = RoiAlign { height: 2, width: 3, samples: 1, ..RoiAlign::default() };
        let got = op.align(&x, &[0.0, 0.0, 3.0, 2.0], &[1, 4], &[0]).unwrap();
        assert_eq!(got, x);
        assert!(op.align(&x, &[0.0, 0.0, 3.0, 2.0], &[1, 4], &[1]).is_err());
    }
}
