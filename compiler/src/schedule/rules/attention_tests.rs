//! Attention as one kernel against the reference evaluator: tails, masks, both precisions, every choice.

use super::{Choice, choices, schedule, schedule_with};
use crate::profile::DeviceProfile;
use crate::schedule::testing::assert_same;
use crate::text::parse_tensor_function;
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

fn function(text: &str) -> TensorFunction {
    parse_tensor_function(text).unwrap_or_else(|e| panic!("{e}")).canonical()
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

/// A device that is asked for the rule.
fn asked(base: DeviceProfile) -> DeviceProfile {
    DeviceProfile { asked_rules: vec!["attention".into()], ..base }
}

fn ada() -> DeviceProfile {
    asked(DeviceProfile::named("ada").expect("a profile"))
}

fn check(f: &TensorFunction, p: &DeviceProfile) -> TensorFunction {
    let s = schedule(f, &[], p).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(s.rule, "attention", "declined: {:?}", s.declined);
    assert_eq!(s.function.kernels().len(), 1);
    let mut g = s.function;
    g.name = f.name;
    assert_same(f, &g);
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
    let made = check(&f, &ada());
    let mut tried = 0;
    for c in choices(&made.trace).into_iter().filter(|c| c.point != "function".into()) {
        for value in &c.of {
            let choice = Choice { unit: c.unit, point: c.point, value: value.clone() };
            let mut g = schedule_with(&f, &[], &ada(), &[choice]).unwrap_or_else(|e| panic!("{e}")).function;
            g.name = f.name;
            assert_same(&f, &g);
            tried += 1;
        }
    }
    assert!(tried >= 2, "{tried}");
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
fn a_processor_keeps_several_kernels() {
    let f = attention([4, 64, 64, 32], SCORES[0]);
    let s = schedule(&f, &[], &DeviceProfile::lavapipe()).unwrap_or_else(|e| panic!("{e}"));
    assert_ne!(s.rule, "attention");
    assert!(s.declined.iter().any(|d| d.contains("one kernel takes")), "{:?}", s.declined);
}
