//! Index expressions, dimensions and conditions.

use super::{MAX_DEPTH, Parser, Result};
use crate::int::Int;
use crate::name::Name;
use crate::schedule::template::Piece;
use crate::text::lexer::Tok;
use crate::tir::{BufferId, Cond, CondOp};

impl Parser<'_> {
    /// An integer expression: `+ - * / %`, `min(a, b)`, `max(a, b)`, parentheses, names, loads.
    pub(super) fn int(&mut self) -> Result<Int> {
        Ok(self.int_chain(1)?.0)
    }
    /// Operators of at least strength `level`, with the depth of the tree.
    fn int_chain(&mut self, level: u8) -> Result<(Int, u32)> {
        let (mut a, mut depth) = self.int_operand()?;
        loop {
            let (op, strength) = match self.peek() {
                Tok::Punct(op @ ("+" | "-")) => (*op, 1),
                Tok::Punct(op @ ("*" | "/" | "%")) => (*op, 2),
                _ => return Ok((a, depth)),
            };
            if strength < level {
                return Ok((a, depth));
            }
            let at = self.at;
            self.skip();
            let (b, d) = self.int_chain(strength + 1)?;
            depth = 1 + depth.max(d);
            a = self.int_binary(op, a, b, at)?;
            if depth > MAX_DEPTH {
                return self.error_at(at, "the expression is too deep");
            }
        }
    }
    /// Builds `a op b` with the checks that the constructors leave to their callers.
    fn int_binary(&self, op: &str, a: Int, b: Int, at: usize) -> Result<Int> {
        let folds = match (op, a.as_const(), b.as_const()) {
            ("+", Some(x), Some(y)) => x.checked_add(y).is_some(),
            ("-", Some(x), Some(y)) => x.checked_sub(y).is_some(),
            ("*", Some(x), Some(y)) => x.checked_mul(y).is_some(),
            ("/" | "%", _, Some(y)) if y <= 0 => return self.error_at(at, "a divisor must be positive"),
            _ => true,
        };
        if !folds {
            return self.error_at(at, "the number is out of range");
        }
        Ok(match op {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "/" => a.div(b),
            _ => a.rem(b),
        })
    }
    fn int_operand(&mut self) -> Result<(Int, u32)> {
        match self.peek().clone() {
            Tok::Int(_) => Ok((Int::new(self.integer()?), 1)),
            Tok::Punct("-") if matches!(self.peek_second(), Tok::Int(_)) => Ok((Int::new(self.integer()?), 1)),
            Tok::Punct("(") => self.nested(|p| {
                p.skip();
                let inner = p.int_chain(1)?;
                p.expect_punct(")")?;
                Ok(inner)
            }),
            Tok::Word(w) if (w == "min" || w == "max") && *self.peek_second() == Tok::Punct("(") => self.nested(|p| {
                p.skip();
                p.skip();
                let (a, da) = p.int_chain(1)?;
                p.expect_punct(",")?;
                let (b, db) = p.int_chain(1)?;
                p.expect_punct(")")?;
                Ok((if w == "min" { a.min(b) } else { a.max(b) }, 1 + da.max(db)))
            }),
            Tok::Word(w) | Tok::Str(w) => {
                self.skip();
                Ok((Int::var(Name::new(&w)), 1))
            }
            Tok::Template(pieces) if self.variables => match pieces.as_slice() {
                [Piece::Variable(v)] => {
                    let name = Name::new(&format!("${v}"));
                    self.skip();
                    Ok((Int::var(name), 1))
                }
                _ => self.expected("an integer expression"),
            },
            Tok::Value(_) if self.buffers.is_some() => self.nested(|p| {
                let buffer = p.buffer()?;
                p.expect_punct("[")?;
                let mut depth = 0;
                let indices = p.list("]", |p| {
                    let (i, d) = p.int_chain(1)?;
                    depth = depth.max(d);
                    Ok(i)
                })?;
                Ok((Int::load(buffer, indices), 1 + depth))
            }),
            _ => self.expected("an integer expression"),
        }
    }
    /// `%name` of a buffer of the tensor function.
    pub(super) fn buffer(&mut self) -> Result<BufferId> {
        let Tok::Value(name) = self.peek().clone() else { return self.expected("a buffer `%name`") };
        let found = self.buffers.as_ref().and_then(|b| b.get(&Name::new(&name)).copied());
        match found {
            Some(b) => {
                self.skip();
                Ok(b)
            }
            None => self.error(format!("there is no buffer `%{name}`")),
        }
    }
    /// `i*4 + j < 30`
    pub(super) fn cond(&mut self) -> Result<Cond> {
        let lhs = self.int()?;
        let op = match self.peek() {
            Tok::Punct("<") => CondOp::Lt,
            Tok::Punct(">=") => CondOp::Ge,
            Tok::Punct("==") => CondOp::Eq,
            _ => return self.expected("`<`, `>=` or `==`"),
        };
        self.skip();
        Ok(Cond { lhs, op, rhs: self.int()? })
    }
}
