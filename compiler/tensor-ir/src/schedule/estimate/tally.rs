//! Counts of a kernel (operations, accesses, workgroups ...), and their cost. `weft explain -v` shows the parts.

use super::cost::Cost;
use super::prices::{Count, Counts, Prices};
use super::rates::Rates;
use crate::int::{CondOp, Int};
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::tir::{BufferId, Expr, Scope, TensorFunction, Work};
use crate::traffic::element_bytes;
use rustc_hash::FxHashMap;

/// The estimated time of a kernel, and its resources.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelEstimate {
    /// Its name, or the name of the block that writes its result.
    pub name: Name,
    /// Storage buffers.
    pub bindings: u32,
    /// Bytes of workgroup memory.
    pub shared_bytes: u64,
    /// Workgroups.
    pub workgroups: u64,
    /// Threads of a workgroup.
    pub threads: u64,
    /// Its counts on a processor.
    pub counts: Counts,
    /// Its time.
    pub cost: Cost,
}

impl KernelEstimate {
    /// Time in nanoseconds.
    pub fn total(&self) -> f64 {
        self.cost.total()
    }
    /// Why the device cannot run it.
    pub(super) fn refusal(&self, profile: &DeviceProfile) -> Option<String> {
        let taken = [
            ("bindings", u64::from(self.bindings), u64::from(profile.max_storage_buffers)),
            ("threads", self.threads, u64::from(profile.max_invocations)),
            ("bytes of workgroup memory", self.shared_bytes, u64::from(profile.shared_memory)),
        ];
        let over = taken.into_iter().find(|(_, used, most)| used > most)?;
        Some(format!("{} takes {} {}, {} has {}", self.name, over.1, over.0, profile.name, over.2))
    }
}

/// The fraction of the smaller one of computation and data movement that overlaps with the other. It is below 1, so
/// that of two equally fast schedules the one with less work is cheaper.
const HIDDEN: f64 = 0.99;

/// Counts of a kernel.
#[derive(Clone, Default, Debug)]
pub(super) struct Tally {
    /// Scalar operations of all threads.
    pub operations: f64,
    /// Loads and stores of all subgroups.
    pub accesses: f64,
    /// Passes over workgroup memory of all subgroups.
    pub passes: f64,
    /// Bytes of sectors that subgroups touch.
    pub sector_bytes: f64,
    /// Elements of each buffer that are touched, repeats included.
    pub touched: FxHashMap<BufferId, f64>,
    /// A buffer that exists once for each slice of a product, and the slices.
    pub sliced: Option<(BufferId, i64)>,
    pub workgroups: f64,
    pub threads: f64,
    /// Independent results of a thread; 0 if not known.
    pub results: f64,
    /// Bytes of workgroup memory that belong to no buffer of the function.
    pub shared_bytes: u64,
    /// Counts of a kernel of a processor.
    pub counts: Counts,
}

impl Tally {
    /// Counts `elements` of a buffer.
    pub fn touch(&mut self, b: BufferId, elements: f64) {
        *self.touched.entry(b).or_default() += elements;
    }
    /// Adds the counts of `other`, which runs in the same workgroups.
    pub fn add(&mut self, other: Tally) {
        self.operations += other.operations;
        self.accesses += other.accesses;
        self.passes += other.passes;
        self.sector_bytes += other.sector_bytes;
        self.sliced = self.sliced.or(other.sliced);
        other.touched.into_iter().for_each(|(b, elements)| self.touch(b, elements));
    }
    /// The kernel on its device.
    pub fn kernel(&self, f: &TensorFunction, name: Name, profile: &DeviceProfile, rates: &Rates) -> KernelEstimate {
        let (mut bindings, mut bytes, mut shared_bytes) = (0, 0.0, self.shared_bytes);
        for (&b, elements) in &self.touched {
            let buffer = &f.buffers[b];
            let mut sizes = buffer.shape.iter().map(|d| d.eval(&|_| Some(OPEN)));
            let slices = self.sliced.filter(|s| s.0 == b).map_or(1, |s| s.1);
            let count = sizes.try_fold(slices, |all, n| all.checked_mul(n?)).unwrap_or(1).max(0) as u64;
            match buffer.scope {
                Scope::Global => {
                    let size = buffer.encoding.storage_bytes(buffer.dtype, count);
                    bindings += profile.bindings_for(size);
                    // What one kernel of a function leaves for the next one stays in the last-level cache.
                    let inside = slices > 1 || !f.params.iter().any(|p| p.buffer == b);
                    if !inside || size > rates.cache_bytes {
                        bytes += (size as f64).min(elements * element_bytes(buffer, profile));
                    }
                }
                Scope::Shared => shared_bytes += (count as f64 * element_bytes(buffer, profile)) as u64,
                Scope::Register | Scope::Subgroup { .. } | Scope::Fragment(_) => {}
            }
        }
        KernelEstimate {
            name,
            bindings,
            shared_bytes,
            workgroups: self.workgroups as u64,
            threads: self.threads as u64,
            counts: self.counts,
            cost: self.cost(bytes, rates),
        }
    }
    /// The time. `bytes` of device memory are accessed at least once.
    pub fn cost(&self, bytes: f64, rates: &Rates) -> Cost {
        if let Some((prices, times)) = rates.prices.filter(|_| self.counts[Count::Kernel as usize] > 0.0) {
            return self.priced(prices, times, rates);
        }
        let mut cost = Cost {
            arithmetic: self.operations / rates.operations,
            issue: self.accesses / rates.accesses,
            shared_passes: self.passes / rates.passes,
            sectors: (self.sector_bytes / rates.sector_bytes).max(bytes / rates.memory_bytes),
            ..Cost::default()
        };
        let computed = cost.arithmetic + cost.issue + cost.shared_passes;
        if rates.model.overlaps {
            cost.hidden = HIDDEN * computed.min(cost.sectors);
        }
        let busy = rates.busy_part(self.workgroups, self.threads, self.results);
        let rounds = rates.rounds(self.workgroups, self.threads);
        // With enough subgroups, the scheduler with the most of them takes longest; memory serves all equally.
        let (longest, moved) = (computed * rounds.max(1.0 / busy), cost.sectors / busy);
        let hidden = if rates.model.overlaps { HIDDEN * longest.min(moved) } else { 0.0 };
        let both = longest + moved - hidden;
        cost.waves = both - (computed + cost.sectors - cost.hidden);
        cost.launch = rates.launch + rates.workgroup * self.workgroups / rates.cores;
        cost.scaled(&rates.factors)
    }
    /// The time on a processor.
    fn priced(&self, prices: &Prices, times: f64, rates: &Rates) -> Cost {
        let of = |count: Count| prices.ns[count as usize] * self.counts[count as usize] * times;
        let launch = of(Count::Kernel) + if rates.cores > 1.0 { rates.launch } else { 0.0 };
        let moved = [Count::Byte, Count::FarByte, Count::Again, Count::FarAgain].map(of).iter().sum::<f64>();
        let lanes = [Count::Run, Count::Access, Count::Apart].map(of).iter().sum::<f64>();
        let all = prices.total(&self.counts) * times - of(Count::Kernel);
        let waves = all / rates.cores * (1.0 / rates.busy_part(self.workgroups, 1.0, 0.0) - 1.0);
        let cost = Cost {
            arithmetic: (all - moved - lanes) / rates.cores,
            issue: lanes / rates.cores,
            sectors: moved / rates.cores,
            waves,
            launch,
            ..Cost::default()
        };
        cost.scaled(&rates.factors)
    }
}

/// The assumed extent of a loop whose extent depends on outer loops.
pub(super) const OPEN: i64 = 16;

/// Scalar operations of a function like an exponential.
pub(super) const FUNCTION: f64 = 16.0;

/// Scalar operations of an expression without its operands.
pub(super) fn operations(e: &Expr) -> f64 {
    match e {
        Expr::Load(..) | Expr::Const(..) | Expr::Index(..) | Expr::Cast(..) | Expr::All(..) => 0.0,
        Expr::Unary(op, _) => of_work(op.work()),
        Expr::Binary(op, ..) => of_work(op.work()),
        Expr::Select(..) => 1.0,
    }
}

fn of_work(work: Work) -> f64 {
    match work {
        Work::Addition => 1.0,
        Work::Division => 4.0,
        Work::Exponential => FUNCTION,
    }
}

/// Scalar operations of a block's value in a shader's text.
pub fn operations_of_value(e: &Expr) -> f64 {
    let mut sum = 0.0;
    e.visit(&mut |part| sum += operations(part));
    sum
}

/// Values of some variables.
pub(super) type Values = FxHashMap<Name, i64>;

/// The sum over all values of the loops.
pub(super) fn every(loops: &[(Name, i64)], of: &mut dyn FnMut(&Values) -> f64) -> f64 {
    let points: i64 = loops.iter().map(|l| l.1).product();
    let place = |point: i64| {
        let mut rest = point;
        let own = loops.iter().map(|&(v, n)| {
            let at = rest % n;
            rest /= n;
            (v, at)
        });
        own.collect::<Values>()
    };
    (0..points).map(|point| of(&place(point))).sum()
}

/// Operations of `e` after deciding its conditions with the known indices. A constant costs none, a load the result of
/// `load`.
pub(super) fn left(e: &Expr, value: &dyn Fn(&Int) -> Option<i64>, load: &dyn Fn(BufferId, &[Int]) -> f64) -> f64 {
    let of = |e: &Expr| left(e, value, load);
    match e {
        Expr::Select(c, a, b) => match decided(c, value) {
            Some(true) => of(a),
            Some(false) => of(b),
            None => operations(e) + of(a) + of(b),
        },
        Expr::Unary(_, a) | Expr::Cast(_, a) => operations(e) + of(a),
        Expr::Binary(_, a, b) => operations(e) + of(a) + of(b),
        Expr::Load(b, index) => load(*b, index),
        Expr::Const(..) | Expr::Index(..) | Expr::All(_) => 0.0,
    }
}

/// The value of a condition on indices, if it is decided.
fn decided(e: &Expr, value: &dyn Fn(&Int) -> Option<i64>) -> Option<bool> {
    let Expr::All(conds) = e else { return None };
    let mut all = Some(true);
    for c in conds {
        match value(&c.lhs).zip(value(&c.rhs)) {
            None => all = None,
            Some((a, b)) => {
                let holds = match c.op {
                    CondOp::Lt => a < b,
                    CondOp::Ge => a >= b,
                    CondOp::Eq => a == b,
                };
                if !holds {
                    return Some(false);
                }
            }
        }
    }
    all
}
