//! Elements of buffers as the lanes of strips, and lanes as elements.

use crate::execute::wrong;
use crate::form::Form;
use crate::integers;
use crate::isa::Isa;
use crate::memory::{Element, Source, Span, View};
use crate::strip_bodies as bodies;
use crate::strip_program::{Operand, Strips};
use crate::tile_memory::{LANES, Lane, StripMemory};
use crate::turned::turn;
use half::{bf16, f16};

pub(crate) fn get(view: &View, at: i64) -> f32 {
    match view.form() {
        Form::F16 => view.get::<f16>(at),
        Form::BF16 => view.get::<bf16>(at),
        _ => view.get::<f32>(at),
    }
}

pub(crate) fn is_byte(f: Form) -> bool {
    matches!(f, Form::I8 | Form::U8)
}

/// Elements are lanes as they lie.
pub(crate) fn is_lane(f: Form) -> bool {
    matches!(f, Form::F32 | Form::I32 | Form::U32)
}

/// An integer as a lane.
pub(crate) fn of_int(x: i32) -> f32 {
    f32::from_bits(x as u32)
}

pub(crate) fn read(isa: Isa, view: &View, span: &Span, to: &mut [f32], wide: &mut Vec<i64>) {
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
            assert!(to.len() >= span.rows * span.columns);
            // SAFETY: every place of the span was just checked, and the lanes have room for it.
            unsafe {
                let columns = span.columns as isize;
                turn(isa, (from, span.column_stride as isize), (to.as_mut_ptr(), columns), [span.rows, span.columns]);
            }
        }
        _ => view.read::<f32>(span, to),
    }
}

pub(crate) fn write(isa: Isa, view: &View, span: &Span, from: &Source<'_, f32>) {
    fn all<T: Element<Lane = f32>>(view: &View, span: &Span, from: &Source<'_, f32>) {
        view.write::<T>(span, from, 0, None);
    }
    match view.form() {
        Form::F16 => all::<f16>(view, span, from),
        Form::BF16 => all::<bf16>(view, span, from),
        Form::I64 => write_longs(isa, view, span, from),
        _ => all::<f32>(view, span, from),
    }
}

/// Writes numbers as integers of 64 bits.
fn write_longs(isa: Isa, view: &View, span: &Span, from: &Source<'_, f32>) {
    let mut longs = [0; LANES];
    let n = span.rows * span.columns;
    let longs = &mut longs[..n];
    match from.lanes() {
        Ok(lanes) => bodies::to_longs(isa, longs, &lanes[..n]),
        Err(x) => longs.fill(x as i64),
    }
    view.write::<i64>(span, &Source::Memory(longs), 0, None);
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

pub(crate) fn lane(o: Option<Operand>, m: &mut StripMemory) -> Lane {
    match o {
        Some(Operand::Uniform(i)) => Lane::All(m.uniforms[i]),
        Some(Operand::Place(i)) => m.lanes[i],
        Some(Operand::Register(r)) => Lane::At(m.register(r)),
        None => wrong(),
    }
}

/// The lanes of an operand that differs from lane to lane.
pub(crate) fn lanes<'a>(l: Lane, n: usize) -> &'a [f32] {
    match l {
        // SAFETY: operands have the lanes of the strip; no step writes a register that it reads.
        Lane::At(from) => unsafe { std::slice::from_raw_parts(from, n) },
        Lane::All(_) | Lane::Rows(..) => wrong(),
    }
}

/// The lanes of an operand, also where they are all the same.
pub(crate) fn all<'a>(s: &Strips, i: usize, o: Operand, n: usize, m: &mut StripMemory) -> &'a [f32] {
    let l = lane(Some(o), m);
    known(s, i, l, n, m)
}

pub(crate) fn known<'a>(s: &Strips, i: usize, l: Lane, n: usize, m: &mut StripMemory) -> &'a [f32] {
    match l {
        Lane::All(x) => lanes(Lane::At(filled(m, s, i, x, n)), n),
        Lane::Rows(from, columns) => {
            let to = m.register(s.registers + s.places.len() + i);
            // SAFETY: a register has room for a strip, and the numbers of rows lie in another one.
            let (to, from) =
                unsafe { (std::slice::from_raw_parts_mut(to, n), std::slice::from_raw_parts(from, n / columns)) };
            to.chunks_exact_mut(columns).zip(from).for_each(|(row, x)| row.fill(*x));
            to
        }
        at => lanes(at, n),
    }
}

/// A register that has the number in all lanes.
pub(crate) fn filled(m: &mut StripMemory, s: &Strips, i: usize, x: f32, n: usize) -> *const f32 {
    let to = m.register(s.registers + s.places.len() + i);
    // SAFETY: a register has room for a strip.
    unsafe { std::slice::from_raw_parts_mut(to, n) }.fill(x);
    to
}
