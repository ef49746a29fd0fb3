//! Emits index expressions and conditions, each in the outermost scope that defines all its variables. Loads are reused
//! until a store or barrier, so shaders stay small.
//!
//! A sum is emitted from the outermost variables inwards, with the constant last. So unrolled instances share
//! everything but the constant, and loops share the terms that do not change in them.

use crate::builder::{Kind, Value};
use crate::error::EmitError;
use crate::kernel::KernelEmitter;
use crate::lanes::{per_lane, split_lane};
use crate::tree::has_load;
use naga::{BinaryOperator as B, Expression, Handle, MathFunction};
use tensor_ir::int::{Int, IntNode, terms};
use tensor_ir::tir::{Cond, CondOp};

type Emitted = Result<Handle<Expression>, EmitError>;

impl KernelEmitter<'_> {
    /// The outermost scope in which `e` can be evaluated. Loads stay where they are.
    pub fn level(&mut self, e: &Int) -> usize {
        if e.as_const().is_some() {
            return 0;
        }
        if let Some(&l) = self.levels.get(e) {
            return l;
        }
        if has_load(e) {
            return self.b.top();
        }
        let vars = e.vars();
        let l = vars.iter().filter_map(|v| self.vars.get(v)).map(|v| v.1).max().unwrap_or(0);
        if !vars.is_empty() {
            self.levels.insert(e.clone(), l);
        }
        l
    }

    /// An index as an i32.
    pub fn int(&mut self, e: &Int) -> Emitted {
        if let Some(c) = e.as_const() {
            return self.int_const(c);
        }
        if let Some(v) = e.as_var() {
            self.require_i32(e);
            return self.vars.get(&v).map(|v| v.0).ok_or_else(|| {
                EmitError::unsupported(format!("kernel `{}`: variable `{v}` is not defined here", self.kernel))
            });
        }
        let level = self.level(e);
        if let Some(&h) = self.b.scopes[level].ints.get(e) {
            return Ok(h);
        }
        let h = match e.node() {
            IntNode::Add(..) | IntNode::Sub(..) => self.sum(e)?,
            _ => self.int_node(e, level)?,
        };
        self.remember_int(level, e, h);
        Ok(h)
    }

    fn int_const(&mut self, c: i64) -> Emitted {
        let Ok(c) = i32::try_from(c) else {
            return Err(self.too_wide(format!("the constant {c}"), 32));
        };
        Ok(self.b.i32(c))
    }

    fn too_wide(&self, what: String, bits: u32) -> EmitError {
        EmitError::IndexTooWide { kernel: self.kernel, block: self.block, what, bits }
    }

    fn int_node(&mut self, e: &Int, level: usize) -> Emitted {
        self.require_i32(e);
        match e.node() {
            IntNode::Mul(a, b) => self.int_binary(B::Multiply, a, b, level),
            IntNode::Div(a, b) => self.int_div(a, b, level),
            IntNode::Mod(a, b) => self.int_mod(a, b, level),
            IntNode::Min(a, b) => self.int_math(MathFunction::Min, a, b, level),
            IntNode::Max(a, b) => self.int_math(MathFunction::Max, a, b, level),
            IntNode::Load(b, ix) => {
                let (buffer, ix) = (*b, ix.clone());
                let lane = self.lane.take();
                let v = self.load(buffer, &ix);
                self.lane = lane;
                let v = v?;
                Ok(self.b.bitcast(v, Kind::I32).handle)
            }
            IntNode::Const(_) | IntNode::Var(_) | IntNode::Add(..) | IntNode::Sub(..) => self.int(e),
        }
    }

    fn int_binary(&mut self, op: B, a: &Int, b: &Int, level: usize) -> Emitted {
        let (left, right) = (self.int(a)?, self.int(b)?);
        Ok(self.b.emit_at(level, Expression::Binary { op, left, right }))
    }

    fn int_math(&mut self, fun: MathFunction, a: &Int, b: &Int, level: usize) -> Emitted {
        // Compared values fit 32 bits, so a bound beyond them is replaced by the last 32-bit number.
        let saturated = |e: &Int| match e.as_const() {
            Some(c) => Int::new(c.clamp(i64::from(i32::MIN), i64::from(i32::MAX))),
            None => e.clone(),
        };
        let (arg, other) = (self.int(&saturated(a))?, self.int(&saturated(b))?);
        Ok(self.b.emit_at(level, Expression::Math { fun, arg, arg1: Some(other), arg2: None, arg3: None }))
    }

    /// Floor division: a shift by powers of two, which floors for negative numbers too.
    fn int_div(&mut self, a: &Int, b: &Int, level: usize) -> Emitted {
        if let Some(shift) = power_of_two(b) {
            let left = self.int(a)?;
            let right = self.b.u32(shift);
            return Ok(self.b.emit_at(level, Expression::Binary { op: B::ShiftRight, left, right }));
        }
        let q = self.int_binary(B::Divide, a, b, level)?;
        if self.ranges.span(a).low >= 0 {
            return Ok(q);
        }
        let r = self.int_binary(B::Modulo, a, b, level)?;
        let (zero, one) = (self.b.i32(0), self.b.i32(1));
        let condition = self.b.emit_at(level, Expression::Binary { op: B::Less, left: r, right: zero });
        let down = self.b.emit_at(level, Expression::Binary { op: B::Subtract, left: q, right: one });
        Ok(self.b.emit_at(level, Expression::Select { condition, accept: down, reject: q }))
    }

    fn int_mod(&mut self, a: &Int, b: &Int, level: usize) -> Emitted {
        if let (Some(_), Some(c)) = (power_of_two(b), b.as_const()) {
            let left = self.int(a)?;
            let right = self.b.i32((c - 1) as i32);
            return Ok(self.b.emit_at(level, Expression::Binary { op: B::And, left, right }));
        }
        let span = self.ranges.span(a);
        if let Some(c) = b.as_const().filter(|c| span.low >= -c && span.high < *c) {
            if span.low >= 0 {
                return self.int(a);
            }
            // An index that may count from the end: no division.
            let (left, right, zero) = (self.int(a)?, self.int(&Int::new(c))?, self.b.i32(0));
            let condition = self.b.emit_at(level, Expression::Binary { op: B::Less, left, right: zero });
            let up = self.b.emit_at(level, Expression::Binary { op: B::Add, left, right });
            return Ok(self.b.emit_at(level, Expression::Select { condition, accept: up, reject: left }));
        }
        let r = self.int_binary(B::Modulo, a, b, level)?;
        if span.low >= 0 {
            return Ok(r);
        }
        let (zero, by) = (self.b.i32(0), self.int(b)?);
        let condition = self.b.emit_at(level, Expression::Binary { op: B::Less, left: r, right: zero });
        let up = self.b.emit_at(level, Expression::Binary { op: B::Add, left: r, right: by });
        Ok(self.b.emit_at(level, Expression::Select { condition, accept: up, reject: r }))
    }

    /// The terms of a sum with their levels and signs, those of outer variables first.
    fn leveled_terms(&mut self, e: &Int) -> Result<Vec<(usize, Int, i64)>, EmitError> {
        let (terms, constant) = terms(e)
            .filter(|(terms, c)| *c != i64::MIN && terms.iter().all(|t| t.1 != i64::MIN))
            .ok_or_else(|| self.too_wide(format!("the sum `{e}`"), 64))?;
        let mut leveled: Vec<(usize, Int, i64)> = Vec::with_capacity(terms.len());
        for (atom, c) in terms {
            let term = atom.clone() * c.abs();
            leveled.push((self.level(&atom), term, c));
        }
        // Positive terms first within a level, so that a sum seldom starts with a negation.
        leveled.sort_by_key(|t| (t.0, t.2 < 0));
        if constant != 0 {
            let at = if matches!(leveled[..], [(_, _, c)] if c < 0 && constant > 0) { 0 } else { leveled.len() };
            leveled.insert(at, (0, Int::new(constant.abs()), constant));
        }
        Ok(leveled)
    }

    /// The part of a sum, without constants, that does not change in scopes from `below` on.
    pub fn outer_part(&mut self, e: &Int, below: usize) -> Result<Option<Int>, EmitError> {
        let mut sum = Int::new(0);
        for (level, term, c) in self.leveled_terms(e)? {
            if level >= below || term.as_const().is_some() {
                break;
            }
            sum = if c < 0 { sum - term } else { sum + term };
        }
        Ok(Some(sum).filter(|s| s.as_const().is_none()))
    }

    /// A sum that begins with the one which the branch's sides share a register for. It holds on this side only, and is
    /// remembered nowhere.
    pub fn sum_from_shared_base(&mut self, e: &Int) -> Result<Option<Handle<Expression>>, EmitError> {
        let (Some((base, h)), IntNode::Add(..) | IntNode::Sub(..)) = (self.shared_base.clone(), e.node()) else {
            return Ok(None);
        };
        let leveled = self.leveled_terms(e)?;
        let mut prefix = Int::new(0);
        let mut rest = leveled.iter();
        while prefix != base {
            let Some((_, term, c)) = rest.next() else { return Ok(None) };
            prefix = if *c < 0 { prefix - term } else { prefix + term };
        }
        self.require_i32(e);
        let mut sum = h;
        for (_, term, c) in rest {
            let right = self.int(term)?;
            let op = if *c < 0 { B::Subtract } else { B::Add };
            sum = self.b.emit(Expression::Binary { op, left: sum, right });
        }
        Ok(Some(sum))
    }

    /// A sum, terms of outer variables first.
    fn sum(&mut self, e: &Int) -> Emitted {
        let leveled = self.leveled_terms(e)?;
        let (mut prefix, mut h) = (Int::new(0), self.b.i32(0));
        for (_, term, c) in &leveled {
            let next = if *c < 0 { prefix.clone() - term } else { prefix.clone() + term };
            h = if next.as_const().is_some() || next == *term {
                self.int(&next)?
            } else {
                self.extend_sum(h, term, *c < 0, &next)?
            };
            prefix = next;
        }
        Ok(h)
    }

    /// Emits `next = sum ± term`, unless it is known.
    fn extend_sum(&mut self, sum: Handle<Expression>, term: &Int, minus: bool, next: &Int) -> Emitted {
        let level = self.level(next);
        if let Some(&h) = self.b.scopes[level].ints.get(next) {
            return Ok(h);
        }
        self.require_i32(next);
        let right = self.int(term)?;
        let op = if minus { B::Subtract } else { B::Add };
        let h = self.b.emit_at(level, Expression::Binary { op, left: sum, right });
        self.remember_int(level, next, h);
        Ok(h)
    }

    fn require_i32(&mut self, e: &Int) {
        let fits = self.ranges.fits_i32(e);
        self.require(fits, |_| format!("`{e}` may be beyond 32 bits"));
    }

    /// Remembers an index unless it reads memory that may change.
    fn remember_int(&mut self, level: usize, e: &Int, h: Handle<Expression>) {
        if !self.is_volatile(e) {
            self.b.scopes[level].ints.insert(e.clone(), h);
        }
    }

    /// An index as a value: a vector when it differs between lanes.
    pub fn index_value(&mut self, e: &Int) -> Result<Value, EmitError> {
        let scalar = |handle| Value { handle, kind: Kind::I32, lanes: 1 };
        let Some(lane) = self.lane.filter(|l| e.uses(l.var)) else {
            return Ok(scalar(self.int(e)?));
        };
        if let Some((base, step)) = split_lane(e, lane) {
            self.require_i32(e);
            let base = self.ranges.simplify(&base);
            let base = scalar(self.int(&base)?);
            let steps: Vec<Value> = (0..i64::from(lane.count)).map(|v| scalar(self.b.i32((v * step) as i32))).collect();
            let steps = self.b.compose(&steps);
            return Ok(self.b.add(base, steps));
        }
        let mut parts = Vec::new();
        for i in per_lane(e, lane) {
            let i = self.ranges.simplify(&i);
            parts.push(scalar(self.int(&i)?));
        }
        Ok(self.b.compose(&parts))
    }

    /// Conditions without the lane, joined by "and".
    pub fn uniform_conds(&mut self, conds: &[Cond]) -> Emitted {
        let mut level = 0;
        for c in conds {
            level = level.max(self.level(&c.lhs)).max(self.level(&c.rhs));
        }
        if let Some(&h) = self.b.scopes[level].conds.get(conds) {
            return Ok(h);
        }
        let h = match conds.split_last() {
            Some((last, [])) => {
                let (left, right) = (self.int(&last.lhs)?, self.int(&last.rhs)?);
                self.b.emit_at(level, Expression::Binary { op: compare(last.op), left, right })
            }
            Some((last, rest)) => {
                let (left, right) = (self.uniform_conds(rest)?, self.uniform_conds(std::slice::from_ref(last))?);
                self.b.emit_at(level, Expression::Binary { op: B::LogicalAnd, left, right })
            }
            None => self.b.bool(true),
        };
        if !conds.iter().any(|c| self.is_volatile(&c.lhs) || self.is_volatile(&c.rhs)) {
            self.b.scopes[level].conds.insert(conds.to_vec(), h);
        }
        Ok(h)
    }

    /// A condition that differs between lanes.
    pub fn lane_cond(&mut self, c: &Cond) -> Result<Value, EmitError> {
        let (lhs, rhs) = (self.index_value(&c.lhs)?, self.index_value(&c.rhs)?);
        Ok(self.b.binary(compare(c.op), lhs, rhs))
    }
}

fn compare(op: CondOp) -> B {
    match op {
        CondOp::Lt => B::Less,
        CondOp::Ge => B::GreaterEqual,
        CondOp::Eq => B::Equal,
    }
}

fn power_of_two(b: &Int) -> Option<u32> {
    b.as_const().filter(|c| *c > 0 && *c <= 1 << 30 && c.count_ones() == 1).map(|c| c.trailing_zeros())
}
