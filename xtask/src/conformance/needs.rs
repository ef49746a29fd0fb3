//! Writes `docs/conformance.md`: the totals, and the cases that still need constants, with reasons.

use super::Case;
use super::ledger::{Ledger, PLACES, Standing};
use std::collections::BTreeMap;

/// The document's text.
pub fn document(cases: &[Case], ledger: &Ledger) -> String {
    let mut text = String::from(
        "# ONNX's node cases\n\nWritten by `cargo xtask conformance --bless`, with [the list of all cases](conformance.txt), which \
         `cargo xtask test` holds.\n\nThe cases give sizes, axes and the like as inputs of the graph, which real models hold as \
         constants. A case runs as it stands first. Where the model is then not imported, or the device cannot take part, \
         `weft run --test-dir` makes its small inputs constants, and says so (`--constant-inputs never` does not).\n\n",
    );
    text += &ledger.sums();
    text += &missing(cases);
    for (n, (device, _)) in PLACES.into_iter().enumerate() {
        let needing = cases.iter().filter(|c| {
            let end = c.outcomes[n].end();
            end.best > end.as_is
        });
        let mut reasons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for case in needing {
            let as_is = &case.outcomes[n].as_is;
            let reason = match as_is.standing {
                Standing::Host | Standing::Mixed => {
                    "right, but the host takes part: a size depends on data".to_string()
                }
                _ => general(&as_is.why),
            };
            reasons.entry(reason).or_default().push(&case.name);
        }
        let count: usize = reasons.values().map(Vec::len).sum();
        text += &format!("\n## What needs constants on {device}: {count} cases\n");
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|r| std::cmp::Reverse(r.1.len()));
        for (reason, names) in reasons {
            text += &format!("\n{reason} ({}):\n", names.len());
            names.iter().for_each(|name| text += &format!("- {name}\n"));
        }
    }
    text
}

/// Groups of what is missing, and what belongs to each: operators, and element types.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "training and random numbers",
        &["Adagrad", "Adam", "Momentum", "Gradient", "Bernoulli", "Dropout", "Multinomial", "Random"],
    ),
    ("strings and maps", &["String", "Regex", "TfIdf", "LabelEncoder", "Vectorizer", "Map", "string", "map"]),
    ("2-bit and float4 types", &["uint2", "int2", "float4e2m1"]),
    ("the rest", &[""]),
];

/// What the cases that do not pass on the device miss, in groups.
fn missing(cases: &[Case]) -> String {
    let mut groups: [BTreeMap<String, Vec<&str>>; 4] = Default::default();
    for case in cases.iter().filter(|c| !c.outcomes[1].end().best.passes()) {
        let o = &case.outcomes[1];
        let why = general(&o.constants.as_ref().unwrap_or(&o.as_is).why);
        // Of a type, the name behind the words; of an operator, the name before them.
        let what = why.split_once("has the type ").map_or(why.as_str(), |(_, rest)| rest).trim_start_matches('`');
        let known = GROUPS.iter().position(|(_, names)| names.iter().any(|name| what.starts_with(name)));
        groups[known.unwrap_or(GROUPS.len() - 1)].entry(why).or_default().push(&case.name);
    }
    let count = |group: &BTreeMap<String, Vec<&str>>| group.values().map(Vec::len).sum::<usize>();
    let mut text = format!("\n## What is missing: {} cases\n", groups.iter().map(count).sum::<usize>());
    for ((title, _), group) in GROUPS.iter().zip(&groups) {
        text += &format!("\n### {title}: {} cases\n", count(group));
        for (why, names) in group {
            text += &format!("\n{why} ({}):\n", names.len());
            names.iter().for_each(|name| text += &format!("- {name}\n"));
        }
    }
    text
}

/// A message without what is particular to a case, quoted names and the count of nodes: of an operator that is missing,
/// what it misses.
fn general(message: &str) -> String {
    let mut parts = message.split(" | ");
    let first = parts.next().unwrap_or_default();
    let operator = parts.next().filter(|_| first.contains("Weft does not have"));
    if let Some((name, why)) = operator.and_then(|o| Some((o.split_once(" (")?.0, o.split_once("): ")?.1))) {
        return format!("{name}: {why}");
    }
    let mut out = String::new();
    let mut quoted = false;
    for c in message.chars() {
        match c {
            '`' => {
                out.push_str(if quoted { "" } else { "`_`" });
                quoted = !quoted;
            }
            _ if quoted => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_left_out_of_reasons() {
        let missing = "error[4]: the model uses 1 operator that Weft does not have | DFT (1 node: DFT_0): the axis is open | help: no";
        assert_eq!(general(missing), "DFT: the axis is open");
        assert_eq!(general("input `shape` of `Reshape_0` is no constant"), "input `_` of `_` is no constant");
    }
}
