//! Element type and symbolic shape of a value.

use crate::dtype::DType;
use crate::int::print::print_shaped;
use crate::int::{Dim, Int, const_dims, product};
use crate::tensor::MAX_RANK;

/// Dtype and symbolic shape of a value. Shown as in text: `f32[n,64]`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Dimensions; empty for a scalar.
    pub shape: Vec<Dim>,
}
impl std::fmt::Debug for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&print_shaped(self.dtype, &self.shape))
    }
}
impl TensorType {
    /// True for a type of at most [`MAX_RANK`] dimensions that are not negative, read no buffer, and whose constant size is
    /// below 2^48 elements. A dimension without symbols that is no number has overflowed.
    pub fn is_sane(&self) -> bool {
        let mut elements = 1i64;
        let mut sane = |d: &Int| match d.as_const() {
            Some(c) => {
                elements = elements.saturating_mul(c.max(1));
                c >= 0 && elements < 1 << 48
            }
            None => !d.reads_buffer() && !d.vars().is_empty(),
        };
        self.rank() <= MAX_RANK && self.shape.iter().all(&mut sane)
    }
    /// A type with symbolic dimensions.
    pub fn new(dtype: DType, shape: Vec<Dim>) -> TensorType {
        TensorType { dtype, shape }
    }
    /// A type with constant dimensions.
    pub fn fixed(dtype: DType, shape: &[usize]) -> TensorType {
        TensorType { dtype, shape: shape.iter().map(|&d| Dim::from(d)).collect() }
    }
    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }
    /// The shape when every dimension is constant.
    pub fn const_shape(&self) -> Option<Vec<usize>> {
        const_dims(&self.shape)
    }
    /// Number of elements, symbolic.
    pub fn numel(&self) -> Dim {
        product(&self.shape)
    }
    /// Bytes in host memory, when the shape is constant.
    pub fn bytes(&self) -> Option<usize> {
        self.const_shape()?.iter().try_fold(self.dtype.size(), |n, &d| n.checked_mul(d))
    }
}
