//! Describes a model without compiling it: inputs, outputs, operators, size, and unsupported operators.

mod quantised;

pub(crate) use quantised::form;
pub use quantised::{Counted, Quantised, packed_operands};

use crate::graph::{Function, Module, NodeId, TensorType};
use crate::int::Dim;
use crate::name::Name;
use crate::ops::batch_norm::BatchNorm;
use crate::ops::control::{CallTensor, Const};
use crate::tir::TensorFunction;
use indexmap::IndexMap;
use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// A dimension: a number, or the name of one that is open.
fn plain_dims<S: Serializer>(dims: &Option<Vec<Dim>>, to: S) -> Result<S::Ok, S::Error> {
    let dim = |d: &Dim| d.as_const().map_or_else(|| d.to_string().into(), serde_json::Value::from);
    dims.as_ref().map(|list| list.iter().map(dim).collect::<Vec<_>>()).serialize(to)
}

/// An input or output of a model.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its element type, or the ONNX name of one that is not supported.
    pub dtype: String,
    /// Its dimensions, one that is open by its name; `None` where the model does not say.
    #[serde(serialize_with = "plain_dims")]
    #[schemars(with = "Option<Vec<serde_json::Value>>")]
    pub shape: Option<Vec<Dim>>,
}
impl Port {
    /// From a type.
    pub fn new(name: impl Into<String>, ty: &TensorType) -> Port {
        Port { name: name.into(), dtype: ty.dtype.to_string(), shape: Some(ty.shape.clone()) }
    }
}

/// An operator that has no importer, or a use of one that it does not support.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct UnsupportedOp {
    /// ONNX op type.
    pub op: String,
    /// Its domain; empty for ai.onnx.
    pub domain: String,
    /// Names of the nodes.
    #[schemars(with = "Vec<String>")]
    pub nodes: Vec<Name>,
    /// One sentence.
    pub why: String,
}

impl std::fmt::Display for UnsupportedOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.domain.is_empty() {
            write!(f, "{}::", self.domain)?;
        }
        write!(f, "{} ({}; ", self.op, self.why)?;
        for (i, n) in self.nodes.iter().take(4).enumerate() {
            write!(f, "{}{n}", if i > 0 { ", " } else { "" })?;
        }
        if self.nodes.len() > 4 {
            write!(f, " and {} more", self.nodes.len() - 4)?;
        }
        f.write_str(")")
    }
}

/// The summary of a model.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Inspection {
    /// Inputs.
    pub inputs: Vec<Port>,
    /// Outputs.
    pub outputs: Vec<Port>,
    /// Opset of ai.onnx; `None` for a model that is not ONNX.
    pub opset: Option<i64>,
    /// How often each operator of the source occurs, most frequent first.
    #[schemars(with = "std::collections::BTreeMap<String, usize>")]
    pub ops: IndexMap<String, usize>,
    /// Learnable parameters: elements of floating-point and of quantised constants, without the statistics of batch
    /// norms, scales, zero points and scalars.
    pub parameters: u64,
    /// Those that are quantised, by type and block, most elements first.
    pub quantised: Vec<Quantised>,
    /// Multiply-accumulates of one run; `None` while dimensions are open or operators are not supported.
    pub macs: Option<u64>,
    /// All operators that are not supported.
    pub unsupported: Vec<UnsupportedOp>,
    /// The sizes that have to be given before it is known what is supported; `None` where they do not matter.
    pub open: Option<String>,
}

/// Sorts a histogram: most frequent first, then by name.
pub(crate) fn sort_histogram(ops: &mut IndexMap<String, usize>) {
    ops.sort_by(|a, n, b, m| m.cmp(n).then_with(|| a.cmp(b)));
}

/// Summary of a module; operators are counted under Weft's own names.
pub fn inspect_module(module: &Module) -> Inspection {
    let f = module.main();
    let param = |&p: &crate::graph::ValueId| Port::new(f.values[p].name.map_or("", Name::as_str), f.ty(p));
    let outputs = f.results().iter().zip(&f.result_names).map(|(&v, n)| Port::new(n.as_str(), f.ty(v)));
    let mut ops = IndexMap::new();
    count_ops(module, f, &mut ops, 0);
    sort_histogram(&mut ops);
    let Counted { parameters, quantised } = quantised::of_module(module, count_parameters(module));
    Inspection {
        inputs: f.params().iter().map(param).collect(),
        outputs: outputs.collect(),
        opset: None,
        ops,
        parameters,
        quantised,
        macs: count_macs(module),
        unsupported: vec![],
        open: None,
    }
}

/// Largest depth of calls that is counted: recursion has no static count.
const CALL_DEPTH: usize = 32;

fn count_ops(module: &Module, f: &Function, ops: &mut IndexMap<String, usize>, depth: usize) {
    for n in f.walk() {
        let op = &f.nodes[n].op;
        match op.callee().and_then(|c| module.functions.get(&c)) {
            Some(callee) if depth < CALL_DEPTH => count_ops(module, callee, ops, depth + 1),
            _ if op.is::<Const>() => {}
            _ => *ops.entry(op.name().to_string()).or_insert(0) += 1,
        }
    }
}

/// Multiply-accumulates of one run of the entry; `None` while a dimension of an input is open.
pub fn count_macs(module: &Module) -> Option<u64> {
    crate::graph::open_dims(module).is_empty().then(|| macs_of_function(module, module.main(), 0))
}

/// Multiply-accumulates of one run of a node, those of the functions that it calls included.
pub fn macs_of_node(module: &Module, f: &Function, n: NodeId) -> u64 {
    macs_at(module, f, n, 0)
}

fn macs_of_function(module: &Module, f: &Function, depth: usize) -> u64 {
    f.walk().into_iter().fold(0, |sum: u64, n| sum.saturating_add(macs_at(module, f, n, depth)))
}

fn macs_at(module: &Module, f: &Function, n: NodeId, depth: usize) -> u64 {
    let node = &f.nodes[n];
    let (inputs, outputs) = f.node_types(n);
    match node.op.callee().and_then(|c| module.functions.get(&c)) {
        Some(callee) if depth < CALL_DEPTH => macs_of_function(module, callee, depth + 1),
        _ => match (node.op.downcast::<CallTensor>(), module.tensor_callee(&node.op)) {
            (Some(call), Some(callee)) => called_macs(call, callee, inputs.into_iter().flatten().chain(outputs)),
            _ => node.op.macs(&inputs, &outputs),
        },
    }
}

/// Multiply-accumulates of a call of a tensor function, whose operands and results have these types.
fn called_macs<'t>(call: &CallTensor, callee: &TensorFunction, types: impl Iterator<Item = &'t TensorType>) -> u64 {
    let shapes = types.map(|t| t.shape.as_slice());
    let sizes = call.unify(callee, callee.inputs().chain(callee.outputs()).zip(shapes));
    let count = callee.multiply_accumulates().eval(&|v| sizes.get(&v).and_then(Dim::as_const));
    count.and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
}

/// Learnable parameters: elements of floating-point constants that nodes read, each constant once, without the
/// statistics of batch norms and without scalars.
pub fn count_parameters(module: &Module) -> u64 {
    let mut learnable: FxHashSet<Name> = FxHashSet::default();
    let mut statistics: FxHashSet<Name> = FxHashSet::default();
    for f in module.functions.values() {
        for n in f.walk() {
            let node = &f.nodes[n];
            let is_norm = node.op.is::<BatchNorm>();
            for (i, v) in node.inputs.iter().enumerate() {
                let Some((_, c)) = v.and_then(|v| f.def_op::<Const>(v)) else { continue };
                if is_norm && i >= 3 {
                    statistics.insert(c.name)
                } else {
                    learnable.insert(c.name)
                };
            }
        }
    }
    let constants = learnable.difference(&statistics).filter_map(|n| module.constants.get(n));
    let counted = constants.filter(|c| c.dtype.is_float() && !c.shape.is_empty());
    counted.map(|c| c.shape.iter().product::<usize>() as u64).sum()
}
