//! Tiles of neighbouring results that are computed from tiles of elements by constant matrices, as the rule `transform`
//! runs them.

use super::rates::usual_width;
use super::reads::{Lanes, Loop, Window, iterations};
use super::stages::Stages;
use super::tally::{KernelEstimate, Tally, Values, every, left};
use crate::int::Int;
use crate::name::Name;
use crate::schedule::tiles::{TransformTile, tile_of, widest};
use crate::tir::Expr;
use rustc_hash::FxHashMap;

/// Variables as expressions of others.
type Meaning = FxHashMap<Name, Int>;

/// The kernel of a function whose stages are of this kind.
pub(in crate::schedule) fn transform_kernel(stages: &Stages<'_>) -> Option<KernelEstimate> {
    let (reductions, computed): (Vec<usize>, Vec<usize>) =
        (0..stages.list.len()).partition(|&s| stages.list[s].block.reduce.is_some());
    let ([r], [output]) = (&reductions[..], &computed[..]) else { return None };
    let (inner, outer) = (stages.list[*r].block, stages.list[*output].block);
    if stages.is_result(inner.buffer) {
        return None;
    }
    let demand = stages.demand(&outer.value);
    let reads: Vec<&[Int]> = demand.reads.iter().filter(|x| x.buffer == inner.buffer).map(|x| x.element().1).collect();
    let ((spatial, taps), (loops, _)) = (stages.loops(*r), stages.loops(*output));
    let own: Vec<Loop> = spatial.iter().chain(&taps).copied().collect();
    let tile = tile_of(inner, &reads, &own, &loops)?;
    let outside: Vec<Loop> = loops.iter().map(|l| (l.0, rows_of(&tile, *l))).filter(|l| l.1 > 0).collect();
    let neighbours = outside.iter().rev().find(|l| l.1 > 1).map_or(1, |l| l.1);
    let most = widest(stages.profile.registers, tile.kept + tile.taps);
    let fits = if neighbours % 4 == 0 { 4 } else { 2 };
    let width = most.min(fits).min(usual_width(stages.profile, iterations(&outside) as i64, neighbours));
    let threads = f64::from(stages.rates.model.threads);
    let workgroups = (iterations(&outside) / width as f64 / threads).ceil();
    let results = (tile.kept * width) as f64;
    let mut tally = Tally { workgroups, threads, results, ..Tally::default() };
    let lanes = Lanes { order: &outside, width, along: None };

    // The variables of a tile's first result, and those of the reduction in them.
    let first: Meaning = tile.inside.iter().map(|&(v, m)| (v, first_of(&loops, v, m))).collect();
    let here = |i: &Int| i.replace(&mut |v| first.get(&v).cloned());
    let meaning: Meaning = inner
        .indices
        .iter()
        .zip(reads[0])
        .filter_map(|(i, at)| i.as_var().filter(|v| !tile.varies.contains(v)).map(|v| (v, here(at))))
        .collect();
    let window: Vec<Loop> = own.iter().filter(|l| taps.contains(l) || tile.varies.contains(&l.0)).copied().collect();
    for x in stages.demand(&inner.value).reads {
        let x = x.with_index(&mut |i| i.replace(&mut |v| meaning.get(&v).cloned()));
        stages.count_window(&mut tally, &x, &lanes, &Window { unrolled: &window, rolled: &[], limited: false });
    }
    let results: f64 = tile.inside.iter().map(|l| l.1 as f64).product();
    let own_reads = demand.reads.into_iter().filter(|x| x.buffer != inner.buffer);
    for x in own_reads.chain([Stages::store(outer)]) {
        stages.count_read(&mut tally, &x.with_index(&mut |i| here(i)), &lanes, results);
    }
    let chosen: Vec<Loop> = own.iter().filter(|l| tile.chosen.contains(&l.0) || taps.contains(l)).copied().collect();
    let repeats = iterations(&own.iter().filter(|l| tile.varies.contains(&l.0)).copied().collect::<Vec<_>>());
    let products = every(&chosen, &mut |at| match live(&inner.value, at) {
        0.0 => 0.0,
        n => n + 1.0,
    });
    let sums = every(&tile.inside, &mut |at| live(&outer.value, at));
    tally.operations = (products * repeats + sums) * iterations(&outside);
    Some(tally.kernel(stages.f, outer.name, stages.profile, &stages.rates))
}

/// Tiles along a loop, and 0 for a loop inside a tile.
fn rows_of(tile: &TransformTile, (v, n): Loop) -> i64 {
    match tile.inside.iter().find(|l| l.0 == v) {
        Some(&(_, m)) if m == n => 0,
        Some(&(_, m)) => (n + m - 1) / m,
        None => n,
    }
}

/// The first of a tile's `m` values of `v`, by the number of the tile.
fn first_of(loops: &[Loop], v: Name, m: i64) -> Int {
    if loops.contains(&(v, m)) { Int::new(0) } else { Int::var(v) * m }
}

/// Operations that are left of `e` once conditions on `values` are decided.
fn live(e: &Expr, values: &Values) -> f64 {
    left(e, &|i| i.eval(&|v| values.get(&v).copied()), &|_, _| 0.0)
}
