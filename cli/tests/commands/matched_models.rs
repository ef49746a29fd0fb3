//! `weft diff` of two models: nodes are matched by what they compute, and no match is wrong.

use crate::command::weft;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Two layers, two equal branches that are read at different operands, and two that only results tell apart.
const FIRST: &str = r#"
const @w : f32[8,8] = random(1)
const @v : f32[8,8] = random(2)
graph @main(%x: f32[4,8]) -> (y: f32[4,8], p: f32[4,8], q: f32[4,8]) {
  %w = const @w
  %v = const @v
  %0 = matmul %x, %w !name("a0")
  %1 = tanh %0 !name("a1")
  %2 = matmul %1, %v !name("a2")
  %3 = sigmoid %2 !name("a3")
  %4 = sigmoid %2 !name("a4")
  %5 = pow %3, %4 !name("a5")
  %6 = sin %2 !name("a6")
  %7 = sin %2 !name("a7")
  return %5, %6, %7
}
"#;

/// The same, with other names and in another order.
const SECOND: &str = r#"
const @k : f32[8,8] = random(1)
const @l : f32[8,8] = random(2)
graph @main(%in: f32[4,8]) -> (out: f32[4,8], r: f32[4,8], s: f32[4,8]) {
  %l = const @l
  %k = const @k
  %0 = matmul %in, %k !name("z0")
  %1 = tanh %0 !name("a2")
  %2 = matmul %1, %l !name("a0")
  %7 = sin %2 !name("z7")
  %4 = sigmoid %2 !name("z4")
  %6 = sin %2 !name("z6")
  %3 = sigmoid %2 !name("z3")
  %5 = pow %3, %4 !name("a1")
  return %5, %6, %7
}
"#;

fn diff(name: &str, second: &str) -> Value {
    let folder = std::env::temp_dir().join(format!("weft-matched-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = |file: &str, text: &str| -> PathBuf {
        std::fs::write(folder.join(file), text).expect("writes");
        folder.join(file)
    };
    let [a, b] = [path("a.weft", FIRST), path("b.weft", second)].map(|p| p.display().to_string());
    let found = weft(["diff", &a, &b, "--json"]).run().succeeded().json();
    let trace = folder.join("a.trace").display().to_string();
    weft(["diff", &a, &trace]).run().refused(2, "a trace and a model");
    std::fs::remove_dir_all(folder).expect("removes");
    found
}

fn pairs<'a>(found: &'a Value) -> Vec<(&'a str, &'a str)> {
    let name = |v: &'a Value| v.as_str().expect("a name");
    found["pairs"].as_array().expect("a list").iter().map(|p| (name(&p["a"]), name(&p["b"]))).collect()
}

#[test]
fn names_do_not_matter_and_equal_branches_are_told_apart_or_reported() {
    let found = diff("names", SECOND);
    let want = [("a0", "z0"), ("a1", "a2"), ("a2", "a0"), ("a3", "z3"), ("a4", "z4"), ("a5", "a1")];
    assert_eq!(pairs(&found), want, "{found}");
    assert_eq!(found["ambiguous"], json!([{ "a": ["a6", "a7"], "b": ["z7", "z6"] }]), "{found}");
    assert_eq!((&found["only_a"], &found["partings"]), (&json!([]), &json!([])), "{found}");
}

#[test]
fn a_planted_difference_is_named() {
    let found = diff("planted", &SECOND.replace("@l : f32[8,8] = random(2)", "@l : f32[8,8] = random(3)"));
    assert_eq!(pairs(&found), [("a0", "z0"), ("a1", "a2")], "{found}");
    let parting = &found["partings"][0];
    assert_eq!(
        (&parting["a"], &parting["b"], &parting["constants"]),
        (&json!("a2"), &json!("a0"), &json!([1])),
        "{found}"
    );
}
