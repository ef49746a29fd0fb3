//! The two layouts among which one run of the pass chooses: NCHW (colour 0) and the target's other layout (colour 1).

use crate::graph::TensorType;
use crate::int::Int;
use crate::ops::layout_transform::LayoutTransform;
use crate::ops::transpose::Transpose;
use crate::ops::{DataLayout, OpRef, OpResult};

/// From NCHW to NHWC.
pub const TO_NHWC: [usize; 4] = [0, 2, 3, 1];
/// From NHWC to NCHW.
pub const TO_NCHW: [usize; 4] = [0, 3, 1, 2];

/// NCHW and another layout of rank-4 data.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scheme {
    /// The layout of colour 1.
    pub other: DataLayout,
}

impl Scheme {
    /// The layout of a colour.
    pub fn layout(self, colour: u8) -> DataLayout {
        if colour == 0 { DataLayout::Nchw } else { self.other }
    }
    /// The colour of a layout; none for a third one.
    pub fn colour(self, layout: DataLayout) -> Option<u8> {
        (0..2).find(|&c| self.layout(c) == layout)
    }
    /// Rank of data in a colour.
    pub fn rank(self, colour: u8) -> usize {
        self.layout(colour).physical_rank(4)
    }
    /// True when colour 1 splits the channels.
    pub fn is_packed(self) -> bool {
        self.other.block().is_some()
    }
    /// The permutation to colour `to`; none where the channels are split.
    pub fn perm(self, to: u8) -> Option<[usize; 4]> {
        (!self.is_packed()).then_some(if to == 1 { TO_NHWC } else { TO_NCHW })
    }
    fn change(self, to: u8) -> LayoutTransform {
        LayoutTransform { from: self.layout(1 - to), to: self.layout(to) }
    }
    /// The op that changes data to colour `to`.
    pub fn transform(self, to: u8) -> OpRef {
        match self.perm(to) {
            Some(perm) => Transpose { perm: perm.to_vec() }.into(),
            None => self.change(to).into(),
        }
    }
    /// The type in colour `to` of data of this type in the other colour.
    ///
    /// # Errors
    /// Data of another rank, and channels that do not divide into groups.
    pub fn converted(self, ty: &TensorType, to: u8) -> OpResult<TensorType> {
        if ty.rank() != self.rank(1 - to) {
            return Err(format!("its data have rank {}, not {}", ty.rank(), self.rank(1 - to)).into());
        }
        Ok(TensorType::new(ty.dtype, self.change(to).result_shape(&ty.shape)?))
    }
    /// True when the change of data of this shape to colour `to` keeps the order of the elements.
    pub fn keeps_order(self, shape: &[Int], to: u8) -> bool {
        match self.perm(to) {
            Some(perm) => moves_no_data(shape, &perm),
            None => self.change(to).keeps_order(shape),
        }
    }
}

/// True when a transposition by `perm` keeps the order of the elements: only dimensions of size 1 move.
pub fn moves_no_data(shape: &[Int], perm: &[usize]) -> bool {
    perm.iter().filter(|&&p| !shape[p].is(1)).is_sorted()
}
