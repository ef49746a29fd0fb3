//! Whole networks with their convolutions and products in oneDNN and the rest on the device, in each version of the
//! library and in each style: they are right, nearly all multiply-accumulates are in the library, as its own log says,
//! and primitives and the library's layouts of weights are made once, however often a network runs.

use crate::command::{Ran, command};
use crate::external::log::Log;
use crate::external::{json, libraries, run_logged};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The least part of the multiply-accumulates that the library runs.
const LEAST: f64 = 0.95;
/// How often a network runs.
const RUNS: usize = 100;

fn logged(args: &[&str]) -> Ran {
    run_logged(command(), args, "2").succeeded()
}

/// The sizes of each constant that a convolution or product has as weights, as the log writes them, and how many
/// convolutions and products there are.
fn weights(graphs: &Path) -> (Vec<String>, usize) {
    let (mut list, mut anchors) = (vec![], 0);
    for file in std::fs::read_dir(graphs).expect("the graphs") {
        let graph = std::fs::read_to_string(file.expect("a graph").path()).expect("a graph");
        let graph: Value = serde_json::from_str(&graph).expect("JSON");
        let shape_of = |name: &Value| {
            let constant = graph["constants"].as_array()?.iter().find(|c| c["name"] == *name)?;
            constant["shape"].as_array()?.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>()
        };
        for node in graph["nodes"].as_array().expect("nodes") {
            let product = node["op"] == "matmul";
            if !product && node["op"] != "convolution" {
                continue;
            }
            anchors += 1;
            let Some(mut shape) = shape_of(&node["inputs"][1]) else { continue };
            let groups = node["groups"].as_i64().unwrap_or(1);
            if groups > 1 {
                shape[0] /= groups;
                shape.insert(0, groups);
            }
            if node["transposed_weights"] == true {
                let rank = shape.len();
                shape.swap(rank - 1, rank - 2);
            }
            list.push(shape.iter().map(i64::to_string).collect::<Vec<_>>().join("x"));
        }
    }
    (list, anchors)
}

/// The network is right, and nearly all of its multiply-accumulates are in the library. Says so in one line.
fn is_in_the_library(model: &str, external: &str) {
    let found = json(logged(&["compare", model, "--external", external, "--device", "0", "--json", "-q"]));
    assert_eq!(found["pass"], true, "{model} {external}: {found}");
    let outputs = found["outputs"].as_array().expect("outputs");
    let off = outputs.iter().filter_map(|o| o["rel_l2"].as_f64()).fold(0.0, f64::max);
    let once = logged(&["run", model, "--external", external, "--device", "0", "-q"]).stdout;
    let log = Log::of(&once);
    let all = json(logged(&["inspect", model, "--json"]))["macs"].as_u64().expect("fixed sizes");
    let part = log.macs() as f64 / all as f64;
    assert!((LEAST..=1.0).contains(&part), "{model} {external}: {} of {all}", log.macs());
    let (percent, made) = (100.0 * part, log.made());
    println!("{model} {external}: {percent:.2} % of {all} multiply-accumulates, {made} primitives, {off:.1e} off");
}

/// However often the network runs, no more primitives are made, and no more weights copied, than for one run.
fn is_prepared_once(model: &str, external: &str, device: &str) {
    let graphs = tempfile::tempdir().expect("a folder");
    let external = format!("{external}:graphs={}", graphs.path().display());
    let bench = |runs: usize| {
        let runs = runs.to_string();
        let args =
            ["bench", model, "--external", &external, "--device", device, "--runs", &runs, "--warmup", "0", "-q"];
        logged(&args).stdout
    };
    let (few, many) = (bench(1), bench(RUNS));
    let (few, many) = (Log::of(&few), Log::of(&many));
    let (weights, anchors) = weights(graphs.path());
    let more = many.anchors() - few.anchors();
    assert!(more >= (RUNS / 2) * anchors, "{model}: {anchors} convolutions and products ran {more} times more");
    assert_eq!(few.made(), many.made(), "{model} {external}: primitives");
    assert!(weights.iter().any(|sizes| few.copies(sizes) > 0), "{model} {external}: no layout of weights was chosen");
    for sizes in weights {
        let [few, many] = [&few, &many].map(|log| log.copies(&sizes));
        assert_eq!(few, many, "{model} {external}: copies of weights of {sizes}");
    }
}

/// Each version of the library in each style.
fn externals() -> impl Iterator<Item = String> {
    libraries::externals().into_iter().filter(|e| !e.contains("threads="))
}

#[test]
fn small_networks_run_in_the_library() {
    for external in externals() {
        // A compiler runs for each region of each of them.
        let built = external.contains("style=c");
        let models: &[&str] =
            if built { &["resnet18", "mobilenet_v2"] } else { &["resnet18", "mobilenet_v2", "vit_b_16", "ssdlite"] };
        models.iter().for_each(|model| is_in_the_library(&format!("{model}:smallest"), &external));
    }
}

#[test]
fn a_small_network_is_prepared_once() {
    for (i, external) in externals().enumerate() {
        let model = if external.contains("style=c") { "resnet18:smallest" } else { "vit_b_16:smallest" };
        is_prepared_once(model, &external, if i == 0 { "0" } else { "cpu" });
    }
}

/// `WEFT_NETWORKS=vit_b_16,ssdlite` names the networks.
#[test]
#[ignore = "minutes"]
fn networks_run_in_the_library() {
    let named = std::env::var("WEFT_NETWORKS");
    let models = named.as_deref().unwrap_or("resnet18,resnet50,mobilenet_v2,vit_b_16,ssdlite");
    for external in externals() {
        for model in models.split(',') {
            is_in_the_library(model, &external);
            // Beside lavapipe each run takes seconds.
            is_prepared_once(model, &external, "cpu");
        }
    }
}

/// The target `external` with a library before its own, which makes results one percent too large.
fn made_wrong(external: &str, folder: &Path) -> String {
    let (options, library) = external.split_once(":library=").unwrap_or((external, "libdnnl.so.2"));
    let wrong = folder.join("wrong.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-O2", "-fPIC", "-shared", &format!("-DLIBRARY=\"{library}\"")]);
    compiler.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/commands/external/wrong_library.c"));
    match Path::new(library).parent().filter(|place| place.is_absolute()) {
        Some(place) => compiler.arg(library).arg(format!("-Wl,-rpath,{}", place.display())),
        None => compiler.arg(format!("-l:{library}")),
    };
    let built = compiler.args(["-ldl", "-o"]).arg(&wrong).output().expect("a C compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    format!("{options}:library={}", wrong.display())
}

/// The results of a network whose library gives results that are one percent too large are not those of the
/// interpreter.
#[test]
fn a_comparison_notices_a_wrong_library() {
    for external in libraries::externals() {
        let folder = tempfile::tempdir().expect("a folder");
        let code = |external: &str| {
            let args = ["compare", "resnet18:smallest", "--external", external, "--device", "0", "-q"];
            run_logged(command(), &args, "0").code
        };
        let wrong = made_wrong(&external, folder.path());
        assert_eq!([code(&external), code(&wrong)], [Some(0), Some(1)], "{external}");
    }
}
