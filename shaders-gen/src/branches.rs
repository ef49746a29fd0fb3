//! Sequences of statements. A condition followed by its opposite becomes one branch with two sides.
//!
//! On a device with few registers per thread, if a thread takes the same side in every iteration of a loop, the first
//! part of the load addresses on both sides becomes one value, chosen before the loop.

use crate::access::{Form, resolve_form};
use crate::error::EmitError;
use crate::kernel::KernelEmitter;
use crate::lines::Source;
use crate::tree::{Node, has_load};
use naga::{Expression, Handle, Statement};
use tensor_ir::int::Int;
use tensor_ir::tir::{Cond, CondOp, Scope};

impl KernelEmitter<'_> {
    /// Statements one after another. A statement under a condition and the next one under the opposite condition become
    /// the two sides of one branch.
    pub fn sequence(&mut self, list: &[Node]) -> Result<(), EmitError> {
        let mut rest = list;
        while let Some((first, others)) = rest.split_first() {
            let combined = self.combined_together(rest)?;
            if combined > 0 {
                rest = &rest[combined..];
                continue;
            }
            rest = others;
            if let (Node::If { conds, body }, Some(Node::If { conds: other, body: otherwise })) =
                (first, others.first())
                && let Some((common, decides)) = opposites(conds, other)
            {
                self.either(&common, decides, [(conds, body), (other, otherwise)])?;
                rest = &others[1..];
            } else {
                self.node(first)?;
            }
        }
        Ok(())
    }

    /// `if conds { body }`; the body may use them as facts. Without conditions it is a branch that is always taken.
    pub fn conditional(&mut self, conds: &[Cond], body: &Node) -> Result<(), EmitError> {
        let condition = if conds.is_empty() { self.always() } else { self.all(conds)?.handle };
        let mark = self.ranges.mark();
        self.ranges.assume(conds);
        let done = self.branch(condition, |this| this.node(body));
        self.ranges.forget(mark);
        done
    }

    /// `if decides { .. } else { .. }` under the conditions of `common`; each side may use its own conditions as facts.
    fn either(&mut self, common: &[Cond], decides: &Cond, sides: [(&[Cond], &Node); 2]) -> Result<(), EmitError> {
        let around = if common.is_empty() { None } else { Some(self.all(common)?.handle) };
        let condition = self.all(std::slice::from_ref(decides))?.handle;
        let bases = self.one_base(decides, condition, sides)?;
        let side = |this: &mut Self, (n, (conds, body)): (usize, (&[Cond], &Node))| {
            let around = std::mem::replace(&mut this.shared_base, bases.as_ref().map(|b| b[n].clone()));
            let source = Source { block: body.last_block(), ..this.b.sources.current() };
            let before = this.b.sources.enter(source);
            let mark = this.ranges.mark();
            this.ranges.assume(conds);
            this.b.open();
            let done = this.node(body);
            let block = this.b.close();
            this.ranges.forget(mark);
            this.b.sources.leave(before);
            this.shared_base = around;
            done.map(|()| block)
        };
        let both = |this: &mut Self| {
            let [accept, reject] = [0, 1].map(|n| side(this, (n, sides[n])));
            this.b.statement(Statement::If { condition, accept: accept?, reject: reject? });
            Ok(())
        };
        match around {
            Some(around) => self.branch(around, both),
            None => both(self),
        }
    }
}

impl KernelEmitter<'_> {
    /// For devices with few registers: if a thread takes the same side of a branch in every iteration of a loop, the
    /// common parts of the load addresses of both sides become one value, so that a thread holds one base instead of
    /// two.
    fn one_base(
        &mut self,
        decides: &Cond,
        condition: Handle<Expression>,
        sides: [(&[Cond], &Node); 2],
    ) -> Result<Option<[(Int, Handle<Expression>); 2]>, EmitError> {
        let here = self.b.top();
        let decided = self.level(&decides.lhs).max(self.level(&decides.rhs));
        if !self.profile.has_few_registers() || decided >= here {
            return Ok(None);
        }
        let [Some(a), Some(b)] = [self.base_of(sides[0], here)?, self.base_of(sides[1], here)?] else {
            return Ok(None);
        };
        let (accept, reject) = (self.int(&a)?, self.int(&b)?);
        let level = decided.max(self.level(&a)).max(self.level(&b));
        let base = self.b.emit_at(level, Expression::Select { condition, accept, reject });
        Ok(Some([(a, base), (b, base)]))
    }

    /// The common part of the addresses of all loads from device memory on one side, as far as scopes from `below` on
    /// do not change it.
    fn base_of(&mut self, (conds, body): (&[Cond], &Node), below: usize) -> Result<Option<Int>, EmitError> {
        let mark = self.ranges.mark();
        self.ranges.assume(conds);
        let mut units = Vec::new();
        body.visit_leaves(&mut |leaf| {
            for (b, ix) in leaf.value.loads() {
                if let (Scope::Global, Some(layout)) = (self.f.buffers[b].scope, self.layouts.get(&b)) {
                    match resolve_form(&self.f.buffers[b], ix, leaf.lane, self.ranges) {
                        Form::One(i) | Form::Run { base: i, .. } => {
                            units.push(Some(self.ranges.simplify(&i.div(layout.unit()))));
                        }
                        Form::Each(_) => units.push(None),
                    }
                }
            }
        });
        self.ranges.forget(mark);
        let mut found = None;
        for unit in units {
            let Some(part) = unit.map(|u| self.outer_part(&u, below)).transpose()?.flatten() else { return Ok(None) };
            if *found.get_or_insert(part.clone()) != part {
                return Ok(None);
            }
        }
        Ok(found)
    }
}

/// The common conditions of both lists, and the one condition of the first list whose opposite is in the second, if
/// they differ in nothing else. A condition that reads memory does not qualify: its body may change the memory.
fn opposites<'c>(a: &'c [Cond], b: &[Cond]) -> Option<(Vec<Cond>, &'c Cond)> {
    let (common, own): (Vec<&Cond>, Vec<&Cond>) = a.iter().partition(|c| b.contains(c));
    let theirs: Vec<&Cond> = b.iter().filter(|c| !a.contains(c)).collect();
    let (&[c], &[d]) = (own.as_slice(), theirs.as_slice()) else { return None };
    let opposite = matches!((c.op, d.op), (CondOp::Lt, CondOp::Ge) | (CondOp::Ge, CondOp::Lt));
    let loads = [&c.lhs, &c.rhs].into_iter().any(has_load);
    (opposite && !loads && (&c.lhs, &c.rhs) == (&d.lhs, &d.rhs)).then(|| (common.into_iter().cloned().collect(), c))
}
