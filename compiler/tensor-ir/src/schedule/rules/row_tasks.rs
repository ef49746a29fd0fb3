//! Softmax, log-softmax and normalisations on a processor: a task computes a row, or a few short ones. Their reductions
//! run one after another along the rows, which stay in the first cache, then the rows are written.
//!
//! ```text
//! kernel max { for i { for k { m[i] max= x[i, k] } } }     kernel y { for i as a task {
//! kernel sum { for i { for k { s[i] += x[i, k] } } }         for k { m max= x[i, k] }  for k { s += x[i, k] }
//! kernel y { for i { for k { y[i, k] = .. } } }              for k { y[i, k] = .. } } }
//! ```

use super::candidate::{Candidate, NoChoice};
use super::decline::Decline;
use super::rows::{Grouped, Rows, find_rows, splits_of};
use super::sketch::Sketch;
use super::unit::Unit;
use super::view::View;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::estimate::{KernelEstimate, row_task_kernel};
use crate::schedule::{Axis, ComputeAt, DecomposeReduction, LocalScope};

/// Elements of the rows of a task, at most, where there are fewer rows than cores: longer ones are shared.
const ALONE: i64 = 1 << 14;

/// A whole function whose one output block reads row reductions, of rows whose elements are adjacent.
pub(super) fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    let known = view.once(unit, |view| Grouped::of(view, unit));
    let Grouped { rows, .. } = known.as_ref().as_ref().map_err(Clone::clone)?;
    if rows.row.is_empty() {
        return Err(Decline("there is a single row".into()));
    }
    if rows.run != rows.length {
        return Err(Decline("the elements of a row are apart".into()));
    }
    if rows.count < i64::from(view.profile.cores) && rows.length > ALONE {
        let text =
            format!("{} rows of {} elements are too few for {} cores", rows.count, rows.length, view.profile.cores);
        return Err(Decline(text));
    }
    Ok(vec![Candidate::new(NoChoice {})])
}

/// Elements of the rows of a task, at most, where it has several; and tasks for each core that are left, at least.
const TOGETHER: i64 = 1 << 12;
const TASKS_OF_CORE: i64 = 8;

/// Rows of a task: as many of `own` rows of `length` elements as have at most `most` elements, where enough tasks are
/// left of `all` with one row each.
pub(super) fn rows_of_task([own, all]: [i64; 2], length: i64, most: i64, p: &DeviceProfile) -> i64 {
    let tasks = i64::from(p.cores) * TASKS_OF_CORE;
    (1..=own.min(most / length.max(1))).rev().find(|d| own % d == 0 && all / d >= tasks).unwrap_or(1)
}

/// Rows of a task. They are neighbours along the innermost loop of rows. If a task had rows of two iterations of the
/// loop around, its reductions would be computed for all rows of both iterations.
fn rows_of_each(rows: &Rows, p: &DeviceProfile) -> i64 {
    rows_of_task([rows.neighbours, rows.count], rows.length, TOGETHER, p)
}

/// The kernel whose tasks compute a few rows each.
pub(super) fn price(view: &View<'_>, unit: &Unit, _: &Candidate) -> Vec<KernelEstimate> {
    let known = view.once(unit, |view| Grouped::of(view, unit));
    let Ok(Grouped { f, rows }) = &*known else { return vec![] };
    let tasks = rows.count / rows_of_each(rows, view.profile);
    row_task_kernel(view.with(f).stages(), rows.output, tasks as f64)
}

/// Makes tasks of rows, and moves the reductions into it.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, _: &Candidate) -> Result<(), Decline> {
    splits_of(&sketch.view(), unit.output)?.into_iter().try_for_each(|s| sketch.apply(s))?;
    let rows = find_rows(&sketch.view(), unit.output)?;
    let order: Vec<Name> = rows.row.iter().chain(&rows.inner).copied().collect();
    sketch.reorder(&order)?;
    let row = sketch.fuse(&rows.row, Name::new(&format!("{}_row", rows.output)))?;
    let together = rows_of_each(&rows, sketch.profile);
    let task = if together > 1 { sketch.split(row, &[0, together], &["o", "i"])?[0] } else { row };
    sketch.bind(task, Axis::GroupX)?;
    // Last first: each moves before what reads it.
    for &reduction in rows.reductions.iter().rev() {
        sketch.apply(ComputeAt { block: reduction, at: task, scope: LocalScope::Register })?;
        if let Some(first) = sketch.inside(reduction, task)?.first().copied() {
            sketch.apply(DecomposeReduction { block: reduction, at: first })?;
        }
    }
    Ok(())
}
