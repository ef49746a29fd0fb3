//! Callbacks of other crates that set the layout of an op on a target, or replace the op: TVM's FTVMAlterOpLayout.

use super::propagation::Propagation;
use super::scheme::Scheme;
use super::{AutoLayout, LayoutMode};
use crate::graph::{BlockId, Function, Module, NodeId, TensorType};
use crate::name::Name;
use crate::ops::{DataLayout, InferContext, OpRef};
use crate::passes::PassContext;
use crate::passes::rewriter::Rewriter;
use crate::profile::DeviceProfile;
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::Arc;

/// A node that a callback is asked about.
#[derive(Clone, Debug)]
pub struct LayoutQuestion<'a> {
    /// The op.
    pub op: &'a OpRef,
    /// The node's name in the model.
    pub name: Name,
    /// Types of the operands; none for those that are absent.
    pub inputs: Vec<Option<&'a TensorType>>,
    /// Types of the results.
    pub outputs: Vec<&'a TensorType>,
    /// The target.
    pub profile: &'a DeviceProfile,
}

/// The answer of a callback.
#[derive(Clone, PartialEq, Debug)]
pub enum LayoutAnswer {
    /// It runs in this layout.
    Layout(DataLayout),
    /// This op takes its place: of the same operands it gives results of the same types.
    Op(OpRef),
}

type Ask = dyn Fn(&LayoutQuestion<'_>) -> Option<LayoutAnswer> + Send + Sync;

/// A named callback, for [`PassContext::alter_layouts`]. It must always give the same answer to the same question.
#[derive(Clone)]
pub struct AlterLayout {
    name: &'static str,
    ask: Arc<Ask>,
}

impl AlterLayout {
    /// A callback about every op.
    pub fn new(
        name: &'static str,
        ask: impl Fn(&LayoutQuestion<'_>) -> Option<LayoutAnswer> + Send + Sync + 'static,
    ) -> AlterLayout {
        AlterLayout { name, ask: Arc::new(ask) }
    }
    /// A callback about ops of type `T`.
    pub fn of<T: 'static>(
        name: &'static str,
        ask: impl Fn(&T, &LayoutQuestion<'_>) -> Option<LayoutAnswer> + Send + Sync + 'static,
    ) -> AlterLayout {
        AlterLayout::new(name, move |q| ask(q.op.downcast::<T>()?, q))
    }
    /// Its name, which remarks show.
    pub fn name(&self) -> &'static str {
        self.name
    }
}
impl fmt::Debug for AlterLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AlterLayout").field(&self.name).finish()
    }
}
/// The same callback, not merely one of the same name.
impl PartialEq for AlterLayout {
    fn eq(&self, other: &AlterLayout) -> bool {
        Arc::ptr_eq(&self.ask, &other.ask)
    }
}

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
    pass: &AutoLayout,
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
    pass: &AutoLayout,
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
