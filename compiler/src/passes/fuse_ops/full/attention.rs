//! `attention`: a product, a softmax of its rows and a second product become one kernel.
//!
//! ```text
//! matmul + add ─ softmax ─ matmul    =>    matmul + add + softmax + matmul, whose scores stay in workgroup memory
//! ```
//!
//! It applies if the intermediate values have no other users, if the schedule rule `attention` takes the group, and if
//! one kernel is estimated cheaper than several, or the rule was requested by name. The pattern is recognised by
//! structure: product, row reductions with a maximum, product. One kernel stores no scores, but each block of rows
//! reads all keys and values.
//!
//! All scores of a block of rows are in workgroup memory. Maximum and sum are computed from there before the second
//! product, so accumulators are never rescaled and no score is computed twice. If a row of scores does not fit into
//! workgroup memory, several kernels remain, with a remark: that would need accumulators in workgroup memory per block
//! of keys.
//!
//! Both products are those of `matmul-tiled` or `matmul-matrix`; the estimates of the scheduled candidates decide
//! which, and how many rows a block has. Matrix units are used if all operands are f16 in memory, also the softmax's
//! results. Software devices keep several kernels; matrix units need a request there (`--rules
//! attention,matmul-matrix`).

use super::super::forward::Source;
use super::super::forward::key_of;
use super::{Declined, GroupGraph, Made, describe};
use crate::cost::Weighed;
use crate::graph::{NodeId, ValueId};
use crate::ops::control::Const;
use crate::passes::fusion_kind::group_expression;
use crate::schedule::estimate::Estimate;
use crate::schedule::rules::one_kernel;
use crate::tir::{BufferId, FusionKind};
use rustc_hash::FxHashMap;

pub(super) const RULE: &str = "attention";

/// Runs over the anchors, first to last; equal nodes have equal verdicts.
pub(super) fn apply(cx: &mut GroupGraph<'_, '_>) {
    let makers = cx.makers();
    let mut known: FxHashMap<String, Option<Result<String, String>>> = FxHashMap::default();
    for last in 0..cx.g.nodes.len() {
        let anchor = cx.g.nodes[last].kind == FusionKind::OutElementwiseFusable && reductions(cx, &[last]) == 1;
        if !anchor {
            continue;
        }
        for groups in chains(cx, &makers, last) {
            let key = key_of(cx.f, nodes_of(cx, &groups.concat()).iter());
            let verdict = match known.get(&key) {
                Some(v) => v.clone(),
                None => known.entry(key).or_insert(judge(cx, &groups)).clone(),
            };
            let Some(verdict) = verdict else { continue };
            settle(cx, &groups, verdict);
            break;
        }
    }
}

/// Merges the groups of a chain, or says why not.
fn settle(cx: &mut GroupGraph<'_, '_>, groups: &[Vec<usize>], verdict: Result<String, String>) {
    let roots: Vec<usize> = groups.iter().map(|g| cx.p.root(g[0])).collect();
    let verdict = verdict.and_then(|costs| match cx.p.fits(&roots) {
        true => Ok(costs),
        false => Err(format!("the kernel would have too many nodes, or more bindings than {}", cx.target.profile.name)),
    });
    let nodes = nodes_of(cx, &groups.concat());
    let last = groups[groups.len() - 1][0];
    let name = |i: usize| cx.f.nodes[cx.g.nodes[i].source.node()].name;
    let names = [0, groups.len() - 1].map(|at| name(cx.p.anchor(roots[at]).unwrap_or(groups[at][0])));
    match verdict {
        Ok(costs) => {
            for pair in groups.windows(2) {
                cx.p.join(pair[0][0], pair[1][0]);
            }
            cx.p.raise_kind(last, FusionKind::OutElementwiseFusable);
            let what = format!("{} to {} in one kernel: {costs}", names[0], names[1]);
            cx.made.push(Made { rule: RULE, nodes, what: Some(what) });
        }
        Err(why) => {
            let why = format!("{} to {} not one kernel: {why}", names[0], names[1]);
            cx.declined.push(Declined { rule: RULE, nodes, why });
        }
    }
}

fn nodes_of(cx: &GroupGraph<'_, '_>, members: &[usize]) -> Vec<NodeId> {
    let mut members = members.to_vec();
    members.sort_unstable();
    members.into_iter().map(|m| cx.g.nodes[m].source.node()).collect()
}

/// Reductions of some nodes.
fn reductions(cx: &GroupGraph<'_, '_>, members: &[usize]) -> usize {
    members.iter().map(|&m| cx.info.get(&cx.g.nodes[m].source.node()).map_or(0, |i| i.reductions)).sum()
}

/// The groups, first to last, that may be attention with second product `last`: a product, row reductions, `last`, and
/// the groups between them. All results except those of the last group are used only inside.
fn chains(cx: &mut GroupGraph<'_, '_>, makers: &[Vec<usize>], last: usize) -> Vec<Vec<Vec<usize>>> {
    let own = cx.p.members_of(last);
    if own.iter().any(|&m| !matches!(cx.g.nodes[m].source, Source::Node(_))) || reductions(cx, &own) != 1 {
        return vec![];
    }
    let mut out = Vec::new();
    for rows in behind(cx, makers, vec![own], &|n| n > 1) {
        out.extend(behind(cx, makers, rows, &|n| n == 1));
    }
    out
}

/// The groups with one more in front that has so many reductions, and light ones on the way there.
fn behind(
    cx: &mut GroupGraph<'_, '_>,
    makers: &[Vec<usize>],
    groups: Vec<Vec<usize>>,
    wanted: &dyn Fn(usize) -> bool,
) -> Vec<Vec<Vec<usize>>> {
    let inside: Vec<usize> = groups.concat();
    let mut seen: Vec<usize> = Vec::new();
    let mut out = Vec::new();
    for maker in groups[0].iter().flat_map(|&m| makers[m].clone()).collect::<Vec<usize>>() {
        let root = cx.p.root(maker);
        let kind = cx.p.group_kind(root);
        let known = inside.contains(&maker) || seen.contains(&root);
        seen.push(root);
        let members = cx.p.members_of(maker);
        let closed = members.iter().all(|&m| {
            let node = &cx.g.nodes[m];
            let stays = |u: &(usize, FusionKind)| members.contains(&u.0) || inside.contains(&u.0);
            matches!(node.source, Source::Node(_)) && !node.escapes && node.users.iter().all(stays)
        });
        if known || !closed {
            continue;
        }
        let more: Vec<Vec<usize>> = std::iter::once(members.clone()).chain(groups.iter().cloned()).collect();
        match kind {
            FusionKind::OutElementwiseFusable if wanted(reductions(cx, &members)) => out.push(more),
            k if k <= FusionKind::Injective => out.extend(behind(cx, makers, more, wanted)),
            _ => {}
        }
    }
    out
}

/// Whether the groups are cheaper as one kernel, in words; `None` where they are no attention.
fn judge(cx: &GroupGraph<'_, '_>, groups: &[Vec<usize>]) -> Option<Result<String, String>> {
    let all = nodes_of(cx, &groups.concat());
    let (te, outside, _) = group_expression(cx.module, cx.f, &all).ok()?;
    let constant = |v: &ValueId| cx.f.def_op::<Const>(*v).is_some();
    let constants: Vec<BufferId> = outside.iter().filter(|o| constant(o.0)).map(|o| *o.1).collect();
    let kernel = match one_kernel(&te, &constants, cx.target)? {
        Ok(kernel) => kernel,
        Err(why) => return Some(Err(why)),
    };
    let asks = cx.costs.measures_functions();
    let known = asks.then(|| cx.costs.function(&te, &constants).as_ref().as_ref().ok().cloned()).flatten();
    let (measured, asked) = known.map_or((None, None), |e| (e.measured, e.asked));
    let one = Estimate { cost: kernel.cost, kernels: vec![kernel], measured, asked };
    let costs = groups.iter().map(|g| cx.cost(&nodes_of(cx, g))).collect::<Result<Vec<_>, String>>();
    Some(costs.and_then(|apart| {
        let weighed = Weighed::functions(cx.costs, &one, &apart);
        let words = describe(&weighed, 1.0);
        let taken = weighed.one < weighed.other || cx.target.options.asks_for(RULE);
        if taken { Ok(words) } else { Err(words) }
    }))
}
