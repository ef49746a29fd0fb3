//! Kernels of units, counted in the loops that the rules run for a candidate.

use super::combination::Combination;
use super::operands::Product;
use super::product::{Holdings, PoolingWindows, WORD, multiplies_bytes};
use super::rates::usual_width;
use super::reads::{Demand, Lanes, Loop, Touch, Window, extent, iterations, neighbour};
use super::scheduled::operations_of;
use super::stages::{Finish, Stages};
use super::tally::{FUNCTION, KernelEstimate, Tally, operations};
use crate::name::Name;
use crate::schedule::tiles::{
    FewRows, LARGEST_WINDOW, MatrixTile, Neighbours, ProductSize, ProductTile, fits_text, neighbours_sharing,
    window_index,
};
use crate::tir::analysis::operands::factors;
use crate::tir::{BufferId, Expr};
use crate::traffic::{SECTOR_BYTES, element_bytes};

/// Bytes that a thread loads at once, and words.
const LOAD_BYTES: f64 = 16.0;
const WORDS: i64 = 4;

/// A reduction with the stage that consumes it, or a stage alone; by position.
#[derive(Clone, Copy)]
struct UnitStages {
    reduce: Option<usize>,
    output: usize,
}

/// The kernels of a product with this tile: one, or that of the slices and that of their sum.
fn in_slices(stages: &Stages<'_>, p: &UnitStages, r: usize, tile: ProductTile) -> Vec<KernelEstimate> {
    sliced(stages, p, r, &tile, product(stages, p, r, &tile, None))
}

/// The kernels of a product on matrix units with this tile.
fn on_matrices(
    stages: &Stages<'_>,
    p: &UnitStages,
    (product, r): (&Product<'_>, usize),
    tile: &MatrixTile,
) -> Vec<KernelEstimate> {
    let tally = with_results(stages, p, (product, r), product.count_matrices(stages, tile), &tile.tile, None);
    sliced(stages, p, r, &tile.tile, Some(tally))
}

/// Exponentials or error functions are computed of the results of reduction `r`.
fn computes_functions(stages: &Stages<'_>, p: &UnitStages, r: usize) -> bool {
    let mut found = false;
    if p.output != r {
        let of = |e: &Expr| matches!(e, Expr::Unary(..)) && operations(e) >= FUNCTION;
        stages.list[p.output].block.value.visit(&mut |e| found |= of(e));
    }
    found
}

/// The kernels of a product whose own is counted in `tally`; none where it is not.
fn sliced(
    stages: &Stages<'_>,
    p: &UnitStages,
    r: usize,
    tile: &ProductTile,
    tally: Option<Tally>,
) -> Vec<KernelEstimate> {
    match tally {
        None => vec![],
        Some(tally) if tile.slices == 1 => vec![named(stages, p.output, &tally)],
        Some(tally) => {
            vec![named(stages, r, &tally), named(stages, p.output, &sum_of_slices(stages, p, r, tile.slices))]
        }
    }
}

/// The sum of a product's slices, and what follows it.
fn sum_of_slices(stages: &Stages<'_>, p: &UnitStages, r: usize, slices: i64) -> Tally {
    stages.finished(Finish::Sum(p.output, slices), r, || count_sum(stages, p, r, slices))
}

fn count_sum(stages: &Stages<'_>, p: &UnitStages, r: usize, slices: i64) -> Tally {
    let (order, _) = stages.loops(p.output);
    let (mut tally, width) = flat_tally(stages, &order);
    let lanes = Lanes { order: &order, width, along: None };
    let (block, (own, _)) = (stages.list[r].block, stages.loops(r));
    tally.operations += iterations(&order) * slices as f64;
    tally.sliced = Some((block.buffer, slices));
    stages.count_read(&mut tally, &Stages::store(block), &Lanes { order: &own, width, along: None }, slices as f64);
    finish(stages, &mut tally, p.output, Some(block.buffer), &lanes, 1.0);
    tally
}

pub(super) fn named(stages: &Stages<'_>, stage: usize, tally: &Tally) -> KernelEstimate {
    tally.kernel(stages.f, stages.list[stage].block.name, stages.profile, &stages.rates)
}

/// Elements of a thread's vector, and threads of a workgroup, for so many results with so many neighbours.
fn flat_shape(stages: &Stages<'_>, order: &[Loop]) -> (i64, f64) {
    let total = iterations(order) as i64;
    let inner = order.iter().rev().find(|l| l.1 > 1).map_or(1, |l| l.1);
    let width = usual_width(stages.profile, total, inner);
    let full = f64::from(stages.rates.model.threads);
    (width, full.min((total / width).max(1) as f64))
}

/// A tally of a thread for each vector of results.
fn flat_tally(stages: &Stages<'_>, order: &[Loop]) -> (Tally, i64) {
    let (width, threads) = flat_shape(stages, order);
    let workgroups = (iterations(order) / width as f64 / threads).ceil();
    (Tally { workgroups, threads, ..Tally::default() }, width)
}

/// A stage without reduction: a thread for each vector of results.
pub(super) fn flat(stages: &Stages<'_>, s: usize) -> Tally {
    let (order, _) = stages.loops(s);
    let (mut tally, width) = flat_tally(stages, &order);
    finish(stages, &mut tally, s, None, &Lanes { order: &order, width, along: None }, 1.0);
    tally
}

/// What a stage that is no reduction reads and computes, and its store.
fn finish(stages: &Stages<'_>, tally: &mut Tally, s: usize, without: Option<BufferId>, lanes: &Lanes<'_>, times: f64) {
    let block = stages.list[s].block;
    if block.reduce.is_none() {
        stages.count(tally, &stages.demand(&block.value).without(without), lanes, times);
    }
    stages.count_read(tally, &Stages::store(block), lanes, times);
}

/// What the elements of a reduction take, each combined with those before.
fn of_elements(stages: &Stages<'_>, r: usize) -> Demand {
    let mut demand = stages.demand(&stages.list[r].block.value);
    demand.operations += 1.0;
    demand
}

/// `threads` for each result, and `beside` of these in a workgroup.
fn workgroup_a_result(stages: &Stages<'_>, p: &UnitStages, r: usize, [threads, beside]: [i64; 2]) -> Tally {
    let ((order, mut taps), (own, _)) = (stages.loops(r), stages.loops(p.output));
    let results = iterations(&order);
    let (workgroups, all) = ((results / beside as f64).ceil(), (threads * beside) as f64);
    let mut tally = Tally { workgroups, threads: all, ..Tally::default() };
    let neighbours = taps.last().is_some_and(|l| l.1 % 4 == 0) && iterations(&taps) / 4.0 >= threads as f64;
    let width = if neighbours && beside == 1 { 4 } else { 1 };
    if let Some(&(last, _)) = order.iter().rev().find(|l| l.1 > 1).filter(|_| beside > 1) {
        taps.push((last, beside));
    }
    let lanes = Lanes { order: &taps, width, along: None };
    stages.count(&mut tally, &of_elements(stages, r), &lanes, results / beside as f64);
    let how = if beside > 1 { Combination::Tree } else { Combination::usual(stages.profile, threads) };
    how.count(&mut tally, stages.profile, &stages.rates, [threads, beside], results);
    let lanes = Lanes { order: &own, width: 1, along: None };
    finish(stages, &mut tally, p.output, Some(stages.list[r].block.buffer), &lanes, 1.0);
    tally
}

/// A thread for each vector of results, of several neighbouring windows where they share loads.
fn thread_a_result(stages: &Stages<'_>, p: &UnitStages, r: usize, neighbours: Option<&Neighbours>) -> Tally {
    let ((mut order, taps), (own, _)) = (stages.loops(r), stages.loops(p.output));
    let mut demand = of_elements(stages, r);
    stages.pack(&mut demand, &order);
    let (count, block) = (iterations(&taps) as i64, stages.list[r].block);
    let copies = count.saturating_mul(neighbours.map_or(1, |n| n.windows));
    let known: Vec<Name> = taps.iter().map(|l| l.0).chain(neighbours.map(|n| n.along)).collect();
    let all = count <= i64::from(stages.rates.model.unrolled) && fits_text(block, &known, copies);
    let moves = |v: Name| neighbours.is_some_and(|n| n.moving.contains(&v));
    let (mut unrolled, rolled): (Vec<Loop>, Vec<Loop>) = taps.iter().partition(|l| all || moves(l.0));
    // Where a thread has all results along a loop, each knows its own place there.
    let whole = neighbours.and_then(|n| order.iter().find(|l| l.0 == n.along && l.1 == n.windows));
    let known: Vec<Loop> = unrolled.iter().chain(whole).copied().collect();
    demand.operations += operations_of(block, &known) - operations_of(block, &[]);
    let limited = neighbours.is_some_and(|n| order.iter().any(|l| l.0 == n.along && l.1 % n.windows != 0));
    if let Some(n) = neighbours {
        unrolled.push((neighbour(), n.windows));
        order.iter_mut().filter(|l| l.0 == n.along).for_each(|l| l.1 = (l.1 + n.windows - 1) / n.windows);
        demand.reads.iter_mut().for_each(|x| x.spread(n.along, n.windows));
    }
    let (mut tally, width) = flat_tally(stages, &order);
    tally.results = width as f64 * neighbours.map_or(1.0, |n| n.windows as f64);
    tally.operations += demand.operations * iterations(&order) * iterations(&unrolled) * iterations(&rolled);
    let lanes = Lanes { order: &order, width, along: None };
    let window = Window { unrolled: &unrolled, rolled: &rolled, limited };
    demand.reads.iter().for_each(|x| stages.count_window(&mut tally, x, &lanes, &window));
    let lanes = Lanes { order: &own, width: flat_shape(stages, &own).0, along: None };
    finish(stages, &mut tally, p.output, Some(block.buffer), &lanes, 1.0);
    tally
}

/// A sum of products in such tiles; `None` for another reduction. With windows, `p.output` stores one result for each
/// window.
fn product(
    stages: &Stages<'_>,
    p: &UnitStages,
    r: usize,
    tile: &ProductTile,
    windows: Option<(PoolingWindows, &UnitStages)>,
) -> Option<Tally> {
    let product = stages.product(r)?;
    let tally = product.count(stages, tile, windows.map(|w| w.0));
    Some(with_results(stages, p, (&product, r), tally, tile, windows))
}

/// Counts what is made of a product's results, and their stores, beside `tally`.
fn with_results(
    stages: &Stages<'_>,
    p: &UnitStages,
    (product, r): (&Product<'_>, usize),
    mut tally: Tally,
    tile: &ProductTile,
    windows: Option<(PoolingWindows, &UnitStages)>,
) -> Tally {
    let width = if tile.columns % 4 == 0 { 4 } else { 1 };
    if let Some(windows) = windows {
        of_windows(stages, p, (product, r), &mut tally, width, windows);
        return tally;
    }
    let find = || results(stages, p, (product, r), width, tile.slices);
    tally.add(stages.finished(Finish::Results(p.output, width, tile.slices), r, find));
    tally
}

/// What is made of a product's results, and their stores; in slices, their stores alone.
fn results(stages: &Stages<'_>, p: &UnitStages, (product, r): (&Product<'_>, usize), width: i64, slices: i64) -> Tally {
    let block = stages.list[r].block;
    let mut tally = Tally::default();
    if slices > 1 {
        let (own, _) = stages.loops(r);
        let lanes = Lanes { order: &own, width, along: None };
        tally.sliced = Some((block.buffer, slices));
        stages.count_read(&mut tally, &Stages::store(block), &lanes, slices as f64);
    } else {
        let order = stored_order(stages, p, product, r);
        let lanes = Lanes { order: &order, width, along: None };
        finish(stages, &mut tally, p.output, Some(block.buffer), &lanes, 1.0);
    }
    tally
}

/// Loops of the consumer that store what those of the product compute, as threads store it.
fn stored_order(stages: &Stages<'_>, p: &UnitStages, product: &Product<'_>, r: usize) -> Vec<Loop> {
    let block = stages.list[r].block;
    let reads = stages.demand(&stages.list[p.output].block.value).reads;
    let read = reads.into_iter().find(|x| x.buffer == block.buffer);
    let name = |v: Name| {
        let at = block.indices.iter().position(|i| i.as_var() == Some(v));
        let of = at.and_then(|d| read.as_ref().and_then(|x| x.variable(d)));
        of.unwrap_or(v)
    };
    product.store_order(&name)
}

/// Counts what windows over a product's results compute and store.
fn of_windows(
    stages: &Stages<'_>,
    p: &UnitStages,
    (product, r): (&Product<'_>, usize),
    tally: &mut Tally,
    width: i64,
    (w, outer): (PoolingWindows, &UnitStages),
) {
    if p.output != r {
        let consumer = stages.list[p.output].block;
        let demand = stages.demand(&consumer.value).without(Some(stages.list[r].block.buffer));
        let order = stored_order(stages, p, product, r);
        stages.count(tally, &demand, &Lanes { order: &order, width, along: None }, w.times);
    }
    let (own, taps) = outer.reduce.map(|s| stages.loops(s)).unwrap_or_default();
    tally.operations += iterations(&own) * iterations(&taps);
    let (own, _) = stages.loops(outer.output);
    let made = outer.reduce.map(|s| stages.list[s].block.buffer);
    finish(stages, tally, outer.output, made, &Lanes { order: &own, width, along: None }, 1.0);
}

/// The cheapest kernel of a product with windows over its rows, and its tile: `first` with `epilogue` behind it,
/// `second` the reduction of the windows, in one of the `tiles` that the rules have for a product of that size. `None`
/// where one kernel cannot be.
pub(in crate::schedule) fn window_kernel(
    stages: &Stages<'_>,
    [first, epilogue, second, output]: [Name; 4],
    tiles: &dyn Fn(ProductSize) -> Vec<ProductTile>,
) -> Option<(KernelEstimate, ProductTile)> {
    let (first, second) = (part(stages, [first, epilogue])?, part(stages, [second, output])?);
    let (r, outer) = (first.reduce?, second.reduce?);
    let made = stages.list[first.output].block.buffer;
    let index = window_index(stages.f, stages.list[outer].block, made)?;
    let (windows, taps) = stages.loops(outer);
    let elements = iterations(&taps) as i64;
    let results = stages.f.buffers[made].shape.iter().map(extent).product::<i64>();
    let product_loops = stages.product(r)?;
    let along_rows = index
        .iter()
        .zip(&stages.list[r].block.indices)
        .all(|(i, own)| !taps.iter().any(|t| i.uses(t.0)) || own.as_var().is_some_and(|v| product_loops.has_rows(v)));
    if elements > LARGEST_WINDOW || !along_rows {
        return None;
    }
    let times = iterations(&windows) * elements as f64 / results.max(1) as f64;
    let windows = PoolingWindows { times, taps: elements };
    let tiles = product_loops.size(stages, windows).map_or(vec![], tiles).into_iter();
    let of = |tile: ProductTile| {
        Some((named(stages, second.output, &product(stages, &first, r, &tile, Some((windows, &second)))?), tile))
    };
    tiles.filter_map(of).min_by(|a, b| a.0.cost.total().total_cmp(&b.0.cost.total()))
}

/// The kernel of a reduction where so many threads of a workgroup share each result, and the workgroup has so many
/// results. `blocks` are the reduction and what stores what is made of it; none where they are no plain stages.
pub(in crate::schedule) fn shared_reduction(
    stages: &Stages<'_>,
    blocks: [Name; 2],
    team: [i64; 2],
) -> Vec<KernelEstimate> {
    let of = |p: &UnitStages, r: usize| vec![named(stages, p.output, &workgroup_a_result(stages, p, r, team))];
    of_part(stages, blocks, of)
}

/// The kernel of a product of a few rows. `blocks` as for [`shared_reduction`].
pub(in crate::schedule) fn few_rows_kernel(
    stages: &Stages<'_>,
    blocks: [Name; 2],
    tile: &FewRows,
) -> Vec<KernelEstimate> {
    let of = |p: &UnitStages, r: usize| {
        few_rows(stages, p, r, tile).map(|t| named(stages, p.output, &t)).into_iter().collect()
    };
    of_part(stages, blocks, of)
}

/// Threads load runs of the right operand once for all rows, and of the left one once for all columns of a workgroup.
fn few_rows(stages: &Stages<'_>, p: &UnitStages, r: usize, tile: &FewRows) -> Option<Tally> {
    let ((order, taps), (own, _)) = (stages.loops(r), stages.loops(p.output));
    let block = stages.list[r].block;
    let sides = factors(&block.value)?;
    let (results, depth) = (iterations(&order), iterations(&taps));
    let columns = results / tile.rows as f64;
    let workgroups = (columns / tile.columns as f64).ceil();
    let mut tally = Tally { workgroups, threads: tile.threads as f64, ..Tally::default() };
    // The words that it loads at once, and its sums, do not wait for each other.
    tally.results = (tile.columns * (tile.rows + WORDS)) as f64;
    let at_once = if multiplies_bytes(stages, block) { WORD } else { 1.0 };
    tally.operations += 2.0 * results * depth / at_once;
    for (side, times) in [(tile.right, columns), (1 - tile.right, workgroups * tile.rows as f64)] {
        let demand = stages.demand(sides[side]);
        tally.operations += demand.operations * depth * times;
        for read in &demand.reads {
            let (buffer, index) = read.element();
            let known = tile.sharing.iter().find(|s| s.0 == buffer && side == tile.right).map(|s| s.1);
            let shape = &stages.f.buffers[buffer].shape;
            let sharing = known.or_else(|| neighbours_sharing(stages.f, (shape, index), tile.depth));
            let touch = run_touch(stages, read.buffer, tile.run, sharing);
            let runs = (depth / (tile.run * stages.rates.lanes) as f64).ceil() * times;
            stages.count_touch(&mut tally, read.buffer, touch, runs, depth * times / sharing.unwrap_or(1) as f64);
        }
    }
    let how = Combination::usual(stages.profile, tile.threads);
    how.count(&mut tally, stages.profile, &stages.rates, [tile.threads, 1], results);
    let lanes = Lanes { order: &own, width: 1, along: None };
    finish(stages, &mut tally, p.output, Some(block.buffer), &lanes, 1.0);
    Some(tally)
}

/// The cost of a subgroup's loads of a run of `run` neighbours a lane, of which so many share an element.
fn run_touch(stages: &Stages<'_>, b: BufferId, run: i64, sharing: Option<i64>) -> Touch {
    let bytes = element_bytes(&stages.f.buffers[b], stages.profile);
    let Some(sharing) = sharing else { return Touch { accesses: 1.0, sectors: 1.0 } };
    let a_lane = run as f64 / sharing as f64 * bytes;
    let sectors = (a_lane * stages.rates.lanes as f64 / SECTOR_BYTES as f64).max(1.0);
    Touch { accesses: (a_lane / LOAD_BYTES).ceil(), sectors }
}

/// The kernel of a reduction where a thread has a vector of results, of several neighbouring windows if there are
/// `neighbours`. `blocks` as for [`shared_reduction`].
pub(in crate::schedule) fn own_reduction(
    stages: &Stages<'_>,
    blocks: [Name; 2],
    neighbours: Option<&Neighbours>,
) -> Vec<KernelEstimate> {
    let of = |p: &UnitStages, r: usize| vec![named(stages, p.output, &thread_a_result(stages, p, r, neighbours))];
    of_part(stages, blocks, of)
}

/// The kernel of a compute block where a thread has a vector of results; none where it is no plain stage.
pub(in crate::schedule) fn flat_kernel(stages: &Stages<'_>, block: Name) -> Vec<KernelEstimate> {
    let stage = stages.position(block).filter(|_| stages.can_be_counted());
    stage.map(|s| named(stages, s, &flat(stages, s))).into_iter().collect()
}

/// The kernels of a product in this tile; in slices, with the kernel that sums their results up. `blocks` are the
/// product and what stores what is made of it; none where they are no plain stages.
pub(in crate::schedule) fn product_kernels(
    stages: &Stages<'_>,
    blocks: [Name; 2],
    tile: &ProductTile,
) -> Vec<KernelEstimate> {
    of_part(stages, blocks, |p, r| in_slices(stages, p, r, *tile))
}

/// The same as [`product_kernels`] on matrix units.
pub(in crate::schedule) fn matrix_kernels(
    stages: &Stages<'_>,
    blocks: [Name; 2],
    tile: &MatrixTile,
) -> Vec<KernelEstimate> {
    let of = |p: &UnitStages, r: usize| match stages.product(r) {
        Some(product) => on_matrices(stages, p, (&product, r), tile),
        None => vec![],
    };
    of_part(stages, blocks, of)
}

/// What a thread of a product holds beside sums: `blocks` are the product and what stores what is made of it; `None`
/// where they are no plain stages.
pub(in crate::schedule) fn holdings(stages: &Stages<'_>, blocks: [Name; 2]) -> Option<Holdings> {
    let p = part(stages, blocks)?;
    let r = p.reduce?;
    Some(stages.product(r)?.holdings(stages, computes_functions(stages, &p, r)))
}

/// The kernels of a reduction with what stores what is made of it.
fn of_part(
    stages: &Stages<'_>,
    blocks: [Name; 2],
    kernels: impl Fn(&UnitStages, usize) -> Vec<KernelEstimate>,
) -> Vec<KernelEstimate> {
    let found = part(stages, blocks).and_then(|p| Some((p, p.reduce?)));
    found.map_or(vec![], |(p, r)| kernels(&p, r))
}

fn part(stages: &Stages<'_>, [reduce, output]: [Name; 2]) -> Option<UnitStages> {
    let (reduce, output) = (stages.position(reduce)?, stages.position(output)?);
    stages.can_be_counted().then_some(UnitStages { reduce: Some(reduce), output })
}
