//! Patterns from their printed form, for passes that are no Rust.
//!
//! Tests in brackets are element types (`[f32]`, `[float]`), `[rank 4]`, `[shape 1x?x3]`, `[used once]` and attributes
//! of the op (`[group=1]`, `[keepdims=true]`), also several: `[f32, used once]`. Other tests are Rust closures and have
//! no text that could be read.

use super::{
    Kind, Operands, Pattern, any, any_op, any_op_from, constant, dominator, either, make, near, number, param,
};
use crate::attr::{AttrObject, Attrs};
use crate::dtype::DType;
use crate::name::Name;
use crate::ops::{OpDef, find_op};
use tensor_ir::text::lexer::Tok;
use tensor_ir::text::parse::{Parser, Result};

impl Pattern {
    /// The pattern with that printed form.
    ///
    /// ```
    /// use compiler::pattern::Pattern;
    ///
    /// for text in ["mul{x, sigmoid(x)}", "relu?(add{matmul(x, w:const), bias:const})", "conv(*, const, ..)[group=1]"] {
    ///     assert_eq!(Pattern::parse(text)?.to_string(), text);
    /// }
    /// assert!(Pattern::parse("mul(x, sigmod(x))").is_err());
    /// # Ok::<(), compiler::text::ParseError>(())
    /// ```
    ///
    /// # Errors
    /// The first thing that is wrong, with its place: an op that there is not, a test that has no text.
    pub fn parse(source: &str) -> Result<Pattern> {
        let mut p = PatternParser { source, p: Parser::new(source)? };
        let pattern = p.pattern()?;
        match p.p.peek() {
            Tok::End => Ok(pattern),
            _ => p.p.expected("the end of the pattern"),
        }
    }
}

struct PatternParser<'t> {
    source: &'t str,
    p: Parser<'t>,
}

/// How an op's operands are written, with the first of them.
struct Written {
    operands: Operands,
    first: Option<Pattern>,
}

impl PatternParser<'_> {
    /// A pattern, or `parent => path* => child`.
    fn pattern(&mut self) -> Result<Pattern> {
        let parent = self.tested()?;
        if !self.p.is_punct("=") {
            return Ok(parent);
        }
        self.arrow()?;
        let path = self.tested()?;
        self.p.expect_punct("*")?;
        self.arrow()?;
        let child = self.tested()?;
        Ok(dominator(parent, path, child))
    }
    fn arrow(&mut self) -> Result<()> {
        self.p.expect_punct("=")?;
        self.p.expect_punct(">")
    }
    /// A pattern with its tests and the number of a result.
    fn tested(&mut self) -> Result<Pattern> {
        self.p.enter()?;
        let pattern = self.named()?;
        self.p.leave();
        Ok(pattern)
    }
    fn named(&mut self) -> Result<Pattern> {
        match (self.p.peek().clone(), self.p.peek_second()) {
            (Tok::Word(name), Tok::Punct(":")) => {
                self.p.skip();
                self.p.skip();
                Ok(self.tested()?.named(Name::new(&name).as_str()))
            }
            (Tok::Word(name), Tok::Punct("(" | "{" | "?")) => self.op(&name),
            (Tok::Word(name), _) => {
                self.p.skip();
                let plain = match name.as_str() {
                    "const" => constant(),
                    "param" => param(),
                    _ => any().named(Name::new(&name).as_str()),
                };
                self.tests(plain, None)
            }
            (Tok::Punct("*"), _) => {
                self.p.skip();
                self.tests(any(), None)
            }
            (Tok::Punct("("), _) => {
                self.p.skip();
                let mut list = vec![self.pattern()?];
                while self.p.eat_punct("|") {
                    list.push(self.pattern()?);
                }
                self.p.expect_punct(")")?;
                let one = if list.len() == 1 { list.remove(0) } else { either(list) };
                self.tests(one, None)
            }
            _ => {
                let value = self.number()?;
                self.tests(value, None)
            }
        }
    }
    fn number(&mut self) -> Result<Pattern> {
        let about = self.p.eat_punct("~");
        let sign = if self.p.eat_punct("-") { -1.0 } else { 1.0 };
        let at = self.p.at();
        let value = match self.p.advance() {
            Tok::Int(s) | Tok::Float(s) => sign * s.parse::<f64>().unwrap_or(f64::NAN),
            Tok::Word(w) if w == "inf" => sign * f64::INFINITY,
            _ => {
                self.p.jump(at);
                return self.p.expected("a pattern: an op with operands, a name, `const`, `param`, a number or `*`");
            }
        };
        Ok(if about { near(value) } else { number(value) })
    }
    /// `add(a, b)`, `add{a, b}`, `add(a, ..)`, `add(..)`; with `?` behind its name it may be missing around its first
    /// operand.
    fn op(&mut self, name: &str) -> Result<Pattern> {
        let def = find_op(name);
        if def.is_none() && name != "f" {
            return self.p.error(format!("there is no op `{name}`"));
        }
        self.p.skip();
        let optional = self.p.eat_punct("?");
        let Written { operands, first } = self.operands()?;
        let op = match (def, operands) {
            (Some(def), operands) => {
                let made = (def.from_attrs)(&Attrs::new()).or_else(|message| self.p.error(message))?;
                // An op that commutes matches in either order, whichever way it is written.
                let operands = match operands {
                    Operands::Exactly(list) if made.commutes() => {
                        <[Pattern; 2]>::try_from(list).map_or_else(Operands::Exactly, Operands::Commuted)
                    }
                    other => other,
                };
                make(Kind::Op { name: def.name, id: made.as_any().type_id(), operands })
            }
            (None, Operands::Exactly(list)) => any_op(list),
            (None, Operands::From(list)) => any_op_from(list),
            (None, _) => any_op_from([]),
        };
        let op = self.tests(op, def)?;
        match (optional, first) {
            (false, _) => Ok(op),
            (true, Some(without)) => Ok(make(Kind::Optional { with: op, without })),
            (true, None) => self.p.error(format!("`{name}?` needs a first operand, which stands where it is missing")),
        }
    }
    fn operands(&mut self) -> Result<Written> {
        if self.p.eat_punct("{") {
            let a = self.pattern()?;
            self.p.expect_punct(",")?;
            let b = self.pattern()?;
            self.p.expect_punct("}")?;
            return Ok(Written { first: Some(a.clone()), operands: Operands::Commuted([a, b]) });
        }
        self.p.expect_punct("(")?;
        let mut list = vec![];
        let open = loop {
            if self.p.is_punct(")") {
                break false;
            }
            if self.p.eat_punct("..") {
                break true;
            }
            list.push(self.pattern()?);
            if !self.p.eat_punct(",") {
                break false;
            }
        };
        self.p.expect_punct(")")?;
        let first = list.first().cloned();
        let operands = match (open, list.is_empty()) {
            (true, true) => Operands::Free,
            (true, false) => Operands::From(list),
            (false, _) => Operands::Exactly(list),
        };
        Ok(Written { operands, first })
    }
    /// `[test, ...]` and `.result`, any number of them.
    fn tests(&mut self, mut pattern: Pattern, def: Option<&'static OpDef>) -> Result<Pattern> {
        loop {
            if self.p.eat_punct("[") {
                loop {
                    pattern = self.test(pattern, def)?;
                    if !self.p.eat_punct(",") {
                        break;
                    }
                }
                self.p.expect_punct("]")?;
            } else if self.p.eat_punct(".") {
                pattern = pattern.result(self.p.integer()?);
            } else {
                return Ok(pattern);
            }
        }
    }
    fn test(&mut self, pattern: Pattern, def: Option<&'static OpDef>) -> Result<Pattern> {
        let at = self.p.at();
        let Tok::Word(word) = self.p.advance() else {
            self.p.jump(at);
            return self.p.expected("a test: a type, `rank N`, `shape AxB`, `used once` or an attribute");
        };
        if self.p.eat_punct("=") {
            return self.attribute(pattern, def, at, &word);
        }
        match word.as_str() {
            "float" => Ok(pattern.float()),
            "rank" => Ok(pattern.rank(self.p.integer()?)),
            "used" => {
                self.p.expect_word("once")?;
                Ok(pattern.used_once())
            }
            "shape" => Ok(pattern.shape(&self.shape()?)),
            _ => match word.parse::<DType>() {
                Ok(dtype) => Ok(pattern.dtype(dtype)),
                Err(_) => self.p.error_at(at, format!("there is no test `{word}` that has a text")),
            },
        }
    }
    /// `1x?x3`, up to the end of the test.
    fn shape(&mut self) -> Result<Vec<Option<i64>>> {
        let at = self.p.at();
        let start = self.p.tokens()[at].start;
        while !matches!(self.p.peek(), Tok::Punct("]" | ",") | Tok::End) {
            self.p.skip();
        }
        let text = self.source[start..self.p.tokens()[self.p.at()].start].trim();
        let one = |d: &str| if d == "?" { Some(None) } else { d.parse().ok().map(Some) };
        let list = if text.is_empty() { Some(vec![]) } else { text.split('x').map(one).collect() };
        match list {
            Some(list) => Ok(list),
            None => self.p.error_at(at, "a shape is sizes joined by `x`, with `?` for any: 1x?x3"),
        }
    }
    /// The rest of `name=value`: the op has this attribute.
    fn attribute(&mut self, pattern: Pattern, def: Option<&'static OpDef>, at: usize, name: &str) -> Result<Pattern> {
        let Some(def) = def else {
            return self.p.error_at(at, "an attribute belongs to an op: `conv(..)[group=1]`");
        };
        let start = self.p.tokens()[at].start;
        let value = self.p.attr()?;
        let text = self.source[start..self.p.tokens()[self.p.at()].start].trim().to_string();
        let given: Attrs = [(name.to_string(), value)].into_iter().collect();
        if let Err(message) = (def.from_attrs)(&given) {
            return self.p.error_at(at, message);
        }
        Ok(pattern.property(text, move |op| {
            let mut attrs = op.attrs();
            attrs.extend(given.clone());
            (def.from_attrs)(&attrs).is_ok_and(|with| with.same(op as &dyn AttrObject))
        }))
    }
}
