//! Bytes that a run moves: between host and device, and copies on the device.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that one run has moved. Reads and writes of kernels, and copies in host functions, do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct Transfers {
    /// From the host to the device: inputs, and results of steps on the host.
    pub uploaded: u64,
    /// From the device to the host: results, operands of steps on the host, conditions of branches and loops.
    pub read_back: u64,
    /// From one buffer of the device to another: results of branches, carried values and collected rows of loops, and
    /// results whose given buffer could not be bound.
    pub copied: u64,
}

/// [`Transfers`] of the run that is under way.
#[derive(Default)]
pub(crate) struct Counters {
    uploaded: AtomicU64,
    read_back: AtomicU64,
    copied: AtomicU64,
}

impl Counters {
    pub(crate) fn upload(&self, bytes: u64) {
        self.uploaded.fetch_add(bytes, Ordering::Relaxed);
    }
    pub(crate) fn read_back(&self, bytes: u64) {
        self.read_back.fetch_add(bytes, Ordering::Relaxed);
    }
    pub(crate) fn copy(&self, bytes: u64) {
        self.copied.fetch_add(bytes, Ordering::Relaxed);
    }
    /// Bytes moved since the last [`Counters::reset`].
    pub(crate) fn so_far(&self) -> Transfers {
        let [uploaded, read_back, copied] =
            [&self.uploaded, &self.read_back, &self.copied].map(|n| n.load(Ordering::Relaxed));
        Transfers { uploaded, read_back, copied }
    }
    /// A run begins.
    pub(crate) fn reset(&self) {
        for n in [&self.uploaded, &self.read_back, &self.copied] {
            n.store(0, Ordering::Relaxed);
        }
    }
}
