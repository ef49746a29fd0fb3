//! split-to-slices: the users of a split, or of a slice, read their part of its operand directly.
//!
//! ```text
//! %0, %1 = split %x {axis=2, sizes=[8, 8]}             %2 = slice %x {starts=[0], ends=[8], axes=[2]}
//! %2 = transpose %0                              =>    %3 = transpose %2
//! %3 = relu %1                                         %4 = slice %x {starts=[8], ends=[16], axes=[2]}
//!                                                      %5 = relu %4
//! ```
//!
//! A split is a kernel that copies all data; a slice is a change of index that joins its user's kernel. Each user of a
//! result gets its own slice.
//!
//! An anchor or a reduction reads the elements of its slice directly (the fusion rule `prologue`), if vectors stay
//! aligned. A slice that several nodes use is copied for each of them where one is an anchor or a reduction: kernels of
//! others join each other.
//!
//! A split is not changed if a result leaves the function, is used inside a region, or has a user that cannot take a
//! slice into its kernel: the slice would become a kernel of its own. Sizes must be constants.

use super::fusion_kind::describe_node;
use super::rewriter::Rewriter;
use super::{FunctionPass, GraphFunctions, PassContext, PassError};
use crate::arena::Id;
use crate::attr_struct;
use crate::graph::{NodeId, TensorType};
use crate::int::{Int, const_dims};
use crate::ops::permute::normalize_axis;
use crate::ops::slice::Slice;
use crate::ops::split::Split;
use crate::tir::FusionKind;

attr_struct! {
    /// Replaces splits by slices where their users can take them.
    pub struct SplitToSlices("split-to-slices") {}
}

impl FunctionPass for SplitToSlices {
    type Of = GraphFunctions;
    fn opt_level(&self) -> u8 {
        1
    }
    fn run_on(&self, r: &mut Rewriter<'_>, cx: &mut PassContext) -> Result<(), PassError> {
        let uses = r.f.uses();
        for n in r.f.walk() {
            r.normalize(n);
            let Some(parts) = Parts::of(r, n) else { continue };
            let name = r.f.nodes[n].name;
            match users_that_take(r, n, parts.aligned, &uses) {
                Ok(users) if parts.shared && !worth_copies(r, &users) => {}
                Ok(users) => {
                    let count = users.len();
                    if self.replace(r, n, &parts.slices, users).is_some() {
                        cx.applied(self, &[name], format!("{name} became {count} slices that their users read"));
                    }
                }
                Err(_) if parts.shared => {}
                Err(why) => cx.missed(self, &[name], format!("{name} stays a split: {why}")),
            }
        }
        Ok(())
    }
}

/// The parts of its operand that a split or a slice takes.
struct Parts {
    /// A slice for each result; none where sizes are not constant.
    slices: Vec<Slice>,
    /// Every part begins at a whole vector of the operand's memory.
    aligned: bool,
    /// It is one slice.
    shared: bool,
}

impl Parts {
    fn of(r: &Rewriter<'_>, n: NodeId) -> Option<Parts> {
        let node = &r.f.nodes[n];
        let x = r.f.ty(node.inputs.first().copied().flatten()?);
        if let Some(slice) = node.op.downcast::<Slice>().filter(|_| node.inputs.len() == 1) {
            let starts = const_dims(&slice.starts)?;
            let begins = |(axis, start): (&i64, usize)| {
                normalize_axis(*axis, x.rank()).is_ok_and(|axis| parts_are_aligned(x, axis, &[start]))
            };
            let own = slice.axes.len() == starts.len() && slice.steps.iter().all(|s| *s == 1);
            let aligned = own && slice.axes.iter().zip(starts).all(begins);
            return Some(Parts { slices: vec![slice.clone()], aligned, shared: true });
        }
        let split = node.op.downcast::<Split>()?;
        let axis = normalize_axis(split.axis, x.rank()).ok();
        let (mut slices, mut aligned, mut start) = (Vec::new(), false, 0);
        if let Some((axis, sizes)) = axis.zip(const_dims(&split.sizes)) {
            aligned = parts_are_aligned(x, axis, &sizes);
            for size in sizes {
                let bound = |at: usize| vec![Int::from(at)];
                let (starts, ends) = (bound(start), bound(start + size));
                slices.push(Slice { starts, ends, axes: vec![axis as i64], ..Slice::default() });
                start += size;
            }
        }
        Some(Parts { slices, aligned, shared: false })
    }
}

/// Several nodes use a slice, and one of them has a kernel that others do not join.
fn worth_copies(r: &Rewriter<'_>, users: &[Use]) -> bool {
    let heavy = |user: NodeId| {
        let kind = describe_node(r.module, &r.f, user).map(|i| i.kind);
        matches!(kind, Some(FusionKind::Reduction | FusionKind::OutElementwiseFusable))
    };
    users.len() > 1 && users.iter().any(|u| heavy(u.1))
}

/// Elements of a vector.
const VECTOR: usize = 4;

/// True when every part of a split of `x` begins at a whole vector of its memory.
pub(super) fn parts_are_aligned(x: &TensorType, axis: usize, sizes: &[usize]) -> bool {
    let inner = x.shape.get(axis + 1..).and_then(const_dims);
    inner.is_some_and(|d| sizes.iter().all(|s| s * d.iter().product::<usize>() % VECTOR == 0))
}

/// A use of a result: number of the result, user, operand.
type Use = (usize, NodeId, usize);

/// Every use of every result, when all of them take a slice.
fn users_that_take(
    r: &Rewriter<'_>,
    n: NodeId,
    aligned: bool,
    all: &[Vec<(NodeId, usize)>],
) -> Result<Vec<Use>, String> {
    let f = &r.f;
    let node = &f.nodes[n];
    let mut out = Vec::new();
    for (i, &v) in node.outputs.iter().enumerate() {
        let uses: Vec<Use> = all[v.index()].iter().map(|&(user, at)| (i, user, at)).collect();
        if uses.len() != r.num_uses(v) as usize {
            return Err(format!("result {i} is a result of a block"));
        }
        for &(_, user, _) in &uses {
            let name = f.nodes[user].name;
            if f.nodes[user].block != node.block {
                return Err(format!("{name} is in another block"));
            }
            let kind = describe_node(r.module, f, user).map_or(FusionKind::Opaque, |i| i.kind);
            match kind {
                FusionKind::Reduction | FusionKind::OutElementwiseFusable if !aligned => {
                    return Err(format!("{name} is {kind}, and slices would not begin at whole vectors of {VECTOR}"));
                }
                FusionKind::Tuple | FusionKind::Opaque => {
                    return Err(format!("{name} is {kind}, which takes no slice into its kernel"));
                }
                _ => {}
            }
        }
        out.extend(uses);
    }
    if out.is_empty() { Err("nothing uses it".into()) } else { Ok(out) }
}

impl SplitToSlices {
    fn replace(&self, r: &mut Rewriter<'_>, n: NodeId, slices: &[Slice], users: Vec<Use>) -> Option<()> {
        let node = r.f.nodes[n].clone();
        let x = node.inputs.first().copied().flatten()?;
        for (i, user, operand) in users {
            let op = slices.get(i)?.clone();
            let made = r.add_before(user, op, vec![Some(x)], node.name, node.origins.clone()).ok()?;
            r.normalize(user);
            let mut inputs = r.f.nodes[user].inputs.clone();
            inputs[operand] = made.first().copied();
            let op = r.f.nodes[user].op.clone();
            r.update(user, op, inputs);
        }
        r.erase(n);
        Some(())
    }
}
