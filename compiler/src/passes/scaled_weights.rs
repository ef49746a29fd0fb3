//! Constants times a factor for each channel, computed when they are read: what folding a scale into weights leaves.
//!
//! ```text
//! w2[o, i, ...] = w[o, i, ...] * s[o]        Axis(0)
//! w2[k, n]      = w[k, n] * s[n]             Axis(1)
//! w2[i, o, ...] = w[i, o, ...] * s[group(i) * shape[1] + o]        Grouped(groups)
//! ```
//!
//! Host memory never holds the old and the new weights both for longer than one reading.

use super::rewriter::Rewriter;
use crate::fault::Fault;
use crate::graph::{Constant, ValueId};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::Const;
use crate::ops::conv::Conv;
use crate::ops::conv_transpose::ConvTranspose;
use crate::ops::matmul::{Gemm, MatMul};
use crate::ops::window::DataLayout;
use crate::tensor::{ConstData, DataSource, Tensor};
use bytes::Bytes;
use std::sync::Arc;

/// Where weights keep their channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channels {
    /// Along one dimension.
    Axis(usize),
    /// Along dimension 1 within each group of dimension 0.
    Grouped(usize),
}
impl Channels {
    /// Number of channels of weights of a shape.
    pub fn count(self, shape: &[usize]) -> Option<usize> {
        match self {
            Channels::Axis(a) => shape.get(a).copied(),
            Channels::Grouped(groups) => Some(shape.get(1)? * groups),
        }
    }
}

/// An op with weights as operand 1, and how a scale of its data or its result moves into them.
pub(super) struct Weighted {
    /// Channels of the result in the weights.
    pub results: Channels,
    /// Channels of the data in the weights.
    pub data: Channels,
    /// Layout of data and result; `None` for matrices, whose channels are the last axis.
    pub layout: Option<DataLayout>,
    /// True when the data of a product are stored transposed: their channels are not the last axis then.
    pub data_transposed: bool,
}
impl Weighted {
    /// The channel axis of a result of `rank` dimensions.
    pub fn result_axis(&self, rank: usize) -> usize {
        self.layout.and_then(|l| l.channel_axis(rank)).unwrap_or(rank.saturating_sub(1))
    }
    /// The channel axis of data of `rank` dimensions.
    pub fn data_axis(&self, rank: usize) -> usize {
        if self.data_transposed { rank.saturating_sub(2) } else { self.result_axis(rank) }
    }
}

/// How `op` keeps its channels, for weights of `rank` dimensions; `None` when it has no weights to scale, or splits the
/// channels of its data.
pub(super) fn weighted(op: &OpRef, rank: usize) -> Option<Weighted> {
    let of = |results, data, layout| Weighted { results, data, layout, data_transposed: false };
    let groups = |g: i64| usize::try_from(g).ok().filter(|&g| g > 0);
    if op.layout().is_some_and(|l| l.data_layout().block().is_some()) {
        return None;
    }
    if let Some(conv) = op.downcast::<Conv>() {
        return Some(of(Channels::Axis(0), Channels::Grouped(groups(conv.group)?), Some(conv.layout)));
    }
    if let Some(conv) = op.downcast::<ConvTranspose>() {
        return Some(of(Channels::Grouped(groups(conv.group)?), Channels::Axis(0), Some(conv.layout)));
    }
    if let Some(gemm) = op.downcast::<Gemm>() {
        let (k, n) = if gemm.trans_b { (1, 0) } else { (0, 1) };
        let w = of(Channels::Axis(n), Channels::Axis(k), None);
        return Some(Weighted { data_transposed: gemm.trans_a, ..w });
    }
    op.downcast::<MatMul>()?;
    (rank >= 2).then(|| of(Channels::Axis(rank - 1), Channels::Axis(rank - 2), None))
}

/// The constant that `v` is, with its name.
pub(super) fn constant_of(r: &Rewriter<'_>, v: Option<ValueId>) -> Option<(Name, Constant)> {
    let (_, c) = r.f.def_op::<Const>(r.resolve(v?))?;
    Some((c.name, r.module.constants.get(&c.name)?.clone()))
}

/// `w * s`, computed when it is read; `None` when the channels do not fit. One factor stands for all channels.
pub(super) fn scale_weights(weights: Constant, factor: &[f64], channels: Channels) -> Option<Constant> {
    let count = channels.count(&weights.shape)?;
    if count == 0 || (count != factor.len() && factor.len() != 1) || !weights.dtype.is_float() {
        return None;
    }
    let factor = if factor.len() == 1 { vec![factor[0]; count] } else { factor.to_vec() };
    let (dtype, shape) = (weights.dtype, weights.shape.clone());
    let source = ScaledWeights { weights, factor, channels };
    Some(Constant { dtype, shape, data: ConstData::Lazy(Arc::new(source)) })
}

struct ScaledWeights {
    weights: Constant,
    factor: Vec<f64>,
    channels: Channels,
}
impl ScaledWeights {
    /// The channel of the element at a linear index.
    fn channel(&self) -> impl Fn(usize) -> usize + '_ {
        let shape = &self.weights.shape;
        let inner = |from: usize| shape.iter().skip(from).product::<usize>().max(1);
        let (first, second) = (inner(1), inner(2));
        let axis_inner = if let Channels::Axis(a) = self.channels { inner(a + 1) } else { 1 };
        let count = self.factor.len().max(1);
        move |i| match self.channels {
            Channels::Axis(_) => i / axis_inner % count,
            Channels::Grouped(groups) => {
                let group = (i / first) / (shape[0] / groups.max(1)).max(1);
                group * shape[1] + i / second % shape[1]
            }
        }
    }
}
impl DataSource for ScaledWeights {
    fn read(&self) -> Result<Bytes, Fault> {
        let old = self.weights.load()?;
        let channel = self.channel();
        if let Some(values) = old.as_slice::<f32>() {
            let new: Vec<f32> = values.iter().enumerate().map(|(i, v)| v * self.factor[channel(i)] as f32).collect();
            return Ok(Bytes::from_owner(Owned(new)));
        }
        let new = old.to_f64_vec().into_iter().enumerate().map(|(i, v)| v * self.factor[channel(i)]);
        Ok(Tensor::from_f64(old.dtype(), old.shape().to_vec(), new).bytes().clone())
    }
}

/// Floats as bytes without a second copy.
struct Owned(Vec<f32>);
impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}
