//! A digest of the estimate's code. Recorded estimates can be compared with times only as long as the code that made
//! them has not changed.

use crate::fingerprint::Fingerprint;
use std::sync::OnceLock;

/// The code that prices and counts, by file.
const SOURCES: [(&str, &str); 24] = [
    ("estimate/combination.rs", include_str!("combination.rs")),
    ("estimate/cost.rs", include_str!("cost.rs")),
    ("estimate/leaves.rs", include_str!("leaves.rs")),
    ("estimate/mod.rs", include_str!("mod.rs")),
    ("estimate/operands.rs", include_str!("operands.rs")),
    ("estimate/prices.rs", include_str!("prices.rs")),
    ("estimate/processor.rs", include_str!("processor.rs")),
    ("estimate/product.rs", include_str!("product.rs")),
    ("estimate/rates.rs", include_str!("rates.rs")),
    ("estimate/reads.rs", include_str!("reads.rs")),
    ("estimate/rows.rs", include_str!("rows.rs")),
    ("estimate/scheduled.rs", include_str!("scheduled.rs")),
    ("estimate/stages.rs", include_str!("stages.rs")),
    ("estimate/tally.rs", include_str!("tally.rs")),
    ("estimate/transform.rs", include_str!("transform.rs")),
    ("estimate/transpose.rs", include_str!("transpose.rs")),
    ("estimate/units.rs", include_str!("units.rs")),
    ("profile/machine.rs", include_str!("../../profile/machine.rs")),
    ("traffic/access.rs", include_str!("../../traffic/access.rs")),
    ("traffic/figures.rs", include_str!("../../traffic/figures.rs")),
    ("traffic/mod.rs", include_str!("../../traffic/mod.rs")),
    ("traffic/offsets.rs", include_str!("../../traffic/offsets.rs")),
    ("traffic/rounds.rs", include_str!("../../traffic/rounds.rs")),
    ("traffic/transactions.rs", include_str!("../../traffic/transactions.rs")),
];

/// A digest of the estimate's code, in hexadecimal digits: another one after each change of it.
pub fn digest() -> &'static str {
    static DIGEST: OnceLock<String> = OnceLock::new();
    DIGEST.get_or_init(|| {
        let all = Fingerprint::of(|f| f.list(SOURCES.iter(), |f, (_, text)| f.text(text)));
        all.to_string()[..12].to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_counts() {
        let folders = [("estimate", "src/schedule/estimate"), ("traffic", "src/traffic")];
        let mut there: Vec<String> = vec![];
        for (name, folder) in folders {
            for file in std::fs::read_dir(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap() {
                there.push(format!("{name}/{}", file.unwrap().file_name().to_string_lossy()));
            }
        }
        there.retain(|f| !f.ends_with("/tests.rs") && !f.ends_with("/digest.rs"));
        there.push("profile/machine.rs".into());
        there.sort();
        assert_eq!(there, SOURCES.map(|s| s.0));
        assert_eq!(digest().len(), 12);
    }
}
