//! The parser: recursive descent over tokens, building the IR directly. Every function returns an error with a place
//! instead of panicking; nesting and expression depth are limited so that no input overflows the stack.
//!
//! The parser of modules (in the compiler) holds a [`Parser`] and adds graph functions and constants.

mod attrs;
mod expr;
mod int;
mod template;
mod tensor;

pub use template::parse_templates;

use super::ParseError;
use super::lexer::{Tok, Token, lex};
use crate::dtype::DType;
use crate::name::Name;
use crate::schedule::InstrRef;
use crate::schedule::template::Piece;
use crate::tensor_type::{Signature, TensorType};
use crate::tir::{BufferId, TensorFunction};
use rustc_hash::FxHashMap;

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

/// The result of a parser: a value, or the first error with its place.
pub type Result<T, E = ParseError> = std::result::Result<T, E>;

/// Levels of braces and parentheses.
pub const MAX_NESTING: usize = 200;
/// Depth of an expression's tree: chains of operators count too.
const MAX_DEPTH: u32 = 1500;

/// Reads tokens one after another, and the parts of text that belong to tensor IR.
pub struct Parser<'t> {
    source: &'t str,
    tokens: Vec<Token>,
    at: usize,
    nesting: usize,
    /// Buffers of the tensor function being parsed.
    buffers: Option<FxHashMap<Name, BufferId>>,
    /// Names in conditions may be variables of a template.
    variables: bool,
}

impl<'t> Parser<'t> {
    /// At the first token of `source`.
    ///
    /// # Errors
    /// A character that begins no token.
    pub fn new(source: &'t str) -> Result<Self> {
        Ok(Parser { source, tokens: lex(source)?, at: 0, nesting: 0, buffers: None, variables: false })
    }
    /// All tokens.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }
    /// Index of the next token.
    pub fn at(&self) -> usize {
        self.at
    }
    /// Continues at token `index`; returns where it was.
    pub fn jump(&mut self, index: usize) -> usize {
        std::mem::replace(&mut self.at, index.min(self.tokens.len() - 1))
    }
    /// The next token; the last one is [`Tok::End`] and is never passed.
    pub fn peek(&self) -> &Tok {
        &self.tokens[self.at].tok
    }
    /// The token after the next one.
    pub fn peek_second(&self) -> &Tok {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].tok
    }
    /// True when the next token is on a new line.
    pub fn at_line_start(&self) -> bool {
        self.tokens[self.at].first
    }
    /// Takes the next token.
    pub fn advance(&mut self) -> Tok {
        let tok = self.peek().clone();
        self.skip();
        tok
    }
    /// Passes the next token.
    pub fn skip(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }
    /// The line of token `index`, from 1.
    fn line_of(&self, index: usize) -> usize {
        ParseError::new(self.source, self.tokens[index].start, "").line
    }
    /// An error at the next token.
    pub fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        self.error_at(self.at, message)
    }
    /// An error at token `index`.
    pub fn error_at<T>(&self, index: usize, message: impl Into<String>) -> Result<T> {
        Err(ParseError::new(self.source, self.tokens[index].start, message))
    }
    /// The error that `what` is expected instead of the next token.
    pub fn expected<T>(&self, what: &str) -> Result<T> {
        self.error(format!("expected {what}, found {}", describe(self.peek())))
    }
    /// True if the next token is this punctuation.
    pub fn is_punct(&self, p: &str) -> bool {
        matches!(self.peek(), Tok::Punct(q) if *q == p)
    }
    /// Takes the next token if it is this punctuation.
    pub fn eat_punct(&mut self, p: &str) -> bool {
        let found = self.is_punct(p);
        if found {
            self.skip();
        }
        found
    }
    /// Takes this punctuation.
    pub fn expect_punct(&mut self, p: &str) -> Result<()> {
        if self.eat_punct(p) { Ok(()) } else { self.expected(&format!("`{p}`")) }
    }
    /// True if the next token is this word.
    pub fn is_word(&self, w: &str) -> bool {
        matches!(self.peek(), Tok::Word(q) if q == w)
    }
    /// Takes the next token if it is this word.
    pub fn eat_word(&mut self, w: &str) -> bool {
        let found = self.is_word(w);
        if found {
            self.skip();
        }
        found
    }
    /// Takes this word.
    pub fn expect_word(&mut self, w: &str) -> Result<()> {
        if self.eat_word(w) { Ok(()) } else { self.expected(&format!("`{w}`")) }
    }
    /// A bare or quoted name.
    pub fn name(&mut self, what: &str) -> Result<Name> {
        match self.peek() {
            Tok::Word(s) | Tok::Str(s) => {
                let n = Name::new(s);
                self.skip();
                Ok(n)
            }
            _ => self.expected(what),
        }
    }
    /// Words joined by dashes without blanks: the name of an instruction.
    pub fn dashed(&mut self, what: &str) -> Result<String> {
        let mut end = self.tokens[self.at].start;
        let mut out = String::new();
        loop {
            let Tok::Word(w) = self.peek().clone() else { return self.expected(what) };
            self.skip();
            end += w.len();
            out.push_str(&w);
            let dash = self.is_punct("-") && self.tokens[self.at].start == end;
            let word = matches!(self.peek_second(), Tok::Word(_))
                && self.tokens.get(self.at + 1).is_some_and(|t| t.start == end + 1);
            if !(dash && word) {
                return Ok(out);
            }
            self.skip();
            end += 1;
            out.push('-');
        }
    }
    /// A string literal.
    pub fn string(&mut self) -> Result<String> {
        match self.peek() {
            Tok::Str(s) => {
                let text = s.clone();
                self.skip();
                Ok(text)
            }
            _ => self.expected("a string"),
        }
    }
    /// `@name`.
    pub fn global(&mut self) -> Result<Name> {
        match self.peek() {
            Tok::Global(s) => {
                let n = Name::new(s);
                self.skip();
                Ok(n)
            }
            _ => self.expected("a global name `@...`"),
        }
    }
    /// `[-] digits` in the range of `T`.
    pub fn integer<T: std::str::FromStr>(&mut self) -> Result<T> {
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
    pub fn list<T>(&mut self, close: &str, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
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
    /// One item or more, separated by commas.
    pub fn comma_separated<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut out = vec![item(self)?];
        while self.eat_punct(",") {
            out.push(item(self)?);
        }
        Ok(out)
    }
    /// Runs `f` one level deeper.
    pub fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.enter()?;
        let out = f(self);
        self.leave();
        out
    }
    /// Goes one level deeper, up to [`MAX_NESTING`].
    pub fn enter(&mut self) -> Result<()> {
        if self.nesting >= MAX_NESTING {
            return self.error(format!("nested deeper than {MAX_NESTING} levels"));
        }
        self.nesting += 1;
        Ok(())
    }
    /// Leaves the level that [`Parser::enter`] began.
    pub fn leave(&mut self) {
        self.nesting -= 1;
    }
    /// How many levels deep the parser is.
    pub fn nesting(&self) -> usize {
        self.nesting
    }
    /// `f32`.
    pub fn dtype(&mut self) -> Result<DType> {
        let Tok::Word(w) = self.peek() else { return self.expected("an element type") };
        match w.parse() {
            Ok(t) => {
                self.skip();
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
    pub fn tensor_type(&mut self) -> Result<TensorType> {
        if self.eat_word("function") {
            return self.nested(|p| p.function_type());
        }
        let dtype = self.dtype()?;
        let shape = if self.eat_punct("[") { self.list("]", |p| p.int())? } else { vec![] };
        Ok(TensorType::new(dtype, shape))
    }
}

/// A token, for messages.
pub fn describe(t: &Tok) -> String {
    match t {
        Tok::Word(s) | Tok::Int(s) | Tok::Float(s) => format!("`{s}`"),
        Tok::Value(s) | Tok::Number(s) => format!("`%{s}`"),
        Tok::Global(s) => format!("`@{s}`"),
        Tok::Str(s) => format!("the string {s:?}"),
        Tok::Punct(p) => format!("`{p}`"),
        Tok::Template(pieces) => {
            let text: String = pieces
                .iter()
                .map(|p| match p {
                    Piece::Text(t) => t.clone(),
                    Piece::Variable(v) if pieces.len() == 1 => format!("${v}"),
                    Piece::Variable(v) => format!("${{{v}}}"),
                })
                .collect();
            format!("`{text}`")
        }
        Tok::End => "the end of the text".to_string(),
    }
}

/// ` (did you mean ...?)` with the known word that is nearest to `word`, or nothing.
pub fn suggest(word: &str, known: impl Iterator<Item = &'static str>) -> String {
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
