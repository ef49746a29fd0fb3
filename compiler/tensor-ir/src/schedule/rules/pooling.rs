//! Reductions over windows of a contraction's results in the contraction's kernel: pooling after a convolution. This is
//! not a rule of its own: it joins two reductions to one unit, and the choice `windows` records whether that is done.
//!
//! ```text
//! conv[n, h, w, c] += x[..] * f[..]                      for each tile of results of the pool:
//! t[n, h, w, c] = max(conv[..] + b[c], 0)                  conv[p, r, s, c] += x[..] * f[..]     (registers)
//! pool[n, i, j, c] max= t[n, 2i + r, 2j + s, c]      =>    pool[p, c] max= max(conv[p, r, s, c] + b[c], 0)
//! y[n, i, j, c] = pool[n, i, j, c]                         y[..] = pool[p, c]
//! ```
//!
//! A tile of results is then a tile of rows of the contraction, in which the elements of each window are adjacent.
//! Rules get it as a [`Unit`] with a [`PoolingWindow`]. If no rule takes the joined unit, the two units stay two
//! kernels.

use super::decline::Decline;
use super::dispatch::{Asked, Picks, rules_for, total};
use super::script::{APART, NOTHING, TOGETHER, WINDOWS, WRITTEN};
use super::sketch::Sketch;
use super::unit::{PoolingWindow, Unit, block_of, readers};
use super::view::View;
use super::{matmul_subgroup, thread_tile};
use crate::int::{Int, product};
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::Inline;
use crate::schedule::ScheduleError;
use crate::schedule::estimate::{KernelEstimate, window_kernel};
use crate::schedule::tiles::{LARGEST_WINDOW, ProductSize, ProductTile, window_index};
use crate::tir::BufferId;
use std::collections::VecDeque;

/// Makes one unit of two wherever a rule takes it, and schedules that; the two leave the list. Whether they are one is
/// a choice of the unit with the windows. Returns the rules with the work that each took.
///
/// # Errors
/// The written instructions for the two units do not apply.
pub(super) fn schedule_windows(
    sketch: &mut Sketch<'_>,
    units: &mut VecDeque<Unit>,
    declined: &mut Vec<String>,
) -> Result<Vec<(u64, Name, &'static str)>, ScheduleError> {
    let mut done = Vec::new();
    for second in Vec::from(units.clone()) {
        let Some(first) = units.iter().find(|u| feeds_windows(sketch, u, &second)).cloned() else { continue };
        let taken = match sketch.script.written(second.name(), WINDOWS) {
            Some(list) => {
                sketch.replay(list)?;
                sketch.is_scheduled(&second).then_some(WRITTEN)
            }
            None => choose_windows(sketch, &first, &second, declined),
        };
        if let Some(rule) = taken {
            done.push((first.work + second.work, second.output, rule));
            units.retain(|u| u.output != first.output && u.output != second.output);
        }
    }
    Ok(done)
}

/// Schedules both units as one if that is requested or pays; else records that they stay apart.
fn choose_windows(
    sketch: &mut Sketch<'_>,
    first: &Unit,
    second: &Unit,
    declined: &mut Vec<String>,
) -> Option<&'static str> {
    let domain = [TOGETHER, APART].map(String::from);
    let unit = second.name();
    let wish = sketch.script.wished_word(unit, WINDOWS).map(|w| w.0);
    if wish != Some(APART) {
        let saved = sketch.clone();
        sketch.note_choice(unit, WINDOWS, &domain[0], &domain);
        match schedule_pair(sketch, first, second, wish.is_some()) {
            Ok(rule) => return Some(rule),
            Err(why) => {
                *sketch = saved;
                declined.extend(why.iter().map(|w| format!("{} apart from {}: {w}", second.name(), first.name())));
            }
        }
    }
    sketch.note_choice(unit, WINDOWS, &domain[1], &domain);
    None
}

/// True when `second` reduces windows of what `first` makes of its reduction, and nobody else reads that. No rule for
/// processors takes both.
pub(super) fn feeds_windows(sketch: &Sketch<'_>, first: &Unit, second: &Unit) -> bool {
    let f = &sketch.f;
    if !sketch.profile.model().shaders {
        return false;
    }
    let (Some(_), Some(reader)) = (first.reduce, second.reduce.and_then(|r| block_of(f, r))) else { return false };
    let Some(made) = block_of(f, first.output).map(|b| b.buffer) else { return false };
    readers(f, made) == [reader.name]
        && !f.outputs().any(|o| o == made)
        && window_index(f, reader, made).is_some()
        && !sketch.is_scheduled(first)
        && !sketch.is_scheduled(second)
}

/// Schedules both units as one, or says why no rule does; `wished`, whether or not that pays.
fn schedule_pair(
    sketch: &mut Sketch<'_>,
    first: &Unit,
    second: &Unit,
    wished: bool,
) -> Result<&'static str, Vec<String>> {
    let apart = sketch.clone();
    let unit = join(sketch, first, second, wished).map_err(|d| vec![d.0])?;
    let joined = sketch.clone();
    let target: Vec<BufferId> = block_of(&sketch.f, unit.output).map(|b| b.buffer).into_iter().collect();
    let mut why = Vec::new();
    let rules = rules_for(sketch.target, sketch.script, &unit);
    for (at, &asked) in rules.iter().enumerate() {
        *sketch = joined.clone();
        // Tiles are worth more than a kernel less.
        let tiled = || rules.iter().any(|r| r.rule.tiles && takes(&apart, first, *r));
        if !asked.rule.tiles && !asked.by_name && !wished && tiled() {
            why.push(format!("rule {} makes no tiles", asked.rule.name));
            break;
        }
        let mut picks = Picks::of(&sketch.view(), &unit, &rules[at..=at], sketch.script);
        let Some(pick) = picks.next() else {
            why.extend(picks.all_reasons(&unit));
            continue;
        };
        match pick.apply(sketch, &unit).and_then(|()| sketch.require_whole_words(&target, &[])) {
            Ok(()) => return Ok(pick.rule.name),
            Err(Decline(reason)) if !reason.is_empty() => why.push(format!("rule {}: {reason}", pick.rule.name)),
            Err(_) => {}
        }
    }
    Err(why)
}

/// Whether a rule schedules a unit.
fn takes(sketch: &Sketch<'_>, unit: &Unit, asked: Asked) -> bool {
    let pick = Picks::of(&sketch.view(), unit, &[asked], sketch.script).next();
    pick.is_some_and(|pick| pick.apply(&mut sketch.clone(), unit).is_ok())
}

/// Inlines what stands between the two reductions, where one kernel costs less than two or is wished for: what windows
/// share is computed for each of them, but nothing is stored and loaded between.
fn join(sketch: &mut Sketch<'_>, first: &Unit, second: &Unit, wished: bool) -> Result<Unit, Decline> {
    let (Some(reduce), Some(block)) = (first.reduce, second.reduce) else { return Err(Decline::other_kind()) };
    let loops = sketch.f.reduction_loops(block);
    let extents: Vec<Int> =
        sketch.loops(block)?.into_iter().filter(|l| loops.contains(&l.var)).map(|l| l.extent).collect();
    let taps = sketch.constant_extent(&product(&extents))?;
    if taps > LARGEST_WINDOW {
        return Err(Decline(format!("a window has {taps} elements, a tile of registers at most {LARGEST_WINDOW}")));
    }
    let pair = one_or_two(&sketch.view(), first, second);
    if !wished {
        let pair = pair.as_ref().ok_or_else(|| Decline("no tile holds whole windows".into()))?;
        if !pair.pays() {
            let [one, two] = [pair.one.total(), total(&pair.two)].map(|ns| ns / 1e3);
            return Err(Decline(format!("one kernel takes {one:.1} us, two take {two:.1}")));
        }
    }
    sketch.apply(Inline { block: first.output })?;
    let window = Some(PoolingWindow { block, taps, tile: pair.map(|p| p.tile) });
    Ok(Unit { reduce: Some(reduce), window, output: second.output, work: first.work + second.work })
}

/// Two units as one kernel, and as they are.
pub(super) struct Pair {
    pub one: KernelEstimate,
    pub tile: ProductTile,
    pub two: Vec<KernelEstimate>,
}

impl Pair {
    pub fn pays(&self) -> bool {
        self.one.total() < total(&self.two)
    }
}

/// What a product and windows over its results cost as one kernel and as two; `None` where one kernel cannot be made.
pub(super) fn one_or_two(view: &View<'_>, first: &Unit, second: &Unit) -> Option<Pair> {
    let blocks = [first.reduce?, first.output, second.reduce?, second.output];
    let tiles = |size: ProductSize| product_tiles(view.profile, size);
    let (one, tile) = window_kernel(view.stages(), blocks, &tiles)?;
    let apart = |unit: &Unit| {
        let rules = rules_for(view.target, &NOTHING, unit);
        Picks::of(view, unit, &rules, &NOTHING).next().map(|p| p.kernels)
    };
    let two = [apart(first)?, apart(second)?].concat();
    (!two.is_empty()).then_some(Pair { one, tile, two })
}

/// The tiles that a product with windows may have. None where it is too small for tiles or the device has none.
fn product_tiles(p: &DeviceProfile, size: ProductSize) -> Vec<ProductTile> {
    let [_, rows, columns, depth] = size.all;
    let small = |least: i64| columns < least || depth < thread_tile::LEAST_DEPTH;
    match p.model().workgroup_memory {
        true if small(thread_tile::LEAST) || rows < thread_tile::LEAST => vec![],
        true => thread_tile::Tiles::new(p, size).candidates(),
        false if small(matmul_subgroup::LEAST_COLUMNS) => vec![],
        false => matmul_subgroup::usual_tile(p, [rows, columns], size.taps).into_iter().collect(),
    }
}
