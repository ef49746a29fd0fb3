//! Mixed precision with values that exceed f16: `compare` finds the nodes and writes a keep list, with which `run` and
//! `compare` succeed; and `--amp auto` finds the nodes itself.

use crate::command::{self, Ran};
use std::path::PathBuf;

/// A branch whose values reach 1e7 and come back to 10 before they meet the other one: no constant is beyond f16, only
/// what is computed of them.
const LARGE_BRANCH: &str = r#"
const @w : f32[4,4,1,1] = random(1)
const @v : f32[4,4,1,1] = random(2)
const @up : f32[] = [1000.0]
const @down : f32[] = [0.001]
graph @main(%x: f32[1,4,6,5]) -> (y: f32[1,4,6,5]) {
  %w = const @w
  %v = const @v
  %up = const @up
  %down = const @down
  %0 = conv %x, %w !from("Conv_0")
  %1 = mul %0, %up !from("Mul_1")
  %2 = mul %1, %1 !from("Mul*2")
  %3 = mul %2, %down !from("Mul_3")
  %4 = relu %3 !from("Relu_4")
  %5 = mul %4, %down !from("Mul_5")
  %6 = add %5, %0 !from("Add_6")
  %7 = conv %6, %v !from("Conv_7")
  return %7
}
"#;

struct Folder(PathBuf);
impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weft-keep-lists-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the command, which must end with `code`; what it printed on stdout and stderr.
fn weft(args: &[&str], code: i32) -> (String, String) {
    let Ran { stdout, stderr, .. } = command::weft(args).run().ended(code);
    (stdout, stderr)
}

#[test]
fn nodes_beyond_f16_are_found_written_and_kept() {
    let folder = Folder::new("written");
    let (model, list) = (folder.path("large.weft"), folder.path("keep.list"));
    std::fs::write(&model, LARGE_BRANCH).expect("writes");
    let compare = ["compare", &model, "--device", "interpreter", "--amp", "fp16", "--against", "fp32"];

    let (_, said) = weft(&[&compare[..], &["--write-keep", &list]].concat(), 1);
    assert!(said.contains("error[1]: results differ"), "{said}");
    let written = std::fs::read_to_string(&list).expect("the list");
    let names: Vec<&str> = written.lines().filter(|l| !l.starts_with('#')).collect();
    // What reads a result in f32 follows it. A character that means something in patterns is escaped.
    assert_eq!(names, [r"Mul\*2"], "{written}");

    let keep = format!("@{list}");
    weft(&[&compare[..], &["--keep-f32", &keep]].concat(), 0);
    let (said, _) =
        weft(&["compile", &model, "--target", "lavapipe", "--amp", "fp16", "--keep-f32", &keep, "--json"], 0);
    assert!(said.contains(r"Mul*2 stays in f32: `Mul\\*2` is on the keep list"), "{said}");
    assert!(said.contains("Conv_7 is in f16"), "{said}");
}

/// A sigmoid so steep that the rounding of what goes into it shows, though no node fails alone; another branch bears
/// it.
const STEEP: &str = r#"
const @w : f32[8,8,3,3] = random(1)
const @v : f32[8,8,3,3] = random(2)
const @u : f32[8,8,1,1] = random(3)
const @k : f32[] = [12.0]
graph @main(%x: f32[1,8,16,16]) -> (p: f32[1,8,12,12], q: f32[1,8,16,16]) {
  %w = const @w
  %v = const @v
  %u = const @u
  %k = const @k
  %0 = conv %x, %w !from("Conv_0")
  %1 = relu %0 !from("Relu_1")
  %2 = conv %1, %v !from("Conv_2")
  %3 = mul %2, %k !from("Mul_3")
  %4 = sigmoid %3 !from("Sigmoid_4")
  %5 = conv %x, %u !from("Conv_5")
  %6 = relu %5 !from("Relu_6")
  return %4, %6
}
"#;

fn patterns(list: &str) -> Vec<String> {
    let written = std::fs::read_to_string(list).expect("the list");
    written.lines().filter(|l| !l.starts_with('#')).map(String::from).collect()
}

/// The list that is written passes, and no shorter one of it does.
#[test]
fn a_written_list_passes_and_is_as_short_as_can_be() {
    let folder = Folder::new("short");
    let (model, list, part) = (folder.path("steep.weft"), folder.path("keep.list"), folder.path("part.list"));
    std::fs::write(&model, STEEP).expect("writes");
    let compare = ["compare", &model, "--device", "interpreter", "--amp", "fp16", "--against", "fp32"];
    let (said, _) = weft(&[&compare[..], &["--write-keep", &list, "--json"]].concat(), 1);
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(json["keep"]["passes"], true, "{said}");
    let names = patterns(&list);
    assert!(!names.is_empty() && json["keep"]["patterns"] == serde_json::json!(names), "{said}");
    for left_out in 0..=names.len() {
        let fewer: Vec<&str> =
            names.iter().enumerate().filter(|(i, _)| *i != left_out).map(|(_, n)| n.as_str()).collect();
        std::fs::write(&part, fewer.join("\n")).expect("writes");
        let code = i32::from(left_out < names.len());
        weft(&[&compare[..], &["--keep-f32", &format!("@{part}")]].concat(), code);
    }
}

/// Batch norms that are folded into convolutions are no nodes of the program: neither list names one.
#[test]
fn folded_nodes_are_not_listed() {
    let folder = Folder::new("folded");
    let (model, list) = (folder.path("folded.weft"), folder.path("keep.list"));
    let norm =
        "  %s = const @s\n  %n = batch_norm %0, %s, %s, %s, %s !from(\"Norm_0\")\n  %1 = relu %n !from(\"Relu_1\")\n";
    let text = STEEP.replace("  %1 = relu %0 !from(\"Relu_1\")\n", norm);
    let text = text.replace("const @k :", "const @s : f32[8] = [1.0, 1.5, 1.0, 1.25, 1.0, 1.0, 1.5, 1.0]\nconst @k :");
    assert_ne!(text, STEEP);
    std::fs::write(&model, text).expect("writes");
    let keep = format!("@{list}");
    for (amp, code) in [("fp16", 1), ("auto", 0)] {
        let against = ["--device", "interpreter", "--against", "fp32"];
        weft(&[&["compare", &model, "--amp", amp, "--write-keep", &list], &against[..]].concat(), code);
        let names = patterns(&list);
        assert!(!names.is_empty() && !names.iter().any(|n| n == "Norm_0"), "{amp}: {names:?}");
        weft(&[&["compare", &model, "--amp", "fp16", "--keep-f32", &keep], &against[..]].concat(), 0);
    }
}

/// A result that fails by an element alone leads to a node all the same, with what keeping it costs.
#[test]
fn a_failure_leads_to_a_node() {
    let folder = Folder::new("cause");
    let model = folder.path("steep.weft");
    std::fs::write(&model, STEEP).expect("writes");
    let compare = ["compare", &model, "--device", "interpreter", "--amp", "fp16", "--against", "fp32"];
    let (said, err) = weft(&compare, 1);
    assert!(said.contains("errors along the graph") && said.contains("the tolerance is passed at Conv_"), "{said}");
    assert!(said.contains("with --keep-f32 'Conv_") && said.contains("bytes that f16 saves"), "{said}");
    assert!(err.contains("--write-keep F"), "{err}");
    let (said, _) = weft(&[&compare[..], &["--json"]].concat(), 1);
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let (failed, passed) = (&json["outputs"][0], &json["cause"]["passed_at"]);
    assert!(failed["rel_l2"].as_f64().is_some_and(|e| e < 1e-2), "only an element fails: {said}");
    assert_eq!((&json["cause"]["node"], &json["first_failing"]), (&passed["name"], &passed["name"]), "{said}");
    let share = |key: &str| passed[key].as_f64().expect("a share of the tolerance");
    assert!(share("before") <= 1.0 && share("after") > 1.0 && share("bytes") > 0.0, "{said}");
}

/// A reference that no precision agrees with.
#[test]
fn where_no_list_helps_it_says_so() {
    let folder = Folder::new("none");
    let (model, list, other) = (folder.path("steep.weft"), folder.path("keep.list"), folder.path("other.npz"));
    std::fs::write(&model, STEEP).expect("writes");
    weft(&["run", &model, "--device", "interpreter", "--seed", "9", "-o", &other], 0);
    let args = [
        "compare",
        &model,
        "--device",
        "interpreter",
        "--amp",
        "fp16",
        "--against",
        &other,
        "--write-keep",
        &list,
        "--json",
    ];
    let (said, err) = weft(&args, 1);
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&json["keep"]["passes"], &json["keep"]["patterns"]), (&false.into(), &serde_json::json!([])), "{said}");
    assert!(err.contains("no keep list that leaves anything in f16 makes the results agree"), "{err}");
    assert_eq!(patterns(&list), Vec::<String>::new());
    let (_, err) = weft(&["compare", &model, "--device", "auto", "--write-keep", &list], 2);
    assert!(err.contains("nothing is in f16"), "{err}");
}

/// That calibration keeps everything in f32 is what it found, and no error.
#[test]
fn all_nodes_in_f32_is_a_verdict() {
    let folder = Folder::new("verdict");
    let model = folder.path("cliff.weft");
    let text = "const @w : f32[8,8,3,3] = random(1)\nconst @k : f32[] = [2000.0]\n\
        graph @main(%x: f32[1,8,16,16]) -> (p: f32[1,8,14,14]) {\n  %w = const @w\n  %k = const @k\n  \
        %0 = conv %x, %w !from(\"Conv_0\")\n  %1 = mul %0, %k !from(\"Mul_1\")\n  %2 = sigmoid %1 !from(\"Sigmoid_2\")\n  \
        return %2\n}\n";
    std::fs::write(&model, text).expect("writes");
    let compare = |amp| ["compare", &model, "--device", "interpreter", "--amp", amp, "--against", "fp32"];
    let (said, err) = weft(&compare("auto"), 0);
    assert!(
        said.contains("--amp auto keeps every node in f32") && err.contains("all nodes stay in f32"),
        "{said}{err}"
    );
    let (said, _) = weft(&[&compare("auto")[..], &["--json"]].concat(), 0);
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&json["pass"], &json["all_in_f32"]), (&true.into(), &true.into()), "{said}");
}

#[test]
fn where_no_node_fails_alone_calibration_finds_the_kernels() {
    let folder = Folder::new("steep");
    let (model, list) = (folder.path("steep.weft"), folder.path("keep.list"));
    std::fs::write(&model, STEEP).expect("writes");
    let keep = format!("@{list}");
    let against = ["--device", "interpreter", "--against", "fp32"];
    for (amp, code) in [("fp16", 1), ("auto", 0)] {
        weft(&[&["compare", &model, "--amp", amp, "--write-keep", &list], &against[..]].concat(), code);
        let written = std::fs::read_to_string(&list).expect("the list");
        assert!(written.contains("Conv_") && !written.contains("Conv_5"), "{amp}: {written}");
        weft(&[&["compare", &model, "--amp", "fp16", "--keep-f32", &keep], &against[..]].concat(), 0);
    }
    let (said, _) = weft(&["compile", &model, "--target", "lavapipe", "--amp", "auto", "--json"], 0);
    assert!(said.contains("calibration: rounding what its kernel reads and stores takes"), "{said}");
}

#[test]
fn calibration_keeps_them_too() {
    let folder = Folder::new("auto");
    let model = folder.path("auto.weft");
    std::fs::write(&model, LARGE_BRANCH).expect("writes");
    let (_, said) = weft(&["compare", &model, "--device", "interpreter", "--amp", "auto", "--against", "fp32"], 0);
    assert!(said.contains("calibration: "), "{said}");
    let (said, _) = weft(&["compile", &model, "--target", "lavapipe", "--amp", "auto", "--json"], 0);
    assert!(said.contains("Mul*2 stays in f32: calibration: its result reaches"), "{said}");
    assert!(said.contains("Conv_0 is in f16") && said.contains("Conv_7 is in f16"), "{said}");
    // The processor runs the network in both precisions.
    let (_, said) = weft(&["run", &model, "--device", "cpu", "--amp", "auto"], 0);
    assert!(said.contains("times as long here as in f32"), "{said}");
    let (_, said) = weft(&["run", &model, "--device", "interpreter", "--amp", "auto"], 0);
    assert!(!said.contains("times as long here"), "{said}");
}
