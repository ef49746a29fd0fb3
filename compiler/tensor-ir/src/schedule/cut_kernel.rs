//! `cut-kernel`: makes kernels of the top-level statements.
//!
//! Before -> after, `cut-kernel {}`:
//!
//! ```text
//! for i in 0..8 group_x:            kernel t
//!   t: ...                            for i in 0..8 group_x:
//! for j in 0..8 group_x:                t: ...
//!   y: ...                          kernel y
//!                                     for j in 0..8 group_x:
//!                                       y: ...
//! ```
//!
//! `together=[[t, y]]` puts the neighbouring statements with these blocks into one kernel. That is right only if no
//! workgroup reads elements that another one of the same kernel writes.

use super::loops::any_block;
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::name::Name;
use crate::tir::{Stmt, TensorFunction};

attr_struct! {
    /// Wraps each top-level statement into a kernel named after its last block.
    pub struct CutKernel("cut-kernel") {
        /// Groups of blocks whose top-level statements share a kernel.
        pub together: Vec<Vec<Name>> = vec![],
    }
}

impl Instruction for CutKernel {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let list = match std::mem::replace(&mut f.body, Stmt::Seq(vec![])) {
            Stmt::Seq(list) => list,
            one => vec![one],
        };
        let group_of = |s: &Stmt| self.together.iter().position(|group| any_block(s, |b| group.contains(&b.name)));
        let mut out: Vec<Stmt> = Vec::new();
        let mut closed: Vec<usize> = Vec::new();
        let mut open: Option<(Option<usize>, Vec<Stmt>)> = None;
        for s in list {
            let group = group_of(&s);
            if let Some(g) = group.filter(|g| closed.contains(g)) {
                return Err(Refusal::new(format!(
                    "the blocks {:?} are not in neighbouring statements",
                    self.together[g]
                )));
            }
            if let (Some(_), Some((same, members))) = (group, &mut open)
                && *same == group
            {
                members.push(s);
                continue;
            }
            if let Some((g, members)) = open.replace((group, vec![s])) {
                closed.extend(g);
                out.push(kernel(members)?);
            }
        }
        if let Some((_, members)) = open {
            out.push(kernel(members)?);
        }
        f.body = Stmt::seq(out);
        Ok(())
    }
}

fn kernel(mut members: Vec<Stmt>) -> Result<Stmt, Refusal> {
    if members.len() == 1 && matches!(members[0], Stmt::Kernel(..)) {
        return Ok(members.pop().expect("one statement"));
    }
    if members.iter().any(|s| matches!(s, Stmt::Kernel(..))) {
        return Err(Refusal::new("a kernel cannot be merged with its neighbours"));
    }
    let body = Stmt::seq(members);
    let name = body.blocks().last().map(|b| b.name).ok_or_else(|| Refusal::new("a statement has no block"))?;
    Ok(Stmt::Kernel(name, Box::new(body)))
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn every_statement_becomes_a_kernel() {
        let f = softmax(4, 7);
        let g = scheduled(&f, &["cut-kernel {}"]);
        let names: Vec<String> = g.kernels().iter().map(|k| k.0.to_string()).collect();
        assert_eq!(names, ["max", "exp", "sum", "y"]);
        assert_same(&f, &g);
    }

    #[test]
    fn neighbours_share_a_kernel_on_demand() {
        let f = softmax(4, 7);
        let g = scheduled(&f, &["cut-kernel {together=[[exp, sum]]}"]);
        let names: Vec<String> = g.kernels().iter().map(|k| k.0.to_string()).collect();
        assert_eq!(names, ["max", "sum", "y"]);
        assert_same(&f, &g);
        assert!(refusal(&f, "cut-kernel {together=[[max, sum]]}").contains("neighbouring"));
    }
}
