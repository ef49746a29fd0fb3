//! Measured times of regions of external targets.

/// Nanoseconds of a run of a region.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RegionTimes {
    /// In the external target, without the copies of what crosses its border.
    pub target_ns: f64,
    /// In Weft's kernels on the device.
    pub weft_ns: f64,
}
