//! The order of a constant whose elements neighbouring threads read.

use crate::int::Int;
use crate::name::Name;

/// The dimension of an operand at `index` that packing makes innermost: the dimension that `var` indexes, if it is not
/// contiguous already. `None` if packing would not help.
pub(in crate::schedule) fn dimension_to_pack(index: &[Int], shape: &[Int], var: Name) -> Option<usize> {
    let mut using = index.iter().enumerate().filter(|(_, i)| i.uses(var));
    let (at, i) = using.next()?;
    let strided = shape[at + 1..].iter().any(|n| !n.is(1));
    (using.next().is_none() && i.as_var() == Some(var) && strided).then_some(at)
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
}
