//! Windows of a thread: elements of reductions over windows, and neighbouring windows.

use crate::int::Int;
use crate::name::Name;
use crate::schedule::loops::loops_around_block;
use crate::tir::{Block, BufferId, Expr, TensorFunction};

/// Elements of a window that a register tile holds, at most.
pub(in crate::schedule) const LARGEST_WINDOW: i64 = 16;

/// Neighbouring windows of a thread.
pub(in crate::schedule) struct Neighbours {
    /// The loop of the results along which they lie.
    pub along: Name,
    /// How many.
    pub windows: i64,
    /// Loops of the window that move with them, which are unrolled.
    pub moving: Vec<Name>,
}

/// Where `reader` loads elements of `buffer` by windows: the one index vector, in which each reduction loop of the
/// reader occurs that has more than one iteration.
pub fn window_index<'a>(f: &TensorFunction, reader: &'a Block, buffer: BufferId) -> Option<&'a [Int]> {
    reader.reduce.as_ref()?;
    let loads = reader.value.loads();
    let mut own = loads.iter().filter(|l| l.0 == buffer).map(|l| l.1);
    let index = own.next()?;
    let around = loops_around_block(f, reader.name).ok()?;
    let wide = |v: &Name| around.iter().any(|l| l.var == *v && !l.extent.is(1));
    let loops: Vec<Name> = f.reduction_loops(reader.name).into_iter().filter(wide).collect();
    (own.all(|ix| ix == index) && !loops.is_empty() && loops.iter().all(|v| index.iter().any(|i| i.uses(*v))))
        .then_some(index)
}

/// Nodes of a value that is light: a window's load, condition and product, of halves too. How often it is repeated is
/// limited by iterations and registers alone.
const LIGHT: usize = 12;
/// Nodes of all copies of a heavier value, at most: each is about a line of the shader.
const MOST_TEXT: usize = 200;

/// Whether the shader's text may have so many copies of what the block computes, in which the loops `known` have known
/// values: conditions on them are decided (a matrix of constants becomes the constant).
pub(in crate::schedule) fn fits_text(block: &Block, known: &[Name], copies: i64) -> bool {
    let nodes = text(&block.value, known);
    nodes <= LIGHT || nodes.saturating_mul(copies.max(0) as usize) <= MOST_TEXT
}

/// Nodes of a value in one copy of its text.
fn text(e: &Expr, known: &[Name]) -> usize {
    let of = |e: &Expr| text(e, known);
    let decided = |i: &Int| i.vars().iter().all(|v| known.contains(v));
    match e {
        Expr::Const(..) => 0,
        Expr::Load(..) | Expr::Index(..) => 1,
        Expr::All(conds) => conds.len(),
        Expr::Unary(_, a) | Expr::Cast(_, a) => 1 + of(a),
        Expr::Binary(_, a, b) => 1 + of(a) + of(b),
        Expr::Select(c, a, b) => match &**c {
            Expr::All(conds) if conds.iter().all(|c| decided(&c.lhs) && decided(&c.rhs)) => of(a).max(of(b)),
            c => 1 + of(c) + of(a) + of(b),
        },
    }
}
