//! `merge-buffers`: joins two register buffers if no thread uses both, or two of workgroup memory if the last use
//! of one is before the first of the other. That is proved. Barriers are derived later, from the accesses to the
//! one buffer. Workgroup memory of different shapes becomes a buffer of one dimension.
//!
//! Before -> after, `merge-buffers {buffer=bn, into=an}`:
//!
//! ```text
//! for x in 0..4 local_x:            for x in 0..4 local_x:
//!   a: an[0] = p[x]                   a: an[0] = p[x]
//! for y in 0..8 local_x:            for y in 0..8 local_x:
//!   b: bn[0] = q[y - 4]   if y >= 4   b: an[0] = q[y - 4]   if y >= 4
//! ```

use super::accesses::{replace_buffer, rewrite_accesses};
use super::loops::find_buffer;
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::check::threads_at;
use crate::int::{self, Int, Interval};
use crate::name::Name;
use crate::tir::{BufferId, LoopKind, Scope, Stmt, TensorFunction};

attr_struct! {
    /// Gives two buffers of registers, or of workgroup memory, one place.
    pub struct MergeBuffers("merge-buffers") {
        /// The buffer that is removed.
        pub buffer: Name = "".into(),
        /// The buffer that stays.
        pub into: Name = "".into(),
    }
}

impl Instruction for MergeBuffers {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let (from, into) = (find_buffer(f, self.buffer)?, find_buffer(f, self.into)?);
        let (a, b) = (&f.buffers[from], &f.buffers[into]);
        let near = a.scope == b.scope && matches!(a.scope, Scope::Register | Scope::Shared);
        if from == into || !near {
            let text = format!(
                "`{}` and `{}` are not two buffers of registers or of workgroup memory",
                self.buffer, self.into
            );
            return Err(Refusal::at(self.buffer, text));
        }
        let other_shape = a.shape != b.shape;
        if (a.dtype, a.encoding) != (b.dtype, b.encoding) || other_shape && a.scope != Scope::Shared {
            return Err(Refusal::at(self.buffer, format!("is not of the type and shape of `{}`", self.into)));
        }
        if a.scope == Scope::Shared {
            if !one_after_another(&f.body, from, into) {
                let text = format!("uses of `{}` and `{}` are not one after another", self.buffer, self.into);
                return Err(Refusal::at(self.buffer, text));
            }
            if other_shape {
                let sizes = [flatten(f, from), flatten(f, into)];
                let [Some(a), Some(b)] = sizes.map(|s| s.as_const()) else {
                    return Err(Refusal::at(self.buffer, "is of another shape, and a size is open"));
                };
                f.buffers[into].shape = vec![Int::new(a.max(b))];
            }
            replace_buffer(f, from, into);
            return Ok(());
        }
        let others = threads_at(f, into);
        for (block, own) in threads_at(f, from) {
            let apart = |theirs: &[Interval; 3]| own.iter().zip(theirs).any(|(x, y)| x.high < y.low || y.high < x.low);
            if let Some((other, _)) = others.iter().find(|(_, theirs)| !apart(theirs)) {
                let text = format!("threads that use `{}` may use `{}` too, in `{other}`", self.buffer, self.into);
                return Err(Refusal::at(block, text));
            }
        }
        replace_buffer(f, from, into);
        Ok(())
    }
}

/// Lets all accesses of a buffer go by the place of the element; returns how many it has.
fn flatten(f: &mut TensorFunction, buffer: BufferId) -> Int {
    let shape = f.buffers[buffer].shape.clone();
    rewrite_accesses(f, buffer, &|ix| vec![int::flatten_index(ix, &shape)]);
    int::product(&shape)
}

fn uses(s: &Stmt, buffer: BufferId) -> bool {
    s.blocks().iter().any(|b| b.accesses(buffer))
}

/// All statements that use one of the buffers are before all that use the other, once for each workgroup.
fn one_after_another(s: &Stmt, a: BufferId, b: BufferId) -> bool {
    match s {
        Stmt::Kernel(_, body) => one_after_another(body, a, b),
        Stmt::For(l) => !matches!(l.kind, LoopKind::Serial | LoopKind::Unroll) && one_after_another(&l.body, a, b),
        Stmt::Seq(list) => {
            let using: Vec<&Stmt> = list.iter().filter(|s| uses(s, a) || uses(s, b)).collect();
            if let [only] = using[..] {
                return one_after_another(only, a, b);
            }
            let first = using.iter().take_while(|s| !uses(s, b)).count();
            let last = using.iter().rev().take_while(|s| !uses(s, a)).count();
            let (other_first, other_last) = (
                using.iter().take_while(|s| !uses(s, a)).count(),
                using.iter().rev().take_while(|s| !uses(s, b)).count(),
            );
            first + last == using.len() || other_first + other_last == using.len()
        }
        Stmt::Block(_) | Stmt::Barrier => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::int::Int;
    use crate::schedule::testing::*;

    const TEXT: &str = "tensor @f(%p: f32[4], %q: f32[4], out %y: f32[4], out %z: f32[4]) {
  buffer %an: f32[1] register
  buffer %bn: f32[1] register
  kernel k {
    local_x for x in 0..4 { block a { %an[0] <- %p[x] } }
    local_x for v in 0..8 { block b where (v >= 4) { %bn[0] <- %q[v - 4] } }
    local_x for w in 0..4 { block y { %y[w] <- %an[0] * 2.0 } }
    local_x for u in 0..8 { block z where (u >= 4) { %z[u - 4] <- %bn[0] + 1.0 } }
  }
}";

    #[test]
    fn threads_apart_share_registers() {
        let f = crate::text::parse_tensor_function(TEXT).expect("a tensor function");
        let g = scheduled(&f, &["merge-buffers {buffer=bn, into=an}"]);
        let into = g.body.blocks()[0].buffer;
        assert!(g.body.blocks().iter().all(|b| b.accesses(into)));
        assert_same(&f, &g);
        assert!(refusal(&f, "merge-buffers {buffer=p, into=an}").contains("not two buffers of registers"));
    }

    #[test]
    fn workgroup_memory_is_used_again() {
        let text = |last: &str| {
            format!(
                "tensor @f(%p: f32[4], out %y: f32[4], out %z: f32[4]) {{
  buffer %an: f32[4] shared
  buffer %bn: f32[4] shared
  kernel k {{
    local_x for x in 0..4 {{ block a {{ %an[x] <- %p[x] }} }}
    local_x for w in 0..4 {{ block y {{ %y[w] <- %an[3 - w] * 2.0 }} }}
    local_x for v in 0..4 {{ block b {{ %bn[v] <- %p[v] + 1.0 }} }}
    local_x for u in 0..4 {{ block z {{ %z[u] <- %{last}[3 - u] + 1.0 }} }}
  }}
}}"
            )
        };
        let f = parsed(&text("bn"));
        let g = scheduled(&f, &["merge-buffers {buffer=bn, into=an}"]);
        let into = g.body.blocks()[0].buffer;
        assert!(g.body.blocks().iter().all(|b| b.accesses(into)));
        assert_same(&f, &g);
        let rows = text("bn").replace("%bn: f32[4]", "%bn: f32[2,4]");
        let rows = parsed(&rows.replace("%bn[v]", "%bn[1, v]").replace("%bn[3 - u]", "%bn[1, 3 - u]"));
        let g = scheduled(&rows, &["merge-buffers {buffer=bn, into=an}"]);
        assert_eq!(g.buffers[g.body.blocks()[0].buffer].shape, [Int::new(8)], "of the larger one");
        assert_same(&rows, &g);
        let later = parsed(&text("bn").replace("%bn[3 - u]", "%bn[3 - u] * %an[u]"));
        assert!(refusal(&later, "merge-buffers {buffer=bn, into=an}").contains("not one after another"));
    }

    #[test]
    fn threads_that_use_both_are_refused() {
        let f = crate::text::parse_tensor_function(&TEXT.replace("(u >= 4)", "(u >= 3)")).expect("a tensor function");
        assert!(refusal(&f, "merge-buffers {buffer=bn, into=an}").contains("may use `an` too"));
    }
}
