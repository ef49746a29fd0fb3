//! `version`: schedules the function a second time, for some of its sizes only.
//!
//! Before -> after, `version {symbol=n, multiple_of=4}`: this function does not change. The rules schedule its
//! unscheduled form again for the given sizes ([`rules::asked_versions`](super::rules::asked_versions)), and a run with
//! such sizes uses those kernels.
//!
//! ```text
//! symbol n 1..1024                  symbol n 1..1024        symbol n_by_4 1..256
//! for i in 0..n:                    for i in 0..n:          for i in 0..n_by_4*4:
//!   y: y[i] = f(i)                    y: y[i] = f(i)          y: y[i] = f(i)
//! ```

use super::{InstrRef, Instruction, Refusal};
use crate::attr_struct;
use crate::int::{Cond, Int};
use crate::name::Name;
use crate::tir::TensorFunction;

attr_struct! {
    /// Asks for kernels of their own for some sizes: those below a bound, or multiples.
    pub struct Version("version") {
        /// The symbol about which something is assumed.
        pub symbol: Name = "".into(),
        /// The sizes below this one; 0 means no such limit.
        pub below: i64 = 0,
        /// The multiples of this number; 0 means all sizes.
        pub multiple_of: i64 = 0,
    }
}

impl Version {
    /// The line of an instruction that is one.
    pub fn of_instruction(i: &InstrRef) -> Option<&Version> {
        i.as_any().downcast_ref()
    }
    /// The condition on sizes for this version.
    pub fn when(&self) -> Cond {
        let n = Int::var(self.symbol);
        if self.below > 0 { Cond::lt(n, self.below) } else { Cond::eq(n.rem(self.multiple_of.max(1)), 0) }
    }
    /// The range of the version's symbol (the symbol itself, or its quotient by `multiple_of`), if the symbol has this
    /// range. `None` if that is empty, or a single multiple.
    pub fn range(&self, (low, high): (i64, i64)) -> Option<(i64, i64)> {
        let (low, high) = match (self.below, self.multiple_of) {
            (below @ 1.., 0) => (low, high.min(below - 1)),
            (0, of @ 2..) => ((low.saturating_add(of - 1) / of).max(1), high / of),
            _ => return None,
        };
        (low < high || self.below > 0 && low == high).then_some((low, high))
    }
}

impl Instruction for Version {
    fn rewrites(&self) -> bool {
        false
    }
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let symbol = self.symbol;
        let Some(&(_, low, high)) = f.symbols.iter().find(|s| s.0 == symbol) else {
            let known: Vec<&str> = f.symbols.iter().map(|s| s.0.as_str()).collect();
            let known = if known.is_empty() { "none is open".into() } else { format!("open are {}", known.join(", ")) };
            return Err(Refusal::new(format!("`{symbol}` is no open size; {known}")));
        };
        if (self.below > 0) == (self.multiple_of > 0) {
            return Err(Refusal::new("it takes one of `below` and `multiple_of`, at least 1".to_string()));
        }
        match self.range((low, high)) {
            Some(_) => Ok(()),
            None => Err(Refusal::new(format!("`{symbol}`, from {low} to {high}, has too few such sizes"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::testing::*;

    fn open() -> TensorFunction {
        let mut f = matmul(4, 4, 4);
        f.symbols.push(("n".into(), 3, 100));
        f
    }

    #[test]
    fn a_version_leaves_the_loops_as_they_are() {
        let f = open();
        let g = scheduled(&f, &["version {symbol=n, below=32}", "version {symbol=n, multiple_of=16}"]);
        assert_eq!((f.body, g.trace.len()), (g.body, 2));
    }

    #[test]
    fn what_tells_nothing_apart_is_refused() {
        for (line, why) in [
            ("version {symbol=m, below=4}", "`m` is no open size; open are n"),
            ("version {symbol=n}", "it takes one of `below` and `multiple_of`"),
            ("version {symbol=n, below=8, multiple_of=4}", "it takes one of `below` and `multiple_of`"),
            ("version {symbol=n, below=3}", "`n`, from 3 to 100, has too few such sizes"),
            ("version {symbol=n, multiple_of=64}", "`n`, from 3 to 100, has too few such sizes"),
            ("version {symbol=n, multiple_of=-4}", "it takes one of `below` and `multiple_of`"),
        ] {
            let e = refusal(&open(), line);
            assert!(e.contains(why), "{line}: {e}");
        }
    }

    #[test]
    fn its_sizes_are_those_of_its_condition() {
        let list = [17, 32].map(|below| Version { symbol: "n".into(), below, multiple_of: 0 });
        let multiples = [2, 4, 16].map(|of| Version { symbol: "n".into(), below: 0, multiple_of: of });
        // 16 is a multiple of each.
        for (least, v) in [3, 16].into_iter().flat_map(|l| list.iter().chain(&multiples).map(move |v| (l, v))) {
            let (low, high) = v.range((least, 100)).expect("a range");
            let of = v.multiple_of.max(1);
            let holds = |n: i64| v.when().holds(&|_| Some(n)) == Some(true);
            for n in least..=100 {
                let own = n % of == 0 && (low..=high).contains(&(n / of));
                assert_eq!(own, holds(n), "{n}: {v:?}");
            }
        }
    }
}
