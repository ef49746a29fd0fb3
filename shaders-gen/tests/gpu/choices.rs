//! Every rule, requested by name, with every value of each of its choices, on workloads of random sizes, compared with
//! the host executor.

use crate::device::gpu;
use crate::random;
use crate::rules::*;
use compiler::compile::assign_encodings;
use compiler::dtype::DType;
use compiler::ops::DataLayout;
use compiler::schedule::ScheduleOptions;
use compiler::schedule::rules::{names, schedule};
use compiler::tir::{BufferId, Combiner, Expr, TensorFunction, UnaryOp};
use std::collections::BTreeMap;

/// Rules that are tried elsewhere: those whose operands are not f32 by `rules_on_matrix_units` and `words`, those of
/// processors by the tests of `runtime-cpu`, chains of reductions by tests beside their rule.
const ELSEWHERE: [&str; 6] = ["matmul-matrix", "matmul-dot", "matmul-tile", "row-tasks", "lanes", "reduction-chain"];

/// `softmax(q k^T) v`, stage by stage: `rows` queries and `keys` keys of `features`.
fn attention(rows: i64, keys: i64, features: i64) -> TensorFunction {
    let t = DType::F32;
    function(t, &[("q", &[rows, features]), ("k", &[keys, features]), ("v", &[keys, features])], |f, ids| {
        let (q, k, v) = (ids[0], ids[1], ids[2]);
        let at =
            |b: BufferId, i: &compiler::int::Int, j: &compiler::int::Int| Expr::load(b, vec![i.clone(), j.clone()]);
        let (row, all, red) = (ints(&[rows]), ints(&[rows, keys]), ints(&[keys]));
        let scores = stage(f, "qk", |c| {
            c.reduce("", &all, t, &ints(&[features]), Combiner::Sum, |s, r| at(q, &s[0], &r[0]) * at(k, &s[1], &r[0]))
        });
        let max = stage(f, "max", |c| c.reduce("", &row, t, &red, Combiner::Max, |s, r| at(scores, &s[0], &r[0])));
        let exp = stage(f, "exp", |c| {
            let less = |i: &[compiler::int::Int]| Expr::load(scores, i.to_vec()) - Expr::load(max, vec![i[0].clone()]);
            c.compute("", &all, t, |i| Expr::unary(UnaryOp::Exp, less(i)))
        });
        let sum = stage(f, "sum", |c| c.reduce("", &row, t, &red, Combiner::Sum, |s, r| at(exp, &s[0], &r[0])));
        let weights = stage(f, "weights", |c| {
            c.compute("", &all, t, |i| Expr::load(exp, i.to_vec()) / Expr::load(sum, vec![i[0].clone()]))
        });
        stage(f, "y", |c| {
            let out = ints(&[rows, features]);
            c.reduce("", &out, t, &red, Combiner::Sum, |s, r| at(weights, &s[0], &r[0]) * at(v, &r[0], &s[1]))
        })
    })
}

/// One of each kind, of sizes that are drawn: some are whole vectors, most end inside a tile.
fn drawn(seed: u64) -> Vec<(&'static str, TensorFunction)> {
    let t = DType::F32;
    let sizes = random(8, 200 + seed);
    let n = |at: usize, low: i64, high: i64| low + (sizes[at].abs() * 1e4) as i64 % (high - low + 1);
    let whole = |at: usize, high: i64| 4 * n(at, 1, high / 4);
    vec![
        ("elementwise", elementwise(t, &[n(0, 1, 40), n(1, 1, 70)])),
        ("transpose", transpose(t, [n(0, 1, 3), n(1, 3, 50), whole(2, 60)])),
        ("matmul", matmul(t, n(0, 17, 80), n(1, 17, 80), n(2, 9, 70))),
        ("matmul of vectors", matmul(t, n(3, 17, 80), whole(4, 96), whole(5, 96))),
        ("matmul of a long depth", matmul(t, n(6, 17, 40), whole(7, 40), 4 * n(0, 128, 300))),
        ("matmul of few rows", matmul(t, n(0, 1, 8), n(1, 17, 80), 4 * n(5, 16, 40))),
        (
            "conv",
            conv(t, &Conv { n: 1, c: n(0, 1, 20), h: n(1, 5, 15), oc: n(2, 5, 40), k: 3, stride: n(3, 1, 2), pad: 1 }),
        ),
        (
            "conv 1x1",
            conv(t, &Conv { n: 2, c: whole(4, 40), h: n(5, 4, 12), oc: whole(6, 40), k: 1, stride: 1, pad: 0 }),
        ),
        (
            "depthwise",
            depthwise(t, &Conv { n: 1, c: whole(7, 40), h: n(0, 9, 30), oc: 0, k: 3, stride: n(1, 1, 2), pad: 1 }),
        ),
        ("softmax", softmax(t, n(2, 1, 9), n(3, 65, 400))),
        ("largest", largest(t, n(4, 1, 9), n(5, 65, 700))),
        ("max pool", max_pool(2 * n(6, 2, 9), n(7, 1, 20))),
        ("tiles of data", tiles(4, [1, n(0, 5, 14), n(1, 5, 14), whole(2, 20)], DataLayout::Nhwc)),
        ("attention", attention(n(3, 17, 60), n(4, 17, 90), whole(5, 40))),
    ]
}

/// `WEFT_SHAPES` says how many sizes of each kind are drawn, 1 where it is not set.
#[test]
fn every_choice_of_every_rule() {
    let mut tried: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..crate::edits::setting("WEFT_SHAPES", 1) {
        for (what, f) in drawn(seed) {
            for base in [software_device(), real_device(), subgroup_device()] {
                for rule in names().into_iter().filter(|r| !ELSEWHERE.contains(r)) {
                    let base = base.clone().limited_to(&gpu().profile);
                    let (profile, asked) = (base, ScheduleOptions::of_rules([rule]));
                    let target = asked.on(&profile);
                    let mut encoded = f.canonical();
                    assign_encodings(&mut encoded, &profile).unwrap_or_else(|e| panic!("{what}: {e}"));
                    let inputs: Vec<BufferId> = encoded.inputs().collect();
                    let takes = schedule(&encoded, &inputs[1..], target).is_ok_and(|s| s.rule == rule);
                    if takes {
                        *tried.entry(rule).or_default() += 1 + check_choices(what, DType::F32, &f, target);
                    }
                }
            }
        }
    }
    println!("{tried:?}");
    for rule in names().into_iter().filter(|r| !ELSEWHERE.contains(r)) {
        assert!(tried.contains_key(rule), "no workload is of the rule {rule}: {tried:?}");
    }
}
