//! An op, an instruction and a rule of another crate, registered by `examples/own_parts.rs`, work in every command.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Cargo builds the package's examples before its tests, next to the folder of the test's binary.
fn example() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let profile = test.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    profile.join("examples").join(format!("own_parts{}", std::env::consts::EXE_SUFFIX))
}

fn run(program: &Path, args: &[&str]) -> Output {
    let out = Command::new(program).env("WEFT_DEVICE", "0").args(args).output();
    out.unwrap_or_else(|e| panic!("{}: {e}", program.display()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const MODEL: &str = "graph @main(%x: f32[2,4]) -> (y: f32[2,4]) {
  %0 = cube %x {scale=0.5} : f32[2,4]
  %1 = relu %0 : f32[2,4]
  return %1
}
";

/// What a run printed of its result.
fn values(out: &Output) -> Vec<f64> {
    assert!(out.status.success(), "{}", text(&out.stderr));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let list = json["outputs"][0]["values"].as_array().expect("the values of a small result").clone();
    list.iter().map(|v| v.as_f64().expect("a number")).collect()
}

#[test]
fn an_op_an_instruction_and_a_rule_of_ones_own_take_part() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-parts");
    std::fs::create_dir_all(&folder).expect("a folder");
    let model = folder.join("cube.weft");
    std::fs::write(&model, MODEL).expect("the model is written");
    let model = model.to_str().expect("UTF-8");

    let on = |device: &str, file: &str| values(&run(&example(), &["run", file, "--device", device, "--json", "-q"]));
    let want = on("interpreter", model);
    assert!(want.iter().any(|v| *v > 0.0) && want.contains(&0.0), "{want:?}");
    let same = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(same(&want, &on("0", model)));

    let json = run(&example(), &["compile", model, "--target", "lavapipe", "--json", "-q"]);
    assert!(text(&json.stdout).contains("\"one-workgroup\""), "{}", text(&json.stdout));
    let made = run(&example(), &["compile", model, "--target", "lavapipe", "--emit", "weft", "-q"]);
    let written = text(&made.stdout);
    assert!(written.contains("reverse-loop {loop=relu_1_i}") && written.contains("point=threads"), "{written}");
    let file = folder.join("compiled.weft");
    std::fs::write(&file, &written).expect("the schedule is written");
    let elsewhere = run(&example(), &["run", file.to_str().expect("UTF-8"), "--device", "cpu"]);
    let said = text(&elsewhere.stderr);
    assert!(elsewhere.status.code() == Some(5) && said.contains("is scheduled for another device"), "{said}");
    // Another choice than the rule's own is followed, too.
    let edited = written.replacen("point=threads, value=8", "point=threads, value=1", 1);
    assert_ne!(written, edited);
    for content in [written, edited] {
        std::fs::write(&file, &content).expect("the schedule is written");
        assert!(same(&want, &on("0", file.to_str().expect("UTF-8"))), "{content}");
    }
}

const CONVOLUTIONS: &str = "const @w : f32[16,16,3,3] = random(1)
graph @main(%x: f32[1,16,16,16]) -> (y: f32[1,16,16,16]) {
  %w = const @w
  %0 = conv %x, %w {pads=[1,1,1,1]} : f32[1,16,16,16]
  %1 = add %0, %x : f32[1,16,16,16]
  %2 = conv %1, %w {pads=[1,1,1,1]} : f32[1,16,16,16]
  %3 = add %2, %x : f32[1,16,16,16]
  return %3
}
";

#[test]
fn a_rule_of_ones_own_changes_the_layouts() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-parts-layouts");
    std::fs::create_dir_all(&folder).expect("a folder");
    let model = folder.join("convolutions.weft");
    std::fs::write(&model, CONVOLUTIONS).expect("the model is written");
    let model = model.to_str().expect("UTF-8");
    let with = |own: bool, args: &[&str]| {
        let mut command = Command::new(example());
        command.args(args);
        if own {
            command.env("OWN_LAYOUTS", "1");
        }
        command.output().expect("the example runs")
    };
    let layouts = |own: bool| {
        let out = with(own, &["compile", model, "--target", "ada", "--json", "-q"]);
        let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        let groups = json["groups"].as_array().expect("groups").clone();
        let of = |key: &str| groups.iter().filter_map(|g| g[key].as_str().map(String::from)).collect::<Vec<_>>();
        (of("layout"), of("rule"))
    };
    let (usual, rules) = layouts(false);
    assert!(!usual.contains(&"NHWC".into()) && !rules.contains(&"channel-sums".into()), "{usual:?} {rules:?}");
    let (own, rules) = layouts(true);
    assert!(own.contains(&"NHWC".into()) && rules.contains(&"channel-sums".into()), "{own:?} {rules:?}");
    let compared = with(true, &["compare", model, "--device", "0", "--json", "-q"]);
    let json: serde_json::Value = serde_json::from_slice(&compared.stdout).expect("JSON");
    assert_eq!(json["pass"], true, "{json}");
}

#[test]
fn a_quirk_of_ones_own_is_switched_off_by_name() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-parts-quirk");
    std::fs::create_dir_all(&folder).expect("a folder");
    let model = folder.join("cube.weft");
    std::fs::write(&model, MODEL).expect("the model is written");
    let model = model.to_str().expect("UTF-8");
    let compiled = |quirk: &str| {
        let args = ["compile", model, "--target", "lavapipe", "--quirk", quirk, "--json", "-q"];
        text(&run(&example(), &args).stdout)
    };
    assert!(compiled("slow-launch=on").contains("\"one-workgroup\""));
    let without = compiled("slow-launch=off");
    assert!(!without.contains("\"one-workgroup\"") && without.contains("8 elements are more than 4"), "{without}");
    let listed = text(&run(&example(), &["devices", "--quirks", "-q"]).stdout);
    assert!(listed.contains("slow-launch"), "{listed}");
}

#[test]
fn a_schedule_provider_of_ones_own_is_asked_for_every_function() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-parts-schedules");
    std::fs::create_dir_all(&folder).expect("a folder");
    let model = folder.join("cube.weft");
    std::fs::write(&model, MODEL).expect("the model is written");
    let model = model.to_str().expect("UTF-8");
    let with = |args: &[&str]| {
        let mut command = Command::new(example());
        command.env("OWN_SCHEDULES", "1").args(args).output().expect("the example runs")
    };
    let compiled = text(&with(&["compile", model, "--target", "lavapipe", "--json", "-q"]).stdout);
    assert!(compiled.contains("\"direct\"") && !compiled.contains("\"one-workgroup\""), "{compiled}");
    let values = |out: &Output| values(out);
    let (own, usual) = (
        values(&with(&["run", model, "--device", "0", "--json", "-q"])),
        values(&run(&example(), &["run", model, "--device", "interpreter", "--json", "-q"])),
    );
    assert!(own.iter().zip(&usual).all(|(a, b)| (a - b).abs() < 1e-5), "{own:?} {usual:?}");
}

#[test]
fn a_fusion_rule_of_ones_own_joins_groups() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-parts-fusion");
    std::fs::create_dir_all(&folder).expect("a folder");
    let model = folder.join("pair.weft");
    let source = "graph @main(%x: f32[2,4]) -> (y: f32[2,4], z: f32[2,4]) {
  %y = relu %x : f32[2,4]
  %z = exp %x : f32[2,4]
  return %y, %z
}
";
    std::fs::write(&model, source).expect("the model is written");
    let model = model.to_str().expect("UTF-8");
    let said = run(&example(), &["explain", model, "--target", "lavapipe", "-v", "-q"]);
    let said = text(&said.stdout);
    assert!(said.contains("siblings: ") && said.contains("which reads the same"), "{said}");
    let json = |program: &Path, device: &str| {
        let out = run(program, &["run", model, "--device", device, "--json", "-q"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let v: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        v["outputs"]
            .as_array()
            .expect("results")
            .iter()
            .map(|o| o["mean"].as_f64().expect("a number"))
            .collect::<Vec<_>>()
    };
    let (with, without) = (json(&example(), "0"), json(Path::new(env!("CARGO_BIN_EXE_weft")), "interpreter"));
    assert!(with.iter().zip(&without).all(|(a, b)| (a - b).abs() < 1e-5), "{with:?} {without:?}");
}

#[test]
fn the_command_itself_does_not_know_them() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-parts-unknown");
    std::fs::create_dir_all(&folder).expect("a folder");
    let model = folder.join("cube.weft");
    std::fs::write(&model, MODEL).expect("the model is written");
    let o = run(Path::new(env!("CARGO_BIN_EXE_weft")), &["run", model.to_str().expect("UTF-8")]);
    assert_eq!(o.status.code(), Some(3), "{}", text(&o.stderr));
    assert!(text(&o.stderr).contains("there is no op `cube`"), "{}", text(&o.stderr));
}
