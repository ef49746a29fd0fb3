//! concat-parts: values that a concat joins and others read are stored into their part of its result.
//!
//! ```text
//! %0 = call %x {callee=conv}                     %0 = call %x {callee=conv_insert}       a part of %2
//! %1 = call %0 {callee=conv_add}           =>    %1 = call %x, %0 {callee=slice_conv_add}
//! %2 = call %0, %x {callee=concat_conv}          %2 = call %x, %0 {callee=conv_insert}
//! ```
//!
//! A concat copies operands that other kernels read too. With [`Insert`] the kernel of such an operand stores it where
//! the concat would copy it, and its readers take a slice. Each version of the concat's result is the one before it
//! with one more part, in the same memory, and readers take the newest one.
//!
//! Before that, a slice that is a kernel of its own is moved into the kernels that read it. Both happen if the estimate
//! of all kernels that change does not rise, and only where parts begin at whole vectors.

use super::fusion_kind::kernel_expression;
use super::split_to_slices::parts_are_aligned;
use super::{Pass, PassContext, PassError};
use crate::arena::Id;
use crate::attr_struct;
use crate::cost::CostModel;
use crate::graph::{BlockId, Function, Module, Node, NodeId, TensorType, ValueDef, ValueId};
use crate::int::{Int, const_dims};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::concat::Concat;
use crate::ops::control::{Call, Const};
use crate::ops::insert::Insert;
use crate::ops::permute::normalize_axis;
use crate::ops::slice::Slice;
use rustc_hash::FxHashMap;

attr_struct! {
    /// Stores operands of concats that have other readers where the concat would copy them.
    pub struct ConcatParts("concat-parts") {}
}

impl Pass for ConcatParts {
    fn opt_level(&self) -> u8 {
        1
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let names: Vec<Name> = module.functions.values().filter(|f| !f.primitive).map(|f| f.name).collect();
        let mut changed = false;
        for name in names {
            let f = std::mem::replace(&mut module.functions[&name], Function::new(name));
            let costs = cx.costs();
            let mut groups = Groups { module, f, costs: &*costs };
            for block in super::scopes::blocks_of(&groups.f) {
                for n in groups.f.blocks[block].nodes.clone() {
                    if let Some(what) = groups.move_slice(n) {
                        changed = true;
                        cx.applied(self, &[groups.f.nodes[n].name], what);
                    }
                }
                for n in groups.f.blocks[block].nodes.clone() {
                    match groups.place_operands(n) {
                        Some(Ok(what)) => {
                            changed = true;
                            cx.applied(self, &[groups.f.nodes[n].name], what);
                        }
                        Some(Err(why)) => cx.missed(self, &[groups.f.nodes[n].name], why),
                        None => {}
                    }
                }
            }
            let f = groups.f;
            module.functions.insert(name, f);
        }
        Ok(changed)
    }
}

/// A part of a tensor along an axis.
#[derive(Clone, Copy, PartialEq)]
struct Part {
    axis: usize,
    start: usize,
    size: usize,
}

impl Part {
    fn slice(self) -> Slice {
        let bound = |at: usize| vec![Int::from(at)];
        let (starts, ends) = (bound(self.start), bound(self.start + self.size));
        Slice { starts, ends, axes: vec![self.axis as i64], ..Slice::default() }
    }
    /// It begins and ends at whole vectors of `ty`.
    fn is_aligned(self, ty: &TensorType) -> bool {
        parts_are_aligned(ty, self.axis, &[self.start, self.size])
    }
}

/// The part that a slice of one operand takes, if it is one.
fn part_of(f: &Function, n: NodeId) -> Option<(ValueId, Part)> {
    let node = &f.nodes[n];
    let (slice, &[Some(x)]) = (node.op.downcast::<Slice>()?, node.inputs.as_slice()) else { return None };
    let (starts, ty) = (const_dims(&slice.starts)?, f.ty(x));
    let (&[start], steps) = (starts.as_slice(), slice.steps.iter().all(|s| *s == 1)) else { return None };
    let axis = slice.axes.first().map_or(Ok(0), |a| normalize_axis(*a, ty.rank())).ok()?;
    let size = usize::try_from(f.ty(node.outputs[0]).shape[axis].as_const()?).ok()?;
    (steps && slice.dims.is_empty()).then_some((x, Part { axis, start, size }))
}

/// A group that is to change: the call's node, what it calls, and its operands.
#[derive(Clone)]
struct Draft {
    node: NodeId,
    callee: Function,
    inputs: Vec<Option<ValueId>>,
}

impl Draft {
    /// The parameter for a value of the caller, or a new one.
    fn parameter(&mut self, v: ValueId, ty: &TensorType) -> ValueId {
        let f = &mut self.callee;
        if let Some(i) = self.inputs.iter().position(|x| *x == Some(v)) {
            return f.blocks[f.body].args[i];
        }
        let def = ValueDef::Arg(f.body, self.inputs.len());
        let arg = f.fresh_value(ty.clone(), def, Some(Name::new(&format!("p{}", f.values.len()))));
        f.blocks[f.body].args.push(arg);
        self.inputs.push(Some(v));
        arg
    }
    /// Adds a node, in front of all others or behind them.
    fn add(&mut self, op: OpRef, inputs: Vec<ValueId>, ty: TensorType, origins: &Node, first: bool) -> ValueId {
        let f = &mut self.callee;
        let id = NodeId::from_index(f.nodes.len());
        let out = f.fresh_value(ty, ValueDef::Result(id, 0), None);
        f.nodes.push(Node {
            op,
            inputs: inputs.into_iter().map(Some).collect(),
            outputs: vec![out],
            regions: vec![],
            name: origins.name,
            origins: origins.origins.clone(),
            block: Some(f.body),
        });
        let list = &mut f.blocks[f.body].nodes;
        list.insert(if first { 0 } else { list.len() }, id);
        out
    }
    /// Reads a part of `to` where `from` was read.
    fn read_part(&mut self, from: (ValueId, &TensorType), to: (ValueId, &TensorType), part: Part, origins: &Node) {
        let Some(at) = self.inputs.iter().position(|x| *x == Some(from.0)) else { return };
        let old = self.callee.blocks[self.callee.body].args[at];
        let arg = self.parameter(to.0, to.1);
        let new = self.add(OpRef::new(part.slice()), vec![arg], from.1.clone(), origins, true);
        self.callee.replace_uses_many(&|v| if v == old { new } else { v });
        self.remove_parameter(at);
    }
    /// Removes a parameter without uses.
    fn remove_parameter(&mut self, at: usize) {
        self.inputs.remove(at);
        let f = &mut self.callee;
        let body = f.body;
        f.blocks[body].args.remove(at);
        for (i, v) in f.blocks[body].args.clone().into_iter().enumerate() {
            f.values[v].def = ValueDef::Arg(body, i);
        }
    }
    fn reads(&self, arg: usize) -> bool {
        self.callee.is_used(self.callee.params()[arg])
    }
}

/// The groups of a function that is taken out of its module.
struct Groups<'a> {
    module: &'a mut Module,
    f: Function,
    costs: &'a dyn CostModel,
}

/// A value that a concat joins and that is stored into its part.
struct Placed {
    value: ValueId,
    maker: NodeId,
    readers: Vec<NodeId>,
    part: Part,
}

impl Groups<'_> {
    fn draft(&self, n: NodeId) -> Option<Draft> {
        let node = &self.f.nodes[n];
        let callee = self.module.functions.get(&node.op.callee()?).filter(|c| c.primitive && node.op.is::<Call>())?;
        Some(Draft { node: n, callee: callee.clone(), inputs: node.inputs.clone() })
    }
    /// The nodes that read a value, if all are groups of the block.
    fn readers(&self, v: ValueId, block: BlockId) -> Option<Vec<NodeId>> {
        let mut list = vec![];
        let mut uses = 0;
        for &n in &self.f.blocks[block].nodes {
            let here = self.f.nodes[n].inputs.iter().filter(|x| **x == Some(v)).count() as u32;
            if here > 0 {
                self.draft(n)?;
                uses += here;
                list.push(n);
            }
        }
        (uses == self.f.count_uses()[v.index()]).then_some(list)
    }
    /// Nanoseconds of some groups.
    fn cost(&self, drafts: &[Draft]) -> Option<f64> {
        let of = |d: &Draft| {
            let is_const = |i: usize| d.inputs[i].is_some_and(|v| self.f.def_op::<Const>(v).is_some());
            let Some((expression, constants)) = kernel_expression(self.module, &d.callee, &is_const) else {
                return Some(0.0);
            };
            if !expression.updates_are_apart() {
                return None;
            }
            let found = self.costs.function(&expression, &constants);
            found.as_ref().as_ref().ok().map(|e| e.total())
        };
        drafts.iter().map(of).sum()
    }
    /// The costs of new groups and of the old ones that they replace, in words.
    ///
    /// # Errors
    /// The same, if they cost more.
    fn saved(&self, old: &[Draft], new: &[Draft]) -> Result<String, String> {
        let (Some(before), Some(after)) = (self.cost(old), self.cost(new)) else {
            return Err("a kernel has no estimate".into());
        };
        let words = format!("{:.1} us instead of {:.1} by the estimate", after / 1e3, before / 1e3);
        if after <= before { Ok(words) } else { Err(words) }
    }
    fn enter(&mut self, d: Draft) {
        let old = self.f.nodes[d.node].op.callee();
        let mut callee = d.callee;
        old.map(|old| self.module.functions.shift_remove(&old));
        callee.result_types = callee.results().iter().map(|&v| callee.ty(v).clone()).collect();
        let name = callee.name;
        self.module.functions.insert(name, callee);
        let node = &mut self.f.nodes[d.node];
        (node.op, node.inputs) = (OpRef::new(Call { callee: name }), d.inputs);
    }
    fn remove(&mut self, n: NodeId) {
        if let Some(callee) = self.f.nodes[n].op.callee() {
            self.module.functions.shift_remove(&callee);
        }
        self.f.remove_nodes(&[n].into_iter().collect());
    }

    /// Moves a slice that is a group of its own into the groups that read it.
    fn move_slice(&mut self, n: NodeId) -> Option<String> {
        let own = self.draft(n)?;
        let block = self.f.nodes[n].block?;
        let &[node] = own.callee.blocks[own.callee.body].nodes.as_slice() else { return None };
        let (_, part) = part_of(&own.callee, node)?;
        let (&[Some(x)], &[v]) = (own.inputs.as_slice(), self.f.nodes[n].outputs.as_slice()) else { return None };
        if !part.is_aligned(self.f.ty(x)) || self.f.def_op::<Const>(x).is_some() {
            return None;
        }
        let old: Vec<Draft> = self.readers(v, block)?.into_iter().filter_map(|r| self.draft(r)).collect();
        let mut new = old.clone();
        for d in &mut new {
            d.read_part((v, self.f.ty(v)), (x, self.f.ty(x)), part, &own.callee.nodes[node]);
        }
        let count = new.len();
        let all: Vec<Draft> = old.into_iter().chain([own]).collect();
        let words = self.saved(&all, &new).ok()?;
        new.into_iter().for_each(|d| self.enter(d));
        self.remove(n);
        Some(format!("the slice is read in the kernels of its {count} readers: {words}"))
    }

    /// Stores the operands of the concat that is the result of group `n` into their parts.
    fn place_operands(&mut self, n: NodeId) -> Option<Result<String, String>> {
        let own = self.draft(n)?;
        let f = &own.callee;
        let &[result] = f.results() else { return None };
        let (concat, op) = f.def_op::<Concat>(result)?;
        if f.count_uses()[result.index()] != 1 {
            return None;
        }
        let ty = f.ty(result).clone();
        let axis = normalize_axis(op.axis, ty.rank()).ok()?;
        let whole = ty.shape[axis].as_const().and_then(|n| usize::try_from(n).ok())?;
        let parts = operands(f, concat, axis)?;
        // Open sizes of operands may be written otherwise than the result's: they are not proved equal here.
        let same = |v: ValueId| (0..ty.rank()).all(|d| d == axis || f.ty(v).shape[d] == ty.shape[d]);
        if !parts.iter().all(|p| same(p.0)) {
            return None;
        }
        let placed = self.placed(&own, &parts, axis, &ty);
        if placed.is_empty() {
            return None;
        }
        let plan = Plan { own: &own, concat, parts: &parts, axis, whole, ty };
        Some(self.carry_out(&plan, &placed))
    }

    /// The values that may be stored into their parts, in the order of the block.
    fn placed(&self, own: &Draft, parts: &[(ValueId, Part)], axis: usize, ty: &TensorType) -> Vec<Placed> {
        let Some(block) = self.f.nodes[own.node].block else { return vec![] };
        let sources: Vec<Option<(ValueId, Part)>> = parts.iter().map(|p| source(&own.callee, p.0, axis)).collect();
        let mut out: Vec<Placed> = vec![];
        for (i, &value) in own.inputs.iter().enumerate() {
            let Some(value) = value else { continue };
            let arg = own.callee.params()[i];
            let of: Vec<(Part, Part)> =
                sources.iter().zip(parts).filter_map(|(s, p)| s.filter(|s| s.0 == arg).map(|s| (s.1, p.1))).collect();
            let size = self.f.ty(value).shape.get(axis).and_then(Int::as_const).and_then(|n| usize::try_from(n).ok());
            let (Some(size), Some(first)) = (size, of.first()) else { continue };
            let Some(start) = first.1.start.checked_sub(first.0.start) else { continue };
            let together = of.iter().all(|(from, to)| to.start == start + from.start);
            let all = of.iter().map(|(from, _)| from.size).sum::<usize>() == size;
            let part = Part { axis, start, size };
            let maker = self.f.def_node(value).filter(|&d| self.f.nodes[d].block == Some(block));
            let Some(maker) = maker.filter(|&d| self.f.nodes[d].outputs.len() == 1 && self.draft(d).is_some()) else {
                continue;
            };
            let kept = !is_concat_part(&self.module.functions, &self.f, maker);
            let Some(readers) = self.readers(value, block).filter(|_| kept && together && all && part.is_aligned(ty))
            else {
                continue;
            };
            out.push(Placed { value, maker, readers, part });
        }
        let place = |n: NodeId| self.f.blocks[block].nodes.iter().position(|&m| m == n);
        out.sort_by_key(|p| place(p.maker));
        out
    }

    fn carry_out(&mut self, plan: &Plan<'_>, placed: &[Placed]) -> Result<String, String> {
        let order: FxHashMap<NodeId, usize> = self.f.nodes[plan.own.node]
            .block
            .map(|b| self.f.blocks[b].nodes.iter().enumerate().map(|(i, &n)| (n, i)).collect())
            .unwrap_or_default();
        // The version of the result that each maker leaves.
        let versions: Vec<ValueId> = placed
            .iter()
            .map(|p| {
                let name = self.f.values[p.value].name;
                self.f.fresh_value(plan.ty.clone(), ValueDef::Result(p.maker, 0), name)
            })
            .collect();
        let before = |n: NodeId| placed.iter().take_while(|p| order[&p.maker] < order[&n]).count().checked_sub(1);
        let mut nodes: Vec<NodeId> = placed.iter().flat_map(|p| p.readers.iter().copied().chain([p.maker])).collect();
        nodes.push(plan.own.node);
        nodes.sort_by_key(|n| order[n]);
        nodes.dedup();
        let old: Vec<Draft> = nodes.iter().filter_map(|&n| self.draft(n)).collect();
        let mut new = vec![];
        for d in &old {
            let mut d = d.clone();
            let (n, version) = (d.node, before(d.node).map(|i| versions[i]));
            for p in placed.iter().filter(|p| p.readers.contains(&n) && n != plan.own.node) {
                let now = version.ok_or("an operand is read before it is made")?;
                d.read_part((p.value, self.f.ty(p.value)), (now, &plan.ty), p.part, &self.f.nodes[n]);
            }
            if let Some(p) = placed.iter().find(|p| p.maker == n) {
                let value = d.callee.results()[0];
                self.store(plan, &mut d, &[(value, p.part.start)], version);
            }
            if n == plan.own.node && !self.join(plan, &mut d, placed, version) {
                continue;
            }
            new.push(d);
        }
        let words = self.saved(&old, &new)?;
        let dissolved = new.iter().all(|d| d.node != plan.own.node);
        let result = self.f.nodes[plan.own.node].outputs[0];
        for d in new {
            self.enter(d);
        }
        for (p, v) in placed.iter().zip(&versions) {
            self.f.nodes[p.maker].outputs[0] = *v;
        }
        if let (true, Some(&last)) = (dissolved, versions.last()) {
            self.remove(plan.own.node);
            self.f.replace_uses(result, last);
        }
        Ok(format!("{} operands are stored into their parts of the result: {words}", placed.len()))
    }

    /// Lets a draft store these values of it, in the place of its one result, into the newest version.
    fn store(&self, plan: &Plan<'_>, d: &mut Draft, values: &[(ValueId, usize)], version: Option<ValueId>) {
        let starts = values.iter().map(|v| Int::from(v.1)).collect();
        let op = Insert { axis: plan.axis as i64, starts, size: Int::from(plan.whole) };
        let of = version.map(|v| d.parameter(v, &plan.ty));
        let inputs = values.iter().map(|v| v.0).chain(of).collect();
        let node = plan.own.callee.nodes[plan.concat].clone();
        let result = d.add(OpRef::new(op), inputs, plan.ty.clone(), &node, false);
        let body = d.callee.body;
        d.callee.blocks[body].results = vec![result];
    }

    /// Lets the concat's group store the operands that are not placed; false if none is left.
    fn join(&self, plan: &Plan<'_>, d: &mut Draft, placed: &[Placed], version: Option<ValueId>) -> bool {
        let f = &d.callee;
        let taken = |v: ValueId| {
            let at = source(f, v, plan.axis).and_then(|s| f.params().iter().position(|p| *p == s.0));
            at.is_some_and(|i| placed.iter().any(|p| d.inputs[i] == Some(p.value)))
        };
        let left: Vec<(ValueId, usize)> = plan.parts.iter().filter(|p| !taken(p.0)).map(|p| (p.0, p.1.start)).collect();
        if left.is_empty() {
            return false;
        }
        self.store(plan, d, &left, version);
        // The concat and slices in front of it have no use left.
        let mut dead = vec![];
        while let Some(n) = d.callee.blocks[d.callee.body].nodes.iter().copied().find(|&n| {
            let uses = d.callee.count_uses();
            d.callee.nodes[n].outputs.iter().all(|v| uses[v.index()] == 0)
        }) {
            d.callee.remove_nodes(&[n].into_iter().collect());
            dead.push(n);
        }
        // Own results that are placed are read as parts, should something else in the group read them.
        for p in placed {
            let Some(at) = d.inputs.iter().position(|x| *x == Some(p.value)) else { continue };
            match (d.reads(at), version) {
                (true, Some(now)) => {
                    let node = plan.own.callee.nodes[plan.concat].clone();
                    d.read_part((p.value, self.f.ty(p.value)), (now, &plan.ty), p.part, &node);
                }
                _ => d.remove_parameter(at),
            }
        }
        true
    }
}

/// A concat whose operands are placed.
struct Plan<'a> {
    own: &'a Draft,
    concat: NodeId,
    /// Its operands with their parts of the result.
    parts: &'a [(ValueId, Part)],
    axis: usize,
    /// Elements along the axis.
    whole: usize,
    ty: TensorType,
}

/// The operands of a concat with their parts of its result.
fn operands(f: &Function, concat: NodeId, axis: usize) -> Option<Vec<(ValueId, Part)>> {
    let mut start = 0;
    let mut part = |v: &Option<ValueId>| {
        let v = (*v)?;
        let size = usize::try_from(f.ty(v).shape[axis].as_const()?).ok()?;
        start += size;
        Some((v, Part { axis, start: start - size, size }))
    };
    f.nodes[concat].inputs.iter().map(&mut part).collect()
}

/// The parameter that a value of a group is, or is a slice of along the axis, with the part.
fn source(f: &Function, v: ValueId, axis: usize) -> Option<(ValueId, Part)> {
    let Some(n) = f.def_node(v) else {
        let size = usize::try_from(f.ty(v).shape.get(axis)?.as_const()?).ok()?;
        return Some((v, Part { axis, start: 0, size }));
    };
    let (x, part) = part_of(f, n).filter(|(x, p)| p.axis == axis && f.def_node(*x).is_none())?;
    Some((x, part))
}

/// The result of the group that node `n` calls is part of another concat's.
fn is_concat_part(functions: &indexmap::IndexMap<Name, Function>, f: &Function, n: NodeId) -> bool {
    let callee = f.nodes[n].op.callee().and_then(|c| functions.get(&c));
    callee.is_some_and(|c| c.results().iter().any(|&v| c.def_op::<Insert>(v).is_some()))
}
