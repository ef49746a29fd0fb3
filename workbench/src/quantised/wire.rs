//! The weights of an ONNX file, from its bytes: only names, types and sizes are read. So weights are found in every
//! branch and body, also of operators that Weft does not import.

use super::{Counted, dtype, stored};
use rustc_hash::FxHashMap;

/// A field of a protobuf message.
#[derive(Clone, Copy)]
enum Field<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take<'b>(rest: &mut &'b [u8], n: u64) -> Option<&'b [u8]> {
    let (taken, tail) = rest.split_at_checked(usize::try_from(n).ok()?)?;
    *rest = tail;
    Some(taken)
}

/// The fields of a message with their numbers, up to one that is cut off.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    std::iter::from_fn(move || {
        let tag = varint(&mut rest)?;
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut rest)?),
            1 => Field::Bytes(take(&mut rest, 8)?),
            2 => {
                let n = varint(&mut rest)?;
                Field::Bytes(take(&mut rest, n)?)
            }
            5 => Field::Bytes(take(&mut rest, 4)?),
            _ => return None,
        };
        Some((tag >> 3, field))
    })
}

/// The messages in field `number`.
fn messages(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).filter_map(move |(n, f)| match f {
        Field::Bytes(b) if n == number => Some(b),
        _ => None,
    })
}

fn text(message: &[u8], number: u64) -> &str {
    messages(message, number).next().and_then(|b| std::str::from_utf8(b).ok()).unwrap_or("")
}

fn number(message: &[u8], number: u64) -> Option<u64> {
    fields(message).find_map(|(n, f)| match f {
        Field::Number(v) if n == number => Some(v),
        _ => None,
    })
}

/// A tensor without its data.
struct Held {
    dims: Vec<u64>,
    /// The ONNX number of its type.
    code: u64,
}

impl Held {
    fn new(tensor: &[u8]) -> Held {
        let mut dims = Vec::new();
        for (_, f) in fields(tensor).filter(|f| f.0 == 1) {
            match f {
                Field::Number(d) => dims.push(d),
                Field::Bytes(mut packed) => dims.extend(std::iter::from_fn(|| varint(&mut packed))),
            }
        }
        Held { dims, code: number(tensor, 2).unwrap_or(0) }
    }
    fn elements(&self) -> u64 {
        self.dims.iter().fold(1u64, |all, &d| all.saturating_mul(d))
    }
}

/// What the nodes that read a tensor take it for. What stands later counts for a tensor that is read in several ways.
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

/// A node, as far as it matters here.
struct Node<'b> {
    op: &'b str,
    inputs: Vec<&'b str>,
    attributes: Vec<&'b [u8]>,
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

impl<'b> Node<'b> {
    fn new(node: &'b [u8]) -> Node<'b> {
        let inputs = messages(node, 1).map(|b| std::str::from_utf8(b).unwrap_or("")).collect();
        Node { op: text(node, 4), inputs, attributes: messages(node, 5).collect() }
    }
    fn int(&self, name: &str) -> Option<u64> {
        self.attributes.iter().find(|a| text(a, 1) == name).and_then(|a| number(a, 3))
    }
    fn role(&self, at: usize) -> Role {
        if self.op == "BatchNormalization" {
            return if at >= 3 { Role::Measure } else { Role::Value };
        }
        let Some((_, (quantised, values))) = QUANTISED.iter().find(|row| row.0 == self.op) else { return Role::Value };
        let Some((_, scale)) = quantised.iter().find(|q| q.0 == at) else {
            return if values.contains(&at) { Role::Value } else { Role::Measure };
        };
        let scale = self.inputs.get(*scale).unwrap_or(&"").to_string();
        let block = self.int("block_size").filter(|&b| b > 0);
        let elements = self.int("N").zip(self.int("K")).map(|(n, k)| n.saturating_mul(k));
        let zeros = self.inputs.get(3).is_some_and(|z| !z.is_empty());
        let integer = |bits: u64, zeros: bool| Some((format!("{}{bits}", if zeros { 'u' } else { 'i' }), bits));
        let packed = match self.op {
            "MatMulNBits" | "GatherBlockQuantized" => integer(self.int("bits").unwrap_or(4), zeros),
            "QMoE" => integer(self.int("expert_weight_bits").unwrap_or(4), false),
            "MatMulBnb4" => Some((if self.int("quant_type") == Some(0) { "fp4" } else { "nf4" }.to_string(), 4)),
            _ => None,
        };
        let block = if self.op == "GatherBlockQuantized" { block.or(Some(128)) } else { block };
        Role::Quantised { packed, block, elements, scale }
    }
}

/// The tensors of a file, and the roles of names.
#[derive(Default)]
struct Read {
    tensors: Vec<(String, Held)>,
    roles: FxHashMap<String, Role>,
}

impl Read {
    fn graph(&mut self, graph: &[u8]) {
        self.tensors.extend(messages(graph, 5).map(|t| (text(t, 8).to_string(), Held::new(t))));
        messages(graph, 1).for_each(|n| self.node(n));
    }
    fn node(&mut self, message: &[u8]) {
        let node = Node::new(message);
        for (i, name) in node.inputs.iter().enumerate().filter(|n| !n.1.is_empty()) {
            let role = node.role(i);
            let known = self.roles.entry(name.to_string()).or_insert(Role::Value);
            if role > *known {
                *known = role;
            }
        }
        if node.op == "Constant" {
            let held = node.attributes.iter().find_map(|a| messages(a, 5).next()).map(Held::new);
            self.tensors.extend(held.map(|h| (text(message, 2).to_string(), h)));
        }
        for a in &node.attributes {
            messages(a, 6).chain(messages(a, 11)).for_each(|g| self.graph(g));
        }
    }
    fn counted(self) -> Counted {
        let mut out = Counted::default();
        let sizes: FxHashMap<&str, u64> = self.tensors.iter().map(|(n, t)| (n.as_str(), t.elements())).collect();
        for (name, t) in self.tensors.iter().filter(|t| !t.1.dims.is_empty()) {
            let float = dtype(t.code).is_some_and(|d| d.is_float());
            match self.roles.get(name) {
                Some(Role::Quantised { packed, block, elements, scale }) if packed.is_some() || !float => {
                    let (of, held) = (stored(t.code), t.elements());
                    let (ty, bits) = packed.clone().unwrap_or_else(|| of.clone());
                    let shared = if bits > 0 && of.1 > bits { of.1 / bits } else { 1 };
                    let form = match (block, sizes.get(scale.as_str())) {
                        (Some(block), _) => format!("{ty} block {block}"),
                        (None, Some(n)) if *n > 1 => format!("{ty} per channel"),
                        _ => ty,
                    };
                    out.add(form, bits, *block, elements.unwrap_or_else(|| held.saturating_mul(shared)));
                }
                Some(Role::Value | Role::Quantised { .. }) if float => {
                    out.parameters = out.parameters.saturating_add(t.elements());
                }
                _ => {}
            }
        }
        out.sorted()
    }
}

/// The parameters of an ONNX file: of the main graph, of branches and bodies, and of functions.
pub fn of_file(model: &[u8]) -> Counted {
    let mut read = Read::default();
    messages(model, 7).for_each(|g| read.graph(g));
    messages(model, 25).flat_map(|f| messages(f, 7).collect::<Vec<_>>()).for_each(|n| read.node(n));
    read.counted()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_off_and_endless_numbers_end_the_walk() {
        assert_eq!(fields(&[0x08, 0x96, 0x01]).count(), 1);
        assert_eq!(fields(&[0x08, 0x80]).count(), 0);
        assert_eq!(fields(&[0x08; 0]).count(), 0);
        assert_eq!(fields(&[0x80; 12]).count(), 0);
        assert_eq!(fields(&[0x3a, 0x05, 0x00]).count(), 0, "five bytes are announced, one is there");
        assert_eq!(of_file(&[0xff; 40]), Counted::default());
    }
}
