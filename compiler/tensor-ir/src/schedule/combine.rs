//! `combine`: the threads of a workgroup combine their partial results in one operation.
//!
//! Before -> after, `combine {loop=t}`:
//!
//! ```text
//! for part_t in 32 local_x:                for part_t in 32 local_x:
//!   part: part[part_t] = ...   (shared)      part: part[part_t] = ...   (one element a thread)
//! for t in 32:                             for t in 32 combine:
//!   b: y += part[t]                          b: y += part[t]
//! ```
//!
//! The loop computes the same as before, in an order that the device chooses: each subgroup combines the values of its
//! threads, and several subgroups exchange their results through workgroup memory. The partial results of the threads
//! are then in registers. The size and the number of subgroups are known only when the kernel runs.

use super::loops::{find_loop, find_loop_mut};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::dtype::DType;
use crate::name::Name;
use crate::tir::{BufferId, Expr, LoopKind, Scope, Stmt, TensorFunction};

attr_struct! {
    /// Lets subgroups run a reduction over the values that the threads along x stored.
    pub struct Combine("combine") {
        /// The reduction loop: as many iterations as there are threads.
        pub r#loop: Name = "".into(),
    }
}

/// True for types that subgroups combine exactly as single threads do: whole words, which need no rounding or wrapping.
pub(super) fn combines(t: DType) -> bool {
    matches!(t, DType::F32 | DType::I32 | DType::U32)
}

impl Combine {
    /// The partial results, their dimension of threads, and the number of these.
    fn partial(&self, f: &TensorFunction) -> Result<(BufferId, usize, u32), Refusal> {
        let at = |text: String| Refusal::at(self.r#loop, text);
        let l = find_loop(f, self.r#loop)?;
        if l.kind != LoopKind::Serial {
            return Err(at("only a serial loop can be combined".into()));
        }
        let Stmt::Block(b) = &l.body else { return Err(at("must be around a block alone".into())) };
        if b.reduce.is_none_or(|r| r.init) || !b.guards.is_empty() {
            let text = "is no reduction without conditions whose identity another block sets (`decompose-reduction`)";
            return Err(Refusal::at(b.name, text));
        }
        let size = l.extent.as_const().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 1 && n.is_power_of_two());
        let size = size.ok_or_else(|| at(format!("runs {} times, not a power of two from 2", l.extent)))?;
        let Expr::Load(part, ix) = &b.value else {
            return Err(Refusal::at(b.name, "does more than load what each thread stored"));
        };
        let dim = ix.iter().position(|i| i.as_var() == Some(l.var));
        let others = ix.iter().filter(|i| i.uses(l.var)).count();
        let dim = dim.filter(|_| others == 1).ok_or_else(|| at("is no index of what it combines".into()))?;
        let (held, made) = (&f.buffers[*part], &f.buffers[b.buffer]);
        if held.scope != Scope::Shared || made.scope != Scope::Register {
            return Err(Refusal::at(b.name, "does not combine workgroup memory into registers"));
        }
        if held.dtype != made.dtype || !combines(held.dtype) {
            return Err(Refusal::at(b.name, format!("combines {} into {}", held.dtype, made.dtype)));
        }
        if let Some(other) = f.body.blocks().into_iter().find(|o| o.name != b.name && o.reads(*part)) {
            return Err(Refusal::at(other.name, format!("reads `{}`, too", held.name)));
        }
        Ok((*part, dim, size))
    }
}

impl Instruction for Combine {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let (part, dim, size) = self.partial(f)?;
        f.buffers[part].scope = Scope::Subgroup { lane_dim: dim as u32, size };
        find_loop_mut(f, self.r#loop)?.kind = LoopKind::Combine;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    const SHARED: [&str; 6] = [
        "compute-at {block=sum, at=y_i0, scope=register}",
        "split {loop=sum_r0, factors=[0, 8], into=[so, si]}",
        "rfactor {block=sum, loop=si, into=part, scope=shared, at=y_i0, axis=local_x}",
        "split {loop=y_i1, factors=[0, 8], into=[yo, yi]}",
        "bind {loop=yi, axis=local_x}",
        "decompose-reduction {block=sum, at=si}",
    ];

    #[test]
    fn threads_combine_their_parts_of_a_row() {
        let f = softmax(3, 21);
        let steps: Vec<&str> = SHARED.iter().copied().chain(["combine {loop=si}", "cut-kernel {}"]).collect();
        let g = scheduled(&f, &steps);
        assert!(crate::schedule::print_loops(&g, &g.body, None).contains("for si in 8 combine"));
        assert_same(&f, &g);
    }

    #[test]
    fn what_threads_do_not_hold_is_refused() {
        let f = softmax(3, 21);
        assert!(refusal(&f, "combine {loop=sum_r0}").contains("decompose-reduction"));
        let steps = |n: usize| scheduled(&f, &SHARED[..n]);
        assert!(refusal(&steps(5), "combine {loop=si}").contains("decompose-reduction"));
        assert!(refusal(&steps(6), "combine {loop=part_si}").contains("serial"));
    }
}
