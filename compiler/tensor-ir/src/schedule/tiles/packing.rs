//! The order of a constant whose elements neighbouring threads read, and elements that neighbours share.

use crate::int::{self, Int};
use crate::name::Name;
use crate::tir::TensorFunction;

/// The dimension of an operand at `index` that packing makes innermost: the dimension that `var` indexes, if it is not
/// contiguous already. `None` if packing would not help.
pub(in crate::schedule) fn dimension_to_pack(index: &[Int], shape: &[Int], var: Name) -> Option<usize> {
    let mut using = index.iter().enumerate().filter(|(_, i)| i.uses(var));
    let (at, i) = using.next()?;
    let strided = shape[at + 1..].iter().any(|n| !n.is(1));
    (using.next().is_none() && i.as_var() == Some(var) && strided).then_some(at)
}

/// Neighbours along a loop that share an element, at most.
const MOST_SHARING: i64 = 1 << 14;

/// How many neighbours along loop `var` read the same element at `index`, where the next so many read the one behind
/// it: 1 for plain elements, 8 for nibbles of words, 32 for a scale of each block. `None` where the index does not move
/// with the loop, or in another way.
pub(in crate::schedule) fn neighbours_sharing(
    f: &TensorFunction,
    (shape, index): (&[Int], &[Int]),
    var: Name,
) -> Option<i64> {
    if !index.iter().any(|i| i.uses(var)) {
        return None;
    }
    let flat = int::flatten_index(index, shape);
    let (group, within) = (Name::new("group of neighbours"), Name::new("neighbour"));
    let shares = |n: i64| {
        let mut bounds = f.bounds();
        bounds.insert(group, 0, i64::MAX);
        bounds.insert(within, 0, n - 1);
        let first = flat.substitute(var, &(Int::var(group) * n));
        let moved = |by: Int| int::simplify(&(flat.substitute(var, &(Int::var(group) * n + by)) - &first), &bounds);
        moved(Int::var(within)).is(0) && moved(Int::new(n)).is(1)
    };
    std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n <= MOST_SHARING).find(|n| shares(*n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_go_innermost_where_they_do_not_lie_so() {
        let [c, r, s] = ["c", "r", "s"].map(|n| Int::var(Name::new(n)));
        let shape = [32, 1, 3, 3].map(Int::new);
        let index = [c.clone(), Int::new(0), r.clone(), s.clone()];
        assert_eq!(dimension_to_pack(&index, &shape, "c".into()), Some(0));
        assert_eq!(dimension_to_pack(&index, &shape, "s".into()), None, "innermost already");
        let packed = [r.clone(), s, c.clone()];
        assert_eq!(dimension_to_pack(&packed, &[3, 3, 32].map(Int::new), "c".into()), None);
        let mixed = [c + r.clone(), r];
        assert_eq!(dimension_to_pack(&mixed, &[32, 3].map(Int::new), "c".into()), None, "not the loop alone");
    }

    #[test]
    fn neighbours_share_words_and_scales() {
        let f = crate::schedule::testing::matmul(4, 4, 64);
        let [n, k] = ["n", "k"].map(|v| Int::var(Name::new(v)));
        let sharing = |index: &[Int], shape: &[i64]| {
            let shape: Vec<Int> = shape.iter().map(|d| Int::new(*d)).collect();
            neighbours_sharing(&f, (&shape, index), "k".into())
        };
        assert_eq!(sharing(&[n.clone(), k.clone()], &[8, 64]), Some(1));
        assert_eq!(sharing(&[n.clone(), k.clone().div(8)], &[8, 8]), Some(8), "nibbles of words");
        assert_eq!(sharing(&[n.clone(), k.clone().div(32)], &[8, 2]), Some(32), "a scale of each block");
        assert_eq!(sharing(&[k.clone(), n.clone()], &[64, 8]), None, "a column");
        assert_eq!(sharing(&[n], &[8]), None);
    }
}
