//! Shapes of buffers whose sizes are known.

use crate::dtype::DType;
use crate::int::const_dims;
use crate::tir::{BufferId, TensorFunction};

/// Constant dimensions of a buffer, or which one is symbolic.
pub(super) fn fixed_shape(f: &TensorFunction, b: BufferId) -> Result<Vec<usize>, String> {
    let buffer = &f.buffers[b];
    const_dims(&buffer.shape)
        .ok_or_else(|| format!("buffer `{}` of @{} has the symbolic shape {:?}", buffer.name, f.name, buffer.shape))
}

/// Checks that a tensor of this dtype and shape fits in memory before anything is allocated.
pub(super) fn element_count(dtype: DType, shape: &[usize]) -> Result<usize, String> {
    shape
        .iter()
        .try_fold(dtype.size(), |n, &d| n.checked_mul(d))
        .filter(|&n| n <= isize::MAX as usize)
        .map(|n| n / dtype.size())
        .ok_or_else(|| format!("a tensor {dtype}{shape:?} is too large"))
}
