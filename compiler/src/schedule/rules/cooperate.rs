//! A reduction whose elements are shared out to the threads of a workgroup: partial results in workgroup memory, then a tree.

use super::sketch::{Decline, Sketch};
use crate::name::Name;
use crate::schedule::{Axis, DecomposeReduction, MemoryScope, Rfactor};

/// Partial results that one thread adds up by itself, at most.
const SERIAL: i64 = 16;

/// Distributes the reduction loops of `block`, which stand inside the workgroup's loop `at`, over `threads` threads along
/// x. Neighbouring threads take neighbouring elements. Every thread then has the result.
pub(super) fn reduce_over_threads(sketch: &mut Sketch<'_>, block: Name, at: Name, threads: i64) -> Result<(), Decline> {
    let loops = sketch.f.reduction_loops(block);
    if loops.is_empty() {
        return Ok(());
    }
    let extent: i64 = loops.iter().map(|v| sketch.extent_of(*v).unwrap_or(0)).product();
    let all = sketch.fuse(&loops, Name::new(&format!("{block}_all")))?;
    if extent < 2 * threads.min(SERIAL) {
        return set_identity(sketch, block, all);
    }
    let parts = sketch.split(all, &[0, threads], &["o", "t"])?;
    let part = Name::new(&format!("{block}_part"));
    let shared = MemoryScope::Shared;
    let axis = Some(Axis::LocalX);
    sketch.apply(Rfactor { block, r#loop: parts[1], into: part, scope: shared, at: Some(at), axis })?;
    let of_part = |v: Name| Name::new(&format!("{part}_{v}"));
    set_identity(sketch, part, of_part(parts[0]))?;
    let mut rest = parts[1];
    if threads > SERIAL {
        let halves = sketch.split(rest, &[0, threads.min(SERIAL * SERIAL) / SERIAL], &["o", "i"])?;
        let tree = Name::new(&format!("{block}_tree"));
        sketch.apply(Rfactor { block, r#loop: halves[1], into: tree, scope: shared, at: Some(at), axis })?;
        let of_tree = |v: Name| Name::new(&format!("{tree}_{v}"));
        set_identity(sketch, tree, of_tree(halves[0]))?;
        rest = halves[1];
    }
    set_identity(sketch, block, rest)
}

fn set_identity(sketch: &mut Sketch<'_>, block: Name, at: Name) -> Result<(), Decline> {
    sketch.apply(DecomposeReduction { block, at })?;
    Ok(())
}
