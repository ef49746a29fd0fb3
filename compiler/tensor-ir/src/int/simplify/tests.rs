//! One test per rule, index shapes of real ops, and random expressions against evaluation.

use crate::int::{Bounds, Int, flatten_index, prove, prove_cond, range, simplify, unflatten_index};
use crate::name::Name;
use crate::tir::Cond;
use proptest::prelude::*;

fn v(name: &str) -> Int {
    Int::var(name)
}

fn bounds(list: &[(&str, i64, i64)]) -> Bounds {
    let mut b = Bounds::new();
    for (n, low, high) in list {
        b.insert(Name::new(n), *low, *high);
    }
    b
}

fn check(e: Int, want: &str, b: &Bounds) {
    assert_eq!(simplify(&e, b).to_string(), want, "{e}");
}

#[test]
fn sums_are_canonical() {
    let b = bounds(&[("one", 5, 5)]);
    check(v("x") + v("y") - v("x"), "y", &b);
    check(v("y") * 2 + 3 + v("x") * 7 - 5, "x*7 + y*2 - 2", &b);
    check((v("x") + 1) * 3 - v("x") * 3, "3", &b);
    check(v("a") * v("b") - v("b") * v("a"), "0", &b);
    check((v("i") + 1) * v("n") - v("i") * v("n"), "n", &b);
    check(v("one") * v("x"), "x*5", &b);
    check(Int::new(3) - v("x"), "3 - x", &b);
    check(v("x") - v("x") * 2, "x*(-1)", &b);
}

#[test]
fn multiples_leave_a_division() {
    let b = bounds(&[("r", 0, 3), ("w", 0, 4)]);
    check((v("a") * 4 + v("r")).div(4), "a", &b);
    check((v("a") * 4 + v("r")).rem(4), "r", &b);
    check((v("a") * 12 + v("r") + 4).div(4), "a*3 + 1", &b);
    check((v("a") * 4 + v("w")).div(4), "a + w/4", &b);
    check((v("a") * 4 + v("x") + 7).div(4), "a + (x + 3)/4 + 1", &b);
    check((v("a") * 12 + v("r")).div(8), "a*3/2", &b);
    check((v("a") * 12 + v("r")).rem(24), "a%2*12 + r", &b);
}

#[test]
fn nested_divisions_and_remainders() {
    let b = Bounds::new();
    check(v("x").div(3).div(4), "x/12", &b);
    check((v("x").div(3) + 1).div(4), "(x + 3)/12", &b);
    check(v("x").rem(12).div(3), "x/3%4", &b);
    check(v("x").rem(12).rem(3), "x%3", &b);
    check((v("x").rem(8) * 3 + v("y")).rem(12), "(x*3 + y)%12", &b);
}

#[test]
fn digits_recombine() {
    let b = Bounds::new();
    let x = || v("x");
    check(x().div(7) * 7 + x().rem(7), "x", &b);
    check(x().div(7) * 21 + v("y") + x().rem(7) * 3, "x*3 + y", &b);
    check((x().div(35) * 5 + x().div(7).rem(5)) * 7 + x().rem(7), "x", &b);
    check(x().div(7).rem(5) * 7 + x().rem(7), "x%35", &b);
    check(x() - x().rem(4), "x/4*4", &b);
    check(x() - x().div(4) * 4, "x%4", &b);
    let y = || v("p") * 30 + v("q") + 5;
    check(y().div(28) * 28 + y().rem(28), "p*30 + q + 5", &b);
    check(y().div(28) * 28 * v("c") + y().rem(28) * v("c"), "c*p*30 + c*5 + c*q", &b);
}

#[test]
fn ranges_decide() {
    let b = bounds(&[("x", 0, 6), ("y", -5, -1), ("z", 8, 15)]);
    check(v("x").div(7), "0", &b);
    check(v("x").rem(7), "x", &b);
    check(v("y").div(8), "-1", &b);
    check(v("y").rem(8), "y + 8", &b);
    check(v("z").div(8), "1", &b);
    check(v("z").rem(8), "z - 8", &b);
    check(v("x").min(6), "x", &b);
    check(v("x").max(6), "6", &b);
    check(v("x").min(v("z")), "x", &b);
    check((v("n") + 1).max(v("n")), "n + 1", &b);
    check(v("n").min(v("m")).min(v("n") + 1), "min(m, n)", &b);
}

#[test]
fn vector_lanes_split_off() {
    let b = bounds(&[("v", 0, 3)]);
    check((v("a") * 4 + v("v")).rem(32), "a%8*4 + v", &b);
    check((v("a") * 4 + v("v")).div(32), "a/8", &b);
    check((v("a") * 4 + v("v")).div(32) * 32 + (v("a") * 4 + v("v")).rem(32), "a*4 + v", &b);
}

#[test]
fn convolution_rows_recombine() {
    let b = bounds(&[("po", 0, 223), ("pi", 0, 27)]);
    let p = v("po") * 28 + v("pi");
    let (n, oh, ow) = (p.div(56 * 56), p.div(56).rem(56), p.rem(56));
    let flat = flatten_index(&[n, oh, ow], &[2.into(), 56.into(), 56.into()]);
    check(flat, "po*28 + pi", &b);

    let b = bounds(&[("p", 0, 6271)]);
    let dims: Vec<Int> = [2, 56, 56].map(Int::new).to_vec();
    check(flatten_index(&unflatten_index(&v("p"), &dims), &dims), "p", &b);
    let b = bounds(&[("p", 0, 3135)]);
    check(flatten_index(&unflatten_index(&v("p"), &dims), &dims), "p", &b);
}

#[test]
fn symbolic_sizes() {
    let b = bounds(&[("n", 1, 512), ("h", 8, 64), ("w", 8, 64), ("i", 0, 7), ("x", 0, 1 << 20)]);
    let dims = [v("n"), v("h"), v("w")];
    check(flatten_index(&unflatten_index(&v("x"), &dims), &dims), "x", &b);
    check((v("x") * v("h") + v("i")).div(v("h")), "x", &b);
    check((v("x") * v("h") + v("i")).rem(v("h")), "i", &b);
    check((v("n") * 4).ceil_div(4), "n", &b);
    check((v("n") * 4 * v("w")).div(v("w") * 2), "n*2", &b);
    check(v("x").div(v("h")).div(v("w")), "x/(h*w)", &b);
    check(v("x").rem(v("h") * v("w")).rem(v("w")), "x%w", &b);
    check((v("n") + 1).div(v("n") + 1), "1", &b);
    // Lanes of a vector, and digits of a symbolic base.
    check((v("x") * 4 + 3).div(v("w") * 96), "x/(w*24)", &b);
    check((v("x") * 4 + 3).rem(v("w") * 96), "x%(w*24)*4 + 3", &b);
    check((v("x") * 4 + 1).div(v("w") * 4).rem(v("h")), "x/w%h", &b);
    check((v("x") * 4 + 5).div(v("w") * 4), "(x + 1)/w", &b);
    check((v("x") * v("h") + v("i")).div(v("h") * v("w")), "x/w", &b);
    check((v("x") * v("h") + v("i")).rem(v("h") * v("w")), "i + h*(x%w)", &b);
    check((v("x") * 4 + v("i")).div(v("w") * 4), "(x*4 + i)/(w*4)", &b);
    // Nothing is said of the divisor but that it is positive.
    let each = v("p").ceil_div(4) * v("q");
    check((v("r") * &each).div(&each), "r", &Bounds::new());
    check((v("r") * &each).rem(&each), "0", &Bounds::new());
    check(v("x").div(v("h")).rem(v("w")) * v("h") + v("x").rem(v("h")), "x%(h*w)", &b);
}

#[test]
fn vector_lanes_split_off_symbolic_divisors() {
    let b = bounds(&[("w", 1, 64), ("v", 0, 3), ("q", 0, 1 << 20), ("c", 0, 4)]);
    let flat = v("q") * 4 + v("v");
    check(flat.div(v("w") * 16), "q/(w*4)", &b);
    check(flat.rem(v("w") * 16), "q%(w*4)*4 + v", &b);
    check(flat.div(v("w") * 4), "q/w", &b);
    check(flat.rem(v("w") * 4), "q%w*4 + v", &b);
    check((v("q") * 4 + 3).div(v("w") * 16), "q/(w*4)", &b);
    check((v("q") * 4 + v("c")).div(v("w") * 16), "(q*4 + c)/(w*16)", &b);
    check(flat.div(v("w") * 6), "(q*4 + v)/(w*6)", &b);
}

#[test]
fn conditions() {
    let b = bounds(&[("i", 0, 7), ("o", 0, 3), ("n", 1, 100)]);
    let flat = v("o") * 8 + v("i");
    assert_eq!(prove_cond(&Cond::lt(&flat, 32), &b), Some(true));
    assert_eq!(prove_cond(&Cond::lt(&flat, 31), &b), None);
    assert_eq!(prove_cond(&Cond::ge(&flat, 0), &b), Some(true));
    assert_eq!(prove_cond(&Cond::ge(&flat, 32), &b), Some(false));
    assert_eq!(prove_cond(&Cond::lt(v("z") + 1, v("z")), &b), Some(false));
    assert_eq!(prove_cond(&Cond::eq(flat.div(8), v("o")), &b), Some(true));
    assert_eq!(prove_cond(&Cond::eq(v("z") * 4 + 1, v("y") * 2), &b), Some(false));
    assert_eq!(prove_cond(&Cond::eq(v("z"), v("y")), &b), None);
    assert!(prove(&(flat.div(8) - v("o")), 0, 0, &b));
    assert!(!prove(&v("z"), 0, 10, &b));
}

#[test]
fn overflow_is_left_alone() {
    let b = bounds(&[("x", 0, i64::MAX)]);
    let e = v("x") * i64::MAX + v("x") * i64::MAX;
    assert_eq!(simplify(&e, &b), e);
    assert_eq!(range(&e, &b), None);
    let zero = v("x").div(0);
    assert_eq!(simplify(&zero, &b), zero);
}

#[test]
fn shared_sums_take_linear_time() {
    let mut sum = v("x");
    for _ in 0..40 {
        sum = sum.clone() + sum.clone();
    }
    check(sum, "x*1099511627776", &Bounds::new());
}

const NAMES: [(&str, i64, i64); 6] =
    [("a", 0, 15), ("b", 0, 3), ("c", -9, 30), ("d", 0, 27), ("n", 1, 12), ("u", 0, 0)];

/// One step of a random postfix program: what to do, and a choice of variable, constant or divisor for it.
type Step = (u8, usize, i64);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0u8..16, any::<usize>(), -40i64..40), 1..36)
}

/// Runs the steps on a stack of expressions; what is left is added up.
fn build(steps: &[Step], symbolic: bool) -> Int {
    let divisors: Vec<Int> = [1, 2, 3, 4, 6, 7, 8, 12, 28, 56].map(Int::new).into_iter().collect();
    let mut stack: Vec<Int> = vec![];
    for &(kind, pick, constant) in steps {
        let divisor = match pick % 14 {
            10..=12 if symbolic => v("n"),
            13 if symbolic => v("n") * 4,
            i => divisors[i % 10].clone(),
        };
        let a = match kind {
            0..=3 => None,
            _ => stack.pop(),
        };
        let Some(a) = a else {
            stack.push(if kind == 0 { Int::new(constant) } else { v(NAMES[pick % NAMES.len()].0) });
            continue;
        };
        let b = || stack.last().cloned().unwrap_or_else(|| v("b"));
        let e = match kind {
            4 | 5 => a + b(),
            6 => a - b(),
            7 => a * divisor,
            8 => a * b(),
            9 | 10 => a.div(divisor),
            11 | 12 => a.rem(divisor),
            13 => a.min(b()),
            14 => a.max(b()) - a.rem(divisor),
            _ => {
                let (h, w) = (divisors[pick % 10].clone(), divisor);
                (a.div(h.clone() * w.clone()) * h.clone() + a.div(&w).rem(h)) * w.clone() + a.rem(w)
            }
        };
        stack.push(e);
        // Shared operands would let the tree grow without bound.
        let mut size = 0;
        stack[stack.len() - 1].visit(&mut |_| size += 1);
        if size > 60 {
            stack.pop();
        }
    }
    stack.into_iter().reduce(|a, b| a + b).unwrap_or_else(|| v("a"))
}

fn hold(e: &Int, declared: &Bounds, picks: &[u64]) -> Result<(), TestCaseError> {
    let env = |name: Name| {
        let i = NAMES.iter().position(|n| n.0 == name.as_str())?;
        let (_, low, high) = NAMES[i];
        // A variable that is not declared takes any value, but stays positive where it may be a divisor.
        let (low, high) = if declared.get(name).is_some() || name.as_str() == "n" { (low, high) } else { (-99, 99) };
        Some(low + (picks[i] % (high - low + 1) as u64) as i64)
    };
    let s = simplify(e, declared);
    if let Some(value) = e.eval(&env) {
        prop_assert_eq!(s.eval(&env), Some(value), "{} -> {}", e, s);
        for r in [range(e, declared), range(&s, declared)].into_iter().flatten() {
            prop_assert!(r.0 <= value && value <= r.1, "{} = {} outside {:?}", e, value, r);
        }
        if let Some(decided) = prove_cond(&Cond::lt(e, 10), declared) {
            prop_assert_eq!(decided, value < 10, "{} < 10", e);
        }
    }
    let again = simplify(&s, declared);
    prop_assert_eq!(&again, &s, "not idempotent: {} -> {} -> {}", e, s, again);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn constant_divisors_hold(s in steps(), picks in prop::array::uniform6(any::<u64>())) {
        hold(&build(&s, false), &bounds(&NAMES), &picks)?;
    }
    #[test]
    fn symbolic_divisors_hold(s in steps(), picks in prop::array::uniform6(any::<u64>())) {
        hold(&build(&s, true), &bounds(&NAMES), &picks)?;
    }
    #[test]
    fn unknown_variables_hold(s in steps(), picks in prop::array::uniform6(any::<u64>())) {
        hold(&build(&s, true), &bounds(&NAMES[1..2]), &picks)?;
    }
}
