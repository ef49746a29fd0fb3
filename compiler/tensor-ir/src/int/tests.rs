//! Compares the interval analysis and the simplifier with evaluation in i128, on random expressions, ranges and
//! conditions that include the edges of i32 and i64. i128 also shows values that leave i64.

use super::{Bounds, Facts, Int, IntNode, Interval, divisor, interval, prove, prove_cond, simplify};
use crate::arena::Id;
use crate::name::Name;
use crate::tir::{BufferId, Cond, CondOp};
use proptest::prelude::*;

const NAMES: [&str; 5] = ["a", "b", "c", "n", "u"];

/// Constants and ends of ranges: mostly small, some at the edges of the words.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => -9i64..40,
        2 => prop::sample::select(vec![2, 3, 4, 8, 28, 56, 112, 224, 3136]),
        1 => prop::sample::select(vec![
            i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX, 1 << 62, -(1 << 62), 1 << 32, 1 << 40,
            i32::MIN as i64 - 1, i32::MIN as i64, i32::MAX as i64, i32::MAX as i64 + 1,
        ]),
    ]
}

fn expression() -> impl Strategy<Value = Int> {
    let leaf = prop_oneof![
        2 => number().prop_map(Int::new),
        6 => prop::sample::select(NAMES.to_vec()).prop_map(Int::var),
    ];
    leaf.prop_recursive(5, 32, 2, |inner| {
        let divisor = prop_oneof![3 => number().prop_map(Int::new), 1 => inner.clone()].boxed();
        prop_oneof![
            3 => (inner.clone(), inner.clone()).prop_map(|(a, b)| a + b),
            2 => (inner.clone(), inner.clone()).prop_map(|(a, b)| a - b),
            2 => (inner.clone(), number()).prop_map(|(a, k)| a * k),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| a * b),
            2 => (inner.clone(), divisor.clone()).prop_map(|(a, b)| a.div(b)),
            2 => (inner.clone(), divisor).prop_map(|(a, b)| a.rem(b)),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| a.min(b)),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| a.max(b)),
            1 => inner.prop_map(|i| Int::load(BufferId::from_index(0), vec![i])),
        ]
    })
}

/// A step of an index and what may be an end of it: a digit, a quotient or a clamp by sizes, or neighbours of it.
fn index_part(i: &Int, (kind, x, y, k): (u8, usize, usize, i64)) -> (Int, Int) {
    let (x, y) = (Int::var(NAMES[x]), Int::var(NAMES[y]));
    match kind {
        0 => (i.rem(&x), x),
        1 => (i.div(&x), y * (k + 1)),
        2 => (i.div(x * y), Int::var("a") + k),
        3 => (i.min(x.clone() - 1), x),
        4 => (i.max(x).min(y.clone() + k), y + k + 1),
        5 => (i.rem(x.clone() * y.clone()).div(&y), x),
        _ => (i.clone() * 2 + k, x.max(y.clone() * 2) * y),
    }
}

/// A declared range for each variable, or none, and a value in it.
fn point() -> impl Strategy<Value = Vec<(Option<(i64, i64)>, i64)>> {
    let one =
        (number(), number(), prop::option::weighted(0.8, Just(())), any::<u64>()).prop_map(|(a, b, known, pick)| {
            let (low, high) = (a.min(b), a.max(b));
            let width = (i128::from(high) - i128::from(low) + 1) as u128;
            // The ends come up often.
            let step = match pick % 4 {
                0 => 0,
                1 => width - 1,
                _ => u128::from(pick) % width,
            };
            let value = (i128::from(low) + step as i128) as i64;
            (known.map(|()| (low, high)), value)
        });
    prop::collection::vec(one, NAMES.len())
}

struct Point {
    bounds: Bounds,
    values: Vec<i64>,
    /// Loads give any i32, else any i64.
    words: bool,
}

impl Point {
    fn new(list: &[(Option<(i64, i64)>, i64)], words: bool) -> Point {
        let mut bounds = Bounds::new();
        for (name, (range, _)) in NAMES.iter().zip(list) {
            if let Some((low, high)) = range {
                bounds.insert(Name::new(name), *low, *high);
            }
        }
        let any = |v: i64| if words { i64::from(v as i32) } else { v };
        let values = list.iter().map(|(range, v)| if range.is_some() { *v } else { any(*v) }).collect();
        Point { bounds, values, words }
    }
    /// The element at an index, edges often.
    fn element(&self, index: i128) -> i128 {
        let mixed = (index as u64).wrapping_add(self.values[0] as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let v = match mixed >> 61 {
            0 => i64::MIN,
            1 => i64::MAX,
            2 | 3 => (mixed % 100) as i64,
            _ => mixed as i64,
        };
        let clipped = v.clamp(i32::MIN.into(), i32::MAX.into());
        i128::from(if self.words { clipped } else { v })
    }
    /// The exact value; `None` beyond i128, and where a divisor that is not constant is not valid.
    fn eval(&self, e: &Int) -> Option<i128> {
        let both = |a: &Int, b: &Int| Some((self.eval(a)?, self.eval(b)?));
        let divide = |a: &Int, b: &Int| {
            let (x, y) = both(a, b)?;
            let r = floor_rem(x, y).filter(|_| b.as_const().is_some() || self.is_valid_divisor(b))?;
            Some((x.checked_sub(r)?.checked_div(y)?, r))
        };
        Some(match e.node() {
            IntNode::Const(c) => i128::from(*c),
            IntNode::Var(v) => i128::from(self.values[NAMES.iter().position(|n| *n == v.as_str())?]),
            IntNode::Load(_, ix) => self.element(self.eval(&ix[0])?),
            IntNode::Add(a, b) => both(a, b).and_then(|(a, b)| a.checked_add(b))?,
            IntNode::Sub(a, b) => both(a, b).and_then(|(a, b)| a.checked_sub(b))?,
            IntNode::Mul(a, b) => both(a, b).and_then(|(a, b)| a.checked_mul(b))?,
            IntNode::Div(a, b) => divide(a, b)?.0,
            IntNode::Mod(a, b) => divide(a, b)?.1,
            IntNode::Min(a, b) => both(a, b).map(|(a, b)| a.min(b))?,
            IntNode::Max(a, b) => both(a, b).map(|(a, b)| a.max(b))?,
        })
    }
    /// True when some step of evaluation leaves i128, as multiplied out products may.
    fn is_beyond(&self, e: &Int) -> bool {
        let mut found = false;
        e.visit(&mut |n| {
            if let IntNode::Add(a, b) | IntNode::Sub(a, b) | IntNode::Mul(a, b) = n.node() {
                found |= self.eval(n).is_none() && self.eval(a).is_some() && self.eval(b).is_some();
            }
        });
        found
    }
    /// Positive, and so is every factor.
    fn is_valid_divisor(&self, e: &Int) -> bool {
        match simplify(e, &self.bounds).node() {
            IntNode::Mul(a, b) => self.is_valid_divisor(a) && self.is_valid_divisor(b),
            _ => self.eval(e).is_some_and(|v| v > 0),
        }
    }
    fn holds(&self, c: &Cond) -> Option<bool> {
        let (a, b) = (self.eval(&c.lhs)?, self.eval(&c.rhs)?);
        Some(match c.op {
            CondOp::Lt => a < b,
            CondOp::Ge => a >= b,
            CondOp::Eq => a == b,
        })
    }
    fn facts(&self) -> Facts {
        if self.words { Facts::in_words(self.bounds.clone()) } else { Facts::new(self.bounds.clone()) }
    }
}

fn floor_rem(a: i128, b: i128) -> Option<i128> {
    let r = a.checked_rem(b)?;
    Some(if r != 0 && ((r < 0) != (b < 0)) { r + b } else { r })
}

fn contains(r: Interval, value: i128) -> bool {
    (r.low == i64::MIN || i128::from(r.low) <= value) && (r.high == i64::MAX || value <= i128::from(r.high))
}

/// A condition that is true at `at`: a part of `e`, or a combination of two, against a number near its value.
fn true_condition(e: &Int, at: &Point, (pick, other, kind, slack): (usize, usize, u8, i64)) -> Option<Cond> {
    let mut parts = Vec::new();
    e.visit(&mut |n| parts.push(n.clone()));
    let mut lhs = parts[pick % parts.len()].clone();
    if kind & 4 != 0 {
        lhs = lhs * (slack % 5) + parts[other % parts.len()].clone();
    }
    let value = i64::try_from(at.eval(&lhs)?).ok()?;
    let c = match kind % 4 {
        0 => Cond::lt(lhs, value.checked_add(slack.saturating_abs())?.checked_add(1)?),
        1 => Cond::ge(lhs, value.checked_sub(slack.saturating_abs())?),
        2 => Cond::eq(lhs, value),
        _ => Cond::lt(Int::new(value.checked_sub(slack.saturating_abs())?.checked_sub(1)?), lhs),
    };
    (at.holds(&c) == Some(true)).then_some(c)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(4000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranges_and_simplified_forms_hold(e in expression(), list in point(), words in any::<bool>(), k in number()) {
        let at = Point::new(&list, words);
        let s = simplify(&e, &at.bounds);
        let Some(value) = at.eval(&e) else { return Ok(()) };
        if at.is_beyond(&s) {
            return Ok(());
        }
        prop_assert_eq!(at.eval(&s), Some(value), "{} -> {} at {:?}", e, s, at.values);
        for form in [&e, &s] {
            let r = interval(form, &at.bounds);
            prop_assert!(contains(r, value), "{} = {} outside {:?}", form, value, r);
            let by = divisor(form);
            prop_assert!(if by == 0 { value == 0 } else { value % i128::from(by) == 0 }, "{} does not divide {}", by, form);
        }
        for (low, high) in [(k, i64::MAX), (i64::MIN, k), (0, k)] {
            if prove(&e, low, high, &at.bounds) {
                prop_assert!(contains(Interval::new(low, high), value), "{} = {} proved in {}..={}", e, value, low, high);
            }
        }
        for c in [Cond::lt(&e, k), Cond::ge(&e, k), Cond::eq(&e, k), Cond::lt(&s, Int::var("a"))] {
            if let (Some(decided), Some(holds)) = (prove_cond(&c, &at.bounds), at.holds(&c)) {
                prop_assert_eq!(decided, holds, "{:?} at {:?}", c, at.values);
            }
        }
    }

    #[test]
    fn conditions_in_force_hold(
        e in expression(),
        list in point(),
        words in any::<bool>(),
        conds in prop::collection::vec((any::<usize>(), any::<usize>(), any::<u8>(), number()), 0..4),
        (times, plus) in (-4i64..5, expression()),
        k in number(),
    ) {
        let at = Point::new(&list, words);
        let conds: Vec<Cond> = conds.into_iter().filter_map(|c| true_condition(&e, &at, c)).collect();
        let mut facts = at.facts();
        let mark = facts.mark();
        facts.assume(&conds);
        for e in [e.clone(), e.clone() * times + k, e * times + plus.clone()] {
            let Some(value) = at.eval(&e) else { continue };
            if let Some(bound) = at.eval(&plus) {
                let proved = (facts.prove_less(&e, &plus), facts.prove_below(&e, &plus));
                prop_assert!(!proved.0 || value < bound, "{} < {} under {:?}", e, plus, conds);
                prop_assert!(!proved.1 || (0..bound).contains(&value), "{} below {} under {:?}", e, plus, conds);
            }
            let plain = facts.without_clamps(&e);
            if let Some(plainly) = at.eval(&plain) {
                prop_assert_eq!(plainly, value, "{} -> {} under {:?}", e, plain, conds);
            }
            let r = facts.span_here(&e);
            prop_assert!(contains(r, value), "{} = {} outside {:?} under {:?}", e, value, r, conds);
            for (low, high) in [(k, i64::MAX), (i64::MIN, k), (0, k)] {
                if facts.prove(&e, low, high) {
                    let wanted = Interval::new(low, high);
                    prop_assert!(contains(wanted, value), "{} = {} proved in {:?} under {:?}", e, value, wanted, conds);
                }
            }
            for c in [Cond::lt(&e, k), Cond::ge(&e, k), Cond::eq(&e, k)] {
                if let Some(decided) = facts.decide(&c) {
                    prop_assert_eq!(Some(decided), at.holds(&c), "{:?} under {:?}", c, conds);
                }
            }
            if facts.fits_i32(&e) {
                prop_assert!(i32::try_from(value).is_ok(), "{} = {} is no i32", e, value);
            }
        }
        facts.forget(mark);
        prop_assert_eq!(facts.mark(), 0);
    }

    #[test]
    fn digits_and_clamps_are_below_what_is_proved(
        (parts, sizes, list) in (prop::collection::vec((0u8..7, 0usize..3, 0usize..3, 0i64..4), 1..5), prop::collection::vec(1i64..30, 3), point()),
        guarded in any::<bool>(),
        slack in -2i64..3,
    ) {
        // Sizes are positive, and an index starts at 0.
        let mut list = list;
        for (v, size) in list.iter_mut().zip(&sizes) {
            *v = (Some((1, 40)), *size);
        }
        list[3] = (Some((0, 4000)), list[3].1.rem_euclid(4001));
        let at = Point::new(&list, true);
        let (index, bound) = parts.iter().fold((Int::var(NAMES[3]), Int::new(64)), |(i, _), part| index_part(&i, *part));
        let bound = bound + slack;
        let guard = Cond::lt(Int::var(NAMES[3]), Int::var("a") * Int::var("b") * Int::var("c"));
        let mut facts = at.facts();
        if guarded && at.holds(&guard) == Some(true) {
            facts.assume(&[guard]);
        }
        let (Some(value), Some(end)) = (at.eval(&index), at.eval(&bound)) else { return Ok(()) };
        prop_assert!(!facts.prove_less(&index, &bound) || value < end, "{} < {} at {:?}", index, bound, at.values);
        let plain = facts.without_clamps(&index);
        prop_assert_eq!(at.eval(&plain), Some(value), "{} -> {}", index, plain);
    }

    #[test]
    fn evaluation_in_i64_agrees_where_it_has_a_value(e in expression(), list in point()) {
        let at = Point::new(&list, false);
        let env = |name: Name| NAMES.iter().position(|n| *n == name.as_str()).map(|i| at.values[i]);
        if let (Some(value), Some(exact)) = (e.eval(&env), at.eval(&e)) {
            prop_assert_eq!(i128::from(value), exact, "{}", e);
        }
        let name = Name::new(NAMES[0]);
        let bound = e.substitute(name, &Int::new(at.values[0]));
        if let (Some(a), Some(b)) = (at.eval(&e), at.eval(&bound)) {
            prop_assert_eq!(a, b, "{} -> {}", e, bound);
        }
    }
}
