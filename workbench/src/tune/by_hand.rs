//! The line of the database that keeps a schedule which a user wrote, in an editor or in the viewer.

use super::candidates::schedule_lines;
use super::units::Unit;
use compiler::schedule::{InstrRef, ScheduleTarget};
use std::time::{SystemTime, UNIX_EPOCH};
use weft::{BY_HAND, TuningDatabase, TuningLine};

/// Two schedules of a function: the one that there was, and the user's.
pub struct ByHand<'a> {
    /// The function.
    pub unit: &'a Unit,
    /// The device, and what its rules are asked.
    pub target: ScheduleTarget<'a>,
    /// The schedule that there was.
    pub before: &'a [InstrRef],
    /// The user's.
    pub after: &'a [InstrRef],
    /// Time of the user's divided by that of the other.
    pub ratio: f64,
    /// Rounds, and those in which the user's was faster.
    pub rounds: [usize; 2],
    /// Microseconds of both, measured and estimated.
    pub us: [f64; 2],
    /// Microseconds of both by the estimate.
    pub estimated_us: [Option<f64>; 2],
    /// The seed of the race.
    pub seed: u64,
}

impl ByHand<'_> {
    /// The line. Its ratio is to the default, as all others are: the schedule before may be one that `known` has.
    pub fn line(&self, known: &TuningDatabase) -> TuningLine {
        let before = schedule_lines(self.unit, self.target, self.before);
        let (choices, schedule) = schedule_lines(self.unit, self.target, self.after);
        let is_before = |l: &&&TuningLine| (&l.choices, &l.schedule) == (&before.0, &before.1);
        let so_far = known.best().get(&self.unit.workload).filter(is_before).map_or(1.0, |l| l.ratio);
        // The last one that was kept wins, also where a clock was ahead.
        let own = known.lines.iter().filter(|l| l.workload() == self.unit.workload);
        let latest = own.map(|l| l.kept_at).max();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_secs());
        let family = self.unit.function.family();
        TuningLine {
            device: self.unit.workload.device.clone(),
            function: self.unit.workload.function.clone(),
            constants: self.unit.workload.constants.clone(),
            name: self.unit.function.name.to_string(),
            family: family.fingerprint.to_string(),
            extents: family.extents,
            choices,
            schedule,
            withdrawn: false,
            ratio: self.ratio * so_far,
            rounds: self.rounds,
            us: [self.us[0] / so_far, self.us[1]],
            estimated_us: self.estimated_us.map(|us| us.unwrap_or(0.0)),
            seed: self.seed,
            by: BY_HAND.into(),
            kept_at: now.max(latest.map_or(0, |at| at.saturating_add(1))),
            weft: env!("CARGO_PKG_VERSION").into(),
        }
    }
}
