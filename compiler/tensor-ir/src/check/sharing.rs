//! Which thread writes and reads which element: proofs that loops may run in parallel with the same results as one
//! after another.
//!
//! Each buffer is checked along each axis of its kernel.
//!
//! Where all indices of the axis *share* the buffer's memory (global memory along every axis, workgroup memory along
//! threads, everything along the lanes of a vectorised loop):
//! - different indices store different elements, or all store the same value. A reduction also reads the elements that
//!   it stores, so its elements must differ;
//! - a block that reads the buffer that it stores to reads only the element that it stores;
//! - no workgroup reads elements that another workgroup stores, since nothing orders workgroups. A lane reads only its
//!   own elements. Within one loop over subgroups no iteration reads the elements of another; after the loop it may.
//!
//! Where each index has memory of its *own* (registers along threads, workgroup memory along workgroups):
//! - an element that is stored inside a loop over the axis is read inside such a loop, by the same index. If conditions
//!   separate the indices of two blocks, the blocks are independent. An element that is stored outside of such a loop
//!   and differs between the indices is not read inside one.
//!
//! A fragment belongs to a whole subgroup: no loop over threads or lanes encloses an access to it.
//!
//! Two nested loops over one axis run only where both indices agree: the inner body must not depend on the outer loop.
//! A buffer that is not global is used in one kernel. A reduction that sets its identity itself does so once per
//! element: its index tells all loops that it uses apart.
//!
//! `schedule::apply` checks these rules after one instruction, `schedule::replay` after a list. A kernel that was
//! written by hand keeps them too, or is run by the interpreter.

use super::owner::{AccessContext, COUNTEREXAMPLE, PROOF, Verdict, same_owner, tells_its_loops};
use super::view::{Access, Leaf, Parallel, View, visit_accesses};
use crate::int::Int;
use crate::name::Name;
use crate::tir::{BufferId, For, Scope, TensorFunction};
use rustc_hash::{FxHashMap, FxHashSet};

/// A rule that is not proved to hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The block or loop to mark.
    pub culprit: Name,
    /// The buffer, if the rule is about one.
    pub buffer: Option<Name>,
    /// The property that is not proved.
    pub message: String,
}

/// Violations that an instruction must not introduce: for registers and workgroup memory everything that is not proved,
/// for device memory only what is refuted. Each statement at the top level counts as a kernel.
pub fn violations(f: &TensorFunction) -> Vec<Violation> {
    collect(f, false)
}

/// Everything that is not proved.
pub(super) fn unproved(f: &TensorFunction) -> Vec<Violation> {
    collect(f, true)
}

fn collect(f: &TensorFunction, strict: bool) -> Vec<Violation> {
    let views = View::all(f);
    let mut out = Vec::new();
    let mut kernels_of: FxHashMap<BufferId, usize> = FxHashMap::default();
    for (n, view) in views.iter().enumerate() {
        for b in view.buffers() {
            if f.buffers[b].scope != Scope::Global && *kernels_of.entry(b).or_insert(n) != n {
                let block = view.leaves[view.accesses(b)[0].leaf].block.name;
                let name = f.buffers[b].name;
                let text = format!("`{name}` is {} memory, and another kernel uses it too", scope_word(f, b));
                out.push(Violation { culprit: block, buffer: Some(name), message: text });
            }
        }
        of_view(view, strict, &mut out);
    }
    out
}

/// The properties of one kernel that are not proved.
fn of_view(view: &View<'_>, strict: bool, out: &mut Vec<Violation>) {
    reductions(view, strict, out);
    if view.axes.is_empty() {
        return;
    }
    let mut sharing = Sharing { view, strict, varying: FxHashMap::default(), out };
    sharing.nested_loops();
    sharing.fragments();
    sharing.find_varying();
    for b in view.buffers() {
        sharing.buffer(b);
    }
}

/// A loop that an index uses is no reduction loop, though two of its iterations may meet in one element.
fn reductions(view: &View<'_>, strict: bool, out: &mut Vec<Violation>) {
    for leaf in view.leaves.iter().filter(|l| l.block.reduce.is_some_and(|r| r.init)) {
        let (b, buffer) = (leaf.block, &view.f.buffers[leaf.block.buffer]);
        let life = view.life(b.buffer, &view.accesses(b.buffer));
        let verdict = tells_its_loops(buffer, &AccessContext::new(leaf, life), &b.indices, tries(buffer.scope, strict));
        if fails(verdict, buffer.scope, strict) {
            let text = format!("iterations that meet in an element of `{}` are not told from others", buffer.name);
            out.push(Violation { culprit: b.name, buffer: Some(buffer.name), message: text });
        }
    }
}

/// How hard a claim about memory of `scope` is tried.
fn tries(scope: Scope, strict: bool) -> i64 {
    if strict || scope != Scope::Global { PROOF } else { COUNTEREXAMPLE }
}

/// Whether a verdict counts against a function.
fn fails(v: Verdict, scope: Scope, strict: bool) -> bool {
    match v {
        Verdict::Proved => false,
        Verdict::Refuted => true,
        Verdict::Open => strict || scope != Scope::Global,
    }
}

fn scope_word(f: &TensorFunction, b: BufferId) -> &'static str {
    match f.buffers[b].scope {
        Scope::Global => "device",
        Scope::Shared => "workgroup",
        Scope::Register => "register",
        Scope::Subgroup { .. } => "subgroup",
        Scope::Fragment(_) => "fragment",
    }
}

struct Sharing<'v, 'f> {
    view: &'v View<'f>,
    /// Unproved accesses of device memory count too.
    strict: bool,
    /// Axes on which the content of a buffer depends that is not global.
    varying: FxHashMap<BufferId, FxHashSet<Parallel>>,
    out: &'v mut Vec<Violation>,
}

/// One buffer under examination.
struct Subject<'f> {
    id: BufferId,
    accesses: Vec<Access<'f>>,
    life: usize,
}

impl<'f> Sharing<'_, 'f> {
    fn report(&mut self, culprit: Name, buffer: Option<BufferId>, message: String) {
        let buffer = buffer.map(|b| self.view.f.buffers[b].name);
        let v = Violation { culprit, buffer, message };
        if !self.out.contains(&v) {
            self.out.push(v);
        }
    }

    fn leaf(&self, a: &Access<'_>) -> &Leaf<'f> {
        &self.view.leaves[a.leaf]
    }

    fn nested_loops(&mut self) {
        let view = self.view;
        for leaf in &view.leaves {
            for (n, outer) in leaf.loops.iter().enumerate() {
                let Some(axis) = Parallel::of(outer) else { continue };
                let Some(inner) = leaf.loops[n + 1..].iter().find(|l| Parallel::of(l) == Some(axis)) else { continue };
                let mut uses = leaf.loops[n + 1..].iter().any(|l| l.extent.uses(outer.var));
                leaf.block.visit_ints(&mut |i| uses |= i.uses(outer.var));
                let (o, i) = (outer.var, inner.var);
                if uses {
                    let text = format!(
                        "runs along the same axis as `{o}` around it, on which block `{}` depends",
                        leaf.block.name
                    );
                    self.report(i, None, text);
                } else if inner.extent != outer.extent
                    && outer.extent.as_const().zip(inner.extent.as_const()).is_none_or(|(o, i)| i > o)
                {
                    let text = format!("has more iterations than `{o}` around it, which runs along the same axis");
                    self.report(i, None, text);
                }
            }
        }
    }

    /// Single threads and lanes neither store nor load fragments, which belong to a whole subgroup.
    fn fragments(&mut self) {
        let view = self.view;
        let threads =
            |l: &&For| matches!(Parallel::of(l), Some(Parallel::Local(_) | Parallel::Lane(_))) && !l.extent.is(1);
        for leaf in &view.leaves {
            let Some(l) = leaf.loops.iter().copied().find(threads) else { continue };
            let mut held = None;
            visit_accesses(leaf.block, &mut |b, _, _| {
                if matches!(view.f.buffers[b].scope, Scope::Fragment(_)) {
                    held.get_or_insert(b);
                }
            });
            if let Some(b) = held {
                let text = format!(
                    "`{}` is fragment memory, which the threads of `{}` do not share out",
                    view.f.buffers[b].name, l.var
                );
                self.report(leaf.block.name, Some(b), text);
            }
        }
    }

    /// The axes on which an expression's value depends: the axes of its variables, and the axes along which a loaded
    /// buffer has memory of its own and different content.
    fn axes_of_value(&self, leaf: &Leaf<'_>, out: &mut FxHashSet<Parallel>) {
        leaf.block.value.visit_ints(&mut |i| leaf.axes_used(i, out));
        visit_accesses(leaf.block, &mut |b, _, write| {
            if !write && let Some(axes) = self.varying.get(&b) {
                out.extend(axes);
            }
        });
    }

    fn find_varying(&mut self) {
        let local = |b: BufferId| self.view.f.buffers[b].scope != Scope::Global;
        let lives: FxHashMap<BufferId, usize> = self
            .view
            .buffers()
            .into_iter()
            .filter(|b| local(*b))
            .map(|b| (b, self.view.life(b, &self.view.accesses(b))))
            .collect();
        loop {
            let mut changed = false;
            for leaf in &self.view.leaves {
                let id = leaf.block.buffer;
                let Some(&life) = lives.get(&id) else { continue };
                let mut axes = FxHashSet::default();
                self.axes_of_value(leaf, &mut axes);
                for i in &leaf.block.indices {
                    leaf.axes_used(i, &mut axes);
                }
                for c in &leaf.block.guards {
                    leaf.axes_used(&c.lhs, &mut axes);
                    leaf.axes_used(&c.rhs, &mut axes);
                }
                axes.extend(leaf.loops[life..].iter().filter_map(|l| Parallel::of(l)));
                let scope = self.view.f.buffers[id].scope;
                axes.retain(|a| a.separates(scope));
                let known = self.varying.entry(id).or_default();
                let before = known.len();
                known.extend(axes);
                changed |= known.len() > before;
            }
            if !changed {
                break;
            }
        }
    }

    fn buffer(&mut self, id: BufferId) {
        let accesses = self.view.accesses(id);
        if !accesses.iter().any(|a| a.write) {
            return;
        }
        let life = self.view.life(id, &accesses);
        let subject = Subject { id, accesses, life };
        let scope = self.view.f.buffers[id].scope;
        let view = self.view;
        for w in subject.accesses.iter().filter(|a| a.write) {
            self.stored_by_one(&subject, w);
        }
        for axis in &view.axes {
            if axis.separates(scope) {
                self.own_memory(&subject, *axis);
            } else if !matches!(axis, Parallel::Local(_)) {
                self.no_foreign_reads(&subject, *axis);
            }
        }
        if let Scope::Subgroup { size, .. } = scope {
            self.one_subgroup(&subject, i64::from(size));
        }
    }

    /// Axes of the view that share the memory of a buffer and run leaf `l` side by side.
    fn shared_axes(&self, id: BufferId, l: &Leaf<'_>) -> Vec<Parallel> {
        let scope = self.view.f.buffers[id].scope;
        let around = |a: &Parallel| !matches!(a, Parallel::Lane(_)) || l.along(*a).next().is_some();
        self.view.axes.iter().copied().filter(|a| !a.separates(scope) && around(a)).collect()
    }

    /// The axes on which a store depends, in element or value; for a reduction all. A reduction over lanes runs lane
    /// after lane, when nothing else looks at the element in between.
    fn distributed(&self, s: &Subject<'f>, w: &Access<'f>) -> FxHashSet<Parallel> {
        let leaf = self.leaf(w);
        let mut used = FxHashSet::default();
        self.axes_of_value(leaf, &mut used);
        for i in w.indices {
            leaf.axes_used(i, &mut used);
        }
        let watched = |lane: Parallel| s.accesses.iter().any(|x| x.leaf != w.leaf && self.inside(x, lane));
        let depends = |a: &Parallel| match (leaf.block.reduce, a) {
            (Some(_), Parallel::Lane(_)) => watched(*a),
            (Some(_), _) => true,
            (None, _) => used.contains(a),
        };
        self.shared_axes(s.id, leaf).into_iter().filter(depends).collect()
    }

    /// True when serial loops store the same element several times: workgroups that store alike are not in the same
    /// iteration.
    fn stored_again(&self, w: &Access<'_>) -> bool {
        let serial = |l: &&For| Parallel::of(l).is_none() && l.extent.as_const() != Some(1);
        self.leaf(w).loops.iter().copied().filter(serial).any(|l| !w.indices.iter().any(|i| i.uses(l.var)))
    }

    fn inside(&self, a: &Access<'_>, axis: Parallel) -> bool {
        self.leaf(a).along(axis).next().is_some()
    }

    fn stored_by_one(&mut self, s: &Subject<'f>, w: &Access<'f>) {
        let view = self.view;
        let leaf = &view.leaves[w.leaf];
        let axes = self.distributed(s, w);
        let buffer = &view.f.buffers[s.id];
        // A local buffer lives anew in each iteration of a loop around its life.
        let context = AccessContext::new(leaf, if buffer.scope == Scope::Global { 0 } else { s.life });
        let strict = self.strict;
        let told = |axes: &FxHashSet<Parallel>| {
            let (own, scope) = ((&context, w.indices), buffer.scope);
            !fails(same_owner(buffer, own, own, axes, tries(scope, strict)), scope, strict)
        };
        if !told(&axes) {
            let untold = view.axes.iter().find(|a| axes.contains(a) && !told(&[**a].into_iter().collect()));
            let who = untold.or(view.axes.iter().find(|a| axes.contains(a))).map(|a| a.describe()).unwrap_or_default();
            let what = if leaf.block.reduce.is_some() { "reduce into" } else { "store different values to" };
            let text = format!(
                "{who} {what} the same elements of `{}`, which is {} memory: they would race",
                buffer.name,
                scope_word(view.f, s.id)
            );
            self.report(leaf.block.name, Some(s.id), text);
        }
        let threads = view.axes.iter().any(|a| !a.separates(buffer.scope) && !matches!(a, Parallel::Lane(_)));
        let foreign = |a: &&Access<'f>| a.leaf == w.leaf && !a.write && a.indices != w.indices;
        if (threads || !axes.is_empty()) && s.accesses.iter().any(|a| foreign(&a)) {
            let text = format!("reads elements of `{}` that other threads store in the same statement", buffer.name);
            self.report(leaf.block.name, Some(s.id), text);
        }
    }

    /// True if one loop over subgroups encloses both. Otherwise they are as independent as statements of the workgroup.
    fn in_one_task(&self, a: &Access<'_>, b: &Access<'_>) -> bool {
        let tasks = |l: &&For| matches!(Parallel::of(l), Some(Parallel::Subgroup(_)));
        let other: Vec<Name> = self.leaf(b).loops.iter().copied().filter(tasks).map(|l| l.var).collect();
        self.leaf(a).loops.iter().copied().filter(tasks).any(|l| other.contains(&l.var))
    }

    /// Along an axis that shares memory but has no order between its indices: workgroups, and the lanes of one
    /// statement.
    fn no_foreign_reads(&mut self, s: &Subject<'f>, axis: Parallel) {
        let view = self.view;
        let buffer = &view.f.buffers[s.id];
        let lane = matches!(axis, Parallel::Lane(_));
        let wanted = [axis].into_iter().collect();
        let writes: Vec<&Access<'f>> =
            s.accesses.iter().filter(|a| a.write && (!lane || self.inside(a, axis))).collect();
        for w in writes {
            // Workgroups that do not run the store rely on another one's.
            let partial = !lane && self.leaf(w).along(axis).any(|(_, l)| l.extent.as_const() != Some(view.size(axis)));
            // Equal values from all threads are safe only if they are stored once, or if barriers keep all threads in
            // the same iteration.
            let together = lane || matches!(axis, Parallel::Subgroup(_));
            let alike = !self.distributed(s, w).contains(&axis) && (together || !self.stored_again(w));
            if !partial && alike {
                continue;
            }
            let (lw, context) = (w.indices, AccessContext::new(&view.leaves[w.leaf], 0));
            for x in &s.accesses {
                let ordered = matches!(axis, Parallel::Subgroup(_)) && !self.in_one_task(w, x);
                if x.write || x.leaf == w.leaf || ordered || (lane && !self.inside(x, axis)) {
                    continue;
                }
                let other = AccessContext::new(&view.leaves[x.leaf], 0);
                let own = match lane {
                    true => lw == x.indices,
                    false => {
                        let (scope, strict) = (buffer.scope, self.strict);
                        let verdict =
                            same_owner(buffer, (&context, lw), (&other, x.indices), &wanted, tries(scope, strict));
                        !fails(verdict, scope, strict)
                    }
                };
                if !own {
                    let text = format!("reads elements of `{}` that others of {} store", buffer.name, axis.describe());
                    self.report(view.leaves[x.leaf].block.name, Some(s.id), text);
                }
            }
        }
    }

    /// Checks an axis along which each index has memory of its own.
    fn own_memory(&mut self, s: &Subject<'f>, axis: Parallel) {
        let view = self.view;
        let buffer = &view.f.buffers[s.id];
        let inside = |a: &Access<'f>| {
            view.leaves[a.leaf].along(axis).filter(|(n, _)| *n >= s.life).last().map(|(_, l)| &l.extent)
        };
        let writes: Vec<&Access<'f>> = s.accesses.iter().filter(|a| a.write && inside(a).is_some()).collect();
        let word = scope_word(view.f, s.id);
        if writes.is_empty() {
            let varying = self.varying.get(&s.id).is_some_and(|v| v.contains(&axis));
            if varying && let Some(x) = s.accesses.iter().find(|a| inside(a).is_some()) {
                let text = format!(
                    "reads `{}`, which is {word} memory: {} hold different values there",
                    buffer.name,
                    axis.describe()
                );
                self.report(view.leaves[x.leaf].block.name, Some(s.id), text);
            }
            return;
        }
        // An access that no index runs together with a store is independent of it; but each index must have stored the
        // elements that it loads.
        let apart = |a: &Access<'f>, b: &Access<'f>| {
            let [a, b] = [a, b].map(|x| view.leaves[x.leaf].indices_along(view.f, axis));
            a.high < b.low || b.high < a.low
        };
        for w in &writes {
            for x in &s.accesses {
                let (lw, lx) = (&view.leaves[w.leaf], &view.leaves[x.leaf]);
                if inside(x) != inside(w) && apart(w, x) && (x.write || writes.iter().any(|w| !apart(w, x))) {
                    continue;
                }
                let (pw, px) = (AccessContext::new(lw, s.life), AccessContext::new(lx, s.life));
                let free = !uses(lw, w.indices, axis) && !uses(lx, x.indices, axis);
                let wanted = [axis].into_iter().collect();
                let same = inside(x) == inside(w)
                    && (free
                        || same_owner(buffer, (&pw, w.indices), (&px, x.indices), &wanted, PROOF) == Verdict::Proved);
                if !same {
                    let text = format!(
                        "`{}` is {word} memory, and {} each store a part of it: others do not see that part",
                        buffer.name,
                        axis.describe()
                    );
                    self.report(lx.block.name, Some(s.id), text);
                }
            }
        }
    }

    /// The lanes of a subgroup are consecutive threads; a distributed buffer is accessed by one subgroup alone.
    fn one_subgroup(&mut self, s: &Subject<'f>, size: i64) {
        let view = self.view;
        let axis = Parallel::Local(0);
        let rows = view.axes.iter().any(|a| matches!(a, Parallel::Local(1 | 2)));
        let aligned = !rows || view.size(axis) % size == 0;
        for a in &s.accesses {
            let leaf = &view.leaves[a.leaf];
            let threads = leaf.along(axis).filter_map(|(_, l)| l.extent.as_const()).min().unwrap_or(view.size(axis));
            if !aligned || threads != size {
                let name = view.f.buffers[s.id].name;
                let text = format!("`{name}` is distributed over {size} lanes, and {threads} threads along x use it");
                self.report(leaf.block.name, Some(s.id), text);
            }
        }
    }
}

fn uses(leaf: &Leaf<'_>, indices: &[Int], axis: Parallel) -> bool {
    let mut axes = FxHashSet::default();
    indices.iter().for_each(|i| leaf.axes_used(i, &mut axes));
    axes.contains(&axis)
}
