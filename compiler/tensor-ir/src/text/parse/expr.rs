//! Value expressions of tensor functions.

use super::{MAX_DEPTH, Parser, Result, describe, suggest};
use crate::dtype::DType;
use crate::text::lexer::Tok;
use crate::text::print::infix_op;
use crate::tir::{BinaryOp, Expr, Scalar, UnaryOp};

impl Parser<'_> {
    /// A value expression.
    pub(super) fn expr(&mut self) -> Result<Expr> {
        Ok(self.expr_chain(1)?.0)
    }
    /// Operators of at least strength `level`, with the depth of the tree.
    fn expr_chain(&mut self, level: u8) -> Result<(Expr, u32)> {
        let (mut a, mut depth) = self.expr_operand()?;
        loop {
            let Tok::Punct(symbol) = *self.peek() else { return Ok((a, depth)) };
            let found = BinaryOp::ALL.iter().find_map(|&op| infix_op(op).filter(|i| i.0 == symbol).map(|i| (op, i.1)));
            let Some((op, strength)) = found.filter(|f| f.1 >= level) else { return Ok((a, depth)) };
            let at = self.at;
            self.skip();
            let (b, d) = self.expr_chain(strength + 1)?;
            depth = 1 + depth.max(d);
            a = Expr::binary(op, a, b);
            if depth > MAX_DEPTH {
                return self.error_at(at, "the expression is too deep");
            }
            if strength == 1 && self.is_comparison() {
                return self.error("comparisons in a row need parentheses");
            }
        }
    }
    fn is_comparison(&self) -> bool {
        matches!(self.peek(), Tok::Punct("<" | "<=" | ">" | ">=" | "==" | "!="))
    }
    fn expr_operand(&mut self) -> Result<(Expr, u32)> {
        match self.peek().clone() {
            Tok::Int(_) | Tok::Float(_) | Tok::Punct("-") => Ok((self.number()?, 1)),
            Tok::Punct("(") => self.nested(|p| {
                p.skip();
                let inner = p.expr_chain(1)?;
                p.expect_punct(")")?;
                Ok(inner)
            }),
            Tok::Value(_) => {
                let buffer = self.buffer()?;
                self.expect_punct("[")?;
                Ok((Expr::Load(buffer, self.list("]", |p| p.int())?), 1))
            }
            Tok::Word(w) if w == "inf" || w == "nan" => Ok((self.number()?, 1)),
            Tok::Word(w) if w == "true" || w == "false" => {
                self.skip();
                Ok((Expr::Const(Scalar::Int((w == "true").into()), DType::Bool), 1))
            }
            Tok::Word(w) => self.nested(|p| p.call(&w)),
            _ => self.expected("a value expression"),
        }
    }
    /// `1.5`, `3:i32`, `-inf:f16`; without a dtype a float is f32 and an integer is i32.
    fn number(&mut self) -> Result<Expr> {
        let negative = self.eat_punct("-");
        let at = self.at;
        let sign = if negative { "-" } else { "" };
        let value = match self.advance() {
            Tok::Int(s) => match format!("{sign}{s}").parse() {
                Ok(v) => Scalar::Int(v),
                Err(_) => return self.error_at(at, format!("the number {sign}{s} is out of range")),
            },
            // Text that the lexer takes for a float always parses.
            Tok::Float(s) => Scalar::Float(format!("{sign}{s}").parse().unwrap_or(f64::NAN)),
            Tok::Word(w) if w == "inf" => Scalar::Float(if negative { f64::NEG_INFINITY } else { f64::INFINITY }),
            Tok::Word(w) if w == "nan" && !negative => Scalar::Float(self.nan()?),
            tok => return self.error_at(at, format!("expected a number, found {}", describe(&tok))),
        };
        let dtype = match value {
            _ if self.eat_punct(":") => self.dtype()?,
            Scalar::Float(_) => DType::F32,
            Scalar::Int(_) => DType::I32,
        };
        Ok(match value {
            Scalar::Int(v) if dtype.is_float() => Expr::Const(Scalar::Float(v as f64), dtype),
            Scalar::Float(_) if !dtype.is_float() => {
                return self.error_at(at, format!("a number of type {dtype} has no fraction"));
            }
            v => Expr::Const(v, dtype),
        })
    }
    /// After `nan`: its bits in parentheses, where they are not the usual ones.
    fn nan(&mut self) -> Result<f64> {
        if !self.eat_punct("(") {
            return Ok(f64::NAN);
        }
        let at = self.at;
        let value = f64::from_bits(self.integer()?);
        self.expect_punct(")")?;
        if value.is_nan() { Ok(value) } else { self.error_at(at, "these are not the bits of a nan") }
    }
    fn call(&mut self, function: &str) -> Result<(Expr, u32)> {
        let at = self.at;
        self.skip();
        let known = function == "idx" || function == "all" || arity(function).is_some();
        if !known {
            let names = ["idx", "all", "select"].into_iter().chain(DType::ALL.iter().map(|t| t.name()));
            return self.error_at(at, format!("there is no function `{function}`{}", suggest(function, names)));
        }
        self.expect_punct("(")?;
        if function == "idx" {
            let index = self.int()?;
            self.expect_punct(")")?;
            self.expect_punct(":")?;
            return Ok((Expr::Index(index, self.dtype()?), 1));
        }
        if function == "all" {
            return Ok((Expr::All(self.list(")", |p| p.cond())?), 1));
        }
        let mut depth = 0;
        let args = self.list(")", |p| {
            let (e, d) = p.expr_chain(1)?;
            depth = depth.max(d);
            Ok(e)
        })?;
        if depth >= MAX_DEPTH {
            return self.error_at(at, "the expression is too deep");
        }
        match build_call(function, args) {
            Ok(e) => Ok((e, depth + 1)),
            Err(message) => self.error_at(at, message),
        }
    }
}

fn unary(name: &str) -> Option<UnaryOp> {
    UnaryOp::ALL.iter().copied().find(|op| op.name() == name)
}
fn binary(name: &str) -> Option<BinaryOp> {
    BinaryOp::ALL.iter().copied().find(|op| op.name() == name)
}

/// Number of arguments of a function over values.
fn arity(name: &str) -> Option<usize> {
    if name == "select" {
        Some(3)
    } else if unary(name).is_some() || name.parse::<DType>().is_ok() {
        Some(1)
    } else {
        binary(name).map(|_| 2)
    }
}

fn build_call(name: &str, args: Vec<Expr>) -> std::result::Result<Expr, String> {
    let count = args.len();
    let mut args = args.into_iter();
    let wrong = || format!("`{name}` takes {} arguments, got {count}", arity(name).unwrap_or(0));
    let (a, b, c) = (args.next(), args.next(), args.next());
    match (a, b, c, args.next()) {
        (Some(a), None, None, None) => match (unary(name), name.parse()) {
            (Some(op), _) => Ok(Expr::unary(op, a)),
            (None, Ok(t)) => Ok(Expr::Cast(t, Box::new(a))),
            (None, Err(_)) => Err(wrong()),
        },
        (Some(a), Some(b), None, None) => binary(name).map(|op| Expr::binary(op, a, b)).ok_or_else(wrong),
        (Some(a), Some(b), Some(c), None) if name == "select" => Ok(Expr::select(a, b, c)),
        _ => Err(wrong()),
    }
}
