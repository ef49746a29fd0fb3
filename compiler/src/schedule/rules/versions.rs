//! Versions of a function of open sizes: the same function scheduled under an assumption about one of them.
//!
//! An assumption needs no proof of its own, since it is written into the function: `n < 32` is a narrower range of `n`, and
//! `n % 16 == 0` puts `16 * q` in the place of `n`. Every simplification, bounds proof and rule profits, and none knows of it.
//! A version is kept where [`estimate`] says that it pays for sizes that stand for those that it is for.

use super::{Scheduled, open};
use crate::int::{Cond, Int, typical_size};
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::estimate::estimate;
use crate::tir::{BufferId, TensorFunction};
use rustc_hash::FxHashMap;

/// Versions of a function, beside the one for all sizes.
const MOST_VERSIONS: usize = 2;

/// Symbols about which something is assumed: the first of a function.
const MOST_SYMBOLS: usize = 2;

/// What a version may take of the time of the function for all sizes, in all over the sizes that stand for its own; for each of them
/// alone it may take no more than that one.
const PAYS: f64 = 0.9;

/// What is assumed about a symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Assumption {
    /// It is a multiple of this.
    Multiple(i64),
    /// It is less than this.
    Below(i64),
}

/// What is asked for each symbol, in the order in which a run picks.
const ASSUMPTIONS: [Assumption; 3] = [Assumption::Below(32), Assumption::Multiple(16), Assumption::Multiple(4)];

/// A function scheduled under an assumption.
#[derive(Clone, Debug)]
pub struct Version {
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
    /// Estimated time of all sizes' function and of this one for the sizes that stand for it, in nanoseconds.
    pub estimates: (f64, f64),
}

/// The function under the assumption, and what its symbol is then.
struct Assumed {
    function: TensorFunction,
    when: Cond,
    symbol: (Name, Int),
    suffix: String,
    /// Sizes of the assumed symbol of the function for all sizes that stand for those of the assumption.
    sizes: Vec<i64>,
}

/// The versions of `f` that pay, where `all` is its schedule for all sizes; the first whose conditions hold is the one to run. They
/// read constants as `all` does, so that constants are uploaded once.
pub fn versions(f: &TensorFunction, constants: &[BufferId], profile: &DeviceProfile, all: &Scheduled) -> Vec<Version> {
    let mut kept: Vec<Version> = vec![];
    for &symbol in f.symbols.iter().take(MOST_SYMBOLS) {
        for assumption in ASSUMPTIONS {
            if kept.len() == MOST_VERSIONS {
                return kept;
            }
            let assumed = assume(f, symbol, assumption);
            kept.extend(assumed.and_then(|a| version(f, a, constants, profile, all)));
        }
    }
    kept
}

/// `f` with the assumption written into it; none where the range of the symbol leaves nothing to assume.
fn assume(f: &TensorFunction, (name, low, high): (Name, i64, i64), assumption: Assumption) -> Option<Assumed> {
    let (mut function, n) = (f.clone(), Int::var(name));
    let at = function.symbols.iter().position(|s| s.0 == name)?;
    match assumption {
        Assumption::Below(bound) => {
            let range = (low, bound - 1);
            if range.0 >= range.1 || high < 4 * bound {
                return None;
            }
            function.symbols[at].2 = range.1;
            let sizes = vec![typical_size(range), range.1];
            let suffix = format!("{name}_below_{bound}");
            Some(Assumed { function, when: Cond::lt(n.clone(), bound), symbol: (name, n), suffix, sizes })
        }
        Assumption::Multiple(of) => {
            let range = (((low + of - 1) / of).max(1), high / of);
            if range.0 >= range.1 {
                return None;
            }
            let quotient = Name::new(&format!("{name}_by_{of}"));
            if function.free_variables().contains(&quotient) || function.symbols.iter().any(|s| s.0 == quotient) {
                return None;
            }
            function.symbols.remove(at);
            let is = Int::var(quotient) * of;
            function.substitute_symbols(&std::iter::once((name, is)).collect());
            function.symbols.insert(at, (quotient, range.0, range.1));
            let sizes = vec![typical_size(range) * of, (range.0 * of).max(low)];
            let (when, symbol) = (Cond::eq(n.rem(of), 0), (quotient, n.div(of)));
            Some(Assumed { function, when, symbol, suffix: format!("{name}_multiple_of_{of}"), sizes })
        }
    }
}

/// The version under an assumption, where it can be scheduled and pays.
fn version(
    f: &TensorFunction,
    assumed: Assumed,
    constants: &[BufferId],
    profile: &DeviceProfile,
    all: &Scheduled,
) -> Option<Version> {
    let scheduled = open::schedule(&assumed.function, constants, profile).ok()?;
    let packed =
        |s: &Scheduled| -> Vec<_> { s.function.prepacks.iter().map(|p| (p.buffer, p.packer.fingerprint())).collect() };
    if packed(&scheduled) != packed(all) {
        return None;
    }
    let symbol = |v: Name| if v == assumed.symbol.0 { assumed.symbol.1.clone() } else { Int::var(v) };
    let symbols: Vec<(Name, Int)> = assumed.function.symbols.iter().map(|s| (s.0, symbol(s.0))).collect();
    let assumed_name = assumed.when.lhs.vars().into_iter().next()?;
    let mut sums = (0.0, 0.0);
    for &n in &assumed.sizes {
        let mut sizes: FxHashMap<Name, i64> = f.typical_sizes(false).into_iter().collect();
        sizes.insert(assumed_name, n);
        let own = symbols.iter().map(|(v, is)| Some((*v, is.eval(&|v| sizes.get(&v).copied())?)));
        let own: FxHashMap<Name, i64> = own.collect::<Option<_>>()?;
        let time = |f: TensorFunction| estimate(&f, constants, profile).ok().map(|e| e.total());
        let general = time(all.function.with_sizes(&sizes))?;
        let special = time(scheduled.function.with_sizes(&own))?;
        if special > general {
            return None;
        }
        sums = (sums.0 + general, sums.1 + special);
    }
    (sums.1 <= PAYS * sums.0).then(|| Version {
        when: vec![assumed.when],
        symbols,
        suffix: assumed.suffix,
        before: assumed.function,
        scheduled,
        estimates: sums,
    })
}
