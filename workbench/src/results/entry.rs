//! A result as it is filed: the fields of a bench record that a page shows or a check reads. Fields of later versions
//! are left out.

use crate::bench::record::AgainstF32;
use crate::state::State;
use benches::statistics::Statistics;
use compiler::trace::{Ceilings, TimeRow};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::io::Read;
use std::path::Path;

/// The longest bench file, in bytes.
const LONGEST: u64 = 16 << 20;

/// One model on one device in one setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub schema: u8,
    pub model: String,
    pub batch: u64,
    pub dtype: String,
    pub device: Device,
    pub flops: u64,
    pub work: Work,
    pub latency_ms: Sampled,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_ms: Option<Sampled>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compile_ms: Option<CompileTimes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_per_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatches: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(default)]
    pub per_kernel: Vec<Layer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Spent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceilings: Option<Ceilings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against_f32: Option<AgainstF32>,
    pub settings: Map<String, Value>,
    #[serde(default)]
    pub method: Map<String, Value>,
    #[serde(default)]
    pub machine: Machine,
    pub env: Env,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    pub name: String,
    pub backend: String,
    pub driver: String,
    #[serde(rename = "type")]
    pub kind: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub digest: String,
    pub inputs: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    #[serde(flatten)]
    pub of: Statistics,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Vec<f64>>,
}

impl Sampled {
    /// The longest of the samples, or what is known of them.
    pub fn longest(&self) -> f64 {
        self.samples.iter().flatten().copied().fold(self.of.p99, f64::max)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompileTimes {
    pub cold: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<f64>,
}

/// A kernel, or a node of the interpreter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    pub name: String,
    pub calls: u64,
    pub us_median: f64,
    pub us_total: f64,
    #[serde(default)]
    pub gflops: f64,
    #[serde(default)]
    pub gb_s: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roofline_fraction: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

/// Where the time of one run goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    pub run_ms: f64,
    pub rows: Vec<TimeRow>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    pub before: State,
    pub after: State,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Env {
    pub os: String,
    pub arch: String,
    pub cpus: u64,
    pub weft: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
}

/// The results of a bench file: one, or a list.
///
/// # Errors
/// Says what is wrong with the file, with line and column where it is a field.
pub fn read(file: &Path) -> Result<Vec<Entry>, String> {
    let mut text = String::new();
    let plain = weft::plain_files::open_plain(file).map_err(|e| e.to_string())?;
    plain.take(LONGEST + 1).read_to_string(&mut text).map_err(|e| e.to_string())?;
    if text.len() as u64 > LONGEST {
        return Err(format!("it is longer than {} MiB, the most of a bench file", LONGEST >> 20));
    }
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| format!("it is no JSON: {e}"))?;
    let rows = match &value {
        Value::Array(rows) => &rows[..],
        one => std::slice::from_ref(one),
    };
    if rows.is_empty() {
        return Err("it has no result".into());
    }
    rows.iter().try_for_each(whole)?;
    let parsed = match value.is_array() {
        true => serde_json::from_str(text),
        false => serde_json::from_str(text).map(|one| vec![one]),
    };
    parsed.map_err(|e| format!("it is no result of `weft bench --json`: {e}"))
}

/// Refuses what is known not to be a figure before its fields are read.
fn whole(row: &Value) -> Result<(), String> {
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_string();
    match row["schema"].as_u64() {
        Some(1) => {}
        Some(n) => return Err(format!("it has schema {n}; this version of Weft reads schema 1")),
        None => return Err("it is no result of `weft bench --json`: it has no `schema`".into()),
    }
    if let Some(error) = row.get("error") {
        return Err(format!("{} failed: {}", text("model"), error["message"].as_str().unwrap_or_default()));
    }
    if row.get("not_timed").is_some() {
        return Err(format!("{} was not timed: {}", text("model"), text("not_timed")));
    }
    if row.get("work").is_none() {
        return Err("it has no `work`, the digest of the network: a later version of Weft writes it".into());
    }
    Ok(())
}
