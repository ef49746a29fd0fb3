//! The first stage: how each call of the entry function runs, and which of its values are on the device.

use super::callees::Joined;
use super::error::CompileError;
use super::group_form::{Form, lower, written};
use super::residency::{Aliases, constant_values, device_values};
use crate::graph::{Function, Module, NodeId, ValueId};
use crate::int::DimRanges;
use crate::name::Name;
use crate::ops::control::CallTensor;
use crate::profile::DeviceProfile;
use crate::tir::{BufferId, Expr, TensorFunction};
use rustc_hash::{FxHashMap, FxHashSet};

/// The groups of a module in their forms.
pub(super) struct Lowered {
    /// The form of each node that calls a group.
    pub forms: FxHashMap<NodeId, Form>,
    /// The values on the device; the others are in host memory.
    pub on_device: FxHashSet<ValueId>,
    /// The values that are constants, perhaps in another shape.
    pub constants: FxHashMap<ValueId, Name>,
    pub aliases: Aliases,
}

impl Lowered {
    /// Lowers all groups; the nodes in `on_host` become host steps, for the reasons that are given.
    ///
    /// # Errors
    /// A group whose tensors a kernel has no bindings for.
    pub fn of(
        Joined { module, main, .. }: &Joined,
        (profile, dims): (&DeviceProfile, &DimRanges),
        on_host: &FxHashMap<NodeId, String>,
    ) -> Result<Lowered, CompileError> {
        let mut forms = lower_all(module, main, profile, dims);
        forms.extend(on_host.iter().map(|(&n, why)| (n, Form::Host(why.clone()))));
        check_bindings(main, &forms, profile)?;
        let aliases = Aliases::of(main, &forms);
        let on_device = device_values(main, &forms, &aliases);
        let constants = constant_values(main, &forms);
        Ok(Lowered { forms, on_device, constants, aliases })
    }
}

/// The groups of `main`, lowered.
fn lower_all(module: &Module, main: &Function, profile: &DeviceProfile, dims: &DimRanges) -> FxHashMap<NodeId, Form> {
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
fn check_bindings(
    main: &Function,
    forms: &FxHashMap<NodeId, Form>,
    profile: &DeviceProfile,
) -> Result<(), CompileError> {
    for n in main.walk() {
        let Some(Form::Kernel(group)) = forms.get(&n) else { continue };
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
