//! Qualcomm's GPUs, from the product brief of the Snapdragon X Elite: Qualcomm publishes figures for laptops only.

use super::family::{Family, device};

pub(super) const FAMILIES: &[Family] = &[Family {
    architecture: "Adreno X1",
    cache: 0,
    vendor: 0x5143,
    flops: 512,
    f16: 2.0,
    registers: 0,
    devices: &[device("Adreno X1-85", &[], 6, 1250, 135.0)],
}];
