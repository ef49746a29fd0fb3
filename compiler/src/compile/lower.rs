//! Lowering a primitive function to one tensor function.

use crate::dtype::DType;
use crate::graph::{Function, Module, NodeId, ValueId};
use crate::int::{Bounds, Int, flatten_index, simplify};
use crate::name::Name;
use crate::ops::control::Const;
use crate::profile::DeviceProfile;
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{Access, BinaryOp, Buffer, BufferId, Combiner, Encoding, Expr, Param, Scalar, Scope, TensorFunction};
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
        let label = t.body_stage_count();
        if let Some(c) = node.op.downcast::<Const>() {
            let tensor = module
                .constants
                .get(&c.name)
                .ok_or_else(|| fail("its constant is missing".into()))?
                .load()
                .map_err(|e| fail(e.message))?;
            let b = lower_small_constant(&mut t, &tensor, label).map_err(fail)?;
            stages.resize(t.body_stage_count(), Some(n));
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
        stages.resize(t.body_stage_count(), Some(n));
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
        stages.resize(t.body_stage_count(), f.def_node(v));
        written.push(b);
        t.params.push(Param { buffer: b, access: Access::Write });
    }
    let mut function = t.canonical();
    function.number_stages();
    Ok(LoweredGroup { function, stages })
}

impl TensorFunction {
    fn body_stage_count(&self) -> usize {
        self.body.blocks().len()
    }
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
    let label = t.body_stage_count();
    let ty = crate::graph::TensorType::new(dtype, shape.clone());
    let mut cx = ComputeContext::new(t, vec![], vec![], vec![ty], &format!("copy_{label}"));
    cx.compute("", &shape, dtype, |ix| Expr::load(b, ix.to_vec()))
}

/// When the function only gives its one operand another shape: true. Everything else moves or computes data.
pub(super) fn is_view(t: &TensorFunction) -> bool {
    let (inputs, outputs): (Vec<_>, Vec<_>) = (t.inputs().collect(), t.outputs().collect());
    let Some(stages) = t.stages() else { return false };
    if inputs.len() != 1 || outputs.len() != 1 || t.buffers[inputs[0]].dtype != t.buffers[outputs[0]].dtype {
        return false;
    }
    let bounds: Bounds = t.bounds();
    let mut source = inputs[0];
    for s in &stages {
        let Expr::Load(from, ix) = &s.block.value else { return false };
        if *from != source || s.block.reduce.is_some() || !s.block.guards.is_empty() {
            return false;
        }
        let a = simplify(&flatten_index(ix, &t.buffers[*from].shape), &bounds);
        let b = simplify(&flatten_index(&s.block.indices, &t.buffers[s.block.buffer].shape), &bounds);
        let difference = t.buffers[*from].numel() - t.buffers[s.block.buffer].numel();
        if a != b || !simplify(&difference, &bounds).is(0) {
            return false;
        }
        source = s.block.buffer;
    }
    source == outputs[0]
}

/// Chooses the storage form of every global buffer.
///
/// # Errors
/// When a buffer's dtype has no storage form on the device that is proved right: the group then runs on the host.
pub fn assign_encodings(t: &mut TensorFunction, profile: &DeviceProfile) -> Result<(), String> {
    let movement_only = integer_movement_only(t);
    let outputs: Vec<BufferId> = t.outputs().collect();
    for b in t.buffers.ids().collect::<Vec<_>>() {
        let buffer = &t.buffers[b];
        let encoding = match buffer.dtype {
            DType::F32 | DType::I32 | DType::U32 | DType::Bool => Encoding::Native,
            DType::F16 if profile.f16 => Encoding::Native,
            DType::F16 => Encoding::HalfPair,
            DType::U8 | DType::I8 => Encoding::ByteQuad,
            DType::BF16 => Encoding::HalfPair,
            DType::I64 if movement_only => Encoding::Narrow,
            DType::I64 if t.inputs().any(|i| i == b) && !outputs.contains(&b) => Encoding::Narrow,
            d => return Err(format!("{d} `{}` has no storage form on the device", buffer.name)),
        };
        t.buffers[b].encoding = encoding;
    }
    if !movement_only && t.body.blocks().iter().any(|s| matches!(t.buffers[s.buffer].dtype, DType::I64)) {
        return Err("64-bit integer arithmetic is not proved to fit 32 bits".into());
    }
    Ok(())
}

/// True when every i64 value is moved, chosen, made from an index within 32 bits or from a narrower integer, so that it fits
/// 32 bits when its sources do.
fn integer_movement_only(t: &TensorFunction) -> bool {
    let bounds = t.bounds();
    let fits = |i: &Int| {
        crate::int::range(i, &bounds)
            .is_some_and(|(low, high)| i32::try_from(low).is_ok() && i32::try_from(high).is_ok())
    };
    let narrow = |e: &Expr| match e {
        _ if e.dtype(t) != DType::I64 => true,
        Expr::Const(Scalar::Int(v), _) => i32::try_from(*v).is_ok(),
        Expr::Index(i, _) => fits(i),
        Expr::Load(..) | Expr::Select(..) => true,
        Expr::Cast(_, from) => {
            matches!(from.dtype(t), DType::Bool | DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::I32)
        }
        // What comes out is an operand, is below one, or has no bits that neither has.
        Expr::Binary(op, ..) => {
            use BinaryOp::{BitAnd, BitOr, BitXor, FloorMod, Max, Min, TruncMod};
            matches!(op, Min | Max | FloorMod | TruncMod | BitAnd | BitOr | BitXor)
        }
        _ => false,
    };
    t.body.blocks().iter().all(|b| {
        let combines = b.reduce.as_ref().is_none_or(|r| matches!(r.combiner, Combiner::Max | Combiner::Min));
        let mut all = combines || t.buffers[b.buffer].dtype != DType::I64;
        b.value.visit(&mut |e| all &= narrow(e));
        all
    })
}
