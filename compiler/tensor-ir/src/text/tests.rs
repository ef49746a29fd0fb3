//! Tensor functions with schedules. Round trips, error places and mutations of text are tested with whole modules, in
//! the compiler.

use super::*;

#[test]
fn schedule_blocks_hold_instructions() {
    let text =
        "tensor @f(out %C: f32[4]) {\n  for i in 0..4 {\n    block C { %C[i] <- 1.0 }\n  }\n  schedule {\n  }\n}\n";
    let f = parse_tensor_function(text).expect("parses");
    assert!(f.pending.is_empty());
    let e = parse_tensor_function(&text.replace("schedule {", "schedule {\n fly-away {loop=i}")).expect_err("unknown");
    assert_eq!((e.line, e.column), (6, 2));
    assert!(e.message.contains("fly-away"));
    let f = parse_tensor_function(&text.replace("schedule {", "schedule {\n cut-kernel")).expect("parses");
    assert_eq!(f.pending.len(), 1);
    assert!(print_tensor_function(&f).contains("  schedule {\n    cut-kernel\n  }\n"));
}
