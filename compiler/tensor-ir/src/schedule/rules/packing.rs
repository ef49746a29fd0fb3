//! Packs constant operands of a reduction within one thread in the order in which threads read them: depthwise weights
//! with the channels innermost.

use super::analysis::{Unit, output_variables};
use super::sketch::Sketch;
use crate::int::Int;
use crate::name::Name;
use crate::schedule::TransformLayout;
use crate::tir::BufferId;

/// The dimension of an operand at `index` that packing makes innermost: the dimension that `var` indexes, if it is not
/// contiguous already. `None` if packing would not help.
pub(in crate::schedule) fn dimension_to_pack(index: &[Int], shape: &[Int], var: Name) -> Option<usize> {
    let mut using = index.iter().enumerate().filter(|(_, i)| i.uses(var));
    let (at, i) = using.next()?;
    let strided = shape[at + 1..].iter().any(|n| !n.is(1));
    (using.next().is_none() && i.as_var() == Some(var) && strided).then_some(at)
}

/// Packs the constants that only the unit's reduction loads, so that neighbouring results of the innermost loop load
/// neighbouring elements. Constants that cannot be packed stay unchanged.
pub(super) fn pack_constants(sketch: &mut Sketch<'_>, unit: &Unit) {
    for (buffer, at) in to_pack(sketch, unit).unwrap_or_default() {
        let (name, rank) = (sketch.f.buffers[buffer].name, sketch.f.buffers[buffer].shape.len());
        let order = (0..rank).filter(|d| *d != at).chain([at]).collect();
        // A refusal leaves the constant as it came.
        let _ = sketch.apply(TransformLayout { buffer: name, splits: vec![], order });
    }
}

/// Constants with the dimension that becomes innermost.
fn to_pack(sketch: &Sketch<'_>, unit: &Unit) -> Option<Vec<(BufferId, usize)>> {
    let f = &sketch.f;
    let blocks = f.body.blocks();
    let find = |name: Name| blocks.iter().find(|b| b.name == name).copied();
    let (r, c) = (find(unit.reduce?)?, find(unit.output)?);
    let last = sketch.loops(unit.output).ok()?.into_iter().rev().find(|l| !l.extent.is(1))?.var;
    let var = output_variables(f, r, c).ok()?.iter().find(|m| m.1 == last)?.0;
    let mut out: Vec<(BufferId, usize)> = Vec::new();
    for (b, index) in r.value.loads() {
        let alone = blocks.iter().filter(|other| other.reads(b)).count() == 1;
        if let Some(at) = dimension_to_pack(index, &f.buffers[b].shape, var)
            && alone
            && sketch.constants.contains(&b)
        {
            out.push((b, at));
        }
    }
    out.dedup();
    let one_way = |(b, _): &(BufferId, usize)| out.iter().filter(|o| o.0 == *b).count() == 1;
    let all: Vec<_> = out.iter().copied().filter(one_way).collect();
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_go_innermost_where_they_do_not_lie_so() {
        let [c, r, s] = ["c", "r", "s"].map(|n| Int::var(Name::new(n)));
        let shape = [32, 1, 3, 3].map(Int::new);
        let index = [c.clone(), Int::new(0), r.clone(), s.clone()];
        assert_eq!(dimension_to_pack(&index, &shape, "c".into()), Some(0));
        assert_eq!(dimension_to_pack(&index, &shape, "s".into()), None, "innermost already");
        let packed = [r.clone(), s, c.clone()];
        assert_eq!(dimension_to_pack(&packed, &[3, 3, 32].map(Int::new), "c".into()), None);
        let mixed = [c + r.clone(), r];
        assert_eq!(dimension_to_pack(&mixed, &[32, 3].map(Int::new), "c".into()), None, "not the loop alone");
    }
}
