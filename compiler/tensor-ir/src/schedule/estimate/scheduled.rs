//! Scheduled kernels: the number of runs of each block, and the work of one run.

use super::combination::Combination;
use super::rates::{FRAGMENT, PLACE_IN_ROW, PLACE_IN_WINDOW, Rates, STEP};

use super::tally::{KernelEstimate, OPEN, Tally, every, left, operations};
use crate::int::IntNode;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::tir::{Block, BufferId, Expr, LoopKind, Scope, Stmt, TensorFunction};
use crate::traffic::{SECTOR_BYTES, traffic};
use rustc_hash::FxHashMap;

/// Each kernel of a scheduled function.
pub(super) fn kernels(f: &TensorFunction, profile: &DeviceProfile) -> Vec<KernelEstimate> {
    let rates = Rates::of(profile);
    let all = f.kernels().into_iter();
    all.map(|(name, body)| tally(f, body, profile, &rates).kernel(f, name, profile, &rates)).collect()
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
            let (threads, workgroups) = (tally.threads, runs / tally.threads);
            Combination::Subgroups.count(&mut tally, profile, rates, [threads as i64, 1], workgroups);
        }
        let matrices = if around.iter().any(|l| l.1 == LoopKind::Tensor) { rates.matrices } else { 1.0 };
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
    if rates.model.workgroup_memory {
        let steps = staged_steps(f, &blocks);
        tally.operations += all * steps.values().sum::<f64>() * STEP;
        tally.operations += all * places_in_windows(f, &blocks, &steps);
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

/// The loops that fill workgroup memory and read it, with their iterations: each waits twice, and addresses its copies.
fn staged_steps(f: &TensorFunction, blocks: &[(Vec<Around>, &Block)]) -> FxHashMap<Name, f64> {
    let serial = |around: &[Around]| -> Vec<Around> {
        around.iter().filter(|l| l.1 == LoopKind::Serial && l.0 > 1).copied().collect()
    };
    let mut steps: FxHashMap<Name, f64> = FxHashMap::default();
    for (stored, writer) in blocks.iter().filter(|b| f.buffers[b.1.buffer].scope == Scope::Shared) {
        let reads = |b: &&(Vec<Around>, &Block)| b.1.value.loads().iter().any(|l| l.0 == writer.buffer);
        for (read, _) in blocks.iter().filter(reads) {
            let (stored, read) = (serial(stored), serial(read));
            let common: Vec<Around> = stored.iter().zip(&read).take_while(|(a, b)| a.2 == b.2).map(|l| *l.0).collect();
            if let Some(last) = common.last() {
                steps.insert(last.2, common.iter().map(|l| l.0 as f64).product());
            }
        }
    }
    steps
}

/// Operations of a thread for the places of elements that it copies one by one out of windows. These are quotients by
/// the window's sizes: of the step, or where a step is a row of windows, of the place in it.
fn places_in_windows(f: &TensorFunction, blocks: &[(Vec<Around>, &Block)], steps: &FxHashMap<Name, f64>) -> f64 {
    let mut sum = 0.0;
    for (around, block) in blocks {
        let kind = |v: Name| around.iter().find(|l| l.2 == v).map(|l| l.1);
        let copies = block.reduce.is_none() && f.buffers[block.buffer].scope != Scope::Global;
        if !copies || steps.is_empty() || around.iter().any(|l| l.1 == LoopKind::Vectorize) {
            continue;
        }
        let mut place: Option<f64> = None;
        let global = block.value.loads().into_iter().filter(|l| f.buffers[l.0].scope == Scope::Global);
        global.flat_map(|l| l.1).for_each(|i| {
            i.visit(&mut |i| {
                let (IntNode::Div(of, by) | IntNode::Mod(of, by)) = i.node() else { return };
                let vars = of.vars();
                let own = !vars.iter().any(|v| matches!(kind(*v), Some(LoopKind::Group(_))));
                if own && by.as_const().is_some_and(|n| n > 2 && !(n as u64).is_power_of_two()) {
                    let each = if vars.iter().any(|v| steps.contains_key(v)) { PLACE_IN_WINDOW } else { PLACE_IN_ROW };
                    place = Some(place.unwrap_or(0.0).max(each));
                }
            });
        });
        let serial = around.iter().filter(|l| matches!(l.1, LoopKind::Serial | LoopKind::Unroll));
        sum += place.unwrap_or(0.0) * serial.map(|l| l.0 as f64).product::<f64>();
    }
    sum
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
