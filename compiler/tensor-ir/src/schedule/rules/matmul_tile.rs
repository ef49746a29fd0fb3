//! Matrix products and convolutions on a processor: tiles of rows and columns in vector registers.
//!
//! The columns of a constant right operand are packed in panels as wide as the tile; those of another one are read where they lie
//! next to each other in whole panels, else copied to task memory panel by panel. Rows of the left operand are read where they lie,
//! taps of a window one after another: no matrix of windows is made. A task multiplies one tile of rows with one panel; tasks with the
//! same panel follow each other, so that it stays in the core's cache.

use super::analysis::{Contraction, Unit, block_of, contraction, output_variables};
use super::lanes::{is_plain, stride};
use super::matmul_subgroup::pack_right;
use super::pooling::inside;
use super::sketch::{Decline, Sketch};
use crate::int::Int;
use crate::name::Name;
use crate::schedule::{Axis, ComputeAt, DecomposeReduction, LocalScope, StageInRegisters, Tensorize};
use crate::tir::intrinsic::Intrinsic;
use crate::tir::{BinaryOp, BufferId, Expr, Scalar};

/// Columns of a product that panels are made for, at least; depth of one, at least.
const LEAST_COLUMNS: i64 = 4;
const LEAST_DEPTH: i64 = 3;
/// Rows of a tile whose right operand's loads take as long as their products.
const FEW_ROWS: i64 = 2;
/// Rows that a tile could have for the time that it takes to find each row by itself, where the last tile has rows beyond the end.
const UNEVEN: i64 = 8;

/// What a load of the reduction reads.
type Load<'f> = (BufferId, &'f [Int]);

/// Takes sums of products of f32.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit) -> Result<(), Decline> {
    let c = contraction(sketch, unit)?;
    let reduce = unit.reduce.ok_or_else(Decline::other_kind)?;
    let product = |names: &[Name]| -> i64 { names.iter().filter_map(|v| sketch.extent_of(*v)).product() };
    let (rows, columns, depth) = (product(&c.m), product(&c.n), product(&c.k));
    if unit.window.is_some() || c.n.is_empty() || c.k.is_empty() || columns < LEAST_COLUMNS || depth < LEAST_DEPTH {
        return Err(Decline(format!("{rows} rows, {columns} columns and depth {depth} are too few for tiles")));
    }
    let [left, right] = operands(sketch, reduce, &c)?;
    let packed = c.right_constant;
    let inner = *c.k.last().ok_or_else(Decline::other_kind)?;
    let [most, width] = sketch.profile.register_tile.map(i64::from);
    let map = output_variables(
        &sketch.f,
        block_of(&sketch.f, reduce).ok_or_else(Decline::other_kind)?,
        block_of(&sketch.f, unit.output).ok_or_else(Decline::other_kind)?,
    )?;
    let of = |v: &Name| map.iter().find(|p| p.1 == *v).map(|p| p.0);
    let lies = |v: Option<Name>| v.and_then(|v| stride(sketch, (right.0, &right.1), v));
    let whole = columns % width == 0
        && c.n.len() == 1
        && lies(c.n.last().and_then(of)) == Some(1)
        && lies(Some(inner)).is_some();
    let rows_together = rows_lie_together(sketch, reduce, &c, &left, &map);
    if packed {
        pack_right(sketch, &c, width)?;
    }
    let loops = Loops::make(sketch, unit.output, &c, rows_together, (most, width))?;
    let at = loops.row_tiles;
    sketch.apply(ComputeAt { block: reduce, at, scope: LocalScope::Register })?;
    let reductions = sketch.f.reduction_loops(reduce);
    let spatial: Vec<Name> = inside(sketch, reduce, at)?.into_iter().filter(|v| !reductions.contains(v)).collect();
    let [i, j] = spatial[..] else { return Err(Decline("the tile has not two loops".into())) };
    let taps: Vec<Name> = c.k[..c.k.len() - 1].to_vec();
    let order: Vec<Name> = taps.iter().chain(&[i, j, inner]).copied().collect();
    if !packed && !whole {
        // The copy's loops are in the order of those around the product: columns innermost.
        let copied: Vec<Name> = taps.iter().chain(&[inner, i, j]).copied().collect();
        sketch.reorder(&copied)?;
        let into = Name::new(&format!("{reduce}_w"));
        sketch.apply(StageInRegisters { block: reduce, operand: (1 - c.left).to_string(), at: loops.panels, into })?;
    }
    sketch.reorder(&order)?;
    sketch.apply(DecomposeReduction { block: reduce, at: order[0] })?;
    let size = [i, j, inner].map(|v| sketch.extent_of(v).unwrap_or(0));
    sketch.apply(Tensorize { r#loop: i, intrinsic: Intrinsic::tile(size).name })?;
    Ok(())
}

/// The operands' loads, of which the left one may be 0 under conditions.
fn operands(sketch: &Sketch<'_>, reduce: Name, c: &Contraction) -> Result<[(BufferId, Vec<Int>); 2], Decline> {
    let b = block_of(&sketch.f, reduce).ok_or_else(Decline::other_kind)?;
    let Expr::Binary(BinaryOp::Mul, x, y) = &b.value else { return Err(Decline("operands are converted".into())) };
    let (left, right) = if c.left == 0 { (x, y) } else { (y, x) };
    let left = match &**left {
        Expr::Select(condition, row, zero)
            if matches!(&**condition, Expr::All(_))
                && matches!(&**zero, Expr::Const(Scalar::Float(x), _) if *x == 0.0) =>
        {
            row
        }
        plain => plain,
    };
    match (left, &**right) {
        (Expr::Load(a, i), Expr::Load(b, j)) if is_plain(sketch, *a) && is_plain(sketch, *b) => {
            Ok([(*a, i.clone()), (*b, j.clone())])
        }
        _ => Err(Decline("an operand is computed, or no plain f32".into())),
    }
}

/// True if the rows of the left operand lie at one stride over all loops of rows, without conditions that differ between them.
fn rows_lie_together(
    sketch: &Sketch<'_>,
    reduce: Name,
    c: &Contraction,
    left: &(BufferId, Vec<Int>),
    map: &[(Name, Name)],
) -> bool {
    let Some(b) = block_of(&sketch.f, reduce) else { return false };
    let of: Vec<Name> = c.m.iter().filter_map(|v| map.iter().find(|p| p.1 == *v).map(|p| p.0)).collect();
    let mut conditional = false;
    b.value.visit(&mut |e| {
        if let Expr::All(list) = e {
            conditional |= list.iter().any(|c| of.iter().any(|v| c.lhs.uses(*v) || c.rhs.uses(*v)));
        }
    });
    let load: Load<'_> = (left.0, &left.1);
    let strides: Option<Vec<i64>> = of.iter().map(|v| stride(sketch, load, *v)).collect();
    let Some(strides) = strides else { return false };
    let next = |n: usize| sketch.extent_of(of[n]).is_some_and(|extent| strides[n - 1] == strides[n] * extent);
    !conditional && (1..of.len()).all(next)
}

/// The loops of a result in tiles.
struct Loops {
    /// Over panels of columns.
    panels: Name,
    /// Over tiles of rows.
    row_tiles: Name,
}

impl Loops {
    fn make(
        sketch: &mut Sketch<'_>,
        out: Name,
        c: &Contraction,
        together: bool,
        (most, width): (i64, i64),
    ) -> Result<Loops, Decline> {
        let single = |v: &Name, s: &Sketch<'_>| s.extent_of(*v) == Some(1);
        let mut rows: Vec<Name> = c.m.clone();
        if !together {
            // Loops of one iteration have no rows.
            rows.sort_by_key(|v| !single(v, sketch));
        }
        let own = if together { 0 } else { rows.len().saturating_sub(1) };
        let others: Vec<Name> = rows.drain(..own).collect();
        let order: Vec<Name> = c.batch.iter().chain(&others).chain(&rows).chain(&c.n).copied().collect();
        sketch.reorder(&order)?;
        if rows.is_empty() {
            return Err(Decline("the product has no rows".into()));
        }
        let m = sketch.fuse(&rows, Name::new(&format!("{out}_m")))?;
        let n = sketch.fuse(&c.n, Name::new(&format!("{out}_n")))?;
        let height = choose_rows(sketch, m, most)?;
        let m = sketch.split(m, &[0, height], &["o", "i"])?;
        let n = sketch.split(n, &[0, width], &["o", "i"])?;
        let mut outer: Vec<Name> = others;
        outer.push(m[0]);
        let order: Vec<Name> = c.batch.iter().chain(&[n[0]]).chain(&outer).chain(&[m[1], n[1]]).copied().collect();
        sketch.reorder(&order)?;
        if !c.batch.is_empty() {
            let b = sketch.fuse(&c.batch, Name::new(&format!("{out}_b")))?;
            sketch.bind(b, Axis::GroupZ)?;
        }
        sketch.bind(n[0], Axis::GroupY)?;
        let row_tiles = sketch.fuse(&outer, Name::new(&format!("{out}_t")))?;
        if c.right_constant {
            sketch.bind(row_tiles, Axis::GroupX)?;
        }
        Ok(Loops { panels: n[0], row_tiles })
    }
}

/// Rows of a tile: those with the least work for all tiles, of which the last one is computed whole.
fn choose_rows(sketch: &mut Sketch<'_>, m: Name, most: i64) -> Result<i64, Decline> {
    let n = sketch.extent_of(m).ok_or_else(|| Decline("the number of rows is not known".into()))?;
    let tail = |rows: i64| if n % rows == 0 { 0 } else { UNEVEN };
    let price = |rows: i64| (n + rows - 1) / rows * (rows + FEW_ROWS + tail(rows));
    let all = most.min(n);
    // A single row is no tile.
    let domain: Vec<i64> = (all.min(2)..=all).rev().collect();
    let best = domain.iter().copied().min_by_key(|r| price(*r)).unwrap_or(1);
    sketch.choose("rows", &domain, best)
}
