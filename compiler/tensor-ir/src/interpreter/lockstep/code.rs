//! Statements prepared for execution: variables are resolved to slots, and dtypes to operands.

use super::super::scalar::Num;
use crate::arena::Id;
use crate::dtype::DType;
use crate::int::{Int, IntNode};
use crate::name::Name;
use crate::tir::{BinaryOp, Cond, CondOp, Expr, LoopKind, Reduce, Scope, Stmt, TensorFunction, UnaryOp};
use rustc_hash::FxHashMap;

pub(super) enum IntOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Min,
    Max,
}

pub(super) enum IntCode {
    Const(i64),
    Var(usize),
    Load(usize, Vec<IntCode>),
    Op(IntOp, Box<[IntCode; 2]>),
}

pub(super) struct CondCode {
    pub(super) lhs: IntCode,
    pub(super) op: CondOp,
    pub(super) rhs: IntCode,
}

pub(super) enum ExprCode {
    Const(Num),
    Index(IntCode, DType),
    Load(usize, Vec<IntCode>),
    /// The dtype is the operand's.
    Unary(UnaryOp, DType, Box<ExprCode>),
    /// The dtype is the operands'.
    Binary(BinaryOp, DType, Box<[ExprCode; 2]>),
    All(Vec<CondCode>),
    Select(Box<[ExprCode; 3]>),
    Cast(DType, DType, Box<ExprCode>),
}

pub(super) struct BlockCode {
    pub(super) name: Name,
    pub(super) guards: Vec<CondCode>,
    pub(super) buffer: usize,
    pub(super) indices: Vec<IntCode>,
    pub(super) value: ExprCode,
    pub(super) value_dtype: DType,
    pub(super) reduce: Option<Reduce>,
    /// The block loads from the buffer that it stores to (a reduction's own element aside).
    pub(super) reads_target: bool,
    /// Slots of the reduction loops.
    pub(super) reduction: Vec<usize>,
}

pub(super) enum Code {
    Seq(Vec<Code>),
    For { slot: usize, extent: IntCode, kind: LoopKind, body: Box<Code> },
    Block(Box<BlockCode>),
    Kernel(Box<Code>),
    Nothing,
}

/// Resolves a function; the loop variables get slots in order of appearance.
pub(super) struct Resolver<'f> {
    f: &'f TensorFunction,
    slots: FxHashMap<Name, usize>,
    pub(super) count: usize,
}

impl<'f> Resolver<'f> {
    pub(super) fn new(f: &'f TensorFunction) -> Self {
        Resolver { f, slots: FxHashMap::default(), count: 0 }
    }

    pub(super) fn stmt(&mut self, s: &Stmt) -> Result<Code, String> {
        Ok(match s {
            Stmt::Seq(list) => Code::Seq(list.iter().map(|s| self.stmt(s)).collect::<Result<_, _>>()?),
            Stmt::For(l) => {
                let extent = self.int(&l.extent)?;
                let slot = self.count;
                self.count += 1;
                let shadowed = self.slots.insert(l.var, slot);
                let body = Box::new(self.stmt(&l.body)?);
                match shadowed {
                    Some(s) => self.slots.insert(l.var, s),
                    None => self.slots.remove(&l.var),
                };
                // An operation that one thread executes is a plain loop.
                let alone = l.kind == LoopKind::Tensor && !self.is_of_subgroup(&l.body);
                let kind = if alone { LoopKind::Serial } else { l.kind };
                Code::For { slot, extent, kind, body }
            }
            Stmt::Block(b) => {
                let reduction = match b.reduce {
                    Some(_) => self.f.reduction_loops(b.name),
                    None => vec![],
                };
                Code::Block(Box::new(BlockCode {
                    name: b.name,
                    guards: b.guards.iter().map(|c| self.cond(c)).collect::<Result<_, _>>()?,
                    buffer: b.buffer.index(),
                    indices: self.ints(&b.indices)?,
                    value: self.expr(&b.value)?,
                    value_dtype: b.value.dtype(self.f),
                    reduce: b.reduce,
                    reads_target: b.reads(b.buffer),
                    reduction: reduction.iter().filter_map(|v| self.slots.get(v).copied()).collect(),
                }))
            }
            Stmt::Barrier => Code::Nothing,
            Stmt::Kernel(_, s) => Code::Kernel(Box::new(self.stmt(s)?)),
        })
    }

    /// True if a block of the statement accesses fragments.
    fn is_of_subgroup(&self, s: &Stmt) -> bool {
        let fragments = self.f.buffers.iter().filter(|b| matches!(b.1.scope, Scope::Fragment(_)));
        let blocks = s.blocks();
        fragments.into_iter().any(|(id, _)| blocks.iter().any(|b| b.accesses(id)))
    }

    fn ints(&self, list: &[Int]) -> Result<Vec<IntCode>, String> {
        list.iter().map(|i| self.int(i)).collect()
    }

    fn int(&self, e: &Int) -> Result<IntCode, String> {
        let (op, a, b) = match e.node() {
            IntNode::Const(c) => return Ok(IntCode::Const(*c)),
            IntNode::Var(v) => {
                return self
                    .slots
                    .get(v)
                    .map(|&s| IntCode::Var(s))
                    .ok_or_else(|| format!("@{}: no loop around the use of {v}", self.f.name));
            }
            IntNode::Load(b, ix) => return Ok(IntCode::Load(b.index(), self.ints(ix)?)),
            IntNode::Add(a, b) => (IntOp::Add, a, b),
            IntNode::Sub(a, b) => (IntOp::Sub, a, b),
            IntNode::Mul(a, b) => (IntOp::Mul, a, b),
            IntNode::Div(a, b) => (IntOp::Div, a, b),
            IntNode::Mod(a, b) => (IntOp::Mod, a, b),
            IntNode::Min(a, b) => (IntOp::Min, a, b),
            IntNode::Max(a, b) => (IntOp::Max, a, b),
        };
        Ok(IntCode::Op(op, Box::new([self.int(a)?, self.int(b)?])))
    }

    fn cond(&self, c: &Cond) -> Result<CondCode, String> {
        Ok(CondCode { lhs: self.int(&c.lhs)?, op: c.op, rhs: self.int(&c.rhs)? })
    }

    fn expr(&self, e: &Expr) -> Result<ExprCode, String> {
        Ok(match e {
            Expr::Const(s, t) => ExprCode::Const(Num::of(*s, *t)),
            Expr::Index(i, t) => ExprCode::Index(self.int(i)?, *t),
            Expr::Load(b, ix) => ExprCode::Load(b.index(), self.ints(ix)?),
            Expr::Unary(op, a) => ExprCode::Unary(*op, a.dtype(self.f), Box::new(self.expr(a)?)),
            Expr::Binary(op, a, b) => ExprCode::Binary(*op, a.dtype(self.f), Box::new([self.expr(a)?, self.expr(b)?])),
            Expr::All(c) => ExprCode::All(c.iter().map(|c| self.cond(c)).collect::<Result<_, _>>()?),
            Expr::Select(c, a, b) => ExprCode::Select(Box::new([self.expr(c)?, self.expr(a)?, self.expr(b)?])),
            Expr::Cast(t, a) => ExprCode::Cast(a.dtype(self.f), *t, Box::new(self.expr(a)?)),
        })
    }
}
