//! Quantised weights: how many parameters a model has in them, and how each operand is stored (`i4 block 32`).
//!
//! Parameters are counted in elements: a weight of four bits is one, whatever bytes it shares. Scales, zero points, the
//! statistics of batch norms and scalars are none.

use crate::graph::{Constant, Function, Module, NodeId};
use crate::name::Name;
use crate::ops::Decoding;
use crate::ops::control::Const;
use crate::remark::{Remark, RemarkKind};
use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::Serialize;

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
    pub(crate) fn add(&mut self, form: String, bits: u64, block: Option<u64>, elements: u64) {
        self.parameters = self.parameters.saturating_add(elements);
        match self.quantised.iter_mut().find(|q| q.form == form) {
            Some(q) => {
                q.tensors += 1;
                q.parameters = q.parameters.saturating_add(elements);
            }
            None => self.quantised.push(Quantised { form, bits, block, tensors: 1, parameters: elements }),
        }
    }
    pub(crate) fn sorted(mut self) -> Counted {
        self.quantised.sort_by(|a, b| b.parameters.cmp(&a.parameters).then_with(|| a.form.cmp(&b.form)));
        self
    }
}

/// Elements of a type with a scale for each `block` of them. Integers without zero points of their own have 0 in the
/// middle of their range, as a signed type.
pub(crate) fn form(ty: &str, block: impl std::fmt::Display) -> String {
    format!("{ty} block {block}")
}

/// A packed operand: the constant, the node that decodes it, and how.
struct Packed<'m> {
    name: Name,
    constant: &'m Constant,
    /// Bits of an integer, integers of a block and of a row.
    stored: [i64; 3],
    function: &'m Function,
    node: NodeId,
}

impl Packed<'_> {
    /// Elements, those that fill the last block of a row left out.
    fn elements(&self) -> u64 {
        let row = *self.constant.shape.last().unwrap_or(&1) as u64;
        let rows = self.constant.shape.iter().product::<usize>() as u64 / row.max(1);
        rows.saturating_mul(self.stored[2].max(0) as u64)
    }
    fn form(&self) -> String {
        let zeros = self.function.nodes[self.node].inputs.get(2).is_some_and(Option::is_some);
        form(&format!("{}{}", if zeros { 'u' } else { 'i' }, self.stored[0]), self.stored[1])
    }
    /// `` `w` is i4 block 32 [1024,1024] ``.
    fn described(&self) -> String {
        let lead = &self.constant.shape[..self.constant.shape.len().saturating_sub(1)];
        let dims = lead.iter().map(|&d| d as i64).chain([self.stored[2]]).map(|d| d.to_string()).collect::<Vec<_>>();
        format!("`{}` is {} [{}]", self.name.as_str().trim_end_matches("_words"), self.form(), dims.join(","))
    }
}

/// The packed operands of a module, in the order of the nodes that decode them.
fn packed(module: &Module) -> Vec<Packed<'_>> {
    let mut out = Vec::new();
    for function in module.functions.values() {
        for node in function.walk() {
            let Some(Decoding::Blocks { bits, block, size }) = function.nodes[node].op.decodes() else { continue };
            let stored = [bits, block, size];
            // A lookup picks rows before they are decoded.
            let held = |n: NodeId| function.nodes[n].inputs.first().copied().flatten();
            let mut at = held(node);
            while let Some(v) = at {
                if let Some((_, c)) = function.def_op::<Const>(v) {
                    let constant = module.constants.get(&c.name);
                    out.extend(constant.map(|constant| Packed { name: c.name, constant, stored, function, node }));
                    break;
                }
                at = function.def_node(v).and_then(held);
            }
        }
    }
    out
}

/// The parameters of a module, of which `parameters` are in floats.
pub(super) fn of_module(module: &Module, parameters: u64) -> Counted {
    let mut counted = Counted { parameters, ..Counted::default() };
    let mut seen = FxHashSet::default();
    for p in packed(module).into_iter().filter(|p| seen.insert(p.name)) {
        let scales = p.function.nodes[p.node].inputs.get(1).copied().flatten();
        let scales =
            scales.and_then(|v| p.function.def_op::<Const>(v)).and_then(|(_, c)| module.constants.get(&c.name));
        let scales = scales.map_or(0, |c| c.shape.iter().product::<usize>() as u64);
        counted.parameters = counted.parameters.saturating_sub(scales);
        counted.add(p.form(), p.stored[0].max(0) as u64, u64::try_from(p.stored[1]).ok(), p.elements());
    }
    counted.sorted()
}

/// Says of each node with a packed operand how that is stored; the detail is the constant's name.
pub fn packed_operands(module: &Module) -> Vec<Remark> {
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
