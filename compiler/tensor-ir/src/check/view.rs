//! A kernel as the checker sees it: its leaves with the loops around them, and the axes that run in parallel.

use crate::int::{Facts, Int, IntNode, Interval};
use crate::name::Name;
use crate::tir::{Block, BufferId, Expr, For, LoopKind, Scope, Stmt, TensorFunction};
use rustc_hash::FxHashSet;

/// An axis that runs iterations of a loop in parallel. Loops bound to one axis share its index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Parallel {
    /// The workgroups along x, y or z.
    Group(u8),
    /// The threads of a workgroup along x, y or z.
    Local(u8),
    /// The subgroups of a workgroup along x or y.
    Subgroup(u8),
    /// The lanes of a vectorised loop, or of a subgroup: all of one statement's run before the next statement.
    Lane(Name),
}

impl Parallel {
    /// The axis that runs a loop; `None` for one that runs its iterations in order.
    pub(super) fn of(l: &For) -> Option<Parallel> {
        match l.kind {
            LoopKind::Group(a) => Some(Parallel::Group(a)),
            LoopKind::Local(a) => Some(Parallel::Local(a)),
            LoopKind::Subgroup(a) => Some(Parallel::Subgroup(a)),
            LoopKind::Vectorize | LoopKind::Lane => Some(Parallel::Lane(l.var)),
            LoopKind::Serial | LoopKind::Unroll | LoopKind::Combine | LoopKind::Tensor => None,
        }
    }

    /// True when each index along the axis has memory of `scope` of its own.
    pub(super) fn separates(self, scope: Scope) -> bool {
        match (self, scope) {
            (Parallel::Lane(_), _) | (_, Scope::Global) => false,
            (Parallel::Group(_), _) | (_, Scope::Register | Scope::Fragment(_)) => true,
            (Parallel::Local(_) | Parallel::Subgroup(_), Scope::Shared) => false,
            (Parallel::Local(a), Scope::Subgroup { .. }) => a > 0,
            (Parallel::Subgroup(_), Scope::Subgroup { .. }) => true,
        }
    }

    /// The axis in words.
    pub(super) fn describe(self) -> String {
        let letter = |a: u8| ["x", "y", "z"][usize::from(a.min(2))];
        match self {
            Parallel::Group(a) => format!("the workgroups along {}", letter(a)),
            Parallel::Local(a) => format!("the threads along {}", letter(a)),
            Parallel::Subgroup(a) => format!("the subgroups along {}", letter(a)),
            Parallel::Lane(v) => format!("the lanes of `{v}`"),
        }
    }
}

/// An access of a leaf to a buffer.
#[derive(Clone, Debug)]
pub(super) struct Access<'f> {
    /// Position of the leaf.
    pub(super) leaf: usize,
    /// Element.
    pub(super) indices: &'f [Int],
    /// A store; a reduction's store reads the element too.
    pub(super) write: bool,
}

/// A block with the loops around it, outermost first.
pub(super) struct Leaf<'f> {
    pub(super) block: &'f Block,
    pub(super) loops: Vec<&'f For>,
}

impl<'f> Leaf<'f> {
    /// The loop over `var` around the block.
    pub(super) fn find(&self, var: Name) -> Option<&'f For> {
        self.loops.iter().copied().find(|l| l.var == var)
    }
    /// The axis that runs the loop over `var`.
    pub(super) fn axis_of(&self, var: Name) -> Option<Parallel> {
        self.find(var).and_then(Parallel::of)
    }
    /// Loops around the block that run along `axis`, with their depths.
    pub(super) fn along(&self, axis: Parallel) -> impl Iterator<Item = (usize, &'f For)> + '_ {
        self.loops.iter().copied().enumerate().filter(move |(_, l)| Parallel::of(l) == Some(axis))
    }
    /// The indices along `axis` that run the block, as far as loops and conditions tell.
    pub(super) fn indices_along(&self, f: &TensorFunction, axis: Parallel) -> Interval {
        let mut facts = Facts::new(f.bounds());
        facts.assume(&self.block.guards);
        self.along(axis).fold(Interval::ALL, |own, (_, l)| own.intersect(facts.span_here(&Int::var(l.var))))
    }
    /// Adds the axes whose loops' variables `e` uses.
    pub(super) fn axes_used(&self, e: &Int, out: &mut FxHashSet<Parallel>) {
        e.visit(&mut |n| {
            if let Some(v) = n.as_var() {
                out.extend(self.axis_of(v));
            }
        });
    }
}

/// The threads of a workgroup, along x, y and z, that run each block which accesses `buffer`.
pub fn threads_at(f: &TensorFunction, buffer: BufferId) -> Vec<(Name, [Interval; 3])> {
    let views = View::all(f);
    let leaves = views.iter().flat_map(|v| &v.leaves).filter(|l| l.block.accesses(buffer));
    leaves.map(|l| (l.block.name, [0, 1, 2].map(|axis| l.indices_along(f, Parallel::Local(axis))))).collect()
}

/// The statements of one dispatch: a kernel, or a top-level statement that will be one.
pub(super) struct View<'f> {
    pub(super) f: &'f TensorFunction,
    pub(super) leaves: Vec<Leaf<'f>>,
    /// Axes with more than one index, in order of appearance; lanes included.
    pub(super) axes: Vec<Parallel>,
}

impl<'f> View<'f> {
    /// One view for each kernel and each other top-level statement.
    pub(super) fn all(f: &'f TensorFunction) -> Vec<View<'f>> {
        let list: &[Stmt] = match &f.body {
            Stmt::Seq(list) => list,
            one => std::slice::from_ref(one),
        };
        list.iter().map(|s| View::new(f, s)).collect()
    }

    fn new(f: &'f TensorFunction, s: &'f Stmt) -> View<'f> {
        let mut v = View { f, leaves: vec![], axes: vec![] };
        v.collect(s, &mut Vec::new());
        v
    }

    fn collect(&mut self, s: &'f Stmt, loops: &mut Vec<&'f For>) {
        match s {
            Stmt::Seq(list) => list.iter().for_each(|s| self.collect(s, loops)),
            Stmt::Kernel(_, s) => self.collect(s, loops),
            Stmt::Barrier => {}
            Stmt::Block(block) => self.leaves.push(Leaf { block, loops: loops.clone() }),
            Stmt::For(l) => {
                if let Some(axis) = Parallel::of(l)
                    && !l.extent.is(1)
                    && !self.axes.contains(&axis)
                {
                    self.axes.push(axis);
                }
                loops.push(l);
                self.collect(&l.body, loops);
                loops.pop();
            }
        }
    }

    /// Number of indices along an axis: the largest extent of a loop bound to it.
    pub(super) fn size(&self, axis: Parallel) -> i64 {
        let extents = self.leaves.iter().flat_map(|l| l.along(axis)).filter_map(|(_, l)| l.extent.as_const());
        extents.max().unwrap_or(1)
    }

    /// Buffers that the view accesses, in order of their first access.
    pub(super) fn buffers(&self) -> Vec<BufferId> {
        let mut out = Vec::new();
        for leaf in &self.leaves {
            visit_accesses(leaf.block, &mut |b, _, _| {
                if !out.contains(&b) {
                    out.push(b);
                }
            });
        }
        out
    }

    /// Every access to `buffer`, in order.
    pub(super) fn accesses(&self, buffer: BufferId) -> Vec<Access<'f>> {
        let mut out = Vec::new();
        for (leaf, l) in self.leaves.iter().enumerate() {
            visit_accesses(l.block, &mut |b, indices, write| {
                if b == buffer {
                    out.push(Access { leaf, indices, write });
                }
            });
        }
        out
    }

    /// Number of loops that enclose every access: outside of them a buffer that is not global lives anew in each
    /// iteration. A global buffer lives throughout.
    pub(super) fn life(&self, buffer: BufferId, accesses: &[Access<'_>]) -> usize {
        let Some(first) = accesses.first().filter(|_| self.f.buffers[buffer].scope != Scope::Global) else { return 0 };
        let first = &self.leaves[first.leaf].loops;
        let common = |a: &Access<'_>| {
            let other = &self.leaves[a.leaf].loops;
            first.iter().zip(other).take_while(|(x, y)| x.var == y.var).count()
        };
        accesses.iter().map(common).min().unwrap_or(0)
    }
}

/// Calls `f` with buffer, indices and whether it is the store, for every access of a block: loads of the value, of
/// index expressions and guards, then the store.
pub(super) fn visit_accesses<'f>(block: &'f Block, f: &mut dyn FnMut(BufferId, &'f [Int], bool)) {
    block.value.visit(&mut |e| {
        if let Expr::Load(b, ix) = e {
            f(*b, ix, false);
        }
    });
    block.visit_ints(&mut |i| visit_loads(i, f));
    f(block.buffer, &block.indices, true);
}

fn visit_loads<'f>(i: &'f Int, f: &mut dyn FnMut(BufferId, &'f [Int], bool)) {
    match i.node() {
        IntNode::Const(_) | IntNode::Var(_) => {}
        IntNode::Load(b, ix) => {
            f(*b, ix, false);
            ix.iter().for_each(|i| visit_loads(i, f));
        }
        IntNode::Add(a, b)
        | IntNode::Sub(a, b)
        | IntNode::Mul(a, b)
        | IntNode::Div(a, b)
        | IntNode::Mod(a, b)
        | IntNode::Min(a, b)
        | IntNode::Max(a, b) => {
            visit_loads(a, f);
            visit_loads(b, f);
        }
    }
}
