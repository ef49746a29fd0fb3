//! auto-layout: runs convolutions, pools and everything between them in the layout that costs least.
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
//! After OneFlow's auto-NHWC, in three steps. *Frames*: an op with a layout rule says in which layout its data stand, and
//! that spreads through every op whose index maps allow it: ops that carry axes answer `Op::permuted`, elementwise and
//! broadcasting ops of any rank follow from their tensor expressions. Transposes between the two layouts dissolve:
//! their result is the same tensor in the other layout. *Choice*: a minimum cut over the whole block, one transform per
//! value and layout. *Rewrite*. Constants are laid out again at compile time; a transposition that only moves dimensions
//! of size 1 is a reshape and costs nothing. Weights keep their order, since layout rules say which operands move.
//!
//! Guards: rank 4 only, a profile that prefers NHWC, a mode other than `none`.

mod choose;
mod frames;
mod min_cut;
mod rewrite;
#[cfg(test)]
mod tests;

use super::fusion_kind::describe_block;
use super::rewriter::{Rewriter, rewrite_functions};
use super::{FuseMode, LayoutMode, Pass, PassContext, PassError};
use crate::attr_struct;
use crate::graph::{BlockId, Function, Module, NodeId, TensorType};
use crate::int::Int;
use crate::name::Name;

/// From NCHW to NHWC.
pub const TO_NHWC: [usize; 4] = [0, 2, 3, 1];
/// From NHWC to NCHW.
pub const TO_NCHW: [usize; 4] = [0, 3, 1, 2];

/// What layouts cost, in bytes of memory traffic or any other unit: only comparisons count.
pub trait LayoutCost {
    /// Transposing a value by `perm`; 0 where that moves no data.
    fn transform(&self, ty: &TensorType, perm: &[usize]) -> u64;
    /// Running an anchor in NHWC or NCHW.
    fn anchor(&self, f: &Function, n: NodeId, nhwc: bool) -> u64;
}
pub use choose::AnalyticCost;

attr_struct! {
    /// Chooses data layouts.
    pub struct AutoLayout("auto-layout") {
        /// `auto`, `nchw`, `nhwc` or `none`; the context's mode where absent.
        pub mode: Option<LayoutMode> = None,
        /// Nodes that stay in NCHW.
        pub nchw: Vec<Name> = vec![],
        /// Nodes that run in NHWC.
        pub nhwc: Vec<Name> = vec![],
    }
}

impl Pass for AutoLayout {
    fn opt_level(&self) -> u8 {
        1
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let mode = self.mode.unwrap_or(cx.layout);
        if mode == LayoutMode::None {
            return Ok(false);
        }
        if !cx.profile.prefers_nhwc && mode != LayoutMode::Nchw {
            let message = format!("layouts stay: {} has no NHWC kernels", cx.profile.name);
            cx.missed(self, &[], message);
            return Ok(false);
        }
        let mut failure = None;
        let changed = rewrite_functions(module, |r| {
            let mut blocks = vec![r.f.body];
            blocks.extend(r.f.walk().iter().flat_map(|&n| r.f.nodes[n].regions.clone()));
            for block in blocks {
                if let Err(e) = self.visit_block(r, block, mode, cx) {
                    failure.get_or_insert(e);
                }
            }
        });
        match failure {
            Some(message) => Err(PassError::new("auto-layout", message)),
            None => Ok(changed),
        }
    }
}

impl AutoLayout {
    fn visit_block(
        &self,
        r: &mut Rewriter<'_>,
        block: BlockId,
        mode: LayoutMode,
        cx: &mut PassContext,
    ) -> Result<(), String> {
        let has_layout = |&n: &NodeId| r.f.nodes[n].op.layout().is_some();
        if !r.f.blocks[block].nodes.iter().any(has_layout) {
            return Ok(());
        }
        let info = describe_block(r.module, &r.f, block);
        let frames = frames::find_frames(r.module, &r.f, block, &info, cx.fuse != FuseMode::Classic);
        for (n, why) in &frames.pinned {
            let name = r.f.nodes[*n].name;
            cx.missed(self, &[name], format!("{name} keeps its layout: {why}"));
        }
        let pin = |n: NodeId| {
            let name = r.f.nodes[n].name;
            let anchor = frames.movable.get(&n).is_some_and(|m| m.anchor);
            match mode {
                _ if self.nchw.contains(&name) => Some(0),
                _ if self.nhwc.contains(&name) => Some(1),
                LayoutMode::Nchw if anchor => Some(0),
                LayoutMode::Nhwc if anchor => Some(1),
                _ => None,
            }
        };
        let costs = cx.layout_cost.clone();
        let costs: &dyn LayoutCost = match &costs {
            Some(c) => &**c,
            None => &AnalyticCost,
        };
        let choice = choose::choose(&r.f, block, &frames, costs, &pin);
        self.remark_choice(r, &frames, &choice, costs, cx);
        if choice.moved.is_empty() && frames.dissolved.is_empty() {
            return Ok(());
        }
        let done = rewrite::rewrite_block(r, block, &frames, &choice.moved)?;
        let message = format!(
            "@{}: {} of {} movable nodes moved, {} transposes of activations, {} constants laid out again, cost {}",
            r.f.name,
            choice.moved.len(),
            frames.movable.len(),
            done.transforms,
            done.constants,
            choice.cost
        );
        cx.applied(self, &[], message);
        Ok(())
    }

    /// One remark for each anchor: the layout it got, and what each would have cost the anchor itself.
    fn remark_choice(
        &self,
        r: &Rewriter<'_>,
        frames: &frames::Frames,
        choice: &choose::Choice,
        costs: &dyn LayoutCost,
        cx: &mut PassContext,
    ) {
        let mut anchors: Vec<NodeId> = frames.movable.iter().filter(|m| m.1.anchor).map(|m| *m.0).collect();
        anchors.sort_unstable();
        for n in anchors {
            let name = r.f.nodes[n].name;
            let cost = |nhwc: bool| costs.anchor(&r.f, n, nhwc);
            if choice.moved.contains(&n) {
                cx.applied(
                    self,
                    &[name],
                    format!("{name} runs in NHWC: it costs {} there, {} in NCHW", cost(true), cost(false)),
                );
            } else {
                cx.missed(
                    self,
                    &[name],
                    format!("{name} stays in NCHW: moving it would not pay for the transposes around it"),
                );
            }
        }
    }
}

/// True when a transposition by `perm` keeps the order of the elements: only dimensions of size 1 move.
pub fn moves_no_data(shape: &[Int], perm: &[usize]) -> bool {
    perm.iter().filter(|&&p| !shape[p].is(1)).is_sorted()
}
