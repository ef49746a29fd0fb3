//! Properties of a node for fusion: its kind, and the operands that its kernel reads.

use crate::graph::{BlockId, Function, Module, Node, NodeId, TensorType, ValueDef, ValueId};
use crate::int::Int;
use crate::name::Name;
use crate::ops::control::Const;
use crate::ops::{InferContext, const_value};
use crate::schedule::estimate::operations_of_value;
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::analysis::{derive_kind, is_layout_agnostic, loaded_buffers};
use crate::tir::{Buffer, BufferId, Encoding, FusionKind, Scope, TensorFunction};
use rustc_hash::FxHashMap;

/// A node as fusion sees it.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// The kind.
    pub kind: FusionKind,
    /// For each operand: the kernel reads it. False for absent operands and for those whose value only decides the
    /// form of the computation (shapes, axes, pads).
    pub reads: Vec<bool>,
    /// Every operand is read at the result's index, with broadcasting from the right, and nothing depends on the index:
    /// the op is the same under any order of the axes.
    pub layout_agnostic: bool,
    /// Stages of its tensor expression that reduce.
    pub reductions: usize,
    /// Scalar operations of the text of its tensor expression.
    pub operations: f64,
    /// How often that text loads each operand; 0 for one that stands before in the list.
    pub loads: Vec<u32>,
    /// Why the node is opaque, where it is.
    pub opaque: Option<String>,
}

/// Kind and reads of a node; `None` for a node that reads a constant of the module.
pub fn describe_node(module: &Module, f: &Function, n: NodeId) -> Option<NodeInfo> {
    let node = &f.nodes[n];
    if node.op.is::<Const>() {
        return None;
    }
    let opaque = |why: &str| {
        let reads = node.inputs.iter().map(Option::is_some).collect();
        Some(NodeInfo {
            kind: FusionKind::Opaque,
            reads,
            layout_agnostic: false,
            reductions: 0,
            operations: 0.0,
            loads: vec![0; node.inputs.len()],
            opaque: Some(why.to_string()),
        })
    };
    if node.op.effects().stateful {
        return opaque("it has side effects");
    }
    if !node.regions.is_empty() {
        return opaque("it owns regions");
    }
    if !node.op.has_compute() {
        return opaque("it has no tensor expression");
    }
    let (te, reads, loads) = match expression(module, f, n) {
        Ok(found) => found,
        Err(e) => return opaque(&e),
    };
    let operations = te.body.blocks().iter().map(|b| operations_of_value(&b.value)).sum();
    for (i, v) in node.inputs.iter().enumerate() {
        if let Some(v) = v
            && !reads[i]
            && !node.op.takes_types_alone()
            && f.def_op::<Const>(*v).is_none()
        {
            return opaque(&format!("operand {i} decides its form and is not constant"));
        }
    }
    let kind = node.op.fusion_kind().unwrap_or_else(|| derive_kind(&te));
    if kind == FusionKind::Opaque {
        return opaque("its kind is opaque");
    }
    let reductions = te.body.blocks().iter().filter(|b| b.reduce.is_some()).count();
    // A callee is written for the order of axes that it has.
    let layout_agnostic = node.op.callee().is_none() && is_layout_agnostic(&te) && fits_any_order(module, f, n);
    Some(NodeInfo { kind, reads, layout_agnostic, reductions, operations, loads, opaque: None })
}

/// Every node of a block but those that read constants. Nodes with equal ops on operands of equal types are described
/// once: building a tensor expression is what costs time here, and networks repeat themselves.
pub fn describe_block(module: &Module, f: &Function, block: BlockId) -> FxHashMap<NodeId, NodeInfo> {
    let mut out = FxHashMap::default();
    describe_into(module, (f, block), &mut Known::default(), &mut out);
    out
}

/// Every node of each function of a module, in its regions too, as [`describe_block`] describes them.
pub fn describe_module(module: &Module) -> FxHashMap<Name, FxHashMap<NodeId, NodeInfo>> {
    let mut known = Known::default();
    let mut of = |f: &Function| {
        let mut out = FxHashMap::default();
        let regions = f.walk().into_iter().flat_map(|n| f.nodes[n].regions.clone());
        let blocks = std::iter::once(f.body).chain(regions);
        blocks.for_each(|b| describe_into(module, (f, b), &mut known, &mut out));
        out
    };
    module.functions.values().map(|f| (f.name, of(f))).collect()
}

type Operand = Option<(TensorType, Option<Name>)>;
/// Descriptions by the op and its operands.
type Known = FxHashMap<(String, Vec<Operand>), NodeInfo>;

fn describe_into(
    module: &Module,
    (f, block): (&Function, BlockId),
    known: &mut Known,
    out: &mut FxHashMap<NodeId, NodeInfo>,
) {
    for &n in &f.blocks[block].nodes {
        let node = &f.nodes[n];
        if node.op.is::<Const>() {
            continue;
        }
        // A constant may decide the form of the computation, so small ones are part of the key.
        let operand = |v: &Option<ValueId>| -> Operand {
            let v = (*v)?;
            let constant = f.def_op::<Const>(v).map(|c| c.1.name);
            Some((f.ty(v).clone(), if is_small(f.ty(v)) { constant } else { constant.map(|_| Name::new("")) }))
        };
        let key = (format!("{:?}", node.op), node.inputs.iter().map(operand).collect::<Vec<_>>());
        let info = match known.get(&key).filter(|_| node.regions.is_empty()) {
            Some(found) => found.clone(),
            None => match describe_node(module, f, n) {
                Some(info) => known.entry(key).or_insert(info).clone(),
                None => continue,
            },
        };
        out.insert(n, info);
    }
}

/// Types of constants that an op may look at while it builds its tensor expression: integer vectors and scalars.
fn is_small(ty: &TensorType) -> bool {
    ty.numel().is(1) || (ty.dtype.is_int() && ty.rank() <= 1)
}

/// The value of a constant that an op may look at.
fn small_constant(module: &Module, f: &Function, v: ValueId) -> Option<Tensor> {
    if is_small(f.ty(v)) { const_value(module, f, v) } else { None }
}

/// Whether the op computes alike on operands with their axes in other orders, and gives its results with theirs in that
/// order. It is asked about operands without axes of size 1, since these hide which axes an op treats apart: a product
/// over one column reads like a broadcast, a sum over one channel like its only element.
fn fits_any_order(module: &Module, f: &Function, n: NodeId) -> bool {
    let orders: [fn(&mut [Int]); 3] = [|_| {}, |shape| shape.reverse(), |shape| shape.rotate_left(shape.len().min(1))];
    let grown = grown_types(f, n);
    orders.iter().all(|order| {
        let ordered = |v: ValueId| {
            let mut ty = grown[&v].clone();
            order(&mut ty.shape);
            ty
        };
        let (apart, node) = alone(f, n, ordered);
        let (inputs, outputs) = (&apart.nodes[node].inputs, &apart.nodes[node].outputs);
        let found = apart.nodes[node].op.infer(&InferContext::new(module, &apart, inputs, &[]));
        found.is_ok_and(|types| types.iter().zip(outputs).all(|(t, &v)| t == apart.ty(v)))
            && group_expression(module, &apart, &[node]).is_ok_and(|(te, ..)| is_layout_agnostic(&te))
    })
}

/// The types of a node's operands and results, with leading dimensions of 1 up to the highest rank, where every
/// dimension that is 1 in all of them is larger.
fn grown_types(f: &Function, n: NodeId) -> FxHashMap<ValueId, TensorType> {
    let node = &f.nodes[n];
    let rank = node.outputs.iter().map(|&v| f.ty(v).rank()).max().unwrap_or(0);
    let mut types: FxHashMap<ValueId, TensorType> =
        node.inputs.iter().flatten().chain(&node.outputs).map(|&v| (v, f.ty(v).clone())).collect();
    for ty in types.values_mut().filter(|t| t.rank() > 0) {
        let ones = std::iter::repeat_n(Int::new(1), rank.saturating_sub(ty.rank()));
        ty.shape = ones.chain(ty.shape.drain(..)).collect();
    }
    for axis in 0..rank {
        if types.values().filter(|t| t.rank() > 0).all(|t| t.shape[axis].is(1)) {
            let size = Int::new(GROWN + axis as i64);
            types.values_mut().filter(|t| t.rank() > 0).for_each(|t| t.shape[axis] = size.clone());
        }
    }
    types
}

/// Dimensions of 1 become this and more: different ones for different axes.
const GROWN: i64 = 7;

/// A function with node `n` alone, on values of other types.
fn alone(f: &Function, n: NodeId, ty: impl Fn(ValueId) -> TensorType) -> (Function, NodeId) {
    let mut apart = Function::new("alone");
    let (node, body) = (&f.nodes[n], apart.body);
    let mut fresh = |v: ValueId| apart.fresh_value(ty(v), ValueDef::Arg(body, 0), None);
    let inputs = node.inputs.iter().map(|v| v.map(&mut fresh)).collect();
    let outputs = node.outputs.iter().map(|&v| fresh(v)).collect();
    let node = apart.nodes.push(Node { inputs, outputs, block: Some(body), ..node.clone() });
    (apart, node)
}

/// The tensor function of one node alone, which operands it reads, and how often each is loaded in its text.
fn expression(module: &Module, f: &Function, n: NodeId) -> Result<(TensorFunction, Vec<bool>, Vec<u32>), String> {
    let (te, buffers, outputs) = group_expression(module, f, &[n])?;
    let loaded = loaded_buffers(&te);
    let handed: Vec<Option<BufferId>> = f.nodes[n].outputs.iter().map(|v| outputs.get(v).copied()).collect();
    // An operand handed over as a result is read by whoever reads the result.
    let reads = f.nodes[n].inputs.iter().map(|v| {
        let buffer = v.and_then(|v| buffers.get(&v).copied());
        buffer.is_some_and(|b| loaded.contains(&b) || handed.contains(&Some(b)))
    });
    let reads = reads.collect();
    let inputs = &f.nodes[n].inputs;
    let in_text: Vec<BufferId> = te.body.blocks().iter().flat_map(|b| b.value.loads()).map(|l| l.0).collect();
    let loads = inputs.iter().enumerate().map(|(i, v)| {
        let buffer = v.filter(|v| !inputs[..i].contains(&Some(*v))).and_then(|v| buffers.get(&v));
        buffer.map_or(0, |b| in_text.iter().filter(|l| *l == b).count() as u32)
    });
    let loads = loads.collect();
    Ok((te, reads, loads))
}

/// The tensor expression of a group, and the buffers of its constants; `constant` says which parameters are constant.
/// `None` for a group that only gives its operand another shape, or has no expression.
pub(super) fn kernel_expression(
    module: &Module,
    group: &Function,
    constant: &dyn Fn(usize) -> bool,
) -> Option<(TensorFunction, Vec<BufferId>)> {
    let nodes = group.blocks[group.body].nodes.iter().copied();
    let inside: Vec<NodeId> = nodes.filter(|&i| !group.nodes[i].op.is::<Const>()).collect();
    if inside.iter().all(|&i| is_view(group, i)) {
        return None;
    }
    let (expression, outside, _) = group_expression(module, group, &inside).ok()?;
    let given = |v: ValueId| group.params().iter().position(|p| *p == v).is_some_and(constant);
    let is_constant = |v: ValueId| group.def_op::<Const>(v).is_some() || given(v);
    let mut constants: Vec<BufferId> = outside.iter().filter(|(v, _)| is_constant(**v)).map(|(_, b)| *b).collect();
    constants.sort_unstable();
    Some((expression, constants))
}

/// True for a node that gives its operand's data another shape and moves nothing.
fn is_view(f: &Function, n: NodeId) -> bool {
    let node = &f.nodes[n];
    let shape = node.inputs.first().copied().flatten().map(|v| &f.ty(v).shape);
    node.op.is_view() || shape.is_some_and(|s| node.op.moves_axes(s) == Some(false))
}

/// Buffers of values.
pub type ValueBuffers = FxHashMap<ValueId, BufferId>;

/// The tensor expressions of some nodes, operands before users, in one function without parameters: with the buffers of
/// the operands from outside, and those of the results.
///
/// # Errors
/// The first node that has no tensor expression for its operands.
pub fn group_expression(
    module: &Module,
    f: &Function,
    nodes: &[NodeId],
) -> Result<(TensorFunction, ValueBuffers, ValueBuffers), String> {
    let mut te = TensorFunction::new(Name::new("k"));
    let (mut outside, mut made) = (ValueBuffers::default(), ValueBuffers::default());
    for (label, &n) in nodes.iter().enumerate() {
        let node = &f.nodes[n];
        for &v in node.inputs.iter().flatten() {
            if made.contains_key(&v) || outside.contains_key(&v) {
                continue;
            }
            let ty = f.ty(v);
            let buffer = te.buffers.push(Buffer {
                name: Name::new(&format!("in{}", outside.len())),
                dtype: ty.dtype,
                shape: ty.shape.clone(),
                scope: Scope::Global,
                encoding: Encoding::Native,
            });
            outside.insert(v, buffer);
        }
        let buffer = |v: &Option<ValueId>| v.and_then(|v| made.get(&v).or_else(|| outside.get(&v)).copied());
        let buffers = node.inputs.iter().map(buffer).collect();
        let constants = node.inputs.iter().map(|v| small_constant(module, f, (*v)?)).collect();
        let types = node.outputs.iter().map(|&v| f.ty(v).clone()).collect();
        let prefix = if label == 0 { "k".to_string() } else { format!("k{label}") };
        let mut cx =
            ComputeContext::new(&mut te, buffers, constants, types, &prefix).calling(module.tensor_callee(&node.op));
        node.op.compute(&mut cx)?;
        for (v, b) in node.outputs.iter().zip(cx.into_outputs()) {
            if let Some(b) = b {
                made.insert(*v, b);
            }
        }
    }
    Ok((te, outside, made))
}
