//! Matrix products and convolutions on a processor: tiles of rows and columns in vector registers.
//!
//! The columns of a constant right operand are packed in panels as wide as the tile. Those of another one are read in
//! place if they are adjacent in whole panels, else copied to task memory panel by panel. Rows of the left operand are
//! read in place, one tap of a window after another: no matrix of windows is made. A task multiplies one tile of rows
//! with one panel; tasks with the same panel follow each other, so that it stays in the core's cache.
//!
//! Integers have sums in i32, of i32 or of bytes of either sign. One row is a tile if the right operand is packed.
//! One that is decoded from constants, weights of few bits, is decoded panel by panel into task memory: the words and
//! scales of a panel lie next to each other.
//! Where the left operand lies evenly along parts of the reduction alone, each part is a tap.

use super::analysis::{Contraction, contraction_of_numbers, output_variables};
use super::candidate::Candidate;
use super::decline::Decline;
use super::encoded::{Encoded, encoded, pack_encoded, part_at_once, split_by_sharing};
use super::lanes::{holds_operands, stride};
use super::matmul_subgroup::pack_right;
use super::sketch::Sketch;
use super::unit::Unit;
use super::view::View;
use crate::candidate;
use crate::int::{Int, simplify};
use crate::name::Name;
use crate::schedule::estimate::{KernelEstimate, RegisterTiles, read_again, register_tile_kernel};
use crate::schedule::{AddUnitLoop, Axis, ComputeAt, DecomposeReduction, LocalScope, StageInRegisters, Tensorize};
use crate::tir::analysis::operands::Operand;
use crate::tir::intrinsic::{Intrinsic, strides};
use crate::tir::{BinaryOp, Block, BufferId, Expr};

/// Columns of a product that panels are made for, at least; depth of one, at least.
const LEAST_COLUMNS: i64 = 2;
const LEAST_DEPTH: i64 = 3;
/// Products of bytes in the time of one of words, about.
const BYTES: f64 = 2.0;
/// Bytes of a right operand that stay in the cache of a core: its panels follow each other for each tile of rows.
const KEPT: f64 = 1e6;

candidate! {
    /// A register tile of a product.
    pub(super) struct TileProduct {
        /// Rows of the output.
        pub rows: i64,
    }
}

/// A product that tiles can compute.
struct PanelProduct {
    c: Contraction,
    /// The rows lie at one stride over all loops of rows, so that tiles may cross these.
    together: bool,
    /// Rows that are cut into tiles, columns, and depth.
    sizes: [i64; 3],
    /// Products of so many rows and columns.
    times: i64,
    /// Rows and columns of the register tile.
    tile: [i64; 2],
    /// Columns of the narrowest part of a tile.
    vector: i64,
    /// Each product of a batch has one panel, which is no whole one.
    narrow: bool,
    /// Taps of a window that lie unevenly, as in a transposed convolution: each is a tile of its own.
    lone_taps: i64,
    /// Elements of the right operand's rows are adjacent in whole panels.
    whole_panels: bool,
    /// Both operands are bytes; and the left one's do not lie next to each other along the depth.
    bytes: bool,
    apart: bool,
    /// The right operand is packed.
    packed: bool,
    /// Rows may lie in a border.
    padded: bool,
    /// Taps of a window.
    taps: i64,
    /// Bytes between rows of the left operand, 0 where they lie unevenly.
    row_bytes: i64,
    /// The left operand lies evenly along parts of the innermost reduction loop alone, so long.
    part: Option<i64>,
    /// The right operand is decoded from these; none where it is an element of a buffer.
    decoded: Vec<Encoded>,
}

/// The product of a unit: sums of products of floats, each f32 when it is multiplied, or of integers, each i32.
fn product(view: &View<'_>, unit: &Unit) -> Result<PanelProduct, Decline> {
    let c = contraction_of_numbers(view, unit)?;
    let (rows, columns, depth) = (view.product(&c.m), view.product(&c.n), view.product(&c.k));
    let small = c.n.is_empty() || c.k.is_empty() || columns < LEAST_COLUMNS || depth < LEAST_DEPTH;
    if unit.window.is_some() || small {
        return Err(Decline(format!("{rows} rows, {columns} columns and depth {depth} are too few for tiles")));
    }
    let blocks = unit.reduce.and_then(|r| Some((view.block(r)?, view.block(unit.output)?)));
    let (reduce, output) = blocks.ok_or_else(Decline::other_kind)?;
    let map = output_variables(view.f, reduce, output)?;
    let (left, right) = operands(view, reduce, &c)?;
    let of_bytes = |o: &Load| view.f.buffers[o.0].dtype.size() == 1;
    let bytes = of_bytes(&left) && right.as_ref().is_some_and(of_bytes);
    let own = |v: &Name| map.iter().find(|p| p.1 == *v).map(|p| p.0);
    let ends = [c.n.last().and_then(own).filter(|_| c.n.len() == 1), c.k.last().copied()];
    let decoded = match &right {
        Some(_) => vec![],
        None => encoded(view, reduce, sides(reduce, &c)?[1], ends)?,
    };
    let together = rows_lie_together(view, reduce, &c.m.iter().filter_map(own).collect::<Vec<_>>(), &left);
    let lies = |v: Option<Name>| right.as_ref().zip(v).and_then(|(r, v)| stride(view, (r.0, &r.1), v));
    let mut tile = view.profile.machine.register_tile().ok_or_else(Decline::other_kind)?.map(i64::from);
    let (vector, narrow) = (tile[1] / 2, !c.batch.is_empty() && columns < tile[1]);
    if narrow {
        // The columns of a narrow group are one panel, which the next group's follow.
        tile[1] = columns;
    }
    let whole_panels = columns % tile[1] == 0
        && c.n.len() == 1
        && lies(c.n.last().and_then(own)) == Some(1)
        && lies(c.k.last().copied()).is_some();
    let cut = if together { rows } else { innermost_rows(view, &c) };
    if cut == 1 && !c.right_constant && decoded.is_empty() {
        return Err(Decline("one row reads each element of an operand once: nothing is gained by copying it".into()));
    }
    let times = view.product(&c.batch) * (rows / cut.max(1)).max(1);
    let taps = &c.k[..c.k.len() - 1];
    let (lone_taps, padded) = (lone_taps(view, &left, taps), is_padded(reduce));
    let (packed, taps) = (c.right_constant, view.product(taps));
    let row = c.m.iter().rfind(|v| !is_single(view, v)).and_then(own);
    let row_bytes = 4 * row.and_then(|v| stride(view, (left.0, &left.1), v)).unwrap_or(0).abs();
    let part = c.k.last().and_then(|k| even_part(view, &left, *k));
    Ok(PanelProduct {
        together,
        sizes: [cut, columns, depth],
        times,
        tile,
        vector,
        narrow,
        lone_taps,
        whole_panels,
        bytes,
        apart: bytes && part.is_none() && !lies_along(view, &left, c.k.last()),
        packed,
        padded,
        taps,
        row_bytes,
        part,
        decoded,
        c,
    })
}

/// Taps that lie unevenly, each a tile of its own.
fn lone_taps(view: &View<'_>, (buffer, indices): &Load, taps: &[Name]) -> i64 {
    let lies = |v: &Name| stride(view, (*buffer, indices), *v).is_some() || !indices.iter().any(|i| i.uses(*v));
    if taps.iter().all(lies) { 0 } else { view.product(taps) }
}

/// Elements of the operand lie next to each other along the loop.
fn lies_along(view: &View<'_>, (buffer, indices): &Load, v: Option<&Name>) -> bool {
    v.is_some_and(|v| stride(view, (*buffer, indices), *v) == Some(1))
}

/// Rows of the left operand may lie in a border.
fn is_padded(reduce: &Block) -> bool {
    let mut padded = false;
    reduce.value.visit(&mut |e| padded |= matches!(e, Expr::All(_)));
    padded
}

/// Parts of a reduction loop, at most; elements of one, at least.
const MOST_PARTS: i64 = 64;
const LEAST_PART: i64 = 4;

/// The longest part of a reduction loop along which the left operand lies evenly, if it does not along all of it: the
/// heads of an attention, whose results were transposed, lie apart.
fn even_part(view: &View<'_>, (buffer, indices): &Load, k: Name) -> Option<i64> {
    let all = view.extent_of(k).filter(|_| stride(view, (*buffer, indices), k).is_none())?;
    let [outer, inner] = ["o", "i"].map(|part| Name::new(&format!("{k}_{part}")));
    let known = view.f.bounds();
    let lies_evenly = |part: &i64| {
        let mut bounds = known.clone();
        bounds.insert(outer, 0, all / part - 1);
        bounds.insert(inner, 0, part - 1);
        let at = Int::var(outer) * *part + Int::var(inner);
        let moved: Vec<Int> = indices.iter().map(|i| simplify(&i.substitute(k, &at), &bounds)).collect();
        strides(&view.f.buffers[*buffer], &moved, &[inner], &bounds).is_some()
    };
    let parts = (2..=MOST_PARTS).filter(|n| all % n == 0).map(|n| all / n);
    parts.filter(|part| *part >= LEAST_PART).find(lies_evenly)
}

/// Rows of the innermost loop that has several.
fn innermost_rows(view: &View<'_>, c: &Contraction) -> i64 {
    view.product(c.m.iter().rfind(|v| !is_single(view, v)).map_or(&[], std::slice::from_ref))
}

fn is_single(view: &View<'_>, v: &Name) -> bool {
    view.extent_of(*v) == Some(1)
}

impl PanelProduct {
    /// The possible rows of a tile, most first; one if there is but one. For the sizes that are looked at, a product of
    /// open sizes may have no rows.
    fn rows(&self) -> Vec<i64> {
        let all = self.tile[0].min(self.sizes[0]).max(1);
        (all.min(2)..=all).rev().collect()
    }
    /// The depth that is decoded at a time where no other tile of rows uses the panel.
    fn decoded_part(&self, height: i64) -> Option<i64> {
        let alone = self.sizes[0] <= height && self.part.is_none() && self.c.k.len() == 1;
        if alone { part_at_once(&self.decoded, self.sizes[2]) } else { None }
    }
    /// The tiles of all rows share a panel that is copied, or decoded.
    fn is_copied(&self) -> bool {
        !self.decoded.is_empty() || !(self.packed || self.whole_panels)
    }
    /// Tiles of so many rows: the last one has the rows that are left.
    fn in_tiles(&self, rows: i64) -> RegisterTiles {
        let [all, columns, k] = self.sizes.map(|n| n.max(1) as f64);
        let width = self.tile[1].max(self.vector) as f64;
        let (times, tiles, panels) = (self.times as f64, (all / rows as f64).ceil(), (columns / width).ceil());
        let count = times * tiles * panels;
        let depth = self.part.map_or(k / self.taps.max(1) as f64, |part| part as f64);
        let [left, right, panel] = [all * k / self.taps.max(1) as f64, columns * k, width * k].map(|n| 4.0 * n);
        let row_tile = left / tiles;
        // As the executor orders tasks.
        let again = if self.packed && right <= KEPT {
            read_again(times * tiles * right, right + row_tile)
        } else {
            let [rows, own] =
                [read_again(times * panels * left, left + panel), read_again(count * panel, panel + row_tile)];
            [rows[0] + own[0], rows[1] + own[1]]
        };
        RegisterTiles {
            count,
            tasks: if self.packed { count } else { count / tiles },
            tallest: rows as f64,
            rows: all / tiles,
            columns: columns / panels,
            taps: k / depth,
            depth,
            edges: if self.padded { (2.0 / tiles).min(1.0) } else { 0.0 },
            lone_taps: self.lone_taps as f64,
            copied: if self.is_copied() { times * columns * k } else { 0.0 },
            packed: if self.apart { count * all / tiles * k } else { 0.0 },
            narrow: self.narrow,
            far_columns: false,
            row_bytes: self.row_bytes as f64,
            at_once: if self.bytes { BYTES } else { 1.0 },
            again,
        }
    }
}

/// Tiles of every number of rows.
pub(super) fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    let known = view.once(unit, |view| product(view, unit));
    let product = known.as_ref().as_ref().map_err(Clone::clone)?;
    Ok(product.rows().into_iter().map(|rows| Candidate::new(TileProduct { rows })).collect())
}

/// The kernel with tiles of so many rows.
pub(super) fn price(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    let known = view.once(unit, |view| product(view, unit));
    let (Ok(chosen), Ok(product)) = (candidate.choices::<TileProduct>(), &*known) else { return vec![] };
    register_tile_kernel(view.stages(), [unit.name(), unit.output], product.in_tiles(chosen.rows))
}

/// Multiplies in tiles of so many rows.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let chosen = candidate.choices::<TileProduct>()?;
    let reduce = unit.reduce.ok_or_else(Decline::other_kind)?;
    let mut found = product(&sketch.view(), unit)?;
    if found.c.m.is_empty() {
        let into = Name::new(&format!("{}_row", unit.output));
        sketch.apply(AddUnitLoop { block: unit.output, into })?;
        found.c.m.push(into);
    }
    let domain = found.rows();
    let (c, packed) = (&found.c, found.c.right_constant);
    let mut inner = *c.k.last().ok_or_else(Decline::other_kind)?;
    let width = found.tile[1];
    let height = sketch.choose("rows", &domain, chosen.rows)?;
    if packed {
        pack_right(sketch, c, width)?;
    }
    pack_encoded(sketch, &found.decoded, width)?;
    let loops = Loops::make(sketch, unit.output, &found, [height, width])?;
    let at = loops.row_tiles;
    sketch.apply(ComputeAt { block: reduce, at, scope: LocalScope::Register })?;
    let reductions = sketch.f.reduction_loops(reduce);
    let spatial: Vec<Name> = sketch.inside(reduce, at)?.into_iter().filter(|v| !reductions.contains(v)).collect();
    let [i, j] = match spatial[..] {
        [i, j] => [i, j],
        // One row has no loop.
        [j] if height == 1 => {
            let into = Name::new(&format!("{reduce}_row"));
            sketch.apply(AddUnitLoop { block: reduce, into })?;
            [into, j]
        }
        _ => return Err(Decline("the tile has not two loops".into())),
    };
    let mut taps: Vec<Name> = c.k[..c.k.len() - 1].to_vec();
    if let Some(part) = found.part {
        in_parts(sketch, &mut inner, &mut taps, part)?;
    }
    let staged_at = match found.decoded_part(height) {
        Some(part) => in_parts(sketch, &mut inner, &mut taps, part)?,
        None => loops.panels,
    };
    let order: Vec<Name> = taps.iter().chain(&[i, j, inner]).copied().collect();
    if !packed && !found.whole_panels {
        // The copy's loops are in the order of those around the product: columns innermost.
        let copied: Vec<Name> = taps.iter().chain(&[inner, i, j]).copied().collect();
        sketch.reorder(&copied)?;
        let into = Name::new(&format!("{reduce}_w"));
        let operand = (1 - c.left).to_string();
        sketch.apply(StageInRegisters { block: reduce, operand, at: staged_at, into, narrow: false })?;
        split_by_sharing(sketch, &found.decoded, Name::new(&format!("{into}_{inner}")))?;
    }
    // A part of the depth is around both, the copy and the products.
    sketch.reorder(if staged_at == loops.panels { &order } else { &order[1..] })?;
    sketch.apply(DecomposeReduction { block: reduce, at: order[0] })?;
    let [rows, columns, depth] = [i, j, inner].map(|v| sketch.extent_of(v).filter(|_| !sketch.script.is_open(v)));
    let size = [rows, columns].map(|n| n.unwrap_or(0));
    let sums = sketch.view().block(reduce).map(|b| b.buffer).ok_or_else(Decline::other_kind)?;
    let sums = sketch.f.buffers[sums].dtype;
    sketch.apply(Tensorize { r#loop: i, intrinsic: Intrinsic::tile(size, depth, sums).name })?;
    Ok(())
}

/// Splits the innermost reduction loop in parts, each of which is a tap; gives the loop over them.
fn in_parts(sketch: &mut Sketch<'_>, inner: &mut Name, taps: &mut Vec<Name>, part: i64) -> Result<Name, Decline> {
    let parts = sketch.split(*inner, &[0, part], &["o", "i"])?;
    taps.push(parts[0]);
    *inner = parts[1];
    Ok(parts[0])
}

/// A load of the reduction.
type Load = (BufferId, Vec<Int>);

/// The operands' loads, of which the left one may be 0 under conditions; no right one if that is computed.
fn operands(view: &View<'_>, reduce: &Block, c: &Contraction) -> Result<(Load, Option<Load>), Decline> {
    let sides = sides(reduce, c)?;
    let sums = view.f.buffers[reduce.buffer].dtype;
    let fits = |o: &Operand<'_>| o.widens(sums) && holds_operands(view, o.buffer, sums);
    let load = |o: Operand<'_>| (o.buffer, o.indices.to_vec());
    let [left, right] = sides.map(|e| Operand::of(e).filter(fits));
    match left {
        Some(a) if a.row_padding().is_some() && right.as_ref().is_none_or(|b| b.padding.is_none()) => {
            Ok((load(a), right.map(load)))
        }
        _ => Err(Decline("an operand is computed, or no number of at most 32 bits".into())),
    }
}

/// The left and the right factor.
fn sides<'b>(reduce: &'b Block, c: &Contraction) -> Result<[&'b Expr; 2], Decline> {
    match &reduce.value {
        Expr::Binary(BinaryOp::Mul, x, y) => Ok(if c.left == 0 { [x, y] } else { [y, x] }),
        _ => Err(Decline("operands are converted".into())),
    }
}

/// True if the rows of the left operand lie at one stride over all loops of rows, without conditions that differ
/// between them.
fn rows_lie_together(view: &View<'_>, reduce: &Block, rows: &[Name], left: &Load) -> bool {
    let mut conditional = false;
    reduce.value.visit(&mut |e| {
        if let Expr::All(list) = e {
            conditional |= list.iter().any(|c| rows.iter().any(|v| c.lhs.uses(*v) || c.rhs.uses(*v)));
        }
    });
    let strides: Option<Vec<i64>> = rows.iter().map(|v| stride(view, (left.0, &left.1), *v)).collect();
    let Some(strides) = strides else { return false };
    let next = |n: usize| view.extent_of(rows[n]).is_some_and(|extent| strides[n - 1] == strides[n] * extent);
    !conditional && (1..rows.len()).all(next)
}

/// The loops of a result in tiles.
struct Loops {
    /// Over panels of columns.
    panels: Name,
    /// Over tiles of rows.
    row_tiles: Name,
}

impl Loops {
    fn make(sketch: &mut Sketch<'_>, out: Name, p: &PanelProduct, [height, width]: [i64; 2]) -> Result<Loops, Decline> {
        let c = &p.c;
        let mut rows: Vec<Name> = c.m.clone();
        if !p.together {
            // Loops of one iteration have no rows.
            rows.sort_by_key(|v| !is_single(&sketch.view(), v));
        }
        let own = if p.together { 0 } else { rows.len().saturating_sub(1) };
        let others: Vec<Name> = rows.drain(..own).collect();
        let order: Vec<Name> = c.batch.iter().chain(&others).chain(&rows).chain(&c.n).copied().collect();
        sketch.reorder(&order)?;
        let m = sketch.fuse(&rows, Name::new(&format!("{out}_m")))?;
        let n = sketch.fuse(&c.n, Name::new(&format!("{out}_n")))?;
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

#[cfg(test)]
mod tests {
    use crate::profile::DeviceProfile;
    use crate::schedule::ScheduleOptions;
    use crate::schedule::rules::schedule;
    use crate::schedule::testing::assert_same;
    use crate::text::{parse_tensor_function, print_tensor_function};

    /// This rule, whatever is cheaper.
    fn asked() -> ScheduleOptions {
        ScheduleOptions { rules: vec!["matmul-tile".into()], ..ScheduleOptions::default() }
    }

    /// Rows, windows and depth of open lengths: the strides of an image between its channels are open, too.
    #[test]
    fn products_of_open_sizes_are_tiles() {
        let convolution = |window: i64, pad: i64| {
            let place = |v: &str, r: &str| format!("{v} + {r} - {pad}");
            let (y, x) = (place("i", "r"), place("j", "s"));
            format!(
                "tensor @f(%x: f32[n,8,h,w], %k: f32[16,8,{window},{window}], out %y: f32[n,h,w,16]) {{
  symbol n in 1..=8
  symbol h in 1..=640
  symbol w in 1..=640
  for a in 0..n {{ for i in 0..h {{ for j in 0..w {{ for o in 0..16 {{
  for r in 0..{window} {{ for s in 0..{window} {{ for c in 0..8 {{
    block y reduce sum init {{
      %y[a, i, j, o] <- select(all({y} >= 0, {y} < h, {x} >= 0, {x} < w), %x[a, c, {y}, {x}], 0.0) * %k[o, c, r, s]
    }}
  }} }} }} }} }} }} }}
}}"
            )
        };
        let product = "tensor @f(%x: f32[b,m,d], %k: f32[b,d,32], out %y: f32[b,m,32]) {
  symbol b in 1..=8
  symbol m in 1..=640
  symbol d in 1..=640
  for a in 0..b { for i in 0..m { for j in 0..32 { for k in 0..d {
    block y reduce sum init { %y[a, i, j] <- %x[a, i, k] * %k[a, k, j] }
  } } } }
}";
        let profile = DeviceProfile::processor(2, [6, 16]);
        for text in [convolution(3, 1), convolution(1, 0), product.to_string()] {
            let f = parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let weights: Vec<_> = f.inputs().skip(1).filter(|_| text.contains('h')).collect();
            let s = schedule(&f, &weights, asked().on(&profile)).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let declined = s.declined.join("\n");
            assert!(s.rule == "matmul-tile" && !s.compromise, "{} {declined}", print_tensor_function(&s.function));
        }
    }

    /// Products of bytes, one row, and a left operand that lies in parts: the heads of an attention beside each other.
    #[test]
    fn integers_one_row_and_parts_are_tiles() {
        let nest = |rows: i64, value: &str, depth: i64| {
            format!(
                "  for i in 0..{rows} {{ for j in 0..40 {{ for k in 0..{depth} {{
    block y reduce sum init {{ %y[i, j] <- {value} }}
  }} }} }}
}}"
            )
        };
        let bytes = "tensor @f(%x: u8[20,30], %w: i8[30,40], out %y: i32[20,40]) {\n".to_string();
        let row = "tensor @f(%x: f32[1,30], %w: f32[30,40], out %y: f32[1,40]) {\n".to_string();
        let heads = "tensor @f(%x: f32[3,20,16], %w: f32[48,40], out %y: f32[20,40]) {\n".to_string();
        let plain = "%x[i, k] * %w[k, j]";
        for (text, intrinsic) in [
            (bytes + &nest(20, "i32(%x[i, k]) * i32(%w[k, j])", 30), "x32x30_i32"),
            (row + &nest(1, plain, 30), "tile_1x32x30_f32"),
            (heads + &nest(20, "%x[k/16, i, k % 16] * %w[k, j]", 48), "x32x16_f32"),
        ] {
            let f = parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let weights: Vec<_> = f.inputs().skip(1).collect();
            let profile = DeviceProfile::processor(2, [14, 32]);
            let s = schedule(&f, &weights, asked().on(&profile)).expect("a schedule");
            let trace = print_tensor_function(&s.function);
            assert!(s.rule == "matmul-tile" && trace.contains(intrinsic), "{trace} {:?}", s.declined);
            let mut got = s.function.clone();
            got.name = f.name;
            assert_same(&f, &got);
        }
    }

    /// Weights of 4 bits are decoded panel by panel, also where columns are no whole panels; blocks of several sizes.
    #[test]
    fn weights_of_few_bits_are_decoded_by_panels() {
        let nest = |rows: i64, columns: i64, depth: i64, block: i64| {
            format!(
                "tensor @f(%x: f32[{rows},{depth}], %w: u32[{columns},{}], %s: f32[{columns},{}], \
                 %z: u8[{columns},{}], out %y: f32[{rows},{columns}]) {{
  for i in 0..{rows} {{ for j in 0..{columns} {{ for k in 0..{depth} {{
    block y reduce sum init {{
      %y[i, j] <- %x[i, k] * ((f32(bitand(shr(%w[j, k/8], idx(k % 8*4):u32), 15:u32)) - f32(%z[j, k/{block}])) * \
      %s[j, k/{block}])
    }}
  }} }} }}
}}",
                depth / 8,
                depth / block,
                depth / block
            )
        };
        let sizes =
            [(1, 64, 64, 32), (1, 40, 64, 16), (20, 64, 64, 16), (9, 33, 64, 64), (1, 40, 512, 32), (3, 32, 768, 64)];
        for (rows, columns, depth, block) in sizes {
            let text = nest(rows, columns, depth, block);
            let f = parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let weights: Vec<_> = f.inputs().skip(1).collect();
            let s = schedule(&f, &weights, &DeviceProfile::processor(2, [14, 32])).expect("a schedule");
            let trace = print_tensor_function(&s.function);
            assert!(s.rule == "matmul-tile" && trace.contains("stage-in-registers"), "{trace} {:?}", s.declined);
            let mut got = s.function.clone();
            got.name = f.name;
            assert_same(&f, &got);
        }
    }
}
