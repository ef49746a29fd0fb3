//! One numbering for equal functions, used by the text form, by equality and by lookups of functions.

mod family;
mod form;

pub use family::{Family, log2_distance};

use super::{Block, BufferId, Expr, For, Stmt, TensorFunction};
use crate::int::{Int, IntNode};

impl TensorFunction {
    /// The same function with parameters first among the buffers (in parameter order, the others keep theirs) and
    /// sequences flattened. Printing and parsing a function gives its canonical form; call this before scheduling, so
    /// that a schedule replayed on the text gives the same kernels.
    pub fn canonical(&self) -> TensorFunction {
        let params: Vec<BufferId> = self.params.iter().map(|p| p.buffer).collect();
        let mut order = Vec::with_capacity(self.buffers.len());
        for &b in &params {
            if !order.contains(&b) {
                order.push(b);
            }
        }
        order.extend(self.buffers.ids().filter(|b| !params.contains(b)));
        let mut out = self.clone();
        out.buffers = crate::arena::Arena::new();
        let mut map = vec![None; self.buffers.len()];
        for &old in &order {
            // A parameter without a buffer keeps its number; the verifier reports it.
            if let Some(buffer) = self.buffers.get(old) {
                map[crate::arena::Id::index(old)] = Some(out.buffers.push(buffer.clone()));
            }
        }
        let rename = |b: BufferId| map.get(crate::arena::Id::index(b)).copied().flatten().unwrap_or(b);
        for p in &mut out.params {
            p.buffer = rename(p.buffer);
        }
        for p in &mut out.prepacks {
            p.buffer = rename(p.buffer);
            *p.packer = p.packer.canonical();
        }
        for u in &mut out.updates {
            (u.result, u.of) = (rename(u.result), u.of.map(rename));
        }
        out.body = rename_stmt(&self.body, &rename);
        out
    }
}

impl Block {
    /// The same block on other buffers.
    pub(crate) fn rename_buffers(&self, rename: &dyn Fn(BufferId) -> BufferId) -> Block {
        Block {
            name: self.name,
            guards: self.guards.iter().map(|c| c.map(&mut |i| rename_int(i, rename))).collect(),
            buffer: rename(self.buffer),
            indices: self.indices.iter().map(|i| rename_int(i, rename)).collect(),
            value: self.value.rewrite(&mut |i| rename_int(i, rename), &mut |e| match e {
                Expr::Load(b, ix) => Some(Expr::Load(rename(*b), ix.clone())),
                _ => None,
            }),
            reduce: self.reduce,
            stages: self.stages.clone(),
        }
    }
}

fn rename_stmt(s: &Stmt, rename: &dyn Fn(BufferId) -> BufferId) -> Stmt {
    match s {
        Stmt::Seq(list) => Stmt::seq(list.iter().map(|s| rename_stmt(s, rename)).collect()),
        Stmt::For(l) => Stmt::For(Box::new(For {
            var: l.var,
            extent: rename_int(&l.extent, rename),
            kind: l.kind,
            body: rename_stmt(&l.body, rename),
        })),
        Stmt::Block(b) => Stmt::Block(Box::new(b.rename_buffers(rename))),
        Stmt::Barrier => Stmt::Barrier,
        Stmt::Kernel(name, s) => Stmt::Kernel(*name, Box::new(rename_stmt(s, rename))),
    }
}

/// The expression with its loads from renumbered buffers; shared where there is none.
fn rename_int(e: &Int, rename: &dyn Fn(BufferId) -> BufferId) -> Int {
    let mut has_load = false;
    e.visit(&mut |n| has_load |= matches!(n.node(), IntNode::Load(..)));
    if !has_load {
        return e.clone();
    }
    match e.node() {
        IntNode::Const(_) | IntNode::Var(_) => e.clone(),
        IntNode::Load(b, ix) => Int::load(rename(*b), ix.iter().map(|i| rename_int(i, rename)).collect()),
        IntNode::Add(a, b) => rename_int(a, rename) + rename_int(b, rename),
        IntNode::Sub(a, b) => rename_int(a, rename) - rename_int(b, rename),
        IntNode::Mul(a, b) => rename_int(a, rename) * rename_int(b, rename),
        IntNode::Div(a, b) => rename_int(a, rename).div(rename_int(b, rename)),
        IntNode::Mod(a, b) => rename_int(a, rename).rem(rename_int(b, rename)),
        IntNode::Min(a, b) => rename_int(a, rename).min(rename_int(b, rename)),
        IntNode::Max(a, b) => rename_int(a, rename).max(rename_int(b, rename)),
    }
}
