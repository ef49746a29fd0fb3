//! Scheduled kernels: the number of runs of each block, and the work of one run.

use super::rates::{BARRIER, FRAGMENT, HALVING, MATRICES, Rates};
use super::tally::{KernelEstimate, OPEN, Tally, every, left, operations};
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::tir::{Block, BufferId, Expr, LoopKind, Scope, Stmt, TensorFunction};
use crate::traffic::{SECTOR_BYTES, traffic};

/// Each kernel of a scheduled function.
pub(super) fn kernels(f: &TensorFunction, profile: &DeviceProfile) -> Result<Vec<KernelEstimate>, String> {
    let rates = Rates::of(profile);
    Ok(f.kernels()
        .into_iter()
        .map(|(name, body)| tally(f, body, profile, &rates).kernel(f, name, profile, &rates))
        .collect())
}

/// The kernels some of whose loops are bound: the others wait for a schedule.
pub(in crate::schedule) fn scheduled_kernels(f: &TensorFunction, profile: &DeviceProfile) -> Vec<KernelEstimate> {
    let rates = Rates::of(profile);
    let bound = |body: &Stmt| {
        let mut found = false;
        body.visit(&mut |s| found |= matches!(s, Stmt::For(l) if l.kind != LoopKind::Serial));
        found
    };
    let own = f.kernels().into_iter().filter(|k| bound(k.1));
    own.map(|(name, body)| tally(f, body, profile, &rates).kernel(f, name, profile, &rates)).collect()
}

/// A loop around a block: iterations, how it runs, its variable.
type Around = (i64, LoopKind, Name);

fn tally(f: &TensorFunction, body: &Stmt, profile: &DeviceProfile, rates: &Rates) -> Tally {
    let mut blocks: Vec<(Vec<Around>, &Block)> = Vec::new();
    collect(body, &mut Vec::new(), &mut blocks);
    let axis = |kind: fn(u8) -> LoopKind, n: u8| {
        let own = blocks.iter().flat_map(|b| &b.0).filter(|l| l.1 == kind(n)).map(|l| l.0);
        own.max().unwrap_or(1).max(1) as f64
    };
    let size = |kind: fn(u8) -> LoopKind| (0..3).map(|n| axis(kind, n)).product::<f64>();
    let mut tally = Tally { workgroups: size(LoopKind::Group), threads: size(LoopKind::Local), ..Tally::default() };
    let all = tally.workgroups * tally.threads;
    let tasks = axis(LoopKind::Subgroup, 0) * axis(LoopKind::Subgroup, 1);
    let subgroups = tally.workgroups * (tally.threads / rates.lanes as f64).ceil();
    for (around, block) in &blocks {
        let shared_out = |k: LoopKind| matches!(k, LoopKind::Group(_) | LoopKind::Local(_) | LoopKind::Subgroup(_));
        let own = around.iter().filter(|l| !shared_out(l.1));
        // A subgroup's own work is not each thread's.
        let fragment = |b: BufferId| matches!(f.buffers[b].scope, Scope::Fragment(_));
        let of_subgroup = fragment(block.buffer) || block.value.loads().iter().any(|l| fragment(l.0));
        let alone = around.iter().any(|l| l.1 == LoopKind::Lane || l.1 == LoopKind::Tensor && of_subgroup);
        let all = if alone { tally.workgroups * tasks } else { all };
        let combined = around.iter().any(|l| l.1 == LoopKind::Combine);
        let runs = own.filter(|l| l.1 != LoopKind::Combine).map(|l| l.0 as f64).product::<f64>() * all;
        if combined {
            tally.operations += (2.0 * f64::from(rates.lanes.ilog2()) * HALVING + BARRIER) * runs;
        }
        let matrices = if around.iter().any(|l| l.1 == LoopKind::Tensor) { MATRICES } else { 1.0 };
        let unrolled: Vec<(Name, i64)> =
            around.iter().filter(|l| l.1 == LoopKind::Unroll).map(|l| (l.2, l.0)).collect();
        tally.operations += operations_of(block, &unrolled) * runs / matrices;
        if fragment(block.buffer) && block.reduce.is_none() && !block.value.loads().is_empty() {
            tally.operations += FRAGMENT * runs;
        }
        if block.reduce.is_some() {
            tally.results = tally.results.max(at_once(block, around, rates.lanes));
        }
        let loads = block.value.loads().into_iter().map(|l| l.0);
        loads.chain([block.buffer]).for_each(|b| tally.touch(b, runs));
    }
    for a in traffic(f, body, profile) {
        let times = a.times.max(1) as f64 * subgroups * a.share;
        // A gather: each lane for itself.
        let apart = if a.unknown { rates.lanes as f64 } else { 0.0 };
        if a.shared {
            tally.passes += times * a.passes.max(apart);
            continue;
        }
        tally.accesses += times * f64::from(a.accesses.max(1));
        tally.sector_bytes += times * a.sectors.max(apart) * SECTOR_BYTES as f64;
    }
    tally
}

/// Results that a thread computes side by side: those of unrolled loops and vectors, and its part of matrices.
fn at_once(block: &Block, around: &[Around], lanes: i64) -> f64 {
    let results = |kinds: &[LoopKind]| -> f64 {
        let own = around.iter().filter(|l| kinds.contains(&l.1) && block.indices.iter().any(|i| i.uses(l.2)));
        own.map(|l| l.0 as f64).product()
    };
    let of_matrix = (results(&[LoopKind::Tensor]) / lanes as f64).max(1.0);
    results(&[LoopKind::Unroll, LoopKind::Vectorize]) * of_matrix
}

/// Operations of one run of a block in `unrolled` loops. What conditions on these leave out of it is no code.
pub(super) fn operations_of(block: &Block, unrolled: &[(Name, i64)]) -> f64 {
    let unrolled: Vec<(Name, i64)> = unrolled.iter().copied().filter(|l| in_conditions(&block.value, l.0)).collect();
    let points: i64 = unrolled.iter().map(|l| l.1).product();
    let reduces = f64::from(u8::from(block.reduce.is_some()));
    if unrolled.is_empty() || points > MOST_POINTS {
        let mut each = reduces;
        block.value.visit(&mut |e| each += operations(e));
        return each;
    }
    let all =
        every(&unrolled, &mut |at| match left(&block.value, &|i| i.eval(&|v| at.get(&v).copied()), &|_, _| 0.0) {
            0.0 => 0.0,
            n => n + reduces,
        });
    all / points as f64
}

/// Iterations of unrolled loops that are told apart.
const MOST_POINTS: i64 = 4096;

fn in_conditions(e: &Expr, v: Name) -> bool {
    let mut found = false;
    e.visit(&mut |e| {
        if let Expr::All(conds) = e {
            found |= conds.iter().any(|c| c.lhs.uses(v) || c.rhs.uses(v));
        }
    });
    found
}

fn collect<'f>(s: &'f Stmt, around: &mut Vec<Around>, out: &mut Vec<(Vec<Around>, &'f Block)>) {
    match s {
        Stmt::Seq(list) => list.iter().for_each(|s| collect(s, around, out)),
        Stmt::For(l) => {
            around.push((l.extent.eval(&|_| Some(OPEN)).unwrap_or(1).max(0), l.kind, l.var));
            collect(&l.body, around, out);
            around.pop();
        }
        Stmt::Kernel(_, s) => collect(s, around, out),
        Stmt::Block(b) => out.push((around.clone(), b)),
        Stmt::Barrier => {}
    }
}
