//! Compares the rules with the reference evaluator: equal results, and the intended rule takes the unit.

use super::schedule;
use crate::attr::{Attr, AttrValue};
use crate::dtype::DType;
use crate::int::{Int, IntNode};
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::testing::{
    PoolingSpec, asking, assert_same, conv, conv_windows, depthwise, elementwise_chain, function, matmul, row_sum,
    softmax, stage,
};
use crate::schedule::{Choose, ScheduleTarget};
use crate::tir::{Combiner, Expr, TensorFunction};
use crate::traffic::{AccessTraffic, Totals, traffic};

fn check<'a>(f: &TensorFunction, target: impl Into<ScheduleTarget<'a>>, rule: &str) {
    let constants: Vec<_> = f.inputs().skip(1).collect();
    let s = schedule(f, &constants, target).unwrap_or_else(|e| panic!("{e}"));
    if std::env::var("WEFT_SHOW").is_ok() {
        eprintln!("{} {:?}\n{}", s.rule, s.declined, crate::schedule::print_loops(&s.function, &s.function.body, None));
    }
    assert_eq!(s.rule, rule, "declined: {:?}", s.declined);
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
        let large = schedule(&matmul(512, 512, 512), &[], &p).expect("a schedule");
        assert_eq!(large.rule, "matmul-tiled", "{:?}", large.declined);
        let p = asking(p, "matmul-tiled");
        check(&matmul(40, 36, 20), &p, "matmul-tiled");
        check(&conv(1, 4, 6, 6, 8, 3, 1, 1), &p, "matmul-tiled");
    }
}

/// A step of the reduction is a row of windows: in the loop over them nothing is divided.
#[test]
fn few_channels_are_added_up_row_of_windows_by_row() {
    for (f, row) in [(conv(1, 3, 17, 17, 8, 7, 2, 3), 21), (conv(2, 3, 9, 12, 20, 3, 2, 1), 9)] {
        for name in ["ada", "navi31", "bmg"] {
            let p = asking(DeviceProfile::named(name).expect("a profile"), "matmul-tiled");
            check(&f, &p, "matmul-tiled");
            let s = schedule(&f, &[], &p).expect("a schedule");
            let trace = s.function.trace.iter();
            let depth = trace.filter_map(Choose::of_instruction).find(|c| c.point.as_str() == "depth");
            assert_eq!(depth.map(|c| &c.value), Some(&Attr::Int(row)), "{name}");
            assert_same(&f, &s.function);
            let step = Name::new("conv_k_o");
            let blocks = s.function.body.blocks();
            let indices = blocks.iter().flat_map(|b| b.value.loads()).flat_map(|l| l.1);
            let moved: Vec<&Int> = indices.filter(|i| i.uses(step)).collect();
            let divided = |i: &&Int| {
                let mut found = false;
                i.visit(&mut |part| {
                    let of = match part.node() {
                        IntNode::Div(a, _) | IntNode::Mod(a, _) => a.uses(step),
                        _ => false,
                    };
                    found |= of;
                });
                found
            };
            assert!(!moved.is_empty() && !moved.iter().any(divided), "{name}: {moved:?}");
        }
    }
}

/// Tiles of every size, with and without tails; what the subgroups of a real device do to memory is counted.
#[test]
fn tiles_have_no_bank_conflicts_and_use_whole_sectors() {
    for name in ["ada", "navi31", "bmg"] {
        let p = DeviceProfile { cores: 1, ..DeviceProfile::named(name).expect("a profile") };
        for f in [matmul(256, 256, 64), matmul(70, 140, 48), conv(1, 16, 12, 12, 64, 3, 1, 1)] {
            let constants: Vec<_> = f.inputs().skip(1).collect();
            let s = schedule(&f, &constants, &p).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(s.rule, "matmul-tiled", "{:?}", s.declined);
            let (_, body) = s.function.kernels()[0];
            let all = traffic(&s.function, body, &p);
            let reads = Totals::of(&all, |a| a.shared && !a.store);
            assert!(reads.passes <= 1.1 * reads.least_passes, "{name}: {all:?}");
            let copies = |a: &AccessTraffic| !a.shared && !a.store && a.block.as_str().contains("_next");
            assert!(all.iter().filter(|a| copies(a) && !a.unknown).count() >= 2, "{name}: nothing is loaded ahead");
            for a in all.iter().filter(|a| copies(a)) {
                assert!(a.width == 16 && a.used() >= 0.9, "{name}: {a:?}");
            }
        }
    }
}

/// What would be two steps, of which one is loaded ahead of nothing, and 24 of which half would be padded. Where
/// straight code has its loads where they are stored, they are steps of a loop.
#[test]
fn short_reductions_are_one_step_of_whole_vectors() {
    for name in ["ada", "navi31", "bmg"] {
        let p = DeviceProfile::named(name).expect("a profile");
        for f in [matmul(300, 96, 32), matmul(3136, 96, 24), matmul(70, 140, 32)] {
            let constants: Vec<_> = f.inputs().skip(1).collect();
            let s = schedule(&f, &constants, &p).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(s.rule, "matmul-tiled", "{:?}", s.declined);
            let (_, body) = s.function.kernels()[0];
            let all = traffic(&s.function, body, &p);
            let copies = |end: &'static str| all.iter().filter(move |a| !a.shared && a.block.as_str().ends_with(end));
            let first: Vec<&AccessTraffic> = copies("_first").collect();
            assert!(first.len() == 2 && first.iter().all(|a| a.width == 16), "{name}: {all:?}");
            let ahead: Vec<&AccessTraffic> = copies("_next").collect();
            assert_eq!(ahead.len(), if name == "bmg" { 2 } else { 0 }, "{name}: {all:?}");
            assert!(ahead.iter().all(|a| a.width == 16), "{name}: {all:?}");
            check(&f, &p, "matmul-tiled");
        }
    }
}

/// A vector has four elements, of halves too: a thread loads two that lie next to each other.
#[test]
fn halves_are_copied_in_runs_of_sixteen_bytes() {
    let text = "tensor @f(%a: f16[256,64], %w: f16[64,256], out %y: f32[256,256]) {
      for i in 0..256 { for j in 0..256 { for k in 0..64 {
        block y reduce sum init { %y[i, j] <- f32(%a[i, k]) * f32(%w[k, j]) }
      } } }
    }";
    let f = crate::text::parse_tensor_function(text).unwrap_or_else(|e| panic!("{e}"));
    let constants: Vec<_> = f.inputs().skip(1).collect();
    // Smaller tiles have no 16 bytes for each thread.
    for name in ["ada", "navi31"] {
        let p = DeviceProfile { cores: 1, matrix_shapes: vec![], ..DeviceProfile::named(name).expect("a profile") };
        let s = schedule(&f, &constants, &p).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(s.rule, "matmul-tiled", "{:?}", s.declined);
        let blocks = s.function.body.blocks();
        let ahead: Vec<_> = blocks.iter().filter(|b| b.name.as_str().ends_with("_next")).collect();
        assert_eq!(ahead.len(), 2, "{name}: nothing is loaded ahead");
        for b in ahead {
            let loads = b.value.loads();
            let [(buffer, ix)] = loads[..] else { panic!("{name}: {b:?}") };
            let flat = crate::int::flatten_index(ix, &s.function.buffers[buffer].shape);
            let by = |end: &str| {
                let v = flat.vars().into_iter().find(|v| v.as_str().ends_with(end)).expect("a loop of the run");
                let next = flat.substitute(v, &(Int::var(v) + 1)) - &flat;
                crate::int::simplify(&next, &s.function.bounds()).as_const()
            };
            assert_eq!((by("_v"), by("_p")), (Some(1), Some(4)), "{name}: {flat:?}");
        }
    }
}

#[test]
fn long_products_with_few_results_are_cut_into_slices() {
    let p = asking(DeviceProfile::named("ada").expect("a profile"), "matmul-tiled");
    for f in [matmul(8, 12, 4096), matmul(5, 16, 2048), conv(1, 256, 4, 5, 8, 3, 1, 1)] {
        let s = schedule(&f, &[], &p).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((s.rule, s.function.kernels().len()), ("matmul-tiled", 2), "{:?}", s.declined);
        let mut g = s.function.clone();
        g.name = f.name;
        assert_same(&f, &g);
    }
    let short = schedule(&matmul(8, 12, 256), &[], &p).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(short.function.kernels().len(), 1);
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
fn overlapping_windows_share_loads_where_that_leaves_some_lanes_idle() {
    for p in ["navi31", "ada", "bmg"].map(|name| DeviceProfile::named(name).expect("a profile")) {
        let s = schedule(&depthwise(240, 28, 5, 1, 2, true), &[], &p).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(s.rule, "windows", "{}: {:?}", p.name, s.declined);
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

/// A compiler may compute sums that the last thread of a row stores under a condition behind all others: what they read
/// lives as long, and four such sums of six do not fit the registers.
#[test]
fn few_registers_do_not_hold_sums_that_are_stored_under_a_condition() {
    let p = DeviceProfile::named("bmg").expect("a profile");
    for (h, fits) in [(160, false), (80, true)] {
        let s = schedule(&depthwise(48, h, 3, 2, 1, true), &[], &p).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(s.rule, "windows", "{:?}", s.declined);
        let all = super::choices(&s.function.trace);
        let results = all.iter().find(|c| c.point.as_str() == "results").expect("a choice");
        assert_eq!(results.of.contains(&6i64.to_attr()), fits, "{h}: {:?}", results.of);
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

/// Kernels and the rule that took most of the work, after a check of the results.
fn kernels_of(f: &TensorFunction, profile: &DeviceProfile) -> (usize, &'static str, Vec<String>) {
    let s = schedule(f, &[], profile).unwrap_or_else(|e| panic!("{e}"));
    if std::env::var("WEFT_SHOW").is_ok() {
        eprintln!("{} {:?}\n{}", s.rule, s.declined, crate::schedule::print_loops(&s.function, &s.function.body, None));
    }
    assert_same(f, &s.function);
    (s.function.kernels().len(), s.rule, s.declined)
}

#[test]
fn windows_that_share_nothing_end_the_product_before_them() {
    let (software, real) = (DeviceProfile::lavapipe(), DeviceProfile::baseline());
    let whole = |kernel: [i64; 2], combiner| PoolingSpec { kernel, stride: kernel, pad: 0, combiner };
    let cases = [
        // Odd sizes: rows that no window has are not computed.
        ([2, 3, 9, 10, 12], whole([2, 2], Combiner::Max)),
        ([1, 4, 11, 8, 10], whole([3, 3], Combiner::Sum)),
        ([1, 4, 7, 12, 9], whole([1, 2], Combiner::Max)),
        ([1, 2, 14, 9, 8], whole([4, 1], Combiner::Min)),
        // Padding that costs little.
        ([1, 4, 13, 13, 8], PoolingSpec { kernel: [2, 2], stride: [2, 2], pad: 1, combiner: Combiner::Max }),
        // Steps larger than the windows.
        ([1, 4, 12, 12, 8], PoolingSpec { kernel: [2, 2], stride: [3, 3], pad: 0, combiner: Combiner::Max }),
    ];
    for first in [false, true] {
        for (shape, windows) in &cases {
            let f = conv_windows(first, *shape, windows);
            assert_eq!(kernels_of(&f, &software), (1, "matmul-subgroup", vec![]), "{shape:?} {:?}", windows.kernel);
            let (count, rule, declined) = kernels_of(&f, &real);
            assert_eq!((count, rule), (1, "matmul-tiled"), "{shape:?} {:?}: {declined:?}", windows.kernel);
        }
    }
}

#[test]
fn windows_apart_from_their_product_are_two_kernels() {
    let p = DeviceProfile::lavapipe();
    let windows = |k: i64, stride: i64, pad: i64| PoolingSpec {
        kernel: [k, k],
        stride: [stride, stride],
        pad,
        combiner: Combiner::Max,
    };
    for (w, why) in [(windows(3, 2, 0), "two take"), (windows(5, 5, 0), "at most 16"), (windows(2, 1, 0), "two take")] {
        let f = conv_windows(false, [1, 8, 13, 13, 32], &w);
        let (count, _, declined) = kernels_of(&f, &p);
        assert_eq!(count, 2, "{declined:?}");
        assert!(declined.iter().any(|m| m.starts_with("y apart from conv: ") && m.contains(why)), "{declined:?}");
    }
}

/// The rows of a task are of one matrix, whatever number of rows that has: no reduction is computed twice.
#[test]
fn tasks_of_rows_compute_each_reduction_once() {
    use crate::schedule::loops::loops_around_block;
    let p = asking(DeviceProfile::processor(2, [14, 32]), "row-tasks");
    for n in [96, 97] {
        let text = format!(
            "tensor @f(%x: f32[4,{n},50], out %y: f32[4,{n},50]) {{
               buffer %m: f32[4,{n}] global
               for a in 0..4 {{ for b in 0..{n} {{ for k in 0..50 {{
                 block m reduce max init {{ %m[a, b] <- %x[a, b, k] }}
               }} }} }}
               for i in 0..4 {{ for j in 0..{n} {{ for l in 0..50 {{
                 block y {{ %y[i, j, l] <- %x[i, j, l] - %m[i, j] }}
               }} }} }}
             }}"
        );
        let f = crate::text::parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}"));
        check(&f, &p, "row-tasks");
        let s = schedule(&f, &[], &p).unwrap_or_else(|e| panic!("{e}"));
        let loops = loops_around_block(&s.function, Name::new("m")).expect("loops of m");
        let extents = loops.iter().map(|l| l.extent.as_const().unwrap_or_else(|| panic!("{l:?}")));
        assert_eq!(extents.product::<i64>(), 4 * n * 50, "{loops:?}");
    }
}
