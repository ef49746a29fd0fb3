//! Loops in plans of open sizes: carried values, collected rows and numbers of iterations depend on the sizes of a run.

use super::{agrees, agrees_on, compiled, opened};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::onnx::{NoExternalData, import_onnx};
use compiler::tensor::Tensor;
use compiler::text::parse_module;

fn parsed(text: &str) -> Module {
    parse_module(text).unwrap_or_else(|e| panic!("{e}"))
}

/// The network, compiled once, agrees with the interpreter at each of these sizes, the first one again at the end.
fn agrees_at(m: &Module, dims: &[(&str, i64, i64)], runs: &[&[(&str, i64)]]) {
    let session = opened(&compiled(m, dims));
    runs.iter().chain(&runs[..1]).for_each(|sizes| agrees(&session, m, sizes));
}

#[test]
fn rows_of_an_open_size_are_collected() {
    let text = "const @w : f32[4] = random(1)
graph @main(%x: f32[n,4], %q: f32[n,m]) -> (y: f32[n,4], rows: f32[20,n,4], sums: f32[20,n], z: f32[n,m]) {
  %w = const @w
  %0, %1, %2, %3 = loop _, _, %x, %q {trips=20} : f32[n,4], f32[n,m], f32[20,n,4], f32[20,n] (%i: i64[], %a: f32[n,4], %b: f32[n,m]) {
    %4 = tanh %a
    %5 = add %4, %w
    %6 = sin %b
    %7 = reduce %6 {kind=sum, axes=[1]}
    yield %5, %6, %4, %7
  }
  return %0, %2, %3, %1
}
";
    let sizes: [&[_]; 4] =
        [&[("n", 3), ("m", 5)], &[("n", 1), ("m", 1)], &[("n", 40), ("m", 17)], &[("n", 8), ("m", 64)]];
    agrees_at(&parsed(text), &[("n", 1, 64), ("m", 1, 64)], &sizes);
}

#[test]
fn a_loop_runs_as_often_as_a_dimension_says() {
    let text = "const @w : f32[8,8] = random(1)
graph @main(%x: f32[batch,8], %q: f32[steps,batch,8]) -> (y: f32[batch,8], rows: f32[steps,batch,8]) {
  %w = const @w
  %0, %1 = loop _, _, %x {trips=`steps`} : f32[batch,8], f32[steps,batch,8] (%i: i64[], %a: f32[batch,8]) {
    %2 = gather %q, %i {axis=0}
    %3 = matmul %a, %w
    %4 = add %3, %2
    %5 = tanh %4
    yield %5, %4
  }
  return %0, %1
}
";
    let sizes: [&[_]; 4] = [
        &[("batch", 2), ("steps", 9)],
        &[("batch", 1), ("steps", 1)],
        &[("batch", 5), ("steps", 70)],
        &[("batch", 3), ("steps", 4)],
    ];
    agrees_at(&parsed(text), &[("batch", 1, 8), ("steps", 1, 100)], &sizes);
}

/// The number of iterations is read, and so is whether to go on: rows whose number only a run decides, of an open size,
/// and a loop in a loop.
#[test]
fn rows_that_grow_have_an_open_size() {
    let text = "graph @main(%x: f32[n,3], %n: i64[], %limit: f32[]) -> (y: f32[n,3], rows: f32[trips,n,3], z: f32[n,3], inner: f32[2,n]) {
  %0, %1 = loop %n, _, %x {while=true, count=trips} : f32[n,3], f32[trips,n,3] (%i: i64[], %a: f32[n,3]) {
    %2 = add %a, %x
    %3 = reduce %2 {kind=max, axes=[0,1]}
    %4 = less %3, %limit
    yield %4, %2, %a
  }
  %5, %6 = loop _, _, %x {trips=2} : f32[n,3], f32[2,n] (%j: i64[], %b: f32[n,3]) {
    %7 = loop %n, _, %b {} : f32[n,3] (%k: i64[], %c: f32[n,3]) {
      %8 = cos %c
      yield %8
    }
    %9 = reduce %7 {kind=sum, axes=[1]}
    yield %7, %9
  }
  return %0, %1, %5, %6
}
";
    let m = parsed(text);
    let session = opened(&compiled(&m, &[("n", 1, 64)]));
    for (n, trips, limit) in [(2, 3, 100.0), (1, 0, 100.0), (17, 5, 2.0), (64, 1, 9.0), (2, 40, 100.0)] {
        agrees_on(&session, &m, &[("n", n)], &|port, ty| match (port, ty.dtype) {
            (_, DType::I64) => Some(Tensor::scalar(i64::from(trips))),
            (2, _) => Some(Tensor::scalar(limit as f32)),
            _ => None,
        });
    }
}

/// LSTM in both directions, GRU, and a backward RNN over sequences of different lengths; batch and number of steps are
/// open.
#[test]
fn recurrent_layers_take_sequences_of_any_length() {
    let m = import_onnx(include_bytes!("models/recurrent.onnx").to_vec().into(), &NoExternalData);
    let m = m.unwrap_or_else(|e| panic!("{e}"));
    let session = opened(&compiled(&m, &[("steps", 1, 600), ("batch", 1, 8)]));
    for (steps, batch) in [(9, 2), (1, 1), (500, 3), (33, 8)] {
        agrees_on(&session, &m, &[("steps", steps), ("batch", batch)], &|_, ty| {
            let lengths: Vec<i32> = (0..batch as i32).map(|b| (steps as i32 - 3 * b).max(1)).collect();
            (ty.dtype == DType::I32).then(|| Tensor::from_vec(vec![batch as usize], lengths))
        });
    }
}
