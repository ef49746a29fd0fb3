//! Compares the output of `--json` with the tables of docs/json.md: each field is documented and has its type.

use crate::command::{has_adapter, line};
use crate::json_tables::holds;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

/// The JSON of a command, and its exit code.
fn weft(words: &str) -> (Value, i32) {
    let cache = std::env::temp_dir().join(format!("weft-json-{}", std::process::id()));
    let ran = line(words).args(["--json", "-q"]).at(folder()).env("WEFT_CACHE", cache).run();
    (ran.json(), ran.code.unwrap_or(-1))
}

#[test]
fn every_command() {
    for (name, line) in [
        ("devices --profiles", "devices --profiles"),
        ("devices --quirks", "devices --quirks"),
        ("zoo", "zoo"),
        ("inspect", "inspect block.weft"),
        ("compile", "compile block.weft --target lavapipe"),
        ("compile", "compile encoder:smallest --target lavapipe --dim sequence=16..64 --dim batch=1"),
        ("explain", "explain block.weft --target lavapipe"),
        ("compile", "compile branch_shapes.weft --target lavapipe"),
        ("explain", "explain branch_shapes.weft --target lavapipe"),
        ("explain --node", "explain block.weft --target lavapipe --node Conv_3"),
        ("explain --left", "explain block.weft --target lavapipe --left"),
        ("explain --kernel", "explain block.weft --target ada --kernel Conv_3+max_pool+concat"),
        ("run", "run block.weft --device interpreter"),
        ("run", "run classes.weft --device interpreter -i ../../../docs/hills.png --top 2 --labels classes.json"),
        ("run", "run divided.weft --device interpreter --check-indices"),
        ("compare", "compare block.weft --device 0 --against reference"),
        ("compare", "compare divided.weft --device 0 --against reference --check-indices"),
        ("compare", "compare half.weft --device interpreter --amp fp16 --against fp32"),
        ("bench", "bench block.weft --device interpreter --runs 2 --warmup 0"),
    ] {
        if line.contains("--device 0") && !has_adapter() {
            continue;
        }
        let (v, code) = weft(line);
        assert_eq!(code, 0, "weft {line}: {v}");
        holds(name, &v);
    }
}

/// What `bench -o` stores, with one run on one axis.
#[test]
fn explain_by_time() {
    let file = std::env::temp_dir().join(format!("weft-json-{}.trace", std::process::id()));
    for device in ["cpu", "0"] {
        if device == "0" && !has_adapter() {
            continue;
        }
        let (_, code) = weft(&format!("bench block.weft --device {device} --runs 2 --warmup 1 -o {}", file.display()));
        assert_eq!(code, 0);
        let (v, code) = weft(&format!("explain {} --sort time", file.display()));
        assert_eq!(code, 0, "{v}");
        holds("explain --sort", &v);
        let spans = v["times"]["run"]["spans"].as_array().expect("a run");
        let lanes: std::collections::BTreeSet<&str> = spans.iter().filter_map(|s| s["lane"].as_str()).collect();
        assert!(["upload", "device", "readback"].iter().all(|l| lanes.contains(l)), "{lanes:?}");
        let kernels = spans.iter().filter(|s| s["dispatch"].is_u64()).count();
        assert_eq!(Some(kernels), v["times"]["dispatches"].as_array().map(Vec::len));
        let sum: f64 = v["spent"].as_array().expect("rows").iter().filter_map(|r| r["ms"].as_f64()).sum();
        let run = v["run_ms"].as_f64().expect("a run");
        assert!((sum - run).abs() <= 1e-6 * run, "{sum} of {run}");
    }
    std::fs::remove_file(file).expect("removes");
}

/// Numbers that depend on open sizes are for the least ones where these are declared, and else null; beside them stands
/// what they are for any.
#[test]
fn open_sizes() {
    let file = folder().join("open.weft");
    std::fs::write(
        &file,
        "graph @main(%x: f32[n,64]) -> (y: f32[n,64]) {\n  %y = exp %x : f32[n,64]\n  return %y\n}\n",
    )
    .unwrap();
    let line = format!("compile {} --target lavapipe", file.display());
    let (open, _) = weft(&format!("{line} --dim n=open"));
    holds("compile", &open);
    let call = &open["calls"][0];
    assert_eq!(
        (&call["grid"], &call["bytes"], &open["groups"][0]["flops"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!(call["bytes_expr"], "n*512", "{call}");
    assert_eq!(open["dims"][0]["declared"], false);
    assert_eq!(open["memory"]["activations_peak"], Value::Null);
    let (stated, _) = weft(&format!("{line} --dim n=4..64"));
    holds("compile", &stated);
    let call = &stated["calls"][0];
    assert_eq!((&call["bytes"], &call["flops"], &call["bytes_expr"]), (&json!(2048), &json!(256), &json!("n*512")));
    let (fixed, _) = weft(&format!("{line} --dim n=4"));
    holds("compile", &fixed);
    assert_eq!((&fixed["calls"][0]["bytes"], fixed["calls"][0].get("grid_expr")), (&json!(2048), None));
    assert!(fixed.get("dims").is_none());
}

/// The command fails where an input does, and its JSON says which and where.
#[test]
fn a_folder_of_inputs() {
    let (v, code) = weft("compare shades.weft --device interpreter --data shades --amp fp16 --against fp32");
    assert_eq!((code, &v["pass"]), (1, &false.into()), "{v}");
    holds("compare --data", &v);
    assert_eq!(
        (&v["data"]["inputs"], &v["data"]["passed"], &v["data"]["skipped"]),
        (&4.into(), &3.into(), &1.into()),
        "{v}"
    );
    assert_eq!(v["data"]["worst"][0]["input"], "glare.npy", "{v}");
    assert_eq!(v["data"]["first_departing"]["name"], "Conv_0", "{v}");
    assert_eq!(v["first_failing"], "Conv_0", "{v}");
}

#[test]
fn a_folder_of_inputs_that_agree() {
    let some = std::env::temp_dir().join(format!("weft-json-data-{}", std::process::id()));
    std::fs::create_dir_all(&some).expect("a folder");
    for name in ["ramp.png", "dark.npy", "bright.npy"] {
        std::fs::copy(folder().join("shades").join(name), some.join(name)).expect("copies");
    }
    let line = format!("compare shades.weft --device interpreter --data {} --amp fp16 --against fp32", some.display());
    let (v, code) = weft(&line);
    std::fs::remove_dir_all(some).expect("removes");
    assert_eq!((code, &v["pass"]), (0, &true.into()), "{v}");
    holds("compare --data", &v);
    assert_eq!((&v["data"]["inputs"], &v["data"]["passed"]), (&3.into(), &3.into()), "{v}");
    assert_eq!((&v["data"]["first_departing"], &v["first_failing"]), (&Value::Null, &Value::Null), "{v}");
}

/// What has no table prints no JSON: the option is refused, and the error is JSON.
#[test]
fn commands_without_json() {
    for line in [
        "opt half.weft",
        "export half.weft -o half.onnx",
        "report a.trace -o a.html",
        "view half.weft",
        "completions bash",
    ] {
        let (v, code) = weft(line);
        assert_eq!(code, 2, "weft {line}: {v}");
        holds("error", &v);
    }
}

#[test]
fn classes_of_an_image() {
    let (v, _) = weft("run classes.weft --device interpreter -i ../../../docs/hills.png --top 2 --labels classes.json");
    let best = &v["outputs"][0]["top"][0][0];
    assert_eq!((&best["class"], &best["label"]), (&2.into(), &"blue".into()), "{v}");
}

#[test]
fn several_models_are_an_array() {
    let (v, _) = weft("inspect block.weft half.weft");
    let list = v.as_array().expect("an array");
    assert_eq!(list.len(), 2);
    list.iter().for_each(|v| holds("inspect", v));
}

#[test]
fn on_a_device() {
    if !has_adapter() {
        eprintln!("no adapter: times of kernels are not looked at");
        return;
    }
    let (list, _) = weft("devices");
    holds("devices", &list);
    for d in list["devices"].as_array().expect("devices") {
        let (cores, from) = (d["cores"]["value"].as_u64(), d["cores"]["from"].as_str());
        assert!(cores > Some(0) && cores == d["profile"]["cores"].as_u64(), "{d}");
        assert_eq!(from == Some("system"), d["type"] == "cpu", "{d}");
    }
    let (v, code) = weft("bench --ceilings block.weft --runs 2 --warmup 1");
    assert_eq!(code, 0, "{v}");
    holds("bench", &v);
    holds("ceilings", &v["ceilings"]);
    assert!(v["per_kernel"].as_array().is_some_and(|k| !k.is_empty()), "{v}");
    assert!(v["per_kernel"][0]["roofline_fraction"].is_number(), "{v}");
    assert!(v["compile_ms"]["warm"].is_number(), "{v}");
    for on in ["", " --device cpu"] {
        let (alone, code) = weft(&format!("bench --ceilings{on}"));
        assert_eq!(code, 0, "{alone}");
        holds("bench --ceilings", &alone);
    }
    // A network in parts: the kernels of each.
    let (v, code) = weft("bench branch_shapes.weft --runs 2 --warmup 1");
    assert_eq!(code, 0, "{v}");
    holds("bench", &v);
    let kernels = v["per_kernel"].as_array().expect("kernels");
    let of = |part: &str| kernels.iter().filter(|k| k["part"] == part).count();
    assert!(of("before") > 0 && of("after") > 0, "{v}");
    assert_eq!(v["dispatches"].as_u64(), Some(kernels.iter().filter_map(|k| k["calls"].as_u64()).sum()), "{v}");
}

/// Copies a trace, and puts into it what a driver might say of its kernels.
fn with_driver_stats(from: &Path, to: &Path) {
    use compiler::trace::CompileTrace;
    use compiler::trace::driver_stats::{DriverStats, Executable, Statistic, StatisticValue};
    let mut t = CompileTrace::from_bytes(&std::fs::read(from).expect("the trace")).expect("a trace");
    let statistic = |(name, value): (&str, u64)| Statistic {
        name: name.into(),
        meaning: "m".into(),
        value: StatisticValue::Uint(value),
    };
    let executable = |i: usize| Executable {
        name: "compute".into(),
        subgroup_size: 64,
        statistics: [("VGPRs", 40 + i as u64), ("Spilled VGPRs", 3), ("Subgroups per SIMD", 16)].map(statistic).into(),
        isa: Some(format!("v_mov {i}\n")),
    };
    let kernels = (0..t.kernels.len()).map(|i| vec![executable(i)]).collect();
    t.driver_stats = Some(DriverStats { device: "some device".into(), kernels });
    std::fs::write(to, t.to_bytes().expect("bytes")).expect("writes");
}

#[test]
fn tune() {
    let file = std::env::temp_dir().join(format!("weft-json-tuning-{}.jsonl", std::process::id()));
    let (v, code) = weft(&format!("tune block.weft --device 0 --budget 10s --tuning {}", file.display()));
    assert_eq!(code, 0, "{v}");
    holds("tune", &v);
    let (v, code) = weft(&format!("tuning check {}", file.display()));
    holds("tuning check", &v);
    assert!(code == 0 && v["lines"].as_u64().is_some_and(|n| n > 0), "{v}");
    let (compiled, _) = weft("compile block.weft --device 0");
    let kernel = compiled["kernels"][0]["name"].as_str().expect("a kernel").to_string();
    // A schedule of choices alone: another rule than the default's.
    let schedule = folder().join("direct.schedule");
    let line = format!("edit block.weft --device 0 --kernel {kernel} --schedule {} --keep", schedule.display());
    let (v, code) = weft(&format!("{line} --tuning {}", file.display()));
    assert_eq!(code, 0, "{v}");
    assert_eq!(v["result"], "measured", "{v}");
    holds("edit", &v);
    holds("tuning show", &weft(&format!("tuning show {}", file.display())).0);
    std::fs::remove_file(file).expect("the database was written");
}

#[test]
fn parts_and_causes() {
    let dir = std::env::temp_dir().join(format!("weft-json-parts-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let files = ["part.onnx", "in.npz", "out.npz"].map(|f| dir.join(f).display().to_string());
    let line =
        format!("extract half.weft --to Conv_0 -o {} --with-inputs {} --with-outputs {}", files[0], files[1], files[2]);
    let (v, code) = weft(&line);
    assert_eq!(code, 0, "{v}");
    holds("extract", &v);
    let (v, code) = weft("bisect half.weft --device interpreter --amp fp16");
    assert_eq!(code, 0, "{v}");
    holds("bisect", &v);
    let found = dir.join("found").display().to_string();
    let glare = "shades/glare.npy";
    let (v, code) = weft(&format!("bisect shades.weft --device interpreter --amp fp16 -i {glare} -o {found}"));
    assert_eq!((code, &v["cause"]["kind"]), (1, &"precision".into()), "{v}");
    holds("bisect", &v);
    std::fs::remove_dir_all(dir).expect("removes");
}

#[test]
fn traces() {
    let dir = std::env::temp_dir().join(format!("weft-json-traces-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let [a, b] = ["a.trace", "b.trace"].map(|f| dir.join(f).display().to_string());
    weft(&format!("compile block.weft --target lavapipe -o {a}"));
    weft(&format!("compile block.weft --target lavapipe -O1 -o {b}"));
    let stored = dir.join("stats.trace").display().to_string();
    with_driver_stats(Path::new(&a), Path::new(&stored));
    let (v, _) = weft(&format!("inspect {stored}"));
    holds("compile", &v);
    holds("driver_stats", &v["driver_stats"]);
    assert_eq!(v["driver_stats"]["kernels"].as_array().map(Vec::len), v["kernels"].as_array().map(Vec::len), "{v}");
    holds("diff", &weft(&format!("diff {a} {b}")).0);
    holds("compile", &weft(&format!("inspect {a}")).0);
    let bundle = dir.join("a.bundle").display().to_string();
    let open = "encoder:smallest --target lavapipe --dim sequence=16..64 --dim batch=1";
    let (written, _) = weft(&format!("compile {open} -o {bundle}"));
    holds("bundle", &written);
    assert_eq!(weft(&format!("inspect {bundle}")).0, written);
    let (v, code) = weft(&format!("explain {a} --layout nchw"));
    assert_eq!(code, 2);
    holds("error", &v);
    std::fs::remove_dir_all(dir).expect("removes");
}

#[test]
fn errors() {
    for (line, code) in [
        ("run nosuch", 3),
        ("run block.weft --frobnicate", 2),
        ("compile block.weft --target h100", 5),
        ("zoo --amp fp16", 2),
    ] {
        let (v, got) = weft(line);
        assert_eq!(got, code, "weft {line}: {v}");
        holds("error", &v);
        assert_eq!(v["error"]["code"], code, "weft {line}");
    }
}
