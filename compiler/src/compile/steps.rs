//! The third stage: the steps of a run in order, for any sizes. They name nodes and values; nothing has a buffer yet.
//!
//! Both sides of an `if` and the body of a loop are lists of steps of their own. Each function that stays a call has a
//! list too.

use super::callees::{Bodies, Callees, Joined, called};
use super::dispatches::{AnyDispatch, dispatches};
use super::group_form::Form;
use super::scheduled::Scheduled;
use crate::graph::{BlockId, Function, Module, Node, NodeId, ValueId};
use crate::name::Name;
use crate::ops::control::{CallHost, Const, If, Loop};

/// The steps of a network.
pub(super) struct Steps {
    /// Those of the entry function.
    pub entry: Vec<AnyStep>,
    /// The functions that calls reach, in the order of [`Bodies`].
    pub functions: Vec<FunctionSteps>,
}

/// The steps of a function that calls reach.
pub(super) struct FunctionSteps {
    pub name: Name,
    pub body: BlockId,
    pub steps: Vec<AnyStep>,
}

/// How one node runs, for any sizes.
pub(super) struct AnyStep {
    pub node: NodeId,
    /// The number of the group; groups are numbered in the order of steps.
    pub group: usize,
    pub action: Action,
}

/// The work of a step.
pub(super) enum Action {
    /// Nothing: the result is the operand's memory.
    View,
    /// Dispatches kernels, of which sizes decide if there are versions.
    Kernels(Vec<AnyDispatch>),
    /// Computes on the host.
    Host,
    /// Calls a host function.
    HostCall,
    /// Runs the first list if the condition holds, else the second.
    Branch(Vec<Vec<AnyStep>>),
    /// Repeats its body.
    Loop(Vec<AnyStep>),
    /// Calls a function of the plan.
    Call,
}

impl Steps {
    /// The steps of the entry function and of those that it calls.
    pub fn of(joined: &Joined, scheduled: &Scheduled) -> Steps {
        let mut numbering = Numbered { joined, scheduled, groups: 0 };
        let entry = numbering.block(joined.main.body);
        let bodies = Bodies::of(&joined.main);
        let functions =
            bodies.iter().map(|(name, body)| FunctionSteps { name, body, steps: numbering.block(body) }).collect();
        Steps { entry, functions }
    }

    /// All steps in order, each with the function that it is a step of; none for the entry function.
    pub fn all(&self) -> Vec<(Option<Name>, &AnyStep)> {
        let mut out = vec![];
        add_all(&self.entry, None, &mut out);
        self.functions.iter().for_each(|f| add_all(&f.steps, Some(f.name), &mut out));
        out
    }

    /// All dispatches in order, with their groups.
    pub fn dispatches(&self) -> impl Iterator<Item = (usize, &AnyDispatch)> {
        self.all().into_iter().flat_map(|(_, step)| {
            let list = if let Action::Kernels(list) = &step.action { list.as_slice() } else { &[] };
            list.iter().map(|d| (step.group, d))
        })
    }

    /// The nodes that run on the host.
    pub fn host_nodes(&self) -> impl Iterator<Item = NodeId> {
        let on_host = |s: &&AnyStep| matches!(s.action, Action::Host | Action::HostCall);
        self.all().into_iter().map(|s| s.1).filter(on_host).map(|s| s.node)
    }
}

fn add_all<'s>(steps: &'s [AnyStep], function: Option<Name>, out: &mut Vec<(Option<Name>, &'s AnyStep)>) {
    for step in steps {
        out.push((function, step));
        match &step.action {
            Action::Branch(sides) => sides.iter().for_each(|side| add_all(side, function, out)),
            Action::Loop(body) => add_all(body, function, out),
            _ => {}
        }
    }
}

/// Numbers the groups while it makes steps.
struct Numbered<'a> {
    joined: &'a Joined,
    scheduled: &'a Scheduled,
    groups: usize,
}

impl Numbered<'_> {
    fn block(&mut self, block: BlockId) -> Vec<AnyStep> {
        let main = &self.joined.main;
        let runs = |n: &&NodeId| !main.nodes[**n].op.is::<Const>() && !main.nodes[**n].op.is::<Callees>();
        main.blocks[block].nodes.iter().filter(runs).map(|&n| self.step(n)).collect()
    }

    fn step(&mut self, node: NodeId) -> AnyStep {
        let group = self.groups;
        self.groups += 1;
        let Joined { module, main, .. } = self.joined;
        let action = match (self.scheduled.lowered.forms.get(&node), self.scheduled.origin(node)) {
            (Some(Form::View), _) => Action::View,
            (_, Some(origin)) => Action::Kernels(dispatches(main, node, origin, self.scheduled)),
            (Some(Form::Host(_)), _) => Action::Host,
            _ => self.outside_groups(module, node),
        };
        AnyStep { node, group, action }
    }

    /// Of a node that is no group.
    fn outside_groups(&mut self, module: &Module, n: NodeId) -> Action {
        let main = &self.joined.main;
        let node = &main.nodes[n];
        match node.regions.as_slice() {
            regions if node.op.is::<If>() => Action::Branch(regions.iter().map(|&r| self.block(r)).collect()),
            &[body] if node.op.is::<Loop>() => Action::Loop(self.block(body)),
            _ if node.op.is::<CallHost>() => Action::HostCall,
            _ if called(module, main, n).is_some() => Action::Call,
            _ => Action::Host,
        }
    }
}

/// The values of a loop.
pub(super) struct LoopValues<'a> {
    /// The operand that says the number of iterations, where that does not follow from sizes.
    pub trips: Option<ValueId>,
    /// The condition before the first iteration.
    pub begin: Option<ValueId>,
    /// The condition after each iteration.
    pub go_on: Option<ValueId>,
    /// The number of the iteration, in its body.
    pub index: ValueId,
    pub carried: Vec<CarriedValue>,
    /// For each list of collected rows, the row of one iteration and all rows.
    pub rows: Vec<(ValueId, ValueId)>,
    /// The arguments of the body, and what it yields.
    pub ends: (&'a [ValueId], &'a [ValueId]),
}

/// A value that a loop carries.
pub(super) struct CarriedValue {
    pub first: Option<ValueId>,
    /// The argument of the body.
    pub now: ValueId,
    /// The value that the body yields for the next iteration.
    pub next: ValueId,
    /// The result of the loop.
    pub result: ValueId,
}

impl<'a> LoopValues<'a> {
    /// Those of a loop of `main` with this body.
    pub fn of(main: &'a Function, node: &Node) -> LoopValues<'a> {
        let body = &main.blocks[node.regions[0]];
        let op = node.op.downcast::<Loop>();
        let leading = op.map_or(0, Loop::leading);
        let firsts = node.inputs.iter().skip(Loop::CONTROL);
        let places = body.args[1..].iter().zip(&node.outputs).zip(firsts).zip(body.results.iter().skip(leading));
        let carried = places.map(|(((&now, &result), &first), &next)| CarriedValue { first, now, next, result });
        let carried: Vec<CarriedValue> = carried.collect();
        let rows = body.results.iter().skip(leading + carried.len());
        let operand = |i: usize| node.inputs.get(i).copied().flatten();
        LoopValues {
            trips: operand(0),
            begin: operand(1),
            go_on: op.is_some_and(|op| op.r#while).then(|| body.results[0]),
            index: body.args[0],
            rows: rows.copied().zip(node.outputs[carried.len()..].iter().copied()).collect(),
            carried,
            ends: (&body.args, &body.results),
        }
    }
}
