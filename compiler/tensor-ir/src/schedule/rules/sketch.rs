//! The function under schedule, with shorthands for the instructions.

use super::analysis::{consumes_plainly, iterations, position};
use super::decline::Decline;
use super::script::{NOTHING, Script};
use super::unit::{Unit, block_of, readers, stands_before_window};
use super::view::{View, elements_per_word};
use crate::attr::AttrStruct;
use crate::int::{self, Int};
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::CutKernel;
use crate::schedule::FlattenBuffer;
use crate::schedule::Fuse;
use crate::schedule::Inline;
use crate::schedule::MergeNests;
use crate::schedule::Reorder;
use crate::schedule::ScheduleTarget;
use crate::schedule::Split;
use crate::schedule::SplitEpilogue;
use crate::schedule::Unroll;
use crate::schedule::Vectorize;
use crate::schedule::loops::{LoopHead, loops_around_block};
use crate::schedule::{Axis, Bind};
use crate::schedule::{InstrRef, Instruction, ScheduleError, apply, new_violation, rewritten, simplify_function};
use crate::tir::analysis::compared::compared_again;
use crate::tir::{BufferId, Cond, CondOp, LoopKind, TensorFunction};

/// A tensor function that a rule works on.
#[derive(Clone)]
pub struct Sketch<'a> {
    /// The function so far.
    pub f: TensorFunction,
    /// The device.
    pub profile: &'a DeviceProfile,
    /// The same with what the user asks for.
    pub target: ScheduleTarget<'a>,
    /// Parameters that may be prepacked.
    pub constants: &'a [BufferId],
    /// The current rule was requested by name: it takes every unit that it can, whether or not that suits the device.
    pub asked: bool,
    /// The unit that the rule at work schedules, by its name.
    pub unit: Name,
    /// The given parts of the schedule.
    pub(super) script: &'a Script,
    /// Race checks are deferred to the end of the batch.
    deferred: bool,
}

impl<'a> Sketch<'a> {
    /// Starts with an unscheduled function.
    pub(super) fn new(
        f: TensorFunction,
        constants: &'a [BufferId],
        target: ScheduleTarget<'a>,
        script: &'a Script,
    ) -> Self {
        Sketch { f, profile: target.profile, target, constants, asked: false, unit: "".into(), script, deferred: false }
    }
    /// Starts with a function of which the estimate asks what the rules would make. Nobody runs it, so that nobody asks
    /// whether its loops may run side by side.
    pub(super) fn to_predict(
        f: TensorFunction,
        constants: &'a [BufferId],
        target: ScheduleTarget<'a>,
        script: &'a Script,
    ) -> Self {
        Sketch { deferred: true, ..Sketch::new(f, constants, target, script) }
    }
    /// Starts with the function of a view, on which a rule may try what it would do.
    pub fn of_view(view: &View<'a>) -> Sketch<'a> {
        Sketch { asked: view.asked, ..Sketch::new(view.f.clone(), view.constants, view.target, &NOTHING) }
    }
    /// The function as it is now, to look at.
    pub fn view(&self) -> View<'_> {
        View::new(&self.f, self.constants, self.target, self.asked)
    }
    /// Applies any instruction.
    ///
    /// # Errors
    /// When it does not apply.
    pub fn apply(&mut self, i: impl Instruction + AttrStruct) -> Result<(), ScheduleError> {
        if !self.deferred {
            return apply(&mut self.f, InstrRef::new(i));
        }
        self.f = rewritten(&self.f, &InstrRef::new(i))?;
        Ok(())
    }
    /// Runs `steps` with one race check at the end. If it fails, the steps run again with a check after each
    /// instruction, so that they can react to a refusal.
    pub fn together<T>(&mut self, steps: impl Fn(&mut Self) -> T) -> T {
        if self.deferred {
            return steps(self);
        }
        let start = self.clone();
        self.deferred = true;
        let done = steps(self);
        self.deferred = false;
        if self.f.trace.len() == start.f.trace.len() || new_violation(&start.f, &self.f).is_none() {
            return done;
        }
        *self = start;
        steps(self)
    }
    /// Declines if loops that are parallel in `start`, or were bound since, may not run in parallel.
    ///
    /// # Errors
    /// Why they may not.
    pub fn side_by_side(&self, start: &TensorFunction) -> Result<(), Decline> {
        new_violation(start, &self.f).map_or(Ok(()), |v| Err(Decline(v.message)))
    }
    /// `split`.
    ///
    /// # Errors
    /// When it does not apply.
    pub fn split(&mut self, var: Name, factors: &[i64], into: &[&str]) -> Result<Vec<Name>, ScheduleError> {
        let into: Vec<Name> = into.iter().map(|s| Name::new(&format!("{var}_{s}"))).collect();
        self.apply(Split { r#loop: var, factors: factors.to_vec(), into: into.clone() })?;
        Ok(into)
    }
    /// Elements of a storage word of the buffer that `block` stores to.
    pub fn elements_per_word(&self, block: Name) -> i64 {
        self.view().elements_per_word(block)
    }
    /// Joins the dimensions of the buffer that `block` stores to.
    ///
    /// # Errors
    /// When `flatten-buffer` does not apply.
    pub fn flatten_output(&mut self, block: Name) -> Result<(), Decline> {
        let blocks = self.f.body.blocks();
        let Some(b) = blocks.iter().find(|b| b.name == block) else { return Ok(()) };
        let buffer = &self.f.buffers[b.buffer];
        if buffer.shape.len() > 1 {
            let (buffer, dims) = (buffer.name, (0..buffer.shape.len()).collect());
            self.apply(FlattenBuffer { buffer, dims })?;
        }
        Ok(())
    }
    /// Declines when a block of a packed buffer in `buffers` does not store whole words: neighbours in a vectorised
    /// loop, aligned to the word. Blocks in `later` are not scheduled yet. Processors store halves and bytes one by
    /// one.
    ///
    /// # Errors
    /// The reason.
    pub fn require_whole_words(&self, buffers: &[BufferId], later: &[Name]) -> Result<(), Decline> {
        if !self.profile.model().shaders {
            return Ok(());
        }
        for b in self.f.body.blocks() {
            let buffer = &self.f.buffers[b.buffer];
            let pack = elements_per_word(buffer);
            let concerned = buffers.contains(&b.buffer) && !later.contains(&b.name);
            if pack == 1 || !concerned || buffer.numel().is(1) {
                continue;
            }
            let lane = loops_around_block(&self.f, b.name)
                .ok()
                .and_then(|around| around.into_iter().rev().find(|l| l.kind == LoopKind::Vectorize));
            let whole = lane.is_some_and(|l| {
                let bounds = self.f.bounds();
                let flat = int::simplify(&int::flatten_index(&b.indices, &buffer.shape), &bounds);
                let first = int::simplify(&flat.substitute(l.var, &Int::new(0)), &bounds);
                let step = int::simplify(&(flat - &first - Int::var(l.var)), &bounds);
                let numel = buffer.numel();
                // A condition that differs between the lanes splits words, but for the end of the buffer: padding
                // follows it.
                let end = |c: &Cond| {
                    let ahead = int::simplify(&(c.lhs.clone() - &first - Int::var(l.var)), &bounds);
                    c.op == CondOp::Lt && c.rhs == numel && ahead.is(0)
                };
                let guarded = b.guards.iter().all(|c| !(c.lhs.uses(l.var) || c.rhs.uses(l.var)) || end(c));
                step.is(0) && int::divisor(&first) % pack == 0 && int::divisor(&l.extent) % pack == 0 && guarded
            });
            if !whole {
                return Err(Decline(format!("{} does not store whole words of packed {}", b.name, buffer.name)));
            }
        }
        Ok(())
    }
    /// Loops around `block` inside loop `at`, outermost first.
    ///
    /// # Errors
    /// When there is no such block.
    pub fn inside(&self, block: Name, at: Name) -> Result<Vec<Name>, Decline> {
        let around = self.loops(block)?;
        let start = around.iter().position(|l| l.var == at).map_or(0, |p| p + 1);
        Ok(around[start..].iter().map(|l| l.var).collect())
    }
    /// `fuse`; a single loop stays as it is.
    ///
    /// # Errors
    /// When it does not apply.
    pub fn fuse(&mut self, loops: &[Name], into: Name) -> Result<Name, ScheduleError> {
        if let [one] = loops {
            return Ok(*one);
        }
        self.apply(Fuse { loops: loops.to_vec(), into })?;
        Ok(into)
    }
    /// `reorder`; nothing for fewer than two loops.
    ///
    /// # Errors
    /// When it does not apply.
    pub fn reorder(&mut self, loops: &[Name]) -> Result<(), ScheduleError> {
        if loops.len() < 2 { Ok(()) } else { self.apply(Reorder { loops: loops.to_vec() }) }
    }
    /// `bind`.
    ///
    /// # Errors
    /// When it does not apply.
    pub fn bind(&mut self, var: Name, axis: Axis) -> Result<(), ScheduleError> {
        self.apply(Bind { r#loop: var, axis })
    }
    /// `unroll`.
    ///
    /// # Errors
    /// When it does not apply.
    pub fn unroll(&mut self, var: Name) -> Result<(), ScheduleError> {
        self.apply(Unroll { r#loop: var })
    }
    /// `vectorize`; nothing for a loop of one iteration.
    ///
    /// # Errors
    /// When it does not apply.
    pub fn vectorize(&mut self, var: Name) -> Result<(), ScheduleError> {
        let extent = self.extent_of(var);
        if extent == Some(1) { Ok(()) } else { self.apply(Vectorize { r#loop: var }) }
    }
    /// Constant extent of a loop.
    pub fn extent_of(&self, var: Name) -> Option<i64> {
        self.view().extent_of(var)
    }
    /// Loops around a block, outermost first.
    ///
    /// # Errors
    /// When there is no such block.
    pub fn loops(&self, block: Name) -> Result<Vec<LoopHead>, Decline> {
        self.view().loops(block)
    }
    /// Inlines every compute block that can be: prologues into what reads them, epilogues into the last one. What
    /// stands between a reduction and another one over windows stays the epilogue of the first. Elements that are
    /// compared with each other are computed once ([`compared_again`]).
    pub fn inline_all(&mut self) {
        let compared = compared_again(&self.f);
        let names: Vec<Name> = self.f.body.blocks().iter().filter(|b| b.reduce.is_none()).map(|b| b.name).collect();
        for block in names {
            let output = self.f.body.blocks().iter().find(|b| b.name == block).map(|b| b.buffer);
            let stays = |b: BufferId| compared.contains(&b) || self.f.outputs().any(|o| o == b);
            if output.is_some_and(stays) || stands_before_window(&self.f, block) {
                continue;
            }
            // If the instruction refuses, the block stays and gets a separate kernel.
            let _ = self.apply(Inline { block });
        }
        self.remove_unread();
    }
    /// Removes blocks whose results nobody reads, the last ones first: inlining has shown that their readers' loads
    /// never happen.
    fn remove_unread(&mut self) {
        let outputs: Vec<BufferId> = self.f.outputs().collect();
        if self.f.body.blocks().iter().all(|b| outputs.contains(&b.buffer)) {
            return;
        }
        let mut simple = self.f.clone();
        simplify_function(&mut simple);
        let loads =
            |block: Name, buffer: BufferId| simple.body.blocks().iter().any(|b| b.name == block && b.accesses(buffer));
        let names: Vec<(Name, BufferId)> = self.f.body.blocks().iter().map(|b| (b.name, b.buffer)).collect();
        for (block, buffer) in names.into_iter().rev() {
            let reads = |b: Name| b != block && loads(b, buffer);
            let read = self.f.body.blocks().iter().any(|b| b.accesses(buffer) && reads(b.name));
            if !read && !self.f.outputs().any(|o| o == buffer) {
                let _ = self.apply(Inline { block });
            }
        }
    }
    /// Splits the function into units, giving accumulators that are not private a copying consumer first.
    ///
    /// # Errors
    /// When `split-epilogue` fails: a bug.
    pub fn units(&mut self) -> Result<Vec<Unit>, ScheduleError> {
        let names: Vec<(Name, bool)> = self.f.body.blocks().iter().map(|b| (b.name, b.reduce.is_some())).collect();
        let mut units: Vec<Unit> = Vec::new();
        let mut claimed: Vec<Name> = Vec::new();
        for (name, is_reduce) in names {
            if !is_reduce {
                if !claimed.contains(&name) {
                    let work = iterations(&self.view(), name);
                    units.push(Unit { reduce: None, window: None, output: name, work });
                }
                continue;
            }
            let work = iterations(&self.view(), name);
            let buffer = block_of(&self.f, name).map(|b| b.buffer);
            let consumer = buffer.and_then(|b| {
                let r = readers(&self.f, b);
                let is_output = self.f.outputs().any(|o| o == b);
                match r.as_slice() {
                    [one] if !is_output => Some(*one),
                    _ => None,
                }
            });
            let usable = consumer.filter(|c| !claimed.contains(c) && consumes_plainly(&self.view(), name, *c));
            let output = match usable {
                Some(c) => c,
                None => self.split_epilogue(name)?,
            };
            claimed.push(output);
            units.push(Unit { reduce: Some(name), window: None, output, work });
        }
        units.sort_by_key(|u| position(&self.f, u.output));
        Ok(units)
    }
    /// `split-epilogue`; returns the copying block.
    ///
    /// # Errors
    /// When it does not apply.
    pub fn split_epilogue(&mut self, block: Name) -> Result<Name, ScheduleError> {
        let into = Name::new(&format!("{block}_out"));
        self.apply(SplitEpilogue { block, into, ..Default::default() })?;
        Ok(into)
    }
    /// Binds the outer loops of a block to workgroups as they stand, as far as its results lie along them.
    ///
    /// # Errors
    /// When a loop cannot be bound.
    pub fn bind_outer_loops(&mut self, block: Name) -> Result<(), Decline> {
        let loops = self.loops(block)?;
        let indices: Vec<Int> =
            self.f.body.blocks().iter().filter(|b| b.name == block).flat_map(|b| b.indices.iter().cloned()).collect();
        let along = |l: &&LoopHead| l.extent.is(1) || indices.iter().any(|i| i.uses(l.var));
        let outer: Vec<Name> = loops.iter().take_while(along).map(|l| l.var).collect();
        for (l, axis) in outer.into_iter().zip([Axis::GroupZ, Axis::GroupY, Axis::GroupX]) {
            self.bind(l, axis)?;
        }
        Ok(())
    }
    /// True when a rule has bound loops around the unit's last block already (a rule may take several units).
    pub fn is_scheduled(&self, unit: &Unit) -> bool {
        match loops_around_block(&self.f, unit.output) {
            Ok(loops) => loops.iter().any(|l| l.kind != crate::tir::LoopKind::Serial),
            Err(_) => true,
        }
    }
    /// Lets a unit that is a compute block alone run in the loops of one whose result it reads element by element: one
    /// kernel with several results. Packed results stay apart, since a unit's rule looks after the words of one.
    pub fn merge_outputs(&mut self, units: &[Unit]) {
        for (n, unit) in units.iter().enumerate().filter(|u| u.1.reduce.is_none()) {
            let blocks = self.f.body.blocks();
            let Some(block) = blocks.iter().find(|b| b.name == unit.output) else { continue };
            let feeds = |u: &&Unit| blocks.iter().any(|b| b.name == u.output && block.reads(b.buffer));
            let Some(into) = units[..n].iter().rev().find(feeds).map(|u| u.output) else { continue };
            if self.elements_per_word(into) > 1 || self.elements_per_word(unit.output) > 1 {
                continue;
            }
            // A refusal leaves a kernel of its own.
            let _ = self.apply(MergeNests { block: unit.output, into });
        }
    }
    /// Cuts kernels, as it is written where it is.
    ///
    /// # Errors
    /// When `cut-kernel` fails.
    pub fn finish(mut self) -> Result<TensorFunction, ScheduleError> {
        match &self.script.end {
            Some(list) => self.replay(list)?,
            None => self.apply(CutKernel { together: vec![] })?,
        }
        Ok(self.f)
    }
    /// A constant extent or a decline.
    ///
    /// # Errors
    /// For symbolic extents.
    pub fn constant_extent(&self, e: &Int) -> Result<i64, Decline> {
        self.view().constant_extent(e)
    }
}
