//! From a module of groups to tensor functions, kernels and the plan.
//!
//! `check` refuses what has no plan; `residency` says what each call becomes and which values live on the device;
//! `kernels` schedules and emits the different tensor functions; `groups` reports; here the nodes of the entry function
//! become steps, in order, and its values storage locations (`storage`), to which `memory` and `numbering` give buffers.

use super::check::check;
use super::groups::{fused_group, host_group, written_group};
use super::host::{host_function, host_module};
use super::kernels::{Built, FunctionId, Requests};
use super::memory::Pool;
use super::names::{KernelNames, Sources};
use super::numbering::{BufferKey, Numbering, Packers};
use super::residency::{Lowered, check_bindings, constant_values, device_values, lower_all, value_encoding};
use super::storage::{StorageLocation, Tensors};
use super::work::{dispatch_flops, stage_flops};
use super::{CompileError, Compiled, Group, GroupKind, MemoryReport, Progress, TransposeReport};
use crate::arena::Id;
use crate::graph::{Function, Module, Node, NodeId, TensorType, ValueId};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::{CallTensor, Const};
use crate::plan::{
    Binding, BufferView, Dispatch, EmitKernel, HostContent, HostStep, KernelIndex, Plan, PlanKernel, Step,
};
use crate::profile::DeviceProfile;
use crate::remark::{Remark, RemarkKind};
use crate::tir::{BufferId, Scope, TensorFunction};
use indexmap::IndexMap;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// The pass of remarks about what groups become.
const LOWERING: &str = "lower-groups";

/// The pass of remarks about schedules.
const SCHEDULING: &str = "schedule";

/// One dispatch or host computation before buffers have numbers.
enum Pending {
    Dispatch { kernel: KernelIndex, locations: Vec<(StorageLocation, u32)>, group: usize, flops: u64, bytes: u64 },
    Host { node: NodeId, inputs: Vec<ValueId>, group: usize },
}

/// What a node's kernels come from.
struct Origin {
    function: FunctionId,
    /// The nodes of the tensor function's stages, in the primitive function that was lowered.
    stages: Vec<Option<NodeId>>,
    /// Operations of each stage.
    flops: Vec<u64>,
}

/// Plans a module whose groups are formed.
///
/// # Errors
/// Open dimensions, modules only the CPU executor can run, bugs.
pub(super) fn plan_module(
    mut module: Module,
    profile: &DeviceProfile,
    emitter: &dyn EmitKernel,
    remarks: Vec<Remark>,
    sources: &Sources,
    progress: Progress<'_>,
) -> Result<Compiled, CompileError> {
    let main = module.main().clone();
    check(&module, &main)?;
    let mut lowered = lower_all(&module, &main, profile);
    check_bindings(&main, &lowered, profile)?;
    let on_device = device_values(&main, &lowered);
    let constants = constant_values(&main, &lowered);
    let mut requests = Requests::new(module.tensor_functions.keys().copied());
    let mut functions: FxHashMap<NodeId, Origin> = FxHashMap::default();
    for &n in &main.blocks[main.body].nodes {
        if let Some(Lowered::Kernel(t)) = lowered.get_mut(&n) {
            let stages = std::mem::take(&mut t.stages);
            let t = std::mem::replace(&mut t.function, TensorFunction::new(""));
            let operands = main.nodes[n].inputs.iter().flatten();
            let constant =
                t.inputs().zip(operands).filter(|(_, v)| constants.contains_key(v)).map(|(b, _)| b).collect();
            let own = main.nodes[n].op.is::<CallTensor>();
            let called = main.nodes[n].op.callee().and_then(|c| module.functions.get(&c));
            let flops = called.map_or(vec![], |f| stage_flops(f, &stages, &t));
            functions.insert(n, Origin { stages, flops, function: requests.add(t, constant, own) });
        }
    }
    let built = requests.build(profile, emitter, progress)?;
    let Emitted { mut kernels, first_kernel, unscheduled } = Emitted::of(&built, &mut module);
    let mut planner = Planner {
        module: &mut module,
        main: &main,
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
    };
    planner.walk(&lowered, &functions)?;
    planner.relate();
    planner.name(&mut kernels);
    let (plan, memory) = planner.number(kernels)?;
    let (groups, remarks) = (planner.groups, planner.remarks);
    Ok(Compiled {
        module,
        unscheduled,
        groups,
        plan,
        memory,
        remarks,
        passes: vec![],
        transposes: TransposeReport::default(),
        printed: vec![],
        profile: profile.clone(),
        ms: 0.0,
        timings: vec![],
        recording: None,
    })
}

/// Kernels of all functions in a row.
struct Emitted {
    kernels: Vec<PlanKernel>,
    /// For each function the position of its first one.
    first_kernel: Vec<usize>,
    /// The functions before they were scheduled.
    unscheduled: IndexMap<Name, TensorFunction>,
}

impl Emitted {
    /// Takes the kernels of `built`, whose scheduled functions join the module.
    fn of(built: &[Built], module: &mut Module) -> Emitted {
        let mut all = Emitted { kernels: vec![], first_kernel: vec![], unscheduled: IndexMap::new() };
        for b in built {
            all.first_kernel.push(all.kernels.len());
            all.kernels.extend(b.kernels.iter().zip(b.function.kernels()).map(|(e, (part, _))| PlanKernel {
                name: String::new(),
                emitted: e.clone(),
                function: b.name(),
                part,
            }));
            all.unscheduled.insert(b.name(), b.before.clone());
            module.tensor_functions.insert(b.name(), b.function.clone());
        }
        all
    }
}

/// Makes steps of the nodes of the entry function and gives its values storage locations.
struct Planner<'a> {
    module: &'a mut Module,
    main: &'a Function,
    profile: &'a DeviceProfile,
    sources: &'a Sources,
    built: &'a [Built],
    /// Index of the first kernel of each built function.
    first_kernel: &'a [KernelIndex],
    constants: &'a FxHashMap<ValueId, Name>,
    on_device: &'a FxHashSet<ValueId>,
    remarks: Vec<Remark>,
    groups: Vec<Group>,
    location: FxHashMap<ValueId, StorageLocation>,
    pool: Pool,
    packers: Packers,
    pending: Vec<Pending>,
    /// Values in host memory so far.
    on_host: usize,
}

impl Planner<'_> {
    fn walk(
        &mut self,
        lowered: &FxHashMap<NodeId, Lowered>,
        functions: &FxHashMap<NodeId, Origin>,
    ) -> Result<(), CompileError> {
        let main = self.main;
        for (i, &p) in main.params().iter().enumerate() {
            let host = BufferKey::Host(HostContent::Input(i));
            let own = if self.on_device.contains(&p) { BufferKey::Input(i) } else { host };
            self.location.insert(p, StorageLocation::Own(own));
        }
        for &n in &main.blocks[main.body].nodes {
            let node = &main.nodes[n];
            if node.op.is::<Const>() {
                let v = node.outputs[0];
                self.location.insert(v, StorageLocation::Own(BufferKey::Constant(self.constants[&v], None)));
                continue;
            }
            let origin = functions.get(&n);
            self.groups.push(self.describe(n, origin.map_or(&[][..], |o| o.stages.as_slice())));
            match (lowered.get(&n), origin) {
                (Some(Lowered::View), _) => self.view(node),
                (_, Some(origin)) => self.kernel_group(n, origin)?,
                (Some(Lowered::Host(why)), _) => self.host_node(n, why),
                _ => self.host_node(n, &format!("`{}` has no tensor expression", node.op.name())),
            }
        }
        for &r in main.results() {
            self.touch(r, usize::MAX);
        }
        Ok(())
    }

    fn describe(&self, n: NodeId, stages: &[Option<NodeId>]) -> Group {
        let op = &self.main.nodes[n].op;
        if let Some(call) = op.downcast::<CallTensor>() {
            return written_group(self.main, n, call.callee, self.sources);
        }
        match op.callee().and_then(|c| self.module.functions.get(&c)) {
            Some(f) => fused_group(self.main, n, f, stages, self.sources),
            None => host_group(self.main, n, self.sources),
        }
    }

    /// The group that is being planned.
    fn group(&mut self) -> (usize, &mut Group) {
        let index = self.groups.len() - 1;
        (index, &mut self.groups[index])
    }

    fn remark(&mut self, pass: &str, kind: RemarkKind, message: String) {
        let nodes = self.group().1.origins.clone();
        self.remarks.push(Remark { pass: pass.into(), kind, nodes, message });
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
        let (group, report) = self.group();
        report.kind = GroupKind::Host;
        self.remark(LOWERING, RemarkKind::Missed, format!("runs on the host: {why}"));
        let node = &self.main.nodes[n];
        let inputs: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        let step = self.pending.len();
        for &v in &inputs {
            self.touch(v, step);
        }
        for &v in &node.outputs {
            self.new_value(self.main.ty(v), v, step);
        }
        self.pending.push(Pending::Host { node: n, inputs, group });
    }

    /// Gives a new value its place: in the pool, or in host memory where no kernel touches it.
    fn new_value(&mut self, ty: &TensorType, v: ValueId, step: usize) {
        if !self.on_device.contains(&v) {
            self.location.insert(v, StorageLocation::Own(BufferKey::Host(HostContent::Value(self.on_host))));
            self.on_host += 1;
            return;
        }
        let n = ty.numel().as_const().unwrap_or(0) as u64;
        let encoding = value_encoding(ty.dtype, self.profile).unwrap_or_default();
        let id = self.pool.add(encoding.storage_bytes(ty.dtype, n), step);
        self.location.insert(v, StorageLocation::Pool(id));
    }

    fn touch(&mut self, v: ValueId, step: usize) {
        if let Some(&StorageLocation::Pool(id)) = self.location.get(&v) {
            self.pool.touch(id, step);
        }
    }

    fn kernel_group(&mut self, n: NodeId, origin: &Origin) -> Result<(), CompileError> {
        let at = origin.function.index();
        let (built, first_kernel) = (&self.built[at], self.first_kernel[at]);
        let (index, report) = self.group();
        report.rule = built.rule;
        report.tensor_function = Some(built.name());
        let flops = dispatch_flops(report.flops, &origin.flops, &built.function);
        for line in &built.applied {
            self.remark(SCHEDULING, RemarkKind::Applied, line.clone());
        }
        for why in &built.declined {
            self.remark(SCHEDULING, RemarkKind::Missed, why.clone());
        }
        let locations = self.bind(n, built);
        let sizes = self.buffer_bytes(n, built);
        self.group().1.bytes = 0;
        for (at, kernel) in built.kernels.iter().enumerate() {
            let bound = |b: &Binding| {
                let location = locations.get(&b.buffer).copied().ok_or_else(|| CompileError::Bug {
                    at: built.name().to_string(),
                    message: format!("{} binds a buffer without a storage location", kernel.name),
                })?;
                Ok((location, b.slice))
            };
            let locations = kernel.bindings.iter().map(bound).collect::<Result<Vec<_>, CompileError>>()?;
            let mut buffers: Vec<BufferId> = kernel.bindings.iter().map(|b| b.buffer).collect();
            buffers.dedup();
            let bytes: u64 = buffers.iter().filter_map(|b| sizes.get(b)).sum();
            let (kernel, flops) = (first_kernel + at, flops.get(at).copied().unwrap_or(0));
            self.group().1.bytes += bytes;
            self.pending.push(Pending::Dispatch { kernel, locations, group: index, flops, bytes });
        }
        self.module.main_mut().nodes[n].op = OpRef::new(CallTensor { callee: built.name() });
        Ok(())
    }

    /// The storage locations of the buffers that the kernels of a group bind.
    fn bind(&mut self, n: NodeId, built: &Built) -> FxHashMap<BufferId, StorageLocation> {
        let (node, f) = (&self.main.nodes[n], &built.function);
        let first = self.pending.len();
        let last = first + built.kernels.len().saturating_sub(1);
        let mut locations: FxHashMap<BufferId, StorageLocation> = FxHashMap::default();
        for (b, &v) in f.inputs().zip(node.inputs.iter().flatten()) {
            self.touch(v, last);
            let mut location = self.location[&v];
            let prepack = f.prepacks.iter().find(|p| p.buffer == b);
            if let (StorageLocation::Own(BufferKey::Constant(name, None)), Some(p)) = (location, prepack) {
                location = StorageLocation::Own(BufferKey::Constant(name, Some(self.packers.add(&p.packer))));
            }
            locations.insert(b, location);
        }
        for (b, &v) in f.outputs().zip(&node.outputs) {
            self.new_value(self.main.ty(v), v, first);
            self.touch(v, last);
            locations.insert(b, self.location[&v]);
        }
        // Scratch is what kernels really bind: buffers of inlined stages are left behind in the arena.
        let bound: FxHashSet<BufferId> = built.kernels.iter().flat_map(|k| &k.bindings).map(|b| b.buffer).collect();
        for (b, buffer) in f.buffers.iter() {
            if buffer.scope == Scope::Global && !locations.contains_key(&b) && bound.contains(&b) {
                let elements = buffer.numel().as_const().unwrap_or(0) as u64;
                let bytes = buffer.encoding.storage_bytes(buffer.dtype, elements);
                locations.insert(b, StorageLocation::Pool(self.pool.add_scratch(bytes, first, last)));
            }
        }
        locations
    }

    /// Bytes that a kernel moves when it binds a buffer: those of the value, whatever its storage form; of scratch, the
    /// buffer's.
    fn buffer_bytes(&self, n: NodeId, built: &Built) -> FxHashMap<BufferId, u64> {
        let (node, f) = (&self.main.nodes[n], &built.function);
        let scratch = f.buffers.iter().filter(|(_, b)| b.scope == Scope::Global).map(|(id, b)| {
            let elements = b.numel().as_const().unwrap_or(0).max(0) as u64;
            (id, elements * b.dtype.size() as u64)
        });
        let mut out: FxHashMap<BufferId, u64> = scratch.collect();
        let values = node.inputs.iter().flatten().chain(&node.outputs);
        for (b, &v) in f.inputs().chain(f.outputs()).zip(values) {
            out.insert(b, self.main.ty(v).bytes().unwrap_or(0) as u64);
        }
        out
    }

    /// Which group reads which, and which hold the model's results.
    fn relate(&mut self) {
        let mut maker: FxHashMap<ValueId, usize> = FxHashMap::default();
        let main = self.main;
        let nodes = main.blocks[main.body].nodes.iter().map(|&n| &main.nodes[n]);
        for (group, node) in nodes.filter(|n| !n.op.is::<Const>()).enumerate() {
            let mut reads: Vec<usize> = node.inputs.iter().flatten().filter_map(|v| maker.get(v).copied()).collect();
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
            let Pending::Dispatch { kernel, group, .. } = p else { continue };
            let k = &mut kernels[*kernel];
            if k.name.is_empty() {
                let alone = self.module.tensor_functions[&k.function].kernels().len() == 1;
                k.name = names.give(&self.groups[*group], (!alone).then_some(k.part));
            }
        }
    }

    /// Assigns the pool's slots and makes the plan.
    fn number(&self, kernels: Vec<PlanKernel>) -> Result<(Plan, MemoryReport), CompileError> {
        let (slots, sizes) = self.pool.assign(self.profile.max_binding);
        let mut memory = MemoryReport {
            activations_peak: sizes.iter().map(|s| s.1).sum(),
            activations_naive: self.pool.naive_bytes(),
            weights: 0,
        };
        let numbering = Numbering::new(&sizes, &self.packers, self.module, self.profile);
        let mut tensors = Tensors { main: self.main, location: &self.location, slots: &slots, numbering };
        let mut plan = Plan { kernels, ..Plan::default() };
        for (i, &p) in self.main.params().iter().enumerate() {
            plan.inputs.push(tensors.view(p, self.location[&p], Name::new(&format!("input{i}")))?);
        }
        let module = Arc::new(host_module(self.module));
        for p in &self.pending {
            match p {
                Pending::Dispatch { kernel, locations, group, flops, bytes } => {
                    let number =
                        |&(location, slice): &(StorageLocation, u32)| Ok((tensors.buffer(location, None)?, slice));
                    let buffers = locations.iter().map(number).collect::<Result<Vec<_>, CompileError>>()?;
                    let (kernel, group, flops, bytes) = (*kernel, *group, *flops, *bytes);
                    let d = Dispatch { kernel, buffers, symbols: vec![], group, flops, bytes };
                    match plan.steps.last_mut() {
                        Some(Step::Gpu(list)) => list.push(d),
                        _ => plan.steps.push(Step::Gpu(vec![d])),
                    }
                }
                Pending::Host { node, inputs, group } => {
                    let Node { name, outputs, .. } = &self.main.nodes[*node];
                    let (inputs, outputs) = (tensors.on_host(inputs, *name)?, tensors.on_host(outputs, *name)?);
                    let run = host_function(&module, self.main, *node);
                    plan.steps.push(Step::Host(HostStep { name: *name, inputs, outputs, run, group: *group }));
                }
            }
        }
        for (i, &r) in self.main.results().iter().enumerate() {
            let name = self.main.result_names.get(i).copied();
            let name = name.unwrap_or_else(|| Name::new(&format!("output{i}")));
            let view = tensors.view(r, self.location[&r].seen_by_host(), name)?;
            plan.outputs.push(BufferView { name, ..view });
        }
        plan.buffers = tensors.numbering.finish(&mut memory);
        Ok((plan, memory))
    }
}
