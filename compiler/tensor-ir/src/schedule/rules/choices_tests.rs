//! Choices of rules: each value of a domain is refused, or gives another schedule with the same results.

use super::{Choice, choices, follow_choices, schedule, schedule_with};
use crate::attr::Attr;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::testing::{
    PoolingSpec, assert_same, conv_windows, depthwise, elementwise_chain, matmul, row_sum, softmax, tiles,
};
use crate::schedule::{Choose, InstrRef, apply_pending};
use crate::tir::{Combiner, TensorFunction};

fn workloads() -> Vec<TensorFunction> {
    let windows = PoolingSpec { kernel: [2, 2], stride: [2, 2], pad: 0, combiner: Combiner::Max };
    vec![
        conv_windows(false, [1, 4, 8, 8, 8], &windows),
        depthwise(8, 14, 3, 1, 1, true),
        elementwise_chain(&[8, 6]),
        row_sum(3, 100),
        softmax(5, 64),
        tiles(true),
        tiles(false),
        matmul(28, 16, 12),
    ]
}

/// The trace with another value in one of its choices, as somebody would write it into the text.
fn edited(trace: &[InstrRef], unit: Name, point: Name, value: &Attr) -> Vec<InstrRef> {
    let edit = |i: &InstrRef| match Choose::of_instruction(i) {
        Some(c) if c.unit == unit && c.point == point => InstrRef::new(Choose { value: value.clone(), ..c.clone() }),
        _ => i.clone(),
    };
    trace.iter().map(edit).collect()
}

#[test]
fn the_values_of_a_choice_keep_the_results() {
    let (mut tried, mut refused) = (0, 0);
    for (profile, from) in [(DeviceProfile::lavapipe(), 0), (DeviceProfile::baseline(), 7)] {
        for f in workloads().into_iter().skip(from) {
            let f = f.canonical();
            let constants: Vec<_> = f.inputs().skip(1).collect();
            let first = schedule(&f, &constants, &profile).expect("a schedule").function;
            let all: Vec<Choose> = choices(&first.trace).into_iter().cloned().collect();
            assert!(!all.is_empty(), "{}", profile.name);
            for c in all {
                assert!(c.of.len() > 1 && !c.is_edited(), "{c:?}");
                // Of long domains some.
                for value in c.of.iter().step_by(1 + c.of.len() / 4) {
                    let one = Choice { unit: c.unit, point: c.point, value: value.clone() };
                    let made = schedule_with(&f, &constants, &profile, std::slice::from_ref(&one));
                    let mut text = f.clone();
                    text.pending = edited(&first.trace, c.unit, c.point, value);
                    let followed = follow_choices(&mut text, &constants, &profile);
                    tried += 1;
                    let Ok(made) = made else {
                        // The rule that took the unit takes any of its own values here; another rule may not take it.
                        let why = made.expect_err("refused");
                        assert!(["rule", "function"].contains(&c.point.as_str()), "{}: {one:?}: {why}", profile.name);
                        followed.expect_err("refused as text, too");
                        refused += 1;
                        continue;
                    };
                    assert_eq!(followed.expect("followed"), *value != c.of[0]);
                    apply_pending(&mut text).expect("applies");
                    // As text, what else was chosen stays; else it may depend on this choice.
                    for trace in [&text.trace, &made.function.trace] {
                        let same = |c: &&Choose| (c.unit, c.point, &c.value) == (one.unit, one.point, value);
                        assert_eq!(choices(trace).into_iter().filter(same).count(), 1, "{one:?}");
                    }
                    assert_eq!(*value == c.of[0], text.trace == first.trace, "{one:?}");
                    if text.prepacks.is_empty() {
                        text.name = f.name;
                        assert_same(&f, &text);
                    }
                }
            }
        }
    }
    assert!(tried > 60 && refused * 3 < tried, "{refused} of {tried}");
}

#[test]
fn a_value_outside_the_domain_is_refused_with_the_domain() {
    let f = matmul(56, 24, 16);
    let p = DeviceProfile::lavapipe();
    let refusal = |unit: &str, point: &str, value: Attr| {
        let one = Choice { unit: unit.into(), point: point.into(), value };
        schedule_with(&f, &[], &p, &[one]).expect_err("refused").to_string()
    };
    let e = refusal("mm", "rows", Attr::Int(99));
    assert!(e.contains("`rows` is one of 32, 28,") && e.contains("not 99"), "{e}");
    let e = refusal("mm", "rule", Attr::Str("rows".into()));
    assert!(
        e.contains("`rule` is one of matmul-matrix, matmul-dot, matmul-subgroup, matmul-tiled,")
            && e.contains("not rows"),
        "{e}"
    );
    let e = refusal("mm", "colour", Attr::Int(1));
    assert!(e.contains("choices here: rule of mm, rows of mm"), "{e}");
}

#[test]
fn units_that_were_not_edited_stay_as_they_are_written() {
    let p = DeviceProfile::lavapipe();
    // A window with overlap: two units.
    let windows = PoolingSpec { kernel: [3, 3], stride: [2, 2], pad: 0, combiner: Combiner::Max };
    let f = conv_windows(false, [1, 8, 13, 13, 32], &windows).canonical();
    let first = schedule(&f, &[], &p).expect("a schedule").function;
    let all = choices(&first.trace);
    let point = |p: &str| all.iter().find(|c| c.point.as_str() == p).copied().expect("the choice").clone();
    let (rows, apart) = (point("rows"), point("windows"));
    assert_eq!(apart.value, Attr::Str("apart".into()));
    let mut text = f.clone();
    text.pending = edited(&first.trace, rows.unit, rows.point, &rows.of[1]);
    // By hand, in the unit of the windows: what the rule would not have written.
    let unrolled = text.pending.iter().rposition(|i| i.name() == "unroll").expect("an unrolled loop");
    let removed = text.pending.remove(unrolled);
    assert!(follow_choices(&mut text, &[], &p).expect("followed"));
    assert!(!text.pending.contains(&removed), "{removed:?} came back");
    apply_pending(&mut text).expect("applies");
    assert_eq!(text.kernels().len(), 2);
    assert_same(&f, &text);
    // Together in spite of what is computed twice.
    let mut text = f.clone();
    text.pending = edited(&first.trace, apart.unit, apart.point, &Attr::Str("together".into()));
    assert!(follow_choices(&mut text, &[], &p).expect("followed"));
    apply_pending(&mut text).expect("applies");
    assert_eq!(text.kernels().len(), 1);
    assert_same(&f, &text);
}
