//! round-rows: data that a product multiplies with weights of a few bits is rounded to 8 bits, block by block, where
//! the model allows it.
//!
//! ```text
//!                                                          %m = max |x| of each block
//! %1 = dequantize_blocks @words, @scales {rounds}          %r = round(x * (127 / %m)) * (%m / 127)
//! %y = matmul %x, (transpose %1)                     =>    %y = matmul %r, (transpose %1)
//! ```
//!
//! Data has the blocks of the weights. The order of operations is ONNX Runtime's: rows of a 4-bit embedding have many
//! elements in the middle of two steps, which go to the same one then. `MatMulNBits` with `accuracy_level` 4 sets the
//! attribute `rounds`: ONNX Runtime then rounds in this way and multiplies bytes, and so does the processor's kernel,
//! which finds the bytes of such a row again. A result differs from the exact one by some 3 in 1000. The attribute is
//! cleared, so the pass changes a product once.
//!
//! The pass runs if products of bytes and their sums are few operations (`MachineModel::mixes_bytes`); otherwise
//! nothing is gained, and rows stay exact. `--disable-pass round-rows` keeps them exact everywhere.

use super::rewriter::Rewriter;
use super::{FunctionPass, GraphFunctions, PassContext, PassError};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::{Constant, Module, NodeId, Origins, ValueId};
use crate::int::{Int, const_dims};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::binary::{Div, Max, Mul};
use crate::ops::cast::Cast;
use crate::ops::dequantize_blocks::DequantizeBlocks;
use crate::ops::matmul::MatMul;
use crate::ops::reduce::{Reduce, ReduceKind};
use crate::ops::reshape::Reshape;
use crate::ops::transpose::Transpose;
use crate::ops::unary::{Abs, Round};
use crate::tensor::Tensor;

attr_struct! {
    /// Rounds data of products where the model allows it.
    pub struct RoundRows("round-rows") {
        /// On devices too that gain nothing by it.
        pub always: bool = false,
    }
}

/// Steps on each side of 0.
const STEPS: f64 = 127.0;
/// The largest magnitude of a block counts as this at least, so that a step can be divided by it.
const TINY: f64 = 1e-30;

impl FunctionPass for RoundRows {
    type Of = GraphFunctions;
    fn opt_level(&self) -> u8 {
        1
    }
    fn run_on(&self, r: &mut Rewriter<'_>, cx: &mut PassContext) -> Result<(), PassError> {
        let gains = self.always || cx.profile.model().mixes_bytes;
        for n in r.f.walk() {
            r.normalize(n);
            let Some((weights, op)) = weights_of(r, n).filter(|(_, op)| op.rounds) else { continue };
            let name = r.f.nodes[n].name;
            let done = match gains {
                true => round(r, n, weights, op),
                false => Err(format!("{} gains nothing by products of bytes", cx.profile.name)),
            };
            match done {
                Ok(()) => cx.applied(self, &[name], format!("data of {name} is rounded to 8 bits in blocks")),
                Err(why) => cx.missed(self, &[name], format!("data of {name} is not rounded: {why}")),
            }
        }
        Ok(())
    }
}

impl RoundRows {
    /// How many products of a module may round their data and do not.
    pub fn exact_products(module: &Module) -> usize {
        let nodes = module.functions.values().flat_map(|f| f.walk().into_iter().map(move |n| &f.nodes[n].op));
        nodes.filter(|op| op.downcast::<DequantizeBlocks>().is_some_and(|d| d.rounds)).count()
    }
}

/// The node that decodes the weights of a product.
fn weights_of(r: &Rewriter<'_>, n: NodeId) -> Option<(NodeId, DequantizeBlocks)> {
    let node = &r.f.nodes[n];
    let w = node.inputs.get(1).copied().flatten().filter(|_| node.op.is::<MatMul>())?;
    let (t, _) = r.f.def_op::<Transpose>(r.resolve(w))?;
    let (d, op) = r.f.def_op::<DequantizeBlocks>(r.resolve(r.f.nodes[t].inputs[0]?))?;
    Some((d, op.clone()))
}

fn round(r: &mut Rewriter<'_>, n: NodeId, weights: NodeId, op: DequantizeBlocks) -> Result<(), String> {
    let (name, origins) = (r.f.nodes[n].name, r.f.nodes[n].origins.clone());
    let inputs = r.f.nodes[n].inputs.clone();
    let x = inputs[0].ok_or("it has no operand")?;
    let ty = r.f.ty(x).clone();
    let Some((last, lead)) = ty.shape.split_last() else { return Err("its operand is a number".into()) };
    if const_dims(std::slice::from_ref(last)).is_none() || op.size % op.block != 0 {
        return Err(format!("a row of {} is no whole number of blocks of {}", op.size, op.block));
    }
    let mut on = Before { r, n, name, origins };
    let wide = on.cast(x, ty.dtype, DType::F32)?;
    let blocks = [lead, &[Int::new(op.size / op.block), Int::new(op.block)]].concat();
    let axis = blocks.len() - 1;
    let x = on.add(Reshape { shape: blocks, ..Reshape::default() }, &[wide])?;
    let size = on.add(Abs {}, &[x])?;
    let most = on.add(Reduce { kind: ReduceKind::Max, axes: vec![axis], keepdims: true }, &[size])?;
    let steps = on.number(STEPS);
    let step = on.add(Div {}, &[most, steps])?;
    // A block of zeros stays one.
    let tiny = on.number(TINY);
    let most = on.add(Max {}, &[most, tiny])?;
    let factor = on.add(Div {}, &[steps, most])?;
    let count = on.add(Mul {}, &[x, factor])?;
    let count = on.add(Round {}, &[count])?;
    let rounded = on.add(Mul {}, &[count, step])?;
    let rounded = on.add(Reshape { shape: ty.shape.clone(), ..Reshape::default() }, &[rounded])?;
    let rounded = on.cast(rounded, DType::F32, ty.dtype)?;
    let own = r.f.nodes[n].op.clone();
    r.update(n, own, vec![Some(rounded), inputs[1]]);
    let decoded = r.f.nodes[weights].inputs.clone();
    r.update(weights, OpRef::new(DequantizeBlocks { rounds: false, ..op }), decoded);
    Ok(())
}

/// Adds nodes before a product.
struct Before<'r, 'm> {
    r: &'r mut Rewriter<'m>,
    n: NodeId,
    name: Name,
    origins: Origins,
}

impl Before<'_, '_> {
    fn add(&mut self, op: impl Into<OpRef>, inputs: &[ValueId]) -> Result<ValueId, String> {
        let inputs = inputs.iter().copied().map(Some).collect();
        let made = self.r.add_before(self.n, op, inputs, self.name, self.origins.clone());
        Ok(made.map_err(|e| e.to_string())?[0])
    }
    fn cast(&mut self, x: ValueId, from: DType, to: DType) -> Result<ValueId, String> {
        if from == to { Ok(x) } else { self.add(Cast { to, ..Cast::default() }, &[x]) }
    }
    fn number(&mut self, x: f64) -> ValueId {
        let number = Constant::from_tensor(&Tensor::from_f64(DType::F32, vec![], [x]));
        self.r.constant_before(self.n, &format!("{}.round", self.name), number, self.origins.clone())
    }
}
