//! Schedule rules: each lists its candidates for a part of a tensor function on a device, prices them, and applies one.
//!
//! [`schedule`] first inlines compute blocks. It cuts a concatenation apart if an operand is a reduction, or if there
//! are more operands than a kernel may bind. Then it splits the function into *units*: a reduction with the block that
//! consumes it, or a compute block alone. All rules of [`RULES`] that fit a unit list their candidates
//! ([`Rule::candidates`]) and price them ([`Rule::price`]); the cheapest candidate is applied ([`Rule::apply`]), and if
//! it declines, the next cheapest. Rules for whole functions are asked first; one of them takes the function unless its
//! units are cheaper. `explain` shows why the rules before the one that was taken were not.
//!
//! The estimate of an unscheduled function (`predict`) asks the same rules for the same prices, so that fusion and
//! layouts are decided by the kernels that are then made.
//!
//! A candidate has a value for each choice of the rule. The trace records them, with all possible values (`Choose`).
//! [`schedule_with`] schedules with other values, [`follow_choices`] with the values that were edited in a schedule.

mod alternatives;
mod analysis;
mod attention;
#[cfg(test)]
mod attention_tests;
mod candidate;
#[cfg(test)]
mod choices_tests;
mod choosing;
mod cooperate;
mod copies;
mod decline;
mod describe;
mod direct;
mod dispatch;
#[cfg(test)]
mod dispatch_tests;
#[cfg(test)]
mod dot_tests;
mod elementwise;
mod encoded;
mod entry;
mod groups;
mod lanes;
mod matmul_dot;
mod matmul_matrix;
mod matmul_subgroup;
mod matmul_tile;
mod matmul_tiled;
mod matmul_vector;
mod matrix_taps;
#[cfg(test)]
mod matrix_tests;
mod matrix_tile;
mod open;
mod packing;
mod partition;
mod pooling;
mod pooling_loops;
mod predict;
mod reduction_chain;
mod reduction_threads;
#[cfg(test)]
mod row_price_tests;
mod row_tasks;
mod rows;
mod script;
mod sketch;
mod split_depth;
#[cfg(test)]
mod subgroup_tests;
#[cfg(test)]
mod tests;
mod thread_tile;
mod transform;
#[cfg(test)]
mod transpose_tests;
mod transpose_tiled;
mod unit;
mod units;
mod versions;
mod view;
mod windows;

pub use super::tiles::window_index;
pub use alternatives::{Alternative, Neighbour, alternatives, neighbours};
pub use attention::one_kernel;
pub use candidate::{Candidate, Choices};
pub use decline::Decline;
pub use dispatch::GIVEN_UP;
pub use entry::{choices, follow_choices, has_edited_choices, schedule, schedule_with, taken_candidates};
pub(in crate::schedule) use predict::predicted;
pub use predict::{estimate_as_made, estimate_pending, prepared, price_as_scheduled, price_of_choices};
pub(in crate::schedule) use script::WRITTEN;
pub use script::{Choice, values};
pub use sketch::Sketch;
pub use unit::{PoolingWindow, Unit};
pub(in crate::schedule) use versions::version_by;
pub use versions::{FunctionVersion, asked_versions, in_one_order, versions};
pub use view::View;

use super::ScheduleTarget;
use super::estimate::KernelEstimate;
use crate::profile::DeviceProfile;
use crate::registry::Table;
use crate::tir::TensorFunction;

/// A scheduled function.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// The schedule proposed for typical sizes did not apply to every size; a weaker one was used.
    pub compromise: bool,
    /// All instructions applied, kernels cut.
    pub function: TensorFunction,
    /// Name of the rule of the unit with the most work.
    pub rule: &'static str,
    /// The rule that took each unit, and the unit's tile.
    pub applied: Vec<String>,
    /// Rules that declined, and why.
    pub declined: Vec<String>,
}

/// The kind of units that a rule takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// A function as a whole: one block behind reductions.
    Functions,
    /// A function as a whole, also with blocks between its reductions.
    Chains,
    /// Reductions, with the blocks that consume them.
    Reductions,
    /// Compute blocks alone.
    Blocks,
    /// Any unit.
    Units,
}

impl Takes {
    /// Whether it is functions rather than units.
    fn whole(self) -> bool {
        matches!(self, Takes::Functions | Takes::Chains)
    }
    /// Whether a unit is of this kind.
    fn fits(self, unit: &Unit) -> bool {
        match self {
            Takes::Functions | Takes::Chains => false,
            Takes::Reductions => unit.reduce.is_some(),
            Takes::Blocks => unit.reduce.is_none(),
            Takes::Units => true,
        }
    }
}

/// What a rule schedules for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Devices, whose workgroups have threads.
    Devices,
    /// Processors, whose tasks have vectors and register tiles.
    Processors,
}

impl Target {
    /// Whether the profile is one.
    fn is(self, profile: &DeviceProfile) -> bool {
        (self == Target::Devices) == profile.model().shaders
    }
}

/// A schedule rule: its candidates for a unit, their prices, and their application.
pub struct Rule {
    /// Name: the file's name with dashes.
    pub name: &'static str,
    /// The kind of units that it takes.
    pub takes: Takes,
    /// What it schedules for.
    pub target: Target,
    /// Its threads own tiles of rows and columns rather than neighbours in memory.
    pub tiles: bool,
    /// The candidates of the rule for the unit, or why it declines. If the estimate cannot weigh them, the first is
    /// taken.
    pub candidates: fn(&View<'_>, &Unit) -> Result<Vec<Candidate>, Decline>,
    /// The kernels of a candidate; empty if the estimate cannot weigh it.
    pub price: fn(&View<'_>, &Unit, &Candidate) -> Vec<KernelEstimate>,
    /// Schedules the unit in the sketch as the candidate says, or says why not. On a decline the sketch is put back.
    pub apply: fn(&mut Sketch<'_>, &Unit, &Candidate) -> Result<(), Decline>,
}

/// A row of [`RULES`]: the module of a rule has its functions.
macro_rules! rule {
    ($name:literal, $target:ident, $takes:ident, $tiles:literal, $module:ident) => {
        Rule {
            name: $name,
            target: Target::$target,
            takes: Takes::$takes,
            tiles: $tiles,
            candidates: $module::candidates,
            price: $module::price,
            apply: $module::apply,
        }
    };
}

/// Every rule; of those that cost the same, the first takes the unit. [`register`] adds one before them.
pub static RULES: Table<Rule> = Table::new(&[
    rule!("transform", Devices, Functions, false, transform),
    rule!("attention", Devices, Functions, false, attention),
    rule!("rows", Devices, Functions, false, rows),
    rule!("reduction-chain", Devices, Chains, false, reduction_chain),
    rule!("matmul-matrix", Devices, Reductions, true, matmul_matrix),
    rule!("matmul-dot", Devices, Reductions, true, matmul_dot),
    rule!("matmul-subgroup", Devices, Reductions, true, matmul_subgroup),
    rule!("matmul-tiled", Devices, Reductions, true, matmul_tiled),
    rule!("matmul-vector", Devices, Reductions, false, matmul_vector),
    rule!("reduction-threads", Devices, Reductions, false, reduction_threads),
    rule!("elementwise", Devices, Blocks, false, elementwise),
    rule!("transpose-tiled", Devices, Blocks, false, transpose_tiled),
    rule!("windows", Devices, Reductions, false, windows),
    rule!("direct", Devices, Units, false, direct),
    rule!("row-tasks", Processors, Functions, false, row_tasks),
    rule!("matmul-tile", Processors, Reductions, false, matmul_tile),
    rule!("lanes", Processors, Units, false, lanes),
]);

/// Adds a rule of another crate, before those of the table. Call it before anything is compiled.
///
/// # Errors
/// When there is a rule of this name.
pub fn register(rule: Rule) -> Result<(), String> {
    let name = rule.name;
    RULES.add(rule, |r| r.name == name).map_err(|_| format!("there is a rule `{name}`"))
}

/// The rules in the order they are asked.
fn all() -> impl Iterator<Item = &'static Rule> {
    RULES.added().into_iter().chain(RULES.own())
}

/// The rule of loops that are bound as they stand.
const LOOP_BY_LOOP: &str = "loop-by-loop";

/// True for the rule of a processor that takes any unit, and for loops without a schedule: units that no other rule
/// takes run by it, often slowly.
pub fn is_general(name: &str) -> bool {
    let takes_any = |r: &Rule| r.takes == Takes::Units && r.target == Target::Processors;
    name == LOOP_BY_LOOP || all().any(|r| r.name == name && takes_any(r))
}

/// The names of all rules, in the order they are asked.
pub fn names() -> Vec<&'static str> {
    all().map(|r| r.name).collect()
}

/// The rules in the order they are asked for this target: first those that are asked for by name.
fn in_order(target: ScheduleTarget<'_>) -> impl Iterator<Item = &'static Rule> {
    let ScheduleTarget { profile, options } = target;
    let named: Vec<&Rule> = options.rules.iter().filter_map(|n| all().find(|r| r.name == n)).collect();
    let rest: Vec<&Rule> = all().filter(|r| !options.asks_for(r.name)).collect();
    named.into_iter().chain(rest).filter(|r| r.target.is(profile)).collect::<Vec<_>>().into_iter()
}
