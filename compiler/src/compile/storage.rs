//! Storage locations of values, and the plan's tensors in them.

use super::error::CompileError;
use super::memory::{PoolId, SlotId};
use super::numbering::{BufferKey, Numbering};
use crate::arena::Id;
use crate::graph::{Function, TensorType, ValueId};
use crate::int::Dim;
use crate::name::Name;
use crate::plan::{BufferIndex, BufferView, HostContent};
use crate::tir::Encoding;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::ops::Range;

/// Where a value lives, before slots are assigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StorageLocation {
    /// In the activation pool.
    Pool(PoolId),
    /// In a buffer of its own.
    Own(BufferKey),
}

impl StorageLocation {
    /// Constants are read from the module by the host.
    pub fn seen_by_host(self) -> StorageLocation {
        match self {
            StorageLocation::Own(BufferKey::Constant(name, _)) => {
                StorageLocation::Own(BufferKey::Host(HostContent::Constant(name)))
            }
            other => other,
        }
    }
    /// True for a tensor in host memory.
    pub fn is_on_host(self) -> bool {
        matches!(self, StorageLocation::Own(BufferKey::Host(_)))
    }
    /// The buffer, once the pool has slots.
    pub fn key(self, slots: &[SlotId]) -> BufferKey {
        match self {
            StorageLocation::Pool(id) => BufferKey::Slot(slots[id.index()]),
            StorageLocation::Own(key) => key,
        }
    }
}

/// The values of the entry function as tensors in plan buffers.
pub(super) struct Tensors<'a> {
    pub main: &'a Function,
    pub location: &'a FxHashMap<ValueId, StorageLocation>,
    pub slots: &'a [SlotId],
    /// Values whose first dimension a run decides.
    pub growing: &'a FxHashSet<ValueId>,
    pub numbering: Numbering<'a>,
}

impl Tensors<'_> {
    /// The buffer of a location; `ty` is the type of its value, for an input.
    pub fn buffer(&mut self, location: StorageLocation, ty: Option<&TensorType>) -> Result<BufferIndex, CompileError> {
        self.numbering.number(location.key(self.slots), ty)
    }

    /// A value in its buffer.
    pub fn view(&mut self, v: ValueId, location: StorageLocation, fallback: Name) -> Result<BufferView, CompileError> {
        let ty = self.main.ty(v);
        let buffer = self.buffer(location, Some(ty))?;
        let encoding = match location {
            StorageLocation::Own(BufferKey::Host(_)) => Encoding::Native,
            _ => self.numbering.encoding(ty.dtype)?,
        };
        let grows = self.growing.contains(&v);
        let rows = |d: &Dim| if grows { d.as_const().or(Some(0)) } else { d.as_const() };
        let shape = ty.shape.iter().map(|d| usize::try_from(rows(d)?).ok()).collect::<Option<Vec<usize>>>();
        let shape = shape
            .ok_or_else(|| CompileError::OpenDim { dim: format!("{:?}", ty.shape), value: fallback.to_string() })?;
        let name = self.main.values[v].name.unwrap_or(fallback);
        Ok(BufferView { name, buffer, dtype: ty.dtype, shape, encoding })
    }

    /// The buffers of these slots and of these tensors in host memory, as far as they are in use.
    pub fn buffers_of(&self, slots: &BTreeSet<SlotId>, on_host: &Range<usize>) -> Vec<BufferIndex> {
        let own = |key: &BufferKey| match key {
            BufferKey::Slot(slot) => slots.contains(slot),
            BufferKey::Host(HostContent::Value(n)) => on_host.contains(n),
            _ => false,
        };
        self.numbering.of(own)
    }

    /// Values as a host step sees them.
    pub fn on_host(&mut self, values: &[ValueId], fallback: Name) -> Result<Vec<BufferView>, CompileError> {
        values.iter().map(|&v| self.view(v, self.location[&v].seen_by_host(), fallback)).collect()
    }

    /// Values as a host function on device buffers sees them.
    pub fn on_device(&mut self, values: &[ValueId], fallback: Name) -> Result<Vec<BufferView>, CompileError> {
        values.iter().map(|&v| self.view(v, self.location[&v], fallback)).collect()
    }
}
