//! Paths of a person through the viewer's window, driven by the command with the real model, device and tuning database
//! (`weft view --steps`). Built with the feature `view`.
#![cfg(feature = "view")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs the command in a folder, with a cache of its own.
fn weft(place: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weft"))
        .env("WEFT_DEVICE", "0")
        .env("WEFT_CACHE", place.join("cache"))
        .current_dir(place)
        .args(line.split(' '))
        .output()
        .expect("weft starts")
}

fn said(o: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr))
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
fn walk(place: &Path, line: &str) -> Option<String> {
    let o = weft(place, line);
    if o.status.code() == Some(5) {
        eprintln!("!!! the path is not taken: there is no device");
        assert!(std::env::var_os("CI").is_none(), "{}", said(&o));
        return None;
    }
    assert_eq!(o.status.code(), Some(0), "{}", said(&o));
    let told = String::from_utf8_lossy(&o.stdout).into_owned();
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
    assert_eq!(weft(&place, compare).status.code(), Some(1), "it was wrong");
    let o = weft(&place, &format!("{compare} --keep-f32 @net.keep.txt"));
    assert_eq!(o.status.code(), Some(0), "{}", said(&o));
    let list = std::fs::read_to_string(place.join("net.keep.txt")).expect("the list");
    let kept: Vec<&str> = list.lines().filter(|l| !l.starts_with('#')).collect();
    assert!(kept.len() == 1 && ["second", "third"].contains(&kept[0]), "the smallest list: {list}");
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
see of the time of all dispatches
choose Kernel = narrow
see rows 1 of
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
    let o = weft(place, "compile net.weft --device 0 --json -q");
    let v: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(&o)));
    let kernels = v["kernels"].as_array().expect("kernels");
    let narrow = kernels.iter().find(|k| k["name"] == "narrow").expect("the kernel");
    let lines = narrow["schedule"].as_array().expect("a schedule").iter().filter_map(|l| l.as_str());
    let of_point = |l: &&str| l.starts_with("choose ") && l.contains(&format!("point={point},"));
    lines.into_iter().find(of_point).unwrap_or_else(|| panic!("no choice of {point}: {v}")).to_string()
}

/// The database says that the slowest value was the best one, as a hasty search on another machine would: the person
/// finds the layer, takes another value, sees that it is faster, and keeps it.
#[test]
fn from_a_slow_layer_to_a_better_choice_that_is_kept() {
    let place = folder("path-slow", CONVOLUTIONS, "");
    let o = weft(&place, "tune net.weft --device 0 --kernel narrow --budget 1s -q");
    if o.status.code() == Some(5) {
        eprintln!("!!! the path is not taken: there is no device");
        return;
    }
    let database = place.join("cache/tuning.jsonl");
    let text = std::fs::read_to_string(&database).unwrap_or_else(|e| panic!("{e}: {}", said(&o)));
    let lines = text.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).expect("a line"));
    let mut line = lines.into_iter().find(|l| l["kind"] == "choices" && l["name"].as_str().is_some()).expect("a line");
    std::fs::remove_file(&database).expect("removes");
    let usual = chosen(&place, "rows");
    let slow =
        usual.replace(usual.split("value=").nth(1).and_then(|v| v.split([',', '}']).next()).expect("a value"), "1");
    assert_ne!(usual, slow, "the rules take another value");
    let unit = usual.split("unit=").nth(1).and_then(|u| u.split(',').next()).expect("a unit");
    line["choices"] = serde_json::json!([format!("choose {{unit={unit}, point=rows, value=1}}")]);
    (line["ratio"], line["withdrawn"]) = (0.9.into(), false.into());
    std::fs::write(&database, format!("{line}\n")).expect("writes");
    assert!(chosen(&place, "rows").contains("value=1,"), "{}", chosen(&place, "rows"));
    let value = usual.split("value=").nth(1).and_then(|v| v.split(',').next()).expect("a value");
    std::fs::write(place.join("path.steps"), SLOW.replace("VALUE", value)).expect("writes");
    let Some(told) = walk(&place, "view net.weft --device 0 --steps path.steps") else { return };
    assert!(told.contains("Kept in"), "{told}");
    let text = std::fs::read_to_string(&database).expect("the database");
    let kept: serde_json::Value = serde_json::from_str(text.lines().last().expect("a line")).expect("a line");
    assert_eq!((&kept["by"], &kept["function"]), (&"view".into(), &line["function"]));
    assert!(kept["ratio"].as_f64() < Some(0.9), "it counts from what was tuned before: {kept}");
    assert!(chosen(&place, "rows").contains(&format!("value={value},")), "the next compilation uses it");
}
