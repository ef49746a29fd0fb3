//! Copies elements on the host, for ops whose result shape is known only at run time.

use super::OpResult;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::tensor::{Tensor, ensure_room};

/// Sizes given at run time, as they must not be negative.
pub(super) fn check_sizes(sizes: &[i64]) -> OpResult<Vec<usize>> {
    sizes.iter().map(|&s| usize::try_from(s).map_err(|_| format!("negative size {s}").into())).collect()
}

/// Copies elements of `x`: result element `i` is element `map(axis, i[axis])` along every axis.
pub(super) fn gather_host(x: &Tensor, shape: &[usize], map: impl Fn(usize, usize) -> usize) -> Tensor {
    let size = x.dtype().size();
    let mut stride = size;
    let mut offsets: Vec<Vec<usize>> = Vec::with_capacity(shape.len());
    for axis in (0..shape.len()).rev() {
        offsets.push((0..shape[axis]).map(|i| map(axis, i) * stride).collect());
        stride *= x.shape()[axis];
    }
    offsets.reverse();
    let mut out = Vec::with_capacity(shape.iter().product::<usize>() * size);
    let mut copy = |at: usize| out.extend_from_slice(&x.bytes()[at..at + size]);
    for_each_index(shape, |i| copy(i.iter().enumerate().map(|(axis, &i)| offsets[axis][i]).sum()));
    Tensor::from_bytes(x.dtype(), shape.to_vec(), out.into()).expect("one element for each index")
}

/// Calls `f` with every index of `shape` in row-major order.
pub(super) fn for_each_index(shape: &[usize], mut f: impl FnMut(&[usize])) {
    let mut index = vec![0; shape.len()];
    for _ in 0..shape.iter().product::<usize>() {
        f(&index);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

/// `x` broadcast together with `shape`.
pub(super) fn broadcast_host(x: &Tensor, shape: &[usize]) -> OpResult<Tensor> {
    let rank = shape.len().max(x.shape().len());
    let pad = |s: &[usize]| [vec![1; rank - s.len()], s.to_vec()].concat();
    let (from, to) = (pad(x.shape()), pad(shape));
    if from.iter().zip(&to).any(|(a, b)| a != b && *a != 1 && *b != 1) {
        return Err(format!("{:?} does not broadcast to {shape:?}", x.shape()).into());
    }
    let out: Vec<usize> = from.iter().zip(&to).map(|(&a, &b)| if a == 1 { b } else { a }).collect();
    check_count(x.dtype(), &out)?;
    Ok(gather_host(&x.reshaped(from.clone()), &out, |axis, i| if from[axis] == 1 { 0 } else { i }))
}

/// Refuses a tensor that memory does not hold.
pub(super) fn check_count(dtype: DType, shape: &[usize]) -> OpResult<()> {
    let bytes = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d));
    ensure_room(bytes.ok_or_else(|| Fault::too_large(format!("a tensor {dtype}{shape:?} is too large")))?)
}
