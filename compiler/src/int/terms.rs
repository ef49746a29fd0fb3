//! The terms of a sum as it stands, without simplifying it.

use super::{Int, IntNode};

/// Atoms with their constant factors, in order of first occurrence and without zeros, and the constant of a sum. `None`
/// when a factor leaves i64.
#[allow(clippy::type_complexity)]
pub fn terms(e: &Int) -> Option<(Vec<(Int, i64)>, i64)> {
    let mut out = (Vec::new(), 0);
    add(e, 1, &mut out.0, &mut out.1)?;
    out.0.retain(|t| t.1 != 0);
    Some(out)
}

fn add(e: &Int, factor: i64, out: &mut Vec<(Int, i64)>, constant: &mut i64) -> Option<()> {
    match e.node() {
        IntNode::Const(c) => *constant = constant.checked_add(c.checked_mul(factor)?)?,
        IntNode::Add(a, b) => {
            add(a, factor, out, constant)?;
            add(b, factor, out, constant)?;
        }
        IntNode::Sub(a, b) => {
            add(a, factor, out, constant)?;
            add(b, factor.checked_neg()?, out, constant)?;
        }
        IntNode::Mul(a, b) if b.as_const().is_some() => add(a, factor.checked_mul(b.as_const()?)?, out, constant)?,
        IntNode::Mul(a, b) if a.as_const().is_some() => add(b, factor.checked_mul(a.as_const()?)?, out, constant)?,
        _ => match out.iter_mut().find(|t| t.0 == *e) {
            Some(t) => t.1 = t.1.checked_add(factor)?,
            None => out.push((e.clone(), factor)),
        },
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_open_up() {
        let (i, j) = (Int::var("i"), Int::var("j"));
        let e = (i.clone() * 4 - (j.clone() - 3)) * 2 + j.clone();
        assert_eq!(terms(&e), Some((vec![(i.clone(), 8), (j.clone(), -1)], 6)));
        assert_eq!(terms(&(i.clone() - i.clone() * 1 + 0)), Some((vec![], 0)));
        assert_eq!(terms(&(i.clone() * i64::MAX + i * i64::MAX)), None);
    }
}
