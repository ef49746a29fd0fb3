//! Buffers distributed over the lanes of a subgroup.

use crate::access::{Access, Form};
use crate::builder::{Kind, LoadKey, Value};
use crate::error::EmitError;
use crate::kernel::KernelEmitter;
use naga::{BinaryOperator as B, Expression, Statement};
use tensor_ir::int::Int;
use tensor_ir::tir::BufferId;

impl KernelEmitter<'_> {
    /// True when `index % size` is this thread's place along x.
    pub fn is_own_lane(&mut self, index: &Int, size: i64) -> bool {
        let lane = self.ranges.simplify(&index.rem(size));
        match self.axes.local[0] {
            Some(a) if a.extent > 1 => {
                lane.as_var() == Some(a.var) || lane == self.ranges.simplify(&Int::var(a.var).rem(size))
            }
            _ => false,
        }
    }

    pub fn check_own_lane(&mut self, buffer: BufferId, access: &Access, size: u32) -> Result<(), EmitError> {
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
    pub fn load_subgroup(&mut self, buffer: BufferId, access: &Access, size: u32) -> Result<Value, EmitError> {
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
                self.remember(buffer, key, v);
                Ok(v)
            }
        }
    }

    pub fn load_slot(&mut self, buffer: BufferId, form: &Form, access: &Access) -> Result<Value, EmitError> {
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
    pub fn gather_any_slot(&mut self, buffer: BufferId, slot: &Int, count: u8, lane: &Int) -> Result<Value, EmitError> {
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

    pub fn gather(&mut self, v: Value, lane: &Int) -> Result<Value, EmitError> {
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
