//! Lowering a primitive function to one tensor function.

use crate::dtype::DType;
use crate::graph::{Function, Module, NodeId, ValueId};
use crate::int::{Int, flatten_index};
use crate::name::Name;
use crate::ops::control::Const;
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{Access, Buffer, BufferId, Encoding, Expr, Param, Scalar, Scope, Stmt, TensorFunction};
use rustc_hash::FxHashMap;

/// Why a group has no tensor function: it then runs on the host.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{node}: {why}")]
pub struct LowerError {
    /// The node.
    pub node: Name,
    /// Why.
    pub why: String,
}

/// A primitive function as one tensor function.
#[derive(Clone, Debug)]
pub struct LoweredGroup {
    /// The tensor function, with its stages numbered.
    pub function: TensorFunction,
    /// The node that each stage comes from; `None` for a copy of a parameter.
    pub stages: Vec<Option<NodeId>>,
}

/// Lowers the primitive function `f` to a tensor function named `name`: one read parameter for each parameter of `f`,
/// one write parameter for each result. Buffers are named after ops, so that equal groups give equal functions.
///
/// # Errors
/// The first node that has no tensor expression for its operands.
pub fn lower_group(module: &Module, f: &Function, name: Name) -> Result<LoweredGroup, LowerError> {
    let mut t = TensorFunction::new(name);
    let mut stages: Vec<Option<NodeId>> = Vec::new();
    let mut buffers: FxHashMap<ValueId, BufferId> = FxHashMap::default();
    for (i, &p) in f.params().iter().enumerate() {
        let b = add_buffer(&mut t, &format!("p{i}"), f, p);
        t.params.push(Param { buffer: b, access: Access::Read });
        buffers.insert(p, b);
    }
    for n in f.walk() {
        let node = &f.nodes[n];
        let fail = |why: String| LowerError { node: node.name, why };
        let label = stage_count(&t);
        if let Some(c) = node.op.downcast::<Const>() {
            let tensor = module
                .constants
                .get(&c.name)
                .ok_or_else(|| fail("its constant is missing".into()))?
                .load()
                .map_err(|e| fail(e.message))?;
            let b = lower_small_constant(&mut t, &tensor, label).map_err(fail)?;
            stages.resize(stage_count(&t), Some(n));
            buffers.insert(node.outputs[0], b);
            continue;
        }
        if !node.op.has_compute() || !node.regions.is_empty() {
            return Err(fail(format!("`{}` has no tensor expression", node.op.name())));
        }
        let inputs = node.inputs.iter().map(|v| v.map(|v| buffers[&v])).collect();
        let constants = node.inputs.iter().map(|v| v.and_then(|v| operand_constant(module, f, v))).collect();
        let types = node.outputs.iter().map(|&v| f.ty(v).clone()).collect();
        let mut cx = ComputeContext::new(&mut t, inputs, constants, types, &format!("{}_{label}", node.op.name()))
            .calling(module.tensor_callee(&node.op));
        node.op.compute(&mut cx).map_err(|e| fail(e.message))?;
        let outputs = cx.into_outputs();
        stages.resize(stage_count(&t), Some(n));
        for (v, b) in node.outputs.iter().zip(outputs) {
            if let Some(b) = b {
                buffers.insert(*v, b);
            }
        }
    }
    let mut written = Vec::new();
    for &v in f.results() {
        let fail = |why: &str| LowerError { node: f.name, why: why.into() };
        let b = *buffers.get(&v).ok_or_else(|| fail("a result is not computed"))?;
        let b = if written.contains(&b) || t.params.iter().any(|p| p.buffer == b) { copy_stage(&mut t, b) } else { b };
        stages.resize(stage_count(&t), f.def_node(v));
        written.push(b);
        t.params.push(Param { buffer: b, access: Access::Write });
    }
    round_compared(&mut t);
    let mut function = t.canonical();
    function.number_stages();
    Ok(LoweredGroup { function, stages })
}

/// Rounds the f16 and bf16 operands of comparisons of two values. A value of a stage keeps more precision until it is
/// stored, so a stored element would differ from the same element computed again: the position of the largest one was
/// not found. Maxima stay those of the rounded values, since rounding keeps the order. Parameters are rounded already.
fn round_compared(t: &mut TensorFunction) {
    let given: Vec<BufferId> = t.params.iter().filter(|p| p.access == Access::Read).map(|p| p.buffer).collect();
    let mut body = std::mem::replace(&mut t.body, Stmt::Seq(vec![]));
    body.visit_mut(&mut |s| {
        let Stmt::Block(block) = s else { return };
        let value = block.value.rewrite(&mut Int::clone, &mut |e| match e {
            Expr::Binary(op, a, b) if op.is_comparison() && [a, b].iter().all(|e| !e.loads().is_empty()) => {
                Some(Expr::binary(*op, rounded(a, t, &given), rounded(b, t, &given)))
            }
            _ => None,
        });
        block.value = value;
    });
    t.body = body;
}

/// A value of a type narrower than f32, or one widened to f32, without excess precision.
fn rounded(e: &Expr, t: &TensorFunction, given: &[BufferId]) -> Expr {
    match e {
        Expr::Load(b, _) if given.contains(b) => e.clone(),
        Expr::Cast(to, inner) if *to == DType::F32 && inner.dtype(t).is_float() => {
            Expr::Cast(*to, Box::new(rounded(inner, t, given)))
        }
        _ => e.clone().rounded_cast(e.dtype(t), e.dtype(t)),
    }
}

fn stage_count(t: &TensorFunction) -> usize {
    t.body.blocks().len()
}

fn add_buffer(t: &mut TensorFunction, name: &str, f: &Function, v: ValueId) -> BufferId {
    let ty = f.ty(v);
    t.buffers.push(Buffer {
        name: Name::new(name),
        dtype: ty.dtype,
        shape: ty.shape.clone(),
        scope: Scope::Global,
        encoding: Encoding::Native,
    })
}

/// The value of an operand that ops may need at compile time: integer vectors and single elements.
fn operand_constant(module: &Module, f: &Function, v: ValueId) -> Option<Tensor> {
    let n = f.ty(v).numel().as_const()?;
    if n > 64 {
        return None;
    }
    crate::ops::const_value(module, f, v)
}

/// A constant that lives in the shader's text: one stage that stores literals, to be inlined. Larger constants are
/// parameters; only single elements and short vectors get here.
fn lower_small_constant(t: &mut TensorFunction, tensor: &Tensor, label: usize) -> Result<BufferId, String> {
    let dtype = tensor.dtype();
    let literal = |i: usize| {
        if dtype.is_float() {
            Expr::Const(Scalar::Float(tensor.to_f64_vec()[i]), dtype)
        } else {
            Expr::Const(Scalar::Int(tensor.to_i64_vec()[i]), dtype)
        }
    };
    if tensor.is_empty() {
        return Err("a constant has no elements".into());
    }
    if tensor.len() > 64 {
        return Err("a constant of more than 64 elements is inside a group".into());
    }
    let shape: Vec<Int> = tensor.shape().iter().map(|&d| Int::from(d)).collect();
    let ty = crate::graph::TensorType::new(dtype, shape.clone());
    let mut cx = ComputeContext::new(t, vec![], vec![], vec![ty], &format!("const_{label}"));
    let n = tensor.len();
    let b = cx.compute("", &shape, dtype, |ix| {
        let flat = flatten_index(ix, &shape);
        let mut e = literal(n.saturating_sub(1));
        for i in (0..n.saturating_sub(1)).rev() {
            e = Expr::select(Expr::All(vec![crate::tir::Cond::eq(flat.clone(), i)]), literal(i), e);
        }
        e
    });
    Ok(b)
}

fn copy_stage(t: &mut TensorFunction, b: BufferId) -> BufferId {
    let (shape, dtype) = (t.buffers[b].shape.clone(), t.buffers[b].dtype);
    let label = stage_count(t);
    let ty = crate::graph::TensorType::new(dtype, shape.clone());
    let mut cx = ComputeContext::new(t, vec![], vec![], vec![ty], &format!("copy_{label}"));
    cx.compute("", &shape, dtype, |ix| Expr::load(b, ix.to_vec()))
}
