//! Single ops on the interpreter, for tests.

use super::{InferContext, OpRef, PermutedOp, find_onnx};
use crate::graph::{FunctionBuilder, Module, TensorType, ValueId};
use crate::interpreter::{eval_expression, eval_node};
use crate::name::Name;
use crate::ops::onnx::{ImportContext, OnnxAttr, OnnxAttrs};
use crate::tensor::Tensor;
use crate::text::{compare_modules, parse_module, print_module};

/// Runs `op` on present operands.
pub fn try_run(op: impl Into<OpRef>, inputs: &[&Tensor]) -> Result<Vec<Tensor>, String> {
    let inputs: Vec<Option<Tensor>> = inputs.iter().map(|&t| Some(t.clone())).collect();
    Ok(eval_node(&op.into(), &inputs, &Module::new("main"))?)
}

/// The first result of `op` on present operands.
pub fn run(op: impl Into<OpRef>, inputs: &[&Tensor]) -> Tensor {
    try_run(op, inputs).expect("the op runs").remove(0)
}

/// The results of `op`, whose host evaluation and tensor expression must agree.
#[track_caller]
pub fn run_both(op: impl Into<OpRef>, inputs: &[&Tensor]) -> Vec<Tensor> {
    let op = op.into();
    let host = try_run(op.clone(), inputs).expect("the op runs");
    let inputs: Vec<Option<Tensor>> = inputs.iter().map(|&t| Some(t.clone())).collect();
    let expression = eval_expression(&op, &inputs).expect("the tensor expression runs");
    assert_eq!(host.len(), expression.len());
    host.iter().zip(&expression).for_each(|(h, e)| assert_close(e, h, 1e-6));
    host
}

/// Runs what an ONNX node becomes; integer operands are constants, and `outputs` is the number it names. `op` is an
/// operator of ai.onnx, or one of another domain as `domain::operator`.
pub fn run_onnx(
    (op, opset): (&str, i64),
    attrs: &[(&str, OnnxAttr)],
    inputs: &[Option<&Tensor>],
    outputs: usize,
) -> Result<Vec<Tensor>, String> {
    let (domain, op) = op.split_once("::").unwrap_or(("", op));
    let row = find_onnx(domain, op, opset).expect("an importer");
    let mut module = Module::new("main");
    let mut b = FunctionBuilder::new(&mut module, "main");
    let mut given = Vec::new();
    let mut operand = |t: &Tensor| match t.dtype().is_int() && t.shape().len() < 2 {
        true => b.constant("c", t),
        false => {
            given.push(t.clone());
            b.param(format!("p{}", given.len()).as_str(), TensorType::fixed(t.dtype(), t.shape()))
        }
    };
    let inputs = inputs.iter().map(|t| t.map(&mut operand)).collect();
    let attrs = OnnxAttrs(attrs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect());
    let mut cx = ImportContext::new(&mut b, opset, inputs, attrs, outputs);
    let values = (row.import)(&mut cx)?;
    let name = |i: usize| Name::new(&format!("r{i}"));
    let results: Vec<(Name, ValueId)> = values.into_iter().enumerate().map(|(i, v)| (name(i), v)).collect();
    b.finish(&results);
    assert_text_says_all(&module);
    crate::interpreter::run_function(&module, module.entry, &given).map_err(|e| e.to_string())
}

/// `parse(print(m)) == m`, whatever names and sizes a model came with.
#[track_caller]
pub fn assert_text_says_all(m: &Module) {
    let text = print_module(m);
    let again = parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    compare_modules(m, &again).unwrap_or_else(|e| panic!("{e}\n{text}"));
}

/// Transposes the operands as `op.permuted(perm)` says, and holds the results against those of `op`, transposed.
#[track_caller]
pub fn assert_permuted(op: impl Into<OpRef>, inputs: &[&Tensor], perm: &[usize]) {
    let op = op.into();
    let new = {
        let mut module = Module::new("main");
        let mut b = FunctionBuilder::new(&mut module, "main");
        let values: Vec<Option<ValueId>> = inputs.iter().map(|t| Some(b.constant("c", t))).collect();
        let cx = InferContext::new(b.module, &b.function, &values, &[]);
        op.permuted(perm, &cx)
    };
    let PermutedOp { op: new, operands, results } = new.unwrap_or_else(|| panic!("{op:?} cannot be permuted"));
    let apply = |t: &Tensor, p: &Option<Vec<usize>>| p.as_ref().map_or(t.clone(), |p| transposed(t, p));
    let operands: Vec<Tensor> = operands.iter().map(|(i, p)| apply(inputs[*i], p)).collect();
    let got = try_run(new.clone(), &operands.iter().collect::<Vec<_>>()).unwrap_or_else(|e| panic!("{new:?}: {e}"));
    let want = try_run(op, inputs).expect("the op runs");
    assert_eq!((got.len(), results.len()), (want.len(), want.len()));
    for ((g, w), p) in got.iter().zip(&want).zip(&results) {
        assert_close(g, &apply(w, p), 1e-6);
    }
}

/// Reproducible values in -1..1.
pub fn random(shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    Tensor::from_vec(shape.to_vec(), (0..shape.iter().product::<usize>()).map(|_| next()).collect())
}

/// Holds shapes, dtypes and values against each other; `tolerance` is absolute and relative.
#[track_caller]
pub fn assert_close(got: &Tensor, want: &Tensor, tolerance: f64) {
    assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()));
    for (i, (g, w)) in got.to_f64_vec().into_iter().zip(want.to_f64_vec()).enumerate() {
        assert!((g - w).abs() <= tolerance * (1.0 + w.abs()), "element {i}: got {g}, want {w}");
    }
}

/// `t` with its dimensions in the order `perm`.
pub fn transposed(t: &Tensor, perm: &[usize]) -> Tensor {
    let from = t.shape();
    let shape: Vec<usize> = perm.iter().map(|&p| from[p]).collect();
    let values = t.to_f64_vec();
    let out = (0..values.len()).map(|mut flat| {
        let mut at = vec![0; shape.len()];
        for (d, i) in shape.iter().enumerate().rev() {
            at[d] = flat % i;
            flat /= i;
        }
        let mut index = vec![0; shape.len()];
        for (d, &p) in perm.iter().enumerate() {
            index[p] = at[d];
        }
        values[index.iter().zip(from).fold(0, |flat, (i, n)| flat * n + i)]
    });
    Tensor::from_f64(t.dtype(), shape.clone(), out.collect::<Vec<_>>())
}
