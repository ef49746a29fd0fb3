//! eliminate-dead: removes nodes without users and effects, constants without readers, and fused groups without calls.
//!
//! ```text
//! %0 = relu %x
//! %1 = exp %x           =>     %0 = relu %x
//! return %0                    return %0
//! ```
//!
//! Operands of a removed node are removed if they have no other users. Stateful nodes and their operands stay, and
//! nodes that decide a size of what stays.

use super::remove_unused_functions::{reachable, remove_unread_constants};
use super::{Pass, PassContext, PassError};
use crate::arena::Id;
use crate::attr_struct;
use crate::graph::{Function, Module, NodeId};
use crate::name::Name;
use crate::ops::control::Const;
use rustc_hash::{FxHashMap, FxHashSet};

attr_struct! {
    /// Removes unused nodes.
    pub struct EliminateDead("eliminate-dead") {}
}

impl Pass for EliminateDead {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let stateful = stateful_functions(module);
        let mut changed = false;
        for f in module.functions.values_mut() {
            let dead = dead_nodes(f, &stateful);
            if !dead.is_empty() {
                let mut names: Vec<Name> =
                    dead.iter().filter(|&&n| !f.nodes[n].op.is::<Const>()).map(|&n| f.nodes[n].name).collect();
                names.sort();
                if !names.is_empty() {
                    cx.applied(self, &names, format!("removed {} unused nodes of @{}", names.len(), f.name));
                }
                f.remove_nodes(&dead);
                changed = true;
            }
        }
        changed |= remove_unused_globals(module);
        Ok(changed)
    }
}

/// Functions that have an effect, directly or through calls.
pub(super) fn stateful_functions(module: &Module) -> FxHashSet<Name> {
    let mut stateful = FxHashSet::default();
    loop {
        let before = stateful.len();
        for f in module.functions.values() {
            if f.walk().iter().any(|&n| is_stateful(f, n, &stateful)) {
                stateful.insert(f.name);
            }
        }
        if stateful.len() == before {
            return stateful;
        }
    }
}

/// True when the node itself has an effect; nodes in its regions are asked on their own.
fn is_stateful(f: &Function, n: NodeId, functions: &FxHashSet<Name>) -> bool {
    let op = &f.nodes[n].op;
    op.effects().stateful || op.callee().is_some_and(|c| functions.contains(&c))
}

/// One sweep from the last node to the first: a node lives when it has an effect or a live result, or decides a size of
/// a live one. An op's regions are
/// visited after (that is, swept before) the op's own operands, and live when the op does.
fn dead_nodes(f: &Function, stateful: &FxHashSet<Name>) -> FxHashSet<NodeId> {
    let order = f.walk();
    let mut effect = vec![false; f.nodes.len()];
    for &n in order.iter().rev() {
        effect[n.index()] |= is_stateful(f, n, stateful);
        if effect[n.index()]
            && let Some(owner) = f.nodes[n].block.and_then(|b| f.blocks[b].owner)
        {
            effect[owner.index()] = true;
        }
    }
    let symbols = |n: NodeId| f.nodes[n].op.defined_symbols().into_iter().map(move |symbol| (symbol, n));
    let deciding: FxHashMap<Name, NodeId> = order.iter().flat_map(|&n| symbols(n)).collect();
    let mut live_value = vec![false; f.values.len()];
    let mut live_node = vec![false; f.nodes.len()];
    let mut work: Vec<NodeId> = order.iter().copied().filter(|n| effect[n.index()]).collect();
    let mut values: Vec<_> = f.results().to_vec();
    loop {
        while let Some(v) = values.pop() {
            if !std::mem::replace(&mut live_value[v.index()], true)
                && let Some(n) = f.def_node(v)
            {
                work.push(n);
            }
        }
        let Some(n) = work.pop() else { break };
        if std::mem::replace(&mut live_node[n.index()], true) {
            continue;
        }
        let node = &f.nodes[n];
        values.extend(node.inputs.iter().flatten());
        let dims = node.outputs.iter().filter(|_| !deciding.is_empty()).flat_map(|&v| &f.ty(v).shape);
        work.extend(dims.flat_map(|d| d.vars()).filter_map(|symbol| deciding.get(&symbol)));
        for &r in &node.regions {
            values.extend(&f.blocks[r].results);
        }
        work.extend(node.block.and_then(|b| f.blocks[b].owner));
    }
    order.into_iter().filter(|n| !live_node[n.index()]).collect()
}

/// Fused groups without calls, and constants without readers.
fn remove_unused_globals(module: &mut Module) -> bool {
    let roots: Vec<Name> = module.functions.values().filter(|f| !f.primitive).map(|f| f.name).collect();
    let (called, before) = (reachable(module, roots), module.functions.len());
    module.functions.retain(|n, _| called.contains(n));
    remove_unread_constants(module) || before != module.functions.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::graph::{FunctionBuilder, TensorType};
    use crate::ops::control::CallHost;
    use crate::passes::run_pass;
    use crate::tensor::Tensor;

    #[test]
    fn unused_constants_go_and_effects_stay() {
        let mut m = Module::new("main");
        let mut b = FunctionBuilder::new(&mut m, "main");
        let x = b.param("x", TensorType::fixed(DType::F32, &[2]));
        let used = b.constant("w", &Tensor::scalar(1f32));
        b.constant("unused", &Tensor::scalar(2f32));
        let host = CallHost { callee: Name::new("log"), dtypes: vec![], shapes: vec![], ..CallHost::default() };
        b.add_multi(host, vec![Some(x), Some(used)], vec![]).unwrap();
        b.finish(&[(Name::new("y"), x)]);
        let mut cx = PassContext::default();
        assert!(run_pass(&EliminateDead {}, &mut m, &mut cx).unwrap());
        assert_eq!(m.constants.keys().map(|k| k.as_str()).collect::<Vec<_>>(), ["w"]);
        assert_eq!(m.main().live_nodes(), 2);
        assert!(!run_pass(&EliminateDead {}, &mut m, &mut cx).unwrap());
    }
}
