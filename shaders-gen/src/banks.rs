//! Buffers beyond one binding: the unit index chooses the bank.

use crate::builder::{Kind, Value};
use crate::error::EmitError;
use crate::kernel::KernelEmitter;
use crate::layout::Layout;
use crate::memory::Place;
use compiler::int::Interval;
use compiler::tir::BufferId;
use naga::{BinaryOperator as B, Statement};

impl KernelEmitter<'_> {
    /// Units of one bank, and the banks that a unit index can fall into.
    pub fn banks_of(&mut self, place: &Place, layout: &Layout) -> (i64, std::ops::Range<i64>) {
        let per_bank = (layout.bank_elements as i64 / layout.unit()).max(1);
        let Interval { low, high } = self.ranges.span(&place.unit);
        let last = i64::from(layout.banks) - 1;
        let first = (low / per_bank).clamp(0, last);
        (per_bank, first..(high / per_bank).clamp(first, last) + 1)
    }

    pub fn in_bank(&mut self, place: &Place, bank: i64, per_bank: i64) -> Place {
        let unit = self.ranges.simplify(&(place.unit.clone() - bank * per_bank));
        Place { unit, part: place.part.clone() }
    }

    /// Reads from the bank that holds the unit, through a variable.
    pub fn load_banked(
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

    pub fn store_banked(
        &mut self,
        buffer: BufferId,
        place: &Place,
        layout: &Layout,
        v: Value,
    ) -> Result<(), EmitError> {
        let (per_bank, banks) = self.banks_of(place, layout);
        self.bank_chain(place, per_bank, banks, &mut |this, bank, local| {
            let pointer = this.pointer(buffer, bank as usize, local)?;
            this.b.store(pointer, v.handle);
            Ok(())
        })
    }

    /// `if unit < end of first bank { .. } else if .. else { last bank }`
    pub fn bank_chain(
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
}
