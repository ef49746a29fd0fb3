//! The verifier of plans: between the definition of a value and its last read, no step writes the buffer that holds it.
//! A plan that it refuses is always a bug of the planner (exit code 6).
//!
//! It follows a run of the plan with the names of values instead of their elements. The reads and writes that a step
//! should do come from the graph: the operands and results of its node. The reads and writes that it does come from the
//! plan: buffers and slices. So the verifier and the planner share no computation of lifetimes. For each slice of each
//! buffer the verifier knows which values are there, and which step wrote last. It runs in debug builds, if
//! `CompileOptions::verify` requests it, and for each list of open sizes.
//!
//! Checked:
//! - the buffer that a step reads holds the right value in all its slices: for each binding of a kernel, each operand
//!   of a host step, each condition and number of iterations that the host reads, each operand and result of a call,
//!   and each result of the network;
//! - kernels of one group do not overwrite each other's results and scratch before the last of them has run;
//! - no dispatch reads a value in a buffer that it writes, but an operand that the result updates, which is there; a
//!   result of a host function on device buffers shares a buffer with an operand only if it is declared in place of it;
//! - no step writes inputs or constants, and a called function writes only its own buffers;
//! - after a branch, a buffer holds what both sides leave there: the earlier value if neither side writes it, a result
//!   if both sides yield it;
//! - values from before a loop are in their buffers in every iteration: no step of the body writes them;
//! - each iteration finds its arguments in place, and leaves its carried values, its collected rows and its condition
//!   where the loop expects them; the buffers of a loop are distinct, so that the buffers of carried values may be
//!   swapped;
//! - a call may overwrite all buffers of the functions that it reaches; all calls of a function use the same buffers.
//!
//! Not checked: that values fit their buffers, and what kernels do with their bindings.

mod control;
mod state;
#[cfg(test)]
mod tests;

use super::callees::{Bodies, Callees};
use super::error::CompileError;
use crate::arena::Id;
use crate::graph::{Function, Module, NodeId, ValueId};
use crate::name::Name;
use crate::ops::control::{CallHost, Const};
use crate::plan::{BufferIndex, Content, Dispatch, HostContent, HostStep, Plan, PlanKernel, Step};
use crate::tir::{Access, BufferId, Update};
use rustc_hash::{FxHashMap, FxHashSet};
use state::{Held, State, Writer};

/// The reference for verifying plans of a module.
#[derive(Clone)]
pub(super) struct PlanValues {
    /// The node of each group.
    nodes: Vec<NodeId>,
    /// The operands of views, by their results.
    views: FxHashMap<ValueId, ValueId>,
    /// The role of each binding of each kernel.
    kernels: Vec<Vec<Role>>,
    /// For each kernel, the results that update an operand of its group, with these operands.
    updates: Vec<Vec<(usize, usize)>>,
}

/// The role of a binding.
#[derive(Clone, Copy)]
enum Role {
    /// The n-th operand of the group's node.
    Operand(usize),
    /// The n-th result.
    Result(usize),
    /// Scratch: written by one kernel of the group for another.
    Scratch(BufferId),
}

impl PlanValues {
    /// The reference of `main`, joined with its callees, whose groups became `kernels` of `module`; `is_view` is true
    /// for groups without kernels.
    pub fn of(module: &Module, main: &Function, is_view: impl Fn(usize) -> bool, kernels: &[PlanKernel]) -> PlanValues {
        let planned = |n: &NodeId| !main.nodes[*n].op.is::<Const>() && !main.nodes[*n].op.is::<Callees>();
        let nodes: Vec<NodeId> = main.walk().into_iter().filter(planned).collect();
        let views = nodes.iter().enumerate().filter(|(group, _)| is_view(*group)).filter_map(|(_, &n)| {
            let node = &main.nodes[n];
            Some((*node.outputs.first()?, node.inputs.iter().flatten().next().copied()?))
        });
        let views = views.collect();
        let roles = |k: &PlanKernel| {
            let f = module.tensor_functions.get(&k.function);
            let at = |b: BufferId| {
                let operand = f.and_then(|f| f.inputs().position(|x| x == b)).map(Role::Operand);
                operand.or_else(|| f.and_then(|f| f.outputs().position(|x| x == b)).map(Role::Result))
            };
            k.emitted.bindings.iter().map(|b| at(b.buffer).unwrap_or(Role::Scratch(b.buffer))).collect()
        };
        let updates = |k: &PlanKernel| {
            let f = module.tensor_functions.get(&k.function)?;
            let pair = |u: &Update| {
                Some((f.outputs().position(|b| b == u.result)?, f.inputs().position(|b| Some(b) == u.of)?))
            };
            Some(f.updates.iter().filter_map(pair).collect())
        };
        let updates = kernels.iter().map(|k| updates(k).unwrap_or_default()).collect();
        PlanValues { views, kernels: kernels.iter().map(roles).collect(), updates, nodes }
    }
}

/// Holds a plan against the function that it is a plan of.
///
/// # Errors
/// [`CompileError::Bug`] with the first step that reads something else than it should.
pub(super) fn verify_plan(plan: &Plan, main: &Function, values: &PlanValues) -> Result<(), CompileError> {
    let slices =
        plan.buffers.iter().map(|b| b.bytes.div_ceil(b.slice_bytes.max(1)).clamp(1, u64::from(u32::MAX)) as u32);
    let mut v = Verifier {
        plan,
        main,
        values,
        bodies: Bodies::of(main),
        slices: slices.collect(),
        writers: vec![],
        extents: FxHashMap::default(),
        interfaces: vec![],
        function: None,
    };
    v.interfaces = v.interfaces()?;
    let start = v.start();
    for (i, f) in plan.functions.iter().enumerate() {
        v.function = Some(i);
        v.function_body(i, &format!("@{}.", f.name), start.clone())?;
    }
    v.function = None;
    let mut state = start;
    v.steps(&plan.steps, "", &mut state)?;
    for (view, &r) in plan.outputs.iter().zip(main.results()) {
        v.expect(&state, r, view.buffer, "the end of the run")?;
    }
    Ok(())
}

/// The buffers of operands and results of a function of the plan, as its calls use them.
#[derive(Default)]
struct Interface {
    parameters: Vec<(ValueId, BufferIndex)>,
    results: Vec<(ValueId, BufferIndex)>,
}

impl Interface {
    /// Records the buffer of one parameter or result of a call; false if another call uses another buffer for it.
    fn agrees(list: &mut Vec<(ValueId, BufferIndex)>, v: ValueId, buffer: BufferIndex) -> bool {
        match list.iter().find(|(known, _)| *known == v) {
            Some((_, known)) => *known == buffer,
            None => {
                list.push((v, buffer));
                true
            }
        }
    }
}

struct Verifier<'a> {
    plan: &'a Plan,
    main: &'a Function,
    values: &'a PlanValues,
    bodies: Bodies,
    /// The number of slices of each buffer.
    slices: Vec<u32>,
    /// The steps that wrote something, for messages.
    writers: Vec<String>,
    /// The number of slices that a value takes.
    extents: FxHashMap<Held, u32>,
    /// Where the plan's functions take operands and leave results.
    interfaces: Vec<Interface>,
    /// The function whose steps are followed; none for the entry function.
    function: Option<usize>,
}

type Verified<T> = Result<T, CompileError>;

fn fault<T>(place: &str, message: String) -> Verified<T> {
    Err(CompileError::Bug { at: format!("the plan, {place}"), message })
}

impl Verifier<'_> {
    /// The state before the first step: inputs and constants.
    fn start(&mut self) -> State {
        let mut state = State::default();
        for (buffer, b) in self.plan.buffers.iter().enumerate() {
            let held = match &b.content {
                Content::Input(i) | Content::Host(HostContent::Input(i)) => self.held(self.main.params()[*i]),
                Content::Constant { name, .. } | Content::Host(HostContent::Constant(name)) => Held::Constant(*name),
                Content::Pool | Content::Host(HostContent::Value(_)) => continue,
            };
            self.extents.insert(held, self.slices[buffer]);
            (0..self.slices[buffer]).for_each(|s| state.put((buffer, s), held, None));
        }
        state
    }

    /// The content that represents a value: for a view, its operand.
    fn held(&self, v: ValueId) -> Held {
        let mut v = v;
        while let Some(&from) = self.values.views.get(&v) {
            v = from;
        }
        self.main.def_op::<Const>(v).map_or(Held::Value(v), |(_, c)| Held::Constant(c.name))
    }

    fn name_of(&self, held: Held) -> String {
        match held {
            Held::Constant(name) => format!("the constant @{name}"),
            Held::Scratch(group, b) => format!("scratch {} of group {group}", b.index()),
            Held::Value(v) => {
                let node = |n: NodeId| format!("a result of `{}`", self.main.nodes[n].name);
                let name = self.main.values[v].name.map(|n| format!("`{n}`"));
                name.or_else(|| self.main.def_node(v).map(node)).unwrap_or_else(|| format!("argument {}", v.index()))
            }
        }
    }

    /// The value is in the buffer, in all slices that it takes.
    fn expect(&self, state: &State, v: ValueId, buffer: BufferIndex, reader: &str) -> Verified<()> {
        let held = self.held(v);
        let slices = self.extents.get(&held).copied().unwrap_or(1).min(self.slices[buffer]);
        (0..slices).try_for_each(|s| self.expect_slice(state, held, (buffer, s), reader))
    }

    fn expect_slice(&self, state: &State, held: Held, at: (BufferIndex, u32), reader: &str) -> Verified<()> {
        if state.holds(at, held) {
            return Ok(());
        }
        let slice =
            if self.slices.get(at.0).is_some_and(|&n| n > 1) { format!(" (slice {})", at.1) } else { String::new() };
        let last = match (state.writer(at), state.first(at)) {
            (None, _) => "nothing has put there".to_string(),
            (Some(w), Some(other)) => {
                format!("was overwritten: {} left {} there", self.writers[w], self.name_of(other))
            }
            (Some(w), None) => format!("was overwritten by {}", self.writers[w]),
        };
        let name = self.name_of(held);
        fault(reader, format!("reads {name} in buffer {}{slice}, which {last}", at.0))
    }

    /// A step that writes, for messages.
    fn writer(&mut self, text: String) -> Writer {
        self.writers.push(text);
        self.writers.len() - 1
    }

    /// The step may write the buffer.
    fn check_write(&self, buffer: BufferIndex, step: &str) -> Verified<()> {
        match &self.plan.buffers[buffer].content {
            Content::Pool | Content::Host(HostContent::Value(_)) => {}
            other => return fault(step, format!("writes buffer {buffer}, which is not its own: {other:?}")),
        }
        let foreign = self.function.map(|f| &self.plan.functions[f]).filter(|f| !f.buffers.contains(&buffer));
        foreign.map_or(Ok(()), |f| fault(step, format!("writes buffer {buffer}, which calls of @{} share", f.name)))
    }

    /// The step leaves a value in a whole buffer.
    fn put(&mut self, state: &mut State, v: ValueId, buffer: BufferIndex, writer: Writer) -> Verified<()> {
        self.check_write(buffer, &self.writers[writer])?;
        let held = self.held(v);
        (0..self.slices[buffer]).for_each(|s| state.put((buffer, s), held, Some(writer)));
        Ok(())
    }

    /// Follows steps; `prefix` is for messages.
    fn steps(&mut self, steps: &[Step], prefix: &str, state: &mut State) -> Verified<()> {
        for (i, step) in steps.iter().enumerate() {
            let place = format!("step {prefix}{i}");
            let inside = format!("{prefix}{i}.");
            match step {
                Step::Gpu(list) => self.dispatches(list, &place, state)?,
                Step::Host(h) => self.host_step(h, &place, state)?,
                Step::Copy { from, to } => {
                    let writer = self.writer(format!("{place} (a copy of buffer {from})"));
                    self.check_write(*to, &self.writers[writer])?;
                    state.copy(*from, *to, self.slices[*to], writer);
                }
                Step::Branch(b) => self.branch(b, (&place, &inside), state)?,
                Step::Loop(l) => self.repeat(l, (&place, &inside), state)?,
                Step::Call(c) => self.call(c, &place, state)?,
            }
        }
        Ok(())
    }

    fn text_of(&self, place: &str, at: usize, d: &Dispatch) -> String {
        format!("{place}, dispatch {at} (kernel `{}`)", self.plan.kernels[d.kernel].name)
    }

    fn dispatches(&mut self, list: &[Dispatch], place: &str, state: &mut State) -> Verified<()> {
        let mut begun: FxHashSet<(Held, u32)> = FxHashSet::default();
        for (at, d) in list.iter().enumerate() {
            if at.checked_sub(1).is_some_and(|before| list[before].group != d.group) {
                begun.clear();
            }
            let text = self.text_of(place, at, d);
            let node = &self.main.nodes[self.values.nodes[d.group]];
            let operands: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
            let roles = &self.values.kernels[d.kernel];
            let operand = |i: usize| operands.get(i).map(|&v| self.held(v));
            let result = |i: usize| node.outputs.get(i).map(|&v| self.held(v));
            // The results that update an operand, with these.
            let updates = self.values.updates[d.kernel].iter();
            let updates: Vec<(Held, Held)> = updates.filter_map(|u| Some((result(u.0)?, operand(u.1)?))).collect();
            let bindings = &self.plan.kernels[d.kernel].emitted.bindings;
            let mut written: Vec<((BufferIndex, u32), Held)> = vec![];
            for ((role, binding), &target) in roles.iter().zip(bindings).zip(&d.buffers) {
                let held = match *role {
                    Role::Operand(i) => operand(i),
                    Role::Result(i) => result(i),
                    Role::Scratch(b) => Some(Held::Scratch(d.group, b)),
                };
                let Some(held) = held else {
                    return fault(&text, "binds an operand that its node does not have".into());
                };
                let writes = binding.access == Access::Write;
                let started = |held: Held| begun.contains(&(held, target.1));
                let by = updates.iter().find(|u| u.1 == held && started(u.0));
                if let Some((updated, _)) = by {
                    // An earlier kernel of the group has begun to store the result, which keeps what is read here.
                    self.expect_slice(state, *updated, target, &text)?;
                } else if !writes || started(held) {
                    self.expect_slice(state, held, target, &text)?;
                } else if let Some((_, kept)) = updates.iter().find(|u| u.0 == held) {
                    self.expect_slice(state, *kept, target, &text)?;
                }
                if writes {
                    self.check_write(target.0, &text)?;
                    written.push((target, held));
                }
            }
            let mut bound: Vec<(BufferIndex, u32)> = vec![];
            for (role, &target) in roles.iter().zip(&d.buffers) {
                let held = if let Role::Operand(i) = *role { operand(i) } else { None };
                let kept = |w: &((BufferIndex, u32), Held)| held.is_some_and(|h| updates.contains(&(w.1, h)));
                if !written.iter().any(|w| w.0 == target && kept(w)) {
                    bound.push(target);
                }
            }
            self.check_apart(&bound, &written, &text)?;
            let writer = self.writer(text);
            for (target, held) in written {
                begun.insert((held, target.1));
                let extent = self.extents.entry(held).or_default();
                *extent = (*extent).max(target.1 + 1);
                state.put(target, held, Some(writer));
            }
        }
        Ok(())
    }

    /// A dispatch binds each buffer that it writes only once in `bound`.
    fn check_apart(
        &self,
        bound: &[(BufferIndex, u32)],
        written: &[((BufferIndex, u32), Held)],
        text: &str,
    ) -> Verified<()> {
        for (target, held) in written {
            if bound.iter().filter(|b| *b == target).count() > 1 {
                let name = self.name_of(*held);
                return fault(
                    text,
                    format!("writes {name} to buffer {}, which it binds for something else too", target.0),
                );
            }
        }
        Ok(())
    }

    fn host_step(&mut self, h: &HostStep, place: &str, state: &mut State) -> Verified<()> {
        let text = format!("{place} (host step `{}`)", h.name);
        let node = &self.main.nodes[NodeId::from_index(h.node as usize)];
        for (view, &v) in h.inputs.iter().zip(node.inputs.iter().flatten()) {
            self.expect(state, v, view.buffer, &text)?;
        }
        let call = node.op.downcast::<CallHost>().filter(|c| c.on_device);
        for (i, output) in h.outputs.iter().enumerate().filter(|_| call.is_some()) {
            let taken = call.and_then(|c| c.in_place_operand(i));
            let shared =
                h.inputs.iter().enumerate().find(|(j, input)| Some(*j) != taken && input.buffer == output.buffer);
            if let Some((j, input)) = shared {
                let what = format!("result {i} and operand {j} (`{}`) are in buffer {}", input.name, output.buffer);
                return fault(&text, format!("{what}, and it does not take its place"));
            }
        }
        let writer = self.writer(text);
        let (outputs, results) = (h.outputs.clone(), node.outputs.clone());
        for (view, &v) in outputs.iter().zip(&results) {
            let held = self.held(v);
            let elements: u64 = view.shape.iter().map(|&n| n as u64).product();
            let bytes = view.encoding.storage_bytes(view.dtype, elements);
            let slices = bytes.div_ceil(self.plan.buffers[view.buffer].slice_bytes.max(1));
            self.extents.insert(held, u32::try_from(slices).unwrap_or(u32::MAX).clamp(1, self.slices[view.buffer]));
            self.put(state, v, view.buffer, writer)?;
        }
        Ok(())
    }

    fn node_name(&self, group: usize) -> Name {
        self.main.nodes[self.values.nodes[group]].name
    }
}
