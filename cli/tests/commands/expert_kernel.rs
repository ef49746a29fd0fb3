//! Follows docs/expert-kernel.md: the page's code is that of the example, and its commands print what the page
//! describes. Also tests host functions from a shared library, as on the page.

use crate::command::{self, Ran, example, examples};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

/// The blocks of the page in a language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut lines = page.lines();
    let mut out = vec![];
    while let Some(line) = lines.next() {
        if line == format!("```{language}") {
            out.push(lines.by_ref().take_while(|l| *l != "```").map(|l| format!("{l}\n")).collect());
        }
    }
    out
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/expert-kernel.md")).expect("the page")
}

#[test]
fn two_ops_of_resnet18_are_swapped() {
    let page = page();
    let source = std::fs::read_to_string(root().join("cli/examples/expert_kernel.rs")).expect("the example");
    for block in blocks(&page, "rust,ignore").iter().chain(&blocks(&page, "wgsl")) {
        assert!(source.contains(block.trim_end()), "the example differs from the page:\n{block}");
    }
    let commands = blocks(&page, "text").swap_remove(0);
    let words = |line: &str| -> Vec<String> {
        line.split_once(" -- ").expect("a command").1.split_whitespace().map(String::from).collect()
    };
    let [compare, bench] = [0, 1].map(|i| words(commands.lines().nth(i).expect("two commands")));
    let with = |list: &[String], more: &[&str]| example("expert_kernel").args(list).args(more).run().succeeded().json();
    let compared = with(&compare, &["--json", "-q"]);
    assert_eq!(compared["pass"], true, "{compared}");
    assert_eq!(compared["result"]["place"], "device and host");

    let measured = with(&bench, &["--json=-", "-q", "--runs", "2", "--warmup", "1"]);
    let calls = measured["host_functions"].as_array().expect("the calls");
    let named: Vec<(&str, &str, bool)> = calls
        .iter()
        .map(|c| {
            assert!(c["us_median"].as_f64().is_some_and(|us| us > 0.0), "{c}");
            let text = |key: &str| c[key].as_str().expect("a text");
            (text("function"), text("name"), c["on_device"] == true)
        })
        .collect();
    assert_eq!(named, [("my_relu", "/relu/Relu", true), ("my_means", "/avgpool/GlobalAveragePool", false)]);
    assert!(measured["without_host_calls"]["device_ratio"].as_f64().is_some_and(|r| r > 0.0), "{measured}");

    let mut compile = bench.clone();
    compile[0] = "compile".into();
    let compiled = with(&compile, &["--json", "-q"]);
    let groups = compiled["groups"].as_array().expect("groups");
    let named: Vec<&str> = groups.iter().filter_map(|g| g["host_function"].as_str()).collect();
    assert_eq!(named, ["my_relu", "my_means"]);
}

/// A graph whose host functions a library has. The first call's operand is needed later, the second's is not.
const GRAPH: &str = "graph @main(%x: f32[4]) -> (a: f32[4], b: f32[4]) {
  %0 = tanh %x : f32[4]
  %1 = call_host @negate %0 {dtypes=[f32], shapes=[[4]], in_place=[0]} : f32[4]
  %2 = call_host @twice %1 {dtypes=[f32], shapes=[[4]]} : f32[4]
  %3 = add %2, %0 : f32[4]
  return %3, %1
}
";

fn values(json: &Value, output: usize) -> Vec<f64> {
    let list = json["outputs"][output]["values"].as_array().expect("values");
    list.iter().map(|v| v.as_f64().expect("a number")).collect()
}

fn weft(args: &[&str]) -> Ran {
    command::weft(args).run()
}

/// The library that cargo built, or the one that a C compiler makes of the page.
fn holds(library: &Path, graph: &str, expected: &dyn Fn(f64) -> Vec<f64>) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host-library");
    std::fs::create_dir_all(&folder).expect("a folder");
    let plain = folder.join("tanh.weft");
    std::fs::write(&plain, "graph @main(%x: f32[4]) -> (y: f32[4]) {\n  %0 = tanh %x\n  return %0\n}\n")
        .expect("writes");
    let file = folder.join(format!("{}.weft", library.file_stem().expect("a name").to_string_lossy()));
    std::fs::write(&file, graph).expect("writes");
    let [plain, file] = [&plain, &file].map(|p| p.to_str().expect("UTF-8").to_string());
    let library = library.to_str().expect("UTF-8");
    let tanh = values(&weft(&["run", &plain, "--device", "interpreter", "--json", "-q"]).succeeded().json(), 0);
    for device in ["0", "cpu", "interpreter"] {
        let run = weft(&["run", &file, "--device", device, "--host-functions", library, "--json", "-q"]);
        let got = run.succeeded().json();
        for (i, t) in tanh.iter().enumerate() {
            for (output, want) in expected(*t).into_iter().enumerate() {
                assert!((values(&got, output)[i] - want).abs() < 1e-5, "{device}: {got}");
            }
        }
    }
}

#[test]
fn a_shared_library_has_host_functions() {
    let name = format!("{}host_library{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let library = examples().join(name);
    holds(&library, GRAPH, &|t| vec![-2.0 * t + t, -t]);

    let library = library.to_str().expect("UTF-8");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host-library");
    let fails = folder.join("fails.weft");
    std::fs::write(&fails, GRAPH.replace("@twice", "@fail")).expect("writes");
    let fails = fails.to_str().expect("UTF-8");
    weft(&["run", fails, "--host-functions", library]).refused(3, "fails, as asked");
    for device in ["0", "cpu", "interpreter"] {
        weft(&["run", fails, "--device", device]).refused(3, "is not registered");
    }
    weft(&["run", fails, "--host-functions", "no/such/library.so"]).ended(2);
}

/// The library that the C compiler makes of a source; `None` without a compiler.
fn c_library(name: &str, source: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-library");
    std::fs::create_dir_all(&folder).expect("a folder");
    let library = folder.join(format!("{name}{}", std::env::consts::DLL_SUFFIX));
    let file = folder.join(format!("{name}.c"));
    std::fs::write(&file, source).expect("writes");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-Wall", "-Werror", "-I"]).arg(root().join("docs")).arg("-o").arg(&library).arg(&file);
    let Ok(built) = cc.output() else {
        eprintln!("left out: there is no C compiler `cc` here");
        return None;
    };
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(library)
}

#[test]
fn the_library_of_the_page_is_c() {
    let Some(library) = c_library("twice", &blocks(&page(), "c")[0]) else { return };
    let graph = "graph @main(%x: f32[4]) -> (y: f32[4]) {\n  %0 = tanh %x\n  \
                 %1 = call_host @twice %0 {dtypes=[f32], shapes=[[4]]} : f32[4]\n  %2 = sin %1\n  \
                 %3 = call_host @twice %2 {dtypes=[f32], shapes=[[4]], in_place=[0]} : f32[4]\n  return %3\n}\n";
    // What knows nothing of places works in place: operand and result are one tensor.
    holds(&library, graph, &|t| vec![2.0 * (2.0 * t).sin()]);
}

/// The prepared function of the page twice, with different constants.
const SCALED: &str = "const @two : f32[1] = [2.0]
const @three : f32[1] = [3.0]
graph @main(%x: f32[4]) -> (y: f32[4]) {
  %two = const @two
  %three = const @three
  %0 = tanh %x : f32[4]
  %1 = call_host @scale %0, %two {dtypes=[f32], shapes=[[4]]} : f32[4]
  %2 = sin %1 : f32[4]
  %3 = call_host @scale %2, %three {dtypes=[f32], shapes=[[4]], in_place=[0]} : f32[4]
  return %3
}
";

/// Each call says on stderr what it does.
fn counting(source: &str) -> String {
    let said = |line: &str, text: &str| {
        assert!(source.contains(line), "{line}");
        (line.to_string(), format!("fprintf(stderr, \"scale: {text}\\n\"); {line}"))
    };
    let rows = [said("*state = s;", "prepared"), said("const Scale *s = state;", "ran")];
    let counted = rows.iter().fold(source.to_string(), |s, (from, to)| s.replace(from, to));
    let freed = "static void freed(void *s) { fprintf(stderr, \"scale: freed\\n\"); free(s); }\n\nstatic const Weft";
    counted.replace("static const Weft", freed).replace("run, free}", "run, freed}")
}

#[test]
fn the_prepared_function_of_the_page_is_prepared_once_for_each_call() {
    let Some(library) = c_library("scale", &counting(&blocks(&page(), "c")[1])) else { return };
    holds(&library, SCALED, &|t| vec![3.0 * (2.0 * t).sin()]);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host-library/scale.weft");
    let [file, library] = [&file, &library].map(|p| p.to_str().expect("UTF-8").to_string());
    for device in ["0", "cpu"] {
        let counts = |runs: &str| {
            let args = ["bench", &file, "--device", device, "--host-functions", &library, "--runs", runs];
            let said = weft(&[&args[..], &["--warmup", "1", "-q"]].concat()).succeeded().stderr;
            ["prepared", "freed", "ran"].map(|what| said.lines().filter(|l| *l == format!("scale: {what}")).count())
        };
        let ([once, freed, few], [again, freed_again, many]) = (counts("2"), counts("40"));
        assert!(once > 0 && once % 2 == 0 && once == again, "{device}: prepared {once} and {again} times");
        assert_eq!((freed, freed_again), (once, again), "{device}");
        assert!(many >= few + 2 * 38, "{device}: {few} and {many} runs");
    }
    // A factor that the network computes is none.
    let wrong = SCALED.replace("call_host @scale %2, %three", "call_host @scale %2, %one").replace(
        "  %2 = sin %1",
        "  %one = slice %1 {starts=[0], ends=[1], axes=[0], steps=[1]} : f32[1]\n  %2 = sin %1",
    );
    let at = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host-library/no-factor.weft");
    std::fs::write(&at, wrong).expect("writes");
    let wrong = weft(&["run", at.to_str().expect("UTF-8"), "--device", "cpu", "--host-functions", &library]);
    wrong.refused(3, "takes a tensor and a constant factor");
}
