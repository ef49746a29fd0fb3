//! Combines values of all threads of a workgroup: within each subgroup, then across subgroups (a `combine` loop).
//!
//! The driver chooses the size of subgroups and their threads, per kernel. Each subgroup combines the values of its
//! threads, and its first thread stores the result in the subgroup's own element of a workgroup array. After a barrier
//! every thread combines the array, if it is short; else every subgroup does, each of its threads loading one result at
//! a time. The profile's smallest subgroup size only bounds the length of the array.
//!
//! Results that follow each other and are kept in registers are combined together, with one barrier for all.

use crate::builder::{Kind, Value};
use crate::error::EmitError;
use crate::kernel::KernelEmitter;
use crate::lines::Source;
use crate::tree::{Leaf, Node};
use naga::{AddressSpace, Barrier, BinaryOperator as B, BuiltIn, Expression, Handle, Statement};
use tensor_ir::dtype::DType;
use tensor_ir::profile::Nan;
use tensor_ir::tir::{Combiner, Scope};

/// Workgroup memory with what each of at most `count` subgroups holds of some values: value after value.
#[derive(Clone, Copy)]
struct Held {
    results: Handle<Expression>,
    count: u32,
}

/// Results of subgroups that a thread combines by itself, at most.
const FEW: u32 = 8;

impl KernelEmitter<'_> {
    /// Combines the values of several leaves at the beginning of `list` over all threads, and stores them. Returns how
    /// many nodes these are; 0 for fewer than two leaves.
    pub fn combined_together(&mut self, list: &[Node]) -> Result<usize, EmitError> {
        let leaf = |n: &Node| if let Node::Leaf(leaf) = n { Some(leaf.across) } else { None };
        if list.iter().map_while(leaf).filter(|across| *across).nth(1).is_none() {
            return Ok(0);
        }
        let leaves = self.independent(list);
        let across = || leaves.iter().filter(|l| l.across);
        let (Some(first), 2..) = (across().next(), across().count()) else { return Ok(0) };
        let mut own = vec![];
        for leaf in across() {
            self.within(leaf, |this| this.value(&leaf.value).map(|v| own.push(v)))?;
        }
        let mut all = self.across_threads(first, own)?.into_iter();
        for leaf in &leaves {
            let value = if leaf.across { all.next() } else { None };
            self.within(leaf, |this| this.guarded_store(leaf, value))?;
        }
        Ok(leaves.len())
    }

    /// Leaves that begin a list and store to registers: combinations of one kind, and stores of constants. None reads
    /// what one of them stores, but for the element that it combines into.
    fn independent<'n>(&self, list: &'n [Node]) -> Vec<&'n Leaf> {
        let leaf = |n: &'n Node| if let Node::Leaf(leaf) = n { Some(&**leaf) } else { None };
        let in_registers = |l: &&Leaf| self.f.buffers[l.buffer].scope == Scope::Register && l.guards.is_empty();
        let kind = |l: &Leaf| (l.combiner, self.f.buffers[l.buffer].dtype);
        let mut found: Vec<&Leaf> = vec![];
        for l in list.iter().map_while(leaf).take_while(in_registers) {
            let alike = found.iter().find(|o| o.across).is_none_or(|o| kind(o) == kind(l));
            let plain = l.combiner.is_none() && l.value.loads().is_empty() && l.lane.is_none();
            let apart = |value: &Leaf, stored: &Leaf| value.value.loads().iter().all(|load| load.0 != stored.buffer);
            if !(l.across && alike || plain) || found.iter().chain([&l]).any(|o| !apart(l, o)) {
                break;
            }
            found.push(l);
        }
        found
    }

    /// Combines each of the values of leaves like `leaf` over all threads along x: each thread gets the results.
    pub fn across_threads(&mut self, leaf: &Leaf, values: Vec<Value>) -> Result<Vec<Value>, EmitError> {
        let (Some(combiner), Some(&v)) = (leaf.combiner, values.first()) else { return Ok(values) };
        if values.iter().any(|v| v.lanes != 1 || !matches!(v.kind, Kind::F32 | Kind::I32 | Kind::U32)) {
            let text = format!("block `{}`: threads combine single words of 32 bits", self.block);
            return Err(EmitError::unsupported(text));
        }
        let (threads, least) = (self.axes.workgroup()[0], self.profile.subgroup.0.max(1));
        let own: Vec<Value> = values.into_iter().map(|v| self.across_subgroup(combiner, v)).collect();
        if threads <= least {
            return Ok(own);
        }
        let count = threads.div_ceil(least);
        let held = Held { results: self.subgroup_results(v.kind, count * own.len() as u32), count };
        if self.b.top() > 0 {
            // In a loop, other subgroups may still read the values of the previous iteration.
            self.b.statement(Statement::ControlBarrier(Barrier::WORK_GROUP));
        }
        let lane = self.subgroup_builtin(BuiltIn::SubgroupInvocationId, "subgroup_lane");
        let address = self.subgroup_builtin(BuiltIn::SubgroupId, "subgroup");
        let zero = Value { handle: self.b.u32(0), kind: Kind::U32, lanes: 1 };
        let first = self.b.binary(B::Equal, lane, zero);
        self.branch(first.handle, |this| {
            for (i, own) in (0..).zip(&own) {
                let pointer = this.result_at(held, i, address);
                this.b.store(pointer, own.handle);
            }
            Ok(())
        })?;
        self.b.statement(Statement::ControlBarrier(Barrier::WORK_GROUP));
        let dtype = self.f.buffers[leaf.buffer].dtype;
        Ok((0..own.len() as u32).map(|i| self.all_of(held, i, (combiner, dtype), v.kind)).collect())
    }

    /// Combines what all subgroups hold of value `i`.
    fn all_of(&mut self, held: Held, i: u32, (combiner, dtype): (Combiner, DType), kind: Kind) -> Value {
        let least = self.profile.subgroup.0.max(1);
        let (threads, few) = (self.axes.workgroup()[0], held.count <= FEW);
        let known = self.profile.fixed_subgroup().is_some_and(|size| threads.is_multiple_of(size));
        let lane = self.subgroup_builtin(BuiltIn::SubgroupInvocationId, "subgroup_lane");
        let subgroups = self.subgroup_builtin(BuiltIn::NumSubgroups, "subgroups");
        let identity = self.b.identity(combiner, kind, 1, dtype);
        let number = |this: &mut Self, n: u32| Value { handle: this.b.u32(n), kind: Kind::U32, lanes: 1 };
        let zero = number(self, 0);
        let mut all: Option<Value> = None;
        // One round if a subgroup has at least as many threads as there are subgroups.
        for round in 0..if few { held.count } else { held.count.div_ceil(least) } {
            let mut at = if few { number(self, round) } else { lane };
            if round > 0 && !few {
                let size = self.subgroup_builtin(BuiltIn::SubgroupSize, "subgroup_size");
                let by = number(self, round);
                let by = self.b.mul(size, by);
                at = self.b.add(lane, by);
            }
            // There is one subgroup at least.
            let there = (!(few && (known || round == 0))).then(|| self.b.binary(B::Less, at, subgroups));
            let index = there.filter(|_| !few).map_or(at, |there| self.b.select(there, at, zero));
            let pointer = self.result_at(held, i, index);
            let other = self.b.load(pointer, kind, 1, None);
            let other = there.map_or(other, |there| self.b.select(there, other, identity));
            all = Some(match all {
                Some(sum) => self.b.combine(combiner, sum, other, dtype),
                None => other,
            });
        }
        let all = all.unwrap_or(identity);
        if few { all } else { self.across_subgroup(combiner, all) }
    }

    /// The place of what a subgroup holds of value `i`.
    fn result_at(&mut self, held: Held, i: u32, subgroup: Value) -> Handle<Expression> {
        let mut at = subgroup;
        if i > 0 {
            let first = Value { handle: self.b.u32(i * held.count), kind: Kind::U32, lanes: 1 };
            at = self.b.add(subgroup, first);
        }
        self.b.emit(Expression::Access { base: held.results, index: at.handle })
    }

    /// Emits something of a leaf.
    pub fn within(
        &mut self,
        leaf: &Leaf,
        emit: impl FnOnce(&mut Self) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        self.block = leaf.block;
        self.lane = leaf.lane;
        let around = self.b.sources.current().around;
        let before = self.b.sources.enter(Source { block: Some(leaf.block), around });
        let mark = self.ranges.mark();
        let done = emit(self);
        self.ranges.forget(mark);
        self.lane = None;
        self.b.sources.leave(before);
        done
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

    /// Workgroup memory for so many words.
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
