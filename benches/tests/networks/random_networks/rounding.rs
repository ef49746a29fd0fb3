//! The sensitivity of a network to rounding: its f32 graph is run node by node, with every number rounded to f16, or
//! moved by as much as another order of a short sum moves it.
//!
//! Results can be compared only if rounding alone changes them little. A sum of numbers that cancel, or a normalisation
//! of nearly equal numbers, amplifies any rounding. If rounding alone uses more than half of the tolerance, the network
//! is drawn again.

use compiler::agreement::{F16_TOLERANCE, REORDERED, Tolerance, agree_in_slices};
use compiler::dtype::DType;
use compiler::graph::{Module, ValueId};
use compiler::interpreter::eval_node;
use compiler::tensor::Tensor;
use compiler::text::random_tensor;
use half::f16;
use std::collections::HashMap;

/// Units in the last place by which another order moves a short sum.
const MOVED: f64 = 3.0;
/// Runs with moved numbers.
const RUNS: u64 = 4;

/// How an f32 becomes an f16. The directed ones make errors that do not average out, the mixed ones change the order of
/// nearly equal neighbours.
#[derive(Clone, Copy, Debug)]
enum Rounding {
    Nearest,
    TowardZero,
    AwayFromZero,
    /// Toward zero or away from it, drawn for each element.
    Mixed(u64),
}

fn rounded(x: f32, how: Rounding) -> f32 {
    let h = f16::from_f32(x);
    let (near, bits) = (h.to_f32(), h.to_bits());
    let moved = match how {
        Rounding::TowardZero if near.abs() > x.abs() => bits - 1,
        Rounding::AwayFromZero if near.abs() < x.abs() => bits + 1,
        Rounding::Nearest | Rounding::TowardZero | Rounding::AwayFromZero | Rounding::Mixed(_) => bits,
    };
    f16::from_bits(moved).to_f32()
}

fn rounded_tensor(t: &Tensor, how: Rounding) -> Tensor {
    let Some(x) = t.as_slice::<f32>() else { return t.clone() };
    let all = match how {
        Rounding::Mixed(seed) => {
            let up = random_tensor(DType::F32, t.shape(), seed).to_f64_vec();
            let way = |up: f64| if up < 0.0 { Rounding::TowardZero } else { Rounding::AwayFromZero };
            x.iter().zip(up).map(|(&x, up)| rounded(x, way(up))).collect()
        }
        how => x.iter().map(|&x| rounded(x, how)).collect(),
    };
    Tensor::from_vec(t.shape().to_vec(), all)
}

/// Each number moved by up to [`MOVED`] units in its last place, by another amount than its neighbours.
fn moved_tensor(t: &Tensor, seed: u64) -> Tensor {
    let Some(x) = t.as_slice::<f32>() else { return t.clone() };
    let by = random_tensor(DType::F32, t.shape(), seed).to_f64_vec();
    let moved =
        |(&x, by): (&f32, f64)| (f64::from(x) * (1.0 + by.clamp(-1.0, 1.0) * MOVED * f64::from(f32::EPSILON))) as f32;
    Tensor::from_vec(t.shape().to_vec(), x.iter().zip(by).map(moved).collect())
}

/// The results with every operand and every result of every node rounded.
fn results(m: &Module, inputs: &[Tensor], round: &dyn Fn(&Tensor) -> Tensor) -> Result<Vec<Tensor>, String> {
    let f = m.main();
    let mut values: HashMap<ValueId, Tensor> = f.params().iter().copied().zip(inputs.iter().map(round)).collect();
    for n in f.walk() {
        let node = &f.nodes[n];
        let operands: Vec<Option<Tensor>> = node.inputs.iter().map(|v| v.map(|v| values[&v].clone())).collect();
        let made = eval_node(&node.op, &operands, m)?;
        values.extend(node.outputs.iter().copied().zip(made.iter().map(round)));
    }
    Ok(f.results().iter().map(|v| values[v].clone()).collect())
}

/// True when `want` stays within half of f16's tolerance, however numbers are rounded.
pub fn bears_rounding(m: &Module, inputs: &[Tensor], want: &[Tensor]) -> Result<bool, String> {
    let half = Tolerance::uniform(F16_TOLERANCE / 2.0);
    let one_way = [Rounding::Nearest, Rounding::TowardZero, Rounding::AwayFromZero];
    for how in one_way.into_iter().chain((0..RUNS).map(|run| Rounding::Mixed(run << 32))) {
        let got = results(m, inputs, &|t| rounded_tensor(t, how))?;
        if !got.iter().zip(want).all(|(g, w)| agree_in_slices(g, w, &half).pass) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// True when `want` stays within half of the tolerance for another order of the same computation, however numbers are
/// moved.
pub fn bears_reordering(m: &Module, inputs: &[Tensor], want: &[Tensor]) -> Result<bool, String> {
    let half = Tolerance::uniform(REORDERED / 2.0);
    for run in 0..RUNS {
        let seed = std::cell::Cell::new(run << 32);
        let moved = |t: &Tensor| {
            seed.set(seed.get() + 1);
            moved_tensor(t, seed.get())
        };
        let got = results(m, inputs, &moved)?;
        if !got.iter().zip(want).all(|(g, w)| agree_in_slices(g, w, &half).pass) {
            return Ok(false);
        }
    }
    Ok(true)
}
