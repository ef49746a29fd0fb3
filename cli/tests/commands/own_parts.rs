//! An op, an instruction and a rule of another crate, registered by `examples/own_parts.rs`, work in every command.

use crate::command::{Ran, Weft, command, example, weft};
use std::path::Path;

/// The command with the parts.
fn own(args: &[&str]) -> Weft {
    example("own_parts").args(args)
}

const MODEL: &str = "graph @main(%x: f32[2,4]) -> (y: f32[2,4]) {
  %0 = cube %x {scale=0.5} : f32[2,4]
  %1 = relu %0 : f32[2,4]
  return %1
}
";

/// What a run printed of its result.
fn values(ran: Ran) -> Vec<f64> {
    let json = ran.succeeded().json();
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

    let on = |device: &str, file: &str| values(own(&["run", file, "--device", device, "--json", "-q"]).run());
    let want = on("interpreter", model);
    assert!(want.iter().any(|v| *v > 0.0) && want.contains(&0.0), "{want:?}");
    let same = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(same(&want, &on("0", model)));

    let compile = ["compile", model, "--target", "lavapipe", "-q"];
    let json = own(&compile).args(["--json"]).run().succeeded().stdout;
    assert!(json.contains("\"one-workgroup\""), "{json}");
    let written = own(&compile).args(["--emit", "weft"]).run().succeeded().stdout;
    assert!(written.contains("reverse-loop {loop=relu_1_i}") && written.contains("point=threads"), "{written}");
    let file = folder.join("compiled.weft");
    std::fs::write(&file, &written).expect("the schedule is written");
    let elsewhere = own(&["run", file.to_str().expect("UTF-8"), "--device", "cpu"]);
    elsewhere.run().refused(5, "is scheduled for another device");
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
    let with = |rule: bool, args: &[&str]| {
        let command = if rule { own(args).env("OWN_LAYOUTS", "1") } else { own(args) };
        command.run().succeeded().json()
    };
    let layouts = |own: bool| {
        let json = with(own, &["compile", model, "--target", "ada", "--json", "-q"]);
        let groups = json["groups"].as_array().expect("groups").clone();
        let of = |key: &str| groups.iter().filter_map(|g| g[key].as_str().map(String::from)).collect::<Vec<_>>();
        (of("layout"), of("rule"))
    };
    let (usual, rules) = layouts(false);
    assert!(!usual.contains(&"NHWC".into()) && !rules.contains(&"channel-sums".into()), "{usual:?} {rules:?}");
    let (own, rules) = layouts(true);
    assert!(own.contains(&"NHWC".into()) && rules.contains(&"channel-sums".into()), "{own:?} {rules:?}");
    let json = with(true, &["compare", model, "--device", "0", "--json", "-q"]);
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
        own(&args).run().succeeded().stdout
    };
    assert!(compiled("slow-launch=on").contains("\"one-workgroup\""));
    let without = compiled("slow-launch=off");
    assert!(!without.contains("\"one-workgroup\"") && without.contains("8 elements are more than 4"), "{without}");
    let listed = own(&["devices", "--quirks", "-q"]).run().succeeded().stdout;
    assert!(listed.contains("slow-launch"), "{listed}");
}

#[test]
fn a_schedule_provider_of_ones_own_is_asked_for_every_function() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-parts-schedules");
    std::fs::create_dir_all(&folder).expect("a folder");
    let model = folder.join("cube.weft");
    std::fs::write(&model, MODEL).expect("the model is written");
    let model = model.to_str().expect("UTF-8");
    let with = |args: &[&str]| own(args).env("OWN_SCHEDULES", "1").run().succeeded();
    let compiled = with(&["compile", model, "--target", "lavapipe", "--json", "-q"]).stdout;
    assert!(compiled.contains("\"direct\"") && !compiled.contains("\"one-workgroup\""), "{compiled}");
    let changed = values(with(&["run", model, "--device", "0", "--json", "-q"]));
    let usual = values(own(&["run", model, "--device", "interpreter", "--json", "-q"]).run());
    assert!(changed.iter().zip(&usual).all(|(a, b)| (a - b).abs() < 1e-5), "{changed:?} {usual:?}");
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
    let said = own(&["explain", model, "--target", "lavapipe", "-v", "-q"]).run().succeeded().stdout;
    assert!(said.contains("siblings: ") && said.contains("which reads the same"), "{said}");
    let means = |command: Weft, device: &str| {
        let v = command.args(["run", model, "--device", device, "--json", "-q"]).run().succeeded().json();
        v["outputs"]
            .as_array()
            .expect("results")
            .iter()
            .map(|o| o["mean"].as_f64().expect("a number"))
            .collect::<Vec<_>>()
    };
    let (with, without) = (means(own(&[]), "0"), means(command(), "interpreter"));
    assert!(with.iter().zip(&without).all(|(a, b)| (a - b).abs() < 1e-5), "{with:?} {without:?}");
}

#[test]
fn the_command_itself_does_not_know_them() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-parts-unknown");
    std::fs::create_dir_all(&folder).expect("a folder");
    let model = folder.join("cube.weft");
    std::fs::write(&model, MODEL).expect("the model is written");
    weft(["run", model.to_str().expect("UTF-8")]).run().refused(3, "there is no op `cube`");
}
