//! A pass of another crate, registered by `examples/scale_constants.rs`, runs by name in the command.

use crate::command::{Ran, Weft, command, example};

fn opt(command: Weft, passes: &str) -> Ran {
    const TEXT: &str = "const @c : f32[2] = [1.0, 2.0]\nconst @i : i64[1] = [5]\n\
        graph @main(%x: f32[2]) -> (y: f32[2], i: i64[1]) {\n  %c = const @c\n  %i = const @i\n  \
        %0 = add %x, %c : f32[2]\n  return %0, %i\n}\n";
    command.args(["opt", "--passes", passes]).input(TEXT).run()
}

#[test]
fn a_registered_pass_runs_by_name() {
    let out = opt(example("scale_constants"), "scale-constants {factor=3.0}, eliminate-dead").succeeded().stdout;
    assert!(out.contains("const @c : f32[2] = [3.0, 6.0]"), "{out}");
    assert!(out.contains("const @i : i64[1] = [5]"), "{out}");
    let out = opt(example("scale_constants"), "scale-constants").succeeded().stdout;
    assert!(out.contains("[2.0, 4.0]"), "{out}");
}

#[test]
fn the_command_itself_does_not_know_it() {
    let err = opt(command(), "scale-constants").refused(2, "no such pass").stderr;
    assert!(err.contains("known: "), "{err}");
}

/// A model whose branches have different ranks is read with the sizes that decide which one runs.
#[test]
fn sizes_are_given_to_a_model_and_not_to_a_text() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts/if_of_sizes.onnx");
    let words = ["opt", model, "--passes", "infer-types"];
    command().args(words).run().refused(4, "`steps` may be given");
    let out = command().args(words).args(["--dim", "steps=2"]).run().succeeded().stdout;
    assert!(out.contains("graph @main(%x: f32[1,2])"), "{out}");
    let text = "graph @main(%x: f32[2]) -> (y: f32[2]) {\n  %0 = relu %x : f32[2]\n  return %0\n}\n";
    let ran = command().args(["opt", "--passes", "infer-types", "--dim", "steps=2"]).input(text).run();
    ran.refused(2, "--dim is for models");
}
