//! The accesses of one kernel: for each access, the element numbers of all lanes of a subgroup.

use super::offsets::{Offsets, WIDEST, shift};
use super::rounds::{fresh, holds, iterations};
use super::transactions::{bank_passes, distinct_bytes, sectors};
use super::{AccessTraffic, element_bytes};
use crate::int::{self, Bounds, Int, IntNode, gcd};
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::tir::{Block, BufferId, Cond, For, LoopKind, Scope, Stmt, TensorFunction};
use rustc_hash::FxHashMap;

/// Lanes of a device that does not say.
const USUAL_LANES: u32 = 32;
/// Iterations of unrolled and vectorised loops that are looked at, for one access.
const MOST_INSTANCES: i64 = 1024;

/// A kernel and the threads of its first subgroup.
pub(super) struct Kernel<'f> {
    f: &'f TensorFunction,
    body: &'f Stmt,
    profile: &'f DeviceProfile,
    bounds: Bounds,
    /// Threads along x, y and z, and all of them.
    size: [i64; 3],
    all: i64,
    lanes: Vec<Lane>,
    /// All subgroups of a workgroup are the first one moved along one axis by this many threads.
    moved: Option<(usize, i64)>,
}

/// A thread of the first subgroup.
#[derive(Clone, Copy)]
struct Lane {
    /// Position along x, y and z.
    at: [i64; 3],
    /// Place in the subgroup.
    number: i64,
}

/// The loops and axes around a block.
struct Around<'f> {
    loops: Vec<&'f For>,
    /// The memory access of a matrix operation, if the block is one.
    matrix: Option<MatrixAccess>,
}

/// A matrix in memory, in pieces along its rows of the bytes that a device loads at once.
#[derive(Clone, Copy)]
struct MatrixAccess {
    /// The loop over elements that lie next to each other, and how many a piece has.
    inner: Name,
    piece: i64,
    /// Pieces of a row, and of all rows.
    in_row: i64,
    all: i64,
    /// Accesses, each to a piece of every row; one to all pieces where they have [`WIDEST`] bytes.
    accesses: i64,
}

impl MatrixAccess {
    /// Where a piece begins, along a loop of the matrix.
    fn place(&self, v: Name, number: i64) -> i64 {
        if v == self.inner { number % self.in_row * self.piece } else { number / self.in_row }
    }
}

impl AccessTraffic {
    /// One more access of a thread, of `width` bytes at these places of the lanes.
    fn add(&mut self, starts: &[i64], width: i64, step: i64) {
        self.accesses += 1;
        self.width = self.width.max(width as u32);
        self.bytes += distinct_bytes(starts, width) as f64;
        if self.shared {
            let (passes, least) = bank_passes(starts, width);
            self.passes += passes as f64;
            self.least_passes += least as f64;
        } else {
            self.sectors += sectors(starts, width, step);
        }
    }
}

impl Around<'_> {
    fn kind(&self, v: Name) -> Option<LoopKind> {
        self.loops.iter().find(|l| l.var == v).map(|l| l.kind)
    }
}

/// How a sum's term depends on the thread.
enum Dependence {
    /// On the lanes and the unrolled iterations alone.
    Own,
    /// On other variables alone: all lanes move by it together.
    Base,
    /// On both.
    Mixed,
}

impl<'f> Kernel<'f> {
    pub(super) fn new(f: &'f TensorFunction, body: &'f Stmt, profile: &'f DeviceProfile) -> Self {
        let mut size = [1i64; 3];
        body.visit(&mut |s| {
            if let Stmt::For(l) = s
                && let (LoopKind::Local(a), Some(n)) = (l.kind, l.extent.as_const())
                && let Some(size) = size.get_mut(usize::from(a))
            {
                *size = (*size).max(n);
            }
        });
        let all = size.iter().product::<i64>().clamp(1, i64::from(u16::MAX));
        let lanes = match profile.subgroup.1 {
            0 => USUAL_LANES,
            n => n,
        };
        let lanes = i64::from(lanes).min(all);
        let moved = if lanes == all {
            Some((0, 0))
        } else if size[0] % lanes == 0 {
            Some((0, lanes))
        } else if lanes % size[0] == 0 && size[1] % (lanes / size[0]) == 0 {
            Some((1, lanes / size[0]))
        } else {
            None
        };
        let lanes = (0..lanes).map(|number| Lane { at: place(size, number), number }).collect();
        Kernel { f, body, profile, bounds: f.bounds(), size, all, lanes, moved }
    }

    pub(super) fn accesses(&self) -> Vec<AccessTraffic> {
        let mut out = Vec::new();
        self.collect(self.body, &mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, s: &'f Stmt, loops: &mut Vec<&'f For>, out: &mut Vec<AccessTraffic>) {
        match s {
            Stmt::Seq(list) => list.iter().for_each(|s| self.collect(s, loops, out)),
            Stmt::Kernel(_, s) => self.collect(s, loops, out),
            Stmt::Barrier => {}
            Stmt::For(l) => {
                loops.push(l);
                self.collect(&l.body, loops, out);
                loops.pop();
            }
            Stmt::Block(b) => {
                let around = Around { loops: loops.clone(), matrix: None };
                let mut seen: Vec<(BufferId, &[Int])> = Vec::new();
                for load in b.value.loads() {
                    if !seen.contains(&load) {
                        seen.push(load);
                        out.extend(self.access(&around, b, load.0, load.1, false));
                    }
                }
                if b.reduce.is_some() {
                    out.extend(self.access(&around, b, b.buffer, &b.indices, false));
                }
                out.extend(self.access(&around, b, b.buffer, &b.indices, true));
            }
        }
    }

    /// One access; none for memory that is private to a thread.
    fn access(
        &self,
        around: &Around<'_>,
        block: &Block,
        b: BufferId,
        ix: &[Int],
        store: bool,
    ) -> Option<AccessTraffic> {
        let buffer = &self.f.buffers[b];
        let shared = match buffer.scope {
            Scope::Global => false,
            Scope::Shared => true,
            Scope::Register | Scope::Subgroup { .. } | Scope::Fragment(_) => return None,
        };
        let flat = int::simplify(&int::flatten_index(ix, &buffer.shape), &self.bounds);
        let element = element_bytes(buffer, self.profile);
        let at_once = if shared && !store { self.profile.matrix_load_bytes() } else { WIDEST };
        let matrix = self.matrix_access(around, block, &flat, (at_once, element));
        let around = &Around { loops: around.loops.clone(), matrix };
        let mut serial = around.loops.iter().filter(|l| l.kind == LoopKind::Serial);
        let fresh: f64 = serial.clone().map(|l| fresh(&flat, l)).product();
        let mut out = AccessTraffic {
            block: block.name,
            buffer: b,
            shared,
            store,
            times: self.lane_rounds(around) * serial.clone().map(|l| iterations(block, l)).product::<u64>(),
            inside: serial.next_back().map(|l| l.var),
            lanes: 0,
            share: 1.0,
            accesses: 0,
            width: 0,
            bytes: 0.0,
            passes: 0.0,
            least_passes: 0.0,
            sectors: 0.0,
            exact: true,
            unknown: false,
        };
        let Some(offsets) = self.offsets(around, block, &flat) else {
            return Some(AccessTraffic { exact: false, unknown: true, ..out });
        };
        out.exact = offsets.exact;
        out.lanes = offsets.lanes as u32;
        out.share = offsets.share;
        let step = shift(offsets.step, element);
        let parts = around.matrix.map_or(1, |m| m.accesses as usize);
        let merged = offsets.merged((WIDEST as f64 / element) as i64);
        for (starts, merged, part) in merged.iter().flat_map(|(s, n)| (0..parts).map(move |part| (s, *n, part))) {
            let count = around.matrix.map_or(merged, |m| m.piece);
            let starts = starts.iter().skip(part).step_by(parts);
            let bytes: Vec<i64> = starts.map(|s| (*s as f64 * element) as i64).collect();
            let width = ((count as f64 * element) as i64).max(1);
            out.add(&bytes, width, step);
        }
        out.sectors *= fresh;
        Some(out)
    }

    /// How often the lanes of a subgroup go round in the loops that they share out.
    fn lane_rounds(&self, around: &Around<'_>) -> u64 {
        let lanes = self.lanes.len().max(1) as u64;
        let own = around.loops.iter().filter(|l| l.kind == LoopKind::Lane);
        own.map(|l| (l.extent.as_const().unwrap_or(0).max(0) as u64).div_ceil(lanes)).product()
    }

    /// How a load or a store of a whole matrix touches memory; `None` for other accesses.
    fn matrix_access(
        &self,
        around: &Around<'_>,
        block: &Block,
        flat: &Int,
        (bytes, element): (i64, f64),
    ) -> Option<MatrixAccess> {
        let fragment = |b: BufferId| matches!(self.f.buffers[b].scope, Scope::Fragment(_));
        if !fragment(block.buffer) && !block.value.loads().iter().any(|l| fragment(l.0)) {
            return None;
        }
        let own = around.loops.iter().filter(|l| l.kind == LoopKind::Tensor && flat.uses(l.var));
        let own: Vec<(Name, i64)> = own.filter_map(|l| Some((l.var, l.extent.as_const()?))).collect();
        let [a, b] = own[..] else { return None };
        let step = |v: Name| {
            let at = |n: i64| flat.substitute(v, &Int::new(n));
            int::simplify(&(at(1) - &at(0)), &self.bounds).as_const()
        };
        let (inner, rows) = if step(a.0) == Some(1) { (a, b.1) } else { (b, a.1) };
        let most = ((bytes as f64 / element) as i64).clamp(1, inner.1.max(1));
        let piece = if step(inner.0) == Some(1) { most } else { 1 };
        let in_row = (inner.1 / piece).max(1);
        let accesses = if bytes < WIDEST { in_row } else { 1 };
        Some(MatrixAccess { inner: inner.0, piece, in_row, all: in_row * rows, accesses })
    }

    /// The lanes, or for a matrix its pieces.
    fn places(&self, around: &Around<'_>) -> Vec<Lane> {
        match around.matrix {
            Some(m) => (0..m.all).map(|number| Lane { at: [0; 3], number }).collect(),
            None => self.lanes.clone(),
        }
    }

    /// The elements of all lanes, one list per iteration of the unrolled and vectorised loops that the index uses.
    fn offsets(&self, around: &Around<'_>, block: &Block, flat: &Int) -> Option<Offsets> {
        let instances: Vec<(Name, i64)> = around
            .loops
            .iter()
            .filter(|l| matches!(l.kind, LoopKind::Unroll | LoopKind::Vectorize) && flat.uses(l.var))
            .map(|l| l.extent.as_const().map(|n| (l.var, n.max(1))))
            .collect::<Option<_>>()?;
        let count = instances.iter().try_fold(1i64, |n, i| n.checked_mul(i.1))?;
        if count > MOST_INSTANCES {
            return None;
        }
        let (mut step, mut exact) = (0i64, true);
        let (terms, constant) = int::terms(flat)?;
        for (atom, factor) in &terms {
            let factor = *factor;
            match self.part(around, atom) {
                Dependence::Own => {
                    step = gcd(step, self.moves(around, atom, factor));
                    exact &= self.same_for_all(around, atom);
                }
                Dependence::Base => step = gcd(step, int::divisor(atom).saturating_mul(factor)),
                Dependence::Mixed => (step, exact) = (gcd(step, int::divisor(atom).saturating_mul(factor)), false),
            }
        }
        let middle = self.middle(around, exact);
        let (lanes, share) = self.participants(around, block, &middle);
        let iterations: Vec<FxHashMap<Name, i64>> = (0..count).map(|n| iteration(&instances, n)).collect();
        let unrolled = |v: Name| instances.iter().any(|i| i.0 == v);
        let each = int::Sum { terms, constant }.tabulate(
            &iterations,
            &lanes,
            &unrolled,
            &|own, v| own.get(&v).copied(),
            &|lane, v| self.value(around, &middle, lane, v),
        )?;
        Some(Offsets { each, step, exact, lanes: lanes.len(), share })
    }

    fn part(&self, around: &Around<'_>, atom: &Int) -> Dependence {
        let (mut own, mut base) = (false, false);
        for v in atom.vars() {
            match around.kind(v) {
                Some(LoopKind::Local(_) | LoopKind::Lane | LoopKind::Unroll | LoopKind::Vectorize) => own = true,
                Some(LoopKind::Tensor) if around.matrix.is_some() => own = true,
                _ => base = true,
            }
        }
        atom.visit(&mut |n| base |= matches!(n.node(), IntNode::Load(..)));
        match (own, base) {
            (true, true) => Dependence::Mixed,
            (true, false) => Dependence::Own,
            _ => Dependence::Base,
        }
    }

    /// A divisor of the offset, in elements, that this term gives the other subgroups of the workgroup.
    fn moves(&self, around: &Around<'_>, atom: &Int, factor: i64) -> i64 {
        // A subgroup that is moved along an axis may be moved along those above it too.
        let first = match self.moved {
            Some((_, 0)) => return 0,
            Some((axis, _)) => axis,
            None => 0,
        };
        let axis_of = |v: Name| match around.kind(v) {
            Some(LoopKind::Local(a)) => Some(usize::from(a)),
            _ => None,
        };
        let moved = |v: &Name| axis_of(*v).is_some_and(|a| a >= first);
        if !atom.vars().iter().any(moved) {
            return 0;
        }
        match self.advance(around, atom) {
            Some(n) => factor.saturating_mul(n),
            None => int::divisor(atom).saturating_mul(factor),
        }
    }

    /// By how much a term grows from each subgroup to the next one, if that is the same for all lanes: a position along
    /// the axis that subgroups are moved along, or its quotient or remainder by a divisor of how far they are moved.
    fn advance(&self, around: &Around<'_>, atom: &Int) -> Option<i64> {
        let (axis, by) = self.moved?;
        let position = |v: &Int| v.as_var().is_some_and(|v| around.kind(v) == Some(LoopKind::Local(axis as u8)));
        let divides = |n: &Int| n.as_const().filter(|n| *n > 0 && by % n == 0);
        match atom.node() {
            IntNode::Mod(a, n) if position(a) => divides(n).map(|_| 0),
            IntNode::Div(a, n) if position(a) => divides(n).map(|n| by / n),
            _ => position(atom).then_some(by),
        }
    }

    /// True if this term gives the lanes of every subgroup the same pattern, up to a common offset.
    fn same_for_all(&self, around: &Around<'_>, atom: &Int) -> bool {
        let local = |v: &Name| matches!(around.kind(*v), Some(LoopKind::Local(_)));
        match self.moved {
            Some((_, 0)) => true,
            Some((axis, _)) => {
                let moving = |v: &Name| around.kind(*v) == Some(LoopKind::Local(axis as u8));
                atom.as_var().is_some() || self.advance(around, atom).is_some() || !atom.vars().iter().any(moving)
            }
            None => !atom.vars().iter().any(local),
        }
    }

    /// Values of variables that do not depend on the thread: mid-range, or 0 if they only add a common offset.
    fn middle(&self, around: &Around<'_>, exact: bool) -> FxHashMap<Name, i64> {
        let mut out = FxHashMap::default();
        for l in &around.loops {
            let (low, high) = self.bounds.get(l.var).unwrap_or((0, 0));
            out.insert(l.var, if exact { 0 } else { low + (high - low) / 2 });
        }
        for (name, low, high) in &self.f.symbols {
            out.insert(*name, low + (high - low) / 2);
        }
        out
    }

    fn value(&self, around: &Around<'_>, middle: &FxHashMap<Name, i64>, lane: &Lane, v: Name) -> Option<i64> {
        match around.kind(v) {
            Some(LoopKind::Local(a)) => lane.at.get(usize::from(a)).copied(),
            Some(LoopKind::Lane) => Some(lane.number),
            Some(LoopKind::Tensor) if around.matrix.is_some() => around.matrix.map(|m| m.place(v, lane.number)),
            _ => middle.get(&v).copied(),
        }
    }

    /// The lanes that take part, of the first subgroup that has any, and the share of the subgroups that have any.
    fn participants(&self, around: &Around<'_>, block: &Block, middle: &FxHashMap<Name, i64>) -> (Vec<Lane>, f64) {
        let mut lanes = self.places(around);
        let own = self.own_guards(around, block);
        lanes.retain(|lane| self.takes_part(around, &own, middle, lane));
        let shorter = |l: &&For| match l.kind {
            LoopKind::Local(a) => l.extent.as_const().is_some_and(|n| n < self.size[usize::from(a)]),
            _ => false,
        };
        if around.matrix.is_some() || block.guards.is_empty() && !around.loops.iter().any(shorter) {
            return (lanes, 1.0);
        }
        let each = self.lanes.len().max(1) as i64;
        let (mut first, mut count) = (lanes, 0);
        let subgroups = (self.all + each - 1) / each;
        for k in 0..subgroups {
            let threads =
                (k * each..self.all.min((k + 1) * each)).map(|t| Lane { at: place(self.size, t), number: t % each });
            let some: Vec<Lane> = threads.filter(|lane| self.takes_part(around, &own, middle, lane)).collect();
            count += i64::from(!some.is_empty());
            if first.is_empty() {
                first = some;
            }
        }
        (first, count as f64 / subgroups as f64)
    }

    /// The guards of a block on the thread's position alone.
    fn own_guards<'b>(&self, around: &Around<'_>, block: &'b Block) -> Vec<&'b Cond> {
        // Loops of one iteration are no other variables.
        let difference = |c: &Cond| int::simplify(&(c.lhs.clone() - &c.rhs), &self.bounds);
        block.guards.iter().filter(|c| matches!(self.part(around, &difference(c)), Dependence::Own)).collect()
    }

    /// False for lanes beyond a shorter thread loop, or which one of the block's `own` guards leaves out.
    fn takes_part(&self, around: &Around<'_>, own: &[&Cond], middle: &FxHashMap<Name, i64>, lane: &Lane) -> bool {
        let inside = |l: &&For| match l.kind {
            LoopKind::Local(a) => l.extent.as_const().is_none_or(|n| lane.at[usize::from(a)] < n),
            LoopKind::Lane => l.extent.as_const().is_none_or(|n| lane.number < n),
            _ => true,
        };
        let value = |v: Name| self.value(around, middle, lane, v);
        around.loops.iter().all(inside) && own.iter().all(|c| holds(c, &value))
    }
}

/// The position of a thread in a workgroup of this size.
fn place(size: [i64; 3], thread: i64) -> [i64; 3] {
    [thread % size[0], thread / size[0] % size[1], thread / size[0] / size[1]]
}

/// The variables of nested `loops` in their iteration `n`, of the last loop first.
fn iteration(loops: &[(Name, i64)], n: i64) -> FxHashMap<Name, i64> {
    let mut rest = n;
    let mut at = FxHashMap::default();
    for (v, extent) in loops.iter().rev() {
        at.insert(*v, rest % extent);
        rest /= extent;
    }
    at
}
