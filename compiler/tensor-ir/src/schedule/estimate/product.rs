//! Sums of products: matrix products and convolutions, in the tiles of the rules.

use super::operands::{Copied, Operand, Product};
use super::rates::{FRAGMENT, PLACE_IN_ROW, PLACE_IN_WINDOW, STEP};
use super::reads::{Demand, Lanes, Loop, Read, Touch, iterations};
use super::stages::Stages;
use super::tally::Tally;
use crate::dtype::DType;
use crate::int::Int;
use crate::name::Name;
use crate::profile::quirks::SINKS_LOADS;
use crate::schedule::tiles::{Depth, MatrixTile, PAD, ProductSize, ProductTile, innermost};
use crate::tir::analysis::operands::{factors, without_casts};
use crate::tir::{BinaryOp, Block, BufferId, Combiner, Expr};
use crate::traffic::{BANK_BYTES, BANKS, SECTOR_BYTES, bank_passes, element_bytes};

/// Windows over the rows of a product: how often each result is computed, and elements of a window.
#[derive(Clone, Copy)]
pub(super) struct PoolingWindows {
    pub times: f64,
    pub taps: i64,
}

/// Registers of a thread of a tiled product, besides the sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::schedule) struct Holdings {
    /// Whether threads copy neighbours of the left and of the right operand at once.
    pub vectors: [bool; 2],
    /// Whether each operand is f32 in memory, and is rounded to f16 where it is copied.
    pub wide: [bool; 2],
    /// Elements that each operand's element is computed of, beside the first of them; `None` where it is copied as it
    /// is.
    pub computed: [Option<i64>; 2],
    /// Indices of the left operand's windows that are quotients, as those of a transposed convolution; `None` where it
    /// is read without.
    pub windows: Option<i64>,
    /// Whether functions (exponentials, error functions) are computed of its results.
    pub functions: bool,
    /// Registers for what else the kernel computes, before and after the product.
    pub others: i64,
}

/// Bytes of a packed word.
pub(super) const WORD: f64 = 4.0;

/// How threads copy an operand.
#[derive(Clone, Copy)]
struct Copying {
    /// Elements of the reduction at a time.
    depth: i64,
    /// Neighbours along the rows may be a vector.
    across: bool,
}

/// Bytes of a half.
const HALF: f64 = 2.0;
/// Neighbouring halves that a thread loads at once, at most.
const WIDE: i64 = 8;

/// True when both operands are bytes as they lie in memory, or constants in their place, and the device multiplies
/// words of them.
pub(super) fn multiplies_bytes(stages: &Stages<'_>, block: &Block) -> bool {
    let types: Vec<DType> = block.value.loads().iter().map(|l| stages.f.buffers[l.0].dtype).collect();
    let plain = matches!(types[..], [a, b] if a == b && matches!(a, DType::I8 | DType::U8));
    let mut computed = false;
    block
        .value
        .visit(&mut |e| computed |= matches!(e, Expr::Unary(..) | Expr::Binary(BinaryOp::Add | BinaryOp::Sub, ..)));
    let bytes = plain && !computed && stages.f.buffers[block.buffer].dtype == DType::I32;
    bytes && stages.target.multiplies_bytes()
}

/// An operand is read in more than 16 bits an element.
fn is_wide(stages: &Stages<'_>, demand: &Demand) -> bool {
    demand.reads.iter().any(|r| stages.f.buffers[r.buffer].dtype.size() as f64 > HALF)
}

/// How many more loads there are than are used where each of so many steps loads for the next one, the last one too:
/// what it has itself, which a cache holds.
fn loaded_ahead(stages: &Stages<'_>, steps: f64) -> f64 {
    let always = stages.rates.model.overlaps && steps > 1.0 && !stages.profile.quirks.has(&SINKS_LOADS);
    if always { 1.0 + 1.0 / steps } else { 1.0 }
}

impl<'f> Product<'f> {
    /// The product that a stage sums up; `None` for another reduction.
    pub fn of(stages: &Stages<'f>, stage: usize) -> Option<Product<'f>> {
        let block = stages.list[stage].block;
        block.reduce.filter(|r| r.combiner == Combiner::Sum)?;
        let [a, b] = factors(&block.value)?;
        let bytes = multiplies_bytes(stages, block);
        if !stages.f.buffers[block.buffer].dtype.is_float() && !bytes {
            return None;
        }
        let constant = |e: &Expr| matches!(without_casts(e), Expr::Load(b, _) if stages.constants.contains(b));
        let (left, right) = if constant(b) || !constant(a) { (a, b) } else { (b, a) };
        let (spatial, reduction) = stages.loops(stage);
        let packed = constant(right);
        let [left, right] =
            [(left, false), (right, packed)].map(|(e, packed)| Operand::of(e, stages.demand(e), packed));
        let (rows, columns, batch) = (vec![], vec![], vec![]);
        let mut p = Product { rows, columns, batch, depth: vec![], left, right, bytes };
        for l in reduction.into_iter().filter(|l| l.1 > 1) {
            if !p.left.uses(l.0) || !p.right.uses(l.0) {
                return None;
            }
            p.depth.push(l);
        }
        for l in spatial {
            let list = match (p.left.uses(l.0), p.right.uses(l.0)) {
                (false, true) => &mut p.columns,
                (true, false) => &mut p.rows,
                (false, false) if l.1 == 1 => &mut p.rows,
                _ => &mut p.batch,
            };
            list.push(l);
        }
        p.order_depth(stages);
        Some(p)
    }
    /// The loop whose elements lie next to each other innermost, as the rules order them.
    fn order_depth(&mut self, stages: &Stages<'_>) {
        let reads: Vec<(BufferId, &[Int])> =
            self.left.demand.reads.iter().map(|r| (r.buffer, r.index.as_slice())).collect();
        if let Some(inner) = innermost(stages.f, &reads, &self.depth) {
            let (rest, inner) = self.depth.iter().partition::<Vec<Loop>, _>(|l| l.0 != inner);
            self.depth = [rest, inner].concat();
        }
    }
    /// How the elements that are added up lie, of so many bytes in the narrower and the wider operand.
    fn lies(&self, bytes: [i64; 2]) -> Depth {
        let loops: Vec<i64> = self.depth.iter().map(|l| l.1).collect();
        Depth::of(&loops, bytes)
    }
    /// Whether each of these loops of the result is one of rows.
    pub fn has_rows(&self, v: Name) -> bool {
        self.rows.iter().any(|l| l.0 == v)
    }
    /// The size of a product of numbers with windows over its results.
    pub fn size(&self, stages: &Stages<'_>, windows: PoolingWindows) -> Option<ProductSize> {
        if self.bytes || self.rows.is_empty() || self.columns.is_empty() || self.depth.is_empty() {
            return None;
        }
        let rows = (iterations(&self.rows) * windows.times) as i64;
        let [columns, depth, batch] = [&self.columns, &self.depth, &self.batch].map(|l| iterations(l) as i64);
        let reads = self.left.demand.reads.iter().chain(&self.right.demand.reads);
        let bytes = Depth::bytes(reads.map(|r| stages.f.buffers[r.buffer].dtype));
        Some(ProductSize { all: [batch, rows, columns, depth], taps: windows.taps, lies: self.lies(bytes) })
    }
    /// What a thread holds beside sums; `functions` says whether exponentials and error functions are computed of its
    /// results.
    pub fn holdings(&self, stages: &Stages<'_>, functions: bool) -> Holdings {
        Holdings {
            vectors: self.vectors(stages),
            wide: self.wide(stages),
            computed: self.computed(),
            windows: self.windows(),
            functions,
            others: 0,
        }
    }
    /// Counts a kernel with this tile: both operands and the products.
    pub fn count(&self, stages: &Stages<'_>, tile: &ProductTile, windows: Option<PoolingWindows>) -> Tally {
        let times = windows.map_or(1.0, |w| w.times);
        let up = |n: f64, by: i64| (n / by as f64).ceil();
        let (row_tiles, column_tiles) =
            (up(iterations(&self.rows) * times, tile.rows), up(iterations(&self.columns), tile.columns));
        let batch = iterations(&self.batch);
        let mut depth = iterations(&self.depth);
        if stages.rates.model.workgroup_memory {
            // The last step is padded.
            depth = up(depth, tile.depth) * tile.depth as f64;
        }
        let tiles = row_tiles * column_tiles * batch;
        let [left, right] = [tile.rows, tile.columns].map(|n| tiles * n as f64 * depth);
        let groups = tiles * tile.slices as f64;
        let mut tally = Tally { workgroups: groups, threads: tile.threads as f64, ..Tally::default() };
        let word = if self.bytes { WORD } else { 1.0 };
        tally.operations = 2.0 * left * tile.columns as f64 / word;
        // Words of bytes lie along the depth.
        let copying = Copying { depth: tile.depth, across: !self.bytes };
        let loaded = loaded_ahead(stages, depth / (tile.depth * tile.slices) as f64);
        for (operand, outer, elements) in [(&self.left, &self.rows, left), (&self.right, &self.columns, right)] {
            tally.operations += operand.demand.operations * elements;
            let mut loads = Tally::default();
            self.operand(stages, &mut loads, operand, (outer, elements), copying);
            loads.accesses *= loaded;
            tally.add(loads);
        }
        if stages.rates.model.workgroup_memory {
            tally.results = (tile.thread_rows * tile.thread_columns) as f64;
            // Vectors of both operands for each step of a thread, short ones as much as whole ones. Lanes in the same
            // row read the same rows, those in the same column the same columns.
            let across = (tile.columns / tile.thread_columns).clamp(1, stages.rates.lanes);
            let vectors = [(tile.thread_rows, stages.rates.lanes / across), (tile.thread_columns, across)];
            let passes: f64 = vectors.iter().map(|&(n, lanes)| up(n as f64, 4) * up((4 * lanes) as f64, BANKS)).sum();
            let subgroups = tiles * tile.threads as f64 / stages.rates.lanes as f64;
            tally.passes += subgroups * depth * passes / word;
            let own =
                [(&self.left, &self.rows, left, tile.rows + PAD), (&self.right, &self.columns, right, tile.columns)];
            for (operand, outer, elements, pitch) in own {
                let each = self.stores(stages, operand, outer, tile, (copying, pitch));
                tally.passes += elements * each / word;
            }
            tally.shared_bytes = ((tile.rows + tile.columns) * tile.depth * 4) as u64 / word as u64;
            tally.operations += tiles * tile.threads as f64 * (depth / tile.depth as f64).ceil() * STEP;
        }
        tally
    }
    /// Counts a kernel on matrix units with this tile: both operands, their way through workgroup memory into
    /// fragments, and the products.
    pub fn count_matrices(&self, stages: &Stages<'_>, tile: &MatrixTile) -> Tally {
        let t = &tile.tile;
        let up = |n: f64, by: i64| (n / by as f64).ceil();
        let steps = up(iterations(&self.depth), t.depth);
        let depth = steps * t.depth as f64;
        let tiles =
            up(iterations(&self.rows), t.rows) * up(iterations(&self.columns), t.columns) * iterations(&self.batch);
        let [left, right] = [t.rows, t.columns].map(|n| tiles * n as f64 * depth);
        let threads = t.threads as f64;
        let mut tally = Tally { workgroups: tiles * t.slices as f64, threads, ..Tally::default() };
        tally.results = (t.thread_rows * t.thread_columns) as f64;
        tally.operations = 2.0 * left * t.columns as f64 / stages.rates.matrices + tiles * threads * steps * STEP;
        for (operand, outer, elements) in [(&self.left, &self.rows, left), (&self.right, &self.columns, right)] {
            let demand = &operand.demand;
            tally.operations += demand.operations * elements;
            let mut loads = Tally::default();
            self.operand(stages, &mut loads, operand, (outer, elements), Copying { depth: t.depth, across: true });
            loads.accesses *= loaded_ahead(stages, steps / t.slices as f64);
            let vectors = self.loads_vectors(stages, operand, outer);
            if vectors && !is_wide(stages, demand) && self.lies([2; 2]).channels % WIDE == 0 {
                loads.accesses /= 2.0;
            }
            tally.add(loads);
        }
        // Each subgroup reads its rows and columns from workgroup memory, where the copies have stored the whole tile.
        let of_subgroups =
            (left / tile.rows as f64) * t.columns as f64 / tile.columns as f64 * (tile.rows + tile.columns) as f64;
        tally.operations += of_subgroups * FRAGMENT;
        tally.passes = of_subgroups * HALF / (BANKS * BANK_BYTES) as f64;
        let own = [(&self.left, &self.rows, left, t.rows), (&self.right, &self.columns, right, t.columns)];
        for (operand, outer, elements, size) in own {
            tally.passes += elements * self.stores_rows(stages, operand, outer, [size, t.depth]);
        }
        tally.shared_bytes = tile.shared_bytes;
        tally
    }
    /// Whether threads copy neighbours of an operand together.
    fn loads_vectors(&self, stages: &Stages<'_>, o: &Operand<'_>, outer: &[Loop]) -> bool {
        o.packed || o.demand.reads.iter().all(|r| self.copied(stages, r, outer, true).width > 1)
    }
    /// Whether each operand's neighbours are copied together.
    pub fn vectors(&self, stages: &Stages<'_>) -> [bool; 2] {
        [self.loads_vectors(stages, &self.left, &self.rows), self.loads_vectors(stages, &self.right, &self.columns)]
    }
    /// Whether each operand is converted from more than 16 bits while it is copied.
    pub fn wide(&self, stages: &Stages<'_>) -> [bool; 2] {
        [&self.left, &self.right].map(|o| !o.packed && is_wide(stages, &o.demand))
    }
    /// Elements that each operand's is computed of, beside the first of them; `None` where it is only moved.
    pub fn computed(&self) -> [Option<i64>; 2] {
        let others = |d: &Demand| (d.reads.len() as i64 - 1).max(0);
        [&self.left, &self.right].map(|o| (o.demand.computes && !o.packed).then(|| others(&o.demand)))
    }
    /// Quotients in the left operand's indices where it is read by windows: several loops make the reduction, and the
    /// innermost one is over channels.
    pub fn windows(&self) -> Option<i64> {
        let (_, around) = self.depth.split_last().filter(|(_, around)| !around.is_empty())?;
        let moves = |i: &Int| around.iter().any(|l| i.uses(l.0));
        let reads = &self.left.demand.reads;
        let quotients = |r: &Read| r.element().1.iter().filter(|i| moves(i) && i.has_quotient()).count() as i64;
        Some(reads.iter().map(quotients).max().unwrap_or(0))
    }
    /// Counts the loads of an operand, `elements` of it in all.
    fn operand(
        &self,
        stages: &Stages<'_>,
        tally: &mut Tally,
        operand: &Operand<'_>,
        (outer, elements): (&[Loop], f64),
        Copying { depth, across }: Copying,
    ) {
        let lanes = stages.rates.lanes;
        let Some(&(_, channels)) = self.depth.last() else { return };
        let known = operand.copies[usize::from(across)].get_or_init(|| self.copies(stages, operand, outer, across));
        for (r, &Copied { touch, width, .. }) in operand.demand.reads.iter().zip(known) {
            // Where a step goes through several elements of a window.
            let apart = channels % 4 != 0 && self.depth.len() > 1;
            if apart && !operand.packed && stages.rates.model.workgroup_memory && width == 1 {
                let whole = self.lies([4; 2]).row == Some(depth);
                tally.operations += if whole { PLACE_IN_ROW } else { PLACE_IN_WINDOW } * elements;
            }
            stages.count_touch(tally, r.buffer, touch, elements / (lanes * width) as f64, elements);
        }
    }
    /// Passes over workgroup memory for each element of an operand that threads store to a tile with rows of `pitch`
    /// words for each element of the depth.
    fn stores(
        &self,
        stages: &Stages<'_>,
        operand: &Operand<'_>,
        outer: &[Loop],
        tile: &ProductTile,
        (Copying { across, .. }, pitch): (Copying, i64),
    ) -> f64 {
        let lanes = stages.rates.lanes;
        let known = operand.copies[usize::from(across)].get_or_init(|| self.copies(stages, operand, outer, across));
        let Some(copied) = known.first() else { return 0.0 };
        let halves = !is_wide(stages, &operand.demand) && self.lies([2; 2]).channels % WIDE == 0;
        let enough = pitch / 4 * 4 * tile.depth >= WIDE * tile.threads;
        let run = if copied.width > 1 && halves && enough { WIDE } else { copied.width };
        let of_row = (tile.depth / run).max(1);
        let word = |l: i64| if copied.across { l * run } else { l % of_row * run * pitch + l / of_row };
        let at_once = if copied.across { run.min(4) } else { 1 };
        let starts: Vec<i64> = (0..lanes).map(|l| word(l) * BANK_BYTES).collect();
        bank_passes(&starts, at_once * BANK_BYTES).0 as f64 / (lanes * at_once) as f64
    }
    /// The same for a tile of halves with a row of the depth for each of `size` rows or columns of the product.
    fn stores_rows(&self, stages: &Stages<'_>, operand: &Operand<'_>, outer: &[Loop], [size, depth]: [i64; 2]) -> f64 {
        let known = operand.copies[1].get_or_init(|| self.copies(stages, operand, outer, true));
        let Some(copied) = known.first().filter(|c| c.across && !operand.packed) else {
            return HALF / (BANKS * BANK_BYTES) as f64;
        };
        let neighbours = outer.iter().rev().find(|l| l.1 > 1).map_or(1, |l| l.1);
        let halves = copied.width > 1 && !is_wide(stages, &operand.demand) && neighbours % WIDE == 0;
        let run = if halves { WIDE } else { copied.width };
        let pitch = depth + WIDE.min(stages.profile.matrix_load_bytes() / HALF as i64);
        let across = (size / run).max(1);
        let lanes = stages.rates.lanes;
        let starts: Vec<i64> = (0..lanes).map(|l| (l % across * run * pitch + l / across) * HALF as i64).collect();
        bank_passes(&starts, HALF as i64).0 as f64 / lanes as f64
    }
    /// How each read of an operand is copied.
    fn copies(&self, stages: &Stages<'_>, o: &Operand<'_>, outer: &[Loop], across: bool) -> Vec<Copied> {
        let lanes = stages.rates.lanes;
        let of = |r: &Read| match self.depth.last() {
            _ if o.packed => {
                let bytes = element_bytes(&stages.f.buffers[r.buffer], stages.profile);
                let touch = Touch { accesses: 1.0, sectors: (lanes * 4) as f64 * bytes / SECTOR_BYTES as f64 };
                Copied { touch, width: 4, across: true }
            }
            Some(&(inner, channels)) if !stages.rates.model.workgroup_memory => {
                // A lane has rows, and loads several steps of each.
                let width = [4, 2].into_iter().find(|w| channels % w == 0).unwrap_or(1);
                let touch = stages.touch(r, &Lanes { order: outer, width, along: Some(inner) });
                Copied { touch, width, across: false }
            }
            _ => self.copied(stages, r, outer, across),
        };
        o.demand.reads.iter().map(of).collect()
    }
    /// How threads copy an operand together, along the depth or along the rows, whichever lies next to each other.
    fn copied(&self, stages: &Stages<'_>, r: &Read, outer: &[Loop], across: bool) -> Copied {
        let Some(&(inner, channels)) = self.depth.last() else {
            return Copied { touch: Touch { accesses: 1.0, sectors: 1.0 }, width: 1, across: false };
        };
        let step = (inner, channels.min(16));
        let by_depth: Vec<Loop> = outer.iter().copied().chain([step]).collect();
        let by_rows: Vec<Loop> = [step].into_iter().chain(outer.iter().copied()).collect();
        let last = outer.iter().rev().find(|l| l.1 > 1).map_or(1, |l| l.1);
        // Elements that are no neighbours are copied one by one, each lane another.
        let of = |order: &[Loop], n: i64, across: bool| {
            let by =
                |width: i64| Copied { touch: stages.touch(r, &Lanes { order, width, along: None }), width, across };
            Some(by(4)).filter(|t| n % 4 == 0 && t.touch.accesses == 1.0).unwrap_or_else(|| by(1))
        };
        let (a, b) = (of(&by_depth, step.1, false), of(&by_rows, last, true));
        let each = |c: &Copied| (c.touch.accesses / c.width as f64, c.touch.sectors / c.width as f64);
        // Along the rows only in whole vectors.
        if across && b.width > 1 && each(&b) < each(&a) { b } else { a }
    }
    /// Loops of the result with the columns innermost, as threads store it, under the names that `name` gives them.
    pub fn store_order(&self, name: &dyn Fn(Name) -> Name) -> Vec<Loop> {
        self.batch.iter().chain(&self.rows).chain(&self.columns).map(|l| (name(l.0), l.1)).collect()
    }
}
