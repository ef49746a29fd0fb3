//! Matrix products and implicit-GEMM convolutions for devices whose threads are SIMD lanes of a CPU core.
//!
//! A workgroup is one subgroup. A lane owns 4 consecutive columns (output channels), or 2 or 1 if half of the lanes
//! would be idle otherwise, and a register tile of R rows (output pixels), with one vector accumulator per row. Per K
//! step of 4, a lane loads the left operand of *its* rows
//! only (`ceil(R / lanes)` loads of 4 consecutive k), and every element reaches all lanes by a subgroup broadcast. The
//! right operand is prepacked so that its loads are linear. Padding is a select on the staged load, so it is computed
//! once per row and tap instead of once per product. There is no shared memory, and there are no barriers.

use super::analysis::{Contraction, contraction};
use super::candidate::Candidate;
use super::decline::Decline;
use super::pooling_loops::{open_windows, tile_loops};
use super::sketch::Sketch;
use super::thread_tile::LEAST_DEPTH;
use super::unit::Unit;
use super::view::View;
use crate::candidate;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::profile::quirks::{TALL_TILES, WIDE_TILES};
use crate::schedule::Axis;
use crate::schedule::DecomposeReduction;
use crate::schedule::PadReduction;
use crate::schedule::StageInRegisters;
use crate::schedule::StageInSubgroup;
use crate::schedule::TransformLayout;
use crate::schedule::estimate::{KernelEstimate, product_kernels};
use crate::schedule::tiles::ProductTile;
use crate::schedule::{ComputeAt, LocalScope};
use crate::tir::LoopKind;

/// Columns of a product that tiles are made for, at least.
pub(super) const LEAST_COLUMNS: i64 = 8;

/// Elements of the reduction at a time, at most.
const DEPTH: i64 = 4;

/// Rows and columns of the register tile; with windows behind the product, their elements are rows.
struct SubgroupTile {
    rows: i64,
    columns: i64,
    width: i64,
    /// Elements of the reduction at a time.
    depth: i64,
    /// Rows of a window, which make one row of the output.
    taps: i64,
}

candidate! {
    /// A register tile of a product.
    pub(super) struct SubgroupProduct {
        /// Rows of the output.
        pub rows: i64,
        /// Columns of a vector.
        pub vector: i64,
        /// Vectors of columns of a lane.
        pub columns: i64,
        /// Elements of the reduction at a time.
        pub depth: i64,
    }
}

/// The product of a unit, and what its tile may be: contractions on devices without workgroup memory of its own, with a
/// fixed subgroup size; asked for by name, on all devices with one.
fn product(view: &View<'_>, unit: &Unit) -> Result<(Contraction, Tiles), Decline> {
    let c = contraction(view, unit)?;
    if view.profile.model().workgroup_memory && !view.asked {
        return Err(Decline("the device has real cores: tiles go through shared memory".into()));
    }
    let lanes = view.profile.fixed_subgroup().ok_or_else(|| Decline("the subgroup size is not fixed".into()))? as i64;
    if c.n.is_empty() || c.k.is_empty() {
        return Err(Decline(
            "there are no columns to share the left operand (depthwise or a matrix-vector product)".into(),
        ));
    }
    let (rows, columns, depth) = (view.product(&c.m), view.product(&c.n), view.product(&c.k));
    if columns < LEAST_COLUMNS || depth < LEAST_DEPTH {
        return Err(Decline(format!("{columns} columns and depth {depth} are too few")));
    }
    let taps = unit.window.as_ref().map_or(1, |w| w.taps);
    let range = row_range(view.profile, rows, lanes, taps)?;
    let inner = c.k.last().and_then(|v| view.extent_of(*v));
    let channels = inner.ok_or_else(|| Decline("the depth is not a constant".into()))?;
    Ok((c, Tiles { rows, columns, channels, taps, lanes, range }))
}

/// The sizes of a product, and the rows that a tile may have.
struct Tiles {
    /// Rows of the output, each made of `taps` rows of the product.
    rows: i64,
    columns: i64,
    /// The extent of the innermost reduction loop.
    channels: i64,
    taps: i64,
    lanes: i64,
    range: (i64, i64),
}

impl Tiles {
    fn usual_rows(&self) -> i64 {
        usual_rows(self.rows, self.range)
    }
    fn all_rows(&self) -> Vec<i64> {
        let usual = self.usual_rows();
        (1..=self.range.1).rev().filter(|r| self.rows % r == 0 || r % 4 == 0 || *r == usual).collect()
    }
    fn all_columns(&self, width: i64) -> &'static [i64] {
        if self.columns >= 2 * self.lanes * width { &[1, 2] } else { &[1] }
    }
    fn usual_columns(&self, p: &DeviceProfile, width: i64) -> i64 {
        usual_vectors(p, self.rows * self.taps, self.columns, self.lanes * width)
    }
    fn all_depths(&self) -> Vec<i64> {
        [4, 3, 2, 1].into_iter().filter(|s| *s <= self.channels).collect()
    }
    /// The deepest step that divides the channels.
    fn usual_depth(&self) -> i64 {
        let even = [DEPTH, 3, 2].into_iter().find(|s| self.channels % s == 0);
        even.unwrap_or(if self.channels > 16 { DEPTH } else { 1 })
    }
}

/// The tile that wastes the fewest rows; the others are for who asks for them.
pub(super) fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    let known = view.once(unit, |view| product(view, unit));
    let (_, tiles) = known.as_ref().as_ref().map_err(Clone::clone)?;
    let (usual, widths) = (tiles.usual_rows(), widths(tiles.columns));
    let own_width = usual_width(tiles.columns, tiles.lanes);
    let others = tiles.all_rows().into_iter().filter(|r| *r != usual);
    let mut out = Vec::new();
    for rows in std::iter::once(usual).chain(others) {
        for &vector in &widths {
            let own = tiles.usual_columns(view.profile, vector);
            for &columns in tiles.all_columns(vector) {
                let own_depth = tiles.usual_depth();
                for depth in tiles.all_depths() {
                    let one = Candidate::new(SubgroupProduct { rows, vector, columns, depth });
                    let is_usual = (rows, vector, columns, depth) == (usual, own_width, own, own_depth);
                    out.push(((columns != own, depth != own_depth), if is_usual { one } else { one.on_request() }));
                }
            }
        }
    }
    // Of equal ones those with as many columns and as deep a step as usual first.
    out.sort_by_key(|c| c.0);
    Ok(out.into_iter().map(|c| c.1).collect())
}

/// The kernel of the product in the candidate's tile. Products with windows are weighed with what they are joined to.
pub(super) fn price(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    let known = view.once(unit, |view| product(view, unit));
    let (Ok(chosen), Ok((_, tiles))) = (candidate.choices::<SubgroupProduct>(), &*known) else { return vec![] };
    if unit.window.is_some() {
        return vec![];
    }
    let columns = chosen.vector * chosen.columns;
    let tile = in_numbers(tiles.lanes, [chosen.rows * tiles.taps, columns, chosen.depth]);
    product_kernels(view.stages(), [unit.name(), unit.output], &tile)
}

/// Schedules the unit in the candidate's tile.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let chosen = candidate.choices::<SubgroupProduct>()?;
    let (c, tiles) = product(&sketch.view(), unit)?;
    let lanes = tiles.lanes;
    let tile = choose_tile(sketch, &tiles, chosen)?;
    let lane = bind_output(sketch, unit, &c, lanes, &tile)?;
    accumulate(sketch, unit, &c, lane, lanes, &tile)?;
    if c.right_constant {
        pack_right(sketch, &c, lanes * tile.width * tile.columns)?;
    }
    Ok(())
}

/// Rows of a tile, least and most, of the output's `rows`, each made of `taps` rows of the product: a register file of
/// at most about 60 vec4 accumulators.
fn row_range(p: &DeviceProfile, rows: i64, lanes: i64, taps: i64) -> Result<(i64, i64), Decline> {
    let (low, high) = if p.quirks.has(&TALL_TILES) {
        (32, 56)
    } else if lanes < 8 {
        (8, 16)
    } else {
        (20, 32)
    };
    if taps > high {
        return Err(Decline(format!("a window of {taps} is more than a tile's {high} rows")));
    }
    Ok(((low / taps).max(1), (high / taps).min(rows.max(1))))
}

/// The rows of a tile that divide all rows where they can, or waste least.
fn usual_rows(rows: i64, (low, high): (i64, i64)) -> i64 {
    let best = (low..=high).rev().find(|r| rows % r == 0);
    best.unwrap_or_else(|| {
        // No divisor in range: the size that wastes least, larger first.
        (low.min(rows).max(1)..=high).rev().min_by_key(|r| (rows + r - 1) / r * r - rows).unwrap_or(1).max(1)
    })
}

/// Columns of a lane that make a vector, widest first.
fn widths(columns: i64) -> Vec<i64> {
    [4, 2, 1].into_iter().filter(|w| columns % w == 0).collect()
}

/// The widest vector that leaves less than half of the lanes idle. With 8 lanes, 16 columns take vectors of 2.
fn usual_width(columns: i64, lanes: i64) -> i64 {
    let widths = widths(columns);
    widths.iter().copied().find(|w| 2 * columns > lanes * w).unwrap_or(widths[widths.len() - 1])
}

/// Vectors of columns that a lane has.
fn usual_vectors(p: &DeviceProfile, rows: i64, columns: i64, span: i64) -> i64 {
    let wide = p.quirks.has(&WIDE_TILES) && columns >= 2 * span && columns % (2 * span) == 0 && rows >= 64;
    if wide { 2 } else { 1 }
}

/// The tile that is taken where nothing else is chosen, of a product of so many rows (those of windows included) and
/// columns.
pub(super) fn usual_tile(p: &DeviceProfile, [rows, columns]: [i64; 2], taps: i64) -> Option<ProductTile> {
    let lanes = i64::from(p.fixed_subgroup()?);
    let range = row_range(p, rows / taps, lanes, taps).ok()?;
    let width = usual_width(columns, lanes);
    let vectors = usual_vectors(p, rows, columns, lanes * width);
    let tile_rows = usual_rows(rows / taps, range) * taps;
    Some(in_numbers(lanes, [tile_rows, width * vectors, DEPTH]))
}

/// For the estimate: a tile of so many rows, columns of a lane, and elements of the reduction at a time.
fn in_numbers(lanes: i64, [rows, thread_columns, depth]: [i64; 3]) -> ProductTile {
    let columns = lanes * thread_columns;
    ProductTile { rows, columns, depth, threads: lanes, thread_rows: rows, thread_columns, slices: 1 }
}

/// The candidate's tile, or the one that is asked for.
fn choose_tile(sketch: &mut Sketch<'_>, tiles: &Tiles, chosen: &SubgroupProduct) -> Result<SubgroupTile, Decline> {
    let rows = sketch.choose("rows", &tiles.all_rows(), chosen.rows)?;
    let width = sketch.choose("vector", &widths(tiles.columns), chosen.vector)?;
    let columns = sketch.choose("columns", tiles.all_columns(width), chosen.columns)?;
    let depth = sketch.choose("depth", &tiles.all_depths(), chosen.depth)?;
    Ok(SubgroupTile { rows: rows * tiles.taps, columns, width, depth, taps: tiles.taps })
}

/// Binds the output's loops; returns the one over the lanes.
fn bind_output(
    sketch: &mut Sketch<'_>,
    unit: &Unit,
    c: &Contraction,
    lanes: i64,
    tile: &SubgroupTile,
) -> Result<Name, Decline> {
    let out = unit.output;
    let order: Vec<Name> = c.batch.iter().chain(&c.m).chain(&c.n).copied().collect();
    sketch.reorder(&order)?;
    if !c.batch.is_empty() {
        let b = sketch.fuse(&c.batch, Name::new(&format!("{out}_b")))?;
        sketch.bind(b, Axis::GroupZ)?;
    }
    let (m, n);
    if c.m.is_empty() {
        return Err(Decline("there are no rows".into()));
    }
    m = sketch.fuse(&c.m, Name::new(&format!("{out}_m")))?;
    n = sketch.fuse(&c.n, Name::new(&format!("{out}_n")))?;
    let rows = sketch.split(m, &[0, tile.rows / tile.taps], &["o", "i"])?;
    let quads = sketch.split(n, &[0, tile.width], &["q", "v"])?;
    let cols = sketch.split(quads[0], &[0, tile.columns, lanes], &["o", "c", "lane"])?;
    let (row_o, row, col_o, col_c, lane, vector) = (rows[0], rows[1], cols[0], cols[1], cols[2], quads[1]);
    sketch.reorder(&[row_o, col_o, lane, row, col_c, vector])?;
    sketch.bind(row_o, Axis::GroupX)?;
    sketch.bind(col_o, Axis::GroupY)?;
    sketch.bind(lane, Axis::LocalX)?;
    Ok(lane)
}

fn accumulate(
    sketch: &mut Sketch<'_>,
    unit: &Unit,
    c: &Contraction,
    lane: Name,
    lanes: i64,
    tile: &SubgroupTile,
) -> Result<(), Decline> {
    let reduce = unit.reduce.ok_or_else(Decline::other_kind)?;
    let columns = usize::from(tile.columns > 1) + usize::from(tile.width > 1);
    if let Some(window) = &unit.window {
        open_windows(sketch, window, lane, columns)?;
    }
    sketch.apply(ComputeAt { block: reduce, at: lane, scope: LocalScope::Register })?;
    let inner = *c.k.last().ok_or_else(Decline::other_kind)?;
    let k = sketch.split(inner, &[0, tile.depth], &["o", "i"])?;
    let spatial = tile_loops(sketch, reduce, lane, (0, columns))?;
    // kh, kw, k_outer, then rows, k_inner, columns: the four products of a row follow each other.
    let mut order: Vec<Name> = c.k[..c.k.len() - 1].to_vec();
    order.push(k[0]);
    let vector = spatial.last().copied().filter(|_| tile.width > 1);
    let rest: Vec<Name> = spatial.iter().copied().filter(|v| Some(*v) != vector).collect();
    let row_loop = rest.first().copied().filter(|_| tile.rows > 1);
    order.extend(row_loop);
    order.push(k[1]);
    order.extend(rest.iter().copied().filter(|v| Some(*v) != row_loop));
    order.extend(vector);
    sketch.reorder(&order)?;
    let outermost = order[0];
    sketch.apply(PadReduction { block: reduce })?;
    stage_operands(sketch, reduce, c, k[0], row_loop, (lane, lanes), tile)?;
    sketch.apply(DecomposeReduction { block: reduce, at: outermost })?;
    // The loops over windows and K steps stay loops; everything inside is unrolled or a vector.
    let mut keep: Vec<Name> = c.k[..c.k.len() - 1].to_vec();
    keep.push(k[0]);
    finish_loops(sketch, lane, &keep)
}

/// Who holds the left operand: the lanes of the subgroup each a part, or each all of it.
const SUBGROUP: &str = "subgroup";
const REGISTERS: &str = "registers";

fn stage_operands(
    sketch: &mut Sketch<'_>,
    reduce: Name,
    c: &Contraction,
    at: Name,
    row_loop: Option<Name>,
    (lane, lanes): (Name, i64),
    tile: &SubgroupTile,
) -> Result<(), Decline> {
    let (a, w) = (Name::new(&format!("{reduce}_a")), Name::new(&format!("{reduce}_w")));
    let (left, right) = (c.left.to_string(), (1 - c.left).to_string());
    // Few rows are read by every lane alike; more are distributed.
    let default = if tile.rows >= lanes / 2 && row_loop.is_some() { SUBGROUP } else { REGISTERS };
    let domain = [SUBGROUP, REGISTERS].map(String::from);
    let held = sketch.choose("left", if row_loop.is_some() { &domain } else { &domain[1..] }, default.into())?;
    match row_loop.filter(|_| held == SUBGROUP) {
        Some(dim) => sketch.apply(StageInSubgroup { block: reduce, operand: left, at, into: a, lane, dim })?,
        None => sketch.apply(StageInRegisters { block: reduce, operand: left, at, into: a, narrow: false })?,
    }
    sketch.apply(StageInRegisters { block: reduce, operand: right, at, into: w, narrow: false })?;
    Ok(())
}

/// Unrolls and vectorizes what is left serial inside the lane loop, except the loops `keep`.
fn finish_loops(sketch: &mut Sketch<'_>, lane: Name, keep: &[Name]) -> Result<(), Decline> {
    let blocks: Vec<Name> = sketch.f.body.blocks().iter().map(|b| b.name).collect();
    for block in blocks {
        let loops = sketch.loops(block)?;
        let reductions = sketch.f.reduction_loops(block);
        let Some(start) = loops.iter().position(|l| l.var == lane) else { continue };
        let inner: Vec<_> = loops[start + 1..]
            .iter()
            .filter(|l| l.kind == LoopKind::Serial && !keep.contains(&l.var))
            .cloned()
            .collect();
        for (i, l) in inner.iter().enumerate() {
            let vector = i + 1 == inner.len() && matches!(l.extent.as_const(), Some(2 | 4));
            if vector && !reductions.contains(&l.var) && sketch.vectorize(l.var).is_ok() {
                continue;
            }
            sketch.unroll(l.var)?;
        }
    }
    Ok(())
}

/// Packs the constant right operand as `[column tile][k...][columns of the tile]`, in the order the kernel reads it.
pub(super) fn pack_right(sketch: &mut Sketch<'_>, c: &Contraction, columns: i64) -> Result<(), Decline> {
    let (Some(buffer), Some((column, ks))) = (c.right_buffer, &c.right_dims) else { return Ok(()) };
    let rank = sketch.f.buffers[buffer].shape.len();
    let name = sketch.f.buffers[buffer].name;
    let mut splits = vec![0i64; rank];
    splits[*column] = columns;
    // Parts are numbered dimension by dimension; the split dimension has two.
    let part = |dim: usize, inner: bool| -> usize { dim + usize::from(dim > *column || (dim == *column && inner)) };
    let others = (0..rank).filter(|d| d != column && !ks.contains(d)).map(|d| part(d, false));
    let order: Vec<usize> = std::iter::once(part(*column, false))
        .chain(others)
        .chain(ks.iter().map(|&d| part(d, false)))
        .chain(std::iter::once(part(*column, true)))
        .collect();
    sketch.apply(TransformLayout { buffer: name, splits, order })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_half_of_the_lanes_have_columns() {
        assert_eq!([7, 8, 12, 16, 24, 32].map(|columns| usual_width(columns, 8)), [1, 1, 2, 2, 4, 4]);
        assert_eq!([8, 16].map(|columns| usual_width(columns, 4)), [2, 4]);
    }
}
