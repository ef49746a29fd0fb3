//! Elementwise functions of one operand with attributes.

use super::unary::{Domain, below, compute_map, erf, infer_map, property, sigmoid};
use super::{Homogeneity, InferContext, Op, OpResult};
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{BinaryOp, Expr, UnaryOp};
use crate::{attr_enum, attr_struct};

fn number(value: f64, t: DType) -> Expr {
    Expr::constant(value, t)
}

fn exp(x: Expr) -> Expr {
    Expr::unary(UnaryOp::Exp, x)
}

fn positive(x: Expr, t: DType) -> Expr {
    x.max(number(0.0, t))
}

/// Activations with their attributes, each a float attribute of the same name in ONNX.
macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident($text:literal), $onnx:literal $since:literal,
        { $($(#[$about:meta])* $attr:ident = $default:expr),* },
        |$op:ident, $x:ident, $t:ident| $value:expr $(=> $($property:ident)+)?;)*) => {
        $(attr_struct! { $(#[$doc])* pub struct $name($text) { $($(#[$about])* pub $attr: f64 = $default,)* } }
        impl Op for $name {
            fn arity(&self) -> (usize, usize) {
                (1, 1)
            }
            fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
                infer_map(cx, Domain::Float)
            }
            fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
                let $op = self;
                compute_map(cx, Domain::Float, |$x: Expr, $t: DType| $value)
            }
            $($(property!($property);)+)?
            fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
                cx.simple($onnx, vec![$((stringify!($attr), OnnxAttr::Float(self.$attr as f32))),*]);
                Ok(())
            }
        })*
        /// ONNX importers.
        pub const ONNX: &[OnnxImport] = &[
            $(OnnxImport {
                op_type: $onnx,
                domain: "",
                since: $since,
                import: |cx| {
                    let default = $name::default();
                    let op = $name { $($attr: cx.attrs.float(stringify!($attr)).unwrap_or(default.$attr)),* };
                    let x = cx.input(0)?;
                    Ok(vec![cx.add(op, &[x])?])
                },
            },)*
            OnnxImport { op_type: "Swish", domain: "", since: 24, import: import_swish },
            OnnxImport { op_type: "Gelu", domain: "", since: 20, import: import_gelu },
            OnnxImport { op_type: "Gelu", domain: "com.microsoft", since: 1, import: import_gelu },
            OnnxImport { op_type: "IsInf", domain: "", since: 10, import: import_is_inf },
        ];
    };
}

attr_struct! {
    /// `x * sigmoid(alpha * x)`.
    pub struct Swish("swish") {
        /// Steepness.
        pub alpha: f64 = 1.0,
    }
}

activations! {
    /// `clamp(alpha * x + beta, 0, 1)`.
    HardSigmoid("hard_sigmoid"), "HardSigmoid" 6, {
        /// Slope.
        alpha = 0.2,
        /// Offset.
        beta = 0.5
    }, |op, x, t| positive(x * number(op.alpha, t) + number(op.beta, t), t).min(number(1.0, t)) => nonnegative;
    /// `x` where positive, else `alpha * x`.
    LeakyRelu("leaky_relu"), "LeakyRelu" 6, {
        /// Slope below 0.
        alpha = 0.01
    }, |op, x, t| Expr::select(below(x.clone(), 0.0, t), x.clone() * number(op.alpha, t), x) => positively_homogeneous;
    /// `x` where positive, else `alpha * (e^x - 1)`.
    Elu("elu"), "Elu" 6, {
        /// Limit below 0.
        alpha = 1.0
    }, |op, x, t| {
        Expr::select(below(x.clone(), 0.0, t), number(op.alpha, t) * (exp(x.clone()) - number(1.0, t)), x)
    };
    /// `x` where positive, else `alpha * (e^(x / alpha) - 1)`.
    Celu("celu"), "Celu" 12, {
        /// Limit and scale below 0.
        alpha = 1.0
    }, |op, x, t| {
        let low = number(op.alpha, t) * (exp(x.clone() * number(1.0 / op.alpha, t)) - number(1.0, t));
        Expr::select(below(x.clone(), 0.0, t), low, x)
    };
    /// `gamma * x` where positive, else `gamma * alpha * (e^x - 1)`.
    Selu("selu"), "Selu" 6, {
        /// Limit below 0.
        alpha = 1.673_263_192_176_818_8,
        /// Scale.
        gamma = 1.050_701_022_148_132_3
    }, |op, x, t| {
        let low = number(op.gamma * op.alpha, t) * (exp(x.clone()) - number(1.0, t));
        Expr::select(below(x.clone(), 0.0, t), low, x * number(op.gamma, t))
    };
    /// `x` where above `alpha`, else 0.
    ThresholdedRelu("thresholded_relu"), "ThresholdedRelu" 10, {
        /// Threshold.
        alpha = 1.0
    }, |op, x, t| {
        let above = Expr::binary(BinaryOp::Gt, x.clone(), number(op.alpha, t));
        Expr::select(above, x, number(0.0, t))
    };
    /// `x + bias` below `-lambd`, `x - bias` above `lambd`, else 0.
    Shrink("shrink"), "Shrink" 9, {
        /// Threshold.
        lambd = 0.5,
        /// What is taken off.
        bias = 0.0
    }, |op, x, t| {
        let above = Expr::binary(BinaryOp::Gt, x.clone(), number(op.lambd, t));
        let high = Expr::select(above, x.clone() - number(op.bias, t), number(0.0, t));
        Expr::select(below(x.clone(), -op.lambd, t), x + number(op.bias, t), high)
    };
}

impl Op for Swish {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        infer_map(cx, Domain::Float)
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        compute_map(cx, Domain::Float, |x, t| {
            let gate = if self.alpha == 1.0 { x.clone() } else { x.clone() * number(self.alpha, t) };
            x * sigmoid(gate, t)
        })
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let mut gate = cx.input(0);
        if self.alpha != 1.0 {
            let alpha = cx.constant(Tensor::from_f64(cx.output_types[0].dtype, vec![], [self.alpha]));
            gate = emit(cx, "Mul", &[&gate, &alpha]);
        }
        let gate = emit(cx, "Sigmoid", &[&gate]);
        let (inputs, outputs) = (vec![cx.input(0), gate], cx.outputs.clone());
        cx.node("Mul", inputs, outputs, vec![]);
        Ok(())
    }
}

fn import_swish(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let alpha = cx.attrs.float("alpha").unwrap_or(1.0);
    Ok(vec![cx.add(Swish { alpha }, &[x])?])
}

/// Emits a node with one result and returns the result's name.
fn emit(cx: &mut ExportContext<'_>, op_type: &str, inputs: &[&str]) -> String {
    let name = cx.fresh();
    cx.node(op_type, inputs.iter().map(|s| s.to_string()).collect(), vec![name.clone()], vec![]);
    name
}

attr_enum! {
    /// How GELU is computed.
    pub enum GeluApproximation {
        /// By the error function.
        None = "none",
        /// By a tanh.
        Tanh = "tanh",
    }
}

attr_struct! {
    /// `x * Phi(x)`, Phi the normal distribution function.
    pub struct Gelu("gelu") {
        /// How Phi is computed.
        pub approximate: GeluApproximation = GeluApproximation::None,
    }
}
impl Op for Gelu {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        infer_map(cx, Domain::Float)
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        compute_map(cx, Domain::Float, |x, t| {
            let half = x.clone() * number(0.5, t);
            let s = match self.approximate {
                GeluApproximation::None => erf(x * number(std::f64::consts::FRAC_1_SQRT_2, t), t),
                GeluApproximation::Tanh => {
                    let scale = (2.0 / std::f64::consts::PI).sqrt();
                    let square = x.clone() * x.clone();
                    let inner = x * (number(scale, t) + number(scale * 0.044715, t) * square);
                    Expr::unary(UnaryOp::Tanh, inner)
                }
            };
            half * (number(1.0, t) + s)
        })
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        // ONNX has Gelu from opset 20 on only: written out, every reader knows it.
        let dtype = cx.output_types[0].dtype;
        let scalar = |cx: &mut ExportContext<'_>, v: f64| cx.constant(Tensor::from_f64(dtype, vec![], [v]));
        let x = cx.input(0);
        let curve = match self.approximate {
            GeluApproximation::None => {
                let by = scalar(cx, std::f64::consts::FRAC_1_SQRT_2);
                let scaled = emit(cx, "Mul", &[&x, &by]);
                emit(cx, "Erf", &[&scaled])
            }
            GeluApproximation::Tanh => {
                let scale = (2.0 / std::f64::consts::PI).sqrt();
                let (linear, cubic) = (scalar(cx, scale), scalar(cx, scale * 0.044715));
                let square = emit(cx, "Mul", &[&x, &x]);
                let product = emit(cx, "Mul", &[&square, &cubic]);
                let sum = emit(cx, "Add", &[&product, &linear]);
                let inner = emit(cx, "Mul", &[&x, &sum]);
                emit(cx, "Tanh", &[&inner])
            }
        };
        let (one, half) = (scalar(cx, 1.0), scalar(cx, 0.5));
        let gate = emit(cx, "Add", &[&curve, &one]);
        let halved = emit(cx, "Mul", &[&x, &half]);
        let outputs = cx.outputs.clone();
        cx.node("Mul", vec![halved, gate], outputs, vec![]);
        Ok(())
    }
}

fn import_gelu(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let mode = cx.attrs.str("approximate").unwrap_or("none");
    let approximate =
        GeluApproximation::parse(mode).ok_or_else(|| format!("approximate is `{mode}`, not none or tanh"))?;
    let x = cx.input(0)?;
    Ok(vec![cx.add(Gelu { approximate }, &[x])?])
}

attr_struct! {
    /// True for infinities.
    pub struct IsInf("is_inf") {
        /// Whether negative infinity counts.
        pub negative: bool = true,
        /// Whether positive infinity counts.
        pub positive: bool = true,
    }
}
impl Op for IsInf {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let mut types = infer_map(cx, Domain::Float)?;
        types[0].dtype = DType::Bool;
        Ok(types)
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        compute_map(cx, Domain::Float, |x, t| {
            let infinite = Expr::unary(UnaryOp::IsInf, x.clone());
            let sign = match (self.negative, self.positive) {
                (true, true) => return infinite,
                (true, false) => below(x, 0.0, t),
                (false, true) => Expr::binary(BinaryOp::Gt, x, number(0.0, t)),
                (false, false) => Expr::int(0, DType::Bool),
            };
            Expr::binary(BinaryOp::And, infinite, sign)
        })
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let flags = [("detect_negative", self.negative), ("detect_positive", self.positive)];
        cx.simple("IsInf", flags.into_iter().map(|(k, v)| (k, OnnxAttr::Int(v as i64))).collect());
        Ok(())
    }
}

fn import_is_inf(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let flag = |name| cx.attrs.int(name).unwrap_or(1) != 0;
    let op = IsInf { negative: flag("detect_negative"), positive: flag("detect_positive") };
    let x = cx.input(0)?;
    Ok(vec![cx.add(op, &[x])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{run, try_run};

    #[test]
    fn bends_at_its_limits() {
        let x = Tensor::from_vec(vec![5], vec![-4.0f32, -1.0, 0.0, 1.0, 4.0]);
        let of = |op: crate::ops::OpRef| run(op, &[&x]).to_f64_vec();
        assert_eq!(of(HardSigmoid::default().into())[0], 0.0);
        assert_eq!(of(HardSigmoid { alpha: 1.0, beta: 0.5 }.into()), [0.0, 0.0, 0.5, 1.0, 1.0]);
        assert_eq!(of(LeakyRelu { alpha: 0.5 }.into()), [-2.0, -0.5, 0.0, 1.0, 4.0]);
        assert_eq!(of(ThresholdedRelu { alpha: 1.0 }.into()), [0.0, 0.0, 0.0, 0.0, 4.0]);
        assert_eq!(of(Shrink { lambd: 1.0, bias: 0.5 }.into()), [-3.5, 0.0, 0.0, 0.0, 3.5]);
        let gelu = of(Gelu::default().into());
        assert!((gelu[3] - 0.841344746).abs() < 1e-6 && (gelu[1] + 0.158655254).abs() < 1e-6, "{gelu:?}");
    }

    #[test]
    fn infinities_by_sign() {
        let x = Tensor::from_vec(vec![3], vec![f32::NEG_INFINITY, 1.0, f32::INFINITY]);
        let of = |negative, positive| run(IsInf { negative, positive }, &[&x]).to_i64_vec();
        assert_eq!(of(true, true), [1, 0, 1]);
        assert_eq!(of(true, false), [1, 0, 0]);
        assert_eq!(of(false, true), [0, 0, 1]);
        assert_eq!(of(false, false), [0, 0, 0]);
        assert!(try_run(IsInf::default(), &[&Tensor::scalar(1i32)]).is_err());
    }
}
