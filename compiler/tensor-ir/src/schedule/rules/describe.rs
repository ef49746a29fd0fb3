//! A description in words of the schedule of each unit.

use crate::name::Name;
use crate::schedule::loops::{LoopHead, loops_around_block};
use crate::tir::TensorFunction;

/// A line for each unit, by the block that ends it and the rule that took it: the loops around the block, outermost
/// first, are the unit's tile.
pub(super) fn describe_units(f: &TensorFunction, taken: &[(Name, &'static str)]) -> Vec<String> {
    let extent = |l: &LoopHead| format!("{} {}", l.kind.word().unwrap_or("for".into()), l.extent);
    let line = |(block, rule): &(Name, &'static str)| {
        let loops: Vec<String> = loops_around_block(f, *block).unwrap_or_default().iter().map(extent).collect();
        match loops.is_empty() {
            true => format!("rule {rule} took {block}"),
            false => format!("rule {rule} took {block}: {}", loops.join(", ")),
        }
    };
    taken.iter().map(line).collect()
}
