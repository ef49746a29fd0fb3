//! Paths of a person through the viewer's window, driven by the command with the real model, device and tuning database
//! (`weft view --steps`). Built with the feature `view`.
#![cfg(feature = "view")]

use crate::command::{Ran, line};
use compiler::compile::{constant_operands, operand_buffers};
use compiler::name::Name;
use compiler::schedule::Workload;
use compiler::text::parse_module;
use compiler::tir::TensorFunction;
use compiler::trace::CompileTrace;
use std::path::{Path, PathBuf};
use weft::{TuningDatabase, TuningLine};

/// Runs the command in a folder, with a cache of its own.
fn weft(place: &Path, words: &str) -> Ran {
    line(words).at(place).env("WEFT_CACHE", place.join("cache")).run()
}

fn folder(name: &str, model: &str, steps: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder for the test");
    std::fs::write(path.join("net.weft"), model).expect("the model is written");
    std::fs::write(path.join("path.steps"), steps).expect("the steps are written");
    path
}

/// What the window showed along the path; `None` where there is no device.
fn walk(place: &Path, words: &str) -> Option<String> {
    let ran = weft(place, words);
    if ran.code == Some(5) {
        eprintln!("!!! the path is not taken: there is no device");
        assert!(std::env::var_os("CI").is_none(), "{}", ran.said());
        return None;
    }
    let told = ran.succeeded().stdout;
    eprintln!("{told}");
    Some(told)
}

/// `second` reaches hundreds of thousands; `third` brings that back.
const OVERFLOW: &str = r#"
const @up : f32[4,4] = [100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 1000.0, 110.0, 120.0, 300.0, 100.0, 200.0, 400.0]
const @down : f32[4,4] = [0.001, 0.002, 0.003, -0.004, 0.005, 0.006, 0.007, -0.008, 0.009, 0.001, -0.001, 0.002, 0.003, 0.001, -0.002, 0.004]
graph @main(%x: f32[2,4]) -> (y: f32[2,4]) {
  %up = const @up
  %down = const @down
  %0 = matmul %x, %up : f32[2,4] !from("first")
  %1 = matmul %0, %up : f32[2,4] !from("second")
  %2 = matmul %1, %down : f32[2,4] !from("third")
  %3 = matmul %2, %down : f32[2,4] !from("fourth")
  %4 = matmul %3, %down : f32[2,4] !from("last")
  return %4
}
"#;

/// "My fp16 network is wrong": from the model to the node that is to blame, a list of what to keep in f32, and a
/// comparison that says right.
const WRONG: &str = "
click Why?
click Why is this fp16 result wrong?
click Compile in fp16 and compare now
see Result y: relative error inf
see In the run, second is the first whose result is not finite.
see Behind second nothing is finite
click Find the smallest list
see Result y:
see within the tolerance.
see Kept in f32:
click Write the keep list
see wrote net.keep.txt
";

#[test]
fn from_a_wrong_fp16_result_to_the_node_to_keep() {
    let place = folder("path-wrong", OVERFLOW, WRONG);
    let Some(told) = walk(&place, "view net.weft --device 0 --steps path.steps") else { return };
    assert!(told.contains("within the tolerance."), "{told}");
    let compare = "compare net.weft --device 0 --amp fp16 --against fp32";
    // It was wrong.
    weft(&place, compare).ended(1);
    weft(&place, &format!("{compare} --keep-f32 @net.keep.txt")).succeeded();
    let list = std::fs::read_to_string(place.join("net.keep.txt")).expect("the list");
    let kept: Vec<&str> = list.lines().filter(|l| !l.starts_with('#')).collect();
    assert_eq!(kept, ["third"], "the smallest list: {list}");
}

/// Without a search: what the page proposes makes the result right as well.
const PROPOSED: &str = "
click Why?
click Why is this fp16 result wrong?
click Compile in fp16 and compare now
see Keep it first, and what reads it: third.
click Compile with these in f32
see within the tolerance.
see Kept in f32: second, third
";

#[test]
fn what_the_page_proposes_to_keep_makes_the_result_right() {
    let place = folder("path-proposed", OVERFLOW, PROPOSED);
    walk(&place, "view net.weft --device 0 --steps path.steps");
}

/// Two convolutions that stay two kernels.
const CONVOLUTIONS: &str = r#"
const @w : f32[64,32,3,3] = random(1)
const @v : f32[32,64,1,1] = random(2)
graph @main(%x: f32[1,32,28,28]) -> (y: f32[1,32,28,28]) {
  %w = const @w
  %v = const @v
  %0 = conv %x, %w {pads=[1,1,1,1]} !from("wide")
  %1 = relu %0 !from("Relu_1")
  %2 = conv %1, %v !from("narrow")
  return %2
}
"#;

/// "This layer is slow": from the network to a better choice, measured and kept.
const SLOW: &str = "
click Why?
click Why is this kernel slow?
click Run it now
see % of the run
choose Kernel = narrow
see Made with
click Schedule
choose rows = VALUE
see Legal
see times as long
click Keep
see Kept in
click Compile again
click Compile
";

/// The `choose` line of a point in the schedule of the kernel `narrow`, as the next compilation makes it.
fn chosen(place: &Path, point: &str) -> String {
    let v = weft(place, "compile net.weft --device 0 --json -q").succeeded().json();
    let kernels = v["kernels"].as_array().expect("kernels");
    let narrow = kernels.iter().find(|k| k["name"] == "narrow").expect("the kernel");
    let lines = narrow["schedule"].as_array().expect("a schedule").iter().filter_map(|l| l.as_str());
    let of_point = |l: &&str| l.starts_with("choose ") && l.contains(&format!("point={point},"));
    lines.into_iter().find(of_point).unwrap_or_else(|| panic!("no choice of {point}: {v}")).to_string()
}

/// The function of the kernel `narrow` and the device, as the tuning database names them, from the trace of a
/// compilation.
fn workload(place: &Path) -> Workload {
    weft(place, "compile net.weft --device 0 -q -o net.trace").succeeded();
    let t = CompileTrace::from_bytes(&std::fs::read(place.join("net.trace")).expect("the trace")).expect("a trace");
    let at = t.stages.iter().position(|s| s.label == "lowered").expect("the functions before they are scheduled");
    let module = parse_module(&t.stage_texts().expect("texts")[at]).expect("a module");
    let kernel = t.kernels.iter().find(|k| k.name == "narrow").expect("the kernel");
    let function = &module.tensor_functions[&Name::new(&kernel.function)];
    let function = TensorFunction { pending: vec![], ..function.clone() };
    let constants = operand_buffers(&function, &constant_operands(&module, function.name));
    Workload::of(&function, &constants, &serde_json::from_str(&t.profile).expect("a profile"))
}

/// The value of a `choose` line.
fn value(line: &str) -> &str {
    line.split("value=").nth(1).and_then(|v| v.split(',').next()).expect("a value")
}

/// The database says that the slowest value was the best one, as it might for another driver: the person finds the
/// layer, takes another value, sees that it is faster (here several times), and keeps it.
#[test]
fn from_a_slow_layer_to_a_better_choice_that_is_kept() {
    let place = folder("path-slow", CONVOLUTIONS, "");
    if weft(&place, "run net.weft --device 0 -q").code == Some(5) {
        eprintln!("!!! the path is not taken: there is no device");
        return;
    }
    let Workload { device, function, constants } = workload(&place);
    let usual = chosen(&place, "rows");
    let unit = usual.split("unit=").nth(1).and_then(|u| u.split(',').next()).expect("a unit");
    assert_ne!(value(&usual), "1", "the rules take another value");
    let planted = TuningLine {
        device,
        function: function.clone(),
        constants,
        name: "narrow".into(),
        family: String::new(),
        extents: vec![],
        schedule: vec![],
        kept_at: 0,
        choices: vec![format!("choose {{unit={unit}, point=rows, value=1}}")],
        withdrawn: false,
        ratio: 0.9,
        rounds: [15, 15],
        us: [10.0, 9.0],
        estimated_us: [10.0, 9.0],
        seed: 0,
        by: "tune".into(),
        weft: "0.1.0".into(),
    };
    let database = place.join("cache/tuning.jsonl");
    TuningDatabase::append(&database, &planted).expect("writes");
    assert_eq!(value(&chosen(&place, "rows")), "1");
    std::fs::write(place.join("path.steps"), SLOW.replace("VALUE", value(&usual))).expect("writes");
    let Some(told) = walk(&place, "view net.weft --device 0 --steps path.steps") else { return };
    assert!(told.contains("Kept in"), "{told}");
    let lines = TuningDatabase::read(&database).expect("the database").lines;
    let kept = lines.last().expect("a line");
    assert_eq!((kept.by.as_str(), &kept.function), ("hand", &function));
    assert!(kept.ratio < 0.9, "it counts from what was tuned before: {}", kept.ratio);
    assert_eq!(value(&chosen(&place, "rows")), value(&usual), "the next compilation uses it");
}
