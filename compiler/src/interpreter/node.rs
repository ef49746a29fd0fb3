//! One op at concrete shapes.

use crate::dtype::DType;
use crate::graph::{Function, Module, TensorType, ValueDef, ValueId};
use crate::int::Int;
use crate::name::Name;
use crate::ops::control::{CallTensor, Const};
use crate::ops::{InferContext, OpRef, OpResult};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{Access, Buffer, BufferId, Encoding, Param, Scope, TensorFunction};
use tensor_ir::interpreter::execute;

/// Operands up to this many elements and rank 1 are given to the op as constants (sizes, axes, scales, scalars);
/// integers always are.
const MAX_CONSTANT: usize = 1024;

/// Runs one op on host tensors. Result types are inferred anew for the concrete operands. Ops that own regions and
/// calls of graph or host functions need an [`super::Interpreter`].
///
/// # Errors
/// An error of the op's inference, tensor expression or host evaluation.
pub fn eval_node(op: &OpRef, inputs: &[Option<Tensor>], module: &Module) -> OpResult<Vec<Tensor>> {
    if let Some(c) = op.downcast::<Const>() {
        let constant =
            module.constants.get(&c.name).ok_or_else(|| format!("constant @{} is not in the module", c.name))?;
        return Ok(vec![constant.load()?]);
    }
    if let Some(c) = op.downcast::<CallTensor>() {
        let f = module
            .tensor_functions
            .get(&c.callee)
            .ok_or_else(|| format!("tensor function @{} is not in the module", c.callee))?;
        let present = inputs.iter().map(|t| t.clone().ok_or("an operand is missing")).collect::<Result<Vec<_>, _>>()?;
        let sizes = c.symbols.iter().copied().zip(c.sizes.iter().filter_map(Int::as_const)).collect::<Vec<_>>();
        return super::run_tensor_function_with(f, &sizes, &present);
    }
    if let Some(result) = op.eval_host(inputs) {
        return result;
    }
    if !op.has_compute() {
        return Err("has neither a tensor expression nor a host evaluation".into());
    }
    let types = infer_concrete(op, inputs)?;
    compute(op, inputs, types)
}

/// Runs the tensor expression of one op, even where the op has a host evaluation: what a kernel computes.
///
/// # Errors
/// As [`eval_node`]; also when there is no tensor expression.
pub fn eval_expression(op: &OpRef, inputs: &[Option<Tensor>]) -> OpResult<Vec<Tensor>> {
    let types = infer_concrete(op, inputs)?;
    compute(op, inputs, types)
}

fn constant_like(t: &Tensor) -> bool {
    t.shape().len() <= 1 && (t.dtype().is_int() || t.dtype() == DType::Bool || t.len() <= MAX_CONSTANT)
}

/// Result types for the concrete operands, through a function whose only values are those operands.
pub(super) fn infer_concrete(op: &OpRef, inputs: &[Option<Tensor>]) -> OpResult<Vec<TensorType>> {
    let mut module = Module::new("main");
    let mut f = Function::new("main");
    let mut values = Vec::with_capacity(inputs.len());
    for t in inputs {
        values.push(t.as_ref().map(|t| operand(&mut module, &mut f, t)));
    }
    let types = op.infer(&InferContext::new(&module, &f, &values, &[]))?;
    for t in &types {
        if t.const_shape().is_none() {
            return Err(format!("the result shape {:?} is not known from the operands", t.shape).into());
        }
    }
    Ok(types)
}

fn operand(module: &mut Module, f: &mut Function, t: &Tensor) -> ValueId {
    let ty = TensorType::fixed(t.dtype(), t.shape());
    if !constant_like(t) {
        let index = f.blocks[f.body].args.len();
        let v = f.fresh_value(ty, ValueDef::Arg(f.body, index), None);
        f.blocks[f.body].args.push(v);
        return v;
    }
    let name = module.add_constant("c", t);
    let node = <crate::graph::NodeId as crate::arena::Id>::from_index(f.nodes.len());
    let v = f.fresh_value(ty, ValueDef::Result(node, 0), None);
    f.nodes.push(crate::graph::Node {
        op: OpRef::new(Const { name }),
        inputs: vec![],
        outputs: vec![v],
        regions: vec![],
        name,
        origins: crate::graph::Origins::none(),
        block: Some(f.body),
    });
    f.blocks[f.body].nodes.push(node);
    v
}

/// The tensor function of one op on these operands, its present operands in order, and the buffers of its results.
pub(super) type NodeFunction = (TensorFunction, Vec<Tensor>, Vec<BufferId>);

/// Builds the tensor function of one op.
pub(super) fn node_function(op: &OpRef, inputs: &[Option<Tensor>], types: Vec<TensorType>) -> OpResult<NodeFunction> {
    let mut f = TensorFunction::new("node");
    let (mut buffers, mut present) = (Vec::new(), Vec::new());
    for (i, t) in inputs.iter().enumerate() {
        buffers.push(t.as_ref().map(|t| {
            let buffer = f.buffers.push(Buffer {
                name: Name::new(&format!("in{i}")),
                dtype: t.dtype(),
                shape: TensorType::fixed(t.dtype(), t.shape()).shape,
                scope: Scope::Global,
                encoding: Encoding::Native,
            });
            f.params.push(Param { buffer, access: Access::Read });
            present.push(t.clone());
            buffer
        }));
    }
    let constants = inputs.iter().map(|t| t.clone().filter(constant_like)).collect();
    let mut cx = ComputeContext::new(&mut f, buffers, constants, types, op.name());
    op.compute(&mut cx)?;
    let outputs = cx
        .into_outputs()
        .into_iter()
        .enumerate()
        .map(|(i, b)| b.ok_or_else(|| format!("result {i} is not computed")))
        .collect::<Result<Vec<_>, _>>()?;
    Ok((f, present, outputs))
}

fn compute(op: &OpRef, inputs: &[Option<Tensor>], types: Vec<TensorType>) -> OpResult<Vec<Tensor>> {
    let (f, present, outputs) = node_function(op, inputs, types.clone())?;
    let results = execute(&f, &present, &outputs)?;
    for (r, t) in results.iter().zip(&types) {
        if r.dtype() != t.dtype || Some(r.shape()) != t.const_shape().as_deref() {
            return Err(format!("bug: computes {}{:?} where {t:?} was inferred", r.dtype(), r.shape()).into());
        }
    }
    Ok(results)
}

#[cfg(test)]
mod tests;
