//! Figures as people write them.

/// A shape as people write it: `1x3x224x224`.
pub fn shape(dims: &[usize]) -> String {
    match dims {
        [] => "scalar".into(),
        dims => dims.iter().map(usize::to_string).collect::<Vec<_>>().join("x"),
    }
}

/// Milliseconds with the digits that say something: `132.4`, `9.48`, `0.0312`.
pub fn few_ms(ms: f64) -> String {
    match ms {
        ms if ms >= 100.0 => format!("{ms:.1}"),
        ms if ms >= 1.0 => format!("{ms:.2}"),
        ms => format!("{ms:.4}"),
    }
}

/// A magnitude in few digits, all of them before the point: `65504`, `13.9`, `0.982`. Tiny and huge ones are
/// powers of ten.
pub fn magnitude(x: f64) -> String {
    match x.abs() {
        0.0 => "0".into(),
        size if !(1e-3..1e7).contains(&size) => format!("{x:.2e}"),
        size if size >= 100.0 => format!("{x:.0}"),
        size if size >= 10.0 => format!("{x:.1}"),
        size if size >= 1.0 => format!("{x:.2}"),
        _ => format!("{x:.3}"),
    }
}

/// `1.23 G`, `456 M`.
pub fn si(value: f64) -> String {
    for (limit, unit) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value >= limit {
            return format!("{:.2} {unit}", value / limit);
        }
    }
    format!("{value:.0} ")
}
