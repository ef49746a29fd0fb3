//! Nodes with regions in the entry function: branches and loops. Their steps are in the one list of pending steps,
//! between a begin and an end marker.
//!
//! The steps of both sides of a branch follow each other, and the body of a loop is listed once, so their buffers are
//! planned once. A value that a loop reads from outside lives until the end of the loop. The result of a region is
//! computed directly in its buffer if possible, else copied.

use super::callees::Bodies;
use super::numbering::BufferKey;
use super::planning::{LOWERING, Lowering, Origins, Planner};
use super::residency::value_encoding;
use super::steps::{Pending, PendingLoop, PendingRows};
use super::storage::StorageLocation;
use super::{CompileError, GroupKind};
use crate::graph::{BlockId, Node, NodeId, ValueId};
use crate::int::divisor;
use crate::ops::control::Loop;
use crate::remark::RemarkKind;

impl Planner<'_> {
    /// An `if`: the branch that a run takes is decided by one value that the host reads.
    pub(super) fn branch(&mut self, n: NodeId, lowered: &Lowering, functions: &Origins) -> Result<(), CompileError> {
        let main = self.main;
        let node = &main.nodes[n];
        let (group, report) = self.group();
        report.kind = GroupKind::Control;
        self.remark(LOWERING, RemarkKind::Applied, "a branch: the host reads its condition alone".into());
        let Some(condition) = node.inputs.first().copied().flatten() else { return Ok(()) };
        let step = self.pending.len();
        self.touch(condition, step);
        for &v in &node.outputs {
            self.new_value(main.ty(v), v, step);
        }
        self.pending.push(Pending::Branch { condition, group });
        for &region in &node.regions {
            self.aim(n, region);
            self.block(region, lowered, functions)?;
            for (&from, to) in main.blocks[region].results.iter().zip(&node.outputs) {
                let (step, from_location, to_location) = (self.pending.len(), self.location[&from], self.location[to]);
                self.touch(from, step);
                self.touch(*to, step);
                if from_location != to_location {
                    self.pending.push(Pending::Copy { from: from_location, to: to_location });
                }
            }
            self.pending.push(Pending::EndBranch);
        }
        Ok(())
    }

    /// A call of a function that stays one: the host follows it, and each call that is under way has memory of its own.
    pub(super) fn call(&mut self, n: NodeId) {
        let (group, report) = self.group();
        report.kind = GroupKind::Control;
        let name = self.main.nodes[n].op.callee().unwrap_or(self.main.name);
        self.remark(LOWERING, RemarkKind::Applied, format!("a call of @{name}, on buffers of its own"));
        let node = &self.main.nodes[n];
        let step = self.pending.len();
        node.inputs.iter().flatten().for_each(|&v| self.touch(v, step));
        for &v in &node.outputs {
            self.new_value(self.main.ty(v), v, step);
        }
        self.pending.push(Pending::Call { node: n, group });
    }

    /// The bodies of the functions that calls reach, each with places of its own for all its values.
    pub(super) fn functions(&mut self, lowered: &Lowering, functions: &Origins) -> Result<(), CompileError> {
        let main = self.main;
        for (i, (name, body)) in Bodies::of(main).iter().enumerate() {
            self.pool.enter(Some(i));
            self.function = Some(name);
            self.results.clear();
            let on_host = self.on_host;
            self.pending.push(Pending::Function(name));
            for &arg in &main.blocks[body].args {
                self.new_value(main.ty(arg), arg, self.pending.len());
            }
            self.block(body, lowered, functions)?;
            let last = self.pending.len();
            main.blocks[body].results.iter().for_each(|&v| self.touch(v, last));
            self.pending.push(Pending::EndFunction { on_host: on_host..self.on_host });
            self.pool.enter(None);
            self.function = None;
        }
        Ok(())
    }

    /// Lets a branch compute its results directly in the buffers of the `if`'s results.
    fn aim(&mut self, n: NodeId, region: BlockId) {
        let main = self.main;
        let to: Vec<StorageLocation> = main.nodes[n].outputs.iter().map(|v| self.location[v]).collect();
        self.aim_at(region, main.blocks[region].results.iter().copied().zip(to));
    }

    /// Lets a region compute its own results directly in their final buffers.
    fn aim_at(&mut self, region: BlockId, results: impl Iterator<Item = (ValueId, StorageLocation)>) {
        let main = self.main;
        self.results.clear();
        for (from, to) in results {
            let root = self.aliases.root(from);
            let here = main.def_node(root).is_some_and(|d| main.nodes[d].block == Some(region));
            if let (true, StorageLocation::Pool(id)) = (here, to) {
                self.results.entry(root).or_insert(id);
            }
        }
    }

    /// A loop: each carried value has two buffers, one that an iteration reads and one that it writes for the next.
    pub(super) fn repeat(&mut self, n: NodeId, lowered: &Lowering, functions: &Origins) -> Result<(), CompileError> {
        let main = self.main;
        let node = &main.nodes[n];
        let (Some(op), &[body]) = (node.op.downcast::<Loop>(), node.regions.as_slice()) else { return Ok(()) };
        self.group().1.kind = GroupKind::Control;
        self.remark(LOWERING, RemarkKind::Applied, loop_remark(op, node));
        let (args, yields) = (&main.blocks[body].args, &main.blocks[body].results);
        let carried = self.carry(node, &args[1..]);
        let pending = self.pending_loop(n, body, &carried)?;
        let first = self.pending.len();
        // The host reads these when the loop begins, which is behind the copies of the first values.
        [pending.trips, pending.begin].into_iter().flatten().for_each(|v| self.touch(v, first));
        self.pending.push(Pending::Loop(Box::new(pending)));
        let next: Vec<(ValueId, StorageLocation)> =
            yields.iter().skip(op.leading()).copied().zip(carried.iter().map(|c| c.1)).collect();
        self.aim_at(body, next.iter().copied());
        self.block(body, lowered, functions)?;
        for &(from, to) in &next {
            let (step, location) = (self.pending.len(), self.location[&from]);
            self.touch(from, step);
            if location != to {
                self.pending.push(Pending::Copy { from: location, to });
            }
        }
        let last = self.pending.len();
        let stay = carried.iter().flat_map(|c| [c.0, c.1]);
        let results: Vec<StorageLocation> = node.outputs.iter().map(|v| self.location[v]).collect();
        for location in stay.chain(results) {
            if let StorageLocation::Pool(id) = location {
                self.pool.touch(id, last);
            }
        }
        yields.iter().chain(args).for_each(|&v| self.touch(v, last));
        self.pending.push(Pending::EndLoop);
        self.pool.extend_over(first, last);
        Ok(())
    }

    /// Two places for each value that a loop carries, with the first value in the one that iterations read. The results
    /// are there in the end.
    fn carry(&mut self, node: &Node, args: &[ValueId]) -> Vec<(StorageLocation, StorageLocation)> {
        let main = self.main;
        let mut out = vec![];
        for ((&arg, &result), first) in args.iter().zip(&node.outputs).zip(node.inputs.iter().skip(Loop::CONTROL)) {
            let step = self.pending.len();
            self.new_value(main.ty(arg), arg, step);
            let now = self.location[&arg];
            let next = match now {
                StorageLocation::Pool(id) => StorageLocation::Pool(self.pool.add_like(id, step)),
                StorageLocation::Own(_) => self.on_host_value(),
            };
            self.location.insert(result, now);
            if let Some(&first) = first.as_ref() {
                self.touch(first, step);
                self.pending.push(Pending::Copy { from: self.location[&first], to: now });
            }
            out.push((now, next));
        }
        out
    }

    /// The loop, with places for the number of the iteration and for what is collected.
    fn pending_loop(
        &mut self,
        n: NodeId,
        body: BlockId,
        carried: &[(StorageLocation, StorageLocation)],
    ) -> Result<PendingLoop, CompileError> {
        let main = self.main;
        let node = &main.nodes[n];
        let op = node.op.downcast::<Loop>();
        let goes_on = op.is_some_and(|op| op.r#while);
        let step = self.pending.len();
        let (args, yields) = (&main.blocks[body].args, &main.blocks[body].results);
        let index = args[0];
        self.new_value(main.ty(index), index, step);
        let rows = yields.iter().skip(op.map_or(0, Loop::leading) + carried.len());
        let mut collected = vec![];
        for (&row, &all) in rows.zip(&node.outputs[carried.len()..]) {
            // The open sizes of a network are known before a run, other symbols are not.
            let grows = self.shown.main().ty(all).const_shape().is_none();
            if grows {
                self.grow(all);
            } else {
                self.new_value(main.ty(all), all, step);
            }
            let location = self.location[&all];
            self.check_rows(node, row, location)?;
            collected.push(PendingRows { row, all: location, grows });
        }
        let operand = |i: usize| node.inputs.get(i).copied().flatten();
        Ok(PendingLoop {
            node: n,
            trips: operand(0),
            begin: operand(1),
            go_on: goes_on.then(|| yields[0]),
            index: main.is_used(index).then_some(index),
            carried: carried.to_vec(),
            collected,
            group: self.group().0,
        })
    }

    /// Gives a value whose size only a run decides a place of its own.
    fn grow(&mut self, v: ValueId) {
        let own = BufferKey::Growing(self.growing.len());
        let location = if self.on_device.contains(&v) { StorageLocation::Own(own) } else { self.on_host_value() };
        self.location.insert(v, location);
        self.growing.insert(v);
    }

    /// Rows that are collected on the device stand one behind the other, and are copied in words.
    fn check_rows(&self, node: &Node, row: ValueId, all: StorageLocation) -> Result<(), CompileError> {
        let ty = self.main.ty(row);
        let bits = i64::from(value_encoding(ty.dtype, self.profile).unwrap_or_default().element_bits(ty.dtype));
        let elements = ty.numel();
        if all.is_on_host() || divisor(&(elements.clone() * bits)) % 32 == 0 {
            return Ok(());
        }
        let why = format!("`{}` collects rows of {elements} {}, which are no whole words", node.name, ty.dtype);
        Err(CompileError::NeedsCpu(why))
    }
}

fn loop_remark(op: &Loop, node: &Node) -> String {
    let given = node.inputs.first().copied().flatten().is_some();
    let trips = match (&op.trips, given) {
        (Some(n), _) => format!("a loop of {n} iterations"),
        (None, true) => "a loop; the host reads the number of iterations".into(),
        (None, false) => "a loop".into(),
    };
    match op.r#while {
        true => format!("{trips}: of each iteration the host reads the condition alone"),
        false => format!("{trips}: the host reads nothing of an iteration"),
    }
}
