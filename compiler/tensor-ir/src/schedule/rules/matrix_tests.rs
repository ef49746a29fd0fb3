//! Compares products on matrix units with the reference evaluator: every shape, every choice, with and without tails.

use super::{Choice, choices, schedule, schedule_with};
use crate::attr::Attr;
use crate::profile::DeviceProfile;
use crate::schedule::testing::{
    Asking, MATRIX_SHAPES, SUBGROUP_SIZES, asking, assert_every_choice, assert_same, assert_same_on_subgroups, chosen,
    matrix_device as device, parsed as function, proposed,
};
use crate::schedule::{MergeBuffers, PeelLoop};
use crate::tir::{LoopKind, Scope, Stmt, TensorFunction};

fn product(m: i64, n: i64, k: i64) -> TensorFunction {
    function(&format!(
        "tensor @mm(%a: f16[{m},{k}], %b: f16[{k},{n}], %z: f16[{m},{n}], out %y: f32[{m},{n}]) {{
  buffer %mm: f32[{m},{n}] global
  for i in 0..{m} {{ for j in 0..{n} {{ for k in 0..{k} {{
    block mm reduce sum init {{ %mm[i, j] <- f32(%a[i, k]) * f32(%b[k, j]) }}
  }} }} }}
  for yi in 0..{m} {{ for yj in 0..{n} {{ block y {{ %y[yi, yj] <- max(%mm[yi, yj] + f32(%z[yi, yj]), 0.0) }} }} }}
}}"
    ))
}

/// Rows of the right operand lie along the reduction, as those of keys do.
fn batched(b: i64, m: i64, n: i64, k: i64) -> TensorFunction {
    function(&format!(
        "tensor @mm(%a: f16[{b},{m},{k}], %b: f16[{b},{n},{k}], out %y: f32[{b},{m},{n}]) {{
  for h in 0..{b} {{ for i in 0..{m} {{ for j in 0..{n} {{ for k in 0..{k} {{
    block y reduce sum init {{ %y[h, i, j] <- f32(%a[h, i, k]) * f32(%b[h, j, k]) }}
  }} }} }} }}
}}"
    ))
}

/// One such product.
fn rows_of_keys(m: i64, n: i64, k: i64) -> TensorFunction {
    function(&format!(
        "tensor @mm(%a: f16[{m},{k}], %b: f16[{n},{k}], out %y: f32[{m},{n}]) {{
  for i in 0..{m} {{ for j in 0..{n} {{ for k in 0..{k} {{
    block y reduce sum init {{ %y[i, j] <- f32(%a[i, k]) * f32(%b[j, k]) }}
  }} }} }}
}}"
    ))
}

fn convolution(h: i64, c: i64, o: i64) -> TensorFunction {
    function(&format!(
        "tensor @conv(%x: f16[1,{h},{h},{c}], %w: f16[{o},{c},3,3], out %y: f32[1,{h},{h},{o}]) {{
  for n in 0..1 {{ for p in 0..{h} {{ for q in 0..{h} {{ for o in 0..{o} {{ for r in 0..3 {{ for s in 0..3 {{ for c in 0..{c} {{
    block y reduce sum init {{ %y[n, p, q, o] <- select(all(p + r - 1 >= 0, q + s - 1 >= 0, p + r - 1 < {h}, q + s - 1 < {h}), f32(%x[n, p + r - 1, q + s - 1, c]), 0.0) * f32(%w[o, c, r, s]) }}
  }} }} }} }} }} }} }}
}}"
    ))
}

fn with_cores(cores: u32) -> Asking {
    let usual = device([16, 16, 16], (32, 32)).profile;
    asking(DeviceProfile { cores, ..usual }, "matmul-matrix")
}

fn check(f: &TensorFunction, p: &Asking) -> TensorFunction {
    proposed(f, p, "matmul-matrix")
}

#[test]
fn every_shape_multiplies_with_and_without_tails() {
    for mnk in MATRIX_SHAPES {
        let p = device(mnk, (32, 32));
        for (m, n, k) in [(32, 32, 32), (37, 21, 40), (5, 70, 19)] {
            check(&product(m, n, k), &p);
        }
        check(&batched(2, 20, 24, 16), &p);
        check(&convolution(6, 8, 12), &p);
    }
}

#[test]
fn subgroups_of_any_size_share_the_tile() {
    for subgroup in [(8, 8), (16, 16), (32, 32), (64, 64), (16, 32), (32, 64)] {
        let g = check(&product(70, 40, 24), &device([16, 16, 16], subgroup));
        let mut bound = Vec::new();
        g.body.visit(&mut |s| {
            if let Stmt::For(l) = s
                && matches!(l.kind, LoopKind::Subgroup(_) | LoopKind::Local(_))
            {
                bound.push((l.kind, l.extent.as_const()));
            }
        });
        let threads = bound.iter().filter(|b| b.0 == LoopKind::Local(0)).filter_map(|b| b.1).max();
        assert_eq!(threads, Some(4 * i64::from(subgroup.1)), "as many as four of the largest subgroups have");
    }
}

/// Tiles of which a thread would have less than 16 bytes: the first threads copy the one, the others the other, in the
/// same registers.
#[test]
fn threads_apart_copy_small_tiles() {
    for (mnk, subgroup, tile, depth, (m, n, k)) in [
        ([16, 16, 16], (64, 64), [2, 2, 1, 1], 32, (50, 64, 64)),
        ([8, 16, 16], (16, 32), [4, 4, 4, 2], 16, (130, 128, 48)),
        ([8, 16, 16], (32, 32), [4, 4, 2, 2], 16, (64, 100, 40)),
    ] {
        let (f, p) = (rows_of_keys(m, n, k), device(mnk, subgroup));
        let made = schedule(&f, &[], &p).unwrap_or_else(|e| panic!("{e}")).function;
        let unit = choices(&made.trace).iter().find(|c| c.point == "tile".into()).expect("tiles are a choice").unit;
        let tile = Attr::List(tile.into_iter().map(Attr::Int).collect());
        let list = [("tile", tile), ("depth", Attr::Int(depth))].map(|(point, value)| Choice {
            unit,
            point: point.into(),
            value,
        });
        let mut g = schedule_with(&f, &[], &p, &list).unwrap_or_else(|e| panic!("{e}")).function;
        g.name = f.name;
        assert!(g.trace.iter().any(|i| i.as_any().is::<MergeBuffers>()), "{:?}", g.trace);
        let sizes: Vec<u32> = SUBGROUP_SIZES.into_iter().filter(|s| (subgroup.0..=subgroup.1).contains(s)).collect();
        assert_same_on_subgroups(&f, &g, &sizes);
    }
}

/// For a compiler that takes what does not change out of short loops alone, the taps of a window are a loop around the
/// K steps of small tiles; where a tap has less than three steps, or no whole ones, both are one loop.
#[test]
fn taps_are_a_loop_around_the_steps() {
    let of_driver = device([8, 16, 16], (32, 32)).profile.with_driver("intel open-source mesa driver");
    let p = asking(of_driver, "matmul-matrix");
    for (tile, h, c, apart) in [
        ([2, 2, 2, 2], 5, 64, true),
        ([2, 2, 2, 2], 9, 48, true),
        ([4, 4, 2, 2], 7, 48, true),
        ([2, 2, 2, 2], 5, 32, false),
        ([2, 2, 2, 2], 5, 56, false),
        ([4, 4, 4, 2], 5, 64, false),
    ] {
        let f = convolution(h, c, 20);
        let made = schedule(&f, &[], &p).unwrap_or_else(|e| panic!("{e}")).function;
        let points = choices(&made.trace);
        let unit = points.iter().find(|c| c.point == "tile".into()).expect("tiles are a choice").unit;
        let tile = Attr::List(tile.into_iter().map(Attr::Int).collect());
        let list = [("tile", tile), ("depth", Attr::Int(16)), ("slices", Attr::Int(1))];
        let list = list.map(|(point, value)| Choice { unit, point: point.into(), value });
        let list: Vec<Choice> = list.into_iter().filter(|l| points.iter().any(|c| c.point == l.point)).collect();
        let mut g = schedule_with(&f, &[], &p, &list).unwrap_or_else(|e| panic!("{e}")).function;
        g.name = f.name;
        assert_eq!(g.trace.iter().any(|i| i.as_any().is::<PeelLoop>()), apart, "{c} channels: {:?}", g.trace);
        assert_same(&f, &g);
    }
}

#[test]
fn every_choice_gives_the_same_results() {
    let f = product(40, 36, 20);
    for mnk in [[16, 16, 16], [8, 16, 16]] {
        let tried = assert_every_choice(&f, &device(mnk, (16, 16)), "rule");
        assert!(tried >= 6, "{tried}");
    }
}

/// Few rows and columns, and a long reduction: every number of slices, with and without tails of rows and columns. The
/// rule takes some itself where cores are idle.
#[test]
fn slices_of_a_long_reduction_are_summed_up() {
    for (mnk, (m, n, k)) in [([16, 16, 16], (5, 20, 1024)), ([8, 8, 8], (8, 8, 512))] {
        let f = product(m, n, k);
        let p = device(mnk, (32, 32));
        let made = schedule(&f, &[], &p).unwrap_or_else(|e| panic!("{e}")).function;
        let all = choices(&made.trace);
        let choice = all.iter().find(|c| c.point == "slices".into()).expect("slices are a choice");
        assert_eq!(choice.of.len(), if k == 1024 { 3 } else { 2 }, "{:?}", choice.of);
        for value in &choice.of {
            let choice = Choice { unit: choice.unit, point: choice.point, value: value.clone() };
            assert_same(&f, &chosen(&f, &p, choice));
        }
    }
    // Another tile has other steps.
    let f = product(8, 8, 512);
    let p = with_cores(128);
    let made = schedule(&f, &[], &p).unwrap_or_else(|e| panic!("{e}")).function;
    let all = choices(&made.trace);
    let depths = all.iter().find(|c| c.point == "depth".into()).expect("depths are a choice");
    for value in &depths.of {
        let choice = Choice { unit: depths.unit, point: depths.point, value: value.clone() };
        schedule_with(&f, &[], &p, &[choice]).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn long_reductions_are_cut_where_cores_are_idle() {
    let kernels = |cores: u32| {
        schedule(&product(16, 16, 2048), &[], &with_cores(cores))
            .unwrap_or_else(|e| panic!("{e}"))
            .function
            .kernels()
            .len()
    };
    assert_eq!((kernels(128), kernels(1)), (2, 1));
}

/// Operands of f32 that are rounded where they are multiplied are converted by the copies; also together with others,
/// and where more is computed on the way.
#[test]
fn rounded_operands_are_converted_while_they_are_copied() {
    let rounded = |a: &str, b: &str, m: i64, n: i64, k: i64| {
        let [at, bt] = [a, b].map(|e| if e.contains("f16(%") { "f32" } else { "f16" });
        function(&format!(
            "tensor @mm(%a: {at}[{m},{k}], %b: {bt}[{k},{n}], out %y: f32[{m},{n}]) {{
  for i in 0..{m} {{ for j in 0..{n} {{ for k in 0..{k} {{
    block y reduce sum init {{ %y[i, j] <- f32({a}) * f32({b}) }}
  }} }} }}
}}"
        ))
    };
    for mnk in MATRIX_SHAPES {
        let p = device(mnk, (32, 32));
        for (m, n, k) in [(32, 32, 32), (37, 21, 40), (5, 70, 19)] {
            for (a, b) in [
                ("f16(%a[i, k])", "%b[k, j]"),
                ("%a[i, k]", "f16(%b[k, j])"),
                ("f16(%a[i, k])", "f16(%b[k, j])"),
                ("max(f16(%a[i, k]), 0.0:f16)", "f16(%b[k, j] * 0.5)"),
            ] {
                let g = check(&rounded(a, b, m, n, k), &p);
                let staged = |b: &crate::tir::Buffer| b.scope == Scope::Shared && b.dtype == crate::dtype::DType::F16;
                assert_eq!(g.buffers.iter().filter(|(_, b)| staged(b)).count(), 2, "{a} {b}");
            }
        }
    }
}

#[test]
fn what_is_no_product_of_halves_is_left_to_others() {
    let p = device([16, 16, 16], (32, 32));
    let single = "tensor @mm(%a: f32[400,40], %b: f16[40,400], out %y: f32[400,400]) {
  for i in 0..400 { for j in 0..400 { for k in 0..40 {
    block y reduce sum init { %y[i, j] <- %a[i, k] * f32(%b[k, j]) }
  } } }
}";
    let s = schedule(&function(single), &[], &p).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(s.rule, "matmul-tiled");
    assert!(
        s.declined.iter().any(|d| d.contains("matmul-matrix") && d.contains("`a` is f32, matrix units take f16")),
        "{:?}",
        s.declined
    );
    let denied = DeviceProfile { name: "dg2".into(), ..DeviceProfile::named("dg2").expect("a profile") };
    let s = schedule(&product(64, 64, 64), &[], &denied).unwrap_or_else(|e| panic!("{e}"));
    assert!(s.declined.iter().any(|d| d.contains("Arc A")), "{:?}", s.declined);
    let made = schedule(&product(64, 64, 64), &[], &DeviceProfile::lavapipe()).unwrap_or_else(|e| panic!("{e}"));
    assert!(made.function.buffers.iter().all(|(_, b)| !matches!(b.scope, Scope::Fragment(_))));
}
