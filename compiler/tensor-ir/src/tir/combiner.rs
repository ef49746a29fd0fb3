//! Combiners of reduce blocks: sum, product, maximum and minimum.

use super::{BinaryOp, Expr, Scalar};
use crate::dtype::DType;

/// How a reduce block combines.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Combiner {
    /// `a + b`, identity 0.
    Sum,
    /// `a * b`, identity 1.
    Prod,
    /// `max(a, b)`, identity the lowest value.
    Max,
    /// `min(a, b)`, identity the highest value.
    Min,
}

impl Combiner {
    /// The operator that combines two values.
    pub fn operator(self) -> BinaryOp {
        match self {
            Combiner::Sum => BinaryOp::Add,
            Combiner::Prod => BinaryOp::Mul,
            Combiner::Max => BinaryOp::Max,
            Combiner::Min => BinaryOp::Min,
        }
    }
    /// True for the larger and the smaller of two.
    pub fn is_extremum(self) -> bool {
        matches!(self, Combiner::Max | Combiner::Min)
    }
    /// The identity, as a constant of `t`.
    pub fn identity(self, t: DType) -> Expr {
        match self {
            Combiner::Sum => Expr::constant(0.0, t),
            Combiner::Prod => Expr::constant(1.0, t),
            Combiner::Max => lowest(t),
            Combiner::Min => highest(t),
        }
    }
}

fn lowest(t: DType) -> Expr {
    match t {
        _ if t.is_float() => Expr::constant(f64::NEG_INFINITY, t),
        _ if t == DType::Bool || !t.is_signed() => Expr::int(0, t),
        _ => Expr::Const(Scalar::Int(-1 << (8 * t.size() - 1)), t),
    }
}

fn highest(t: DType) -> Expr {
    match t {
        _ if t.is_float() => Expr::constant(f64::INFINITY, t),
        DType::Bool => Expr::int(1, t),
        _ if !t.is_signed() && t.size() == 8 => Expr::int(-1, t),
        _ if !t.is_signed() => Expr::int((1 << (8 * t.size())) - 1, t),
        _ => Expr::int(!(-1 << (8 * t.size() - 1)), t),
    }
}
