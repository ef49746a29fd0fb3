//! Groups of channels: the loop over the channels of a grouped product becomes one over groups and one over the
//! channels of a group, so that each group is a product of a batch.
//!
//! ```text
//! for c in 0..96:                                  for g in 0..2:
//!   for k in 0..48:                                  for i in 0..48:
//!     t[c] += x[c / 48 * 48 + k] * w[c, k]   =>        for k in 0..48:
//!                                                        t[g, i] += x[g * 48 + k] * w[g, i, k]
//! ```
//!
//! The split is made once, before any rule sees the unit. Weights and sums get a dimension for the groups; the data and
//! the results are read and written where they lie.
//!
//! On a processor the loops of a lone block are split too where it reads `x[i % 2, i / 2]`, as phases that are put into
//! their places do: the lanes are then results that read neighbours.

use super::analysis::output_variables;
use super::sketch::Sketch;
use super::unit::Unit;
use super::view::View;
use crate::int::{Bounds, Int, IntNode, simplify};
use crate::name::Name;
use crate::schedule::{ScheduleError, TransformLayout};
use crate::tir::{Block, BufferId, Combiner};

/// The channels of a grouped product.
struct Channels {
    /// The loops over all channels: of the reduction, and of the output.
    loops: [Name; 2],
    /// Channels of a group.
    size: i64,
    /// The buffers whose channels are split, with the dimension and the channels of a group there.
    buffers: Vec<(Name, usize, i64)>,
}

/// The units of a function ([`Sketch::units`]), grouped products with their channels split.
///
/// # Errors
/// When an instruction does not apply: a bug.
pub(super) fn units(sketch: &mut Sketch<'_>) -> Result<Vec<Unit>, ScheduleError> {
    let units = sketch.units()?;
    for u in &units {
        match u.reduce {
            Some(_) => split_groups(sketch, u)?,
            None if !sketch.profile.model().shaders => split_parts(sketch, u)?,
            None => {}
        }
    }
    Ok(units)
}

/// Splits the loops of a lone block whose quotients and remainders it reads. The loops over the rest go outside: the
/// block does the same in all other iterations.
fn split_parts(sketch: &mut Sketch<'_>, unit: &Unit) -> Result<(), ScheduleError> {
    let view = sketch.view();
    let Some((block, Ok(loops))) = view.block(unit.output).map(|b| (b, view.loops(unit.output))) else { return Ok(()) };
    let size = |v: Name| group_size(block, v).filter(|n| divides(&view, v, *n) && takes_remainder(block, v));
    let all: Vec<(Name, Option<i64>)> = loops.iter().map(|l| (l.var, size(l.var))).collect();
    if all.iter().all(|l| l.1.is_none()) {
        return Ok(());
    }
    let (mut outer, mut inner) = (vec![], vec![]);
    for (v, size) in all {
        let Some(size) = size else {
            inner.push(v);
            continue;
        };
        let parts = sketch.split(v, &[0, size], &["g", "c"])?;
        inner.push(parts[0]);
        outer.push(parts[1]);
    }
    outer.extend(inner);
    sketch.reorder(&outer)
}

fn split_groups(sketch: &mut Sketch<'_>, unit: &Unit) -> Result<(), ScheduleError> {
    let Some(found) = channels(&sketch.view(), unit) else { return Ok(()) };
    for v in found.loops {
        sketch.split(v, &[0, found.size], &["g", "c"])?;
    }
    for (buffer, dim, size) in found.buffers {
        let mut splits = vec![0; dim];
        splits.push(size);
        sketch.apply(TransformLayout { buffer, splits, order: vec![] })?;
    }
    Ok(())
}

fn channels(view: &View<'_>, unit: &Unit) -> Option<Channels> {
    let (r, c) = (view.block(unit.reduce?)?, view.block(unit.output)?);
    r.reduce.filter(|r| r.combiner == Combiner::Sum)?;
    let pairs = output_variables(view.f, r, c).ok()?;
    pairs.into_iter().find_map(|(own, out)| {
        let size = group_size(r, own).filter(|n| divides(view, own, *n) && divides(view, out, *n))?;
        let sums = (r.buffer, r.indices.iter().position(|i| i.as_var() == Some(own))?, size);
        let weights = view.constants.iter().filter_map(|b| weights_split(view, r, *b, (own, size)));
        let buffers = weights.chain([sums]).map(|(b, dim, n)| (view.f.buffers[b].name, dim, n));
        Some(Channels { loops: [own, out], size, buffers: buffers.collect() })
    })
}

fn divides(view: &View<'_>, v: Name, size: i64) -> bool {
    view.extent_of(v).is_some_and(|n| n > size && n % size == 0)
}

/// The channels of a group, if an operand is indexed by the group of channel `v`, `v / size`.
fn group_size(r: &Block, v: Name) -> Option<i64> {
    let (mut size, mut other) = (None, false);
    r.value.visit_ints(&mut |i| {
        i.visit(&mut |part| {
            let (IntNode::Div(a, n) | IntNode::Mod(a, n)) = part.node() else { return };
            if a.as_var() == Some(v) {
                let n = n.as_const();
                other |= n.is_none() || size.is_some_and(|known| Some(known) != n);
                size = n;
            }
        });
    });
    size.filter(|n| *n > 1 && !other)
}

/// True if something is indexed by a remainder of `v`.
fn takes_remainder(b: &Block, v: Name) -> bool {
    let mut found = false;
    b.value.visit_ints(&mut |i| {
        i.visit(&mut |part| found |= matches!(part.node(), IntNode::Mod(a, _) if a.as_var() == Some(v)));
    });
    found
}

/// The dimension of a constant that is indexed by the group and a place in it, and the places of a group.
fn weights_split(view: &View<'_>, r: &Block, b: BufferId, (v, size): (Name, i64)) -> Option<(BufferId, usize, i64)> {
    let loads = r.value.loads();
    let (_, indices) = loads.iter().find(|l| l.0 == b)?;
    let none = Bounds::new();
    let at = |i: &Int, channel: i64| simplify(&i.substitute(v, &Int::new(channel)), &none);
    indices.iter().enumerate().find_map(|(dim, i)| {
        let step = simplify(&(at(i, size) - at(i, 0)), &none).as_const().filter(|n| *n > 1)?;
        let whole = view.f.buffers[b].shape[dim].as_const().is_some_and(|n| n % step == 0);
        whole.then_some((b, dim, step))
    })
}

#[cfg(test)]
mod tests {
    use crate::profile::DeviceProfile;
    use crate::schedule::Split;
    use crate::schedule::rules::schedule;
    use crate::schedule::testing::{assert_same, parsed};
    use crate::tir::{BufferId, TensorFunction};

    /// A convolution along one axis, of `groups` groups with so many channels of results and of data.
    fn grouped(groups: i64, [results, data]: [i64; 2], transposed: bool) -> TensorFunction {
        let (all, depth) = (groups * results, groups * data);
        let (shape, weight) = match transposed {
            false => (format!("{all},{data}"), "c, k".to_string()),
            true => (format!("{depth},{results}"), format!("c / {results} * {data} + k, c % {results}")),
        };
        parsed(&format!(
            "tensor @g(%x: f32[{depth},40], %w: f32[{shape},3], out %y: f32[{all},38]) {{
               buffer %t: f32[{all},38] global
               for c in 0..{all} {{ for p in 0..38 {{ for k in 0..{data} {{ for q in 0..3 {{
                 block t reduce sum init {{
                   %t[c, p] <- %x[c / {results} * {data} + k, p + q] * %w[{weight}, q] }} }} }} }} }}
               for i in 0..{all} {{ for j in 0..38 {{ block y {{ %y[i, j] <- max(%t[i, j], 0.0) }} }} }}
             }}"
        ))
    }

    /// The function on a processor, its weights constant.
    fn on_processor(f: &TensorFunction) -> TensorFunction {
        let weights: Vec<BufferId> = f.inputs().skip(1).collect();
        let done = schedule(f, &weights, &DeviceProfile::processor(2, [14, 32])).unwrap_or_else(|e| panic!("{e}"));
        assert_same(f, &done.function);
        done.function
    }

    /// Convolutions and transposed ones: the loops over channels are split, in the reduction and behind it.
    #[test]
    fn a_group_is_a_product_of_a_batch() {
        for (groups, channels) in [(2, [48, 48]), (3, [40, 16]), (16, [6, 6]), (8, [2, 5])] {
            for transposed in [false, true] {
                let f = on_processor(&grouped(groups, channels, transposed));
                let split = f.trace.iter().filter(|i| i.as_any().is::<Split>()).count();
                assert!(split >= 2, "{groups} {channels:?}: {:?}", f.trace);
            }
        }
    }

    /// A channel of its own for each result has no loop over channels of a group.
    #[test]
    fn other_products_stay_as_they_are() {
        for groups in [1, 96] {
            let f = on_processor(&grouped(groups, [96 / groups, 96 / groups], false));
            let found = f.trace.iter().any(|i| i.text().contains("_g, "));
            assert!(!found, "{:?}", f.trace);
        }
    }
}
