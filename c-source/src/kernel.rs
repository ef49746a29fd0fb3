//! The statements of a kernel in C.

use crate::emit::{Kernel, Parameter};
use crate::expr::{Values, buffer_name, element_type, variable};
use crate::share::Shared;
use crate::tile;
use tensor_ir::name::Name;
use tensor_ir::tir::{Block, Buffer, BufferId, For, LoopKind, Scope, Stmt, TensorFunction};

/// Bytes of memory of its own that a kernel may take from the stack.
const MOST_OWN: i64 = 1 << 20;

/// A kernel of a scheduled function.
///
/// # Errors
/// Loops over threads and subgroups, open sizes, functions without a C.
pub(crate) fn print(f: &TensorFunction, kernel: Name) -> Result<Kernel, String> {
    let kernels = f.kernels();
    let body = kernels.iter().find(|k| k.0 == kernel).ok_or_else(|| format!("there is no kernel `{kernel}`"))?.1;
    let blocks = body.blocks();
    let used = |id: BufferId| blocks.iter().any(|b| b.accesses(id));
    let parameter = |(buffer, b): (BufferId, &Buffer)| Parameter {
        buffer,
        name: buffer_name(buffer, b),
        ty: element_type(b),
        written: blocks.iter().any(|block| block.buffer == buffer),
    };
    let global = |(id, b): &(BufferId, &Buffer)| b.scope == Scope::Global && used(*id);
    let mut p = Statements { values: Values { f, bounds: f.bounds() }, out: String::new(), depth: 1 };
    for (id, b) in f.buffers.iter().filter(|(id, b)| b.scope != Scope::Global && used(*id)) {
        let n = p.values.size(&b.numel())?.max(1);
        if n.saturating_mul(8) > MOST_OWN {
            return Err(format!("`{}` has {n} elements of memory of its own", b.name));
        }
        p.line(&format!("{} {}[{n}];", element_type(b), buffer_name(id, b)));
    }
    p.statement(body)?;
    Ok(Kernel { parameters: f.buffers.iter().filter(global).map(parameter).collect(), body: p.out })
}

pub(crate) struct Statements<'f> {
    pub values: Values<'f>,
    pub out: String,
    depth: usize,
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
    pub fn statement(&mut self, s: &Stmt) -> Result<(), String> {
        match s {
            Stmt::Barrier => Ok(()),
            Stmt::Seq(list) => list.iter().try_for_each(|s| self.statement(s)),
            Stmt::Kernel(_, s) => self.statement(s),
            Stmt::Block(b) => self.leaf(b),
            Stmt::For(l) => self.r#loop(l),
        }
    }
    fn r#loop(&mut self, l: &For) -> Result<(), String> {
        let count = self.values.size(&l.extent)?;
        match l.kind {
            LoopKind::Combine | LoopKind::Subgroup(_) | LoopKind::Lane => {
                Err(format!("loop `{}` is one over a subgroup, which C has none of", l.var))
            }
            LoopKind::Local(_) if count > 1 => {
                Err(format!("loop `{}` is one over threads, which C has none of", l.var))
            }
            LoopKind::Tensor => tile::print(self, l),
            _ => self.each(l.var, count, |p| p.statement(&l.body)),
        }
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
