//! Loops at run time.

use crate::builder::{Kind, Value};
use crate::error::EmitError;
use crate::grid::open_end;
use crate::kernel::KernelEmitter;
use crate::lines::Source;
use crate::tree::Node;
use compiler::int::Int;
use compiler::name::Name;
use naga::{BinaryOperator, Expression, Handle, Statement};
use rustc_hash::FxHashSet;

impl KernelEmitter<'_> {
    /// A counted loop; the test is at the end where there is at least one iteration.
    pub fn serial_loop(&mut self, var: Name, extent: &Int, body: &Node) -> Result<(), EmitError> {
        let before = self.b.sources.enter(Source { block: body.only_block(), around: Some(var) });
        let done = self.counted(var, extent, body);
        self.b.sources.leave(before);
        done
    }

    fn counted(&mut self, var: Name, extent: &Int, body: &Node) -> Result<(), EmitError> {
        let at_least_one = self.ranges.prove(extent, 1, i64::MAX);
        let mark = self.ranges.mark();
        self.ranges.assume(&open_end(&Int::var(var), extent));
        let done = self.counted_from(var, extent, body, (None, at_least_one));
        self.ranges.forget(mark);
        done
    }

    /// A loop from one place on in steps of another, of 0 and 1 where there are none.
    pub fn counted_from(
        &mut self,
        var: Name,
        extent: &Int,
        body: &Node,
        (bounds, at_least_one): (Option<[Handle<Expression>; 2]>, bool),
    ) -> Result<(), EmitError> {
        let counter = self.b.counter(var);
        let end = self.int(extent)?;
        let pointer = self.b.local(counter);
        let start = bounds.map_or_else(|| self.b.i32(0), |b| b[0]);
        self.b.store(pointer, start);
        self.forget_written(body);
        self.b.open();
        if !at_least_one {
            let now = self.b.load(pointer, Kind::I32, 1, None);
            let end = Value { handle: end, ..now };
            let done = self.b.binary(BinaryOperator::GreaterEqual, now, end);
            let mut accept = naga::Block::new();
            accept.push(Statement::Break, naga::Span::UNDEFINED);
            self.b.statement(Statement::If { condition: done.handle, accept, reject: naga::Block::new() });
        }
        let value = self.b.load(pointer, Kind::I32, 1, None);
        self.define(var, value.handle);
        self.node(body)?;
        self.vars.remove(&var);
        self.levels.clear();
        let body_block = self.b.close();
        self.b.open();
        let step = bounds.map_or_else(|| self.b.i32(1), |b| b[1]);
        let next = self.b.add(value, Value { handle: step, ..value });
        self.b.store(pointer, next.handle);
        let break_if = at_least_one.then(|| {
            let end = Value { handle: end, ..next };
            self.b.binary(BinaryOperator::GreaterEqual, next, end).handle
        });
        let continuing = self.b.close();
        self.b.statement(Statement::Loop { body: body_block, continuing, break_if });
        self.forget_written(body);
        Ok(())
    }

    pub fn forget_written(&mut self, body: &Node) {
        let mut written = FxHashSet::default();
        body.visit_leaves(&mut |l| {
            written.insert(l.buffer);
        });
        self.b.forget(&|b| written.contains(&b));
    }
}
