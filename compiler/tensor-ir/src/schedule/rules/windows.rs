//! Depthwise and grouped convolutions and pooling: a thread computes several neighbouring windows, as vectors of
//! channels if these are contiguous.
//!
//! Neighbouring windows overlap and use the same weights. The tile goes along the output loop that saves the most
//! loads. Its loops, and the window's loops along the same axis, are unrolled, so that a load that two windows share
//! happens once. The savings of a tile are counted: the number of different elements of each operand that it reads.

use super::analysis::{contraction_of_numbers, output_variables};
use super::candidate::Candidate;
use super::decline::Decline;
use super::direct::accumulate_at;
use super::elementwise::bind_flat;
use super::packing::pack_constants;
use super::sketch::Sketch;
use super::unit::Unit;
use super::view::View;
use crate::candidate;
use crate::int::Int;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::estimate::{KernelEstimate, operations_of_value, own_reduction};
use crate::schedule::tiles::{LARGE, Neighbours, fits_text};
use crate::tir::{Block, BufferId};
use rustc_hash::{FxHashMap, FxHashSet};

/// Windows of a thread at most: with vectors of four that is half of the registers a thread has without spilling.
const LARGEST_TILE: i64 = 8;
/// The same where a thread has fewer than [`LARGE`] registers (8 spill on Xe2: 293 are live).
const SMALL_TILE: i64 = 6;
/// Loads that are counted, and unrolled, at most.
const MOST_LOADS: i64 = 512;
/// The part of the threads that keep a GPU busy which a tile leaves, at least: the estimate weighs idle lanes against
/// loads. Products, which other rules divide, leave all of them.
const FEWEST: i64 = 4;
/// Loads that a tile must save, as a factor.
const LEAST_GAIN: f64 = 1.25;
/// Registers of a thread for addresses and conditions.
const OTHERS: i64 = 8;
/// Vectors that live at once while a result becomes what is stored, at most: one for each operation, as compilers
/// compute several results side by side.
const EPILOGUE_VECTORS: i64 = 7;

/// A tile along one loop of the output.
#[derive(Clone)]
struct WindowTile {
    along: Name,
    windows: i64,
    /// Loads for each result, with those of a tail that are thrown away.
    loads: f64,
    /// Reduction loops that move with the tile.
    moving: Vec<Name>,
}

candidate! {
    /// Neighbouring windows of a thread.
    pub(super) struct NeighbouringWindows {
        /// The loop of the output along which they lie.
        pub along: Name,
        /// How many.
        pub results: i64,
    }
}

/// For each number of windows the tile with the fewest loads, the later one of equals. The other tiles are candidates
/// on request only.
pub(super) fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    let known = view.once(unit, |view| tiles(view, unit));
    let tiles = known.as_ref().as_ref().map_err(Clone::clone)?;
    let of = |t: &WindowTile| Candidate::new(NeighbouringWindows { along: t.along, results: t.windows });
    let mut by_loads: Vec<&WindowTile> = tiles.iter().rev().collect();
    by_loads.sort_by(|a, b| a.loads.total_cmp(&b.loads));
    let first = |n: usize| by_loads[..n].iter().all(|t| t.windows != by_loads[n].windows);
    let several = view.profile.model().wide_teams && !is_product(view, unit);
    let usual = |n: usize| n == 0 || several && first(n);
    Ok(by_loads.iter().enumerate().map(|(n, t)| if usual(n) { of(t) } else { of(t).on_request() }).collect())
}

/// The kernel where a thread has so many neighbouring windows.
pub(super) fn price(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    let known = view.once(unit, |view| tiles(view, unit));
    let (Ok(chosen), Ok(tiles)) = (candidate.choices::<NeighbouringWindows>(), &*known) else { return vec![] };
    let Some(tile) = chosen.tile_of(tiles) else { return vec![] };
    let along = own_variable(view, unit, tile.along).unwrap_or(tile.along);
    let neighbours = Neighbours { along, windows: tile.windows, moving: tile.moving.clone() };
    own_reduction(view.stages(), [unit.name(), unit.output], Some(&neighbours))
}

impl NeighbouringWindows {
    fn tile_of<'t>(&self, tiles: &'t [WindowTile]) -> Option<&'t WindowTile> {
        tiles.iter().find(|t| t.along == self.along && t.windows == self.results)
    }
}

/// The variable of the reduction that a loop of the output is.
fn own_variable(view: &View<'_>, unit: &Unit, along: Name) -> Option<Name> {
    let (r, c) = (view.block(unit.reduce?)?, view.block(unit.output)?);
    output_variables(view.f, r, c).ok()?.iter().find(|m| m.1 == along).map(|m| m.0)
}

/// Gives each thread so many neighbouring windows.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let chosen = candidate.choices::<NeighbouringWindows>()?;
    let reduce = unit.reduce.ok_or_else(Decline::other_kind)?;
    let tile = choose_tile(sketch, unit, chosen)?;
    pack_constants(sketch, unit);
    let parts = sketch.split(tile.along, &[0, tile.windows], &["o", "w"])?;
    let (outer, window) = (parts[0], parts[1]);
    let mut order: Vec<Name> = sketch.loops(unit.output)?.iter().map(|l| l.var).filter(|v| *v != window).collect();
    debug_assert!(order.contains(&outer));
    order.push(window);
    sketch.reorder(&order)?;
    let (thread, vector) = bind_flat(sketch, unit.output, &[window])?;
    sketch.unroll(window)?;
    accumulate_at(sketch, reduce, thread, vector.is_some(), &tile.moving)
}

/// The candidate's tile, or the one that is asked for.
fn choose_tile(sketch: &mut Sketch<'_>, unit: &Unit, chosen: &NeighbouringWindows) -> Result<WindowTile, Decline> {
    let tiles = tiles(&sketch.view(), unit)?;
    let mut loops: Vec<Name> = tiles.iter().map(|t| t.along).collect();
    loops.dedup();
    let along = sketch.choose("along", &loops, chosen.along)?;
    let domain: Vec<i64> = tiles.iter().filter(|t| t.along == along).map(|t| t.windows).collect();
    let results = sketch.choose("results", &domain, chosen.results)?;
    NeighbouringWindows { along, results }.tile_of(&tiles).cloned().ok_or_else(Decline::other_kind)
}

/// All tiles that leave enough threads; declines when none of them saves enough.
fn tiles(view: &View<'_>, unit: &Unit) -> Result<Vec<WindowTile>, Decline> {
    let Some(reduce) = unit.reduce.filter(|_| unit.window.is_none()) else { return Err(Decline::other_kind()) };
    let find = |name| view.block(name).ok_or_else(Decline::other_kind);
    let (r, c) = (find(reduce)?, find(unit.output)?);
    let map = output_variables(view.f, r, c)?;
    let mut window: Vec<(Name, i64)> = Vec::new();
    let inside = view.f.reduction_loops(reduce);
    for l in view.loops(reduce)?.iter().filter(|l| inside.contains(&l.var)) {
        window.push((l.var, view.constant_extent(&l.extent)?));
    }
    let mut results: Vec<ResultLoop> = Vec::new();
    for l in &view.loops(unit.output)? {
        let own = map.iter().find(|m| m.1 == l.var).map(|m| m.0);
        results.push(ResultLoop { along: l.var, own, extent: view.constant_extent(&l.extent)? });
    }
    let busy = i64::from(view.profile.cores.max(1)) * i64::from(view.profile.model().threads_a_core);
    let weighed = view.profile.model().wide_teams && !is_product(view, unit);
    let fewest = if view.asked { 1 } else { busy / if weighed { FEWEST } else { 1 } };
    let epilogue = 1 + (operations_of_value(&c.value) as i64).clamp(1, EPILOGUE_VECTORS - 1);
    let held = Held { constants: view.constants, epilogue };
    tiles_of(view.profile, (view.asked, fewest), r, (&window, &results), &held)
}

/// Whether the reduction is a product with rows and columns, which other rules divide.
fn is_product(view: &View<'_>, unit: &Unit) -> bool {
    contraction_of_numbers(view, unit).is_ok_and(|c| !c.n.is_empty())
}

/// A loop of the output, the variable of the reduction that it is, and its iterations.
struct ResultLoop {
    along: Name,
    own: Option<Name>,
    extent: i64,
}

fn tiles_of(
    p: &DeviceProfile,
    (asked, fewest): (bool, i64),
    r: &Block,
    (window, loops): (&[(Name, i64)], &[ResultLoop]),
    held: &Held<'_>,
) -> Result<Vec<WindowTile>, Decline> {
    let taps: i64 = window.iter().map(|w| w.1).product();
    if taps < 2 || taps * LARGEST_TILE > MOST_LOADS {
        return Err(Decline::other_kind());
    }
    let results: i64 = loops.iter().map(|l| l.extent).product();
    // The vector's loop stays whole: its neighbours are loaded together.
    let last = loops.iter().rev().find(|l| l.extent != 1).ok_or_else(Decline::other_kind)?;
    let lanes = [4, 2].into_iter().find(|w| last.extent % w == 0).unwrap_or(1);
    let alone = loads_of(r, window, None).ok_or_else(Decline::other_kind)? as f64;
    let largest = if (1..LARGE).contains(&p.registers) { SMALL_TILE } else { LARGEST_TILE };
    let lane = last.own.filter(|_| lanes > 1).map(|v| (v, lanes));
    let mut tiles: Vec<WindowTile> = Vec::new();
    for l in loops.iter().filter(|l| lanes == 1 || l.along != last.along) {
        let Some(v) = l.own else { continue };
        let moving: Vec<Name> = window.iter().map(|w| w.0).filter(|w| together(r, v, *w)).collect();
        for windows in 2..=largest.min(l.extent) {
            let count = (l.extent + windows - 1) / windows;
            if results / l.extent * count / lanes < fewest {
                continue;
            }
            let known: Vec<Name> = window.iter().map(|w| w.0).chain([v]).collect();
            let all = taps <= i64::from(p.model().unrolled) && fits_text(r, &known, taps * windows);
            let unrolled: Vec<(Name, i64)> = window.iter().filter(|w| all || moving.contains(&w.0)).copied().collect();
            if !fits_text(r, &known, unrolled.iter().map(|w| w.1).product::<i64>() * windows) {
                continue;
            }
            let sure = l.extent - (count - 1) * windows;
            let needed = || held.registers(r, &unrolled, (v, windows, sure), lane);
            if p.registers > 0 && needed().is_some_and(|n| n + OTHERS > i64::from(p.registers)) {
                continue;
            }
            let Some(loads) = loads_of(r, window, Some((v, windows))) else { continue };
            let loads = loads as f64 * count as f64 / l.extent as f64;
            tiles.push(WindowTile { along: l.along, windows, loads, moving: moving.clone() });
        }
    }
    let best = tiles.iter().reduce(|b, t| if t.loads <= b.loads { t } else { b });
    let best = best.ok_or_else(|| Decline(format!("no tile leaves {fewest} threads")))?;
    if !asked && alone / best.loads < LEAST_GAIN {
        return Err(Decline(format!(
            "a tile of {} results loads {:.1} elements for each, one alone {alone}",
            best.windows, best.loads
        )));
    }
    Ok(tiles)
}

/// True when a load has an index with both variables.
fn together(r: &Block, a: Name, b: Name) -> bool {
    let mut found = false;
    r.value.visit_ints(&mut |i| found |= i.uses(a) && i.uses(b));
    found
}

/// Different elements that the block loads for `tile.1` neighbours along the variable `tile.0`, or for one result.
/// `None` when an index follows from data.
fn loads_of(r: &Block, window: &[(Name, i64)], tile: Option<(Name, i64)>) -> Option<usize> {
    r.value.loads().iter().map(|(_, index)| different_elements(index, window, tile)).sum()
}

/// Registers of a thread beside the elements that it reads.
struct Held<'a> {
    /// Parameters that are packed: neighbours lie side by side.
    constants: &'a [BufferId],
    /// Vectors of the epilogue.
    epilogue: i64,
}

impl Held<'_> {
    /// Registers that a thread needs at once for `tile.1` neighbours along the variable `tile.0`, of as many lanes as
    /// `lane` has, of which the last thread stores the first `tile.2`. `unrolled` are the loops of the window,
    /// outermost first. `None` when an index follows from data.
    ///
    /// In order, these are the sums, and every element from its first use to its last one. Neighbours in memory come
    /// together, as compilers join such loads; elsewhere each lane has an address and a condition. Sums that are stored
    /// under a condition are computed there by some compilers, behind the epilogue of the others: then all that they
    /// read lives as long.
    fn registers(
        &self,
        r: &Block,
        unrolled: &[(Name, i64)],
        (v, windows, sure): (Name, i64, i64),
        lane: Option<(Name, i64)>,
    ) -> Option<i64> {
        let loops: Vec<(Name, i64)> = unrolled.iter().copied().chain([(v, windows)]).chain(lane).collect();
        let lanes = lane.map_or(1, |l| l.1);
        let points: i64 = loops.iter().map(|l| l.1).product();
        // What lives longer from a step on.
        let mut change = vec![0; (points / lanes) as usize + 1];
        let (mut later, mut alone) = (0, false);
        for (buffer, index) in r.value.loads() {
            let mut first: FxHashMap<i64, usize> = FxHashMap::default();
            let mut last: FxHashMap<Place, usize> = FxHashMap::default();
            let mut under_conditions: FxHashSet<Place> = FxHashSet::default();
            let places = places(index, &loops)?;
            let beside = |p: &[Place]| p[1].row == p[0].row && (0..2).contains(&(p[1].element - p[0].element));
            alone |= lanes > 1 && !self.constants.contains(&buffer) && !beside(&places);
            for (point, place) in places.into_iter().enumerate() {
                let step = point / lanes as usize;
                first.entry(place.row).or_insert(step);
                last.insert(place, step);
                if step as i64 % windows >= sure {
                    under_conditions.insert(place);
                }
            }
            later += under_conditions.len() as i64;
            for (place, step) in last {
                change[first[&place.row]] += 1;
                change[step + 1] -= 1;
            }
        }
        let most = change.iter().scan(0, |now, by| {
            *now += by;
            Some(*now)
        });
        let addresses = if alone { windows * lanes + windows + lanes } else { 0 };
        let in_order = most.max().unwrap_or(0) + windows * lanes + addresses;
        let behind = if sure < windows { later + (sure + self.epilogue) * lanes } else { 0 };
        Some(in_order.max(behind))
    }
}

/// Different elements at an index, for `tile.1` neighbours along the variable `tile.0`, or for one result. `None` when
/// it follows from data.
fn different_elements(index: &[Int], window: &[(Name, i64)], tile: Option<(Name, i64)>) -> Option<usize> {
    let loops: Vec<(Name, i64)> = window.iter().copied().chain(tile).collect();
    Some(places(index, &loops)?.into_iter().map(|p| p.element).collect::<FxHashSet<i64>>().len())
}

/// An element in memory, and the row along the last dimension that it lies in: numbers that differ where these do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Place {
    row: i64,
    element: i64,
}

/// The element that an index names at each point of the loops, of which the last one runs fastest. `None` when it
/// follows from data.
fn places(index: &[Int], loops: &[(Name, i64)]) -> Option<Vec<Place>> {
    let mut out = vec![Place::default(); loops.iter().map(|l| l.1).product::<i64>() as usize];
    for i in index {
        let mut values = Vec::with_capacity(out.len());
        add_values(i, loops, &mut Vec::new(), &mut values)?;
        let (least, most) = (values.iter().min().copied()?, values.iter().max().copied()?);
        for (place, value) in out.iter_mut().zip(values) {
            let row = place.element;
            *place = Place { row, element: row.checked_mul(most - least + 1)?.checked_add(value - least)? };
        }
    }
    Some(out)
}

/// Adds the values of an index at each point of the loops, where the loops around them are `at` their iterations. It is
/// computed once where it does not move with a loop.
fn add_values(i: &Int, loops: &[(Name, i64)], at: &mut Vec<(Name, i64)>, out: &mut Vec<i64>) -> Option<()> {
    let Some((&(v, extent), inner)) = loops.split_first() else {
        out.push(i.eval(&|v| Some(at.iter().find(|a| a.0 == v).map_or(0, |a| a.1)))?);
        return Some(());
    };
    if !i.uses(v) {
        let start = out.len();
        add_values(i, inner, at, out)?;
        let again = out[start..].repeat(extent as usize - 1);
        out.extend(again);
        return Some(());
    }
    for n in 0..extent {
        at.push((v, n));
        add_values(i, inner, at, out)?;
        at.pop();
    }
    Some(())
}
