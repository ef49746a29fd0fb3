//! Runs leaves as strips.

use crate::execute::{Line, Task, holding, identity, wrong};
use crate::form::Form;
use crate::index::Condition;
use crate::integers;
use crate::isa::Isa;
use crate::lanes::Lanes;
use crate::memory::{Element, Source, Span, View};
use crate::program::Extent;
use crate::strip_bodies as bodies;
use crate::strip_program::{Code, Operand, Place, Strips, Uniform, Work};
use crate::tile_memory::{LANES, StripMemory};
use crate::turned::turn;
use crate::vectors::prefetch;
use half::{bf16, f16};
use tensor_ir::tir::{Combiner, Real, WithBinary, WithUnary};

/// Rows of a strip that transposes.
const ROWS: usize = 16;
/// Registers for what a choice takes that is the same in all lanes.
const FILLED: usize = 4;

/// An operand of a step in the strip at work.
#[derive(Clone, Copy)]
pub(crate) enum Lane {
    All(f32),
    At(*const f32),
}

/// A part of a leaf: its rows and columns.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub rows: usize,
    pub columns: usize,
}

impl Task<'_> {
    pub(crate) fn strips(&mut self, s: &Strips) {
        let mut m = std::mem::take(&mut self.own.strips);
        let need = (s.registers + s.places.len() + FILLED) * LANES * size_of::<f32>() / size_of::<Line>();
        if m.registers.len() < need {
            m.registers.resize(need, Line::ZERO);
        }
        m.first.resize(s.places.len(), 0);
        m.lanes.resize(s.places.len(), std::ptr::null());
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
        for &at in code.reads.iter().chain(s.keeps.iter()).chain([&(s.places.len() - 1)]) {
            let p = &s.places[at];
            m.first[at] = p.index.eval(self.scene());
            self.views[p.buffer].require(&span(p, m.first[at], part));
        }
        self.uniforms(s, code, m);
        if let (Some(Operand::Uniform(i)), None, Part { rows: 1, columns: 1 }, false) =
            (code.result, s.fold, part, code.is_int)
        {
            let at = s.places.len() - 1;
            let (view, x) = (self.views[s.places[at].buffer], m.uniforms[i]);
            write(&view, &span(&s.places[at], m.first[at], part), &Source::Splat(x));
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
        let plain = |p: &Place| p.strides[1] == 1 && is_lane(self.views[p.buffer].form());
        let lies = |at: &usize| plain(&s.places[*at]);
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
            let (view, span) = self.strip_span(s, n, at, strip, m);
            m.lanes[n] = match span.is_contiguous() && is_lane(view.form()) {
                true => view.pointer(span.first),
                false => {
                    let to = m.register(s.registers + n);
                    // SAFETY: a register has `LANES` lanes, and no strip that gathers has more.
                    let lanes = unsafe { std::slice::from_raw_parts_mut(to, strip.rows * strip.columns) };
                    read(self.isa, &view, &span, lanes, &mut m.wide);
                    to
                }
            };
        }
    }
    fn strip_span(&self, s: &Strips, n: usize, at: [usize; 2], strip: Part, m: &StripMemory) -> (View, Span) {
        let p = &s.places[n];
        let first = m.first[n] + at[0] as i64 * p.strides[0] + at[1] as i64 * p.strides[1];
        (self.views[p.buffer], span(p, first, strip))
    }
    /// Does the last step and stores its result, where it belongs if that is possible.
    fn store_strip(&mut self, s: &Strips, code: &Code, at: [usize; 2], strip: Part, m: &mut StripMemory) {
        let (view, span) = self.strip_span(s, s.places.len() - 1, at, strip, m);
        let (n, last) = (strip.rows * strip.columns, code.steps.last());
        let lies = span.is_contiguous() && is_lane(view.form());
        let is_last = last.is_some_and(|l| code.result == Some(Operand::Register(l.to)));
        if let Some(last) = last {
            let to = if lies && is_last { view.pointer(span.first) } else { m.register(last.to) };
            self.step(s, &last.work, at, strip, to, m);
            if lies && is_last {
                return;
            }
        }
        match lane(code.result, m) {
            from if code.is_int => write_ints(self.isa, &view, &span, from, m),
            Lane::All(x) => write(&view, &span, &Source::Splat(x)),
            // SAFETY: the result has the lanes of the strip.
            Lane::At(from) => write(&view, &span, &Source::Memory(unsafe { std::slice::from_raw_parts(from, n) })),
        }
    }
    /// Combines all lanes of a part into its element.
    fn fold_part(&mut self, s: &Strips, c: Combiner, code: &Code, part: Part, m: &mut StripMemory) {
        let Lanes::F(Source::Splat(nothing)) = identity(c, tensor_ir::dtype::DType::F32) else { wrong() };
        let mut sums = [nothing; bodies::SUMS];
        self.each_strip(s, code, part, m, &mut |t, m, at, strip| {
            let kept = s.keeps.map(|n| t.strip_span(s, n, at, strip, m)).filter(|(_, span)| span.is_contiguous());
            let own = kept.map(|(view, span)| view.pointer(span.first));
            if let Some(last) = code.steps.last() {
                let to = own.unwrap_or(m.register(last.to));
                t.step(s, &last.work, at, strip, to, m);
            }
            let n = strip.rows * strip.columns;
            let lanes = match (lane(code.result, m), own) {
                (_, Some(own)) => own.cast_const(),
                (Lane::All(x), None) => filled(m, s, 0, x, n),
                (Lane::At(from), None) => from,
            };
            // SAFETY: the result has the lanes of the strip.
            bodies::fold(t.isa, unsafe { std::slice::from_raw_parts(lanes, n) }, c, &mut sums);
        });
        let mut folded = nothing;
        bodies::one(self.isa, c, &mut sums, &mut folded);
        let at = s.places.len() - 1;
        let (view, first) = (self.views[s.places[at].buffer], m.first[at]);
        let begins = s.begins.as_ref().is_some_and(|b| b.iter().all(|slot| self.env[*slot] == 0));
        let old = if begins { nothing } else { get(&view, first) };
        let one = Span { first, rows: 1, columns: 1, row_stride: 0, column_stride: 0 };
        write(&view, &one, &Source::Splat(f32::binary(c.operator(), old, folded)));
    }
    pub(crate) fn step(&self, s: &Strips, work: &Work, at: [usize; 2], strip: Part, to: *mut f32, m: &mut StripMemory) {
        let n = strip.rows * strip.columns;
        let isa = self.isa;
        // SAFETY: a register has room for a strip, and a result has been checked; nobody else accesses it.
        let to = unsafe { std::slice::from_raw_parts_mut(to, n) };
        match work {
            Work::Unary(op, a) => {
                let a = lanes(lane(Some(*a), m), n);
                if !bodies::special(isa, *op, to, a) {
                    op.with(Mapped { isa, to, a });
                }
            }
            Work::Binary(op, both) => {
                let [a, b] = both.map(|o| lane(Some(o), m));
                op.with::<f32, _>(Zipped { isa, to, a, b });
            }
            Work::Polynomial(x, numbers) => bodies::polynomial(isa, numbers, to, lanes(lane(Some(*x), m), n)),
            Work::Choose(op, all) => {
                let [x, y, a, b] = std::array::from_fn(|i| match lane(Some(all[i]), m) {
                    Lane::All(x) => lanes(Lane::At(filled(m, s, i, x, n)), n),
                    at => lanes(at, n),
                });
                op.with_comparison::<f32, _>(bodies::Chosen { isa, to, by: [x, y], from: [a, b] });
            }
            Work::Ints(work) => self.int_step(s, work, at, strip, to, m),
            Work::Ramp(index, strides) => {
                let first = index.eval(self.scene()) + at[0] as i64 * strides[0] + at[1] as i64 * strides[1];
                for (row, to) in (0i64..).zip(to.chunks_exact_mut(strip.columns)) {
                    let first = first + row * strides[0];
                    (0i64..).zip(to).for_each(|(i, to)| *to = (first + i * strides[1]) as f64 as f32);
                }
            }
        }
    }
}

fn span(p: &Place, first: i64, part: Part) -> Span {
    let [row_stride, column_stride] = p.strides;
    Span { first, rows: part.rows, columns: part.columns, row_stride, column_stride }
}

pub(crate) fn lane(o: Option<Operand>, m: &mut StripMemory) -> Lane {
    match o {
        Some(Operand::Uniform(i)) => Lane::All(m.uniforms[i]),
        Some(Operand::Place(i)) => Lane::At(m.lanes[i]),
        Some(Operand::Register(r)) => Lane::At(m.register(r)),
        None => wrong(),
    }
}

/// The lanes of an operand that differs from lane to lane.
pub(crate) fn lanes<'a>(l: Lane, n: usize) -> &'a [f32] {
    match l {
        // SAFETY: operands have the lanes of the strip; no step writes a register that it reads.
        Lane::At(from) => unsafe { std::slice::from_raw_parts(from, n) },
        Lane::All(_) => wrong(),
    }
}

/// A register that has the number in all lanes.
pub(crate) fn filled(m: &mut StripMemory, s: &Strips, i: usize, x: f32, n: usize) -> *const f32 {
    let to = m.register(s.registers + s.places.len() + i);
    // SAFETY: a register has room for a strip.
    unsafe { std::slice::from_raw_parts_mut(to, n) }.fill(x);
    to
}

fn get(view: &View, at: i64) -> f32 {
    match view.form() {
        Form::F16 => view.get::<f16>(at),
        Form::BF16 => view.get::<bf16>(at),
        _ => view.get::<f32>(at),
    }
}

/// Elements are lanes as they lie.
fn is_lane(f: Form) -> bool {
    matches!(f, Form::F32 | Form::I32 | Form::U32)
}

/// An integer as a lane.
pub(crate) fn of_int(x: i32) -> f32 {
    f32::from_bits(x as u32)
}

fn read(isa: Isa, view: &View, span: &Span, to: &mut [f32], wide: &mut Vec<i64>) {
    match view.form() {
        Form::I8 | Form::U8 if span.column_stride == 1 => {
            for (row, to) in (0i64..).zip(to.chunks_exact_mut(span.columns)) {
                let own = Span { first: span.first + row * span.row_stride, rows: 1, ..*span };
                bodies::widen_bytes(isa, view.form() == Form::I8, view.slice::<u8>(&own), to);
            }
        }
        Form::I8 | Form::U8 => {
            wide.resize(to.len(), 0);
            match view.form() {
                Form::I8 => view.read::<i8>(span, wide),
                _ => view.read::<u8>(span, wide),
            }
            to.iter_mut().zip(wide).for_each(|(to, x)| *to = of_int(*x as i32));
        }
        Form::F16 => view.read::<f16>(span, to),
        Form::BF16 => view.read::<bf16>(span, to),
        _ if span.is_turned() => {
            view.require(span);
            let from = view.pointer::<f32>(span.first).cast_const();
            for c in 0..span.columns {
                // Each column is a stream of its own, more of them than a processor follows: the rows after the next.
                let column = from.wrapping_offset(c as isize * span.column_stride as isize);
                prefetch(column.wrapping_add(2 * span.rows), span.rows);
            }
            assert!(to.len() >= span.rows * span.columns);
            // SAFETY: every place of the span was just checked, and the lanes have room for it.
            unsafe {
                turn(isa, from, span.column_stride as isize, to.as_mut_ptr(), [span.rows, span.columns]);
            }
        }
        _ => view.read::<f32>(span, to),
    }
}

fn write(view: &View, span: &Span, from: &Source<'_, f32>) {
    fn all<T: Element<Lane = f32>>(view: &View, span: &Span, from: &Source<'_, f32>) {
        view.write::<T>(span, from, 0, None);
    }
    match view.form() {
        Form::F16 => all::<f16>(view, span, from),
        Form::BF16 => all::<bf16>(view, span, from),
        _ => all::<f32>(view, span, from),
    }
}

/// Writes integers to elements of another form, or elements that do not lie next to each other.
pub(crate) fn write_ints(isa: Isa, view: &View, span: &Span, from: Lane, m: &mut StripMemory) {
    let n = span.rows * span.columns;
    match (view.form(), from) {
        (Form::I8 | Form::U8, Lane::At(_)) if span.column_stride == 1 => {
            view.require(span);
            let (to, stride) = (view.bytes_of(span.first), span.row_stride as isize);
            return integers::narrow(isa, lanes(from, n), span.columns, to, stride);
        }
        (Form::I32 | Form::U32, Lane::At(_)) => {
            return view.write::<f32>(span, &Source::Memory(lanes(from, n)), 0, None);
        }
        _ => {}
    }
    m.wide.clear();
    match from {
        Lane::All(x) => m.wide.resize(n, i64::from(x.to_bits() as i32)),
        at => m.wide.extend(lanes(at, n).iter().map(|x| i64::from(x.to_bits() as i32))),
    }
    let from = Source::Memory(&m.wide[..]);
    match view.form() {
        Form::I8 => view.write::<i8>(span, &from, 0, None),
        Form::U8 => view.write::<u8>(span, &from, 0, None),
        Form::I64 => view.write::<i64>(span, &from, 0, None),
        Form::U32 => view.write::<u32>(span, &from, 0, None),
        _ => view.write::<i32>(span, &from, 0, None),
    }
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
struct Zipped<'l> {
    isa: Isa,
    to: &'l mut [f32],
    a: Lane,
    b: Lane,
}

impl WithBinary<f32, f32> for Zipped<'_> {
    type Out = ();
    fn with(self, f: impl Fn(f32, f32) -> f32) {
        let n = self.to.len();
        match (self.a, self.b) {
            (Lane::All(x), b) => bodies::map(self.isa, |y| f(x, y), self.to, lanes(b, n)),
            (a, Lane::All(y)) => bodies::map(self.isa, |x| f(x, y), self.to, lanes(a, n)),
            (a, b) => bodies::zip(self.isa, f, self.to, lanes(a, n), lanes(b, n)),
        }
    }
}
