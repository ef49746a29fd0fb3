//! Which of oneDNN's functions of elements an op is.

use crate::graph::{BinaryFunction, Eltwise, Function};
use compiler::ops::OpRef;
use compiler::ops::activation::{Elu, Gelu, GeluApproximation, LeakyRelu, Swish};
use compiler::ops::binary::{Add, Div, Max, Min, Mul, Sub};
use compiler::ops::clip::Clip;
use compiler::ops::unary::{Abs, Exp, HardSwish, Log, Mish, Neg, Relu, Round, Sigmoid, Softplus, Sqrt, Tanh};

/// The function of one operand that the op computes.
pub fn eltwise(op: &OpRef) -> Option<Eltwise> {
    let of = |function, alpha: f64, beta: f64| Some(Eltwise { function, alpha: alpha as f32, beta: beta as f32 });
    if let Some(clip) = op.downcast::<Clip>() {
        let bound = |b: Option<f64>, none: f32| b.unwrap_or(f64::from(none));
        return of(Function::Clip, bound(clip.min, f32::MIN), bound(clip.max, f32::MAX));
    }
    if let Some(elu) = op.downcast::<Elu>() {
        return of(Function::Elu, elu.alpha, 0.0);
    }
    if let Some(leaky) = op.downcast::<LeakyRelu>() {
        return of(Function::Relu, leaky.alpha, 0.0);
    }
    if let Some(swish) = op.downcast::<Swish>() {
        return of(Function::Swish, swish.alpha, 0.0);
    }
    if let Some(gelu) = op.downcast::<Gelu>() {
        return match gelu.approximate {
            GeluApproximation::None => of(Function::GeluErf, 0.0, 0.0),
            GeluApproximation::Tanh => of(Function::GeluTanh, 0.0, 0.0),
        };
    }
    let plain = [
        (op.is::<Relu>(), Function::Relu),
        (op.is::<Tanh>(), Function::Tanh),
        (op.is::<Abs>(), Function::Abs),
        (op.is::<Sqrt>(), Function::Sqrt),
        (op.is::<Sigmoid>(), Function::Logistic),
        (op.is::<Exp>(), Function::Exp),
        (op.is::<Log>(), Function::Log),
        (op.is::<Round>(), Function::Round),
        (op.is::<Mish>(), Function::Mish),
    ];
    if let Some(&(_, function)) = plain.iter().find(|row| row.0) {
        return of(function, 0.0, 0.0);
    }
    match () {
        () if op.is::<Neg>() => of(Function::Linear, -1.0, 0.0),
        () if op.is::<Softplus>() => of(Function::SoftRelu, 1.0, 0.0),
        () if op.is::<HardSwish>() => of(Function::Hardswish, 1.0 / 6.0, 0.5),
        () => None,
    }
}

/// The function of two operands that the op computes.
pub fn binary(op: &OpRef) -> Option<BinaryFunction> {
    let table = [
        (op.is::<Add>(), BinaryFunction::Add),
        (op.is::<Mul>(), BinaryFunction::Mul),
        (op.is::<Max>(), BinaryFunction::Max),
        (op.is::<Min>(), BinaryFunction::Min),
        (op.is::<Div>(), BinaryFunction::Div),
        (op.is::<Sub>(), BinaryFunction::Sub),
    ];
    table.iter().find(|row| row.0).map(|row| row.1)
}
