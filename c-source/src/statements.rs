//! Lines of a kernel's body, and the stores of its blocks.

use crate::expr::{Values, variable};
use crate::share::Shared;
use tensor_ir::name::Name;
use tensor_ir::tir::Block;

/// What a kernel does, line by line.
pub(crate) struct Statements<'f> {
    pub values: Values<'f>,
    pub out: String,
    /// Blocks around the next line.
    pub depth: usize,
}

impl Statements<'_> {
    /// Adds a line.
    pub fn line(&mut self, text: &str) {
        (0..self.depth).for_each(|_| self.out.push_str("    "));
        self.out.push_str(text);
        self.out.push('\n');
    }
    /// Adds a line for the compiler.
    pub fn directive(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }
    /// Adds `head {`, what `inside` adds, and `}`.
    pub fn block(&mut self, head: &str, inside: impl FnOnce(&mut Self) -> Result<(), String>) -> Result<(), String> {
        self.line(format!("{head} {{").trim_start());
        self.depth += 1;
        inside(self)?;
        self.depth -= 1;
        self.line("}");
        Ok(())
    }
    /// Adds a loop.
    pub fn each(
        &mut self,
        var: Name,
        count: i64,
        inside: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let v = variable(var);
        if count == 1 {
            // Places do not name it: it is 0.
            let (start, depth) = (self.out.len(), self.depth);
            inside(self)?;
            let own = self.out[start..].to_string();
            if own.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).any(|word| word == v) {
                self.out.truncate(start);
                self.depth = depth;
                self.block("", |p| {
                    p.line(&format!("const int64_t {v} = 0;"));
                    p.out.push_str(&own);
                    Ok(())
                })?;
            }
            return Ok(());
        }
        self.block(&format!("for (int64_t {v} = 0; {v} < {count}; ++{v})"), inside)
    }
    /// A store.
    pub fn leaf(&mut self, b: &Block) -> Result<(), String> {
        match b.guards.is_empty() {
            true => self.store(b),
            false => self.block(&format!("if ({})", self.values.conditions(&b.guards)?), |p| p.store(b)),
        }
    }
    fn store(&mut self, b: &Block) -> Result<(), String> {
        let (lets, value) = Shared::of(&self.values, &b.value)?;
        if lets.is_empty() {
            return self.assign(b, value);
        }
        self.block("", |p| {
            lets.iter().for_each(|l| p.line(l));
            p.assign(b, value)
        })
    }
    fn assign(&mut self, b: &Block, mut value: String) -> Result<(), String> {
        let v = &self.values;
        if let Some(r) = b.reduce {
            let dtype = v.f.buffers[b.buffer].dtype;
            let before = v.load(b.buffer, &b.indices)?;
            let first = v.f.reduction_loops(b.name);
            let first: Vec<String> = first.into_iter().map(|l| format!("{} == 0", variable(l))).collect();
            let before = match (r.init, first.is_empty()) {
                (false, _) => before,
                (true, true) => v.identity(r.combiner, dtype),
                (true, false) => format!("({} ? {} : {before})", first.join(" && "), v.identity(r.combiner, dtype)),
            };
            value = v.combined(r.combiner, dtype, &before, &value)?;
        }
        let line = format!("{} = {};", v.element(b.buffer, &b.indices)?, v.stored(b.buffer, value));
        self.line(&line);
        Ok(())
    }
}
