//! Numbers with units, as texts.

/// Milliseconds in few digits; small times in microseconds.
pub fn milliseconds(ms: f64) -> String {
    match ms.abs() {
        size if size >= 100.0 => format!("{ms:.0} ms"),
        size if size >= 1.0 => format!("{ms:.2} ms"),
        _ => format!("{:.1} µs", ms * 1000.0),
    }
}

/// A count in three digits.
pub fn si(x: f64) -> String {
    let (scale, unit) = match x {
        x if x >= 1e9 => (1e9, "G"),
        x if x >= 1e6 => (1e6, "M"),
        x if x >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let x = x / scale;
    if x >= 100.0 || unit.is_empty() { format!("{x:.0}{unit}") } else { format!("{x:.1}{unit}") }
}

/// Bytes in few digits.
pub fn mega(bytes: u64) -> String {
    match bytes {
        b if b >= 10_000_000 => format!("{:.0} MB", b as f64 / 1e6),
        b if b >= 100_000 => format!("{:.1} MB", b as f64 / 1e6),
        b => format!("{:.1} kB", b as f64 / 1e3),
    }
}

/// How many of something, with its plural.
pub fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
