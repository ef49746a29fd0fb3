//! The figures of one access.

use super::SECTOR_BYTES;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::tir::{Buffer, BufferId, Scope};

/// The traffic of one access of a block by a subgroup, for one pass through the block's unrolled and vectorised loops.
#[derive(Clone, PartialEq, Debug)]
pub struct AccessTraffic {
    /// The block.
    pub block: Name,
    /// The buffer.
    pub buffer: BufferId,
    /// Workgroup memory, else device memory.
    pub shared: bool,
    /// A store; else a load.
    pub store: bool,
    /// Executions per thread: the iterations of the serial loops around the block. 0 if an extent is not constant.
    pub times: u64,
    /// The innermost serial loop around the block that is not part of the access.
    pub inside: Option<Name>,
    /// Lanes that take part, of the first subgroup that does.
    pub lanes: u32,
    /// Subgroups of the workgroup that take part, as a share of all.
    pub share: f64,
    /// Accesses of a thread: vectors count once.
    pub accesses: u32,
    /// Bytes that a thread moves with each.
    pub width: u32,
    /// Bytes that the subgroup requests, each counted once.
    pub bytes: f64,
    /// Passes over the banks; 0 for device memory.
    pub passes: f64,
    /// Passes that the same bytes take without conflicts.
    pub least_passes: f64,
    /// Sectors of device memory; 0 for workgroup memory.
    pub sectors: f64,
    /// The figures hold for every place, not for one in the middle only.
    pub exact: bool,
    /// An index is loaded from memory: `bytes`, passes and sectors say nothing.
    pub unknown: bool,
}

impl AccessTraffic {
    /// Passes for each pass without conflicts; 1 is best.
    pub fn conflict(&self) -> f64 {
        if self.least_passes > 0.0 { self.passes / self.least_passes } else { 1.0 }
    }
    /// Share of the fetched bytes that is used; 1 is best.
    pub fn used(&self) -> f64 {
        if self.sectors > 0.0 { self.bytes / (self.sectors * SECTOR_BYTES as f64) } else { 1.0 }
    }
}

/// Bytes of an element of `buffer` in its memory: by its encoding in device memory; in workgroup memory f16 takes 2
/// bytes only on a device with f16.
pub fn element_bytes(buffer: &Buffer, profile: &DeviceProfile) -> f64 {
    let bits = buffer.encoding.element_bits(buffer.dtype);
    match buffer.scope {
        Scope::Global => f64::from(bits) / 8.0,
        _ if bits == 16 && !profile.f16 => 4.0,
        _ => f64::from(bits.min(32)) / 8.0,
    }
}
