//! The price of a product with M rows is not above that with M + 1 rows.

use super::dispatch::{Picks, rules_for};
use super::predict::prepare;
use super::script::NOTHING;
use super::sketch::Sketch;
use crate::profile::DeviceProfile;
use crate::text::parse_tensor_function;
use crate::tir::{BufferId, TensorFunction};

/// The kind of product.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Right {
    F32,
    F16,
    /// Both operands are bytes.
    I8,
    /// 4 bits, in blocks of 32 with a scale.
    I4,
}

/// `[m, k] x [k, n]`, with `m` rows.
fn product(right: Right, m: i64, n: i64, k: i64) -> TensorFunction {
    let (inputs, result, value) = match right {
        Right::F32 => (format!("%x: f32[{m},{k}], %w: f32[{n},{k}]"), "f32", "%x[i, r] * %w[j, r]".to_string()),
        Right::F16 => {
            (format!("%x: f16[{m},{k}], %w: f16[{n},{k}]"), "f32", "f32(%x[i, r]) * f32(%w[j, r])".to_string())
        }
        Right::I8 => (format!("%x: i8[{m},{k}], %w: i8[{n},{k}]"), "i32", "i32(%x[i, r]) * i32(%w[j, r])".to_string()),
        Right::I4 => (
            format!("%x: f32[{m},{k}], %w: u32[{n},{}], %s: f32[{n},{}]", k / 8, k / 32),
            "f32",
            "%x[i, r] * ((f32(bitand(shr(%w[j, r/8], idx(r % 8*4):u32), 15:u32)) - 8.0) * %s[j, r/32])".to_string(),
        ),
    };
    let text = format!(
        "tensor @mm({inputs}, out %y: {result}[{m},{n}]) {{
  for i in 0..{m} {{ for j in 0..{n} {{ for r in 0..{k} {{ block y reduce sum init {{ %y[i, j] <- {value} }} }} }} }}
}}"
    );
    parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).canonical()
}

/// The price of the product, and how it is made.
fn price(right: Right, [m, n, k]: [i64; 3], p: &DeviceProfile) -> (f64, String) {
    let f = product(right, m, n, k);
    let weights: Vec<BufferId> = f.inputs().skip(1).collect();
    let mut sketch = Sketch::new(f, &weights, p.into(), &NOTHING);
    prepare(&mut sketch, false);
    let unit = sketch.units().unwrap_or_else(|e| panic!("{e}")).remove(0);
    let rules = rules_for(p.into(), &NOTHING, &unit);
    let pick = Picks::of(&sketch.view(), &unit, &rules, &NOTHING).next().expect("a rule");
    let cost: Vec<String> = pick.kernels.iter().map(|k| format!("{} x{}", k.cost, k.workgroups)).collect();
    (pick.cost().expect("a price"), format!("{} {} {}", pick.rule.name, pick.candidate, cost.join(" + ")))
}

/// Prices that are above that of the next larger number of rows: how many of each kind there are at most, and by how
/// much. Few workgroups draw few bytes a nanosecond, and the estimate does not know that workgroups of further rows
/// draw the same bytes of the right operand again; `benches/results/2026-11-30-gpu-products.md` has the cases. The
/// numbers only fall.
const KNOWN: [(Right, usize); 4] = [(Right::F32, 85), (Right::F16, 80), (Right::I8, 133), (Right::I4, 50)];
const MOST: f64 = 1.3;

#[test]
fn a_row_less_costs_no_more() {
    let rows: Vec<i64> = (1..=17).chain([23, 24, 25, 31, 32, 33, 63, 64, 65, 127, 128, 129]).collect();
    for (right, most) in KNOWN {
        let mut broken = Vec::new();
        for p in DeviceProfile::all().into_iter().filter(|p| p.model().product_units) {
            for [n, k] in [[1000, 1280], [128, 128], [1024, 2816], [2048, 2048], [32000, 2048], [320, 96]] {
                let prices: Vec<(f64, String)> = rows.iter().map(|m| price(right, [*m, n, k], &p)).collect();
                for (at, two) in prices.windows(2).enumerate().filter(|(_, two)| two[0].0 > 1.0001 * two[1].0) {
                    let (name, [less, more]) = (&p.name, [&two[0], &two[1]]);
                    let line = format!("{name} {n}x{k}, {} rows: {:.0} ns ({})", rows[at], less.0, less.1);
                    let line = format!("{line}; {} rows: {:.0} ns ({})", rows[at + 1], more.0, more.1);
                    assert!(less.0 < MOST * more.0, "{right:?} {line}");
                    broken.push(line);
                }
            }
        }
        assert!(broken.len() <= most, "{right:?}: {} instead of {most}:\n{}", broken.len(), broken.join("\n"));
    }
}
