//! Data layouts: the positions of batch, channels and spatial axes in an op's data, plain or packed; and the layout
//! rules of ops.
//!
//! A packed layout `NCHW16c` splits the channels: `[n, c / 16, h, w, 16]`, channel `16 * i + j` at place `i` of the
//! second axis and `j` of the last (TVM's name and meaning).

use super::{InferContext, OpRef, OpResult};
use crate::attr_enum;
use crate::graph::TensorType;
use crate::int::{Bounds, Int, simplify};
use std::ops::Range;

attr_enum! {
    /// The position of the channel axis of the data. Any number of spatial axes counts as `HW`.
    pub enum DataLayout {
        /// Channels before the spatial axes.
        Nchw = "nchw",
        /// Channels last.
        Nhwc = "nhwc",
        /// Groups of 4 channels before the spatial axes, the channels of a group last.
        Nchw4c = "nchw4c",
        /// Groups of 8 channels before the spatial axes, the channels of a group last.
        Nchw8c = "nchw8c",
        /// Groups of 16 channels before the spatial axes, the channels of a group last.
        Nchw16c = "nchw16c",
    }
}
impl DataLayout {
    /// Name in reports.
    pub fn title(self) -> &'static str {
        match self {
            DataLayout::Nchw => "NCHW",
            DataLayout::Nhwc => "NHWC",
            DataLayout::Nchw4c => "NCHW4c",
            DataLayout::Nchw8c => "NCHW8c",
            DataLayout::Nchw16c => "NCHW16c",
        }
    }
    /// Channels of a group, if the channels are split.
    pub fn block(self) -> Option<i64> {
        match self {
            DataLayout::Nchw | DataLayout::Nhwc => None,
            DataLayout::Nchw4c => Some(4),
            DataLayout::Nchw8c => Some(8),
            DataLayout::Nchw16c => Some(16),
        }
    }
    /// Rank of data that has rank `rank` in NCHW.
    pub fn physical_rank(self, rank: usize) -> usize {
        rank + usize::from(self.block().is_some())
    }
    /// The spatial axes of a tensor of `rank`.
    pub fn spatial_axes(self, rank: usize) -> Range<usize> {
        match self {
            DataLayout::Nchw => 2..rank,
            DataLayout::Nhwc => 1..rank - 1,
            _ => 2..rank - 1,
        }
    }
    /// The channel axis of a tensor of `rank`; `None` if the channels are split.
    pub fn channel_axis(self, rank: usize) -> Option<usize> {
        match self {
            DataLayout::Nchw => Some(1),
            DataLayout::Nhwc => Some(rank - 1),
            _ => None,
        }
    }
    /// Spatial entries of a shape or index.
    pub fn spatial(self, full: &[Int]) -> &[Int] {
        &full[self.spatial_axes(full.len())]
    }
    /// A shape or index with other spatial entries.
    pub fn with_spatial(self, full: &[Int], spatial: Vec<Int>) -> Vec<Int> {
        let mut out = full.to_vec();
        out.splice(self.spatial_axes(full.len()), spatial);
        out
    }
    /// Number of channels of data of this shape.
    pub fn channels(self, shape: &[Int]) -> Int {
        match self.block() {
            None if self == DataLayout::Nhwc => shape[shape.len() - 1].clone(),
            None => shape[1].clone(),
            Some(block) => tidy(&(shape[1].clone() * block)),
        }
    }
    /// Channel at an index.
    pub fn channel(self, index: &[Int]) -> Int {
        match self.block() {
            None if self == DataLayout::Nhwc => index[index.len() - 1].clone(),
            None => index[1].clone(),
            Some(block) => index[1].clone() * block + &index[index.len() - 1],
        }
    }
    /// Shape of data with these sizes.
    ///
    /// # Errors
    /// When the channels do not divide into groups.
    pub fn shape(self, batch: &Int, channels: &Int, spatial: Vec<Int>) -> OpResult<Vec<Int>> {
        let Some(block) = self.block() else { return Ok(self.index(batch, channels, spatial, &Bounds::new())) };
        let groups = self.groups(channels).ok_or_else(|| format!("{channels} channels do not divide by {block}"))?;
        Ok([vec![batch.clone(), groups], spatial, vec![Int::new(block)]].concat())
    }
    /// Groups of `channels` channels in a packed layout; `None` if they do not divide evenly.
    pub fn groups(self, channels: &Int) -> Option<Int> {
        let block = self.block()?;
        (crate::int::divisor(channels) % block == 0).then(|| tidy(&channels.div(block)))
    }
    /// Index of a batch, a channel and a place, given the ranges of the variables in them.
    pub fn index(self, batch: &Int, channel: &Int, spatial: Vec<Int>, bounds: &Bounds) -> Vec<Int> {
        let (batch, channel) = (vec![batch.clone()], channel.clone());
        match self.block() {
            None if self == DataLayout::Nhwc => [batch, spatial, vec![channel]].concat(),
            None => [batch, vec![channel], spatial].concat(),
            Some(block) => {
                let part = |e: Int| vec![simplify(&e, bounds)];
                [batch, part(channel.div(block)), spatial, part(channel.rem(block))].concat()
            }
        }
    }
    /// Refuses data that has no batch, channel and spatial axes, NHWC data that is not of rank 4, and packed data that
    /// is not of rank 5 with a whole group last.
    pub fn check(self, data: &TensorType) -> OpResult<()> {
        let rank = data.rank();
        match self {
            DataLayout::Nchw if rank < 3 => {
                Err(format!("data of rank {rank} has no batch, channel and spatial axes").into())
            }
            DataLayout::Nhwc if rank != 4 => Err(format!("layout nhwc needs data of rank 4, got rank {rank}").into()),
            DataLayout::Nchw | DataLayout::Nhwc => Ok(()),
            packed => {
                let block = packed.block().unwrap_or(1);
                let fits = rank == 5 && data.shape[4].is(block);
                let need = format!("layout {packed} needs data [n, c / {block}, h, w, {block}]");
                if fits { Ok(()) } else { Err(format!("{need}, got {:?}", data.shape).into()) }
            }
        }
    }
}

/// Simplifies a dimension.
fn tidy(d: &Int) -> Int {
    simplify(d, &Bounds::new())
}

/// Layout behaviour of an op that has a native data layout (convolution, pooling, resize ...): the four questions of
/// OneFlow's auto-NHWC. Ops that are elementwise are layout-agnostic by their index maps and need none of this.
pub trait LayoutRule {
    /// The layout that the op computes in now.
    fn data_layout(&self) -> DataLayout;
    /// Positions of operands that change with the layout (also weights, if their layout changes).
    fn operands_to_convert(&self) -> Vec<usize>;
    /// Positions of results that change with the layout.
    fn results_to_convert(&self) -> Vec<usize>;
    /// The op in another layout; the context has its original operands.
    ///
    /// # Errors
    /// Says why it has no such form.
    fn in_layout(&self, layout: DataLayout, cx: &InferContext<'_>) -> OpResult<OpRef>;
}

/// Implements [`LayoutRule`] for ops with a `layout: DataLayout` attribute whose first operand and all results are data
/// and whose other operands do not change with the layout.
macro_rules! data_layout_rule {
    ($($op:ty),*) => { $(
        impl $crate::ops::LayoutRule for $op {
            fn data_layout(&self) -> $crate::ops::data_layout::DataLayout {
                self.layout
            }
            fn operands_to_convert(&self) -> Vec<usize> {
                vec![0]
            }
            fn results_to_convert(&self) -> Vec<usize> {
                (0..$crate::ops::Op::num_results(self)).collect()
            }
            fn in_layout(
                &self,
                layout: $crate::ops::data_layout::DataLayout,
                _cx: &$crate::ops::InferContext<'_>,
            ) -> $crate::ops::OpResult<$crate::ops::OpRef> {
                let mut op = self.clone();
                op.layout = layout;
                Ok(op.into())
            }
        }
    )* };
}
pub(super) use data_layout_rule;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    fn ints(v: &[i64]) -> Vec<Int> {
        v.iter().map(|&i| Int::new(i)).collect()
    }

    #[test]
    fn shapes_and_indices() {
        let (n, c, hw) = (Int::new(2), Int::new(32), ints(&[5, 6]));
        let shape = |l: DataLayout| l.shape(&n, &c, hw.clone());
        assert_eq!(shape(DataLayout::Nchw), Ok(ints(&[2, 32, 5, 6])));
        assert_eq!(shape(DataLayout::Nhwc), Ok(ints(&[2, 5, 6, 32])));
        assert_eq!(shape(DataLayout::Nchw16c), Ok(ints(&[2, 2, 5, 6, 16])));
        assert!(DataLayout::Nchw8c.shape(&n, &Int::new(12), hw.clone()).unwrap_err().message.contains("12 channels"));
        let at = DataLayout::Nchw8c.index(&Int::new(0), &Int::new(21), ints(&[3, 4]), &Bounds::new());
        assert_eq!(at, ints(&[0, 2, 3, 4, 5]));
        assert!(DataLayout::Nchw8c.channel(&at).is(21) && DataLayout::Nchw8c.channels(&ints(&[1, 3, 5, 6, 8])).is(24));
        assert_eq!(DataLayout::Nchw8c.with_spatial(&at, ints(&[0, 1])), ints(&[0, 2, 0, 1, 5]));
    }

    #[test]
    fn a_split_channel_that_is_put_together_again_needs_no_division() {
        let (group, inner) = (Int::var("g"), Int::var("j"));
        let mut bounds = Bounds::new();
        bounds.insert(group.as_var().expect("a variable"), 0, 3);
        bounds.insert(inner.as_var().expect("a variable"), 0, 15);
        let zero = Int::new(0);
        let index = vec![zero.clone(), group, zero.clone(), zero.clone(), inner];
        let channel = DataLayout::Nchw16c.channel(&index);
        assert_eq!(DataLayout::Nchw16c.index(&zero, &channel, vec![zero.clone(), zero.clone()], &bounds), index);
    }

    #[test]
    fn data_that_does_not_fit_is_refused() {
        let check = |l: DataLayout, shape: &[usize]| l.check(&TensorType::fixed(DType::F32, shape));
        assert!(check(DataLayout::Nchw, &[1, 2]).is_err() && check(DataLayout::Nhwc, &[1, 2, 3]).is_err());
        assert!(check(DataLayout::Nchw4c, &[1, 2, 5, 5, 4]).is_ok() && check(DataLayout::Nchw, &[1, 2, 3]).is_ok());
        assert!(check(DataLayout::Nchw4c, &[1, 2, 5, 5, 8]).unwrap_err().message.contains("nchw4c"));
    }
}
