//! Losses, composed of other ops on import: `NegativeLogLikelihoodLoss` and `SoftmaxCrossEntropyLoss`.

use super::OpResult;
use super::binary::{Div, Equal, Mul};
use super::broadcast::{Expand, unify_dims};
use super::gather::{Gather, GatherElements};
use super::reduce::{Reduce, ReduceKind};
use super::reshape::{Squeeze, Unsqueeze};
use super::select::Where;
use super::softmax::LogSoftmax;
use super::unary::Neg;
use crate::graph::ValueId;
use crate::ops::onnx::{ImportContext, OnnxImport};

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "NegativeLogLikelihoodLoss", domain: "", since: 12, import: import_likelihood },
    OnnxImport { op_type: "SoftmaxCrossEntropyLoss", domain: "", since: 12, import: import_cross_entropy },
];

fn import_likelihood(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let log_probabilities = cx.input(0)?;
    Ok(vec![likelihood(cx, log_probabilities)?])
}

fn import_cross_entropy(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let scores = cx.input(0)?;
    if cx.ty(0)?.rank() < 2 {
        return Err("the scores have no class axis".into());
    }
    let log_probabilities = cx.add(LogSoftmax { axes: vec![1] }, &[scores])?;
    Ok(vec![likelihood(cx, log_probabilities)?, log_probabilities])
}

/// `-weight[t] * x[n, t, ...]` for the class `t` of each place in operand 1, 0 where `t` is `ignore_index`; then
/// summed, or averaged by weight. Operand 2 holds the weight of each class.
fn likelihood(cx: &mut ImportContext<'_, '_>, x: ValueId) -> OpResult<ValueId> {
    let dtype = cx.type_of(x).dtype;
    let (mut target, target_ty) = (cx.input(1)?, cx.ty(1)?);
    let scores = cx.type_of(x);
    let places = scores.shape.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, d)| d);
    let fits = target_ty.shape.iter().zip(places).all(|(t, s)| unify_dims(t, s).is_ok());
    if !target_ty.dtype.is_int() || target_ty.rank() + 1 != scores.rank() || scores.rank() < 2 || !fits {
        return Err(format!("the target is {target_ty:?} for scores {scores:?}").into());
    }
    if let Some(weight) = cx.opt(2) {
        let weight = cx.type_of(weight);
        if weight.rank() != 1 || unify_dims(&weight.shape[0], &scores.shape[1]).is_err() {
            return Err(format!("the weights are {weight:?} for scores {scores:?}").into());
        }
    }
    let ignored = match cx.attrs.int("ignore_index") {
        None => None,
        Some(i) => {
            let mark = cx.number(i as f64, target_ty.dtype);
            let ignored = cx.add(Equal {}, &[target, mark])?;
            let first = cx.number(0.0, target_ty.dtype);
            target = cx.add(Where {}, &[ignored, first, target])?;
            Some(ignored)
        }
    };
    let zero = cx.number(0.0, dtype);
    let mask = |cx: &mut ImportContext<'_, '_>, v| match ignored {
        Some(ignored) => cx.add(Where {}, &[ignored, zero, v]),
        None => Ok(v),
    };
    let weight = match cx.opt(2) {
        Some(weight) => Some(cx.add(Gather { axis: 0 }, &[weight, target])?),
        None if ignored.is_some() => {
            let one = cx.number(1.0, dtype);
            Some(cx.add(Expand { shape: target_ty.shape.clone(), ..Expand::default() }, &[one])?)
        }
        None => None,
    };
    let weight = weight.map(|w| mask(cx, w)).transpose()?;
    let at = cx.add(Unsqueeze { axes: vec![1] }, &[target])?;
    let chosen = cx.add(GatherElements { axis: 1 }, &[x, at])?;
    let chosen = cx.add(Squeeze { axes: vec![1] }, &[chosen])?;
    let mut loss = cx.add(Neg {}, &[chosen])?;
    if let (Some(w), Some(_)) = (weight, cx.opt(2)) {
        loss = cx.add(Mul {}, &[loss, w])?;
    }
    loss = mask(cx, loss)?;
    let axes: Vec<usize> = (0..target_ty.rank()).collect();
    let all = |kind| Reduce { kind, axes: axes.clone(), keepdims: false };
    match (cx.attrs.str("reduction").unwrap_or("mean"), weight) {
        ("none", _) => Ok(loss),
        ("sum", _) => cx.add(all(ReduceKind::Sum), &[loss]),
        ("mean", None) => cx.add(all(ReduceKind::Mean), &[loss]),
        ("mean", Some(w)) => {
            let (sum, total) = (cx.add(all(ReduceKind::Sum), &[loss])?, cx.add(all(ReduceKind::Sum), &[w])?);
            cx.add(Div {}, &[sum, total])
        }
        (other, _) => Err(format!("reduction `{other}` is unknown").into()),
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::onnx::OnnxAttr;
    use crate::ops::testing::{assert_close, random, run_onnx};
    use crate::tensor::Tensor;

    #[test]
    fn losses_by_hand() {
        let (x, weight) = (random(&[3, 4], 1), random(&[4], 2));
        let target = Tensor::ints(&[2, -1, 0]);
        let (v, w) = (x.to_f64_vec(), weight.to_f64_vec());
        let losses = [-v[2] * w[2], 0.0, -v[8] * w[0]];
        let of = |reduction: &str, weight: Option<&Tensor>| {
            let attrs = [("reduction", OnnxAttr::Str(reduction.into())), ("ignore_index", OnnxAttr::Int(-1))];
            run_onnx(("NegativeLogLikelihoodLoss", 13), &attrs, &[Some(&x), Some(&target), weight], 1)
        };
        let close = |got: &Tensor, want: &[f64]| {
            assert!(got.to_f64_vec().iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-6), "{got:?} {want:?}");
        };
        close(&of("none", Some(&weight)).unwrap()[0], &losses);
        close(&of("sum", Some(&weight)).unwrap()[0], &[losses.iter().sum()]);
        close(&of("mean", Some(&weight)).unwrap()[0], &[losses.iter().sum::<f64>() / (w[2] + w[0])]);
        close(&of("mean", None).unwrap()[0], &[(-v[2] - v[8]) / 2.0]);
        assert!(of("most", None).is_err());
    }

    #[test]
    fn cross_entropy_is_the_likelihood_of_a_softmax() {
        let (x, target) = (random(&[2, 3, 5], 3), Tensor::from_vec(vec![2, 5], vec![0i64, 1, 2, 0, 1, 2, 0, 1, 2, 0]));
        let both = run_onnx(("SoftmaxCrossEntropyLoss", 13), &[], &[Some(&x), Some(&target)], 2).unwrap();
        let again = run_onnx(("NegativeLogLikelihoodLoss", 13), &[], &[Some(&both[1]), Some(&target)], 1).unwrap();
        assert_close(&both[0], &again[0], 1e-6);
    }
}
