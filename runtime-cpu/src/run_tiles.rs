//! Tiles: where the rows of each tap lie, checked against their buffers before the body runs.

use crate::chains::is_moderate;
use crate::copied::{Copied, Stored};
use crate::execute::Task;
use crate::form::Form;
use crate::halves;
use crate::index::Index;
use crate::integers::{self, Rows};
use crate::memory::View;
use crate::program::{self, End, Epilogue, Operand, RegisterTile, Start, StepOp};
use crate::row_ranges::{always, ends, range_of, until};
use crate::tile::{self, Kind, Operands, Step};
use crate::tile_memory::TileMemory;
use std::ops::Range;
use tensor_ir::dtype::DType;

/// Rows of a tile with a pointer each, at most.
pub(crate) const MOST_ROWS: usize = 64;
/// Rows of a tile that widen a right operand of f16 themselves, at most.
const FEW_ROWS: i64 = 4;

/// Where results go.
pub(crate) struct Target {
    pub(crate) out: *mut f32,
    pub(crate) stride: i64,
    pub(crate) rows: i64,
    pub(crate) columns: i64,
    /// Where they are stored in another form, and the distance of rows there in bytes: bytes by the body itself.
    pub(crate) narrow: Option<(Form, *mut u8, isize)>,
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
        let decodes = t.decoding.as_ref();
        if !decodes.is_some_and(|d| self.decoded_tile(t, d, &to, &m.steps)) {
            decodes.into_iter().for_each(|d| self.decode_once(d));
            self.products(t, &to, m);
        }
        if let Some((form, at, stride)) = to.narrow.filter(|n| n.0.size() > 1) {
            let all = &m.results[..(to.rows * to.columns) as usize];
            let lies = stride == to.columns as isize * form.size() as isize;
            for (n, row) in (0..).zip(all.chunks_exact(if lies { all.len() } else { to.columns as usize })) {
                // SAFETY: `target` has checked the rows of results, which are this task's own.
                unsafe { halves::narrow(self.isa, form, row, at.wrapping_offset(n * stride)) };
            }
        }
    }
    /// Computes the sums and runs the steps.
    fn products(&mut self, t: &RegisterTile, to: &Target, m: &mut TileMemory) {
        let holds = |n: i64, e: &End| until(e.condition.op, e.condition.index.eval(self.scene()), e.step, n);
        let even = t.limits.iter().fold(to.columns, holds);
        if even > 0 {
            let first = [t.left.index.eval(self.scene()), t.right.as_ref().map_or(0, |r| r.index.eval(self.scene()))];
            self.columns(t, to, first, 0..even, m);
        }
        for column in even..to.columns {
            self.begin_at([t.column, usize::MAX], [column, 0]);
            let own = |i: &Option<Index>| i.as_ref().map_or(0, |i| i.eval(self.scene()));
            let [left, right] = [own(&t.held[0]), own(&t.held[1])];
            self.begin_at([t.column, usize::MAX], [0, 0]);
            let moved = column * t.lane_stride;
            let left = if t.kind == Kind::Product { left } else { left - moved };
            let right = if t.kind == Kind::Scaled { right } else { right - moved };
            self.columns(t, to, [left, right], column..column + 1, m);
        }
    }
    /// Computes these columns, of which the first one of all would begin at `first`.
    fn columns(&mut self, t: &RegisterTile, to: &Target, first: [i64; 2], columns: Range<i64>, m: &mut TileMemory) {
        let start = self.initial(t);
        m.conditions.clear();
        m.conditions.extend(t.conditions.iter().map(|c| c.condition.index.eval(self.scene())));
        let even = t.row_stride.filter(|_| self.lies_evenly(t, to.rows));
        let kind = self.kind(t);
        let taps = self.copy_right((t, kind), first[1] + columns.start, columns.end - columns.start, m);
        let right = taps.is_some().then(|| m.right.rows());
        let right = right.map(|(at, stride)| (at.wrapping_sub(columns.start as usize), stride));
        let place = Place { t, kind, to, first, start, taps: taps.as_ref().unwrap_or(&t.taps), right, columns };
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
    }
    /// The number that sums begin with, if they do not go on from results.
    pub(crate) fn initial(&self, t: &RegisterTile) -> Option<f32> {
        match &t.start {
            Start::Kept => None,
            Start::Number(x) => Some(*x),
            Start::First(x, slots) => slots.iter().all(|s| self.env[*s] == 0).then_some(*x),
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
            _ if t.kind == Kind::LaneWords && form(t.left.buffer) == Form::U8 => Kind::LaneBytes,
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
        // The left operand's are bytes, not the right one's.
        if is_plain(if kind == Kind::LaneBytes { t.kind } else { kind }, view.form()) {
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
            m.steps.splice(0..0, (!sums.is_empty()).then_some(Step::AddIntColumns(sums.as_ptr())));
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
        let spans = m.spans.clone();
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
            if m.taps.len() < t.taps.len() && t.kind == Kind::LaneWords && t.integer_padding != 0 {
                (row..end).for_each(|row| self.padded_row(p, row, stride, m));
                row = end;
                continue;
            }
            let steps = if m.taps.len() < t.taps.len() { &m.padded } else { &m.steps };
            self.call(p, stride, row..end, (&m.taps, steps), &mut m.copy);
            row = end;
        }
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
        let next = e.steps.iter().skip(1).map(|s| s.op).chain([StepOp::Keep]);
        m.steps.extend(e.steps.iter().zip(next).map(|(s, next)| match &s.operand {
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
                StepOp::Div if next == StepOp::Round && is_moderate(*x) => Step::DivBy(*x, 1.0 / x),
                StepOp::Div => Step::Div(*x),
                StepOp::Mul => Step::Mul(*x),
                StepOp::Max => Step::Max(*x),
                StepOp::Min => Step::Min(*x),
                _ => Step::Add(*x),
            },
            Operand::Rows(a, stride) => {
                let (view, first) = (&self.views[a.buffer], a.index.eval(self.scene()));
                require_rows(view, first, rows, *stride, 1);
                let (at, stride) = (view.pointer::<f32>(first).cast_const(), *stride as isize);
                if s.op == StepOp::Mul { Step::MulRows(at, stride) } else { Step::AddRows(at, stride) }
            }
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
        let product = t.kind == Kind::Product;
        let [first, last] =
            if product { [0, 0] } else { [p.columns.start, p.columns.end - 1] }.map(|n| n * t.lane_stride);
        self.views[t.left.buffer].require_all(low + depth.min(0) + first, high + depth.max(0) + last);
        // Rows move the right operand evenly: its first and last row are the ends.
        self.check_right(p, rows.start, reach[1]);
        if t.right_row != 0 {
            self.check_right(p, rows.end - 1, reach[1]);
        }
    }
    pub(crate) fn check_right(&self, p: &Place<'_>, row: i64, reach: (i64, i64)) {
        let t = p.t;
        // A copy was checked when it was made.
        if let Some(right) = t.right.as_ref().filter(|_| p.right.is_none()) {
            let depth = (t.depth - 1) * t.right_stride;
            let [low, high] = ends(p.first[1] + row * t.right_row, [reach, (0, depth)]);
            let ends = if t.kind == Kind::Scaled { [0, 0] } else { [p.columns.start, p.columns.end - 1] };
            let [first, last] = ends.map(|n| n * t.lane_stride);
            self.views[right.buffer].require_all(low + first, high + last);
        }
    }
    #[inline(always)]
    pub(crate) fn operands<'m>(
        &self,
        p: &Place<'_>,
        row: i64,
        taps: &'m [[isize; 2]],
        steps: &'m [Step],
    ) -> Operands<'m> {
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
            lane_stride: t.lane_stride as usize,
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
            bytes: p.to.narrow.filter(|n| n.0.size() == 1).map(|(_, at, stride)| (at, stride)),
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
            // The right operand's are halves, not the left one's.
            let kind = if p.kind == Kind::Halves { p.t.kind } else { p.kind };
            if !is_plain(kind, view.form()) || operands.collides(rows.len()) {
                return operands.run_copied(self.isa, rows, operands.left.cast(), view.form(), copy);
            }
            tile::run(self.isa, &operands, rows);
        }
    }
}

/// True if elements of this form are multiplied as they lie in memory.
pub(crate) fn is_plain(kind: Kind, form: Form) -> bool {
    match kind {
        Kind::Words | Kind::LaneWords => matches!(form, Form::I32 | Form::U32),
        Kind::Pairs | Kind::Bytes => false,
        Kind::LaneBytes => form == Form::U8,
        Kind::Halves => form == Form::F16,
        _ => form == Form::F32,
    }
}

/// A tile at work.
pub(crate) struct Place<'a> {
    pub(crate) t: &'a RegisterTile,
    /// How it multiplies.
    pub(crate) kind: Kind,
    pub(crate) to: &'a Target,
    /// Where the operands begin in the first row of the first tap.
    pub(crate) first: [i64; 2],
    pub(crate) start: Option<f32>,
    /// The taps, with their places in the copy of the right operand if there is one.
    pub(crate) taps: &'a [[isize; 2]],
    /// That copy and the distance of its rows.
    pub(crate) right: Option<(*const f32, isize)>,
    /// The columns that are computed.
    pub(crate) columns: Range<i64>,
}

fn require_rows(view: &View, first: i64, rows: i64, stride: i64, columns: i64) {
    let [low, high] = ends(first, [(0, (rows - 1) * stride), (0, columns - 1)]);
    view.require_all(low, high);
}
