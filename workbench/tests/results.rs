//! Results are refused where one figure of a right file is changed, and right ones of other versions and devices are
//! taken. The right files are in `benches/results/table`.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use workbench::results::{Added, add, page};

/// All filed results.
fn table() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/results/table");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("the table").map(|e| e.expect("a file").path()).collect();
    files.sort();
    files.iter().map(|f| serde_json::from_slice(&std::fs::read(f).expect("a file")).expect("JSON")).collect()
}

/// SqueezeNet on lavapipe.
fn right(dtype: &str) -> Value {
    let is = |v: &Value| {
        let device = v["device"]["name"].as_str().is_some_and(|n| n.contains("llvmpipe"));
        device && v["model"] == "squeezenet1_1" && v["dtype"] == dtype
    };
    table().into_iter().find(is).expect("SqueezeNet on lavapipe")
}

/// Adds texts as bench files, in an empty folder.
fn added(texts: &[String]) -> (Added, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let files: Vec<PathBuf> = (0..texts.len()).map(|i| folder.path().join(format!("bench{i}.txt"))).collect();
    files.iter().zip(texts).for_each(|(f, t)| std::fs::write(f, t).expect("it is written"));
    (add(&files, folder.path()).expect("a folder that can be written"), folder)
}

fn scaled(v: &mut Value, by: f64) {
    *v = json!(v.as_f64().expect("a number") * by);
}

/// Makes one figure of a right result wrong.
type Change = fn(&mut Value);

const OF_F32: [(&str, Change); 20] = [
    ("schema 2; this version of Weft reads schema 1", |v| v["schema"] = json!(2)),
    ("missing field `latency_ms`", |v| drop(v.as_object_mut().expect("an object").remove("latency_ms"))),
    ("no `work`", |v| drop(v.as_object_mut().expect("an object").remove("work"))),
    ("invalid type: null", |v| v["latency_ms"]["samples"][3] = Value::Null),
    ("below 0", |v| scaled(&mut v["latency_ms"]["samples"][0], -1.0)),
    ("`latency_ms.median` is", |v| scaled(&mut v["latency_ms"]["median"], 0.9)),
    ("`latency_ms.stddev` is", |v| scaled(&mut v["latency_ms"]["stddev"], 0.5)),
    ("`latency_ms.p90` is", |v| scaled(&mut v["latency_ms"]["p90"], 0.9)),
    ("`latency_ms.min` is", |v| scaled(&mut v["latency_ms"]["min"], 0.5)),
    ("`latency_ms` has 1 samples", |v| v["latency_ms"]["samples"] = json!([v["latency_ms"]["median"]])),
    ("`compile_ms.cold`, with a run in it", |v| v["compile_ms"]["cold"] = json!(0.5)),
    ("`device_ms.median` is", |v| scaled(&mut v["device_ms"]["median"], 0.8)),
    ("make", |v| scaled(&mut v["per_kernel"][0]["us_total"], 0.5)),
    ("`throughput_per_s` is", |v| scaled(&mut v["throughput_per_s"], 20.0)),
    ("above the device's peak", |v| v["flops"] = json!(1_000_000_000_000_000u64)),
    ("above the device's peak", |v| scaled(&mut v["per_kernel"][0]["gflops"], 1e3)),
    ("`roofline_fraction` is", |v| scaled(&mut v["per_kernel"][0]["roofline_fraction"], 0.5)),
    ("`ceilings` has a peak of 0", |v| v["ceilings"]["fma_gflops"] = json!(0.0)),
    ("`dtype` is f16, but `settings.amp` is off", |v| v["dtype"] = json!("f16")),
    ("which is no version", |v| v["env"]["weft"] = json!("newest")),
];

const OF_F16: [(&str, Change); 4] = [
    ("of fp16 without `against_f32`", |v| drop(v.as_object_mut().expect("an object").remove("against_f32"))),
    ("invalid type: null", |v| v["against_f32"]["rel_l2"] = Value::Null),
    ("finite on one side alone", |v| v["against_f32"]["not_finite"] = json!(3)),
    ("compares no result", |v| v["against_f32"]["outputs"] = json!(0)),
];

#[test]
fn one_changed_figure_is_refused_with_its_reason() {
    for (base, changes) in [(right("f32"), &OF_F32[..]), (right("f16"), &OF_F16[..])] {
        assert_eq!(added(&[base.to_string()]).0.filed.len(), 1);
        for (why, change) in changes {
            let mut wrong = base.clone();
            change(&mut wrong);
            assert_ne!(wrong, base, "{why}");
            let (found, _) = added(&[wrong.to_string()]);
            let refused = found.refused.first().map(|r| r.why.clone()).unwrap_or_default();
            assert!(found.filed.is_empty() && refused.contains(why), "expected `{why}`, got `{refused}`");
        }
    }
}

/// All kernels are slower, each by itself without a contradiction.
#[test]
fn kernels_that_outlast_the_run_are_refused() {
    let mut wrong = right("f32");
    for k in wrong["per_kernel"].as_array_mut().expect("kernels") {
        for (field, by) in [("us_median", 9.0), ("us_total", 9.0)] {
            scaled(&mut k[field], by);
        }
    }
    let (found, _) = added(&[wrong.to_string()]);
    assert!(found.refused[0].why.contains("the kernels take"), "{:?}", found.refused);
}

/// A file whose run is its kernels and a wait.
fn with_rows() -> Value {
    let mut v = right("f32");
    let us = |k: &Value| k["us_total"].as_f64().expect("a time");
    let kernels: f64 = v["per_kernel"].as_array().expect("kernels").iter().map(us).sum::<f64>() / 1e3;
    let row = |kind: &str, name: &str, ms: f64| {
        let none = Value::Null;
        json!({ "kind": kind, "name": name, "dispatch": none, "group": none, "nodes": [], "ms": ms, "count": 1 })
    };
    let rows = json!([row("kernel", "all", kernels), row("wait", "wait", 0.25), row("rest", "not attributed", 0.0)]);
    v["spent"] = json!({ "run_ms": kernels + 0.25, "rows": rows });
    v
}

#[test]
fn rows_of_a_run_are_the_run() {
    let (found, _) = added(&[with_rows().to_string()]);
    assert!(found.refused.is_empty(), "{:?}", found.refused);
    let wrong: [(&str, Change); 3] = [
        ("the rows of `spent` take", |v| scaled(&mut v["spent"]["run_ms"], 0.9)),
        ("row `wait` of `spent` is below 0", |v| scaled(&mut v["spent"]["rows"][1]["ms"], -1.0)),
        ("and their rows of `spent`", |v| v["spent"]["rows"][1]["kind"] = json!("kernel")),
    ];
    for (why, change) in wrong {
        let mut v = with_rows();
        change(&mut v);
        let (found, _) = added(&[v.to_string()]);
        assert!(found.refused.first().is_some_and(|r| r.why.contains(why)), "{why}: {:?}", found.refused);
    }
}

#[test]
fn broken_files_are_refused() {
    let text = right("f32").to_string();
    let failed = json!({ "schema": 1, "model": "m", "settings": {}, "error": { "message": "no memory" } });
    let not_timed = json!({ "schema": 1, "model": "m", "not_timed": "it does not compute" });
    for (text, why) in [
        ("latency: 3 ms".to_string(), "it is no JSON"),
        (text[..text.len() / 2].to_string(), "it is no JSON"),
        (text.replace("\"median\":", "\"median\":NaN,\"was\":"), "it is no JSON"),
        (format!("{text}{}", " ".repeat(17 << 20)), "longer than 16 MiB"),
        ("[]".to_string(), "no result"),
        ("{\"traceEvents\":[]}".to_string(), "no `schema`"),
        (failed.to_string(), "m failed: no memory"),
        (not_timed.to_string(), "m was not timed"),
    ] {
        let (found, _) = added(&[text]);
        assert!(found.filed.is_empty() && found.refused[0].why.contains(why), "{why}: {:?}", found.refused);
    }
}

#[test]
fn files_and_rows_agree_about_the_work_of_a_network() {
    let (one, mut other) = (right("f32"), right("f16"));
    other["flops"] = json!(one["flops"].as_u64().expect("a number") + 2);
    let (found, _) = added(&[one.to_string(), other.to_string()]);
    assert!(found.refused[0].why.contains("for the same network and inputs"), "{:?}", found.refused);
    let (found, _) = added(&[json!([one, other]).to_string()]);
    assert_eq!((found.filed.len(), found.refused[0].row), (1, Some(2)), "{:?}", found.refused);
}

/// Changes that leave a result right: other versions and devices, fields that a version does not know or does not have.
const RIGHT: [Change; 10] = [
    |v| v["env"]["weft"] = json!("0.2.0"),
    |v| v["env"]["weft"] = json!("1.10.0-beta.1"),
    |v| v["env"] = json!({ "os": "macos", "arch": "aarch64", "cpus": 8, "weft": "0.1.3" }),
    |v| v["device"] = json!({ "name": "RADV NAVI31", "backend": "vulkan", "driver": "Mesa 25.1", "type": "discrete" }),
    |v| v["device"] = json!({ "name": "Apple M3", "backend": "metal", "driver": "macOS 15", "type": "integrated" }),
    |v| v["per_kernel"] = json!([]),
    |v| v["rows"] = json!([{ "name": "a later field", "ms": 3.0 }]),
    |v| {
        ["device_ms", "compile_ms", "throughput_per_s", "machine", "method"]
            .iter()
            .for_each(|f| drop(v.as_object_mut().expect("an object").remove(*f)))
    },
    |v| {
        v["ceilings"] = Value::Null;
        for k in v["per_kernel"].as_array_mut().expect("kernels") {
            k["roofline_fraction"] = Value::Null;
        }
    },
    |v| v["settings"]["keep_f32"] = json!(["@/home/someone/lists/keep.list"]),
];

#[test]
fn right_results_of_other_versions_and_devices_are_taken() {
    let base = right("f32");
    let change = |c: &Change| {
        let mut v = base.clone();
        c(&mut v);
        v.to_string()
    };
    let texts: Vec<String> = RIGHT.iter().map(change).collect();
    let (found, folder) = added(&texts);
    assert!(found.refused.is_empty() && found.filed.len() == RIGHT.len(), "{found:?}");
    let kept: Vec<String> =
        found.filed.iter().map(|f| std::fs::read_to_string(folder.path().join(f)).expect("a file")).collect();
    assert!(kept.iter().any(|t| t.contains("@keep.list")) && !kept.iter().any(|t| t.contains("/home/")));
    let again: Vec<PathBuf> = found.filed.iter().map(|f| folder.path().join(f)).collect();
    let twice = add(&again, folder.path()).expect("the same folder");
    assert_eq!((twice.there.len(), twice.filed.len()), (RIGHT.len(), 0), "{twice:?}");
}

/// The table has three devices, eight networks and two precisions, and its page is one file that fetches nothing.
#[test]
fn the_table_is_right_and_has_a_page() {
    let all = table();
    let texts: Vec<String> = all.iter().map(Value::to_string).collect();
    let (found, folder) = added(&texts);
    assert!(found.refused.is_empty() && found.filed.len() == all.len(), "{:?}", found.refused);
    let count = |of: fn(&Value) -> String| all.iter().map(of).collect::<std::collections::BTreeSet<_>>().len();
    let counts = [
        count(|v| v["model"].to_string()),
        count(|v| v["device"]["name"].to_string()),
        count(|v| v["dtype"].to_string()),
    ];
    assert_eq!(counts, [8, 3, 2]);
    let html = page(folder.path()).expect("a page");
    assert!(html.contains("Figures are their senders' own"));
    let outside = ["src=\"http", "href=\"http", "@import", "url(", "fetch("];
    assert!(outside.iter().all(|o| !html.contains(o)));
}
