//! Figures as people write them.

/// A shape as people write it: `1x3x224x224`.
pub fn shape(dims: &[usize]) -> String {
    match dims {
        [] => "scalar".into(),
        dims => dims.iter().map(usize::to_string).collect::<Vec<_>>().join("x"),
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
