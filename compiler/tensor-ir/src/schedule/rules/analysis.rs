//! Analysis of units: their loops, and for contractions the loops that each operand uses.

use super::decline::Decline;
use super::unit::{Unit, block_of};
use super::view::View;
use crate::int::{Bounds, Int, flatten_index, simplify};
use crate::name::Name;
use crate::schedule::tiles::{innermost, window_index};
use crate::tir::analysis::operands::{factors, without_casts};
use crate::tir::{Block, BufferId, Combiner, Expr, Scope, TensorFunction};

/// The unit of a function as a whole: one block, the last, writes its result, and there are reductions. Where that is a
/// reduction too, it is the unit's own. `None` for any other function.
pub(super) fn whole_unit(view: &View<'_>) -> Option<Unit> {
    let f = view.f;
    let (reductions, computed): (Vec<&Block>, Vec<&Block>) =
        f.body.blocks().into_iter().partition(|b| b.reduce.is_some());
    let writes = |b: &Block| f.outputs().any(|o| o == b.buffer);
    let (output, reduce) = match (computed.as_slice(), reductions.as_slice()) {
        ([.., output], [_, ..]) if writes(output) => (output, None),
        (_, [_, .., last]) => (last, Some(last.name)),
        _ => return None,
    };
    let work = iterations(view, output.name);
    writes(output).then_some(Unit { reduce, window: None, output: output.name, work })
}

/// Iterations around a block, where they are constant.
pub(super) fn iterations(view: &View<'_>, block: Name) -> u64 {
    view.loops(block).map_or(1, |l| l.iter().map(|h| h.extent.as_const().unwrap_or(1).max(1) as u64).product())
}

pub(super) fn position(f: &TensorFunction, block: Name) -> usize {
    f.body.blocks().iter().position(|b| b.name == block).unwrap_or(usize::MAX)
}

/// True when `consumer` is a compute block over the very elements of `reduce`'s result: it loads each element once, at
/// plain loop variables and not as an index, so that computing the reduction where it is consumed repeats nothing.
pub(super) fn consumes_plainly(view: &View<'_>, reduce: Name, consumer: Name) -> bool {
    let f = view.f;
    let (Some(r), Some(c)) = (block_of(f, reduce), block_of(f, consumer)) else { return false };
    if c.reduce.is_some() || c.is_indexed_by(r.buffer) {
        return false;
    }
    let mut used: Option<Vec<Int>> = None;
    for (b, ix) in c.value.loads() {
        if b == r.buffer {
            if used.as_ref().is_some_and(|u| u != ix) {
                return false;
            }
            used = Some(ix.to_vec());
        }
    }
    let Some(ix) = used else { return false };
    let mut seen = Vec::new();
    for i in &ix {
        match i.as_var() {
            Some(v) if !seen.contains(&v) => seen.push(v),
            None if i.is(0) => {}
            _ => return false,
        }
    }
    // Every loop of the consumer must be one of those variables and go over the whole dimension, or computing there
    // would repeat the reduction or do more of it than there is.
    let Ok(loops) = view.loops(consumer) else { return false };
    let whole = ix
        .iter()
        .zip(&f.buffers[r.buffer].shape)
        .all(|(i, d)| i.as_var().is_none_or(|v| loops.iter().any(|l| l.var == v && l.extent == *d)));
    let single = |v: &Name| loops.iter().any(|l| l.var == *v && l.extent.is(1));
    let stored: Vec<Name> = c.indices.iter().flat_map(|i| i.vars()).collect();
    whole && stored.iter().all(|v| seen.contains(v) || single(v))
}

/// A sum of products of two operands, with the loops sorted by which operand uses them.
#[derive(Clone, Debug)]
pub struct Contraction {
    /// Loops of the output that only the left operand uses (rows: batch, output pixels), as variables of the output
    /// block.
    pub m: Vec<Name>,
    /// Loops of the output that only the right operand uses (columns: output channels).
    pub n: Vec<Name>,
    /// Loops of the output that both use (batches of a batched matmul, groups, depthwise channels) or none does.
    pub batch: Vec<Name>,
    /// Reduction loops, outermost first as they should run: the innermost is the one whose elements lie next to each
    /// other.
    pub k: Vec<Name>,
    /// Child position of the left operand in the product (0 or 1).
    pub left: usize,
    /// Buffer of the right operand when it is a plain load of one.
    pub right_buffer: Option<BufferId>,
    /// The dimension of the right operand's buffer that the column loop indexes, and for each reduction loop its
    /// dimension.
    pub right_dims: Option<(usize, Vec<usize>)>,
    /// True when the right operand is a constant that may be prepacked.
    pub right_constant: bool,
}

fn expr_vars(e: &Expr) -> Vec<Name> {
    let mut out = Vec::new();
    e.visit_ints(&mut |i| {
        for v in i.vars() {
            if !out.contains(&v) {
                out.push(v);
            }
        }
    });
    out
}

/// Recognises a contraction of floats in `unit`.
///
/// # Errors
/// Declines with the property that is missing.
pub(super) fn contraction(view: &View<'_>, unit: &Unit) -> Result<Contraction, Decline> {
    let reduce = unit.reduce.and_then(|r| block_of(view.f, r)).ok_or_else(Decline::other_kind)?;
    match view.f.buffers[reduce.buffer].dtype.is_float() {
        true => contraction_of_numbers(view, unit),
        false => Err(Decline::other_kind()),
    }
}

/// Recognises a contraction in `unit`, of integers too.
///
/// # Errors
/// Declines with the property that is missing.
pub(super) fn contraction_of_numbers(view: &View<'_>, unit: &Unit) -> Result<Contraction, Decline> {
    (*view.once(unit, |view| find_contraction(view, unit))).clone()
}

fn find_contraction(view: &View<'_>, unit: &Unit) -> Result<Contraction, Decline> {
    let f = view.f;
    let reduce = unit.reduce.ok_or_else(Decline::other_kind)?;
    let r = block_of(f, reduce).ok_or_else(Decline::other_kind)?;
    let c = block_of(f, unit.output).ok_or_else(Decline::other_kind)?;
    if r.reduce.is_none_or(|r| r.combiner != Combiner::Sum) {
        return Err(Decline::other_kind());
    }
    let [a, b] = factors(&r.value).ok_or_else(Decline::other_kind)?;
    let sides = [expr_vars(a), expr_vars(b)];
    let around = view.loops(reduce)?;
    let single = |v: &Name| around.iter().any(|l| l.var == *v && l.extent.is(1));
    let k: Vec<Name> = f.reduction_loops(reduce).into_iter().filter(|v| !single(v)).collect();
    let (map, between) = match &unit.window {
        Some(w) => window_variables(f, r, block_of(f, w.block).ok_or_else(Decline::other_kind)?, c)?,
        None => (output_variables(f, r, c)?, vec![]),
    };
    // The right operand is the constant one; without a constant, the one that does not own the outermost output loop.
    let constant = |e: &Expr| matches!(without_casts(e), Expr::Load(b, _) if view.constants.contains(b));
    let right = if constant(b) || !constant(a) { 1 } else { 0 };
    let left = 1 - right;
    let (mut m, mut n, mut batch) = (vec![], vec![], vec![]);
    for l in view.loops(unit.output)? {
        let rv = map.iter().find(|(_, out)| *out == l.var).map(|(r, _)| *r);
        let (in_left, in_right) = rv.map_or((false, false), |v| (sides[left].contains(&v), sides[right].contains(&v)));
        match (in_left, in_right) {
            (false, true) => n.push(l.var),
            (true, true) => batch.push(l.var),
            (true, false) => m.push(l.var),
            (false, false) if l.extent.is(1) => m.push(l.var),
            (false, false) => batch.push(l.var),
        }
    }
    if let Some(v) = between.iter().find(|v| !sides[left].contains(v) || sides[right].contains(v)) {
        return Err(Decline(format!("windows go along `{v}`, which is no row of the product")));
    }
    if !k.iter().all(|v| sides[0].contains(v) && sides[1].contains(v)) {
        return Err(Decline("a reduction loop is used by one operand only".into()));
    }
    let right_expr = without_casts(if right == 1 { b } else { a });
    let k = order_reduction(view, reduce, &k, if left == 0 { a } else { b });
    let extent = |v: Name| around.iter().find(|l| l.var == v).map(|l| l.extent.clone());
    let (right_buffer, right_dims) =
        right_layout(right_expr, &map, &n, &k, &extent, view.profile.model().workgroup_memory);
    let right_constant = right_dims.is_some() && right_buffer.is_some_and(|b| view.constants.contains(&b));
    Ok(Contraction { m, n, batch, k, left, right_buffer, right_dims, right_constant })
}

/// Pairs `(variable of the reduce block, loop of the output block)` for every spatial loop of extent above 1.
pub(super) fn output_variables(f: &TensorFunction, r: &Block, c: &Block) -> Result<Vec<(Name, Name)>, Decline> {
    let load = c.value.loads().into_iter().find(|l| l.0 == r.buffer).ok_or_else(Decline::other_kind)?;
    let mut out = Vec::new();
    for (store, used) in r.indices.iter().zip(load.1) {
        match (store.as_var(), used.as_var()) {
            (Some(a), Some(b)) => out.push((a, b)),
            (_, None) if used.is(0) => {}
            (None, _) if store.is(0) => {}
            _ => return Err(Decline(format!("`{}` is not stored at plain loop variables", f.buffers[r.buffer].name))),
        }
    }
    Ok(out)
}

/// Whether the largest operand of a block in device memory is contiguous along one of these loops.
pub(super) fn reads_contiguously(f: &TensorFunction, block: &Block, along: &[Name]) -> bool {
    let bounds = f.bounds();
    let global = block.value.loads().into_iter().filter(|l| f.buffers[l.0].scope == Scope::Global);
    let Some((of, ix)) = global.max_by_key(|l| f.buffers[l.0].numel().as_const()) else { return false };
    let flat = flatten_index(ix, &f.buffers[of].shape);
    along.iter().any(|v| simplify(&(flat.substitute(*v, &(Int::var(*v) + 1)) - &flat), &bounds).is(1))
}

/// The same where `w` reduces windows of `r`'s results before the output, and the variables of `r` that windows go
/// along.
type WindowVariables = (Vec<(Name, Name)>, Vec<Name>);
fn window_variables(f: &TensorFunction, r: &Block, w: &Block, c: &Block) -> Result<WindowVariables, Decline> {
    let index = window_index(f, w, r.buffer).ok_or_else(Decline::other_kind)?;
    let outer = output_variables(f, w, c)?;
    let taps = f.reduction_loops(w.name);
    let (mut map, mut between) = (Vec::new(), Vec::new());
    for (store, used) in r.indices.iter().zip(index) {
        let Some(v) = store.as_var() else { continue };
        let vars = used.vars();
        let spatial: Vec<Name> = vars.iter().copied().filter(|v| !taps.contains(v)).collect();
        if vars.len() > spatial.len() {
            between.push(v);
        }
        match spatial.as_slice() {
            [] => {}
            [s] => map.extend(outer.iter().filter(|(own, _)| own == s).map(|(_, out)| (v, *out))),
            _ => return Err(Decline(format!("`{used}` of a window moves with several loops"))),
        }
    }
    Ok((map, between))
}

/// Reduction loops with the one along which the left operand lies contiguously innermost: windows outside, channels
/// inside, or rows of windows where these alone make vectors.
fn order_reduction(view: &View<'_>, reduce: Name, k: &[Name], left: &Expr) -> Vec<Name> {
    let around = view.loops(reduce).unwrap_or_default();
    let extent = |v: Name| around.iter().find(|h| h.var == v).and_then(|h| h.extent.as_const()).unwrap_or(1);
    let loops: Vec<(Name, i64)> = k.iter().map(|v| (*v, extent(*v))).collect();
    let inner = innermost(view.f, &left.loads(), &loops);
    let mut out: Vec<Name> = k.iter().copied().filter(|v| Some(*v) != inner).collect();
    out.extend(inner);
    out
}

/// True when `i` is `s*extent + v`: `v` is a loop that was cut into slices, and `s` the loop over these.
fn is_slice(i: &Int, v: Name, extent: Option<&Int>) -> bool {
    let none = Bounds::new();
    let rest = simplify(&(i.clone() - Int::var(v)), &none);
    let [s] = rest.vars()[..] else { return false };
    s != v && extent.is_some_and(|n| simplify(&(Int::var(s) * n - &rest), &none).is(0))
}

/// Where the columns and the reduction loops stand in the right operand's buffer, when it is loaded at plain variables.
/// Columns of several loops (the split channels of a packed layout) count as one when the buffer has them as one
/// dimension. With `slices`, a reduction loop may be one of several slices of its dimension.
fn right_layout(
    e: &Expr,
    map: &[(Name, Name)],
    n: &[Name],
    k: &[Name],
    extent: &dyn Fn(Name) -> Option<Int>,
    slices: bool,
) -> (Option<BufferId>, Option<(usize, Vec<usize>)>) {
    let Expr::Load(buffer, ix) = e else { return (None, None) };
    let reduce_var = |out: Name| map.iter().find(|(_, o)| *o == out).map(|(r, _)| *r);
    let dim_of = |v: Name| ix.iter().position(|i| i.as_var() == Some(v));
    let wide: Vec<Name> = n.iter().filter_map(|&v| reduce_var(v)).collect();
    let column = match wide.as_slice() {
        [] => None,
        [one] => dim_of(*one),
        [first, rest @ ..] => rest
            .iter()
            .try_fold(Int::var(*first), |flat, v| Some(flat * extent(*v)? + Int::var(*v)))
            .and_then(|flat| ix.iter().position(|i| simplify(&(i.clone() - &flat), &Bounds::new()).is(0))),
    };
    let dims = column.and_then(|c| {
        let of_slice = |v: Name| ix.iter().position(|i| slices && is_slice(i, v, extent(v).as_ref()));
        let ks: Option<Vec<usize>> = k.iter().map(|&v| dim_of(v).or_else(|| of_slice(v))).collect();
        Some((c, ks?))
    });
    (Some(*buffer), dims)
}
