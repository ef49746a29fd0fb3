//! Scalar value expressions of tensor IR.

use super::functions::{BinaryOp, UnaryOp};
use super::{BufferId, TensorFunction};
use crate::dtype::DType;
use crate::int::{Cond, Int};
use crate::name::Name;

/// A constant of any dtype.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub enum Scalar {
    /// Value of a float dtype.
    Float(f64),
    /// Value of an integer dtype or bool (0, 1).
    Int(i64),
}
impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        match (self, other) {
            (Scalar::Float(a), Scalar::Float(b)) => a.to_bits() == b.to_bits(),
            (Scalar::Int(a), Scalar::Int(b)) => a == b,
            _ => false,
        }
    }
}

/// A scalar value.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Expr {
    /// A constant.
    Const(Scalar, DType),
    /// An index as a value of an integer or float dtype.
    Index(Int, DType),
    /// An element of a buffer.
    Load(BufferId, Vec<Int>),
    /// A function of one value.
    Unary(UnaryOp, Box<Expr>),
    /// A function of two values.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// True when all conditions on indices hold.
    All(Vec<Cond>),
    /// `if cond { a } else { b }`, lazy.
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Conversion. Float to integer truncates and saturates; anything to bool is `!= 0`. Floats narrower than f32 may
    /// keep the precision of f32 until they are stored ([`Expr::rounded_cast`] rounds).
    Cast(DType, Box<Expr>),
}

impl Expr {
    /// A float constant of `dtype`, or its integer conversion.
    pub fn constant(value: f64, dtype: DType) -> Expr {
        Expr::Const(if dtype.is_float() { Scalar::Float(value) } else { Scalar::Int(value as i64) }, dtype)
    }
    /// An integer constant.
    pub fn int(value: i64, dtype: DType) -> Expr {
        Expr::Const(if dtype.is_float() { Scalar::Float(value as f64) } else { Scalar::Int(value) }, dtype)
    }
    /// A load.
    pub fn load(buffer: BufferId, indices: Vec<Int>) -> Expr {
        Expr::Load(buffer, indices)
    }
    /// A function of one value.
    pub fn unary(op: UnaryOp, a: Expr) -> Expr {
        Expr::Unary(op, Box::new(a))
    }
    /// A function of two values.
    pub fn binary(op: BinaryOp, a: Expr, b: Expr) -> Expr {
        Expr::Binary(op, Box::new(a), Box::new(b))
    }
    /// `if cond { a } else { b }`.
    pub fn select(cond: Expr, a: Expr, b: Expr) -> Expr {
        Expr::Select(Box::new(cond), Box::new(a), Box::new(b))
    }
    /// `a` where all conditions hold, else `b`; just `a` without conditions.
    pub fn guarded(conds: Vec<Cond>, a: Expr, b: Expr) -> Expr {
        if conds.is_empty() { a } else { Expr::select(Expr::All(conds), a, b) }
    }
    /// The value converted to `to`, and rounded at once if that is f16 or bf16. With a plain cast, a shader keeps f32
    /// until the value is stored.
    pub fn rounded_cast(self, from: DType, to: DType) -> Expr {
        let round = match to {
            DType::F16 => UnaryOp::QuantizeF16,
            DType::BF16 => UnaryOp::QuantizeBf16,
            _ => return self.cast(from, to),
        };
        Expr::unary(round, self.cast(from, DType::F32)).cast(DType::F32, to)
    }
    /// A conversion, unless `from` is already `to`.
    pub fn cast(self, from: DType, to: DType) -> Expr {
        if from == to { self } else { Expr::Cast(to, Box::new(self)) }
    }
    /// Smaller of two.
    pub fn min(self, b: Expr) -> Expr {
        Expr::binary(BinaryOp::Min, self, b)
    }
    /// Larger of two.
    pub fn max(self, b: Expr) -> Expr {
        Expr::binary(BinaryOp::Max, self, b)
    }
    /// The dtype of the value.
    pub fn dtype(&self, f: &TensorFunction) -> DType {
        match self {
            Expr::Const(_, t) | Expr::Index(_, t) | Expr::Cast(t, _) => *t,
            Expr::Load(b, _) => f.buffers[*b].dtype,
            Expr::All(_) => DType::Bool,
            Expr::Unary(op, _) if op.is_test() => DType::Bool,
            Expr::Unary(_, a) => a.dtype(f),
            Expr::Binary(op, a, _) => {
                if op.is_comparison() {
                    DType::Bool
                } else {
                    a.dtype(f)
                }
            }
            Expr::Select(_, a, _) => a.dtype(f),
        }
    }
    /// Rebuilds the expression bottom-up: `ints` on every index expression, then `f` on every rebuilt node
    /// (`None` keeps it).
    pub fn rewrite(&self, ints: &mut dyn FnMut(&Int) -> Int, f: &mut dyn FnMut(&Expr) -> Option<Expr>) -> Expr {
        let e = match self {
            Expr::Const(..) => self.clone(),
            Expr::Index(i, t) => Expr::Index(ints(i), *t),
            Expr::Load(b, ix) => Expr::Load(*b, ix.iter().map(&mut *ints).collect()),
            Expr::Unary(op, a) => Expr::unary(*op, a.rewrite(ints, f)),
            Expr::Binary(op, a, b) => Expr::binary(*op, a.rewrite(ints, f), b.rewrite(ints, f)),
            Expr::All(c) => Expr::All(c.iter().map(|c| c.map(ints)).collect()),
            Expr::Select(c, a, b) => Expr::select(c.rewrite(ints, f), a.rewrite(ints, f), b.rewrite(ints, f)),
            Expr::Cast(t, a) => Expr::Cast(*t, Box::new(a.rewrite(ints, f))),
        };
        f(&e).unwrap_or(e)
    }
    /// Rewrites every index expression.
    pub fn map_ints(&self, ints: &mut dyn FnMut(&Int) -> Int) -> Expr {
        self.rewrite(ints, &mut |_| None)
    }
    /// Replaces one loop variable.
    pub fn substitute(&self, var: Name, by: &Int) -> Expr {
        self.map_ints(&mut |i| i.substitute(var, by))
    }
    /// Calls `f` on every node, parents first.
    pub fn visit<'a>(&'a self, f: &mut dyn FnMut(&'a Expr)) {
        f(self);
        match self {
            Expr::Const(..) | Expr::Index(..) | Expr::Load(..) | Expr::All(_) => {}
            Expr::Unary(_, a) | Expr::Cast(_, a) => a.visit(f),
            Expr::Binary(_, a, b) => {
                a.visit(f);
                b.visit(f);
            }
            Expr::Select(c, a, b) => {
                c.visit(f);
                a.visit(f);
                b.visit(f);
            }
        }
    }
    /// Calls `f` on every index expression of every node.
    pub fn visit_ints<'a>(&'a self, f: &mut dyn FnMut(&'a Int)) {
        self.visit(&mut |e| match e {
            Expr::Index(i, _) => f(i),
            Expr::Load(_, ix) => ix.iter().for_each(&mut *f),
            Expr::All(c) => c.iter().for_each(|c| {
                f(&c.lhs);
                f(&c.rhs);
            }),
            _ => {}
        });
    }
    /// Every load: buffer and indices, in order, repeats included. Loads inside index expressions are not listed.
    pub fn loads(&self) -> Vec<(BufferId, &[Int])> {
        let mut out = Vec::new();
        self.visit(&mut |e| {
            if let Expr::Load(b, ix) = e {
                out.push((*b, ix.as_slice()))
            }
        });
        out
    }
}

macro_rules! expr_op {
    ($($trait:ident $method:ident $op:ident),*) => { $(
        impl std::ops::$trait for Expr {
            type Output = Expr;
            fn $method(self, other: Expr) -> Expr { Expr::binary(BinaryOp::$op, self, other) }
        }
    )* };
}
expr_op!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);
