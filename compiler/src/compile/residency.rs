//! How each call runs, and where values live: in device memory if a kernel uses them, else in host memory.
//!
//! A view shares its operand's memory, so both live in the same place. Constants have no such location: host steps read
//! them from the module, kernels from a device buffer for each constant.

use super::CompileError;
use super::callees::Bodies;
use super::forms::{assign_encodings, is_view};
use super::host::is_device_call;
use crate::dtype::DType;
use crate::graph::{Function, Module, NodeId, ValueId};
use crate::int::{DimRanges, Int};
use crate::lowering::{LoweredGroup, lower_group};
use crate::name::Name;
use crate::ops::control::{CallTensor, Const, Loop};
use crate::profile::DeviceProfile;
use crate::schedule::apply_pending;
use crate::schedule::rules::has_edited_choices;
use crate::tir::{BufferId, Encoding, Expr, TensorFunction};
use rustc_hash::{FxHashMap, FxHashSet};

/// Storage form of a value that crosses group boundaries, from its dtype alone, so that all groups agree. None for
/// values that only the host holds.
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

/// The form of a group.
pub(super) enum Lowered {
    /// Its operand under another shape.
    View,
    /// A tensor function with storage forms; the nodes of its stages, where it is a group's.
    Kernel(Box<LoweredGroup>),
    /// A host step, and why.
    Host(String),
}

/// Lowers the group `f` that node `n` of `main` calls.
pub(super) fn lower(
    module: &Module,
    main: &Function,
    n: NodeId,
    f: &Function,
    (profile, dims): (&DeviceProfile, &DimRanges),
) -> Lowered {
    let mut group = match lower_group(module, f, Name::new(&format!("t_{}", f.name))) {
        Ok(group) => group,
        Err(e) => return Lowered::Host(e.to_string()),
    };
    let t = &mut group.function;
    t.declare_symbols(dims);
    if is_view(t) {
        return Lowered::View;
    }
    if t.buffers.iter().any(|(_, b)| b.numel().is(0)) {
        return Lowered::Host("a tensor has no elements".into());
    }
    let operands = main.nodes[n].inputs.iter().flatten();
    if let Some(why) = operands.clone().find_map(|&v| too_wide(module, main, v)) {
        return Lowered::Host(why);
    }
    let values = operands.chain(&main.nodes[n].outputs);
    if let Some(dtype) = values.map(|&v| main.ty(v).dtype).find(|&d| value_encoding(d, profile).is_none()) {
        return Lowered::Host(format!("{dtype} data has no storage form on the device"));
    }
    match assign_encodings(t, profile) {
        Ok(()) => Lowered::Kernel(Box::new(group)),
        Err(why) => Lowered::Host(why),
    }
}

/// A tensor function that came with the module, as it is written: it keeps its schedule and storage forms where it has
/// them.
fn written(module: &Module, main: &Function, n: NodeId, callee: Name, profile: &DeviceProfile) -> Lowered {
    let Some(f) = module.tensor_functions.get(&callee) else {
        return Lowered::Host("the called tensor function is missing".into());
    };
    let mut t = f.clone();
    t.number_stages();
    let known = unify_symbols(main, n, &t);
    if let Err(why) = t.check_sizes(&known) {
        return Lowered::Host(why);
    }
    let numbers = known.iter().filter_map(|(&symbol, d)| Some((symbol, d.as_const()?))).collect();
    let fixed = t.with_sizes(&numbers);
    // A schedule for open sizes may name loops that have one iteration for these: then its kernels are those for all
    // sizes.
    let applies = |f: &TensorFunction| has_edited_choices(f) || apply_pending(&mut f.clone()).is_ok();
    if applies(&fixed) || !applies(&t) {
        t = fixed;
    }
    if let Some(why) = main.nodes[n].inputs.iter().flatten().find_map(|&v| too_wide(module, main, v)) {
        return Lowered::Host(why);
    }
    if t.pending.is_empty()
        && t.kernels().is_empty()
        && let Err(why) = assign_encodings(&mut t, profile)
    {
        return Lowered::Host(why);
    }
    let foreign = t.params.iter().map(|p| &t.buffers[p.buffer]);
    let foreign = foreign.clone().find(|b| value_encoding(b.dtype, profile) != Some(b.encoding));
    match foreign {
        Some(b) => Lowered::Host(format!("%{} is stored in another device's form of {}", b.name, b.dtype)),
        None => Lowered::Kernel(Box::new(LoweredGroup { function: t, stages: vec![] })),
    }
}

/// The values of the symbols of tensor function `t`, which node `n` calls, from the dimensions of operands and results.
fn unify_symbols(main: &Function, n: NodeId, t: &TensorFunction) -> FxHashMap<Name, Int> {
    let node = &main.nodes[n];
    let values = node.inputs.iter().flatten().chain(&node.outputs).map(|&v| main.ty(v).shape.as_slice());
    let shapes = t.inputs().chain(t.outputs()).zip(values);
    match node.op.downcast::<CallTensor>() {
        Some(call) => call.unify(t, shapes),
        None => t.unify(shapes),
    }
}

/// The symbols of the tensor function that node `n` calls, as expressions in the module's symbols. A lowered group uses
/// the module's symbols directly; for a function of the source module they follow from the types of operands and
/// results.
pub(super) fn symbols_of(main: &Function, n: NodeId, f: &TensorFunction) -> Vec<(Name, Int)> {
    let known = unify_symbols(main, n, f);
    let of = |s: &(Name, i64, i64)| (s.0, known.get(&s.0).cloned().unwrap_or_else(|| Int::var(s.0)));
    f.symbols.iter().map(of).collect()
}

/// Why a constant operand cannot be stored in 32 bits.
fn too_wide(module: &Module, main: &Function, v: ValueId) -> Option<String> {
    if main.ty(v).dtype != DType::I64 {
        return None;
    }
    let (_, c) = main.def_op::<Const>(v)?;
    let tensor = module.constants.get(&c.name)?.load().ok()?;
    let wide = tensor.to_i64_vec().into_iter().find(|&x| i32::try_from(x).is_err())?;
    Some(format!("the constant {wide} does not fit 32 bits"))
}

/// Which values share memory: views with their operands.
pub(super) struct Aliases {
    source: FxHashMap<ValueId, ValueId>,
}

impl Aliases {
    /// Those of `main`.
    pub fn of(main: &Function, lowered: &FxHashMap<NodeId, Lowered>) -> Aliases {
        let mut a = Aliases { source: FxHashMap::default() };
        for n in main.walk() {
            let node = &main.nodes[n];
            if let (Some(Lowered::View), Some(&from)) = (lowered.get(&n), node.inputs.iter().flatten().next()) {
                let root = a.root(from);
                a.source.insert(node.outputs[0], root);
            }
        }
        a
    }
    /// The value whose memory `v` is in.
    pub fn root(&self, v: ValueId) -> ValueId {
        self.source.get(&v).copied().unwrap_or(v)
    }
    /// True if no later node, and no other operand of `n`, needs the memory of its operand `v`.
    pub fn ends_at(&self, main: &Function, v: ValueId, n: NodeId) -> bool {
        let root = self.root(v);
        let same = |u: &ValueId| self.root(*u) == root;
        let defined_in = main.def_node(root).and_then(|d| main.nodes[d].block);
        let Some(block) = main.nodes[n].block.filter(|b| defined_in == Some(*b)) else { return false };
        let nodes = &main.blocks[block].nodes;
        let at = nodes.iter().position(|&m| m == n).unwrap_or(0);
        let operands = main.nodes[n].inputs.iter().flatten().filter(|u| same(u)).count();
        let later = nodes[at + 1..].iter().any(|&m| uses(main, m).iter().any(same));
        operands == 1 && !later && !main.blocks[block].results.iter().any(same)
    }
}

/// The values that a node and the regions it owns use.
fn uses(main: &Function, n: NodeId) -> Vec<ValueId> {
    let node = &main.nodes[n];
    let mut out: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
    for &r in &node.regions {
        out.extend(&main.blocks[r].results);
        out.extend(main.blocks[r].nodes.iter().flat_map(|&m| uses(main, m)));
    }
    out
}

/// The values of `main` that live on the device: operands and results of kernels, and of host functions on device
/// buffers. The results of an `if` include the values that its branches yield.
pub(super) fn device_values(main: &Function, lowered: &FxHashMap<NodeId, Lowered>) -> FxHashSet<ValueId> {
    let aliases = Aliases::of(main, lowered);
    let (nodes, bodies) = (main.walk(), Bodies::of(main));
    let mut touched = FxHashSet::default();
    let mut together: Vec<Vec<ValueId>> = vec![];
    for &n in &nodes {
        let node = &main.nodes[n];
        if matches!(lowered.get(&n), Some(Lowered::Kernel(_))) || is_device_call(main, n) {
            touched.extend(node.inputs.iter().flatten().chain(&node.outputs).map(|&v| aliases.root(v)));
        }
        let classes = values_together(main, n, &bodies).into_iter();
        together.extend(classes.map(|class| class.into_iter().map(|v| aliases.root(v)).collect()));
    }
    let mut spread = true;
    while spread {
        let before = touched.len();
        for class in &together {
            if class.iter().any(|v| touched.contains(v)) {
                touched.extend(class.iter().copied());
            }
        }
        spread = touched.len() > before;
    }
    let defined = |&n: &NodeId| {
        let node = &main.nodes[n];
        let args = node.regions.iter().flat_map(|&r| main.blocks[r].args.iter().copied());
        args.chain(node.outputs.iter().copied()).collect::<Vec<_>>()
    };
    let all = main.params().iter().copied().chain(nodes.iter().flat_map(defined));
    all.filter(|&v| touched.contains(&aliases.root(v))).collect()
}

/// Sets of values at the regions of node `n` that must live in the same kind of memory: a result and the yielded
/// values; a carried value, its first value and its argument; operands and results of a call and those of the callee.
fn values_together(main: &Function, n: NodeId, bodies: &Bodies) -> Vec<Vec<ValueId>> {
    let node = &main.nodes[n];
    if let Some((_, body)) = bodies.called(main, n) {
        let body = &main.blocks[body];
        let operands = node.inputs.iter().flatten().zip(&body.args);
        let results = node.outputs.iter().zip(&body.results);
        return operands.chain(results).map(|(&a, &b)| vec![a, b]).collect();
    }
    let body = node.regions.first().map(|&r| &main.blocks[r]);
    if let (Some(op), Some(body)) = (node.op.downcast::<Loop>(), body) {
        let mut classes: Vec<Vec<ValueId>> = node.outputs.iter().map(|&v| vec![v]).collect();
        let yields = body.results.iter().skip(op.leading());
        classes.iter_mut().zip(yields).for_each(|(class, &v)| class.push(v));
        let carried = body.args.iter().skip(1).zip(node.inputs.iter().skip(Loop::CONTROL));
        classes.iter_mut().zip(carried).for_each(|(class, (&arg, first))| class.extend([arg].iter().chain(first)));
        return classes;
    }
    let regions = || node.regions.iter();
    let class = |(i, &v): (usize, &ValueId)| {
        regions().filter_map(|&r| main.blocks[r].results.get(i).copied()).chain([v]).collect()
    };
    node.outputs.iter().enumerate().filter(|_| !node.regions.is_empty()).map(class).collect()
}

/// Checks that the operands and results of host functions on device buffers have a device form.
///
/// # Errors
/// The first call that has an operand or a result without: the interpreter can run its reference.
pub(super) fn check_device_calls(main: &Function, profile: &DeviceProfile) -> Result<(), CompileError> {
    for &n in &main.walk() {
        let node = &main.nodes[n];
        if !is_device_call(main, n) {
            continue;
        }
        for &v in node.inputs.iter().flatten().chain(&node.outputs) {
            let ty = main.ty(v);
            let why = match value_encoding(ty.dtype, profile) {
                None => format!("{} data has no storage form on the device", ty.dtype),
                Some(_) if ty.numel().is(0) => "a tensor has no elements".into(),
                Some(_) => continue,
            };
            return Err(CompileError::NeedsCpu(format!(
                "`{}` calls a host function on the device, and {why}",
                node.name
            )));
        }
    }
    Ok(())
}

/// The values of `main` that are constants of the module, perhaps in another shape.
pub(super) fn constant_values(main: &Function, lowered: &FxHashMap<NodeId, Lowered>) -> FxHashMap<ValueId, Name> {
    let mut out: FxHashMap<ValueId, Name> = FxHashMap::default();
    for n in main.walk() {
        let node = &main.nodes[n];
        let name = match (node.op.downcast::<Const>(), lowered.get(&n)) {
            (Some(c), _) => Some(c.name),
            (None, Some(Lowered::View)) => node.inputs.iter().flatten().next().and_then(|v| out.get(v).copied()),
            _ => None,
        };
        out.extend(name.map(|name| (node.outputs[0], name)));
    }
    out
}

/// The groups of `main`, lowered.
pub(super) fn lower_all(
    module: &Module,
    main: &Function,
    profile: &DeviceProfile,
    dims: &DimRanges,
) -> FxHashMap<NodeId, Lowered> {
    let mut out = FxHashMap::default();
    for n in main.walk() {
        if let Some(call) = main.nodes[n].op.downcast::<CallTensor>() {
            out.insert(n, written(module, main, n, call.callee, profile));
        }
        let callee = main.nodes[n].op.callee().and_then(|c| module.functions.get(&c));
        if let Some(f) = callee.filter(|f| f.primitive) {
            out.insert(n, lower(module, main, n, f, (profile, dims)));
        }
    }
    out
}

/// Checks that each kernel's tensors, with all their slices, fit the bindings of a kernel.
///
/// # Errors
/// The first group that takes more: the interpreter has no such limit.
pub(super) fn check_bindings(
    main: &Function,
    lowered: &FxHashMap<NodeId, Lowered>,
    profile: &DeviceProfile,
) -> Result<(), CompileError> {
    for n in main.walk() {
        let Some(Lowered::Kernel(group)) = lowered.get(&n) else { continue };
        let t = &group.function;
        for block in t.body.blocks() {
            let mut together = vec![block.buffer];
            certain_loads(&block.value, &mut together);
            together.sort_unstable();
            together.dedup();
            let params = together.iter().filter(|b| t.params.iter().any(|p| p.buffer == **b));
            let need = params.map(|&b| slices(t, b, profile)).fold(0u64, u64::saturating_add);
            if need > u64::from(profile.max_storage_buffers) {
                return Err(CompileError::NeedsCpu(format!(
                    "`{}` works on tensors of {need} bindings at once, a kernel has {} on {}",
                    main.nodes[n].name, profile.max_storage_buffers, profile.name
                )));
            }
        }
    }
    Ok(())
}

/// Bindings of a buffer.
fn slices(t: &TensorFunction, b: BufferId, profile: &DeviceProfile) -> u64 {
    let buffer = &t.buffers[b];
    let numel = buffer.numel().as_const().and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    let bytes = buffer.encoding.storage_bytes(buffer.dtype, numel);
    if bytes <= profile.max_binding { 1 } else { bytes.div_ceil(profile.slice_bytes()) }
}

/// Buffers that every element's value reads. A schedule may split a choice into kernels that read one side each.
fn certain_loads(e: &Expr, out: &mut Vec<BufferId>) {
    match e {
        Expr::Load(b, _) => out.push(*b),
        Expr::Select(condition, ..) => certain_loads(condition, out),
        Expr::Unary(_, a) | Expr::Cast(_, a) => certain_loads(a, out),
        Expr::Binary(_, a, b) => {
            certain_loads(a, out);
            certain_loads(b, out);
        }
        Expr::Const(..) | Expr::Index(..) | Expr::All(_) => {}
    }
}
