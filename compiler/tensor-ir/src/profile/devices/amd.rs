//! AMD's GPUs since Polaris, from AMD's product pages. Cores are CUs. Since RDNA 3 a CU issues two f32 operations at
//! once, and AMD's peak rates include that.

use super::family::{Family, device};

/// The ISA guides of all these: a thread has up to 256 vector registers.
const RDNA_2: Family =
    Family { architecture: "RDNA 2", cache: 128, vendor: 0x1002, flops: 128, f16: 2.0, registers: 256, devices: &[] };

pub(super) const FAMILIES: &[Family] = &[
    Family {
        architecture: "Polaris",
        cache: 56,
        f16: 1.0,
        devices: &[
            device("Radeon RX 580", &[0x67df], 36, 1340, 256.0),
            device("Radeon RX 570", &[0x67df], 32, 1244, 224.0),
            device("Radeon RX 480", &[0x67df], 36, 1266, 256.0),
            device("Radeon RX 470", &[0x67df], 32, 1206, 211.0),
        ],
        ..RDNA_2
    },
    Family {
        architecture: "Vega",
        cache: 64,
        devices: &[
            device("Radeon RX Vega 64", &[0x687f], 64, 1546, 483.8),
            device("Radeon RX Vega 56", &[0x687f], 56, 1471, 410.0),
            device("Radeon Vega Frontier Edition", &[0x6863], 64, 1600, 483.8),
            device("Radeon VII", &[0x66af], 60, 1750, 1024.0),
            // Raven Ridge.
            device("Radeon Vega 8", &[0x15dd], 8, 1100, 46.9),
            device("Radeon Vega 10", &[0x15dd], 10, 1300, 38.4),
            device("Radeon Vega 11", &[0x15dd], 11, 1250, 46.9),
            // Picasso.
            device("Radeon Vega 8", &[0x15d8], 8, 1250, 46.9),
            device("Radeon Vega 10", &[0x15d8], 10, 1400, 38.4),
            device("Radeon Vega 11", &[0x15d8], 11, 1400, 46.9),
            device("Ryzen 4000 (Renoir)", &[0x1636], 8, 2100, 68.3),
            device("Ryzen 5000 (Lucienne)", &[0x164c], 8, 1900, 68.3),
            device("Ryzen 5000 (Cezanne)", &[0x1638], 8, 2100, 68.3),
            device("Ryzen 5000 (Barcelo)", &[0x15e7], 8, 2000, 68.3),
        ],
        ..RDNA_2
    },
    Family {
        architecture: "RDNA",
        cache: 102,
        devices: &[
            device("Radeon RX 5700 XT", &[0x731f], 40, 1905, 448.0),
            device("Radeon RX 5700", &[0x731f], 36, 1725, 448.0),
            device("Radeon RX 5600 XT", &[0x731f], 36, 1560, 288.0),
            device("Radeon RX 5700M", &[0x731f], 36, 1720, 384.0),
            device("Radeon RX 5600M", &[0x731f], 36, 1265, 288.0),
            device("Radeon Pro W5700", &[0x7312], 36, 1930, 448.0),
            device("Radeon RX 5500 XT", &[0x7340], 22, 1845, 224.0),
            device("Radeon RX 5500", &[0x7340], 22, 1845, 224.0),
            device("Radeon RX 5500M", &[0x7340], 22, 1645, 224.0),
            device("Radeon RX 5300M", &[0x7340], 22, 1445, 168.0),
        ],
        ..RDNA_2
    },
    Family {
        devices: &[
            device("Radeon RX 6950 XT", &[0x73a5], 80, 2310, 576.0),
            device("Radeon RX 6900 XT", &[0x73af, 0x73bf], 80, 2250, 512.0),
            device("Radeon RX 6800 XT", &[0x73bf], 72, 2250, 512.0),
            device("Radeon RX 6800", &[0x73bf], 60, 2105, 512.0),
            device("Radeon Pro W6800", &[0x73a3], 60, 2320, 512.0),
            device("Radeon RX 6700 XT", &[0x73df], 40, 2581, 384.0),
            device("Radeon RX 6750 XT", &[0x73df], 40, 2600, 432.0),
            device("Radeon RX 6700", &[0x73df], 36, 2450, 320.0),
            device("Radeon RX 6800M", &[0x73df], 40, 2300, 384.0),
            device("Radeon RX 6700M", &[0x73df], 36, 2300, 320.0),
            device("Radeon RX 6650 XT", &[0x73ef], 32, 2635, 280.0),
            device("Radeon RX 6600 XT", &[0x73ff], 32, 2589, 256.0),
            device("Radeon RX 6600", &[0x73ff], 28, 2491, 224.0),
            device("Radeon RX 6600M", &[0x73ff], 28, 2177, 224.0),
            device("Radeon RX 6500 XT", &[0x743f], 16, 2815, 144.0),
            device("Radeon RX 6400", &[0x743f], 12, 2321, 128.0),
            device("Radeon 680M", &[0x1681], 12, 2400, 102.4),
            device("Radeon 660M", &[0x1681], 6, 1900, 102.4),
            device("Radeon 610M", &[0x1506], 2, 1900, 88.0),
            device("Ryzen 7000 (Raphael)", &[0x164e], 2, 2200, 83.2),
            device("Ryzen 9000 (Granite Ridge)", &[0x13c0], 2, 2200, 89.6),
            device("Custom GPU 0405", &[0x163f], 8, 1600, 88.0),
            device("Custom GPU 0932", &[0x1435], 8, 1600, 102.4),
        ],
        ..RDNA_2
    },
    Family {
        architecture: "RDNA 3",
        cache: 170,
        flops: 256,
        devices: &[
            device("Radeon RX 7900 XTX", &[0x744c], 96, 2500, 960.0),
            device("Radeon RX 7900 XT", &[0x744c], 84, 2400, 800.0),
            device("Radeon RX 7900 GRE", &[0x744c], 80, 2245, 576.0),
            device("Radeon RX 7900M", &[0x744c], 72, 2090, 576.0),
            device("Radeon Pro W7900", &[0x7448], 96, 2495, 864.0),
            device("Radeon RX 7800 XT", &[0x747e], 60, 2430, 624.0),
            device("Radeon RX 7700 XT", &[0x747e], 54, 2544, 432.0),
            device("Radeon RX 7600", &[0x7480], 32, 2655, 288.0),
            device("Radeon RX 7600 XT", &[0x7480], 32, 2755, 288.0),
            device("Radeon RX 7700S", &[0x7480], 32, 2500, 288.0),
            device("Radeon RX 7600S", &[0x7480], 28, 2200, 256.0),
            device("Radeon 780M", &[0x15bf, 0x1900], 12, 2900, 120.0),
            device("Radeon 760M", &[0x15bf, 0x1900], 8, 2800, 120.0),
            device("Radeon 740M", &[0x15bf, 0x15c8, 0x1901], 4, 2800, 120.0),
        ],
        ..RDNA_2
    },
    Family {
        architecture: "RDNA 3.5",
        cache: 128,
        flops: 256,
        devices: &[
            // With LPDDR5X-7500, as the page of the Ryzen AI 9 HX 370 first had it.
            device("Radeon 890M", &[0x150e], 16, 2900, 120.0),
            device("Radeon 880M", &[0x150e], 12, 2900, 120.0),
            device("Radeon 860M", &[0x1114], 8, 3000, 128.0),
            device("Radeon 840M", &[0x1114], 4, 2900, 128.0),
            device("Radeon 8060S", &[0x1586], 40, 2900, 256.0),
            device("Radeon 8050S", &[0x1586], 32, 2800, 256.0),
        ],
        ..RDNA_2
    },
    Family {
        architecture: "RDNA 4",
        cache: 1024,
        flops: 256,
        devices: &[
            device("Radeon RX 9070 XT", &[0x7550], 64, 2970, 640.0),
            device("Radeon RX 9070", &[0x7550], 56, 2520, 640.0),
            device("Radeon RX 9070 GRE", &[0x7550], 48, 2790, 432.0),
            device("Radeon AI PRO R9700", &[0x7551], 64, 2920, 640.0),
            device("Radeon RX 9060 XT", &[0x7590], 32, 3130, 320.0),
            device("Radeon RX 9060", &[0x7590], 28, 2990, 288.0),
        ],
        ..RDNA_2
    },
];
