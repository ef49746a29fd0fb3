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

/// As JSON, and as people read it.
fn diff(name: &str, second: &str) -> (Value, String) {
    diff_of(name, FIRST, second)
}

fn diff_of(name: &str, first: &str, second: &str) -> (Value, String) {
    let folder = std::env::temp_dir().join(format!("weft-matched-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = |file: &str, text: &str| -> PathBuf {
        std::fs::write(folder.join(file), text).expect("writes");
        folder.join(file)
    };
    let [a, b] = [path("a.weft", first), path("b.weft", second)].map(|p| p.display().to_string());
    let found = weft(["diff", &a, &b, "--json"]).run().succeeded().json();
    let text = weft(["diff", &a, &b]).run().succeeded().said();
    let trace = folder.join("a.trace").display().to_string();
    weft(["diff", &a, &trace]).run().refused(2, "a trace and a model");
    std::fs::remove_dir_all(folder).expect("removes");
    (found, text)
}

fn pairs<'a>(found: &'a Value) -> Vec<(&'a str, &'a str)> {
    let name = |v: &'a Value| v.as_str().expect("a name");
    found["pairs"].as_array().expect("a list").iter().map(|p| (name(&p["a"]), name(&p["b"]))).collect()
}

#[test]
fn names_do_not_matter_and_equal_branches_are_told_apart_or_reported() {
    let (found, _) = diff("names", SECOND);
    let want = [("a0", "z0"), ("a1", "a2"), ("a2", "a0"), ("a3", "z3"), ("a4", "z4"), ("a5", "a1")];
    assert_eq!(pairs(&found), want, "{found}");
    assert_eq!(found["ambiguous"], json!([{ "a": ["a6", "a7"], "b": ["z7", "z6"] }]), "{found}");
    assert_eq!((&found["only_a"], &found["partings"]), (&json!([]), &json!([])), "{found}");
}

#[test]
fn a_planted_difference_is_named() {
    let (found, text) = diff("planted", &SECOND.replace("@l : f32[8,8] = random(2)", "@l : f32[8,8] = random(3)"));
    assert_eq!(pairs(&found), [("a0", "z0"), ("a1", "a2")], "{found}");
    let parting = &found["partings"][0];
    assert_eq!(
        (&parting["a"], &parting["b"], &parting["constants"]),
        (&json!("a2"), &json!("a0"), &json!([1])),
        "{found}"
    );
    assert_eq!((&parting["why"], &parting["op_b"]), (&json!(["constants"]), &json!("matmul")), "{found}");
    assert_eq!(found["behind_a"], json!(["a3", "a4", "a5", "a6", "a7"]), "{found}");
    assert!(text.contains("; constant operand 1 differs\n  5 nodes behind it"), "{text}");
    assert!(!text.contains("only in"), "{text}");
}

#[test]
fn another_operator_is_where_models_part() {
    let (found, text) = diff("operator", &SECOND.replace("tanh %0", "sin %0"));
    let parting = &found["partings"][0];
    assert_eq!([&parting["a"], &parting["b"], &parting["op_b"]], ["a1", "a2", "sin"], "{found}");
    assert!(text.contains("  a1 | a2 (tanh | sin): rel l2") && text.contains("; the operators differ"), "{text}");
    assert!(text.contains("1 pair computes the same") && text.contains("6 nodes behind it"), "{text}");
}

#[test]
fn what_differs_by_the_tolerance_alone_has_no_other_reason() {
    // A difference of large numbers that are equal within the tolerance.
    let model = |more: &str| {
        format!(
            "const @a : f32[1] = [1000.0]\nconst @b : f32[1] = [{more}]\n\
             graph @main(%x: f32[4]) -> (y: f32[4]) {{\n  %a = const @a\n  %b = const @b\n  \
             %0 = add %x, %a !name(\"large\")\n  %1 = add %x, %b !name(\"larger\")\n  \
             %2 = sub %1, %0 !name(\"gap\")\n  return %2\n}}\n"
        )
    };
    let (found, text) = diff_of("tolerance", &model("1002.0"), &model("1002.01"));
    let parting = &found["partings"][0];
    assert_eq!((&parting["a"], &parting["why"]), (&json!("gap"), &json!(["tolerance"])), "{found}");
    assert!(text.contains("operands agree within --rtol 0.0001, attributes are equal"), "{text}");
}

#[test]
fn compare_says_where_another_model_parts() {
    let folder = std::env::temp_dir().join(format!("weft-matched-compare-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = |file: &str, text: &str| {
        std::fs::write(folder.join(file), text).expect("writes");
        folder.join(file).display().to_string()
    };
    let planted = SECOND.replace("@l : f32[8,8] = random(2)", "@l : f32[8,8] = random(3)");
    let [a, b, other] = [path("a.weft", FIRST), path("b.weft", SECOND), path("c.weft", &planted)];
    let beside = |b: &str| weft(["compare", &a, "--against", b, "--device", "cpu"]);
    // Results have other names: their order counts.
    let same = beside(&b).run().succeeded().said();
    assert!(same.contains(&format!("fp32 against {b}")) && !same.contains("they part at"), "{same}");
    let parted = beside(&other).run().ended(1).said();
    assert!(parted.contains("they part at") && parted.contains("a2 | a0 (matmul): rel l2"), "{parted}");
    let found = beside(&other).args(["--json"]).run().ended(1).json();
    assert_eq!(found["models"]["partings"][0]["constants"], json!([1]), "{found}");
    let narrow = path("d.weft", "graph @main(%x: f32[4,9]) -> (y: f32[4,9]) {\n  %0 = tanh %x\n  return %0\n}\n");
    beside(&narrow).run().refused(2, "the models take other inputs");
    std::fs::remove_dir_all(folder).expect("removes");
}

#[test]
fn a_node_beside_its_copy_is_told_by_its_op() {
    let model = |ops: &str| format!("graph @main(%x: f32[4]) -> (y: f32[4]) {{\n{ops}  return %2\n}}\n");
    let first = model("  %0 = relu %x !name(\"a\")\n  %1 = abs %0 !name(\"b\")\n  %2 = exp %1 !name(\"c\")\n");
    let second = model("  %0 = relu %x !name(\"p\")\n  %1 = abs %0 !name(\"q\")\n  %2 = exp %1 !name(\"r\")\n");
    let (found, text) = diff_of("copies", &first, &second);
    assert_eq!(pairs(&found), [("a", "p"), ("b", "q"), ("c", "r")], "{found}");
    assert!(text.contains("2 by op"), "{text}");
}
