//! The terms of a sum, without simplifying it.

use super::{Int, IntNode};
use crate::name::Name;

/// Atoms with their constant factors, in order of first occurrence and without zeros, and the constant of a sum. `None`
/// when a factor leaves i64.
#[allow(clippy::type_complexity)]
pub fn terms(e: &Int) -> Option<(Vec<(Int, i64)>, i64)> {
    let mut out = (Vec::new(), 0);
    add(e, 1, &mut out.0, &mut out.1)?;
    out.0.retain(|t| t.1 != 0);
    Some(out)
}

/// A sum of atoms with constant factors, and a constant.
#[derive(Clone, Default, Debug)]
pub struct Sum {
    /// Atoms with their factors.
    pub terms: Vec<(Int, i64)>,
    /// The constant.
    pub constant: i64,
}

impl Sum {
    /// The element that an index names in a buffer: the index and the extent of each dimension, outermost first. `None`
    /// when a factor leaves i64.
    pub fn of_index<'a>(index: impl IntoIterator<Item = (&'a Int, i64)>) -> Option<Sum> {
        index.into_iter().try_fold(Sum::default(), |mut flat, (i, extent)| {
            for t in &mut flat.terms {
                t.1 = t.1.checked_mul(extent)?;
            }
            flat.constant = flat.constant.checked_mul(extent)?;
            add(i, 1, &mut flat.terms, &mut flat.constant)?;
            Some(flat)
        })
    }
    /// Its value for each row and each column, a list for each row. `of_row` gives the values of the variables in
    /// `own`, `of_column` those of all others. Terms that depend on rows only or on columns only are evaluated once per
    /// row or column. `None` if a value is not known or leaves i64.
    pub fn tabulate<R, C>(
        &self,
        rows: &[R],
        columns: &[C],
        own: &dyn Fn(Name) -> bool,
        of_row: &dyn Fn(&R, Name) -> Option<i64>,
        of_column: &dyn Fn(&C, Name) -> Option<i64>,
    ) -> Option<Vec<Vec<i64>>> {
        let (mut by_row, mut by_column, mut mixed) = (vec![], vec![], vec![]);
        for t in &self.terms {
            let vars = t.0.vars();
            match vars.iter().filter(|v| own(**v)).count() {
                0 => by_column.push(t),
                n if n == vars.len() => by_row.push(t),
                _ => mixed.push(t),
            }
        }
        let sum = |start: i64, terms: &[&(Int, i64)], value: &dyn Fn(Name) -> Option<i64>| {
            terms.iter().try_fold(start, |sum, t| sum.checked_add(t.0.eval(value)?.checked_mul(t.1)?))
        };
        let starts: Vec<i64> =
            columns.iter().map(|c| sum(self.constant, &by_column, &|v| of_column(c, v))).collect::<Option<_>>()?;
        let row = |r: &R| -> Option<Vec<i64>> {
            let moved = sum(0, &by_row, &|v| of_row(r, v))?;
            let at = |(c, start): (&C, &i64)| {
                let value = |v: Name| if own(v) { of_row(r, v) } else { of_column(c, v) };
                sum(start.checked_add(moved)?, &mixed, &value)
            };
            columns.iter().zip(&starts).map(at).collect()
        };
        rows.iter().map(row).collect()
    }
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
    use crate::int::flatten_index;

    #[test]
    fn sums_open_up() {
        let (i, j) = (Int::var("i"), Int::var("j"));
        let e = (i.clone() * 4 - (j.clone() - 3)) * 2 + j.clone();
        assert_eq!(terms(&e), Some((vec![(i.clone(), 8), (j.clone(), -1)], 6)));
        assert_eq!(terms(&(i.clone() - i.clone() * 1 + 0)), Some((vec![], 0)));
        assert_eq!(terms(&(i.clone() * i64::MAX + i * i64::MAX)), None);
    }

    #[test]
    fn a_table_of_a_sum_is_its_value_at_each_place() {
        let (i, j, k) = (Int::var("i"), Int::var("j"), Int::var("k"));
        // A term of rows, one of columns, one of both, one of neither.
        let index = [
            i.clone() + j.clone() * 2,
            (i.clone() * 3 + j.clone()).rem(Int::new(5)) + k.clone(),
            j.clone().div(Int::new(2)) - 7,
        ];
        let extents = [11, 13, 17];
        let (rows, columns): (Vec<i64>, Vec<i64>) = ((0..4).collect(), (0..6).collect());
        let own = |v: Name| v == Name::new("i");
        let of_column = |c: &i64, v: Name| match v.as_str() {
            "j" => Some(*c),
            "k" => Some(100),
            _ => None,
        };
        let tabulate = |index: &[Int]| {
            let sum = Sum::of_index(index.iter().zip(extents)).expect("a sum");
            sum.tabulate(&rows, &columns, &own, &|r, _| Some(*r), &of_column)
        };
        let flat = flatten_index(&index, &extents.map(Int::new));
        let at = |r: i64, c: i64| flat.eval(&|v| if own(v) { Some(r) } else { of_column(&c, v) });
        let expected: Option<Vec<Vec<i64>>> =
            rows.iter().map(|r| columns.iter().map(|c| at(*r, *c)).collect()).collect();
        assert!(expected.is_some());
        assert_eq!(tabulate(&index), expected);
        assert_eq!(tabulate(&[Int::var("unknown")]), None);
        assert_eq!(Sum::of_index([(&(i * i64::MAX), 1), (&j, 2)]).map(|s| s.terms), None);
    }
}
