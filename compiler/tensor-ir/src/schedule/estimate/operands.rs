//! A sum of products by its loops and operands.

use super::reads::{Demand, Loop, Touch};
use crate::name::Name;
use crate::tir::Expr;
use std::cell::OnceCell;

/// A product of a unit, by the loops of its reduction.
pub(super) struct Product<'f> {
    pub rows: Vec<Loop>,
    pub columns: Vec<Loop>,
    pub batch: Vec<Loop>,
    pub depth: Vec<Loop>,
    pub left: Operand<'f>,
    pub right: Operand<'f>,
    /// Four elements of the reduction are a word, and one operation.
    pub bytes: bool,
}

/// An operand of a product.
pub(super) struct Operand<'f> {
    pub value: &'f Expr,
    pub demand: Demand,
    /// A constant that lies in the order in which it is read.
    pub packed: bool,
    /// How each read is copied, where neighbours along the rows may be a vector, and where not: the same for all tiles.
    pub copies: [OnceCell<Vec<Copied>>; 2],
}

/// How the threads of a subgroup copy an operand from device memory.
#[derive(Clone, Copy)]
pub(super) struct Copied {
    /// Of a subgroup.
    pub touch: Touch,
    /// Neighbours that a lane copies together, 4 at most.
    pub width: i64,
    /// They are neighbours along the rows (or columns) of the result; else along the depth.
    pub across: bool,
}

impl<'f> Operand<'f> {
    pub fn of(value: &'f Expr, demand: Demand, packed: bool) -> Operand<'f> {
        Operand { value, demand, packed, copies: Default::default() }
    }
    pub fn uses(&self, v: Name) -> bool {
        let mut found = false;
        self.value.visit_ints(&mut |i| found |= i.uses(v));
        found
    }
}
