//! Runs leaves as strips.

use crate::along::{Along, List, Listed};
use crate::chains::{self, Lies};
use crate::execute::{Line, Task, holding, wrong};
use crate::form::Form;
use crate::index::{Condition, Index};
use crate::isa::Isa;
use crate::listed;
use crate::memory::{Source, Span, View};
use crate::program::Extent;
use crate::strip_bodies as bodies;
use crate::strip_elements::{all, get, is_byte, is_lane, known, lane, lanes, of_int, read, write, write_ints};
use crate::strip_program::{Code, Link, Operand, Step, Strips, Uniform, Work};
use crate::tile_memory::{LANES, Lane, PITCH, StripMemory};
use tensor_ir::tir::{Real, WithBinary, WithUnary};

/// Rows of a strip that transposes.
const ROWS: usize = 16;
/// Registers for what a choice takes that is the same in all lanes.
const FILLED: usize = 4;

/// Rows with at least so many lanes are computed one by one if an operand has one number for each row.
const FILLS: usize = 32;

/// A part of a leaf: its rows and columns.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub rows: usize,
    pub columns: usize,
}

impl Part {
    /// The numbers that rows and columns of a strip add, which begins there in a part that begins at `origin`.
    pub(crate) fn within<'l>(&self, lists: &'l [List; 2], origin: [usize; 2], at: [usize; 2]) -> [Listed<'l>; 2] {
        let counts = [self.rows, self.columns];
        [0, 1].map(|i| lists[i].part(origin[i] + at[i], counts[i]))
    }
}

impl Task<'_> {
    pub(crate) fn strips(&mut self, s: &Strips) {
        let mut m = std::mem::take(&mut self.own.strips);
        let need = (s.registers + s.places.len() + FILLED) * PITCH * size_of::<f32>() / size_of::<Line>();
        if m.registers.len() < need {
            m.registers.resize(need, Line::ZERO);
        }
        m.first.resize(s.places.len(), 0);
        m.lanes.resize(s.places.len(), Lane::All(0.0));
        m.bytes.resize(s.places.len(), None);
        self.each(&s.loops, &mut |t| t.strip_nest(s, &mut m));
        self.own.strips = m;
    }
    /// The lanes of one iteration of the loops around them.
    fn strip_nest(&mut self, s: &Strips, m: &mut StripMemory) {
        self.begin_at([s.rows.slot, s.columns.slot], [0, 0]);
        let mut ranges = [(0, s.rows.count), (0, s.columns.count)];
        for g in &s.guards {
            let steps = [s.rows.slot, s.columns.slot].map(|slot| g.index.stride(slot).unwrap_or(0));
            let at = usize::from(steps[0] == 0);
            let (low, high) = holding(g.op, g.index.eval(self.scene()), steps[at], ranges[at].1);
            ranges[at] = (ranges[at].0.max(low), ranges[at].1.min(high));
        }
        if ranges.iter().any(|r| r.0 >= r.1) {
            return;
        }
        if s.cuts.iter().all(Vec::is_empty) {
            return self.strip_part(s, ranges, m);
        }
        let [rows, columns] = [(&s.cuts[0], s.rows, ranges[0]), (&s.cuts[1], s.columns, ranges[1])]
            .map(|(cuts, e, range)| self.parts_within(cuts, e, range));
        for row in &rows {
            columns.iter().for_each(|column| self.strip_part(s, [*row, *column], m));
        }
    }
    fn parts_within(&mut self, cuts: &[Condition], e: Extent, (low, high): (i64, i64)) -> Vec<(i64, i64)> {
        let clipped = |p: (i64, i64)| (p.0.max(low), p.1.min(high));
        self.parts(cuts, e).into_iter().map(clipped).filter(|p| p.0 < p.1).collect()
    }
    fn strip_part(&mut self, s: &Strips, [rows, columns]: [(i64, i64); 2], m: &mut StripMemory) {
        self.begin_at([s.rows.slot, s.columns.slot], [rows.0, columns.0]);
        let code = &s.codes[self.case(s)];
        let part = Part { rows: (rows.1 - rows.0) as usize, columns: (columns.1 - columns.0) as usize };
        m.origin = [rows.0 as usize, columns.0 as usize];
        for &at in code.reads.iter().chain(s.keeps.iter()).chain([&(s.places.len() - 1)]) {
            let p = &s.places[at];
            m.first[at] = p.index.eval(self.scene());
            let view = self.views[p.buffer];
            match &p.along {
                Along::Even(strides) => view.require(&span(*strides, m.first[at], part)),
                Along::Listed(lists) => {
                    let counts = [part.rows, part.columns];
                    let [rows, columns] = [0, 1].map(|i| lists[i].reach(m.origin[i], counts[i]));
                    let [low, high] = [0, 1].map(|end| m.first[at] + rows[end] + columns[end]);
                    view.require_all(low, high);
                }
            }
        }
        if self.copy(s, code, part, m) {
            return self.begin_at([s.rows.slot, s.columns.slot], [0, 0]);
        }
        self.uniforms(s, code, m);
        if let (Some(Operand::Uniform(i)), None, Part { rows: 1, columns: 1 }, false) =
            (code.result, s.fold, part, code.is_int)
        {
            let x = m.uniforms[i];
            let (view, span) = self.strip_span(s, s.places.len() - 1, [0, 0], part, m);
            write(self.isa, &view, &span, &Source::Splat(x));
            return self.begin_at([s.rows.slot, s.columns.slot], [0, 0]);
        }
        match s.fold {
            Some(_) if code.is_int => self.fold_ints(s, code, part, m),
            Some((combiner, _)) => self.fold_part(s, combiner, code, part, m),
            None => self.each_strip(s, code, part, m, &mut |t, m, at, strip| t.store_strip(s, code, at, strip, m)),
        }
        self.begin_at([s.rows.slot, s.columns.slot], [0, 0]);
    }
    /// The number of the code for what holds in a part.
    fn case(&self, s: &Strips) -> usize {
        let holds = |c: &Condition| Condition::of(c.op, c.index.eval(self.scene()));
        let chosen = (0..).zip(&s.choices).map(|(i, c)| usize::from(c.iter().all(holds)) << i).sum::<usize>();
        let begins = s.fold.is_none() && s.begins.as_ref().is_some_and(|b| b.iter().all(|s| self.env[*s] == 0));
        chosen | usize::from(begins) << s.choices.len()
    }
    fn uniforms(&self, s: &Strips, code: &Code, m: &mut StripMemory) {
        let StripMemory { uniforms, first, .. } = m;
        uniforms.clear();
        for u in &code.uniforms {
            let x = match u {
                Uniform::Number(x) => *x,
                Uniform::Load(at) => get(&self.views[s.places[*at].buffer], first[*at]),
                Uniform::Index(i) => i.eval(self.scene()) as f64 as f32,
                Uniform::Int(x) => of_int(*x),
                Uniform::IntLoad(at) => of_int(self.views[s.places[*at].buffer].integer(first[*at]) as i32),
                Uniform::IntIndex(i) => of_int(i.eval(self.scene()) as i32),
                Uniform::Unary(op, a) => f32::unary(*op, uniforms[*a]),
                Uniform::Binary(op, [a, b]) => f32::binary(*op, uniforms[*a], uniforms[*b]),
                Uniform::Choose(op, [x, y, a, b]) => {
                    uniforms[if op.compare(uniforms[*x], uniforms[*y]) { *a } else { *b }]
                }
            };
            uniforms.push(x);
        }
    }
    /// Calls `done` for each strip when its steps but the last are done: with the place of its first row and column.
    pub(crate) fn each_strip(
        &mut self,
        s: &Strips,
        code: &Code,
        part: Part,
        m: &mut StripMemory,
        done: &mut dyn FnMut(&mut Self, &mut StripMemory, [usize; 2], Part),
    ) {
        let [height, width] = self.size(s, code, part);
        let mut row = 0;
        while row < part.rows {
            let mut column = 0;
            while column < part.columns {
                let strip = Part { rows: height.min(part.rows - row), columns: width.min(part.columns - column) };
                self.gather(s, code, [row, column], strip, m);
                let before = code.steps.len().saturating_sub(1);
                for step in &code.steps[..before] {
                    let to = m.register(step.to);
                    self.step(s, &step.work, [row, column], strip, to, m);
                }
                done(self, m, [row, column], strip);
                column += width;
            }
            row += height;
        }
    }
    /// Rows and columns of a strip.
    fn size(&self, s: &Strips, code: &Code, part: Part) -> [usize; 2] {
        if s.transposes {
            return [ROWS.min(part.rows), LANES / ROWS];
        }
        // A step without registers needs no strips.
        let lies = |at: &usize| {
            let (p, stored) = (&s.places[*at], *at + 1 == s.places.len());
            let form = self.views[p.buffer].form();
            let may = if stored { ends_in_bytes(code) } else { code.bytes.contains(at) };
            matches!(p.along, Along::Even([_, 1])) && (is_lane(form) || may && is_byte(form))
        };
        let fills = |w: &Work| matches!(w, Work::Choose(..) | Work::Ints(_));
        let direct = code.steps.len() <= 1 && !code.steps.iter().any(|s| fills(&s.work));
        let stores = s.fold.is_some() && code.steps.is_empty() || s.fold.is_none() && lies(&(s.places.len() - 1));
        if direct && stores && code.strips.iter().all(lies) && part.columns > LANES {
            return [1, part.columns];
        }
        let columns = part.columns.min(LANES);
        [if columns == part.columns { part.rows.min(LANES / columns).max(1) } else { 1 }, columns]
    }
    /// Finds the lanes of each place, gathered where they do not lie next to each other.
    fn gather(&mut self, s: &Strips, code: &Code, at: [usize; 2], strip: Part, m: &mut StripMemory) {
        for &n in &code.strips {
            let p = &s.places[n];
            m.bytes[n] = None;
            if let Along::Listed(lists) = &p.along {
                let to = m.register(s.registers + n);
                // SAFETY: a register has `LANES` lanes, and no strip that gathers has more.
                let lanes = unsafe { std::slice::from_raw_parts_mut(to, strip.rows * strip.columns) };
                let [rows, columns] = strip.within(lists, m.origin, at);
                for (row, to) in rows.added.iter().zip(lanes.chunks_exact_mut(strip.columns)) {
                    // SAFETY: all places of the part are elements, as was asked when it began.
                    unsafe { listed::read(self.isa, &self.views[p.buffer], m.first[n] + i64::from(*row), columns, to) };
                }
                m.lanes[n] = Lane::At(to);
                continue;
            }
            let (view, span) = self.strip_span(s, n, at, strip, m);
            let is_bytes = code.bytes.contains(&n) && is_byte(view.form());
            m.lanes[n] = match span.is_contiguous() && (is_lane(view.form()) || is_bytes) {
                true => {
                    m.bytes[n] = is_bytes.then_some(view.form() == Form::I8);
                    Lane::At(view.bytes_of(span.first).cast_const().cast())
                }
                false if span.is_single() && view.form().is_narrow_float() => Lane::All(get(&view, span.first)),
                false
                    if view.form().is_narrow_float()
                        && span.column_stride == 0
                        && strip.columns >= FILLS
                        && code.result != Some(Operand::Place(n)) =>
                {
                    let to = m.register(s.registers + n);
                    // SAFETY: as below.
                    let rows = unsafe { std::slice::from_raw_parts_mut(to, strip.rows) };
                    read(self.isa, &view, &Span { columns: 1, ..span }, rows, &mut m.wide);
                    Lane::Rows(to, strip.columns)
                }
                false => {
                    let to = m.register(s.registers + n);
                    // SAFETY: a register has `LANES` lanes, and no strip that gathers has more.
                    let lanes = unsafe { std::slice::from_raw_parts_mut(to, strip.rows * strip.columns) };
                    read(self.isa, &view, &span, lanes, &mut m.wide);
                    Lane::At(to)
                }
            };
        }
    }
    pub(crate) fn strip_span(
        &self,
        s: &Strips,
        n: usize,
        at: [usize; 2],
        strip: Part,
        m: &StripMemory,
    ) -> (View, Span) {
        let p = &s.places[n];
        let Along::Even(strides) = p.along else { wrong() };
        let first = m.first[n] + at[0] as i64 * strides[0] + at[1] as i64 * strides[1];
        (self.views[p.buffer], span(strides, first, strip))
    }
    /// Does the last step and stores its result, where it belongs if that is possible.
    fn store_strip(&mut self, s: &Strips, code: &Code, at: [usize; 2], strip: Part, m: &mut StripMemory) {
        let (view, span) = self.strip_span(s, s.places.len() - 1, at, strip, m);
        let (n, last) = (strip.rows * strip.columns, code.steps.last());
        let lies = span.is_contiguous() && is_lane(view.form());
        let is_last = last.is_some_and(|l| code.result == Some(Operand::Register(l.to)));
        if let Some(Step { work: Work::Chain(from, links), .. }) = last
            && is_last
            && span.is_contiguous()
            && is_byte(view.form())
            && ends_in_bytes(code)
        {
            let to = (view.bytes_of(span.first), Lies::Bytes(view.form() == Form::I8));
            return self.chain(s, *from, links, to, n, m);
        }
        if let Some(last) = last {
            let to = if lies && is_last { view.pointer(span.first) } else { m.register(last.to) };
            self.step(s, &last.work, at, strip, to, m);
            if lies && is_last {
                return;
            }
        }
        match lane(code.result, m) {
            from if code.is_int => write_ints(self.isa, &view, &span, from, m),
            Lane::All(x) => write(self.isa, &view, &span, &Source::Splat(x)),
            Lane::Rows(..) => wrong(),
            Lane::At(from) => {
                // SAFETY: the result has the lanes of the strip.
                let lanes = unsafe { std::slice::from_raw_parts(from, n) };
                write(self.isa, &view, &span, &Source::Memory(lanes));
            }
        }
    }
    /// Runs the links of a chain over the lanes of a strip.
    fn chain(
        &self,
        s: &Strips,
        from: Operand,
        links: &[Link<Operand>],
        to: (*mut u8, Lies),
        n: usize,
        m: &mut StripMemory,
    ) {
        let signed = if let Operand::Place(at) = from { m.bytes[at] } else { None };
        let from = match (signed, lane(Some(from), m)) {
            (Some(signed), Lane::At(at)) => (at.cast(), Lies::Bytes(signed)),
            (_, lanes) => (known(s, 0, lanes, n, m).as_ptr().cast(), Lies::Words),
        };
        let mut own = std::mem::take(&mut m.links);
        own.clear();
        own.extend(links.iter().map(|l| l.map(|o| lane(Some(o), m))));
        chains::divide_by_products(&mut own);
        // SAFETY: operands have the lanes of the strip, and the result was checked or is a register.
        unsafe { chains::run(self.isa, (&own, &m.uniforms), from, to, n, &mut m.row_links) };
        m.links = own;
    }
    /// The values of an index of at most 32 bits for each lane.
    pub(crate) fn ramp(
        &self,
        index: &Index,
        along: &Along,
        at: [usize; 2],
        strip: Part,
        m: &StripMemory,
        to: &mut [f32],
    ) {
        let lane = |x: i64| of_int(x as i32);
        let first = index.eval(self.scene());
        let rows = to.chunks_exact_mut(strip.columns);
        match along {
            Along::Even(by) => {
                let first = first + at[0] as i64 * by[0] + at[1] as i64 * by[1];
                for (row, to) in (0i64..).zip(rows) {
                    let first = first + row * by[0];
                    (0i64..).zip(to).for_each(|(i, to)| *to = lane(first + i * by[1]));
                }
            }
            Along::Listed(lists) => {
                let [added, columns] = strip.within(lists, m.origin, at);
                for (row, to) in added.added.iter().zip(rows) {
                    let first = first + i64::from(*row);
                    to.iter_mut().zip(columns.added).for_each(|(to, x)| *to = lane(first + i64::from(*x)));
                }
            }
        }
    }
    pub(crate) fn step(&self, s: &Strips, work: &Work, at: [usize; 2], strip: Part, to: *mut f32, m: &mut StripMemory) {
        let n = strip.rows * strip.columns;
        let isa = self.isa;
        if let Work::Chain(from, links) = work {
            return self.chain(s, *from, links, (to.cast(), Lies::Words), n, m);
        }
        // SAFETY: a register has room for a strip, and a result has been checked; nobody else accesses it.
        let to = unsafe { std::slice::from_raw_parts_mut(to, n) };
        match work {
            Work::Unary(op, a) => {
                let a = all(s, 0, *a, n, m);
                if !bodies::special(isa, *op, to, a) {
                    op.with(Mapped { isa, to, a });
                }
            }
            Work::Binary(op, both) => {
                let [a, b] = match both.map(|o| lane(Some(o), m)) {
                    [Lane::At(a), b] => [Lane::At(a), b],
                    [a, Lane::At(b)] => [a, Lane::At(b)],
                    [a, b] => [Lane::At(known(s, 0, a, n, m).as_ptr()), b],
                };
                op.with::<f32, _>(Zipped { isa, to, a, b });
            }
            Work::Polynomial(x, numbers) => bodies::polynomial(isa, numbers, to, all(s, 0, *x, n, m)),
            Work::Choose(op, all) => {
                let limit = if let Lane::All(y) = lane(Some(all[1]), m) { Some(y) } else { None };
                let [x, a, b] = [0, 2, 3].map(|i| known(s, i, lane(Some(all[i]), m), n, m));
                let y = if limit.is_some() { x } else { known(s, 1, lane(Some(all[1]), m), n, m) };
                op.with_comparison::<f32, _>(bodies::Chosen { isa, to, by: [x, y], limit, from: [a, b] });
            }
            Work::Chain(..) => {}
            Work::Ints(work) => self.int_step(s, work, at, strip, to, m),
            Work::Ramp(index, along) => {
                self.ramp(index, along, at, strip, m, to);
                bodies::numbers(isa, to);
            }
        }
    }
}

fn span([row_stride, column_stride]: [i64; 2], first: i64, part: Part) -> Span {
    Span { first, rows: part.rows, columns: part.columns, row_stride, column_stride }
}

/// The last step of a code makes bytes of numbers.
fn ends_in_bytes(code: &Code) -> bool {
    let last = code.steps.last().filter(|l| code.result == Some(Operand::Register(l.to)));
    last.is_some_and(|l| matches!(&l.work, Work::Chain(_, links) if matches!(links.last(), Some(Link::ToInt(..)))))
}

/// The function of one operand.
struct Mapped<'l> {
    isa: Isa,
    to: &'l mut [f32],
    a: &'l [f32],
}

impl WithUnary<f32> for Mapped<'_> {
    type Out = ();
    fn with(self, f: impl Fn(f32) -> f32) {
        bodies::map(self.isa, f, self.to, self.a);
    }
}

/// The function of two operands, of which one differs from lane to lane.
pub(crate) struct Zipped<'l> {
    pub isa: Isa,
    pub to: &'l mut [f32],
    pub a: Lane,
    pub b: Lane,
}

impl WithBinary<f32, f32> for Zipped<'_> {
    type Out = ();
    fn with(self, f: impl Fn(f32, f32) -> f32) {
        let n = self.to.len();
        match (self.a, self.b) {
            (Lane::All(x), b) => bodies::map(self.isa, |y| f(x, y), self.to, lanes(b, n)),
            (a, Lane::All(y)) => bodies::map(self.isa, |x| f(x, y), self.to, lanes(a, n)),
            (Lane::Rows(x, columns), b) => {
                for (to, x, b) in each_row(self.to, x, columns, lanes(b, n)) {
                    bodies::map(self.isa, |y| f(x, y), to, b);
                }
            }
            (a, Lane::Rows(y, columns)) => {
                for (to, y, a) in each_row(self.to, y, columns, lanes(a, n)) {
                    bodies::map(self.isa, |x| f(x, y), to, a);
                }
            }
            (a, b) => bodies::zip(self.isa, f, self.to, lanes(a, n), lanes(b, n)),
        }
    }
}

/// Rows of a result, with the number of each and its lanes of the other operand.
fn each_row<'l>(
    to: &'l mut [f32],
    numbers: *const f32,
    columns: usize,
    other: &'l [f32],
) -> impl Iterator<Item = (&'l mut [f32], f32, &'l [f32])> {
    // SAFETY: each row of the strip has a number, in a register of its own.
    let numbers = unsafe { std::slice::from_raw_parts(numbers, to.len() / columns) };
    let rows = to.chunks_exact_mut(columns).zip(numbers).zip(other.chunks_exact(columns));
    rows.map(|((to, x), other)| (to, *x, other))
}
