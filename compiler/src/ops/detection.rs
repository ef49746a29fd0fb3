//! Boxes and regions of object detectors. Sample counts and the number of boxes depend on data, so they run on the host.

use super::{InferContext, Op, OpResult};
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::int::{Dim, Int};
use crate::name::Name;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::tensor::{Tensor, reserve};
use crate::{attr_enum, attr_struct};

attr_struct! {
    /// Batch, class and box number of the boxes that stay when, of each class in the order of their scores, boxes are left out
    /// that overlap a better one. Operands: boxes `[batch, boxes, 4]`, scores `[batch, classes, boxes]`, and optional numbers:
    /// the most boxes a class, the overlap (intersection over union) beyond which a box goes, the score that one must exceed.
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
    fn defined_symbols(&self) -> Vec<Name> {
        vec![self.count]
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
                let mut order: Vec<usize> = (0..n).filter(|&i| least.is_none_or(|l| of(i) > l)).collect();
                order.sort_by(|&i, &j| of(j).total_cmp(&of(i)).then(i.cmp(&j)));
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
