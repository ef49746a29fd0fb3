//! What a module costs as a whole, as it would be fused: the choice by anchors sees no epilogues, and none of the kernels between
//! anchors, whose own costs a layout changes too.

use crate::cost::CostModel;
use crate::graph::{Function, Module, NodeId, ValueId};
use crate::ops::control::Const;
use crate::passes::fusion_kind::group_expression;
use crate::passes::pipeline::behind_layout;
use crate::passes::{PassContext, PassError, Sequential};
use crate::tir::BufferId;

/// The estimated nanoseconds of all kernels of the module, once the passes behind `auto-layout` have run. What has no kernel counts
/// nothing: it is the same in every layout.
///
/// # Errors
/// What one of those passes says.
pub fn cost(module: &Module, cx: &mut PassContext) -> Result<f64, PassError> {
    let mut fused = module.clone();
    let mut own = cx.apart();
    Sequential::new(behind_layout(cx.fuse)).run(&mut fused, &mut own)?;
    let model = cx.costs();
    let functions = fused.functions.values().filter(|f| !f.primitive);
    Ok(functions.map(|f| calls(&fused, f, &*model)).sum())
}

/// The kernels that a function calls, those of its regions included.
fn calls(module: &Module, f: &Function, model: &dyn CostModel) -> f64 {
    f.walk().into_iter().filter_map(|n| group(module, f, n, model)).sum()
}

/// The kernels of the group that node `n` calls.
fn group(module: &Module, f: &Function, n: NodeId, model: &dyn CostModel) -> Option<f64> {
    let node = &f.nodes[n];
    let callee = module.functions.get(&node.op.callee()?).filter(|c| c.primitive)?;
    let inside: Vec<NodeId> =
        callee.blocks[callee.body].nodes.iter().copied().filter(|&i| !callee.nodes[i].op.is::<Const>()).collect();
    if inside.iter().all(|&i| is_view(callee, i)) {
        return None;
    }
    let (te, outside, _) = group_expression(module, callee, &inside).ok()?;
    let operand = |v: ValueId| callee.params().iter().position(|p| *p == v).and_then(|i| *node.inputs.get(i)?);
    let literal = |v: ValueId| callee.def_op::<Const>(v).is_some();
    let constant = |v: &ValueId| literal(*v) || operand(*v).is_some_and(|v| f.def_op::<Const>(v).is_some());
    let constants: Vec<BufferId> = outside.iter().filter(|o| constant(o.0)).map(|o| *o.1).collect();
    let found = model.function(&te, &constants);
    found.as_ref().as_ref().ok().map(|e| e.cost.total())
}

/// True for a node that gives its operand's data another shape and moves nothing.
fn is_view(f: &Function, n: NodeId) -> bool {
    let node = &f.nodes[n];
    let shape = node.inputs.first().copied().flatten().map(|v| &f.ty(v).shape);
    node.op.is_view() || shape.is_some_and(|s| node.op.moves_axes(s) == Some(false))
}
