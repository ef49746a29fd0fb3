//! The lines of the tuning database.

use compiler::profile::{CostFactors, DeviceProfile};
use compiler::schedule::estimate::Cost;
use compiler::schedule::rules::Choice;
use compiler::schedule::{Choose, InstrRef, TunedSchedule, Workload};
use compiler::text::{parse_instructions, print_instruction};
use compiler::trace::Ceilings;
use serde::{Deserialize, Serialize};

/// The tuned choices of one function on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuningLine {
    /// Identity of the device: its name, driver, the driver's version, and the processor of a software device.
    pub device: String,
    /// Fingerprint of the tensor function.
    pub function: String,
    /// Positions of its constant operands.
    pub constants: Vec<usize>,
    /// The function's name in the network where it was tuned, for people.
    pub name: String,
    /// The function's [family](compiler::tir::canonical::Family): functions that differ in sizes alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub family: String,
    /// Its sizes: the extents of its loops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extents: Vec<i64>,
    /// `choose` instructions; empty if the search found nothing faster than the default.
    pub choices: Vec<String>,
    /// Instructions of a schedule that no rule makes: a template's, or an edited one. Then the choices do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<String>,
    /// The choices made a network slower and must not be used.
    #[serde(default)]
    pub withdrawn: bool,
    /// Time of the tuned schedule divided by that of the default: the median over the confirming rounds.
    pub ratio: f64,
    /// Number of confirming rounds, and of those in which the tuned schedule was faster.
    pub rounds: [usize; 2],
    /// Microseconds of the default schedule and of the tuned one.
    pub us: [f64; 2],
    /// Estimated microseconds of both.
    pub estimated_us: [f64; 2],
    /// Seed of the search.
    pub seed: u64,
    /// What made the line: `tune`, `template NAME`, or `hand` for a schedule that a user kept.
    pub by: String,
    /// Seconds from 1970 to when a user kept the schedule; 0 for the result of a search.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kept_at: u64,
    /// Weft's version.
    pub weft: String,
}

fn is_zero(seconds: &u64) -> bool {
    *seconds == 0
}

/// What made a line that a user kept.
pub const BY_HAND: &str = "hand";

impl TuningLine {
    /// Whether it has a schedule.
    pub fn is_tuned(&self) -> bool {
        !self.choices.is_empty() || !self.schedule.is_empty()
    }
    /// The schedule, in words.
    pub fn describe(&self) -> String {
        match self.schedule.len() {
            0 => describe_choices(&self.parse_choices().unwrap_or_default()),
            n => format!("{n} instructions"),
        }
    }
    /// The schedule, for a provider.
    ///
    /// # Errors
    /// Text that does not parse.
    pub fn tuned_schedule(&self) -> Result<TunedSchedule, String> {
        let instructions = parse_instructions(&self.schedule.join("\n")).map_err(|e| e.to_string())?;
        let what = if instructions.is_empty() { "choices" } else { "instructions" };
        let by = match self.by.as_str() {
            BY_HAND => format!("{what} that were kept by hand"),
            by if by.starts_with("template ") => format!("{what} of {by}"),
            _ => format!("tuned {what}"),
        };
        Ok(TunedSchedule { choices: self.parse_choices()?, instructions, by })
    }
    /// Lines with the same key have the same schedule for the same function and device.
    pub fn key(&self) -> (Workload, Vec<String>, Vec<String>) {
        (self.workload(), self.choices.clone(), self.schedule.clone())
    }
    /// The key of the line's function.
    pub fn workload(&self) -> Workload {
        Workload { device: self.device.clone(), function: self.function.clone(), constants: self.constants.clone() }
    }
    /// Prints choices as `choose` instructions.
    pub fn print_choices(values: &[Choice]) -> Vec<String> {
        let line = |c: &Choice| Choose { unit: c.unit, point: c.point, value: c.value.clone(), of: vec![] };
        values.iter().map(|c| print_instruction(&InstrRef::new(line(c)))).collect()
    }
    /// Parses `choices`.
    ///
    /// # Errors
    /// As [`parse_choices`].
    pub fn parse_choices(&self) -> Result<Vec<Choice>, String> {
        parse_choices(&self.choices)
    }
}

/// Parses `choose` instructions.
///
/// # Errors
/// An instruction that does not parse, or is not `choose`.
pub fn parse_choices(lines: &[String]) -> Result<Vec<Choice>, String> {
    let list = parse_instructions(&lines.join("\n")).map_err(|e| e.to_string())?;
    let one = |i: &InstrRef| {
        let c = Choose::of_instruction(i).ok_or_else(|| format!("`{}` chooses nothing", print_instruction(i)))?;
        Ok(Choice { unit: c.unit, point: c.point, value: c.value.clone() })
    };
    list.iter().map(one).collect()
}

/// A schedule that gave wrong results, or ended or stopped the process that measured it. It is not tried again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RefusedLine {
    /// Identity of the device.
    pub device: String,
    /// Fingerprint of the tensor function.
    pub function: String,
    /// Positions of its constant operands.
    pub constants: Vec<usize>,
    /// `choose` instructions.
    pub choices: Vec<String>,
    /// Instructions of a schedule that no rule makes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<String>,
    /// The reason.
    pub why: String,
    /// Weft's version.
    pub weft: String,
}

impl RefusedLine {
    /// The function and the device.
    pub fn workload(&self) -> Workload {
        Workload { device: self.device.clone(), function: self.function.clone(), constants: self.constants.clone() }
    }
}

/// The time of a tensor function in a network, with the schedule that it has there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionLine {
    /// Identity of the device.
    pub device: String,
    /// [`TensorFunction::form`](compiler::tir::TensorFunction::form): what the function computes, without names.
    pub form: String,
    /// The function's name in the network where it was measured, for people.
    pub name: String,
    /// Microseconds of its dispatches in one call: the median over runs of the network.
    pub us: f64,
    /// The network was slower with decisions by this time, so it must not be used.
    #[serde(default)]
    pub withdrawn: bool,
    /// Weft's version.
    pub weft: String,
}

/// The times of a region in an external target and in Weft's kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionLine {
    /// Identity of the device.
    pub device: String,
    /// [`TargetSpec::times_key`](compiler::external::TargetSpec::times_key): the target with its options, and what the
    /// region computes, without names.
    pub region: String,
    /// The region's name in the network where it was measured, for people.
    pub name: String,
    /// The target, for people.
    pub target: String,
    /// Microseconds of a run in the target, without copies between device and host: the median over runs.
    pub target_us: f64,
    /// Microseconds of a run in Weft's kernels on the device: the median over runs.
    pub weft_us: f64,
    /// Weft's version.
    pub weft: String,
}

/// The time of one schedule of a function, beside its estimate: what [`calibrate`](crate::calibration::calibrate)
/// takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleLine {
    /// Identity of the device.
    pub device: String,
    /// Fingerprint of the tensor function.
    pub function: String,
    /// The function's name in the network where it was measured, for people.
    pub name: String,
    /// The schedule, in words.
    pub schedule: String,
    /// Nanoseconds by the estimate, in parts, without factors.
    pub estimate: Cost,
    /// Microseconds.
    pub us: f64,
    /// Digest of the estimate's code. A build with another estimate ignores the line.
    #[serde(default)]
    pub estimator: String,
    /// Weft's version.
    pub weft: String,
}

/// Factors on the parts of the estimate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalibrationLine {
    /// Identity of the device.
    pub device: String,
    /// The factors.
    pub factors: CostFactors,
    /// Functions and schedules that they were fitted to.
    pub functions: usize,
    /// Measured schedules.
    pub schedules: usize,
    /// Mean rank correlation of estimates with times without factors, and with factors that had not seen the function.
    pub ranks: [f64; 2],
    /// Digest of the estimate's code. A build with another estimate ignores the line.
    #[serde(default)]
    pub estimator: String,
    /// Weft's version.
    pub weft: String,
}

/// Peak rates of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CeilingsLine {
    /// Identity of the device.
    pub device: String,
    /// The rates.
    #[serde(flatten)]
    pub ceilings: Ceilings,
    /// Weft's version.
    pub weft: String,
}

/// A device, as schedules are made for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceLine {
    /// Identity of the device.
    pub device: String,
    /// Its profile.
    pub profile: DeviceProfile,
    /// Weft's version.
    pub weft: String,
}

/// A line of the database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Line {
    /// A tuned function.
    Choices(TuningLine),
    /// A refused schedule.
    Refused(RefusedLine),
    /// The time of a function in a network.
    Function(FunctionLine),
    /// The times of a region.
    Region(RegionLine),
    /// The time of a schedule.
    Sample(SampleLine),
    /// Factors on the estimate.
    Calibration(CalibrationLine),
    /// Peak rates of a device.
    Ceilings(CeilingsLine),
    /// A device.
    Device(Box<DeviceLine>),
}

impl From<CeilingsLine> for Line {
    fn from(line: CeilingsLine) -> Line {
        Line::Ceilings(line)
    }
}

impl From<SampleLine> for Line {
    fn from(line: SampleLine) -> Line {
        Line::Sample(line)
    }
}

impl From<CalibrationLine> for Line {
    fn from(line: CalibrationLine) -> Line {
        Line::Calibration(line)
    }
}

impl From<RegionLine> for Line {
    fn from(line: RegionLine) -> Line {
        Line::Region(line)
    }
}

impl From<&CalibrationLine> for Line {
    fn from(line: &CalibrationLine) -> Line {
        Line::Calibration(line.clone())
    }
}

impl From<&FunctionLine> for Line {
    fn from(line: &FunctionLine) -> Line {
        Line::Function(line.clone())
    }
}

impl From<&TuningLine> for Line {
    fn from(line: &TuningLine) -> Line {
        Line::Choices(line.clone())
    }
}

/// `rule "matmul-tiled" of conv_0, tile [8,16,1,1,2] of conv_0`.
pub fn describe_choices(values: &[Choice]) -> String {
    let words: Vec<String> = values.iter().map(Choice::to_string).collect();
    words.join(", ")
}
