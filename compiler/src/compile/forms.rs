//! The device form of a lowered group: a view, or buffers with storage forms.

use crate::dtype::DType;
use crate::int::{Bounds, Int, flatten_index, simplify};
use crate::profile::DeviceProfile;
use crate::tir::{BinaryOp, BufferId, Combiner, Encoding, Expr, Scalar, TensorFunction};

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
        let fits = movement_only || t.inputs().any(|i| i == b) && !outputs.contains(&b);
        let encoding = match value_encoding(buffer.dtype, profile) {
            Some(Encoding::Narrow) if !fits => {
                return Err("64-bit integer arithmetic is not proved to fit 32 bits".into());
            }
            Some(encoding) => encoding,
            None => return Err(format!("{} `{}` has no storage form on the device", buffer.dtype, buffer.name)),
        };
        t.buffers[b].encoding = encoding;
    }
    Ok(())
}

/// True when every i64 value is moved, chosen, made from an index within 32 bits or from a narrower integer, so that it
/// fits 32 bits when its sources do.
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

/// Storage form of a value that crosses group boundaries, from its dtype alone, so that all groups agree. None for
/// values that only the host holds: shaders have no words of 64 bits, the processor has.
pub(super) fn value_encoding(dtype: DType, profile: &DeviceProfile) -> Option<Encoding> {
    match dtype {
        DType::F32 | DType::I32 | DType::U32 | DType::Bool => Some(Encoding::Native),
        DType::F16 if profile.f16 => Some(Encoding::Native),
        DType::F16 => Some(Encoding::HalfPair),
        DType::I64 if profile.model().shaders => Some(Encoding::Narrow),
        DType::U8 | DType::I8 => Some(Encoding::ByteQuad),
        DType::BF16 => Some(Encoding::HalfPair),
        DType::U16 | DType::I16 | DType::I64 | DType::U64 => (!profile.model().shaders).then_some(Encoding::Native),
        // Its products are faster on the host than in lanes.
        DType::F64 => None,
    }
}
