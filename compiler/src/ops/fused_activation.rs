//! Activations that ONNX Runtime's optimiser fused with the sum before them. Import turns them back into sums and
//! activations.

use super::OpResult;
use super::activation::{Gelu, GeluApproximation, Swish};
use super::binary::{Add, Mul};
use super::linear_attention::range;
use crate::fault::Fault;
use crate::graph::ValueId;
use crate::ops::onnx::{ImportContext, OnnxImport};

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "BiasAdd", domain: MICROSOFT, since: 1, import: import_bias_add },
    OnnxImport { op_type: "BiasGelu", domain: MICROSOFT, since: 1, import: |cx| gelu(cx, GeluApproximation::None) },
    OnnxImport { op_type: "FastGelu", domain: MICROSOFT, since: 1, import: |cx| gelu(cx, GeluApproximation::Tanh) },
    OnnxImport { op_type: "QuickGelu", domain: MICROSOFT, since: 1, import: import_quick_gelu },
    OnnxImport { op_type: "BiasSplitGelu", domain: MICROSOFT, since: 1, import: import_bias_split_gelu },
];

const MICROSOFT: &str = "com.microsoft";

/// Operand 0 with the optional bias, operand 1.
fn biased(cx: &mut ImportContext<'_, '_>) -> OpResult<ValueId> {
    let x = cx.input(0)?;
    match cx.opt(1) {
        Some(bias) => cx.add(Add {}, &[x, bias]),
        None => Ok(x),
    }
}

fn gelu(cx: &mut ImportContext<'_, '_>, approximate: GeluApproximation) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&[])?;
    let x = biased(cx)?;
    Ok(vec![cx.add(Gelu { approximate }, &[x])?])
}

/// `x * sigmoid(alpha * x)`: GELU as some vision transformers have it.
fn import_quick_gelu(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&["alpha"])?;
    let x = cx.input(0)?;
    Ok(vec![cx.add(Swish { alpha: cx.attrs.float("alpha").unwrap_or(1.702) }, &[x])?])
}

fn import_bias_add(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&[])?;
    let (x, skip) = (biased(cx)?, cx.input(2)?);
    Ok(vec![cx.add(Add {}, &[x, skip])?])
}

/// `a * gelu(b)`, `a` and `b` the halves of the last axis of `x + bias`.
fn import_bias_split_gelu(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&[])?;
    let x = biased(cx)?;
    let ty = cx.type_of(x);
    let width = ty.shape.last().and_then(|d| d.as_const());
    let width = width.ok_or_else(|| Fault::unsupported("the number of channels is not known at compile time"))?;
    if width % 2 != 0 {
        return Err(format!("{width} channels cannot be halved").into());
    }
    let axis = ty.rank() as i64 - 1;
    let (a, b) = (range(cx, x, axis, 0, width / 2)?, range(cx, x, axis, width / 2, width)?);
    let gate = cx.add(Gelu::default(), &[b])?;
    Ok(vec![cx.add(Mul {}, &[a, gate])?])
}

#[cfg(test)]
mod tests {
    use crate::ops::onnx::OnnxAttr;
    use crate::ops::testing::{assert_close, random, run_onnx};
    use crate::tensor::Tensor;

    #[test]
    fn halves_gate_each_other_behind_the_bias() {
        let (x, bias) = (random(&[2, 3, 8], 1), random(&[8], 2));
        let got = run_onnx(("com.microsoft::BiasSplitGelu", 1), &[], &[Some(&x), Some(&bias)], 1).unwrap();
        let sum = run_onnx(("Add", 14), &[], &[Some(&x), Some(&bias)], 1).unwrap().remove(0);
        let gelu = run_onnx(("Gelu", 20), &[], &[Some(&sum)], 1).unwrap()[0].to_f64_vec();
        let sums = sum.to_f64_vec();
        let value = |i: usize| sums[i / 4 * 8 + i % 4] * gelu[i / 4 * 8 + 4 + i % 4];
        let want = (0..24).map(value);
        assert_close(&got[0], &Tensor::from_f64(x.dtype(), vec![2, 3, 4], want.collect::<Vec<_>>()), 1e-6);
    }

    #[test]
    fn an_attribute_that_is_unknown_is_named() {
        let x = random(&[2], 1);
        let why = run_onnx(("com.microsoft::QuickGelu", 1), &[("beta", OnnxAttr::Int(1))], &[Some(&x)], 1).unwrap_err();
        assert!(why.contains("`beta`"), "{why}");
    }
}
