//! Buffers beyond one binding: the unit index selects the slice. Slices are several bindings of one kernel;
//! `Binding::slice` has the number.

use crate::builder::{Kind, Value};
use crate::error::EmitError;
use crate::kernel::KernelEmitter;
use crate::layout::StorageLayout;
use crate::memory::Address;
use naga::{BinaryOperator as B, Statement};
use tensor_ir::int::Interval;
use tensor_ir::tir::BufferId;

impl KernelEmitter<'_> {
    /// Units of one slice, and the slices that a unit index can fall into.
    pub fn slices_of(&mut self, address: &Address, layout: &StorageLayout) -> (i64, std::ops::Range<i64>) {
        let per_slice = (layout.slice_elements as i64 / layout.unit()).max(1);
        let Interval { low, high } = self.ranges.span(&address.unit);
        let last = i64::from(layout.slices) - 1;
        let first = (low / per_slice).clamp(0, last);
        (per_slice, first..(high / per_slice).clamp(first, last) + 1)
    }

    pub fn in_slice(&mut self, address: &Address, slice: i64, per_slice: i64) -> Address {
        let unit = self.ranges.simplify(&(address.unit.clone() - slice * per_slice));
        Address { unit, part: address.part.clone() }
    }

    /// Reads from the slice that holds the unit, through a variable.
    pub fn load_sliced(
        &mut self,
        buffer: BufferId,
        address: &Address,
        layout: &StorageLayout,
        kind: Kind,
        lanes: u8,
    ) -> Result<Value, EmitError> {
        let (per_slice, slices) = self.slices_of(address, layout);
        if slices.end - slices.start == 1 {
            let local = self.in_slice(address, slices.start, per_slice);
            let pointer = self.pointer(buffer, slices.start as usize, &local)?;
            let name = self.load_name(buffer);
            return Ok(self.b.load(pointer, kind, lanes, name));
        }
        let ty = self.b.lanes_ty(kind, lanes);
        let name = format!("{}_sliced", self.f.buffers[buffer].name);
        let var = self.b.local_var(&name, ty);
        let target = self.b.local(var);
        self.slice_chain(address, per_slice, slices, &mut |this, slice, local| {
            let pointer = this.pointer(buffer, slice as usize, local)?;
            let v = this.b.load(pointer, kind, lanes, None);
            this.b.store(target, v.handle);
            Ok(())
        })?;
        Ok(self.b.load(target, kind, lanes, None))
    }

    pub fn store_sliced(
        &mut self,
        buffer: BufferId,
        address: &Address,
        layout: &StorageLayout,
        v: Value,
    ) -> Result<(), EmitError> {
        let (per_slice, slices) = self.slices_of(address, layout);
        self.slice_chain(address, per_slice, slices, &mut |this, slice, local| {
            let pointer = this.pointer(buffer, slice as usize, local)?;
            this.b.store(pointer, v.handle);
            Ok(())
        })
    }

    /// `if unit < end of first slice { .. } else if .. else { last slice }`
    pub fn slice_chain(
        &mut self,
        address: &Address,
        per_slice: i64,
        slices: std::ops::Range<i64>,
        body: &mut dyn FnMut(&mut Self, i64, &Address) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        let slice = slices.start;
        let local = self.in_slice(address, slice, per_slice);
        if slices.end - slice == 1 {
            return body(self, slice, &local);
        }
        let unit = self.int(&address.unit)?;
        let unit = Value { handle: unit, kind: Kind::I32, lanes: 1 };
        let end = Value { handle: self.b.i32(((slice + 1) * per_slice).min(i64::from(i32::MAX)) as i32), ..unit };
        let here = self.b.binary(B::Less, unit, end);
        self.b.open();
        body(self, slice, &local)?;
        let accept = self.b.close();
        self.b.open();
        self.slice_chain(address, per_slice, slice + 1..slices.end, body)?;
        let reject = self.b.close();
        self.b.statement(Statement::If { condition: here.handle, accept, reject });
        Ok(())
    }
}
