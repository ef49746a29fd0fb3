//! Attention as one kernel against the reference evaluator: tails, masks, both precisions, every choice.

use super::{Choice, choices, schedule};
use crate::profile::DeviceProfile;
use crate::schedule::estimate::estimate_scheduled;
use crate::schedule::testing::{
    Asking, MATRIX_SHAPES, SUBGROUP_SIZES, asking, assert_every_choice, assert_same_on_subgroups, chosen,
    matrix_device, parsed as function, proposed,
};
use crate::tir::TensorFunction;

/// Heads, rows, keys, features.
type Size = [i64; 4];

/// What becomes of a score: nothing, a scale, an additive mask, or the keys behind a row's own left out.
const SCORES: [&str; 4] = [
    "%qk[a, i, j]",
    "%qk[a, i, j] * 0.125",
    "%qk[a, i, j] * 0.5 + %mask[i, j]",
    "select(all(j < i + 1), %qk[a, i, j], -1e9)",
];

/// `softmax(score(q k^T)) v` for each head, stage by stage as ops write them. Queries lie as `[row][head][feature]`.
fn attention([h, m, n, d]: Size, score: &str) -> TensorFunction {
    function(&text([h, m, n, d], score))
}

fn text([h, m, n, d]: Size, score: &str) -> String {
    format!(
        "tensor @attention(%q: f32[{m},{h},{d}], %k: f32[{h},{n},{d}], %v: f32[{h},{n},{d}], %mask: f32[{m},{n}], out %y: f32[{m},{h},{d}]) {{
  buffer %qk: f32[{h},{m},{n}] global
  buffer %score: f32[{h},{m},{n}] global
  buffer %max: f32[{h},{m}] global
  buffer %exp: f32[{h},{m},{n}] global
  buffer %sum: f32[{h},{m}] global
  buffer %weights: f32[{h},{m},{n}] global
  buffer %pv: f32[{h},{m},{d}] global
  for a0 in 0..{h} {{ for a1 in 0..{m} {{ for a2 in 0..{n} {{ for a3 in 0..{d} {{
    block qk reduce sum init {{ %qk[a0, a1, a2] <- %q[a1, a0, a3] * %k[a0, a2, a3] }}
  }} }} }} }}
  for a in 0..{h} {{ for i in 0..{m} {{ for j in 0..{n} {{ block score {{ %score[a, i, j] <- {score} }} }} }} }}
  for b0 in 0..{h} {{ for b1 in 0..{m} {{ for b2 in 0..{n} {{
    block max reduce max init {{ %max[b0, b1] <- %score[b0, b1, b2] }}
  }} }} }}
  for f0 in 0..{h} {{ for f1 in 0..{m} {{ for f2 in 0..{n} {{
    block exp {{ %exp[f0, f1, f2] <- exp(%score[f0, f1, f2] - %max[f0, f1]) }}
  }} }} }}
  for c0 in 0..{h} {{ for c1 in 0..{m} {{ for c2 in 0..{n} {{
    block sum reduce sum init {{ %sum[c0, c1] <- %exp[c0, c1, c2] }}
  }} }} }}
  for g0 in 0..{h} {{ for g1 in 0..{m} {{ for g2 in 0..{n} {{
    block weights {{ %weights[g0, g1, g2] <- %exp[g0, g1, g2] / %sum[g0, g1] }}
  }} }} }}
  for d0 in 0..{h} {{ for d1 in 0..{m} {{ for d2 in 0..{d} {{ for d3 in 0..{n} {{
    block pv reduce sum init {{ %pv[d0, d1, d2] <- %weights[d0, d1, d3] * %v[d0, d3, d2] }}
  }} }} }} }}
  for e1 in 0..{m} {{ for e0 in 0..{h} {{ for e2 in 0..{d} {{ block y {{ %y[e1, e0, e2] <- %pv[e0, e1, e2] }} }} }} }}
}}"
    )
}

/// A device where the rule is asked for.
fn asked(base: DeviceProfile) -> Asking {
    asking(base, "attention")
}

fn ada() -> Asking {
    asked(DeviceProfile::named("ada").expect("a profile"))
}

fn check(f: &TensorFunction, p: &Asking) -> TensorFunction {
    let g = proposed(f, p, "attention");
    assert_eq!(g.kernels().len(), 1);
    g
}

#[test]
fn rows_keys_and_features_of_any_number_and_every_mask() {
    let sizes = [[2, 9, 12, 8], [1, 33, 20, 16], [1, 12, 37, 40], [3, 5, 7, 5], [1, 20, 70, 6]];
    for (n, size) in sizes.into_iter().enumerate() {
        for score in [SCORES[n % 4], SCORES[(n + 2) % 4]] {
            check(&attention(size, score), &ada());
            check(&attention(size, score), &asked(DeviceProfile::lavapipe()));
        }
    }
}

#[test]
fn every_choice_gives_the_same_results() {
    let f = attention([1, 21, 18, 12], SCORES[3]);
    let tried = assert_every_choice(&f, &ada(), "function");
    assert!(tried >= 2, "{tried}");
}

/// Attention of f16 operands and weights, as mixed precision stores them.
fn of_halves([h, m, n, d]: Size, score: &str) -> TensorFunction {
    let changes = [
        (format!("%q: f32[{m},{h},{d}]"), format!("%q: f16[{m},{h},{d}]")),
        (format!("%k: f32[{h},{n},{d}]"), format!("%k: f16[{h},{n},{d}]")),
        (format!("%v: f32[{h},{n},{d}]"), format!("%v: f16[{h},{n},{d}]")),
        ("%q[a1, a0, a3] * %k[a0, a2, a3]".into(), "f32(%q[a1, a0, a3]) * f32(%k[a0, a2, a3])".into()),
        ("%weights: f32".into(), "%weights: f16".into()),
        ("%exp[g0, g1, g2] / %sum[g0, g1]".into(), "f16(%exp[g0, g1, g2] / %sum[g0, g1])".into()),
        ("%weights[d0, d1, d3] * %v[d0, d3, d2]".into(), "f32(%weights[d0, d1, d3]) * f32(%v[d0, d3, d2])".into()),
    ];
    let halves = changes.iter().fold(text([h, m, n, d], score), |t, (from, to): &(String, String)| {
        assert!(t.contains(from), "{from}");
        t.replace(from, to)
    });
    function(&halves)
}

/// The schedule on matrix units, whichever the estimate prefers.
fn on_matrices(f: &TensorFunction, p: &Asking) -> TensorFunction {
    let made = schedule(f, &[], p).unwrap_or_else(|e| panic!("{e}")).function;
    let all = choices(&made.trace);
    let units = all.iter().find(|c| c.point == "units".into()).expect("vectors and matrices are candidates");
    let shape = units.of.iter().find(|u| **u != crate::attr::Attr::Str("vector".into())).expect("matrices are one");
    chosen(f, p, Choice { unit: units.unit, point: units.point, value: shape.clone() })
}

/// On matrix units, with tails of rows, keys and features, for devices of one size of subgroups and of any.
#[test]
fn matrix_units_take_part_at_any_shape_and_subgroup_size() {
    for (n, mnk) in MATRIX_SHAPES.into_iter().enumerate() {
        let f = of_halves([1, [17, 9, 20, 13][n], [20, 37, 18, 33][n], [16, 12, 9, 24][n]], SCORES[n]);
        for (least, largest) in [(8, 8), (16, 16), (32, 32), (8, 64)] {
            let p = asked(matrix_device(mnk, (least, largest)).profile);
            let g = on_matrices(&f, &p);
            assert_eq!(g.kernels().len(), 1);
            let sizes = SUBGROUP_SIZES.into_iter().filter(|s| (least..=largest).contains(s));
            assert_same_on_subgroups(&f, &g, &sizes.collect::<Vec<u32>>());
        }
    }
}

/// Results of one loop over subgroups are read in another one: in rounds, these would read what is not there yet.
#[test]
fn fewer_subgroups_than_tasks_are_refused() {
    let f = of_halves([1, 17, 20, 16], SCORES[0]);
    let g = on_matrices(&f, &asked(matrix_device([16, 16, 16], (32, 32)).profile));
    let inputs = crate::schedule::testing::inputs_of(&g);
    let refusal = crate::interpreter::run_scheduled_on_subgroups(&g, &inputs, 64).expect_err("refused");
    assert!(refusal.contains("4 tasks for 2 subgroups"), "{refusal}");
}

#[test]
fn long_rows_do_not_fit_workgroup_memory() {
    let f = attention([1, 8, 9000, 64], SCORES[0]);
    let s = schedule(&f, &[], &ada()).unwrap_or_else(|e| panic!("{e}"));
    assert_ne!(s.rule, "attention");
    assert!(
        s.declined.iter().any(|d| d.contains("attention") && d.contains("bytes of workgroup memory")),
        "{:?}",
        s.declined
    );
}

#[test]
fn workgroup_memory_is_no_more_than_every_api_has() {
    let f = of_halves([12, 197, 197, 64], SCORES[1]);
    for name in ["navi31", "ada", "bmg"] {
        let p = DeviceProfile::named(name).expect("a profile");
        let s = schedule(&f, &[], &p).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(s.rule, "attention", "{:?}", s.declined);
        let bytes = estimate_scheduled(&s.function, &p).expect("an estimate").shared_bytes();
        assert!(bytes <= 32 << 10, "{name}: {bytes}");
    }
}

#[test]
fn a_processor_keeps_several_kernels() {
    let f = attention([4, 64, 64, 32], SCORES[0]);
    let s = schedule(&f, &[], &DeviceProfile::lavapipe()).unwrap_or_else(|e| panic!("{e}"));
    assert_ne!(s.rule, "attention");
    assert!(s.declined.iter().any(|d| d.contains("one kernel takes")), "{:?}", s.declined);
}
