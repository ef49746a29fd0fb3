//! Which nests are rows x columns of sums of products, whose columns can be vectors.

use crate::expr::element_type;
use crate::statements::Statements;
use tensor_ir::int::Int;
use tensor_ir::name::Name;
use tensor_ir::tir::analysis::operands::{Operand, moves_with, oriented};
use tensor_ir::tir::intrinsic::{Nest, strides};
use tensor_ir::tir::{Block, BufferId, Combiner, Expr};

/// Floats of a vector, the widest first.
const WIDTHS: [i64; 3] = [16, 8, 4];

/// The operands of a nest of products.
pub(crate) struct Products<'b> {
    /// Rows, columns, depth.
    pub loops: [(Name, i64); 3],
    /// The sum.
    pub block: &'b Block,
    /// The factor of a row, which is the same in all its columns.
    pub left: &'b Expr,
    /// Its elements lie beside each other along the columns.
    pub right: (BufferId, &'b [Int]),
    /// Floats of a vector.
    pub width: i64,
}

impl<'b> Products<'b> {
    /// The products of a nest, if the columns of a row can be vectors.
    pub fn of(p: &Statements<'_>, nest: &Nest<'b>) -> Option<Products<'b>> {
        let (f, bounds, b) = (p.values.f, &p.values.bounds, nest.block);
        let loops @ [(row, _), (column, columns), (depth, _)] = <[(Name, i64); 3]>::try_from(nest.sizes()?).ok()?;
        let [left, right] = oriented(&b.value, row, column)?;
        let right = Operand::of(right).filter(Operand::is_plain)?;
        let next_to_each_other = |b: BufferId, ix: &[Int]| {
            element_type(&f.buffers[b]) == "float" && strides(&f.buffers[b], ix, &[column], bounds) == Some(vec![1])
        };
        let sums = b.reduce.is_some_and(|r| r.combiner == Combiner::Sum && !r.init);
        let guarded = |v: Name| b.guards.iter().any(|c| c.lhs.uses(v) || c.rhs.uses(v));
        let width = WIDTHS.into_iter().find(|w| columns % w == 0)?;
        let fits = sums
            && !moves_with(left, column)
            && !right.indices.iter().any(|i| i.uses(row))
            && next_to_each_other(right.buffer, right.indices)
            && next_to_each_other(b.buffer, &b.indices)
            && !b.indices.iter().any(|i| i.uses(depth))
            && !guarded(column)
            && !guarded(depth);
        fits.then_some(Products { loops, block: b, left, right: (right.buffer, right.indices), width })
    }
}
