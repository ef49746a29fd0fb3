//! A table: the measured schedules of one function on one device. A file has a line of JSON for each.

use compiler::profile::DeviceProfile;
use compiler::schedule::rules::{Choice, values};
use runtime_gpu::Standing;
use serde::{Deserialize, Serialize};
use workbench::Result;
use workbench::settings::Settings;
use workbench::tune::candidate::Candidate;
use workbench::tune::units::Unit;

/// The schedules of a function.
#[derive(Serialize, Deserialize)]
pub struct Table {
    /// A shape of [`benches::shapes`].
    pub shape: String,
    /// Identity of the device.
    pub device: String,
    /// What schedules and estimates were made for.
    pub profile: DeviceProfile,
    /// Fingerprint of the tensor function.
    pub function: String,
    pub weft: String,
    /// What the schedules were drawn with, and how many there were to draw from.
    pub seed: u64,
    pub reached: usize,
    /// Rounds of each race.
    pub rounds: usize,
    /// Microseconds of the default schedule.
    pub us: f64,
    /// The first is the default.
    pub rows: Vec<Row>,
}

/// A schedule.
#[derive(Serialize, Deserialize)]
pub struct Row {
    /// `POINT VALUE of UNIT; ...`
    pub choices: String,
    #[serde(flatten)]
    pub measured: Measured,
}

/// What was measured.
#[derive(Serialize, Deserialize, Clone, PartialEq)]
#[serde(untagged)]
pub enum Measured {
    /// Its time by that of the default, and the same by the host's clock: medians.
    Times { ratio: f64, wall: f64 },
    /// Why it did not run.
    Refused { why: String },
}

impl Measured {
    pub const DEFAULT: Measured = Measured::Times { ratio: 1.0, wall: 1.0 };

    pub fn of(s: &Standing) -> Measured {
        let digits = |x: f64| (x * 1e4).round() / 1e4;
        match s.ratios.is_empty() {
            true => Measured::Refused { why: "it ends the race".into() },
            false => Measured::Times { ratio: digits(s.ratio()), wall: digits(s.wall_ratio()) },
        }
    }
    /// The ratio, unless it did not run or takes longer by the host's clock.
    pub fn counted(&self) -> Option<f64> {
        match self {
            Measured::Times { ratio, wall } if *wall <= 1.0 => Some(*ratio),
            _ => None,
        }
    }
}

impl Row {
    pub fn of(c: &Candidate, measured: Measured) -> Row {
        let words: Vec<String> = values(&c.trace).iter().map(Choice::to_string).collect();
        Row { choices: words.join("; "), measured }
    }
    /// Its choices.
    ///
    /// # Errors
    /// Text that does not parse.
    pub fn parse(&self) -> Result<Vec<Choice>, String> {
        let line = |words: &str| {
            let (point, rest) = words.split_once(' ').ok_or_else(|| format!("`{words}` is no choice"))?;
            let (value, unit) = rest.rsplit_once(" of ").ok_or_else(|| format!("`{words}` names no unit"))?;
            Ok(format!("choose {{unit={unit}, point={point}, value={value}}}"))
        };
        let lines: Result<Vec<String>, String> = self.choices.split("; ").map(line).collect();
        weft::parse_choices(&lines?)
    }
}

impl Table {
    /// With the default alone.
    pub fn new(
        (shape, unit): (&str, &Unit),
        profile: &DeviceProfile,
        settings: &Settings,
        (reached, rounds): (usize, usize),
    ) -> Table {
        Table {
            shape: shape.into(),
            device: profile.identity(),
            profile: profile.clone(),
            function: unit.workload.function.clone(),
            weft: env!("CARGO_PKG_VERSION").into(),
            seed: settings.seed,
            reached,
            rounds,
            us: 0.0,
            rows: vec![],
        }
    }
    /// The smallest ratio that counts.
    pub fn best(&self) -> f64 {
        self.rows.iter().filter_map(|r| r.measured.counted()).fold(1.0, f64::min)
    }
}
