//! Kernels of processors: register tiles, windows whose lanes lie next to each other, and leaves that run as strips of
//! lanes. They are counted here in what [`prices`](super::prices) has a price for.

use super::leaves::{MOST_CONDITIONS, conditions, divides, functions, shifts};
use super::prices::{Count, FIRST_CACHE, SECOND_CACHE};
use super::reads::{Demand, Loop, Read, extent, iterations};
use super::stages::Stages;
use super::tally::{FUNCTION, KernelEstimate, Tally};
use super::units::named;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::tir::analysis::operands::{Operand, factors};
use crate::tir::{Block, BufferId, Expr};
use crate::traffic::element_bytes;
use std::ops::RangeInclusive;

/// Register tiles, all alike.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::schedule) struct RegisterTiles {
    /// How many there are, and the tasks that they are in.
    pub count: f64,
    pub tasks: f64,
    /// Rows of the tallest one, and the mean of rows and columns.
    pub tallest: f64,
    pub rows: f64,
    pub columns: f64,
    /// Taps of a window, and the elements of each.
    pub taps: f64,
    pub depth: f64,
    /// The part of the tiles whose rows may lie in a border.
    pub edges: f64,
    /// Taps that are tiles of their own.
    pub lone_taps: f64,
    /// Elements of a right operand that are copied, in all.
    pub copied: f64,
    /// Bytes of a left operand that lie apart along the depth, and are packed in words, for all tiles.
    pub packed: f64,
    /// Rows of results are no whole vectors.
    pub narrow: bool,
    /// Rows of the right operand lie so that they share a set of the first cache.
    pub far_columns: bool,
    /// Bytes from one row of the left operand to the next, if they lie evenly.
    pub row_bytes: f64,
    /// Vectors that are multiplied at once.
    pub at_once: f64,
    /// Bytes of operands that are read again: from a core's second cache, and from beyond it.
    pub again: [f64; 2],
}

/// How far apart the lanes of an operand may lie that a tile reads, in elements; next to each other is nearer.
pub(in crate::schedule) const NEAR_LANES: RangeInclusive<i64> = 2..=4;

/// Bytes after which places share a set of the first cache; rows half as far apart that do not disturb each other.
const SET: f64 = 4096.0;
const FEW_ROWS: f64 = 10.0;

/// Bytes that are read so often altogether, by the cache that has them: one that has `kept` bytes is read from.
pub(in crate::schedule) fn read_again(bytes: f64, kept: f64) -> [f64; 2] {
    match kept {
        k if k <= FIRST_CACHE => [0.0, 0.0],
        k if k <= SECOND_CACHE => [bytes, 0.0],
        _ => [0.0, bytes],
    }
}

/// The kernel of a product in such tiles. `blocks` are the product and what stores what is made of it; none where they
/// are no plain stages.
pub(in crate::schedule) fn register_tile_kernel(
    stages: &Stages<'_>,
    [reduce, output]: [Name; 2],
    tiles: RegisterTiles,
) -> Vec<KernelEstimate> {
    let Some((r, out)) = positions(stages, reduce, output) else { return vec![] };
    let mut c = Counter::new(stages, tiles.tasks);
    c.product(&tiles);
    c.touch_reads(r);
    c.finish(out, r);
    vec![c.kernel(out)]
}

/// How `lanes` cuts a unit: the extents of the loops that a task keeps, outermost first, and the reduction loop whose
/// iterations are the lanes.
#[derive(Clone, Debug)]
pub(in crate::schedule) struct LaneTasks {
    pub tasks: f64,
    pub inner: Vec<i64>,
    pub across: Option<Name>,
}

/// The kernel of a reduction and what is made of it, or of a lone compute block; none where they are no plain stages.
pub(in crate::schedule) fn lane_kernel(
    stages: &Stages<'_>,
    reduce: Option<Name>,
    output: Name,
    how: &LaneTasks,
) -> Vec<KernelEstimate> {
    let Some((_, out)) = positions(stages, output, output) else { return vec![] };
    let r = reduce.and_then(|r| stages.position(r));
    if r.is_some() != reduce.is_some() {
        return vec![];
    }
    let mut c = Counter::new(stages, how.tasks);
    match r {
        None => c.leaf(out, how.tasks, None),
        Some(r) => {
            c.reduction(r, how);
            c.touch_reads(r);
            c.finish(out, r);
        }
    }
    vec![c.kernel(out)]
}

/// The kernel of so many tasks that compute rows: every reduction of the function along them, then `output`.
pub(in crate::schedule) fn row_task_kernel(stages: &Stages<'_>, output: Name, tasks: f64) -> Vec<KernelEstimate> {
    let Some((_, out)) = positions(stages, output, output) else { return vec![] };
    let reductions = (0..stages.list.len()).filter(|s| stages.list[*s].block.reduce.is_some());
    let mut c = Counter::new(stages, tasks);
    // Long rows cost as much as leaves of their own.
    let leaves = |loops: &[Loop]| {
        let length = loops.iter().rev().find(|l| l.1 > 1).map_or(1.0, |l| l.1 as f64);
        if length > SHORT_ROW { iterations(loops) / length } else { tasks }
    };
    let long = leaves(&stages.loops(out).0);
    for r in reductions {
        let along = innermost(&stages.loops(r).1);
        c.leaf(r, long, along);
    }
    c.leaf(out, long, None);
    vec![c.kernel(out)]
}

/// Lanes of a row, at most, of which several cost no more than their lanes: longer ones were measured as leaves.
const SHORT_ROW: f64 = 64.0;

/// A kernel that copies half of so many bytes to the other half.
pub(super) fn copy_of_bytes(profile: &DeviceProfile, bytes: f64) -> Tally {
    let lanes = lanes_of(profile);
    let tasks = (bytes / COPY_TASK).ceil().max(1.0);
    let mut tally = Tally { workgroups: tasks, threads: 1.0, ..Tally::default() };
    let far = if bytes > SECOND_CACHE { bytes } else { 0.0 };
    let counts = [(Count::Kernel, 1.0), (Count::Task, tasks), (Count::Leaf, tasks), (Count::Run, tasks)];
    let moved = [(Count::Access, bytes / (4.0 * lanes)), (Count::Byte, bytes), (Count::FarByte, far)];
    counts.into_iter().chain(moved).for_each(|(count, n)| tally.counts[count as usize] += n);
    tally
}

/// Bytes that a task of a copy reads and writes.
const COPY_TASK: f64 = 131_072.0;

/// Lanes of a vector.
fn lanes_of(profile: &DeviceProfile) -> f64 {
    profile.machine.register_tile().map_or(1.0, |t| (f64::from(t[1]) / 2.0).max(1.0))
}

fn positions(stages: &Stages<'_>, reduce: Name, output: Name) -> Option<(usize, usize)> {
    let found = stages.position(reduce).zip(stages.position(output));
    found.filter(|_| stages.can_be_counted())
}

fn innermost(loops: &[Loop]) -> Option<Name> {
    loops.iter().rev().find(|l| l.1 > 1).map(|l| l.0)
}

/// Counts a kernel.
struct Counter<'s, 'f> {
    stages: &'s Stages<'f>,
    tally: Tally,
    /// Lanes of a vector, and rows and columns of a register tile.
    lanes: f64,
    tile: [f64; 2],
}

impl<'s, 'f> Counter<'s, 'f> {
    fn new(stages: &'s Stages<'f>, tasks: f64) -> Counter<'s, 'f> {
        let tile = stages.profile.machine.register_tile().unwrap_or([1, 2]).map(f64::from);
        let mut tally = Tally { workgroups: tasks.max(1.0), threads: 1.0, ..Tally::default() };
        tally.counts[Count::Kernel as usize] = 1.0;
        tally.counts[Count::Task as usize] = tasks.max(1.0);
        Counter { stages, tally, lanes: lanes_of(stages.profile), tile }
    }
    fn add(&mut self, count: Count, n: f64) {
        self.tally.counts[count as usize] += n;
    }
    fn kernel(mut self, out: usize) -> KernelEstimate {
        let f = self.stages.f;
        let own = |b: BufferId| f.params.iter().any(|p| p.buffer == b);
        let size = |b: BufferId| f.buffers[b].numel().eval(&|_| Some(16)).unwrap_or(1).max(1) as f64;
        let touched = self.tally.touched.iter().filter(|t| own(*t.0));
        let bytes: f64 =
            touched.map(|(b, n)| n.min(size(*b)) * element_bytes(&f.buffers[*b], self.stages.profile)).sum();
        self.add(Count::Byte, bytes);
        self.add(Count::FarByte, if bytes > SECOND_CACHE { bytes } else { 0.0 });
        named(self.stages, out, &self.tally)
    }
    /// Vectors that hold so many columns, of `rows` rows.
    fn vectors(&self, rows: f64, columns: f64) -> f64 {
        rows * (columns / self.lanes).ceil()
    }
    /// The multiplications of tiles.
    fn product(&mut self, t: &RegisterTiles) {
        let [most, width] = self.tile;
        let parts = (t.rows / most).ceil() * (t.columns / width).ceil();
        let deep = t.taps * t.depth / t.at_once;
        self.add(Count::ProductTile, t.count);
        self.add(Count::ProductPart, t.count * parts * t.taps);
        self.add(Count::ProductStep, t.count * parts * deep);
        self.add(Count::ProductFarColumn, if t.far_columns { t.count * parts * deep } else { 0.0 });
        self.add(Count::ProductVector, t.count * self.vectors(t.rows, t.columns) * deep);
        self.add(Count::ProductEdge, t.count * t.edges * t.rows * t.taps);
        self.add(Count::ProductLoneTap, t.count * t.lone_taps);
        self.add(Count::ProductCopy, t.copied);
        self.add(Count::Apart, t.packed);
        // Rows that are so far apart share sets of the first cache.
        let elements = t.count * t.rows * t.taps * t.depth;
        match t.row_bytes {
            b if b > 0.0 && b % SET == 0.0 => self.add(Count::ProductFarRow, elements * (t.columns / width).ceil()),
            b if b > 0.0 && b % (SET / 2.0) == 0.0 && t.tallest.min(most) > FEW_ROWS => {
                self.add(Count::ProductNearRow, elements);
            }
            _ => {}
        }
        self.add(Count::ProductScattered, if t.narrow { t.count * t.rows * t.columns } else { 0.0 });
        self.add(Count::Again, t.again[0]);
        self.add(Count::FarAgain, t.again[1]);
    }
    /// A reduction whose sums a task keeps: a tile where its lanes lie next to each other, else a leaf.
    fn reduction(&mut self, r: usize, how: &LaneTasks) {
        let block = self.stages.list[r].block;
        let (spatial, taps) = self.stages.loops(r);
        let lane = innermost(&spatial);
        let kind = if how.across.is_some() { None } else { lane.and_then(|v| self.sides(r, block, v, &spatial)) };
        // Products of integers are tiles here where each lane has both operands for itself.
        let dtype = self.stages.f.buffers[block.buffer].dtype;
        let short = |s: &Sides<'_>| dtype.size() <= 4 && (dtype.is_float() || s.still.is_empty());
        let kind = kind.filter(short);
        let Some(sides) = kind else { return self.leaf(r, how.tasks, how.across) };
        let padded = sides.padded;
        let columns = how.inner.last().copied().unwrap_or(1) as f64;
        let rows = how.inner.len().checked_sub(2).map_or(1.0, |n| how.inner[n] as f64);
        let results = iterations(&spatial);
        // Rows that have a right operand of their own are tiles of their own.
        let rows_loop = spatial.iter().rev().filter(|l| l.1 > 1).nth(1).filter(|_| rows > 1.0).map(|l| l.0);
        let step = |r: &Read| rows_loop.map_or(Some(0), |v| self.step(r, v));
        // Those that move the operand with lanes alone scale each row of it.
        let apart = sides.product && sides.moving.iter().any(|r| step(r) != Some(0));
        let scaled = apart && rows_loop.is_some() && sides.still.iter().all(|r| step(r) == Some(0));
        let rows = if apart && !scaled { 1.0 } else { rows };
        let row_bytes = sides.still.iter().filter_map(step).map(|n| 4.0 * n.unsigned_abs() as f64).sum::<f64>();
        let calls = results / (rows * columns);
        let product = sides.product && !scaled;
        if let (true, Some(depth)) = (product, taps.last().filter(|_| !padded || taps.len() > 1)) {
            let deep = iterations(&taps);
            let depth = if sides.conditions_on(depth.0) { 1.0 } else { depth.1 as f64 };
            let right = columns * deep * 4.0;
            let again = read_again(calls * right, right + rows * deep * 4.0);
            let tiles = RegisterTiles {
                count: calls,
                tasks: how.tasks,
                tallest: (rows / (rows / self.tile[0]).ceil()).ceil(),
                rows,
                columns,
                taps: deep / depth,
                depth,
                edges: f64::from(u8::from(padded)),
                lone_taps: 0.0,
                copied: 0.0,
                packed: 0.0,
                narrow: false,
                far_columns: sides.moving.first().is_some_and(|r| self.row_bytes(r, taps.last()) % SET == 0.0),
                row_bytes: if apart { 0.0 } else { row_bytes },
                at_once: 1.0,
                again,
            };
            return self.product(&tiles);
        }
        let deep = iterations(&taps);
        // Columns in a border are tiles of their own, of a part each.
        let borders = if lane.is_some_and(|v| sides.conditions_on(v)) { 2.0 } else { 0.0 };
        let vectors = self.vectors(rows, columns) + borders * rows;
        self.add(Count::WindowTile, calls * (1.0 + borders));
        self.add(Count::WindowPart, calls * (rows / 6.0).ceil() * ((columns / self.tile[1]).ceil() + borders));
        self.add(Count::WindowVector, calls * vectors * deep * if sides.spread { 2.0 } else { 1.0 });
        self.add(Count::WindowEdge, if padded { calls * rows } else { 0.0 });
    }
    /// How the operands of a reduction lie for neighbouring results along `lane`; `None` if it is no tile.
    fn sides<'b>(&self, r: usize, block: &'b Block, lane: Name, order: &[Loop]) -> Option<Sides<'b>> {
        let two = factors(&block.value);
        let list: Vec<&'b Expr> = two.map_or_else(|| vec![&block.value], |two| two.to_vec());
        let packed = {
            let mut demand = self.stages.demand(&self.stages.list[r].block.value);
            self.stages.pack(&mut demand, order);
            demand.reads
        };
        let (mut moving, mut still, mut operands, mut spread) = (vec![], vec![], vec![], false);
        let mut packed = packed;
        for e in list {
            let o = Operand::of(e)?;
            let at = packed.iter().position(|x| x.buffer == o.buffer && x.index == o.indices)?;
            match self.step(&packed[at], lane) {
                Some(0) => still.push(packed.swap_remove(at)),
                Some(n) if n == 1 || NEAR_LANES.contains(&n) => {
                    spread |= n > 1;
                    moving.push(packed.swap_remove(at));
                }
                _ => return None,
            }
            operands.push(o);
        }
        let product = moving.len() == 1 && still.len() == 1;
        let padded = operands.iter().any(|o| !o.conditions.is_empty());
        let fits = if spread { moving.len() == 1 } else { !moving.is_empty() };
        fits.then_some(Sides { product, padded, spread, operands, moving, still })
    }
    /// Bytes between rows of a right operand, which the loop walks; packed rows are as long as the packed dimension.
    fn row_bytes(&self, r: &Read, depth: Option<&Loop>) -> f64 {
        let packed = r.innermost.map(|d| extent(&self.stages.f.buffers[r.buffer].shape[d]));
        let step = packed.or_else(|| depth.and_then(|l| self.step(r, l.0)));
        4.0 * step.unwrap_or(1).unsigned_abs() as f64
    }
    fn step(&self, r: &Read, v: Name) -> Option<i64> {
        let (buffer, index) = r.element();
        if r.is_packed_along(v) { Some(1) } else { self.stages.step(buffer, index, v) }
    }
    /// A stage as strips of lanes, in so many leaves; `across`: the reduction loop whose iterations are the lanes.
    fn leaf(&mut self, stage: usize, leaves: f64, across: Option<Name>) {
        let block = self.stages.list[stage].block;
        let (spatial, reduction) = self.stages.loops(stage);
        let mut demand = self.stages.demand(&block.value);
        self.stages.pack(&mut demand, &spatial);
        let store = Stages::store(block);
        let times = iterations(&spatial) * if block.reduce.is_some() { iterations(&reduction) } else { 1.0 };
        let order = if across.is_some() { &reduction } else { &spatial };
        let reads: Vec<&Read> = demand.reads.iter().chain(across.is_none().then_some(&store)).collect();
        self.add(Count::Leaf, leaves);
        self.lanes_of(&demand, &reads, order, times, block);
        if across.is_some() {
            self.add(Count::FoldResult, iterations(&spatial));
            self.add(Count::Fold, times / self.lanes);
        }
        demand.reads.iter().for_each(|r| self.tally.touch(r.buffer, times));
        self.tally.touch(block.buffer, iterations(&spatial));
    }
    /// Counts `times` lanes that follow each other in `order`.
    fn lanes_of(&mut self, demand: &Demand, reads: &[&Read], order: &[Loop], times: f64, block: &Block) {
        let run = self.run(reads, order);
        let lane = innermost(order);
        let vectors = times / run * (run / self.lanes).ceil();
        let functions = functions(&block.value);
        let plain = (demand.operations - functions * FUNCTION).max(0.0) + f64::from(u8::from(block.reduce.is_some()));
        self.add(Count::Run, times / run);
        match conditions(&block.value, lane) > MOST_CONDITIONS {
            true => self.add(Count::General, times * plain),
            false => self.add(Count::Operation, vectors * plain),
        }
        // No rule splits the loops of a reduction so that quotients move evenly along the lanes.
        let divides = block.reduce.is_some() && lane.is_some_and(|v| divides(&block.value, v));
        self.add(Count::Bits, times * (shifts(&block.value) + f64::from(u8::from(divides))));
        self.add(Count::Function, vectors * functions);
        for r in reads {
            match lane.and_then(|v| self.step(r, v)) {
                Some(0) => {}
                Some(1) => self.add(Count::Access, vectors),
                _ => self.add(Count::Apart, times),
            }
        }
    }
    /// Lanes that follow each other for all of these places: the innermost loops that go on where the next one ended.
    fn run(&self, reads: &[&Read], order: &[Loop]) -> f64 {
        let mut inner = order.iter().rev().filter(|l| l.1 > 1);
        let Some(first) = inner.next() else { return 1.0 };
        let mut run = first.1;
        let mut last = *first;
        for l in inner {
            let goes_on = |r: &&Read| match (self.step(r, l.0), self.step(r, last.0)) {
                (Some(outer), Some(own)) => outer == own * last.1,
                _ => false,
            };
            if !reads.iter().all(goes_on) {
                break;
            }
            run *= l.1;
            last = *l;
        }
        run as f64
    }
    /// Counts what a reduction reads.
    fn touch_reads(&mut self, r: usize) {
        let (spatial, reduction) = self.stages.loops(r);
        let times = iterations(&spatial) * iterations(&reduction);
        let demand = self.stages.demand(&self.stages.list[r].block.value);
        demand.reads.iter().for_each(|x| self.tally.touch(x.buffer, times));
    }
    /// Counts how stage `out` goes on with the results of `r`, and its store: a tile's epilogue, unless it computes
    /// functions.
    fn finish(&mut self, out: usize, r: usize) {
        let block = self.stages.list[out].block;
        let (own, _) = self.stages.loops(out);
        let times = iterations(&own);
        let store = Stages::store(block);
        let lane = innermost(&own);
        if r != out && block.reduce.is_none() {
            let demand = self.stages.demand(&block.value).without(Some(self.stages.list[r].block.buffer));
            if functions(&block.value) > 0.0 {
                self.add(Count::Leaf, self.tally.workgroups);
                let reads: Vec<&Read> = demand.reads.iter().collect();
                self.lanes_of(&demand, &reads, &own, times, block);
            } else {
                let each = demand.operations + demand.reads.len() as f64;
                self.add(Count::ProductResult, each * times / self.lanes);
            }
            demand.reads.iter().for_each(|x| self.tally.touch(x.buffer, times));
        }
        match lane.and_then(|v| self.step(&store, v)) {
            None | Some(0 | 1) => self.add(Count::ProductResult, times / self.lanes),
            _ => self.add(Count::Apart, times),
        }
        self.tally.touch(block.buffer, times);
    }
}

/// How the operands of a reduction lie.
struct Sides<'b> {
    /// One of two operands is the same for neighbouring results.
    product: bool,
    /// An operand stands under conditions.
    padded: bool,
    /// Lanes of the operand that has them are a few elements apart.
    spread: bool,
    operands: Vec<Operand<'b>>,
    /// Those that lie next to each other for neighbouring results, and those that are the same.
    moving: Vec<Read>,
    still: Vec<Read>,
}

impl Sides<'_> {
    /// True if a condition depends on the loop.
    fn conditions_on(&self, v: Name) -> bool {
        self.operands.iter().flat_map(|o| o.conditions).any(|c| c.lhs.uses(v) || c.rhs.uses(v))
    }
}
