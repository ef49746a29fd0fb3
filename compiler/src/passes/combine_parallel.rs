//! Combines sibling ops that read the same data and have constant weights into one wider op and a split: the common
//! part of `combine-parallel-conv` and `combine-parallel-matmul`.
//!
//! The gain: the data are read once, there are fewer launches, and a device is filled that each sibling leaves partly
//! idle. The cost: users of a part now read a slice. An op that moves data anyway (transpose, concatenation, another
//! slice) takes a slice for free.
//!
//! An anchor or a reduction takes a slice for free if vectors stay whole. For any other user the
//! slice is a copy, and the epilogue of a sibling becomes a kernel of its own. The estimate weighs the siblings against
//! the wider op and the copies.
//!
//! Limits: the wider weights and result take no more bindings than the largest of the siblings. Weights above 1 MiB are
//! joined when they are read.

use super::fold_constants::folded_constant;
use super::fusion_kind::describe_node;
use super::rewriter::{Rewriter, rewrite_functions};
use super::scaled_weights::constant_of;
use super::{PassBase, PassContext};
use crate::cost::{CostModel, NodeForm};
use crate::graph::{BlockId, Constant, Module, NodeId, Origins, TensorType, ValueId};
use crate::int::{Int, const_dims};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::concat::Concat;
use crate::ops::split::Split;
use crate::ops::transpose::Transpose;
use crate::ops::weights::{Channels, WeightChannels};
use crate::pattern::{Found, Pattern};
use crate::profile::DeviceProfile;
use crate::tir::FusionKind;
use indexmap::IndexMap;

/// A kind of op that can be combined.
pub(super) trait Family {
    /// The siblings: data `x`, constant weights `w`, perhaps a constant bias `b`.
    fn patterns(&self) -> Vec<Pattern>;
    /// Whether a node that matches takes part after all.
    fn fits(&self, r: &Rewriter<'_>, n: NodeId, bias: Option<ValueId>) -> bool;
    /// The weights of a match, whose results lie along `axis`.
    fn weights(&self, r: &Rewriter<'_>, found: &Found, axis: usize) -> Option<Weights> {
        let (_, weights) = constant_of(r, found.get("w"))?;
        Some(Weights { parts: vec![weights], axis, decode: vec![] })
    }
}

/// Constant weights, as they are or packed.
pub(super) struct Weights {
    /// The constants that are joined along `axis`.
    pub parts: Vec<Constant>,
    pub axis: usize,
    /// Makes the operand of the parts: the first op takes all of them, each other one the result before.
    pub decode: Vec<OpRef>,
}
impl Weights {
    /// The same ops on parts that differ along the axis alone.
    fn alike(&self, other: &Weights) -> bool {
        let same = |(a, b): (&Constant, &Constant)| {
            let others = |c: &Constant| {
                let sizes = c.shape.iter().enumerate().filter(|d| d.0 != self.axis);
                sizes.map(|d| *d.1).collect::<Vec<_>>()
            };
            a.dtype == b.dtype && others(a) == others(b)
        };
        let counts = (self.axis, self.parts.len()) == (other.axis, other.parts.len());
        counts && self.decode == other.decode && self.parts.iter().zip(&other.parts).all(same)
    }
    /// Bytes of the largest part.
    fn bytes(&self) -> u64 {
        self.parts.iter().map(|c| c.byte_len() as u64).max().unwrap_or(0)
    }
}

/// One sibling.
struct Branch {
    anchor: NodeId,
    channels: WeightChannels,
    weights: Weights,
    /// The axis of the operand that the result's channels lie along.
    weights_axis: usize,
    bias: Option<Constant>,
    /// Elementwise nodes behind it that move along.
    tail: Vec<NodeId>,
}
impl Branch {
    fn last(&self) -> NodeId {
        self.tail.last().copied().unwrap_or(self.anchor)
    }
}

/// An elementwise node of every branch, as one.
struct Step {
    op: OpRef,
    /// Its operands: the value of the step before, or a constant.
    operands: Vec<Option<Constant>>,
}

/// Combines what pays; returns whether anything changed.
pub(super) fn combine(
    pass: &dyn PassBase,
    family: &dyn Family,
    min_branches: usize,
    always: bool,
    module: &mut Module,
    cx: &mut PassContext,
) -> bool {
    let patterns = family.patterns();
    let model = cx.costs();
    rewrite_functions(module, |r| {
        let users = r.f.uses();
        for mut group in siblings(r, family, &patterns) {
            if group.len() < min_branches.max(2) {
                continue;
            }
            group.iter().for_each(|b| r.normalize(b.anchor));
            let steps = extend(r, &mut group, &users);
            let names: Vec<Name> = group.iter().map(|b| r.f.nodes[b.anchor].name).collect();
            let list = names.iter().map(|n| n.as_str()).collect::<Vec<_>>().join(", ");
            let balance = match limits(r, &group, &cx.profile) {
                Ok(()) => balance(r, &group, &users, &*model),
                Err(why) => {
                    cx.missed(pass, &names, format!("{list} stay apart: {why}"));
                    continue;
                }
            };
            if !always && !balance.pays() {
                cx.missed(pass, &names, format!("{list} stay apart: {}", balance.describe()));
                continue;
            }
            match rewrite(r, &group, steps) {
                Ok(()) => cx.applied(pass, &names, format!("{list} became one: {}", balance.describe())),
                Err(why) => cx.missed(pass, &names, format!("{list} stay apart: {why}")),
            }
        }
    })
}

/// Groups of nodes of one block that read the same data with equal ops and weights of the same inner shape.
fn siblings(r: &Rewriter<'_>, family: &dyn Family, patterns: &[Pattern]) -> Vec<Vec<Branch>> {
    let mut groups: IndexMap<(Option<BlockId>, ValueId), Vec<Vec<Branch>>> = IndexMap::new();
    for n in r.f.walk() {
        let [output] = r.f.nodes[n].outputs[..] else { continue };
        let Some(found) = patterns.iter().find_map(|p| p.find(r, output)) else { continue };
        let bias = found.get("b");
        let Some(operand) = r.f.nodes[n].inputs[1].filter(|_| family.fits(r, n, bias)) else { continue };
        let Some(channels) = r.f.nodes[n].op.weight_channels(r.f.ty(operand).rank()) else { continue };
        let Channels::Axis(weights_axis) = channels.results else { continue };
        let Some(weights) = family.weights(r, &found, weights_axis) else { continue };
        let bias = constant_of(r, bias).map(|b| b.1);
        let branch = Branch { anchor: n, channels, weights, weights_axis, bias, tail: vec![] };
        let alike = |other: &Branch| {
            r.f.nodes[other.anchor].op == r.f.nodes[n].op
                && other.bias.is_some() == branch.bias.is_some()
                && other.weights.alike(&branch.weights)
        };
        let key = (r.f.nodes[n].block, r.resolve(found.value("x")));
        let list = groups.entry(key).or_default();
        match list.iter_mut().find(|g| alike(&g[0])) {
            Some(group) => group.push(branch),
            None => list.push(vec![branch]),
        }
    }
    groups.into_values().flatten().collect()
}

type Users = [Vec<(NodeId, usize)>];

/// Lets equal elementwise nodes behind all branches move along, as far as they go.
fn extend(r: &mut Rewriter<'_>, group: &mut [Branch], users: &Users) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some((nodes, step)) = next_step(r, group, users) {
        group.iter_mut().zip(nodes).for_each(|(b, n)| b.tail.push(n));
        steps.push(step);
    }
    steps
}

fn next_step(r: &mut Rewriter<'_>, group: &[Branch], users: &Users) -> Option<(Vec<NodeId>, Step)> {
    let mut nodes = Vec::with_capacity(group.len());
    let mut place = None;
    for b in group {
        let v = r.f.nodes[b.last()].outputs[0];
        let [(n, i)] = users.get(crate::arena::Id::index(v))?[..] else { return None };
        let node = &r.f.nodes[n];
        let alone = r.num_uses(v) == 1 && node.block == r.f.nodes[b.anchor].block && node.outputs.len() == 1;
        if !alone || r.is_dead(n) || *place.get_or_insert(i) != i || r.f.ty(node.outputs[0]) != r.f.ty(v) {
            return None;
        }
        r.normalize(n);
        nodes.push(n);
    }
    let (first, place) = (*nodes.first()?, place?);
    let op = r.f.nodes[first].op.clone();
    let arity = r.f.nodes[first].inputs.len();
    let same = |n: &NodeId| r.f.nodes[*n].op == op && r.f.nodes[*n].inputs.len() == arity;
    if !nodes.iter().all(same) || !describe_node(r.module, &r.f, first)?.layout_agnostic {
        return None;
    }
    let mut operands = Vec::with_capacity(arity);
    for i in 0..arity {
        operands.push(if i == place { None } else { Some(join_operands(r, group, &nodes, i)?) });
    }
    Some((nodes, Step { op, operands }))
}

/// Operand `i` of the nodes, all constants: the same single number, or one element for each channel.
fn join_operands(r: &Rewriter<'_>, group: &[Branch], nodes: &[NodeId], i: usize) -> Option<Constant> {
    let constants = nodes.iter().map(|&n| constant_of(r, r.f.nodes[n].inputs[i]).map(|c| c.1));
    let constants: Vec<Constant> = constants.collect::<Option<_>>()?;
    let first = &constants[0];
    if first.shape.iter().product::<usize>() == 1 {
        let value = first.load().ok()?;
        let equal = constants.iter().all(|c| c.shape == first.shape && c.load().is_ok_and(|t| t == value));
        return equal.then(|| first.clone());
    }
    for (c, &n) in constants.iter().zip(nodes) {
        let ty = r.f.ty(r.f.nodes[n].outputs[0]);
        let axis = group[0].channels.result_axis(ty.rank());
        let own = (c.shape.len() + axis).checked_sub(ty.rank())?;
        let channels = ty.shape[axis].as_const()? as usize;
        if c.shape.len() != first.shape.len()
            || (0..c.shape.len()).any(|d| c.shape[d] != if d == own { channels } else { 1 })
        {
            return None;
        }
    }
    let axis = first.shape.iter().position(|&d| d != 1).unwrap_or(0);
    concat(&constants, axis).ok()
}

fn concat(parts: &[Constant], axis: usize) -> Result<Constant, String> {
    let mut shape = parts[0].shape.clone();
    *shape.get_mut(axis).ok_or("a constant has too few dimensions")? = parts.iter().map(|c| c.shape[axis]).sum();
    let op = Concat { axis: axis as i64 }.into();
    folded_constant(op, parts.iter().cloned().map(Some).collect(), parts[0].dtype, shape)
}

/// Refuses what would take more bindings than the largest sibling.
fn limits(r: &Rewriter<'_>, group: &[Branch], profile: &DeviceProfile) -> Result<(), String> {
    let results = group.iter().map(|b| bytes(r.f.ty(r.f.nodes[b.anchor].outputs[0])));
    let weights = group.iter().map(|b| b.weights.bytes());
    for (what, sizes) in [("weights", weights.collect::<Vec<_>>()), ("result", results.collect())] {
        let (total, largest) = (sizes.iter().sum(), sizes.iter().copied().max().unwrap_or(0));
        if profile.bindings_for(total) > profile.bindings_for(largest) {
            return Err(format!(
                "{what} of {total} bytes would take {} bindings, the largest of theirs takes {}",
                profile.bindings_for(total),
                profile.bindings_for(largest)
            ));
        }
    }
    let n = group[0].anchor;
    let ty = r.f.ty(r.f.nodes[n].outputs[0]);
    match ty.shape[group[0].channels.result_axis(ty.rank())].as_const() {
        Some(_) => Ok(()),
        None => Err("the number of channels is open".into()),
    }
}

/// The cost in nanoseconds of the siblings, and of the wider op with the copied slices.
struct Balance {
    apart: u64,
    together: u64,
    /// Nodes that read a copied slice.
    readers: Vec<Name>,
}
impl Balance {
    fn pays(&self) -> bool {
        self.together < self.apart
    }
    fn describe(&self) -> String {
        let why = match self.readers.iter().map(|n| n.as_str()).collect::<Vec<_>>()[..] {
            [] => String::new(),
            ref list => format!(", since {} read slices", list.join(", ")),
        };
        format!("it takes {:.1} us, apart {:.1} us{why}", self.together as f64 / 1e3, self.apart as f64 / 1e3)
    }
}

fn bytes(ty: &TensorType) -> u64 {
    // An open dimension counts as 16.
    let count = ty.numel().eval(&|_| Some(16)).unwrap_or(1).max(0) as u64;
    count.saturating_mul(ty.dtype.size() as u64).min(1 << 40)
}

fn balance(r: &Rewriter<'_>, group: &[Branch], users: &Users, model: &dyn CostModel) -> Balance {
    let mut b = Balance { apart: 0, together: 0, readers: vec![] };
    // Whatever the layout, slices of channels begin at whole vectors.
    let channels = |branch: &Branch| {
        let ty = r.f.ty(r.f.nodes[branch.anchor].outputs[0]);
        let axis = branch.channels.result_axis(ty.rank());
        const_dims(&ty.shape[axis..=axis]).map(|d| d[0])
    };
    let aligned = group.iter().all(|branch| channels(branch).is_some_and(|c| c % 4 == 0));
    let mut forms = Vec::with_capacity(group.len());
    for branch in group {
        let mut form = NodeForm::of(&r.f, branch.anchor);
        if let Some(Some(weights)) = form.inputs.get_mut(1) {
            weights.1 = true;
        }
        b.apart = b.apart.saturating_add(model.node(&form));
        forms.push(form);
        let v = r.f.nodes[branch.last()].outputs[0];
        let copies: Vec<Name> = slice_readers(r, v, users, aligned);
        let escapes = r.num_uses(v) as usize > users.get(crate::arena::Id::index(v)).map_or(0, Vec::len);
        if escapes || !copies.is_empty() {
            b.together = b.together.saturating_add(model.node(&copy_of(r.f.ty(v))));
            b.readers.extend(copies);
        }
    }
    b.together = b.together.saturating_add(wider(&group[0], &forms).map_or(u64::MAX, |f| model.node(&f)));
    b
}

/// The op that takes the place of siblings: their weights, biases and results one behind the other.
fn wider(first: &Branch, forms: &[NodeForm]) -> Option<NodeForm> {
    let mut wide = forms.first()?.clone();
    let result = first.channels.result_axis(wide.outputs.first()?.rank());
    for f in &forms[1..] {
        let parts = wide.inputs.iter_mut().zip(&f.inputs).skip(1).enumerate();
        for (i, (all, own)) in parts {
            if let (Some(all), Some(own)) = (all, own) {
                let axis = if i == 0 { first.weights_axis } else { 0 };
                widen(&mut all.0, &own.0, axis)?;
            }
        }
        widen(wide.outputs.first_mut()?, f.outputs.first()?, result)?;
    }
    Some(wide)
}

fn widen(all: &mut TensorType, own: &TensorType, axis: usize) -> Option<()> {
    let sum = all.shape.get(axis)?.as_const()? + own.shape.get(axis)?.as_const()?;
    all.shape[axis] = Int::new(sum);
    Some(())
}

/// A copy of data of this type.
fn copy_of(ty: &TensorType) -> NodeForm {
    let perm = (0..ty.rank()).collect();
    NodeForm { op: Transpose { perm }.into(), inputs: vec![Some((ty.clone(), false))], outputs: vec![ty.clone()] }
}

/// Users of `v` that would need a copy of the slice: all except users that move data anyway, and users whose kernels
/// read aligned slices.
fn slice_readers(r: &Rewriter<'_>, v: ValueId, users: &Users, aligned: bool) -> Vec<Name> {
    let mut out = vec![];
    for &(n, _) in users.get(crate::arena::Id::index(v)).into_iter().flatten() {
        let op = &r.f.nodes[n].op;
        if op.keeps_elements() && !op.is_view() {
            continue;
        }
        let kind = describe_node(r.module, &r.f, n).map_or(FusionKind::Opaque, |i| i.kind);
        if aligned && matches!(kind, FusionKind::Reduction | FusionKind::OutElementwiseFusable) {
            continue;
        }
        let inner = r.f.nodes[n].outputs[0];
        let moved =
            op.is_view() && r.num_uses(inner) as usize == users.get(crate::arena::Id::index(inner)).map_or(0, Vec::len);
        if !moved || !slice_readers(r, inner, users, aligned).is_empty() {
            out.push(r.f.nodes[n].name);
        }
    }
    out
}

/// The wider op, the steps behind it and the split, where the first sibling stands.
fn rewrite(r: &mut Rewriter<'_>, group: &[Branch], steps: Vec<Step>) -> Result<(), String> {
    let at = group[0].anchor;
    let node = r.f.nodes[at].clone();
    let join = |c: &[Constant], axis: usize| concat(c, axis);
    let Weights { parts, axis: along, decode } = &group[0].weights;
    let weights = (0..parts.len()).map(|i| {
        let own: Vec<Constant> = group.iter().map(|b| b.weights.parts[i].clone()).collect();
        join(&own, *along)
    });
    let weights: Vec<Constant> = weights.collect::<Result<_, _>>()?;
    let bias: Option<Vec<Constant>> = group.iter().map(|b| b.bias.clone()).collect();
    let bias = bias.map(|b| join(&b, 0)).transpose()?;
    let all = || group.iter().flat_map(|b| [b.anchor].into_iter().chain(b.tail.iter().copied()));
    let origins = all().fold(Origins::none(), |o, n| o.union(&r.f.nodes[n].origins));
    let results: Vec<ValueId> = group.iter().map(|b| r.f.nodes[b.last()].outputs[0]).collect();
    let axis = group[0].channels.result_axis(r.f.ty(results[0]).rank());
    let sizes: Option<Vec<Int>> =
        results.iter().map(|&v| const_dims(&r.f.ty(v).shape[axis..=axis]).map(|d| Int::from(d[0]))).collect();
    let sizes = sizes.ok_or("the number of channels is open")?;

    let name = |label: &str| Name::new(&format!("{}.{label}", node.name));
    let mut inputs = vec![node.inputs[0]];
    let constants = weights.into_iter().map(|c| r.constant_before(at, name("weights").as_str(), c, origins.clone()));
    let mut operands: Vec<ValueId> = constants.collect();
    for op in decode {
        let own = name(&format!("weights_{}", op.name()));
        operands = r.add_before(at, op.clone(), operands.into_iter().map(Some).collect(), own, origins.clone())?;
    }
    inputs.push(operands.first().copied());
    if let Some(bias) = bias {
        inputs.push(Some(r.constant_before(at, name("bias").as_str(), bias, origins.clone())));
    }
    let mut value = r.add_before(at, node.op.clone(), inputs, name("combined"), origins.clone())?[0];
    for (i, step) in steps.into_iter().enumerate() {
        let mut inputs = Vec::with_capacity(step.operands.len());
        for o in step.operands {
            inputs.push(Some(match o {
                None => value,
                Some(c) => r.constant_before(at, name(&format!("constant{i}")).as_str(), c, origins.clone()),
            }));
        }
        let own = name(&format!("combined_{}", step.op.name()));
        value = r.add_before(at, step.op, inputs, own, origins.clone())?[0];
    }
    let split = Split { axis: axis as i64, sizes };
    let parts = r.add_before(at, split, vec![Some(value)], name("split"), origins)?;
    for (&old, &new) in results.iter().zip(&parts) {
        if r.f.ty(old) != r.f.ty(new) {
            return Err(format!("a part is {:?} instead of {:?}", r.f.ty(new), r.f.ty(old)));
        }
    }
    let gone: Vec<NodeId> = all().collect();
    results.into_iter().zip(parts).for_each(|(old, new)| r.replace(old, new));
    gone.into_iter().rev().for_each(|n| r.erase(n));
    Ok(())
}

#[cfg(test)]
mod tests;
