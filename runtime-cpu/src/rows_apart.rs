//! Tiles whose rows have a pointer each: rows lie unevenly or stand in the padding, or their elements are integers,
//! which are read in words.

use crate::copied::Stored;
use crate::execute::{Task, holding};
use crate::form::Form;
use crate::halves;
use crate::integers::{self, Rows};
use crate::program::RegisterTile;
use crate::row_ranges::within;
use crate::run_tiles::{MOST_ROWS, Place, is_plain};
use crate::tile::{self, Kind};
use crate::tile_memory::TileMemory;

impl Task<'_> {
    /// Runs a tile with a pointer for each row and tap.
    pub(crate) fn uneven(&mut self, p: &Place<'_>, m: &mut TileMemory) {
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
        if !(left.in_place && left.beyond == 0) && m.copy.elements.len() < all {
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
    /// Runs a row whose taps in the padding read the number that is there. Those of `m.taps` are in bounds and not in
    /// it, rows `stride` apart.
    pub(crate) fn padded_row(&self, p: &Place<'_>, row: i64, stride: i64, m: &mut TileMemory) {
        let (t, view) = (p.t, &self.views[p.t.left.buffer]);
        let (start, columns) = (p.columns.start, p.columns.end - p.columns.start);
        let padding = f32::from_bits(t.integer_padding as i32 as u32);
        let TileMemory { zeros, copy, table, taps: own, steps, .. } = m;
        zeros.clear();
        zeros.resize(columns as usize, padding);
        copy.elements.resize(copy.elements.len().max(own.len() * columns as usize), 0.0);
        let mut copies = copy.elements.chunks_exact_mut(columns as usize).zip(own.iter());
        table.clear();
        table.resize(p.taps.len() * (row as usize + 1), std::ptr::null());
        for (tap, at) in p.taps.iter().zip(table.iter_mut().skip(row as usize).step_by(row as usize + 1)) {
            // The right operand tells taps apart.
            let inside = own.iter().position(|o| o[1] == tap[1]);
            let lanes = match inside.and_then(|n| copies.next().map(|(to, _)| (to, own[n][0]))) {
                None => zeros.as_ptr(),
                Some((to, left)) => {
                    let from = view.bytes_of(p.first[0] + left as i64 + row * stride + start);
                    // SAFETY: the caller has checked these elements.
                    unsafe { halves::widen(self.isa, view.form(), from, to) };
                    to.as_ptr()
                }
            };
            *at = lanes.wrapping_sub(start as usize);
        }
        let mut operands = self.operands(p, row, p.taps, steps);
        operands.kind = Kind::LaneWords;
        (operands.table, operands.table_rows) = (table, row as usize + 1);
        // SAFETY: each tap has a row of these columns; the rest as in `call`.
        unsafe { tile::run(self.isa, &operands, row as usize..row as usize + 1) };
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
        let reach = |(low, high): (i64, i64), row: &i64| (low.min(*row), high.max(*row));
        let nothing = (i64::MAX, i64::MIN);
        let whole = inside == within((0, rows.len() as i64));
        let (low, high) = match whole {
            true => rows.iter().fold(nothing, reach),
            false => rows.iter().enumerate().filter(|r| read(r.0)).map(|r| r.1).fold(nothing, reach),
        };
        let depth = (t.depth - 1) * t.left_stride;
        if inside != 0 {
            view.require_all(first + low + depth.min(0), first + high + depth.max(0));
        }
        if left.across {
            return self.tile_rows_across(t, first, (rows.len(), low, high), left, m);
        }
        let TileMemory { zeros, copy, table, .. } = m;
        let elements = view.elements() as i64;
        let in_place = |at: i64| left.in_place && first + at + depth.max(0) + left.beyond < elements;
        let lies = |at: i64| view.bytes_of(first + at).cast_const().cast();
        if whole && in_place(high) {
            return table.extend(rows.iter().map(|at| lies(*at)));
        }
        let axes = [(1, 0), (t.depth as usize, t.left_stride as isize), (1, 1)];
        let stored = Stored { at: view.bytes_of(first), form: view.form(), axes };
        for (i, at) in rows.iter().enumerate() {
            table.push(match (read(i), in_place(*at)) {
                (false, _) => zeros.as_ptr(),
                (true, true) => lies(*at),
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

/// How the rows of a left operand are read that have a pointer each.
#[derive(Clone, Copy)]
struct LeftRows {
    kind: Kind,
    /// Where they lie, else in a copy.
    in_place: bool,
    /// Elements behind the depth that the last word of a row in place has, too: the right operand is 0 there.
    beyond: i64,
    /// The copy has a word of every row, then the next word of each.
    across: bool,
    /// Bytes that are copied as they are.
    bytes: bool,
    /// Words of a row, or elements.
    words: usize,
    /// From one of them to the next, and from the first one behind the last.
    stride: isize,
    span: usize,
    /// A word of a row in the padding.
    padding: f32,
}

impl LeftRows {
    fn of(t: &RegisterTile, kind: Kind, form: Form) -> LeftRows {
        let (depth, group) = (t.depth as usize, integers::group(kind));
        let in_words = kind == Kind::Bytes && form == Form::U8 && t.left_stride == 1;
        let in_place = is_plain(kind, form) || in_words;
        let stride = if in_place && group == 1 { t.left_stride as isize } else { 1 };
        let words = depth.div_ceil(group);
        let bytes = kind.has_words() && form.size() == 1 && !in_place && !integers::is_shifted(kind, form);
        let padding = if kind.has_words() { integers::word_of(kind, form, t.integer_padding) } else { 0.0 };
        let span = (words - 1) * stride.unsigned_abs() + 1;
        let beyond = if in_words { (words * group - depth) as i64 } else { 0 };
        LeftRows { kind, in_place, beyond, across: false, bytes, words, stride, span, padding }
    }
    /// So many rows are adjacent in memory.
    fn lie_across(&mut self, rows: usize) {
        if self.bytes {
            (self.across, self.stride, self.span) = (true, rows as isize, (self.words - 1) * rows + 1);
        }
    }
}
