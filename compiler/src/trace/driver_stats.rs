//! Statistics that a driver's compiler reports about its kernels: in the driver's own terms, and as common figures.
//!
//! Drivers name their statistics freely (`VK_KHR_pipeline_executable_properties` defines no names). The list is kept
//! unchanged; [`Executable::figures`] finds statistics in it that several drivers have, under one name. A statistic
//! without a row in `KNOWN` is only in the list.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Statistics of a driver's compiler about the kernels of a compiled model.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DriverStats {
    /// Name of the device, its backend and its driver.
    pub device: String,
    /// Executables of each kernel, kernels in the plan's order. A driver may make several of one, for subgroups of
    /// several sizes.
    pub kernels: Vec<Vec<Executable>>,
}

/// A piece of code that a driver made of a kernel.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Executable {
    /// The driver's name for it.
    pub name: String,
    /// Lanes of a subgroup that it was compiled for; 0 if the driver does not say.
    pub subgroup_size: u32,
    /// The driver's statistics, in its order.
    pub statistics: Vec<Statistic>,
    /// The device's own instructions, where the driver gives them as text.
    pub isa: Option<String>,
}

/// A statistic under the driver's name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Statistic {
    /// The driver's name for it.
    pub name: String,
    /// Its meaning, in the driver's words.
    pub meaning: String,
    /// The number.
    pub value: StatisticValue,
}

/// A statistic's number, of the type that the driver gives it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum StatisticValue {
    /// Yes or no.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Float(f64),
}

impl StatisticValue {
    /// The number as JSON has it; null where that has none for it.
    pub fn to_json(self) -> Value {
        match self {
            StatisticValue::Bool(v) => v.into(),
            StatisticValue::Int(v) => v.into(),
            StatisticValue::Uint(v) => v.into(),
            StatisticValue::Float(v) => v.into(),
        }
    }
    /// A count: whole and not negative.
    fn count(self) -> Option<u64> {
        match self {
            StatisticValue::Uint(v) => Some(v),
            StatisticValue::Int(v) => u64::try_from(v).ok(),
            StatisticValue::Float(v) if v >= 0.0 && v.fract() == 0.0 && v < 2f64.powi(53) => Some(v as u64),
            StatisticValue::Float(_) | StatisticValue::Bool(_) => None,
        }
    }
}

/// Statistics that several drivers have, under common names. `None` if the driver does not report it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Figures {
    /// Registers of a thread: vector registers on AMD (of 32 bits a lane), general registers on NVIDIA.
    pub registers: Option<u64>,
    /// Scalar registers: one per subgroup, for values that all its lanes share.
    pub scalar_registers: Option<u64>,
    /// The most registers that hold something at one place of the code, before they are assigned.
    pub live_registers: Option<u64>,
    /// Spilled registers, or instructions that spill them.
    pub spills: Option<u64>,
    /// Instructions that read such contents back.
    pub fills: Option<u64>,
    /// Bytes of device memory of a thread (AMD, Intel: a subgroup's lane) for spills and arrays.
    pub scratch_bytes: Option<u64>,
    /// Bytes of workgroup memory.
    pub shared_bytes: Option<u64>,
    /// Subgroups that can be resident at once in the unit that `occupancy_of` names.
    pub occupancy: Option<u64>,
    /// `SIMD` on AMD, `SM` on NVIDIA.
    pub occupancy_of: Option<&'static str>,
    /// Bytes of machine code.
    pub code_bytes: Option<u64>,
    /// Instructions in the code.
    pub instructions: Option<u64>,
    /// Cycles from the first to the last instruction by the driver's own model, which does not know numbers of loop
    /// iterations.
    pub latency_cycles: Option<u64>,
}

/// How a statistic goes into the figures.
type Put = fn(&mut Figures, u64);

/// Adds to a figure of several statistics.
fn add(figure: &mut Option<u64>, v: u64) {
    *figure = Some(figure.unwrap_or(0) + v);
}

/// Names of statistics (any case) and their figures: Mesa's RADV, ANV (names of two generations) and NVK, and NVIDIA's
/// own driver. No two drivers use one name for different things. ANV reports 0 registers if they are not assigned one
/// by one.
const KNOWN: &[(&str, Put)] = &[
    ("VGPRs", |f, v| f.registers = Some(v)),
    ("Number of GPRs", |f, v| f.registers = Some(v)),
    ("Register Count", |f, v| f.registers = Some(v)),
    ("GRF registers", |f, v| f.registers = Some(v).filter(|v| *v > 0)),
    ("SGPRs", |f, v| f.scalar_registers = Some(v)),
    ("Max live registers", |f, v| f.live_registers = Some(v)),
    ("Spilled VGPRs", |f, v| add(&mut f.spills, v)),
    ("Spilled SGPRs", |f, v| add(&mut f.spills, v)),
    ("Spills", |f, v| add(&mut f.spills, v)),
    ("Spill Count", |f, v| add(&mut f.spills, v)),
    ("Spills to memory", |f, v| add(&mut f.spills, v)),
    ("Fills", |f, v| add(&mut f.fills, v)),
    ("Fill Count", |f, v| add(&mut f.fills, v)),
    ("Fills from memory", |f, v| add(&mut f.fills, v)),
    ("Scratch size", |f, v| f.scratch_bytes = Some(v)),
    ("Scratch Memory Size", |f, v| f.scratch_bytes = Some(v)),
    ("SLM size", |f, v| f.scratch_bytes = Some(v)),
    ("LDS size", |f, v| f.shared_bytes = Some(v)),
    ("Workgroup Memory Size", |f, v| f.shared_bytes = Some(v)),
    ("Subgroups per SIMD", |f, v| (f.occupancy, f.occupancy_of) = (Some(v), Some("SIMD"))),
    ("Max warps/SM", |f, v| (f.occupancy, f.occupancy_of) = (Some(v), Some("SM"))),
    ("Code size", |f, v| f.code_bytes = Some(v)),
    ("Binary Size", |f, v| f.code_bytes = Some(v)),
    ("Instructions", |f, v| f.instructions = Some(v)),
    ("Instruction Count", |f, v| f.instructions = Some(v)),
    ("Latency", |f, v| f.latency_cycles = Some(v)),
    ("Cycles", |f, v| f.latency_cycles = Some(v)),
    ("Cycle Count", |f, v| f.latency_cycles = Some(v)),
    ("Static cycle count", |f, v| f.latency_cycles = Some(v)),
];

impl Executable {
    /// Statistics that several drivers have, under common names.
    pub fn figures(&self) -> Figures {
        let mut out = Figures::default();
        for s in &self.statistics {
            let known = KNOWN.iter().find(|k| k.0.eq_ignore_ascii_case(&s.name));
            if let (Some((_, put)), Some(v)) = (known, s.value.count()) {
                put(&mut out, v);
            }
        }
        out
    }

    /// The figures, the driver's own list, and the instructions.
    pub fn record(&self) -> ExecutableRecord {
        let statistics = self.statistics.iter();
        let statistics = statistics.map(|s| StatisticRecord {
            name: s.name.clone(),
            value: s.value.to_json(),
            meaning: s.meaning.clone(),
        });
        ExecutableRecord {
            name: self.name.clone(),
            subgroup_size: self.subgroup_size,
            figures: self.figures(),
            statistics: statistics.collect(),
            isa: self.isa.clone(),
        }
    }
}

/// Statistics of the driver's compiler about each kernel.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StatsRecord {
    /// With its backend and driver.
    pub device: String,
    /// In the plan's order.
    pub kernels: Vec<KernelStats>,
}

/// Its statistics of one kernel.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct KernelStats {
    /// An id of `kernels`.
    pub id: usize,
    /// The kernel's.
    pub name: String,
    /// As in `kernels`.
    pub file: String,
    /// Some drivers make one for each of several subgroup sizes.
    pub executables: Vec<ExecutableRecord>,
}

/// A piece of code that a driver made of a kernel. The figures are those that several drivers count; null where this one
/// does not.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExecutableRecord {
    /// In the driver's words.
    pub name: String,
    /// Lanes; 0 where the driver leaves it open.
    pub subgroup_size: u32,
    /// Statistics that several drivers have.
    #[serde(flatten)]
    pub figures: Figures,
    /// All that the driver says, in its words and order.
    pub statistics: Vec<StatisticRecord>,
    /// The device's own instructions.
    pub isa: Option<String>,
}

/// A statistic under the driver's name.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StatisticRecord {
    /// The driver's name for it.
    pub name: String,
    /// The number.
    #[schemars(extend("type" = ["number", "boolean", "null"]))]
    pub value: Value,
    /// Its meaning, in the driver's words.
    pub meaning: String,
}

/// True for the name that a driver gives to a kernel's own instructions as text: `Assembly` (RADV), `GEN Assembly`,
/// `NAK assembly`, `IR3 Assembly`, `Disassembly`, `ISA`; other representations are stages on the way there.
pub fn names_isa(representation: &str) -> bool {
    let name = representation.to_ascii_lowercase();
    name.contains("assembly") || name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == "isa")
}

impl DriverStats {
    /// The instructions of a kernel as one text, each of several executables under a line with its name; `None` where
    /// the driver gives none.
    pub fn isa(&self, kernel: usize) -> Option<String> {
        let list = self.kernels.get(kernel)?;
        let texts: Vec<(&Executable, &str)> = list.iter().filter_map(|e| Some((e, e.isa.as_deref()?))).collect();
        match texts.as_slice() {
            [] => None,
            [(_, text)] => Some(text.to_string()),
            several => {
                let one = |(e, text): &(&Executable, &str)| {
                    format!("; {}, subgroups of {}\n{}\n", e.name, e.subgroup_size, text.trim_end())
                };
                Some(several.iter().map(one).collect())
            }
        }
        .filter(|text| !text.trim().is_empty())
    }

    /// The record of these kernels: the name and the file of each.
    pub fn record<'k>(&self, kernels: impl Iterator<Item = (&'k str, String)>) -> StatsRecord {
        let one = |(id, ((name, file), list)): (usize, ((&'k str, String), &Vec<Executable>))| KernelStats {
            id,
            name: name.into(),
            file,
            executables: list.iter().map(Executable::record).collect(),
        };
        StatsRecord { device: self.device.clone(), kernels: kernels.zip(&self.kernels).enumerate().map(one).collect() }
    }
}

#[cfg(test)]
mod tests;
