//! Quantised weights: how many parameters a model has in them, and how each operand is stored (`i4 block 32`).
//!
//! [`of_file`] reads an ONNX file, [`of_module`] a module. Parameters are counted in elements: a weight of four bits is
//! one, whatever bytes it shares. Scales, zero points, the statistics of batch norms and scalars are none.

mod wire;

use compiler::dtype::DType;
use compiler::graph::{Constant, Function, Module, NodeId};
use compiler::inspect::{Inspection, count_parameters};
use compiler::name::Name;
use compiler::ops::control::Const;
use compiler::ops::dequantize_blocks::DequantizeBlocks;
use compiler::remark::{Remark, RemarkKind};
use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::Serialize;
pub use wire::of_file;

/// Quantised weights of one form.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Quantised {
    /// Type and block, such as `i4 block 32`, `i8 per channel`, `u8`.
    pub form: String,
    /// Bits of an element.
    pub bits: u64,
    /// Elements with one scale; `None` for a scale per tensor or per channel.
    pub block: Option<u64>,
    /// Number of tensors.
    pub tensors: usize,
    /// Their elements.
    pub parameters: u64,
}

/// The parameters of a model.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// All of them, in elements.
    pub parameters: u64,
    /// Those that are quantised, by form, most elements first.
    pub quantised: Vec<Quantised>,
}

impl Counted {
    /// Counts a quantised tensor.
    fn add(&mut self, form: String, bits: u64, block: Option<u64>, elements: u64) {
        self.parameters = self.parameters.saturating_add(elements);
        match self.quantised.iter_mut().find(|q| q.form == form) {
            Some(q) => {
                q.tensors += 1;
                q.parameters = q.parameters.saturating_add(elements);
            }
            None => self.quantised.push(Quantised { form, bits, block, tensors: 1, parameters: elements }),
        }
    }
    fn sorted(mut self) -> Counted {
        self.quantised.sort_by(|a, b| b.parameters.cmp(&a.parameters).then_with(|| a.form.cmp(&b.form)));
        self
    }
}

/// A model as `weft inspect` shows it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Inspected {
    /// Inputs, outputs, operators and size.
    #[serde(flatten)]
    pub model: Inspection,
    /// Quantised weights by type and block, most elements first.
    pub quantised: Vec<Quantised>,
    /// The sizes that have to be given before it is known what is supported; `None` where they do not matter.
    pub open: Option<String>,
}

impl Inspected {
    /// A model with its parameters as they were counted.
    pub fn new(model: Inspection, counted: Counted, open: Option<String>) -> Inspected {
        let Counted { parameters, quantised } = counted;
        Inspected { model: Inspection { parameters, ..model }, quantised, open }
    }
}

/// The type of integers of `bits` bits with a scale for each `block` of them; `zeros` are zero points of their own.
/// Without them the middle of the range is 0, as in a signed type.
pub fn form(bits: i64, zeros: bool, block: i64) -> String {
    format!("{}{bits} block {block}", if zeros { 'u' } else { 'i' })
}

/// A packed operand: the constant, the node that decodes it, and how.
struct Packed<'m> {
    name: Name,
    constant: &'m Constant,
    op: &'m DequantizeBlocks,
    function: &'m Function,
    node: NodeId,
}

impl Packed<'_> {
    /// Elements, those that fill the last block of a row left out.
    fn elements(&self) -> u64 {
        let row = *self.constant.shape.last().unwrap_or(&1) as u64;
        let rows = self.constant.shape.iter().product::<usize>() as u64 / row.max(1);
        rows.saturating_mul(self.op.size.max(0) as u64)
    }
    fn form(&self) -> String {
        let zeros = self.function.nodes[self.node].inputs.get(2).is_some_and(Option::is_some);
        form(self.op.bits, zeros, self.op.block)
    }
    /// `` `w` is i4 block 32 [1024,1024] ``.
    fn described(&self) -> String {
        let lead = &self.constant.shape[..self.constant.shape.len().saturating_sub(1)];
        let dims = lead.iter().map(|&d| d as i64).chain([self.op.size]).map(|d| d.to_string()).collect::<Vec<_>>();
        format!("`{}` is {} [{}]", self.name.as_str().trim_end_matches("_words"), self.form(), dims.join(","))
    }
}

/// The packed operands of a module, in the order of the nodes that decode them.
fn packed(module: &Module) -> Vec<Packed<'_>> {
    let mut out = Vec::new();
    for function in module.functions.values() {
        for node in function.walk() {
            let Some(op) = function.nodes[node].op.downcast::<DequantizeBlocks>() else { continue };
            // A lookup picks rows before they are decoded.
            let held = |n: NodeId| function.nodes[n].inputs.first().copied().flatten();
            let mut at = held(node);
            while let Some(v) = at {
                if let Some((_, c)) = function.def_op::<Const>(v) {
                    let constant = module.constants.get(&c.name);
                    out.extend(constant.map(|constant| Packed { name: c.name, constant, op, function, node }));
                    break;
                }
                at = function.def_node(v).and_then(held);
            }
        }
    }
    out
}

/// The parameters of a module.
pub fn of_module(module: &Module) -> Counted {
    let mut counted = Counted { parameters: count_parameters(module), ..Counted::default() };
    let mut seen = FxHashSet::default();
    for p in packed(module).into_iter().filter(|p| seen.insert(p.name)) {
        let scales = p.function.nodes[p.node].inputs.get(1).copied().flatten();
        let scales =
            scales.and_then(|v| p.function.def_op::<Const>(v)).and_then(|(_, c)| module.constants.get(&c.name));
        let scales = scales.map_or(0, |c| c.shape.iter().product::<usize>() as u64);
        counted.parameters = counted.parameters.saturating_sub(scales);
        counted.add(p.form(), p.op.bits.max(0) as u64, u64::try_from(p.op.block).ok(), p.elements());
    }
    counted.sorted()
}

/// Says of each node with a packed operand how that is stored; the detail is the constant's name.
pub fn remarks(module: &Module) -> Vec<Remark> {
    let remark = |p: Packed<'_>| {
        let origins = &p.function.nodes[p.node].origins;
        Remark {
            pass: Name::new("import"),
            kind: RemarkKind::Applied,
            nodes: origins.names().to_vec(),
            message: p.described(),
            detail: p.name.to_string(),
        }
    };
    packed(module).into_iter().map(remark).collect()
}

/// Type of elements by its ONNX number: its name and bits.
fn stored(code: u64) -> (String, u64) {
    let narrow = match code {
        17 => ("f8e4m3fn", 8),
        18 => ("f8e4m3fnuz", 8),
        19 => ("f8e5m2", 8),
        20 => ("f8e5m2fnuz", 8),
        21 => ("u4", 4),
        22 => ("i4", 4),
        23 => ("f4e2m1", 4),
        25 => ("u2", 2),
        26 => ("i2", 2),
        _ => match dtype(code) {
            Some(d) => return (d.to_string(), 8 * d.size() as u64),
            None => ("?", 0),
        },
    };
    (narrow.0.to_string(), narrow.1)
}

fn dtype(code: u64) -> Option<DType> {
    compiler::onnx::dtype_from_onnx(i32::try_from(code).ok()?).ok()
}
