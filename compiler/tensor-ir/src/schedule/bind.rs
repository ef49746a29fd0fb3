//! `bind`: runs a loop across workgroups or across the threads of a workgroup.
//!
//! Before -> after, `bind {loop=i, axis=group_x}`:
//!
//! ```text
//! for i in 0..8:                    for i in 0..8 group_x:
//!   b: ...                            b: ...
//! ```

use super::loops::{find_loop, find_loop_mut, loops_around_loop};
use super::{Instruction, Refusal};
use crate::int::Int;
use crate::name::Name;
use crate::tir::{LoopKind, Stmt, TensorFunction};
use crate::{attr_enum, attr_struct};

attr_enum! {
    /// An axis of the grid or of the workgroup.
    pub enum Axis {
        /// Workgroups along x.
        GroupX = "group_x",
        /// Workgroups along y.
        GroupY = "group_y",
        /// Workgroups along z.
        GroupZ = "group_z",
        /// Threads along x.
        LocalX = "local_x",
        /// Threads along y.
        LocalY = "local_y",
        /// Threads along z.
        LocalZ = "local_z",
        /// Subgroups along x.
        SubgroupX = "subgroup_x",
        /// Subgroups along y.
        SubgroupY = "subgroup_y",
        /// Lanes of a subgroup.
        Lane = "lane",
    }
}
impl Axis {
    /// The loop kind of the axis.
    pub fn kind(self) -> LoopKind {
        match self {
            Axis::GroupX => LoopKind::Group(0),
            Axis::GroupY => LoopKind::Group(1),
            Axis::GroupZ => LoopKind::Group(2),
            Axis::LocalX => LoopKind::Local(0),
            Axis::LocalY => LoopKind::Local(1),
            Axis::LocalZ => LoopKind::Local(2),
            Axis::SubgroupX => LoopKind::Subgroup(0),
            Axis::SubgroupY => LoopKind::Subgroup(1),
            Axis::Lane => LoopKind::Lane,
        }
    }
}

attr_struct! {
    /// Binds a serial loop to an axis.
    pub struct Bind("bind") {
        /// The loop.
        pub r#loop: Name = "".into(),
        /// The axis.
        pub axis: Axis = Axis::LocalX,
    }
}

fn fits(inner: &Int, outer: &Int) -> bool {
    inner == outer || matches!((inner.as_const(), outer.as_const()), (Some(i), Some(o)) if i <= o)
}

/// Loops inside or around that share the axis must agree: a thread that the outer one skips cannot run the inner one.
fn check_shared_axis(f: &TensorFunction, var: Name, kind: LoopKind) -> Result<(), Refusal> {
    let l = find_loop(f, var)?;
    for outer in loops_around_loop(f, var)? {
        match (kind, outer.kind) {
            (_, k) if k == kind && !fits(&l.extent, &outer.extent) => {
                let text = format!(
                    "loop `{}` around it is bound to the same axis with {} iterations, this one has {}",
                    outer.var, outer.extent, l.extent
                );
                return Err(Refusal::at(var, text));
            }
            (LoopKind::Lane, LoopKind::Lane) => return Err(Refusal::at(var, "the lanes are shared out already")),
            (LoopKind::Group(_), k) if !matches!(k, LoopKind::Group(_)) => {
                let text = format!("a workgroup loop must not be inside `{}`, which is not one", outer.var);
                return Err(Refusal::at(var, text));
            }
            _ => {}
        }
    }
    let mut clash = None;
    l.body.visit(&mut |s| {
        if let Stmt::For(inner) = s
            && inner.kind == kind
            && !fits(&inner.extent, &l.extent)
        {
            clash = Some(inner.var);
        }
    });
    match clash {
        Some(inner) => {
            Err(Refusal::at(inner, format!("is bound to the same axis inside `{var}` with more iterations")))
        }
        None => Ok(()),
    }
}

impl Instruction for Bind {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let l = find_loop(f, self.r#loop)?;
        let kind = self.axis.kind();
        if l.kind != LoopKind::Serial {
            return Err(Refusal::at(self.r#loop, "only a serial loop can be bound"));
        }
        if matches!(kind, LoopKind::Local(_) | LoopKind::Subgroup(_)) && l.extent.as_const().is_none() {
            return Err(Refusal::at(self.r#loop, "a thread loop needs a constant extent"));
        }
        for b in l.body.blocks() {
            if b.reduce.is_some() && !l.extent.is(1) && f.reduction_loops(b.name).contains(&self.r#loop) {
                let text = format!("block `{}` reduces over it: its threads would race (rfactor it first)", b.name);
                return Err(Refusal::at(self.r#loop, text));
            }
        }
        check_shared_axis(f, self.r#loop, kind)?;
        find_loop_mut(f, self.r#loop)?.kind = kind;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn bound_loops_run_in_parallel_with_the_same_result() {
        let f = elementwise_chain(&[6, 8]);
        let g = scheduled(
            &f,
            &["bind {loop=t0_i0, axis=group_x}", "bind {loop=t0_i1, axis=local_x}", "bind {loop=y_i1, axis=local_y}"],
        );
        assert_same(&f, &g);
    }

    #[test]
    fn a_reduction_loop_is_refused() {
        let f = matmul(3, 4, 5);
        assert!(refusal(&f, "bind {loop=mm_r0, axis=local_x}").contains("race"));
    }

    #[test]
    fn no_workgroup_has_a_hundred_thousand_threads() {
        let f = elementwise_chain(&[100_000, 4]);
        assert!(refusal(&f, "bind {loop=t0_i0, axis=local_x}").contains("100000 threads, which no workgroup has"));
    }

    #[test]
    fn a_workgroup_loop_belongs_outside() {
        let f = elementwise_chain(&[6, 8]);
        assert!(refusal(&f, "bind {loop=t0_i1, axis=group_x}").contains("must not be inside"));
    }
}
