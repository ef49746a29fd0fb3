//! auto-layout: runs convolutions, pools and the ops between them in the cheapest layout.
//!
//! ```text
//! %0 = conv %x, %w              %t = transpose %x {perm=[0,2,3,1]}
//! %1 = relu %0           =>     %0 = conv %t, %w {layout=nhwc}
//! %2 = conv %1, %v              %1 = relu %0
//! return %2                     %2 = conv %1, %v {layout=nhwc}
//!                               %u = transpose %2 {perm=[0,3,1,2]}
//!                               return %u
//! ```
//!
//! It follows OneFlow's auto-NHWC, in three steps:
//!
//! 1. *Layout propagation*: an op with a layout rule says the layout of its data. That spreads through every op whose
//!    index maps allow it: ops with axes answer `Op::permuted`; for elementwise and broadcasting ops of any rank it
//!    follows from their tensor expressions. A transpose between the two layouts is removed: its result is the same
//!    tensor in the other layout.
//! 2. *Choice*: a minimum cut over the whole block, with one transform per value and layout.
//! 3. *Rewrite*: constants are transformed at compile time. A transposition that only moves dimensions of size 1 is a
//!    reshape and costs nothing. Weights keep their order, since layout rules say which operands move.
//!
//! The same steps choose between NCHW and a packed layout (`nchw4c`, `nchw8c`, `nchw16c`), as TVM's AlterOpLayout does
//! for a target. Convolutions run packed if their channels divide into groups, and the ops between them follow.
//! `layout_transform`s are inserted at the borders; those of constants are folded by `fold-constants`. Ops answer
//! `Op::packed`; an op that accesses single channels of a group refuses (padding or slicing of channels, prelu, lrn).
//!
//! If a packed layout is considered and convolutions are in NHWC, they are converted to NCHW first; if none is packed
//! then, the conversion is undone. `simplify` joins changes between NHWC and the packed layout.
//!
//! Callbacks ([`AlterLayout`], like TVM's FTVMAlterOpLayout) may set the layout of an op on a target, or replace the
//! op. Options of the pass have priority over callbacks, and callbacks over the mode.
//!
//! In mode `auto` the choice is compared with the original layouts and, if it mixes layouts, with the other layout
//! everywhere. The comparison is of the whole module after fusion (`whole.rs`), since a layout also changes kernels
//! between anchors. The cheapest is kept. Measured costs are not compared this way.
//!
//! Conditions: rank 4 only; a profile that prefers NHWC or names a packed layout (unless the mode or a callback names
//! one); a mode other than `none`.

mod alter;
mod choose;
mod min_cut;
#[cfg(test)]
mod own_op;
mod pins;
mod propagation;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod random_graphs;
mod rewrite;
mod scheme;
#[cfg(test)]
mod tests;
mod whole;

use super::fusion_kind::describe_block;
use super::rewriter::{Rewriter, rewrite_functions};
use super::{FuseMode, LayoutMode, Pass, PassContext, PassError};
use crate::attr_struct;
use crate::graph::{BlockId, Function, Module, NodeId};
use crate::name::Name;
use crate::ops::DataLayout;
use crate::schedule::estimate::times;
pub use alter::{AlterLayout, LayoutAnswer, LayoutQuestion};
use pins::{Anchors, Pins};
use rustc_hash::FxHashMap;
use scheme::Scheme;

/// From NCHW to NHWC.
pub const TO_NHWC: [usize; 4] = [0, 2, 3, 1];
/// From NHWC to NCHW.
pub const TO_NCHW: [usize; 4] = [0, 3, 1, 2];

attr_struct! {
    /// Chooses data layouts. Names of nodes may hold `*`, which matches anything.
    pub struct AutoLayout("auto-layout") {
        /// `auto`, `nchw`, `nhwc`, `nchw4c`, `nchw8c`, `nchw16c` or `none`; absent means the context's mode.
        pub mode: Option<LayoutMode> = None,
        /// Nodes that stay in NCHW.
        pub nchw: Vec<Name> = vec![],
        /// Nodes that run in NHWC.
        pub nhwc: Vec<Name> = vec![],
        /// Nodes that run in the packed layout.
        pub packed: Vec<Name> = vec![],
    }
}

impl Pass for AutoLayout {
    fn opt_level(&self) -> u8 {
        1
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let mode = match self.mode.unwrap_or(cx.layout) {
            // Register tiles store rows of channels, which the estimate of a product does not tell apart.
            LayoutMode::Auto if cx.profile.machine.register_tile().is_some() => LayoutMode::Nhwc,
            mode => mode,
        };
        let Some(scheme) = alter::wished_scheme(module, mode, cx).or_else(|| scheme_for(mode, cx)) else {
            if mode != LayoutMode::None {
                let message = format!("layouts stay: {} has no NHWC kernels", cx.profile.name);
                cx.missed(self, &[], message);
            }
            return Ok(false);
        };
        let mut changed = self.on_blocks(module, |r, block| alter::replace_ops(self, r, block, cx))?.1;
        let mut pins = Pins::new(self, mode, scheme);
        let start = (mode == LayoutMode::Auto).then(|| whole::Start::of(module, cx));
        let before = (scheme.is_packed() && module.functions.values().any(stands_in_nhwc)).then(|| module.clone());
        if before.is_some() {
            self.on_blocks(module, |r, block| channels_first(r, block, cx))?;
        }
        let (converted, rewritten) =
            self.on_blocks(module, |r, block| self.visit_block(r, block, scheme, &mut pins, cx))?;
        match before {
            Some(before) if !converted => *module = before,
            _ => changed |= rewritten,
        }
        if let Some(start) = start.filter(|_| converted || cx.costs().measures_functions()) {
            self.weigh_whole(module, start, &pins, cx)?;
        }
        for why in pins.unused() {
            cx.missed(self, &[], why);
        }
        Ok(changed)
    }
}

/// True when an op of the function computes in NHWC.
fn stands_in_nhwc(f: &Function) -> bool {
    f.walk().iter().any(|&n| f.nodes[n].op.layout().is_some_and(|l| l.data_layout() == DataLayout::Nhwc))
}

/// Brings the ops of a block that compute in NHWC to NCHW, where they can be converted. True when any did.
fn channels_first(r: &mut Rewriter<'_>, block: BlockId, cx: &mut PassContext) -> Result<bool, String> {
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

/// The layouts to choose between; `None` if the pass must not run.
fn scheme_for(mode: LayoutMode, cx: &PassContext) -> Option<Scheme> {
    let other = match mode {
        LayoutMode::None => return None,
        LayoutMode::Nchw => DataLayout::Nhwc,
        LayoutMode::Nhwc => return cx.profile.prefers_nhwc.then_some(Scheme { other: DataLayout::Nhwc }),
        LayoutMode::Nchw4c => DataLayout::Nchw4c,
        LayoutMode::Nchw8c => DataLayout::Nchw8c,
        LayoutMode::Nchw16c => DataLayout::Nchw16c,
        LayoutMode::Auto => match cx.profile.packed_channels {
            4 => DataLayout::Nchw4c,
            8 => DataLayout::Nchw8c,
            16 => DataLayout::Nchw16c,
            _ if cx.profile.prefers_nhwc => DataLayout::Nhwc,
            _ => return None,
        },
    };
    Some(Scheme { other })
}

impl AutoLayout {
    /// Runs `go` on each block. Returns whether it returned true for any, and whether anything changed.
    fn on_blocks(
        &self,
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
    fn visit_block(
        &self,
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
            cx.missed(self, &[name], format!("{name} keeps its layout: {why}"));
        }
        let model = cx.costs();
        let costs = choose::Costs { f: &r.f, propagation: &propagation, scheme, model: &*model };
        let wishes = alter::wishes(self, r, &propagation, scheme, cx);
        let pinned = pins.colours(&r.f, &propagation, &wishes);
        let choice = choose::choose(costs, block, &|n| pinned.get(&n).copied());
        pins.note(&propagation, &choice);
        self.remark_choice(costs, &choice, &pinned, pins.anchors != Anchors::Free, cx);
        if choice.converted.is_empty() && propagation.dissolved.is_empty() {
            let message = format!(
                "@{}: all {} convertible nodes stay, estimated at {}",
                r.f.name,
                propagation.convertible.len(),
                times([choice.cost as f64])[0]
            );
            cx.missed(self, &[], message);
            return Ok(false);
        }
        let done = rewrite::rewrite_block(r, block, &propagation, scheme, &choice.converted)?;
        // Those of packed layouts are folded, and counted, by `fold-constants`.
        cx.folded_layouts += if scheme.is_packed() { 0 } else { done.constants };
        let message = format!(
            "@{}: {} of {} convertible nodes converted, {} transposes of activations, {} constants laid out again, estimated at {}",
            r.f.name,
            choice.converted.len(),
            propagation.convertible.len(),
            done.transforms,
            done.constants,
            times([choice.cost as f64])[0]
        );
        cx.applied(self, &[], message);
        Ok(true)
    }

    /// One remark for each anchor: the layout it got, and what each would have cost the anchor itself.
    fn remark_choice(
        &self,
        costs: choose::Costs<'_>,
        choice: &choose::Choice,
        pinned: &FxHashMap<NodeId, u8>,
        uniform: bool,
        cx: &mut PassContext,
    ) {
        let mut anchors: Vec<NodeId> =
            costs.propagation.convertible.iter().filter(|m| m.1.anchor).map(|m| *m.0).collect();
        anchors.sort_unstable();
        for n in anchors {
            let (name, source_layout) = (costs.f.nodes[n].name, costs.propagation.convertible[&n].source_layout);
            let chosen = if choice.converted.contains(&n) { 1 - source_layout } else { source_layout };
            let [a, b] = [chosen, 1 - chosen].map(|c| (costs.scheme.layout(c).title(), costs.anchor(n, c)));
            let fixed = pinned.get(&n).is_some_and(|&c| c == chosen);
            let moved = choice.converted.contains(&n);
            let why = match (fixed, moved) {
                (true, _) if uniform => "the module as a whole is cheaper so",
                (true, _) => "it is pinned there",
                (_, true) if a.1 <= b.1 => "its kernel is no slower there",
                (_, true) => "it saves transforms around it",
                (_, false) if b.1 < a.1 => "moving it would not pay for the transforms around it",
                (_, false) => "it takes no less time elsewhere",
            };
            let [here, there] = times([a.1 as f64, b.1 as f64]);
            let costs = format!("{why} ({here} here, {there} in {})", b.0);
            match moved {
                true => cx.applied(self, &[name], format!("{name} runs in {}: {costs}", a.0)),
                false => cx.missed(self, &[name], format!("{name} stays in {}: {costs}", a.0)),
            }
        }
    }
}
