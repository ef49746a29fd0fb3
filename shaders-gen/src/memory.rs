//! Loads and stores: vector units, packed words, banks, registers, other lanes' registers.

use crate::access::{Access, Form, resolve};
use crate::builder::{Kind, LoadKey, Value};
use crate::error::EmitError;
use crate::kernel::{Home, KernelEmitter};
use crate::lanes::is_multiple;
use crate::layout::{Layout, Word};
use compiler::int::Int;
use compiler::tir::{BufferId, Scope};
use naga::{BinaryOperator as B, Expression, Handle, MathFunction as M, Statement};

/// A part of a unit.
#[derive(Clone, Debug)]
enum Part {
    Whole,
    Word(u32),
    Dynamic(Int),
}

/// A place in memory: a unit and the part of it.
#[derive(Clone, Debug)]
struct Place {
    unit: Int,
    part: Part,
}

impl KernelEmitter<'_> {
    fn layout(&self, b: BufferId) -> Layout {
        self.layouts[&b].clone()
    }

    /// The value at `indices`, a vector where they use the lane.
    pub fn load(&mut self, buffer: BufferId, indices: &[Int]) -> Result<Value, EmitError> {
        let access = resolve(&self.f.buffers[buffer], indices, self.lane, self.ranges);
        if let Scope::Subgroup { size, .. } = self.f.buffers[buffer].scope {
            return self.load_subgroup(buffer, &access, size);
        }
        match &access.form {
            Form::One(i) => {
                let i = self.inside(buffer, i, &access);
                self.load_element(buffer, &i)
            }
            Form::Run { base, count, align } => self.load_run(buffer, base, *count, *align, &access),
            Form::Each(list) => {
                let mut parts = Vec::with_capacity(list.len());
                for i in list {
                    let i = self.inside(buffer, i, &access);
                    parts.push(self.load_element(buffer, &i)?);
                }
                Ok(self.b.compose(&parts))
            }
        }
    }

    /// `i` when it is proved in bounds here, else clamped into the buffer: what a load out of bounds gives is never used.
    fn inside(&mut self, buffer: BufferId, i: &Int, access: &Access) -> Int {
        if access.proved {
            return i.clone();
        }
        let Some(n) = self.layouts[&buffer].numel else {
            self.proved = false;
            return i.clone();
        };
        let last = n.saturating_sub(1) as i64;
        if self.ranges.prove(i, 0, last) { i.clone() } else { self.clamp(i, last) }
    }

    fn clamp(&mut self, i: &Int, last: i64) -> Int {
        let (low, high) = self.ranges.span(i);
        let upper = if high > last { i.min(last) } else { i.clone() };
        if low < 0 { upper.max(0) } else { upper }
    }

    fn load_run(
        &mut self,
        buffer: BufferId,
        base: &Int,
        count: u8,
        align: i64,
        access: &Access,
    ) -> Result<Value, EmitError> {
        let layout = self.layout(buffer);
        let (unit, n) = (layout.unit(), i64::from(count));
        if unit >= n && align >= n && unit % n == 0 || unit > n && is_multiple(base, unit) {
            return self.load_within_unit(buffer, base, count, access);
        }
        if unit > 1 && align >= unit && n % unit == 0 {
            let mut parts = Vec::new();
            for k in 0..n / unit {
                let at = self.ranges.simplify(&(base.clone() + k * unit));
                let v = self.load_within_unit(buffer, &at, unit as u8, access)?;
                parts.extend((0..u32::from(v.lanes)).map(|c| self.b.component(v, c)));
            }
            return Ok(self.b.compose(&parts));
        }
        let mut parts = Vec::with_capacity(count as usize);
        for k in 0..n {
            let at = self.ranges.simplify(&(base.clone() + k));
            let at = self.inside(buffer, &at, access);
            parts.push(self.load_element(buffer, &at)?);
        }
        Ok(self.b.compose(&parts))
    }

    /// A run that lies in one unit.
    fn load_within_unit(
        &mut self,
        buffer: BufferId,
        base: &Int,
        count: u8,
        access: &Access,
    ) -> Result<Value, EmitError> {
        let layout = self.layout(buffer);
        let unit_size = layout.unit();
        let offset = self.ranges.simplify(&base.rem(unit_size));
        let offset = if is_multiple(base, unit_size) { Some(0) } else { offset.as_const() };
        let Some(offset) = offset else {
            let mut parts = Vec::with_capacity(count as usize);
            for k in 0..i64::from(count) {
                let at = self.ranges.simplify(&(base.clone() + k));
                let at = self.inside(buffer, &at, access);
                parts.push(self.load_element(buffer, &at)?);
            }
            return Ok(self.b.compose(&parts));
        };
        let unit = self.ranges.simplify(&base.div(unit_size));
        let unit = self.unit_inside(buffer, base, &unit, access);
        let key = LoadKey::Decoded { base: unit.clone() * unit_size + offset, count };
        if let Some(v) = self.b.remembered(buffer, &key) {
            return Ok(v);
        }
        let whole = self.load_part(buffer, &Place { unit, part: Part::Whole })?;
        let v = if layout.word.pack() == 1 {
            let v = self.b.slice(whole, offset as u32, count);
            self.decode_native(v, layout.word, buffer)
        } else {
            self.decode_packed(whole, layout.word, offset as u32, count)
        };
        self.remember(buffer, key, v);
        Ok(v)
    }

    /// A unit is in bounds when its first element is: buffers are padded to whole units.
    fn unit_inside(&mut self, buffer: BufferId, base: &Int, unit: &Int, access: &Access) -> Int {
        if access.proved {
            return unit.clone();
        }
        let layout = self.layout(buffer);
        let (Some(n), Some(units)) = (layout.numel, layout.units()) else {
            self.proved = false;
            return unit.clone();
        };
        if self.ranges.prove(base, 0, n.saturating_sub(1) as i64) {
            return unit.clone();
        }
        self.clamp(unit, units.saturating_sub(1) as i64)
    }

    fn load_element(&mut self, buffer: BufferId, i: &Int) -> Result<Value, EmitError> {
        let layout = self.layout(buffer);
        let key = LoadKey::Decoded { base: i.clone(), count: 1 };
        if let Some(v) = self.b.remembered(buffer, &key) {
            return Ok(v);
        }
        let mut place = self.place_of(i, &layout);
        // A constant place in a vector comes from unrolling: its neighbours are wanted too, so the vector is read whole.
        let word = match place.part {
            Part::Word(c) if matches!(self.f.buffers[buffer].scope, Scope::Global | Scope::Shared) => {
                place.part = Part::Whole;
                let whole = self.load_part(buffer, &place)?;
                self.b.component(whole, c)
            }
            _ => self.load_part(buffer, &place)?,
        };
        let pack = layout.word.pack();
        let v = if pack == 1 {
            self.decode_native(word, layout.word, buffer)
        } else {
            let sub = self.ranges.simplify(&i.rem(i64::from(pack)));
            match sub.as_const() {
                Some(c) => self.decode_packed(word, layout.word, c as u32, 1),
                None => self.decode_one_of(word, layout.word, &sub)?,
            }
        };
        self.remember(buffer, key, v);
        Ok(v)
    }

    fn place_of(&mut self, i: &Int, layout: &Layout) -> Place {
        let pack = i64::from(layout.word.pack());
        let width = i64::from(layout.width);
        let unit = self.ranges.simplify(&i.div(layout.unit()));
        let part = if width == 1 {
            Part::Whole
        } else {
            let word = self.ranges.simplify(&i.div(pack).rem(width));
            match word.as_const() {
                Some(c) => Part::Word(c as u32),
                None => Part::Dynamic(word),
            }
        };
        Place { unit, part }
    }

    /// Registers are left to the driver's compiler; other loads are remembered until a store.
    fn remember(&mut self, buffer: BufferId, key: LoadKey, v: Value) {
        if self.f.buffers[buffer].scope != Scope::Register {
            self.b.remember(buffer, key, v);
        }
    }

    /// Reads a part of a unit, in its storage kind.
    fn load_part(&mut self, buffer: BufferId, place: &Place) -> Result<Value, EmitError> {
        let layout = self.layout(buffer);
        let kind = Self::word_kind(layout.word);
        let component = match place.part {
            Part::Whole => None,
            Part::Word(c) => Some(c),
            Part::Dynamic(_) => Some(u32::MAX),
        };
        let key = LoadKey::Memory { unit: place.unit.clone(), component: None };
        if let Some(whole) = self.b.remembered(buffer, &key) {
            match place.part {
                Part::Whole => return Ok(whole),
                Part::Word(c) => return Ok(self.b.component(whole, c)),
                Part::Dynamic(_) => {}
            }
        }
        let lanes = if component.is_none() { layout.width as u8 } else { 1 };
        let v = if layout.banks > 1 {
            self.load_banked(buffer, place, &layout, kind, lanes)?
        } else {
            let pointer = self.pointer(buffer, 0, place)?;
            let name = self.load_name(buffer);
            self.b.load(pointer, kind, lanes, name)
        };
        if component.is_none() {
            self.remember(buffer, key, v);
        }
        Ok(v)
    }

    fn load_name(&self, buffer: BufferId) -> Option<&'static str> {
        let b = &self.f.buffers[buffer];
        matches!(b.scope, Scope::Global | Scope::Shared).then(|| b.name.as_str())
    }

    /// A pointer into one bank of a buffer.
    fn pointer(&mut self, buffer: BufferId, bank: usize, place: &Place) -> Result<Handle<Expression>, EmitError> {
        let home = self.homes.get(&buffer).cloned().expect("every used buffer has a home");
        let (base, indexed) = match home {
            Home::Banks(list) => (self.b.global(list[bank]), true),
            Home::Workgroup(v) => (self.b.global(v), true),
            Home::Array(v) => (self.b.local(v), true),
            Home::Variables(_) => (self.register(buffer, &place.unit)?, false),
        };
        let mut pointer = base;
        if indexed {
            pointer = match place.unit.as_const().and_then(|c| u32::try_from(c).ok()) {
                Some(index) => self.b.emit(Expression::AccessIndex { base: pointer, index }),
                None => {
                    let index = self.int(&place.unit)?;
                    self.b.emit(Expression::Access { base: pointer, index })
                }
            };
        }
        Ok(match &place.part {
            Part::Whole => pointer,
            Part::Word(c) => self.b.emit(Expression::AccessIndex { base: pointer, index: *c }),
            Part::Dynamic(i) => {
                let index = self.int(i)?;
                self.b.emit(Expression::Access { base: pointer, index })
            }
        })
    }

    /// The variable of a register unit.
    fn register(&mut self, buffer: BufferId, unit: &Int) -> Result<Handle<Expression>, EmitError> {
        let b = &self.f.buffers[buffer];
        let layout = self.layout(buffer);
        let Some(unit) = unit.as_const() else {
            return Err(EmitError::unsupported(format!(
                "kernel `{}`: register buffer `{}` lost its constant index",
                self.kernel, b.name
            )));
        };
        let known = match self.homes.get(&buffer) {
            Some(Home::Variables(map)) => map.get(&unit).copied(),
            _ => None,
        };
        let var = match known {
            Some(v) => v,
            None => {
                let ty = self.b.lanes_ty(Self::word_kind(layout.word), layout.width as u8);
                let name = if layout.units() == Some(1) { b.name.to_string() } else { format!("{}_{unit}_", b.name) };
                let var = self.b.local_var(&name, ty);
                if let Some(Home::Variables(map)) = self.homes.get_mut(&buffer) {
                    map.insert(unit, var);
                }
                var
            }
        };
        Ok(self.b.local(var))
    }

    fn decode_native(&mut self, v: Value, word: Word, buffer: BufferId) -> Value {
        if self.f.buffers[buffer].dtype == compiler::dtype::DType::Bool {
            let zero = self.b.constant(Kind::U32, v.lanes, 0.0);
            return self.b.binary(B::NotEqual, v, zero);
        }
        if word == Word::F16 { self.b.convert(v, Kind::F32) } else { v }
    }

    /// `count` elements from `first` on of packed words.
    fn decode_packed(&mut self, words: Value, word: Word, first: u32, count: u8) -> Value {
        let pack = word.pack();
        let mut parts = Vec::with_capacity(count as usize);
        let mut e = first;
        while e < first + u32::from(count) {
            let w = self.b.component(words, e / pack);
            let take = (pack - e % pack).min(first + u32::from(count) - e);
            let all = self.unpack(w, word);
            if take == u32::from(count) && take == pack {
                return all;
            }
            for c in 0..take {
                parts.push(self.b.component(all, e % pack + c));
            }
            e += take;
        }
        self.b.compose(&parts)
    }

    /// All elements of a word as a vector.
    fn unpack(&mut self, w: Value, word: Word) -> Value {
        match word {
            Word::Halves => {
                self.b.capabilities |= naga::valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32;
                let v = self.b.math(M::Unpack2x16float, &[w]);
                Value { kind: Kind::F32, lanes: 2, ..v }
            }
            Word::BrainHalves => {
                let (shift, mask) =
                    (self.b.constant(Kind::U32, 1, 16.0), self.b.constant(Kind::U32, 1, 4_294_901_760.0));
                let low = self.b.binary(B::ShiftLeft, w, shift);
                let high = self.b.binary(B::And, w, mask);
                let v = self.b.compose(&[low, high]);
                self.b.bitcast(v, Kind::F32)
            }
            Word::Bytes { signed } => {
                let fun = if signed { M::Unpack4xI8 } else { M::Unpack4xU8 };
                let v = self.b.math(fun, &[w]);
                Value { kind: if signed { Kind::I32 } else { Kind::U32 }, lanes: 4, ..v }
            }
            _ => w,
        }
    }

    /// Element `sub` of a packed word, at run time.
    fn decode_one_of(&mut self, w: Value, word: Word, sub: &Int) -> Result<Value, EmitError> {
        let sub = self.int(sub)?;
        let sub = Value { handle: sub, kind: Kind::I32, lanes: 1 };
        let sub = self.b.bitcast(sub, Kind::U32);
        let bits = self.b.constant(Kind::U32, 1, if word.pack() == 2 { 16.0 } else { 8.0 });
        let by = self.b.mul(sub, bits);
        let low = self.b.binary(B::ShiftRight, w, by);
        let all = self.unpack(low, word);
        Ok(self.b.component(all, 0))
    }

    /// Stores `value` at `indices`.
    pub fn store(&mut self, buffer: BufferId, indices: &[Int], value: Value) -> Result<(), EmitError> {
        let access = resolve(&self.f.buffers[buffer], indices, self.lane, self.ranges);
        if let Scope::Subgroup { size, .. } = self.f.buffers[buffer].scope {
            self.check_own_lane(buffer, &access, size)?;
        }
        let layout = self.layout(buffer);
        match &access.form {
            Form::One(i) => {
                self.prove_store(&access, i, &layout);
                self.store_element(buffer, i, value, &layout)?;
            }
            Form::Run { base, count, align } => self.store_run(buffer, base, *count, *align, value, &access)?,
            Form::Each(list) => {
                for (k, i) in list.iter().enumerate() {
                    self.prove_store(&access, i, &layout);
                    let v = self.b.component(value, k as u32);
                    self.store_element(buffer, i, v, &layout)?;
                }
            }
        }
        self.b.forget(&|b| b == buffer);
        Ok(())
    }

    fn prove_store(&mut self, access: &Access, i: &Int, layout: &Layout) {
        let inside = access.proved || layout.numel.is_some_and(|n| self.ranges.prove(i, 0, n.saturating_sub(1) as i64));
        self.proved &= inside;
    }

    fn store_run(
        &mut self,
        buffer: BufferId,
        base: &Int,
        count: u8,
        align: i64,
        value: Value,
        access: &Access,
    ) -> Result<(), EmitError> {
        let layout = self.layout(buffer);
        let (unit, n, pack) = (layout.unit(), i64::from(count), i64::from(layout.word.pack()));
        let value = self.b.splat(value, count);
        if align >= unit && n % unit == 0 {
            self.prove_store(access, base, &layout);
            for k in 0..n / unit {
                let part = self.b.slice(value, (k * unit) as u32, unit as u8);
                let words = self.encode(part, &layout, buffer);
                let at = self.ranges.simplify(&(base.clone() + k * unit).div(unit));
                self.store_part(buffer, &Place { unit: at, part: Part::Whole }, words)?;
            }
            return Ok(());
        }
        if pack > 1 && align >= pack && n % pack == 0 {
            self.prove_store(access, base, &layout);
            for k in 0..n / pack {
                let part = self.b.slice(value, (k * pack) as u32, pack as u8);
                let word = self.encode(part, &layout, buffer);
                let at = self.ranges.simplify(&(base.clone() + k * pack));
                let place = self.place_of(&at, &layout);
                self.store_part(buffer, &place, word)?;
            }
            return Ok(());
        }
        for k in 0..n {
            let at = self.ranges.simplify(&(base.clone() + k));
            self.prove_store(access, &at, &layout);
            let v = self.b.component(value, k as u32);
            self.store_element(buffer, &at, v, &layout)?;
        }
        Ok(())
    }

    fn store_element(&mut self, buffer: BufferId, i: &Int, v: Value, layout: &Layout) -> Result<(), EmitError> {
        let pack = layout.word.pack();
        if pack > 1 {
            if layout.numel != Some(1) {
                return Err(EmitError::PackedStore { block: self.block, buffer: self.f.buffers[buffer].name });
            }
            let v = self.b.splat(v, pack as u8);
            let word = self.encode(v, layout, buffer);
            return self.store_part(buffer, &Place { unit: Int::new(0), part: Part::Whole }, word);
        }
        let word = self.encode(v, layout, buffer);
        let place = self.place_of(i, layout);
        self.store_part(buffer, &place, word)
    }

    /// A value as storage words.
    fn encode(&mut self, v: Value, layout: &Layout, buffer: BufferId) -> Value {
        let t = self.f.buffers[buffer].dtype;
        let v = if t == compiler::dtype::DType::Bool {
            let (one, zero) = (self.b.constant(Kind::U32, v.lanes, 1.0), self.b.constant(Kind::U32, v.lanes, 0.0));
            self.b.select(v, one, zero)
        } else {
            v
        };
        match layout.word {
            Word::F16 => self.b.convert(v, Kind::F16),
            Word::RoundedHalf => {
                self.b.capabilities |= naga::valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32;
                self.b.math(M::QuantizeToF16, &[v])
            }
            Word::Halves | Word::BrainHalves | Word::Bytes { .. } => {
                let pack = layout.word.pack() as u8;
                let mut words = Vec::new();
                for k in (0..v.lanes).step_by(pack as usize) {
                    let part = self.b.slice(v, u32::from(k), pack);
                    words.push(self.pack_word(part, layout.word));
                }
                self.b.compose(&words)
            }
            Word::F32 | Word::I32 | Word::U32 => v,
        }
    }

    fn pack_word(&mut self, v: Value, word: Word) -> Value {
        let one = |v: Value| Value { kind: Kind::U32, lanes: 1, ..v };
        match word {
            Word::Halves => {
                self.b.capabilities |= naga::valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32;
                one(self.b.math(M::Pack2x16float, &[v]))
            }
            Word::BrainHalves => {
                // Rounds to nearest even on the upper 16 bits; a NaN keeps its upper bits.
                let bits = self.b.bitcast(v, Kind::U32);
                let shift = self.b.constant(Kind::U32, 2, 16.0);
                let (one_bit, bias) = (self.b.constant(Kind::U32, 2, 1.0), self.b.constant(Kind::U32, 2, 32767.0));
                let upper = self.b.binary(B::ShiftRight, bits, shift);
                let odd = self.b.binary(B::And, upper, one_bit);
                let sum = self.b.add(bits, bias);
                let sum = self.b.add(sum, odd);
                let rounded = self.b.binary(B::ShiftRight, sum, shift);
                let mask = self.b.constant(Kind::U32, 2, f64::from(0x7fff_ffffu32));
                let magnitude = self.b.binary(B::And, bits, mask);
                let inf = self.b.constant(Kind::U32, 2, f64::from(0x7f80_0000u32));
                let nan = self.b.binary(B::Greater, magnitude, inf);
                let halves = self.b.select(nan, upper, rounded);
                let (low, high) = (self.b.component(halves, 0), self.b.component(halves, 1));
                let by = self.b.constant(Kind::U32, 1, 16.0);
                let high = self.b.binary(B::ShiftLeft, high, by);
                self.b.binary(B::InclusiveOr, low, high)
            }
            Word::Bytes { signed } => {
                let fun = if signed { M::Pack4xI8 } else { M::Pack4xU8 };
                one(self.b.math(fun, &[v]))
            }
            _ => v,
        }
    }

    fn store_part(&mut self, buffer: BufferId, place: &Place, v: Value) -> Result<(), EmitError> {
        let layout = self.layout(buffer);
        if layout.banks > 1 {
            return self.store_banked(buffer, place, &layout, v);
        }
        let pointer = self.pointer(buffer, 0, place)?;
        self.b.store(pointer, v.handle);
        Ok(())
    }

    /// Units of one bank, and the banks that a unit index can fall into.
    fn banks_of(&mut self, place: &Place, layout: &Layout) -> (i64, std::ops::Range<i64>) {
        let per_bank = (layout.bank_elements as i64 / layout.unit()).max(1);
        let (low, high) = self.ranges.span(&place.unit);
        let last = i64::from(layout.banks) - 1;
        let first = (low / per_bank).clamp(0, last);
        (per_bank, first..(high / per_bank).clamp(first, last) + 1)
    }

    fn in_bank(&mut self, place: &Place, bank: i64, per_bank: i64) -> Place {
        let unit = self.ranges.simplify(&(place.unit.clone() - bank * per_bank));
        Place { unit, part: place.part.clone() }
    }

    /// Reads from the bank that holds the unit, through a variable.
    fn load_banked(
        &mut self,
        buffer: BufferId,
        place: &Place,
        layout: &Layout,
        kind: Kind,
        lanes: u8,
    ) -> Result<Value, EmitError> {
        let (per_bank, banks) = self.banks_of(place, layout);
        if banks.end - banks.start == 1 {
            let local = self.in_bank(place, banks.start, per_bank);
            let pointer = self.pointer(buffer, banks.start as usize, &local)?;
            let name = self.load_name(buffer);
            return Ok(self.b.load(pointer, kind, lanes, name));
        }
        let ty = self.b.lanes_ty(kind, lanes);
        let name = format!("{}_banked", self.f.buffers[buffer].name);
        let var = self.b.local_var(&name, ty);
        let target = self.b.local(var);
        self.bank_chain(place, per_bank, banks, &mut |this, bank, local| {
            let pointer = this.pointer(buffer, bank as usize, local)?;
            let v = this.b.load(pointer, kind, lanes, None);
            this.b.store(target, v.handle);
            Ok(())
        })?;
        Ok(self.b.load(target, kind, lanes, None))
    }

    fn store_banked(&mut self, buffer: BufferId, place: &Place, layout: &Layout, v: Value) -> Result<(), EmitError> {
        let (per_bank, banks) = self.banks_of(place, layout);
        self.bank_chain(place, per_bank, banks, &mut |this, bank, local| {
            let pointer = this.pointer(buffer, bank as usize, local)?;
            this.b.store(pointer, v.handle);
            Ok(())
        })
    }

    /// `if unit < end of first bank { .. } else if .. else { last bank }`
    fn bank_chain(
        &mut self,
        place: &Place,
        per_bank: i64,
        banks: std::ops::Range<i64>,
        body: &mut dyn FnMut(&mut Self, i64, &Place) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        let bank = banks.start;
        let local = self.in_bank(place, bank, per_bank);
        if banks.end - bank == 1 {
            return body(self, bank, &local);
        }
        let unit = self.int(&place.unit)?;
        let unit = Value { handle: unit, kind: Kind::I32, lanes: 1 };
        let end = Value { handle: self.b.i32(((bank + 1) * per_bank).min(i64::from(i32::MAX)) as i32), ..unit };
        let here = self.b.binary(B::Less, unit, end);
        self.b.open();
        body(self, bank, &local)?;
        let accept = self.b.close();
        self.b.open();
        self.bank_chain(place, per_bank, bank + 1..banks.end, body)?;
        let reject = self.b.close();
        self.b.statement(Statement::If { condition: here.handle, accept, reject });
        Ok(())
    }

    /// True when `index % size` is this thread's place along x.
    fn is_own_lane(&mut self, index: &Int, size: i64) -> bool {
        let lane = self.ranges.simplify(&index.rem(size));
        match self.axes.local[0] {
            Some(a) if a.extent > 1 => {
                lane.as_var() == Some(a.var) || lane == self.ranges.simplify(&Int::var(a.var).rem(size))
            }
            _ => false,
        }
    }

    fn check_own_lane(&mut self, buffer: BufferId, access: &Access, size: u32) -> Result<(), EmitError> {
        let own = access.lane_index.iter().all(|i| self.is_own_lane(i, i64::from(size)));
        if own {
            return Ok(());
        }
        Err(EmitError::unsupported(format!(
            "block `{}` stores to `{}` outside its own lane ({:?} of {size})",
            self.block, self.f.buffers[buffer].name, access.lane_index
        )))
    }

    /// Reads a distributed buffer: the lane's own element, a constant lane's by broadcast, any other by shuffle.
    fn load_subgroup(&mut self, buffer: BufferId, access: &Access, size: u32) -> Result<Value, EmitError> {
        let size = i64::from(size);
        match (&access.form, access.lane_index.as_slice()) {
            (Form::Each(slots), lanes) => {
                let mut parts = Vec::with_capacity(slots.len());
                for (k, slot) in slots.iter().enumerate() {
                    let index = lanes[k.min(lanes.len() - 1)].clone();
                    let one = Access { form: Form::One(slot.clone()), lane_index: vec![index], proved: access.proved };
                    parts.push(self.load_subgroup(buffer, &one, size as u32)?);
                }
                Ok(self.b.compose(&parts))
            }
            (form, lanes) => {
                let index = lanes[0].clone();
                if self.is_own_lane(&index, size) {
                    return self.load_slot(buffer, form, access);
                }
                let lane = self.ranges.simplify(&index.rem(size));
                let (slot, count) = match form {
                    Form::One(i) => (i.clone(), 1),
                    Form::Run { base, count, .. } => (base.clone(), *count),
                    Form::Each(_) => unreachable!("handled above"),
                };
                let key = LoadKey::Gather { slot: slot.clone(), lane: lane.clone(), count };
                if let Some(v) = self.b.remembered(buffer, &key) {
                    return Ok(v);
                }
                let v = if self.axes.is_uniform(&slot) {
                    let own = self.load_slot(buffer, form, access)?;
                    self.gather(own, &lane)?
                } else {
                    self.gather_any_slot(buffer, &slot, count, &lane)?
                };
                self.b.remember(buffer, key, v);
                Ok(v)
            }
        }
    }

    fn load_slot(&mut self, buffer: BufferId, form: &Form, access: &Access) -> Result<Value, EmitError> {
        match form {
            Form::One(i) => {
                let i = self.inside(buffer, i, access);
                self.load_element(buffer, &i)
            }
            Form::Run { base, count, align } => self.load_run(buffer, base, *count, *align, access),
            Form::Each(_) => unreachable!("one access for each element"),
        }
    }

    /// The slot differs between lanes: every slot is shuffled, and the right one is chosen.
    fn gather_any_slot(&mut self, buffer: BufferId, slot: &Int, count: u8, lane: &Int) -> Result<Value, EmitError> {
        let n = self.layouts[&buffer].numel.unwrap_or(1) as i64;
        let mut parts = Vec::new();
        for k in 0..i64::from(count) {
            let at = self.ranges.simplify(&(slot.clone() + k));
            let at = self.int(&at)?;
            let at = Value { handle: at, kind: Kind::I32, lanes: 1 };
            let mut chosen: Option<Value> = None;
            for s in 0..n {
                let own = self.load_element(buffer, &Int::new(s))?;
                let v = self.gather(own, lane)?;
                chosen = Some(match chosen {
                    None => v,
                    Some(old) => {
                        let this = Value { handle: self.b.i32(s as i32), ..at };
                        let here = self.b.binary(B::Equal, at, this);
                        self.b.select(here, v, old)
                    }
                });
            }
            parts.extend(chosen);
        }
        Ok(self.b.compose(&parts))
    }

    fn gather(&mut self, v: Value, lane: &Int) -> Result<Value, EmitError> {
        self.b.capabilities |= naga::valid::Capabilities::SUBGROUP;
        let flag = v.kind == Kind::Bool;
        let v = if flag { self.b.convert(v, Kind::U32) } else { v };
        let mode = match lane.as_const() {
            Some(c) => naga::GatherMode::Broadcast(self.b.u32(c as u32)),
            None => {
                let handle = self.int(lane)?;
                let lane = Value { handle, kind: Kind::I32, lanes: 1 };
                naga::GatherMode::Shuffle(self.b.bitcast(lane, Kind::U32).handle)
            }
        };
        let ty = self.b.lanes_ty(v.kind, v.lanes);
        let result = self.b.declare(Expression::SubgroupOperationResult { ty });
        self.b.statement(Statement::SubgroupGather { mode, argument: v.handle, result });
        let out = Value { handle: result, ..v };
        if !flag {
            return Ok(out);
        }
        let zero = self.b.constant(Kind::U32, v.lanes, 0.0);
        Ok(self.b.binary(B::NotEqual, out, zero))
    }
}
