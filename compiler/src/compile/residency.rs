//! Where values live: in device memory if a kernel uses them, else in host memory.
//!
//! A view shares its operand's memory, so both live in the same place. Constants have no such location: host steps read
//! them from the module, kernels from a device buffer for each constant.

use super::callees::Bodies;
use super::error::CompileError;
use super::forms::value_encoding;
use super::group_form::Form;
use super::host::is_device_call;
use crate::graph::{Function, NodeId, ValueId};
use crate::name::Name;
use crate::ops::control::{Const, Loop};
use crate::profile::DeviceProfile;
use rustc_hash::{FxHashMap, FxHashSet};

/// Which values share memory: views with their operands.
pub(super) struct Aliases {
    source: FxHashMap<ValueId, ValueId>,
}

impl Aliases {
    /// Those of `main`.
    pub fn of(main: &Function, forms: &FxHashMap<NodeId, Form>) -> Aliases {
        let mut a = Aliases { source: FxHashMap::default() };
        for n in main.walk() {
            let node = &main.nodes[n];
            if let (Some(Form::View), Some(&from)) = (forms.get(&n), node.inputs.iter().flatten().next()) {
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
pub(super) fn device_values(main: &Function, forms: &FxHashMap<NodeId, Form>, aliases: &Aliases) -> FxHashSet<ValueId> {
    let (nodes, bodies) = (main.walk(), Bodies::of(main));
    let mut touched = FxHashSet::default();
    let mut together: Vec<Vec<ValueId>> = vec![];
    for &n in &nodes {
        let node = &main.nodes[n];
        if matches!(forms.get(&n), Some(Form::Kernel(_))) || is_device_call(main, n) {
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
pub(super) fn constant_values(main: &Function, forms: &FxHashMap<NodeId, Form>) -> FxHashMap<ValueId, Name> {
    let mut out: FxHashMap<ValueId, Name> = FxHashMap::default();
    for n in main.walk() {
        let node = &main.nodes[n];
        let name = match (node.op.downcast::<Const>(), forms.get(&n)) {
            (Some(c), _) => Some(c.name),
            (None, Some(Form::View)) => node.inputs.iter().flatten().next().and_then(|v| out.get(v).copied()),
            _ => None,
        };
        out.extend(name.map(|name| (node.outputs[0], name)));
    }
    out
}
