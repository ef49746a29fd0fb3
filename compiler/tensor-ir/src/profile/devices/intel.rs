//! Intel's GPUs since Gen9, from Intel's product pages. Cores are Xe cores; in older generations subslices of 8
//! execution units (Gen9, Gen11) and dual subslices of 16 (Xe-LP). An execution unit has 8 lanes, and 16 since Xe2.

use super::family::{Family, device};

/// 128 registers, of 16 lanes each since Xe2 and of 8 before.
const XE_HPG: Family =
    Family { architecture: "Xe-HPG", cache: 512, vendor: 0x8086, flops: 256, f16: 2.0, registers: 128, devices: &[] };

pub(super) const FAMILIES: &[Family] = &[
    Family {
        architecture: "Gen9",
        cache: 170,
        flops: 128,
        devices: &[
            device("HD Graphics 530", &[0x1912, 0x191b], 3, 1150, 34.1),
            device("HD Graphics 520", &[0x1916], 3, 1050, 34.1),
            device("HD Graphics 630", &[0x5912, 0x591b], 3, 1150, 38.4),
            device("HD Graphics 620", &[0x5916], 3, 1150, 34.1),
            device("UHD Graphics 620", &[0x3ea0, 0x3ea9, 0x5917], 3, 1150, 38.4),
            device("UHD Graphics 630", &[0x3e91, 0x3e92, 0x3e98, 0x3e9b], 3, 1200, 42.7),
            device("UHD Graphics 630", &[0x9bc5, 0x9bc8], 3, 1200, 46.9),
            device("Iris Plus Graphics 655", &[0x3ea5], 6, 1200, 38.4),
        ],
        ..XE_HPG
    },
    Family {
        architecture: "Gen11",
        cache: 384,
        flops: 128,
        devices: &[
            device("Iris Plus Graphics G7", &[0x8a51, 0x8a52, 0x8a53], 8, 1100, 59.7),
            device("Iris Plus Graphics G4", &[0x8a5a, 0x8a5c], 6, 1050, 59.7),
        ],
        ..XE_HPG
    },
    Family {
        architecture: "Xe-LP",
        cache: 256,
        devices: &[
            device("Iris Xe Graphics", &[0x9a49], 6, 1400, 68.3),
            device("Iris Xe Graphics", &[0x9a40], 6, 1100, 68.3),
            device("Iris Xe Graphics", &[0x46a6], 6, 1450, 83.2),
            device("Iris Xe Graphics", &[0x46a8], 6, 1250, 83.2),
            device("Iris Xe Graphics", &[0xa7a0], 6, 1500, 102.4),
            device("Iris Xe Graphics", &[0xa7a1], 6, 1300, 102.4),
            device("UHD Graphics 750", &[0x4c8a], 2, 1300, 51.2),
            device("UHD Graphics 770", &[0x4690], 2, 1550, 76.8),
            device("UHD Graphics 770", &[0xa780], 2, 1650, 89.6),
        ],
        ..XE_HPG
    },
    Family {
        devices: &[
            device("Arc A770", &[0x56a0], 32, 2100, 560.0),
            device("Arc A750", &[0x56a1], 28, 2050, 512.0),
            device("Arc A580", &[0x56a2], 24, 1700, 512.0),
            device("Arc A380", &[0x56a5], 8, 2000, 186.0),
            device("Arc A310", &[0x56a6], 6, 2000, 124.0),
            device("Arc A770M", &[0x5690], 32, 1650, 512.0),
            device("Arc A730M", &[0x5691], 24, 1100, 336.0),
            device("Arc A550M", &[0x5692], 16, 900, 224.0),
            device("Arc A370M", &[0x5693], 8, 1550, 112.0),
            device("Arc A350M", &[0x5694], 6, 1150, 112.0),
        ],
        ..XE_HPG
    },
    Family {
        architecture: "Xe-LPG",
        cache: 512,
        devices: &[
            // Core Ultra of the H series, then of the U series.
            device("Meteor Lake, 8 Xe cores", &[0x7d55], 8, 2350, 119.5),
            device("Meteor Lake, 4 Xe cores", &[0x7d45], 4, 2000, 119.5),
            device("Arrow Lake, 8 Xe cores", &[0x7d51], 8, 2350, 134.4),
            device("Arrow Lake, 4 Xe cores", &[0x7d67], 4, 2000, 102.4),
        ],
        ..XE_HPG
    },
    Family {
        architecture: "Xe2",
        cache: 900,
        devices: &[
            device("Arc B580", &[0xe20b], 20, 2670, 456.0),
            device("Arc B570", &[0xe20c], 18, 2500, 380.0),
            device("Arc Pro B60", &[0xe211], 20, 2400, 456.0),
            device("Arc Pro B50", &[0xe212], 16, 2600, 224.0),
            // Ids of the chip that are no product's: the whole chip, which the B580 is.
            device("Battlemage G21", &[0xe202, 0xe20d, 0xe210, 0xe215, 0xe216], 20, 2670, 456.0),
            // Of the Core Ultra 9 288V, with LPDDR5X-8533.
            device("Arc 140V", &[0x64a0], 8, 2050, 136.5),
            device("Arc 130V", &[0x64a0], 7, 1850, 136.5),
        ],
        ..XE_HPG
    },
];
