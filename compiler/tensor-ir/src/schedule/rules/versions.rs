//! Versions of a function of open sizes: the same function scheduled under an assumption about one of them.
//!
//! An assumption ([`Version`]) needs no proof of its own, since it is written into the function: `n < 32` is a narrower range of `n`,
//! and `n % 16 == 0` puts `16 * q` in the place of `n`. Every simplification, bounds proof and rule profits, and none knows of it.
//! A version is kept where [`estimate`] says that it pays for sizes that stand for those that it is for.

use super::{Scheduled, open};
use crate::int::{Cond, Int, typical_size};
use crate::name::Name;
use crate::profile::{DeviceProfile, Versions};
use crate::schedule::estimate::estimate;
use crate::schedule::{InstrRef, ScheduleError, Version};
use crate::tir::{BufferId, TensorFunction};
use rustc_hash::FxHashMap;

/// Versions of a function, beside the one for all sizes.
const MOST_VERSIONS: usize = 2;

/// Symbols about which something is assumed: the last of a function, along which its elements are neighbours.
const MOST_SYMBOLS: usize = 3;

/// What a version may take of the time of the function for all sizes, on average over the sizes that stand for its own; for each of them
/// alone it may take no more than that one.
const PAYS: f64 = 0.9;

/// What the function for all sizes takes for multiples, of what it takes for sizes beside them, where a version for multiples is tried.
const GUARDED: f64 = 0.97;

/// What is asked of each symbol, in the order in which a run picks: `below` and `multiple_of`.
const ASSUMPTIONS: [(i64, i64); 3] = [(32, 0), (0, 16), (0, 4)];

/// How many times as large a symbol may be as a bound below which it gets a version.
const BEYOND: i64 = 4;

/// A function scheduled under an assumption.
#[derive(Clone, Debug)]
pub struct FunctionVersion {
    /// The assumption.
    pub line: Version,
    /// What holds for the symbols of the function for all sizes where a run may pick it.
    pub when: Vec<Cond>,
    /// The symbols of the version, as expressions of those of the function for all sizes.
    pub symbols: Vec<(Name, Int)>,
    /// What its name ends in: `n_below_32`.
    pub suffix: String,
    /// Before it was scheduled.
    pub before: TensorFunction,
    /// As scheduled.
    pub scheduled: Scheduled,
    /// Estimated times of all sizes' function and of this one, on average over the sizes that stand for it, in nanoseconds; none where
    /// somebody has asked for the version.
    pub estimates: Option<(f64, f64)>,
}

/// The function under the assumption.
struct Assumed {
    function: TensorFunction,
    line: Version,
    /// The symbol in the assumption's place, as an expression of the one that it is about.
    symbol: (Name, Int),
    suffix: String,
}

/// The versions of `f` that pay, where `all` is its schedule for all sizes; the first whose conditions hold is the one to run. They
/// read constants as `all` does, so that constants are uploaded once.
pub fn versions(
    f: &TensorFunction,
    constants: &[BufferId],
    profile: &DeviceProfile,
    all: &Scheduled,
) -> Vec<FunctionVersion> {
    let known = FxHashMap::default();
    let mut pricing = Pricing { f, constants, profile, all: &all.function, compromise: all.compromise, known };
    match profile.asked_versions {
        Versions::Off => return vec![],
        Versions::All => return all_versions(f, constants, profile, all),
        Versions::Auto => {}
    }
    let mut kept: Vec<(f64, FunctionVersion)> = vec![];
    for &(symbol, _, high) in f.symbols.iter().rev().take(MOST_SYMBOLS) {
        let mut stricter: Option<(f64, FunctionVersion)> = None;
        for (below, multiple_of) in ASSUMPTIONS {
            let line = Version { symbol, below, multiple_of };
            if below > 0 && high < BEYOND * below {
                continue;
            }
            let assumed = assume(f, &line).filter(|a| pricing.may_pay(a));
            let Some(v) = assumed.and_then(|a| scheduled(a, constants, profile, all).ok()) else { continue };
            let Some((general, own)) = pricing.compare(&v) else { continue };
            let ratio = own / general;
            let found = (ratio, FunctionVersion { estimates: Some((general, own)), ..v });
            match (below > 0, stricter.take()) {
                (true, _) => kept.push(found),
                // What more sizes have is as good.
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

/// A version for every assumption about every symbol, whatever it costs.
fn all_versions(
    f: &TensorFunction,
    constants: &[BufferId],
    profile: &DeviceProfile,
    all: &Scheduled,
) -> Vec<FunctionVersion> {
    let lines = ASSUMPTIONS.iter().flat_map(|&(below, multiple_of)| {
        f.symbols.iter().rev().map(move |s| Version { symbol: s.0, below, multiple_of })
    });
    let one = |line: Version| scheduled(assume(f, &line)?, constants, profile, all).ok();
    lines.filter_map(one).collect()
}

/// The versions that the lines ask for, in their order, of `f` as it was before its schedule, `all`.
///
/// # Errors
/// A line that tells no sizes apart, and a version that no schedule goes with or that would read a constant packed in another way than
/// `all` does.
pub fn asked_versions(
    f: &TensorFunction,
    lines: &[Version],
    constants: &[BufferId],
    profile: &DeviceProfile,
    all: &Scheduled,
) -> Result<Vec<FunctionVersion>, ScheduleError> {
    let one = |line: &Version| {
        let refuse =
            |message: String| ScheduleError { instruction: InstrRef::new(line.clone()).text(), message, loops: None };
        let assumed = assume(f, line).ok_or_else(|| refuse(format!("`{}` tells no sizes apart here", line.symbol)))?;
        scheduled(assumed, constants, profile, all).map_err(refuse)
    };
    lines.iter().map(one).collect()
}

/// `f` with the assumption written into it; none where the range of the symbol leaves nothing to assume.
fn assume(f: &TensorFunction, line: &Version) -> Option<Assumed> {
    let (mut function, n) = (f.clone(), Int::var(line.symbol));
    let (at, name) = (function.symbols.iter().position(|s| s.0 == line.symbol)?, line.symbol);
    let (low, high) = line.range((function.symbols[at].1, function.symbols[at].2))?;
    if line.below > 0 {
        function.symbols[at] = (name, low, high);
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
    profile: &DeviceProfile,
    all: &Scheduled,
) -> Result<FunctionVersion, String> {
    let Assumed { function: before, line, symbol, suffix } = assumed;
    let scheduled = open::schedule(&before, constants, profile).map_err(|e| e.to_string())?;
    let packed =
        |s: &Scheduled| -> Vec<_> { s.function.prepacks.iter().map(|p| (p.buffer, p.packer.fingerprint())).collect() };
    if packed(&scheduled) != packed(all) {
        return Err("its kernels would read a constant packed in another way than those for all sizes".into());
    }
    let own = |v: Name| if v == symbol.0 { symbol.1.clone() } else { Int::var(v) };
    let symbols = before.symbols.iter().map(|s| (s.0, own(s.0))).collect();
    Ok(FunctionVersion { when: vec![line.when()], line, symbols, suffix, before, scheduled, estimates: None })
}

/// What the function for all sizes costs, for all versions of it.
struct Pricing<'a> {
    /// Before it was scheduled.
    f: &'a TensorFunction,
    constants: &'a [BufferId],
    profile: &'a DeviceProfile,
    all: &'a TensorFunction,
    compromise: bool,
    known: FxHashMap<(Name, i64), Option<f64>>,
}

impl Pricing<'_> {
    /// False where the function for all sizes has the schedule of its multiples, and costs no more for sizes that nothing divides.
    fn may_pay(&mut self, assumed: &Assumed) -> bool {
        let (symbol, of) = (assumed.line.symbol, assumed.line.multiple_of);
        let range = assumed.function.symbols.iter().find(|s| s.0 == assumed.symbol.0).map(|s| (s.1, s.2));
        let Some(n) = range.filter(|_| of > 0 && !self.compromise).map(|r| typical_size(r) * of) else { return true };
        let (at, near) = (self.all_at(symbol, n), self.all_near(symbol, n));
        at.zip(near).is_some_and(|(at, near)| at <= GUARDED * near)
    }
    /// Estimated times of all sizes' function and of the version over the sizes that stand for it, where the version pays.
    fn compare(&mut self, v: &FunctionVersion) -> Option<(f64, f64)> {
        let (symbol, is) = (v.line.symbol, |n: i64| if v.line.below > 0 { n } else { n * v.line.multiple_of });
        let &(_, low, high) =
            v.before.symbols.iter().find(|s| v.symbols.iter().any(|o| o.0 == s.0 && o.1.vars().contains(&symbol)))?;
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
    /// Typical sizes, but for this symbol.
    fn sizes(&self, symbol: Name, n: i64) -> FxHashMap<Name, i64> {
        let mut sizes: FxHashMap<Name, i64> = self.f.typical_sizes(false).into_iter().collect();
        sizes.insert(symbol, n);
        sizes
    }
    fn time(&self, f: &TensorFunction) -> Option<f64> {
        estimate(f, self.constants, self.profile).ok().map(|e| e.total())
    }
    /// The time of the function for all sizes where the symbol is `n`.
    fn all_at(&mut self, symbol: Name, n: i64) -> Option<f64> {
        if let Some(known) = self.known.get(&(symbol, n)) {
            return *known;
        }
        let time = self.time(&self.all.with_sizes(&self.sizes(symbol, n)));
        self.known.insert((symbol, n), time);
        time
    }
    /// The same for an `n` that much divides. Its kernels keep what only other sizes need: guards, and lanes that are no neighbours. So it
    /// is the most that it costs for that `n` or one just below: the halves of these, rounded up (as strides leave them), are odd
    /// once each.
    fn all_near(&mut self, symbol: Name, n: i64) -> Option<f64> {
        let mut most = self.all_at(symbol, n)?;
        for less in [1, 3, 5, 9].into_iter().filter(|less| 2 * less < n) {
            most = most.max(self.all_at(symbol, n - less)?);
        }
        Some(most)
    }
}
