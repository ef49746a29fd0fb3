//! The parameters of an ONNX file, and how quantised ones are stored: also of operators without an importer.

use super::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};
use super::tensor_data::dtype_from_onnx;
use crate::inspect::{Counted, form};
use crate::ops::narrow::Narrow;
use rustc_hash::FxHashMap;

/// Use of a tensor by the nodes that read it. The later one here counts for a tensor that is read in several ways.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Value,
    /// A scale, a zero point or a statistic.
    Measure,
    Quantised {
        /// Type and bits where the tensor has bytes that several elements share.
        packed: Option<(String, u64)>,
        block: Option<u64>,
        /// Elements where the operator says it.
        elements: Option<u64>,
        scale: String,
    },
}

/// Positions of quantised operands, each with its scale's, and of values in floats; all others are scales and
/// zero points.
type Operands = (&'static [(usize, usize)], &'static [usize]);

/// Operators of quantised operands. A position that no operator has stands where there is no scale.
const QUANTISED: &[(&str, Operands)] = &[
    ("DequantizeLinear", (&[(0, 1)], &[])),
    ("QuantizeLinear", (&[], &[0])),
    ("QLinearConv", (&[(3, 4), (8, 4)], &[])),
    ("QLinearMatMul", (&[(0, 1), (3, 4)], &[])),
    ("ConvInteger", (&[(0, 99), (1, 99)], &[])),
    ("MatMulInteger", (&[(0, 99), (1, 99)], &[])),
    ("QGemm", (&[(0, 1), (3, 4), (6, 4)], &[])),
    ("DynamicQuantizeMatMul", (&[(1, 2)], &[0, 4])),
    ("MatMulIntegerToFloat", (&[(0, 2), (1, 3)], &[6])),
    ("DynamicQuantizeLSTM", (&[(1, 8), (2, 10)], &[0, 3, 4, 5, 6, 7])),
    ("QAttention", (&[(0, 3), (1, 4)], &[2])),
    ("MatMulNBits", (&[(1, 2)], &[0, 5])),
    ("MatMulBnb4", (&[(1, 2)], &[0])),
    ("GatherBlockQuantized", (&[(0, 2)], &[1])),
    ("QMoE", (&[(2, 3), (5, 6), (8, 9)], &[0, 1, 4, 7, 10])),
];

fn role(node: &NodeProto, at: usize) -> Role {
    let op = node.op_type.as_deref().unwrap_or("");
    if op == "BatchNormalization" {
        return if at >= 3 { Role::Measure } else { Role::Value };
    }
    let Some((_, (quantised, values))) = QUANTISED.iter().find(|row| row.0 == op) else { return Role::Value };
    let Some((_, scale)) = quantised.iter().find(|q| q.0 == at) else {
        return if values.contains(&at) { Role::Value } else { Role::Measure };
    };
    let named = |name: &str| node.attribute.iter().find(|a: &&AttributeProto| a.name.as_deref() == Some(name));
    let int = |name: &str| named(name).and_then(|a| u64::try_from(a.i?).ok());
    let scale = node.input.get(*scale).cloned().unwrap_or_default();
    let block = int("block_size").filter(|&b| b > 0);
    let elements = int("N").zip(int("K")).map(|(n, k)| n.saturating_mul(k));
    let zeros = node.input.get(3).is_some_and(|z| !z.is_empty());
    let integer = |bits: u64, zeros: bool| Some((format!("{}{bits}", if zeros { 'u' } else { 'i' }), bits));
    let packed = match op {
        "MatMulNBits" | "GatherBlockQuantized" => integer(int("bits").unwrap_or(4), zeros),
        "QMoE" => integer(int("expert_weight_bits").unwrap_or(4), false),
        "MatMulBnb4" => Some((if int("quant_type") == Some(0) { "fp4" } else { "nf4" }.to_string(), 4)),
        _ => None,
    };
    let block = if op == "GatherBlockQuantized" { block.or(Some(128)) } else { block };
    Role::Quantised { packed, block, elements, scale }
}

/// The tensors of a file, and the roles of names.
#[derive(Default)]
struct Read<'m> {
    tensors: FxHashMap<&'m str, &'m TensorProto>,
    roles: FxHashMap<&'m str, Role>,
}

impl<'m> Read<'m> {
    fn graph(&mut self, graph: &'m GraphProto) {
        self.tensors.extend(graph.initializer.iter().map(|t| (t.name.as_deref().unwrap_or(""), t)));
        graph.node.iter().for_each(|n| self.node(n));
    }
    fn node(&mut self, node: &'m NodeProto) {
        for (i, name) in node.input.iter().enumerate().filter(|n| !n.1.is_empty()) {
            let (role, known) = (role(node, i), self.roles.entry(name).or_insert(Role::Value));
            if role > *known {
                *known = role;
            }
        }
        if node.op_type.as_deref() == Some("Constant") {
            let held = node.attribute.iter().find_map(|a| a.t.as_ref());
            self.tensors.extend(node.output.first().map(String::as_str).zip(held));
        }
        node.attribute.iter().filter_map(|a| a.g.as_ref()).for_each(|g| self.graph(g));
    }
    fn counted(self) -> Counted {
        let mut out = Counted::default();
        for (name, t) in self.tensors.iter().filter(|t| !t.1.dims.is_empty()) {
            let float = dtype_from_onnx(t.data_type.unwrap_or(0)).is_ok_and(|d| d.is_float());
            match self.roles.get(name) {
                Some(Role::Quantised { packed, block, elements, scale }) if packed.is_some() || !float => {
                    let of = stored(t.data_type.unwrap_or(0));
                    let (ty, bits) = packed.clone().unwrap_or_else(|| of.clone());
                    let shared = if bits > 0 && of.1 > bits { of.1 / bits } else { 1 };
                    let scales = self.tensors.get(scale.as_str()).map_or(0, |t| elements_of(t));
                    let form = match block {
                        Some(block) => form(&ty, *block),
                        None if scales > 1 => format!("{ty} per channel"),
                        None => ty,
                    };
                    out.add(form, bits, *block, elements.unwrap_or_else(|| elements_of(t).saturating_mul(shared)));
                }
                Some(Role::Value | Role::Quantised { .. }) if float => {
                    out.parameters = out.parameters.saturating_add(elements_of(t));
                }
                _ => {}
            }
        }
        out.sorted()
    }
}

fn elements_of(t: &TensorProto) -> u64 {
    t.dims.iter().fold(1, |all: u64, d| all.saturating_mul(u64::try_from(*d).unwrap_or(0)))
}

/// Name and bits of a type by its ONNX number.
fn stored(code: i32) -> (String, u64) {
    match (Narrow::of_onnx(code.into()), dtype_from_onnx(code)) {
        (Some(narrow), _) => (format!("{narrow:?}").to_lowercase(), narrow.bits() as u64),
        (None, Ok(dtype)) => (dtype.to_string(), 8 * dtype.size() as u64),
        (None, Err(_)) => ("?".into(), 0),
    }
}

/// The parameters of an ONNX file: of the main graph, of branches and bodies, and of functions.
pub(super) fn of_file(model: &ModelProto) -> Counted {
    let mut read = Read::default();
    model.graph.iter().for_each(|g| read.graph(g));
    model.functions.iter().flat_map(|f| &f.node).for_each(|n| read.node(n));
    read.counted()
}
