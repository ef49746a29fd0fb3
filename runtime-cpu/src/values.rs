//! The values of a leaf: each operation computes all lanes of a chunk.

use crate::execute::{Chunk, Task, Truth, truth, wrong};
use crate::index::Index;
use crate::lanes::{Lane, Lanes, Ops};
use crate::memory::{Element, Source, Span, View, with_form};
use crate::program::{Access, Value};
use tensor_ir::dtype::DType;

impl<'p> Task<'p> {
    pub(crate) fn ops(&mut self, c: &Chunk) -> Ops<'_> {
        Ops { isa: self.isa, free: &mut self.own.free, n: c.lanes() }
    }
    /// The lanes of a value. Lanes that are not active may be anything, and load nothing.
    pub(crate) fn value(&mut self, v: &Value, c: &Chunk, active: Option<&[u8]>) -> Lanes<'p> {
        match v {
            Value::F(x) => Lanes::F(Source::Splat(*x)),
            Value::D(x) => Lanes::D(Source::Splat(*x)),
            Value::I(x) => Lanes::I(Source::Splat(*x)),
            Value::Load(a) => self.load(a, c, active),
            Value::Index(i, dtype) => self.index_value(i, *dtype, c),
            Value::Unary(op, dtype, a) => {
                let a = self.value(a, c, active);
                self.ops(c).unary(*op, *dtype, a)
            }
            Value::Binary(op, dtype, a, b) => {
                let (a, b) = (self.value(a, c, active), self.value(b, c, active));
                self.ops(c).binary(*op, *dtype, a, b)
            }
            Value::Cast(from, to, a) => {
                let a = self.value(a, c, active);
                self.ops(c).cast(*from, *to, a)
            }
            Value::All(conditions) => Lanes::I(match self.all(conditions, c) {
                Truth::All => Source::Splat(1),
                Truth::None => Source::Splat(0),
                Truth::Some(mask) => Source::Own(self.wide(&mask)),
            }),
            Value::Select(condition, a, b) => self.select(condition, a, b, c, active),
            Value::Let(i) => {
                let [one, other] = std::mem::replace(&mut self.lets[*i], Lanes::I(Source::Splat(0))).keep();
                self.lets[*i] = one;
                other
            }
            Value::Choose(op, dtype, sides) => {
                let sides = std::array::from_fn(|i| self.value(&sides[i], c, active));
                self.ops(c).choose(*op, *dtype, sides)
            }
            Value::Polynomial(x, numbers) => {
                let x = self.value(x, c, active);
                self.ops(c).polynomial(numbers, x)
            }
        }
    }
    /// Computes what a leaf uses several times.
    pub(crate) fn begin_lets(&mut self, lets: &[Value], c: &Chunk, active: Option<&[u8]>) {
        for v in lets {
            let lanes = self.value(v, c, active);
            self.lets.push(lanes);
        }
    }
    pub(crate) fn end_lets(&mut self) {
        while let Some(lanes) = self.lets.pop() {
            self.own.free.give_lanes(lanes);
        }
    }
    fn wide(&mut self, mask: &[u8]) -> Box<[i64]> {
        let mut to = self.own.free.take::<i64>();
        to.iter_mut().zip(mask).for_each(|(t, m)| *t = i64::from(*m));
        to
    }
    fn select(&mut self, condition: &Value, a: &Value, b: &Value, c: &Chunk, active: Option<&[u8]>) -> Lanes<'p> {
        let chosen = match condition {
            Value::All(conditions) => self.all(conditions, c),
            other => match self.value(other, c, active) {
                Lanes::I(Source::Splat(0)) => Truth::None,
                Lanes::I(Source::Splat(_)) => Truth::All,
                Lanes::I(s) => {
                    let mask = (0..c.lanes()).map(|i| u8::from(s.at(i) != 0)).collect();
                    self.own.free.give(s);
                    truth(mask)
                }
                _ => unreachable!("a condition is a bool"),
            },
        };
        match chosen {
            Truth::All => self.value(a, c, active),
            Truth::None => self.value(b, c, active),
            Truth::Some(mask) => {
                let within = |m: &dyn Fn(u8) -> u8| -> Box<[u8]> {
                    let lane = |(i, x): (usize, &u8)| m(*x) & active.map_or(1, |a| a[i]);
                    mask.iter().enumerate().map(lane).collect()
                };
                let (yes, no) = (within(&|m| m), within(&|m| 1 - m));
                let (a, b) = (self.value(a, c, Some(&yes)), self.value(b, c, Some(&no)));
                self.ops(c).select(&mask, a, b)
            }
        }
    }
    fn index_value(&mut self, i: &Index, dtype: DType, c: &Chunk) -> Lanes<'p> {
        let lanes = match c.slots.iter().any(|s| i.uses(*s)) {
            true => Source::Own(self.places(i, c)),
            false => Source::Splat(i.eval(self.scene())),
        };
        self.ops(c).cast(DType::I64, dtype, Lanes::I(lanes))
    }
    pub(crate) fn load(&mut self, a: &Access, c: &Chunk, active: Option<&[u8]>) -> Lanes<'p> {
        let view = self.views[a.buffer];
        with_form!(view.form(), T,
            F => Lanes::F(self.load_as::<T>(&view, a, c, active)),
            D => Lanes::D(self.load_as::<T>(&view, a, c, active)),
            I => Lanes::I(self.load_as::<T>(&view, a, c, active)))
    }
    fn load_as<T: Element>(&mut self, view: &View, a: &Access, c: &Chunk, active: Option<&[u8]>) -> Source<'p, T::Lane>
    where
        T::Lane: Lane,
    {
        let n = c.lanes();
        if let Some(span) = self.span(a, c)
            && (active.is_none() || view.holds(&span))
        {
            if span.is_single() {
                return Source::Splat(view.get::<T>(span.first));
            }
            if span.is_contiguous() && T::IS_LANE {
                let all: &'p [T] = view.slice::<T>(&span);
                // SAFETY: `T` is its own lane type, as just asked.
                return Source::Memory(unsafe { std::slice::from_raw_parts(all.as_ptr().cast(), n) });
            }
            let mut to = self.own.free.take::<T::Lane>();
            view.read::<T>(&span, &mut to);
            return Source::Own(to);
        }
        if let Some(stride) = a.column_stride {
            return Source::Own(self.load_rows::<T>(view, a, stride, c, active));
        }
        let places = self.places(&a.index, c);
        let mut to = self.own.free.take::<T::Lane>();
        for (i, t) in to[..n].iter_mut().enumerate() {
            *t = if active.is_none_or(|m| m[i] != 0) { view.get::<T>(places[i]) } else { T::Lane::default() };
        }
        self.own.free.give(Source::Own(places));
        Source::Own(to)
    }
    /// Loads row by row.
    fn load_rows<T: Element>(
        &mut self,
        view: &View,
        a: &Access,
        stride: i64,
        c: &Chunk,
        active: Option<&[u8]>,
    ) -> Box<[T::Lane]>
    where
        T::Lane: Lane,
    {
        let mut to = self.own.free.take::<T::Lane>();
        for (row, lanes) in to[..c.lanes()].chunks_exact_mut(c.columns).enumerate() {
            let span = self.row_span(a, stride, c, row);
            if active.is_none() || view.holds(&span) {
                view.read::<T>(&span, lanes);
                continue;
            }
            let mask = active.map(|m| &m[row * c.columns..]);
            for (i, t) in lanes.iter_mut().enumerate() {
                let place = span.first + i as i64 * stride;
                *t = if mask.is_none_or(|m| m[i] != 0) { view.get::<T>(place) } else { T::Lane::default() };
            }
        }
        to
    }
    pub(crate) fn store(&mut self, a: &Access, c: &Chunk, value: Lanes<'p>, active: Option<&[u8]>) {
        let view = self.views[a.buffer];
        with_form!(view.form(), T,
            F => self.store_as::<T>(&view, a, c, match &value { Lanes::F(s) => s, _ => wrong() }, active),
            D => self.store_as::<T>(&view, a, c, match &value { Lanes::D(s) => s, _ => wrong() }, active),
            I => self.store_as::<T>(&view, a, c, match &value { Lanes::I(s) => s, _ => wrong() }, active));
        self.own.free.give_lanes(value);
    }
    fn store_as<T: Element>(
        &mut self,
        view: &View,
        a: &Access,
        c: &Chunk,
        lanes: &Source<'_, T::Lane>,
        active: Option<&[u8]>,
    ) {
        if let Some(span) = self.span(a, c) {
            return view.write::<T>(&span, lanes, 0, active);
        }
        if let Some(stride) = a.column_stride {
            for row in 0..c.rows {
                let span = self.row_span(a, stride, c, row);
                view.write::<T>(&span, lanes, row * c.columns, active);
            }
            return;
        }
        let places = self.places(&a.index, c);
        for i in (0..c.lanes()).filter(|&i| active.is_none_or(|m| m[i] != 0)) {
            let one = Span { first: places[i], rows: 1, columns: 1, row_stride: 0, column_stride: 0 };
            view.write::<T>(&one, lanes, i, None);
        }
        self.own.free.give(Source::Own(places));
    }
}
