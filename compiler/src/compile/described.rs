//! Descriptions of the steps: a report of each group, remarks, and names of kernels.

use super::callees::Joined;
use super::dispatches::AnyDispatch;
use super::group_form::Form;
use super::groups::{Group, fused_group, host_group, written_group};
use super::names::{KernelNames, Sources};
use super::scheduled::Scheduled;
use super::sizes::{Shown, number_in};
use super::steps::{Action, AnyStep, Steps};
use crate::external::Region;
use crate::graph::{Function, Module, Node, NodeId, ValueId};
use crate::ops::control::{CallHost, CallTensor, Loop};
use crate::plan::PlanKernel;
use crate::remark::{Remark, RemarkKind, SCHEDULING};
use crate::report::GroupKind;
use rustc_hash::FxHashMap;

/// The pass name in remarks about the forms of groups.
const LOWERING: &str = "lower-groups";

/// The groups of a plan and the remarks about them.
pub(super) struct Described {
    /// In execution order.
    pub groups: Vec<Group>,
    pub remarks: Vec<Remark>,
}

impl Described {
    /// Describes all steps with the numbers of `shown`; remarks follow the remarks of the passes.
    pub fn of(
        joined: &Joined,
        (shown, sources): (&Shown, &Sources),
        scheduled: &Scheduled,
        steps: &Steps,
        remarks: Vec<Remark>,
    ) -> Described {
        let about = About { joined, shown, sources, scheduled };
        let mut all = Described { groups: vec![], remarks };
        for (function, step) in steps.all() {
            let mut group = about.group(step);
            if let Some(function) = function {
                group.label = format!("{function}.{}", group.label);
            }
            all.remarks.extend(about.remarks(step).into_iter().map(|(pass, kind, message)| Remark {
                pass: pass.into(),
                kind,
                nodes: group.origins.clone(),
                message,
                detail: String::new(),
            }));
            all.groups.push(group);
        }
        all.relate(&joined.main, steps);
        all
    }

    /// Which group reads which, and which hold the model's results.
    fn relate(&mut self, main: &Function, steps: &Steps) {
        let mut maker: FxHashMap<ValueId, usize> = FxHashMap::default();
        for (_, step) in steps.all() {
            let node = &main.nodes[step.node];
            let yielded = node.regions.iter().flat_map(|&r| main.blocks[r].results.iter());
            let read = node.inputs.iter().flatten().chain(yielded);
            let mut reads: Vec<usize> = read.filter_map(|v| maker.get(v).copied()).collect();
            reads.sort_unstable();
            reads.dedup();
            self.groups[step.group].reads = reads;
            maker.extend(node.outputs.iter().map(|&v| (v, step.group)));
        }
        for v in main.results() {
            if let Some(&group) = maker.get(v) {
                self.groups[group].is_result = true;
            }
        }
    }

    /// The kernels with names, after their first calls.
    pub fn named(&self, mut kernels: Vec<PlanKernel>, steps: &Steps, module: &Module) -> Vec<PlanKernel> {
        let mut names = KernelNames::default();
        for (group, d) in steps.dispatches() {
            let k = &mut kernels[d.kernel];
            if k.name.is_empty() {
                let alone = module.tensor_functions[&k.function].kernels().len() == 1;
                let when = d.version.as_ref().and_then(|v| v.conditions()).unwrap_or_default();
                k.name = names.give(&self.groups[group].label, (!alone).then_some(k.part), when);
            }
        }
        kernels
    }
}

/// The stages that groups are described by.
struct About<'a> {
    joined: &'a Joined,
    shown: &'a Shown,
    sources: &'a Sources,
    scheduled: &'a Scheduled,
}

/// The pass, kind and text of a remark.
type Said = (&'static str, RemarkKind, String);

impl About<'_> {
    fn group(&self, step: &AnyStep) -> Group {
        let (n, origin) = (step.node, self.scheduled.origin(step.node));
        let mut group = self.nodes_of(n, origin.map_or(&[][..], |o| o.stages.as_slice()));
        match &step.action {
            Action::View => group.kind = GroupKind::View,
            Action::Kernels(dispatches) => {
                let built = origin.map(|o| self.scheduled.function(o).0);
                group.rule = built.map_or("", |b| b.rule);
                group.tensor_function = built.map(|b| b.name());
                (group.flops, group.bytes) = self.work(dispatches);
            }
            Action::Host | Action::HostCall => {
                group.kind = GroupKind::Host;
                group.host_function = self.host_call(n).map(|c| c.callee);
            }
            Action::Branch(_) | Action::Loop(_) | Action::Call => group.kind = GroupKind::Control,
        }
        group
    }

    /// The nodes of a group, and their work.
    fn nodes_of(&self, n: NodeId, stages: &[Option<NodeId>]) -> Group {
        let (main, shown) = (&self.joined.main, &self.shown.module);
        let op = &main.nodes[n].op;
        if let Some(call) = op.downcast::<CallTensor>() {
            return written_group(shown.main(), n, call.callee, self.sources);
        }
        // A region of an external target is shown as a fused group is, by its nodes.
        if let Some(call) = op.downcast::<CallHost>().filter(|c| c.external_target().is_some())
            && let Some(f) = shown.functions.get(&call.reference)
        {
            return fused_group(shown.main(), n, f, &[], self.sources);
        }
        match op.callee().and_then(|c| shown.functions.get(&c)) {
            Some(f) if f.primitive => fused_group(shown.main(), n, f, stages, self.sources),
            _ => host_group(main, n, self.sources),
        }
    }

    /// Operations and bytes of the dispatches that a run of the shown sizes has.
    fn work(&self, dispatches: &[AnyDispatch]) -> (u64, u64) {
        let size = number_in(&self.shown.sizes);
        let run = dispatches.iter().filter(|d| d.is_picked(&size));
        run.fold((0, 0), |(flops, bytes), d| (flops + d.work.flops(&size)[d.part], bytes + d.work.bytes(d.part, &size)))
    }

    fn host_call(&self, n: NodeId) -> Option<&CallHost> {
        self.joined.main.nodes[n].op.downcast::<CallHost>()
    }

    /// The remarks about a step.
    fn remarks(&self, step: &AnyStep) -> Vec<Said> {
        let node = &self.joined.main.nodes[step.node];
        let text = match &step.action {
            Action::View => "a view: its result is its operand's memory in another shape".into(),
            Action::Kernels(_) => return self.schedule_remarks(step.node),
            Action::Host => return vec![(LOWERING, RemarkKind::Missed, self.why_on_host(step.node, node))],
            Action::HostCall => self.call_remark(step.node),
            Action::Branch(_) => "a branch: the host reads its condition alone".into(),
            Action::Loop(_) => loop_remark(node),
            Action::Call => {
                let name = node.op.callee().unwrap_or(self.joined.main.name);
                format!("a call of @{name}, on buffers of its own")
            }
        };
        vec![(LOWERING, RemarkKind::Applied, text)]
    }

    fn schedule_remarks(&self, n: NodeId) -> Vec<Said> {
        let Some(built) = self.scheduled.origin(n).map(|o| self.scheduled.function(o).0) else { return vec![] };
        let of = |kind| move |line: &String| (SCHEDULING, kind, line.clone());
        let applied = built.applied.iter().map(of(RemarkKind::Applied));
        applied.chain(built.declined.iter().map(of(RemarkKind::Missed))).collect()
    }

    fn why_on_host(&self, n: NodeId, node: &Node) -> String {
        match self.scheduled.lowered.forms.get(&n) {
            Some(Form::Host(why)) => format!("runs on the host: {why}"),
            _ => format!("runs on the host: `{}` has no tensor expression", node.op.name()),
        }
    }

    fn call_remark(&self, n: NodeId) -> String {
        let Some(call) = self.host_call(n) else { return String::new() };
        let place = if call.on_device { "device buffers" } else { "tensors in host memory" };
        match call.external_target() {
            Some(target) => {
                let region = Region::of(&self.joined.module, call.reference);
                let nodes = region.map(|r| r.summary()).unwrap_or_default();
                format!("the external target {target} runs `{}`: {nodes}", call.callee)
            }
            None => format!("calls the host function `{}` on {place}", call.callee),
        }
    }
}

fn loop_remark(node: &Node) -> String {
    let op = node.op.downcast::<Loop>();
    let given = node.inputs.first().copied().flatten().is_some();
    let trips = match (op.and_then(|op| op.trips.as_ref()), given) {
        (Some(n), _) => format!("a loop of {n} iterations"),
        (None, true) => "a loop; the host reads the number of iterations".into(),
        (None, false) => "a loop".into(),
    };
    match op.is_some_and(|op| op.r#while) {
        true => format!("{trips}: of each iteration the host reads the condition alone"),
        false => format!("{trips}: the host reads nothing of an iteration"),
    }
}
