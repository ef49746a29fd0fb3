//! Rows of the table: families of products, and products.

/// Common figures of the GPUs of an architecture.
pub(super) struct Family {
    /// As the maker calls it.
    pub architecture: &'static str,
    /// PCI id of the maker.
    pub vendor: u32,
    /// f32 operations of a core in a clock, outside of matrix units; a multiply-add is two.
    pub flops: u32,
    /// f16 operations in the time of an f32 one, outside of matrix units.
    pub f16: f64,
    /// 32-bit registers that a thread may have at the subgroup size that compilers prefer; 0 where that is not public.
    pub registers: u32,
    /// KiB of the last-level cache for each core, the least of the products; 0 where that is not public.
    pub cache: u32,
    pub devices: &'static [Device],
}

/// A product.
pub(super) struct Device {
    pub name: &'static str,
    /// PCI ids; none where the API gives none.
    pub ids: &'static [u32],
    /// Cores, in the maker's terms: SMs, CUs, Xe cores (subslices before Xe).
    pub cores: u32,
    /// 0 if the maker does not publish it.
    pub mhz: u32,
    pub gb_s: f64,
}

/// A row of a table on one line.
pub(super) const fn device(name: &'static str, ids: &'static [u32], cores: u32, mhz: u32, gb_s: f64) -> Device {
    Device { name, ids, cores, mhz, gb_s }
}
