//! Reasons why two nodes are in different groups: the failed condition with its values.

use super::forward::{ForwardGraph, Source};
use crate::graph::Function;
use crate::tir::FusionKind;

/// A failed condition of the fusion rules. Numbers are nodes of the forward graph.
#[derive(Clone, PartialEq, Debug)]
pub enum Reason {
    /// The node has no post-dominator.
    NoDominator,
    /// The post-dominator is the operand list of a concat.
    Tuple {
        /// The list.
        sink: usize,
    },
    /// The way to the post-dominator has an edge of too large a kind.
    Edge {
        /// The post-dominator.
        sink: usize,
        /// Largest edge kind.
        edge: FusionKind,
        /// The kinds that the rule allows.
        needs: &'static str,
    },
    /// A group on the way has too large a kind.
    Path {
        /// The node on the way.
        at: usize,
        /// Its group's kind.
        kind: FusionKind,
    },
    /// A group on the way has an anchor already.
    Anchored {
        /// The node on the way.
        at: usize,
        /// Its group's anchor.
        anchor: usize,
    },
    /// Nothing follows a reduction in its kernel.
    Reduction {
        /// The post-dominator.
        sink: usize,
    },
    /// Too many nodes.
    Size {
        /// Nodes of the group.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// Too many storage buffers.
    Bindings {
        /// Buffers of the group.
        count: u32,
        /// The limit.
        limit: u32,
    },
    /// Too many scalar operations for an element: a driver would compile the kernel for seconds.
    Operations {
        /// Operations in the kernel's text.
        operations: f64,
        /// The limit.
        limit: usize,
    },
}

impl Reason {
    /// True for a limit that does not depend on the nodes of the group.
    pub fn is_limit(&self) -> bool {
        matches!(self, Reason::Size { .. } | Reason::Bindings { .. } | Reason::Operations { .. })
    }
    /// The failed condition about node `i`, with its values, in the terms of fusion kinds.
    pub fn condition(&self, g: &ForwardGraph, f: &Function, i: usize, device: &str) -> String {
        let name = |x: usize| describe(g, f, x);
        match self {
            Reason::NoDominator if g.nodes[i].escapes => "its result leaves the function and others use it too".into(),
            Reason::NoDominator => "its uses never meet again".into(),
            Reason::Tuple { sink } => {
                format!("nothing with an anchor or a reduction enters {}", name(*sink))
            }
            Reason::Edge { sink, edge, needs } => format!(
                "{} is {}, and the way to {} has an edge of kind {edge}, where at most {needs} is allowed",
                name(i),
                g.nodes[i].kind,
                name(*sink)
            ),
            Reason::Path { at, kind } => format!("{} is in a group of kind {kind}", name(*at)),
            Reason::Anchored { at, anchor } => format!("{} is already anchored by {}", name(*at), name(*anchor)),
            Reason::Reduction { .. } => format!("nothing follows the reduction {} in its kernel", name(i)),
            Reason::Size { size, limit } => format!("the group would have {size} nodes, the depth limit is {limit}"),
            Reason::Bindings { count, limit } => {
                format!("the group would have {count} bindings, {device} has {limit}")
            }
            Reason::Operations { operations, limit } => format!(
                "an element would take {operations} operations, the limit is {limit} (`fuse-ops {{max_operations=N}}`)"
            ),
        }
    }
}

/// A node of the forward graph for messages.
pub(super) fn describe(g: &ForwardGraph, f: &Function, x: usize) -> String {
    let node = &f.nodes[g.nodes[x].source.node()];
    match g.nodes[x].source {
        Source::Node(_) => node.name.to_string(),
        Source::Tuple(_) => format!("the operands of {}", node.name),
        Source::Projection(_, i) => format!("result {i} of {}", node.name),
    }
}
