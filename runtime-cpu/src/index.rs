//! Index expressions as the executor evaluates them: sums of multiples of loop variables, and what is none.

use crate::memory::View;
use rustc_hash::FxHashMap;
use tensor_ir::arena::Id;
use tensor_ir::int::{Cond, CondOp, Int, IntNode, flatten_index};
use tensor_ir::name::Name;
use tensor_ir::tir::TensorFunction;

/// Where the value of a loop variable or symbol is kept.
pub(crate) type Slot = usize;

/// A loop of a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub slot: Slot,
    pub count: i64,
}

/// A sum.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Index {
    pub base: i64,
    /// Multiples of variables.
    pub terms: Vec<(Slot, i64)>,
    /// Multiples of anything else.
    pub rest: Vec<(i64, Node)>,
}

/// What is no sum.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Mul(Index, Index),
    Div(Index, Index),
    Mod(Index, Index),
    Min(Index, Index),
    Max(Index, Index),
    /// An element of an integer buffer.
    Load(usize, Index),
}

/// The values of variables, and the buffers that indices may read.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub env: &'a [i64],
    pub views: &'a [View],
}

impl Node {
    pub(crate) fn parts(&self) -> [Option<&Index>; 2] {
        match self {
            Node::Mul(a, b) | Node::Div(a, b) | Node::Mod(a, b) | Node::Min(a, b) | Node::Max(a, b) => {
                [Some(a), Some(b)]
            }
            Node::Load(_, a) => [Some(a), None],
        }
    }
    pub(crate) fn uses(&self, slot: Slot) -> bool {
        self.parts().into_iter().flatten().any(|i| i.uses(slot))
    }
    /// The value for these of the parts.
    #[inline(always)]
    pub(crate) fn of(&self, a: i64, b: i64, views: &[View]) -> i64 {
        match self {
            Node::Mul(..) => a.wrapping_mul(b),
            Node::Div(..) => floor_div(a, b),
            Node::Mod(..) => a - floor_div(a, b).wrapping_mul(b),
            Node::Min(..) => a.min(b),
            Node::Max(..) => a.max(b),
            Node::Load(buffer, _) => views[*buffer].integer(a),
        }
    }
}

/// Floor division; 0 by 0.
#[inline(always)]
pub(crate) fn floor_div(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    if (a | b) as u64 <= u64::from(u32::MAX) {
        return i64::from(a as u32 / b as u32);
    }
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && ((a < 0) != (b < 0)) { q - 1 } else { q }
}

impl Index {
    /// A constant.
    fn constant(base: i64) -> Index {
        Index { base, ..Index::default() }
    }
    pub(crate) fn as_constant(&self) -> Option<i64> {
        (self.terms.is_empty() && self.rest.is_empty()).then_some(self.base)
    }
    fn node(n: Node) -> Index {
        Index { rest: vec![(1, n)], ..Index::default() }
    }
    fn plus(mut self, other: Index, times: i64) -> Index {
        self.base += other.base * times;
        for (slot, by) in other.terms {
            match self.terms.iter_mut().find(|t| t.0 == slot) {
                Some(t) => t.1 += by * times,
                None => self.terms.push((slot, by * times)),
            }
        }
        self.terms.retain(|t| t.1 != 0);
        other.rest.into_iter().fold(self, |all, (by, n)| all.plus_node(by * times, n))
    }
    /// Adds a multiple of a node: `x / 8 * 16 + x % 8 * 2` is `x * 2`, and `x / 24 * 3 + x / 8 % 3` is `x / 8`.
    fn plus_node(mut self, by: i64, node: Node) -> Index {
        let divided = |i: &Index, a: &Index, by: i64| match &i.rest[..] {
            [(1, Node::Div(of, n))] if i.base == 0 && i.terms.is_empty() => of == a && n.as_constant() == Some(by),
            _ => false,
        };
        let whole = |div: (i64, &Node), modulo: (i64, &Node)| match (div.1, modulo.1) {
            (Node::Div(a, b), Node::Mod(c, d)) => {
                let (n, d) = (b.as_constant()?, d.as_constant().filter(|d| *d != 0)?);
                let same = a == c && n == d || n % d == 0 && divided(c, a, n / d);
                (same && div.0 == modulo.0 * d).then(|| (c.clone(), modulo.0))
            }
            _ => None,
        };
        let new = (by, &node);
        let found = self.rest.iter().enumerate().find_map(|(i, r)| {
            let old = (r.0, &r.1);
            Some((i, whole(new, old).or_else(|| whole(old, new))?))
        });
        match found {
            Some((i, (index, by))) => {
                self.rest.remove(i);
                self.plus(index, by)
            }
            None => {
                self.rest.push((by, node));
                self
            }
        }
    }
    /// The index where these variables are 0, as far as it is a sum of their multiples.
    pub(crate) fn without(&self, slots: &[Slot]) -> Index {
        let mut terms: Vec<(Slot, i64)> = self.terms.iter().copied().filter(|t| !slots.contains(&t.0)).collect();
        terms.sort_unstable();
        Index { base: self.base, terms, rest: self.rest.clone() }
    }
    /// The sum and the multiples of a variable that `of` has.
    pub(crate) fn plus_variable(mut self, slot: Slot, of: &Index) -> Index {
        self.terms.extend(of.terms.iter().filter(|t| t.0 == slot));
        self
    }
    /// The index and a multiple of a variable that it does not use.
    pub(crate) fn and(mut self, slot: Slot, times: i64) -> Index {
        self.terms.push((slot, times));
        self
    }
    /// The sum with another variable in the place of one; `None` if that occurs in more than multiples.
    pub(crate) fn with_variable(&self, from: Slot, to: Slot) -> Option<Index> {
        self.stride(from)?;
        let mut out = self.clone();
        out.terms.iter_mut().filter(|t| t.0 == from).for_each(|t| t.0 = to);
        out.terms.sort_unstable();
        Some(out)
    }
    /// True if the variable occurs.
    pub(crate) fn uses(&self, slot: Slot) -> bool {
        self.terms.iter().any(|t| t.0 == slot) || self.rest.iter().any(|(_, n)| n.uses(slot))
    }
    /// The variables that occur.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        let parts = self.rest.iter().flat_map(|(_, n)| n.parts()).flatten().flat_map(Index::slots);
        self.terms.iter().map(|t| t.0).chain(parts).collect()
    }
    /// By how much the value grows with the variable, where that is the same everywhere.
    pub(crate) fn stride(&self, slot: Slot) -> Option<i64> {
        let fixed = !self.rest.iter().any(|(_, n)| n.uses(slot));
        fixed.then(|| self.terms.iter().find(|t| t.0 == slot).map_or(0, |t| t.1))
    }
    /// True if the value depends on elements of a buffer.
    pub(crate) fn reads(&self) -> bool {
        self.rest.iter().any(|(_, n)| matches!(n, Node::Load(..)) || n.parts().into_iter().flatten().any(Index::reads))
    }
    /// True if it depends on elements of a buffer whose places differ with the variable.
    pub(crate) fn reads_with(&self, slot: Slot) -> bool {
        self.rest.iter().any(|(_, n)| n.uses(slot) && Index { rest: vec![(1, n.clone())], ..Index::default() }.reads())
    }
    /// The value.
    pub(crate) fn eval(&self, s: Scene<'_>) -> i64 {
        let sum = self.terms.iter().fold(self.base, |sum, t| sum + s.env[t.0] * t.1);
        self.rest.iter().fold(sum, |sum, (by, n)| {
            let [a, b] = n.parts().map(|i| i.map_or(0, |i| i.eval(s)));
            sum + by * n.of(a, b, s.views)
        })
    }
}

/// A condition: how the index compares with 0.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Condition {
    pub op: CondOp,
    pub index: Index,
}

impl Condition {
    #[inline(always)]
    pub(crate) fn of(op: CondOp, value: i64) -> bool {
        match op {
            CondOp::Lt => value < 0,
            CondOp::Ge => value >= 0,
            CondOp::Eq => value == 0,
        }
    }
}

/// An index that is held between limits: `min(index, 223)`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Clamp {
    pub index: Index,
    /// The least and the largest value that the limits leave as it is.
    pub limits: (i64, i64),
}

impl Clamp {
    fn of(node: &Node) -> Option<Clamp> {
        let (a, b, below) = match node {
            Node::Min(a, b) => (a, b, true),
            Node::Max(a, b) => (a, b, false),
            _ => return None,
        };
        let (index, limit) = b.as_constant().map(|n| (a, n)).or_else(|| a.as_constant().map(|n| (b, n)))?;
        let limits = if below { (i64::MIN, limit) } else { (limit, i64::MAX) };
        Some(Clamp { index: index.clone(), limits })
    }
    /// True if the limits change nothing while these loops, from here on, run.
    pub(crate) fn is_idle(&self, loops: &[(Slot, i64)], s: Scene<'_>) -> bool {
        self.index.range(loops, s).is_some_and(|(low, high)| low >= self.limits.0 && high <= self.limits.1)
    }
}

/// Ranges of indices.
impl Index {
    /// A range that has all values while these loops, from here on, run; none where nothing is known.
    fn range(&self, loops: &[(Slot, i64)], s: Scene<'_>) -> Option<(i64, i64)> {
        let here = self.terms.iter().fold(self.base, |sum, t| sum + s.env[t.0] * t.1);
        let step = |slot: Slot| self.terms.iter().find(|t| t.0 == slot).map_or(0, |t| t.1);
        let sum = loops
            .iter()
            .map(|l| step(l.0) * (l.1 - 1))
            .fold((here, here), |(low, high), r| (low + r.min(0), high + r.max(0)));
        self.rest.iter().try_fold(sum, |(low, high), (by, n)| {
            let (a, b) = n.range(loops, s)?;
            Some((low + (a * by).min(b * by), high + (a * by).max(b * by)))
        })
    }
}

impl Node {
    fn range(&self, loops: &[(Slot, i64)], s: Scene<'_>) -> Option<(i64, i64)> {
        let [a, b] = self.parts();
        if !loops.iter().any(|l| self.uses(l.0)) {
            let here = self.of(a.map_or(0, |i| i.eval(s)), b.map_or(0, |i| i.eval(s)), s.views);
            return Some((here, here));
        }
        let (a, b) = (a?.range(loops, s)?, b?.range(loops, s)?);
        // A quotient by a positive number grows with what is divided.
        let divisor = (b.0 == b.1 && b.0 > 0).then_some(b.0);
        match self {
            Node::Div(..) => divisor.map(|n| (floor_div(a.0, n), floor_div(a.1, n))),
            Node::Mod(..) => divisor.map(|n| match floor_div(a.0, n) {
                q if q == floor_div(a.1, n) => (a.0 - q * n, a.1 - q * n),
                _ => (0, n - 1),
            }),
            Node::Min(..) => Some((a.0.min(b.0), a.1.min(b.1))),
            Node::Max(..) => Some((a.0.max(b.0), a.1.max(b.1))),
            Node::Mul(..) | Node::Load(..) => None,
        }
    }
}

impl Index {
    /// The index without the limits that it is held between, and these.
    pub(crate) fn without_clamps(&self) -> (Index, Vec<Clamp>) {
        let mut out = Index { rest: vec![], ..self.clone() };
        let mut clamps = vec![];
        for (factor, node) in &self.rest {
            match Clamp::of(node) {
                Some(clamp) => {
                    out = out.plus(clamp.index.clone(), *factor);
                    clamps.push(clamp);
                }
                None => out = out.plus_node(*factor, node.clone()),
            }
        }
        (out, clamps)
    }
    /// The index without upper limits on a variable that what they hold grows with, and where they change nothing, with
    /// the step from one of its values to the next.
    pub(crate) fn without_ends(&self, of: Slot) -> (Index, Vec<(Condition, i64)>) {
        let mut out = Index { rest: vec![], ..self.clone() };
        let mut ends = vec![];
        for (factor, node) in &self.rest {
            let end = Clamp::of(node).and_then(|c| Some((c.index.stride(of).filter(|step| *step > 0)?, c)));
            match end.filter(|(_, c)| c.limits.0 == i64::MIN) {
                Some((step, Clamp { index, limits: (_, last) })) => {
                    out = out.plus(index.clone(), *factor);
                    let beyond = index.plus(Index::constant(last + 1), -1);
                    ends.push((Condition { op: CondOp::Lt, index: beyond.without(&[of]) }, step));
                }
                None => out = out.plus_node(*factor, node.clone()),
            }
        }
        (out, ends)
    }
    /// The same without remainders of these variables whose quotients are not there, `x / 8 % 3 * 8 + x % 8`: they are
    /// limits of what is divided, here between 0 and 24.
    pub(crate) fn without_limits(&self, of: &[Slot]) -> (Index, Vec<Clamp>) {
        let (mut out, mut clamps) = self.without_clamps();
        while let Some((at, n)) = out.largest_remainder(of) {
            let (factor, Node::Mod(of, _)) = out.rest.remove(at) else { break };
            clamps.push(Clamp { index: of.clone(), limits: (0, n - 1) });
            out = out.plus(of, factor);
        }
        (out, clamps)
    }
    /// The remainder of these variables with the largest factor, and by what it is one.
    fn largest_remainder(&self, of: &[Slot]) -> Option<(usize, i64)> {
        let by = |n: &Node| match n {
            Node::Mod(a, b) if of.iter().any(|slot| a.uses(*slot)) => b.as_constant().filter(|b| *b > 0),
            _ => None,
        };
        let all = self.rest.iter().enumerate().filter_map(|(at, (factor, n))| Some((*factor, at, by(n)?)));
        all.max().map(|(_, at, n)| (at, n))
    }
}

/// Turns index expressions of a function into sums over slots.
pub(crate) struct Indices<'f> {
    pub f: &'f TensorFunction,
    pub slots: FxHashMap<Name, Slot>,
    /// Values of symbols.
    pub known: FxHashMap<Name, i64>,
    pub bounds: tensor_ir::int::Bounds,
    /// Iterations of each variable.
    pub counts: Vec<i64>,
}

impl Indices<'_> {
    /// The slot of a loop variable, which is new.
    pub(crate) fn bind(&mut self, var: Name, extent: i64) -> Slot {
        let slot = self.slots.len();
        self.slots.insert(var, slot);
        self.counts.resize(slot + 1, extent);
        self.bounds.insert(var, 0, (extent - 1).max(0));
        slot
    }
    /// True if a place is one of so many elements in every iteration of its loops, as far as it is a sum.
    pub(crate) fn is_within(&self, place: &Index, elements: i64) -> bool {
        let ends = place.terms.iter().map(|&(slot, by)| by * (self.counts[slot] - 1).max(0));
        let (low, high) = ends.fold((place.base, place.base), |(l, h), e| (l + e.min(0), h + e.max(0)));
        place.rest.is_empty() && low >= 0 && high < elements
    }
    /// The place of an element in its buffer.
    pub(crate) fn place(&self, buffer: tensor_ir::tir::BufferId, indices: &[Int]) -> Result<Index, String> {
        self.index(&flatten_index(indices, &self.f.buffers[buffer].shape))
    }
    /// An index expression.
    pub(crate) fn index(&self, i: &Int) -> Result<Index, String> {
        let known = i.replace(&mut |v| self.known.get(&v).map(|n| Int::new(*n)));
        self.sum(&tensor_ir::int::simplify(&known, &self.bounds))
    }
    /// A condition.
    pub(crate) fn condition(&self, c: &Cond) -> Result<Condition, String> {
        Ok(Condition { op: c.op, index: self.index(&(c.lhs.clone() - &c.rhs))? })
    }
    fn sum(&self, i: &Int) -> Result<Index, String> {
        let both = |a: &Int, b: &Int| Ok::<_, String>((self.sum(a)?, self.sum(b)?));
        Ok(match i.node() {
            IntNode::Const(c) => Index::constant(*c),
            IntNode::Var(v) => {
                let slot = self.slots.get(v).ok_or_else(|| format!("`{v}` is no loop around and has no value"))?;
                Index { terms: vec![(*slot, 1)], ..Index::default() }
            }
            IntNode::Add(a, b) => self.sum(a)?.plus(self.sum(b)?, 1),
            IntNode::Sub(a, b) => self.sum(a)?.plus(self.sum(b)?, -1),
            IntNode::Mul(a, b) => {
                let (a, b) = both(a, b)?;
                match (a.as_constant(), b.as_constant()) {
                    (Some(n), _) => Index::default().plus(b, n),
                    (_, Some(n)) => Index::default().plus(a, n),
                    _ => Index::node(Node::Mul(a, b)),
                }
            }
            IntNode::Div(a, b) => both(a, b).map(|(a, b)| Index::node(Node::Div(a, b)))?,
            IntNode::Mod(a, b) => both(a, b).map(|(a, b)| Index::node(Node::Mod(a, b)))?,
            IntNode::Min(a, b) => both(a, b).map(|(a, b)| Index::node(Node::Min(a, b)))?,
            IntNode::Max(a, b) => both(a, b).map(|(a, b)| Index::node(Node::Max(a, b)))?,
            IntNode::Load(buffer, ix) => Index::node(Node::Load(buffer.index(), self.place(*buffer, ix)?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(base: i64, terms: &[(Slot, i64)]) -> Index {
        Index { base, terms: terms.to_vec(), rest: vec![] }
    }

    /// Rows of an image, `p0[min(m / 9, 7), m % 9]`, whose limit is idle but for rows beyond the end.
    #[test]
    fn limits_on_a_quotient_are_idle_inside() {
        let (nine, row) = (|| sum(9, &[]), || sum(0, &[(0, 4), (1, 1)]));
        let limited = Node::Min(Index::node(Node::Div(row(), nine())), sum(7, &[]));
        for divided_first in [true, false] {
            let mut parts = [(9, limited.clone()), (1, Node::Mod(row(), nine()))];
            if !divided_first {
                parts.reverse();
            }
            let (plain, clamps) = Index { rest: parts.to_vec(), ..Index::default() }.without_clamps();
            assert_eq!((plain.stride(0), plain.stride(1), clamps.len()), (Some(4), Some(1), 1), "{plain:?}");
            for tile in 0..20 {
                let env = [tile, 0];
                let idle = clamps[0].is_idle(&[(1, 4)], Scene { env: &env, views: &[] });
                assert_eq!(idle, tile * 4 + 3 < 72, "tile {tile}");
            }
        }
    }

    /// Rows of several pictures, of one, and of a row alone: tiles go across their ends.
    #[test]
    fn rows_of_pictures_lie_together() {
        let row = || sum(0, &[(0, 6), (1, 1)]);
        let div = |a: Index, n: i64| Index::node(Node::Div(a, sum(n, &[])));
        let rem = |a: Index, n: i64| Index::node(Node::Mod(a, sum(n, &[])));
        let picture = || Index::default().plus(rem(div(row(), 5), 3), 5).plus(rem(row(), 5), 1);
        for (index, most) in [(picture().plus(div(row(), 15), 15), 90), (picture(), 15), (rem(row(), 5), 5)] {
            assert_eq!(index.without_limits(&[7]).1, [], "remainders that a tile does not move in stay");
            let (plain, clamps) = index.without_limits(&[1]);
            assert_eq!((plain.stride(0), plain.stride(1)), (Some(6), Some(1)), "{index:?}");
            for tile in 0..most / 6 + 1 {
                let env = [tile, 0];
                let idle = clamps.iter().all(|c| c.is_idle(&[(1, 6)], Scene { env: &env, views: &[] }));
                assert_eq!(idle, tile * 6 + 5 < most || most == 90, "{index:?} tile {tile}");
            }
        }
    }

    /// A range has every value, and no end that is not taken where the index is a sum, quotient or limit.
    #[test]
    fn ranges_have_all_values() {
        let number = |n: i64| sum(n, &[]);
        let mixed = || sum(-7, &[(0, 3), (1, -2), (2, 5)]);
        let of = |node: Node| Index { base: 2, terms: vec![(1, 1)], rest: vec![(-3, node)] };
        for (index, exact) in [
            (mixed(), true),
            (of(Node::Div(sum(0, &[(0, 5)]), number(3))), true),
            (of(Node::Mod(mixed(), number(4))), false),
            (of(Node::Mod(sum(0, &[(0, 1)]), number(100))), true),
            (of(Node::Min(sum(0, &[(0, 2)]), number(5))), true),
            (of(Node::Max(mixed(), sum(0, &[(0, 1)]))), false),
        ] {
            for around in [0, 3, -4] {
                let all = (0..6).flat_map(|a| (0..3).map(move |b| [a, b, around]));
                let values = all.map(|env| index.eval(Scene { env: &env, views: &[] })).collect::<Vec<i64>>();
                let (low, high) = (values.iter().min().copied(), values.iter().max().copied());
                let range = index.range(&[(0, 6), (1, 3)], Scene { env: &[0, 0, around], views: &[] });
                let (least, greatest) = range.unwrap_or_else(|| panic!("{index:?}"));
                assert!(Some(least) <= low && high <= Some(greatest), "{index:?} {around}");
                assert!(!exact || (Some(least), Some(greatest)) == (low, high), "{index:?} {around}");
            }
        }
    }
}
