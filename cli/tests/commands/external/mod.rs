//! External targets on the command line: the interpreter, a target of another crate, and oneDNN where it is installed.

mod edges;
#[path = "../../../../onednn/tests/ops/libraries.rs"]
pub mod libraries;
mod log;
mod onednn_networks;
mod onednn_options;

use crate::command::{Ran, Weft, command, example};
use serde_json::Value;
use std::path::Path;

fn own_target() -> Weft {
    example("own_target")
}

fn run(program: Weft, args: &[&str]) -> Ran {
    run_logged(program, args, "1")
}

/// Runs the command; oneDNN prints a log of this level.
fn run_logged(program: Weft, args: &[&str], level: &str) -> Ran {
    program.args(args).env("DNNL_VERBOSE", level).run()
}

/// A model's file.
fn model(name: &str, source: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("external");
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(name);
    std::fs::write(&path, source).expect("the model is written");
    path.to_str().expect("UTF-8").to_string()
}

/// The JSON behind what the library prints.
fn json(ran: Ran) -> Value {
    let all = ran.succeeded().stdout;
    serde_json::from_str(&all[all.find('{').expect("JSON")..]).expect("JSON")
}

const CHAIN: &str = "graph @main(%x: f32[n,3]) -> (y: f32[n,3]) {
  %0 = relu %x : f32[n,3]
  %1 = exp %0 : f32[n,3]
  %2 = add %1, %0 : f32[n,3]
  %3 = neg %2 : f32[n,3]
  return %3
}
";

#[test]
fn regions_run_between_kernels_of_fixed_and_of_open_sizes() {
    let file = model("chain.weft", CHAIN);
    for device in ["0", "cpu"] {
        for size in ["n=5", "n=1..8"] {
            let args = ["compare", &file, "--external", "interpreter:ops=relu+add", "--device", device, "--dim", size];
            let out = run(command(), &[&args[..], &["--json", "-q"]].concat());
            assert_eq!(json(out)["pass"], true, "{device} {size}");
        }
    }
    let explained = run(command(), &["explain", &file, "--external", "interpreter:ops=relu+add", "--dim", "n=5"]);
    let said = explained.succeeded().stdout;
    assert!(said.contains("stays: interpreter: `exp` is not among its `ops`"), "{said}");
    assert!(said.contains("the external target interpreter runs `interpreter_0`: relu"), "{said}");
}

/// The bytes of a region's group are those of the tensors that cross its border, each once.
#[test]
fn a_region_is_a_group_with_its_nodes_and_the_bytes_of_its_border() {
    let file = model("border.weft", CHAIN);
    let args = ["compile", &file, "--external", "interpreter:ops=exp+add", "--dim", "n=5", "--target", "lavapipe"];
    let compiled = json(run(command(), &[&args[..], &["--json", "-q"]].concat()));
    let groups = compiled["groups"].as_array().expect("groups");
    let region = groups.iter().find(|g| g["host_function"] == "interpreter_0").expect("the region");
    // exp and add read the result of relu, and neg reads theirs.
    assert_eq!(region["ops"], serde_json::json!(["exp", "add"]), "{region}");
    assert_eq!(region["bytes"], 2 * 5 * 3 * 4, "{region}");
}

#[test]
fn wrong_targets_and_options_are_refused() {
    let file = model("refused.weft", CHAIN);
    for (external, code, words) in [
        ("dnll", 2, "no external target `dnll`"),
        ("dnnl:min_mac=1", 2, "no option `min_mac`"),
        ("dnnl:min_macs=few", 2, "is no number"),
        ("dnnl:style=fortran", 2, "style=fortran: the styles are `json` and `c`"),
        ("dnnl:threads=0", 2, "threads=0: a whole number from 1 to 1024"),
        ("dnnl:threads=x", 2, "threads=x: a whole number from 1 to 1024"),
        ("dnnl:library=/there/is/none.so", 5, "libdnnl2"),
    ] {
        run(command(), &["compile", &file, "--dim", "n=2", "--external", external]).refused(code, words);
    }
}

const ACME: &str = "graph @main(%x: f32[4]) -> (y: f32[4]) {
  %0 = exp %x : f32[4]
  %1 = acme_op %0 : f32[4]
  %2 = acme_op %1 : f32[4]
  %3 = neg %2 : f32[4]
  return %3
}
";

#[test]
fn an_op_without_a_kernel_runs_in_the_target_that_has_it() {
    let file = model("acme.weft", ACME);
    let args = ["run", &file, "--device", "0", "--json", "-q"];
    let without = run(own_target(), &args);
    without.refused(3, "acme_op");
    let values = |external: &str| -> Vec<f64> {
        let out = json(run(own_target(), &[&args[..], &["--external", external]].concat()));
        out["outputs"][0]["values"].as_array().expect("values").iter().map(|v| v.as_f64().expect("a number")).collect()
    };
    let (once, more) = (values("acme"), values("acme:scale=1.01"));
    // -(4 exp(x) + 3)
    assert!(once.iter().all(|v| *v < -3.0), "{once:?}");
    assert!(once.iter().zip(&more).all(|(a, b)| (b / a - 1.01).abs() < 1e-5), "{once:?} {more:?}");
    let compiled = json(run(own_target(), &["compile", &file, "--external", "acme", "--target", "lavapipe", "--json"]));
    let kinds: Vec<&str> =
        compiled["groups"].as_array().expect("groups").iter().filter_map(|g| g["host_function"].as_str()).collect();
    assert_eq!(kinds, ["acme_0"], "{compiled}");
}

#[test]
fn a_comparison_notices_a_target_that_is_wrong() {
    let file = model("scaled.weft", CHAIN);
    let compare = |external: &str| {
        run(own_target(), &["compare", &file, "--dim", "n=5", "--external", external, "--device", "0", "-q"]).code
    };
    assert_eq!([compare("acme"), compare("acme:scale=1.01")], [Some(0), Some(1)]);
}

/// `weft tune` times the regions in the target and in Weft's kernels, and the times decide.
#[test]
fn measured_times_of_a_region_decide() {
    let file = model("measured.weft", CHAIN);
    let database = Path::new(env!("CARGO_TARGET_TMPDIR")).join("external/measured.jsonl");
    let _ = std::fs::remove_file(&database);
    let tuning = database.to_str().expect("UTF-8");
    let common = ["--dim", "n=5", "--external", "interpreter:ops=exp+add", "--device", "0", "--tuning", tuning];
    let tuned = json(run(command(), &[&["tune", &file, "--budget", "2s", "--json", "-q"], &common[..]].concat()));
    let regions = tuned["regions"].as_array().expect("regions");
    assert_eq!((regions.len(), &regions[0]["name"]), (1, &"interpreter_0".into()), "{tuned}");
    let text = std::fs::read_to_string(&database).expect("the database");
    let decided = |target_us: f64, weft_us: f64| {
        let line = |l: &str| {
            let mut line: Value = serde_json::from_str(l).expect("JSON");
            if line["kind"] == "region" {
                (line["target_us"], line["weft_us"]) = (target_us.into(), weft_us.into());
            }
            format!("{line}\n")
        };
        std::fs::write(&database, text.lines().map(line).collect::<String>()).expect("writes");
        let compiled = json(run(command(), &[&["compile", &file, "--json", "-q"], &common[..]].concat()));
        let remarks: Vec<&str> =
            compiled["remarks"].as_array().expect("remarks").iter().filter_map(|r| r["message"].as_str()).collect();
        remarks.iter().find(|m| m.contains("measured")).map(|m| m.to_string()).unwrap_or_else(|| panic!("{remarks:#?}"))
    };
    let runs = decided(10.0, 90000.0);
    assert!(runs.starts_with("interpreter_0 runs on interpreter: 10.0 us measured and "), "{runs}");
    assert!(runs.ends_with("for copies of 120 bytes, Weft's kernels 90000.0 us measured"), "{runs}");
    let stays = decided(90.0, 10.0);
    assert!(stays.starts_with("interpreter_0 stays with Weft, not interpreter: 90.0 us measured and "), "{stays}");
}
