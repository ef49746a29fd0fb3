//! The record of a search for faster schedules.

use crate::device::DeviceRecord;
use schemars::JsonSchema;
use serde::Serialize;

/// The search for a model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Tuned {
    /// The name of the file, or the zoo's.
    pub model: String,
    /// Where.
    pub device: DeviceRecord,
    /// The database that was written.
    pub tuning: String,
    /// Of the search.
    pub seconds: f64,
    /// Tensor functions, those with the most time first.
    pub functions: Vec<TunedFunction>,
    /// The network before and after; null where nothing new was found.
    pub network: Option<NetworkRecord>,
    /// Layouts and fusion by measured times; null with `--kernel`.
    pub graph: Option<GraphRecord>,
    /// Regions that a target of `--external` could run, timed for the first time.
    pub regions: Vec<RegionRecord>,
}

/// A tensor function.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct TunedFunction {
    /// Its name.
    pub name: String,
    /// The first group that calls it, as tables call it.
    pub label: String,
    /// Of the network's device time.
    pub share: f64,
    /// Schedules that ran, the default among them.
    pub tried: usize,
    /// Schedules that gave wrong results or did not run, with why.
    pub refused: Vec<String>,
    /// Of those that ran, schedules of templates.
    pub by_templates: usize,
    /// Time of the winner divided by the default's; 1 where the default stays.
    pub ratio: f64,
    /// Microseconds of the default and of the winner.
    pub us: [f64; 2],
    /// The same, as they are estimated.
    pub estimated_us: [f64; 2],
    /// Rounds that confirmed the winner, and those that it won.
    pub rounds: [usize; 2],
    /// `choose` instructions; null where the default stays.
    pub choices: Option<Vec<String>>,
    /// Instructions of a winner that no rule makes; then `choices` is empty.
    pub schedule: Vec<String>,
    /// `tune` or `template NAME`; null where the default stays.
    pub by: Option<String>,
    /// The differences from the default, in words.
    #[serde(skip)]
    pub difference: String,
}

/// Races of the network in fresh processes, with what was found and without it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NetworkRecord {
    /// The median over `pairs`: by CPU time on software devices.
    pub ratio: f64,
    /// Its standard error.
    pub uncertainty: f64,
    /// The same by the host's clock.
    pub wall_ratio: f64,
    /// Ratios of single races.
    pub pairs: Vec<f64>,
    /// Before and after, by the host's clock.
    pub ms: [f64; 2],
    /// False where what was found was withdrawn.
    pub kept: bool,
}

/// Decisions by measured times.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GraphRecord {
    /// Ways to compile the network.
    pub plans: Vec<PlanRecord>,
    /// The last plan is not the first.
    pub changed: bool,
    /// Functions of the first plan that the last one does not have, and the reverse; absent where nothing changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functions: Option<[Vec<PlanFunction>; 2]>,
    /// The first plan and the last; absent where nothing changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkRecord>,
}

/// A way to compile the network.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanRecord {
    /// In words.
    pub name: String,
    /// Different functions in it.
    pub functions: usize,
    /// Microseconds of all their calls.
    pub us: f64,
}

/// A function of a plan.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanFunction {
    /// Its name.
    pub name: String,
    /// The key of its line `function` in the database.
    pub form: String,
    /// In a run.
    pub calls: usize,
}

/// A region that a target could run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RegionRecord {
    /// Its name.
    pub name: String,
    /// The target.
    pub target: String,
    /// Composites and ops.
    pub ops: String,
    /// Microseconds of a run in the target, without copies between device and host.
    pub target_us: f64,
    /// Of the same nodes in Weft's kernels.
    pub weft_us: f64,
}
