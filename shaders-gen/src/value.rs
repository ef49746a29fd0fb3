//! Evaluates value expressions.

use crate::builder::{Kind, Value};
use crate::error::EmitError;
use crate::kernel::KernelEmitter;
use crate::ops::kind_of;
use compiler::dtype::DType;
use compiler::tir::{Expr, Scalar};

impl KernelEmitter<'_> {
    /// Evaluates `e`: a scalar when all lanes agree, else a vector.
    ///
    /// A select evaluates both sides, so its condition proves nothing about them: a load that may be out of bounds is
    /// clamped, and what it gives is not chosen.
    pub fn value(&mut self, e: &Expr) -> Result<Value, EmitError> {
        match e {
            Expr::Const(s, t) => self.scalar(*s, *t),
            Expr::Index(i, t) => {
                let v = self.index_value(i)?;
                self.b.cast(v, DType::I32, *t)
            }
            Expr::Load(b, ix) => self.load(*b, ix),
            Expr::Unary(op, a) => {
                let t = a.dtype(self.f);
                let v = self.value(a)?;
                Ok(self.b.unary_op(*op, v, t))
            }
            Expr::Binary(op, a, b) => {
                let t = a.dtype(self.f);
                let exponent = match &**b {
                    Expr::Const(Scalar::Float(x), _) => Some(*x),
                    Expr::Const(Scalar::Int(x), _) => Some(*x as f64),
                    _ => None,
                };
                let (a, b) = (self.value(a)?, self.value(b)?);
                Ok(self.b.binary_op(*op, a, b, t, exponent))
            }
            Expr::All(conds) => self.all(conds),
            Expr::Select(c, a, b) => {
                let (cond, yes, no) = (self.value(c)?, self.value(a)?, self.value(b)?);
                Ok(self.b.select(cond, yes, no))
            }
            Expr::Cast(t, a) => {
                let from = a.dtype(self.f);
                let v = self.value(a)?;
                self.b.cast(v, from, *t)
            }
        }
    }

    fn scalar(&mut self, s: Scalar, t: DType) -> Result<Value, EmitError> {
        let kind = kind_of(t)?;
        let handle = match (kind, s) {
            (Kind::F32, Scalar::Float(v)) => self.b.f32(v as f32),
            (Kind::F32, Scalar::Int(v)) => self.b.f32(v as f32),
            (Kind::Bool, Scalar::Int(v)) => self.b.bool(v != 0),
            (Kind::Bool, Scalar::Float(v)) => self.b.bool(v != 0.0),
            (Kind::U32, Scalar::Int(v)) => self.b.u32(v.clamp(0, i64::from(u32::MAX)) as u32),
            // A 64-bit constant beyond i32 stands for "beyond everything" where values are proved to fit.
            (_, Scalar::Int(v)) => self.b.i32(v.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32),
            (Kind::U32, Scalar::Float(v)) => self.b.u32(v as u32),
            (_, Scalar::Float(v)) => self.b.i32(v as i32),
        };
        Ok(Value { handle, kind, lanes: 1 })
    }
}
