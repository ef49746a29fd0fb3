//! A table: the measured schedules of one unit on one processor. A file has a line of JSON for each.

use compiler::attr::Attr;
use compiler::profile::DeviceProfile;
use compiler::schedule::estimate::COUNTS;
use compiler::schedule::rules::{Choice, price_of_choices, values};
use compiler::text::{parse_tensor_function, print_tensor_function};
use compiler::tir::TensorFunction;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weft::TuningLine;
use workbench::tune::candidate::Candidate;
use workbench::tune::units::Unit;
use workbench::{Error, Result};

/// The schedules of a unit.
#[derive(Serialize, Deserialize, Clone)]
pub struct Table {
    /// The network that it comes from, and its name there.
    pub network: String,
    pub name: String,
    /// Schedules and estimates are made for it: the instruction set among others.
    pub profile: DeviceProfile,
    /// The unscheduled function, its fingerprint, and the positions of its constant operands.
    pub function: String,
    pub function_id: String,
    pub constants: Vec<usize>,
    /// The first is the default of the build that measured.
    pub rows: Vec<Row>,
}

/// A schedule.
#[derive(Serialize, Deserialize, Clone)]
pub struct Row {
    /// Instructions `choose`.
    pub choices: Vec<String>,
    /// The rule of its kernel; of several kernels, of the last.
    pub rule: String,
    /// Microseconds of CPU time.
    pub us: f64,
    /// Microseconds by the estimate of the build that measured, and of this one.
    pub before_us: f64,
    pub estimate_us: f64,
    /// Counts of its kernels.
    #[serde(default)]
    pub counts: BTreeMap<String, f64>,
}

/// Four digits of a number.
fn digits(x: f64) -> f64 {
    format!("{x:.3e}").parse().unwrap_or(x)
}

impl Row {
    /// A measured candidate, without its estimate.
    pub fn of(c: &Candidate, us: f64) -> Row {
        let choices = values(&c.trace);
        let rule = choices.iter().rev().find(|c| ["rule", "function"].contains(&c.point.as_str()));
        let rule = rule.map(|r| if let Attr::Str(word) = &r.value { word.clone() } else { String::new() });
        let rule = rule.unwrap_or_default();
        Row {
            choices: TuningLine::print_choices(&choices),
            rule,
            us: digits(us),
            before_us: 0.0,
            estimate_us: 0.0,
            counts: BTreeMap::new(),
        }
    }
    /// With another time.
    pub fn with_time(self, us: f64) -> Row {
        Row { us: digits(us), ..self }
    }
    /// Its choices.
    pub fn parsed(&self) -> Result<Vec<Choice>> {
        weft::parse_choices(&self.choices).map_err(Error::input)
    }
}

impl Table {
    /// With measured rows.
    pub fn new(network: String, unit: &Unit, profile: &DeviceProfile, rows: Vec<Row>) -> Table {
        Table {
            network,
            name: unit.function.name.to_string(),
            profile: profile.clone(),
            function: print_tensor_function(&unit.function),
            function_id: unit.workload.function.clone(),
            constants: unit.positions.clone(),
            rows,
        }
    }
    /// The function.
    pub fn parsed(&self) -> Result<TensorFunction> {
        parse_tensor_function(&self.function).map_err(|e| Error::input(format!("{}: {e}", self.name)))
    }
    /// With the estimates of this build.
    pub fn recounted(mut self) -> Result<Table> {
        let f = self.parsed()?;
        let constants = compiler::compile::operand_buffers(&f, &self.constants);
        for row in &mut self.rows {
            let found = price_of_choices(&f, &constants, &self.profile, &row.parsed()?);
            let found = found.map_err(|e| Error::input(format!("{}: {e}", self.name)))?;
            row.estimate_us = digits(found.total() / 1e3);
            row.counts = BTreeMap::new();
            for (n, name) in COUNTS.iter().enumerate() {
                let all: f64 = found.kernels.iter().map(|k| k.counts[n]).sum();
                if all > 0.0 {
                    row.counts.insert((*name).to_string(), digits(all));
                }
            }
            if row.before_us == 0.0 {
                row.before_us = row.estimate_us;
            }
        }
        Ok(self)
    }
}
