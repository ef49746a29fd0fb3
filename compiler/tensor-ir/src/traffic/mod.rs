//! Memory traffic of scheduled kernels: for every access of a subgroup, the passes over the banks of workgroup memory
//! and the sectors of device memory. Estimates, explanations and tests use it; `cargo xtask gpu-report` compares it
//! with the compilers of real GPUs.
//!
//! [`traffic`] takes the body of one kernel (anything below [`Stmt::Kernel`], or a nest that will become one) and gives
//! an [`AccessTraffic`] for each load and store of workgroup and device memory. [`Totals`] sums them by kind, each
//! times the number of executions per thread.
//!
//! The model is the usual one. Workgroup memory has [`BANKS`] banks of 4 bytes: a pass serves one word of each bank,
//! and lanes that read the same word share it. Device memory is fetched in sectors of [`SECTOR_BYTES`]. Neighbouring
//! elements that one thread accesses in unrolled or vectorised iterations, up to 16 aligned bytes, are one access, as
//! in shaders and drivers; an element that is loaded again counts once.
//!
//! The figures are exact if the flattened index is affine in the thread's position, or if its non-affine parts do not
//! mix threads with other variables ([`AccessTraffic::exact`]): then banks do not depend on the position of the
//! subgroup, and for sectors the mean over all alignments is taken. Otherwise they are the figures of one position in
//! the middle of the ranges. An index that is loaded from memory has no figures.
//!
//! Deliberately absent: caches, the phases in which some devices serve wide accesses, and tails (all lanes are assumed
//! to be inside).

mod access;
mod figures;
mod offsets;
mod rounds;
#[cfg(test)]
mod tests;
mod transactions;

use crate::profile::DeviceProfile;
use crate::tir::{BufferId, Stmt, TensorFunction};

pub use figures::{AccessTraffic, element_bytes};
pub use transactions::{BANK_BYTES, BANKS, SECTOR_BYTES, bank_passes};

/// Sums over accesses, each as often as a thread does it.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Totals {
    /// Accesses.
    pub accesses: f64,
    /// Bytes that a subgroup requests.
    pub bytes: f64,
    /// Passes over the banks.
    pub passes: f64,
    /// Passes without conflicts.
    pub least_passes: f64,
    /// Sectors.
    pub sectors: f64,
}

impl Totals {
    /// The sum over those of `list` that `which` picks.
    pub fn of(list: &[AccessTraffic], which: impl Fn(&AccessTraffic) -> bool) -> Totals {
        let mut sum = Totals::default();
        for a in list.iter().filter(|a| which(a) && !a.unknown) {
            let times = a.times as f64 * a.share;
            sum.accesses += times * f64::from(a.accesses);
            sum.bytes += times * a.bytes;
            sum.passes += times * a.passes;
            sum.least_passes += times * a.least_passes;
            sum.sectors += times * a.sectors;
        }
        sum
    }
}

/// Every access of `kernel`, a kernel's body in `f`, to workgroup and device memory, in the order of the blocks; a
/// block's loads come before its store. A device whose subgroup size is not known is taken to have 32 lanes.
pub fn traffic(f: &TensorFunction, kernel: &Stmt, profile: &DeviceProfile) -> Vec<AccessTraffic> {
    access::Kernel::new(f, kernel, profile).accesses()
}

/// Sectors that lanes touch which access `width` bytes at `starts` (bytes) together.
pub fn touched_sectors(starts: &[i64], width: i64) -> f64 {
    transactions::sectors(starts, width, SECTOR_BYTES)
}

/// Accesses of a thread to elements of `element` bytes of device memory, and the sectors that the lanes touch with
/// them. The elements come by unrolled iteration and lane, as flattened indices; other variables move all lanes by sums
/// of `moves`.
pub fn unrolled_accesses(each: Vec<Vec<i64>>, moves: &[i64], element: f64) -> (f64, f64) {
    offsets::unrolled(each, moves, element)
}

/// The accesses of `f`'s kernels in words, a line for each kernel and buffer: what an explanation shows.
pub fn describe(f: &TensorFunction, profile: &DeviceProfile) -> Vec<String> {
    let mut out = Vec::new();
    for (name, body) in f.kernels() {
        let list = traffic(f, body, profile);
        let mut buffers: Vec<(BufferId, bool)> = Vec::new();
        for a in &list {
            if !buffers.contains(&(a.buffer, a.store)) {
                buffers.push((a.buffer, a.store));
            }
        }
        for (buffer, store) in buffers {
            let of = |a: &AccessTraffic| a.buffer == buffer && a.store == store;
            let verb = if store { "stores to" } else { "loads from" };
            let what = format!("{name} {verb} {}", f.buffers[buffer].name);
            let mine: Vec<&AccessTraffic> = list.iter().filter(|a| of(a)).collect();
            if mine.iter().any(|a| a.unknown) {
                out.push(format!("{what} at places that data decides"));
                continue;
            }
            let t = Totals::of(&list, of);
            let width = mine.iter().map(|a| a.width).max().unwrap_or(0);
            let about = if mine.iter().all(|a| a.exact) { "" } else { "about " };
            out.push(match mine.first().is_some_and(|a| a.shared) {
                true => format!(
                    "{what}: {width} bytes a lane, {about}{:.2} passes for each needed",
                    t.passes / t.least_passes.max(1.0)
                ),
                false => {
                    let used = 100.0 * t.bytes / (t.sectors * SECTOR_BYTES as f64).max(1.0);
                    format!("{what}: {width} bytes a lane, {about}{used:.0}% of the fetched bytes used")
                }
            });
        }
    }
    out
}
