//! The report of a group: its nodes, how it runs, and its cost.

use super::names::{Sources, label};
use super::work::{node_flops, node_macs};
use crate::graph::{Function, Node, NodeId, Origins};
use crate::name::Name;
use crate::ops::control::Const;
use crate::report::GroupKind;

/// One fused group of the compiled module.
#[derive(Clone, Debug)]
pub struct Group {
    /// Primitive function of the group.
    pub function: Name,
    /// The source node that represents it: its anchor, or else its first source node.
    pub layer: Name,
    /// A short name of the layer and the ops fused with it.
    pub label: String,
    /// Source nodes, sorted.
    pub origins: Vec<Name>,
    /// The group has no source node: passes inserted all of it. `origins` are the nodes that it serves.
    pub inserted: bool,
    /// Source nodes of each stage of its unscheduled tensor function. Empty for a function of the source module: each
    /// of its stages belongs to all origins.
    pub stages: Vec<Vec<Name>>,
    /// Op names in order.
    pub ops: Vec<&'static str>,
    /// Names of the group's nodes, in order.
    pub nodes: Vec<Name>,
    /// Op name of the anchor.
    pub anchor: Option<&'static str>,
    /// Layout of the anchor.
    pub layout: Option<&'static str>,
    /// Schedule rule; empty for views and host groups.
    pub rule: &'static str,
    /// How it runs.
    pub kind: GroupKind,
    /// The tensor function (shared by equal groups).
    pub tensor_function: Option<Name>,
    /// The host function that it calls.
    pub host_function: Option<Name>,
    /// Groups whose results it reads, by their position.
    pub reads: Vec<usize>,
    /// A result of it is one of the model's.
    pub is_result: bool,
    /// Floating-point operations (two per multiply-accumulate, one per element of other ops).
    pub flops: u64,
    /// Bytes that its dispatches read and write: operands, results and scratch between them.
    pub bytes: u64,
}

/// The group that node `n` of `main` calls: the primitive function `f`, whose stages are of these nodes.
pub(super) fn fused_group(
    main: &Function,
    n: NodeId,
    f: &Function,
    stages: &[Option<NodeId>],
    sources: &Sources,
) -> Group {
    let computes = |&i: &NodeId| !f.nodes[i].op.is::<Const>() && !f.nodes[i].op.is_scope();
    let inner: Vec<_> = f.walk().into_iter().filter(computes).collect();
    let origins = inner.iter().fold(main.nodes[n].origins.clone(), |o, &i| o.union(&f.nodes[i].origins));
    let mut anchor: Option<(u64, NodeId)> = None;
    for &i in &inner {
        let op = &f.nodes[i].op;
        let macs = node_macs(f, i);
        let is_anchor = macs > 0 || op.layout().is_some() || op.layout_name().is_some();
        if is_anchor && anchor.is_none_or(|a| macs > a.0) {
            anchor = Some((macs, i));
        }
    }
    let anchor = anchor.map(|a| &f.nodes[a.1]);
    let ops: Vec<&'static str> = inner.iter().map(|&i| f.nodes[i].op.name()).collect();
    let stands = anchor.or_else(|| first_of_the_model(f, &inner, sources)).unwrap_or(&main.nodes[n]);
    let label = label(origins.names(), (stands.op.name(), stands.origins.names(), stands.name), &ops, sources);
    let stage = |n: &Option<NodeId>| {
        let own = n.map_or(Origins::none(), |n| origins_of(f, n));
        // An inserted node may serve nodes of another group.
        let here: Vec<Name> = own.names().iter().copied().filter(|o| origins.names().contains(o)).collect();
        if here.is_empty() { origins.names().to_vec() } else { here }
    };
    Group {
        function: f.name,
        layer: label.layer,
        label: label.text,
        origins: origins.names().to_vec(),
        inserted: origins.are_served(),
        stages: stages.iter().map(stage).collect(),
        ops,
        nodes: inner.iter().map(|&i| f.nodes[i].name).collect(),
        anchor: anchor.map(|a| a.op.name()),
        layout: anchor.and_then(|a| a.op.layout_name()),
        rule: "",
        kind: GroupKind::Kernel,
        tensor_function: None,
        host_function: None,
        reads: vec![],
        is_result: false,
        flops: inner.iter().map(|&i| node_flops(f, i)).sum(),
        bytes: f.params().iter().chain(f.results()).filter_map(|&v| f.ty(v).bytes()).sum::<usize>() as u64,
    }
}

/// The first node that is in the model as it is here, rather than put in by a pass; else the first.
fn first_of_the_model<'f>(f: &'f Function, inner: &[NodeId], sources: &Sources) -> Option<&'f Node> {
    let mut nodes = inner.iter().map(|&i| &f.nodes[i]);
    let known = |n: &&Node| sources.holds(n.origins.names(), n.op.name());
    nodes.clone().find(known).or_else(|| nodes.next())
}

/// Source nodes of a node; those of its users for a constant, which has none of its own.
fn origins_of(f: &Function, n: NodeId) -> Origins {
    let node = &f.nodes[n];
    if !node.origins.names().is_empty() {
        return node.origins.clone();
    }
    let users = f.walk().into_iter().map(|u| &f.nodes[u]);
    let users = users.filter(|u| u.inputs.iter().flatten().any(|v| node.outputs.contains(v)));
    users.fold(Origins::none(), |o, u| o.union(&u.origins))
}

/// A call of the tensor function `callee` that came with the module.
pub(super) fn written_group(main: &Function, n: NodeId, callee: Name, sources: &Sources) -> Group {
    let node = &main.nodes[n];
    let values = node.inputs.iter().flatten().chain(&node.outputs);
    let bytes = values.filter_map(|&v| main.ty(v).bytes()).sum::<usize>() as u64;
    Group { bytes, kind: GroupKind::Kernel, function: callee, ..host_group(main, n, sources) }
}

/// A node outside any group, on the host.
pub(super) fn host_group(main: &Function, n: NodeId, sources: &Sources) -> Group {
    let node = &main.nodes[n];
    let ops = vec![node.op.name()];
    let label = label(node.origins.names(), (ops[0], node.origins.names(), node.name), &ops, sources);
    Group {
        function: node.name,
        layer: label.layer,
        label: label.text,
        origins: node.origins.names().to_vec(),
        inserted: node.origins.are_served(),
        stages: vec![],
        ops,
        nodes: vec![node.name],
        anchor: None,
        layout: None,
        rule: "",
        kind: GroupKind::Host,
        tensor_function: None,
        host_function: None,
        reads: vec![],
        is_result: false,
        flops: 0,
        bytes: 0,
    }
}
