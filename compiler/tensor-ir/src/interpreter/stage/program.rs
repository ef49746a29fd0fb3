//! A value expression as a straight list of instructions over vector registers.
//!
//! A select evaluates both sides, but each load has a mask of the lanes that take its side, so it reads only elements
//! that the expression reads.

use super::super::scalar::Num;
use super::form::{Form, Loop, flat_index, loop_bounds};
use crate::arena::Id;
use crate::dtype::DType;
use crate::int::{Bounds, simplify};
use crate::tir::{BinaryOp, BufferId, CondOp, Expr, TensorFunction, UnaryOp};

/// How values of a dtype are held in registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// f16, bf16 and f32.
    F32,
    F64,
    /// Every integer; u64 as its bits.
    I64,
    Bool,
}
pub(super) fn class(dtype: DType) -> Class {
    match dtype {
        DType::F64 => Class::F64,
        DType::Bool => Class::Bool,
        t if t.is_float() => Class::F32,
        _ => Class::I64,
    }
}

/// A register's number.
pub(super) type Reg = usize;

pub(super) enum Instr {
    Index {
        dst: Reg,
        form: usize,
        dtype: DType,
    },
    Load {
        dst: Reg,
        buffer: usize,
        form: usize,
        mask: Option<Reg>,
    },
    Unary {
        op: UnaryOp,
        dtype: DType,
        dst: Reg,
        a: Reg,
    },
    Binary {
        op: BinaryOp,
        dtype: DType,
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    Cast {
        from: DType,
        to: DType,
        dst: Reg,
        a: Reg,
    },
    /// All of `form op 0`.
    All {
        dst: Reg,
        conds: Vec<(usize, CondOp)>,
    },
    Select {
        dst: Reg,
        cond: Reg,
        a: Reg,
        b: Reg,
    },
    /// `mask & cond`, or `mask & !cond`; without a mask all lanes are active.
    Mask {
        dst: Reg,
        mask: Option<Reg>,
        cond: Reg,
        negate: bool,
    },
}

/// A compiled expression.
pub(super) struct Program {
    pub(super) instrs: Vec<Instr>,
    pub(super) forms: Vec<Form>,
    /// Register classes; a constant's register holds its value from the start.
    pub(super) regs: Vec<(Class, Option<Num>)>,
    pub(super) result: Reg,
    /// Names of all buffers, for messages.
    pub(super) names: Vec<crate::name::Name>,
}

impl Program {
    /// `None` when an index uses something that is no loop of the nest.
    pub(super) fn compile(f: &TensorFunction, e: &Expr, loops: &[Loop]) -> Option<Program> {
        let mut c = Compiler {
            f,
            loops,
            bounds: loop_bounds(loops),
            out: Program {
                instrs: vec![],
                forms: vec![],
                regs: vec![],
                result: 0,
                names: f.buffers.iter().map(|(_, b)| b.name).collect(),
            },
            free: vec![],
        };
        c.out.result = c.emit(e, None)?;
        Some(c.out)
    }

    /// Loads with their flat index.
    pub(super) fn loads(&self) -> impl Iterator<Item = (usize, &Form)> {
        self.instrs.iter().filter_map(|i| match i {
            Instr::Load { buffer, form, .. } => Some((*buffer, &self.forms[*form])),
            _ => None,
        })
    }

    /// The buffer and flat index, when the program is just a load.
    pub(super) fn plain_load(&self) -> Option<(usize, &Form)> {
        match self.instrs.as_slice() {
            [Instr::Load { buffer, form, mask: None, .. }] => Some((*buffer, &self.forms[*form])),
            _ => None,
        }
    }
}

struct Compiler<'f> {
    f: &'f TensorFunction,
    loops: &'f [Loop],
    bounds: Bounds,
    out: Program,
    free: Vec<Reg>,
}

impl Compiler<'_> {
    fn reg(&mut self, class: Class) -> Reg {
        if let Some(i) = self.free.iter().position(|&r| self.out.regs[r].0 == class) {
            return self.free.swap_remove(i);
        }
        self.out.regs.push((class, None));
        self.out.regs.len() - 1
    }

    fn release(&mut self, r: Reg) {
        if self.out.regs[r].1.is_none() {
            self.free.push(r);
        }
    }

    fn form(&mut self, e: &crate::int::Int) -> Option<usize> {
        let form = Form::new(self.f, e, self.loops, &self.bounds)?;
        self.out.forms.push(form);
        Some(self.out.forms.len() - 1)
    }

    fn load(&mut self, b: BufferId, indices: &[crate::int::Int], mask: Option<Reg>) -> Option<Reg> {
        let flat = flat_index(self.f, b, indices, &self.bounds);
        let form = self.form(&flat)?;
        let dst = self.reg(class(self.f.buffers[b].dtype));
        self.out.instrs.push(Instr::Load { dst, buffer: b.index(), form, mask });
        Some(dst)
    }

    fn emit(&mut self, e: &Expr, mask: Option<Reg>) -> Option<Reg> {
        Some(match e {
            Expr::Const(s, t) => {
                self.out.regs.push((class(*t), Some(Num::of(*s, *t))));
                self.out.regs.len() - 1
            }
            Expr::Index(i, dtype) => {
                let form = self.form(&simplify(i, &self.bounds))?;
                let dst = self.reg(class(*dtype));
                self.out.instrs.push(Instr::Index { dst, form, dtype: *dtype });
                dst
            }
            Expr::Load(b, ix) => self.load(*b, ix, mask)?,
            Expr::Unary(op, a) => {
                let (dtype, result) = (a.dtype(self.f), e.dtype(self.f));
                let a = self.emit(a, mask)?;
                let dst = self.reg(class(result));
                self.out.instrs.push(Instr::Unary { op: *op, dtype, dst, a });
                self.release(a);
                dst
            }
            Expr::Binary(op, a, b) => {
                let (dtype, result) = (a.dtype(self.f), e.dtype(self.f));
                let (a, b) = (self.emit(a, mask)?, self.emit(b, mask)?);
                if self.out.regs[a].0 != self.out.regs[b].0 {
                    return None;
                }
                let dst = self.reg(class(result));
                self.out.instrs.push(Instr::Binary { op: *op, dtype, dst, a, b });
                self.release(a);
                self.release(b);
                dst
            }
            Expr::Cast(to, a) => {
                let from = a.dtype(self.f);
                let a = self.emit(a, mask)?;
                let dst = self.reg(class(*to));
                self.out.instrs.push(Instr::Cast { from, to: *to, dst, a });
                self.release(a);
                dst
            }
            Expr::All(list) => {
                let mut conds = Vec::with_capacity(list.len());
                for c in list {
                    let difference = simplify(&(c.lhs.clone() - &c.rhs), &self.bounds);
                    conds.push((self.form(&difference)?, c.op));
                }
                let dst = self.reg(Class::Bool);
                self.out.instrs.push(Instr::All { dst, conds });
                dst
            }
            Expr::Select(c, a, b) => self.select(c, a, b, mask)?,
        })
    }

    fn select(&mut self, c: &Expr, a: &Expr, b: &Expr, mask: Option<Reg>) -> Option<Reg> {
        let result = a.dtype(self.f);
        let cond = self.emit(c, mask)?;
        if self.out.regs[cond].0 != Class::Bool {
            return None;
        }
        let a = self.side(a, mask, cond, false)?;
        let b = self.side(b, mask, cond, true)?;
        if self.out.regs[a].0 != self.out.regs[b].0 {
            return None;
        }
        let dst = self.reg(class(result));
        self.out.instrs.push(Instr::Select { dst, cond, a, b });
        [cond, a, b].into_iter().for_each(|r| self.release(r));
        Some(dst)
    }

    /// One side of a select, under its mask where it loads anything.
    fn side(&mut self, e: &Expr, mask: Option<Reg>, cond: Reg, negate: bool) -> Option<Reg> {
        if e.loads().is_empty() {
            return self.emit(e, mask);
        }
        let dst = self.reg(Class::Bool);
        self.out.instrs.push(Instr::Mask { dst, mask, cond, negate });
        let value = self.emit(e, Some(dst))?;
        self.release(dst);
        Some(value)
    }
}
