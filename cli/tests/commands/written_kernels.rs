//! A compiled network as text: it gives the same kernels byte for byte, and they may be changed by hand.

use crate::command::{has_adapter, weft};
use serde_json::Value;
use std::path::{Path, PathBuf};

const MODEL: &str = "squeezenet1_1";

fn stdout(args: &[&str]) -> String {
    weft(args).args(["-q"]).run().succeeded().stdout
}

fn json(args: &[&str]) -> Value {
    weft(args).args(["--json", "-q"]).run().succeeded().json()
}

/// Emits the network for `target` (the device that is here, without one) into a fresh folder.
fn emitted(name: &str, target: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    let path = folder.to_str().expect("a path in UTF-8");
    let forms = ["compile", MODEL, "--emit", "weft", "--emit", "wgsl", "--emit-dir", path];
    stdout(&[&forms, target].concat());
    folder
}

/// Texts of the kernels that `weft opt` makes of a module, sorted.
fn remade(module: &Path, target: &[&str]) -> Vec<String> {
    let path = module.to_str().expect("a path in UTF-8");
    let text = stdout(&[&["opt", path, "--passes", "apply-schedules", "--emit", "wgsl"], target].concat());
    let mut list: Vec<String> =
        text.split("// kernel ").skip(1).filter_map(|k| Some(k.split_once('\n')?.1.trim().to_string())).collect();
    list.sort();
    list
}

/// The text with the tile of its first convolution halved.
fn with_another_tile(text: &str) -> String {
    let tile = |line: &&str| line.contains("split {") && line.contains("_m, factors=[0,");
    let other = |line: &&str| line.contains("split {") && line.contains("factors=[0,64]");
    let line = text.lines().find(tile).or_else(|| text.lines().find(other)).expect("a split by a tile");
    let (before, rest) = line.split_once("factors=[0,").expect("factors");
    let (factor, after) = rest.split_once(']').expect("one factor");
    let factor: usize = factor.parse().expect("a number");
    let changed = format!("{before}factors=[0,{}]{after}", factor.div_ceil(2));
    assert_ne!(changed, line);
    text.replacen(line, &changed, 1)
}

/// The text with another value in the first choice of a tile's rows (or of a workgroup's threads), which is then the
/// last of its domain. What stands behind the line is left as it is.
fn with_another_choice(text: &str, value: Option<&str>) -> String {
    let choice = |point: &str| text.lines().find(|l| l.contains("choose {") && l.contains(&format!("point={point},")));
    let line = choice("rows").or_else(|| choice("threads")).expect("a choice");
    let (before, rest) = line.split_once("value=").expect("a value");
    let (made, after) = rest.split_once(", of=").expect("a domain");
    let last = after.trim_matches(['[', ']', '}']).rsplit(',').next().expect("a last value");
    assert_ne!(made, last);
    let changed = format!("{before}value={}, of={after}", value.unwrap_or(last));
    text.replacen(line, &changed, 1)
}

#[test]
fn the_text_gives_the_same_kernels_and_a_changed_tile_another_one() {
    let target = ["--target", "lavapipe"];
    let folder = emitted("same_kernels", &target);
    let files = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path());
    let mut compiled: Vec<String> = files
        .filter(|p| p.extension().is_some_and(|e| e == "wgsl"))
        .map(|p| std::fs::read_to_string(p).unwrap().trim().to_string())
        .collect();
    compiled.sort();
    let module = folder.join("module.weft");
    assert!(compiled.len() > 10);
    assert!(remade(&module, &target) == compiled, "`weft opt` makes other kernels");

    let changed = folder.join("changed.weft");
    std::fs::write(&changed, with_another_tile(&std::fs::read_to_string(&module).unwrap())).unwrap();
    let again = remade(&changed, &target);
    let new = again.iter().filter(|k| !compiled.contains(k)).count();
    assert_eq!((again.len(), new), (compiled.len(), 1), "one kernel is another one");

    let text = std::fs::read_to_string(&module).unwrap();
    std::fs::write(&changed, with_another_choice(&text, None)).unwrap();
    let again = remade(&changed, &target);
    let new = again.iter().filter(|k| !compiled.contains(k)).count();
    assert_eq!((again.len(), new), (compiled.len(), 1), "the rule made one kernel again");
}

#[test]
fn a_choice_outside_its_domain_is_bad_input() {
    let folder = emitted("bad_choice", &["--target", "lavapipe"]);
    let text = std::fs::read_to_string(folder.join("module.weft")).unwrap();
    let path = folder.join("changed.weft");
    std::fs::write(&path, with_another_choice(&text, Some("1000"))).unwrap();
    let path = path.to_str().expect("a path in UTF-8");
    for arguments in [
        &["compile", path, "--weights", MODEL, "--target", "lavapipe"][..],
        &["opt", path, "--passes", "apply-schedules", "--target", "lavapipe"],
    ] {
        let message = weft(arguments).run().refused(3, "`rows` is one of ").stderr;
        assert!(message.contains("not 1000"), "{message}");
    }
}

#[test]
fn a_changed_tile_gives_the_right_answer() {
    if !has_adapter() {
        return;
    }
    let folder = emitted("changed_tile", &[]);
    let at = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_string();
    let text = std::fs::read_to_string(at("module.weft")).unwrap();
    std::fs::write(at("changed.weft"), with_another_tile(&text)).unwrap();
    std::fs::write(at("chosen.weft"), with_another_choice(&text, None)).unwrap();
    for name in ["module", "changed", "chosen"] {
        let (module, result) = (at(&format!("{name}.weft")), at(&format!("{name}.npz")));
        let compiled = json(&["compile", &module, "--weights", MODEL]);
        let groups = compiled["groups"].as_array().unwrap();
        assert!(groups.iter().all(|g| g["kind"] != "host"), "{groups:?}");
        assert!(groups.iter().filter(|g| g["rule"] == "written").count() > 10, "{groups:?}");
        stdout(&["run", &module, "--weights", MODEL, "-o", &result]);
        // The same seed draws the same input for both.
        stdout(&["compare", MODEL, "--against", &result]);
    }
}

#[test]
fn a_schedule_that_does_not_apply_is_bad_input() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bad_schedule");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("m.weft");
    let text = "graph @main(%x: f32[64]) -> (y: f32[64]) {
  %0 = call_tensor @f %x : f32[64]
  return %0
}
tensor @f(%x: f32[64], out %y: f32[64]) {
  for i in 0..64 {
    block y { %y[i] <- %x[i] + 1.0 }
  }
  schedule {
    split {loop=nothing, factors=[0,8], into=[a,b]}
    cut-kernel
  }
}
";
    std::fs::write(&path, text).unwrap();
    let run = || weft(["compile"]).args([&path]).args(["--target", "lavapipe"]).run();
    let message = run().refused(3, "@f").stderr;
    assert!(message.contains("nothing"), "{message}");
    std::fs::write(&path, text.replace("nothing", "i")).unwrap();
    run().succeeded();
}

#[test]
fn text_for_another_device_says_so() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("another_device");
    std::fs::create_dir_all(&folder).expect("a folder");
    let (model, written) = (folder.join("product.weft"), folder.join("for_ada.weft"));
    let product = "graph @main(%a: f16[256,256], %b: f16[256,256]) -> (y: f16[256,256]) {
  %y = matmul %a, %b : f16[256,256]
  return %y
}
";
    std::fs::write(&model, product).expect("writes");
    let path = |p: &Path| p.to_str().expect("a path in UTF-8").to_string();
    let text = stdout(&["compile", &path(&model), "--target", "ada", "--emit", "weft"]);
    assert!(text.contains("multiply_add_16x16x16"), "no matrix units for ada:\n{text}");
    std::fs::write(&written, text).expect("writes");
    let ran = weft(["compile", &path(&written), "--target", "navi21"]).run();
    let said = ran.refused(5, "scheduled for another device").stderr;
    assert!(said.contains("uses matrix units"), "{said}");
}
