//! From a module of groups to tensor functions, kernels and the plan.

use super::memory::{Lifetime, assign_pool};
use super::residency::{Lowered, check_bindings, device_values, lower_all};
use super::{CompileError, Compiled, Group, GroupKind, MemoryReport, Progress};
use crate::dtype::DType;
use crate::graph::{Function, Module, Node, NodeId, TensorType, ValueId};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::{Call, CallTensor, Const};
use crate::plan::{
    Content, Dispatch, EmitKernel, EmittedKernel, HostContent, HostStep, KernelIndex, Plan, PlanBuffer, PlanKernel,
    Step, TensorSlot,
};
use crate::profile::DeviceProfile;
use crate::remark::{Remark, RemarkKind};
use crate::schedule::{apply_pending, rules};
use crate::tir::{BufferId, Encoding, Scope, TensorFunction};
use indexmap::IndexMap;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Where a value lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Place {
    Input(usize),
    Constant(Name, Option<Name>),
    Pool(usize),
    Host(HostContent),
}

impl Place {
    /// Constants are read from the module by the host.
    fn seen_by_host(self) -> Place {
        match self {
            Place::Constant(name, _) => Place::Host(HostContent::Constant(name)),
            other => other,
        }
    }
}

/// One dispatch or host computation before buffers have numbers.
enum Pending {
    Dispatch { kernel: KernelIndex, places: Vec<(Place, u32)>, group: usize },
    Host { node: NodeId, inputs: Vec<ValueId>, group: usize },
}

struct PoolValue {
    bytes: u64,
    first: usize,
    last: usize,
    scratch: bool,
}

/// The rule of tensor functions that came with their schedule.
const WRITTEN: &str = "written";

pub(super) struct Planner<'a> {
    module: Module,
    profile: &'a DeviceProfile,
    emitter: &'a dyn EmitKernel,
    remarks: Vec<Remark>,
    unscheduled: IndexMap<Name, TensorFunction>,
    /// Unscheduled text of a function -> its name: equal groups share kernels.
    known: FxHashMap<String, (Name, &'static str)>,
    kernels: Vec<PlanKernel>,
    kernel_of: FxHashMap<(Name, Name), KernelIndex>,
    groups: Vec<Group>,
    place: FxHashMap<ValueId, Place>,
    pool: Vec<PoolValue>,
    pending: Vec<Pending>,
    lowered: FxHashMap<NodeId, Lowered>,
    /// Values in device memory.
    on_device: FxHashSet<ValueId>,
    /// Values in host memory so far.
    on_host: usize,
}

/// Storage form of a value that crosses group boundaries, from its dtype alone, so that all groups agree. None for values
/// that only the host holds.
pub(super) fn value_encoding(dtype: DType, profile: &DeviceProfile) -> Option<Encoding> {
    match dtype {
        DType::F32 | DType::I32 | DType::U32 | DType::Bool => Some(Encoding::Native),
        DType::F16 if profile.f16 => Some(Encoding::Native),
        DType::F16 => Some(Encoding::HalfPair),
        DType::I64 => Some(Encoding::Narrow),
        DType::U8 | DType::I8 => Some(Encoding::ByteQuad),
        DType::BF16 => Some(Encoding::HalfPair),
        DType::U16 | DType::I16 | DType::U64 | DType::F64 => None,
    }
}

/// Bytes of one bank of a buffer: all of it where it fits one binding.
fn bank_bytes(bytes: u64, profile: &DeviceProfile) -> u64 {
    if bytes <= profile.max_binding { bytes } else { profile.bank_bytes() }
}

impl<'a> Planner<'a> {
    pub(super) fn new(
        module: Module,
        profile: &'a DeviceProfile,
        emitter: &'a dyn EmitKernel,
        remarks: Vec<Remark>,
    ) -> Self {
        Planner {
            module,
            profile,
            emitter,
            remarks,
            unscheduled: IndexMap::new(),
            known: FxHashMap::default(),
            kernels: vec![],
            kernel_of: FxHashMap::default(),
            groups: vec![],
            place: FxHashMap::default(),
            pool: vec![],
            pending: vec![],
            lowered: FxHashMap::default(),
            on_device: FxHashSet::default(),
            on_host: 0,
        }
    }

    pub(super) fn run(mut self, progress: Progress<'_>) -> Result<Compiled, CompileError> {
        let main = self.module.main().clone();
        self.check_sizes(&main)?;
        self.lowered = lower_all(&self.module, &main, self.profile);
        check_bindings(&main, &self.lowered, self.profile)?;
        self.on_device = device_values(&main, &self.lowered);
        for (i, &p) in main.params().iter().enumerate() {
            let host = Place::Host(HostContent::Input(i));
            self.place.insert(p, if self.on_device.contains(&p) { Place::Input(i) } else { host });
        }
        let nodes = main.blocks[main.body].nodes.clone();
        for (i, &n) in nodes.iter().enumerate() {
            progress("kernels", i, nodes.len());
            self.node(&main, n)?;
        }
        progress("kernels", nodes.len(), nodes.len());
        for &r in main.results() {
            self.touch(r, usize::MAX);
        }
        self.finish(&main)
    }

    /// All sizes must be known, except that the CPU executor runs what has sizes that a node's run defines.
    fn check_sizes(&self, main: &Function) -> Result<(), CompileError> {
        let nodes = main.walk();
        for &n in &nodes {
            let node = &main.nodes[n];
            if let Some(symbol) = node.op.defined_symbols().first() {
                let (name, op) = (node.name, node.op.name());
                return Err(CompileError::NeedsCpu(format!(
                    "the size `{symbol}` is known only when `{name}` ({op}) has run"
                )));
            }
        }
        let results = nodes.iter().flat_map(|&n| main.nodes[n].outputs.iter());
        main.params().iter().chain(results).try_for_each(|&v| self.check_value(main, v))
    }

    fn check_value(&self, f: &Function, v: ValueId) -> Result<(), CompileError> {
        let ty = f.ty(v);
        for d in &ty.shape {
            if d.as_const().is_none() {
                let value = f.values[v].name.map_or_else(|| f.describe_value(v), |n| n.to_string());
                return Err(CompileError::OpenDim { dim: d.to_string(), value });
            }
        }
        Ok(())
    }

    fn node(&mut self, main: &Function, n: NodeId) -> Result<(), CompileError> {
        let node = &main.nodes[n];
        if let Some(c) = node.op.downcast::<Const>() {
            self.place.insert(node.outputs[0], Place::Constant(c.name, None));
            return Ok(());
        }
        if !node.regions.is_empty() {
            return Err(CompileError::NeedsCpu(format!(
                "`{}` ({}) is control flow that only the CPU executor runs",
                node.name,
                node.op.name()
            )));
        }
        if let Some(call) = node.op.downcast::<CallTensor>() {
            return self.written_group(main, n, call.callee);
        }
        let Some(call) = node.op.downcast::<Call>() else {
            return self.host_node(main, n);
        };
        let f = self.module.functions.get(&call.callee).cloned().ok_or_else(|| CompileError::Bug {
            at: call.callee.to_string(),
            message: "the called function is missing".into(),
        })?;
        if !f.primitive {
            return Err(CompileError::NeedsCpu(format!(
                "`{}` calls @{}, which only the CPU executor runs",
                node.name, f.name
            )));
        }
        self.group(main, n, &f)
    }

    /// A call of a tensor function that came with the module: it is run as it is written, by its own schedule where it
    /// has one. One that the device cannot run as it stands goes to the host.
    fn written_group(&mut self, main: &Function, n: NodeId, callee: Name) -> Result<(), CompileError> {
        let node = &main.nodes[n];
        let t = match self.lowered.remove(&n) {
            Some(Lowered::Kernel(t)) => *t,
            Some(Lowered::Host(why)) => return self.host_node_because(main, n, why),
            Some(Lowered::View) | None => return self.host_node(main, n),
        };
        let operands: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        let index = self.groups.len();
        self.groups.push(Group {
            function: callee,
            origins: node.origins.names().to_vec(),
            ops: vec![node.op.name()],
            nodes: vec![node.name],
            anchor: None,
            layout: None,
            rule: "",
            kind: GroupKind::Kernel,
            tensor_function: None,
            flops: 0,
            bytes: operands.iter().chain(&node.outputs).filter_map(|&v| main.ty(v).bytes()).sum::<usize>() as u64,
        });
        self.kernel_group(main, n, index, t)
    }

    /// A node outside any group: it runs on the host.
    fn host_node(&mut self, main: &Function, n: NodeId) -> Result<(), CompileError> {
        let why = format!("`{}` has no tensor expression", main.nodes[n].op.name());
        self.host_node_because(main, n, why)
    }

    fn host_node_because(&mut self, main: &Function, n: NodeId, why: String) -> Result<(), CompileError> {
        let node = &main.nodes[n];
        let index = self.groups.len();
        let origins = node.origins.names().to_vec();
        self.groups.push(Group {
            function: node.name,
            origins,
            ops: vec![node.op.name()],
            nodes: vec![node.name],
            anchor: None,
            layout: None,
            rule: "",
            kind: GroupKind::Host,
            tensor_function: None,
            flops: 0,
            bytes: 0,
        });
        self.remark_host(index, why);
        self.push_host(main, n, index)
    }

    fn remark_host(&mut self, group: usize, why: String) {
        let nodes = self.groups[group].origins.clone();
        self.remarks.push(Remark {
            pass: "lower-groups".into(),
            kind: RemarkKind::Missed,
            nodes,
            message: format!("runs on the host: {why}"),
        });
    }

    fn push_host(&mut self, main: &Function, n: NodeId, group: usize) -> Result<(), CompileError> {
        let node = &main.nodes[n];
        let inputs: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        let step = self.pending.len();
        for &v in &inputs {
            self.touch(v, step);
        }
        for &v in &node.outputs {
            self.new_value(main.ty(v), v, step);
        }
        self.pending.push(Pending::Host { node: n, inputs, group });
        Ok(())
    }

    /// Gives a new value its place: in the pool, or in host memory where no kernel touches it.
    fn new_value(&mut self, ty: &TensorType, v: ValueId, step: usize) {
        if !self.on_device.contains(&v) {
            self.place.insert(v, Place::Host(HostContent::Value(self.on_host)));
            self.on_host += 1;
            return;
        }
        let n = ty.numel().as_const().unwrap_or(0) as u64;
        let encoding = value_encoding(ty.dtype, self.profile).unwrap_or_default();
        let bytes = encoding.storage_bytes(ty.dtype, n);
        self.place.insert(v, Place::Pool(self.pool.len()));
        self.pool.push(PoolValue { bytes, first: step, last: step, scratch: false });
    }

    fn touch(&mut self, v: ValueId, step: usize) {
        if let Some(Place::Pool(i)) = self.place.get(&v) {
            let last = &mut self.pool[*i].last;
            *last = (*last).max(step);
        }
    }

    fn describe(&self, main: &Function, n: NodeId, f: &Function) -> Group {
        let node = &main.nodes[n];
        let inner: Vec<_> = f.walk().into_iter().filter(|&i| !f.nodes[i].op.is::<Const>()).collect();
        let mut origins = node.origins.clone();
        for &i in &inner {
            origins = origins.union(&f.nodes[i].origins);
        }
        let types =
            |v: &[Option<ValueId>]| -> Vec<Option<&TensorType>> { v.iter().map(|v| v.map(|v| f.ty(v))).collect() };
        let mut flops = 0;
        let mut anchor: Option<(u64, &OpRef)> = None;
        for &i in &inner {
            let node = &f.nodes[i];
            let outputs: Vec<&TensorType> = node.outputs.iter().map(|&v| f.ty(v)).collect();
            let macs = node.op.macs(&types(&node.inputs), &outputs);
            let numel: i64 = outputs.iter().filter_map(|t| t.numel().as_const()).sum();
            flops += if macs > 0 { 2 * macs } else { numel.max(0) as u64 };
            let is_anchor = macs > 0 || node.op.layout().is_some() || node.op.layout_name().is_some();
            if is_anchor && anchor.is_none_or(|a| macs > a.0) {
                anchor = Some((macs, &node.op));
            }
        }
        let bytes = f.params().iter().chain(f.results()).filter_map(|&v| f.ty(v).bytes()).sum::<usize>() as u64;
        Group {
            function: f.name,
            origins: origins.names().to_vec(),
            ops: inner.iter().map(|&i| f.nodes[i].op.name()).collect(),
            nodes: inner.iter().map(|&i| f.nodes[i].name).collect(),
            anchor: anchor.map(|a| a.1.name()),
            layout: anchor.and_then(|a| a.1.layout_name()),
            rule: "",
            kind: GroupKind::Kernel,
            tensor_function: None,
            flops,
            bytes,
        }
    }

    fn group(&mut self, main: &Function, n: NodeId, f: &Function) -> Result<(), CompileError> {
        let index = self.groups.len();
        let description = self.describe(main, n, f);
        self.groups.push(description);
        match self.lowered.remove(&n) {
            Some(Lowered::View) => {
                self.groups[index].kind = GroupKind::View;
                let node = &main.nodes[n];
                let from = node.inputs.iter().flatten().next().copied();
                if let Some(place) = from.and_then(|v| self.place.get(&v).copied()) {
                    self.place.insert(node.outputs[0], place);
                }
                Ok(())
            }
            Some(Lowered::Kernel(t)) => self.kernel_group(main, n, index, *t),
            lowered => {
                let why = match lowered {
                    Some(Lowered::Host(why)) => why,
                    _ => "it is not lowered".into(),
                };
                self.groups[index].kind = GroupKind::Host;
                self.remark_host(index, why);
                self.push_host(main, n, index)
            }
        }
    }

    /// Schedules and emits `t` unless an equal function was; returns its name.
    fn schedule(
        &mut self,
        t: TensorFunction,
        constants: &[BufferId],
        group: usize,
    ) -> Result<(Name, &'static str), CompileError> {
        let key = format!("{:?}{constants:?}{:?}{:?}{:?}", t.params, t.buffers, t.body, t.pending);
        if let Some(&found) = self.known.get(&key) {
            return Ok(found);
        }
        let name = t.name;
        let bug = |message: String| CompileError::Bug { at: name.to_string(), message };
        let written = !t.pending.is_empty() || !t.kernels().is_empty();
        let bug = |message: String| match written {
            true => CompileError::Schedule { function: name.to_string(), message },
            false => bug(message),
        };
        let scheduled = if written {
            let mut function = t.clone();
            apply_pending(&mut function).map_err(|e| bug(e.to_string()))?;
            if let Some(p) = function.prepacks.iter().find(|p| !constants.contains(&p.buffer)) {
                return Err(bug(format!(
                    "%{} is packed beforehand, but is no constant",
                    function.buffers[p.buffer].name
                )));
            }
            rules::Scheduled { function, rule: WRITTEN, missed: vec![] }
        } else {
            rules::schedule(&t, constants, self.profile).map_err(|e| bug(e.to_string()))?
        };
        for missed in &scheduled.missed {
            let nodes = self.groups[group].origins.clone();
            self.remarks.push(Remark {
                pass: "schedule".into(),
                kind: RemarkKind::Missed,
                nodes,
                message: missed.clone(),
            });
        }
        let f = scheduled.function;
        for (kernel, _) in f.kernels() {
            let emitted =
                self.emitter.emit(&f, kernel, self.profile).map_err(|m| bug(format!("kernel {kernel}: {m}")))?;
            let index = self.add_kernel(emitted, name);
            self.kernel_of.insert((name, kernel), index);
        }
        let mut before = t;
        if before.kernels().is_empty() {
            before.pending = f.trace.clone();
        }
        self.unscheduled.insert(name, before);
        self.module.tensor_functions.insert(name, f);
        self.known.insert(key, (name, scheduled.rule));
        Ok((name, scheduled.rule))
    }

    fn add_kernel(&mut self, emitted: EmittedKernel, function: Name) -> KernelIndex {
        self.kernels.push(PlanKernel { emitted, function });
        self.kernels.len() - 1
    }

    fn kernel_group(
        &mut self,
        main: &Function,
        n: NodeId,
        index: usize,
        t: TensorFunction,
    ) -> Result<(), CompileError> {
        let node = &main.nodes[n];
        let operands: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        let constants: Vec<BufferId> = t
            .inputs()
            .zip(&operands)
            .filter(|(_, v)| matches!(self.place[v], Place::Constant(..)))
            .map(|(b, _)| b)
            .collect();
        let (name, rule) = self.schedule(t, &constants, index)?;
        self.groups[index].rule = rule;
        self.groups[index].tensor_function = Some(name);
        let f = self.module.tensor_functions[&name].clone();
        let first = self.pending.len();
        let last = first + f.kernels().len().saturating_sub(1);
        let mut places: FxHashMap<BufferId, Place> = FxHashMap::default();
        for (b, v) in f.inputs().zip(operands) {
            self.touch(v, last);
            let mut place = self.place[&v];
            if let (Place::Constant(c, _), Some(_)) = (place, f.prepacks.iter().find(|p| p.buffer == b)) {
                place = Place::Constant(c, Some(Name::new(&format!("{name}/{}", f.buffers[b].name))));
            }
            places.insert(b, place);
        }
        for (b, &v) in f.outputs().zip(&node.outputs) {
            self.new_value(main.ty(v), v, first);
            self.touch(v, last);
            places.insert(b, self.place[&v]);
        }
        // Scratch is what kernels really bind: buffers of inlined stages are left behind in the arena.
        let bound: Vec<BufferId> = f
            .kernels()
            .iter()
            .flat_map(|(k, _)| &self.kernels[self.kernel_of[&(name, *k)]].emitted.bindings)
            .map(|b| b.buffer)
            .collect();
        for (b, buffer) in f.buffers.iter() {
            if buffer.scope == Scope::Global && !places.contains_key(&b) && bound.contains(&b) {
                let elements = buffer.numel().as_const().unwrap_or(0) as u64;
                places.insert(b, Place::Pool(self.pool.len()));
                let bytes = buffer.encoding.storage_bytes(buffer.dtype, elements);
                self.pool.push(PoolValue { bytes, first, last, scratch: true });
            }
        }
        for (kernel, _) in f.kernels() {
            let kernel = self.kernel_of[&(name, kernel)];
            let list = self.kernels[kernel].emitted.bindings.iter().map(|b| (places[&b.buffer], b.bank)).collect();
            self.pending.push(Pending::Dispatch { kernel, places: list, group: index });
        }
        let types = node.outputs.iter().map(|&v| main.ty(v).clone()).collect::<Vec<_>>();
        let op = OpRef::new(CallTensor { callee: name });
        let m = self.module.main_mut();
        m.nodes[n].op = op;
        debug_assert_eq!(types.len(), m.nodes[n].outputs.len());
        Ok(())
    }

    fn finish(mut self, main: &Function) -> Result<Compiled, CompileError> {
        let steps = self.pending.len();
        let lifetimes: Vec<Lifetime> =
            self.pool.iter().map(|p| Lifetime { bytes: p.bytes, first: p.first, last: p.last.min(steps) }).collect();
        // Values of several banks share buffers among themselves only: a bank boundary must be where the kernel expects it.
        let (slots, sizes) = assign_classes(&lifetimes, &|l| l.bytes > self.profile.max_binding);
        let mut plan = Plan { kernels: std::mem::take(&mut self.kernels), ..Plan::default() };
        let mut numbers: FxHashMap<Place, usize> = FxHashMap::default();
        let mut memory = MemoryReport {
            activations_peak: sizes.iter().sum(),
            activations_naive: self.pool.iter().filter(|p| !p.scratch).map(|p| p.bytes).sum(),
            weights: 0,
        };
        for (s, &bytes) in sizes.iter().enumerate() {
            numbers.insert(Place::Pool(usize::MAX - s), plan.buffers.len());
            plan.buffers.push(PlanBuffer {
                content: Content::Pool,
                bytes,
                bank_bytes: bank_bytes(bytes, self.profile),
            });
        }
        let mut ctx = Numbering { numbers, slots: &slots, module: &self.module, profile: self.profile };
        for (i, &p) in main.params().iter().enumerate() {
            let place = self.place[&p];
            let buffer = ctx.number(&mut plan, place, Some(main.ty(p)))?;
            plan.inputs.push(slot(main, p, (buffer, place), self.profile, Name::new(&format!("input{i}")))?);
        }
        let module = Arc::new(host_module(&self.module));
        for p in &self.pending {
            match p {
                Pending::Dispatch { kernel, places, group } => {
                    let mut buffers = Vec::with_capacity(places.len());
                    for (place, bank) in places {
                        buffers.push((ctx.number(&mut plan, *place, None)?, *bank));
                    }
                    let d = Dispatch { kernel: *kernel, buffers, symbols: vec![], group: *group };
                    match plan.steps.last_mut() {
                        Some(Step::Gpu(list)) => list.push(d),
                        _ => plan.steps.push(Step::Gpu(vec![d])),
                    }
                }
                Pending::Host { node: n, inputs, group } => {
                    let Node { name, outputs, .. } = &main.nodes[*n];
                    let mut slots_of = |values: &[ValueId], plan: &mut Plan| -> Result<Vec<TensorSlot>, CompileError> {
                        values
                            .iter()
                            .map(|&v| {
                                let place = self.place[&v].seen_by_host();
                                let buffer = ctx.number(plan, place, Some(main.ty(v)))?;
                                slot(main, v, (buffer, place), self.profile, *name)
                            })
                            .collect()
                    };
                    let (i, o) = (slots_of(inputs, &mut plan)?, slots_of(outputs, &mut plan)?);
                    let run = host_function(&module, main, *n);
                    plan.steps.push(Step::Host(HostStep { name: *name, inputs: i, outputs: o, run, group: *group }));
                }
            }
        }
        for (i, &r) in main.results().iter().enumerate() {
            let name = main.result_names.get(i).copied().unwrap_or_else(|| Name::new(&format!("output{i}")));
            let place = self.place[&r].seen_by_host();
            let buffer = ctx.number(&mut plan, place, Some(main.ty(r)))?;
            let mut s = slot(main, r, (buffer, place), self.profile, name)?;
            s.name = name;
            plan.outputs.push(s);
        }
        memory.weights =
            plan.buffers.iter().filter(|b| matches!(b.content, Content::Constant { .. })).map(|b| b.bytes).sum();
        Ok(Compiled {
            module: self.module,
            unscheduled: self.unscheduled,
            groups: self.groups,
            plan,
            memory,
            remarks: self.remarks,
            passes: vec![],
            transposes: super::TransposeReport::default(),
            printed: vec![],
            profile: self.profile.clone(),
            ms: 0.0,
            timings: vec![],
            recording: None,
        })
    }
}

/// [`assign_pool`] for two classes of values that never share.
fn assign_classes(values: &[Lifetime], class: &dyn Fn(&Lifetime) -> bool) -> (Vec<usize>, Vec<u64>) {
    let mut slots = vec![0; values.len()];
    let mut sizes = Vec::new();
    for wanted in [false, true] {
        let members: Vec<usize> = (0..values.len()).filter(|&i| class(&values[i]) == wanted).collect();
        let (s, bytes) = assign_pool(&members.iter().map(|&i| values[i]).collect::<Vec<_>>());
        for (&i, slot) in members.iter().zip(s) {
            slots[i] = slot + sizes.len();
        }
        sizes.extend(bytes);
    }
    (slots, sizes)
}

/// Gives places their plan buffers, on first use.
struct Numbering<'a> {
    numbers: FxHashMap<Place, usize>,
    slots: &'a [usize],
    module: &'a Module,
    profile: &'a DeviceProfile,
}
impl Numbering<'_> {
    fn number(&mut self, plan: &mut Plan, place: Place, ty: Option<&TensorType>) -> Result<usize, CompileError> {
        let key = match place {
            Place::Pool(i) => Place::Pool(usize::MAX - self.slots[i]),
            p => p,
        };
        if let Some(&n) = self.numbers.get(&key) {
            return Ok(n);
        }
        if let Place::Host(content) = key {
            plan.buffers.push(PlanBuffer { content: Content::Host(content), bytes: 0, bank_bytes: 0 });
            self.numbers.insert(key, plan.buffers.len() - 1);
            return Ok(plan.buffers.len() - 1);
        }
        let bug = |m: &str| CompileError::Bug { at: "plan".into(), message: m.into() };
        let (content, elements, dtype) = match key {
            Place::Pool(_) | Place::Host(_) => return Err(bug("a value without a slot")),
            Place::Input(i) => {
                let ty = ty.ok_or_else(|| bug("an input without a type"))?;
                (Content::Input(i), ty.numel().as_const().unwrap_or(0) as u64, ty.dtype)
            }
            Place::Constant(name, packed) => {
                let c = self.module.constants.get(&name).ok_or_else(|| bug("a constant is missing"))?;
                let packer = packed.and_then(|p| find_packer(self.module, p));
                let elements = match &packer {
                    Some(p) => p.outputs().next().and_then(|b| p.buffers[b].numel().as_const()).unwrap_or(0) as u64,
                    None => c.shape.iter().product::<usize>() as u64,
                };
                (Content::Constant { name, packer }, elements, c.dtype)
            }
        };
        let encoding = value_encoding(dtype, self.profile)
            .ok_or_else(|| CompileError::NeedsCpu(format!("{dtype} data is only held by the CPU executor")))?;
        let bytes = encoding.storage_bytes(dtype, elements);
        plan.buffers.push(PlanBuffer { content, bytes, bank_bytes: bank_bytes(bytes, self.profile) });
        self.numbers.insert(key, plan.buffers.len() - 1);
        Ok(plan.buffers.len() - 1)
    }
}

fn find_packer(module: &Module, label: Name) -> Option<Arc<TensorFunction>> {
    let (function, buffer) = label.as_str().rsplit_once('/')?;
    let f = module.tensor_functions.get(&Name::new(function))?;
    let p = f.prepacks.iter().find(|p| f.buffers[p.buffer].name.as_str() == buffer)?;
    Some(Arc::new((*p.packer).clone()))
}

fn slot(
    f: &Function,
    v: ValueId,
    (buffer, place): (usize, Place),
    profile: &DeviceProfile,
    fallback: Name,
) -> Result<TensorSlot, CompileError> {
    let ty = f.ty(v);
    let encoding = match place {
        Place::Host(_) => Encoding::Native,
        _ => value_encoding(ty.dtype, profile)
            .ok_or_else(|| CompileError::NeedsCpu(format!("{} data is only held by the CPU executor", ty.dtype)))?,
    };
    let shape = ty
        .const_shape()
        .ok_or_else(|| CompileError::OpenDim { dim: format!("{:?}", ty.shape), value: fallback.to_string() })?;
    Ok(TensorSlot { name: f.values[v].name.unwrap_or(fallback), buffer, dtype: ty.dtype, shape, encoding })
}

/// What host steps need of the module: functions and constants, no tensor functions.
fn host_module(m: &Module) -> Module {
    Module {
        entry: m.entry,
        functions: m.functions.clone(),
        tensor_functions: IndexMap::new(),
        constants: m.constants.clone(),
    }
}

type HostFunction = Arc<dyn Fn(&[crate::tensor::Tensor]) -> Result<Vec<crate::tensor::Tensor>, String> + Send + Sync>;

fn host_function(module: &Arc<Module>, main: &Function, n: NodeId) -> HostFunction {
    let module = module.clone();
    let op = main.nodes[n].op.clone();
    if let Some(function) = op.downcast::<Call>().map(|c| c.callee) {
        return Arc::new(move |inputs| crate::cpu::run_function(&module, function, inputs).map_err(|e| e.to_string()));
    }
    let present: Vec<bool> = main.nodes[n].inputs.iter().map(|v| v.is_some()).collect();
    Arc::new(move |inputs| {
        let mut given = inputs.iter().cloned();
        let operands: Vec<_> = present.iter().map(|&p| if p { given.next() } else { None }).collect();
        crate::cpu::eval_node(&op, &operands, &module)
    })
}
