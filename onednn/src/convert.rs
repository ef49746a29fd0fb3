//! From a region of the graph to the JSON graph.

use crate::elementwise::{binary, eltwise};
use crate::graph::{Attributes, BinaryFunction, FORMAT, Graph, Node, PoolKind, Port, PostOp};
use compiler::cost::NodeForm;
use compiler::dtype::DType;
use compiler::external::Region;
use compiler::graph::{Function, NodeId, TensorType, ValueId};
use compiler::int::Dim;
use compiler::ops::batch_norm::BatchNorm;
use compiler::ops::concat::Concat;
use compiler::ops::control::Const;
use compiler::ops::conv::Conv;
use compiler::ops::external_scope::Composite;
use compiler::ops::global_pool::{GlobalAveragePool, GlobalMaxPool};
use compiler::ops::matmul::{Gemm, MatMul};
use compiler::ops::pool::{AveragePool, MaxPool};
use compiler::ops::softmax::Softmax;
use compiler::ops::window::{DataLayout, Window};
use compiler::tensor::Tensor;
use std::collections::HashMap;

/// Whether a primitive computes this node, or why not.
///
/// # Errors
/// The reason, for `weft explain`.
pub fn supports(node: &NodeForm) -> Result<(), String> {
    let inputs: Vec<&TensorType> = node.inputs.iter().flatten().map(|i| &i.0).collect();
    if let Some(t) = inputs.iter().copied().chain(&node.outputs).find(|t| t.dtype != DType::F32) {
        return Err(format!("no {} of {}, f32 alone", node.op.name(), t.dtype));
    }
    let ranks: Vec<usize> = inputs.iter().map(|t| t.rank()).collect();
    if let Some(conv) = node.op.downcast::<Conv>() {
        return match conv.layout {
            DataLayout::Nchw if (3..=5).contains(&ranks[0]) => Ok(()),
            DataLayout::Nchw => Err(format!("no convolution of rank {}", ranks[0])),
            other => Err(format!("no convolution in {}, NCHW alone", other.title())),
        };
    }
    if node.op.is::<MatMul>() {
        let fits = ranks[0] == ranks[1] || ranks[1] == 2 && ranks[0] > 2;
        if !fits || ranks[0] < 2 {
            return Err(format!("no product of rank {} with rank {}", ranks[0], ranks[1]));
        }
        let lead = ranks[0] - 2;
        return match inputs[0].shape[..lead] == node.outputs[0].shape[..lead] {
            true => Ok(()),
            false => Err(format!("no product that repeats data of {:?}", inputs[0])),
        };
    }
    if let Some(gemm) = node.op.downcast::<Gemm>() {
        let row = inputs.get(2).is_none_or(|bias| bias.numel() == node.outputs[0].shape[1]);
        return match (gemm.alpha, gemm.beta, gemm.trans_a, row) {
            (1.0, 1.0, false, true) => Ok(()),
            (_, _, true, _) => Err("no product with transposed data".into()),
            (_, _, _, false) => Err("no product whose bias is not one row".into()),
            _ => Err("no product with factors".into()),
        };
    }
    if let Some(found) = without_weights(node, &inputs, &ranks) {
        return found;
    }
    // Whether padding beyond the declared one counts differs.
    let pool = node.op.downcast::<MaxPool>().is_some_and(|p| !p.indices)
        || node.op.downcast::<AveragePool>().is_some_and(|p| !(p.ceil_mode && p.count_include_pad))
        || node.op.is::<GlobalAveragePool>()
        || node.op.is::<GlobalMaxPool>();
    match node.op.images() {
        Some((DataLayout::Nchw, ..)) if pool && (3..=5).contains(&ranks[0]) => Ok(()),
        _ => Err(format!("no {}", node.op.name())),
    }
}

/// Whether a primitive without weights computes this node; `None` for ops that are none of these.
fn without_weights(node: &NodeForm, inputs: &[&TensorType], ranks: &[usize]) -> Option<Result<(), String>> {
    if eltwise(&node.op).is_some() && inputs.len() == 1 && ranks[0] > 0 {
        return Some(Ok(()));
    }
    if binary(&node.op).is_some() && inputs.len() == 2 {
        let (result, name) = (&node.outputs[0].shape, node.op.name());
        let order = operand_order(node.op.commutes(), &inputs[0].shape, &inputs[1].shape, result);
        let (a, b) = (inputs[0], inputs[1]);
        return Some(match order {
            Some(_) if !result.is_empty() => Ok(()),
            _ => Err(format!("no {name} of {a:?} and {b:?}, of which one must have the result's shape")),
        });
    }
    if node.op.is::<Concat>() && ranks[0] > 0 {
        return Some(Ok(()));
    }
    if let Some(softmax) = node.op.downcast::<Softmax>() {
        let n = softmax.axes.len();
        return Some(if n == 1 { Ok(()) } else { Err(format!("no softmax over {n} axes")) });
    }
    let norm = node.op.downcast::<BatchNorm>()?;
    let fits = norm.layout == DataLayout::Nchw && (2..=5).contains(&ranks[0]);
    Some(if fits { Ok(()) } else { Err(format!("no batch_norm in {}, NCHW alone", norm.layout.title())) })
}

/// Which operand of a function of two elements is the one of the result's shape, and which the other; `None` if there
/// is none that may be the first.
fn operand_order(commutes: bool, a: &[Dim], b: &[Dim], result: &[Dim]) -> Option<[usize; 2]> {
    match (a == result, commutes && b == result) {
        (true, _) => Some([0, 1]),
        (false, true) => Some([1, 0]),
        (false, false) => None,
    }
}

/// The JSON graph of a region of fixed sizes, and the data of its constants in its order.
///
/// # Errors
/// Nodes that no primitive computes, and constants that cannot be read.
pub fn convert(region: &Region) -> Result<(Graph, Vec<Tensor>), String> {
    let f = region.function();
    let mut c = Convert { region, f, names: HashMap::new(), graph: Graph::default(), data: vec![] };
    c.graph.format = FORMAT.into();
    for (i, &v) in f.params().iter().enumerate() {
        let name = f.values[v].name.map_or_else(|| format!("input{i}"), |n| n.to_string());
        let port = Port { name: c.fresh(v, name), shape: shape_of(f, v)? };
        c.graph.inputs.push(port);
    }
    for &n in &f.blocks[f.body].nodes {
        if f.nodes[n].op.is::<Const>() {
            continue;
        }
        match f.nodes[n].op.is::<Composite>() {
            true => {
                let inner = &f.blocks[f.nodes[n].regions[0]];
                c.node(&inner.nodes, f.nodes[n].outputs[0])?;
            }
            false => c.node(&[n], f.nodes[n].outputs[0])?,
        }
    }
    c.graph.outputs = f.results().iter().map(|&v| c.name(v)).collect::<Result<_, _>>()?;
    Ok((c.graph, c.data))
}

struct Convert<'r> {
    region: &'r Region,
    f: &'r Function,
    names: HashMap<ValueId, String>,
    graph: Graph,
    data: Vec<Tensor>,
}

impl Convert<'_> {
    /// Names a value as `base`, or as that with a number.
    fn fresh(&mut self, v: ValueId, base: String) -> String {
        let taken = |name: &String| self.names.values().any(|n| n == name);
        let numbered = (1..).map(|i| format!("{base}_{i}"));
        let name = std::iter::once(base.clone()).chain(numbered).find(|n| !taken(n)).unwrap_or(base);
        self.names.insert(v, name.clone());
        name
    }
    /// The name of a value; a constant is added when it is first read.
    fn name(&mut self, v: ValueId) -> Result<String, String> {
        if let Some(name) = self.names.get(&v) {
            return Ok(name.clone());
        }
        let tensor = self.region.constant(v)?.ok_or_else(|| format!("{} has no value", self.f.describe_value(v)))?;
        let base = self.f.def_op::<Const>(v).map_or_else(|| "constant".into(), |(_, c)| c.name.to_string());
        let name = self.fresh(v, base);
        self.graph.constants.push(Port { name: name.clone(), shape: shape_of(self.f, v)? });
        self.data.push(tensor);
        Ok(name)
    }
    /// Adds a primitive: an anchor and what is applied to its result.
    fn node(&mut self, nodes: &[NodeId], output: ValueId) -> Result<(), String> {
        let f = self.f;
        let (&anchor, rest) = nodes.split_first().ok_or("an empty composite")?;
        let mut value = f.nodes[anchor].outputs[0];
        let mut post_ops = vec![];
        for &n in rest {
            let node = &f.nodes[n];
            post_ops.push(if let Some(function) = eltwise(&node.op) {
                PostOp::Eltwise(function)
            } else if let Some(function) = binary(&node.op) {
                let other = node.inputs.iter().flatten().find(|&&v| v != value);
                let other = *other.ok_or_else(|| format!("`{}` has one value twice", node.name))?;
                let input = self.name(other)?;
                match function == BinaryFunction::Add && f.ty(other) == f.ty(value) {
                    true => PostOp::Sum { input },
                    false => PostOp::Binary { function, input },
                }
            } else {
                return Err(format!("no primitive applies `{}` ({})", node.name, node.op.name()));
            });
            value = node.outputs[0];
        }
        let node = &f.nodes[anchor];
        let mut operands: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        if let (Some(_), [a, b]) = (binary(&node.op), &operands[..]) {
            let shape = |v: ValueId| &f.ty(v).shape[..];
            let order = operand_order(node.op.commutes(), shape(*a), shape(*b), shape(node.outputs[0]));
            let [first, second] = order.ok_or_else(|| format!("`{}` repeats both operands", node.name))?;
            operands = vec![operands[first], operands[second]];
        }
        let attributes = attributes(f, anchor, &operands)?;
        let inputs = operands.iter().map(|&v| self.name(v)).collect::<Result<_, _>>()?;
        let name = node.name.to_string();
        let shape = shape_of(f, output)?;
        let output = self.fresh(output, name.clone());
        self.graph.nodes.push(Node { name, attributes, inputs, output, shape, post_ops });
        Ok(())
    }
}

/// What the node computes by itself.
fn attributes(f: &Function, n: NodeId, operands: &[ValueId]) -> Result<Attributes, String> {
    let op = &f.nodes[n].op;
    if let Some(conv) = op.downcast::<Conv>() {
        let window = conv.window(&f.ty(operands[0]).shape, &f.ty(operands[1]).shape).map_err(|e| e.to_string())?;
        let (strides, dilates, pads_begin, pads_end) = lists(&window)?;
        return Ok(Attributes::Convolution { strides, dilates, pads_begin, pads_end, groups: conv.group });
    }
    if let Some(function) = eltwise(op) {
        return Ok(Attributes::Eltwise(function));
    }
    if let Some(function) = binary(op) {
        return Ok(Attributes::Binary { function });
    }
    if let Some(concat) = op.downcast::<Concat>() {
        let rank = f.ty(operands[0]).rank() as i64;
        let axis = usize::try_from(if concat.axis < 0 { concat.axis + rank } else { concat.axis });
        return Ok(Attributes::Concat { axis: axis.map_err(|e| e.to_string())? });
    }
    if let Some(softmax) = op.downcast::<Softmax>() {
        return Ok(Attributes::Softmax { axis: *softmax.axes.first().ok_or("softmax over no axis")? });
    }
    if let Some(norm) = op.downcast::<BatchNorm>() {
        return Ok(Attributes::BatchNorm { epsilon: norm.epsilon as f32 });
    }
    if op.is::<MatMul>() || op.is::<Gemm>() {
        let transposed_weights = op.downcast::<Gemm>().is_some_and(|g| g.trans_b);
        return Ok(Attributes::Matmul { transposed_weights });
    }
    pool(f, n, operands[0])
}

fn pool(f: &Function, n: NodeId, data: ValueId) -> Result<Attributes, String> {
    let (op, shape) = (&f.nodes[n].op, &f.ty(data).shape);
    let (kind, window) = if let Some(p) = op.downcast::<MaxPool>() {
        (PoolKind::Max, p.window(shape))
    } else if let Some(p) = op.downcast::<AveragePool>() {
        (if p.count_include_pad { PoolKind::AverageWithPadding } else { PoolKind::Average }, p.window(shape))
    } else {
        let kernel = shape_of(f, data)?.split_off(2);
        let (ones, zeros) = (vec![1; kernel.len()], vec![0; kernel.len()]);
        let kind = if op.is::<GlobalMaxPool>() { PoolKind::Max } else { PoolKind::Average };
        let (dilates, pads_begin, pads_end) = (zeros.clone(), zeros.clone(), zeros);
        return Ok(Attributes::Pool { kind, kernel, strides: ones, dilates, pads_begin, pads_end });
    };
    let window = window.map_err(|e| e.to_string())?;
    let (strides, dilates, pads_begin, mut pads_end) = lists(&window)?;
    let kernel = fixed(&window.kernel)?;
    // Windows that begin in the data and end beyond it, if the number of windows is rounded up.
    let (from, to) = (shape_of(f, data)?.split_off(2), shape_of(f, f.nodes[n].outputs[0])?.split_off(2));
    for d in 0..kernel.len() {
        let reach = (kernel[d] - 1) * (dilates[d] + 1) + 1;
        pads_end[d] = pads_end[d].max((to[d] - 1) * strides[d] + reach - from[d] - pads_begin[d]);
    }
    Ok(Attributes::Pool { kind, kernel, strides, dilates, pads_begin, pads_end })
}

fn fixed(list: &[compiler::int::Int]) -> Result<Vec<i64>, String> {
    list.iter().map(|d| d.as_const().ok_or_else(|| format!("{d} in a window is not fixed"))).collect()
}

type Lists = (Vec<i64>, Vec<i64>, Vec<i64>, Vec<i64>);

/// Strides, elements between taps, padding at the beginnings and at the ends.
fn lists(window: &Window) -> Result<Lists, String> {
    let dilates = window.dilations.iter().map(|d| d - 1).collect();
    Ok((window.strides.clone(), dilates, fixed(&window.begin)?, fixed(&window.end)?))
}

fn shape_of(f: &Function, v: ValueId) -> Result<Vec<i64>, String> {
    let shape = f.ty(v).const_shape().ok_or_else(|| format!("{} has no fixed shape", f.describe_value(v)))?;
    Ok(shape.into_iter().map(|d| d as i64).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::external::register_target;
    use compiler::name::Name;
    use compiler::passes::{PassContext, Sequential, external_passes};
    use compiler::text::parse_module;

    const TEXT: &str = "const @w : f32[16,8,3,3] = random(1)
const @b : f32[16] = random(2)
graph @main(%x: f32[1,8,20,20], %r: f32[1,16,20,20]) -> (y: f32[1,16,20,20]) {
  %w = const @w
  %b = const @b
  %0 = conv %x, %w, %b {pads=[1,1,1,1]} : f32[1,16,20,20] !from(\"conv1\")
  %1 = add %r, %0 : f32[1,16,20,20]
  %2 = relu %1 : f32[1,16,20,20]
  return %2
}
";

    #[test]
    fn the_graph_of_the_page_is_that_of_a_region() {
        register_target(&crate::TARGET).expect("a name of its own");
        let mut m = parse_module(TEXT).expect("text");
        let mut cx = PassContext { config: external_passes(&["dnnl".into()]), ..PassContext::default() };
        let passes = ["merge-composite", "annotate-target", "merge-regions", "partition-graph"];
        Sequential::new(passes).run(&mut m, &mut cx).expect("passes");
        let region = Region::of(&m, Name::new("dnnl_0")).expect("a region");
        let (graph, constants) = convert(&region).expect("a graph");
        assert_eq!(constants.iter().map(|t| t.shape().len()).collect::<Vec<_>>(), [4, 1]);
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/onednn.md")).expect("the page");
        let block = page.split("```json\n").nth(1).and_then(|t| t.split("```").next()).expect("a graph in the page");
        let shown: Graph = serde_json::from_str(block).expect("a graph");
        assert_eq!(shown, graph);
        let again: Graph = serde_json::from_str(&serde_json::to_string(&graph).expect("JSON")).expect("a graph");
        assert_eq!(again, graph);
    }
}
