//! Checks that every element of a result is stored exactly once.
//!
//! Only the elements that a block *defines* are counted: those of a plain store, and those of a reduction that sets its
//! identity. A reduction that only adds to existing elements defines nothing.
//!
//! The proof: the index is a number in mixed radix whose digits are the loops, or digits of the loops. Such an index
//! takes every value of a range once, and a guard cuts the range at the end of the buffer. If an index does not have
//! this form, all iterations of the loops that the index and the guards use are tried.

use super::bounds::ranges;
use super::digits::{Digit, Radix, Sum};
use super::owner::flat_sum;
use super::view::{Leaf, Parallel, View};
use crate::int::{self, Bounds, Int};
use crate::name::Name;
use crate::tir::{Block, Buffer, BufferId, Cond, CondOp, LoopKind, TensorFunction};
use rustc_hash::FxHashMap;

/// Iterations that are tried, at most.
const MAX_ITERATIONS: i64 = 1 << 23;

/// Why an element is not stored once.
#[derive(Clone, Debug)]
pub(super) struct Gap {
    pub(super) block: Option<Name>,
    pub(super) message: String,
    /// It could be: its stores cannot be counted.
    pub(super) undecided: bool,
}

/// Checks the results of a function.
pub(super) fn check(f: &TensorFunction, views: &[View<'_>]) -> Result<(), Gap> {
    f.outputs().try_for_each(|b| check_buffer(f, views, b))
}

/// As [`check`], of a function of open sizes that instructions have made of `plain`, and that keeps too much open to be
/// counted: `plain` stores each element once, and so does this for some of its least sizes.
pub(super) fn check_made(f: &TensorFunction, views: &[View<'_>], plain: &TensorFunction) -> Result<(), Gap> {
    match check(f, views) {
        Err(gap) if gap.undecided && !f.symbols.is_empty() => {
            check(plain, &View::all(plain))?;
            let counted = SIZES.iter().filter(|above| {
                f.symbols.iter().any(|(_, low, high)| **above == 0 || low.saturating_add(**above) <= *high)
            });
            for above in counted {
                let sizes = f.symbols.iter().map(|(s, low, high)| (*s, low.saturating_add(*above).min(*high)));
                let known = f.with_sizes(&sizes.collect());
                check(&known, &View::all(&known))?;
            }
            Ok(())
        }
        done => done,
    }
}

/// How much above the least sizes stores are counted.
const SIZES: [i64; 4] = [0, 1, 6, 31];

fn check_buffer(f: &TensorFunction, views: &[View<'_>], b: BufferId) -> Result<(), Gap> {
    let buffer = &f.buffers[b];
    let defines = |l: &&Leaf<'_>| l.block.buffer == b && l.block.reduce.is_none_or(|r| r.init);
    let leaves: Vec<&Leaf<'_>> = views.iter().flat_map(|v| &v.leaves).filter(defines).collect();
    if leaves.is_empty() {
        return Err(Gap {
            block: None,
            message: format!("nothing stores to the result `{}`", buffer.name),
            undecided: false,
        });
    }
    for l in &leaves {
        overwritten(f, l)?;
    }
    let boxes: Option<Vec<Vec<(i64, i64)>>> = leaves.iter().map(|l| covered(f, l)).collect();
    if f.update(b).is_some() {
        return Ok(());
    }
    match boxes {
        Some(list) if list.len() == 1 && list[0].is_empty() => Ok(()),
        Some(list) if exactly_once(&list, buffer) => Ok(()),
        _ => count(f, buffer, &leaves),
    }
}

/// A store that a loop repeats with other values is not a reduction.
fn overwritten(f: &TensorFunction, leaf: &Leaf<'_>) -> Result<(), Gap> {
    let b = leaf.block;
    if b.reduce.is_some() {
        return Ok(());
    }
    for l in &leaf.loops {
        let serial =
            !matches!(l.kind, LoopKind::Group(_) | LoopKind::Local(_) | LoopKind::Subgroup(_) | LoopKind::Lane);
        let mut used = false;
        b.value.visit_ints(&mut |i| used |= i.uses(l.var));
        if serial && used && !l.extent.is(1) && !b.indices.iter().any(|i| i.uses(l.var)) {
            let name = f.buffers[b.buffer].name;
            let text = format!("loop `{}` stores to the same elements of `{name}` again, and does not reduce", l.var);
            return Err(Gap { block: Some(b.name), message: text, undecided: false });
        }
    }
    Ok(())
}

/// The index ranges, one per dimension, that a block stores to exactly once; empty for the whole of a buffer with
/// symbols in its shape. `None` without a proof.
fn covered(f: &TensorFunction, leaf: &Leaf<'_>) -> Option<Vec<(i64, i64)>> {
    let buffer = &f.buffers[leaf.block.buffer];
    let bounds = ranges(f, leaf);
    let mut guards = deciding_guards(leaf.block);
    let each = by_dimension(leaf, &leaf.block.indices, &buffer.shape, &mut guards, &bounds);
    if each.is_some() && guards.is_empty() {
        return each;
    }
    // Dimensions that are quotients and remainders of a fused loop.
    let sum = flat_sum(&leaf.block.indices, &buffer.shape, &bounds);
    let flat = sum.unwrap_or_else(|| int::simplify(&int::flatten_index(&leaf.block.indices, &buffer.shape), &bounds));
    let numel = int::simplify(&buffer.numel(), &bounds);
    let mut guards = deciding_guards(leaf.block);
    let ranges = by_dimension(leaf, &[flat], std::slice::from_ref(&numel), &mut guards, &bounds)?;
    let whole = ranges.is_empty() || ranges == [(0, numel.as_const()?)];
    let all = || buffer.shape.iter().map(|d| Some((0, d.as_const()?))).collect::<Option<Vec<(i64, i64)>>>();
    (guards.is_empty() && whole).then(|| all().unwrap_or_default())
}

/// The guards that decide which elements a block defines. In a reduction, those about its own loops alone leave out
/// terms, and no element if the first iteration passes them all (a split that does not divide the extent).
fn deciding_guards(b: &Block) -> Vec<&Cond> {
    let own = |c: &Cond| {
        let about_elements = |v: Name| b.indices.iter().any(|i| i.uses(v));
        let vars = [&c.lhs, &c.rhs].map(Int::vars);
        b.reduce.is_some() && !vars.iter().flatten().any(|v| about_elements(*v))
    };
    let passes = |c: &Cond| {
        let at_first = |i: &Int| i.eval(&|_| Some(0));
        at_first(&c.lhs).zip(at_first(&c.rhs)).is_some_and(|(l, r)| holds(c.op, l, r))
    };
    let (terms, elements): (Vec<&Cond>, Vec<&Cond>) = b.guards.iter().partition(|c| own(c));
    if terms.iter().all(|c| passes(c)) { elements } else { b.guards.iter().collect() }
}

fn holds(op: CondOp, l: i64, r: i64) -> bool {
    match op {
        CondOp::Lt => l < r,
        CondOp::Ge => l >= r,
        CondOp::Eq => l == r,
    }
}

fn by_dimension(
    leaf: &Leaf<'_>,
    indices: &[Int],
    shape: &[Int],
    guards: &mut Vec<&Cond>,
    bounds: &Bounds,
) -> Option<Vec<(i64, i64)>> {
    let mut radix = Radix::new();
    indices.iter().for_each(|i| radix.add(i, &Int::as_var));
    let radix = radix.finish();
    let mut used: Vec<Digit<Name>> = Vec::new();
    let mut out = Vec::new();
    let symbolic = shape.iter().any(|d| d.as_const().is_none());
    for (i, d) in indices.iter().zip(shape) {
        let sum = Sum::of(i, &radix, &Int::as_var)?;
        // A digit that two dimensions use, or two loops that share an axis, are not independent.
        if sum.digits.keys().any(|d| used.contains(d)) || shares_axis(leaf, &i.vars()) {
            return None;
        }
        used.extend(sum.digits.keys());
        let (start, length) = consecutive(leaf, &sum, &radix)?;
        let end = if let Some(g) = guards.iter().position(|c| cuts_at(c, i, d, bounds)) {
            guards.remove(g);
            if !int::prove(&(length + start - d), 0, i64::MAX, bounds) {
                return None;
            }
            d.clone()
        } else {
            int::simplify(&(length + start), bounds)
        };
        match (symbolic, end.as_const()) {
            (false, Some(end)) => out.push((start, end)),
            (true, _) if start == 0 && int::simplify(&(end.clone() - d), bounds).is(0) => {}
            _ => return None,
        }
    }
    // Where one digit of a loop is not used, the others come back with each of its values.
    let all_used =
        |v: Name| radix.digits(v).all(|d| used.contains(&d) || values(leaf, d, &radix).is_some_and(|n| n.is(1)));
    used.iter().all(|d| all_used(d.of)).then_some(out)
}

fn shares_axis(leaf: &Leaf<'_>, vars: &[Name]) -> bool {
    let axes: Vec<_> = vars.iter().filter_map(|v| leaf.axis_of(*v)).collect();
    let twice = axes.iter().enumerate().any(|(n, a)| axes[..n].contains(a));
    twice || axes.iter().any(|a| leaf.along(*a).count() > 1)
}

/// The first value and the number of values of a sum that takes each of them once: its terms are the digits of a number
/// in mixed radix.
fn consecutive(leaf: &Leaf<'_>, sum: &Sum<Name>, radix: &Radix<Name>) -> Option<(i64, Int)> {
    let mut list: Vec<(Digit<Name>, i64)> = sum.digits.iter().map(|(d, k)| (*d, *k)).collect();
    list.sort_unstable_by_key(|t| t.1);
    let mut length = Int::new(1);
    for (digit, k) in list {
        let n = values(leaf, digit, radix)?;
        if n.is(1) {
            continue;
        }
        if !length.is(k) {
            return None;
        }
        length = length * n;
    }
    Some((sum.constant, length))
}

/// Number of values of a digit that is independent of the loop's other digits: each of its values comes with each of
/// theirs.
fn values(leaf: &Leaf<'_>, digit: Digit<Name>, radix: &Radix<Name>) -> Option<Int> {
    let extent = &leaf.find(digit.of)?.extent;
    let highest = radix.digits(digit.of).last()?;
    if highest.base == 1 {
        return Some(extent.clone());
    }
    let whole = extent.as_const()?;
    if whole % highest.base != 0 {
        return None;
    }
    Some(Int::new(radix.values(digit).unwrap_or(whole / digit.base)))
}

/// True for a guard that says `index < extent`, maybe divided by a factor of the extent.
fn cuts_at(c: &Cond, index: &Int, extent: &Int, bounds: &Bounds) -> bool {
    if c.op != CondOp::Lt {
        return false;
    }
    if int::simplify(&((extent.clone() - index) - (c.rhs.clone() - &c.lhs)), bounds).is(0) {
        return true;
    }
    let (Some(n), Some(m)) = (extent.as_const(), c.rhs.as_const()) else { return false };
    m > 0 && n % m == 0 && int::simplify(&(index.div(n / m) - &c.lhs), bounds).is(0)
}

/// True when boxes do not overlap and fill the buffer.
fn exactly_once(boxes: &[Vec<(i64, i64)>], buffer: &Buffer) -> bool {
    let Some(shape) = int::const_dims(&buffer.shape) else { return false };
    let inside = |b: &Vec<(i64, i64)>| b.iter().zip(&shape).all(|((low, high), n)| *low >= 0 && *high <= *n as i64);
    let apart = |a: &[(i64, i64)], b: &[(i64, i64)]| a.iter().zip(b).any(|(x, y)| x.1 <= y.0 || y.1 <= x.0);
    let size = |b: &Vec<(i64, i64)>| b.iter().map(|(low, high)| i128::from(high - low)).product::<i128>();
    let disjoint = (0..boxes.len()).all(|n| boxes[..n].iter().all(|b| apart(b, &boxes[n])));
    let total: i128 = boxes.iter().map(size).sum();
    boxes.iter().all(inside) && disjoint && total == shape.iter().map(|n| *n as i128).product::<i128>()
}

/// Counts the stores to each element.
fn count(f: &TensorFunction, buffer: &Buffer, leaves: &[&Leaf<'_>]) -> Result<(), Gap> {
    let first = leaves.first().map(|l| l.block.name);
    let gap = |block: Option<Name>, message: String| Gap { block, message, undecided: false };
    let unknown = |why: &str| {
        let message = format!("that each element of the result `{}` is stored once is not proved: {why}", buffer.name);
        Gap { undecided: true, ..gap(first, message) }
    };
    let numel = buffer.numel().as_const().ok_or_else(|| unknown("its size is not known"))?;
    if numel > MAX_ITERATIONS {
        return Err(unknown("it is too large to be counted"));
    }
    let mut counts = vec![0u8; numel.max(0) as usize];
    for leaf in leaves {
        let b = leaf.block;
        let flat = int::simplify(&int::flatten_index(&b.indices, &buffer.shape), &ranges(f, leaf));
        let guards = deciding_guards(b);
        let done = for_each_store(leaf, &guards, &mut |env| {
            let value = |i: &Int| i.eval(&|v| env.get(&v).copied());
            for c in &guards {
                if !holds(c.op, value(&c.lhs)?, value(&c.rhs)?) {
                    return Some(());
                }
            }
            let slot = counts.get_mut(usize::try_from(value(&flat)?).ok()?)?;
            *slot = slot.saturating_add(1);
            Some(())
        });
        done.ok_or_else(|| unknown("its stores cannot be listed"))?;
    }
    let Some(n) = counts.iter().position(|c| *c != 1) else { return Ok(()) };
    let index = int::unflatten_index(&Int::new(n as i64), &buffer.shape);
    let times = if counts[n] == 0 { "never stored".to_string() } else { format!("stored {} times", counts[n]) };
    Err(gap(first, format!("element {index:?} of the result `{}` is {times}", buffer.name)))
}

/// Calls `store` for all iterations of the loops that a block's indices and these guards use.
fn for_each_store(
    leaf: &Leaf<'_>,
    guards: &[&Cond],
    store: &mut dyn FnMut(&FxHashMap<Name, i64>) -> Option<()>,
) -> Option<()> {
    let b = leaf.block;
    let uses = |v: Name| {
        let guards = guards.iter().any(|c| c.lhs.uses(v) || c.rhs.uses(v));
        guards || b.indices.iter().any(|i| i.uses(v))
    };
    // Loops of one axis share its index: the shortest of them limits it.
    let mut digits: Vec<(Vec<Name>, i64)> = Vec::new();
    let mut axes: Vec<(Parallel, usize)> = Vec::new();
    for l in leaf.loops.iter().filter(|l| uses(l.var)) {
        let n = l.extent.as_const()?;
        match leaf.axis_of(l.var) {
            Some(axis) => {
                let n = leaf.along(axis).filter_map(|(_, l)| l.extent.as_const()).min()?.min(n);
                match axes.iter().position(|(a, _)| *a == axis) {
                    Some(p) => digits[axes[p].1].0.push(l.var),
                    None => {
                        axes.push((axis, digits.len()));
                        digits.push((vec![l.var], n));
                    }
                }
            }
            None => digits.push((vec![l.var], n)),
        }
    }
    let total = digits.iter().try_fold(1i64, |t, d| t.checked_mul(d.1)).filter(|t| *t <= MAX_ITERATIONS)?;
    let mut env = FxHashMap::default();
    for mut n in 0..total {
        for (vars, extent) in &digits {
            for v in vars {
                env.insert(*v, n % extent);
            }
            n /= extent;
        }
        store(&env)?;
    }
    Some(())
}
