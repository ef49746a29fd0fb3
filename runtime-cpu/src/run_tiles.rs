//! Tiles: where the rows of each tap lie, checked against their buffers before the body runs.

use crate::copied::{Copied, Stored};
use crate::execute::{Task, holding};
use crate::form::Form;
use crate::halves;
use crate::integers::{self, Rows};
use crate::memory::View;
use crate::program::{self, End, Epilogue, Operand, RegisterTile, Start, StepOp};
use crate::row_ranges::{always, ends, range_of, until, within};
use crate::tile::{self, Kind, Operands, Step};
use crate::tile_memory::TileMemory;
use std::ops::Range;
use tensor_ir::dtype::DType;

/// Rows of a tile with a pointer each, at most.
const MOST_ROWS: usize = 64;
/// Rows of a tile that widen a right operand of f16 themselves, at most.
const FEW_ROWS: i64 = 4;

/// Where results go.
struct Target {
    out: *mut f32,
    stride: i64,
    rows: i64,
    columns: i64,
    /// Where they are stored in another form, and the distance of rows there in bytes.
    narrow: Option<(Form, *mut u8, isize)>,
}

impl Task<'_> {
    /// Runs a tile: finds the rows of each tap, checks that all that is accessed is in bounds, and calls the body.
    pub(crate) fn tile(&mut self, t: &RegisterTile) {
        let mut m = self.own.tile.take().unwrap_or_default();
        self.tile_with(t, &mut m);
        self.own.tile = Some(m);
    }
    fn tile_with(&mut self, t: &RegisterTile, m: &mut TileMemory) {
        let Some(to) = self.target(t, m) else { return };
        let first = [t.left.index.eval(self.scene()), t.right.as_ref().map_or(0, |r| r.index.eval(self.scene()))];
        let start = match &t.start {
            Start::Kept => None,
            Start::Number(x) => Some(*x),
            Start::First(x, slots) => slots.iter().all(|s| self.env[*s] == 0).then_some(*x),
        };
        m.conditions.clear();
        m.conditions.extend(t.conditions.iter().map(|c| c.condition.index.eval(self.scene())));
        let even = t.row_stride.filter(|_| self.lies_evenly(t, to.rows));
        let kind = self.kind(t);
        let taps = self.copy_right((t, kind), first[1], to.columns, m);
        let right = taps.is_some().then(|| m.right.rows());
        let columns = 0..to.columns;
        let place = Place { t, kind, to: &to, first, start, taps: taps.as_ref().unwrap_or(&t.taps), right, columns };
        let inside = t.conditions.iter().zip(&m.conditions).all(|(c, at)| always(c, *at, to.rows));
        match even {
            _ if t.kind.has_words() => self.uneven(&place, m),
            _ if !t.across.is_empty() => self.spans(place, even, m),
            Some(stride) if inside && t.right_row == 0 => {
                self.check(&place, stride, 0..to.rows, t.reach);
                self.call(&place, stride, 0..to.rows, (place.taps, &m.steps), &mut m.copy);
            }
            Some(_) if t.conditions.iter().all(|c| c.step.is_some()) => {
                self.rows_of_taps(t, to.rows, m);
                self.edges(&place, even, m);
            }
            _ if t.kind == Kind::Product && t.right_row == 0 => self.uneven(&place, m),
            _ => {
                self.rows_of_taps(t, to.rows, m);
                self.edges(&place, even, m);
            }
        }
        taps.into_iter().for_each(|taps| *m.right.taps() = taps);
        if let Some((Form::I8 | Form::U8, at, stride)) = to.narrow {
            integers::narrow(self.isa, &m.results[..(to.rows * to.columns) as usize], to.columns as usize, at, stride);
        } else if let Some((form, at, stride)) = to.narrow {
            for (n, row) in (0..).zip(m.results[..(to.rows * to.columns) as usize].chunks_exact(to.columns as usize)) {
                // SAFETY: `target` has checked the rows of results, which are this task's own.
                unsafe { halves::narrow(self.isa, form, row, at.wrapping_offset(n * stride)) };
            }
        }
    }
    /// How a tile multiplies.
    fn kind(&self, t: &RegisterTile) -> Kind {
        let form = |buffer: usize| self.views[buffer].form();
        match &t.right {
            Some(right) if t.kind.has_words() => integers::kind(self.isa, form(t.left.buffer), form(right.buffer)),
            Some(right) if t.kind == Kind::Product && form(right.buffer) == Form::F16 && self.widens_few(t) => {
                Kind::Halves
            }
            _ => t.kind,
        }
    }
    /// True if a right operand of f16 is widened whenever it is read: a copy would be read a few times.
    fn widens_few(&self, t: &RegisterTile) -> bool {
        let even = t.row_stride.is_some() && t.clamps.is_empty() && t.conditions.is_empty();
        tile::reads_halves(self.isa) && t.rows <= FEW_ROWS && even
    }
    /// Copies the right operand of a tile if its elements are not what is multiplied; gives the taps with their places
    /// in the copy.
    fn copy_right(
        &self,
        (t, kind): (&RegisterTile, Kind),
        first: i64,
        columns: i64,
        m: &mut TileMemory,
    ) -> Option<Vec<[isize; 2]>> {
        let right = t.right.as_ref()?;
        let view = &self.views[right.buffer];
        if is_plain(kind, view.form()) {
            return None;
        }
        let depth = (t.depth - 1) * t.right_stride;
        let [low, high] = ends(first, [t.reach[1], (0, depth)]);
        view.require_all(low, high + columns - 1);
        let tile = std::ptr::from_ref(t).addr();
        if kind.has_words() {
            let (at, form, stride) = (view.bytes_of(first).cast_const(), view.form(), t.right_stride as isize);
            let rows = Rows { at, form, depth: t.depth as usize, stride, columns: columns as usize };
            let left = self.views[t.left.buffer].form();
            // SAFETY: all of its taps were just checked.
            unsafe { m.right.pack(self.isa, tile, (kind, left), &rows, &t.taps) };
            let sums = m.right.sums();
            m.steps.splice(0..0, (!sums.is_empty()).then(|| Step::AddIntColumns(sums.as_ptr())));
        } else {
            let axes = [(1, 0), (t.depth as usize, t.right_stride as isize), (columns as usize, 1)];
            let stored = Stored { at: view.bytes_of(first), form: view.form(), axes };
            // SAFETY: as above.
            unsafe { m.right.copy(self.isa, tile, &stored, &t.taps) };
        }
        Some(std::mem::take(m.right.taps()))
    }
    /// Runs a tile of which some columns are not in every tap: columns that have the same taps at a time, so that no
    /// tap asks where it lies.
    fn spans(&mut self, p: Place<'_>, even: Option<i64>, m: &mut TileMemory) {
        let (t, columns) = (p.t, p.to.columns);
        m.spans.clear();
        m.spans.resize(t.taps.len(), (0, columns));
        for c in &t.across {
            let at = c.condition.index.eval(self.scene());
            for (span, tap) in m.spans.iter_mut().zip(&c.taps) {
                let own = range_of(c.condition.op, at + tap, c.step.unwrap_or(0), columns);
                *span = (span.0.max(own.0), span.1.min(own.1));
            }
        }
        self.rows_of_taps(t, p.to.rows, m);
        let mut at = 0;
        while at < columns {
            let ends = m.spans.iter().filter(|s| s.0 < s.1).flat_map(|s| [s.0, s.1]);
            let end = ends.filter(|e| *e > at).min().unwrap_or(columns);
            self.edges(&Place { columns: at..end, ..p }, even, m);
            at = end;
        }
        m.spans.clear();
    }
    /// Runs a tile of which some rows are not in every tap, or whose rows do not lie `even`ly.
    fn edges(&mut self, p: &Place<'_>, even: Option<i64>, m: &mut TileMemory) {
        let (t, rows) = (p.t, p.to.rows);
        let spans = &m.spans;
        let whole = |n: usize| spans.get(n).is_none_or(|s| s.0 <= p.columns.start && p.columns.end <= s.1);
        let some = m.ranges.iter().enumerate().filter(|(n, r)| r.0 < r.1 && whole(*n));
        let (low, high) = some.fold((0, rows), |(low, high), (_, r)| (low.max(r.0), high.min(r.1)));
        let common = if even.is_some() && t.right_row == 0 && low < high { low..high } else { 0..0 };
        let alike = t.kind == Kind::Product && t.right_row == 0 && t.across.is_empty();
        if alike && common != (0..rows) && rows <= MOST_ROWS as i64 {
            return self.uneven(p, m);
        }
        m.padded.clear();
        m.padded.extend(t.padding.map(|x| if t.kind == Kind::Max { Step::Max(x) } else { Step::Min(x) }));
        m.padded.extend_from_slice(&m.steps);
        let stride = even.unwrap_or(0);
        let mut row = 0;
        while row < rows {
            let end = if row == common.start && !common.is_empty() { common.end } else { row + 1 };
            m.taps.clear();
            let mut reach = [(i64::MAX, i64::MIN); 2];
            for (n, _) in m.ranges.iter().enumerate().filter(|(n, r)| r.0 <= row && row < r.1 && whole(*n)) {
                let left = match even {
                    Some(_) => t.taps[n][0],
                    None => (self.row_of_tap(t, n, row) - p.first[0]) as isize,
                };
                let own = [left, t.taps[n][1]].map(|x| x as i64);
                reach.iter_mut().zip(own).for_each(|(r, at)| *r = (r.0.min(at), r.1.max(at)));
                m.taps.push([left, p.taps[n][1]]);
            }
            if !m.taps.is_empty() {
                self.check(p, stride, row..end, reach);
            }
            let steps = if m.taps.len() < t.taps.len() { &m.padded } else { &m.steps };
            self.call(p, stride, row..end, (&m.taps, steps), &mut m.copy);
            row = end;
        }
    }
    /// Runs a tile with a pointer for each row and tap.
    fn uneven(&mut self, p: &Place<'_>, m: &mut TileMemory) {
        let (t, count) = (p.t, p.to.rows);
        let product = t.kind == Kind::Product || t.kind.has_words();
        assert!(product && count <= MOST_ROWS as i64, "{count} rows, each somewhere else");
        let even = t.row_stride.filter(|_| self.lies_evenly(t, count));
        let mut left = LeftRows::of(t, p.kind, self.views[t.left.buffer].form());
        if even == Some(1) {
            left.lie_across(count as usize);
        }
        if m.zeros.len() < left.span || m.zeros.first().is_some_and(|x| x.to_bits() != left.padding.to_bits()) {
            m.zeros.clear();
            m.zeros.resize(left.span, left.padding);
        }
        let all = t.taps.len() * count as usize * left.words;
        if !left.in_place && m.copy.elements.len() < all {
            m.copy.elements.resize(all, 0.0);
        }
        let mut rows = [0; MOST_ROWS];
        let rows = &mut rows[..count as usize];
        for (i, row) in (0..).zip(&mut *rows) {
            *row = even.map_or_else(|| self.row_at(t, i) - p.first[0], |stride| i * stride);
        }
        m.table.clear();
        m.taps.clear();
        for (n, tap) in t.taps.iter().enumerate() {
            let mut inside = within((0, count));
            for (c, at) in t.conditions.iter().zip(&m.conditions) {
                inside &= match c.step {
                    Some(step) => within(holding(c.condition.op, at + c.taps[n], step, count)),
                    None => self.rows_where(t, &c.condition, c.taps[n], count),
                };
            }
            if inside == 0 && left.padding.to_bits() == 0 {
                continue;
            }
            let at = match even {
                Some(_) => p.first[0] + tap[0] as i64,
                None => self.rows_of_tap(t, n, rows),
            };
            self.tile_rows(t, at, rows, (inside, left), m);
            m.taps.push(p.taps[n]);
            let right = tap[1] as i64;
            self.check_right(p, 0, (right, right));
        }
        // SAFETY: the rows of each tap and those of the right operand were checked against their buffers; rows in the
        // padding read `zeros`, which has as many elements.
        let mut operands = self.operands(p, 0, &m.taps, &m.steps);
        (operands.table, operands.table_rows) = (&m.table, rows.len());
        (operands.kind, operands.depth, operands.left_stride) = (left.kind, left.words, left.stride);
        unsafe { tile::run(self.isa, &operands, 0..rows.len()) };
    }
    /// Where results go, and the steps before that; `None` if all rows or columns are left out.
    fn target(&self, t: &RegisterTile, m: &mut TileMemory) -> Option<Target> {
        m.steps.clear();
        let none = (&t.acc, t.acc_row);
        let (store, stride) = t.epilogue.as_ref().map_or(none, |e| (&e.store, e.store_row));
        let (mut rows, mut columns) = (t.rows, t.columns);
        for End { condition, step, of_columns } in &t.ends {
            let end = if *of_columns { &mut columns } else { &mut rows };
            *end = until(condition.op, condition.index.eval(self.scene()), *step, *end);
        }
        if rows == 0 || columns == 0 {
            return None;
        }
        if let Some(e) = &t.epilogue {
            self.steps(e, rows, columns, m);
        }
        let view = &self.views[store.buffer];
        let first = store.index.eval(self.scene());
        require_rows(view, first, rows, stride, columns);
        if view.form().size() == 4 {
            return Some(Target { out: view.pointer::<f32>(first), stride, rows, columns, narrow: None });
        }
        let all = (rows * columns) as usize;
        if m.results.len() < all {
            m.results.resize(all, 0.0);
        }
        let narrow = Some((view.form(), view.bytes_of(first), stride as isize * view.form().size() as isize));
        Some(Target { out: m.results.as_mut_ptr(), stride: columns, rows, columns, narrow })
    }
    fn steps(&self, e: &Epilogue, rows: i64, columns: i64, m: &mut TileMemory) {
        // Pointers into it stay: it does not grow below.
        m.wide.clear();
        let is_plain = |buffer: usize| self.views[buffer].form().size() == 4;
        let copied = |s: &&program::Step| matches!(&s.operand, Operand::Elements(a, _) if !is_plain(a.buffer));
        m.wide.reserve(e.steps.iter().filter(copied).count() * (rows * columns) as usize);
        let wide = &mut m.wide;
        m.steps.extend(e.steps.iter().map(|s| match &s.operand {
            Operand::Kept => match s.op {
                StepOp::Add => Step::AddKept,
                StepOp::Mul => Step::MulKept,
                StepOp::Round => Step::Round,
                StepOp::ToFloat => Step::ToFloat,
                StepOp::ToByte(DType::I8) => Step::ToInt(-128.0, 127.0),
                StepOp::ToByte(_) => Step::ToInt(0.0, 255.0),
                _ => Step::Keep,
            },
            Operand::Number(x) => match s.op {
                StepOp::AddInt => Step::AddInt(*x),
                StepOp::Div => Step::Div(*x),
                StepOp::Mul => Step::Mul(*x),
                StepOp::Max => Step::Max(*x),
                StepOp::Min => Step::Min(*x),
                _ => Step::Add(*x),
            },
            Operand::Elements(a, stride) => {
                let view = &self.views[a.buffer];
                let first = a.index.eval(self.scene());
                require_rows(view, first, rows, stride.unwrap_or(0), columns);
                let (at, stride) = match view.form().size() {
                    4 => (view.pointer::<f32>(first).cast_const(), *stride),
                    _ => (self.widened(view, first, [rows, columns], *stride, wide), stride.map(|_| columns)),
                };
                match (s.op == StepOp::Mul, stride) {
                    (false, None) if s.op == StepOp::AddInt => Step::AddIntColumns(at),
                    (false, None) if s.op == StepOp::SubInt => Step::SubIntColumns(at),
                    (false, None) => Step::AddColumns(at),
                    (true, None) => Step::MulColumns(at),
                    (false, Some(stride)) => Step::AddEach(at, stride as isize),
                    (true, Some(stride)) => Step::MulEach(at, stride as isize),
                }
            }
        }));
    }
    /// Adds f32 of these elements, which are in bounds: of rows so far apart, or of one for all.
    fn widened(
        &self,
        v: &View,
        at: i64,
        [rows, columns]: [i64; 2],
        stride: Option<i64>,
        to: &mut Vec<f32>,
    ) -> *const f32 {
        let start = to.len();
        for row in 0..stride.map_or(1, |_| rows) {
            let end = to.len();
            to.resize(end + columns as usize, 0.0);
            let from = v.bytes_of(at + row * stride.unwrap_or(0));
            // SAFETY: in bounds, as the caller has checked.
            unsafe { halves::widen(self.isa, v.form(), from, &mut to[end..]) };
        }
        to[start..].as_ptr()
    }
    /// Checks what these rows read in taps between two.
    fn check(&self, p: &Place<'_>, stride: i64, rows: Range<i64>, reach: [(i64, i64); 2]) {
        let t = p.t;
        if rows.is_empty() {
            return;
        }
        let [low, high] = ends(p.first[0], [(rows.start * stride, (rows.end - 1) * stride), reach[0]]);
        let depth = (t.depth - 1) * t.left_stride;
        let [first, last] = if t.kind == Kind::Product { [0, 0] } else { [p.columns.start, p.columns.end - 1] };
        self.views[t.left.buffer].require_all(low + depth.min(0) + first, high + depth.max(0) + last);
        // Rows move the right operand evenly: its first and last row are the ends.
        self.check_right(p, rows.start, reach[1]);
        if t.right_row != 0 {
            self.check_right(p, rows.end - 1, reach[1]);
        }
    }
    fn check_right(&self, p: &Place<'_>, row: i64, reach: (i64, i64)) {
        let t = p.t;
        // A copy was checked when it was made.
        if let Some(right) = t.right.as_ref().filter(|_| p.right.is_none()) {
            let depth = (t.depth - 1) * t.right_stride;
            let [low, high] = ends(p.first[1] + row * t.right_row, [reach, (0, depth)]);
            self.views[right.buffer].require_all(low + p.columns.start, high + p.columns.end - 1);
        }
    }
    #[inline(always)]
    fn operands<'m>(&self, p: &Place<'_>, row: i64, taps: &'m [[isize; 2]], steps: &'m [Step]) -> Operands<'m> {
        let t = p.t;
        let start = |buffer: usize, at: i64| self.views[buffer].bytes_of(at).cast::<f32>().cast_const();
        let left = start(t.left.buffer, p.first[0]);
        let in_place = || t.right.as_ref().map_or(left, |r| start(r.buffer, p.first[1] + row * t.right_row));
        let (right, right_stride) = p.right.unwrap_or_else(|| (in_place(), t.right_stride as isize));
        Operands {
            kind: p.kind,
            left,
            row_stride: 0,
            table: &[],
            table_rows: 0,
            left_stride: t.left_stride as isize,
            right,
            right_stride,
            taps,
            depth: t.depth as usize,
            first_column: p.columns.start as usize,
            columns: p.columns.end as usize,
            initial: p.start,
            steps,
            out: p.to.out,
            out_stride: p.to.stride as isize,
        }
    }
    /// Runs rows that lie evenly and have all these taps, which the caller has checked.
    fn call(
        &self,
        p: &Place<'_>,
        stride: i64,
        rows: Range<i64>,
        (taps, steps): (&[[isize; 2]], &[Step]),
        copy: &mut Copied,
    ) {
        let mut operands = self.operands(p, rows.start, taps, steps);
        operands.row_stride = stride as isize;
        let rows = rows.start as usize..rows.end as usize;
        // SAFETY: the taps of these rows were checked against their buffers, as were results and steps in `target`; the
        // results are this task's own.
        unsafe {
            let view = &self.views[p.t.left.buffer];
            if !is_plain(p.t.kind, view.form()) || operands.collides(rows.len()) {
                return operands.run_copied(self.isa, rows, operands.left.cast(), view.form(), copy);
            }
            tile::run(self.isa, &operands, rows);
        }
    }
    /// Adds the pointers of a tap's rows, of which those in `inside`, a bit each, are not in the padding.
    fn tile_rows(
        &self,
        t: &RegisterTile,
        first: i64,
        rows: &[i64],
        (inside, left): (u64, LeftRows),
        m: &mut TileMemory,
    ) {
        let view = &self.views[t.left.buffer];
        let read = |i: usize| inside >> i & 1 == 1;
        let own = rows.iter().enumerate().filter(|r| read(r.0));
        let (low, high) = own.fold((i64::MAX, i64::MIN), |(a, b), (_, r)| (a.min(*r), b.max(*r)));
        let depth = (t.depth - 1) * t.left_stride;
        if inside != 0 {
            view.require_all(first + low + depth.min(0), first + high + depth.max(0));
        }
        if left.across {
            return self.tile_rows_across(t, first, (rows.len(), low, high), left, m);
        }
        let TileMemory { zeros, copy, table, .. } = m;
        let axes = [(1, 0), (t.depth as usize, t.left_stride as isize), (1, 1)];
        let stored = Stored { at: view.bytes_of(first), form: view.form(), axes };
        for (i, at) in rows.iter().enumerate() {
            table.push(match (read(i), left.in_place) {
                (false, _) => zeros.as_ptr(),
                (true, true) => view.bytes_of(first + at).cast_const().cast(),
                (true, false) => {
                    let to = &mut copy.elements[table.len() * left.words..][..left.words];
                    let step = t.left_stride as isize;
                    // SAFETY: the rows that are read were just checked.
                    unsafe {
                        if left.kind.has_words() {
                            let from = view.bytes_of(first + at);
                            integers::pack(self.isa, (left.kind, view.form()), from, (t.depth as usize, step), to);
                        } else {
                            stored.run(self.isa, *at as isize, step, to);
                        }
                    }
                    to.as_ptr()
                }
            });
        }
    }
}

impl Task<'_> {
    /// Adds the pointers of a tap's rows, of which those from `low` to `high` are not in the padding. Rows are adjacent
    /// in memory, as the columns of a right operand are.
    fn tile_rows_across(
        &self,
        t: &RegisterTile,
        first: i64,
        (count, low, high): (usize, i64, i64),
        left: LeftRows,
        m: &mut TileMemory,
    ) {
        let view = &self.views[t.left.buffer];
        let TileMemory { zeros, no_bytes, copy, table, .. } = m;
        let to = &mut copy.elements[table.len() * left.words..][..count * left.words];
        if low <= high {
            let (at, form) = (view.bytes_of(first + low).cast_const(), view.form());
            let columns = (high - low + 1) as usize;
            let rows = Rows { at, form, depth: t.depth as usize, stride: t.left_stride as isize, columns };
            no_bytes.resize(no_bytes.len().max(columns), 0);
            // SAFETY: the caller has checked the rows, and those between them lie between them.
            unsafe { rows.pack(self.isa, left.kind, no_bytes, count, to) };
        }
        let row = |i: i64| if low <= i && i <= high { &raw const to[(i - low) as usize] } else { zeros.as_ptr() };
        table.extend((0..count as i64).map(row));
    }
}

/// True if elements of this form are multiplied as they lie in memory.
fn is_plain(kind: Kind, form: Form) -> bool {
    match kind {
        Kind::Words | Kind::LaneWords => matches!(form, Form::I32 | Form::U32),
        Kind::Pairs | Kind::Bytes => false,
        Kind::Halves => form == Form::F16,
        _ => form == Form::F32,
    }
}

/// How the rows of a left operand are read that have a pointer each.
#[derive(Clone, Copy)]
struct LeftRows {
    kind: Kind,
    /// Where they lie, else in a copy.
    in_place: bool,
    /// The copy has a word of every row, then the next word of each.
    across: bool,
    /// Bytes that are copied as they are.
    bytes: bool,
    /// Words of a row, or elements.
    words: usize,
    /// From one of them to the next, and from the first one behind the last.
    stride: isize,
    span: usize,
    /// What rows in the padding have.
    padding: f32,
}

impl LeftRows {
    fn of(t: &RegisterTile, kind: Kind, form: Form) -> LeftRows {
        let (depth, group) = (t.depth as usize, integers::group(kind));
        let whole = t.left_stride == 1 && depth % group == 0;
        let in_place = is_plain(kind, form) || kind == Kind::Bytes && form == Form::U8 && whole;
        let stride = if in_place && group == 1 { t.left_stride as isize } else { 1 };
        let words = depth.div_ceil(group);
        let bytes = kind.has_words() && form.size() == 1 && !in_place && !integers::is_shifted(kind, form);
        let padding = if kind.has_words() { integers::word_of(kind, form, t.integer_padding) } else { 0.0 };
        let span = (words - 1) * stride.unsigned_abs() + 1;
        LeftRows { kind, in_place, across: false, bytes, words, stride, span, padding }
    }
    /// So many rows are adjacent in memory.
    fn lie_across(&mut self, rows: usize) {
        if self.bytes {
            (self.across, self.stride, self.span) = (true, rows as isize, (self.words - 1) * rows + 1);
        }
    }
}

/// A tile at work.
struct Place<'a> {
    t: &'a RegisterTile,
    /// How it multiplies.
    kind: Kind,
    to: &'a Target,
    /// Where the operands begin in the first row of the first tap.
    first: [i64; 2],
    start: Option<f32>,
    /// The taps, with their places in the copy of the right operand if there is one.
    taps: &'a [[isize; 2]],
    /// That copy and the distance of its rows.
    right: Option<(*const f32, isize)>,
    /// The columns that are computed.
    columns: Range<i64>,
}

fn require_rows(view: &View, first: i64, rows: i64, stride: i64, columns: i64) {
    let [low, high] = ends(first, [(0, (rows - 1) * stride), (0, columns - 1)]);
    view.require_all(low, high);
}
