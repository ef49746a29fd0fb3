//! The kernels that the rules would make of a function's stages, each counted in the loops that its rule would run.

use super::combination::Combination;
use super::product::{Holdings, PoolingWindows, Product};
use super::reads::{Demand, Lanes, Loop, Stages, Window, extent, iterations, neighbour};
use super::rows::rows;
use super::tally::{FUNCTION, KernelEstimate, Tally, operations};
use super::transform;
use super::transpose;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::rules::{
    LARGEST_WINDOW, MatrixTile, ProductTile, USUALLY_UNROLLED, one_kernel, threads_for_a_result, tiles_pay,
    usual_windows, window_index,
};
use crate::tir::{BufferId, Expr, TensorFunction};

/// A reduction with the stage that consumes it, or a stage alone; by position.
#[derive(Clone, Copy)]
struct Part {
    reduce: Option<usize>,
    output: usize,
}

/// The kernels of a function that is a sequence of plain stages.
///
/// # Errors
/// For another function.
pub(super) fn kernels(
    f: &TensorFunction,
    constants: &[BufferId],
    profile: &DeviceProfile,
) -> Result<Vec<KernelEstimate>, String> {
    if f.stages().is_none() {
        return Err("it is scheduled in part".into());
    }
    let stages = Stages::of(f, constants, profile);
    if !stages.can_be_counted() {
        return Err("it has more iterations than can be counted".into());
    }
    let stored = stages.stored();
    if let Some(kernel) = transform::kernel(&stages, &stored).or_else(|| rows(&stages, &stored)) {
        return Ok(vec![kernel]);
    }
    let apart = of_units(&stages, &stored);
    match one_kernel(f, constants, profile) {
        Some(Ok(kernel)) if kernel.total() < total(&apart) => Ok(vec![kernel]),
        _ => Ok(apart),
    }
}

/// What the units of a function cost in nanoseconds, each on its own; `None` where they are no plain stages.
pub(in crate::schedule) fn apart_cost(
    f: &TensorFunction,
    constants: &[BufferId],
    profile: &DeviceProfile,
) -> Option<f64> {
    let stages = Stages::of(f, constants, profile);
    let usable = f.stages().is_some() && stages.can_be_counted();
    usable.then(|| total(&of_units(&stages, &stages.stored())))
}

/// The kernels of the units of a function.
fn of_units(stages: &Stages<'_>, stored: &[usize]) -> Vec<KernelEstimate> {
    let parts = parts(stages, stored);
    let mut out = Vec::new();
    let mut done: Vec<usize> = Vec::new();
    for (i, p) in parts.iter().enumerate() {
        if done.contains(&i) {
            continue;
        }
        let pooled = (i + 1..parts.len()).find(|&j| feeds_windows(stages, p, &parts[j]));
        let both = pooled.and_then(|j| Some((j, pair(stages, p, &parts[j])?)));
        match both.filter(|(_, pair)| pair.pays()) {
            Some((j, pair)) => {
                done.push(j);
                out.push(pair.together);
            }
            None => out.extend(unit(stages, p)),
        }
    }
    out
}

/// Each stored stage with the reduction that only it consumes.
fn parts(stages: &Stages<'_>, stored: &[usize]) -> Vec<Part> {
    let demands: Vec<(usize, Demand)> =
        stored.iter().map(|&s| (s, stages.demand(&stages.list[s].block.value))).collect();
    let mut out: Vec<Part> = Vec::new();
    let mut taken: Vec<usize> = Vec::new();
    for &s in stored {
        let block = stages.list[s].block;
        if block.reduce.is_none() {
            if !taken.contains(&s) {
                out.push(Part { reduce: None, output: s });
            }
            continue;
        }
        let readers: Vec<usize> =
            demands.iter().filter(|(_, d)| d.reads.iter().any(|r| r.buffer == block.buffer)).map(|d| d.0).collect();
        let consumer = match readers[..] {
            [one] if !stages.is_result(block.buffer) && !taken.contains(&one) => Some(one),
            _ => None,
        };
        let consumer = consumer.filter(|&c| {
            let elements = |i: usize| iterations(&stages.loops(i).0);
            let plain = demands.iter().filter(|d| d.0 == c).flat_map(|d| &d.1.reads);
            let mut plain = plain.filter(|r| r.buffer == block.buffer);
            let once = plain.next().is_some_and(|r| r.is_plain()) && plain.next().is_none();
            stages.list[c].block.reduce.is_none() && once && elements(c) == elements(s)
        });
        taken.extend(consumer);
        out.push(Part { reduce: Some(s), output: consumer.unwrap_or(s) });
    }
    out
}

/// The kernels of one part, by the first rule that would take it: two for a product in slices.
fn unit(stages: &Stages<'_>, p: &Part) -> Vec<KernelEstimate> {
    let Some(r) = p.reduce else {
        let direct = named(stages, p.output, &flat(stages, p.output));
        let tiled = transpose::cheapest(stages, p.output);
        let tiled = tiled.filter(|t| tiles_pay(t.cost.total(), direct.cost.total()));
        return vec![tiled.unwrap_or(direct)];
    };
    let product = Product::of(stages, r);
    let matrices = product.as_ref().map_or(vec![], |x| x.matrix_candidates(stages, computes_functions(stages, p, r)));
    if let Some(product) = product.as_ref().filter(|_| !matrices.is_empty()) {
        let all = matrices.iter().map(|tile| on_matrices(stages, p, (product, r), tile));
        return all.min_by(|a, b| total(a).total_cmp(&total(b))).unwrap_or_default();
    }
    let tiles = product.map_or(vec![], |product| product.candidates(stages, None));
    let all = tiles.into_iter().map(|tile| in_slices(stages, p, r, tile));
    all.min_by(|a, b| total(a).total_cmp(&total(b)))
        .unwrap_or_else(|| vec![named(stages, p.output, &reduction(stages, p, r))])
}

fn total(kernels: &[KernelEstimate]) -> f64 {
    kernels.iter().map(|k| k.cost.total()).sum()
}

/// The kernels of a product with this tile: one, or that of the slices and that of their sum.
fn in_slices(stages: &Stages<'_>, p: &Part, r: usize, tile: ProductTile) -> Vec<KernelEstimate> {
    sliced(stages, p, r, &tile, product(stages, p, r, &tile, None))
}

/// The kernels of a product on matrix units with this tile.
fn on_matrices(
    stages: &Stages<'_>,
    p: &Part,
    (product, r): (&Product<'_>, usize),
    tile: &MatrixTile,
) -> Vec<KernelEstimate> {
    let tally = with_results(stages, p, (product, r), product.count_matrices(stages, tile), &tile.tile, None);
    sliced(stages, p, r, &tile.tile, Some(tally))
}

/// Exponentials or error functions are computed of the results of reduction `r`.
fn computes_functions(stages: &Stages<'_>, p: &Part, r: usize) -> bool {
    let mut found = false;
    if p.output != r {
        let of = |e: &Expr| matches!(e, Expr::Unary(..)) && operations(e) >= FUNCTION;
        stages.list[p.output].block.value.visit(&mut |e| found |= of(e));
    }
    found
}

/// The kernels of a product whose own is counted in `tally`; none where it is not.
fn sliced(stages: &Stages<'_>, p: &Part, r: usize, tile: &ProductTile, tally: Option<Tally>) -> Vec<KernelEstimate> {
    match tally {
        None => vec![],
        Some(tally) if tile.slices == 1 => vec![named(stages, p.output, &tally)],
        Some(tally) => {
            vec![named(stages, r, &tally), named(stages, p.output, &sum_of_slices(stages, p, r, tile.slices))]
        }
    }
}

/// The sum of a product's slices, and what follows it.
fn sum_of_slices(stages: &Stages<'_>, p: &Part, r: usize, slices: i64) -> Tally {
    let (order, _) = stages.loops(p.output);
    let (mut tally, width) = flat_tally(stages, &order);
    let lanes = Lanes { order: &order, width, along: None };
    let (block, (own, _)) = (stages.list[r].block, stages.loops(r));
    tally.operations += iterations(&order) * slices as f64;
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
    let width = if inner % 2 != 0 { 1 } else { [4, 2, 1].into_iter().find(|w| total % w == 0).unwrap_or(1) };
    let full: f64 = if stages.rates.software { 64.0 } else { 128.0 };
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

/// A reduction that is no product: a workgroup for each result where its rule takes that and it costs less, else a thread for
/// each vector of results.
fn reduction(stages: &Stages<'_>, p: &Part, r: usize) -> Tally {
    let (order, taps) = stages.loops(r);
    let (results, depth) = (iterations(&order), iterations(&taps));
    let alone = thread_a_result(stages, p, r);
    let Ok(threads) = threads_for_a_result(stages.profile, results as i64, depth as i64, false) else { return alone };
    let cost = |t: &Tally| named(stages, p.output, t).cost.total();
    let of = |n: i64| workgroup_a_result(stages, p, r, n);
    let Some(shared) = threads.into_iter().map(of).min_by(|a, b| cost(a).total_cmp(&cost(b))) else { return alone };
    if depth > 1.0 && (stages.rates.software || cost(&shared) < cost(&alone)) { shared } else { alone }
}

/// What the elements of a reduction take, each combined with those before.
fn of_elements(stages: &Stages<'_>, r: usize) -> Demand {
    let mut demand = stages.demand(&stages.list[r].block.value);
    demand.operations += 1.0;
    demand
}

fn workgroup_a_result(stages: &Stages<'_>, p: &Part, r: usize, threads: i64) -> Tally {
    let ((order, taps), (own, _)) = (stages.loops(r), stages.loops(p.output));
    let results = iterations(&order);
    let mut tally = Tally { workgroups: results, threads: threads as f64, ..Tally::default() };
    let neighbours = taps.last().is_some_and(|l| l.1 % 4 == 0) && iterations(&taps) / 4.0 >= threads as f64;
    let lanes = Lanes { order: &taps, width: if neighbours { 4 } else { 1 }, along: None };
    stages.count(&mut tally, &of_elements(stages, r), &lanes, results);
    let how = Combination::usual(stages.profile, threads);
    how.count(&mut tally, stages.profile, &stages.rates, threads, results);
    let lanes = Lanes { order: &own, width: 1, along: None };
    finish(stages, &mut tally, p.output, Some(stages.list[r].block.buffer), &lanes, 1.0);
    tally
}

/// A thread for each vector of results, of several neighbouring windows where they share loads.
fn thread_a_result(stages: &Stages<'_>, p: &Part, r: usize) -> Tally {
    let ((mut order, taps), (own, _)) = (stages.loops(r), stages.loops(p.output));
    let mut demand = of_elements(stages, r);
    stages.pack(&mut demand, &order);
    let neighbours = usual_windows(stages.profile, stages.list[r].block, &taps, &order);
    let all = iterations(&taps) as i64 <= USUALLY_UNROLLED;
    let moves = |v: Name| neighbours.as_ref().is_some_and(|n| n.moving.contains(&v));
    let (mut unrolled, rolled): (Vec<Loop>, Vec<Loop>) = taps.iter().partition(|l| all || moves(l.0));
    if let Some(n) = &neighbours {
        unrolled.push((neighbour(), n.windows));
        order.iter_mut().filter(|l| l.0 == n.along).for_each(|l| l.1 = (l.1 + n.windows - 1) / n.windows);
        demand.reads.iter_mut().for_each(|x| x.spread(n.along, n.windows));
    }
    let (mut tally, width) = flat_tally(stages, &order);
    tally.results = width as f64 * neighbours.as_ref().map_or(1.0, |n| n.windows as f64);
    tally.operations += demand.operations * iterations(&order) * iterations(&unrolled) * iterations(&rolled);
    let lanes = Lanes { order: &order, width, along: None };
    demand
        .reads
        .iter()
        .for_each(|x| stages.count_window(&mut tally, x, &lanes, &Window { unrolled: &unrolled, rolled: &rolled }));
    let lanes = Lanes { order: &own, width: flat_shape(stages, &own).0, along: None };
    finish(stages, &mut tally, p.output, Some(stages.list[r].block.buffer), &lanes, 1.0);
    tally
}

/// A sum of products in such tiles; `None` for another reduction. With windows, `p.output` stores one result for each window.
fn product(
    stages: &Stages<'_>,
    p: &Part,
    r: usize,
    tile: &ProductTile,
    windows: Option<(PoolingWindows, &Part)>,
) -> Option<Tally> {
    let product = Product::of(stages, r)?;
    let tally = product.count(stages, tile, windows.map(|w| w.0));
    Some(with_results(stages, p, (&product, r), tally, tile, windows))
}

/// Counts what is made of a product's results, and their stores, beside `tally`.
fn with_results(
    stages: &Stages<'_>,
    p: &Part,
    (product, r): (&Product<'_>, usize),
    mut tally: Tally,
    tile: &ProductTile,
    windows: Option<(PoolingWindows, &Part)>,
) -> Tally {
    let block = stages.list[r].block;
    let width = if tile.columns % 4 == 0 { 4 } else { 1 };
    // Loops of the consumer that store what those of the reduction compute.
    let consumer = stages.list[p.output].block;
    let read = stages.demand(&consumer.value).reads.into_iter().find(|x| x.buffer == block.buffer);
    let name = |v: Name| {
        let at = block.indices.iter().position(|i| i.as_var() == Some(v));
        let of = at.and_then(|d| read.as_ref().and_then(|x| x.variable(d)));
        of.unwrap_or(v)
    };
    let order = product.store_order(&name);
    let lanes = Lanes { order: &order, width, along: None };
    match windows {
        None if tile.slices > 1 => {
            let (own, _) = stages.loops(r);
            stages.count_read(
                &mut tally,
                &Stages::store(block),
                &Lanes { order: &own, width, along: None },
                tile.slices as f64,
            );
        }
        None => finish(stages, &mut tally, p.output, Some(block.buffer), &lanes, 1.0),
        Some((w, outer)) => {
            if p.output != r {
                let demand = stages.demand(&consumer.value).without(Some(block.buffer));
                stages.count(&mut tally, &demand, &lanes, w.times);
            }
            let (own, taps) = outer.reduce.map(|s| stages.loops(s)).unwrap_or_default();
            tally.operations += iterations(&own) * iterations(&taps);
            let (own, _) = stages.loops(outer.output);
            let made = outer.reduce.map(|s| stages.list[s].block.buffer);
            finish(stages, &mut tally, outer.output, made, &Lanes { order: &own, width, along: None }, 1.0);
        }
    }
    tally
}

/// Two kernels as one, and as they are.
struct Pair {
    together: KernelEstimate,
    tile: ProductTile,
    apart: Vec<KernelEstimate>,
}

impl Pair {
    fn costs(&self) -> (f64, f64) {
        (self.together.cost.total(), total(&self.apart))
    }
    fn pays(&self) -> bool {
        let (together, apart) = self.costs();
        together < apart
    }
}

/// True when `second` reduces windows of what `first` stores, and nobody else reads that.
fn feeds_windows(stages: &Stages<'_>, first: &Part, second: &Part) -> bool {
    let made = stages.list[first.output].block.buffer;
    let (Some(_), Some(r)) = (first.reduce, second.reduce) else { return false };
    let readers = stages.list.iter().filter(|s| s.block.reads(made)).count();
    readers == 1 && !stages.is_result(made) && window_index(stages.f, stages.list[r].block, made).is_some()
}

/// Both forms of a product with windows over its rows; `None` where one kernel cannot be.
fn pair(stages: &Stages<'_>, first: &Part, second: &Part) -> Option<Pair> {
    let (r, outer) = (first.reduce?, second.reduce?);
    let made = stages.list[first.output].block.buffer;
    let index = window_index(stages.f, stages.list[outer].block, made)?;
    let (windows, taps) = stages.loops(outer);
    let elements = iterations(&taps) as i64;
    let results = stages.f.buffers[made].shape.iter().map(extent).product::<i64>();
    let product_loops = Product::of(stages, r)?;
    let along_rows = index
        .iter()
        .zip(&stages.list[r].block.indices)
        .all(|(i, own)| !taps.iter().any(|t| i.uses(t.0)) || own.as_var().is_some_and(|v| product_loops.has_rows(v)));
    if elements > LARGEST_WINDOW || !along_rows {
        return None;
    }
    let times = iterations(&windows) * elements as f64 / results.max(1) as f64;
    let windows = PoolingWindows { times, taps: elements };
    let tiles = product_loops.candidates(stages, Some(windows)).into_iter();
    let of = |tile: ProductTile| {
        Some((named(stages, second.output, &product(stages, first, r, &tile, Some((windows, second)))?), tile))
    };
    let (together, tile) = tiles.filter_map(of).min_by(|a, b| a.0.cost.total().total_cmp(&b.0.cost.total()))?;
    let apart = [unit(stages, first), unit(stages, second)].concat();
    Some(Pair { together, tile, apart })
}

/// What a product and windows over its results cost in nanoseconds as one kernel and as two: `first` with `epilogue` behind it,
/// `second` the reduction of the windows. Also the tile of the one kernel; `None` where it cannot be made.
pub(in crate::schedule) fn window_costs(
    f: &TensorFunction,
    constants: &[BufferId],
    profile: &DeviceProfile,
    [first, epilogue, second, output]: [Name; 4],
) -> Option<(f64, f64, ProductTile)> {
    let stages = Stages::of(f, constants, profile);
    let pair = pair(&stages, &part(&stages, [first, epilogue])?, &part(&stages, [second, output])?)?;
    let (together, apart) = pair.costs();
    Some((together, apart, pair.tile))
}

/// What a reduction costs in nanoseconds where `threads` share each result, and where each has its own. `blocks` are the reduction
/// and what stores what is made of it; `None` where they are no plain stages.
pub(in crate::schedule) fn sharing_costs(
    f: &TensorFunction,
    constants: &[BufferId],
    profile: &DeviceProfile,
    blocks: [Name; 2],
    threads: i64,
) -> Option<(f64, f64)> {
    let stages = Stages::of(f, constants, profile);
    let p = part(&stages, blocks)?;
    let cost = |t: Tally| named(&stages, p.output, &t).cost.total();
    Some((cost(workgroup_a_result(&stages, &p, p.reduce?, threads)), cost(thread_a_result(&stages, &p, p.reduce?))))
}

/// What a product costs in nanoseconds in each of these tiles; in slices, with the kernel that sums their results up. `blocks`
/// are the product and what stores what is made of it; `None` where they are no plain stages.
pub(in crate::schedule) fn product_costs(
    f: &TensorFunction,
    constants: &[BufferId],
    profile: &DeviceProfile,
    blocks: [Name; 2],
    tiles: &[ProductTile],
) -> Option<Vec<f64>> {
    let stages = Stages::of(f, constants, profile);
    let p = part(&stages, blocks)?;
    let r = p.reduce?;
    Some(tiles.iter().map(|tile| total(&in_slices(&stages, &p, r, *tile))).collect())
}

/// The same as [`product_costs`] for tiles on matrix units.
pub(in crate::schedule) fn matrix_costs(
    f: &TensorFunction,
    constants: &[BufferId],
    profile: &DeviceProfile,
    blocks: [Name; 2],
    tiles: &[MatrixTile],
) -> Option<Vec<f64>> {
    let stages = Stages::of(f, constants, profile);
    let p = part(&stages, blocks)?;
    let r = p.reduce?;
    let product = Product::of(&stages, r)?;
    Some(tiles.iter().map(|t| total(&on_matrices(&stages, &p, (&product, r), t))).collect())
}

/// What a thread of a product holds beside sums: `blocks` are the product and what stores what is made of it; `None` where they are no
/// plain stages.
pub(in crate::schedule) fn holdings(
    f: &TensorFunction,
    constants: &[BufferId],
    profile: &DeviceProfile,
    blocks: [Name; 2],
) -> Option<Holdings> {
    let stages = Stages::of(f, constants, profile);
    let p = part(&stages, blocks)?;
    let r = p.reduce?;
    Some(Product::of(&stages, r)?.holdings(&stages, computes_functions(&stages, &p, r)))
}

fn part(stages: &Stages<'_>, [reduce, output]: [Name; 2]) -> Option<Part> {
    let (reduce, output) = (stages.position(reduce)?, stages.position(output)?);
    stages.can_be_counted().then_some(Part { reduce: Some(reduce), output })
}
