//! Indices as sums of digits. A variable from which quotients and remainders are taken is treated as a number in mixed
//! radix, and each digit is a term of its own.

use crate::int::{self, Bounds, Int, IntNode, divisor, gcd};
use rustc_hash::FxHashMap;
use std::hash::Hash;

/// The number that a digit belongs to. Loops along one axis have the same key.
pub(super) trait Key: Copy + Eq + Ord + Hash {}
impl<K: Copy + Eq + Ord + Hash> Key for K {}

/// `of / base`, below the next base of its radix divided by `base`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Digit<K> {
    pub(super) of: K,
    pub(super) base: i64,
}

/// `of / low % (high / low)`; without a `high` the quotient alone.
struct Slice {
    /// A variable or a sum.
    of: Int,
    low: i64,
    high: Option<i64>,
}

impl Slice {
    /// An index that is a variable or a sum, or quotients and remainders of one by constants.
    fn of(e: &Int) -> Option<Slice> {
        let divisor = |c: &Int| c.as_const().filter(|c| *c > 0);
        match e.node() {
            IntNode::Var(_) | IntNode::Add(..) | IntNode::Sub(..) | IntNode::Mul(..) => {
                Some(Slice { of: e.clone(), low: 1, high: None })
            }
            IntNode::Div(a, c) => {
                let inner = Slice::of(a)?;
                let low = inner.low.checked_mul(divisor(c)?)?;
                inner.high.is_none_or(|high| low < high).then_some(Slice { low, ..inner })
            }
            IntNode::Mod(a, c) => {
                let inner = Slice::of(a)?;
                let high = inner.low.checked_mul(divisor(c)?)?;
                Some(Slice { high: Some(inner.high.map_or(high, |h| h.min(high))), ..inner })
            }
            _ => None,
        }
    }
}

/// The bases of each variable's digits, from 1 upwards: the divisors of its quotients and remainders, if each divides
/// the next one. Otherwise the variable is one digit.
pub(super) struct Radix<K>(FxHashMap<K, Vec<i64>>);

impl<K: Key> Radix<K> {
    pub(super) fn new() -> Radix<K> {
        Radix(FxHashMap::default())
    }

    /// Records the quotients and remainders in an index; `key` gives the keys of variables and sums.
    pub(super) fn add(&mut self, e: &Int, key: &dyn Fn(&Int) -> Option<K>) {
        e.visit(&mut |e| {
            let slice = Slice::of(e).and_then(|s| key(&s.of).map(|k| (s, k)));
            if let Some((s, key)) = slice {
                let list = self.0.entry(key).or_insert_with(|| vec![1]);
                list.push(s.low);
                list.extend(s.high);
            }
        });
    }

    /// To be called when all indices have been added.
    pub(super) fn finish(mut self) -> Radix<K> {
        for list in self.0.values_mut() {
            list.sort_unstable();
            list.dedup();
            if list.windows(2).any(|w| w[1] % w[0] != 0) {
                list.truncate(1);
            }
        }
        self
    }

    fn bases(&self, of: K) -> &[i64] {
        self.0.get(&of).map_or(&[1], |l| l)
    }

    /// The digits of a variable, the lowest first.
    pub(super) fn digits(&self, of: K) -> impl Iterator<Item = Digit<K>> + '_ {
        self.bases(of).iter().map(move |base| Digit { of, base: *base })
    }

    /// Number of values of a digit; `None` for the highest, which holds all the rest.
    pub(super) fn values(&self, d: Digit<K>) -> Option<i64> {
        self.bases(d.of).iter().find(|b| **b > d.base).map(|next| next / d.base)
    }
}

/// `sum of coefficient * digit + constant`.
#[derive(Clone, Debug)]
pub(super) struct Sum<K> {
    /// No coefficient is 0.
    pub(super) digits: FxHashMap<Digit<K>, i64>,
    pub(super) constant: i64,
}

impl<K: Key> Sum<K> {
    /// `None` for an index of another form, or beyond 64 bits.
    pub(super) fn of(e: &Int, radix: &Radix<K>, key: &dyn Fn(&Int) -> Option<K>) -> Option<Sum<K>> {
        let mut sum = Sum { digits: FxHashMap::default(), constant: 0 };
        sum.add(e, 1, radix, key)?;
        sum.digits.retain(|_, k| *k != 0);
        Some(sum)
    }

    fn add(&mut self, e: &Int, k: i64, radix: &Radix<K>, key: &dyn Fn(&Int) -> Option<K>) -> Option<()> {
        match e.node() {
            IntNode::Const(c) => self.constant = self.constant.checked_add(c.checked_mul(k)?)?,
            IntNode::Add(a, b) => {
                self.add(a, k, radix, key)?;
                self.add(b, k, radix, key)?;
            }
            IntNode::Sub(a, b) => {
                self.add(a, k, radix, key)?;
                self.add(b, k.checked_neg()?, radix, key)?;
            }
            IntNode::Mul(a, b) => match (a.as_const(), b.as_const()) {
                (Some(c), _) => self.add(b, k.checked_mul(c)?, radix, key)?,
                (_, Some(c)) => self.add(a, k.checked_mul(c)?, radix, key)?,
                _ => return None,
            },
            _ => self.add_slice(&Slice::of(e)?, k, radix, key)?,
        }
        Some(())
    }

    fn add_slice(&mut self, s: &Slice, k: i64, radix: &Radix<K>, key: &dyn Fn(&Int) -> Option<K>) -> Option<()> {
        let of = key(&s.of)?;
        let known = |base: &i64| radix.bases(of).contains(base);
        if !known(&s.low) || !s.high.iter().all(known) {
            return None;
        }
        for d in radix.digits(of).filter(|d| d.base >= s.low && s.high.is_none_or(|high| d.base < high)) {
            let slot = self.digits.entry(d).or_insert(0);
            *slot = slot.checked_add(k.checked_mul(d.base / s.low)?)?;
        }
        Some(())
    }
}

/// Rewrites `(d*a + b) / (d*c)` as `(a + b/d) / c` and `(d*a + b) % (d*c)` as `(a + b/d) % c * d + b % d`, the largest
/// `d` first, so that quotients and remainders divide the same sum `a + b/d`.
pub(super) fn divide_in_steps(e: &Int) -> Int {
    match e.node() {
        IntNode::Add(a, b) => divide_in_steps(a) + divide_in_steps(b),
        IntNode::Sub(a, b) => divide_in_steps(a) - divide_in_steps(b),
        IntNode::Mul(a, b) => divide_in_steps(a) * divide_in_steps(b),
        IntNode::Mod(a, b) => {
            let of = divide_in_steps(a);
            b.as_const().and_then(|c| remainder_in_steps(&of, c)).unwrap_or_else(|| of.rem(b))
        }
        IntNode::Div(a, b) => b.as_const().and_then(|c| quotient_in_steps(a, c)).unwrap_or_else(|| e.clone()),
        _ => e.clone(),
    }
}

fn quotient_in_steps(sum: &Int, by: i64) -> Option<Int> {
    let (step, high, _) = split_at_step(sum, by)?;
    Some(high.div(by / step))
}

fn remainder_in_steps(sum: &Int, by: i64) -> Option<Int> {
    let (step, high, low) = split_at_step(sum, by)?;
    Some(high.rem(by / step) * step + low)
}

/// The largest `d` for which `sum` is `d*a + b` and `by` is a multiple of it, with `a + b/d` and `b % d`.
fn split_at_step(sum: &Int, by: i64) -> Option<(i64, Int, Int)> {
    let mut addends = Vec::new();
    collect_addends(sum, &mut addends);
    let step = addends.iter().map(|t| gcd(by, divisor(t))).filter(|d| (2..by).contains(d)).max()?;
    let (whole, rest): (Vec<&Int>, Vec<&Int>) = addends.iter().partition(|t| divisor(t) % step == 0);
    let total = |list: &[&Int]| list.iter().fold(Int::new(0), |sum, t| sum + *t);
    let simple = |e: Int| int::simplify(&e, &Bounds::new());
    let high = simple(total(&whole).div(step)) + simple(total(&rest).div(step));
    Some((step, high, simple(total(&rest).rem(step))))
}

fn collect_addends(e: &Int, out: &mut Vec<Int>) {
    match e.node() {
        IntNode::Add(a, b) => {
            collect_addends(a, out);
            collect_addends(b, out);
        }
        _ => out.push(e.clone()),
    }
}

/// The dividends of quotients and remainders in `indices` that are sums, in order of appearance.
pub(super) fn divided_sums(indices: &[Int]) -> Vec<Int> {
    let mut out: Vec<Int> = Vec::new();
    for i in indices {
        i.visit(&mut |e| {
            let divided = matches!(e.node(), IntNode::Div(..) | IntNode::Mod(..));
            if let Some(s) = Slice::of(e).filter(|s| divided && s.of.as_var().is_none())
                && !out.contains(&s.of)
            {
                out.push(s.of);
            }
        });
    }
    out
}
