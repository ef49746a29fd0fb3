//! `weft tune` finds what is planted: a slow default, whose repair all other commands take, and candidates that are
//! wrong, hang or end the process that measures them. `runtime-gpu/tests/margins.rs` has those that write beyond their
//! results.

use crate::command::{Ran, example, weft};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn planted(args: &[&str]) -> Ran {
    example("planted_faults").env("PLANTED_SLOWNESS", "1").args(args).run()
}

const MODEL: &str = "graph @main(%x: f32[513,2048]) -> (y: f32[513,2048]) {
  %0 = mul %x, %x : f32[513,2048]
  %1 = relu %0 : f32[513,2048]
  return %1
}
";

#[test]
fn a_slow_default_is_repaired_and_faulty_candidates_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (model, tuning) = (at("net.weft"), at("tuning.jsonl"));
    std::fs::write(&model, MODEL).expect("the model is written");
    let tune =
        ["tune", &model, "--device", "0", "--budget", "60s", "--tuning", &tuning, "--cache", "off", "--json", "-q"];
    let submitted = at("submitted.jsonl");
    let found = planted(&[&tune[..], &["--submit", &submitted]].concat()).succeeded().json();
    let lines = lines_of(&submitted);
    assert_eq!(lines[0]["kind"], "device");
    let kinds: BTreeSet<&str> = lines.iter().filter_map(|l| l["kind"].as_str()).collect();
    for kind in ["ceilings", "sample", "choices", "refused"] {
        assert!(kinds.contains(kind), "{kind} is not in {kinds:?}");
    }
    // It does not write over a file.
    planted(&[&tune[..], &["--submit", &submitted]].concat()).ended(2);
    let function = &found["functions"][0];
    assert!(function["ratio"].as_f64().is_some_and(|r| r < 1.0 / 1.5), "{found}");
    assert!(found["network"]["kept"] == true && found["network"]["ratio"].as_f64().is_some_and(|r| r < 1.0), "{found}");
    let refused: Vec<String> = serde_json::from_value(function["refused"].clone()).expect("a list of texts");
    for (fault, why) in [
        ("forgets", "wrong results"),
        ("tail", "wrong results for operands of whole numbers: 1 of 1050624, the first at 1050623 is"),
        ("hangs", "it takes longer than"),
        ("aborts", "it ends the process: signal"),
    ] {
        let own: Vec<&String> = refused.iter().filter(|r| r.contains(&format!("fault {fault} of"))).collect();
        // It is tried once.
        assert!(own.len() == 1 && own[0].contains(why), "{fault}: {own:?} of {refused:?}");
    }
    assert_eq!(refused.len(), 4, "{refused:?}");

    let compiled = |how: &str| {
        let args = ["compile", &model, "--device", "0", "--tuning", how, "--cache", "off", "--emit", "weft", "-q"];
        planted(&args).succeeded().stdout
    };
    let (with, without) = (compiled(&tuning), compiled("off"));
    assert!(without.contains("point=threads, value=8,") && !with.contains("point=threads, value=8,"), "{with}");
    let compare = ["compare", &model, "--device", "0", "--tuning", &tuning, "--cache", "off", "--json"];
    assert_eq!(planted(&compare).succeeded().json()["pass"], true);

    // Each field of docs/json.md is there.
    let shown = weft(["tuning", "show", &tuning, "--json"]).run().succeeded().json();
    assert_eq!(shown["lines"][0]["choices"], function["choices"]);
    let both = at("both.jsonl");
    weft(["tuning", "merge", &tuning, &tuning, "-o", &both]).run().succeeded();
    let checked = weft(["tuning", "check", &both, "--json"]).run().succeeded().json();
    assert!(checked["lines"] == 1 && checked["refused"] == 4, "{checked}");

    // What was tuned is not tuned again, and what was refused is not tried again.
    let again = planted(&tune).succeeded().json();
    assert!(again["functions"].as_array().is_some_and(Vec::is_empty) && again["network"].is_null(), "{again}");
    let kernel = [&tune[..], &["--kernel", function["name"].as_str().expect("a name")]].concat();
    let again = planted(&kernel).succeeded().json();
    assert_eq!(again["functions"][0]["refused"], serde_json::json!([]), "{again}");
}

fn lines_of(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(file).expect("a database");
    text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect()
}

#[test]
fn an_estimate_is_calibrated_by_measured_schedules() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (model, tuning) = (at("net.weft"), at("tuning.jsonl"));
    std::fs::write(&model, MODEL).expect("the model is written");
    let args = ["tune", &model, "--device", "0", "--budget", "20s", "--tuning", &tuning, "--cache", "off", "-q"];
    weft(args).run().succeeded();
    let samples: Vec<Value> = lines_of(&tuning).into_iter().filter(|l| l["kind"] == "sample").collect();
    assert!(samples.len() >= 4, "{samples:?}");
    // These are too few.
    weft(["tuning", "calibrate", &tuning]).run().ended(3);

    // Times of a device on which issue costs ten times what the estimate says, for five functions.
    let planted = at("planted.jsonl");
    let mut text = String::new();
    for f in 1..=5_u32 {
        for n in 1..=9_u32 {
            let mut line = samples[0].clone();
            let part = |k: u32| f64::from((f * 31 + n * 17 * k) % 23 + 1) * 1e5;
            line["function"] = format!("f{f}").into();
            line["schedule"] = format!("s{n}").into();
            line["estimate"] = serde_json::json!({ "arithmetic": part(1), "issue": part(3), "shared_passes": 0.0,
                "sectors": 0.0, "waves": 0.0, "launch": 2e4, "hidden": 0.0 });
            line["us"] = ((part(1) + 10.0 * part(3) + 2e4) / 1e3).into();
            text += &format!("{line}\n");
        }
    }
    std::fs::write(&planted, text).expect("it is written");
    let found = weft(["tuning", "calibrate", &planted, "--json"]).run().succeeded().json();
    assert!(found["kept"] == true && found["rank_correlation"][1].as_f64() > found["rank_correlation"][0].as_f64());
    assert!(found["factors"]["issue"].as_f64().is_some_and(|f| (f - 10.0).abs() < 0.5), "{found}");
    assert_eq!(lines_of(&planted).last().map(|l| l["kind"].clone()), Some("calibration".into()));

    let estimated = |how: &str| {
        let explain = weft(["explain", &model, "--device", "0", "--tuning", how, "--cache", "off", "-v"]);
        let text = explain.run().succeeded().stdout;
        let line = text.lines().find(|l| l.starts_with("estimated:")).unwrap_or_else(|| panic!("{text}"));
        line.to_string()
    };
    assert_ne!(estimated(&planted), estimated("off"));
}

const CONVOLUTIONS: &str = "const @w : f32[32,16,3,3] = random(1)
const @v : f32[32,32,3,3] = random(2)
graph @main(%x: f32[1,16,24,24]) -> (y: f32[1,32,24,24]) {
  %w = const @w
  %v = const @v
  %0 = conv %x, %w {pads=[1,1,1,1]} : f32[1,32,24,24]
  %1 = relu %0 : f32[1,32,24,24]
  %2 = conv %1, %v {pads=[1,1,1,1]} : f32[1,32,24,24]
  return %2
}
";

/// Times of functions in a database, by form.
fn function_times(file: &str) -> BTreeMap<String, f64> {
    let text = std::fs::read_to_string(file).expect("a database");
    let lines = text.lines().map(|l| serde_json::from_str::<Value>(l).expect("JSON"));
    let of_functions = lines.filter(|l| l["kind"] == "function");
    of_functions.map(|l| (l["form"].as_str().expect("a form").to_string(), l["us"].as_f64().expect("a time"))).collect()
}

#[test]
fn measured_times_decide_about_layouts() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (model, tuning, nchw) = (at("net.weft"), at("tuning.jsonl"), at("nchw.jsonl"));
    std::fs::write(&model, CONVOLUTIONS).expect("the model is written");
    let tune = |file: &str, layout: &str| {
        let args = ["tune", &model, "--device", "0", "--layout", layout, "--budget", "60s", "--tuning", file];
        weft(args).args(["--cache", "off", "--json", "-q"]).run().succeeded().json()
    };
    let found = tune(&tuning, "auto");
    let plans: Vec<&str> =
        found["graph"]["plans"].as_array().expect("plans").iter().filter_map(|p| p["name"].as_str()).collect();
    assert!(plans.starts_with(&["as decided", "layout nchw", "layout nhwc", "fuse classic"]), "{plans:?}");
    tune(&nchw, "nchw");
    let in_nchw = function_times(&nchw);
    assert!(in_nchw.keys().any(|form| function_times(&tuning).contains_key(form)), "forms are found again");

    // With its times, then with those of NCHW much smaller, then much larger than the others.
    let layouts = |factor: f64| {
        let text = std::fs::read_to_string(&tuning).expect("a database");
        let mut out = String::new();
        for line in text.lines() {
            let mut line: Value = serde_json::from_str(line).expect("JSON");
            // On a busy machine the last comparison may say that decisions by these times made the network slower.
            if line["withdrawn"] == true {
                continue;
            }
            if line["form"].as_str().is_some_and(|form| in_nchw.contains_key(form)) {
                line["us"] = (line["us"].as_f64().expect("a time") * factor).into();
            }
            out += &format!("{line}\n");
        }
        let file = at("edited.jsonl");
        std::fs::write(&file, out).expect("it is written");
        let explain = weft(["explain", &model, "--device", "0", "--tuning", &file, "--cache", "off", "-v"]);
        explain.run().succeeded().stdout
    };
    let (small, large) = (layouts(1e-3), layouts(1e3));
    assert!(small.contains("layouts stay: the module is measured at"), "{small}");
    assert!(!large.contains("layouts stay") && large.contains("the module is measured at"), "{large}");
}

#[test]
fn files_that_are_no_databases_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("other"), "{\"a\": 1}\n").expect("it is written");
    let compile = |file: &str| {
        let database = path(file).display().to_string();
        weft(["compile", "resnet18", "--target", "ada", "--tuning", &database]).run()
    };
    compile("other").refused(3, "line 1");
    // A damaged file in the cache folder does not stop a command that did not ask for it.
    std::fs::create_dir(path("cache")).expect("a folder");
    std::fs::write(path("cache/tuning.jsonl"), "{\"a\": 1}\n").expect("it is written");
    let with_cache = |folder: &str| {
        let cache = path(folder).display().to_string();
        weft(["compile", "squeezenet1_1", "--target", "ada", "--cache", &cache])
    };
    let text = with_cache("cache").run().succeeded().stderr;
    assert!(text.contains("skipped") && text.contains("line 1"), "{text}");
    compile("none").refused(2, "weft tune");
    let required = with_cache("empty").args(["--tuning", "require"]).run();
    let text = required.refused(5, "no tuned choices for ada").stderr;
    assert!(text.contains("weft tune"), "{text}");
}

#[test]
fn schedules_of_the_processor_are_searched() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (model, tuning) = (at("net.weft"), at("tuning.jsonl"));
    std::fs::write(&model, CONVOLUTIONS).expect("the model is written");
    let cache = at("cache");
    let weft = |args: &[&str]| weft(args).env("WEFT_CACHE", &cache).run().succeeded();
    // With peak rates that no function comes near: on a busy machine measured ones may be low, and then the search
    // leaves the functions as they are.
    weft(&["bench", "--ceilings", "--device", "cpu"]);
    let kept = Path::new(&cache).join("tuning.jsonl");
    let rates = || lines_of(&kept.display().to_string());
    let mut line = rates().pop().expect("a line");
    for rate in ["copy_gb_s", "fma_gflops"] {
        // Rounded: a number of many digits is not read as it was written.
        line[rate] = (line[rate].as_f64().expect("a rate") * 1e3).round().into();
    }
    std::fs::write(&kept, format!("{line}\n")).expect("it is written");
    let tune = ["tune", &model, "--device", "cpu", "--budget", "20s", "--tuning", &tuning, "--json", "-q"];
    let found = weft(&tune).json();
    let functions = found["functions"].as_array().expect("a list");
    assert!(functions.iter().any(|f| f["tried"].as_u64() > Some(4)), "{found}");
    assert!(functions.iter().all(|f| f["refused"] == serde_json::json!([])), "{found}");
    assert!(function_times(&tuning).len() > 1, "{found}");
    assert_eq!(rates(), [line], "the rates are measured once");
    let run = ["compare", &model, "--device", "cpu", "--tuning", &tuning, "--json"];
    assert_eq!(weft(&run).json()["pass"], true);
}
