//! Packs constant operands of a reduction within one thread in the order in which threads read them: depthwise weights
//! with the channels innermost.

use super::analysis::output_variables;
use super::sketch::Sketch;
use super::unit::Unit;
use super::view::View;
use crate::name::Name;
use crate::schedule::TransformLayout;
use crate::schedule::tiles::dimension_to_pack;
use crate::tir::BufferId;

/// Packs the constants that only the unit's reduction loads, so that neighbouring results of the innermost loop load
/// neighbouring elements. Constants that cannot be packed stay unchanged.
pub(super) fn pack_constants(sketch: &mut Sketch<'_>, unit: &Unit) {
    let view = sketch.view();
    let lane = view.loops(unit.output).ok().and_then(|all| all.into_iter().rfind(|l| !l.extent.is(1)));
    for (buffer, at) in lane.and_then(|l| to_pack(&view, unit, l.var)).unwrap_or_default() {
        let (name, rank) = (sketch.f.buffers[buffer].name, sketch.f.buffers[buffer].shape.len());
        let order = (0..rank).filter(|d| *d != at).chain([at]).collect();
        // A refusal leaves the constant as it came.
        let _ = sketch.apply(TransformLayout { buffer: name, splits: vec![], order });
    }
}

/// Constants with the dimension that becomes innermost, where `lane` is the innermost loop of the result.
pub(super) fn to_pack(view: &View<'_>, unit: &Unit, lane: Name) -> Option<Vec<(BufferId, usize)>> {
    let f = view.f;
    let blocks = f.body.blocks();
    let find = |name: Name| blocks.iter().find(|b| b.name == name).copied();
    let (r, c) = (find(unit.reduce?)?, find(unit.output)?);
    let var = output_variables(f, r, c).ok()?.iter().find(|m| m.1 == lane)?.0;
    let mut out: Vec<(BufferId, usize)> = Vec::new();
    for (b, index) in r.value.loads() {
        let alone = blocks.iter().filter(|other| other.reads(b)).count() == 1;
        if let Some(at) = dimension_to_pack(index, &f.buffers[b].shape, var)
            && alone
            && view.constants.contains(&b)
        {
            out.push((b, at));
        }
    }
    out.dedup();
    let one_way = |(b, _): &(BufferId, usize)| out.iter().filter(|o| o.0 == *b).count() == 1;
    let all: Vec<_> = out.iter().copied().filter(one_way).collect();
    Some(all)
}
