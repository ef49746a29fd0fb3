//! Serial loops of the shader.
//!
//! Some drivers' compilers unroll short loops and then sink prefetch loads to their stores, or spill registers (the
//! quirks `unrolls-loops` and `unrolls-scalar-loops`). There the bound of a short loop with barriers depends on the
//! workgroup's number, by a condition that always holds, so the driver cannot unroll the loop.

use crate::builder::{Kind, Value};
use crate::error::EmitError;
use crate::grid::open_end;
use crate::kernel::KernelEmitter;
use crate::lines::Source;
use crate::tree::Node;
use naga::{BinaryOperator, Expression, Handle, Statement};
use rustc_hash::FxHashSet;
use tensor_ir::int::Int;
use tensor_ir::name::Name;

/// Iterations, at most, of a loop that a compiler would unroll (Mesa's: 26 instructions for each of 32 iterations, and
/// a loop with barriers has at least a dozen).
const SHORT: i64 = 64;

impl KernelEmitter<'_> {
    /// A counted loop; the test is at the end if there is at least one iteration.
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

    /// A loop from a start and with a step; 0 and 1 if not given.
    pub fn counted_from(
        &mut self,
        var: Name,
        extent: &Int,
        body: &Node,
        (bounds, at_least_one): (Option<[Handle<Expression>; 2]>, bool),
    ) -> Result<(), EmitError> {
        let counter = self.b.counter(var);
        let end = if bounds.is_none() { self.end(var, extent, body)? } else { self.int(extent)? };
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

    /// The bound of a loop. For a short loop that must not be unrolled
    /// ([`keeps_loops`](tensor_ir::profile::DeviceProfile::keeps_loops)), it depends on a condition that always holds,
    /// but that compilers cannot evaluate.
    fn end(&mut self, var: Name, extent: &Int, body: &Node) -> Result<Handle<Expression>, EmitError> {
        let end = self.int(extent)?;
        let short = extent.as_const().is_some_and(|n| (2..=SHORT).contains(&n));
        if !(short && self.keeps_loop(body)) {
            return Ok(end);
        }
        let (once, condition) = (self.b.i32(1), self.always());
        let end = self.b.emit_at(0, Expression::Select { condition, accept: end, reject: once });
        self.b.name(end, &format!("{var}_end"));
        Ok(end)
    }

    /// A condition that always holds, but that compilers cannot evaluate: the workgroup's number is below the grid's
    /// size.
    pub fn always(&mut self) -> Handle<Expression> {
        let id = self.workgroup_id();
        let most = self.b.u32(self.workgroup.1);
        let left = self.b.emit_at(0, Expression::AccessIndex { base: id, index: 0 });
        self.b.emit_at(0, Expression::Binary { op: BinaryOperator::Less, left, right: most })
    }

    /// Whether a loop of this body is to stay one.
    fn keeps_loop(&self, body: &Node) -> bool {
        if !body.needs_uniform_flow(&|_| false) {
            let long = self.long_without_barriers && self.profile.keeps_loops_without_barriers();
            // Rows between two products (softmax), whose rounds would all live beside what they share.
            return long || self.on_matrices && self.profile.keeps_loops(true);
        }
        let mut matrices = false;
        body.visit_leaves(&mut |leaf| matrices |= !leaf.tensor.is_empty());
        self.profile.keeps_loops(matrices)
    }

    pub fn forget_written(&mut self, body: &Node) {
        let mut written = FxHashSet::default();
        body.visit_leaves(&mut |l| {
            written.insert(l.buffer);
        });
        self.b.forget(&|b| written.contains(&b));
    }
}
