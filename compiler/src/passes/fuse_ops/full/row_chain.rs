//! `row-chain`: reductions along the same rows, with elementwise and broadcasting ops between and after them, become
//! one group. Examples: softmax, layer or RMS normalisation that are written as several ops.
//!
//! It applies if only the chain's last value has users outside, if all reductions go along the same axes of the same
//! shape, if rows are short enough or many enough for one kernel, if every other op has one value per element or per
//! row, and if the chain's buffers fit the device's bindings. The kernel then takes a row at a time and reads it once.
//! A value that the chain compares with its own extreme stays outside: the kernel would compute it twice.

use super::super::forward::{ForwardGraph, Source};
use super::super::partition::Partition;
use super::{GroupGraph, Made, compared_values, shape_of};
use crate::graph::{Function, Module, NodeId};
use crate::int::Int;
use crate::ops::reduce::Reduce;
use crate::tir::FusionKind;
use rustc_hash::{FxHashMap, FxHashSet};

pub(super) const RULE: &str = "row-chain";

fn reduce_of<'a>(g: &ForwardGraph, f: &'a Function, i: usize) -> Option<(&'a [Int], &'a Reduce)> {
    let Source::Node(n) = g.nodes[i].source else { return None };
    let node = &f.nodes[n];
    Some((&f.ty(node.inputs[0]?).shape, node.op.downcast::<Reduce>()?))
}

/// Elements of a row that one workgroup reduces faster than several kernels would.
const LONGEST: i64 = 1 << 16;

/// The rows that a chain works on: the full shape and the reduced axes.
#[derive(PartialEq)]
struct Rows<'a> {
    full: &'a [Int],
    axes: &'a [usize],
}
impl Rows<'_> {
    /// The full shape, or one element for each row.
    fn fits(&self, shape: &[Int]) -> bool {
        if shape == self.full {
            return true;
        }
        let units = |s: &[Int]| -> Vec<Int> { s.iter().filter(|d| !d.is(1)).cloned().collect() };
        let kept: Vec<Int> =
            (0..self.full.len()).filter(|a| !self.axes.contains(a)).map(|a| self.full[a].clone()).collect();
        units(shape) == units(&kept)
    }
    /// Elements of a row and number of rows, where they are constant.
    fn extents(&self) -> Option<(i64, i64)> {
        let (mut length, mut count) = (1i64, 1i64);
        for (a, d) in self.full.iter().enumerate() {
            let n = d.as_const()?;
            *(if self.axes.contains(&a) { &mut length } else { &mut count }) *= n;
        }
        Some((length, count))
    }
    /// Rows are short enough for a workgroup each, or enough of them keep the device busy.
    fn keep_busy(&self, cores: u32) -> bool {
        self.extents().is_none_or(|(length, count)| length <= LONGEST || count >= i64::from(cores))
    }
}

/// Grows a chain backwards from each group that works on full rows behind a reduction.
pub(super) fn apply(cx: &mut GroupGraph<'_, '_>) {
    let (g, f) = (cx.g, cx.f);
    let makers = cx.makers();
    let cores = cx.target.profile.cores;
    let p = &mut *cx.p;
    let mut members = p.members();
    let mut done: FxHashSet<usize> = FxHashSet::default();
    for last in (0..g.nodes.len()).rev() {
        let root = p.root(last);
        if done.contains(&root) || p.group_kind(root) > FusionKind::Broadcast || root != last {
            continue;
        }
        let Some(chain) = chain_of(p, (g, cx.module, f, cores), &members, &makers, root) else { continue };
        if !p.fits(&chain) {
            continue;
        }
        let mut nodes: Vec<usize> = chain.iter().flat_map(|r| members[r].clone()).collect();
        nodes.sort_unstable();
        for &r in &chain {
            p.merge(r, root);
        }
        p.raise_kind(root, FusionKind::OutElementwiseFusable);
        let root = p.root(root);
        done.insert(root);
        cx.made.push(Made::of(RULE, g, &nodes));
        members.insert(root, nodes);
    }
}

type Given<'a> = (&'a ForwardGraph, &'a Module, &'a Function, u32);

/// The groups of a chain that ends in `root`, without those whose values it compares with themselves.
fn chain_of(
    p: &mut Partition<'_>,
    given: Given<'_>,
    members: &FxHashMap<usize, Vec<usize>>,
    makers: &[Vec<usize>],
    root: usize,
) -> Option<Vec<usize>> {
    let (g, module, f, _) = given;
    let mut apart: FxHashSet<usize> = FxHashSet::default();
    loop {
        let chain = grow_chain(p, given, (members, makers), root, &apart)?;
        let mut nodes: Vec<usize> = chain.iter().flat_map(|r| members[r].clone()).collect();
        nodes.sort_unstable();
        let nodes: Vec<NodeId> = nodes.into_iter().map(|i| g.nodes[i].source.node()).collect();
        let compared = compared_values(module, f, &nodes);
        if compared.is_empty() {
            return Some(chain);
        }
        let makes = |i: &usize| compared.iter().any(|&v| f.def_node(v) == Some(g.nodes[*i].source.node()));
        apart.extend(chain.iter().filter(|r| members[r].iter().any(makes)));
        if apart.contains(&root) {
            return None;
        }
    }
}

/// The groups of a chain that ends in `root`, but those `apart`; `None` when it holds no reductions along common rows.
fn grow_chain(
    p: &mut Partition<'_>,
    (g, _, f, cores): Given<'_>,
    (members, makers): (&FxHashMap<usize, Vec<usize>>, &[Vec<usize>]),
    root: usize,
    apart: &FxHashSet<usize>,
) -> Option<Vec<usize>> {
    let mut rows: Option<Rows<'_>> = None;
    let mut chain = vec![root];
    let mut reductions = 0;
    let mut grew = true;
    while grew {
        grew = false;
        let feeding: Vec<usize> = chain.iter().flat_map(|r| &members[r]).flat_map(|&i| &makers[i]).copied().collect();
        for i in feeding {
            let r = p.root(i);
            let kind = p.group_kind(r);
            let other = kind > FusionKind::Broadcast && kind != FusionKind::Reduction;
            if chain.contains(&r) || apart.contains(&r) || other {
                continue;
            }
            let inside = |x: usize, p: &mut Partition<'_>| {
                let to = p.root(x);
                to == r || chain.contains(&to)
            };
            let closed =
                members[&r].iter().all(|&m| !g.nodes[m].escapes && g.nodes[m].users.iter().all(|u| inside(u.0, p)));
            if !closed {
                continue;
            }
            let mut fits = true;
            for &m in &members[&r] {
                if g.nodes[m].kind == FusionKind::Reduction {
                    let (full, reduce) = reduce_of(g, f, m)?;
                    let own = Rows { full, axes: &reduce.axes };
                    fits &= own.keep_busy(cores) && rows.as_ref().is_none_or(|known| *known == own);
                    rows.get_or_insert(own);
                    reductions += 1;
                }
            }
            if !fits {
                return None;
            }
            chain.push(r);
            // No larger chain fits a group: a long elementwise network is not walked from each of its groups.
            if p.size(&chain) > p.limits().max_group {
                return None;
            }
            grew = true;
        }
    }
    let rows = rows?;
    let all = chain.iter().flat_map(|r| &members[r]);
    let on_rows = all.copied().all(|i| shape_of(g, f, i).is_some_and(|s| rows.fits(s)));
    let ends_full = shape_of(g, f, root).is_some_and(|s| s == rows.full);
    (reductions >= 1 && on_rows && ends_full).then_some(chain)
}
