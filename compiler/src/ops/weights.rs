//! The positions of an op's data channels and result channels in its weights, for folding factors and offsets into
//! weights.

use super::{DataLayout, OpRef};

/// The position of channels in weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// Along one dimension.
    Axis(usize),
    /// Along dimension 1 within each group of dimension 0; the number of groups.
    Grouped(usize),
}
impl Channels {
    /// Channels along the second dimension within groups; `None` for fewer than one group.
    pub(super) fn grouped(groups: i64) -> Option<Channels> {
        usize::try_from(groups).ok().filter(|&g| g > 0).map(Channels::Grouped)
    }
    /// Number of channels of weights of a shape.
    pub fn count(self, shape: &[usize]) -> Option<usize> {
        match self {
            Channels::Axis(a) => shape.get(a).copied(),
            Channels::Grouped(groups) => Some(shape.get(1)? * groups),
        }
    }
}

/// An op that is linear in its data and its weights (operand 1): a factor per channel of the data or of the result may
/// move into the weights.
#[derive(Clone, Debug)]
pub struct WeightChannels {
    /// Channels of the result in the weights.
    pub results: Channels,
    /// Channels of the data in the weights.
    pub data: Channels,
    /// Layout of data and result; `None` for matrices, whose channels are the last axis.
    pub layout: Option<DataLayout>,
    /// True when the data of a product are stored transposed: their channels are not the last axis then.
    pub data_transposed: bool,
    /// How operand 2 is added to each channel of the result; `None` for an op that takes no such operand.
    pub bias: Option<Bias>,
}

/// How an op adds its bias, operand 2.
#[derive(Clone, Debug)]
pub struct Bias {
    /// The factor of the bias in the op.
    pub factor: f64,
    /// The op that adds a bias of one element for each channel as it is.
    pub plain: OpRef,
}
impl Bias {
    /// The bias of an op that adds it without a factor.
    pub(super) fn plain(op: impl Into<OpRef>) -> Bias {
        Bias { factor: 1.0, plain: op.into() }
    }
}

impl WeightChannels {
    /// The channel axis of a result of `rank` dimensions.
    pub fn result_axis(&self, rank: usize) -> usize {
        self.layout.and_then(|l| l.channel_axis(rank)).unwrap_or(rank.saturating_sub(1))
    }
    /// The channel axis of data of `rank` dimensions.
    pub fn data_axis(&self, rank: usize) -> usize {
        if self.data_transposed { rank.saturating_sub(2) } else { self.result_axis(rank) }
    }
    /// True if there are several groups, so each result sums over the channels of one group.
    pub fn is_grouped(&self) -> bool {
        matches!(self.data, Channels::Grouped(groups) if groups > 1)
    }
}
