//! Tensor functions.

use super::{Parser, Result};
use crate::name::Name;
use crate::text::lexer::Tok;
use crate::text::print::combiner_word;
use crate::tir::{
    Access, Block, Buffer, BufferId, Combiner, Encoding, For, LoopKind, MatrixRole, Param, Prepack, Reduce, Scope,
    StageSet, Stmt, TensorFunction, Update,
};
use rustc_hash::FxHashMap;

/// Loop kinds that have a word before `for`.
const LOOP_KINDS: [LoopKind; 13] = [
    LoopKind::Combine,
    LoopKind::Lane,
    LoopKind::Tensor,
    LoopKind::Subgroup(0),
    LoopKind::Subgroup(1),
    LoopKind::Unroll,
    LoopKind::Vectorize,
    LoopKind::Group(0),
    LoopKind::Group(1),
    LoopKind::Group(2),
    LoopKind::Local(0),
    LoopKind::Local(1),
    LoopKind::Local(2),
];

impl Parser<'_> {
    /// The function after the word `tensor`.
    pub fn tensor_function(&mut self) -> Result<TensorFunction> {
        let outer = self.buffers.replace(FxHashMap::default());
        let f = self.nested(|p| p.tensor_function_in());
        self.buffers = outer;
        f
    }
    fn tensor_function_in(&mut self) -> Result<TensorFunction> {
        let mut f = TensorFunction::new(self.global()?);
        self.expect_punct("(")?;
        self.list(")", |p| {
            let access = if p.eat_word("out") { Access::Write } else { Access::Read };
            let buffer = p.declare_buffer(&mut f)?;
            f.params.push(Param { buffer, access });
            Ok(())
        })?;
        self.expect_punct("{")?;
        let mut body = Vec::new();
        while !self.eat_punct("}") {
            if self.eat_word("symbol") {
                let name = self.name("a symbol")?;
                self.expect_word("in")?;
                let low = self.integer()?;
                self.expect_punct("..=")?;
                f.symbols.push((name, low, self.integer()?));
            } else if self.eat_word("buffer") {
                self.declare_buffer(&mut f)?;
            } else if self.eat_word("prepack") {
                let buffer = self.buffer()?;
                self.expect_punct("=")?;
                self.expect_word("tensor")?;
                f.prepacks.push(Prepack { buffer, packer: Box::new(self.tensor_function()?) });
            } else if self.eat_word("update") {
                let result = self.buffer()?;
                let of = if self.eat_word("of") { Some(self.buffer()?) } else { None };
                f.updates.push(Update { result, of });
            } else if self.eat_word("applied") {
                f.trace.extend(self.trace()?);
            } else if self.eat_word("schedule") {
                f.pending.extend(self.trace()?);
            } else {
                body.push(self.stmt()?);
            }
        }
        f.body = Stmt::seq(body);
        Ok(f)
    }
    /// `%name: f32[4] register half_pair`
    fn declare_buffer(&mut self, f: &mut TensorFunction) -> Result<BufferId> {
        let at = self.at;
        let name = match self.peek() {
            Tok::Value(n) => Name::new(n),
            _ => return self.expected("a buffer `%name`"),
        };
        self.skip();
        self.expect_punct(":")?;
        let ty = self.tensor_type()?;
        let scope = self.scope()?;
        let encoding = if self.eat_word("half_pair") {
            Encoding::HalfPair
        } else if self.eat_word("byte_quad") {
            Encoding::ByteQuad
        } else if self.eat_word("narrow") {
            Encoding::Narrow
        } else {
            Encoding::Native
        };
        let id = f.buffers.push(Buffer { name, dtype: ty.dtype, shape: ty.shape, scope, encoding });
        let known = self.buffers.as_mut().and_then(|b| b.insert(name, id));
        if known.is_some() {
            return self.error_at(at, format!("the buffer %{name} is declared twice"));
        }
        Ok(id)
    }
    fn scope(&mut self) -> Result<Scope> {
        if self.eat_word("shared") {
            return Ok(Scope::Shared);
        }
        if self.eat_word("register") {
            return Ok(Scope::Register);
        }
        if self.eat_word("subgroup") {
            self.expect_punct("(")?;
            let lane_dim = self.integer()?;
            self.expect_punct(",")?;
            let size = self.integer()?;
            self.expect_punct(")")?;
            return Ok(Scope::Subgroup { lane_dim, size });
        }
        if self.eat_word("fragment") {
            self.expect_punct("(")?;
            let Some(role) = MatrixRole::ALL.into_iter().find(|r| self.is_word(r.word())) else {
                return self.expected("`a`, `b` or `c`");
            };
            self.skip();
            self.expect_punct(")")?;
            return Ok(Scope::Fragment(role));
        }
        self.eat_word("global");
        Ok(Scope::Global)
    }
    fn stmt(&mut self) -> Result<Stmt> {
        let Tok::Word(word) = self.peek().clone() else { return self.expected("a statement or `}`") };
        if word == "barrier" {
            self.skip();
            return Ok(Stmt::Barrier);
        }
        if word == "block" {
            self.skip();
            return self.tensor_block();
        }
        if word == "kernel" {
            self.skip();
            let name = self.name("the kernel's name")?;
            return Ok(Stmt::Kernel(name, Box::new(self.body()?)));
        }
        let kind = LOOP_KINDS.into_iter().find(|&k| k.word().as_deref() == Some(&word));
        if kind.is_some() {
            self.skip();
        } else if word != "for" {
            return self.expected("`for`, `block`, `kernel`, `barrier` or `}`");
        }
        self.expect_word("for")?;
        let var = self.name("a loop variable")?;
        self.expect_word("in")?;
        let at = self.at;
        if self.integer::<i64>()? != 0 {
            return self.error_at(at, "loops start at 0");
        }
        self.expect_punct("..")?;
        let extent = self.int()?;
        let body = self.body()?;
        Ok(Stmt::For(Box::new(For { var, extent, kind: kind.unwrap_or(LoopKind::Serial), body })))
    }
    /// Statements in braces.
    fn body(&mut self) -> Result<Stmt> {
        self.nested(|p| {
            p.expect_punct("{")?;
            let mut list = Vec::new();
            while !p.eat_punct("}") {
                list.push(p.stmt()?);
            }
            Ok(Stmt::seq(list))
        })
    }
    /// After `block`: `mm reduce sum init where (i < 30) { %C[i] <- ... }`.
    fn tensor_block(&mut self) -> Result<Stmt> {
        let name = self.name("the block's name")?;
        let mut reduce = None;
        if self.eat_word("reduce") {
            let combiner = self.combiner()?;
            reduce = Some(Reduce { combiner, init: self.eat_word("init") });
        }
        let mut guards = Vec::new();
        if self.eat_word("where") {
            self.expect_punct("(")?;
            guards = self.list(")", |p| p.cond())?;
        }
        self.expect_punct("{")?;
        let buffer = self.buffer()?;
        self.expect_punct("[")?;
        let indices = self.list("]", |p| p.int())?;
        self.expect_punct("<-")?;
        let value = self.expr()?;
        self.expect_punct("}")?;
        Ok(Stmt::Block(Box::new(Block { name, guards, buffer, indices, value, reduce, stages: StageSet::default() })))
    }
    /// `sum`, `prod`, `max` or `min`.
    pub(super) fn combiner(&mut self) -> Result<Combiner> {
        let all = [Combiner::Sum, Combiner::Prod, Combiner::Max, Combiner::Min];
        let Some(combiner) = all.into_iter().find(|c| self.is_word(combiner_word(*c))) else {
            return self.expected("`sum`, `prod`, `max` or `min`");
        };
        self.skip();
        Ok(combiner)
    }
}
