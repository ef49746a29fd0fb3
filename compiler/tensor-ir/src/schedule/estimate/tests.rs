//! The estimate of functions whose parts can be computed by hand, and the predicted kernels compared with those that
//! the rules make.

use super::{Estimate, times};
use crate::int::DimRanges;
use crate::profile::DeviceProfile;
use crate::schedule::estimator::{Estimator, estimate};
use crate::schedule::rules::{choices, schedule};
use crate::schedule::testing::{conv, elementwise_chain, matmul, row_sum};
use crate::text::parse_tensor_function;
use crate::tir::TensorFunction;

fn ada() -> DeviceProfile {
    DeviceProfile::named("ada").expect("a profile")
}

/// One kernel over 2^20 elements that computes `value`, where `X` is `%x[index]`.
fn copy(index: &str, value: &str) -> Estimate {
    let text = format!(
        "tensor @f(%x: f32[1024,1024], out %y: f32[1024,1024]) {{
  kernel y {{ group_x for g in 0..1024 {{ for k in 0..8 {{ local_x for t in 0..128 {{
    block y {{ %y[g, k*128 + t] <- {} }}
  }} }} }} }}
}}",
        value.replace('X', &format!("%x[{index}]"))
    );
    let f = parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    estimate(&f, &[], &ada()).expect("an estimate")
}

#[test]
fn neighbours_cost_less_than_columns_and_exp_more_than_a_sum() {
    let (rows, columns) = (copy("g, k*128 + t", "X"), copy("k*128 + t, g", "X"));
    // A sector for each lane, which caches give four times as fast as memory, against four sectors for all lanes.
    assert!(columns.cost.sectors > rows.cost.sectors, "{columns}\n{rows}");
    let (plain, exp) = (copy("g, k*128 + t", "X + 1.0"), copy("g, k*128 + t", "exp(exp(X))"));
    assert!(exp.cost.arithmetic > 10.0 * plain.cost.arithmetic);
    assert_eq!(exp.cost.sectors, plain.cost.sectors);
    // 8 MiB through 1008 GB/s.
    assert!(rows.total() > 8.0 * 1048.576, "{rows}");
}

/// A depthwise convolution of 3x3 over 14x14 elements of 384 channels, with the channels innermost or outermost.
fn depthwise(channels_last: bool) -> TensorFunction {
    let (shape, at) = if channels_last { ("1,14,14,384", "0, H, W, c") } else { ("1,384,14,14", "0, c, H, W") };
    let index = |h: &str, w: &str| at.replace('H', h).replace('W', w);
    let (x, y) = (index("h + r - 1", "w + s - 1"), index("h", "w"));
    let inside = "h + r - 1 >= 0, h + r - 1 < 14, w + s - 1 >= 0, w + s - 1 < 14";
    let loops = if channels_last { [("h", 14), ("w", 14), ("c", 384)] } else { [("c", 384), ("h", 14), ("w", 14)] };
    let heads: String = loops.map(|(v, n)| format!("for {v} in 0..{n} {{ ")).concat();
    let text = format!(
        "tensor @f(%x: f32[{shape}], %w: f32[384,1,3,3], out %y: f32[{shape}]) {{
  {heads} for r in 0..3 {{ for s in 0..3 {{
    block y reduce sum init {{ %y[{y}] <- select(all({inside}), %x[{x}], 0.0) * %w[c, 0, r, s] }}
  }} }} }} }} }}
}}"
    );
    parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn functions() -> Vec<(&'static str, TensorFunction)> {
    vec![
        ("matmul", matmul(64, 48, 32)),
        ("large matmul", matmul(1024, 512, 512)),
        ("conv", conv(1, 8, 12, 12, 16, 3, 1, 1)),
        ("larger conv", conv(1, 64, 56, 56, 64, 3, 1, 1)),
        ("depthwise, channels last", depthwise(true)),
        ("depthwise, channels first", depthwise(false)),
        ("row sum", row_sum(3, 777)),
        ("many row sums", row_sum(4096, 256)),
        ("elementwise", elementwise_chain(&[64, 30])),
        ("large elementwise", elementwise_chain(&[1024, 1024])),
    ]
}

#[test]
fn parts_sum_to_the_total_and_kernels_to_the_function() {
    for p in DeviceProfile::all() {
        for (name, f) in functions() {
            let e = estimate(&f, &[], &p).unwrap_or_else(|e| panic!("{name} for {}: {e}", p.name));
            let c = e.cost;
            let sum = c.parts().iter().map(|p| p.1).sum::<f64>() - c.hidden;
            assert!(
                (sum - c.total()).abs() < 1e-6 && c.total() > 0.0 && c.waves >= -1e-9,
                "{name} for {}: {e}",
                p.name
            );
            let kernels: f64 = e.kernels.iter().map(|k| k.cost.total()).sum();
            assert!((kernels - c.total()).abs() < 1e-6 * kernels, "{name} for {}: {e}", p.name);
        }
    }
}

#[test]
fn what_is_predicted_is_what_the_rules_make() {
    for p in [DeviceProfile::lavapipe(), ada(), DeviceProfile::named("dg2").expect("a profile")] {
        for (name, f) in functions() {
            let before = estimate(&f, &[], &p).expect("an estimate");
            let made = schedule(&f, &[], &p).expect("a schedule").function;
            let after = estimate(&made, &[], &p).expect("an estimate of kernels");
            let ratio = before.total() / after.total();
            assert!((0.33..3.0).contains(&ratio), "{name} for {}: {ratio:.2}\n{before}\n{after}", p.name);
            assert_eq!(before.kernels.len(), after.kernels.len(), "{name} for {}\n{before}\n{after}", p.name);
            assert_eq!(before.bindings(), after.bindings(), "{name} for {}", p.name);
        }
    }
}

#[test]
fn what_the_device_does_not_have_is_refused() {
    let small = DeviceProfile { max_storage_buffers: 2, ..ada() };
    let why = estimate(&matmul(64, 64, 64), &[], &small).expect_err("more bindings");
    assert!(why.contains("bindings") && why.contains("has 2"), "{why}");
}

#[test]
fn more_work_costs_more_and_equal_functions_are_estimated_once() {
    let estimator = Estimator::within(&ada(), DimRanges::default());
    let total = |f: &TensorFunction| estimator.estimate(f, &[]).as_ref().as_ref().expect("an estimate").total();
    let (small, large) = (matmul(512, 256, 256), matmul(2048, 1024, 1024));
    assert!(total(&large) > 4.0 * total(&small));
    let again = estimator.estimate(&small, &[]);
    assert!(std::sync::Arc::ptr_eq(&again, &estimator.estimate(&small.clone(), &[])));
}

#[test]
fn what_cannot_be_counted_is_refused() {
    let loops: String = (0..5).map(|i| format!("for i{i} in 0..1000000 {{ ")).collect();
    let index = "i0, i1, i2, i3, i4";
    let shape = "1000000,1000000,1000000,1000000,1000000";
    let text = format!(
        "tensor @f(%x: f32[{shape}], out %y: f32[{shape}]) {{\n  {loops} block y {{ %y[{index}] <- %x[{index}] }} }} }} }} }} }}\n}}"
    );
    let f = parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let why = estimate(&f, &[], &ada()).expect_err("too many");
    assert!(why.contains("more iterations"), "{why}");
}

/// The choices of the rules for a function.
fn chosen(f: &TensorFunction, profile: &DeviceProfile) -> Vec<String> {
    let made = schedule(f, &[], profile).expect("a schedule").function;
    choices(&made.trace).iter().map(|c| format!("{}={:?}", c.point, c.value)).collect()
}

/// Rules choose otherwise if the estimate says that only launches take time. A tidy test holds that rules do not read
/// these rates.
#[test]
fn rules_ask_the_estimate() {
    let launches_alone = DeviceProfile { gflops: 1e15, gb_s: 1e15, ..ada() };
    for (what, f) in [("a product", matmul(1024, 512, 512)), ("sums of rows", row_sum(4096, 256))] {
        let (with, without) = (chosen(&f, &ada()), chosen(&f, &launches_alone));
        assert!(!with.is_empty() && with != without, "{what}: {with:?}");
    }
}

#[test]
fn times_side_by_side_have_one_unit() {
    assert_eq!(times([3.07e6, 1.2e5]), ["3.07 ms", "0.12 ms"]);
    assert_eq!(times([1.23e9, 8.79e5]), ["1230 ms", "0.88 ms"]);
    assert_eq!(times([52_000.0, 2_381_000.0]), ["52.0 us", "2381 us"]);
    assert_eq!(times([2.5e9]), ["2.50 s"]);
    assert_eq!(times([1.17e8, 1.28e8]), ["117 ms", "128 ms"]);
    assert_eq!(times([0.0]), ["0 us"]);
}
