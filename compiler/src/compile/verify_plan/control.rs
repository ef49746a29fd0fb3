//! Branches, loops and calls.

use super::state::{State, Writer};
use super::{Interface, Verified, Verifier, fault};
use crate::graph::ValueId;
use crate::ops::control::Loop as LoopOp;
use crate::plan::{Branch, BufferIndex, Call, Handover, Loop, Step, Trips, nested};
use std::collections::BTreeSet;

impl Verifier<'_> {
    /// The values that a call hands over: operands with parameters, and the callee's results with the node's.
    fn handed(&self, call: &Call) -> Verified<[Vec<(ValueId, ValueId, Handover)>; 2]> {
        let (main, n) = (self.main, self.values.nodes[call.group]);
        let node = &main.nodes[n];
        let place = format!("call `{}`", node.name);
        let Some((callee, body)) = self.bodies.called(main, n).filter(|(callee, _)| *callee == call.callee) else {
            return fault(&place, "is not a call of the function that its node calls".into());
        };
        let body = &main.blocks[body];
        let used = |v: &ValueId| main.is_used(*v);
        let operands: Vec<_> = node.inputs.iter().flatten().copied().zip(body.args.iter().copied()).collect();
        let operands: Vec<_> = operands.into_iter().filter(|(_, arg)| used(arg)).collect();
        let results: Vec<_> = body.results.iter().copied().zip(node.outputs.iter().copied()).collect();
        let results: Vec<_> = results.into_iter().filter(|(_, v)| used(v)).collect();
        if (operands.len(), results.len()) != (call.arguments.len(), call.results.len()) {
            return fault(&place, format!("hands over other values than @{} has", self.plan.functions[callee].name));
        }
        let with = |list: Vec<(ValueId, ValueId)>, handovers: &[Handover]| {
            list.into_iter().zip(handovers).map(|((from, to), h)| (from, to, *h)).collect()
        };
        Ok([with(operands, &call.arguments), with(results, &call.results)])
    }

    /// The interfaces of the plan's functions, on which all calls must agree.
    pub(super) fn interfaces(&self) -> Verified<Vec<Interface>> {
        let mut out: Vec<Interface> = self.plan.functions.iter().map(|_| Interface::default()).collect();
        for step in self.plan.all_steps() {
            let Step::Call(call) = step else { continue };
            let [operands, results] = self.handed(call)?;
            let interface = &mut out[call.callee];
            let same = operands.iter().all(|(_, arg, h)| Interface::agrees(&mut interface.parameters, *arg, h.to))
                && results.iter().all(|(from, _, h)| Interface::agrees(&mut interface.results, *from, h.from));
            if !same {
                let place = format!("call `{}`", self.node_name(call.group));
                return fault(&place, "hands over in other buffers than other calls of the function".into());
            }
        }
        Ok(out)
    }

    /// A function of the plan, from its parameters to its results.
    pub(super) fn function_body(&mut self, function: usize, prefix: &str, mut state: State) -> Verified<()> {
        let f = &self.plan.functions[function];
        let writer = self.writer(format!("the call of @{}", f.name));
        for (arg, buffer) in self.interfaces[function].parameters.clone() {
            self.put(&mut state, arg, buffer, writer)?;
            self.extents.insert(self.held(arg), self.slices[buffer]);
        }
        let (body, end) = (&f.body, format!("the end of @{}", f.name));
        self.steps(body, prefix, &mut state)?;
        self.interfaces[function].results.iter().try_for_each(|&(v, buffer)| self.expect(&state, v, buffer, &end))
    }

    pub(super) fn branch(&mut self, b: &Branch, (place, prefix): (&str, &str), state: &mut State) -> Verified<()> {
        let main = self.main;
        let node = &main.nodes[self.values.nodes[b.group]];
        let text = format!("{place} (branch `{}`)", node.name);
        let (Some(&Some(condition)), &[then, otherwise]) = (node.inputs.first(), node.regions.as_slice()) else {
            return fault(&text, "is not of a node with a condition and two regions".into());
        };
        self.expect(state, condition, b.condition.buffer, &text)?;
        let mut sides = vec![];
        for (steps, region, side) in [(&b.then, then, "then"), (&b.otherwise, otherwise, "else")] {
            let mut after = state.clone();
            self.steps(steps, &format!("{prefix}{side}."), &mut after)?;
            for (&from, &to) in main.blocks[region].results.iter().zip(&node.outputs) {
                let (from, to) = (self.held(from), self.held(to));
                after.also(from, to);
                let slices = self.extents.get(&from).copied().unwrap_or(1);
                let extent = self.extents.entry(to).or_default();
                *extent = (*extent).max(slices);
            }
            sides.push(after);
        }
        if let (Some(b), Some(a)) = (sides.pop(), sides.pop()) {
            *state = a.meet(b);
        }
        Ok(())
    }

    pub(super) fn repeat(&mut self, l: &Loop, (place, prefix): (&str, &str), state: &mut State) -> Verified<()> {
        let main = self.main;
        let node = &main.nodes[self.values.nodes[l.group]];
        let text = format!("{place} (loop `{}`)", node.name);
        let (Some(op), &[body]) = (node.op.downcast::<LoopOp>(), node.regions.as_slice()) else {
            return fault(&text, "is not of a node with a body".into());
        };
        let read = [if let Trips::Read(view) = &l.trips { Some(view) } else { None }, l.begin.as_ref()];
        for (view, operand) in read.into_iter().zip(&node.inputs) {
            if let (Some(view), &Some(v)) = (view, operand) {
                self.expect(state, v, view.buffer, &text)?;
            }
        }
        let (args, yields) = (&main.blocks[body].args, &main.blocks[body].results);
        let first = node.inputs.iter().skip(LoopOp::CONTROL);
        for (c, v) in l.carried.iter().zip(first.clone()) {
            v.map_or(Ok(()), |v| self.expect(state, v, c.now, &text))?;
        }
        self.check_distinct(l, &text)?;
        let prefix = format!("{prefix}body.");
        let writer = self.writer(text.clone());
        self.lose_written(&l.body, &prefix, state)?;
        for &buffer in &own_buffers(l) {
            self.check_write(buffer, &text)?;
            state.lose(buffer, self.slices[buffer], writer);
        }
        let collected = node.outputs.iter().skip(l.carried.len());
        for (c, &all) in l.collected.iter().zip(collected.clone()) {
            self.put(state, all, c.all, writer)?;
        }
        let mut inside = state.clone();
        for (c, (&arg, v)) in l.carried.iter().zip(args[1..].iter().zip(first.clone())) {
            self.put(&mut inside, arg, c.now, writer)?;
            self.take_extent(arg, v.as_ref());
        }
        if let Some(index) = &l.index {
            self.put(&mut inside, args[0], index.buffer, writer)?;
        }
        self.steps(&l.body, &prefix, &mut inside)?;
        let end = format!("the end of an iteration of {text}");
        if let (Some(view), true) = (&l.go_on, op.r#while) {
            self.expect(&inside, yields[0], view.buffer, &end)?;
        }
        let next = yields.iter().skip(op.leading());
        for (c, &v) in l.carried.iter().zip(next.clone()) {
            self.expect(&inside, v, c.next, &end)?;
        }
        for ((c, &row), &all) in l.collected.iter().zip(next.skip(l.carried.len())).zip(collected) {
            self.expect(&inside, row, c.row.buffer, &end)?;
            self.expect(&inside, all, c.all, &end)?;
        }
        for ((c, &v), first) in l.carried.iter().zip(&node.outputs).zip(first) {
            self.put(state, v, c.now, writer)?;
            self.take_extent(v, first.as_ref());
        }
        Ok(())
    }

    /// A value takes as many slices as another of its type.
    fn take_extent(&mut self, v: ValueId, like: Option<&ValueId>) {
        let slices = like.and_then(|&v| self.extents.get(&self.held(v)).copied()).unwrap_or(1);
        self.extents.insert(self.held(v), slices);
    }

    /// Buffers that change places, or get rows and numbers between iterations, are distinct.
    fn check_distinct(&self, l: &Loop, text: &str) -> Verified<()> {
        let mut seen = BTreeSet::new();
        match own_buffers(l).into_iter().find(|&b| !seen.insert(b)) {
            None => Ok(()),
            Some(b) => fault(
                text,
                format!("keeps two things in buffer {b}: carried values, rows, or the number of the iteration"),
            ),
        }
    }

    /// Removes from `state` the values that steps overwrite.
    fn lose_written(&mut self, steps: &[Step], prefix: &str, state: &mut State) -> Verified<()> {
        for (i, step) in steps.iter().enumerate() {
            let place = format!("step {prefix}{i}");
            let mut written: Vec<(BufferIndex, String)> = vec![];
            match step {
                Step::Gpu(list) => {
                    for (at, d) in list.iter().enumerate() {
                        let bindings = &self.plan.kernels[d.kernel].emitted.bindings;
                        let own =
                            bindings.iter().zip(&d.buffers).filter(|(b, _)| b.access == crate::tir::Access::Write);
                        written.extend(own.map(|(_, target)| (target.0, self.text_of(&place, at, d))));
                    }
                }
                Step::Host(h) => {
                    let text = format!("{place} (host step `{}`)", h.name);
                    written.extend(h.outputs.iter().map(|view| (view.buffer, text.clone())));
                }
                Step::Copy { from, to } => written.push((*to, format!("{place} (a copy of buffer {from})"))),
                Step::Branch(b) => {
                    self.lose_written(&b.then, &format!("{prefix}{i}.then."), state)?;
                    self.lose_written(&b.otherwise, &format!("{prefix}{i}.else."), state)?;
                }
                Step::Loop(l) => {
                    self.lose_written(&l.body, &format!("{prefix}{i}.body."), state)?;
                    let text = format!("{place} (loop `{}`)", self.node_name(l.group));
                    written.extend(own_buffers(l).into_iter().map(|b| (b, text.clone())));
                }
                Step::Call(c) => {
                    let text = format!("{place} (call `{}`)", self.node_name(c.group));
                    let results = c.results.iter().map(|h| h.to);
                    written.extend(self.overwritten(c.callee).into_iter().chain(results).map(|b| (b, text.clone())));
                }
            }
            for (buffer, text) in written {
                let writer = self.writer(text);
                state.lose(buffer, self.slices[buffer], writer);
            }
        }
        Ok(())
    }

    /// The buffers that a call of `callee` may overwrite: those of all functions that it reaches, except the caller's,
    /// since each call has its own buffers.
    fn overwritten(&self, callee: usize) -> BTreeSet<BufferIndex> {
        let mut reached = vec![callee];
        let mut at = 0;
        while let Some(&f) = reached.get(at) {
            for step in nested(&self.plan.functions[f].body) {
                if let Step::Call(c) = step
                    && !reached.contains(&c.callee)
                {
                    reached.push(c.callee);
                }
            }
            at += 1;
        }
        let others = reached.into_iter().filter(|&f| Some(f) != self.function);
        others.flat_map(|f| self.plan.functions[f].buffers.iter().copied()).collect()
    }

    pub(super) fn call(&mut self, c: &Call, place: &str, state: &mut State) -> Verified<()> {
        let text = format!("{place} (call `{}`)", self.node_name(c.group));
        let [operands, results] = self.handed(c)?;
        let writer: Writer = self.writer(text.clone());
        let inside_itself = self.function == Some(c.callee);
        for (v, arg, h) in operands {
            self.expect(state, v, h.from, &text)?;
            if !inside_itself {
                (0..self.slices[h.to]).for_each(|s| state.put((h.to, s), self.held(arg), Some(writer)));
            }
        }
        for buffer in self.overwritten(c.callee) {
            state.lose(buffer, self.slices[buffer], writer);
        }
        for (_, v, h) in results {
            self.put(state, v, h.to, writer)?;
            self.extents.insert(self.held(v), self.slices[h.to].min(self.slices[h.from]));
        }
        Ok(())
    }
}

/// The buffers that a loop writes itself, between iterations.
fn own_buffers(l: &Loop) -> Vec<BufferIndex> {
    let carried = l.carried.iter().flat_map(|c| [c.now, c.next]);
    let rows = l.collected.iter().map(|c| c.all);
    carried.chain(rows).chain(l.index.iter().map(|v| v.buffer)).collect()
}
