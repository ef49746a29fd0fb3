//! The stages of an unscheduled function, and the cost of their reads for the lanes of a subgroup, from the addresses
//! of one subgroup in the middle of the loops.

use super::operands::Product;
use super::rates::Rates;
use super::reads::{Demand, Lanes, Loop, Read, Touch, Window, extent, iterations, neighbour};
use super::tally::{Tally, operations};
use crate::int::{self, Int};
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::ScheduleTarget;
use crate::schedule::tiles::dimension_to_pack;
use crate::tir::{Block, BufferId, Expr, LoopKind, Scope, Stage, Stmt, TensorFunction};
use crate::traffic::{SECTOR_BYTES, element_bytes, touched_sectors, unrolled_accesses};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;

/// Iterations of a stage that are counted, at most.
const MOST_ITERATIONS: f64 = (1u64 << 53) as f64;
/// A function as a sequence of stages.
pub(in crate::schedule) struct Stages<'f> {
    pub(super) f: &'f TensorFunction,
    pub(super) profile: &'f DeviceProfile,
    /// The same with what the user asks for.
    pub(super) target: ScheduleTarget<'f>,
    pub(super) constants: &'f [BufferId],
    pub(super) rates: Rates,
    pub(super) list: Vec<Stage<'f>>,
    results: Vec<BufferId>,
    countable: bool,
    /// Accesses that were looked at: the tiles of a product have the same ones.
    touches: RefCell<FxHashMap<Access, Touch>>,
    /// The products among the stages that were looked at.
    products: RefCell<FxHashMap<usize, Option<Rc<Product<'f>>>>>,
    /// Counts of the work after products.
    finishes: RefCell<FxHashMap<(usize, Finish), Tally>>,
}

/// The work after a product.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Finish {
    /// What is made of its results by a stage, in vectors of so many, where it is in so many slices.
    Results(usize, i64, i64),
    /// The sum of so many slices.
    Sum(usize, i64),
}

/// The key of an access's cost: the element, the innermost dimension, and the lanes.
type Access = (BufferId, Vec<Int>, Option<usize>, Vec<Loop>, i64, Option<Name>);

/// The perfect nests of serial loops at the top.
fn stages(f: &TensorFunction) -> Vec<Stage<'_>> {
    let list: &[Stmt] = match &f.body {
        Stmt::Seq(list) => list,
        one => std::slice::from_ref(one),
    };
    let mut out = Vec::new();
    for s in list {
        let (mut loops, mut s) = (Vec::new(), s);
        while let Stmt::For(l) = s
            && l.kind == LoopKind::Serial
        {
            loops.push((l.var, l.extent.clone()));
            s = &l.body;
        }
        if let Stmt::Block(block) = s {
            out.push(Stage { loops, block });
        }
    }
    out
}

impl<'f> Stages<'f> {
    pub(in crate::schedule) fn of(
        f: &'f TensorFunction,
        constants: &'f [BufferId],
        target: ScheduleTarget<'f>,
    ) -> Stages<'f> {
        let profile = target.profile;
        let list = stages(f);
        let results: Vec<BufferId> = f.outputs().collect();
        let rates = Rates::of(profile);
        let iterations = |s: &Stage<'_>| s.loops.iter().map(|l| extent(&l.1) as f64).product::<f64>();
        let countable = list.iter().all(|s| iterations(s) <= MOST_ITERATIONS);
        let (touches, products, finishes) = Default::default();
        Stages { f, profile, target, constants, rates, list, results, countable, touches, products, finishes }
    }
    /// The product that a stage sums up; `None` for another reduction.
    pub(super) fn product(&self, stage: usize) -> Option<Rc<Product<'f>>> {
        let known = self.products.borrow().get(&stage).cloned();
        known.unwrap_or_else(|| {
            let found = Product::of(self, stage).map(Rc::new);
            self.products.borrow_mut().insert(stage, found.clone());
            found
        })
    }
    /// What follows product `r`, counted once: tiles share it.
    pub(super) fn finished(&self, what: Finish, r: usize, count: impl FnOnce() -> Tally) -> Tally {
        let known = self.finishes.borrow().get(&(r, what)).cloned();
        known.unwrap_or_else(|| {
            let found = count();
            self.finishes.borrow_mut().insert((r, what), found.clone());
            found
        })
    }
    /// True when the iterations of each stage can be counted in 64 bits, and a little arithmetic done with their
    /// number.
    pub(in crate::schedule) fn can_be_counted(&self) -> bool {
        self.countable
    }
    pub(super) fn is_result(&self, b: BufferId) -> bool {
        self.results.contains(&b)
    }
    pub(super) fn position(&self, block: Name) -> Option<usize> {
        self.list.iter().position(|s| s.block.name == block)
    }
    /// The loops of a stage, and of them those that its store does not use.
    pub(super) fn loops(&self, stage: usize) -> (Vec<Loop>, Vec<Loop>) {
        let s = &self.list[stage];
        let all = |l: Vec<(Name, Int)>| l.into_iter().map(|(v, n)| (v, extent(&n))).collect();
        (all(s.spatial()), all(s.reduction()))
    }
    /// The work for one element of `e`, whose variables are those of a stage.
    pub(super) fn demand(&self, e: &Expr) -> Demand {
        let mut d = Demand::default();
        e.visit(&mut |e| {
            d.operations += operations(e);
            d.computes |= matches!(e, Expr::Unary(..) | Expr::Binary(..));
            let Expr::Load(buffer, index) = e else { return };
            if !d.reads.iter().any(|r| r.buffer == *buffer && r.index == *index) {
                d.reads.push(Read { buffer: *buffer, index: index.clone(), innermost: None });
            }
        });
        d
    }
    /// Constants among the reads, packed for neighbours along the innermost loop of `order`.
    pub(super) fn pack(&self, demand: &mut Demand, order: &[Loop]) {
        let Some(last) = order.iter().rev().find(|l| l.1 > 1) else { return };
        for r in demand.reads.iter_mut().filter(|r| self.constants.contains(&r.buffer)) {
            r.innermost = dimension_to_pack(&r.index, &self.f.buffers[r.buffer].shape, last.0);
        }
    }
    /// The element that a block stores.
    pub(super) fn store(block: &Block) -> Read {
        Read { buffer: block.buffer, index: block.indices.clone(), innermost: None }
    }
    /// Counts the reads of `demand` by `lanes`, each `times` times, and its operations.
    pub(super) fn count(&self, tally: &mut Tally, demand: &Demand, lanes: &Lanes<'_>, times: f64) {
        tally.operations += demand.operations * iterations(lanes.order) * times;
        demand.reads.iter().for_each(|r| self.count_read(tally, r, lanes, times));
    }
    /// Counts one access.
    pub(super) fn count_read(&self, tally: &mut Tally, r: &Read, lanes: &Lanes<'_>, times: f64) {
        let t = self.touch(r, lanes);
        let n = iterations(lanes.order);
        let subgroups = (n / (lanes.width * self.rates.lanes) as f64).ceil() * times;
        self.count_touch(tally, r.buffer, t, subgroups, n * times);
    }
    /// Counts the accesses of the elements of windows.
    pub(super) fn count_window(&self, tally: &mut Tally, r: &Read, lanes: &Lanes<'_>, window: &Window<'_>) {
        let (n, rounds) = (iterations(lanes.order), iterations(window.rolled));
        let unrolled = iterations(window.unrolled);
        let subgroups = (n / (lanes.width * self.rates.lanes) as f64).ceil() * rounds;
        let t = self.touch_unrolled(r, lanes, window).unwrap_or_else(|| {
            let each = lanes.width as f64 * unrolled;
            Touch { accesses: each, sectors: each * self.rates.lanes as f64 }
        });
        self.count_touch(tally, r.buffer, t, subgroups, n * rounds * unrolled);
    }
    /// What the subgroup in the middle does in all iterations of unrolled loops; `None` where an index follows from
    /// data.
    fn touch_unrolled(&self, r: &Read, lanes: &Lanes<'_>, window: &Window<'_>) -> Option<Touch> {
        let bytes = element_bytes(&self.f.buffers[r.buffer], self.profile);
        let dims: Vec<i64> = self.f.buffers[r.buffer].shape.iter().map(extent).collect();
        let total = lanes.order.iter().map(|l| l.1).product::<i64>();
        let count = self.rates.lanes.min((total + lanes.width - 1) / lanes.width);
        let span = count * lanes.width;
        let base = total / 2 / span * span;
        let tap = Lanes { order: window.unrolled, width: 1, along: None };
        let points = window.unrolled.iter().map(|l| l.1).product::<i64>();
        let element = int::Sum::of_index(r.dimensions().map(|d| (&r.index[d], dims[d])))?;
        // Elements by iteration and lane, one iteration of loop `next` after the middle.
        let all = |starts: &[i64], taps: &[Place], next: Option<Name>| {
            let starts: Vec<Place> = starts.iter().map(|e| place(lanes, *e, 0)).collect();
            element.tabulate(
                taps,
                &starts,
                &|v| window.unrolled.iter().any(|l| l.0 == v),
                &|point, v| value_at(point, v),
                &|e, v| value_at(e, v).or_else(|| Some(self.middle(v)? + i64::from(next == Some(v)))),
            )
        };
        let taps: Vec<Place> = (0..points).map(|point| place(&tap, point, 0)).collect();
        let mut each: Vec<Vec<i64>> = Vec::new();
        for n in 0..lanes.width {
            let own: Vec<i64> = (0..count).map(|lane| base + lane * lanes.width + n).collect();
            each.extend(all(&own, &taps, None)?);
        }
        // Other subgroups, and other iterations of the loops that are not unrolled, may stand elsewhere in a vector.
        let one = |e: i64, next: Option<Name>| all(&[e], &taps[..1], next).map(|found| found[0][0]);
        let here = one(base, None)?;
        let mut moves = vec![one((base + span) % total.max(1), None)? - here];
        moves.extend(window.rolled.iter().filter_map(|l| Some(one(base, Some(l.0))? - here)));
        if window.limited {
            let order: Vec<usize> = r.dimensions().collect();
            let inside = |at: usize| order[at + 1..].iter().map(|d| dims[*d]).product::<i64>();
            moves.extend((0..order.len()).filter(|at| r.index[order[*at]].uses(neighbour())).map(inside));
        }
        let (accesses, sectors) = unrolled_accesses(each, &moves, bytes);
        Some(Touch { accesses, sectors })
    }
    /// Counts the accesses of subgroups to a buffer, of which they access `elements`.
    pub(super) fn count_touch(&self, tally: &mut Tally, b: BufferId, t: Touch, subgroups: f64, elements: f64) {
        if matches!(self.f.buffers[b].scope, Scope::Global) {
            tally.accesses += t.accesses * subgroups;
            tally.sector_bytes += t.sectors * SECTOR_BYTES as f64 * subgroups;
        }
        tally.touch(b, elements);
    }
    /// The cost of an access for the subgroup in the middle.
    pub(super) fn touch(&self, r: &Read, lanes: &Lanes<'_>) -> Touch {
        let key = (r.buffer, r.index.clone(), r.innermost, lanes.order.to_vec(), lanes.width, lanes.along);
        if let Some(&known) = self.touches.borrow().get(&key) {
            return known;
        }
        let found = self.look_at(r, lanes);
        self.touches.borrow_mut().insert(key, found);
        found
    }
    fn look_at(&self, r: &Read, lanes: &Lanes<'_>) -> Touch {
        let bytes = element_bytes(&self.f.buffers[r.buffer], self.profile);
        let dims: Vec<i64> = self.f.buffers[r.buffer].shape.iter().map(extent).collect();
        let total = lanes.order.iter().map(|l| l.1).product::<i64>();
        let step = if lanes.along.is_some() { 1 } else { lanes.width };
        let count = self.rates.lanes.min((total + step - 1) / step);
        let span = count * step;
        let base = total / 2 / span * span;
        let address = |lane: i64, n: i64| {
            let e = base + lane * step + if lanes.along.is_some() { 0 } else { n };
            let here = place(lanes, e, n);
            self.address(r, &dims, &|v| value_at(&here, v))
        };
        let all = |n: i64| (0..count).map(|l| address(l, n)).collect::<Option<Vec<i64>>>();
        let Some(starts) = all(0) else {
            let each = (self.rates.lanes * lanes.width) as f64;
            return Touch { accesses: lanes.width as f64, sectors: each };
        };
        let at =
            |elements: i64| -> Vec<i64> { starts.iter().map(|s| ((s + elements) as f64 * bytes) as i64).collect() };
        let next = |n: i64| address(0, n).zip(address(count - 1, n));
        let moved = |by: i64| {
            (1..lanes.width).all(|n| next(n) == Some((starts[0] + by * n, starts[starts.len() - 1] + by * n)))
        };
        let one = |width: i64| touched_sectors(&at(0), ((width as f64 * bytes) as i64).max(1));
        if lanes.width == 1 || moved(0) {
            return Touch { accesses: 1.0, sectors: one(1) };
        }
        if moved(1) {
            let aligned = starts.iter().all(|s| s.rem_euclid(lanes.width) == 0) && self.stays_aligned(r, &dims, lanes);
            if aligned {
                return Touch { accesses: 1.0, sectors: one(lanes.width) };
            }
        }
        Touch { accesses: lanes.width as f64, sectors: lanes.width as f64 * one(1) }
    }
    /// True when a step of each loop that is none of `lanes` moves the address by whole vectors.
    fn stays_aligned(&self, r: &Read, dims: &[i64], lanes: &Lanes<'_>) -> bool {
        let of_lanes = |v: Name| lanes.order.iter().any(|l| l.0 == v) || lanes.along == Some(v);
        let mut others: Vec<Name> = r.variables();
        others.retain(|v| !of_lanes(*v));
        let at = |step: Option<Name>| {
            let own = place(lanes, 0, 0);
            self.address(r, dims, &|v| {
                value_at(&own, v).or_else(|| (step == Some(v)).then(|| self.middle(v).map(|m| m + 1))?)
            })
        };
        let here = at(None);
        others.iter().all(|&v| here.zip(at(Some(v))).is_some_and(|(a, b)| (b - a) % lanes.width == 0))
    }
    fn address(&self, r: &Read, dims: &[i64], at: &dyn Fn(Name) -> Option<i64>) -> Option<i64> {
        let middle = |v: Name| at(v).or_else(|| self.middle(v));
        r.dimensions().try_fold(0i64, |flat, d| flat.checked_mul(dims[d])?.checked_add(r.index[d].eval(&middle)?))
    }
    /// By how many elements an access moves with a step of `v`, in the middle of all loops.
    pub(super) fn step(&self, b: BufferId, index: &[Int], v: Name) -> Option<i64> {
        let at = |by: i64| {
            let here = |n: Name| self.middle(n).map(|m| if n == v { m - m.min(1) + by } else { m });
            let mut dims = index.iter().zip(&self.f.buffers[b].shape);
            dims.try_fold(0i64, |flat, (i, d)| flat.checked_mul(extent(d))?.checked_add(i.eval(&here)?))
        };
        let (first, step) = (at(0)?, at(1)?.checked_sub(at(0)?)?);
        // As far as another iteration of the loop: a quotient has two steps, or stays for some.
        let far = self.middle(v)?.min(FAR);
        (far < 2 || at(far)?.checked_sub(first)? == far.checked_mul(step)?).then_some(step)
    }
    /// The middle of the range of a loop.
    fn middle(&self, v: Name) -> Option<i64> {
        let loops = self.list.iter().flat_map(|s| &s.loops);
        loops.into_iter().find(|l| l.0 == v).map(|l| extent(&l.1) / 2)
    }
}

/// Iterations after which an index is looked at again.
const FAR: i64 = 31;

/// Values of variables.
type Place = SmallVec<[(Name, i64); 8]>;

/// The variables at element `e` of the order, `n` further along the vector's own loop.
fn place(lanes: &Lanes<'_>, e: i64, n: i64) -> Place {
    let mut out: Place = lanes.along.map(|v| (v, n)).into_iter().collect();
    let mut rest = e;
    for &(name, size) in lanes.order.iter().rev() {
        out.push((name, rest % size));
        rest /= size;
    }
    out
}

fn value_at(place: &Place, v: Name) -> Option<i64> {
    place.iter().find(|p| p.0 == v).map(|p| p.1)
}
