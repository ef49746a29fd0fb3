//! Products that ONNX Runtime's optimiser fused with transposes before them, and with sums and activations after them.
//! Import turns them back into their parts.

use super::OpResult;
use super::binary::{Add, Mul};
use super::matmul::{MatMul, import_gemm};
use super::named_activation::NamedActivation;
use super::transpose::Transpose;
use crate::graph::ValueId;
use crate::ops::onnx::{ImportContext, OnnxImport};

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "FusedMatMul", domain: MICROSOFT, since: 1, import: import_fused_matmul },
    OnnxImport { op_type: "TransposeMatMul", domain: MICROSOFT, since: 1, import: import_fused_matmul },
    OnnxImport { op_type: "FusedMatMulActivation", domain: MICROSOFT, since: 1, import: import_matmul_activation },
    OnnxImport { op_type: "FusedGemm", domain: MICROSOFT, since: 1, import: import_fused_gemm },
    OnnxImport { op_type: "GemmFastGelu", domain: MICROSOFT, since: 1, import: import_gemm_fast_gelu },
    OnnxImport { op_type: "FusedConv", domain: MICROSOFT, since: 1, import: import_fused_conv },
];

const MICROSOFT: &str = "com.microsoft";

/// Operand `i` with its axes as `trans` (the last two change places) and `batch` (the first goes before the last, the
/// others move up; before `trans`) say. A vector stays as it is.
fn transposed(cx: &mut ImportContext<'_, '_>, i: usize, trans: &str, batch: &str) -> OpResult<ValueId> {
    let x = cx.input(i)?;
    let rank = cx.type_of(x).rank();
    let flag = |name: &str| cx.attrs.int(name).unwrap_or(0) != 0;
    let (trans, batch) = (flag(trans), flag(batch));
    if rank < 2 {
        return Ok(x);
    }
    let mut perm: Vec<usize> = (0..rank).collect();
    if batch {
        perm[..rank - 1].rotate_left(1);
    }
    if trans {
        perm.swap(rank - 2, rank - 1);
    }
    match perm.is_sorted() {
        true => Ok(x),
        false => cx.add(Transpose { perm }, &[x]),
    }
}

/// `alpha * a b`.
fn fused_matmul(cx: &mut ImportContext<'_, '_>) -> OpResult<ValueId> {
    let operands = [transposed(cx, 0, "transA", "transBatchA")?, transposed(cx, 1, "transB", "transBatchB")?];
    let product = cx.add(MatMul {}, &operands)?;
    match cx.attrs.float("alpha").unwrap_or(1.0) {
        1.0 => Ok(product),
        alpha => {
            let alpha = cx.number(alpha, cx.type_of(product).dtype);
            cx.add(Mul {}, &[product, alpha])
        }
    }
}

const MATMUL_ATTRS: [&str; 5] = ["alpha", "transA", "transB", "transBatchA", "transBatchB"];

fn import_fused_matmul(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&MATMUL_ATTRS)?;
    Ok(vec![fused_matmul(cx)?])
}

/// The activation that the attribute `activation` names, with the factors in `activation_alpha`, `activation_beta` or
/// `activation_params`.
fn activation(cx: &ImportContext<'_, '_>) -> OpResult<Option<NamedActivation>> {
    let Some(name) = cx.attrs.str("activation").filter(|name| !name.is_empty()) else { return Ok(None) };
    let params: Vec<f64> = match cx.attrs.floats("activation_params") {
        Some(list) => list.iter().map(|&v| v.into()).collect(),
        None => ["activation_alpha", "activation_beta"].iter().map_while(|name| cx.attrs.float(name)).collect(),
    };
    let split = params.len().min(1);
    let (mut alphas, mut betas) = (params[..split].iter().copied(), params[split..].iter().copied());
    NamedActivation::new(name, &mut alphas, &mut betas).map(Some)
}

fn activated(cx: &mut ImportContext<'_, '_>, x: ValueId) -> OpResult<Vec<ValueId>> {
    let x = match activation(cx)? {
        Some(f) => f.apply(cx, x)?,
        None => x,
    };
    Ok(vec![x])
}

fn import_matmul_activation(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let factors = ["activation", "activation_alpha", "activation_beta", "activation_axis", "activation_gamma"];
    cx.only_attrs(&[&MATMUL_ATTRS[..], &factors].concat())?;
    let product = fused_matmul(cx)?;
    activated(cx, product)
}

fn import_fused_gemm(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&["activation", "activation_alpha", "activation_beta", "alpha", "beta", "transA", "transB"])?;
    let product = import_gemm(cx)?[0];
    activated(cx, product)
}

/// `gelu(x w + b)`, GELU by a tanh.
fn import_gemm_fast_gelu(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&[])?;
    let operands = [cx.input(0)?, cx.input(1)?];
    let mut x = cx.add(MatMul {}, &operands)?;
    if let Some(bias) = cx.opt(2) {
        x = cx.add(Add {}, &[x, bias])?;
    }
    let approximate = super::activation::GeluApproximation::Tanh;
    Ok(vec![cx.add(super::activation::Gelu { approximate }, &[x])?])
}

/// A convolution, the optional sum with operand 3, and an activation.
fn import_fused_conv(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let known =
        ["activation", "activation_params", "auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"];
    cx.only_attrs(&known)?;
    let sum = cx.opt(3);
    cx.inputs.truncate(3);
    let mut x = super::conv::import_conv(cx)?[0];
    if let Some(sum) = sum {
        x = cx.add(Add {}, &[x, sum])?;
    }
    activated(cx, x)
}
