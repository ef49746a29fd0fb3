//! Attributes and schedule instructions.

use super::{Parser, Result, describe, suggest};
use crate::attr::{Attr, Attrs};
use crate::schedule::{INSTRUCTIONS, InstrRef, find_instruction};
use crate::text::lexer::Tok;

impl Parser<'_> {
    /// `{key=value, ...}`; nothing when the next token on the line is no brace.
    pub fn attrs(&mut self) -> Result<Attrs> {
        let mut out = Attrs::new();
        if !self.is_punct("{") || self.at_line_start() {
            return Ok(out);
        }
        self.skip();
        self.list("}", |p| {
            let at = p.at;
            let key = p.name("an attribute")?.to_string();
            p.expect_punct("=")?;
            let value = p.attr()?;
            if out.insert(key.clone(), value).is_some() {
                return p.error_at(at, format!("attribute `{key}` is given twice"));
            }
            Ok(())
        })?;
        Ok(out)
    }
    /// An attribute's value.
    pub fn attr(&mut self) -> Result<Attr> {
        match self.peek().clone() {
            Tok::Int(_) | Tok::Float(_) | Tok::Punct("-") => self.number_attr(),
            Tok::Str(s) => {
                self.skip();
                Ok(Attr::Str(s))
            }
            Tok::Word(w) => {
                self.skip();
                Ok(match w.as_str() {
                    "true" => Attr::Bool(true),
                    "false" => Attr::Bool(false),
                    "inf" => Attr::Float(f64::INFINITY),
                    "nan" => Attr::Float(f64::NAN),
                    _ => w.parse().map(Attr::DType).unwrap_or(Attr::Str(w)),
                })
            }
            Tok::Punct("[") => self.nested(|p| {
                p.skip();
                Ok(Attr::List(p.list("]", |p| p.attr())?))
            }),
            Tok::Punct("`") => {
                self.skip();
                let e = self.int()?;
                self.expect_punct("`")?;
                Ok(Attr::Expr(e))
            }
            Tok::Template(_) => self.error(format!("{} is for templates alone", describe(self.peek()))),
            _ => self.expected("an attribute's value"),
        }
    }
    fn number_attr(&mut self) -> Result<Attr> {
        if matches!(self.peek(), Tok::Int(_)) || matches!(self.peek_second(), Tok::Int(_)) && self.is_punct("-") {
            return Ok(Attr::Int(self.integer()?));
        }
        let sign = if self.eat_punct("-") { -1.0 } else { 1.0 };
        let at = self.at;
        match self.advance() {
            // Text that the lexer takes for a float always parses.
            Tok::Float(s) => Ok(Attr::Float(sign * s.parse::<f64>().unwrap_or(f64::NAN))),
            Tok::Word(w) if w == "inf" => Ok(Attr::Float(sign * f64::INFINITY)),
            tok => self.error_at(at, format!("expected a number, found {}", describe(&tok))),
        }
    }
    /// A list of instructions in braces.
    pub(super) fn trace(&mut self) -> Result<Vec<InstrRef>> {
        self.expect_punct("{")?;
        let out = self.instructions(Tok::Punct("}"))?;
        self.expect_punct("}")?;
        Ok(out)
    }
    /// Instructions up to the token `end`, which stays.
    pub(super) fn instructions(&mut self, end: Tok) -> Result<Vec<InstrRef>> {
        let mut out = Vec::new();
        while *self.peek() != end {
            let at = self.at;
            let name = self.dashed("a schedule instruction or `}`")?;
            let Some(def) = find_instruction(&name) else {
                let near = suggest(&name, INSTRUCTIONS.iter().map(|d| d.name));
                return self.error_at(at, format!("there is no schedule instruction `{name}`{near}"));
            };
            let attrs = self.attrs()?;
            match (def.from_attrs)(&attrs) {
                Ok(i) => out.push(i),
                Err(message) => return self.error_at(at, message),
            }
        }
        Ok(out)
    }
}
