//! The comparison of a report: another compilation of the model beside this one, layer by layer.

use compiler::trace::CompileTrace;
use compiler::trace::comparison::{Comparison, Row};
use compiler::trace::diff::KernelDiff;
use serde_json::{Value, json};

/// Another compilation of the model.
#[derive(Clone, Debug)]
pub struct Beside {
    /// Its trace.
    pub trace: CompileTrace,
    /// What this compilation and the other one are called.
    pub names: [String; 2],
}

/// The verdict and all layers, from `t` to the other compilation. The layers that changed most come first.
pub(super) fn difference(t: &CompileTrace, beside: &Beside) -> Value {
    let c = Comparison::of(t, &beside.trace);
    let [a, b] = &beside.names;
    let mut rows: Vec<&Row> = c.rows.iter().filter(|r| r.times.iter().any(Option::is_some)).collect();
    rows.sort_by(|x, y| y.changed.cmp(&x.changed).then(y.delta_us().abs().total_cmp(&x.delta_us().abs())));
    let rows: Vec<Value> = rows.into_iter().map(|r| row([t, &beside.trace], r)).collect();
    json!({ "line": c.headline(), "titles": c.titles([a, b]), "times": c.source, "rows": rows })
}

fn row(sides: [&CompileTrace; 2], r: &Row) -> Value {
    let [a, b] = r.times.map(|t| t.map(|t| t.us));
    let kernels = |side: usize| r.groups[side].iter().flat_map(move |&g| sides[side].kernels_of(g));
    let lines = |(a, b): (usize, usize)| {
        let (a, b) = (&sides[0].kernels[a], &sides[1].kernels[b]);
        let d = KernelDiff::of(a, b);
        let facts = d.facts.iter().map(|f| format!("{}: {} -> {}", f.what, f.a, f.b));
        std::iter::once(format!("{} | {}", a.name, b.name)).chain(facts).chain(d.schedule.clone()).collect::<Vec<_>>()
    };
    let lines: Vec<String> = kernels(0).zip(kernels(1)).flat_map(lines).collect();
    json!({ "name": r.name, "groups": r.groups[0], "dispatches": r.dispatches, "us": a, "us_beside": b,
            "ratio": r.ratio(), "noise": r.noise(), "changed": r.changed, "reason": r.reason,
            "kernels": lines })
}
