//! Constants times a factor per channel, computed when they are read. Folding a scale into weights makes them.
//!
//! ```text
//! w2[o, i, ...] = w[o, i, ...] * s[o]        Axis(0)
//! w2[k, n]      = w[k, n] * s[n]             Axis(1)
//! w2[i, o, ...] = w[i, o, ...] * s[group(i) * shape[1] + o]        Grouped(groups)
//! ```
//!
//! Host memory holds both the old and the new weights only during one reading.

use super::rewriter::Rewriter;
use crate::fault::Fault;
use crate::graph::{Constant, ValueId};
use crate::name::Name;
use crate::ops::control::Const;
use crate::ops::weights::Channels;
use crate::tensor::{ConstData, DataSource, Tensor};
use bytes::Bytes;
use std::sync::Arc;

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
