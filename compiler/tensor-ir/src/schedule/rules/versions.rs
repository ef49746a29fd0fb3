//! Versions of a function of open sizes: the same function, scheduled under an assumption about one symbol.
//!
//! An assumption ([`Version`]) is written into the function, so it needs no proof: `n < 32` narrows the range of `n`,
//! and `n % 16 == 0` replaces `n` by `16 * q` with a new symbol `q`. Range proofs, divisors and rules use it like any
//! other fact. `n < 2` leaves the size 1 where none is smaller: a product of one row has rules of its own.
//!
//! - A version is kept if the estimate of its kernels, over two sizes that represent the assumption, is at most 0.9 of
//!   the estimate of the kernels for all sizes, and at neither size above it. A function has at most two versions.
//! - An estimate replaces symbols by numbers, and guards that are not needed at these numbers disappear. So the kernels
//!   for all sizes are priced at sizes next to the multiples.
//! - A version reads constants packed as the kernels for all sizes do (the same packers): where it would pack one that
//!   they read as it is, it reads that as it is, too; if it still packs another way, it is dropped. Where tiles and one
//!   row pack differently and it costs less, all kernels read a constant in one order ([`in_one_order`]).
//! - The dispatches of versions are pending steps of the plan with conditions ([`Cond`](crate::int::Cond)). A plan for
//!   given sizes takes the first version whose conditions hold, or the kernels for all sizes. Scratch memory of
//!   versions is shared.
//! - The kernels of versions belong to the module like all others: a session makes their pipelines when it opens, with
//!   the same cache keys, and all lists of sizes share them. In text a version is one line in the schedule of the
//!   function for all sizes (instruction `version`).

use super::{Choice, Scheduled, open, schedule_with};
use crate::fingerprint::Fingerprint;
use crate::int::{Cond, Int, typical_size};
use crate::name::Name;
use crate::schedule::estimate::estimate_scheduled;
use crate::schedule::{InstrRef, ScheduleError, ScheduleTarget, TransformLayout, Version, Versions, apply};
use crate::tir::{BufferId, TensorFunction};
use rustc_hash::FxHashMap;

/// Versions of a function, beside the one for all sizes.
const MOST_VERSIONS: usize = 2;

/// Symbols about which something is assumed: the last of a function, along which its elements are neighbours.
const MOST_SYMBOLS: usize = 3;

/// A version is kept if its time, averaged over the sizes that represent it, is at most this fraction of the time of
/// the function for all sizes. At no single size may it be slower.
const PAYS: f64 = 0.9;

/// A version for multiples is tried if the time of the function for all sizes at multiples is at most this fraction of
/// its time at neighbouring sizes.
const GUARDED: f64 = 0.97;

/// The bound below which one row is left.
const ONE_ROW: i64 = 2;

/// The assumptions about each symbol, in the order in which a run tests them: `below` and `multiple_of`.
const ASSUMPTIONS: [(i64, i64); 4] = [(ONE_ROW, 0), (32, 0), (0, 16), (0, 4)];

/// How many times as large a symbol may be as a bound below which it gets a version.
const BEYOND: i64 = 4;

/// A function scheduled under an assumption.
#[derive(Clone, Debug)]
pub struct FunctionVersion {
    /// The assumption.
    pub line: Version,
    /// The conditions, in symbols of the function for all sizes, under which a run may use it.
    pub when: Vec<Cond>,
    /// The symbols of the version as expressions in symbols of the function for all sizes.
    pub symbols: Vec<(Name, Int)>,
    /// The suffix of its name: `n_below_32`.
    pub suffix: String,
    /// Before it was scheduled.
    pub before: TensorFunction,
    /// As scheduled.
    pub scheduled: Scheduled,
    /// Estimated times in nanoseconds of the function for all sizes and of this version, averaged over the sizes that
    /// represent it; `None` if the version was requested explicitly.
    pub estimates: Option<(f64, f64)>,
}

/// The function under the assumption.
#[derive(Clone)]
struct Assumed {
    function: TensorFunction,
    line: Version,
    /// The symbol in the assumption's place, as an expression of the one that it is about.
    symbol: (Name, Int),
    suffix: String,
}

/// The versions of `f` that pay; `all` is its schedule for all sizes. A run uses the first version whose conditions
/// hold. Versions read constants as `all` does, so that constants are uploaded once.
pub fn versions(
    f: &TensorFunction,
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
    all: &Scheduled,
) -> Vec<FunctionVersion> {
    let known = FxHashMap::default();
    let mut pricing = Pricing { f, target, all: &all.function, compromise: all.compromise, known };
    match target.options.versions {
        Versions::Off => return vec![],
        Versions::All => return all_versions(f, constants, target, all),
        Versions::Auto => {}
    }
    let mut kept: Vec<(f64, FunctionVersion)> = vec![];
    for &(symbol, low, high) in f.symbols.iter().rev().take(MOST_SYMBOLS) {
        let mut stricter: Option<(f64, FunctionVersion)> = None;
        for (below, multiple_of) in ASSUMPTIONS {
            let line = Version { symbol, below, multiple_of };
            if below > 0 && high < BEYOND * below || below == ONE_ROW && low != 1 {
                continue;
            }
            let assumed = assume(f, &line).filter(|a| pricing.may_pay(a));
            let Some(v) = assumed.and_then(|a| scheduled(a, constants, target, all).ok()) else { continue };
            let Some((general, own)) = pricing.compare(&v) else { continue };
            let ratio = own / general;
            let found = (ratio, FunctionVersion { estimates: Some((general, own)), ..v });
            match (below > 0, stricter.take()) {
                (true, _) => kept.push(found),
                // A version for more sizes that is as fast is preferred.
                (false, Some(of)) if of.0 < PAYS * ratio => kept.extend([of, found]),
                (false, Some(_)) => kept.push(found),
                (false, None) => stricter = Some(found),
            }
        }
        kept.extend(stricter);
    }
    kept.sort_by(|a, b| a.0.total_cmp(&b.0));
    kept.truncate(MOST_VERSIONS);
    let order = |v: &FunctionVersion| ASSUMPTIONS.iter().position(|a| *a == (v.line.below, v.line.multiple_of));
    let mut kept: Vec<FunctionVersion> = kept.into_iter().map(|v| v.1).collect();
    kept.sort_by_key(order);
    kept
}

/// How many elements a packed constant has for each result of one row, at least, where one row decides how it lies.
const READ_BY_ONE_ROW: i64 = 8;

/// The schedule for all sizes that reads constants in an order that kernels for one row can read too, if `all` packs
/// one so that they cannot, and both together cost less: at the typical size and at one row.
///
/// The order is the constants' own, or the one that a version for one row gives them.
pub fn in_one_order(
    f: &TensorFunction,
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
    all: &Scheduled,
) -> Option<Scheduled> {
    let on = target.profile.model().shaders && target.options.versions != Versions::Off;
    let &(symbol, ..) = f.symbols.iter().rev().find(|s| s.1 == 1 && s.2 >= BEYOND * ONE_ROW).filter(|_| on)?;
    let assumed = assume(f, &Version { symbol, below: ONE_ROW, multiple_of: 0 })?;
    let typical: FxHashMap<Name, i64> = f.typical_sizes(false).into_iter().collect();
    let one: FxHashMap<Name, i64> = typical.iter().map(|(s, n)| (*s, if *s == symbol { 1 } else { *n })).collect();
    let elements = |f: &TensorFunction, b: BufferId| f.with_sizes(&one).buffers[b].numel().as_const();
    let results: i64 = f.outputs().map(|b| elements(f, b)).sum::<Option<_>>()?;
    let large = |b| elements(f, b).is_some_and(|n| n >= READ_BY_ONE_ROW.saturating_mul(results));
    let packs = all.function.prepacks.iter().any(|p| large(p.buffer));
    if !packs || scheduled(assumed.clone(), constants, target, all).is_ok() {
        return None;
    }
    let time =
        |f: &TensorFunction, sizes| estimate_scheduled(&f.with_sizes(sizes), target.profile).ok().map(|e| e.total());
    let packed = time(&all.function, &typical)? + time(&all.function, &one)?;
    let with = |orders: &[InstrRef]| {
        let [many, row] = [f, &assumed.function].map(|f| open::schedule(&laid_out(f, orders)?, &[], target).ok());
        let (many, row) = (many?, row?);
        Some((time(&many.function, &typical)? + time(&row.function, &one)?, many))
    };
    let row = open::schedule(&assumed.function, constants, target).ok()?;
    let orders = orders_of_constants(&row, constants);
    let laid_out = (!orders.is_empty()).then(|| with(&orders)).flatten();
    let least = with(&[]).into_iter().chain(laid_out).min_by(|a, b| a.0.total_cmp(&b.0))?;
    (least.0 < packed).then_some(least.1)
}

/// The instructions of a schedule that permute the dimensions of constants.
fn orders_of_constants(s: &Scheduled, constants: &[BufferId]) -> Vec<InstrRef> {
    let names: Vec<Name> = constants.iter().map(|b| s.function.buffers[*b].name).collect();
    let permutes = |i: &&InstrRef| {
        let layout = i.as_any().downcast_ref::<TransformLayout>();
        layout.is_some_and(|l| names.contains(&l.buffer) && l.splits.is_empty())
    };
    s.function.trace.iter().filter(permutes).cloned().collect()
}

/// The function with constants in another order, before it is scheduled.
fn laid_out(f: &TensorFunction, orders: &[InstrRef]) -> Option<TensorFunction> {
    let mut f = f.clone();
    orders.iter().try_for_each(|i| apply(&mut f, i.clone())).ok()?;
    Some(f)
}

/// A version for every assumption about every symbol, without comparing costs.
fn all_versions(
    f: &TensorFunction,
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
    all: &Scheduled,
) -> Vec<FunctionVersion> {
    let lines = ASSUMPTIONS.iter().flat_map(|&(below, multiple_of)| {
        f.symbols.iter().rev().map(move |s| Version { symbol: s.0, below, multiple_of })
    });
    let one = |line: Version| scheduled(assume(f, &line)?, constants, target, all).ok();
    lines.filter_map(one).collect()
}

/// The version for the sizes below `below`, scheduled by values for choices; `None` if they do not apply, or if it
/// would read a constant in another packing than `all`.
pub(in crate::schedule) fn version_by(
    f: &TensorFunction,
    line: &Version,
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
    (all, values): (&Scheduled, &[Choice]),
) -> Option<FunctionVersion> {
    let assumed = assume(f, line)?;
    let own = schedule_with(&assumed.function, constants, target, values).ok()?;
    finished(assumed, own, all).ok()
}

/// The versions that the lines request, in their order. `f` is the function before its schedule `all`.
///
/// # Errors
/// A line does not distinguish any sizes; a version cannot be scheduled; or a version would read a constant in another
/// packing than `all`.
pub fn asked_versions(
    f: &TensorFunction,
    lines: &[Version],
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
    all: &Scheduled,
) -> Result<Vec<FunctionVersion>, ScheduleError> {
    let one = |line: &Version| {
        let refuse =
            |message: String| ScheduleError { instruction: InstrRef::new(line.clone()).text(), message, loops: None };
        let assumed = assume(f, line).ok_or_else(|| refuse(format!("`{}` tells no sizes apart here", line.symbol)))?;
        scheduled(assumed, constants, target, all).map_err(refuse)
    };
    lines.iter().map(one).collect()
}

/// `f` with the assumption written into it; `None` if it holds for the whole range of the symbol or for nothing.
fn assume(f: &TensorFunction, line: &Version) -> Option<Assumed> {
    let (mut function, n) = (f.clone(), Int::var(line.symbol));
    let (at, name) = (function.symbols.iter().position(|s| s.0 == line.symbol)?, line.symbol);
    let (low, high) = line.range((function.symbols[at].1, function.symbols[at].2))?;
    if line.below > 0 {
        function.symbols[at] = (name, low, high);
        if low == high {
            function.symbols.remove(at);
            function.substitute_symbols(&std::iter::once((name, Int::new(low))).collect());
        }
        let suffix = format!("{name}_below_{}", line.below);
        return Some(Assumed { function, line: line.clone(), symbol: (name, n), suffix });
    }
    let of = line.multiple_of;
    let quotient = Name::new(&format!("{name}_by_{of}"));
    if function.free_variables().contains(&quotient) || function.symbols.iter().any(|s| s.0 == quotient) {
        return None;
    }
    function.symbols.remove(at);
    let is = Int::var(quotient) * of;
    function.substitute_symbols(&std::iter::once((name, is)).collect());
    function.symbols.insert(at, (quotient, low, high));
    let suffix = format!("{name}_multiple_of_{of}");
    Some(Assumed { function, line: line.clone(), symbol: (quotient, n.div(of)), suffix })
}

/// The version under an assumption, or why there is none.
fn scheduled(
    assumed: Assumed,
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
    all: &Scheduled,
) -> Result<FunctionVersion, String> {
    let schedule =
        |constants: &[BufferId]| open::schedule(&assumed.function, constants, target).map_err(|e| e.to_string());
    let own = schedule(constants)?;
    if packed(&own) == packed(all) {
        return finished(assumed, own, all);
    }
    let has = |b: &BufferId| all.function.prepacks.iter().any(|p| p.buffer == *b);
    let kept: Vec<BufferId> = constants.iter().copied().filter(has).collect();
    let own = schedule(&kept)?;
    let orders = orders_of_constants(all, constants);
    if orders.is_empty() || packed(&own) == packed(all) {
        return finished(assumed, own, all);
    }
    let laid_out = laid_out(&assumed.function, &orders).ok_or("its constants have another order")?;
    let own = open::schedule(&laid_out, &[], target).map_err(|e| e.to_string())?;
    finished(assumed, own, all)
}

/// The constants that are packed, and how.
fn packed(s: &Scheduled) -> Vec<(BufferId, Fingerprint)> {
    s.function.prepacks.iter().map(|p| (p.buffer, p.packer.fingerprint())).collect()
}

/// The version with its schedule, if it reads constants as `all` does.
fn finished(assumed: Assumed, scheduled: Scheduled, all: &Scheduled) -> Result<FunctionVersion, String> {
    let Assumed { function: before, line, symbol, suffix } = assumed;
    if packed(&scheduled) != packed(all) {
        return Err("its kernels would read a constant packed in another way than those for all sizes".into());
    }
    let own = |v: Name| if v == symbol.0 { symbol.1.clone() } else { Int::var(v) };
    let symbols = before.symbols.iter().map(|s| (s.0, own(s.0))).collect();
    Ok(FunctionVersion { when: vec![line.when()], line, symbols, suffix, before, scheduled, estimates: None })
}

/// Costs of the function for all sizes, shared by the comparisons with all versions.
struct Pricing<'a> {
    /// Before it was scheduled.
    f: &'a TensorFunction,
    target: ScheduleTarget<'a>,
    all: &'a TensorFunction,
    compromise: bool,
    known: FxHashMap<(Name, i64), Option<f64>>,
}

impl Pricing<'_> {
    /// False if the function for all sizes already has the schedule for multiples, and costs no more at other sizes.
    fn may_pay(&mut self, assumed: &Assumed) -> bool {
        let (symbol, of) = (assumed.line.symbol, assumed.line.multiple_of);
        let range = assumed.function.symbols.iter().find(|s| s.0 == assumed.symbol.0).map(|s| (s.1, s.2));
        let Some(n) = range.filter(|_| of > 0 && !self.compromise).map(|r| typical_size(r) * of) else { return true };
        let (at, near) = (self.all_at(symbol, n), self.all_near(symbol, n));
        at.zip(near).is_some_and(|(at, near)| at <= GUARDED * near)
    }
    /// Estimated times of the function for all sizes and of the version over its representative sizes, if the version
    /// pays.
    fn compare(&mut self, v: &FunctionVersion) -> Option<(f64, f64)> {
        let (symbol, is) = (v.line.symbol, |n: i64| if v.line.below > 0 { n } else { n * v.line.multiple_of });
        let &(_, low, high) = self.f.symbols.iter().find(|s| s.0 == symbol)?;
        let (low, high) = v.line.range((low, high))?;
        let least = if v.line.below > 0 { high } else { low };
        let (mut general, mut own) = (0.0, 0.0);
        for n in [typical_size((low, high)), least].map(is) {
            let sizes = self.sizes(symbol, n);
            let values = v.symbols.iter().map(|(s, is)| Some((*s, is.eval(&|v| sizes.get(&v).copied())?)));
            let values: FxHashMap<Name, i64> = values.collect::<Option<_>>()?;
            let special = self.time(&v.scheduled.function.with_sizes(&values))?;
            let at = if v.line.below > 0 { self.all_at(symbol, n)? } else { self.all_near(symbol, n)? };
            if special > at {
                return None;
            }
            (general, own) = (general + at / 2.0, own + special / 2.0);
        }
        (own <= PAYS * general).then_some((general, own))
    }
    /// Typical sizes, with `n` for this symbol.
    fn sizes(&self, symbol: Name, n: i64) -> FxHashMap<Name, i64> {
        let mut sizes: FxHashMap<Name, i64> = self.f.typical_sizes(false).into_iter().collect();
        sizes.insert(symbol, n);
        sizes
    }
    fn time(&self, f: &TensorFunction) -> Option<f64> {
        estimate_scheduled(f, self.target.profile).ok().map(|e| e.total())
    }
    /// The time of the function for all sizes at size `n` of the symbol.
    fn all_at(&mut self, symbol: Name, n: i64) -> Option<f64> {
        if let Some(known) = self.known.get(&(symbol, n)) {
            return *known;
        }
        let time = self.time(&self.all.with_sizes(&self.sizes(symbol, n)));
        self.known.insert((symbol, n), time);
        time
    }
    /// The same for an `n` with many divisors. The kernels for all sizes keep code that only other sizes need (guards,
    /// and vectors that are loaded element by element), but an estimate at `n` does not see that. So the largest cost
    /// at `n` and at sizes just below it is taken; among these, each half (rounded up, as strides give it) is odd once.
    fn all_near(&mut self, symbol: Name, n: i64) -> Option<f64> {
        let mut most = self.all_at(symbol, n)?;
        for less in [1, 3, 5, 9].into_iter().filter(|less| 2 * less < n) {
            most = most.max(self.all_at(symbol, n - less)?);
        }
        Some(most)
    }
}
