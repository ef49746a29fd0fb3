//! From a region of the graph to the JSON graph.

use crate::graph::{Attributes, FORMAT, Graph, Node, Port, PostOp};
use compiler::cost::NodeForm;
use compiler::dtype::DType;
use compiler::external::Region;
use compiler::graph::{Function, NodeId, TensorType, ValueId};
use compiler::ops::binary::Add;
use compiler::ops::clip::Clip;
use compiler::ops::control::Const;
use compiler::ops::conv::Conv;
use compiler::ops::external_scope::Composite;
use compiler::ops::matmul::{Gemm, MatMul};
use compiler::ops::unary::Relu;
use compiler::ops::window::DataLayout;
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
        return match fits && ranks[0] >= 2 {
            true => Ok(()),
            false => Err(format!("no product of rank {} with rank {}", ranks[0], ranks[1])),
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
    Err(format!("no {}", node.op.name()))
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
            post_ops.push(if node.op.is::<Relu>() {
                PostOp::Relu
            } else if let Some(clip) = node.op.downcast::<Clip>() {
                let bound = |b: Option<f64>, none: f32| b.map_or(none, |b| b as f32);
                PostOp::Clip { min: bound(clip.min, f32::MIN), max: bound(clip.max, f32::MAX) }
            } else if node.op.is::<Add>() {
                let other = node.inputs.iter().flatten().find(|&&v| v != value);
                let other = *other.ok_or_else(|| format!("`{}` adds a value to itself", node.name))?;
                PostOp::Sum { input: self.name(other)? }
            } else {
                return Err(format!("no primitive applies `{}` ({})", node.name, node.op.name()));
            });
            value = node.outputs[0];
        }
        let node = &f.nodes[anchor];
        let operands: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        let attributes = if let Some(conv) = node.op.downcast::<Conv>() {
            convolution(f, conv, &operands)?
        } else {
            let transposed_weights = node.op.downcast::<Gemm>().is_some_and(|g| g.trans_b);
            Attributes::Matmul { transposed_weights }
        };
        let inputs = operands.iter().map(|&v| self.name(v)).collect::<Result<_, _>>()?;
        let name = node.name.to_string();
        let shape = shape_of(f, output)?;
        let output = self.fresh(output, name.clone());
        self.graph.nodes.push(Node { name, attributes, inputs, output, shape, post_ops });
        Ok(())
    }
}

fn convolution(f: &Function, conv: &Conv, operands: &[ValueId]) -> Result<Attributes, String> {
    let window = conv.window(&f.ty(operands[0]).shape, &f.ty(operands[1]).shape).map_err(|e| e.to_string())?;
    let fixed = |list: &[compiler::int::Int]| -> Result<Vec<i64>, String> {
        list.iter().map(|d| d.as_const().ok_or_else(|| format!("padding {d} is not fixed"))).collect()
    };
    Ok(Attributes::Convolution {
        strides: window.strides.clone(),
        dilates: window.dilations.iter().map(|d| d - 1).collect(),
        pads_begin: fixed(&window.begin)?,
        pads_end: fixed(&window.end)?,
        groups: conv.group,
    })
}

fn shape_of(f: &Function, v: ValueId) -> Result<Vec<i64>, String> {
    let shape = f.ty(v).const_shape().ok_or_else(|| format!("{} has no fixed shape", f.describe_value(v)))?;
    Ok(shape.into_iter().map(|d| d as i64).collect())
}
