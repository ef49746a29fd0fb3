//! `reduction-chain`: a reduction or product and the one behind it that reads its results become one kernel, where a
//! workgroup can do a row of both: a global pool, the products of one row behind it and what is made of them.
//!
//! ```text
//! global_average_pool ─ conv 1x1 + swish ─ conv 1x1 + sigmoid    =>    one kernel
//! ```
//!
//! It applies if the first one's results have no other users, if one kernel is estimated cheaper than two, and if the
//! time without launches rises by a small part of the launches that are saved: one core does what many did, and what a
//! launch costs is known less well than that. Who asks for the rule by name gets it whatever it costs. The chain grows
//! from its end to its beginning.

use super::super::forward::{Source, key_of};
use super::{Declined, GroupGraph, Made, describe, shape_of};
use crate::cost::Weighed;
use crate::graph::NodeId;
use crate::ops::control::Const;
use crate::schedule::estimate::Estimate;
use crate::tir::FusionKind;
use rustc_hash::FxHashMap;

pub(super) const RULE: &str = "reduction-chain";

/// Elements of a constant that one core reads, and results of a row, at most.
const MOST_WEIGHTS: i64 = 1 << 18;
const MOST_RESULTS: i64 = 4096;
/// By how much of the saved launches the rest may take longer.
const RISE: f64 = 0.15;

/// Verdicts on equal pairs; `None` if no workgroup does a row of both.
type Known = FxHashMap<String, Option<Result<String, String>>>;

/// Visits the reductions from last to first; equal pairs have equal verdicts.
pub(super) fn apply(cx: &mut GroupGraph<'_, '_>) {
    let makers = cx.makers();
    let mut known = Known::default();
    for last in (0..cx.g.nodes.len()).rev() {
        if cx.p.root(last) == last {
            while grow(cx, &makers, last, &mut known) {}
        }
    }
}

fn is_heavy(kind: FusionKind) -> bool {
    matches!(kind, FusionKind::Reduction | FusionKind::OutElementwiseFusable)
}

/// Joins the group of node `last` with one that it reads. False when none pays.
fn grow(cx: &mut GroupGraph<'_, '_>, makers: &[Vec<usize>], last: usize, known: &mut Known) -> bool {
    let behind = cx.p.members_of(last);
    let feeding: Vec<usize> = behind.iter().flat_map(|&m| makers[m].clone()).collect();
    for maker in feeding.into_iter().filter(|m| !behind.contains(m)) {
        let front = cx.p.members_of(maker);
        if !may_join(cx, &front, &behind) {
            continue;
        }
        let [a, b] = [&front, &behind].map(|g| g.iter().map(|&m| cx.g.nodes[m].source.node()).collect::<Vec<NodeId>>());
        let key = key_of(cx.f, a.iter().chain(&b));
        let verdict = match known.get(&key) {
            Some(v) => v.clone(),
            None => known.entry(key).or_insert(judge(cx, &a, &b)).clone(),
        };
        let Some(verdict) = verdict else { continue };
        let roots = [cx.p.root(maker), cx.p.root(last)];
        let verdict = verdict.and_then(|costs| match cx.p.fits(&roots) {
            true => Ok(costs),
            false => Err(format!("the kernel would have more bindings than {}", cx.target.profile.name)),
        });
        let name = |i: usize| cx.f.nodes[cx.g.nodes[i].source.node()].name;
        match verdict {
            Ok(costs) => {
                let nodes: Vec<usize> = front.iter().chain(&behind).copied().collect();
                cx.p.join(maker, last);
                cx.p.raise_kind(last, FusionKind::OutElementwiseFusable);
                let mut made = Made::of(RULE, cx.g, &nodes);
                made.what = Some(format!("{} and {} in one workgroup: {costs}", name(maker), name(last)));
                cx.made.push(made);
                return true;
            }
            Err(why) => {
                let nodes = [maker, last].map(|i| cx.g.nodes[i].source.node()).to_vec();
                let why = format!("{} and {} not in one workgroup: {why}", name(maker), name(last));
                cx.declined.push(Declined { rule: RULE, nodes, why });
            }
        }
    }
    false
}

/// Whether the two groups become one kernel, in words; `None` if as one they still are several.
fn judge(cx: &GroupGraph<'_, '_>, front: &[NodeId], behind: &[NodeId]) -> Option<Result<String, String>> {
    let all: Vec<NodeId> = front.iter().chain(behind).copied().collect();
    let one = cx.cost(&all).ok().filter(|e| e.kernels.len() == 1)?;
    let apart = [cx.cost(front).ok()?, cx.cost(behind).ok()?];
    Some(weigh(cx, &one, &apart))
}

fn weigh(cx: &GroupGraph<'_, '_>, one: &Estimate, apart: &[Estimate; 2]) -> Result<String, String> {
    let weighed = Weighed::functions(cx.costs, one, apart);
    let words = describe(&weighed, 1.0);
    let saved = apart.iter().map(|e| e.cost.launch).sum::<f64>() - one.cost.launch;
    let longer = one.total() - apart.iter().map(Estimate::total).sum::<f64>() + saved;
    if !weighed.measured && longer > RISE * saved && !cx.target.options.asks_for(RULE) {
        let [longer, saved] = [longer, saved].map(|ns| ns / 1e3);
        return Err(format!("{words}; it takes {longer:.1} us longer for {saved:.1} us of launches"));
    }
    if weighed.one < weighed.other || cx.target.options.asks_for(RULE) { Ok(words) } else { Err(words) }
}

/// Whether both groups reduce, none has much to read, and what `front` makes is read in `behind` alone.
fn may_join(cx: &mut GroupGraph<'_, '_>, front: &[usize], behind: &[usize]) -> bool {
    let [a, b] = [front[0], behind[0]].map(|i| cx.p.root(i));
    let light = |root: usize| {
        let elements = |v| cx.f.def_op::<Const>(v).map_or(0, |_| cx.f.ty(v).numel().as_const().unwrap_or(i64::MAX));
        cx.p.reads(root).all(|v| elements(v) <= MOST_WEIGHTS)
    };
    let few = |root: usize| {
        let shape = shape_of(cx.g, cx.f, root).unwrap_or_default();
        shape.iter().skip(1).try_fold(1, |n: i64, d| n.checked_mul(d.as_const()?)).is_some_and(|n| n <= MOST_RESULTS)
    };
    let kinds = few(a) && few(b) && [a, b].iter().all(|&root| is_heavy(cx.p.group_kind(root)) && light(root));
    kinds
        && behind.iter().all(|&m| matches!(cx.g.nodes[m].source, Source::Node(_)))
        && front.iter().all(|&m| {
            let node = &cx.g.nodes[m];
            let inside = |u: &(usize, FusionKind)| front.contains(&u.0) || behind.contains(&u.0);
            matches!(node.source, Source::Node(_)) && !node.escapes && node.users.iter().all(inside)
        })
}
