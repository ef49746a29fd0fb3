//! The form of a function: what it computes, without names. Measured times are found by it, since a pass that asks
//! about some nodes gives buffers, loops and blocks other names, in another order, than the group that is made of them.
//! Tuned choices have another key,
//! [`Workload`](crate::schedule::Workload), in which names count, since choices name blocks.

use crate::arena::{Arena, Id};
use crate::fingerprint::Fingerprint;
use crate::int::{self, Bounds, Int, IntNode};
use crate::name::Name;
use crate::tir::{Block, BufferId, Expr, For, Stmt, TensorFunction};
use rustc_hash::FxHashMap;

impl TensorFunction {
    /// A fingerprint that is equal for functions that differ in names, in the order of buffers and in parameters alone.
    /// `constants` are the operands that are known before a run.
    pub fn form(&self, constants: &[BufferId]) -> Fingerprint {
        let mut plain = Plain::default();
        let body = plain.stmt(&self.body);
        let order = plain.buffers;
        let mut out = TensorFunction::new(Name::new("form"));
        out.symbols = self.symbols.clone();
        out.buffers = Arena::new();
        for (n, &b) in order.iter().enumerate() {
            if let Some(buffer) = self.buffers.get(b) {
                let mut buffer = buffer.clone();
                buffer.name = Name::new(&format!("b{n}"));
                buffer.encoding = Default::default();
                out.buffers.push(buffer);
            }
        }
        out.body = body;
        let bounds = out.bounds();
        out.body = simplified(&out.body, &bounds);
        Fingerprint::of(|w| {
            w.text(&out.fingerprint().to_string());
            w.list(order.iter(), |w, b| w.tag(u8::from(constants.contains(b))));
        })
    }
}

/// Gives loops, blocks and buffers the numbers in which they appear.
#[derive(Default)]
struct Plain {
    vars: FxHashMap<Name, Name>,
    buffers: Vec<BufferId>,
    blocks: usize,
}

impl Plain {
    fn stmt(&mut self, s: &Stmt) -> Stmt {
        match s {
            Stmt::Seq(list) => Stmt::seq(list.iter().map(|s| self.stmt(s)).collect()),
            Stmt::For(l) => {
                let extent = self.int(&l.extent);
                let var = Name::new(&format!("l{}", self.vars.len()));
                self.vars.insert(l.var, var);
                Stmt::For(Box::new(For { var, extent, kind: l.kind, body: self.stmt(&l.body) }))
            }
            Stmt::Block(b) => Stmt::Block(Box::new(self.block(b))),
            Stmt::Barrier => Stmt::Barrier,
            Stmt::Kernel(name, s) => Stmt::Kernel(*name, Box::new(self.stmt(s))),
        }
    }
    fn block(&mut self, b: &Block) -> Block {
        self.blocks += 1;
        let name = Name::new(&format!("s{}", self.blocks));
        let guards = b.guards.iter().map(|c| c.map(&mut |i| self.int(i))).collect();
        let mut loads = b.value.loads().into_iter().map(|l| l.0).collect::<Vec<BufferId>>();
        loads.push(b.buffer);
        loads.into_iter().for_each(|b| {
            self.buffer(b);
        });
        let indices = b.indices.iter().map(|i| self.int(i)).collect();
        let buffer = self.buffer(b.buffer);
        let value = self.expr(&b.value);
        Block { name, guards, buffer, indices, value, reduce: b.reduce, stages: b.stages.clone() }
    }
    fn expr(&mut self, e: &Expr) -> Expr {
        // Two steps, since both closures need `self`.
        let renamed = e.rewrite(&mut |i| self.int(i), &mut |_| None);
        renamed.rewrite(&mut Int::clone, &mut |e| match e {
            Expr::Load(b, ix) => Some(Expr::Load(self.buffer(*b), ix.clone())),
            _ => None,
        })
    }
    fn buffer(&mut self, b: BufferId) -> BufferId {
        let at = self.buffers.iter().position(|x| *x == b).unwrap_or_else(|| {
            self.buffers.push(b);
            self.buffers.len() - 1
        });
        BufferId::from_index(at)
    }
    fn int(&mut self, e: &Int) -> Int {
        match e.node() {
            IntNode::Const(_) => e.clone(),
            IntNode::Var(v) => self.vars.get(v).map_or_else(|| e.clone(), |v| Int::var(*v)),
            IntNode::Load(b, ix) => {
                let ix = ix.iter().map(|i| self.int(i)).collect();
                Int::load(self.buffer(*b), ix)
            }
            IntNode::Add(a, b) => self.int(a) + self.int(b),
            IntNode::Sub(a, b) => self.int(a) - self.int(b),
            IntNode::Mul(a, b) => self.int(a) * self.int(b),
            IntNode::Div(a, b) => self.int(a).div(self.int(b)),
            IntNode::Mod(a, b) => self.int(a).rem(self.int(b)),
            IntNode::Min(a, b) => self.int(a).min(self.int(b)),
            IntNode::Max(a, b) => self.int(a).max(self.int(b)),
        }
    }
}

/// The same statement with indices in the one form that they have by their variables' names.
fn simplified(s: &Stmt, bounds: &Bounds) -> Stmt {
    let ints = &mut |i: &Int| int::simplify(i, bounds);
    match s {
        Stmt::Seq(list) => Stmt::seq(list.iter().map(|s| simplified(s, bounds)).collect()),
        Stmt::For(l) => Stmt::For(Box::new(For {
            var: l.var,
            extent: ints(&l.extent),
            kind: l.kind,
            body: simplified(&l.body, bounds),
        })),
        Stmt::Block(b) => Stmt::Block(Box::new(Block {
            guards: b.guards.iter().map(|c| c.map(ints)).collect(),
            indices: b.indices.iter().map(&mut *ints).collect(),
            value: b.value.rewrite(ints, &mut |_| None),
            ..(**b).clone()
        })),
        Stmt::Barrier => Stmt::Barrier,
        Stmt::Kernel(name, s) => Stmt::Kernel(*name, Box::new(simplified(s, bounds))),
    }
}
