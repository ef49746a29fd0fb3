//! Kernels that are scheduled: how often each block runs, and what it does each time.

use super::rates::{BARRIER, HALVING, Rates};
use super::tally::{KernelEstimate, OPEN, Tally, operations};
use crate::profile::DeviceProfile;
use crate::tir::{Block, LoopKind, Stmt, TensorFunction};
use crate::traffic::{SECTOR_BYTES, traffic};

/// Each kernel of a scheduled function.
pub(super) fn kernels(f: &TensorFunction, profile: &DeviceProfile) -> Result<Vec<KernelEstimate>, String> {
    let rates = Rates::of(profile);
    Ok(f.kernels()
        .into_iter()
        .map(|(name, body)| tally(f, body, profile, &rates).kernel(f, name, profile, &rates))
        .collect())
}

/// A loop around a block: iterations, how it runs.
type Around = (i64, LoopKind);

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
    let subgroups = tally.workgroups * (tally.threads / rates.lanes as f64).ceil();
    for (around, block) in &blocks {
        let own = around.iter().filter(|l| !matches!(l.1, LoopKind::Group(_) | LoopKind::Local(_)));
        let combined = around.iter().any(|l| l.1 == LoopKind::Combine);
        let runs = own.filter(|l| l.1 != LoopKind::Combine).map(|l| l.0 as f64).product::<f64>() * all;
        if combined {
            tally.operations += (2.0 * f64::from(rates.lanes.ilog2()) * HALVING + BARRIER) * runs;
        }
        let mut each = f64::from(u8::from(block.reduce.is_some()));
        block.value.visit(&mut |e| each += operations(e));
        tally.operations += each * runs;
        let loads = block.value.loads().into_iter().map(|l| l.0);
        loads.chain([block.buffer]).for_each(|b| tally.touch(b, runs));
    }
    for a in traffic(f, body, profile) {
        let times = a.times.max(1) as f64 * subgroups;
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

fn collect<'f>(s: &'f Stmt, around: &mut Vec<Around>, out: &mut Vec<(Vec<Around>, &'f Block)>) {
    match s {
        Stmt::Seq(list) => list.iter().for_each(|s| collect(s, around, out)),
        Stmt::For(l) => {
            around.push((l.extent.eval(&|_| Some(OPEN)).unwrap_or(1).max(0), l.kind));
            collect(&l.body, around, out);
            around.pop();
        }
        Stmt::Kernel(_, s) => collect(s, around, out),
        Stmt::Block(b) => out.push((around.clone(), b)),
        Stmt::Barrier => {}
    }
}
