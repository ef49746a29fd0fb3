//! Published figures of GPUs: cores, clocks and memory, found by PCI id or by name.
//!
//! No graphics API reports these figures, and estimates, tiles and slices need them. A row has the values of a
//! product's page; the peak rate is computed: cores x operations per core and clock x clock. Ids come from
//! <https://pci-ids.ucw.cz>, libdrm's `amdgpu.ids` and Mesa's list for Intel. The clock is the highest published one
//! ("boost"); for an integrated GPU, the clock in its fastest processor, with the fastest memory that the processor
//! takes. A product without a row, or without a published figure, is measured instead: the table has no guesses.
//!
//! One id may stand for several products. Then the driver's device name decides, then the number of cores that the
//! driver counts, then the first row is taken.

mod amd;
mod apple;
mod family;
mod intel;
mod nvidia;
mod qualcomm;

use family::{Device, Family};

fn families() -> impl Iterator<Item = &'static Family> {
    [nvidia::FAMILIES, amd::FAMILIES, intel::FAMILIES, apple::FAMILIES, qualcomm::FAMILIES].into_iter().flatten()
}

/// A GPU with published figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KnownDevice {
    /// The product.
    pub name: &'static str,
    /// Its architecture.
    pub architecture: &'static str,
    /// Compute units, as the maker counts them.
    pub cores: u32,
    /// Peak rate of f32 multiplications and additions outside of matrix units, in 10^9 a second; 0 where it is not
    /// public.
    pub gflops: f64,
    /// The same in f16.
    pub f16_gflops: f64,
    /// Peak rate of device memory in 10^9 bytes a second.
    pub gb_s: f64,
    /// 32-bit registers of a thread (`DeviceProfile::registers`); 0 where that is not public.
    pub registers: u32,
    /// Bytes of the last-level cache, at least; 0 where that is not public.
    pub cache_bytes: u64,
}

impl KnownDevice {
    /// `cores`: the number that the driver counts, since products are also sold with fewer cores than their row has, at
    /// the same clock.
    fn new(family: &Family, device: &Device, cores: Option<u32>) -> KnownDevice {
        let cores = cores.unwrap_or(device.cores);
        let gflops = (f64::from(cores) * f64::from(family.flops) * f64::from(device.mhz) / 1e3).round();
        KnownDevice {
            name: device.name,
            architecture: family.architecture,
            cores,
            gflops,
            f16_gflops: gflops * family.f16,
            gb_s: device.gb_s,
            registers: family.registers,
            cache_bytes: (u64::from(cores) * u64::from(family.cache)) << 10,
        }
    }
    /// The product of this name, as a row has it.
    pub fn named(name: &str) -> Option<KnownDevice> {
        let mut rows = families().flat_map(|f| f.devices.iter().map(move |d| (f, d)));
        rows.find(|(_, d)| d.name == name).map(|(f, d)| KnownDevice::new(f, d, None))
    }
    /// The product behind an adapter: PCI ids of its maker and of itself (0 where the API gives none), the name that
    /// its driver gives it, and the cores that the driver counts, if it does.
    pub fn find(vendor: u32, device: u32, name: &str, cores: Option<u32>) -> Option<KnownDevice> {
        let known = families().any(|f| f.vendor == vendor);
        let of_maker = families().filter(|f| !known || f.vendor == vendor);
        let rows: Vec<_> = of_maker.flat_map(|f| f.devices.iter().map(move |d| (f, d))).collect();
        let same_id = rows.iter().filter(|(_, d)| known && d.ids.contains(&device)).copied();
        let same_id: Vec<(&Family, &Device)> = same_id.collect();
        let (words, counts) = (words(name), |d: &Device| cores == Some(d.cores));
        let called = |list: &[(&'static Family, &'static Device)]| {
            let mut same = list.iter().filter(|(_, d)| self::words(d.name) == words).copied();
            same.clone().find(|(_, d)| counts(d)).or_else(|| same.next())
        };
        let (family, device) = called(&same_id)
            .or_else(|| same_id.iter().find(|(_, d)| counts(d)).copied())
            .or_else(|| same_id.first().copied())
            .or_else(|| called(&rows))?;
        Some(KnownDevice::new(family, device, cores))
    }
}

/// The words of a name that distinguish products: without parentheses (trademarks, chips), the maker's name, and words
/// that only some drivers add.
fn words(name: &str) -> Vec<String> {
    let mut depth = 0_u32;
    let outside = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 && (c.is_alphanumeric() || c == '+') => return c.to_ascii_lowercase(),
            _ => {}
        }
        ' '
    };
    let text: String = name.chars().map(outside).collect();
    let said_or_not = ["nvidia", "amd", "intel", "qualcomm", "graphics", "series", "gpu", "tesla", "quadro"];
    text.split_whitespace().filter(|w| !said_or_not.contains(w)).map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NVIDIA: u32 = 0x10de;
    const AMD: u32 = 0x1002;
    const INTEL: u32 = 0x8086;

    fn found(vendor: u32, device: u32, name: &str, cores: Option<u32>) -> Option<(&'static str, u32, f64, f64)> {
        KnownDevice::find(vendor, device, name, cores).map(|k| (k.name, k.cores, k.gflops, k.gb_s))
    }

    #[test]
    fn rows_are_whole_and_each_can_be_found() {
        let mut rows = 0;
        for f in families() {
            assert!(f.flops > 0 && f.f16 > 0.0, "{}", f.architecture);
            for d in f.devices {
                rows += 1;
                assert!((1..=256).contains(&d.cores) && (10.0..10_000.0).contains(&d.gb_s), "{}", d.name);
                assert!(d.mhz == 0 || (500..4000).contains(&d.mhz), "{}", d.name);
                for &id in d.ids.iter().chain(d.ids.is_empty().then_some(&0)) {
                    let k = KnownDevice::find(f.vendor, id, d.name, None).expect("a row");
                    assert_eq!((k.name, k.architecture, k.cores), (d.name, f.architecture, d.cores), "{id:#x}");
                }
            }
        }
        assert!(rows > 200, "{rows}");
    }

    #[test]
    fn a_product_is_found_by_its_id_whatever_its_name_is() {
        let rtx_4090 = Some(("GeForce RTX 4090", 128, 82_575.0, 1008.0));
        assert_eq!(found(NVIDIA, 0x2684, "NVIDIA GeForce RTX 4090", None), rtx_4090);
        assert_eq!(found(NVIDIA, 0x2684, "Graphics Device", None), rtx_4090);
        assert_eq!(found(INTEL, 0x5690, "Intel(R) Graphics (DG2)", None), Some(("Arc A770M", 32, 13_517.0, 512.0)));
    }

    #[test]
    fn of_products_with_one_id_the_name_decides_then_the_cores() {
        let find = |name, cores| found(AMD, 0x744c, name, cores).map(|f| (f.0, f.1));
        assert_eq!(find("AMD Radeon RX 7900 XT (RADV NAVI31)", None), Some(("Radeon RX 7900 XT", 84)));
        assert_eq!(find("AMD Radeon Graphics (RADV NAVI31)", Some(84)), Some(("Radeon RX 7900 XT", 84)));
        assert_eq!(find("AMD Radeon Graphics (RADV NAVI31)", Some(96)), Some(("Radeon RX 7900 XTX", 96)));
        assert_eq!(find("AMD Radeon Graphics (RADV NAVI31)", None), Some(("Radeon RX 7900 XTX", 96)));
    }

    #[test]
    fn where_there_is_no_id_the_whole_name_decides() {
        assert_eq!(found(0, 0, "Apple M2 Max", None).map(|f| (f.0, f.1)), Some(("Apple M2 Max", 38)));
        assert_eq!(found(NVIDIA, 0, "NVIDIA GeForce RTX 3060 Laptop GPU", None).map(|f| f.1), Some(30));
        assert_eq!(found(INTEL, 0, "Intel(R) Arc(TM) A750 Graphics", None).map(|f| f.1), Some(28));
        // A part of a name is another product.
        assert_eq!(found(0, 0, "Apple M2 Extreme", None), None);
        assert_eq!(found(NVIDIA, 0, "NVIDIA GeForce RTX 4090 Super", None), None);
        assert_eq!(found(0x13b5, 0, "Mali-G78", None), None);
    }

    #[test]
    fn cores_that_the_driver_counts_make_the_rate() {
        // An id is its maker's alone.
        assert_eq!(found(0x1414, 0x2684, "Microsoft Basic Render Driver", None), None);
        let part = KnownDevice::find(NVIDIA, 0x2330, "NVIDIA H100 80GB HBM3", Some(66)).expect("a row");
        let whole = KnownDevice::named("H100 SXM5").expect("a row");
        assert_eq!((part.cores, part.gflops * 2.0, part.gb_s), (66, whole.gflops, whole.gb_s));
    }

    #[test]
    fn peak_rates_are_the_published_ones() {
        for (name, tflops) in [
            ("GeForce RTX 2080", 10.07),
            ("Tesla V100 SXM2 16GB", 15.7),
            ("A100-SXM4-40GB", 19.5),
            ("GeForce RTX 3090", 35.58),
            ("H100 SXM5", 66.9),
            ("GeForce RTX 5090", 104.8),
            ("Radeon RX 6800", 16.17),
            ("Radeon RX 7900 XTX", 61.4),
            ("Radeon RX 9070 XT", 48.7),
            ("Arc A770", 17.2),
            ("Apple M2", 3.6),
            ("Apple M1 Max", 10.4),
        ] {
            let k = KnownDevice::named(name).unwrap_or_else(|| panic!("{name}"));
            assert!((k.gflops / 1e3 / tflops - 1.0).abs() < 0.01, "{name}: {} GFLOP/s", k.gflops);
        }
        let half = |name: &str| KnownDevice::named(name).map(|k| k.f16_gflops / k.gflops);
        assert_eq!((half("GeForce GTX 1080"), half("A100-SXM4-40GB")), (Some(1.0 / 64.0), Some(4.0)));
    }
}
