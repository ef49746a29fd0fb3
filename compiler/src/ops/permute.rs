//! Axes and permutations: what axis-carrying ops answer to the layout pass.

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
        return Err(format!("axis {axis} is out of range for rank {rank}"));
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
            return Err(format!("axis {a} occurs twice"));
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

/// The permutation of the dimensions that stay when `removed` (old axes) are taken out of a tensor transposed by `perm`.
pub fn permutation_without(perm: &[usize], removed: &[usize]) -> Vec<usize> {
    let kept: Vec<usize> = perm.iter().copied().filter(|p| !removed.contains(p)).collect();
    kept.iter().map(|&p| kept.iter().filter(|&&q| q < p).count()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
