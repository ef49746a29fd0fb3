//! A text for each rule that breaks it.

use super::*;
use crate::text::parse_tensor_function;

/// Messages for the function of `text`.
fn messages(text: &str) -> String {
    let f = parse_tensor_function(text).unwrap_or_else(|e| panic!("{e}"));
    match verify_tensor_function(&f) {
        Ok(()) => String::new(),
        Err(list) => list.iter().map(|e| format!("{e}\n")).collect(),
    }
}

#[test]
fn tensor_rules() {
    for (function, message) in [
        ("(out %C: f32[4]) { for i in 0..4 { block C { %C[i] <- 1:i32 } } }", "the value is i32, %C is f32"),
        ("(out %C: f32[4]) { for i in 0..4 { block C { %C[i, i] <- 1.0 } } }", "accessed with 2 indices"),
        ("(out %C: f32[4]) { for i in 0..4 { block C { %C[j] <- 1.0 } } }", "`j` is no loop around it"),
        ("(out %C: f32[4]) { for i in 0..4 { for i in 0..4 { block C { %C[i] <- 1.0 } } } }", "used by another loop"),
        ("(out %C: f32[0]) { }", "the extent 0 is not positive"),
        ("(out %C: f32[n]) { }", "`n` is no symbol"),
        ("(out %C: f32[4]) { for i in 0..0 { block C { %C[i] <- 1.0 } } }", "the extent 0 is not positive"),
        ("(out %C: f32[8]) { vectorize for i in 0..8 { block C { %C[i] <- 1.0 } } }", "2, 3 or 4 iterations, not 8"),
        ("(out %C: f32[4]) { for i in 0..4 { kernel k { block C { %C[i] <- 1.0 } } } }", "inside a loop"),
        ("(out %C: f32[4], %A: f32[4]) { }", "read parameter stands after"),
        ("(%A: f32[4]) { for i in 0..4 { block C { %A[i] <- 1.0 } } }", "stores to a read parameter"),
        ("(%A: f32[4] shared) { }", "its buffer is not global"),
        ("(%A: f32[4] half_pair) { }", "HalfPair does not store f32"),
        ("() { buffer %s: f32[4] subgroup(1, 32) }", "no dimension 1"),
        ("() { buffer %s: f32[4] subgroup(0, 24) }", "not a power of two"),
        (
            "() { buffer %s: f32[32] subgroup(0, 32)\n for i in 0..32 { block s { %s[i] <- 1.0 } } }",
            "not to the lane's own elements",
        ),
        ("() { symbol n in 4..=3 }", "4..=3 is empty"),
        ("(%A: f32[4], out %C: f32[4]) { for i in 0..4 { block C { %C[%A[i]] <- 1.0 } } }", "not of integers"),
        ("(out %C: bool[1]) { block C { %C[0] <- and(1.0, 2.0) } }", "`and` of f32"),
        ("(out %C: f32[1]) { block C { %C[0] <- 1.0 + 1.0:f16 } }", "`add` of f32 and f16"),
        ("(out %C: f32[1]) { block C { %C[0] <- select(1.0, 1.0, 1.0) } }", "`select` by f32"),
        (
            "(out %C: f32[1]) { buffer %r: f32[1] register\n kernel a { block r { %r[0] <- 1.0 } }\n \
             kernel b { block C { %C[0] <- %r[0] } } }",
            "used in two",
        ),
        ("(%A: f32[4]) { prepack %A = tensor @p(%s: f32[4], out %d: f32[8]) { } }", "the packer makes [8]"),
    ] {
        let got = messages(&format!("tensor @f{function}"));
        assert!(got.contains(message), "{function}\n{got}");
    }
    let sum = "tensor @f(%A: f16[4], out %C: f32[1]) { for i in 0..4 { block C reduce sum init { %C[0] <- %A[i] } } }";
    assert_eq!(messages(sum), "");
}
