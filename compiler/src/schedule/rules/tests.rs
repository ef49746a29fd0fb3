//! Rules against the reference evaluator: same results, and the rule that is meant takes the unit.

use super::schedule;
use crate::dtype::DType;
use crate::int::Int;
use crate::profile::DeviceProfile;
use crate::schedule::testing::{
    assert_same, conv, depthwise, elementwise_chain, function, matmul, row_sum, softmax, stage,
};
use crate::tir::{Combiner, Expr, TensorFunction};

fn check(f: &TensorFunction, profile: &DeviceProfile, rule: &str) {
    let constants: Vec<_> = f.inputs().skip(1).collect();
    let s = schedule(f, &constants, profile).unwrap_or_else(|e| panic!("{e}"));
    if std::env::var("WEFT_SHOW").is_ok() {
        eprintln!("{} {:?}\n{}", s.rule, s.missed, crate::schedule::print_loops(&s.function, &s.function.body, None));
    }
    assert_eq!(s.rule, rule, "missed: {:?}", s.missed);
    assert!(!s.function.kernels().is_empty());
    let mut unpacked = s.function.clone();
    if unpacked.prepacks.is_empty() {
        unpacked.name = f.name;
        assert_same(f, &unpacked);
    }
}

#[test]
fn products_on_software_devices_use_the_subgroup() {
    let p = DeviceProfile::lavapipe();
    check(&matmul(56, 64, 16), &p, "matmul-subgroup");
    check(&matmul(30, 20, 12), &p, "matmul-subgroup");
    check(&matmul(1, 20, 12), &p, "matmul-subgroup");
    check(&conv(1, 8, 6, 6, 12, 3, 1, 1), &p, "matmul-subgroup");
    check(&conv(1, 3, 9, 9, 8, 3, 2, 1), &p, "matmul-subgroup");
}

#[test]
fn products_on_real_devices_go_through_shared_memory() {
    for p in [DeviceProfile::hopper(), DeviceProfile::baseline()] {
        check(&matmul(40, 36, 20), &p, "matmul-tiled");
        check(&conv(1, 4, 6, 6, 8, 3, 1, 1), &p, "matmul-tiled");
    }
}

#[test]
fn few_long_rows_get_a_workgroup_each() {
    for p in DeviceProfile::all() {
        for (rows, columns) in [(1, 1000), (1, 333), (3, 100), (5, 64), (2, 257)] {
            check(&softmax(rows, columns), &p, "rows");
        }
        check(&row_sum(1, 1000), &p, "reduction-threads");
        check(&row_sum(3, 777), &p, "reduction-threads");
    }
}

#[test]
fn everything_else_is_taken_too() {
    for p in DeviceProfile::all() {
        check(&elementwise_chain(&[5, 7]), &p, "elementwise");
        check(&elementwise_chain(&[8, 4]), &p, "elementwise");
        check(&row_sum(12, 9), &p, "direct");
        check(&softmax(6, 10), &p, "rows");
    }
}

/// The projection of an attention: rows, a batch of one, columns.
#[test]
fn an_axis_of_one_keeps_no_epilogue_apart() {
    let ints = |dims: &[i64]| -> Vec<Int> { dims.iter().map(|&d| Int::new(d)).collect() };
    let f = function(&[("x", &[20, 1, 16]), ("w", &[16, 24]), ("bias", &[24])], |c, ids| {
        let (x, w, bias) = (ids[0], ids[1], ids[2]);
        let shape = ints(&[20, 1, 24]);
        let mm = stage(c, "mm", |c| {
            c.reduce("", &shape, DType::F32, &ints(&[16]), Combiner::Sum, |s, r| {
                let row = Expr::load(x, vec![s[0].clone(), s[1].clone(), r[0].clone()]);
                row * Expr::load(w, vec![r[0].clone(), s[2].clone()])
            })
        });
        stage(c, "y", |c| {
            c.compute("", &shape, DType::F32, |i| {
                let sum = Expr::load(mm, vec![i[0].clone(), Int::new(0), i[2].clone()]);
                sum + Expr::load(bias, vec![i[2].clone()])
            })
        })
    });
    for p in DeviceProfile::all() {
        let g = schedule(&f, &[], &p).expect("a schedule").function;
        let scratch = g.buffers.iter().filter(|b| b.1.name == "mm_out".into()).count();
        assert_eq!((g.kernels().len(), scratch), (1, 0), "{}", p.name);
    }
}

#[test]
fn neighbouring_windows_share_a_thread_where_enough_threads_remain() {
    let p = DeviceProfile::lavapipe();
    for nhwc in [true, false] {
        check(&depthwise(8, 14, 3, 1, 1, nhwc), &p, "windows");
        check(&depthwise(16, 21, 3, 2, 1, nhwc), &p, "windows");
        check(&depthwise(10, 13, 5, 1, 2, nhwc), &p, "windows");
        check(&depthwise(5, 21, 3, 1, 0, nhwc), &p, "windows");
    }
    // Few results are better spread over the cores.
    check(&depthwise(8, 14, 3, 1, 1, true), &DeviceProfile::hopper(), "direct");
}
