//! The parser of modules: graph functions and constants around the parser of tensor functions ([`Parser`]).

mod constants;
mod graph;
mod pipeline;

pub use pipeline::parse_pipeline;

use super::{ParseError, print};
use crate::graph::Module;
use crate::name::Name;
use rustc_hash::FxHashMap;
use std::ops::{Deref, DerefMut};
use tensor_ir::text::lexer::{Tok, Token};
use tensor_ir::text::parse::{MAX_NESTING, Parser, Result};

/// Parses a module. Functions, tensor functions and constants may stand in any order.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn parse_module(source: &str) -> Result<Module, ParseError> {
    let mut p = ModuleParser { parser: Parser::new(source)?, items: FxHashMap::default() };
    p.module()
}

struct ModuleParser<'t> {
    parser: Parser<'t>,
    /// Items begun so far, by their first token, with the token behind them once they are done.
    items: FxHashMap<usize, Option<usize>>,
}

impl<'t> Deref for ModuleParser<'t> {
    type Target = Parser<'t>;
    fn deref(&self) -> &Parser<'t> {
        &self.parser
    }
}
impl<'t> DerefMut for ModuleParser<'t> {
    fn deref_mut(&mut self) -> &mut Parser<'t> {
        &mut self.parser
    }
}

impl ModuleParser<'_> {
    fn module(&mut self) -> Result<Module> {
        let mut m = Module::new("main");
        let mut entry = None;
        while *self.peek() != Tok::End {
            if self.eat_word("entry") {
                entry = Some(self.global()?);
            } else if let Some(Some(end)) = self.items.get(&self.at()) {
                let end = *end;
                self.jump(end);
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
        let at = self.at();
        let Tok::Word(w) = self.peek().clone() else { return self.expected("`entry`, `const`, `graph` or `tensor`") };
        self.items.insert(at, None);
        self.skip();
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
        let end = self.at();
        self.items.insert(at, Some(end));
        Ok(())
    }
    /// Parses the function `name` before its turn when something that stands before it asks for its type. Of an
    /// item that is begun and not done, the declared types are known.
    fn item_ahead(&mut self, m: &mut Module, name: Name) -> Result<()> {
        let known = m.functions.contains_key(&name) || m.tensor_functions.contains_key(&name);
        if known || self.nesting() >= MAX_NESTING {
            return Ok(());
        }
        let found = (0..self.tokens().len()).find(|&i| self.item_name(i) == Some(name.as_str()));
        let Some(start) = found.filter(|i| !self.items.contains_key(i)) else { return Ok(()) };
        let at = self.jump(start);
        self.nested(|p| p.item(m))?;
        self.jump(at);
        Ok(())
    }
    /// The name of the function that begins at a token.
    fn item_name(&self, at: usize) -> Option<&str> {
        match (&self.tokens()[at], &self.tokens().get(at + 1)?.tok) {
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
    /// Runs `f` one level deeper.
    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.enter()?;
        let out = f(self);
        self.leave();
        out
    }
}
