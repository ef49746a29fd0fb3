//! Axes and permutations: the answers of axis-carrying ops to the layout pass.

use super::{OpRef, OpResult};

/// An op rewritten for transposed operands: the answer of [`Op::permuted`](super::Op::permuted).
#[derive(Clone, Debug)]
pub struct PermutedOp {
    /// The new op.
    pub op: OpRef,
    /// Operands of the new op: which old operand, and the permutation to transpose it by (`None`: as it is). Old
    /// operands that are not listed are no longer needed, since their values moved into attributes.
    pub operands: Vec<(usize, Option<Vec<usize>>)>,
    /// For each result the permutation that it comes out transposed by; `None` for an unchanged one.
    pub results: Vec<Option<Vec<usize>>>,
}
impl PermutedOp {
    /// The usual case: the first `operands` operands are transposed by `perm`, and so are `results` results.
    pub fn uniform(op: impl Into<OpRef>, perm: &[usize], operands: usize, results: usize) -> PermutedOp {
        PermutedOp {
            op: op.into(),
            operands: (0..operands).map(|i| (i, Some(perm.to_vec()))).collect(),
            results: vec![Some(perm.to_vec()); results],
        }
    }
}

/// The axis as a position: negative ones count from the end.
///
/// # Errors
/// When it is outside `-rank..rank`.
pub fn normalize_axis(axis: i64, rank: usize) -> OpResult<usize> {
    let rank = rank as i64;
    if axis < -rank || axis >= rank {
        return Err(format!("axis {axis} is out of range for rank {rank}").into());
    }
    Ok(if axis < 0 { axis + rank } else { axis } as usize)
}

/// [`normalize_axis`] of several axes; refuses repeats.
///
/// # Errors
/// When one is out of range or occurs twice.
pub fn normalize_axes(axes: &[i64], rank: usize) -> OpResult<Vec<usize>> {
    let mut out = Vec::with_capacity(axes.len());
    for &a in axes {
        let a = normalize_axis(a, rank)?;
        if out.contains(&a) {
            return Err(format!("axis {a} occurs twice").into());
        }
        out.push(a);
    }
    Ok(out)
}

/// Where old axis `axis` is after a transposition by `perm`.
pub fn permuted_axis(axis: usize, perm: &[usize]) -> usize {
    perm.iter().position(|&p| p == axis).unwrap_or(axis)
}

/// `list` of one entry per dimension, after a transposition by `perm`.
pub fn permute<T: Clone>(list: &[T], perm: &[usize]) -> Vec<T> {
    perm.iter().map(|&p| list[p].clone()).collect()
}

/// The permutation that undoes `perm`.
pub fn invert(perm: &[usize]) -> Vec<usize> {
    (0..perm.len()).map(|i| permuted_axis(i, perm)).collect()
}

/// The permutation of the dimensions that stay when `removed` (old axes) are taken out of a tensor transposed by
/// `perm`.
pub fn permutation_without(perm: &[usize], removed: &[usize]) -> Vec<usize> {
    let kept: Vec<usize> = perm.iter().copied().filter(|p| !removed.contains(p)).collect();
    kept.iter().map(|&p| kept.iter().filter(|&&q| q < p).count()).collect()
}

/// The index of the stored tensor for an index of the same tensor in the order `perm`.
pub(super) fn stored_index<T: Clone>(index: &[T], perm: &[usize]) -> Vec<T> {
    if perm.is_empty() { index.to_vec() } else { permute(index, &invert(perm)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::int::Int;
    use crate::ops::testing::{assert_permuted, random};
    use crate::ops::{
        arg_reduce, broadcast, concat, gather, local_norm, pad, reduce, reshape, resize, scan, scatter, search,
    };
    use crate::ops::{slice, softmax, split, transpose};
    use crate::tensor::Tensor;

    fn ints(v: &[i64]) -> Vec<Int> {
        v.iter().map(|&i| Int::new(i)).collect()
    }

    const PERMS: [[usize; 4]; 4] = [[0, 2, 3, 1], [0, 3, 1, 2], [3, 1, 0, 2], [2, 3, 1, 0]];

    /// Every axis and several permutations of ops that have one axis.
    #[test]
    fn ops_with_an_axis() {
        let x = random(&[2, 3, 4, 6], 1);
        let y = random(&[2, 3, 4, 6], 2);
        let one = Tensor::from_vec(vec![], vec![-1i64]);
        let list = Tensor::ints(&[1, 0, -1, 1]);
        let places = Tensor::from_f64(crate::dtype::DType::I64, vec![2, 3, 4, 6], (0..144).map(|i| (i % 2) as f64));
        for perm in PERMS {
            for axis in 0..4 {
                let a = axis as i64;
                let d = x.shape()[axis] as i64;
                assert_permuted(concat::Concat { axis: a }, &[&x, &y], &perm);
                assert_permuted(split::Split { axis: a - 4, sizes: ints(&[1, d - 1]) }, &[&x], &perm);
                assert_permuted(gather::Gather { axis: a }, &[&x, &one], &perm);
                assert_permuted(gather::Gather { axis: a }, &[&x, &list], &perm);
                assert_permuted(gather::GatherElements { axis: a }, &[&x, &places], &perm);
                assert_permuted(
                    scatter::ScatterElements { axis: a, reduction: scatter::Reduction::Add },
                    &[&x, &places, &y],
                    &perm,
                );
                assert_permuted(scan::CumSum { axis: a, ..Default::default() }, &[&x], &perm);
                assert_permuted(search::TopK { axis: a, k: Int::new(2), ..Default::default() }, &[&x], &perm);
                assert_permuted(softmax::Softmax { axes: vec![axis] }, &[&x], &perm);
                assert_permuted(local_norm::Lrn { size: 3, axis, ..Default::default() }, &[&x], &perm);
                for keepdims in [false, true] {
                    assert_permuted(reduce::Reduce { axes: vec![axis], keepdims, ..Default::default() }, &[&x], &perm);
                    assert_permuted(arg_reduce::ArgReduce { axis, keepdims, ..Default::default() }, &[&x], &perm);
                }
            }
        }
    }

    #[test]
    fn ops_with_a_value_for_each_axis() {
        let x = random(&[2, 3, 1, 6], 1);
        for perm in PERMS {
            let slice = slice::Slice {
                starts: ints(&[1, -1]),
                ends: ints(&[9, 0]),
                axes: vec![1, 3],
                steps: vec![1, -2],
                dims: vec![],
            };
            assert_permuted(slice, &[&x], &perm);
            assert_permuted(pad::Pad { pads: ints(&[0, 1, 2, 0, 0, 0, 3, -1]), ..Default::default() }, &[&x], &perm);
            assert_permuted(broadcast::Tile { repeats: ints(&[1, 2, 3, 1]), dims: vec![] }, &[&x], &perm);
            assert_permuted(broadcast::Expand { shape: ints(&[5, 1]), dims: vec![] }, &[&x], &perm);
            assert_permuted(transpose::Transpose { perm: vec![1, 0, 3, 2] }, &[&x], &perm);
            assert_permuted(reshape::Squeeze { axes: vec![-2] }, &[&x], &perm);
            assert_permuted(reshape::Unsqueeze { axes: vec![1, -1] }, &[&x], &perm);
            let resize =
                resize::Resize { sizes: ints(&[2, 3, 2, 9]), mode: resize::ResizeMode::Linear, ..Default::default() };
            assert_permuted(resize, &[&x], &perm);
        }
    }

    #[test]
    fn permutations() {
        let nhwc = [0, 2, 3, 1];
        assert_eq!(permute(&['n', 'c', 'h', 'w'], &nhwc), ['n', 'h', 'w', 'c']);
        assert_eq!(invert(&nhwc), [0, 3, 1, 2]);
        assert_eq!(permuted_axis(2, &nhwc), 1);
        assert_eq!(permuted_axis(1, &nhwc), 3);
        assert_eq!(permutation_without(&nhwc, &[2]), [0, 2, 1]);
        assert_eq!(normalize_axes(&[-1, 0], 3), Ok(vec![2, 0]));
        assert!(normalize_axes(&[-1, 2], 3).is_err());
    }
}
