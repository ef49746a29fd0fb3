//! Chains of short reductions as one kernel: a global pool, a product of one row with its results, a product of that.
//!
//! ```text
//! p[c] += x[i, c]                for row as a workgroup {  p[c] += x[i, c]   in workgroup memory
//! h[j] += f(p[c]) * a[j, c]   =>                           h[j] += f(p[c]) * a[j, c]
//! y[c] = g(sum of h[j] * b[c, j])                          y[c] = g(sum of h[j] * b[c, j])  }
//! ```
//!
//! A workgroup has a row: all that its results need. It computes one reduction after another, with results in workgroup
//! memory. All threads share each of them: a thread has results of its own, or those along x or along y have parts of
//! a result, as loads are contiguous. What a reduction makes of the results before it is computed once, not for each of
//! its own results. The work of a row must be small, since one core does it; the estimate says whether that pays.

use super::analysis::reads_contiguously;
use super::candidate::Candidate;
use super::cooperate::{self, Team};
use super::decline::Decline;
use super::sketch::Sketch;
use super::unit::{Unit, block_of};
use super::view::View;
use crate::candidate;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::estimate::{Combination, KernelEstimate, scheduled_kernels};
use crate::schedule::loops::LoopHead;
use crate::schedule::{Axis, ComputeAt, LocalScope, StageInShared};
use crate::tir::analysis::operands::{factors, without_casts};
use crate::tir::{Block, BufferId, Combiner, Expr, TensorFunction};

/// Results of a row that are kept at a time, and terms of all its reductions, at most: more is no work for one core.
const MOST_KEPT: i64 = 4096;
const MOST_TERMS: i64 = 1 << 18;
/// Threads along x, and all of a workgroup that is alone on its core, and of others.
const ALONG: [i64; 3] = [64, 32, 128];
const THREADS: [i64; 3] = [1024, 512, 256];

candidate! {
    /// A workgroup for each row.
    pub(super) struct ChainOfWorkgroup {
        /// Its threads.
        pub threads: i64,
        /// Those along x.
        pub along: i64,
    }
}

/// The blocks of a function, in order, and the loops of the last one, which stores its result.
struct Chain {
    before: Vec<Name>,
    output: Name,
    /// Loops that tell rows apart, and those inside a row.
    rows: Vec<Name>,
    inner: Vec<Name>,
}

/// Numbers of threads of a workgroup, usually as many as the device allows, fewer where there is a row for each core.
pub(super) fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    chained(view.f)?;
    let p = view.profile;
    let mut sketch = Sketch::of_view(view);
    let chain = sketch.together(|s| Chain::of(s, unit))?;
    let numbers = numbers_of_threads(p);
    let rows = view.product(&chain.rows);
    let usual = if rows < i64::from(p.cores) { numbers.first() } else { numbers.last() };
    let of = |threads: i64| {
        let all = ALONG.into_iter().filter(move |x| threads / x <= i64::from(p.max_workgroup_size[1]));
        all.map(move |along| Candidate::new(ChainOfWorkgroup { threads, along }))
    };
    let all = numbers.iter().flat_map(|&t| of(t).map(move |c| if Some(&t) == usual { c } else { c.on_request() }));
    let (taken, others): (Vec<Candidate>, Vec<Candidate>) = all.partition(|c| !c.is_on_request());
    Ok(taken.into_iter().chain(others).collect())
}

/// Numbers of threads that a workgroup may have.
fn numbers_of_threads(p: &DeviceProfile) -> Vec<i64> {
    let most = i64::from(p.max_invocations);
    THREADS.into_iter().filter(|t| p.model().wide_teams && *t <= most).collect()
}

/// The kernel, where it fits the device.
pub(super) fn price(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    let mut sketch = Sketch::of_view(view);
    sketch.unit = unit.name();
    let made = sketch.together(|s| apply(s, unit, candidate)).and_then(|()| Ok(sketch.finish()?));
    let kernels = made.map_or(vec![], |f| scheduled_kernels(&f, view.profile));
    let fits = |k: &KernelEstimate| k.shared_bytes <= u64::from(view.profile.shared_memory);
    if kernels.iter().all(fits) { kernels } else { vec![] }
}

/// Schedules the function as one kernel.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let chosen = candidate.choices::<ChainOfWorkgroup>()?;
    let threads = sketch.choose("threads", &numbers_of_threads(sketch.profile), chosen.threads)?;
    let fits = |x: &i64| threads / x <= i64::from(sketch.profile.max_workgroup_size[1]);
    let domain: Vec<i64> = ALONG.into_iter().filter(fits).collect();
    let along = sketch.choose("along", &domain, chosen.along)?;
    Chain::of(sketch, unit)?.schedule(sketch, [along, threads / along])
}

/// Declines functions that are no chain: a reduction goes along results of another block, and all behind the first are
/// sums.
fn chained(f: &TensorFunction) -> Result<(), Decline> {
    let blocks = f.body.blocks();
    let reductions: Vec<&Block> = blocks.iter().copied().filter(|b| b.reduce.is_some()).collect();
    let sum = |b: &&Block| b.reduce.is_some_and(|r| r.combiner == Combiner::Sum);
    if reductions.len() < 2 || !reductions[1..].iter().all(sum) {
        return Err(Decline::other_kind());
    }
    let along = |b: &&Block| {
        let own = f.reduction_loops(b.name);
        let made = |of: BufferId| blocks.iter().any(|m| m.buffer == of);
        b.value.loads().iter().any(|(of, ix)| made(*of) && ix.iter().any(|i| i.vars().iter().any(|v| own.contains(v))))
    };
    if reductions.iter().any(along) { Ok(()) } else { Err(Decline::other_kind()) }
}

impl Chain {
    /// Looks at the loops; a reduction that writes the result gets a block that does so.
    fn of(sketch: &mut Sketch<'_>, unit: &Unit) -> Result<Chain, Decline> {
        let output = match unit.reduce {
            Some(last) => sketch.split_epilogue(last)?,
            None => unit.output,
        };
        let view = sketch.view();
        let blocks = view.f.body.blocks();
        let before: Vec<Name> = blocks.iter().map(|b| b.name).filter(|n| *n != output).collect();
        if before.iter().any(|n| block_of(view.f, *n).is_none_or(|b| view.f.outputs().any(|o| o == b.buffer))) {
            return Err(Decline("it has several results".into()));
        }
        let loops = view.loops(output)?;
        let own = |l: &&LoopHead| l.extent.is(1) || tells_rows(view.f, output, l.var);
        let rows: Vec<Name> = loops.iter().filter(own).map(|l| l.var).collect();
        let inner: Vec<Name> = loops.iter().map(|l| l.var).filter(|v| !rows.contains(v)).collect();
        if inner.is_empty() {
            return Err(Decline("a row has one result".into()));
        }
        let count = view.product(&rows);
        let (mut kept, mut terms) = (0, 0);
        for r in &before {
            let mut all = 1i64;
            for l in view.loops(*r)? {
                all = all.saturating_mul(view.constant_extent(&l.extent)?);
            }
            let results = all / count / view.product(&view.f.reduction_loops(*r)).max(1);
            if results < 2 {
                return Err(Decline(format!("{r} has one result a row")));
            }
            (kept, terms) = (kept + results, terms + all / count);
        }
        if kept > MOST_KEPT || terms > MOST_TERMS {
            return Err(Decline(format!("{kept} results of {terms} terms a row are too much for one core")));
        }
        Ok(Chain { before, output, rows, inner })
    }
    /// Schedules the blocks for workgroups of so many threads along x and y.
    fn schedule(&self, sketch: &mut Sketch<'_>, threads: [i64; 2]) -> Result<(), Decline> {
        let order: Vec<Name> = self.rows.iter().chain(&self.inner).copied().collect();
        sketch.reorder(&order)?;
        let inner = sketch.fuse(&self.inner, Name::new(&format!("{}_e", self.output)))?;
        let (row, inner) = match self.rows.as_slice() {
            [] => {
                let parts = sketch.split(inner, &[1, 0], &["row", "of"])?;
                (parts[0], parts[1])
            }
            rows => (sketch.fuse(rows, Name::new(&format!("{}_row", self.output)))?, inner),
        };
        sketch.bind(row, Axis::GroupX)?;
        for &block in self.before.iter().rev() {
            sketch.apply(ComputeAt { block, at: row, scope: LocalScope::Shared })?;
        }
        for (n, &block) in self.before.iter().enumerate() {
            if let Some(operand) = operand_of_results(sketch, block, &self.before[..n]) {
                let into = Name::new(&format!("{block}_of"));
                let stage = StageInShared { block, operand, at: row, into, ..StageInShared::default() };
                sketch.apply(stage)?;
                let loops = sketch.inside(into, row)?;
                own_results(sketch, into, &loops, threads)?;
            }
            share(sketch, block, row, threads)?;
        }
        let width = sketch.elements_per_word(self.output);
        let mut last = vec![inner];
        let mut lane = None;
        if width > 1 {
            let parts = sketch.split(inner, &[0, width], &["q", "v"])?;
            last = vec![parts[0]];
            lane = Some(parts[1]);
        }
        own_results(sketch, self.output, &last, threads)?;
        lane.map_or(Ok(()), |v| Ok(sketch.vectorize(v)?))
    }
}

/// Whether loop `v` of a block tells rows apart: every result that it reads of another block is at `v` in some
/// dimension, and so are those that the other block reads.
fn tells_rows(f: &TensorFunction, block: Name, v: Name) -> bool {
    let Some(b) = block_of(f, block) else { return false };
    let blocks = f.body.blocks();
    b.value.loads().into_iter().all(|(of, ix)| {
        let Some(maker) = blocks.iter().find(|m| m.buffer == of) else { return true };
        let at = ix.iter().position(|i| i.as_var() == Some(v));
        at.and_then(|d| maker.indices[d].as_var()).is_some_and(|u| tells_rows(f, maker.name, u))
    })
}

/// The path of the operand that `block` computes of the results of `before`; `None` if it only loads them.
fn operand_of_results(sketch: &Sketch<'_>, block: Name, before: &[Name]) -> Option<String> {
    let b = block_of(&sketch.f, block)?;
    let made: Vec<BufferId> = before.iter().filter_map(|r| Some(block_of(&sketch.f, *r)?.buffer)).collect();
    let reads = |e: &Expr| e.loads().iter().any(|l| made.contains(&l.0));
    let computes = |e: &Expr| reads(e) && !matches!(without_casts(e), Expr::Load(..));
    let sides = factors(&b.value)?;
    let at = (0..2).find(|&n| computes(sides[n]) && !reads(sides[1 - n]))?;
    Some(at.to_string())
}

/// Gives each thread results of its own, of a block with these loops.
fn own_results(sketch: &mut Sketch<'_>, block: Name, loops: &[Name], [x, y]: [i64; 2]) -> Result<Name, Decline> {
    let flat = sketch.fuse(loops, Name::new(&format!("{block}_f")))?;
    let count = sketch.extent_of(flat).unwrap_or(1);
    let rows = ((count + x - 1) / x).min(y);
    let parts = sketch.split(flat, &[0, rows, x], &["o", "y", "x"])?;
    sketch.bind(parts[1], Axis::LocalY)?;
    sketch.bind(parts[2], Axis::LocalX)?;
    Ok(parts[2])
}

/// Lets all threads share the results of a reduction inside loop `row`.
fn share(sketch: &mut Sketch<'_>, block: Name, row: Name, threads: [i64; 2]) -> Result<(), Decline> {
    let terms = sketch.f.reduction_loops(block);
    let results: Vec<Name> = sketch.inside(block, row)?.into_iter().filter(|v| !terms.contains(v)).collect();
    sketch.reorder(&results.iter().chain(&terms).copied().collect::<Vec<_>>())?;
    if terms.is_empty() {
        return own_results(sketch, block, &results, threads).map(drop);
    }
    let (count, depth) = (sketch.view().product(&results), sketch.view().product(&terms));
    let [x, y] = threads;
    let few = 2 * count <= x * y;
    let along = block_of(&sketch.f, block).is_some_and(|b| reads_contiguously(&sketch.f, b, &terms));
    let axis = match (few, along) {
        (true, true) if depth >= 2 * x => Axis::LocalX,
        (true, false) if depth >= 2 * y && y > 1 => Axis::LocalY,
        _ => {
            let own = own_results(sketch, block, &results, threads)?;
            return cooperate::reduce_alone(sketch, block, own);
        }
    };
    let own = sketch.fuse(&results, Name::new(&format!("{block}_f")))?;
    let (across, along) = if axis == Axis::LocalX { (y, x) } else { (x, y) };
    let other = if axis == Axis::LocalX { Axis::LocalY } else { Axis::LocalX };
    let parts = sketch.split(own, &[0, across.min(count)], &["o", "t"])?;
    sketch.reorder(&[parts[1], parts[0]])?;
    sketch.bind(parts[1], other)?;
    let team = Team { at: row, threads: along, axis, how: Combination::Tree };
    cooperate::reduce_over_threads(sketch, block, team)
}

#[cfg(test)]
mod tests {
    use crate::profile::DeviceProfile;
    use crate::schedule::testing::{asking, assert_every_choice, parsed, proposed};
    use crate::tir::TensorFunction;

    /// A mean over `taps` places, and two products of its `channels` results, of `rows` rows.
    fn gate([rows, taps, channels, hidden]: [i64; 4], nchw: bool) -> TensorFunction {
        let (shape, at) = match nchw {
            true => (format!("{rows},{channels},{taps}"), "n, c, i"),
            false => (format!("{rows},{taps},{channels}"), "n, i, c"),
        };
        parsed(&format!(
            "tensor @gate(%x: f32[{shape}], %a: f32[{hidden},{channels}], %b: f32[{channels},{hidden}],
  %z: f32[{hidden}], out %y: f32[{rows},{channels}]) {{
  buffer %p: f32[{rows},{channels}] global
  buffer %h: f32[{rows},{hidden}] global
  buffer %g: f32[{rows},{hidden}] global
  buffer %s: f32[{rows},{channels}] global
  for n in 0..{rows} {{ for c in 0..{channels} {{ for i in 0..{taps} {{
    block p reduce sum init {{ %p[n, c] <- %x[{at}] }}
  }} }} }}
  for m in 0..{rows} {{ for j in 0..{hidden} {{ for k in 0..{channels} {{
    block h reduce sum init {{ %h[m, j] <- %p[m, k] * 0.125 * %a[j, k] }}
  }} }} }}
  for q in 0..{rows} {{ for l in 0..{hidden} {{ block g {{ %g[q, l] <- max(%h[q, l] + %z[l], 0.0) }} }} }}
  for o in 0..{rows} {{ for d in 0..{channels} {{ for e in 0..{hidden} {{
    block s reduce sum init {{ %s[o, d] <- %g[o, e] * %b[d, e] }}
  }} }} }}
  for t in 0..{rows} {{ for u in 0..{channels} {{ block y {{ %y[t, u] <- 1.0 / (1.0 + exp(0.0 - %s[t, u])) }} }} }}
}}"
        ))
    }

    #[test]
    fn rows_channels_and_taps_of_any_number() {
        let sizes = [[1, 49, 96, 8], [2, 9, 33, 5], [3, 200, 64, 16], [1, 1, 7, 2], [1, 300, 17, 40], [2, 4, 300, 70]];
        for (n, size) in sizes.into_iter().enumerate() {
            for base in ["ada", "bmg", "baseline"] {
                let base = DeviceProfile::named(base).expect("a profile");
                let g = proposed(&gate(size, n % 2 == 0), &asking(base, "reduction-chain"), "reduction-chain");
                assert_eq!(g.kernels().len(), 1);
            }
        }
    }

    #[test]
    fn every_choice_gives_the_same_results() {
        let ada = asking(DeviceProfile::named("ada").expect("a profile"), "reduction-chain");
        assert!(assert_every_choice(&gate([2, 40, 70, 9], false), &ada, "function") >= 4);
    }
}
