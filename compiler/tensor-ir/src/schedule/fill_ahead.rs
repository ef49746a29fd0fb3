//! `fill-ahead`: stores the constant of a copy's padding before a loop, if the padding has the same places in all
//! iterations.
//!
//! Inside the loop the copy then has a condition and no select: where a window of an image is beyond the border, all
//! channels are, so a loop over channels stores the zeros once.
//!
//! Before -> after, `fill-ahead {block=as, at=k}`:
//!
//! ```text
//! for k in 0..8:                                       for as_fill_i in 0..4:
//!   for i in 0..4:                                       as_fill: as[as_fill_i] = 0
//!     as: as[i] = select(i + t < 3, a[i + t, k], 0)    for k in 0..8:
//!   for i in 0..4:                                       for i in 0..4:
//!     b: c[i] += as[i]*w[k]                                as: as[i] = a[i + t, k]   if i + t < 3
//!                                                        for i in 0..4:
//!                                                          b: c[i] += as[i]*w[k]
//! ```

use super::loops::{
    LoopHead, Substitution, check_new_block, check_new_loop, derived_name, find_block, find_block_mut, find_loop,
    loops_around_block, nest, only_writer, position_around, replace_loop, substitute,
};
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::int::{Int, IntNode};
use crate::name::Name;
use crate::tir::{Block, Cond, Expr, Stmt, TensorFunction};

attr_struct! {
    /// Stores the constant of a copy's padding before a loop.
    pub struct FillAhead("fill-ahead") {
        /// The copy, whose value is a select between an element and a constant.
        pub block: Name = "".into(),
        /// The loop around it, in which neither the places nor the conditions change.
        pub at: Name = "".into(),
    }
}

/// The conditions of a padded value, the value where they hold, and the constant elsewhere.
fn padded(value: &Expr) -> Option<(&[Cond], &Expr, &Expr)> {
    match value {
        Expr::Select(c, a, fill) => match (&**c, &**fill) {
            (Expr::All(conds), Expr::Const(..)) => Some((conds, a, fill)),
            _ => None,
        },
        _ => None,
    }
}

/// True for a value that is a constant where its conditions do not hold.
pub(super) fn is_padded(value: &Expr) -> bool {
    padded(value).is_some()
}

/// True when the index reads memory.
fn has_load(i: &Int) -> bool {
    let mut found = false;
    i.visit(&mut |n| found |= matches!(n.node(), IntNode::Load(..)));
    found
}

impl FillAhead {
    /// The nest that stores `fill` at all places of the copy.
    fn fill(&self, f: &TensorFunction, heads: &[LoopHead], copy: &Block, fill: &Expr) -> Result<Stmt, Refusal> {
        let name = derived_name(self.block, "fill".into());
        check_new_block(f, name)?;
        let own: Vec<LoopHead> = heads
            .iter()
            .map(|l| {
                let var = derived_name(name, l.var);
                check_new_loop(f, var).map(|()| LoopHead { var, ..l.clone() })
            })
            .collect::<Result<_, _>>()?;
        let by: Substitution = heads.iter().zip(&own).map(|(old, new)| (old.var, Int::var(new.var))).collect();
        let mut block = Block { name, value: fill.clone(), ..copy.clone() };
        block.map_ints(&mut |i| substitute(i, &by));
        Ok(nest(&own, Stmt::Block(Box::new(block))))
    }
}

impl Instruction for FillAhead {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let path = loops_around_block(f, self.block)?;
        let at = position_around(&path, self.at, self.block)?;
        let copy = find_block(f, self.block)?.clone();
        only_writer(f, &copy)?;
        let Some((conds, value, fill)) = padded(&copy.value).filter(|_| copy.reduce.is_none()) else {
            return Err(Refusal::at(self.block, "stores no select between a value and a constant"));
        };
        let inside = path[at + 1..].to_vec();
        let of_guards = copy.guards.iter().chain(conds).flat_map(|c| [&c.lhs, &c.rhs]);
        let mut places = copy.indices.iter().chain(of_guards).chain(inside.iter().map(|l| &l.extent));
        if places.any(|i| i.uses(self.at) || has_load(i)) {
            return Err(Refusal::at(self.block, format!("its padding may change with `{}`", self.at)));
        }
        let readers = |s: &Stmt| s.blocks().into_iter().filter(|b| b.reads(copy.buffer)).count();
        if readers(&f.body) != readers(&find_loop(f, self.at)?.body) {
            let text = format!("`{}` is read outside of `{}`", f.buffers[copy.buffer].name, self.at);
            return Err(Refusal::at(self.block, text));
        }
        let nest = self.fill(f, &inside, &copy, fill)?;
        let block = find_block_mut(f, self.block)?;
        block.guards.extend(conds.iter().cloned());
        block.value = value.clone();
        replace_loop(f, self.at, |l| Ok(Stmt::seq(vec![nest, Stmt::For(Box::new(l))])))
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    const STAGED: [&str; 5] = [
        "reorder {loops=[conv_i0, conv_r0, conv_r1, conv_r2, conv_i1, conv_i2, conv_i3]}",
        "fuse {loops=[conv_r0, conv_r1], into=t}",
        "stage-in-registers {block=conv, operand=\"0\", at=conv_r2, into=xs}",
        "decompose-reduction {block=conv, at=t}",
        "fill-ahead {block=xs, at=conv_r2}",
    ];

    #[test]
    fn padding_is_stored_before_a_loop_over_channels() {
        for (stride, pad) in [(1, 1), (2, 1), (1, 2)] {
            let f = conv(2, 5, 6, 7, 4, 3, stride, pad);
            let g = scheduled(&f, &STAGED);
            let copy = g.body.blocks().into_iter().find(|b| b.name == "xs".into()).expect("the copy").clone();
            assert!((3..=4).contains(&copy.guards.len()), "the sides of the image that windows pass");
            assert_same(&f, &g);
        }
    }

    /// Loads of the next step, over the ends of the loop over channels too, whose last step stands behind it.
    #[test]
    fn copies_that_are_loaded_ahead_are_filled() {
        let f = conv(2, 5, 6, 7, 4, 3, 1, 1);
        let pipeline = "software-pipeline {loop=conv_r2, buffers=[xs], around=t}";
        let steps = [&STAGED[..4], &[pipeline, STAGED[4], "peel-loop {loop=conv_r2}"]].concat();
        assert_same(&f, &scheduled(&f, &steps));
    }

    #[test]
    fn padding_that_changes_is_refused() {
        let f = conv(2, 5, 6, 7, 4, 3, 1, 1);
        let g = scheduled(&f, &STAGED[..4]);
        assert!(refusal(&g, "fill-ahead {block=xs, at=t}").contains("may change with `t`"));
        let without = scheduled(&conv(2, 5, 6, 7, 4, 3, 1, 0), &STAGED[..4]);
        assert!(refusal(&without, "fill-ahead {block=xs, at=conv_r2}").contains("no select"));
        let filled = scheduled(&f, &STAGED);
        assert!(refusal(&filled, "fill-ahead {block=xs, at=conv_r2}").contains("stores to `xs` too"));
    }
}
