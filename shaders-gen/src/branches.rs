//! Sequences of statements, in which a condition and its opposite make one branch.

use crate::error::EmitError;
use crate::kernel::KernelEmitter;
use crate::lines::Source;
use crate::tree::{Node, has_load};
use compiler::tir::{Cond, CondOp};
use naga::Statement;

impl KernelEmitter<'_> {
    /// Statements one after another. What stands under a condition and what follows under its opposite are the two sides of one branch.
    pub fn sequence(&mut self, list: &[Node]) -> Result<(), EmitError> {
        let mut rest = list;
        while let Some((first, others)) = rest.split_first() {
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

    /// `if decides { .. } else { .. }`, where all conditions of `common` hold; each side knows its own conditions.
    fn either(&mut self, common: &[Cond], decides: &Cond, sides: [(&[Cond], &Node); 2]) -> Result<(), EmitError> {
        let around = if common.is_empty() { None } else { Some(self.all(common)?.handle) };
        let condition = self.all(std::slice::from_ref(decides))?.handle;
        let side = |this: &mut Self, (conds, body): (&[Cond], &Node)| {
            let source = Source { block: body.last_block(), ..this.b.sources.current() };
            let before = this.b.sources.enter(source);
            let mark = this.ranges.mark();
            this.ranges.assume(conds);
            this.b.open();
            let done = this.node(body);
            let block = this.b.close();
            this.ranges.forget(mark);
            this.b.sources.leave(before);
            done.map(|()| block)
        };
        let both = |this: &mut Self| {
            let [accept, reject] = sides.map(|s| side(this, s));
            this.b.statement(Statement::If { condition, accept: accept?, reject: reject? });
            Ok(())
        };
        match around {
            Some(around) => self.branch(around, both),
            None => both(self),
        }
    }
}

/// The conditions that both lists have, and the one of the first list whose opposite the second has in its place, where they differ in
/// nothing else. A condition on what memory holds is none: what stands under it may change that.
fn opposites<'c>(a: &'c [Cond], b: &[Cond]) -> Option<(Vec<Cond>, &'c Cond)> {
    let (common, own): (Vec<&Cond>, Vec<&Cond>) = a.iter().partition(|c| b.contains(c));
    let theirs: Vec<&Cond> = b.iter().filter(|c| !a.contains(c)).collect();
    let (&[c], &[d]) = (own.as_slice(), theirs.as_slice()) else { return None };
    let opposite = matches!((c.op, d.op), (CondOp::Lt, CondOp::Ge) | (CondOp::Ge, CondOp::Lt));
    let loads = [&c.lhs, &c.rhs].into_iter().any(has_load);
    (opposite && !loads && (&c.lhs, &c.rhs) == (&d.lhs, &d.rhs)).then(|| (common.into_iter().cloned().collect(), c))
}
