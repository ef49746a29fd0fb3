//! Places of values, and the tensors of the plan that they become.

use super::CompileError;
use super::memory::{PoolId, SlotId};
use super::numbering::{BufferKey, Numbering};
use crate::arena::Id;
use crate::graph::{Function, TensorType, ValueId};
use crate::name::Name;
use crate::plan::{BufferIndex, HostContent, TensorSlot};
use crate::tir::Encoding;
use rustc_hash::FxHashMap;

/// Where a value lives, before slots are assigned.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// In the activation pool.
    Pool(PoolId),
    /// In a buffer of its own.
    Own(BufferKey),
}

impl Place {
    /// Constants are read from the module by the host.
    pub fn seen_by_host(self) -> Place {
        match self {
            Place::Own(BufferKey::Constant(name, _)) => Place::Own(BufferKey::Host(HostContent::Constant(name))),
            other => other,
        }
    }
    /// The buffer, once the pool has slots.
    pub fn key(self, slots: &[SlotId]) -> BufferKey {
        match self {
            Place::Pool(id) => BufferKey::Slot(slots[id.index()]),
            Place::Own(key) => key,
        }
    }
}

/// The values of the entry function as tensors in plan buffers.
pub(super) struct Tensors<'a> {
    pub main: &'a Function,
    pub place: &'a FxHashMap<ValueId, Place>,
    pub slots: &'a [SlotId],
    pub numbering: Numbering<'a>,
}

impl Tensors<'_> {
    /// The buffer of a place; `ty` is the type of its value, for an input.
    pub fn buffer(&mut self, place: Place, ty: Option<&TensorType>) -> Result<BufferIndex, CompileError> {
        self.numbering.number(place.key(self.slots), ty)
    }

    /// A value in its buffer.
    pub fn slot(&mut self, v: ValueId, place: Place, fallback: Name) -> Result<TensorSlot, CompileError> {
        let ty = self.main.ty(v);
        let buffer = self.buffer(place, Some(ty))?;
        let encoding = match place {
            Place::Own(BufferKey::Host(_)) => Encoding::Native,
            _ => self.numbering.encoding(ty.dtype)?,
        };
        let shape = ty
            .const_shape()
            .ok_or_else(|| CompileError::OpenDim { dim: format!("{:?}", ty.shape), value: fallback.to_string() })?;
        let name = self.main.values[v].name.unwrap_or(fallback);
        Ok(TensorSlot { name, buffer, dtype: ty.dtype, shape, encoding })
    }

    /// Values as a host step sees them.
    pub fn on_host(&mut self, values: &[ValueId], fallback: Name) -> Result<Vec<TensorSlot>, CompileError> {
        values.iter().map(|&v| self.slot(v, self.place[&v].seen_by_host(), fallback)).collect()
    }
}
