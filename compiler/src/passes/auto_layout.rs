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
//! On a processor mode `auto` is NHWC, but for convolutions whose groups have fewer channels than a vector has
//! lanes and for ops that are no products: these have the cheapest layout. Transposed convolutions with such groups
//! become convolutions first (`transposed-phases`).
//!
//! On devices the choice in mode `auto` is compared with the original layouts and, if it mixes layouts, with the
//! other layout everywhere. The comparison is of the whole module after fusion (`whole.rs`), since a layout also
//! changes kernels between anchors. The cheapest is kept. Measured costs are not compared this way.
//!
//! Conditions: rank 4 only; a profile that prefers NHWC or names a packed layout (unless the mode or a callback names
//! one); a mode other than `none`.

mod alter;
mod blocks;
mod choose;
mod min_cut;
#[cfg(test)]
mod own_op;
mod pins;
mod propagation;
#[cfg(test)]
mod properties;
mod question;
#[cfg(test)]
mod random_graphs;
mod rewrite;
mod scheme;
#[cfg(test)]
mod tests;
mod whole;

use super::transposed_phases::TransposedPhases;
use super::{LayoutMode, Pass, PassBase, PassContext, PassError};
use crate::attr_struct;
use crate::graph::Module;
use crate::name::Name;
use crate::ops::DataLayout;
use blocks::{channels_first, on_blocks, stands_in_nhwc, visit_block};
use pins::Pins;
pub use question::{AlterLayout, LayoutAnswer, LayoutQuestion};
use scheme::Scheme;
pub use scheme::{TO_NCHW, TO_NHWC};

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
        let (mode, narrow) = match (self.mode.unwrap_or(cx.layout), cx.profile.machine.register_tile()) {
            // Register tiles store rows of channels, which the estimate of a product does not tell apart.
            (LayoutMode::Auto, Some([_, columns])) => (LayoutMode::Nhwc, i64::from(columns / 2)),
            (mode, _) => (mode, 0),
        };
        let mut split = false;
        if narrow > 0 && cx.profile.prefers_nhwc {
            // Convolutions of phases have a layout each.
            let phases = TransposedPhases { narrow, ..TransposedPhases::default() };
            split = cx.enabled(phases.name(), phases.opt_level()) && phases.run(module, cx)?;
        }
        let Some(scheme) = alter::wished_scheme(module, mode, cx).or_else(|| scheme_for(mode, cx)) else {
            if mode != LayoutMode::None {
                let message = format!("layouts stay: {} has no NHWC kernels", cx.profile.name);
                cx.missed(self, &[], message);
            }
            return Ok(split);
        };
        let mut changed = split | on_blocks(module, |r, block| alter::replace_ops(self, r, block, cx))?.1;
        let mut pins = Pins::new([&self.nchw, &self.nhwc, &self.packed], mode, scheme);
        pins.narrow = narrow;
        let start = (mode == LayoutMode::Auto).then(|| whole::Start::of(module, cx));
        let before = (scheme.is_packed() && module.functions.values().any(stands_in_nhwc)).then(|| module.clone());
        if before.is_some() {
            on_blocks(module, |r, block| channels_first(r, block, cx))?;
        }
        let (converted, rewritten) = on_blocks(module, |r, block| visit_block(self, r, block, scheme, &mut pins, cx))?;
        match before {
            Some(before) if !converted => *module = before,
            _ => changed |= rewritten,
        }
        if let Some(start) = start.filter(|_| converted || cx.costs().measures_functions()) {
            whole::weigh(self, module, start, &pins, cx)?;
        }
        for why in pins.unused() {
            cx.missed(self, &[], why);
        }
        Ok(changed)
    }
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
