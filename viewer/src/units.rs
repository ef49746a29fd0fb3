//! Numbers with units, as texts, and names in few characters.

pub use graphview::names::cut_apart;

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

/// A rate in two digits or more: small ones are no 0.0.
pub fn rate(x: f64) -> String {
    match x {
        x if x >= 100.0 => format!("{x:.0}"),
        x if x >= 1.0 || x == 0.0 => format!("{x:.1}"),
        x if x >= 0.01 => format!("{x:.2}"),
        x => format!("{x:.0e}"),
    }
}

/// Points of a character of a table's text, on an average.
pub const CHARACTER: f32 = 6.8;

/// The end of a name in so many characters: it tells more than the beginning.
pub fn ending(name: &str, most: usize) -> String {
    let count = name.chars().count();
    if count <= most {
        return name.into();
    }
    format!("…{}", name.chars().skip(count - most.saturating_sub(1)).collect::<String>())
}

/// The beginning of a text in so many characters.
pub fn beginning(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    format!("{}…", text.chars().take(most.saturating_sub(1)).collect::<String>())
}

/// The name of a layer with what is fused with it, in so many characters: the layer, and of the rest what fits.
pub fn layer_name(name: &str, most: usize) -> String {
    let layer = name.split('+').next().unwrap_or(name);
    if name.chars().count() <= most || layer.chars().count() < most {
        return beginning(name, most);
    }
    // Behind a colon stands one of the kernels of a layer; a colon and a blank are behind a part.
    let kernel = layer.rfind(':').filter(|i| !layer[i + 1..].starts_with(' '));
    let layer = kernel.map_or(layer, |i| &layer[..i]);
    if layer.chars().count() < most { format!("{layer}…") } else { ending(layer, most) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_rates_are_not_zero() {
        let said = [0.0, 0.0003, 0.034, 1.44, 387.2].map(rate);
        assert_eq!(said, ["0.0", "3e-4", "0.03", "1.4", "387"]);
    }

    #[test]
    fn names_that_would_be_equal_are_cut_elsewhere() {
        let of = |names: &[&str]| cut_apart(names, 12, |i, most| ending(names[i], most));
        assert_eq!(of(&["layer1.0.conv1.weight", "bn"]), ["…onv1.weight", "bn"]);
        assert_eq!(of(&["layer1.0.conv1.weight", "layer2.0.conv1.weight"]), ["…ayer1.0.co…", "…ayer2.0.co…"]);
        assert_eq!(of(&["a.block1.conv1.weight", "b.block1.conv1.weight"]), ["a.blo…weight", "b.blo…weight"]);
        assert_eq!(of(&["one", "one"]), ["one", "one"]);
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        assert_eq!(ending("model.22.conv", 13), "model.22.conv");
        assert_eq!(ending("model.22.conv", 8), "…22.conv");
        assert_eq!(layer_name("conv1+relu", 12), "conv1+relu");
        assert_eq!(layer_name("conv1+batch_norm+relu", 12), "conv1+batch…");
        assert_eq!(layer_name("body: Loop.0.MatMul.10+add", 12), "…0.MatMul.10");
        assert_eq!(layer_name("features.3.conv:matmul", 16), "features.3.conv…");
        assert_eq!(beginning("host steps, waits", 12), "host steps,…");
    }
}
