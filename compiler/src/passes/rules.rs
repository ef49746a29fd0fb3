//! Tables of rewrite rules: an equation, a [pattern](crate::pattern) and the replacement of a match.
//!
//! A [`RuleSet`] tries the rules at each node, in order of the table, and sweeps over a function until nothing changes.
//! Only the rules whose pattern starts with the node's op, or with a property of ops, are tried. `simplify` and
//! `canonicalize-ops` are such tables.
//!
//! Always holds: the new value has the type of the old one, and the origins of every node that the pattern spells out,
//! except nodes that compute its operands.

use super::rewriter::{Rewriter, rewrite_functions};
use super::{PassBase, PassContext};
use crate::graph::{Constant, Module, NodeId, Origins, TensorType, ValueId};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::Const;
use crate::ops::onnx::held_number;
use crate::pattern::{Found, Pattern};
use crate::tensor::Tensor;
use rustc_hash::FxHashMap;
use std::any::TypeId;

/// Constants above this many bytes stay unread.
const READABLE: usize = 64 << 10;

/// One rule.
pub struct Rule {
    /// The equation, for remarks.
    pub equation: &'static str,
    /// The pattern.
    pub pattern: fn() -> Pattern,
    /// The replacement of a match; `None` if the rule does not apply.
    pub apply: fn(&Match<'_, '_>) -> Option<Change>,
}

/// The replacement of a node.
pub enum Change {
    /// A value that is there already.
    Value(ValueId),
    /// New nodes; the last one (with one result) replaces the node and gets its name.
    Nodes(Vec<(OpRef, Vec<Operand>)>),
}

/// An operand of a new node.
pub enum Operand {
    /// A value that is there already.
    Value(ValueId),
    /// None.
    Absent,
    /// The result of a new node before.
    New(usize),
    /// A new constant; its name ends in the label.
    Constant(&'static str, Constant),
}
impl From<ValueId> for Operand {
    fn from(v: ValueId) -> Operand {
        Operand::Value(v)
    }
}
impl From<Option<ValueId>> for Operand {
    fn from(v: Option<ValueId>) -> Operand {
        v.map_or(Operand::Absent, Operand::Value)
    }
}

impl Change {
    /// One new node on values.
    pub fn node<O: Into<Operand>>(op: impl Into<OpRef>, operands: impl IntoIterator<Item = O>) -> Option<Change> {
        Some(Change::Nodes(vec![(op.into(), operands.into_iter().map(Into::into).collect())]))
    }
}

/// A node that a rule's pattern matches.
pub struct Match<'a, 'm> {
    /// The rewriter, for looking only.
    pub r: &'a Rewriter<'m>,
    /// The node.
    pub n: NodeId,
    found: &'a Found,
}
impl Match<'_, '_> {
    /// The value that the pattern names so.
    pub fn value(&self, name: &str) -> ValueId {
        self.r.resolve(self.found.value(name))
    }
    /// The value with that name in the pattern, if the matched alternative has it.
    pub fn get(&self, name: &str) -> Option<ValueId> {
        self.found.get(name).map(|v| self.r.resolve(v))
    }
    /// The node's op as `T`.
    pub fn op<T: 'static>(&self) -> Option<&T> {
        self.r.f.nodes[self.n].op.downcast()
    }
    /// The op that makes `v`, as `T`.
    pub fn made_by<T: 'static>(&self, v: ValueId) -> Option<&T> {
        self.r.f.def_op(v).map(|(_, op)| op)
    }
    /// Operands of the node that makes `v`.
    pub fn operands_of(&self, v: ValueId) -> Vec<Option<ValueId>> {
        let operands = self.r.f.def_node(v).map(|n| &self.r.f.nodes[n].inputs);
        operands.into_iter().flatten().map(|v| v.map(|v| self.r.resolve(v))).collect()
    }
    /// Operands of the node.
    pub fn operands(&self) -> Vec<Option<ValueId>> {
        self.operands_of(self.r.f.nodes[self.n].outputs[0])
    }
    /// Type of the result.
    pub fn ty(&self) -> &TensorType {
        self.r.f.ty(self.r.f.nodes[self.n].outputs[0])
    }
    /// Type of a value.
    pub fn ty_of(&self, v: ValueId) -> &TensorType {
        self.r.f.ty(v)
    }
    /// The constant of the module that `v` is.
    pub fn constant(&self, v: ValueId) -> Option<&Constant> {
        let (_, c) = self.r.f.def_op::<Const>(v)?;
        self.r.module.constants.get(&c.name)
    }
    /// The data of the constant `v`, when it is small (64 KiB): larger ones stay unread.
    pub fn small_constant(&self, v: ValueId) -> Option<Tensor> {
        let c = self.constant(v)?;
        if c.byte_len() <= READABLE { c.load().ok() } else { None }
    }
    /// The only element of the constant `v`, if a float holds it.
    pub fn scalar(&self, v: ValueId) -> Option<f64> {
        if self.constant(v)?.shape.iter().product::<usize>() != 1 {
            return None;
        }
        held_number(&self.small_constant(v)?)
    }
    /// `v` in the node's place, when it has the type of the result.
    pub fn same_type(&self, v: ValueId) -> Option<Change> {
        (self.ty_of(v) == self.ty()).then_some(Change::Value(v))
    }
}

/// Rules, by the op that their patterns start with.
pub struct RuleSet {
    rules: Vec<(Pattern, &'static Rule)>,
    by_root: FxHashMap<TypeId, Vec<usize>>,
    /// Those that start with a property of ops.
    of_any: Vec<usize>,
}

impl RuleSet {
    /// The rules of several tables, in order.
    pub fn new(tables: &[&'static [Rule]]) -> RuleSet {
        let mut set = RuleSet { rules: vec![], by_root: FxHashMap::default(), of_any: vec![] };
        for rule in tables.iter().flat_map(|t| t.iter()) {
            let pattern = (rule.pattern)();
            match pattern.roots() {
                None => set.of_any.push(set.rules.len()),
                Some(roots) => {
                    for root in roots {
                        let list = set.by_root.entry(root).or_default();
                        if list.last() != Some(&set.rules.len()) {
                            list.push(set.rules.len());
                        }
                    }
                }
            }
            set.rules.push((pattern, rule));
        }
        set
    }
    /// The rules to be tried at an op, in the order of the tables.
    fn at(&self, op: &OpRef) -> Vec<usize> {
        let own = self.by_root.get(&op.as_any().type_id());
        let mut list: Vec<usize> = own.into_iter().flatten().chain(&self.of_any).copied().collect();
        list.sort_unstable();
        list
    }
    /// Each rule's equation and pattern.
    pub fn patterns(&self) -> impl Iterator<Item = (&'static str, &Pattern)> {
        self.rules.iter().map(|(p, r)| (r.equation, p))
    }
    /// Applies the rules in sweeps over every function, `max_sweeps` at most; returns whether anything changed.
    pub fn apply(&self, pass: &dyn PassBase, module: &mut Module, cx: &mut PassContext, max_sweeps: usize) -> bool {
        let mut changed = false;
        for _ in 0..max_sweeps {
            let mut again = false;
            rewrite_functions(module, |r| {
                for n in r.f.walk() {
                    if !r.is_dead(n) {
                        r.normalize(n);
                        again |= self.visit(pass, r, n, cx);
                    }
                }
            });
            changed |= again;
            if !again {
                break;
            }
        }
        changed
    }
    fn visit(&self, pass: &dyn PassBase, r: &mut Rewriter<'_>, n: NodeId, cx: &mut PassContext) -> bool {
        let node = &r.f.nodes[n];
        let [output] = node.outputs[..] else { return false };
        if r.num_uses(output) == 0 || node.op.effects().stateful || !node.regions.is_empty() {
            return false;
        }
        let name = node.name;
        for i in self.at(&node.op) {
            let (pattern, rule) = &self.rules[i];
            let Some(found) = pattern.find(r, output) else { continue };
            let Some(change) = (rule.apply)(&Match { r, n, found: &found }) else { continue };
            if replace(r, n, &found, change) {
                cx.applied(pass, &[name], format!("{name}: {}", rule.equation));
                return true;
            }
        }
        false
    }
}

/// Replaces `n` by `change`; false if an op refuses its operands, or the type would change.
fn replace(r: &mut Rewriter<'_>, n: NodeId, found: &Found, change: Change) -> bool {
    let name = r.f.nodes[n].name;
    let new = match change {
        Change::Value(v) => {
            let v = r.resolve(v);
            let origins = origins_between(r, n, found, &[v]);
            if let Some(maker) = r.f.def_node(v).filter(|&d| !r.f.nodes[d].op.is::<Const>()) {
                r.absorb_origins(maker, &origins);
            }
            v
        }
        Change::Nodes(list) => {
            let values = list.iter().flat_map(|(_, operands)| operands);
            let kept: Vec<ValueId> =
                values.filter_map(|o| if let Operand::Value(v) = o { Some(r.resolve(*v)) } else { None }).collect();
            let origins = origins_between(r, n, found, &kept);
            match build(r, n, name, origins, list) {
                Some(v) => v,
                None => return false,
            }
        }
    };
    r.replace_node(n, new).is_ok()
}

/// Adds the nodes right before `n`; the result of the last one. Nothing stays when an op refuses.
fn build(
    r: &mut Rewriter<'_>,
    n: NodeId,
    name: Name,
    origins: Origins,
    list: Vec<(OpRef, Vec<Operand>)>,
) -> Option<ValueId> {
    let mut made: Vec<ValueId> = Vec::new();
    let last = list.len().checked_sub(1)?;
    for (i, (op, operands)) in list.into_iter().enumerate() {
        let mut inputs = Vec::with_capacity(operands.len());
        for o in operands {
            inputs.push(match o {
                Operand::Value(v) => Some(r.resolve(v)),
                Operand::Absent => None,
                Operand::New(k) => Some(*made.get(k)?),
                Operand::Constant(label, c) => {
                    Some(r.constant_before(n, &format!("{name}.{label}"), c, origins.clone()))
                }
            });
        }
        let own = if i == last { name } else { Name::new(&format!("{name}.{}", op.name())) };
        match r.add_before(n, op, inputs, own, origins.clone()) {
            Ok(outputs) if outputs.len() == 1 => made.push(outputs[0]),
            _ => {
                for v in made.iter().rev() {
                    r.f.def_node(*v).into_iter().for_each(|d| r.erase(d));
                }
                return None;
            }
        }
    }
    made.last().copied()
}

/// Origins of the matched nodes, without nodes that make values that stay.
fn origins_between(r: &Rewriter<'_>, n: NodeId, found: &Found, kept: &[ValueId]) -> Origins {
    let stays = |d: &NodeId| r.f.nodes[*d].outputs.iter().any(|o| kept.contains(&r.resolve(*o)));
    let nodes = found.nodes.iter().chain(&found.between).filter(|d| **d != n && !stays(d));
    nodes.fold(r.f.nodes[n].origins.clone(), |o, d| o.union(&r.f.nodes[*d].origins))
}
