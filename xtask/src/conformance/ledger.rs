//! The committed list of the outcome of each case: a ratchet. A case that gets worse fails; one that gets better is
//! reported.
//!
//! A line is a case and its outcomes in the interpreter, by shaders and on the CPU: `NAME INTERPRETER DEVICE CPU`. An
//! outcome is one word for the original case and, if that is not the best outcome, `/` and one word for the case with
//! its small inputs as constants: real models have sizes and axes as constants, the cases as inputs.

use std::collections::BTreeMap;
use std::fmt;

/// How a case ended, worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Standing {
    /// Wrong, or refused.
    Fails,
    /// An element type is not there.
    NoType,
    /// An operator is not there, or not in this use.
    NoOperator,
    /// Right, computed on the host.
    Host,
    /// Right, computed on the device and the host.
    Mixed,
    /// Right, computed on the device.
    Device,
}

const WORDS: [(Standing, &str); 6] = [
    (Standing::Fails, "fails"),
    (Standing::NoType, "type"),
    (Standing::NoOperator, "operator"),
    (Standing::Host, "host"),
    (Standing::Mixed, "device+host"),
    (Standing::Device, "device"),
];

impl Standing {
    /// Where `weft` says that it computed a case.
    pub fn of_place(place: &str) -> Option<Standing> {
        match place {
            "device" => Some(Standing::Device),
            "device and host" => Some(Standing::Mixed),
            "host" | "interpreter" => Some(Standing::Host),
            _ => None,
        }
    }
    /// The result was right.
    pub fn passes(self) -> bool {
        self >= Standing::Host
    }
    fn word(self) -> &'static str {
        WORDS.iter().find(|w| w.0 == self).map_or("", |w| w.1)
    }
    fn parse(word: &str) -> Option<Standing> {
        WORDS.iter().find(|w| w.1 == word).map(|w| w.0)
    }
}

/// How a case ends on one device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct End {
    /// With its inputs as they are.
    pub as_is: Standing,
    /// With small inputs made constants where that helps; the same where it does not.
    pub best: Standing,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_is.word())?;
        if self.best > self.as_is { write!(f, "/{}", self.best.word()) } else { Ok(()) }
    }
}

impl End {
    fn parse(text: &str) -> Option<End> {
        let (as_is, best) = text.split_once('/').unwrap_or((text, text));
        Some(End { as_is: Standing::parse(as_is)?, best: Standing::parse(best)? })
    }
    /// True when this is worse than `before` in either way of running the case.
    fn is_worse_than(&self, before: &End) -> bool {
        let passes = |now: Standing, then: Standing| now < then && then.passes();
        passes(self.as_is, before.as_is) || passes(self.best, before.best)
    }
}

/// The ends in the interpreter, by shaders and on the CPU.
pub type Ends = [End; 3];

/// Where the cases end, and the device's name for `weft`.
pub const PLACES: [(&str, &str); 3] = [("the interpreter", "interpreter"), ("the device", "0"), ("the CPU", "cpu")];

fn words(ends: &Ends) -> String {
    ends.each_ref().map(End::to_string).join(" ")
}

/// Ends of cases by name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ledger(pub BTreeMap<String, Ends>);

/// What the head of the file says.
const HEAD: &str = "\
# How ONNX's node cases end: NAME, in the interpreter, by shaders (the system's lavapipe), on the CPU. `cargo xtask
# conformance` fails when one ends worse; `cargo xtask conformance --bless` writes this file.
# An end is one word for the case as it stands and, where that helps, / and one for the case with its small inputs made
# constants: device, device+host and host are right, operator and type are not supported, fails is wrong or refused.
";

impl Ledger {
    /// Reads the file's text.
    ///
    /// # Errors
    /// Names the line that is not understood.
    pub fn parse(text: &str) -> Result<Ledger, String> {
        let lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#'));
        let cases = lines.map(|(n, line)| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let ends = match words.as_slice() {
                [name, ends @ ..] => {
                    let ends: Option<Vec<End>> = ends.iter().map(|e| End::parse(e)).collect();
                    ends.and_then(|e| Ends::try_from(e).ok()).map(|ends| (name.to_string(), ends))
                }
                [] => None,
            };
            ends.ok_or_else(|| format!("line {}: `{line}` is not NAME INTERPRETER DEVICE CPU", n + 1))
        });
        Ok(Ledger(cases.collect::<Result<_, _>>()?))
    }

    /// The file's text.
    pub fn print(&self) -> String {
        let lines = self.0.iter().map(|(name, ends)| format!("{name} {}\n", words(ends)));
        HEAD.to_string() + &lines.collect::<String>()
    }

    /// What `now` lost and what it gained, a line for each. Cases that `now` does not have are lost with `whole`.
    pub fn compare(&self, now: &Ledger, whole: bool) -> (Vec<String>, Vec<String>) {
        let (mut lost, mut gained) = (Vec::new(), Vec::new());
        for (name, ends) in &now.0 {
            let Some(before) = self.0.get(name) else {
                gained.push(format!("{name}: {}", words(ends)));
                continue;
            };
            let line = || format!("{name}: {}, was {}", words(ends), words(before));
            if ends.iter().zip(before).any(|(now, before)| now.is_worse_than(before)) {
                lost.push(line());
            } else if ends != before {
                gained.push(line());
            }
        }
        if whole {
            let missing = self.0.keys().filter(|name| !now.0.contains_key(*name));
            lost.extend(missing.map(|name| format!("{name}: is not there any more")));
        }
        (lost, gained)
    }

    /// The sums, one line for each device.
    pub fn sums(&self) -> String {
        let mut text = String::new();
        for (n, (place, _)) in PLACES.into_iter().enumerate() {
            let count = |pick: &dyn Fn(&End) -> bool| self.0.values().filter(|e| pick(&e[n])).count();
            let passed = count(&|e| e.best.passes());
            let as_is = count(&|e| e.as_is.passes());
            text += &format!(
                "on {place}: {passed} of {} pass, {as_is} as they stand and {} with small inputs made constants; {} of operators \
                 and {} of element types that are not supported, {} fail\n",
                self.0.len(),
                passed - as_is,
                count(&|e| e.best == Standing::NoOperator),
                count(&|e| e.best == Standing::NoType),
                count(&|e| e.best == Standing::Fails),
            );
            if n > 0 {
                let at = |s: Standing, best: bool| count(&|e| if best { e.best == s } else { e.as_is == s });
                for (how, best) in [("as they stand", false), ("with constants where that helps", true)] {
                    text += &format!(
                        "  {how}: {} on the device alone, {} on device and host, {} on the host\n",
                        at(Standing::Device, best),
                        at(Standing::Mixed, best),
                        at(Standing::Host, best),
                    );
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(text: &str) -> Ledger {
        Ledger::parse(text).unwrap()
    }

    #[test]
    fn the_text_reads_back() {
        let text = "test_a host device device\ntest_b fails/host host/device host\ntest_c operator operator operator\ntest_d type device+host host\n";
        assert_eq!(ledger(text).print(), HEAD.to_string() + text);
        assert_eq!(ledger(&ledger(text).print()), ledger(text));
        assert!(Ledger::parse("test_a host device").is_err() && Ledger::parse("test_a host device here").is_err());
    }

    #[test]
    fn a_case_that_ends_worse_in_any_way_is_lost() {
        let before = ledger("test_a host device host\ntest_b host host/device host\ntest_c operator fails host\n");
        for (worse, why) in [
            ("test_a host host host", "no more on the device"),
            ("test_a fails/host device host", "needs constants"),
            ("test_b host host host", "with constants no more on the device"),
            ("test_b fails fails/device host", "as it stands no more"),
            ("test_c operator fails fails", "no more on the CPU"),
        ] {
            assert_eq!(before.compare(&ledger(worse), false).0.len(), 1, "{worse}: {why}");
        }
        let (lost, gained) =
            before.compare(&ledger("test_b host device host\ntest_c type host host\ntest_d fails fails fails\n"), true);
        assert_eq!((lost.len(), gained.len()), (1, 3), "{lost:?} {gained:?}");
        assert!(lost[0].starts_with("test_a"));
    }
}
