//! The form of a group: a tensor function that becomes kernels, a view, or a step on the host.

use super::forms::{assign_encodings, is_view, value_encoding};
use crate::graph::{Function, Module, NodeId, ValueId};
use crate::int::{DimRanges, Int};
use crate::lowering::{LoweredGroup, lower_group};
use crate::name::Name;
use crate::ops::control::{CallTensor, Const};
use crate::profile::DeviceProfile;
use crate::schedule::apply_pending;
use crate::schedule::rules::has_edited_choices;
use crate::tir::{Encoding, TensorFunction};
use rustc_hash::FxHashMap;

/// The form of a group.
pub(super) enum Form {
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
) -> Form {
    if !profile.model().shaders && is_alone_and_sequential(f) {
        return Form::Host("one step after another is less work than a kernel whose elements do not wait".into());
    }
    let mut group = match lower_group(module, f, Name::new(&format!("t_{}", f.name))) {
        Ok(group) => group,
        Err(e) => return Form::Host(e.to_string()),
    };
    let t = &mut group.function;
    t.declare_symbols(dims);
    if is_view(t) {
        return Form::View;
    }
    if !t.updates_are_apart() {
        return Form::Host(OVERWRITES.into());
    }
    if t.buffers.iter().any(|(_, b)| b.numel().is(0)) {
        return Form::Host("a tensor has no elements".into());
    }
    let operands = main.nodes[n].inputs.iter().flatten();
    if let Some(why) = operands.clone().find_map(|&v| too_wide(module, main, v, profile)) {
        return Form::Host(why);
    }
    let values = operands.chain(&main.nodes[n].outputs);
    if let Some(dtype) = values.map(|&v| main.ty(v).dtype).find(|&d| value_encoding(d, profile).is_none()) {
        return Form::Host(format!("{dtype} data has no storage form on the device"));
    }
    match assign_encodings(t, profile) {
        Ok(()) => Form::Kernel(Box::new(group)),
        Err(why) => Form::Host(why),
    }
}

/// Why an update is no kernel.
const OVERWRITES: &str = "it may read what it overwrites";

/// Bytes of a result that the host computes beside a copy of the operand, at most.
const MOST_ON_HOST: usize = 1 << 22;

/// True for a group of one op that is less work on the host; with other nodes, and for large results, it is a kernel.
fn is_alone_and_sequential(f: &Function) -> bool {
    let nodes: Vec<NodeId> = f.walk().into_iter().filter(|&n| !f.nodes[n].op.is::<Const>()).collect();
    let small = |v: &ValueId| f.ty(*v).bytes().is_none_or(|n| n <= MOST_ON_HOST);
    matches!(nodes[..], [n] if f.nodes[n].op.is_less_work_on_host() && f.nodes[n].outputs.iter().all(small))
}

/// A tensor function that came with the module, as it is written: it keeps its schedule and storage forms where it has
/// them.
pub(super) fn written(module: &Module, main: &Function, n: NodeId, callee: Name, profile: &DeviceProfile) -> Form {
    let Some(f) = module.tensor_functions.get(&callee) else {
        return Form::Host("the called tensor function is missing".into());
    };
    let mut t = f.clone();
    t.number_stages();
    let known = unify_symbols(main, n, &t);
    if let Err(why) = t.check_sizes(&known) {
        return Form::Host(why);
    }
    let numbers = known.iter().filter_map(|(&symbol, d)| Some((symbol, d.as_const()?))).collect();
    let fixed = t.with_sizes(&numbers);
    // A schedule for open sizes may name loops that have one iteration for these: then its kernels are those for all
    // sizes.
    let applies = |f: &TensorFunction| has_edited_choices(f) || apply_pending(&mut f.clone()).is_ok();
    if applies(&fixed) || !applies(&t) {
        t = fixed;
    }
    if let Some(why) = main.nodes[n].inputs.iter().flatten().find_map(|&v| too_wide(module, main, v, profile)) {
        return Form::Host(why);
    }
    if !t.updates_are_apart() {
        return Form::Host(OVERWRITES.into());
    }
    if t.pending.is_empty()
        && t.kernels().is_empty()
        && let Err(why) = assign_encodings(&mut t, profile)
    {
        return Form::Host(why);
    }
    let foreign = t.params.iter().map(|p| &t.buffers[p.buffer]);
    let foreign = foreign.clone().find(|b| value_encoding(b.dtype, profile) != Some(b.encoding));
    match foreign {
        Some(b) => Form::Host(format!("%{} is stored in another device's form of {}", b.name, b.dtype)),
        None => Form::Kernel(Box::new(LoweredGroup { function: t, stages: vec![] })),
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

/// Why a constant operand cannot be stored in the 32 bits that the device has for it.
fn too_wide(module: &Module, main: &Function, v: ValueId, profile: &DeviceProfile) -> Option<String> {
    if value_encoding(main.ty(v).dtype, profile) != Some(Encoding::Narrow) {
        return None;
    }
    let (_, c) = main.def_op::<Const>(v)?;
    let tensor = module.constants.get(&c.name)?.load().ok()?;
    let wide = tensor.to_i64_vec().into_iter().find(|&x| i32::try_from(x).is_err())?;
    Some(format!("the constant {wide} does not fit 32 bits"))
}
