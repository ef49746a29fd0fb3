//! A slow evaluator in f64 that runs the threads of a workgroup in lockstep and panics on any access out of bounds, any
//! read of an element that was never written, any two threads writing different values to one element, and any store
//! to a lane's element by another lane.

use crate::arena::Id;
use crate::int::{Int, IntNode};
use crate::name::Name;
use crate::tir::{
    Access, BinaryOp, Block, BufferId, Combiner, Cond, CondOp, Expr, LoopKind, Scalar, Scope, Stmt, TensorFunction,
    UnaryOp,
};
use std::collections::HashMap;

#[derive(Clone, Default)]
struct Thread {
    env: HashMap<Name, i64>,
    id: [i64; 3],
    linear: i64,
}

struct Machine<'a> {
    f: &'a TensorFunction,
    /// Elements by buffer and owner: 0 for shared ones, the thread for registers, the subgroup for subgroup buffers.
    memory: HashMap<(BufferId, i64), Vec<Option<f64>>>,
    reductions: HashMap<Name, Vec<Name>>,
}

/// Elements of the written parameters, computed from pseudo-random inputs that depend on parameter names only.
pub fn evaluate(f: &TensorFunction) -> Vec<f64> {
    let mut m = Machine { f, memory: HashMap::new(), reductions: HashMap::new() };
    for b in f.body.blocks() {
        m.reductions.insert(b.name, f.reduction_loops(b.name));
    }
    for p in f.params.iter().filter(|p| p.access == Access::Read) {
        let packer = f.prepacks.iter().find(|k| k.buffer == p.buffer);
        let data = match packer {
            Some(k) => evaluate(&k.packer),
            None => random(f.buffers[p.buffer].name, m.size(p.buffer)),
        };
        assert_eq!(data.len(), m.size(p.buffer), "size of {}", f.buffers[p.buffer].name);
        m.memory.insert((p.buffer, 0), data.into_iter().map(Some).collect());
    }
    let list: &[Stmt] = if let Stmt::Seq(list) = &f.body { list } else { std::slice::from_ref(&f.body) };
    for s in list {
        m.forget_local();
        let threads = threads_of(s);
        m.run(s, &threads);
    }
    let outputs: Vec<BufferId> = f.outputs().collect();
    let mut out = Vec::new();
    for b in outputs {
        let data = m.memory.get(&(b, 0)).unwrap_or_else(|| panic!("{} is never written", f.buffers[b].name));
        out.extend(data.iter().map(|v| v.unwrap_or_else(|| panic!("part of {} is never written", f.buffers[b].name))));
    }
    out
}

fn random(name: Name, n: usize) -> Vec<f64> {
    let mut state = name.as_str().bytes().fold(0x9e37_79b9u64, |a, b| a.wrapping_mul(31).wrapping_add(u64::from(b)));
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % 2001) as f64 / 1000.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn threads_of(s: &Stmt) -> Vec<Thread> {
    let mut dims = [1i64; 3];
    s.visit(&mut |s| {
        if let Stmt::For(l) = s
            && let LoopKind::Local(a) = l.kind
        {
            let d = &mut dims[usize::from(a)];
            *d = (*d).max(l.extent.as_const().expect("constant thread extent"));
        }
    });
    let mut out = Vec::new();
    for z in 0..dims[2] {
        for y in 0..dims[1] {
            for x in 0..dims[0] {
                let linear = (z * dims[1] + y) * dims[0] + x;
                out.push(Thread { env: HashMap::new(), id: [x, y, z], linear });
            }
        }
    }
    out
}

impl Machine<'_> {
    fn size(&self, b: BufferId) -> usize {
        self.f.buffers[b].shape.iter().map(|d| d.as_const().expect("constant shape") as usize).product()
    }
    fn forget_local(&mut self) {
        let f = self.f;
        self.memory.retain(|k, _| f.buffers[k.0].scope == Scope::Global);
    }
    fn run(&mut self, s: &Stmt, threads: &[Thread]) {
        if threads.is_empty() {
            return;
        }
        match s {
            Stmt::Seq(list) => list.iter().for_each(|s| self.run(s, threads)),
            Stmt::Kernel(_, s) => self.run(s, threads),
            Stmt::Barrier => {}
            Stmt::Block(b) => self.run_block(b, threads),
            Stmt::For(l) => {
                let extent = self.int(&l.extent, &threads[0]);
                if let LoopKind::Local(a) = l.kind {
                    let mut active: Vec<Thread> =
                        threads.iter().filter(|t| t.id[usize::from(a)] < extent).cloned().collect();
                    for t in &mut active {
                        t.env.insert(l.var, t.id[usize::from(a)]);
                    }
                    return self.run(&l.body, &active);
                }
                let mut threads = threads.to_vec();
                for i in 0..extent {
                    if matches!(l.kind, LoopKind::Group(_)) {
                        self.forget_local();
                    }
                    for t in &mut threads {
                        t.env.insert(l.var, i);
                    }
                    self.run(&l.body, &threads);
                }
            }
        }
    }
    fn run_block(&mut self, b: &Block, threads: &[Thread]) {
        let mut writes: Vec<((BufferId, i64), usize, f64)> = Vec::new();
        for t in threads {
            if !b.guards.iter().all(|g| self.cond(g, t)) {
                continue;
            }
            let value = self.value(&b.value, t);
            let ix: Vec<i64> = b.indices.iter().map(|i| self.int(i, t)).collect();
            if let Scope::Subgroup { lane_dim, size } = self.f.buffers[b.buffer].scope {
                let (lane, size) = (t.linear % i64::from(size), i64::from(size));
                assert_eq!(ix[lane_dim as usize] % size, lane, "{}: a lane stores another lane's element", b.name);
            }
            let (key, at) = self.place(b.buffer, &ix, t);
            let value = match b.reduce {
                None => value,
                Some(r) => {
                    let first = r.init && self.reductions[&b.name].iter().all(|v| t.env[v] == 0);
                    let old = if first { Some(identity(r.combiner)) } else { self.memory[&key][at] };
                    combine(r.combiner, old.unwrap_or_else(|| panic!("{} reduces into nothing", b.name)), value)
                }
            };
            writes.push((key, at, value));
        }
        let mut seen: HashMap<((BufferId, i64), usize), f64> = HashMap::new();
        for (key, at, value) in writes {
            let old = seen.insert((key, at), value);
            assert!(
                old.is_none_or(|o| o == value),
                "{}: threads race on {:?}[{at}]",
                b.name,
                self.f.buffers[key.0].name
            );
            self.memory.get_mut(&key).expect("placed")[at] = Some(value);
        }
    }
    fn place(&mut self, b: BufferId, ix: &[i64], t: &Thread) -> ((BufferId, i64), usize) {
        let buffer = &self.f.buffers[b];
        assert_eq!(ix.len(), buffer.shape.len(), "rank of {}", buffer.name);
        let mut at = 0;
        for (i, d) in ix.iter().zip(&buffer.shape) {
            let d = d.as_const().expect("constant shape");
            assert!((0..d).contains(i), "{}{ix:?} is out of bounds of {:?}", buffer.name, buffer.shape);
            at = at * d + i;
        }
        let owner = match buffer.scope {
            Scope::Global | Scope::Shared => 0,
            Scope::Register => t.linear,
            Scope::Subgroup { size, .. } => t.linear / i64::from(size),
        };
        let size = self.size(b);
        self.memory.entry((b, owner)).or_insert_with(|| vec![None; size]);
        ((b, owner), at as usize)
    }
    fn load(&mut self, b: BufferId, ix: &[Int], t: &Thread) -> f64 {
        let ix: Vec<i64> = ix.iter().map(|i| self.int(i, t)).collect();
        let (key, at) = self.place(b, &ix, t);
        let name = self.f.buffers[b].name;
        self.memory[&key][at]
            .unwrap_or_else(|| panic!("{name}{ix:?} is read before it is written (buffer {})", b.index()))
    }
    fn int(&mut self, i: &Int, t: &Thread) -> i64 {
        match i.node() {
            IntNode::Const(c) => *c,
            IntNode::Var(v) => *t.env.get(v).unwrap_or_else(|| panic!("{v} is not a loop around")),
            IntNode::Load(b, ix) => self.load(*b, ix, t) as i64,
            IntNode::Add(a, b) => self.int(a, t) + self.int(b, t),
            IntNode::Sub(a, b) => self.int(a, t) - self.int(b, t),
            IntNode::Mul(a, b) => self.int(a, t) * self.int(b, t),
            IntNode::Div(a, b) => self.int(a, t).div_euclid(self.int(b, t)),
            IntNode::Mod(a, b) => self.int(a, t).rem_euclid(self.int(b, t)),
            IntNode::Min(a, b) => self.int(a, t).min(self.int(b, t)),
            IntNode::Max(a, b) => self.int(a, t).max(self.int(b, t)),
        }
    }
    fn cond(&mut self, c: &Cond, t: &Thread) -> bool {
        let (a, b) = (self.int(&c.lhs, t), self.int(&c.rhs, t));
        match c.op {
            CondOp::Lt => a < b,
            CondOp::Ge => a >= b,
            CondOp::Eq => a == b,
        }
    }
    fn value(&mut self, e: &Expr, t: &Thread) -> f64 {
        match e {
            Expr::Const(Scalar::Float(v), _) => *v,
            Expr::Const(Scalar::Int(v), _) => *v as f64,
            Expr::Index(i, _) => self.int(i, t) as f64,
            Expr::Load(b, ix) => self.load(*b, ix, t),
            Expr::Unary(UnaryOp::Exp, a) => self.value(a, t).exp(),
            Expr::Unary(UnaryOp::Neg, a) => -self.value(a, t),
            Expr::Unary(op, _) => panic!("the reference does not know {op:?}"),
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.value(a, t), self.value(b, t));
                match op {
                    BinaryOp::Add => a + b,
                    BinaryOp::Sub => a - b,
                    BinaryOp::Mul => a * b,
                    BinaryOp::Div => a / b,
                    BinaryOp::Min => a.min(b),
                    BinaryOp::Max => a.max(b),
                    _ => panic!("the reference does not know {op:?}"),
                }
            }
            Expr::All(conds) => f64::from(conds.iter().all(|c| self.cond(c, t))),
            Expr::Select(c, a, b) => {
                if self.value(c, t) != 0.0 {
                    self.value(a, t)
                } else {
                    self.value(b, t)
                }
            }
            Expr::Cast(_, a) => self.value(a, t),
        }
    }
}

fn identity(c: Combiner) -> f64 {
    match c {
        Combiner::Sum => 0.0,
        Combiner::Prod => 1.0,
        Combiner::Max => f64::NEG_INFINITY,
        Combiner::Min => f64::INFINITY,
    }
}

fn combine(c: Combiner, a: f64, b: f64) -> f64 {
    match c {
        Combiner::Sum => a + b,
        Combiner::Prod => a * b,
        Combiner::Max => a.max(b),
        Combiner::Min => a.min(b),
    }
}
