//! Runs a program: the parallel loops on the team, each task's loops one after another, leaves many elements at a time.

use crate::decoding::Factors;
use crate::index::{Condition, Index, Scene, Slot};
use crate::isa::Isa;
use crate::lanes::{CHUNK, Free, Lanes};
pub(crate) use crate::memory::Line;
use crate::memory::{Source, Span, View};
use crate::program::{Access, Extent, Leaf, Node, Program, Reduction};
use crate::row_bytes::RowBytes;
use crate::runs;
use crate::team::Team;
use crate::tile_memory::{StripMemory, TileMemory};
use crate::widened;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use tensor_ir::dtype::DType;
use tensor_ir::int::CondOp;
use tensor_ir::interpreter::scalar::{self, Num};
use tensor_ir::tir::Combiner;

/// Memory of a thread that tasks use one after another.
#[derive(Default)]
pub(crate) struct Own {
    bytes: Vec<Line>,
    pub free: Free,
    pub tile: Option<Box<TileMemory>>,
    /// The run of a kernel, by its number, whose tasks used that last.
    run: u64,
    pub strips: StripMemory,
    pub factors: Factors,
    /// The left rows of tiles that decode.
    pub rows: RowBytes,
    /// The right operand that was decoded last for several tiles, and its first element.
    pub decoded: Option<[i64; 2]>,
}

thread_local! {
    static OWN: RefCell<Own> = RefCell::new(Own::default());
}

/// Runs `program` on these buffers, by their number in the function; those of tasks are added here. Without a team the
/// calling thread does it all.
pub(crate) fn run(program: &Program, bound: &[Option<View>], isa: Isa, team: Option<&Team>) {
    if !program.widened.is_empty() {
        return widened::with(&program.widened, bound, (isa, team), |bound| run_all(program, bound, isa, team));
    }
    run_all(program, bound, isa, team);
}

fn run_all(program: &Program, bound: &[Option<View>], isa: Isa, team: Option<&Team>) {
    let tasks: i64 = program.groups.iter().map(|g| g.1).product();
    let number = RUNS.fetch_add(1, Ordering::Relaxed) + 1;
    let run = |tasks: Range<i64>| run_tasks(program, bound, isa, (number, tasks));
    let Some(team) = team.filter(|team| tasks > 1 && team.helpers() > 0) else { return run(0..tasks) };
    let threads = 1 + team.helpers() as i64;
    // A few portions for each thread: those that are done early take more.
    let portion = (tasks / (threads * PORTIONS)).max(1);
    let count = (tasks + portion - 1) / portion;
    let next = AtomicI64::new(0);
    team.share(&|| {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return;
            }
            run(at * portion..((at + 1) * portion).min(tasks));
        }
    });
}

/// Portions of the tasks of a kernel for each thread.
const PORTIONS: i64 = 8;

/// Runs of kernels up to now.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// Does these tasks of a run on this thread.
fn run_tasks(program: &Program, bound: &[Option<View>], isa: Isa, (run, tasks): (u64, Range<i64>)) {
    OWN.with_borrow_mut(|own| {
        let lines: Vec<usize> = program.buffers.iter().map(|b| (b.own * b.form.size()).div_ceil(64) + 1).collect();
        let need: usize = program.buffers.iter().zip(&lines).map(|(b, l)| if b.own > 0 { *l } else { 0 }).sum();
        if own.bytes.len() < need {
            own.bytes.resize(need, Line::ZERO);
        }
        let mut at = own.bytes.as_mut_ptr();
        let mut views = Vec::with_capacity(program.buffers.len());
        for ((b, bound), lines) in program.buffers.iter().zip(bound).zip(&lines) {
            views.push(match bound {
                Some(view) => *view,
                None if b.own > 0 => {
                    let view = View::new(at.cast(), b.own * b.form.size(), b.form);
                    at = at.wrapping_add(*lines);
                    view
                }
                None => View::new(std::ptr::NonNull::<u64>::dangling().as_ptr().cast(), 0, b.form),
            });
        }
        if std::mem::replace(&mut own.run, run) != run {
            own.tile.iter_mut().for_each(|m| m.right.forget());
            own.rows.forget();
            own.decoded = None;
        }
        let env = vec![0; program.slots];
        let mut t = Task { views: &views, env, isa, own, lets: vec![] };
        for task in tasks {
            let mut rest = task;
            for (slots, extent) in program.groups.iter().rev() {
                slots.iter().for_each(|s| t.env[*s] = rest % extent);
                rest /= extent;
            }
            t.nodes(&program.body);
        }
    });
}

/// A task on a thread.
pub(crate) struct Task<'p> {
    pub views: &'p [View],
    /// Values of variables.
    pub env: Vec<i64>,
    pub isa: Isa,
    pub own: &'p mut Own,
    /// What the leaf at work uses several times.
    pub lets: Vec<Lanes<'p>>,
}

/// The lanes that are computed at once: the variables of the leaf's rows and columns have the values of the first.
pub(crate) struct Chunk {
    pub rows: usize,
    pub columns: usize,
    pub slots: [Slot; 2],
}

impl Chunk {
    pub(crate) fn lanes(&self) -> usize {
        self.rows * self.columns
    }
}

/// Which lanes a condition holds for.
pub(crate) enum Truth {
    All,
    None,
    Some(Box<[u8]>),
}

impl Task<'_> {
    pub(crate) fn scene(&self) -> Scene<'_> {
        Scene { env: &self.env, views: self.views }
    }
    fn nodes(&mut self, nodes: &[Node]) {
        for n in nodes {
            match n {
                Node::Within(slot, extent, body) => {
                    if self.env[*slot] < *extent {
                        self.nodes(body);
                    }
                }
                Node::Loop(slot, extent, body) => {
                    for i in 0..*extent {
                        self.env[*slot] = i;
                        self.nodes(body);
                    }
                }
                Node::Leaf(l) => self.leaf(l),
                Node::Tile(t) => self.tile(t),
            }
        }
    }
    /// Calls `f` for each iteration of `loops`, their variables set.
    pub(crate) fn each(&mut self, loops: &[Extent], f: &mut dyn FnMut(&mut Self)) {
        match loops.split_first() {
            None => f(self),
            Some((l, inner)) => {
                for i in 0..l.count {
                    self.env[l.slot] = i;
                    self.each(inner, f);
                }
                // Another leaf of the same loops may run them in another order.
                self.env[l.slot] = 0;
            }
        }
    }
    fn leaf(&mut self, l: &Leaf) {
        if let Some(d) = &l.decoding {
            return self.decode(d);
        }
        if let Some(s) = &l.strips {
            return self.strips(s);
        }
        let whole = [(0, l.rows.count), (0, l.columns.count)];
        self.each(&l.loops, &mut |t| {
            if l.cuts.iter().all(Vec::is_empty) {
                t.leaf_part(l, whole);
                return t.begin_at([l.rows.slot, l.columns.slot], [0, 0]);
            }
            t.begin_at([l.rows.slot, l.columns.slot], [0, 0]);
            let rows = t.parts(&l.cuts[0], l.rows);
            let columns = t.parts(&l.cuts[1], l.columns);
            for row in &rows {
                columns.iter().for_each(|column| t.leaf_part(l, [*row, *column]));
            }
            t.begin_at([l.rows.slot, l.columns.slot], [0, 0]);
        });
    }
    /// Cuts a loop of a leaf where one of these conditions begins or ends to hold. The loop's variable is 0.
    pub(crate) fn parts(&self, cuts: &[Condition], e: Extent) -> Vec<(i64, i64)> {
        let mut ends = vec![0, e.count];
        for c in cuts {
            let step = c.index.stride(e.slot).unwrap_or(0);
            ends.extend(<[i64; 2]>::from(holding(c.op, c.index.eval(self.scene()), step, e.count)));
        }
        ends.sort_unstable();
        ends.dedup();
        ends.windows(2).map(|w| (w[0], w[1])).collect()
    }
    /// Computes a part of a leaf: rows and columns from the first up to the second.
    fn leaf_part(&mut self, l: &Leaf, [rows, columns]: [(i64, i64); 2]) {
        let width = (columns.1 - columns.0).min(CHUNK as i64);
        let height = (CHUNK as i64 / width).min(rows.1 - rows.0).max(1);
        for row in (rows.0..rows.1).step_by(height as usize) {
            for column in (columns.0..columns.1).step_by(width as usize) {
                let size = [(rows.1 - row).min(height) as usize, (columns.1 - column).min(width) as usize];
                self.chunk_at(l, row, column, size);
            }
        }
    }
    fn chunk_at(&mut self, l: &Leaf, row: i64, column: i64, [rows, columns]: [usize; 2]) {
        let slots = [l.rows.slot, l.columns.slot];
        self.begin_at(slots, [row, column]);
        let Some([row_range, column_range]) = self.inside(l, [rows, columns]) else { return };
        self.begin_at(slots, [row + row_range.0, column + column_range.0]);
        let count = |r: (i64, i64)| (r.1 - r.0) as usize;
        let c = Chunk { rows: count(row_range), columns: count(column_range), slots };
        let guard = match self.all(&l.guards, &c) {
            Truth::None => return,
            Truth::All => None,
            Truth::Some(mask) => Some(mask),
        };
        let active = guard.as_deref();
        self.begin_lets(&l.lets, &c, active);
        let mut value = self.value(&l.value, &c, active);
        if l.reads_own {
            value = self.owned(value, c.lanes());
        }
        match &l.reduce {
            None => self.store(&l.store, &c, value, active),
            Some(r) => self.reduce(l, r, &c, value, active),
        }
        self.end_lets();
    }
    /// Sets the variables of a leaf's rows and columns.
    pub(crate) fn begin_at(&mut self, slots: [Slot; 2], values: [i64; 2]) {
        for (slot, value) in slots.into_iter().zip(values).filter(|s| s.0 != usize::MAX) {
            self.env[slot] = value;
        }
    }
    /// The rows and the columns of a chunk that its guards leave, as far as each guard is about one of them: tails need
    /// no mask.
    fn inside(&self, l: &Leaf, [rows, columns]: [usize; 2]) -> Option<[(i64, i64); 2]> {
        let mut ranges = [(0, rows as i64), (0, columns as i64)];
        for g in &l.guards {
            let strides = [l.rows.slot, l.columns.slot].map(|s| g.index.stride(s));
            let (at, step) = match strides {
                [Some(step), Some(0)] if step != 0 => (0, step),
                [Some(0), Some(step)] if step != 0 => (1, step),
                _ => continue,
            };
            let (low, high) = holding(g.op, g.index.eval(self.scene()), step, ranges[at].1);
            ranges[at] = (ranges[at].0.max(low), ranges[at].1.min(high));
        }
        ranges.iter().all(|r| r.0 < r.1).then_some(ranges)
    }
    pub(crate) fn owned<'m>(&mut self, value: Lanes<'m>, n: usize) -> Lanes<'m> {
        let free = &mut self.own.free;
        match value {
            Lanes::F(s @ (Source::Memory(_) | Source::Kept(_))) => Lanes::F(Source::Own(free.own(s, n))),
            Lanes::D(s @ (Source::Memory(_) | Source::Kept(_))) => Lanes::D(Source::Own(free.own(s, n))),
            Lanes::I(s @ (Source::Memory(_) | Source::Kept(_))) => Lanes::I(Source::Own(free.own(s, n))),
            other => other,
        }
    }
    pub(crate) fn span(&self, a: &Access, c: &Chunk) -> Option<Span> {
        let lanes = [(c.slots[0], c.rows as i64), (c.slots[1], c.columns as i64)];
        let inside = || a.inside.as_ref().filter(|i| i.clamps.iter().all(|c| c.is_idle(&lanes, self.scene())));
        let (index, [row_stride, column_stride]) = match a.strides {
            Some(strides) => (&a.index, strides),
            None => inside().map(|i| (&i.index, i.strides))?,
        };
        let first = index.eval(self.scene());
        Some(Span { first, rows: c.rows, columns: c.columns, row_stride, column_stride })
    }
    /// One row of a place whose rows lie unevenly, its columns at `stride`.
    pub(crate) fn row_span(&mut self, a: &Access, stride: i64, c: &Chunk, row: usize) -> Span {
        let slot = c.slots[0];
        let before = self.env[slot];
        self.env[slot] = before + row as i64;
        let first = a.index.eval(self.scene());
        self.env[slot] = before;
        Span { first, rows: 1, columns: c.columns, row_stride: 0, column_stride: stride }
    }
    /// The value of an index for each lane.
    pub(crate) fn places(&mut self, index: &Index, c: &Chunk) -> Box<[i64]> {
        let mut out = self.own.free.take::<i64>();
        index.lanes(self.scene(), c, &mut out[..c.lanes()]);
        out
    }
    /// Which lanes all conditions hold for.
    pub(crate) fn all(&mut self, conditions: &[Condition], c: &Chunk) -> Truth {
        let mut mask: Option<Box<[u8]>> = None;
        for condition in conditions {
            match self.holds(condition, c) {
                Truth::None => return Truth::None,
                Truth::All => {}
                Truth::Some(m) => match &mut mask {
                    None => mask = Some(m),
                    Some(all) => all.iter_mut().zip(&m).for_each(|(a, b)| *a &= b),
                },
            }
        }
        mask.map_or(Truth::All, Truth::Some)
    }
    fn holds(&mut self, condition: &Condition, c: &Chunk) -> Truth {
        let strides = c.slots.map(|s| condition.index.stride(s));
        let [Some(row), Some(column)] = strides else {
            let places = self.places(&condition.index, c);
            let mask: Box<[u8]> =
                places[..c.lanes()].iter().map(|p| u8::from(Condition::of(condition.op, *p))).collect();
            self.own.free.give(Source::Own(places));
            return truth(mask);
        };
        let first = condition.index.eval(self.scene());
        if row == 0 && column == 0 {
            return if Condition::of(condition.op, first) { Truth::All } else { Truth::None };
        }
        let [r, l] = [row * (c.rows as i64 - 1), column * (c.columns as i64 - 1)];
        let ends = [first + r.min(0) + l.min(0), first + r.max(0) + l.max(0)];
        match (condition.op, ends.map(|e| Condition::of(condition.op, e))) {
            (CondOp::Eq, _) => {}
            (_, [true, true]) => return Truth::All,
            (_, [false, false]) => return Truth::None,
            _ => {}
        }
        let lane = |i: usize| first + (i / c.columns) as i64 * row + (i % c.columns) as i64 * column;
        truth((0..c.lanes()).map(|i| u8::from(Condition::of(condition.op, lane(i)))).collect())
    }
}

pub(crate) fn truth(mask: Box<[u8]>) -> Truth {
    match mask.iter().map(|m| usize::from(*m)).sum::<usize>() {
        0 => Truth::None,
        n if n == mask.len() => Truth::All,
        _ => Truth::Some(mask),
    }
}

impl<'p> Task<'p> {
    pub(crate) fn is_first(&self, r: &Reduction) -> bool {
        r.init.as_ref().is_some_and(|slots| slots.iter().all(|s| self.env[*s] == 0))
    }
    /// Combines the lanes of a chunk into their elements.
    fn reduce(&mut self, l: &Leaf, r: &Reduction, c: &Chunk, value: Lanes<'p>, active: Option<&[u8]>) {
        let first = self.is_first(r);
        let (one, value) = match r.across {
            true => {
                let folded = self.fold(r, c, value, active);
                (Chunk { rows: 1, columns: 1, slots: c.slots }, folded)
            }
            false => (Chunk { rows: c.rows, columns: c.columns, slots: c.slots }, value),
        };
        // Which lanes of an element are active was asked when they were folded.
        let active = active.filter(|_| !r.across);
        let old = match first {
            true => identity(r.combiner, r.dtype),
            false => {
                let old = self.load(&l.store, &one, active);
                self.owned(old, one.lanes())
            }
        };
        let new = self.ops(&one).binary(r.combiner.operator(), r.dtype, old, value);
        self.store(&l.store, &one, new, active);
    }
    /// All active lanes as one.
    fn fold(&mut self, r: &Reduction, c: &Chunk, value: Lanes<'p>, active: Option<&[u8]>) -> Lanes<'p> {
        let value = match active {
            None => value,
            Some(mask) => {
                let nothing = identity(r.combiner, r.dtype);
                self.ops(c).select(mask, value, nothing)
            }
        };
        let n = c.lanes();
        if let Lanes::F(s) = &value
            && let Ok(lanes) = s.lanes()
        {
            let mut one = 0.0;
            runs::fold(self.isa, &lanes[..n], r.combiner, &mut one);
            self.own.free.give_lanes(value);
            return Lanes::F(Source::Splat(one));
        }
        let op = r.combiner.operator();
        let number = |i: usize| match &value {
            Lanes::F(s) => Num::F(f64::from(s.at(i))),
            Lanes::D(s) => Num::F(s.at(i)),
            Lanes::I(s) => Num::I(s.at(i)),
        };
        let all = (1..n).fold(number(0), |all, i| scalar::binary(op, r.dtype, all, number(i)));
        let folded = match (&value, all) {
            (Lanes::F(_), x) => Lanes::F(Source::Splat(x.float() as f32)),
            (Lanes::D(_), x) => Lanes::D(Source::Splat(x.float())),
            (Lanes::I(_), x) => Lanes::I(Source::Splat(x.int())),
        };
        self.own.free.give_lanes(value);
        folded
    }
}

/// The range of rows, or of iterations, for which a condition holds whose index is `at` in row 0 and grows by `step`.
pub(crate) fn holding(op: CondOp, at: i64, step: i64, rows: i64) -> (i64, i64) {
    if step == 0 {
        return if Condition::of(op, at) { (0, rows) } else { (rows, rows) };
    }
    // The first row at which the index is 0 or has passed it.
    let turn = (-at * step.signum() + step.abs() - 1).div_euclid(step.abs()).clamp(0, rows);
    match op {
        CondOp::Eq if turn < rows && at + turn * step == 0 => (turn, turn + 1),
        CondOp::Eq => (rows, rows),
        // What grows is below 0 before that, what falls is at least 0 before the row behind the last 0.
        CondOp::Lt if step > 0 => (0, turn),
        CondOp::Ge if step > 0 => (turn, rows),
        CondOp::Lt => (at.div_euclid(-step).saturating_add(1).clamp(0, rows), rows),
        CondOp::Ge => (0, at.div_euclid(-step).saturating_add(1).clamp(0, rows)),
    }
}

pub(crate) fn identity(c: Combiner, dtype: DType) -> Lanes<'static> {
    match scalar::identity(c, dtype) {
        Num::F(x) if dtype == DType::F64 => Lanes::D(Source::Splat(x)),
        Num::F(x) => Lanes::F(Source::Splat(x as f32)),
        Num::I(x) => Lanes::I(Source::Splat(x)),
    }
}

pub(crate) fn wrong() -> ! {
    unreachable!("a value has the lanes of its buffer: the verifier has compared their types")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_hold_in_a_range_of_rows() {
        for op in [CondOp::Lt, CondOp::Ge, CondOp::Eq] {
            for at in -9..=9 {
                for step in -4..=4 {
                    for rows in 1..6 {
                        let (low, high) = holding(op, at, step, rows);
                        let all = (0..rows).filter(|i| Condition::of(op, at + i * step)).collect::<Vec<i64>>();
                        assert_eq!((low..high).collect::<Vec<i64>>(), all, "{op:?} {at} {step} {rows}");
                        assert!(0 <= low && high <= rows && low <= rows);
                    }
                }
            }
        }
    }
}
