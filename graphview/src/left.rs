//! What fusion left on the table, in rows: equal results that go from kernel to kernel through memory, as of equal
//! layers, are one.

use compiler::trace::{CompileTrace, RoundTrip};

/// Results of the same type, made and read by the same kernels.
#[derive(Clone, PartialEq, Debug)]
pub struct Trips<'t> {
    /// The results.
    pub all: Vec<&'t RoundTrip>,
    /// Their bytes.
    pub bytes: u64,
}

impl Trips<'_> {
    /// Milliseconds of `part` of each, in all; `None` where it is not known.
    pub fn milliseconds(&self, part: fn(&RoundTrip) -> Option<f64>) -> Option<f64> {
        self.all.iter().map(|t| part(t)).sum::<Option<f64>>().map(|ns| ns / 1e6)
    }
    /// Whether one kernel would gain something.
    pub fn gains(&self) -> bool {
        self.all[0].gain_ns().is_some_and(|g| g > 0.0)
    }
}

/// The rows of what [`CompileTrace::round_trips`] gives: the most bytes first.
pub fn alike<'t>(t: &CompileTrace, trips: &'t [RoundTrip]) -> Vec<Trips<'t>> {
    let functions = |r: &RoundTrip| -> Vec<_> {
        std::iter::once(&r.from).chain(&r.readers).map(|&g| &t.groups[g].tensor_function).collect()
    };
    let mut out: Vec<Trips<'t>> = vec![];
    for r in trips {
        match out.iter_mut().find(|l| l.all[0].ty == r.ty && functions(l.all[0]) == functions(r)) {
            Some(row) => {
                row.all.push(r);
                row.bytes += r.bytes;
            }
            None => out.push(Trips { all: vec![r], bytes: r.bytes }),
        }
    }
    out.sort_by_key(|l| std::cmp::Reverse(l.bytes));
    out
}
