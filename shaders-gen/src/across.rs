//! Combines values of all threads of a workgroup: within each subgroup, then across subgroups (a `combine` loop).
//!
//! The driver chooses the size of subgroups and their threads, per kernel. Each subgroup combines the values of its
//! threads, and its first thread stores the result in the subgroup's own element of a workgroup array. After a barrier
//! every subgroup combines the array, each of its threads loading one result at a time. The profile's smallest subgroup
//! size only bounds the length of the array.

use crate::builder::{Kind, Value};
use crate::error::EmitError;
use crate::kernel::KernelEmitter;
use crate::tree::Leaf;
use naga::{AddressSpace, Barrier, BinaryOperator as B, BuiltIn, Expression, Handle, Statement};
use tensor_ir::profile::Nan;
use tensor_ir::tir::Combiner;

impl KernelEmitter<'_> {
    /// Combines `v` over all threads along x: each gets the result.
    pub fn across_threads(&mut self, leaf: &Leaf, v: Value) -> Result<Value, EmitError> {
        let Some(combiner) = leaf.combiner else { return Ok(v) };
        if v.lanes != 1 || !matches!(v.kind, Kind::F32 | Kind::I32 | Kind::U32) {
            let text = format!("block `{}`: threads combine single words of 32 bits", self.block);
            return Err(EmitError::unsupported(text));
        }
        let (threads, least) = (self.axes.workgroup()[0], self.profile.subgroup.0.max(1));
        let own = self.across_subgroup(combiner, v);
        if threads <= least {
            return Ok(own);
        }
        let count = threads.div_ceil(least);
        let held = self.subgroup_results(v.kind, count);
        if self.b.top() > 0 {
            // In a loop, other subgroups may still read the values of the previous iteration.
            self.b.statement(Statement::ControlBarrier(Barrier::WORK_GROUP));
        }
        let lane = self.subgroup_builtin(BuiltIn::SubgroupInvocationId, "subgroup_lane");
        let address = self.subgroup_builtin(BuiltIn::SubgroupId, "subgroup");
        let zero = Value { handle: self.b.u32(0), kind: Kind::U32, lanes: 1 };
        let first = self.b.binary(B::Equal, lane, zero);
        self.branch(first.handle, |this| {
            let pointer = this.b.emit(Expression::Access { base: held, index: address.handle });
            this.b.store(pointer, own.handle);
            Ok(())
        })?;
        self.b.statement(Statement::ControlBarrier(Barrier::WORK_GROUP));
        let subgroups = self.subgroup_builtin(BuiltIn::NumSubgroups, "subgroups");
        let identity = self.b.identity(combiner, v.kind, 1, self.f.buffers[leaf.buffer].dtype);
        let mut all: Option<Value> = None;
        // One round if a subgroup has at least as many threads as there are subgroups.
        for round in 0..count.div_ceil(least) {
            let mut at = lane;
            if round > 0 {
                let size = self.subgroup_builtin(BuiltIn::SubgroupSize, "subgroup_size");
                let by = self.b.u32(round);
                let by = self.b.mul(size, Value { handle: by, ..size });
                at = self.b.add(lane, by);
            }
            let there = self.b.binary(B::Less, at, subgroups);
            let index = self.b.select(there, at, zero);
            let pointer = self.b.emit(Expression::Access { base: held, index: index.handle });
            let other = self.b.load(pointer, v.kind, 1, None);
            let other = self.b.select(there, other, identity);
            all = Some(match all {
                Some(sum) => self.b.combine(combiner, sum, other, self.f.buffers[leaf.buffer].dtype),
                None => other,
            });
        }
        Ok(self.across_subgroup(combiner, all.unwrap_or(identity)))
    }

    fn across_subgroup(&mut self, combiner: Combiner, v: Value) -> Value {
        let op = match combiner {
            Combiner::Sum => naga::SubgroupOperation::Add,
            Combiner::Prod => naga::SubgroupOperation::Mul,
            Combiner::Max => naga::SubgroupOperation::Max,
            Combiner::Min => naga::SubgroupOperation::Min,
        };
        let all = self.subgroup_reduce(op, v);
        if v.kind != Kind::F32 || !combiner.is_extremum() || self.b.nan == Nan::Fast {
            return all;
        }
        // Devices leave NaN out of their extrema.
        let is_nan = self.b.is_nan(v);
        let any = self.subgroup_reduce(naga::SubgroupOperation::Any, is_nan);
        let nan = self.b.c(v, f64::NAN);
        self.b.select(any, nan, all)
    }

    fn subgroup_reduce(&mut self, op: naga::SubgroupOperation, v: Value) -> Value {
        self.b.capabilities |= naga::valid::Capabilities::SUBGROUP;
        let ty = self.b.lanes_ty(v.kind, v.lanes);
        let result = self.b.declare(Expression::SubgroupOperationResult { ty });
        let collective_op = naga::CollectiveOperation::Reduce;
        self.b.statement(Statement::SubgroupCollectiveOperation { op, collective_op, argument: v.handle, result });
        Value { handle: result, ..v }
    }

    /// Workgroup memory for one word of each of `count` subgroups.
    fn subgroup_results(&mut self, kind: Kind, count: u32) -> Handle<Expression> {
        let word = self.b.lanes_ty(kind, 1);
        let ty = self.b.array_ty(word, 4, Some(count));
        let name = format!("{}_subgroups", self.block);
        self.shared_bytes = self.shared_bytes.saturating_add((4 * count).next_multiple_of(16));
        let var = self.b.global_var(&name, AddressSpace::WorkGroup, ty, None);
        self.b.global(var)
    }

    pub fn subgroup_builtin(&mut self, builtin: BuiltIn, name: &str) -> Value {
        let known = self.subgroup_builtins.iter().find(|b| b.0 == builtin).map(|b| b.1);
        let handle = known.unwrap_or_else(|| {
            let ty = self.b.lanes_ty(Kind::U32, 1);
            self.argument(builtin, name, ty)
        });
        if known.is_none() {
            self.subgroup_builtins.push((builtin, handle));
        }
        Value { handle, kind: Kind::U32, lanes: 1 }
    }

    /// A workgroup's index on the device.
    pub fn workgroup_id(&mut self) -> Handle<Expression> {
        let id = self.workgroup.0.unwrap_or_else(|| self.builtin(BuiltIn::WorkGroupId, "group"));
        self.workgroup.0 = Some(id);
        id
    }

    /// An argument of three numbers.
    pub fn builtin(&mut self, builtin: BuiltIn, name: &str) -> Handle<Expression> {
        let scalar = naga::Scalar::U32;
        let ty = self.b.ty(naga::TypeInner::Vector { size: naga::VectorSize::Tri, scalar });
        self.argument(builtin, name, ty)
    }

    /// An argument of the entry point.
    pub fn argument(&mut self, builtin: BuiltIn, name: &str, ty: Handle<naga::Type>) -> Handle<Expression> {
        let index = self.b.function.arguments.len() as u32;
        let binding = Some(naga::Binding::BuiltIn(builtin));
        self.b.function.arguments.push(naga::FunctionArgument { name: Some(name.into()), ty, binding });
        self.b.declare(Expression::FunctionArgument(index))
    }
}
