//! How an index grows along the rows and columns of a leaf: evenly, or by lists of what rows and columns add.
//!
//! ```text
//! x[i, max((j + 1) / 2 - 1, 0)]  for j in 0..6   ->   columns add 0, 0, 0, 1, 1, 2
//! ```
//!
//! A list is made once, when the kernel is translated. What rows and columns change together, or loops around them,
//! has none.

use crate::index::{Extent, Index, Scene};

/// Elements of a list, at most.
const MOST: i64 = 1 << 16;

/// How an index grows in rows and columns.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Along {
    /// Strides, from the first row and column on.
    Even([i64; 2]),
    /// Numbers that each row and each column adds to the index without them.
    Listed(Box<[List; 2]>),
}

/// Numbers that rows or columns add.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct List {
    pub added: Vec<i32>,
    /// How many from each on add one more than the one before.
    pub runs: Vec<usize>,
    /// How often each number is repeated, all as often, and each one more than the one before; else 1.
    repeats: usize,
    /// The least and the greatest that are added.
    ends: [i32; 2],
}

fn ends(all: &[i32]) -> [i32; 2] {
    all.iter().fold([i32::MAX, i32::MIN], |[low, high], x| [low.min(*x), high.max(*x)])
}

/// A part of a list; its last run may go on behind it.
#[derive(Clone, Copy)]
pub(crate) struct Listed<'l> {
    pub added: &'l [i32],
    pub runs: &'l [usize],
    /// As of the list, from the first one of a number on.
    pub repeats: usize,
}

impl Along {
    /// The index where its lanes begin, or without them, and what they add.
    pub(crate) fn of(index: &Index, lanes: [Extent; 2]) -> Option<(Index, Along)> {
        if let [Some(rows), Some(columns)] = lanes.map(|e| index.stride(e.slot)) {
            return Some((index.clone(), Along::Even([rows, columns])));
        }
        let slots = lanes.map(|e| e.slot);
        let mut rest = Index { rest: vec![], ..index.without(&slots) };
        let mut parts = slots.map(|slot| Index::default().plus_variable(slot, index));
        for (by, node) in &index.rest {
            let used = slots.map(|slot| node.uses(slot));
            match used {
                [false, false] => rest.rest.push((*by, node.clone())),
                [true, true] => return None,
                [row, _] => parts[usize::from(!row)].rest.push((*by, node.clone())),
            }
        }
        let lists = [0, 1].map(|i| List::of(&parts[i], lanes[i]));
        let [Some(rows), Some(columns)] = lists else { return None };
        Some((rest, Along::Listed(Box::new([rows, columns]))))
    }
    /// All lanes are one.
    pub(crate) fn is_single(&self) -> bool {
        *self == Along::Even([0, 0])
    }
}

impl List {
    /// The values of an index that nothing but these iterations change.
    fn of(index: &Index, e: Extent) -> Option<List> {
        if e.count > MOST || index.reads() || index.slots().iter().any(|s| *s != e.slot) {
            return None;
        }
        let slots = index.slots().into_iter().max().map_or(0, |last| last + 1);
        let mut env = vec![0; slots];
        let mut value = |i: i64| {
            env.iter_mut().for_each(|x| *x = i);
            i32::try_from(index.eval(Scene { env: &env, views: &[] })).ok()
        };
        let added: Vec<i32> = (0..e.count).map(&mut value).collect::<Option<_>>()?;
        let mut runs = vec![1; added.len()];
        for i in (1..added.len()).rev() {
            if added[i] == added[i - 1] + 1 {
                runs[i - 1] = runs[i] + 1;
            }
        }
        let ends = ends(&added);
        let repeats = added.iter().take_while(|x| **x == added[0]).count().max(1);
        let alike = (0..).zip(&added).all(|(i, x)| *x == added[0] + i / repeats as i32);
        Some(List { repeats: if alike { repeats } else { 1 }, added, runs, ends })
    }
    /// The numbers of `count` iterations from one on.
    pub(crate) fn part(&self, from: usize, count: usize) -> Listed<'_> {
        let repeats = if from.is_multiple_of(self.repeats) { self.repeats } else { 1 };
        Listed { added: &self.added[from..][..count], runs: &self.runs[from..][..count], repeats }
    }
    /// The least and the greatest that these iterations add.
    pub(crate) fn reach(&self, from: usize, count: usize) -> [i64; 2] {
        if count == self.added.len() {
            return self.ends.map(i64::from);
        }
        ends(&self.added[from..][..count]).map(i64::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Node;

    #[test]
    fn lists_have_what_rows_and_columns_add() {
        let sum = |base: i64, terms: &[(usize, i64)]| Index { base, terms: terms.to_vec(), rest: vec![] };
        let halved = Node::Div(sum(1, &[(1, 1)]), sum(2, &[]));
        let index = |node: Node| Index { rest: vec![(1, node)], ..sum(5, &[(0, 10), (2, 100)]) };
        let lanes = [Extent { slot: 0, count: 3 }, Extent { slot: 1, count: 5 }];
        let (rest, along) = Along::of(&index(halved), lanes).expect("columns alone divide");
        let Along::Listed(lists) = along else { panic!("{along:?}") };
        assert_eq!(rest, sum(5, &[(2, 100)]));
        assert_eq!((&lists[0].added[..], &lists[1].added[..]), (&[0, 10, 20][..], &[0, 1, 1, 2, 2][..]));
        assert_eq!((&lists[0].runs[..], &lists[1].runs[..]), (&[1, 1, 1][..], &[2, 1, 2, 1, 1][..]));
        assert_eq!(lists[1].reach(1, 3), [1, 2]);
        assert_eq!([0, 1].map(|i| lists[i].repeats), [1, 1]);
        let whole = Node::Div(sum(4, &[(1, 1)]), sum(2, &[]));
        let Some((_, Along::Listed(lists))) = Along::of(&index(whole), lanes) else { panic!("columns divide") };
        assert_eq!([0, 1, 2].map(|from| lists[1].part(from, 2).repeats), [2, 1, 2]);
        for both in [sum(0, &[(0, 1), (1, 1)]), sum(0, &[(2, 1), (1, 1)])] {
            assert_eq!(Along::of(&index(Node::Div(both, sum(2, &[]))), lanes), None);
        }
        assert_eq!(Along::of(&sum(5, &[(1, 2)]), lanes), Some((sum(5, &[(1, 2)]), Along::Even([0, 2]))));
    }
}
