//! The output of `weft bench --decode`.

use super::spread::against;
use crate::output::print_text;
use workbench::Result;
use workbench::bench::Row;
use workbench::bench::decode::record::{DecodeRecord, FirstToken, Speed};
use workbench::bench::record::BenchRecord;
use workbench::figures::{few_ms, si};
use workbench::statistics::Statistics;

/// Names of the columns, and their least width.
pub const COLUMNS: [(&str, usize); 15] = [
    ("model", 0),
    ("batch", 0),
    ("amp", 4),
    ("past", 4),
    ("prompt", 0),
    ("prompt tok/s", 0),
    ("+- tok/s", 0),
    ("decode tok/s", 0),
    ("+- tok/s", 0),
    ("ms a token", 0),
    ("GB/s", 6),
    ("dispatches", 0),
    ("ratio", 0),
    ("+- ratio", 0),
    ("verdict", 7),
];

/// A row's cells in the order of [`COLUMNS`]; the ratio is of the time of a token in the first row to its own.
pub fn cells(first: Statistics, row: &Row) -> Vec<String> {
    let amp = row.setting.settings.amp.clone();
    let (batch, figures) = match &row.result {
        Ok(BenchRecord { run, batch, decode: Some(d), .. }) => {
            let latency = run.latency_ms.as_ref().map(|s| s.of).unwrap_or_default();
            let [ratio, by, word] = against(first, latency);
            let [[prefill, prefill_by], [decode, decode_by]] = [&d.prefill, &d.steps].map(rate);
            let figures = [
                d.past.to_string(),
                d.prompt.to_string(),
                prefill,
                prefill_by,
                decode,
                decode_by,
                format!("{:.2}", latency.median),
                format!("{:.2}", d.gb_s),
                run.dispatches.map_or("null".into(), |n| n.to_string()),
                ratio,
                by,
                word,
            ];
            (batch.to_string(), figures)
        }
        // The message itself is on stderr, and in the JSON.
        _ => {
            let nothing = ["-", "-", "failed", "-", "-", "-", "-", "-", "-", "-", "-", "-"].map(String::from);
            (row.setting.value("batch").unwrap_or("-").to_string(), nothing)
        }
    };
    [row.model.clone(), batch, amp].into_iter().chain(figures).collect()
}

/// Tokens a second, and by how much they may differ.
fn rate(speed: &Speed) -> [String; 2] {
    let of = speed.tokens_per_s.of;
    [format!("{:.1}", of.median), of.plus_minus.map_or(String::new(), |by| format!("{by:.1}"))]
}

/// Tokens, bytes and dispatches of one result.
pub fn show(r: &BenchRecord, d: &DecodeRecord) -> Result<()> {
    let bytes = |n: u64| format!("{}B", si(n as f64));
    let spread = |speed: &Speed| match rate(speed) {
        [median, by] if by.is_empty() => format!("{median} tokens/s"),
        [median, by] => format!("{median} +- {by} tokens/s"),
    };
    let FirstToken { cold, warm } = &d.first_token_ms;
    let behind = if d.past == 0 { String::new() } else { format!(" behind {} positions", d.past) };
    print_text(&format!(
        "prompt of {} tokens{behind}: {}; first token after {} ms, {} ms with loading and compilation",
        d.prompt,
        spread(&d.prefill),
        few_ms(*warm),
        few_ms(*cold),
    ))?;
    let ms = d.steps.ms.of;
    print_text(&format!(
        "{} tokens behind it: {}; {} ms a token (p90 {}, p99 {})",
        d.tokens,
        spread(&d.steps),
        few_ms(ms.median),
        few_ms(ms.p90),
        few_ms(ms.p99),
    ))?;
    let moved = d.bytes_per_token;
    let device = d
        .device_gb_s
        .map_or(String::new(), |rate| format!(", {:.0} % of the {rate:.0} GB/s of the device", 100.0 * d.gb_s / rate));
    print_text(&format!(
        "a token moves {}: weights {}, cache {}, the rest {}; {:.2} GB/s{device}",
        bytes(moved.total()),
        bytes(moved.weights),
        bytes(moved.cache),
        bytes(moved.rest),
        d.gb_s,
    ))?;
    if let Some(dispatches) = r.run.dispatches {
        let layers = if d.layers == 1 { "1 layer".to_string() } else { format!("{} layers", d.layers) };
        let each = dispatches as f64 / d.layers.max(1) as f64;
        let host = match d.host_groups {
            0 => String::new(),
            1 => "; 1 group runs on the host (`weft explain` says why)".to_string(),
            n => format!("; {n} groups run on the host (`weft explain` says why)"),
        };
        print_text(&format!("a token takes {dispatches} dispatches, {each:.1} for each of {layers}{host}"))?;
    }
    print_text(&format!("the cache that the last token reads is {}", bytes(d.cache_bytes)))
}
