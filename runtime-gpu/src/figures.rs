//! Cores and rates of an adapter, with the source of each: counted by the driver, else published by the maker, else
//! measured, else guessed.

use compiler::profile::{DeviceProfile, KnownDevice, OPERATIONS_A_CORE};
use compiler::trace::Ceilings;

/// Who says a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The driver, through a Vulkan extension.
    Driver,
    /// The maker, by the table of products in `compiler::profile`.
    Table,
    /// The system, which counts the processors that a software device runs on.
    System,
    /// A measurement on this device; cores then are those of a middling GPU that is as fast.
    Measured,
    /// A guess: the figure of a middling device.
    Guessed,
}

/// A figure and who says it.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, schemars::JsonSchema)]
pub struct Figure<T> {
    /// The figure.
    pub value: T,
    /// Where it comes from.
    pub from: Source,
}

/// Figures for schedules that no graphics API reports.
#[derive(Clone, PartialEq, Debug, serde::Serialize, schemars::JsonSchema)]
pub struct DeviceFigures {
    /// The product in the table; none for others.
    pub product: Option<&'static str>,
    /// Its architecture.
    pub architecture: Option<&'static str>,
    /// Compute units.
    pub cores: Figure<u32>,
    /// Peak rate of f32 multiplications and additions outside of matrix units, in 10^9 a second.
    pub gflops: Option<Figure<f64>>,
    /// The same in f16.
    pub f16_gflops: Option<Figure<f64>>,
    /// Peak rate of device memory in 10^9 bytes a second.
    pub gb_s: Option<Figure<f64>>,
    /// The same of what the last-level cache holds.
    pub cache_gb_s: Option<Figure<f64>>,
    /// The same of workgroup memory, without conflicts of banks.
    pub workgroup_gb_s: Option<Figure<f64>>,
    /// Rate of multiplications and additions of f16 by matrix units, in 10^9 a second.
    pub matrix_gflops: Option<Figure<f64>>,
    /// Rate of subgroup reductions: reduced values (one per lane) in 10^9 a second.
    pub subgroup_gops: Option<Figure<f64>>,
    /// Microseconds of a dispatch that depends on the one before.
    pub launch_us: Option<Figure<f64>>,
    /// 32-bit registers of a thread (`DeviceProfile::registers`), where they are known.
    #[serde(skip)]
    pub(crate) registers: Option<u32>,
}

impl DeviceFigures {
    /// `counted`: the cores that the driver counts, if it does.
    pub(crate) fn of(info: &wgpu::AdapterInfo, counted: Option<u32>) -> DeviceFigures {
        let software = info.device_type == wgpu::DeviceType::Cpu;
        let find = || KnownDevice::find(info.vendor, info.device, &info.name, counted);
        let known = if software { None } else { find() };
        let published = |rate: fn(&KnownDevice) -> f64| {
            known.as_ref().map(rate).filter(|&r| r > 0.0).map(|value| Figure { value, from: Source::Table })
        };
        let cores = match (software, counted, &known) {
            (true, ..) => {
                let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
                Figure { value: cpus, from: Source::System }
            }
            (_, Some(value), _) => Figure { value, from: Source::Driver },
            (_, _, Some(k)) => Figure { value: k.cores, from: Source::Table },
            _ => Figure { value: guess_cores(info.device_type), from: Source::Guessed },
        };
        DeviceFigures {
            product: known.map(|k| k.name),
            architecture: known.map(|k| k.architecture),
            cores,
            gflops: published(|k| k.gflops),
            f16_gflops: published(|k| k.f16_gflops),
            gb_s: published(|k| k.gb_s),
            cache_gb_s: None,
            workgroup_gb_s: None,
            matrix_gflops: None,
            subgroup_gops: None,
            launch_us: None,
            registers: known.map(|k| k.registers).filter(|&r| r > 0),
        }
    }
    /// True for a real GPU for which driver and table lack some figures, so that a measurement is useful.
    pub fn lacking(&self) -> bool {
        let unknown = self.cores.from == Source::Guessed || self.gflops.is_none() || self.gb_s.is_none();
        self.cores.from != Source::System && unknown
    }
    /// Sets measured figures of a real GPU where no better source exists.
    pub(crate) fn measured(&mut self, c: &Ceilings) {
        if self.cores.from == Source::System {
            return;
        }
        let from = Source::Measured;
        self.cache_gb_s = c.cache_gb_s.map(|value| Figure { value, from });
        self.workgroup_gb_s = c.workgroup_gb_s.map(|value| Figure { value, from });
        self.matrix_gflops = c.matrix_gflops.map(|value| Figure { value, from });
        self.subgroup_gops = c.subgroup_gops.map(|value| Figure { value, from });
        self.launch_us = c.launch_us.map(|value| Figure { value, from });
        if !self.lacking() {
            return;
        }
        self.gflops.get_or_insert(Figure { value: c.fma_gflops, from });
        self.gb_s.get_or_insert(Figure { value: c.copy_gb_s, from });
        if self.cores.from == Source::Guessed {
            let value = (c.fma_gflops / OPERATIONS_A_CORE).round().max(1.0) as u32;
            self.cores = Figure { value, from };
        }
    }
    /// Puts them into a profile.
    pub(crate) fn put(&self, p: &mut DeviceProfile) {
        p.cores = self.cores.value;
        p.gflops = self.gflops.map_or(0.0, |f| f.value);
        p.gb_s = self.gb_s.map_or(0.0, |f| f.value);
        p.cache_gb_s = self.cache_gb_s.map_or(0.0, |f| f.value);
        p.workgroup_gb_s = self.workgroup_gb_s.map_or(0.0, |f| f.value);
        p.matrix_gflops = self.matrix_gflops.map_or(0.0, |f| f.value);
        p.subgroup_gops = self.subgroup_gops.map_or(0.0, |f| f.value);
        p.launch_ns = self.launch_us.map_or(0.0, |f| f.value * 1e3);
        p.registers = self.registers.unwrap_or(p.registers);
    }
}

/// A middling number; a measurement corrects it.
fn guess_cores(kind: wgpu::DeviceType) -> u32 {
    if kind == wgpu::DeviceType::DiscreteGpu { 64 } else { 16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(kind: wgpu::DeviceType, vendor: u32, device: u32, name: &str) -> wgpu::AdapterInfo {
        let mut info = wgpu::AdapterInfo::new(kind, wgpu::Backend::Vulkan);
        (info.vendor, info.device, info.name) = (vendor, device, name.into());
        info
    }

    fn rates(fma_gflops: f64, copy_gb_s: f64) -> Ceilings {
        Ceilings { fma_gflops, copy_gb_s, launch_us: Some(4.5), ..Ceilings::default() }
    }

    fn cores(f: &DeviceFigures) -> (u32, Source) {
        (f.cores.value, f.cores.from)
    }

    #[test]
    fn the_driver_wins_over_the_table_and_that_over_a_guess() {
        let discrete = wgpu::DeviceType::DiscreteGpu;
        let ada = info(discrete, 0x10de, 0x2684, "NVIDIA GeForce RTX 4090");
        assert_eq!(cores(&DeviceFigures::of(&ada, None)), (128, Source::Table));
        let part = DeviceFigures::of(&ada, Some(64));
        assert_eq!(cores(&part), (64, Source::Driver));
        assert_eq!(part.gflops.map(|g| (g.value, g.from)), Some((41_288.0, Source::Table)));
        let unknown = DeviceFigures::of(&info(discrete, 0x1234, 1, "Graphics"), None);
        assert_eq!((cores(&unknown), unknown.gflops, unknown.lacking()), ((64, Source::Guessed), None, true));
        assert!(!part.lacking());
    }

    #[test]
    fn a_measurement_fills_what_is_missing_and_no_more() {
        let discrete = wgpu::DeviceType::DiscreteGpu;
        let mut unknown = DeviceFigures::of(&info(discrete, 0x1234, 1, "Graphics"), None);
        unknown.measured(&rates(1920.0, 100.0));
        assert_eq!((cores(&unknown), unknown.lacking()), ((10, Source::Measured), false));
        let mut counted = DeviceFigures::of(&info(discrete, 0x1234, 1, "Graphics"), Some(7));
        counted.measured(&rates(1920.0, 100.0));
        assert_eq!((cores(&counted), counted.gb_s.map(|g| g.value)), ((7, Source::Driver), Some(100.0)));
        let known = DeviceFigures::of(&info(discrete, 0x10de, 0x2684, ""), None);
        let mut same = known.clone();
        same.measured(&rates(1.0, 1.0));
        let mut p = DeviceProfile::baseline();
        same.put(&mut p);
        // Nobody publishes what a dispatch takes.
        assert_eq!(p.launch_ns, 4500.0);
        same.launch_us = None;
        assert_eq!(same, known);
        let software = info(wgpu::DeviceType::Cpu, 0x10005, 0, "llvmpipe");
        let mut before = DeviceFigures::of(&software, None);
        let after = before.clone();
        before.measured(&rates(1.0, 1.0));
        assert_eq!((before, after.cores.from), (after, Source::System));
    }

    #[test]
    fn an_adapter_gets_what_a_profile_of_its_product_has() {
        for (name, vendor, device) in [("navi31", 0x1002, 0x744c), ("bmg", 0x8086, 0xe20b), ("ada", 0x10de, 0x2684)] {
            let named = DeviceProfile::named(name).expect("a profile");
            let figures = DeviceFigures::of(&info(wgpu::DeviceType::DiscreteGpu, vendor, device, ""), None);
            let mut p = DeviceProfile { registers: 1, ..DeviceProfile::baseline() };
            figures.put(&mut p);
            let of = |p: &DeviceProfile| (p.cores, p.gflops, p.gb_s, p.registers);
            assert_eq!(of(&p), of(&named), "{name}");
        }
    }
}
