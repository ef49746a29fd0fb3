//! Matching. The result has the named values of the match, or the place of the mismatch.

use super::{Kind, Operands, Pattern, Subject};
use crate::graph::{NodeId, ValueDef, ValueId};
use crate::ops::control::Const;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt;

/// Constants above this many bytes are not read to compare them with a number.
const READABLE: usize = 64 << 10;

/// A match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    named: Vec<(&'static str, ValueId)>,
    /// Nodes that the pattern spells out, the outermost first; constants are not among them.
    pub nodes: Vec<NodeId>,
    /// Nodes on the path of a dominator pattern, the last one first.
    pub between: Vec<NodeId>,
}
impl Found {
    /// The value under `name`, if the part of the pattern that names it took part in the match.
    pub fn get(&self, name: &str) -> Option<ValueId> {
        self.named.iter().find(|n| n.0 == name).map(|n| n.1)
    }
    /// The value under `name`; panics when no part of the match has that name, which is a mistake in the rule.
    pub fn value(&self, name: &str) -> ValueId {
        self.get(name).unwrap_or_else(|| panic!("the pattern has no `{name}`"))
    }
}

/// Why a pattern did not match: the innermost place reached that did not fit.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The whole pattern.
    pub pattern: Pattern,
    /// The value that did not match, and the expected pattern.
    pub why: String,
}
impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no match for {}: {}", self.pattern, self.why)
    }
}
impl std::error::Error for Mismatch {}

impl Pattern {
    /// Matches the pattern against `v`.
    ///
    /// # Errors
    /// Where the graph differs from the pattern.
    pub fn matches(&self, subject: &dyn Subject, v: ValueId) -> Result<Found, Mismatch> {
        let mut m = Matcher::new(subject);
        if m.go(self, v) {
            return Ok(m.found);
        }
        let why = m.miss.map_or_else(|| "nothing was tried".into(), |(_, miss)| miss.describe(subject));
        Err(Mismatch { pattern: self.clone(), why })
    }
    /// Matches the pattern against `v`, without an explanation: for tables of rules that are tried at every node.
    pub fn find(&self, subject: &dyn Subject, v: ValueId) -> Option<Found> {
        let mut m = Matcher::new(subject);
        m.go(self, v).then_some(m.found)
    }
}

/// A place that did not fit, as plain data: most of them are never shown.
enum Miss<'p> {
    Not(ValueId, &'static str),
    Operands(ValueId, usize),
    Absent(NodeId, usize),
    Number(ValueId, f64),
    Test(ValueId, &'p str),
    Result(ValueId, usize),
    Other(ValueId, ValueId, &'static str),
    NoParent(ValueId),
    TwoParents(ValueId, ValueId),
    Escapes(ValueId),
}

struct Matcher<'p, 's> {
    s: &'s dyn Subject,
    found: Found,
    depth: usize,
    miss: Option<(usize, Miss<'p>)>,
}

impl<'p, 's> Matcher<'p, 's> {
    fn new(s: &'s dyn Subject) -> Self {
        Matcher { s, found: Found::default(), depth: 0, miss: None }
    }
    /// Remembers the miss when none was found deeper.
    fn fail(&mut self, miss: Miss<'p>) -> bool {
        if self.miss.as_ref().is_none_or(|m| m.0 <= self.depth) {
            self.miss = Some((self.depth, miss));
        }
        false
    }
    /// Remembers a miss of a dominator pattern: its child has matched, so nothing that was tried further up says more.
    fn fail_region(&mut self, miss: Miss<'p>) -> bool {
        self.miss = Some((usize::MAX, miss));
        false
    }
    /// Runs `f`; when it fails, what it found is forgotten.
    fn attempt(&mut self, f: impl FnOnce(&mut Self) -> bool) -> bool {
        let marks = (self.found.named.len(), self.found.nodes.len(), self.found.between.len());
        let ok = f(self);
        if !ok {
            self.found.named.truncate(marks.0);
            self.found.nodes.truncate(marks.1);
            self.found.between.truncate(marks.2);
        }
        ok
    }
    fn go(&mut self, p: &'p Pattern, v: ValueId) -> bool {
        let v = self.s.resolve(v);
        let f = self.s.function();
        match &*p.0 {
            Kind::Any => true,
            Kind::Constant => f.def_op::<Const>(v).is_some() || self.fail(Miss::Not(v, "a constant")),
            Kind::Number(want, off) => is_number(self.s, v, *want, *off) || self.fail(Miss::Number(v, *want)),
            Kind::Param => matches!(f.values[v].def, ValueDef::Arg(..)) || self.fail(Miss::Not(v, "a parameter")),
            Kind::Op { name, id, operands } => {
                let Some(n) = f.def_node(v).filter(|&n| f.nodes[n].op.as_any().type_id() == *id) else {
                    return self.fail(Miss::Not(v, name));
                };
                self.node(operands, n, v)
            }
            Kind::AnyOp(operands) => match f.def_node(v).filter(|&n| !f.nodes[n].op.is::<Const>()) {
                Some(n) => self.node(operands, n, v),
                None => self.fail(Miss::Not(v, "made by an op")),
            },
            Kind::Either(list) => list.iter().any(|p| self.attempt(|m| m.go(p, v))),
            Kind::Optional { with, without } => self.attempt(|m| m.go(with, v)) || self.attempt(|m| m.go(without, v)),
            Kind::When { inner, text, test } => {
                self.attempt(|m| m.go(inner, v) && (test(m.s, v) || m.fail(Miss::Test(v, text))))
            }
            Kind::Result { inner, index } => match f.values[v].def {
                ValueDef::Result(_, i) if i == *index => self.go(inner, v),
                _ => self.fail(Miss::Result(v, *index)),
            },
            Kind::Named { inner, name } => self.attempt(|m| {
                if let Some(other) = m.found.get(name).filter(|&o| o != v) {
                    return m.fail(Miss::Other(v, other, name));
                }
                m.found.named.push((name, v));
                m.go(inner, v)
            }),
            Kind::Dominator { parent, path, child } => self.attempt(|m| m.dominator(parent, path, child, v)),
        }
    }
    /// The node `n` is one of those that the pattern spells out, when its operands match.
    fn node(&mut self, operands: &'p Operands, n: NodeId, v: ValueId) -> bool {
        self.depth += 1;
        let ok = self.attempt(|m| {
            m.found.nodes.push(n);
            m.operands(operands, n, v)
        });
        self.depth -= 1;
        ok
    }
    fn operands(&mut self, operands: &'p Operands, n: NodeId, v: ValueId) -> bool {
        let inputs = &self.s.function().nodes[n].inputs;
        let (list, exact) = match operands {
            Operands::Free => return true,
            Operands::Commuted([a, b]) => {
                let [Some(x), Some(y)] = inputs[..] else { return self.fail(Miss::Operands(v, 2)) };
                return self.attempt(|m| m.go(a, x) && m.go(b, y)) || self.attempt(|m| m.go(a, y) && m.go(b, x));
            }
            Operands::Exactly(list) => (list, true),
            Operands::From(list) => (list, false),
        };
        // Trailing operands may be absent without a place of their own.
        let count = inputs.iter().rposition(Option::is_some).map_or(0, |i| i + 1);
        if count < list.len() || (exact && count > list.len()) {
            return self.fail(Miss::Operands(v, list.len()));
        }
        for (i, p) in list.iter().enumerate() {
            let ok = match inputs[i] {
                Some(x) => self.go(p, x),
                None => self.fail(Miss::Absent(n, i)),
            };
            if !ok {
                return false;
            }
        }
        true
    }
    fn dominator(&mut self, parent: &'p Pattern, path: &'p Pattern, child: &'p Pattern, v: ValueId) -> bool {
        if !self.go(child, v) {
            return false;
        }
        let f = self.s.function();
        let Some(start) = f.def_node(v) else { return self.fail(Miss::NoParent(v)) };
        let mut top: Option<ValueId> = None;
        let mut inside: FxHashMap<ValueId, u32> = FxHashMap::default();
        let mut seen: FxHashSet<NodeId> = FxHashSet::default();
        let mut stack = vec![start];
        while let Some(n) = stack.pop() {
            for u in f.nodes[n].inputs.iter().flatten() {
                let u = self.s.resolve(*u);
                if f.def_op::<Const>(u).is_some() {
                    continue;
                }
                *inside.entry(u).or_default() += 1;
                if top == Some(u) || f.def_node(u).is_some_and(|d| seen.contains(&d)) {
                    continue;
                }
                // A second one would not match under the names of the first.
                if let Some(first) = top
                    && Matcher::new(self.s).go(parent, u)
                {
                    return self.fail_region(Miss::TwoParents(first, u));
                }
                if top.is_none() && self.attempt(|m| m.go(parent, u)) {
                    top = Some(u);
                    continue;
                }
                let marks = (self.found.named.len(), self.found.nodes.len());
                let Some(d) = f.def_node(u).filter(|_| self.attempt(|m| m.go(path, u))) else {
                    return self.fail_region(Miss::NoParent(u));
                };
                self.found.named.truncate(marks.0);
                self.found.nodes.truncate(marks.1);
                self.found.between.push(d);
                seen.insert(d);
                stack.push(d);
            }
        }
        let Some(top) = top else { return self.fail_region(Miss::NoParent(v)) };
        let makers = seen.iter().copied().chain(f.def_node(top));
        let outside = makers
            .flat_map(|n| &f.nodes[n].outputs)
            .find(|&&o| self.s.num_uses(o) != inside.get(&o).copied().unwrap_or(0));
        outside.is_none_or(|&o| self.fail_region(Miss::Escapes(o)))
    }
}

fn is_number(s: &dyn Subject, v: ValueId, want: f64, off: f64) -> bool {
    let Some((_, c)) = s.function().def_op::<Const>(v) else { return false };
    let Some(c) = s.module().constants.get(&c.name).filter(|c| c.byte_len() <= READABLE) else { return false };
    c.load().is_ok_and(|t| {
        !t.is_empty() && t.to_f64_vec().iter().all(|&x| x == want || (x - want).abs() <= off * want.abs())
    })
}

impl Miss<'_> {
    fn describe(&self, s: &dyn Subject) -> String {
        let f = s.function();
        let show = |v: ValueId| match f.def_node(v) {
            Some(n) => format!("`{}`", f.nodes[n].name),
            None => f.values[v].name.map_or_else(|| "a parameter".into(), |n| format!("`{n}`")),
        };
        let kind = |v: ValueId| f.def_node(v).map_or("a parameter", |n| f.nodes[n].op.name());
        match self {
            Miss::Not(v, want) => format!("{} is {}, not {want}", show(*v), kind(*v)),
            Miss::Operands(v, n) => {
                let has = f.def_node(*v).map_or(0, |d| f.nodes[d].inputs.iter().flatten().count());
                format!("{} has {has} operands, not {n}", show(*v))
            }
            Miss::Absent(n, i) => format!("operand {i} of `{}` is absent", f.nodes[*n].name),
            Miss::Number(v, want) => format!("{} is not a constant of {want} everywhere", show(*v)),
            Miss::Test(v, text) => format!("{} is not [{text}]", show(*v)),
            Miss::Result(v, i) => format!("{} is not result {i} of its node", show(*v)),
            Miss::Other(v, other, name) => format!("{name} is {}, not {} as well", show(*other), show(*v)),
            Miss::NoParent(v) => format!("{} leads to no parent", show(*v)),
            Miss::TwoParents(a, b) => format!("there are two parents, {} and {}", show(*a), show(*b)),
            Miss::Escapes(v) => format!("{} is used outside of the region", show(*v)),
        }
    }
}
