//! From a module of groups to tensor functions, kernels and the plan.
//!
//! `check` refuses a module that cannot have a plan. `residency` decides how each call runs and which values are on the
//! device. `kernels` schedules and emits the different tensor functions, and `groups` reports. This file turns the
//! nodes of the entry function into steps, in order, and its values into storage locations (`storage`); `memory` and
//! `numbering` assign buffers to these.

use super::callees::{Callees, called, join};
use super::check::check;
use super::groups::{fused_group, host_group, written_group};
use super::host::host_module;
use super::kernels::{Built, Emitted, FunctionId};
use super::memory::{Pool, PoolId};
use super::names::{KernelNames, Sources};
use super::numbering::{BufferKey, Packers};
use super::open::{OpenPlan, at_sizes, shown_sizes};
use super::ready::{OpenSizes, Ready};
use super::residency::{Aliases, Lowered, check_device_calls, value_encoding};
use super::steps::{Pending, Steps, VersionChoice, host_nodes};
use super::storage::StorageLocation;
use super::verify_plan::{PlanValues, verify_plan};
use super::work::GroupWork;
use super::{Backend, CompileError, Compiled, Group, GroupKind, MemoryReport, Progress};
use crate::external::Region;
use crate::graph::{BlockId, Function, Module, Node, NodeId, TensorType, ValueId, open_dims};
use crate::int::Int;
use crate::name::Name;
use crate::ops::control::{CallHost, CallTensor, Const, If, Loop};
use crate::plan::{HostContent, KernelIndex, Plan, PlanKernel};
use crate::profile::DeviceProfile;
use crate::remark::{Remark, RemarkKind};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// The pass name in remarks about the forms of groups.
pub(super) const LOWERING: &str = "lower-groups";

/// The pass of remarks about schedules.
pub(super) const SCHEDULING: &str = "schedule";

/// The forms of the entry function's nodes.
pub(super) type Lowering = FxHashMap<NodeId, Lowered>;

/// The origins of nodes' kernels.
pub(super) type Origins = FxHashMap<NodeId, Origin>;

/// The origin of a node's kernels.
pub(super) struct Origin {
    pub(super) function: FunctionId,
    /// The nodes of the tensor function's stages, in the primitive function that was lowered.
    pub(super) stages: Vec<Option<NodeId>>,
    /// The work of the group.
    pub(super) work: Arc<GroupWork>,
}

/// Plans a module whose groups are formed; with `verify`, the plan is verified against the graph.
///
/// # Errors
/// Open dimensions, modules only the interpreter can run, bugs.
pub(super) fn plan_module(
    mut module: Module,
    backend: Backend<'_>,
    remarks: Vec<Remark>,
    sources: &Sources,
    (open_sizes, verify): (&OpenSizes<'_>, bool),
    progress: Progress<'_>,
) -> Result<Compiled, CompileError> {
    let (profile, dims, source) = (backend.target.profile, &open_sizes.dims, open_sizes.source);
    let joined = join(&mut module);
    let main = module.main().clone();
    check(&module, &main)?;
    let open = open_dims(&module);
    let least: FxHashMap<Name, Int> = shown_sizes(source, &open, dims);
    let shown = at_sizes(&module, &least);
    check_device_calls(&main, profile)?;
    let Ready { lowered, on_device, constants, functions, built } =
        Ready::of(&module, &main, backend, open_sizes, progress)?;
    let Emitted { mut kernels, first_kernel, unscheduled, versions } = Emitted::of(&built, &mut module);
    let mut planner = Planner {
        module: &mut module,
        main: &main,
        shown: &shown,
        least: &least,
        profile,
        sources,
        built: &built,
        first_kernel: &first_kernel,
        constants: &constants,
        on_device: &on_device,
        remarks,
        groups: vec![],
        location: FxHashMap::default(),
        pool: Pool::default(),
        packers: Packers::default(),
        pending: vec![],
        on_host: 0,
        planned: vec![],
        aliases: Aliases::of(&main, &lowered),
        results: FxHashMap::default(),
        growing: FxHashSet::default(),
        function: None,
    };
    planner.walk(&lowered, &functions)?;
    planner.relate();
    planner.name(&mut kernels);
    let kept = if open.is_empty() { vec![] } else { kernels.clone() };
    let (plan, memory) = planner.numbered(&shown, &least, kernels)?;
    let (kernels, Planner { groups, remarks, location, pool, packers, growing, pending, .. }) = (kept, planner);
    let values = if verify { Some(verified(&module, &main, &groups, &plan)?) } else { None };
    let open = (!open.is_empty()).then(|| {
        let mut module = host_module(&module, &main, host_nodes(&pending));
        module.functions.insert(module.entry, main.clone());
        let (profile, ranges) = (profile.clone(), dims.clone());
        let (source, shown) = (source.cloned(), least.clone());
        Arc::new(OpenPlan {
            module,
            source,
            shown,
            profile,
            ranges,
            location,
            pool,
            packers,
            growing,
            pending,
            kernels,
            values,
        })
    });
    if let Some(joined) = joined {
        joined.part(&mut module);
    }
    let empty = Compiled::empty(module, profile);
    Ok(Compiled { unscheduled, versions, groups, plan, open, memory, remarks, ..empty })
}

/// Verifies the plan; returns the reference for plans of other sizes.
fn verified(module: &Module, main: &Function, groups: &[Group], plan: &Plan) -> Result<PlanValues, CompileError> {
    let is_view = |group: usize| groups.get(group).is_some_and(|g| g.kind == GroupKind::View);
    let values = PlanValues::of(module, main, is_view, &plan.kernels);
    verify_plan(plan, main, &values)?;
    Ok(values)
}

/// Makes steps of the nodes of the entry function and gives its values storage locations.
pub(super) struct Planner<'a> {
    pub(super) module: &'a mut Module,
    pub(super) main: &'a Function,
    /// The module with numbers for open sizes, for what is reported.
    pub(super) shown: &'a Module,
    /// The least sizes, which those of `shown` are.
    pub(super) least: &'a FxHashMap<Name, Int>,
    pub(super) profile: &'a DeviceProfile,
    sources: &'a Sources,
    pub(super) built: &'a [Built],
    /// Indices of the first kernel of each built function and of its versions.
    pub(super) first_kernel: &'a [Vec<KernelIndex>],
    constants: &'a FxHashMap<ValueId, Name>,
    pub(super) on_device: &'a FxHashSet<ValueId>,
    remarks: Vec<Remark>,
    groups: Vec<Group>,
    pub(super) location: FxHashMap<ValueId, StorageLocation>,
    pub(super) pool: Pool,
    pub(super) packers: Packers,
    pub(super) pending: Vec<Pending>,
    /// Values in host memory so far.
    pub(super) on_host: usize,
    /// The node of each group.
    planned: Vec<NodeId>,
    pub(super) aliases: Aliases,
    /// Values that a region computes directly in the buffers of its results.
    pub(super) results: FxHashMap<ValueId, PoolId>,
    /// Values that grow as a loop runs.
    pub(super) growing: FxHashSet<ValueId>,
    /// The called function whose body is being planned; none for the entry function.
    pub(super) function: Option<Name>,
}

impl Planner<'_> {
    fn walk(&mut self, lowered: &Lowering, functions: &Origins) -> Result<(), CompileError> {
        let main = self.main;
        for (i, &p) in main.params().iter().enumerate() {
            let host = BufferKey::Host(HostContent::Input(i));
            let own = if self.on_device.contains(&p) { BufferKey::Input(i) } else { host };
            self.location.insert(p, StorageLocation::Own(own));
        }
        self.block(main.body, lowered, functions)?;
        for &r in main.results() {
            self.touch(r, usize::MAX);
        }
        Ok(())
    }

    pub(super) fn block(
        &mut self,
        block: BlockId,
        lowered: &Lowering,
        functions: &Origins,
    ) -> Result<(), CompileError> {
        let main = self.main;
        for &n in &main.blocks[block].nodes {
            let node = &main.nodes[n];
            if node.op.is::<Const>() {
                let v = node.outputs[0];
                self.location.insert(v, StorageLocation::Own(BufferKey::Constant(self.constants[&v], None)));
                continue;
            }
            if node.op.is::<Callees>() {
                self.functions(lowered, functions)?;
                continue;
            }
            let origin = functions.get(&n);
            let mut group = self.describe(n, origin.map_or(&[][..], |o| o.stages.as_slice()));
            if let Some(function) = self.function {
                group.label = format!("{function}.{}", group.label);
            }
            self.groups.push(group);
            self.planned.push(n);
            match (lowered.get(&n), origin) {
                (Some(Lowered::View), _) => self.view(node),
                (_, Some(origin)) => self.kernel_group(n, origin)?,
                (Some(Lowered::Host(why)), _) => self.host_node(n, why),
                _ if node.op.is::<If>() => self.branch(n, lowered, functions)?,
                _ if node.op.is::<Loop>() => self.repeat(n, lowered, functions)?,
                _ if node.op.is::<CallHost>() => self.host_call(n),
                _ if called(self.module, main, n).is_some() => self.call(n),
                _ => self.host_node(n, &format!("`{}` has no tensor expression", node.op.name())),
            }
        }
        Ok(())
    }

    fn describe(&self, n: NodeId, stages: &[Option<NodeId>]) -> Group {
        let op = &self.main.nodes[n].op;
        if let Some(call) = op.downcast::<CallTensor>() {
            return written_group(self.shown.main(), n, call.callee, self.sources);
        }
        // A region of an external target is shown as a fused group is, by its nodes.
        if let Some(call) = op.downcast::<CallHost>().filter(|c| c.external_target().is_some())
            && let Some(f) = self.shown.functions.get(&call.reference)
        {
            return Group { kind: GroupKind::Host, ..fused_group(self.shown.main(), n, f, &[], self.sources) };
        }
        match op.callee().and_then(|c| self.shown.functions.get(&c)) {
            Some(f) if f.primitive => fused_group(self.shown.main(), n, f, stages, self.sources),
            _ => host_group(self.main, n, self.sources),
        }
    }

    /// The group that is being planned.
    pub(super) fn group(&mut self) -> (usize, &mut Group) {
        let index = self.groups.len() - 1;
        (index, &mut self.groups[index])
    }

    pub(super) fn remark(&mut self, pass: &str, kind: RemarkKind, message: String) {
        let nodes = self.group().1.origins.clone();
        self.remarks.push(Remark { pass: pass.into(), kind, nodes, message, detail: String::new() });
    }

    fn view(&mut self, node: &Node) {
        self.group().1.kind = GroupKind::View;
        self.remark(
            LOWERING,
            RemarkKind::Applied,
            "a view: its result is its operand's memory in another shape".into(),
        );
        let from = node.inputs.iter().flatten().next().copied();
        if let Some(location) = from.and_then(|v| self.location.get(&v).copied()) {
            self.location.insert(node.outputs[0], location);
        }
    }

    fn host_node(&mut self, n: NodeId, why: &str) {
        self.remark(LOWERING, RemarkKind::Missed, format!("runs on the host: {why}"));
        self.host_step(n);
    }

    /// A step on the host of what is planned now, with its operands and results in their places.
    fn host_step(&mut self, n: NodeId) {
        let (group, report) = self.group();
        report.kind = GroupKind::Host;
        let node = &self.main.nodes[n];
        let inputs: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        let step = self.pending.len();
        for &v in &inputs {
            self.touch(v, step);
        }
        for &v in &node.outputs {
            if self.location.contains_key(&v) {
                self.touch(v, step);
            } else {
                self.new_value(self.main.ty(v), v, step);
            }
        }
        self.pending.push(Pending::Host { node: n, group });
    }

    /// A call of a host function. Results in place of an operand take its buffer, or that of a copy where the operand
    /// is still needed.
    fn host_call(&mut self, n: NodeId) {
        let main = self.main;
        let node = &main.nodes[n];
        let Some(call) = node.op.downcast::<CallHost>() else { return };
        let place = if call.on_device { "device buffers" } else { "tensors in host memory" };
        let text = match call.external_target() {
            Some(target) => {
                let nodes = Region::of(self.module, call.reference).map(|r| r.summary()).unwrap_or_default();
                format!("the external target {target} runs `{}`: {nodes}", call.callee)
            }
            None => format!("calls the host function `{}` on {place}", call.callee),
        };
        self.remark(LOWERING, RemarkKind::Applied, text);
        self.group().1.host_function = Some(call.callee);
        for (i, &result) in node.outputs.iter().enumerate() {
            let Some(operand) = call.in_place_operand(i).filter(|_| call.on_device) else { continue };
            let Some(v) = node.inputs.get(operand).copied().flatten() else { continue };
            let from = self.location[&v];
            let own = matches!(from, StorageLocation::Pool(_)) && self.aliases.ends_at(main, v, n);
            if own {
                self.location.insert(result, from);
                continue;
            }
            let step = self.pending.len();
            self.touch(v, step);
            self.new_value(main.ty(result), result, step);
            self.pending.push(Pending::Copy { from, to: self.location[&result] });
        }
        self.host_step(n);
    }

    /// Assigns a storage location to a new value: in the pool, or in host memory if no kernel uses it.
    pub(super) fn new_value(&mut self, ty: &TensorType, v: ValueId, step: usize) {
        if !self.on_device.contains(&v) {
            let location = self.on_host_value();
            self.location.insert(v, location);
            return;
        }
        if let Some(id) = self.results.remove(&v) {
            self.pool.touch(id, step);
            self.location.insert(v, StorageLocation::Pool(id));
            return;
        }
        let n = ty.numel().as_const().unwrap_or(0) as u64;
        let encoding = value_encoding(ty.dtype, self.profile).unwrap_or_default();
        let id = self.pool.add(encoding.storage_bytes(ty.dtype, n), step);
        self.pool.leave_open(id, &ty.numel(), ty.dtype, encoding);
        self.location.insert(v, StorageLocation::Pool(id));
    }

    /// A place for one more tensor in host memory.
    pub(super) fn on_host_value(&mut self) -> StorageLocation {
        self.on_host += 1;
        StorageLocation::Own(BufferKey::Host(HostContent::Value(self.on_host - 1)))
    }

    pub(super) fn touch(&mut self, v: ValueId, step: usize) {
        if let Some(&StorageLocation::Pool(id)) = self.location.get(&v) {
            self.pool.touch(id, step);
        }
    }

    /// Which group reads which, and which hold the model's results.
    fn relate(&mut self) {
        let mut maker: FxHashMap<ValueId, usize> = FxHashMap::default();
        let main = self.main;
        for (group, &n) in self.planned.iter().enumerate() {
            let node = &main.nodes[n];
            let yielded = node.regions.iter().flat_map(|&r| main.blocks[r].results.iter());
            let read = node.inputs.iter().flatten().chain(yielded);
            let mut reads: Vec<usize> = read.filter_map(|v| maker.get(v).copied()).collect();
            reads.sort_unstable();
            reads.dedup();
            self.groups[group].reads = reads;
            maker.extend(node.outputs.iter().map(|&v| (v, group)));
        }
        for v in main.results() {
            if let Some(&group) = maker.get(v) {
                self.groups[group].is_result = true;
            }
        }
    }

    /// Names kernels after their first calls.
    fn name(&self, kernels: &mut [PlanKernel]) {
        let mut names = KernelNames::default();
        for p in &self.pending {
            let Pending::Dispatch { kernel, group, version, .. } = p else { continue };
            let k = &mut kernels[*kernel];
            if k.name.is_empty() {
                let alone = self.module.tensor_functions[&k.function].kernels().len() == 1;
                let when = version.as_ref().and_then(VersionChoice::conditions).unwrap_or_default();
                k.name = names.give(&self.groups[*group], (!alone).then_some(k.part), when);
            }
        }
    }

    /// The steps with numbers for open sizes: `sizes`, which those of `shown` are too.
    fn numbered(
        &self,
        shown: &Module,
        sizes: &FxHashMap<Name, Int>,
        kernels: Vec<PlanKernel>,
    ) -> Result<(Plan, MemoryReport), CompileError> {
        let steps = Steps {
            module: shown,
            main: shown.main(),
            tensor_functions: &self.module.tensor_functions,
            profile: self.profile,
            location: &self.location,
            pool: &self.pool.at(&|v| sizes.get(&v).and_then(Int::as_const)),
            packers: &self.packers,
            growing: &self.growing,
            pending: &self.pending,
            sizes,
        };
        steps.number(kernels)
    }
}
