//! Loads and stores of elements and vector units, in any kind of memory.

use crate::access::{Access, Form, resolve};
use crate::builder::{LoadKey, Value};
use crate::error::EmitError;
use crate::joined::VECTOR;
use crate::kernel::{KernelEmitter, StorageLocation};
use crate::layout::StorageLayout;
use naga::{Expression, Handle};
use tensor_ir::int::Int;
use tensor_ir::tir::{BufferId, Scope};

/// A part of a unit.
#[derive(Clone, Debug)]
pub(crate) enum UnitPart {
    Whole,
    Word(u32),
    Dynamic(Int),
}

/// An address in memory: a unit and the part of it.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub unit: Int,
    pub part: UnitPart,
}

impl KernelEmitter<'_> {
    pub fn layout(&self, b: BufferId) -> StorageLayout {
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

    /// `i` if it is proved in bounds here, else clamped into the buffer. The value of a load out of bounds is never
    /// used.
    pub fn inside(&mut self, buffer: BufferId, i: &Int, access: &Access) -> Int {
        if access.proved { i.clone() } else { self.clamp(i, &self.last_element(buffer)) }
    }

    fn last_element(&self, buffer: BufferId) -> Int {
        match self.layouts[&buffer].numel {
            Some(n) => Int::new(n.saturating_sub(1) as i64),
            None => self.f.buffers[buffer].numel() - 1,
        }
    }

    fn clamp(&mut self, i: &Int, last: &Int) -> Int {
        let below = match last.as_const() {
            Some(last) => self.ranges.prove(i, i64::MIN, last),
            None => self.ranges.prove_less(i, &(last.clone() + 1)),
        };
        let upper = if below { i.clone() } else { i.min(last) };
        if self.ranges.prove(i, 0, i64::MAX) { upper } else { upper.max(0) }
    }

    pub fn load_run(
        &mut self,
        buffer: BufferId,
        base: &Int,
        count: u8,
        align: i64,
        access: &Access,
    ) -> Result<Value, EmitError> {
        let layout = self.layout(buffer);
        let (unit, n) = (layout.unit(), i64::from(count));
        if unit >= n && align >= n && unit % n == 0 || unit > n && crate::lanes::is_multiple(base, unit) {
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
        let offset = if crate::lanes::is_multiple(base, unit_size) { Some(0) } else { offset.as_const() };
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
        let whole = self.load_part(buffer, &Address { unit, part: UnitPart::Whole })?;
        let v = if layout.word.pack() == 1 {
            let v = self.b.slice(whole, offset as u32, count);
            self.decode_native(v, layout.word, buffer)
        } else {
            self.decode_packed(whole, layout.word, buffer, offset as u32, count)
        };
        self.remember(buffer, key, v);
        Ok(v)
    }

    /// A unit is in bounds when its first element is: buffers are padded to whole units.
    fn unit_inside(&mut self, buffer: BufferId, base: &Int, unit: &Int, access: &Access) -> Int {
        if access.proved {
            return unit.clone();
        }
        let last = self.last_element(buffer);
        let here = match last.as_const() {
            Some(last) => self.ranges.prove(base, 0, last),
            None => self.ranges.prove_below(base, &(last.clone() + 1)),
        };
        if here {
            return unit.clone();
        }
        let last = self.ranges.simplify(&last.div(self.layouts[&buffer].unit()));
        self.clamp(unit, &last)
    }

    pub fn load_element(&mut self, buffer: BufferId, i: &Int) -> Result<Value, EmitError> {
        let layout = self.layout(buffer);
        let key = LoadKey::Decoded { base: i.clone(), count: 1 };
        if let Some(v) = self.b.remembered(buffer, &key) {
            return Ok(v);
        }
        let mut address = self.address_of(i, &layout);
        // A constant place in a vector comes from unrolling: its neighbours are wanted too, so the vector is read
        // whole.
        let word = match address.part {
            UnitPart::Word(c) if matches!(self.f.buffers[buffer].scope, Scope::Global | Scope::Shared) => {
                address.part = UnitPart::Whole;
                let whole = self.load_part(buffer, &address)?;
                self.b.component(whole, c)
            }
            _ => self.load_part(buffer, &address)?,
        };
        let pack = layout.word.pack();
        let v = if pack == 1 {
            self.decode_native(word, layout.word, buffer)
        } else {
            let sub = self.ranges.simplify(&i.rem(i64::from(pack)));
            match sub.as_const() {
                Some(c) => self.decode_packed(word, layout.word, buffer, c as u32, 1),
                None => self.decode_one_of(word, layout.word, buffer, &sub)?,
            }
        };
        self.remember(buffer, key, v);
        Ok(v)
    }

    /// The packed word that element `i` lies in, as it is stored.
    pub fn load_word(&mut self, buffer: BufferId, i: &Int) -> Result<Value, EmitError> {
        let layout = self.layout(buffer);
        let address = self.address_of(i, &layout);
        self.load_part(buffer, &address)
    }

    /// The words of four halves or bytes from `base` on, as they are stored.
    pub fn load_words(&mut self, buffer: BufferId, base: &Int, access: &Access) -> Result<Value, EmitError> {
        let (unit_size, pack) = (self.layout(buffer).unit(), i64::from(self.layout(buffer).word.pack()));
        let mut begins = |offset: &i64| {
            let first = self.ranges.simplify(&(base.clone() - *offset));
            unit_size == VECTOR || crate::lanes::is_multiple(&first, unit_size)
        };
        let Some(offset) = (0..unit_size).step_by(VECTOR as usize).find(&mut begins) else {
            let name = self.f.buffers[buffer].name;
            return Err(EmitError::unsupported(format!("`{name}` is read from within its words, at `{base}`")));
        };
        let unit = self.ranges.simplify(&base.div(unit_size));
        let unit = self.unit_inside(buffer, base, &unit, access);
        let whole = self.load_part(buffer, &Address { unit, part: UnitPart::Whole })?;
        Ok(self.b.slice(whole, (offset / pack) as u32, (VECTOR / pack) as u8))
    }

    /// Stores packed words whose first element is `base`.
    pub fn store_word(&mut self, buffer: BufferId, base: &Int, word: Value, access: &Access) -> Result<(), EmitError> {
        let layout = self.layout(buffer);
        self.prove_store(buffer, access, base, &layout);
        let address = match i64::from(word.lanes) == i64::from(layout.width) {
            true => Address { unit: self.ranges.simplify(&base.div(layout.unit())), part: UnitPart::Whole },
            false => self.address_of(base, &layout),
        };
        self.store_part(buffer, &address, word)?;
        self.b.forget(&|b| b == buffer);
        Ok(())
    }

    fn address_of(&mut self, i: &Int, layout: &StorageLayout) -> Address {
        let pack = i64::from(layout.word.pack());
        let width = i64::from(layout.width);
        let unit = self.ranges.simplify(&i.div(layout.unit()));
        let part = if width == 1 {
            UnitPart::Whole
        } else {
            let word = self.ranges.simplify(&i.div(pack).rem(width));
            match word.as_const() {
                Some(c) => UnitPart::Word(c as u32),
                None => UnitPart::Dynamic(word),
            }
        };
        Address { unit, part }
    }

    /// Registers are left to the driver's compiler; other loads are remembered until a store.
    pub fn remember(&mut self, buffer: BufferId, key: LoadKey, v: Value) {
        let volatile = match &key {
            LoadKey::Memory { unit } => self.is_volatile(unit),
            LoadKey::Decoded { base, .. } => self.is_volatile(base),
            LoadKey::Gather { slot, lane, .. } => self.is_volatile(slot) || self.is_volatile(lane),
        };
        if !volatile && self.f.buffers[buffer].scope != Scope::Register {
            self.b.remember(buffer, key, v);
        }
    }

    /// Reads a part of a unit, in its storage kind.
    fn load_part(&mut self, buffer: BufferId, address: &Address) -> Result<Value, EmitError> {
        let layout = self.layout(buffer);
        let kind = layout.word.kind();
        let component = match address.part {
            UnitPart::Whole => None,
            UnitPart::Word(c) => Some(c),
            UnitPart::Dynamic(_) => Some(u32::MAX),
        };
        let key = LoadKey::Memory { unit: address.unit.clone() };
        if let Some(whole) = self.b.remembered(buffer, &key) {
            match address.part {
                UnitPart::Whole => return Ok(whole),
                UnitPart::Word(c) => return Ok(self.b.component(whole, c)),
                UnitPart::Dynamic(_) => {}
            }
        }
        let lanes = if component.is_none() { layout.width as u8 } else { 1 };
        let v = if layout.slices > 1 {
            self.load_sliced(buffer, address, &layout, kind, lanes)?
        } else {
            let pointer = self.pointer(buffer, 0, address)?;
            let name = self.load_name(buffer);
            self.b.load(pointer, kind, lanes, name)
        };
        if component.is_none() {
            self.remember(buffer, key, v);
        }
        Ok(v)
    }

    pub fn load_name(&self, buffer: BufferId) -> Option<&'static str> {
        let b = &self.f.buffers[buffer];
        matches!(b.scope, Scope::Global | Scope::Shared).then(|| b.name.as_str())
    }

    /// A pointer into one slice of a buffer.
    pub fn pointer(
        &mut self,
        buffer: BufferId,
        slice: usize,
        address: &Address,
    ) -> Result<Handle<Expression>, EmitError> {
        let location = self.locations.get(&buffer).cloned().expect("every used buffer has a location");
        let (base, indexed) = match location {
            StorageLocation::Slices(list) => (self.b.global(list[slice]), true),
            StorageLocation::Workgroup(v) => (self.b.global(v), true),
            StorageLocation::Array(v) => (self.b.local(v), true),
            StorageLocation::Variables(_) => (self.register(buffer, &address.unit)?, false),
        };
        let mut pointer = base;
        if indexed {
            pointer = match address.unit.as_const().and_then(|c| u32::try_from(c).ok()) {
                Some(index) => self.b.emit(Expression::AccessIndex { base: pointer, index }),
                None => {
                    let shared = self.sum_from_shared_base(&address.unit)?;
                    let index = shared.map_or_else(|| self.int(&address.unit), Ok)?;
                    self.b.emit(Expression::Access { base: pointer, index })
                }
            };
        }
        Ok(match &address.part {
            UnitPart::Whole => pointer,
            UnitPart::Word(c) => self.b.emit(Expression::AccessIndex { base: pointer, index: *c }),
            UnitPart::Dynamic(i) => {
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
        let known = match self.locations.get(&buffer) {
            Some(StorageLocation::Variables(map)) => map.get(&unit).copied(),
            _ => None,
        };
        let var = match known {
            Some(v) => v,
            None => {
                let ty = self.b.lanes_ty(layout.word.kind(), layout.width as u8);
                let name = if layout.units() == Some(1) { b.name.to_string() } else { format!("{}_{unit}_", b.name) };
                let var = self.b.local_var(&name, ty);
                if let Some(StorageLocation::Variables(map)) = self.locations.get_mut(&buffer) {
                    map.insert(unit, var);
                }
                var
            }
        };
        Ok(self.b.local(var))
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
                self.prove_store(buffer, &access, i, &layout);
                self.store_element(buffer, i, value, &layout)?;
            }
            Form::Run { base, count, align } => self.store_run(buffer, base, *count, *align, value, &access)?,
            Form::Each(list) => {
                for (k, i) in list.iter().enumerate() {
                    self.prove_store(buffer, &access, i, &layout);
                    let v = self.b.component(value, k as u32);
                    self.store_element(buffer, i, v, &layout)?;
                }
            }
        }
        self.b.forget(&|b| b == buffer);
        Ok(())
    }

    fn prove_store(&mut self, buffer: BufferId, access: &Access, i: &Int, layout: &StorageLayout) {
        let inside = access.proved
            || match layout.numel {
                Some(n) => self.ranges.prove(i, 0, n.saturating_sub(1) as i64),
                None => self.ranges.prove_below(i, &self.f.buffers[buffer].numel()),
            };
        self.require(inside, |this| format!("block `{}` may store beyond its buffer, at `{i}`", this.block));
    }

    pub fn store_run(
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
            self.prove_store(buffer, access, base, &layout);
            for k in 0..n / unit {
                let part = self.b.slice(value, (k * unit) as u32, unit as u8);
                let words = self.encode(part, &layout, buffer);
                let at = self.ranges.simplify(&(base.clone() + k * unit).div(unit));
                self.store_part(buffer, &Address { unit: at, part: UnitPart::Whole }, words)?;
            }
            return Ok(());
        }
        if pack > 1 && align >= pack && n % pack == 0 {
            self.prove_store(buffer, access, base, &layout);
            for k in 0..n / pack {
                let part = self.b.slice(value, (k * pack) as u32, pack as u8);
                let word = self.encode(part, &layout, buffer);
                let at = self.ranges.simplify(&(base.clone() + k * pack));
                let address = self.address_of(&at, &layout);
                self.store_part(buffer, &address, word)?;
            }
            return Ok(());
        }
        for k in 0..n {
            let at = self.ranges.simplify(&(base.clone() + k));
            self.prove_store(buffer, access, &at, &layout);
            let v = self.b.component(value, k as u32);
            self.store_element(buffer, &at, v, &layout)?;
        }
        Ok(())
    }

    fn store_element(&mut self, buffer: BufferId, i: &Int, v: Value, layout: &StorageLayout) -> Result<(), EmitError> {
        let pack = layout.word.pack();
        if pack > 1 {
            if layout.numel != Some(1) {
                return Err(EmitError::PackedStore { block: self.block, buffer: self.f.buffers[buffer].name });
            }
            let v = self.b.splat(v, pack as u8);
            let word = self.encode(v, layout, buffer);
            return self.store_part(buffer, &Address { unit: Int::new(0), part: UnitPart::Whole }, word);
        }
        let word = self.encode(v, layout, buffer);
        let address = self.address_of(i, layout);
        self.store_part(buffer, &address, word)
    }

    fn store_part(&mut self, buffer: BufferId, address: &Address, v: Value) -> Result<(), EmitError> {
        let layout = self.layout(buffer);
        if layout.slices > 1 {
            return self.store_sliced(buffer, address, &layout, v);
        }
        let pointer = self.pointer(buffer, 0, address)?;
        self.b.store(pointer, v.handle);
        Ok(())
    }
}
