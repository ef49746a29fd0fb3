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
//! A candidate has a value for each choice of the rule. The trace records them, with all possible values ([`Choose`]).
//! [`schedule_with`] schedules with other values, [`follow_choices`] with the values that were edited in a schedule.

mod alternatives;
mod analysis;
mod attention;
#[cfg(test)]
mod attention_tests;
mod candidate;
#[cfg(test)]
mod choices_tests;
mod cooperate;
mod describe;
mod direct;
mod dispatch;
#[cfg(test)]
mod dispatch_tests;
#[cfg(test)]
mod dot_tests;
mod elementwise;
mod lanes;
mod matmul_dot;
mod matmul_matrix;
mod matmul_subgroup;
mod matmul_tile;
mod matmul_tiled;
#[cfg(test)]
mod matrix_tests;
mod matrix_tile;
mod open;
mod packing;
mod partition;
mod pooling;
mod predict;
mod reduction_threads;
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
mod tiles;
mod transform;
#[cfg(test)]
mod transpose_tests;
mod transpose_tiled;
mod units;
mod versions;
mod view;
mod windows;

pub use alternatives::{Alternative, Neighbour, alternatives, neighbours, values};
pub use analysis::Unit;
pub use attention::one_kernel;
pub use candidate::{Candidate, Choices};
pub(in crate::schedule) use direct::{fits_text, usually_unrolled};
pub use dispatch::GIVEN_UP;
pub(in crate::schedule) use matmul_dot::byte_tiles;
pub(in crate::schedule) use packing::dimension_to_pack;
pub(in crate::schedule) use pooling::LARGEST_WINDOW;
pub use pooling::{PoolingWindow, window_index};
pub(in crate::schedule) use predict::predicted;
pub use predict::price_as_scheduled;
pub use script::Choice;
pub use sketch::{Decline, Sketch};
pub(in crate::schedule) use thread_tile::PAD;
pub(in crate::schedule) use tiles::{Depth, MatrixTile, ProductTile, innermost, product_candidates};
pub(in crate::schedule) use transform::{TransformTile, tile_of, widest};
pub(in crate::schedule) use transpose_tiled::{Element, TransposeTile, Transposition};
pub(in crate::schedule) use units::WRITTEN;
pub(in crate::schedule) use versions::version_by;
pub use versions::{FunctionVersion, asked_versions, versions};
pub use view::View;
pub(in crate::schedule) use windows::Neighbours;

use super::estimate::KernelEstimate;
use super::{Choose, InstrRef, RefusedCandidate, ScheduleError, ScheduleTarget, TransformLayout, Version};
use crate::attr::Attr;
use crate::attr::print::print_value;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::registry::Table;
use crate::tir::{BufferId, TensorFunction};
use dispatch::Pick;
use script::{FUNCTION, RULE, Script};

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
    /// A function as a whole.
    Functions,
    /// Reductions, with the blocks that consume them.
    Reductions,
    /// Compute blocks alone.
    Blocks,
    /// Any unit.
    Units,
}

impl Takes {
    /// Whether a unit is of this kind.
    fn fits(self, unit: &Unit) -> bool {
        match self {
            Takes::Functions => false,
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
        (self == Target::Processors) == profile.is_processor()
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
    rule!("matmul-matrix", Devices, Reductions, true, matmul_matrix),
    rule!("matmul-dot", Devices, Reductions, true, matmul_dot),
    rule!("matmul-subgroup", Devices, Reductions, true, matmul_subgroup),
    rule!("matmul-tiled", Devices, Reductions, true, matmul_tiled),
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

/// The names of all rules, in the order they are asked.
pub fn names() -> Vec<&'static str> {
    all().map(|r| r.name).collect()
}

impl Rule {
    /// Records that this rule is at work on the unit, with the others that could be.
    fn begin(&self, sketch: &mut Sketch<'_>, unit: &Unit, by_name: bool) {
        sketch.asked = by_name;
        sketch.unit = unit.name();
        let (point, domain) = match self.takes {
            Takes::Functions => (FUNCTION, units::function_domain(sketch.target)),
            _ => (RULE, units::rule_domain(sketch.target, unit)),
        };
        sketch.note_choice(unit.name(), point, &self.name.to_string(), &domain);
    }
}

impl Pick {
    /// Schedules the unit in the sketch, or says why not. A rule that is asked for by name does not decline for the
    /// sake of the device's speed.
    fn apply(&self, sketch: &mut Sketch<'_>, unit: &Unit) -> Result<(), Decline> {
        self.rule.begin(sketch, unit, self.by_name);
        sketch.together(|s| (self.rule.apply)(s, unit, &self.candidate))
    }
}

/// The rules in the order they are asked for this target: first those that are asked for by name.
fn in_order(target: ScheduleTarget<'_>) -> impl Iterator<Item = &'static Rule> {
    let ScheduleTarget { profile, options } = target;
    let named: Vec<&Rule> = options.rules.iter().filter_map(|n| all().find(|r| r.name == n)).collect();
    let rest: Vec<&Rule> = all().filter(|r| !options.asks_for(r.name)).collect();
    named.into_iter().chain(rest).filter(|r| r.target.is(profile)).collect::<Vec<_>>().into_iter()
}

/// Schedules `f` for `target`, a profile or a device with options. `constants` are read parameters whose value is known
/// when a session opens: they may be prepacked. Rules that the options request by name are tried before all others. If
/// none of them applies, the default order is used.
///
/// # Errors
/// When even the last rule fails: a bug.
pub fn schedule<'a>(
    f: &TensorFunction,
    constants: &[BufferId],
    target: impl Into<ScheduleTarget<'a>>,
) -> Result<Scheduled, ScheduleError> {
    let target = target.into();
    if !f.symbols.is_empty() {
        return open::schedule(f, constants, target);
    }
    units::schedule(f, constants, target, &script::NOTHING)
}

/// [`schedule`] with given values for some choices. [`choices`] lists the choices of a schedule; a choice may depend on
/// earlier ones.
///
/// # Errors
/// A value that is not in its domain, that its rule cannot take, or for which there is no choice.
pub fn schedule_with<'a>(
    f: &TensorFunction,
    constants: &[BufferId],
    target: impl Into<ScheduleTarget<'a>>,
    values: &[Choice],
) -> Result<Scheduled, ScheduleError> {
    schedule_by(f, constants, target.into(), &Script::of_choices(values))
}

/// The unscheduled `f` as the rules begin with it: compute blocks are inlined, and a reduction that writes a result
/// has a block behind it that does so. Its trace has the instructions.
///
/// # Errors
/// A reduction that cannot be cut off from its result.
pub fn prepared<'a>(
    f: &TensorFunction,
    constants: &[BufferId],
    target: impl Into<ScheduleTarget<'a>>,
) -> Result<TensorFunction, ScheduleError> {
    let mut sketch = Sketch::new(f.clone(), constants, target.into(), &script::NOTHING);
    predict::prepare(&mut sketch, false);
    sketch.together(|s| s.units().map(drop))?;
    Ok(sketch.f)
}

/// Schedules by a script, also for open sizes.
fn schedule_by(
    f: &TensorFunction,
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
    script: &Script,
) -> Result<Scheduled, ScheduleError> {
    match f.symbols.is_empty() {
        true => units::schedule(f, constants, target, script),
        false => open::schedule_by(f, constants, target, script),
    }
}

/// The script of a schedule's text. Lines that request versions concern the function as a whole.
fn script_of(pending: &[InstrRef]) -> Script {
    let own = pending.iter().filter(|i| Version::of_instruction(i).is_none());
    Script::read(&own.cloned().collect::<Vec<_>>())
}

/// The choices that a schedule was made with, in order, each with its domain.
pub fn choices(trace: &[InstrRef]) -> Vec<&Choose> {
    trace.iter().filter_map(Choose::of_instruction).collect()
}

/// The candidates that a schedule took for the blocks of a kernel, by the `choose` lines of its trace, as refused ones.
/// `blocks` are the kernel's; where no unit has one of them, all units of the schedule are given.
pub fn taken_candidates(trace: &[InstrRef], blocks: &[Name], why: &str) -> Vec<RefusedCandidate> {
    let mut all: Vec<RefusedCandidate> = Vec::new();
    for c in trace.iter().filter_map(Choose::of_instruction) {
        match (&c.value, c.point.as_str()) {
            (Attr::Str(rule), FUNCTION | RULE) => {
                let (unit, rule, why) = (c.unit, rule.clone(), why.to_string());
                all.push(RefusedCandidate { unit, rule, values: vec![], why });
            }
            _ => {
                if let Some(last) = all.last_mut().filter(|l| l.unit == c.unit) {
                    last.values.push((c.point, print_value(&c.value)));
                }
            }
        }
    }
    let own = |r: &RefusedCandidate| blocks.iter().any(|b| b.as_str().starts_with(r.unit.as_str()));
    if all.iter().any(own) {
        all.retain(own);
    }
    all
}

/// Where choices in the pending schedule of `f` were edited: asks the rules again for their units, and makes that the
/// pending schedule. What is written for other units stays; what was written for these is replaced. True when there
/// were any. `constants` as for [`schedule`]; parameters that the schedule has packed are constants too.
///
/// # Errors
/// A value that is not in its domain or that its rule cannot take, and instructions that do not apply.
pub fn follow_choices<'a>(
    f: &mut TensorFunction,
    constants: &[BufferId],
    target: impl Into<ScheduleTarget<'a>>,
) -> Result<bool, ScheduleError> {
    if !has_edited_choices(f) {
        return Ok(false);
    }
    let script = script_of(&f.pending);
    let mut plain = if f.trace.is_empty() { f.canonical() } else { f.clone() };
    plain.pending.clear();
    let packed: Vec<Name> =
        f.pending.iter().filter_map(|i| i.as_any().downcast_ref::<TransformLayout>()).map(|t| t.buffer).collect();
    let inputs = plain.inputs().filter(|&b| constants.contains(&b) || packed.contains(&plain.buffers[b].name));
    let constants: Vec<BufferId> = inputs.collect();
    let made = schedule_by(&plain, &constants, target.into(), &script)?.function;
    let done = plain.trace.len();
    *f = plain;
    f.pending = made.trace[done..].to_vec();
    Ok(true)
}

/// True if a choice in the pending schedule of `f` differs from the value that the schedule was made with.
pub fn has_edited_choices(f: &TensorFunction) -> bool {
    f.pending.iter().filter_map(Choose::of_instruction).any(Choose::is_edited)
}
