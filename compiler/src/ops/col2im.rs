//! Columns of windows back to images: each element is the sum of the window elements that lie on it.

use super::{InferContext, Op, OpResult, Precision};
use crate::attr_struct;
use crate::fault::Fault;
use crate::graph::{TensorType, ValueId};
use crate::int::{Int, const_dims, flatten_index, product};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{Combiner, Cond, Expr};

attr_struct! {
    /// Sums the windows of operand `[n, c * taps, windows]` into an image `[n, c, spatial...]`.
    pub struct Col2Im("col2im") {
        /// Size of the image along the spatial axes.
        pub image: Vec<i64> = vec![],
        /// Size of the window.
        pub kernel: Vec<i64> = vec![],
        /// Steps; empty for 1.
        pub strides: Vec<i64> = vec![],
        /// Distances of the window's elements; empty for 1.
        pub dilations: Vec<i64> = vec![],
        /// Padding: all beginnings, then all ends; empty for 0.
        pub pads: Vec<i64> = vec![],
    }
}
impl Col2Im {
    fn of(list: &[i64], axis: usize, default: i64) -> i64 {
        list.get(axis).copied().unwrap_or(default)
    }
    /// Windows along each axis.
    fn windows(&self) -> OpResult<Vec<i64>> {
        let axes = self.image.len();
        let fits = |list: &[i64], n: usize| list.is_empty() || list.len() == n;
        if axes == 0 || self.kernel.len() != axes || !fits(&self.strides, axes) || !fits(&self.dilations, axes) {
            return Err(format!("windows of {:?} in an image of {:?}", self.kernel, self.image).into());
        }
        let positive =
            [&self.image, &self.kernel, &self.strides, &self.dilations].into_iter().flatten().all(|&v| v > 0);
        if !positive || !fits(&self.pads, 2 * axes) || self.pads.iter().any(|&p| p < 0) {
            return Err("sizes, strides and dilations must be positive".into());
        }
        let count = |a: usize| {
            let all = self.image[a] + Self::of(&self.pads, a, 0) + Self::of(&self.pads, a + axes, 0);
            let span = Self::of(&self.dilations, a, 1) * (self.kernel[a] - 1) + 1;
            if all < span {
                Err(format!("a window of {span} in {all} elements").into())
            } else {
                Ok((all - span) / Self::of(&self.strides, a, 1) + 1)
            }
        };
        (0..axes).map(count).collect()
    }
}
impl Op for Col2Im {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        let [n, rows, windows] = &x.shape[..] else { return Err(format!("columns of shape {:?}", x.shape).into()) };
        let (taps, count) = (self.kernel.iter().product::<i64>(), self.windows()?.iter().product::<i64>());
        if windows.as_const().is_some_and(|w| w != count) || rows.as_const().is_some_and(|r| r % taps != 0) {
            return Err(format!("columns of shape {:?} for {taps} elements in {count} windows", x.shape).into());
        }
        let image = self.image.iter().map(|&d| Int::new(d));
        Ok(vec![TensorType::new(x.dtype, [n.clone(), rows.div(taps)].into_iter().chain(image).collect())])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let ty = cx.output_type(0).clone();
        let (counts, acc) = (self.windows()?, ty.dtype.accumulator());
        let ints = |list: &[i64]| list.iter().map(|&v| Int::new(v)).collect::<Vec<Int>>();
        let (kernel, counts) = (ints(&self.kernel), ints(&counts));
        let taps = product(&kernel);
        let sum = cx.reduce("", &ty.shape, acc, &kernel, Combiner::Sum, |i, r| {
            let (mut conds, mut at) = (Vec::new(), Vec::new());
            for axis in 0..kernel.len() {
                // The window whose tap r lies here starts at i + pad - r * dilation.
                let start = i[axis + 2].clone() + Self::of(&self.pads, axis, 0)
                    - r[axis].clone() * Self::of(&self.dilations, axis, 1);
                let stride = Self::of(&self.strides, axis, 1);
                let window = start.div(stride);
                if stride > 1 {
                    conds.push(Cond::eq(start.rem(stride), 0));
                }
                conds.push(Cond::ge(&window, 0));
                conds.push(Cond::lt(&window, &counts[axis]));
                at.push(window);
            }
            let row = i[1].clone() * &taps + flatten_index(r, &kernel);
            let value = Expr::load(x, vec![i[0].clone(), row, flatten_index(&at, &counts)]).cast(ty.dtype, acc);
            Expr::guarded(conds, value, Expr::int(0, acc))
        });
        let out = super::matmul::narrow(cx, sum, &ty);
        cx.output(0, out);
        Ok(())
    }
    fn precision(&self) -> Precision {
        Precision::Never
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let (image, block) = (cx.constant(Tensor::ints(&self.image)), cx.constant(Tensor::ints(&self.kernel)));
        let lists = [("strides", &self.strides), ("dilations", &self.dilations), ("pads", &self.pads)];
        let attrs =
            lists.into_iter().filter(|l| !l.1.is_empty()).map(|(k, v)| (k, OnnxAttr::Ints(v.clone()))).collect();
        let (inputs, outputs) = (vec![cx.input(0), image, block], cx.outputs.clone());
        cx.node("Col2Im", inputs, outputs, attrs);
        Ok(())
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[OnnxImport { op_type: "Col2Im", domain: "", since: 18, import: import_col2im }];

fn import_col2im(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let list = |name| cx.attrs.ints(name).unwrap_or(&[]).to_vec();
    let op = Col2Im {
        image: cx.const_ints(1).ok_or_else(|| Fault::unsupported("the image's size is not known at compile time"))?,
        kernel: cx.const_ints(2).ok_or_else(|| Fault::unsupported("the window's size is not known at compile time"))?,
        strides: list("strides"),
        dilations: list("dilations"),
        pads: list("pads"),
    };
    if const_dims(&cx.ty(0)?.shape[1..]).is_none() {
        return Err(Fault::unsupported("the number of columns is not known at compile time"));
    }
    Ok(vec![cx.add(op, &[x])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{run, try_run};

    #[test]
    fn windows_are_summed_where_they_overlap() {
        // Windows of 3 every 2 elements, with one element of padding: they start at -1, 1 and 3.
        let op = Col2Im { image: vec![5], kernel: vec![3], strides: vec![2], pads: vec![1, 1], ..Col2Im::default() };
        let x = Tensor::from_vec(vec![1, 3, 3], (1..=9).map(|v| v as f32).collect());
        // Tap t of window w is element 3t + w of the data plus one, at place 2w - 1 + t.
        let mut want = [0.0; 5];
        for w in 0..3i64 {
            for t in 0..3i64 {
                if let Ok(at) = usize::try_from(2 * w - 1 + t)
                    && at < 5
                {
                    want[at] += (3 * t + w + 1) as f64;
                }
            }
        }
        let got = run(op, &[&x]);
        assert_eq!((got.shape(), got.to_f64_vec()), (&[1, 1, 5][..], want.to_vec()));
    }

    #[test]
    fn dilated_windows_of_two_channels() {
        let op = Col2Im { image: vec![3, 3], kernel: vec![2, 2], dilations: vec![2, 2], ..Col2Im::default() };
        let x = Tensor::from_vec(vec![1, 8, 1], (1..=8).map(|v| v as f32).collect());
        let want = [1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 3.0, 0.0, 4.0, 5.0, 0.0, 6.0, 0.0, 0.0, 0.0, 7.0, 0.0, 8.0];
        assert_eq!(run(op.clone(), &[&x]).to_f64_vec(), want);
        assert!(try_run(op, &[&Tensor::from_vec(vec![1, 8, 2], vec![0.0f32; 16])]).is_err());
    }
}
