//! Rules for subgroups: loops over subgroups and lanes, and operations on matrices.

use super::tensor::Verifier;
use crate::tir::intrinsic::{Intrinsic, Nest};
use crate::tir::{Block, For, LoopKind, Scope};

impl Verifier<'_> {
    /// Where a loop over subgroups, over lanes, or of an operation stands.
    pub(super) fn subgroups(&mut self, place: &str, l: &For) {
        let around = |kinds: fn(&LoopKind) -> bool| self.loops.iter().any(|o| kinds(&o.1));
        let shared_out =
            around(|k| matches!(k, LoopKind::Local(_) | LoopKind::Lane | LoopKind::Vectorize | LoopKind::Combine));
        let subgroup = around(|k| matches!(k, LoopKind::Subgroup(_)));
        match l.kind {
            LoopKind::Lane if shared_out || !subgroup => {
                self.error(place, "the lanes of a subgroup share out loops inside one over subgroups alone");
            }
            LoopKind::Subgroup(_) if shared_out => {
                self.error(place, "a loop over subgroups stands inside one that threads share out");
            }
            LoopKind::Local(_) if around(|k| *k == LoopKind::Lane) => {
                self.error(place, "threads share out a loop inside one that lanes share out");
            }
            LoopKind::Tensor if self.loops.last().is_none_or(|o| o.1 != LoopKind::Tensor) => {
                self.operation(place, l, !shared_out && subgroup);
            }
            _ => {}
        }
    }

    /// The loops and the block are what an intrinsic's description says; subgroups do some of them as a whole.
    fn operation(&mut self, place: &str, l: &For, by_subgroups: bool) {
        let nest = match Nest::under(l) {
            Ok(nest) => nest,
            Err(m) => return self.error(place, format!("`{}` {}", m.culprit, m.message)),
        };
        let Some(intrinsic) = Intrinsic::of_nest(self.f, &nest) else {
            return self.error(place, "is no operation of a device: none goes through such memory in so many loops");
        };
        if intrinsic.is_collective() && !by_subgroups {
            self.error(place, "an operation on matrices stands inside a loop over subgroups alone");
        }
        let f = self.f;
        let unified = intrinsic.unify(f, &nest, self.bounds.get_or_init(|| f.bounds()));
        if let Err(m) = unified {
            self.error(place, format!("`{}` {}", m.culprit, m.message));
        }
    }

    /// In a kernel, fragments are accessed by operations on matrices alone.
    pub(super) fn fragments(&mut self, place: &str, b: &Block) {
        if self.kernel.is_none() || self.loops.last().is_some_and(|l| l.1 == LoopKind::Tensor) {
            return;
        }
        let is_fragment = |id| self.f.buffers.get(id).is_some_and(|b| matches!(b.scope, Scope::Fragment(_)));
        if is_fragment(b.buffer) || b.value.loads().into_iter().any(|l| is_fragment(l.0)) {
            self.error(place, "accesses a fragment outside of an operation on matrices");
        }
    }
}
