//! Callbacks of other crates that set the layout of an op on a target, or replace the op: TVM's FTVMAlterOpLayout.

use super::propagation::Propagation;
use super::question::{LayoutAnswer, LayoutQuestion};
use super::scheme::Scheme;
use crate::graph::{BlockId, Function, Module, NodeId};
use crate::ops::{DataLayout, InferContext};
use crate::passes::rewriter::Rewriter;
use crate::passes::{LayoutMode, PassBase, PassContext};
use rustc_hash::FxHashMap;

/// The first answer about a node, and the callback that gave it.
fn answer(cx: &PassContext, f: &Function, n: NodeId) -> Option<(&'static str, LayoutAnswer)> {
    let node = &f.nodes[n];
    let question = LayoutQuestion {
        op: &node.op,
        name: node.name,
        inputs: node.inputs.iter().map(|v| v.map(|v| f.ty(v))).collect(),
        outputs: node.outputs.iter().map(|&v| f.ty(v)).collect(),
        profile: &cx.profile,
    };
    cx.alter_layouts.iter().find_map(|a| Some((a.name, (a.ask)(&question)?)))
}

/// The layouts to choose between if the mode does not decide and a callback names one: NCHW and the first one that is
/// named.
pub(super) fn wished_scheme(module: &Module, mode: LayoutMode, cx: &PassContext) -> Option<Scheme> {
    if mode != LayoutMode::Auto || cx.alter_layouts.is_empty() {
        return None;
    }
    let functions = module.functions.values().filter(|f| !f.primitive);
    let mut answers = functions.flat_map(|f| f.walk().into_iter().filter_map(|n| answer(cx, f, n)));
    answers.find_map(|(_, a)| match a {
        LayoutAnswer::Layout(other) if other != DataLayout::Nchw => Some(Scheme { other }),
        _ => None,
    })
}

/// Replaces ops of a block by the ops that callbacks return; true if there were any.
pub(super) fn replace_ops(
    pass: &dyn PassBase,
    r: &mut Rewriter<'_>,
    block: BlockId,
    cx: &mut PassContext,
) -> Result<bool, String> {
    let mut any = false;
    for n in r.f.blocks[block].nodes.clone() {
        let Some((by, LayoutAnswer::Op(op))) = answer(cx, &r.f, n) else { continue };
        let node = &r.f.nodes[n];
        let (name, inputs) = (node.name, node.inputs.clone());
        if node.op == op {
            continue;
        }
        let types = op.infer(&InferContext::new(r.module, &r.f, &inputs, &node.regions));
        let fits = match &types {
            Ok(types) if types.iter().eq(node.outputs.iter().map(|&v| r.f.ty(v))) => Ok(()),
            Ok(types) => Err(format!("its results would be {types:?}")),
            Err(why) => Err(why.to_string()),
        };
        match fits {
            Ok(()) => {
                cx.applied(pass, &[name], format!("{by}: {name} is {} instead of {}", op.name(), node.op.name()));
                r.update(n, op, inputs);
                any = true;
            }
            Err(why) => cx.missed(pass, &[name], format!("{by}: {name} cannot be {}: {why}", op.name())),
        }
    }
    Ok(any)
}

/// The colours that callbacks want of the convertible nodes of a block.
pub(super) fn wishes(
    pass: &dyn PassBase,
    r: &Rewriter<'_>,
    propagation: &Propagation,
    scheme: Scheme,
    cx: &mut PassContext,
) -> FxHashMap<NodeId, u8> {
    let mut out = FxHashMap::default();
    let mut nodes: Vec<NodeId> =
        propagation.convertible.keys().copied().chain(propagation.pinned.iter().map(|p| p.0)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    for n in nodes {
        let Some((by, LayoutAnswer::Layout(layout))) = answer(cx, &r.f, n) else { continue };
        let (name, title) = (r.f.nodes[n].name, layout.title());
        match scheme.colour(layout) {
            Some(colour) if propagation.convertible.contains_key(&n) => {
                out.insert(n, colour);
            }
            Some(_) => cx.missed(pass, &[name], format!("{by}: {name} cannot move to {title}")),
            None => cx.missed(pass, &[name], format!("{by}: {name} stays: {title} is not chosen from here")),
        }
    }
    out
}
