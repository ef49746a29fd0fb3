//! `weft bench`: timelines on one axis, sweeps whose rows may fail, kernels of the interpreter.

use crate::command::{Weft, has_adapter, line};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

/// The command on models of the transcripts.
fn here(words: &str) -> Weft {
    let cache = std::env::temp_dir().join(format!("weft-benchmarks-{}", std::process::id()));
    line(words).args(["-q"]).at(folder()).env("WEFT_CACHE", cache)
}

fn json(words: &str) -> Value {
    here(words).args(["--json"]).run().succeeded().json()
}

/// The complete events of a timeline: process, name, beginning, end.
fn timeline(words: &str, name: &str) -> (Vec<(u64, String, f64, f64)>, Value) {
    let file = std::env::temp_dir().join(format!("weft-timeline-{name}-{}.json", std::process::id()));
    here(&format!("{words} --timeline {}", file.display())).run().succeeded();
    let v: Value = serde_json::from_slice(&std::fs::read(&file).expect("the timeline")).expect("JSON");
    std::fs::remove_file(file).expect("removes");
    let events = v["traceEvents"].as_array().expect("events").iter().filter(|e| e["ph"] == "X");
    let number = |v: &Value| v.as_f64().expect("a number");
    let event = |e: &Value| {
        let start = number(&e["ts"]);
        let name = e["name"].as_str().expect("a name").to_string();
        (e["pid"].as_u64().expect("a process"), name, start, start + number(&e["dur"]))
    };
    (events.map(event).collect(), v["otherData"].clone())
}

#[test]
fn host_and_device_stand_on_one_axis() {
    if !has_adapter() {
        return;
    }
    let (events, about) = timeline("bench block.weft --runs 2 --warmup 1", "device");
    let host =
        |name: &str| events.iter().find(|e| e.0 == 1 && e.1 == name).unwrap_or_else(|| panic!("no {name}: {events:?}"));
    let order = ["upload", "encode and submit", "wait", "readback"].map(host);
    assert!(order.windows(2).all(|w| w[0].3 <= w[1].2 + 1e-3), "{order:?}");
    let compiled = json("bench block.weft --runs 2 --warmup 1");
    let kernels: Vec<_> = events.iter().filter(|e| e.0 == 2 && e.1 != "queue" && !e.1.starts_with("copies")).collect();
    assert_eq!(Some(kernels.len() as u64), compiled["dispatches"].as_u64(), "{events:?}");
    assert!(kernels.windows(2).all(|w| w[0].2 <= w[1].2 && w[0].2 <= w[0].3), "{kernels:?}");
    if about["kernel_times"] == "gpu-timestamps" {
        // Kernels begin behind the submission and end before the host has waited for them.
        let slack = about["device_clock_uncertainty_us"].as_f64().expect("a number") + 1.0;
        for k in &kernels {
            assert!(
                k.2 >= host("encode and submit").2 - slack && k.3 <= host("wait").3 + slack,
                "{k:?} {events:?} {about}"
            );
        }
    }
}

#[test]
fn kernels_of_the_processor_stand_between_inputs_and_results() {
    let (events, about) = timeline("bench block.weft --runs 2 --warmup 1 --device cpu", "cpu");
    let v = json("bench block.weft --runs 2 --warmup 1 --device cpu");
    assert_eq!(about["kernel_times"], "host-clock");
    let at = |name: &str| events.iter().position(|e| e.1 == name).unwrap_or_else(|| panic!("no {name}: {events:?}"));
    let kernels = &events[at("upload")..at("readback")];
    let stages = v["compile_ms"]["stages"].as_array().expect("stages").iter().filter_map(|s| s["ms"].as_f64());
    let (sum, cold) = (stages.sum::<f64>(), v["compile_ms"]["cold"].as_f64().expect("a first run"));
    assert!((sum - cold).abs() <= 1e-6 * cold, "{sum} of {cold}: {v}");
    let kernels = kernels.iter().filter(|k| k.0 == 2).count();
    assert_eq!(Some(kernels as u64), v["dispatches"].as_u64(), "{events:?}");
    assert!(events.windows(2).all(|w| w[0].3 <= w[1].2 + 1e-3), "one after another: {events:?}");
}

#[test]
fn nodes_of_the_cpu_executor_have_times() {
    let (events, _) = timeline("bench block.weft --runs 2 --warmup 0 --device interpreter", "interpreter");
    let v = json("bench block.weft --runs 2 --warmup 0 --device interpreter");
    let rows = v["per_kernel"].as_array().expect("a row for each node");
    assert_eq!(rows.len(), 11, "{v}");
    assert!(rows.iter().any(|r| r["name"] == "Conv_0" && r["op"] == "conv" && r["us_total"].as_f64() > Some(0.0)));
    let sum: f64 = rows.iter().filter_map(|r| r["us_total"].as_f64()).sum();
    assert!(sum > 0.0 && v["dispatches"] == 11 && v["kernels"] == 11, "{v}");
    assert_eq!(events.len(), 11, "{events:?}");
    assert!(events.windows(2).all(|w| w[0].3 <= w[1].2 + 1e-3), "nodes run one after another: {events:?}");
}

/// Decoders of three exporters' forms, and the tokens that ONNX Runtime makes behind the prompt 3, 1, 4, 1, 5 when it
/// takes the most likely one each time (`scripts/greedy.py`). The two best logits are nowhere closer than .005.
const DECODERS: [(&str, [i64; 9]); 3] = [
    ("decoders/genai", [20, 13, 1, 4, 9, 20, 13, 1, 4]),
    ("decoders/std23", [10, 14, 2, 0, 16, 23, 5, 10, 17]),
    ("decoders/old", [10, 14, 2, 0, 16, 23, 5, 10, 17]),
];

#[test]
fn decoders_make_the_right_tokens() {
    let devices = ["cpu", "interpreter", "0"];
    for (model, wanted) in DECODERS {
        for device in &devices[..if has_adapter() { 3 } else { 2 }] {
            let words = "-i input_ids=decoders/prompt.npy --decode 8 --runs 2 --warmup 1";
            let v = json(&format!("bench {model}.onnx {words} --device {device}"));
            let (d, at) = (&v["decode"], format!("{model} on {device}: {v}"));
            assert_eq!(d["made"], serde_json::json!([wanted]), "{at}");
            assert_eq!((&d["prompt"], &d["tokens"], &d["layers"]), (&5.into(), &8.into(), &1.into()), "{at}");
            let samples = |v: &Value| v["samples"].as_array().map(Vec::len);
            assert_eq!(samples(&v["latency_ms"]), Some(16), "{at}");
            assert_eq!(samples(&d["prefill"]["ms"]), Some(2), "{at}");
            assert_eq!(samples(&d["steps"]["tokens_per_s"]), Some(2), "{at}");
            // Keys and values of one head of 16 in f32, for five tokens of the prompt and seven behind it.
            assert_eq!(d["cache_bytes"], 2 * 16 * 4 * 12, "{at}");
            let rows = v["spent"]["rows"].as_array().expect("rows").iter().filter_map(|r| r["ms"].as_f64());
            let (sum, run) = (rows.sum::<f64>(), v["spent"]["run_ms"].as_f64().expect("a run"));
            assert!((sum - run).abs() <= 1e-6 * run, "{sum} of {run}: {at}");
            if *device != "interpreter" {
                let bytes = |kind: &str| d["bytes_per_token"][kind].as_u64().expect("bytes");
                // Of the table of 24 rows a token reads one; the cache is read, and written with one position more.
                assert!(bytes("weights") <= v["memory"]["weights"].as_u64().expect("bytes"), "{at}");
                assert!(bytes("cache") >= 2 * 16 * 4 * (12 + 13), "{at}");
            }
        }
    }
}

#[test]
fn decoders_are_timed_in_any_batch_behind_any_cache() {
    let v = json("bench decoders/old.onnx --decode 3 --prefill 4 --past 6 --batch 2 --runs 1 --warmup 0 --device cpu");
    let made = v["decode"]["made"].as_array().expect("tokens");
    assert!(made.len() == 2 && made.iter().all(|m| m.as_array().map(Vec::len) == Some(4)), "{v}");
    assert_eq!((&v["batch"], &v["decode"]["past"]), (&2.into(), &6.into()), "{v}");
    assert_eq!(v["decode"]["cache_bytes"], 2 * 2 * 16 * 4 * 12, "{v}");
}

#[test]
fn a_failing_row_keeps_the_rest() {
    let sweep = here("bench --sweep device=cpu,nosuch amp=off --runs 1 --warmup 0 half.weft").args(["--json"]);
    let v = sweep.run().ended(5).json();
    let rows = v.as_array().expect("two rows");
    assert!(rows[0]["latency_ms"]["median"].as_f64() > Some(0.0), "{v}");
    assert_eq!(
        (&rows[1]["error"]["code"], &rows[1]["settings"]["swept"]["device"]),
        (&5.into(), &"nosuch".into()),
        "{v}"
    );
    // Alone it is no row, but the error.
    let alone = here("bench --sweep device=nosuch --runs 1 half.weft").args(["--json"]).run().ended(5).json();
    assert_eq!(alone["error"]["code"], 5, "{alone}");
}

#[test]
fn open_dimensions_and_keep_lists_are_swept() {
    let sweep = "bench open_found.weft encoder:smallest --sweep dim=sequence=16,32 keep=none,* --amp fp16 \
                 --device interpreter --runs 1 --warmup 0";
    let v = here(sweep).args(["--json"]).run().ended(2).json();
    let rows = v.as_array().expect("rows");
    let of = |r: &Value| r["settings"]["swept"].as_object().expect("swept").clone();
    assert_eq!(rows.len(), 8);
    let encoders: Vec<&Value> = rows.iter().filter(|r| r["model"] == "encoder:smallest").collect();
    assert!(encoders.iter().all(|r| r["error"].is_null()), "{v}");
    assert_eq!(of(encoders[3])["sequence"], "32");
    assert_eq!(encoders[3]["settings"]["keep_f32"], serde_json::json!(["*"]));
    assert!(
        rows.iter().any(|r| r["error"]["message"].as_str().is_some_and(|m| m.contains("no such dimension"))),
        "{v}"
    );
}

#[test]
fn a_sweep_without_values_is_refused_before_anything_runs() {
    for (sweep, why) in [
        ("amp", "--sweep amp: needs KEY=A,B"),
        ("amp=off,fp16 batch", "--sweep batch: needs KEY=A,B"),
        ("amp=", "--sweep amp=: takes off, fp16, auto"),
        ("size=1", "keep-f32"),
    ] {
        let ran = here(&format!("bench half.weft --device interpreter --sweep {sweep}")).run().refused(2, why);
        assert_eq!(ran.stdout, "", "{sweep}");
    }
}

/// Ratios are to the first setting, each model's own.
#[test]
fn ratios_are_of_one_model() {
    let rows = "bench half.weft block.weft --device interpreter --runs 2 --warmup 0 --format csv";
    let ran = here(&format!("{rows} --sweep seed=1,2")).run().succeeded();
    let rows: Vec<Vec<&str>> = ran.stdout.lines().map(|l| l.split(',').collect()).collect();
    let column = |name: &str| rows[0].iter().position(|c| *c == name).unwrap_or_else(|| panic!("{}", ran.stdout));
    let [ratio, verdict] = ["ratio", "verdict"].map(column);
    assert_eq!(rows.len(), 5, "{}", ran.stdout);
    for first in &rows[1..3] {
        assert_eq!((first[ratio], first[verdict]), ("1.00", ""), "{}", ran.stdout);
    }
}

#[test]
fn runs_in_flight_are_chosen_and_said() {
    if !has_adapter() {
        return;
    }
    let v = json("bench block.weft --runs 2 --warmup 1 --in-flight 3");
    assert_eq!(v["in_flight"], 3, "{v}");
    let v = json("bench block.weft --runs 2 --warmup 1");
    assert!([1, 2, 4].iter().any(|n| v["in_flight"] == *n), "{v}");
}
