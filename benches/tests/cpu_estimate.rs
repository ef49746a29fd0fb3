//! The estimate of the processor's rules beside the measured tables `benches/tables/cpu-*.jsonl`: what it chooses, and
//! how far it is from the times of each rule. `workbench/examples/units` makes the tables.

use compiler::compile::operand_buffers;
use compiler::profile::DeviceProfile;
use compiler::schedule::rules::price_of_choices;
use compiler::text::parse_tensor_function;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use weft::statistics::Statistics;

/// Time of the chosen candidates by the time of the best ones, all units together, and a single one, at most.
const TOGETHER: f64 = 1.05;
const WORST: f64 = 1.3;
/// The median of estimate over time for each rule.
const MEDIAN: std::ops::RangeInclusive<f64> = 0.7..=1.4;

#[derive(Deserialize)]
struct Table {
    network: String,
    name: String,
    profile: DeviceProfile,
    function: String,
    constants: Vec<usize>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    choices: Vec<String>,
    rule: String,
    us: f64,
}

impl Table {
    /// Each row's estimate in microseconds.
    fn estimates(&self) -> Vec<f64> {
        let f = parse_tensor_function(&self.function).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let constants = operand_buffers(&f, &self.constants);
        let one = |r: &Row| {
            let choices = weft::parse_choices(&r.choices)?;
            Ok::<f64, String>(price_of_choices(&f, &constants, &self.profile, &choices)?.total() / 1e3)
        };
        self.rows.iter().map(|r| one(r).unwrap_or_else(|e| panic!("{}: {e}", self.name))).collect()
    }
}

fn judge(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tables").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (mut chosen, mut best, mut rules) = (0.0, 0.0, BTreeMap::<String, Vec<f64>>::new());
    let mut units = 0;
    for line in text.lines() {
        let t: Table = serde_json::from_str(line).unwrap_or_else(|e| panic!("{file}: {e}"));
        let estimates = t.estimates();
        let pick = (0..t.rows.len()).min_by(|a, b| estimates[*a].total_cmp(&estimates[*b])).expect("rows");
        let least = t.rows.iter().map(|r| r.us).fold(f64::INFINITY, f64::min);
        let us = t.rows[pick].us;
        assert!(us <= WORST * least, "{file}: {} {}: {us} us chosen, {least} is the best", t.network, t.name);
        (chosen, best, units) = (chosen + us, best + least, units + 1);
        for (r, e) in t.rows.iter().zip(&estimates) {
            rules.entry(r.rule.clone()).or_default().push(e / r.us);
        }
    }
    assert!(units >= 60 && chosen <= TOGETHER * best, "{file}: {units} units, {chosen} us chosen, {best} at best");
    for (rule, ratios) in rules {
        let median = Statistics::of(&ratios).median;
        assert!(MEDIAN.contains(&median), "{file}: the estimate of {rule} is {median} times the measured time");
    }
}

#[test]
fn choices_with_avx512_are_near_the_best() {
    judge("cpu-avx512.jsonl");
}

#[test]
fn choices_with_avx2_are_near_the_best() {
    judge("cpu-avx2.jsonl");
}
