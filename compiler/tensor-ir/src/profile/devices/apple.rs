//! Apple's GPUs, from Apple's announcements. Metal gives a name and no id. The announcements have cores and memory, and
//! the peak rates of the first two generations, from which the clocks are computed. For a chip that is sold with two
//! numbers of cores, the row has the larger.

use super::family::{Family, device};

pub(super) const FAMILIES: &[Family] = &[Family {
    architecture: "Apple",
    cache: 800,
    vendor: 0x106b,
    flops: 256,
    f16: 1.0,
    // 128 registers: not published by Apple, but found by reverse engineering (<https://github.com/dougallj/applegpu>).
    registers: 128,
    devices: &[
        device("Apple M1", &[], 8, 1278, 68.3),
        device("Apple M1 Pro", &[], 16, 1278, 200.0),
        device("Apple M1 Max", &[], 32, 1278, 400.0),
        device("Apple M1 Ultra", &[], 64, 1278, 800.0),
        device("Apple M2", &[], 10, 1398, 100.0),
        device("Apple M2 Pro", &[], 19, 1398, 200.0),
        device("Apple M2 Max", &[], 38, 1398, 400.0),
        device("Apple M2 Ultra", &[], 76, 1398, 800.0),
        device("Apple M3", &[], 10, 0, 100.0),
        device("Apple M3 Pro", &[], 18, 0, 150.0),
        device("Apple M3 Max", &[], 40, 0, 400.0),
        device("Apple M3 Ultra", &[], 80, 0, 819.0),
        device("Apple M4", &[], 10, 0, 120.0),
        device("Apple M4 Pro", &[], 20, 0, 273.0),
        device("Apple M4 Max", &[], 40, 0, 546.0),
        device("Apple M5", &[], 10, 0, 153.0),
    ],
}];
