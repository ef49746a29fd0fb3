//! Numbers of the plan's buffers: each storage location gets a buffer when it is first used.

use super::error::CompileError;
use super::forms::value_encoding;
use super::memory::SlotId;
use crate::arena::Arena;
use crate::define_id;
use crate::dtype::DType;
use crate::fingerprint::Fingerprint;
use crate::graph::{Module, TensorType};
use crate::name::Name;
use crate::plan::{BufferIndex, Content, HostContent, PlanBuffer};
use crate::profile::DeviceProfile;
use crate::report::MemoryReport;
use crate::tir::{Encoding, TensorFunction};
use rustc_hash::FxHashMap;
use std::sync::Arc;

define_id!(/// One of the different functions that pack constants when a session opens.
    PackerId);

/// The packers of a module; equal ones are one.
#[derive(Default)]
pub(super) struct Packers {
    list: Arena<PackerId, Arc<TensorFunction>>,
    /// By what they compute, and the storage form of what they make.
    known: FxHashMap<(Fingerprint, Option<Encoding>), PackerId>,
}

impl Packers {
    /// The id of a packer.
    pub fn add(&mut self, packer: &TensorFunction) -> PackerId {
        let list = &mut self.list;
        let made = packer.outputs().next().map(|b| packer.buffers[b].encoding);
        *self.known.entry((packer.form(&[]), made)).or_insert_with(|| list.push(Arc::new(packer.clone())))
    }
}

/// The identity of a buffer of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum BufferKey {
    /// The n-th input of the entry function.
    Input(usize),
    /// A constant as it is, or as a packer leaves it.
    Constant(Name, Option<PackerId>),
    /// A slot of the activation pool.
    Slot(SlotId),
    /// The n-th of the values that grow as a loop runs.
    Growing(usize),
    /// A tensor in host memory.
    Host(HostContent),
}

/// Gives keys their plan buffers.
pub(super) struct Numbering<'a> {
    numbers: FxHashMap<BufferKey, BufferIndex>,
    buffers: Vec<PlanBuffer>,
    packers: &'a Packers,
    module: &'a Module,
    profile: &'a DeviceProfile,
}

impl<'a> Numbering<'a> {
    /// Starts with the slots of the activation pool, of so many bytes.
    pub fn new(
        slots: &Arena<SlotId, u64>,
        packers: &'a Packers,
        module: &'a Module,
        profile: &'a DeviceProfile,
    ) -> Self {
        let mut n = Numbering { numbers: FxHashMap::default(), buffers: vec![], packers, module, profile };
        for (slot, &bytes) in slots.iter() {
            n.push(BufferKey::Slot(slot), Content::Pool, bytes);
        }
        n
    }

    fn push(&mut self, key: BufferKey, content: Content, bytes: u64) -> BufferIndex {
        let slice_bytes = if bytes <= self.profile.max_binding { bytes } else { self.profile.slice_bytes() };
        self.buffers.push(PlanBuffer { content, bytes, slice_bytes, encoding: None });
        self.numbers.insert(key, self.buffers.len() - 1);
        self.buffers.len() - 1
    }

    /// The buffer of `key`; `ty` is the type of its value, for an input.
    ///
    /// # Errors
    /// Data without a storage form on the device; bugs.
    pub fn number(&mut self, key: BufferKey, ty: Option<&TensorType>) -> Result<BufferIndex, CompileError> {
        if let Some(&n) = self.numbers.get(&key) {
            return Ok(n);
        }
        let bug = |m: &str| CompileError::Bug { at: "plan".into(), message: m.into() };
        let (content, elements, dtype) = match key {
            BufferKey::Growing(_) => return Ok(self.push(key, Content::Pool, 16)),
            BufferKey::Slot(_) => return Err(bug("a value without a slot")),
            BufferKey::Host(content) => return Ok(self.push(key, Content::Host(content), 0)),
            BufferKey::Input(i) => {
                let ty = ty.ok_or_else(|| bug("an input without a type"))?;
                (Content::Input(i), ty.numel().as_const().unwrap_or(0) as u64, ty.dtype)
            }
            BufferKey::Constant(name, packer) => {
                let c = self.module.constants.get(&name).ok_or_else(|| bug("a constant is missing"))?;
                let packer = packer.map(|p| self.packers.list[p].clone());
                let elements = match &packer {
                    Some(p) => packed_elements(p).ok_or_else(|| bug("a packer without a result"))?,
                    None => c.shape.iter().product::<usize>() as u64,
                };
                (Content::Constant { name, packer }, elements, c.dtype)
            }
        };
        let bytes = self.encoding(dtype)?.storage_bytes(dtype, elements);
        Ok(self.push(key, content, bytes))
    }

    /// The buffers whose keys are `wanted`, in order.
    pub fn of(&self, wanted: impl Fn(&BufferKey) -> bool) -> Vec<BufferIndex> {
        let mut out: Vec<BufferIndex> = self.numbers.iter().filter(|(key, _)| wanted(key)).map(|(_, &n)| n).collect();
        out.sort_unstable();
        out
    }

    /// The storage form of values of `dtype`.
    ///
    /// # Errors
    /// Data without one on the device.
    pub fn encoding(&self, dtype: DType) -> Result<Encoding, CompileError> {
        value_encoding(dtype, self.profile)
            .ok_or_else(|| CompileError::NeedsCpu(format!("{dtype} data is only held by the interpreter")))
    }

    /// All buffers, and the bytes of the constants among them in `memory`.
    pub fn finish(self, memory: &mut MemoryReport) -> Vec<PlanBuffer> {
        let constants = self.buffers.iter().filter(|b| matches!(b.content, Content::Constant { .. }));
        memory.weights = constants.map(|b| b.bytes).sum();
        self.buffers
    }
}

fn packed_elements(packer: &TensorFunction) -> Option<u64> {
    let result = packer.outputs().next()?;
    u64::try_from(packer.buffers[result].numel().as_const()?).ok()
}
