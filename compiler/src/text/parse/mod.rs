//! The parser: recursive descent over tokens, building the IR directly. Every function returns an error with a place
//! instead of panicking; nesting and expression depth are limited so that no input overflows the stack.

mod attrs;
mod constants;
mod expr;
mod graph;
mod int;
mod tensor;

pub use attrs::parse_pipeline;

use super::lexer::{Tok, Token, lex};
use super::{ParseError, print};
use crate::dtype::DType;
use crate::graph::{Module, Signature, TensorType};
use crate::name::Name;
use crate::schedule::InstrRef;
use crate::tir::{BufferId, TensorFunction};
use rustc_hash::FxHashMap;

/// Parses a module. Functions, tensor functions and constants may stand in any order.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn parse_module(source: &str) -> Result<Module, ParseError> {
    let mut p = Parser::new(source)?;
    p.module()
}

/// Parses text that holds one tensor function.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn parse_tensor_function(source: &str) -> Result<TensorFunction, ParseError> {
    let mut p = Parser::new(source)?;
    p.expect_word("tensor")?;
    let f = p.tensor_function()?;
    if *p.peek() != Tok::End {
        return p.expected("the end of the text");
    }
    Ok(f)
}

/// Parses schedule instructions, one after another as they stand inside `schedule { ... }`.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn parse_instructions(source: &str) -> Result<Vec<InstrRef>, ParseError> {
    let mut p = Parser::new(source)?;
    p.instructions(Tok::End)
}

type Result<T, E = ParseError> = std::result::Result<T, E>;

/// Levels of braces and parentheses.
const MAX_NESTING: usize = 200;
/// Depth of an expression's tree: chains of operators count too.
const MAX_DEPTH: u32 = 1500;

struct Parser<'t> {
    source: &'t str,
    tokens: Vec<Token>,
    at: usize,
    nesting: usize,
    /// Buffers of the tensor function being parsed.
    buffers: Option<FxHashMap<Name, BufferId>>,
    /// Items begun so far, by their first token, with the token behind them once they are done.
    items: FxHashMap<usize, Option<usize>>,
}

impl<'t> Parser<'t> {
    fn new(source: &'t str) -> Result<Self> {
        Ok(Parser { source, tokens: lex(source)?, at: 0, nesting: 0, buffers: None, items: FxHashMap::default() })
    }
    /// The next token; the last one is [`Tok::End`] and is never passed.
    fn peek(&self) -> &Tok {
        &self.tokens[self.at].tok
    }
    fn peek_second(&self) -> &Tok {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].tok
    }
    /// True when the next token is on a new line.
    fn at_line_start(&self) -> bool {
        self.tokens[self.at].first
    }
    fn advance(&mut self) -> Tok {
        let tok = self.tokens[self.at].tok.clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        tok
    }
    /// An error at the next token.
    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        self.error_at(self.at, message)
    }
    /// An error at token `index`.
    fn error_at<T>(&self, index: usize, message: impl Into<String>) -> Result<T> {
        Err(ParseError::new(self.source, self.tokens[index].start, message))
    }
    fn expected<T>(&self, what: &str) -> Result<T> {
        self.error(format!("expected {what}, found {}", describe(self.peek())))
    }
    fn is_punct(&self, p: &str) -> bool {
        matches!(self.peek(), Tok::Punct(q) if *q == p)
    }
    fn eat_punct(&mut self, p: &str) -> bool {
        let found = self.is_punct(p);
        if found {
            self.advance();
        }
        found
    }
    fn expect_punct(&mut self, p: &str) -> Result<()> {
        if self.eat_punct(p) { Ok(()) } else { self.expected(&format!("`{p}`")) }
    }
    fn is_word(&self, w: &str) -> bool {
        matches!(self.peek(), Tok::Word(q) if q == w)
    }
    fn eat_word(&mut self, w: &str) -> bool {
        let found = self.is_word(w);
        if found {
            self.advance();
        }
        found
    }
    fn expect_word(&mut self, w: &str) -> Result<()> {
        if self.eat_word(w) { Ok(()) } else { self.expected(&format!("`{w}`")) }
    }
    /// A bare or quoted name.
    fn name(&mut self, what: &str) -> Result<Name> {
        match self.peek() {
            Tok::Word(s) | Tok::Str(s) => {
                let n = Name::new(s);
                self.advance();
                Ok(n)
            }
            _ => self.expected(what),
        }
    }
    /// Words joined by dashes without blanks: the name of an instruction.
    fn dashed(&mut self, what: &str) -> Result<String> {
        let mut end = self.tokens[self.at].start;
        let mut out = String::new();
        loop {
            let Tok::Word(w) = self.peek().clone() else { return self.expected(what) };
            self.advance();
            end += w.len();
            out.push_str(&w);
            let dash = self.is_punct("-") && self.tokens[self.at].start == end;
            let word = matches!(self.peek_second(), Tok::Word(_))
                && self.tokens.get(self.at + 1).is_some_and(|t| t.start == end + 1);
            if !(dash && word) {
                return Ok(out);
            }
            self.advance();
            end += 1;
            out.push('-');
        }
    }
    fn string(&mut self) -> Result<String> {
        match self.peek().clone() {
            Tok::Str(s) => {
                self.advance();
                Ok(s)
            }
            _ => self.expected("a string"),
        }
    }
    fn global(&mut self) -> Result<Name> {
        match self.peek() {
            Tok::Global(s) => {
                let n = Name::new(s);
                self.advance();
                Ok(n)
            }
            _ => self.expected("a global name `@...`"),
        }
    }
    /// `[-] digits` in the range of `T`.
    fn integer<T: std::str::FromStr>(&mut self) -> Result<T> {
        let at = self.at;
        let sign = if self.eat_punct("-") { "-" } else { "" };
        match self.advance() {
            Tok::Int(s) => match format!("{sign}{s}").parse() {
                Ok(v) => Ok(v),
                Err(_) => self.error_at(at, format!("the number {sign}{s} is out of range here")),
            },
            tok => self.error_at(at, format!("expected an integer, found {}", describe(&tok))),
        }
    }
    /// Items between the next token and `close`, separated by commas.
    fn list<T>(&mut self, close: &str, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut out = Vec::new();
        if self.eat_punct(close) {
            return Ok(out);
        }
        loop {
            out.push(item(self)?);
            if self.eat_punct(close) {
                return Ok(out);
            }
            if !self.eat_punct(",") {
                return self.expected(&format!("`,` or `{close}`"));
            }
        }
    }
    /// Runs `f` one level deeper.
    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.nesting >= MAX_NESTING {
            return self.error(format!("nested deeper than {MAX_NESTING} levels"));
        }
        self.nesting += 1;
        let out = f(self);
        self.nesting -= 1;
        out
    }

    fn module(&mut self) -> Result<Module> {
        let mut m = Module::new("main");
        let mut entry = None;
        while *self.peek() != Tok::End {
            if self.eat_word("entry") {
                entry = Some(self.global()?);
            } else if let Some(Some(end)) = self.items.get(&self.at) {
                self.at = *end;
            } else {
                self.item(&mut m)?;
            }
        }
        self.sort_as_written(&mut m);
        m.entry = entry.unwrap_or_else(|| print::default_entry(&m));
        Ok(m)
    }
    /// A constant, graph function or tensor function.
    fn item(&mut self, m: &mut Module) -> Result<()> {
        let at = self.at;
        let Tok::Word(w) = self.peek().clone() else { return self.expected("`entry`, `const`, `graph` or `tensor`") };
        self.items.insert(at, None);
        self.advance();
        match w.as_str() {
            "const" => self.constant(m)?,
            "graph" => self.graph_function(m)?,
            "tensor" => {
                let f = self.tensor_function()?;
                self.check_fresh(m, f.name, at)?;
                m.tensor_functions.insert(f.name, f);
            }
            _ => return self.error_at(at, format!("expected `entry`, `const`, `graph` or `tensor`, found `{w}`")),
        }
        self.items.insert(at, Some(self.at));
        Ok(())
    }
    /// Parses the function `name` before its turn when something that stands before it asks for its type. An item that is
    /// begun and not done asks for its own: then nothing happens, and the type must be written.
    fn item_ahead(&mut self, m: &mut Module, name: Name) -> Result<()> {
        let known = m.functions.contains_key(&name) || m.tensor_functions.contains_key(&name);
        if known || self.nesting >= MAX_NESTING {
            return Ok(());
        }
        let found = (0..self.tokens.len()).find(|&i| self.item_name(i) == Some(name.as_str()));
        let Some(start) = found.filter(|i| !self.items.contains_key(i)) else { return Ok(()) };
        let (at, buffers) = (std::mem::replace(&mut self.at, start), self.buffers.take());
        self.nested(|p| p.item(m))?;
        (self.at, self.buffers) = (at, buffers);
        Ok(())
    }
    /// The name of the function that begins at a token.
    fn item_name(&self, at: usize) -> Option<&str> {
        match (&self.tokens[at], &self.tokens.get(at + 1)?.tok) {
            (Token { tok: Tok::Word(w), first: true, .. }, Tok::Global(name)) => {
                ["graph", "tensor"].contains(&w.as_str()).then_some(name.as_str())
            }
            _ => None,
        }
    }
    /// Items that were parsed before their turn go where they stand in the text.
    fn sort_as_written(&self, m: &mut Module) {
        let begun = |at: &usize| self.item_name(*at).map(|n| (Name::new(n), *at));
        let places: FxHashMap<Name, usize> = self.items.keys().filter_map(begun).collect();
        let place = |n: &Name| places.get(n).copied().unwrap_or(usize::MAX);
        m.functions.sort_by_key(|n, _| place(n));
        m.tensor_functions.sort_by_key(|n, _| place(n));
    }
    /// Global names are distinct across kinds.
    fn check_fresh(&self, m: &Module, name: Name, at: usize) -> Result<()> {
        if m.functions.contains_key(&name) || m.tensor_functions.contains_key(&name) || m.constants.contains_key(&name)
        {
            return self.error_at(at, format!("@{name} is defined twice"));
        }
        Ok(())
    }
    fn dtype(&mut self) -> Result<DType> {
        let Tok::Word(w) = self.peek() else { return self.expected("an element type") };
        match w.parse() {
            Ok(t) => {
                self.advance();
                Ok(t)
            }
            Err(_) => self.expected("an element type (bool, u8 ... i64, f16, bf16, f32, f64)"),
        }
    }
    /// `(f32[4], i64[]) -> (f32[4], bool[])`, of a function value.
    fn function_type(&mut self) -> Result<TensorType> {
        self.expect_punct("(")?;
        let params = self.list(")", |p| p.tensor_type())?;
        self.expect_punct("->")?;
        let results =
            if self.eat_punct("(") { self.list(")", |p| p.tensor_type())? } else { vec![self.tensor_type()?] };
        Ok(TensorType::function(Signature { params, results }))
    }
    /// `f32[n,64]`; a scalar may leave out the brackets.
    fn tensor_type(&mut self) -> Result<TensorType> {
        if self.eat_word("function") {
            return self.nested(|p| p.function_type());
        }
        let dtype = self.dtype()?;
        let shape = if self.eat_punct("[") { self.list("]", |p| p.int())? } else { vec![] };
        Ok(TensorType::new(dtype, shape))
    }
}

/// A token, for messages.
fn describe(t: &Tok) -> String {
    match t {
        Tok::Word(s) | Tok::Int(s) | Tok::Float(s) => format!("`{s}`"),
        Tok::Value(s) | Tok::Number(s) => format!("`%{s}`"),
        Tok::Global(s) => format!("`@{s}`"),
        Tok::Str(s) => format!("the string {s:?}"),
        Tok::Punct(p) => format!("`{p}`"),
        Tok::End => "the end of the text".to_string(),
    }
}

/// ` (did you mean ...?)` with the known word that is nearest to `word`, or nothing.
fn suggest(word: &str, known: impl Iterator<Item = &'static str>) -> String {
    let best = known.map(|k| (edit_distance(word, k), k)).min();
    match best {
        Some((d, k)) if d <= 2.max(word.len() / 3) => format!(" (did you mean `{k}`?)"),
        _ => String::new(),
    }
}

/// Levenshtein distance in characters; of long words only the first 64 count.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
