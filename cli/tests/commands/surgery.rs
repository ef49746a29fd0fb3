//! `weft extract` cuts parts that compute what the whole computes, `weft run --dump` writes what fusion hides, and `weft bisect` finds a planted
//! rule, a planted pass and an overflow of f16, which `examples/planted_faults.rs` and the networks here have.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Cargo builds the package's examples before its tests, next to the folder of the test's binary.
fn planted_faults() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let profile = test.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    profile.join("examples").join(format!("planted_faults{}", std::env::consts::EXE_SUFFIX))
}

fn weft() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_weft"))
}

/// An empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("surgery-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn run(program: &Path, at: &Path, line: &str, rule: bool) -> Output {
    let mut command = Command::new(program);
    command
        .current_dir(at)
        .args(line.split(' '))
        .env("WEFT_CACHE", at.join("cache"))
        .env("WEFT_DEVICE", "0")
        .env_remove("PLANTED_RULE");
    if rule {
        command.env("PLANTED_RULE", "1");
    }
    command.output().unwrap_or_else(|e| panic!("{}: {e}", program.display()))
}

fn said(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

fn json(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(out)))
}

fn adapter() -> bool {
    let list = run(&weft(), Path::new("."), "devices --json", false);
    let found = json(&list)["devices"].as_array().is_some_and(|d| !d.is_empty());
    if !found {
        eprintln!("no adapter: nothing is bisected on a device");
    }
    found
}

/// The reproducer's command, run where it was written; the words of it that the shell quotes hold no blanks.
fn reproduces(program: &Path, at: &Path, found: &Value, rule: bool) {
    let command = found["reproducer"]["command"].as_str().unwrap_or_else(|| panic!("no reproducer: {found}"));
    let words = command.replace('\'', "");
    let (_, arguments) = words.split_once(' ').expect("a program and its arguments");
    let out = run(program, at, arguments, rule);
    assert_eq!(out.status.code(), Some(1), "{command}\n{}", said(&out));
    assert!(said(&out).contains("results differ"), "{}", said(&out));
}

#[test]
fn a_part_of_a_vision_transformer_equals_the_whole() {
    let at = folder("vit");
    // The residual and the layer norm read the same tensor: nothing goes round this cut.
    let layer = "/encoder/layers/encoder_layer_1";
    let (from, to) = (format!("{layer}/ln_1/LayerNormalization"), format!("{layer}/ln_2/LayerNormalization"));
    let cut = format!(
        "extract vit_b_16:smallest --from {from} --to {to} -o part.onnx --with-inputs in.npz --with-outputs out.npz --json -q"
    );
    let out = run(&weft(), &at, &cut, false);
    assert!(out.status.success(), "{}", said(&out));
    let part = json(&out);
    let inputs = part["inputs"].as_array().expect("inputs");
    assert_eq!(inputs.len(), 1, "{part}");
    assert!(inputs[0]["name"] != "input" && part["nodes"].as_u64() > Some(10), "{part}");
    // The part alone, on the interpreter and on a device, gives what the whole network gives.
    let devices: &[&str] = if adapter() { &["interpreter", "0"] } else { &["interpreter"] };
    for device in devices {
        let compared =
            run(&weft(), &at, &format!("compare part.onnx -i in.npz --against out.npz --device {device} -q"), false);
        assert!(compared.status.success(), "{}", said(&compared));
    }
    let whole =
        run(&weft(), &at, &format!("run vit_b_16:smallest --device interpreter --dump {to} -o dumped.npz -q"), false);
    assert!(whole.status.success(), "{}", said(&whole));
    let same = run(
        &weft(),
        &at,
        "compare part.onnx -i in.npz --against dumped.npz --device interpreter --rtol 0 --atol 0 -q",
        false,
    );
    assert!(same.status.success(), "{}", said(&same));
}

const CHAIN: &str = "graph @main(%x: f32[2,4]) -> (y: f32[2,4]) {
  %0 = relu %x : f32[2,4] !from(\"first\")
  %1 = exp %0 : f32[2,4] !from(\"second\")
  %2 = neg %1 : f32[2,4] !from(\"third\")
  return %2
}
";

#[test]
fn what_fusion_hides_is_dumped() {
    let at = folder("dump");
    std::fs::write(at.join("chain.weft"), CHAIN).expect("writes");
    for device in ["interpreter", "0"] {
        let out = run(
            &weft(),
            &at,
            &format!("run chain.weft --device {device} --dump first,sec* -o {device} --json -q"),
            false,
        );
        assert!(out.status.success(), "{}", said(&out));
        let names: Vec<String> = json(&out)["outputs"]
            .as_array()
            .expect("results")
            .iter()
            .map(|o| o["name"].as_str().expect("a name").into())
            .collect();
        assert_eq!(names, ["y", "first", "second"]);
        for file in ["y.npy", "first.npy", "second.npy"] {
            assert!(at.join(device).join(file).is_file(), "{file}");
        }
    }
    let wrong = run(&weft(), &at, "run chain.weft --device interpreter --dump frist", false);
    assert_eq!(wrong.status.code(), Some(2), "{}", said(&wrong));
    assert!(said(&wrong).contains("did you mean: first"), "{}", said(&wrong));
}

#[test]
fn cuts_that_make_no_part_are_refused() {
    let at = folder("refused");
    std::fs::write(at.join("chain.weft"), CHAIN).expect("writes");
    for (cut, why) in [
        ("--from third --to first", "nothing on the way to first reads it"),
        ("--to x", "is an input or a constant"),
        ("--from nosuch", "the model has no tensor or node `nosuch`"),
    ] {
        let out = run(&weft(), &at, &format!("extract chain.weft {cut} -o part.onnx"), false);
        assert_eq!(out.status.code(), Some(2), "{}", said(&out));
        assert!(said(&out).contains(why), "{}", said(&out));
        assert!(!at.join("part.onnx").exists());
    }
}

/// Two layers, of which the second is large enough for the planted rule; its bias is of the size that the planted pass halves.
const NETWORK: &str = "const @w : f32[4,3] = [0.1, 0.2, 0.3, -0.4, 0.5, 0.6, 0.7, -0.8, 0.9, 1.0, -1.1, 1.2]
const @b : f32[3] = [1.0, 2.0, 3.0]
graph @main(%x: f32[20,4]) -> (y: f32[3,20]) {
  %w = const @w
  %b = const @b
  %0 = relu %x : f32[20,4] !from(\"first\")
  %1 = matmul %0, %w : f32[20,3] !from(\"product\")
  %2 = add %1, %b : f32[20,3] !from(\"bias\")
  %3 = softmax %2 {axes=[1]} : f32[20,3] !from(\"softmax\")
  %4 = transpose %3 {perm=[1,0]} : f32[3,20] !from(\"turned\")
  return %4
}
";

#[test]
fn a_wrong_pass_is_found() {
    if !adapter() {
        return;
    }
    let at = folder("pass");
    std::fs::write(at.join("net.weft"), NETWORK).expect("writes");
    let line = "bisect net.weft --passes infer-types,simplify,lose-constants,fold-constants,fuse-ops --json -q";
    let out = run(&planted_faults(), &at, line, false);
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    let found = json(&out);
    assert_eq!(
        (&found["cause"]["kind"], &found["cause"]["pass"]),
        (&"pass".into(), &"lose-constants".into()),
        "{found}"
    );
    let text = found["cause"]["text"].as_str().expect("words");
    assert_eq!(found["cause"]["nodes"], serde_json::json!(["bias"]), "{found}");
    assert_eq!(found["reproducer"]["nodes"], 1, "{found}");
    assert!(
        text.contains("number 3 of 5") && text.contains("--disable-pass lose-constants the results agree"),
        "{text}"
    );
    reproduces(&planted_faults(), &at, &found, false);
}

#[test]
fn a_wrong_schedule_rule_is_found() {
    if !adapter() {
        return;
    }
    let at = folder("rule");
    std::fs::write(at.join("net.weft"), NETWORK).expect("writes");
    let out = run(&planted_faults(), &at, "bisect net.weft --fuse off --json -q -o found", true);
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    let found = json(&out);
    assert_eq!((&found["cause"]["kind"], &found["cause"]["rule"]), (&"rule".into(), &"off-by-half".into()), "{found}");
    assert!(found["cause"]["nodes"].as_array().is_some_and(|n| n.len() == 1), "{found}");
    assert!(found["reproducer"]["nodes"].as_u64() < Some(5), "the part is smaller than the network: {found}");
    assert!(at.join("found/part.onnx").is_file() && at.join("found/in.npz").is_file());
    reproduces(&planted_faults(), &at, &found, true);
    // Without the rule there is nothing to find.
    let right = run(&planted_faults(), &at, "bisect net.weft --fuse off --json -q", false);
    assert_eq!(right.status.code(), Some(0), "{}", said(&right));
    assert_eq!((&json(&right)["pass"], &json(&right)["cause"]), (&true.into(), &Value::Null));
}

/// `second` reaches hundreds of thousands; `third` brings that back.
const OVERFLOW: &str = "const @up : f32[4,4] = [100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 1000.0, 110.0, 120.0, 300.0, 100.0, 200.0, 400.0]
const @down : f32[4,4] = [0.001, 0.002, 0.003, -0.004, 0.005, 0.006, 0.007, -0.008, 0.009, 0.001, -0.001, 0.002, 0.003, 0.001, -0.002, 0.004]
graph @main(%x: f32[2,4]) -> (y: f32[2,4]) {
  %up = const @up
  %down = const @down
  %0 = matmul %x, %up : f32[2,4] !from(\"first\")
  %1 = matmul %0, %up : f32[2,4] !from(\"second\")
  %2 = matmul %1, %down : f32[2,4] !from(\"third\")
  %3 = matmul %2, %down : f32[2,4] !from(\"fourth\")
  %4 = matmul %3, %down : f32[2,4] !from(\"last\")
  return %4
}
";

#[test]
fn an_overflow_of_f16_is_found() {
    let at = folder("overflow");
    std::fs::write(at.join("net.weft"), OVERFLOW).expect("writes");
    let devices: &[&str] = if adapter() { &["interpreter", "0"] } else { &["interpreter"] };
    for device in devices {
        let out =
            run(&weft(), &at, &format!("bisect net.weft --amp fp16 --device {device} --json -q -o {device}"), false);
        assert_eq!(out.status.code(), Some(1), "{}", said(&out));
        let found = json(&out);
        assert_eq!(
            (&found["cause"]["kind"], &found["cause"]["nodes"][0]),
            (&"precision".into(), &"second".into()),
            "{found}"
        );
        assert!(found["cause"]["overflow"]["largest"].as_f64() > Some(65504.0), "{found}");
        reproduces(&weft(), &at, &found, false);
    }
}

#[test]
fn a_reference_that_the_model_itself_departs_from() {
    let at = folder("model");
    std::fs::write(at.join("right.weft"), CHAIN).expect("writes");
    std::fs::write(at.join("wrong.weft"), CHAIN.replace("exp", "sin")).expect("writes");
    let out = run(&weft(), &at, "run right.weft --device interpreter --dump * -o ref.npz -q", false);
    assert!(out.status.success(), "{}", said(&out));
    let out = run(&weft(), &at, "bisect wrong.weft --device interpreter --against ref.npz --json -q", false);
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    let found = json(&out);
    assert_eq!((&found["cause"]["kind"], &found["cause"]["nodes"][0]), (&"model".into(), &"second".into()), "{found}");
    let itself = run(&weft(), &at, "bisect right.weft --device interpreter", false);
    assert_eq!(itself.status.code(), Some(2), "{}", said(&itself));
}
