//! A text or a module for each rule that breaks it.

use super::*;
use crate::text::parse_module;

/// Messages for the module of `text`.
fn messages(text: &str) -> String {
    let m = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
    match verify_module(&m) {
        Ok(()) => String::new(),
        Err(list) => list.iter().map(|e| format!("{e}\n")).collect(),
    }
}

#[test]
fn graph_rules() {
    for (body, message) in [
        ("%0 = call @g %x : f32[2]\n return %0", "function @g is not in the module"),
        ("%0 = call @f %x, %x : f32[2]\n return %0", "takes 1 operands, got 2"),
        ("%0 = call @f %x : f32[3]\n return %0", "result 0 is f32[3], the op infers f32[2]"),
        ("%0 = call @f _ : f32[2]\n return %0", "operand 0 is missing"),
        ("%0 = let : f32[2] {\n %in = call @f %x : f32[2]\n yield %in\n }\n return %in", "which is not defined there"),
        ("%0 = let %x : f32[2] {\n yield %x\n }\n return %0", "1 operands; the op takes 0 to 0"),
        ("%0 = let : f32[2] (%a: f32[2]) {\n yield %a\n }\n return %0", "its regions take no arguments"),
        ("%0 = call_host @h %x {dtypes=[f32], shapes=[[`-2`]]} : f32[-2]\n return %0", "impossible type f32[-2]"),
        ("%0 = const @w : f32[2]\n %1 = const @f : f32[2]\n return %0", "constant @f is not in the module"),
        (
            "%0 = call_host @h {dtypes=[f32], shapes=[[3]]} : f32[3]\n return %0",
            "result 0 is f32[3], declared as f32[2]",
        ),
        ("%0 = call_tensor @t %x : f32[4]\n return %x", "operand 0 is f32[2], @t reads f32[4]"),
    ] {
        let tensor = "tensor @t(%a: f32[4], out %b: f32[4]) {\n for i in 0..4 { block b { %b[i] <- %a[i] } }\n}";
        let got = messages(&format!("graph @f(%x: f32[2]) -> f32[2] {{\n{body}\n}}\n{tensor}"));
        assert!(got.contains(message), "{body}\n{got}");
    }
    assert!(messages("entry @g\ngraph @f() -> () {\n return\n}").contains("the entry is not in the module"));
    let mut m = parse_module("graph @f() -> () {\n return\n}").expect("parses");
    m.add_constant("f", &crate::tensor::Tensor::scalar(1.0f32));
    let f = m.constants.keys().next().copied().expect("a constant");
    let constant = m.constants.swap_remove(&f).expect("the constant");
    m.constants.insert(m.entry, constant);
    let all = verify_module(&m).expect_err("one name twice");
    assert!(all.iter().any(|e| e.message.contains("taken by a constant and a graph function")), "{all:?}");
}

#[test]
fn misplaced_nodes_are_found() {
    let text = "graph @f(%x: f32[2]) -> f32[2] {\n %a = call @f %x : f32[2]\n %b = call @f %a : f32[2]\n return %b\n}";
    let mut m = parse_module(text).expect("parses");
    let body = m.main().body;
    m.main_mut().blocks[body].nodes.reverse();
    let e = verify_module(&m).expect_err("a use before its definition");
    assert!(e[0].message.contains("operand 0 (%a) is not defined before"), "{e:?}");
    let mut m = parse_module(text).expect("parses");
    let first = m.main().blocks[body].nodes[0];
    m.main_mut().blocks[body].nodes.push(first);
    assert!(verify_module(&m).expect_err("twice")[0].message.contains("stands in two places"));
}
