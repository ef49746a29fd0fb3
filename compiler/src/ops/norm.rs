//! Normalisation with the statistics of the data itself.

use super::broadcast::operand_index;
use super::permute::{PermutedOp, normalize_axis};
use super::{InferContext, Op, OpRef, OpResult, Precision};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::int::{Int, product};
use crate::ops::onnx::{ExportContext, FloatTypes, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::{BufferId, Combiner, Expr, UnaryOp};

attr_struct! {
    /// `(x - mean) / sqrt(variance + epsilon) * scale + bias` with the statistics of the axes from `axis` on. Operands:
    /// data, scale and an optional bias that broadcast to the data.
    pub struct LayerNorm("layer_norm") {
        /// First normalised axis.
        pub axis: usize = 0,
        /// Added to the variance.
        pub epsilon: f64 = 1e-5,
        /// Also gives the mean and `1 / sqrt(variance + epsilon)`.
        pub statistics: bool = false,
    }
}

attr_struct! {
    /// `x / sqrt(mean(x^2) + epsilon) * scale` with the mean over the axes from `axis` on.
    pub struct RmsNorm("rms_norm") {
        /// First normalised axis.
        pub axis: usize = 0,
        /// Added to the mean square.
        pub epsilon: f64 = 1e-5,
    }
}

/// Mean and `1 / sqrt(variance + epsilon)` of groups of elements.
pub(super) struct Statistics {
    /// Mean.
    pub mean: BufferId,
    /// Inverse standard deviation.
    pub inverse: BufferId,
}

/// Stages `sum`, `mean`, `squares` and `inverse` over groups of shape `groups`; `at` gives the element of the data for
/// a group and a position in it. Two passes over the data, since the mean of squares loses digits.
pub(super) fn statistics(
    cx: &mut ComputeContext<'_>,
    groups: &[Int],
    extents: &[Int],
    epsilon: f64,
    at: impl Fn(&[Int], &[Int]) -> Vec<Int>,
) -> OpResult<Statistics> {
    let x = cx.require(0)?;
    let from = cx.dtype(x);
    let acc = from.accumulator();
    let count = Expr::Index(product(extents), acc);
    let sum = cx.reduce("sum", groups, acc, extents, Combiner::Sum, |g, r| Expr::load(x, at(g, r)).cast(from, acc));
    let mean = cx.compute("mean", groups, acc, |g| Expr::load(sum, g.to_vec()) / count.clone());
    let squares = cx.reduce("squares", groups, acc, extents, Combiner::Sum, |g, r| {
        let off = Expr::load(x, at(g, r)).cast(from, acc) - Expr::load(mean, g.to_vec());
        off.clone() * off
    });
    let inverse = inverse_root(cx, groups, squares, count, epsilon);
    Ok(Statistics { mean, inverse })
}

/// The stage `inverse`: `1 / sqrt(sum / count + epsilon)` of each group.
fn inverse_root(cx: &mut ComputeContext<'_>, groups: &[Int], sum: BufferId, count: Expr, epsilon: f64) -> BufferId {
    let acc = cx.dtype(sum);
    cx.compute("inverse", groups, acc, |g| {
        let mean = Expr::load(sum, g.to_vec()) / count + Expr::constant(epsilon, acc);
        Expr::constant(1.0, acc) / Expr::unary(UnaryOp::Sqrt, mean)
    })
}

/// Refuses an operand that does not broadcast to the data's trailing axes.
fn check_broadcast(cx: &InferContext<'_>, i: usize, what: &str) -> OpResult<()> {
    let (Some(t), x) = (cx.input(i), cx.require(0)?) else { return Ok(()) };
    let fits = |a: &Int, b: &Int| a.is(1) || a.as_const().is_none() || b.as_const().is_none() || a == b;
    if t.rank() > x.rank() || !t.shape.iter().rev().zip(x.shape.iter().rev()).all(|(a, b)| fits(a, b)) {
        return Err(format!("{what} of shape {:?} does not broadcast to {:?}", t.shape, x.shape).into());
    }
    Ok(())
}

fn check_data(cx: &InferContext<'_>, axis: usize) -> OpResult<TensorType> {
    let x = cx.float_data()?;
    if axis >= x.rank() {
        return Err(format!("axis {axis} is not in data of rank {}", x.rank()).into());
    }
    check_broadcast(cx, 1, "scale")?;
    check_broadcast(cx, 2, "bias")?;
    Ok(x.clone())
}

/// The normalisation `op` of the axes from `axis` on, of data transposed by `perm`: the same op where these axes stay
/// behind the others, with a scale and a bias in their new order.
fn permuted_norm(op: OpRef, axis: usize, results: usize, perm: &[usize], cx: &InferContext<'_>) -> Option<PermutedOp> {
    if perm[..axis].iter().any(|p| *p >= axis) {
        return None;
    }
    let mut new = PermutedOp::uniform(op, perm, 1, results);
    for i in 1..cx.len() {
        let Some(t) = cx.input(i) else { continue };
        let skip = perm.len() - t.rank();
        let order = match t.numel().is(1) {
            true => None,
            // Dimensions that the operand does not have stay where they are.
            false if perm[..skip].iter().all(|p| *p < skip) => Some(perm[skip..].iter().map(|p| p - skip).collect()),
            false => return None,
        };
        new.operands.push((i, order));
    }
    Some(new)
}

/// Operands 1 (scale) and 2 (bias), where present: buffer, shape and dtype.
struct Affine([Option<(BufferId, Vec<Int>, DType)>; 2]);
impl Affine {
    fn new(cx: &ComputeContext<'_>) -> Affine {
        Affine([1, 2].map(|i| cx.input(i).map(|b| (b, cx.shape(b), cx.dtype(b)))))
    }
    /// `value * scale + bias` with both broadcast to the data.
    fn apply(&self, value: Expr, o: &[Int], data: &[Int], acc: DType) -> Expr {
        let load = |operand: &Option<(BufferId, Vec<Int>, DType)>| {
            operand.as_ref().map(|(b, shape, t)| Expr::load(*b, operand_index(o, data, shape)).cast(*t, acc))
        };
        let value = match load(&self.0[0]) {
            Some(scale) => value * scale,
            None => value,
        };
        match load(&self.0[1]) {
            Some(bias) => value + bias,
            None => value,
        }
    }
}

/// The first result: `value(x, group)` of each element of the data, with scale and bias. `group` is its index before
/// `axis`.
fn normalised(cx: &mut ComputeContext<'_>, axis: usize, value: impl Fn(Expr, Vec<Int>) -> Expr) -> OpResult<()> {
    let (x, out) = (cx.require(0)?, cx.output_type(0).clone());
    let (acc, affine) = (out.dtype.accumulator(), Affine::new(cx));
    let result = cx.compute("", &out.shape, out.dtype, |o| {
        let value = value(Expr::load(x, o.to_vec()).cast(out.dtype, acc), o[..axis].to_vec());
        affine.apply(value, o, &out.shape, acc).cast(acc, out.dtype)
    });
    cx.output(0, result);
    Ok(())
}

impl Op for LayerNorm {
    fn arity(&self) -> (usize, usize) {
        (2, 3)
    }
    fn num_results(&self) -> usize {
        if self.statistics { 3 } else { 1 }
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = check_data(cx, self.axis)?;
        let axes: Vec<usize> = (self.axis..x.rank()).collect();
        let stats = TensorType::new(x.dtype.accumulator(), super::reduce::reduced_shape(&x.shape, &axes, true));
        Ok(if self.statistics { vec![x, stats.clone(), stats] } else { vec![x] })
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let out = cx.output_type(0).clone();
        let (groups, extents) = out.shape.split_at(self.axis);
        let s = statistics(cx, groups, extents, self.epsilon, |g, r| [g, r].concat())?;
        normalised(cx, self.axis, |x, group| (x - Expr::load(s.mean, group.clone())) * Expr::load(s.inverse, group))?;
        if self.statistics {
            let (shape, acc) = (cx.output_type(1).shape.clone(), out.dtype.accumulator());
            for (i, b) in [(1, s.mean), (2, s.inverse)] {
                let kept = cx.compute("kept", &shape, acc, |o| Expr::load(b, o[..self.axis].to_vec()));
                cx.output(i, kept);
            }
        }
        Ok(())
    }
    fn precision(&self) -> Precision {
        Precision::Never
    }
    fn widens(&self) -> bool {
        true
    }
    fn permuted(&self, perm: &[usize], cx: &InferContext<'_>) -> Option<PermutedOp> {
        permuted_norm(self.clone().into(), self.axis, self.num_results(), perm, cx)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let attrs = vec![("axis", OnnxAttr::Int(self.axis as i64)), ("epsilon", OnnxAttr::Float(self.epsilon as f32))];
        cx.simple("LayerNormalization", attrs);
        Ok(())
    }
}

impl Op for RmsNorm {
    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        Ok(vec![check_data(cx, self.axis)?])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (x, out) = (cx.require(0)?, cx.output_type(0).clone());
        let acc = out.dtype.accumulator();
        let (groups, extents) = out.shape.split_at(self.axis);
        let squares = cx.reduce("squares", groups, acc, extents, Combiner::Sum, |g, r| {
            let x = Expr::load(x, [g, r].concat()).cast(out.dtype, acc);
            x.clone() * x
        });
        let inverse = inverse_root(cx, groups, squares, Expr::Index(product(extents), acc), self.epsilon);
        normalised(cx, self.axis, |x, group| x * Expr::load(inverse, group))
    }
    fn precision(&self) -> Precision {
        Precision::Never
    }
    fn widens(&self) -> bool {
        true
    }
    fn permuted(&self, perm: &[usize], cx: &InferContext<'_>) -> Option<PermutedOp> {
        permuted_norm(self.clone().into(), self.axis, 1, perm, cx)
    }
    fn onnx_floats(&self) -> FloatTypes {
        FloatTypes::Wide
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        // RMSNormalization is newer than the opset that is written.
        let x = cx.input_types[0].ok_or("operand 0 is missing")?;
        let axes: Vec<i64> = (self.axis as i64..x.rank() as i64).collect();
        let axes = cx.constant(crate::tensor::Tensor::ints(&axes));
        let epsilon = cx.constant(crate::tensor::Tensor::from_f64(x.dtype, vec![], [self.epsilon]));
        let names: Vec<String> = (0..5).map(|i| format!("{}_{i}", cx.fresh())).collect();
        let (data, scale, out) = (cx.input(0), cx.input(1), cx.outputs.clone());
        let mut node = |op: &str, inputs: &[&String], to: &String| {
            cx.node(op, inputs.iter().map(|s| s.to_string()).collect(), vec![to.clone()], vec![]);
        };
        node("Mul", &[&data, &data], &names[0]);
        node("ReduceMean", &[&names[0], &axes], &names[1]);
        node("Add", &[&names[1], &epsilon], &names[2]);
        node("Sqrt", &[&names[2]], &names[3]);
        node("Div", &[&data, &names[3]], &names[4]);
        node("Mul", &[&names[4], &scale], &out[0]);
        Ok(())
    }
}

/// The first normalised axis, and what is added to the variance.
fn import_attributes(cx: &ImportContext<'_, '_>) -> OpResult<(usize, f64)> {
    let axis = normalize_axis(cx.attrs.int("axis").unwrap_or(-1), cx.ty(0)?.rank())?;
    Ok((axis, cx.attrs.float("epsilon").unwrap_or(1e-5)))
}

fn import_layer_norm(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (axis, epsilon) = import_attributes(cx)?;
    let op = LayerNorm { axis, epsilon, statistics: cx.num_outputs > 1 };
    let inputs = cx.inputs.clone();
    cx.add_multi(op, inputs)
}

fn import_rms_norm(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (axis, epsilon) = import_attributes(cx)?;
    let inputs = cx.inputs.clone();
    cx.add_multi(RmsNorm { axis, epsilon }, inputs)
}

/// ONNX importers of this family.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "LayerNormalization", domain: "", since: 1, import: import_layer_norm },
    OnnxImport { op_type: "RMSNormalization", domain: "", since: 23, import: import_rms_norm },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{assert_close, random, run, try_run};
    use crate::tensor::Tensor;

    fn fill(shape: &[usize], value: f32) -> Tensor {
        Tensor::from_vec(shape.to_vec(), vec![value; shape.iter().product()])
    }

    #[test]
    fn groups_get_mean_zero_and_variance_one() {
        // A large mean: the mean of squares would lose all digits.
        let values = random(&[2, 3, 8], 1).to_f64_vec();
        let x = Tensor::from_f64(DType::F32, vec![2, 3, 8], values.iter().map(|v| 1000.0 + v).collect::<Vec<_>>());
        let op = LayerNorm { axis: 1, epsilon: 0.0, statistics: true };
        let out = try_run(op, &[&x, &fill(&[3, 8], 1.0), &fill(&[8], 0.0)]).expect("runs");
        for (g, group) in out[0].to_f64_vec().chunks(24).enumerate() {
            let mean = group.iter().sum::<f64>() / 24.0;
            let variance = group.iter().map(|v| v * v).sum::<f64>() / 24.0;
            assert!(mean.abs() < 1e-3 && (variance - 1.0).abs() < 1e-3, "{mean} {variance}");
            let want = 1000.0 + values[g * 24..][..24].iter().sum::<f64>() / 24.0;
            assert!((out[1].to_f64_vec()[g] - want).abs() < 1e-3);
        }
        assert_eq!(out[2].shape(), [2, 1, 1]);
    }

    #[test]
    fn normalised_axes_may_change_places() {
        use crate::ops::testing::assert_permuted;
        let x = random(&[2, 3, 4, 5], 1);
        for (axis, perm) in
            [(1, [0, 2, 3, 1]), (1, [0, 3, 1, 2]), (2, [1, 0, 3, 2]), (3, [2, 0, 1, 3]), (0, [3, 1, 0, 2])]
        {
            let statistics = perm[0] == 0;
            let op = LayerNorm { axis, statistics, ..LayerNorm::default() };
            assert_permuted(op, &[&x, &random(&x.shape()[axis..], 2), &fill(&[], 0.5)], &perm);
            assert_permuted(RmsNorm { axis, epsilon: 0.0 }, &[&x, &random(&x.shape()[axis..], 2)], &perm);
        }
        // The channels would stand before what is not normalised; a row would have to become a column.
        for (axis, scale) in [(3, vec![5]), (1, vec![4, 5])] {
            let mut module = crate::graph::Module::new("main");
            let mut b = crate::graph::FunctionBuilder::new(&mut module, "main");
            let values = [&x, &random(&scale, 2)].map(|t| Some(b.constant("c", t)));
            let cx = InferContext::new(b.module, &b.function, &values, &[]);
            assert!(LayerNorm { axis, ..LayerNorm::default() }.permuted(&[0, 2, 3, 1], &cx).is_none());
        }
    }

    #[test]
    fn scale_and_bias_broadcast() {
        let x = random(&[4, 6], 2);
        let op = LayerNorm { axis: 1, ..LayerNorm::default() };
        let plain = run(op.clone(), &[&x, &fill(&[1], 1.0)]).to_f64_vec();
        let got = run(op, &[&x, &fill(&[6], 2.0), &fill(&[6], 3.0)]);
        let want = plain.iter().map(|v| 2.0 * v + 3.0).collect::<Vec<_>>();
        assert_close(&got, &Tensor::from_f64(DType::F32, vec![4, 6], want), 1e-6);
        let rms = run(RmsNorm { axis: 0, epsilon: 0.0 }, &[&fill(&[2, 2], -3.0), &fill(&[2], 5.0)]);
        assert_eq!(rms.to_f64_vec(), [-5.0; 4]);
    }
}
