//! The number of iterations of a loop whose condition compares a counter with a size, as exporters write `while i < n`.
//!
//! ```text
//! loop (i = a) { i' = i + c; yield i' < n, i' }   runs  max(0, ceil((n - a) / c))  times, where a < n is asked before
//! ```

use crate::graph::{FunctionBuilder, ValueId};
use crate::int::Dim;
use crate::ops::binary::{Add, And, Greater, GreaterOrEqual, Less, LessOrEqual, Sub};
use crate::ops::broadcast::same_dim;
use crate::ops::cast::Cast;
use crate::ops::int_value;
use crate::ops::reshape::{Reshape, Squeeze, Unsqueeze};
use crate::ops::unary::Identity;

/// Nodes between a condition and its counter, at most.
const DEEPEST: usize = 32;

/// Conditions that are joined by And, at most.
const MOST_CONDITIONS: usize = 8;

/// A size that is known as an expression of the network's open dimensions.
pub(super) fn known_size(b: &FunctionBuilder<'_>, v: ValueId) -> Option<Dim> {
    match int_value(b.module, &b.function, v, 0)?.as_slice() {
        [one] => Some(one.clone()),
        _ => None,
    }
}

/// A loop whose body is there.
pub(super) struct Counting<'a, 'm> {
    pub(super) b: &'a FunctionBuilder<'m>,
    /// The body's argument that counts iterations.
    pub(super) index: ValueId,
    /// The carried arguments of the body, their first values, and the values for the next iteration.
    pub(super) args: &'a [ValueId],
    pub(super) first: &'a [ValueId],
    pub(super) next: &'a [ValueId],
}

/// `start + step * k < end` after iteration `k`, with a step above 0.
struct Bound {
    start: Dim,
    step: i64,
    end: Dim,
}

impl Counting<'_, '_> {
    /// The number of iterations, where `go_on` is yielded by the body and `begin` asked before it, if it is.
    pub(super) fn trips(&self, begin: Option<ValueId>, go_on: ValueId) -> Option<Dim> {
        let mut bounds = vec![];
        self.bounds(go_on, &mut bounds)?;
        let least = |list: Vec<Dim>| list.into_iter().reduce(|a, b| a.min(b));
        let settle = |d: Dim| self.b.module.dims.settle(&d);
        let iterations = |start: &Dim, bound: &Bound| (bound.end.clone() - start).ceil_div(bound.step).max(0);
        let asked = begin.map(|v| known_size(self.b, v));
        if let None | Some(Some(_)) = &asked
            && asked.flatten().is_none_or(|d| d.is(1))
        {
            let after_first = least(bounds.iter().map(|bound| iterations(&bound.start, bound)).collect())?;
            return Some(settle(after_first + 1));
        }
        // The same conditions are asked before the first iteration: then each is one more of its row.
        let mut before = vec![];
        self.conditions(begin?, &mut before)?;
        let mut trips = vec![];
        for (bound, (counter, end)) in bounds.iter().zip(&before) {
            let (counter, end) = (known_size(self.b, *counter)?, known_size(self.b, end.0)? + end.1);
            let follows = same_dim(&(counter.clone() + bound.step), &bound.start) && same_dim(&end, &bound.end);
            trips.push(follows.then(|| iterations(&counter, bound))?);
        }
        (before.len() == bounds.len()).then_some(settle(least(trips)?))
    }

    /// The bounds on counters from the conjunction `v`.
    fn bounds(&self, v: ValueId, out: &mut Vec<Bound>) -> Option<()> {
        let mut conditions = vec![];
        self.conditions(v, &mut conditions)?;
        for (counter, (end, plus)) in conditions {
            let (start, step) = self.line(counter, 0)?;
            let (end, still) = self.line(end, 0)?;
            let step = step.as_const().filter(|&c| c > 0 && still.is(0))?;
            out.push(Bound { start, step, end: end + plus });
        }
        (!out.is_empty()).then_some(())
    }

    /// The comparisons `a < b + plus` in the conjunction `v`, as `(a, (b, plus))`; `None` if it contains anything else.
    fn conditions(&self, v: ValueId, out: &mut Vec<(ValueId, (ValueId, i64))>) -> Option<()> {
        if out.len() > MOST_CONDITIONS {
            return None;
        }
        if known_size(self.b, v).is_some_and(|d| d.is(1)) {
            return Some(());
        }
        let node = &self.b.function.nodes[self.b.function.def_node(v)?];
        let operand = |i: usize| node.inputs.get(i).copied().flatten();
        if let Some(same) = self.passes_on(v) {
            return self.conditions(same, out);
        }
        let (a, b) = (operand(0)?, operand(1)?);
        let op = &node.op;
        if op.is::<And>() {
            self.conditions(a, out)?;
            return self.conditions(b, out);
        }
        let condition = match () {
            () if op.is::<Less>() => (a, (b, 0)),
            () if op.is::<LessOrEqual>() => (a, (b, 1)),
            () if op.is::<Greater>() => (b, (a, 0)),
            () if op.is::<GreaterOrEqual>() => (b, (a, 1)),
            () => return None,
        };
        out.push(condition);
        Some(())
    }

    /// `v` in iteration `k` is `start + step * k`.
    fn line(&self, v: ValueId, depth: usize) -> Option<(Dim, Dim)> {
        let one = self.b.ty(v).dtype.is_int() && self.b.ty(v).numel().is(1);
        if !one || depth > DEEPEST {
            return None;
        }
        if v == self.index {
            return Some((Dim::new(0), Dim::new(1)));
        }
        if let Some(i) = self.args.iter().position(|&a| a == v) {
            return Some((known_size(self.b, *self.first.get(i)?)?, self.above(*self.next.get(i)?, v, depth)?));
        }
        if let Some(d) = known_size(self.b, v) {
            return Some((d, Dim::new(0)));
        }
        if let Some(same) = self.passes_on(v) {
            return self.line(same, depth + 1);
        }
        let (a, b, sign) = self.sum(v)?;
        let ((a, by), (b, also)) = (self.line(a, depth + 1)?, self.line(b, depth + 1)?);
        Some((a + b * sign, by + also * sign))
    }

    /// The difference `v - base`, if it is a known number.
    fn above(&self, v: ValueId, base: ValueId, depth: usize) -> Option<Dim> {
        if v == base {
            return Some(Dim::new(0));
        }
        if depth > DEEPEST {
            return None;
        }
        if let Some(same) = self.passes_on(v) {
            return self.above(same, base, depth + 1);
        }
        let (a, b, sign) = self.sum(v)?;
        let by = |v: ValueId| known_size(self.b, v);
        match (by(a), by(b)) {
            (_, Some(by)) => Some(self.above(a, base, depth + 1)? + by * sign),
            (Some(by), None) if sign == 1 => Some(self.above(b, base, depth + 1)? + by),
            _ => None,
        }
    }

    /// The operands of a sum, or of a difference (-1).
    fn sum(&self, v: ValueId) -> Option<(ValueId, ValueId, i64)> {
        let node = &self.b.function.nodes[self.b.function.def_node(v)?];
        let sign = if node.op.is::<Add>() { 1 } else { -1 };
        let [Some(a), Some(b)] = node.inputs[..] else { return None };
        (sign == 1 || node.op.is::<Sub>()).then_some((a, b, sign))
    }

    /// The value that the node of `v` passes on as it is.
    fn passes_on(&self, v: ValueId) -> Option<ValueId> {
        let node = &self.b.function.nodes[self.b.function.def_node(v)?];
        let op = &node.op;
        let integer = |c: &Cast| c.to == self.b.ty(v).dtype && (c.to.is_int() || c.to == crate::dtype::DType::Bool);
        let passes = op.is::<Identity>() || op.is::<Reshape>() || op.is::<Squeeze>() || op.is::<Unsqueeze>();
        let from = node.inputs.first().copied().flatten()?;
        let same_kind = self.b.ty(from).dtype.is_int() == self.b.ty(v).dtype.is_int();
        (passes || op.downcast::<Cast>().is_some_and(integer) && same_kind).then_some(from)
    }
}
