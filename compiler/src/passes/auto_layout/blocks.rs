//! Layouts of one block: propagation, choice and rewrite.

use super::pins::{Decider, Pins};
use super::scheme::Scheme;
use super::{alter, choose, propagation, rewrite};
use crate::graph::{BlockId, Function, Module, NodeId};
use crate::ops::DataLayout;
use crate::passes::fusion_kind::describe_block;
use crate::passes::rewriter::{Rewriter, rewrite_functions};
use crate::passes::{FuseMode, PassBase, PassContext, PassError};
use crate::schedule::estimate::times;
use rustc_hash::FxHashMap;

/// True when an op of the function computes in NHWC.
pub(super) fn stands_in_nhwc(f: &Function) -> bool {
    f.walk().iter().any(|&n| f.nodes[n].op.layout().is_some_and(|l| l.data_layout() == DataLayout::Nhwc))
}

/// Brings the ops of a block that compute in NHWC to NCHW, where they can be converted. True when any did.
pub(super) fn channels_first(r: &mut Rewriter<'_>, block: BlockId, cx: &mut PassContext) -> Result<bool, String> {
    let scheme = Scheme { other: DataLayout::Nhwc };
    let info = describe_block(r.module, &r.f, block);
    let propagation =
        propagation::propagate_layouts(r.module, &r.f, block, &info, scheme, cx.fuse != FuseMode::Classic);
    let model = cx.costs();
    let costs = choose::Costs { f: &r.f, propagation: &propagation, scheme, model: &*model };
    let converted =
        choose::choose(costs, block, &|n| propagation.convertible.get(&n).is_some_and(|m| m.anchor).then_some(0))
            .converted;
    if converted.is_empty() {
        return Ok(false);
    }
    rewrite::rewrite_block(r, block, &propagation, scheme, &converted)?;
    Ok(true)
}

/// Runs `go` on each block. Returns whether it returned true for any, and whether anything changed.
pub(super) fn on_blocks(
    module: &mut Module,
    mut go: impl FnMut(&mut Rewriter<'_>, BlockId) -> Result<bool, String>,
) -> Result<(bool, bool), PassError> {
    let (mut any, mut failure) = (false, None);
    let changed = rewrite_functions(module, |r| {
        let mut blocks = vec![r.f.body];
        blocks.extend(r.f.walk().iter().flat_map(|&n| r.f.nodes[n].regions.clone()));
        for block in blocks {
            match go(r, block) {
                Ok(done) => any |= done,
                Err(e) => failure = failure.take().or(Some(e)),
            }
        }
    });
    match failure {
        Some(message) => Err(PassError::new("auto-layout", message)),
        None => Ok((any, changed)),
    }
}

/// Chooses and rewrites one block; true when a node converted or a transpose dissolved.
pub(super) fn visit_block(
    pass: &dyn PassBase,
    r: &mut Rewriter<'_>,
    block: BlockId,
    scheme: Scheme,
    pins: &mut Pins,
    cx: &mut PassContext,
) -> Result<bool, String> {
    let has_layout = |&n: &NodeId| r.f.nodes[n].op.layout().is_some();
    if !r.f.blocks[block].nodes.iter().any(has_layout) {
        return Ok(false);
    }
    let info = describe_block(r.module, &r.f, block);
    let propagation =
        propagation::propagate_layouts(r.module, &r.f, block, &info, scheme, cx.fuse != FuseMode::Classic);
    for (n, why) in &propagation.pinned {
        let name = r.f.nodes[*n].name;
        cx.missed(pass, &[name], format!("{name} keeps its layout: {why}"));
    }
    let model = cx.costs();
    let costs = choose::Costs { f: &r.f, propagation: &propagation, scheme, model: &*model };
    let wishes = alter::wishes(pass, r, &propagation, scheme, cx);
    let pinned = pins.colours(&r.f, &propagation, &wishes);
    let choice = choose::choose(costs, block, &|n| pinned.get(&n).map(|p| p.0));
    pins.note(&propagation, &choice);
    remark_choice(pass, costs, &choice, &pinned, cx);
    if choice.converted.is_empty() && propagation.dissolved.is_empty() {
        let message = format!(
            "@{}: all {} convertible nodes stay, estimated at {}",
            r.f.name,
            propagation.convertible.len(),
            times([choice.cost as f64])[0]
        );
        cx.missed(pass, &[], message);
        return Ok(false);
    }
    let done = rewrite::rewrite_block(r, block, &propagation, scheme, &choice.converted)?;
    // Those of packed layouts are folded, and counted, by `fold-constants`.
    cx.folded_layouts += if scheme.is_packed() { 0 } else { done.constants };
    let message = format!(
        "@{}: {} of {} convertible nodes converted, {} transposes of activations, {} constants laid out again, \
         estimated at {}",
        r.f.name,
        choice.converted.len(),
        propagation.convertible.len(),
        done.transforms,
        done.constants,
        times([choice.cost as f64])[0]
    );
    cx.applied(pass, &[], message);
    Ok(true)
}

/// One remark for each anchor: the layout it got, and what each would have cost the anchor itself.
fn remark_choice(
    pass: &dyn PassBase,
    costs: choose::Costs<'_>,
    choice: &choose::Choice,
    decided: &FxHashMap<NodeId, (u8, Decider)>,
    cx: &mut PassContext,
) {
    let mut anchors: Vec<NodeId> = costs.propagation.convertible.iter().filter(|m| m.1.anchor).map(|m| *m.0).collect();
    anchors.sort_unstable();
    for n in anchors {
        let (name, source_layout) = (costs.f.nodes[n].name, costs.propagation.convertible[&n].source_layout);
        let chosen = if choice.converted.contains(&n) { 1 - source_layout } else { source_layout };
        let [a, b] = [chosen, 1 - chosen].map(|c| (costs.scheme.layout(c).title(), costs.anchor(n, c)));
        let decider = decided.get(&n).filter(|d| d.0 == chosen).map(|d| d.1);
        let moved = choice.converted.contains(&n);
        let why = match (decider, moved) {
            // Less than a percent is not said.
            (Some(decider), _) if b.1 < a.1 - a.1 / 100 => format!("{}, against its own estimate", decider.words()),
            (Some(decider), _) => decider.words(),
            (_, true) if a.1 <= b.1 => "its kernel is no slower there".into(),
            (_, true) => "it saves transforms around it".into(),
            (_, false) if b.1 < a.1 => "moving it would not pay for the transforms around it".into(),
            (_, false) => "it takes no less time elsewhere".into(),
        };
        let [here, there] = times([a.1 as f64, b.1 as f64]);
        let costs = format!("{why} ({here} here, {there} in {})", b.0);
        match moved {
            true => cx.applied(pass, &[name], format!("{name} runs in {}: {costs}", a.0)),
            false => cx.missed(pass, &[name], format!("{name} stays in {}: {costs}", a.0)),
        }
    }
}
