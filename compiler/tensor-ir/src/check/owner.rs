//! Ownership of elements: proofs that two accesses of one element have the same index along an axis.
//!
//! An index is a sum of multiples of loop variables. The value of the sum *tells* a variable if its coefficient is
//! larger than the sum of all smaller terms, as for the digits of a mixed radix number. A variable from which quotients
//! and remainders are taken is itself such a number, and each digit is told separately. If the indices do not have this
//! form, the flat index is tried, and then every combination of values, if there are few.

use super::digits::{self, Radix, divide_in_steps, divided_sums};
use super::view::{Leaf, Parallel};
use crate::int::{self, Bounds, Int};
use crate::name::Name;
use crate::tir::Buffer;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::hash_map::Entry;

/// Largest number of combinations of values that are tried: for a proof, and for a search of a counterexample.
pub(super) const PROOF: i64 = 1 << 14;
pub(super) const COUNTEREXAMPLE: i64 = 1 << 8;

/// A variable of an index. Loops of one axis are one variable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Term {
    Axis(Parallel),
    /// A loop that the two accesses run independently of each other.
    Own(Name),
    /// A symbol, or a loop around the buffer's whole life: the same for both accesses.
    Same(Name),
    /// A sum that an access divides, by its position in the list of such sums.
    Sum(usize),
}

type Digit = digits::Digit<Term>;
type Form = digits::Sum<Term>;

/// A leaf, and the number of its outermost loops that it shares with the other access.
pub(super) struct AccessContext<'v, 'f> {
    leaf: &'v Leaf<'f>,
    shared: usize,
}

/// The sums that the indices of an access take quotients and remainders of. Such a sum is a number of digits too, and
/// two accesses that agree on all of them agree on the sum.
struct Sums(Vec<Int>);

impl Sums {
    fn of(context: &AccessContext<'_, '_>, indices: &[Int]) -> Sums {
        let bounds = context.bounds();
        let mut list = divided_sums(indices);
        // Digits are of numbers that are not negative.
        list.retain(|e| int::prove(e, 0, i64::MAX, &bounds));
        Sums(list)
    }
    fn term(&self, context: &AccessContext<'_, '_>, e: &Int) -> Option<Term> {
        match e.as_var() {
            Some(v) => Some(context.term(v)),
            None => self.0.iter().position(|s| s == e).map(Term::Sum),
        }
    }
}

impl<'v, 'f> AccessContext<'v, 'f> {
    pub(super) fn new(leaf: &'v Leaf<'f>, shared: usize) -> Self {
        AccessContext { leaf, shared }
    }
    fn term(&self, var: Name) -> Term {
        let Some(at) = self.leaf.loops.iter().position(|l| l.var == var) else { return Term::Same(var) };
        match Parallel::of(self.leaf.loops[at]) {
            Some(axis) => Term::Axis(axis),
            None if at < self.shared => Term::Same(var),
            None => Term::Own(var),
        }
    }
    fn form(&self, e: &Int, radix: &Radix<Term>, sums: &Sums) -> Option<Form> {
        Form::of(e, radix, &|e| sums.term(self, e))
    }
    /// Ranges of the loops around the leaf.
    fn bounds(&self) -> Bounds {
        let mut bounds = Bounds::new();
        for l in &self.leaf.loops {
            if let Some(n) = l.extent.as_const() {
                bounds.insert(l.var, 0, (n - 1).max(0));
            }
        }
        bounds
    }
    /// Largest value of a term; `None` where it is not known.
    fn high(&self, t: Term) -> Option<i64> {
        let extents: Vec<i64> = match t {
            Term::Same(_) | Term::Sum(_) => return None,
            Term::Own(v) => self.leaf.find(v).and_then(|l| l.extent.as_const()).into_iter().collect(),
            Term::Axis(a) => self.leaf.along(a).filter_map(|(_, l)| l.extent.as_const()).collect(),
        };
        extents.into_iter().min().map(|n| n - 1)
    }
    /// Largest value of a digit; `None` where it is not known.
    fn high_of(&self, d: Digit, radix: &Radix<Term>) -> Option<i64> {
        let whole = self.high(d.of).map(|h| h / d.base);
        let below = radix.values(d).map(|n| n - 1);
        match (whole, below) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
    /// [`AccessContext::high_of`], or more than any coefficient makes up for.
    fn most(&self, d: Digit, radix: &Radix<Term>) -> i64 {
        self.high_of(d, radix).unwrap_or(i64::MAX / 4)
    }
    /// The indices as forms: one per dimension, or else the flat index.
    fn forms(&self, indices: &[Int], buffer: &Buffer, radix: &Radix<Term>, sums: &Sums) -> Vec<Form> {
        let each: Option<Vec<Form>> = indices.iter().map(|i| self.form(i, radix, sums)).collect();
        each.unwrap_or_else(|| {
            let bounds = self.bounds();
            let flat = int::simplify(&int::flatten_index(indices, &buffer.shape), &bounds);
            let sum = || flat_sum(indices, &buffer.shape, &bounds).and_then(|e| self.form(&e, radix, sums));
            match self.form(&flat, radix, sums).or_else(sum) {
                Some(form) => vec![form],
                None => indices.iter().filter_map(|i| self.form(i, radix, sums)).collect(),
            }
        })
    }
}

/// The flat index as a sum of multiples of variables, if the indices are quotients and remainders of one fused loop.
/// The sum is guessed from its values with one variable set to 1, and then proved.
pub(super) fn flat_sum(indices: &[Int], shape: &[Int], bounds: &Bounds) -> Option<Int> {
    let flat = int::flatten_index(indices, shape);
    let at = |one: Option<Name>| flat.eval(&|v| Some(i64::from(Some(v) == one)));
    let start = at(None)?;
    let sum = flat.vars().into_iter().try_fold(Int::new(start), |sum, v| {
        let step = at(Some(v))?.checked_sub(start)?;
        Some(sum + Int::var(v) * step)
    })?;
    let mut stride = 1i64;
    let mut whole = false;
    for (i, d) in indices.iter().zip(shape).rev() {
        let same = |e: Int| int::simplify(&(e - i), bounds).is(0);
        let (n, digit) = (d.as_const()?, sum.div(stride));
        let all = same(digit.clone());
        if !all && !same(digit.rem(n)) {
            return None;
        }
        whole |= all && !i.is(0);
        stride = stride.checked_mul(n)?;
    }
    // Without the quotient that holds all the rest, the sum is known only up to the size of the buffer.
    (whole || int::prove(&sum, 0, stride - 1, bounds)).then_some(sum)
}

/// Differences of one dimension between two accesses of the same element: `sum of k * (difference of the digit) + rest
/// = 0` with `|rest| <= slack`.
struct Difference {
    /// Digit, coefficient, largest value.
    digits: Vec<(Digit, i64, i64)>,
    slack: i64,
}

/// The result of a proof attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Proved,
    /// There is a counterexample.
    Refuted,
    Open,
}

/// Whether two accesses of one element agree on every axis of `wanted`.
pub(super) fn same_owner(
    buffer: &Buffer,
    a: (&AccessContext<'_, '_>, &[Int]),
    b: (&AccessContext<'_, '_>, &[Int]),
    wanted: &FxHashSet<Parallel>,
    tries: i64,
) -> Verdict {
    let wanted: Vec<Term> = wanted.iter().map(|w| Term::Axis(*w)).collect();
    agree_on(buffer, a, b, &wanted, tries)
}

/// Whether different iterations of the loops that the indices use access different elements. Loops around the buffer's
/// life do not count.
pub(super) fn tells_its_loops(
    buffer: &Buffer,
    context: &AccessContext<'_, '_>,
    indices: &[Int],
    tries: i64,
) -> Verdict {
    let mut wanted: Vec<Term> = indices.iter().flat_map(|i| i.vars()).map(|v| context.term(v)).collect();
    wanted.retain(|t| !matches!(t, Term::Same(_)));
    wanted.sort_unstable();
    wanted.dedup();
    agree_on(buffer, (context, indices), (context, indices), &wanted, tries)
}

fn agree_on(
    buffer: &Buffer,
    (a, ai): (&AccessContext<'_, '_>, &[Int]),
    (b, bi): (&AccessContext<'_, '_>, &[Int]),
    wanted: &[Term],
    tries: i64,
) -> Verdict {
    if wanted.is_empty() || digits_agree(buffer, (a, ai), (b, bi), wanted) {
        return Verdict::Proved;
    }
    let stepwise = |list: &[Int]| list.iter().map(divide_in_steps).collect::<Vec<Int>>();
    let (ax, bx) = (stepwise(ai), stepwise(bi));
    if (ax != ai || bx != bi) && digits_agree(buffer, (a, &ax), (b, &bx), wanted) {
        return Verdict::Proved;
    }
    try_values((a, ai), (b, bi), wanted, tries)
}

/// [`agree_on`] by the digits of the indices.
fn digits_agree(
    buffer: &Buffer,
    (a, ai): (&AccessContext<'_, '_>, &[Int]),
    (b, bi): (&AccessContext<'_, '_>, &[Int]),
    wanted: &[Term],
) -> bool {
    let (asums, bsums) = (Sums::of(a, ai), Sums::of(b, bi));
    let mut radix = Radix::new();
    ai.iter().for_each(|i| radix.add(i, &|e| asums.term(a, e)));
    bi.iter().for_each(|i| radix.add(i, &|e| bsums.term(b, e)));
    let radix = radix.finish();
    let forms = (a.forms(ai, buffer, &radix, &asums), b.forms(bi, buffer, &radix, &bsums));
    let mut differences = differences((a, &forms.0), (b, &forms.1), &radix);
    let mut open: Vec<usize> = (0..asums.0.len().min(bsums.0.len())).collect();
    let mut equal: FxHashSet<Digit> = FxHashSet::default();
    let zero = |d: Digit| a.most(d, &radix).max(b.most(d, &radix)) == 0;
    loop {
        let (before, mut progress) = (equal.len(), false);
        for d in differences.iter().flatten() {
            told(d, &mut equal);
        }
        if wanted.iter().all(|w| radix.digits(*w).all(|d| equal.contains(&d) || zero(d))) {
            return true;
        }
        open.retain(|&k| {
            if !radix.digits(Term::Sum(k)).all(|d| equal.contains(&d)) {
                return true;
            }
            let sums = (a.form(&asums.0[k], &radix, &asums), b.form(&bsums.0[k], &radix, &bsums));
            if let (Some(x), Some(y)) = sums {
                differences.push(difference((a, &x), (b, &y), &radix));
                progress = true;
            }
            false
        });
        if equal.len() == before && !progress {
            return false;
        }
    }
}

fn differences(
    (a, af): (&AccessContext<'_, '_>, &[Form]),
    (b, bf): (&AccessContext<'_, '_>, &[Form]),
    radix: &Radix<Term>,
) -> Vec<Option<Difference>> {
    if af.len() != bf.len() {
        return vec![];
    }
    af.iter().zip(bf).map(|(x, y)| difference((a, x), (b, y), radix)).collect()
}

fn difference(
    (a, x): (&AccessContext<'_, '_>, &Form),
    (b, y): (&AccessContext<'_, '_>, &Form),
    radix: &Radix<Term>,
) -> Option<Difference> {
    let one_leaf = std::ptr::eq(a.leaf, b.leaf);
    let mut digits = Vec::new();
    let (mut low, mut high) = (x.constant.checked_sub(y.constant)?, x.constant.checked_sub(y.constant)?);
    let mut widen = |k: i64, n: i64| -> Option<()> {
        let end = k.checked_mul(n)?;
        low = low.checked_add(end.min(0))?;
        high = high.checked_add(end.max(0))?;
        Some(())
    };
    let mut all: Vec<Digit> = x.digits.keys().chain(y.digits.keys()).copied().collect();
    all.sort_unstable();
    all.dedup();
    for d in all {
        let (kx, ky) = (x.digits.get(&d).copied().unwrap_or(0), y.digits.get(&d).copied().unwrap_or(0));
        match d.of {
            Term::Same(_) if kx == ky => {}
            Term::Same(_) => return None,
            // The same loop of the same leaf: the difference of two iterations.
            Term::Axis(_) | Term::Sum(_) if kx == ky => {
                digits.push((d, kx.checked_abs()?, a.most(d, radix).max(b.most(d, radix))));
            }
            Term::Own(_) if kx == ky && one_leaf => digits.push((d, kx.checked_abs()?, a.most(d, radix))),
            _ => {
                if kx != 0 {
                    widen(kx, a.high_of(d, radix)?)?;
                }
                if ky != 0 {
                    widen(ky.checked_neg()?, b.high_of(d, radix)?)?;
                }
            }
        }
    }
    digits.sort_by_key(|x| std::cmp::Reverse(x.1));
    Some(Difference { digits, slack: high.max(low.checked_neg()?) })
}

/// Adds the digits that must be equal, the largest coefficient first.
fn told(d: &Difference, equal: &mut FxHashSet<Digit>) {
    let open: Vec<&(Digit, i64, i64)> = d.digits.iter().filter(|t| !equal.contains(&t.0)).collect();
    for (n, (digit, k, high)) in open.iter().enumerate() {
        let rest = open[n + 1..].iter().try_fold(d.slack, |sum, (_, k, high)| sum.checked_add(k.checked_mul(*high)?));
        // A digit that cannot differ is equal whatever the others are.
        if *high > 0 && rest.is_none_or(|rest| *k <= rest) {
            return;
        }
        equal.insert(*digit);
    }
}

/// The variables from which the indices of an access are computed.
struct Terms {
    /// Each variable with the position of its term.
    vars: Vec<(Name, usize)>,
    /// The terms with the number of their values, where it is known.
    list: Vec<(Term, Option<i64>)>,
}

impl Terms {
    fn of(context: &AccessContext<'_, '_>, indices: &[Int]) -> Terms {
        let mut names: Vec<Name> = indices.iter().flat_map(|i| i.vars()).collect();
        names.sort_unstable();
        names.dedup();
        let mut out = Terms { vars: vec![], list: vec![] };
        for v in names {
            let t = context.term(v);
            let at = out.list.iter().position(|x| x.0 == t).unwrap_or_else(|| {
                out.list.push((t, context.high(t).map(|h| h + 1)));
                out.list.len() - 1
            });
            out.vars.push((v, at));
        }
        out
    }

    /// Visits combinations of values until `visit` returns false; returns whether all were visited. If there are more
    /// than `tries`, it visits the combinations of the first few values of each term, and then the values of each term
    /// alone.
    fn for_each_combination(&self, tries: i64, visit: &mut dyn FnMut(&[i64]) -> bool) -> bool {
        let product = |list: &[i64]| list.iter().try_fold(1i64, |n, e| n.checked_mul(*e));
        let whole: Option<Vec<i64>> = self.list.iter().map(|t| t.1).collect();
        let whole = whole.filter(|list| product(list).is_some_and(|n| n <= tries));
        let complete = whole.is_some();
        let extents = whole.unwrap_or_else(|| {
            let each = (tries as f64).powf(1.0 / self.list.len().max(1) as f64).max(2.0) as i64;
            self.list.iter().map(|t| t.1.unwrap_or(2).min(each)).collect()
        });
        let mut values = vec![0; extents.len()];
        for _ in 0..product(&extents).unwrap_or(0).min(4 * tries) {
            if !visit(&values) {
                return complete;
            }
            // The first term counts fastest.
            for (value, extent) in values.iter_mut().zip(&extents) {
                *value += 1;
                if *value < *extent {
                    break;
                }
                *value = 0;
            }
        }
        for (term, tried) in extents.iter().enumerate() {
            for value in *tried..self.list[term].1.unwrap_or(0).min(tries) {
                values.fill(0);
                values[term] = value;
                if !visit(&values) {
                    return complete;
                }
            }
        }
        complete
    }
}

/// [`agree_on`] by trying values of the variables.
fn try_values(
    (a, ai): (&AccessContext<'_, '_>, &[Int]),
    (b, bi): (&AccessContext<'_, '_>, &[Int]),
    wanted: &[Term],
    tries: i64,
) -> Verdict {
    type Values = SmallVec<[i64; 6]>;
    let mut owners: FxHashMap<Values, Values> = FxHashMap::default();
    let (mut meet, mut known) = (false, true);
    let one = a.shared == b.shared && std::ptr::eq(a.leaf, b.leaf) && ai == bi;
    for (context, ix) in [(a, ai), (b, bi)].into_iter().take(if one { 1 } else { 2 }) {
        let terms = Terms::of(context, ix);
        let told: Vec<Option<usize>> = wanted.iter().map(|w| terms.list.iter().position(|t| t.0 == *w)).collect();
        let complete = terms.for_each_combination(tries, &mut |values| {
            let env = |v: Name| terms.vars.iter().find(|x| x.0 == v).map(|x| values[x.1]);
            let element: Option<Values> = ix.iter().map(|i| i.eval(&env)).collect();
            // A term that the index does not use is not told by it.
            let owner: Option<Values> = told.iter().map(|t| t.map(|t| values[t])).collect();
            match (element, owner) {
                (Some(e), Some(o)) => match owners.entry(e) {
                    Entry::Occupied(first) => meet |= *first.get() != o,
                    Entry::Vacant(free) => drop(free.insert(o)),
                },
                (_, None) => meet = true,
                (None, _) => known = false,
            }
            !meet
        });
        if meet {
            return Verdict::Refuted;
        }
        known &= complete;
    }
    if known { Verdict::Proved } else { Verdict::Open }
}
