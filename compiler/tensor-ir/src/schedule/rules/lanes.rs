//! Units on a processor: the outer loops of a result are tasks; a task computes the inner loops, many elements an
//! operation.
//!
//! A reduction is kept in task memory, for all lanes of the inner loops at once. Its own loops go outside of them if
//! the lanes of an operand are adjacent in memory (depthwise convolution, pooling, reductions over outer dimensions),
//! and inside if the elements of the reduction are (softmax, norms, means over the last dimension).
//!
//! The results of a narrow group of channels share what they read: they are the rows of tiles whose columns are the
//! lanes.

use super::analysis::{contraction, output_variables};
use super::candidate::Candidate;
use super::decline::Decline;
use super::packing::{pack_constants, to_pack};
use super::row_tasks::rows_of_task;
use super::sketch::Sketch;
use super::unit::Unit;
use super::view::View;
use crate::candidate;
use crate::dtype::DType;
use crate::int::{Int, IntNode};
use crate::name::Name;
use crate::schedule::estimate::{
    KernelEstimate, LaneTasks, NEAR_LANES, RegisterTiles, lane_kernel, read_again, register_tile_kernel,
};
use crate::schedule::loops::LoopHead;
use crate::schedule::{Axis, ComputeAt, DecomposeReduction, LocalScope};
use crate::tir::intrinsic::strides;
use crate::tir::{Block, BufferId, Encoding, Expr, Scope};

/// Lanes from which on an operation's dispatch is a small part of it.
const ENOUGH: i64 = 256;
/// Lanes of a task, at most, where its innermost loop is longer.
const MOST: i64 = 1 << 14;
/// The same where a task keeps nothing in memory, and the tasks for a core that are left then, at least.
const ENOUGH_ALONE: i64 = 1 << 12;
const MOST_ALONE: i64 = 1 << 16;
const TASKS_OF_CORE: i64 = 8;
/// Sums that a task keeps where a loop has an open length, about; and the least part of that loop.
const KEPT: i64 = 1 << 11;
const FEW: i64 = 8;
/// Sums of rows that share what they read, at most: they stay in the core's second cache.
const MOST_SHARED: i64 = 1 << 16;
/// Elements of a sum whose lanes lie a few elements apart, at most: a window of a few channels.
const MOST_SPREAD: i64 = 1 << 10;
/// Elements of a line of the cache.
const LINE: i64 = 16;

candidate! {
    /// The part of a unit that is a task.
    pub(super) struct KeptLoops {
        /// Inner loops of the result that a task keeps.
        pub kept: i64,
    }
}

/// Any unit. Other numbers of loops than the usual one are for searches.
pub(super) fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    let all = kept(view, unit)?.into_iter().map(|kept| Candidate::new(KeptLoops { kept }));
    Ok(all.enumerate().map(|(n, c)| if n == 0 { c } else { c.on_request() }).collect())
}

/// The kernel whose tasks compute the inner loops. Units with windows are weighed with what they are joined to.
pub(super) fn price(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    match (&unit.window, shared_rows(view, unit)) {
        (Some(_), _) => vec![],
        (None, Some(rows)) => register_tile_kernel(view.stages(), [unit.name(), unit.output], rows.in_tiles(view)),
        (None, None) => {
            let how = candidate.choices::<KeptLoops>().ok().and_then(|c| tasks(view, unit, c.kept));
            how.map_or(vec![], |how| lane_kernel(view.stages(), unit.reduce, unit.output, &how))
        }
    }
}

/// Numbers of inner loops that a task may keep, the usual one first; that one alone where rows of channels are tiles.
fn kept(view: &View<'_>, unit: &Unit) -> Result<Vec<i64>, Decline> {
    let loops = loops(view, unit)?;
    // An open size counts as many.
    let extents: Vec<i64> = loops.iter().map(|l| l.extent.as_const().unwrap_or(i64::MAX)).collect();
    let cores = i64::from(view.profile.cores);
    let usual = kept_loops(&extents, cores, least_kept(unit, across(view, unit)));
    let usual = if unit.reduce.is_some() { usual } else { kept_alone(&extents, cores, usual) };
    let lanes = |n: &usize| extents[extents.len() - n..].iter().fold(1i64, |all, n| all.saturating_mul(*n));
    let alone = unit.window.is_some() || shared_rows(view, unit).is_some();
    let others = (1..extents.len()).filter(|n| !alone && *n != usual && lanes(n) <= MOST);
    Ok(std::iter::once(usual).chain(others).map(|n| n as i64).collect())
}

/// The loops of a result, the columns of a product last, wherever they are stored: the lanes of its packed constant.
fn loops(view: &View<'_>, unit: &Unit) -> Result<Vec<LoopHead>, Decline> {
    let mut all = view.loops(unit.output)?;
    let product = contraction(view, unit).ok().filter(|c| c.right_constant && c.batch.is_empty());
    if let Some(columns) = product.as_ref().and_then(|c| c.n.last()).filter(|_| unit.window.is_none())
        && let Some(at) = all.iter().position(|l| l.var == *columns)
    {
        let last = all.remove(at);
        all.push(last);
    }
    Ok(all)
}

/// The loop whose iterations are the lanes, of a result that is no sum across lanes.
fn lane(view: &View<'_>, unit: &Unit) -> Option<Name> {
    Some(loops(view, unit).ok()?.into_iter().rfind(|l| !l.extent.is(1))?.var)
}

/// The reduction loop whose iterations are the lanes, once constants are packed.
fn across(view: &View<'_>, unit: &Unit) -> Option<Name> {
    let to_pack = || lane(view, unit).and_then(|lane| to_pack(view, unit, lane));
    let packs = unit.window.is_none() && to_pack().is_some_and(|list| !list.is_empty());
    if packs { None } else { goes_across(view, unit) }
}

/// The tasks that [`bind_outer`] makes.
fn tasks(view: &View<'_>, unit: &Unit, kept: i64) -> Option<LaneTasks> {
    let across = across(view, unit);
    let loops = loops(view, unit).ok()?;
    let extents: Vec<i64> = loops.iter().map(|l| view.constant_extent(&l.extent).ok()).collect::<Option<_>>()?;
    let (outer, inner) = extents.split_at(extents.len().checked_sub(kept as usize)?);
    let mut inner: Vec<i64> = inner.to_vec();
    let mut tasks = outer.iter().product::<i64>() as f64;
    if inner.is_empty() || outer.is_empty() {
        // As `bind_outer`, which splits the innermost loop, or the outermost one.
        let at = if inner.is_empty() { outer.last().copied() } else { inner.first().copied() };
        let n = at.unwrap_or(1);
        let part = n.min(MOST);
        tasks *= if inner.is_empty() { 1.0 / n as f64 } else { 1.0 } * (n as f64 / part as f64).ceil();
        match inner.first_mut() {
            Some(first) => *first = part,
            None => inner.push(part),
        }
    }
    let around: Vec<Name> = loops[..outer.len()].iter().map(|l| l.var).collect();
    let alone = kept > 0 && unit.reduce.is_none() && transposed(view, unit, &loops, &around).is_none();
    if let Some(n) = outer.last().filter(|_| alone) {
        let more = rows_of_task([*n, tasks as i64], inner.iter().product(), MOST, view.profile);
        tasks /= more as f64;
        inner.insert(0, more);
    }
    inner.retain(|n| *n > 1);
    Some(LaneTasks { tasks, inner, across })
}

/// Inner loops that a task keeps at least: rows of a window share its weights, and what they read.
fn least_kept(unit: &Unit, across: Option<Name>) -> usize {
    if unit.reduce.is_some() && across.is_none() { 2 } else { 1 }
}

/// How many of the innermost loops of these extents a task keeps: `least` where these are not too long and the outer
/// ones are enough for all cores.
fn kept_loops(extents: &[i64], cores: i64, least: usize) -> usize {
    let (mut lanes, mut inner) = (1i64, 0);
    for (at, n) in extents.iter().enumerate().rev() {
        let tasks = extents[..at].iter().fold(1i64, |all, n| all.saturating_mul(*n));
        let enough = inner >= least || tasks < cores;
        if lanes >= ENOUGH && enough || lanes.saturating_mul(*n) > MOST {
            break;
        }
        (lanes, inner) = (lanes * n, inner + 1);
    }
    inner
}

/// How many loops a task keeps that has no sums, at least `inner`: short runs of lanes cost as much as their task.
fn kept_alone(extents: &[i64], cores: i64, mut inner: usize) -> usize {
    let product = |part: &[i64]| part.iter().fold(1i64, |all, n| all.saturating_mul(*n));
    while let Some(at) = extents.len().checked_sub(inner + 1) {
        let lanes = product(&extents[at + 1..]);
        let whole = product(&extents[at..]) <= MOST_ALONE && product(&extents[..at]) >= cores * TASKS_OF_CORE;
        if lanes >= ENOUGH_ALONE || !whole {
            break;
        }
        inner += 1;
    }
    inner
}

/// Results of a product that differ in constants alone, lane by lane: they read the same elements.
struct SharedRows {
    /// The loop over these results.
    rows: Name,
    /// The loop over lanes.
    lanes: Name,
    /// The loops outside.
    outer: Vec<Name>,
    /// Elements of each sum.
    depth: i64,
}

/// The rows of each product of a batch whose innermost results lie next to each other in what they read.
fn shared_rows(view: &View<'_>, unit: &Unit) -> Option<SharedRows> {
    let c = contraction(view, unit).ok().filter(|c| c.right_constant && !c.batch.is_empty())?;
    let [rows] = c.n[..] else { return None };
    let loops = view.loops(unit.output).ok()?;
    let lanes = loops.iter().rfind(|l| !l.extent.is(1)).map(|l| l.var).filter(|v| c.m.contains(v))?;
    goes_across(view, unit).is_none().then_some(())?;
    let own = output_variables(view.f, view.block(unit.reduce?)?, view.block(unit.output)?).ok()?;
    let lane = own.iter().find(|p| p.1 == lanes)?.0;
    is_near(view, view.block(unit.reduce?)?, lane).then_some(())?;
    (view.product(&[rows, lanes]) <= MOST_SHARED).then_some(())?;
    let outer = loops.iter().map(|l| l.var).filter(|v| ![rows, lanes].contains(v)).collect();
    Some(SharedRows { rows, lanes, outer, depth: view.product(&c.k) })
}

impl SharedRows {
    /// The tiles, each of all rows and one row of lanes.
    fn in_tiles(&self, view: &View<'_>) -> RegisterTiles {
        let [rows, lanes, count] = [&[self.rows][..], &[self.lanes], &self.outer].map(|l| view.product(l) as f64);
        let depth = self.depth as f64;
        let again = read_again(count * lanes * depth * 4.0, (lanes + rows) * depth * 4.0);
        RegisterTiles {
            count,
            tasks: count,
            tallest: rows,
            rows,
            columns: lanes,
            taps: depth,
            depth: 1.0,
            at_once: 1.0,
            again,
            ..RegisterTiles::default()
        }
    }
}

/// Makes tasks of the outer loops.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    if sketch.loops(unit.output)?.is_empty() {
        let Some(reduce) = unit.reduce else { return Ok(()) };
        let mut order: Vec<Name> = sketch.loops(reduce)?.iter().map(|l| l.var).collect();
        return join_run(sketch, reduce, &mut order);
    }
    if let Some(found) = shared_rows(&sketch.view(), unit).filter(|_| unit.window.is_none()) {
        return share_rows(sketch, unit, &found);
    }
    let kept = sketch.choose("kept", &kept(&sketch.view(), unit)?, candidate.choices::<KeptLoops>()?.kept)?;
    let order: Vec<Name> = loops(&sketch.view(), unit)?.iter().map(|l| l.var).collect();
    if sketch.loops(unit.output)?.iter().map(|l| l.var).ne(order.iter().copied()) {
        sketch.reorder(&order)?;
    }
    if unit.window.is_none() {
        pack_constants(sketch, unit);
    }
    let task = bind_outer(sketch, unit, kept)?;
    match unit.reduce {
        Some(reduce) => accumulate(sketch, unit, reduce, task),
        None => split_by_quotients(sketch, unit, task),
    }
}

/// Splits the loops of a task that indices divide with remainders, the remainder outside: then all places move evenly.
///
/// ```text
/// for x in 0..64 { y[x] = a[x / 2, x % 2] }   ->   for xi in 0..2 { for xo in 0..32 { y[xo*2 + xi] = a[xo, xi] } }
/// ```
fn split_by_quotients(sketch: &mut Sketch<'_>, unit: &Unit, task: Name) -> Result<(), Decline> {
    for v in sketch.inside(unit.output, task)? {
        if let Some(by) = divisor(&sketch.view(), unit.output, v) {
            let parts = sketch.split(v, &[0, by], &["o", "i"])?;
            sketch.reorder(&[parts[1], parts[0]])?;
        }
    }
    Ok(())
}

/// The one number by which indices of the block divide loop `v`, with remainders, and its iterations are divisible.
fn divisor(view: &View<'_>, block: Name, v: Name) -> Option<i64> {
    let extent = view.extent_of(v)?;
    let (mut found, mut fits, mut remains) = (None, true, false);
    view.block(block)?.value.visit_ints(&mut |i| {
        i.visit(&mut |i| {
            if let IntNode::Div(of, by) | IntNode::Mod(of, by) = i.node()
                && of.uses(v)
            {
                let by = by.as_const().filter(|n| of.as_var() == Some(v) && *n > 1 && extent % n == 0);
                fits &= by.is_some() && (found.is_none() || found == by);
                remains |= matches!(i.node(), IntNode::Mod(..));
                found = by;
            }
        });
    });
    found.filter(|n| fits && remains && *n < extent)
}

/// Makes tasks of rows that share what they read.
fn share_rows(sketch: &mut Sketch<'_>, unit: &Unit, found: &SharedRows) -> Result<(), Decline> {
    let reduce = unit.reduce.ok_or_else(Decline::other_kind)?;
    let order: Vec<Name> = found.outer.iter().chain(&[found.rows, found.lanes]).copied().collect();
    sketch.reorder(&order)?;
    let task = sketch.fuse(&found.outer, Name::new(&format!("{}_t", unit.output)))?;
    sketch.bind(task, Axis::GroupX)?;
    accumulate(sketch, unit, reduce, task)
}

/// Makes tasks of the outer loops around a unit's result, which keep so many inner loops; gives the loop over tasks.
/// Sums are kept for a part of a loop of open length.
fn bind_outer(sketch: &mut Sketch<'_>, unit: &Unit, kept: i64) -> Result<Name, Decline> {
    let block = unit.output;
    let loops = sketch.loops(block)?;
    let extent = |l: &LoopHead| sketch.constant_extent(&l.extent);
    let inner = usize::try_from(kept).unwrap_or(0).min(loops.len());
    let mut outer: Vec<Name> = loops[..loops.len() - inner].iter().map(|l| l.var).collect();
    let open = loops[loops.len() - inner..].iter().rev().position(|l| sketch.script.is_open(l.var));
    if let Some(inside) = open.filter(|_| unit.reduce.is_some()) {
        let at = loops.len() - 1 - inside;
        let lanes = loops[at + 1..].iter().map(extent).product::<Result<i64, Decline>>()?;
        let parts = sketch.split(loops[at].var, &[0, (KEPT / lanes.max(1)).clamp(FEW, ENOUGH)], &["o", "i"])?;
        outer = loops[..at].iter().map(|l| l.var).chain([parts[0]]).collect();
    } else if inner == 0 || outer.is_empty() {
        // The innermost loop is too long, or all is one task.
        let at = &loops[if inner == 0 { loops.len() - 1 } else { 0 }];
        let n = sketch.constant_extent(&at.extent)?;
        let lanes = (1..=n.min(MOST)).rev().find(|d| n % d == 0).filter(|d| d * 4 >= n.min(MOST)).unwrap_or(MOST);
        let parts = sketch.split(at.var, &[0, lanes], &["o", "i"])?;
        outer.retain(|v| *v != at.var);
        outer.push(parts[0]);
    }
    match (transposed(&sketch.view(), unit, &loops, &outer), outer.last().copied()) {
        (Some(kept), _) => keep_rows(sketch, kept, LINE, &mut outer)?,
        (None, Some(last)) if unit.reduce.is_none() && inner > 0 && loops.len() > inner => {
            let extents = |list: &[Name]| list.iter().map(|v| sketch.extent_of(*v).unwrap_or(1)).product();
            let (tasks, own): (i64, i64) = (extents(&outer), extents(&[last]));
            let inside = loops[loops.len() - inner..].iter().map(|l| l.extent.as_const().unwrap_or(MOST));
            let more = rows_of_task([own, tasks], inside.product(), MOST, sketch.profile);
            (more > 1).then(|| keep_rows(sketch, last, more, &mut outer)).transpose()?;
        }
        _ => {}
    }
    let task = sketch.fuse(&outer, Name::new(&format!("{block}_t")))?;
    sketch.bind(task, Axis::GroupX)?;
    Ok(task)
}

/// The outer loop along which an operand of an elementwise unit is adjacent in memory, if that is apart along the
/// innermost loop: a transpose.
fn transposed(view: &View<'_>, unit: &Unit, loops: &[LoopHead], outer: &[Name]) -> Option<Name> {
    let (block, inner) = (view.block(unit.output)?, loops.iter().rfind(|l| !l.extent.is(1))?.var);
    let apart = |load| stride(view, load, inner).is_none_or(|s| s.abs() > 1);
    let turned = |v: Name| block.value.loads().into_iter().any(|load| apart(load) && stride(view, load, v) == Some(1));
    let large = |v: Name| loops.iter().any(|l| l.var == v && l.extent.as_const().is_some_and(|n| n >= FEW));
    outer.iter().copied().find(|v| unit.reduce.is_none() && *v != inner && large(*v) && turned(*v))
}

/// Keeps so many rows in a task. Rows of a transpose are read together, as they share lines of the cache.
fn keep_rows(sketch: &mut Sketch<'_>, rows: Name, count: i64, outer: &mut [Name]) -> Result<(), Decline> {
    let parts = sketch.split(rows, &[0, count], &["o", "i"])?;
    outer.iter_mut().filter(|v| **v == rows).for_each(|v| *v = parts[0]);
    let order: Vec<Name> = outer.iter().copied().chain([parts[1]]).collect();
    sketch.reorder(&order).map_err(Decline::from)
}

/// Keeps the sums of `reduce` in task memory.
fn accumulate(sketch: &mut Sketch<'_>, unit: &Unit, reduce: Name, task: Name) -> Result<(), Decline> {
    let across = goes_across(&sketch.view(), unit);
    sketch.apply(ComputeAt { block: reduce, at: task, scope: LocalScope::Register })?;
    let around = sketch.loops(reduce)?;
    let start = around.iter().position(|l| l.var == task).map_or(0, |p| p + 1);
    let inside: Vec<LoopHead> = around[start..].to_vec();
    let reductions = sketch.f.reduction_loops(reduce);
    let (mut taps, spatial): (Vec<Name>, Vec<Name>) =
        inside.iter().map(|l| l.var).partition(|v| reductions.contains(v));
    if let Some(v) = across {
        taps.retain(|t| *t != v);
        taps.push(v);
    }
    let mut order: Vec<Name> = match across {
        Some(_) => spatial.iter().chain(&taps).copied().collect(),
        None => {
            let (outer, lane) = spatial.split_at(spatial.len().saturating_sub(1));
            outer.iter().chain(&taps).chain(lane).copied().collect()
        }
    };
    sketch.reorder(&order)?;
    if across.is_some() {
        join_run(sketch, reduce, &mut order)?;
    }
    match order.first() {
        Some(first) if !reductions.is_empty() => {
            sketch.apply(DecomposeReduction { block: reduce, at: *first })?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Fuses the last of the loops in `order` while they read element after element. A run is added up in many partial
/// sums, and its sum to one accumulator: many short runs would lose digits there.
fn join_run(sketch: &mut Sketch<'_>, reduce: Name, order: &mut Vec<Name>) -> Result<(), Decline> {
    while let [.., outer, inner] = order[..] {
        if !continues(&sketch.view(), reduce, outer, inner) {
            break;
        }
        sketch.fuse(&[outer, inner], inner)?;
        order.remove(order.len() - 2);
    }
    Ok(())
}

/// True if each load of the reduction goes on in the next iteration of loop `outer` where loop `inner` ended, and
/// nothing else of its value depends on the two.
fn continues(view: &View<'_>, reduce: Name, outer: Name, inner: Name) -> bool {
    let reductions = view.f.reduction_loops(reduce);
    let (Some(block), Ok(loops)) = (view.block(reduce), view.loops(reduce)) else { return false };
    let Some(n) = loops.iter().find(|l| l.var == inner).and_then(|l| l.extent.as_const()) else { return false };
    let mut plain = [outer, inner].iter().all(|v| reductions.contains(v));
    block.value.visit(&mut |e| plain &= !matches!(e, Expr::Index(..) | Expr::All(_)));
    let goes_on =
        |load| matches!((stride(view, load, outer), stride(view, load, inner)), (Some(o), Some(i)) if o == i * n);
    plain && block.value.loads().into_iter().all(goes_on)
}

/// The reduction loop along which the operands are adjacent in memory, if they are not along the lanes of the result.
fn goes_across(view: &View<'_>, unit: &Unit) -> Option<Name> {
    let reduce = unit.reduce?;
    let (r, c) = (view.block(reduce)?, view.block(unit.output)?);
    let last = lane(view, unit)?;
    let lane = output_variables(view.f, r, c).ok()?.iter().find(|m| m.1 == last).map(|m| m.0);
    if lane.is_some_and(|v| is_near(view, r, v)) {
        return None;
    }
    view.f.reduction_loops(reduce).into_iter().find(|v| is_next(view, r, *v))
}

/// True if a load of the block moves by a few elements with the loop, as tiles read their lanes.
fn is_near(view: &View<'_>, b: &Block, v: Name) -> bool {
    let plain = |buffer: BufferId| {
        let of = &view.f.buffers[buffer];
        of.dtype == DType::F32 && of.encoding == Encoding::Native
    };
    // Longer ones are added up in partial sums.
    let short = || view.product(&view.f.reduction_loops(b.name)) <= MOST_SPREAD;
    let near = |load: (BufferId, &[Int])| match stride(view, load, v) {
        Some(1) => true,
        Some(step) => NEAR_LANES.contains(&step) && plain(load.0) && short(),
        None => false,
    };
    b.value.loads().into_iter().any(near)
}

/// True if a load of the block moves from one element to the next with the loop.
fn is_next(view: &View<'_>, b: &Block, v: Name) -> bool {
    b.value.loads().into_iter().any(|load| stride(view, load, v) == Some(1))
}

/// True for memory that tiles with such sums read: elements of that type, or of a shorter one that becomes it before it
/// is multiplied.
pub(super) fn holds_operands(view: &View<'_>, buffer: BufferId, sums: DType) -> bool {
    let b = &view.f.buffers[buffer];
    let fits = match sums {
        DType::F32 => matches!(b.dtype, DType::F32 | DType::F16 | DType::BF16) && b.encoding == Encoding::Native,
        DType::I32 => matches!(b.dtype, DType::I32 | DType::I8 | DType::U8) && b.encoding != Encoding::HalfPair,
        _ => false,
    };
    fits && b.scope == Scope::Global
}

/// The distance in elements between the elements that a load reads in two iterations of a loop that follow each other.
pub(super) fn stride(view: &View<'_>, (buffer, ix): (BufferId, &[Int]), v: Name) -> Option<i64> {
    strides(&view.f.buffers[buffer], ix, &[v], &view.f.bounds())?.first().copied()
}

#[cfg(test)]
mod tests {
    use crate::profile::DeviceProfile;
    use crate::schedule::rules::schedule;
    use crate::text::parse_tensor_function;

    /// Elements that follow each other in memory are one run, however many axes they lie along.
    #[test]
    fn short_inner_axes_are_summed_in_one_run() {
        let nest = "for a in 0..700 { for b in 0..2 { for c in 0..2 {";
        let whole = format!(
            "tensor @s(%x: f32[700,2,2], out %y: f32[]) {{ {nest} \
             block s reduce sum init {{ %y[] <- %x[a, b, c] }} }} }} }} }}"
        );
        let rows = format!(
            "tensor @s(%x: f32[9,700,2,2], out %y: f32[9]) {{ for i in 0..9 {{ {nest} block s reduce sum init {{ %y[i] <- %x[i, a, b, c] }} }} }} }} }} }}"
        );
        let apart = format!(
            "tensor @s(%x: f32[700,9,2,2], out %y: f32[9]) {{ for i in 0..9 {{ {nest} block s reduce sum init {{ %y[i] <- %x[a, i, b, c] }} }} }} }} }} }}"
        );
        let tile = DeviceProfile::processor(2, [6, 16]);
        for (text, runs) in [(whole, 1), (rows, 1), (apart, 2)] {
            let f = parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let s = schedule(&f, &[], &tile).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let name =
                s.function.body.blocks().iter().find(|b| b.reduce.is_some()).map(|b| b.name).expect("a reduction");
            assert_eq!(s.function.reduction_loops(name).len(), runs, "{text}");
        }
    }

    /// Windows over pictures of open sizes: a task keeps the results of a part of a row.
    #[test]
    fn windows_of_open_sizes_keep_a_part_of_a_row() {
        let inside = "all(i * 2 + r - 1 >= 0, i * 2 + r - 1 < h, j * 2 + s - 1 >= 0, j * 2 + s - 1 < w)";
        let sizes = "n,(h + 1)/2,(w + 1)/2,24";
        let [pool, weights] = [("max", ""), ("sum", " * %k[c, r, s]")].map(|(combiner, weights)| {
            format!(
                "tensor @f(%x: f32[n,h,w,24], %k: f32[24,3,3], out %y: f32[{sizes}]) {{
  symbol n in 1..=8
  symbol h in 1..=640
  symbol w in 1..=640
  buffer %t: f32[{sizes}] global
  for a in 0..n {{ for i in 0..(h + 1)/2 {{ for j in 0..(w + 1)/2 {{ for c in 0..24 {{ for r in 0..3 {{ for s in 0..3 {{
    block t reduce {combiner} init {{
      %t[a, i, j, c] <- select({inside}, %x[a, i * 2 + r - 1, j * 2 + s - 1, c], 0.0){weights}
    }}
  }} }} }} }} }} }}
  for a2 in 0..n {{ for i2 in 0..(h + 1)/2 {{ for j2 in 0..(w + 1)/2 {{ for c2 in 0..24 {{
    block y {{ %y[a2, i2, j2, c2] <- %t[a2, i2, j2, c2] + %k[c2, 0, 0] }}
  }} }} }} }}
}}"
            )
        });
        let profile = DeviceProfile::processor(2, [6, 16]);
        for text in [pool, weights] {
            let f = parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let s = schedule(&f, &[], &profile).unwrap_or_else(|e| panic!("{e}\n{text}"));
            assert!(s.rule == "lanes" && !s.compromise, "{:?}", s.declined);
        }
    }
}
