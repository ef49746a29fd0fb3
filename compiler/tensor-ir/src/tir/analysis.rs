//! Properties of an op's tensor expression: its fusion kind, and the operands that it reads.
//!
//! The kinds are TVM's. They follow from the index maps of an unscheduled tensor function's stages:
//! - every load at exactly the output index: elementwise;
//! - every load at an ordered subset of the output index: broadcast;
//! - any other loads without a reduction: injective (each output from a fixed number of elements);
//! - one reduction over whole axes, and then only elementwise: reduction;
//! - a contraction, a window, or several reductions: out-elementwise-fusable.
//!
//! Index expressions are not simplified first: a reshape that happens to be the identity is still injective.

pub mod compared;
pub mod operands;
pub mod shared;

use super::{BufferId, Expr, Stage, TensorFunction};
use crate::int::{Int, IntNode};
use crate::name::Name;
use rustc_hash::{FxHashMap, FxHashSet};

/// How an op may fuse, ordered as in TVM.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum FusionKind {
    /// Each output element from the elements at the same index.
    Elementwise = 0,
    /// Output axes map to operand axes in order.
    Broadcast = 1,
    /// Each output element from a fixed number of elements.
    Injective = 2,
    /// One reduction over whole axes.
    Reduction = 3,
    /// Convolution, matmul, pooling, softmax, norms: elementwise ops may follow in the same kernel.
    OutElementwiseFusable = 4,
    /// The operand list of a concat.
    Tuple = 7,
    /// Never fused.
    Opaque = 8,
}
impl FusionKind {
    /// Name for messages.
    pub fn name(self) -> &'static str {
        match self {
            FusionKind::Elementwise => "elementwise",
            FusionKind::Broadcast => "broadcast",
            FusionKind::Injective => "injective",
            FusionKind::Reduction => "reduction",
            FusionKind::OutElementwiseFusable => "out-elementwise-fusable",
            FusionKind::Tuple => "tuple",
            FusionKind::Opaque => "opaque",
        }
    }
}
impl std::fmt::Display for FusionKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The kind of the computation in `f`, which must not be scheduled yet; opaque when it is.
pub fn derive_kind(f: &TensorFunction) -> FusionKind {
    let Some(stages) = f.stages() else { return FusionKind::Opaque };
    let mut kind = FusionKind::Elementwise;
    let mut reduced: FxHashSet<BufferId> = FxHashSet::default();
    let mut reductions = 0;
    for stage in &stages {
        let own = if stage.block.reduce.is_some() {
            reductions += 1;
            reduce_kind(f, stage)
        } else {
            compute_kind(f, stage, &reduced)
        };
        if own >= FusionKind::Reduction || stage.block.value.loads().iter().any(|l| reduced.contains(&l.0)) {
            reduced.insert(stage.block.buffer);
        }
        kind = kind.max(own);
    }
    if reductions > 1 { FusionKind::OutElementwiseFusable } else { kind }
}

/// A stage without a reduction. Reading a reduced buffer anywhere but at the output index spreads the reduction again.
fn compute_kind(f: &TensorFunction, stage: &Stage<'_>, reduced: &FxHashSet<BufferId>) -> FusionKind {
    let extents: FxHashMap<Name, &Int> = stage.loops.iter().map(|l| (l.0, &l.1)).collect();
    let mut kind = FusionKind::Elementwise;
    for (buffer, indices) in stage.block.value.loads() {
        let own = map_kind(f, buffer, indices, &stage.block.indices, &extents);
        let spreads = own > FusionKind::Elementwise && reduced.contains(&buffer);
        kind = kind.max(if spreads { FusionKind::OutElementwiseFusable } else { own });
    }
    kind
}

/// The kind of one load at `indices` for an output at `out`.
fn map_kind(
    f: &TensorFunction,
    buffer: BufferId,
    indices: &[Int],
    out: &[Int],
    extents: &FxHashMap<Name, &Int>,
) -> FusionKind {
    let unit = |i: &Int| i.is(0) || i.as_var().and_then(|v| extents.get(&v)).is_some_and(|e| e.is(1));
    let same = |a: &Int, b: &Int| a == b || (unit(a) && unit(b));
    if indices.len() == out.len() && indices.iter().zip(out).all(|(a, b)| same(a, b)) {
        return FusionKind::Elementwise;
    }
    let mut next = 0;
    let ordered = indices.len() <= out.len()
        && indices.iter().zip(&f.buffers[buffer].shape).all(|(i, d)| {
            if d.is(1) && unit(i) {
                return true;
            }
            match out[next..].iter().position(|o| o == i) {
                Some(p) if i.as_var().is_some() => {
                    next += p + 1;
                    true
                }
                _ => false,
            }
        });
    if ordered { FusionKind::Broadcast } else { FusionKind::Injective }
}

/// A stage with a reduction: over whole axes of one operand (or of operands read at one index), or something more.
fn reduce_kind(f: &TensorFunction, stage: &Stage<'_>) -> FusionKind {
    let reduction: Vec<(Name, Int)> = stage.reduction();
    let over = |v: Name| reduction.iter().find(|r| r.0 == v).map(|r| &r.1);
    let mixes = |i: &Int| {
        let vars = i.vars();
        i.as_var().is_none() && vars.iter().any(|v| over(*v).is_some())
    };
    let mut whole = true;
    let mut first: Option<&[Int]> = None;
    stage.block.value.visit(&mut |e| match e {
        Expr::Load(b, indices) => {
            let reads = indices.iter().any(|i| i.vars().iter().any(|v| over(*v).is_some()));
            whole &= !indices.iter().any(mixes);
            whole &=
                indices.iter().zip(&f.buffers[*b].shape).all(|(i, d)| i.as_var().and_then(over).is_none_or(|e| e == d));
            match first {
                _ if !reads => {}
                None => first = Some(indices),
                Some(other) => whole &= other == indices.as_slice(),
            }
        }
        Expr::All(conds) => {
            whole &=
                !conds.iter().any(|c| [&c.lhs, &c.rhs].iter().any(|i| i.vars().iter().any(|v| over(*v).is_some())));
        }
        _ => {}
    });
    if whole { FusionKind::Reduction } else { FusionKind::OutElementwiseFusable }
}

/// True when every stage stores at its loop index and reads everything at that index, broadcast from the right, and no
/// value depends on the index itself: the function then means the same under any order of the axes.
pub fn is_layout_agnostic(f: &TensorFunction) -> bool {
    let Some(stages) = f.stages() else { return false };
    stages.iter().all(|s| {
        let out = &s.block.indices;
        let identity = s.loops.len() == out.len() && s.loops.iter().zip(out).all(|(l, o)| o.as_var() == Some(l.0));
        let mut agnostic = identity && s.block.reduce.is_none() && s.block.guards.is_empty();
        s.block.value.visit(&mut |e| match e {
            Expr::Load(b, indices) => {
                let skip = out.len().checked_sub(indices.len());
                agnostic &= skip.is_some_and(|skip| {
                    let dims = &f.buffers[*b].shape;
                    // An open dimension that may be 1 is read at a clamped index.
                    let fits = |i: &Int, o: &Int, d: &Int| i == o || (i.is(0) && d.is(1)) || *i == o.min(d.clone() - 1);
                    indices.iter().zip(&out[skip..]).zip(dims).all(|((i, o), d)| fits(i, o, d))
                });
            }
            Expr::Index(..) | Expr::All(_) => agnostic = false,
            _ => {}
        });
        agnostic
    })
}

/// Buffers that some stage reads, through values, indices or conditions.
pub fn loaded_buffers(f: &TensorFunction) -> FxHashSet<BufferId> {
    let mut out = FxHashSet::default();
    fn in_int(i: &Int, out: &mut FxHashSet<BufferId>) {
        i.visit(&mut |i| {
            if let IntNode::Load(b, _) = i.node() {
                out.insert(*b);
            }
        });
    }
    for block in f.body.blocks() {
        block.indices.iter().for_each(|i| in_int(i, &mut out));
        for c in &block.guards {
            in_int(&c.lhs, &mut out);
            in_int(&c.rhs, &mut out);
        }
        out.extend(block.value.loads().iter().map(|l| l.0));
        block.value.visit_ints(&mut |i| in_int(i, &mut out));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::F32;
    use crate::te::{ComputeContext, broadcast_index};
    use crate::tensor_type::TensorType;
    use crate::tir::{Buffer, Combiner, Cond, Encoding, Scope};

    /// Kind of an expression over operands of the given shapes.
    fn kind(shapes: &[&[i64]], out: &[i64], build: impl FnOnce(&mut ComputeContext<'_>, &[Int])) -> FusionKind {
        let mut f = TensorFunction::new("f");
        let dims = |s: &[i64]| s.iter().map(|&d| Int::new(d)).collect::<Vec<_>>();
        let inputs = shapes
            .iter()
            .enumerate()
            .map(|(i, s)| {
                let name = Name::new(&format!("in{i}"));
                let (scope, encoding) = (Scope::Global, Encoding::Native);
                Some(f.buffers.push(Buffer { name, dtype: F32, shape: dims(s), scope, encoding }))
            })
            .collect::<Vec<_>>();
        let ty = TensorType::new(F32, dims(out));
        let mut cx = ComputeContext::new(&mut f, inputs, vec![None; shapes.len()], vec![ty], "t");
        build(&mut cx, &dims(out));
        derive_kind(&f)
    }
    fn load(cx: &ComputeContext<'_>, i: usize) -> impl Fn(Vec<Int>) -> Expr + use<> {
        let b = cx.require(i).unwrap();
        move |ix| Expr::load(b, ix)
    }

    #[test]
    fn maps_without_reduction() {
        let binary = |a: &[i64], b: &[i64], out: &[i64]| {
            kind(&[a, b], out, |cx, s| {
                let (x, y) = (load(cx, 0), load(cx, 1));
                let (sx, sy) = (cx.shape(cx.require(0).unwrap()), cx.shape(cx.require(1).unwrap()));
                cx.compute("", s, F32, |i| x(broadcast_index(i, &sx)) + y(broadcast_index(i, &sy)));
            })
        };
        assert_eq!(binary(&[2, 3], &[2, 3], &[2, 3]), FusionKind::Elementwise);
        assert_eq!(binary(&[1, 3], &[1, 3], &[1, 3]), FusionKind::Elementwise);
        assert_eq!(binary(&[2, 3], &[3], &[2, 3]), FusionKind::Broadcast);
        assert_eq!(binary(&[2, 3], &[2, 1], &[2, 3]), FusionKind::Broadcast);
        let transpose = kind(&[&[2, 3]], &[3, 2], |cx, s| {
            let x = load(cx, 0);
            cx.compute("", s, F32, |i| x(vec![i[1].clone(), i[0].clone()]));
        });
        assert_eq!(transpose, FusionKind::Injective);
        let squeeze = kind(&[&[2, 3, 1]], &[2, 3], |cx, s| {
            let x = load(cx, 0);
            cx.compute("", s, F32, |i| x(vec![i[0].clone(), i[1].clone(), Int::new(0)]));
        });
        assert_eq!(squeeze, FusionKind::Injective);
        let unsqueeze = kind(&[&[2, 3]], &[2, 1, 3], |cx, s| {
            let x = load(cx, 0);
            cx.compute("", s, F32, |i| x(vec![i[0].clone(), i[2].clone()]));
        });
        assert_eq!(unsqueeze, FusionKind::Broadcast);
    }

    #[test]
    fn reductions() {
        let sum = |spread: bool| {
            kind(&[&[2, 3]], if spread { &[2, 3] } else { &[2] }, |cx, s| {
                let x = load(cx, 0);
                let r = cx.reduce("r", &[Int::new(2)], F32, &[Int::new(3)], Combiner::Sum, |i, r| {
                    x(vec![i[0].clone(), r[0].clone()])
                });
                cx.compute("", s, F32, |i| Expr::load(r, vec![i[0].clone()]) / Expr::constant(3.0, F32));
            })
        };
        assert_eq!(sum(false), FusionKind::Reduction);
        assert_eq!(sum(true), FusionKind::OutElementwiseFusable);
        let matmul = kind(&[&[2, 3], &[3, 4]], &[2, 4], |cx, s| {
            let (x, y) = (load(cx, 0), load(cx, 1));
            cx.reduce("", s, F32, &[Int::new(3)], Combiner::Sum, |i, r| {
                x(vec![i[0].clone(), r[0].clone()]) * y(vec![r[0].clone(), i[1].clone()])
            });
        });
        assert_eq!(matmul, FusionKind::OutElementwiseFusable);
        let pool = kind(&[&[8]], &[4], |cx, s| {
            let x = load(cx, 0);
            cx.reduce("", s, F32, &[Int::new(2)], Combiner::Max, |i, r| x(vec![i[0].clone() * 2 + r[0].clone()]));
        });
        assert_eq!(pool, FusionKind::OutElementwiseFusable);
        let scan = kind(&[&[8]], &[8], |cx, s| {
            let x = load(cx, 0);
            cx.reduce("", s, F32, &[Int::new(8)], Combiner::Sum, |i, r| {
                let conds = vec![Cond::lt(r[0].clone(), i[0].clone() + 1)];
                Expr::guarded(conds, x(vec![r[0].clone()]), Expr::constant(0.0, F32))
            });
        });
        assert_eq!(scan, FusionKind::OutElementwiseFusable);
    }
}
