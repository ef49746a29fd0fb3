//! A kernel with its loop kinds resolved: only serial loops, conditions, leaves and barriers remain.

use crate::lanes::Lane;
use tensor_ir::int::Int;
use tensor_ir::name::Name;
use tensor_ir::tir::{BufferId, Combiner, Cond, Expr, Scope, TensorFunction};

/// Stores of a thread whose loops compilers unroll and then spill: 25 fit registers (one result of a window of 5 x 5),
/// 150 do not (six).
const MANY_STORES: i64 = 64;

/// A leaf: one store, maybe of several lanes.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    /// The block it came from.
    pub block: Name,
    /// Conditions still to be tested at the leaf.
    pub guards: Vec<Cond>,
    /// Conditions that hold where the leaf runs, its own guards included.
    pub facts: Vec<Cond>,
    /// Destination.
    pub buffer: BufferId,
    /// Element.
    pub indices: Vec<Int>,
    /// The value.
    pub value: Expr,
    /// How the value is combined into the element.
    pub combiner: Option<Combiner>,
    /// If all hold, the combiner's identity replaces the old element (`Some` of an empty list: always).
    pub init: Option<Vec<Cond>>,
    /// The vectorised loop that the leaf runs in.
    pub lane: Option<Lane>,
    /// The values of all threads along x are combined, and then combined with the element.
    pub across: bool,
    /// Loops whose iterations are one operation of the subgroup, with their extents; their variables stand in the
    /// indices.
    pub tensor: Vec<(Name, i64)>,
}

/// A statement of the expanded kernel.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// One after another.
    Seq(Vec<Node>),
    /// A loop at run time; the lanes of a subgroup share out the iterations of one that is `spread`.
    Loop { var: Name, extent: Int, spread: bool, body: Box<Node> },
    /// Runs where all conditions hold. Without conditions it always runs, but compilers cannot know that.
    If { conds: Vec<Cond>, body: Box<Node> },
    /// A store.
    Leaf(Box<Leaf>),
    /// A workgroup barrier.
    Barrier,
}

impl Node {
    /// Rounds that a thread makes in all loops, as llvmpipe counts them: one more for each time that a loop is left.
    pub fn rounds(&self) -> Int {
        match self {
            Node::Seq(list) => list.iter().map(Node::rounds).fold(Int::new(0), |a, b| a + b),
            Node::Loop { extent, body, .. } => extent.clone() * (body.rounds() + 1) + 1,
            Node::If { body, .. } => body.rounds(),
            Node::Leaf(_) | Node::Barrier => Int::new(0),
        }
    }
    /// True if no thread waits for others, and each stores so often that compilers spill when they unroll the loops.
    pub fn is_long_without_barriers(&self) -> bool {
        !self.needs_uniform_flow(&|_| false) && self.stores() >= MANY_STORES
    }
    /// Stores of a thread, those of loops of unknown length once.
    fn stores(&self) -> i64 {
        match self {
            Node::Seq(list) => list.iter().map(Node::stores).sum(),
            Node::Loop { extent, body, .. } => extent.as_const().unwrap_or(1).saturating_mul(body.stores()),
            Node::If { body, .. } => body.stores(),
            Node::Leaf(_) => 1,
            Node::Barrier => 0,
        }
    }
    /// A sequence without nesting.
    pub fn seq(list: Vec<Node>) -> Node {
        let mut flat = Vec::with_capacity(list.len());
        for n in list {
            match n {
                Node::Seq(inner) => flat.extend(inner),
                n => flat.push(n),
            }
        }
        if flat.len() == 1 { flat.pop().expect("one statement") } else { Node::Seq(flat) }
    }
    /// `body` where `conds` hold; just `body` without conditions.
    pub fn when(conds: Vec<Cond>, body: Node) -> Node {
        if conds.is_empty() { body } else { Node::If { conds, body: Box::new(body) } }
    }
    /// Calls `f` on every leaf, in order.
    pub fn visit_leaves<'a>(&'a self, f: &mut dyn FnMut(&'a Leaf)) {
        match self {
            Node::Seq(list) => list.iter().for_each(|n| n.visit_leaves(f)),
            Node::Loop { body, .. } | Node::If { body, .. } => body.visit_leaves(f),
            Node::Leaf(l) => f(l),
            Node::Barrier => {}
        }
    }
    /// The block that all leaves belong to, if there is only one.
    pub fn only_block(&self) -> Option<Name> {
        let (mut found, mut one) = (None, true);
        self.visit_leaves(&mut |l| one &= *found.get_or_insert(l.block) == l.block);
        found.filter(|_| one)
    }
    /// The block of the last leaf, which uses the results of the others.
    pub fn last_block(&self) -> Option<Name> {
        let mut last = None;
        self.visit_leaves(&mut |l| last = Some(l.block));
        last
    }
    /// True when `f` holds of a leaf, or there is a barrier.
    pub fn needs_uniform_flow(&self, f: &dyn Fn(&Leaf) -> bool) -> bool {
        match self {
            Node::Seq(list) => list.iter().any(|n| n.needs_uniform_flow(f)),
            Node::Loop { body, .. } | Node::If { body, .. } => body.needs_uniform_flow(f),
            Node::Leaf(l) => f(l),
            Node::Barrier => true,
        }
    }
}

impl Leaf {
    /// True if the leaf is an operation of a subgroup: it loads from a buffer that is distributed over one, all threads
    /// combine its value, or it is an operation on matrices.
    pub fn reads_subgroup(&self, f: &TensorFunction) -> bool {
        let mut found = self.across || !self.tensor.is_empty();
        self.visit_loads(&mut |b, _| found |= matches!(f.buffers[b].scope, Scope::Subgroup { .. }));
        found
    }
    /// True if each iteration of `other`, which follows in the same sequence, finds what this leaf stored in it.
    pub fn stores_for(&self, other: &Leaf) -> bool {
        let lanes = |l: &Leaf| l.lane.as_ref().map(|lane| (lane.var, lane.count));
        self.combiner.is_none() && !self.across && self.guards == other.guards && lanes(self) == lanes(other)
    }
    /// Every load: those of the value, and those inside its index expressions, guards included.
    pub fn visit_loads(&self, f: &mut dyn FnMut(BufferId, &[Int])) {
        self.value.visit(&mut |e| {
            if let Expr::Load(b, ix) = e {
                f(*b, ix);
            }
        });
        self.visit_ints(&mut |i| visit_int_loads(i, f));
    }
    /// Every index expression, guards included.
    pub fn visit_ints(&self, f: &mut dyn FnMut(&Int)) {
        self.value.visit_ints(f);
        self.indices.iter().for_each(&mut *f);
        for c in self.guards.iter().chain(self.init.iter().flatten()) {
            f(&c.lhs);
            f(&c.rhs);
        }
    }
}

/// Loads inside an index expression.
pub(crate) fn visit_int_loads(e: &Int, f: &mut dyn FnMut(BufferId, &[Int])) {
    e.visit(&mut |n| {
        if let tensor_ir::int::IntNode::Load(b, ix) = n.node() {
            f(*b, ix);
        }
    });
}

/// True when an index expression contains a load.
pub(crate) fn has_load(e: &Int) -> bool {
    let mut found = false;
    visit_int_loads(e, &mut |_, _| found = true);
    found
}
