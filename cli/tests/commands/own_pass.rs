//! A pass of another crate, registered by `examples/scale_constants.rs`, runs by name in the command.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Cargo builds the package's examples before its tests, next to the folder of the test's binary.
fn example() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let profile = test.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    profile.join("examples").join(format!("scale_constants{}", std::env::consts::EXE_SUFFIX))
}

fn opt(command: PathBuf, passes: &str) -> (Option<i32>, String, String) {
    const TEXT: &str = "const @c : f32[2] = [1.0, 2.0]\nconst @i : i64[1] = [5]\n\
        graph @main(%x: f32[2]) -> (y: f32[2], i: i64[1]) {\n  %c = const @c\n  %i = const @i\n  \
        %0 = add %x, %c : f32[2]\n  return %0, %i\n}\n";
    let mut child = Command::new(&command)
        .env("WEFT_DEVICE", "0")
        .args(["opt", "--passes", passes])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{}: {e}", command.display()));
    child.stdin.take().expect("a pipe").write_all(TEXT.as_bytes()).expect("it reads its input");
    let out = child.wait_with_output().expect("it ends");
    let text = |b: Vec<u8>| String::from_utf8(b).expect("text");
    (out.status.code(), text(out.stdout), text(out.stderr))
}

#[test]
fn a_registered_pass_runs_by_name() {
    let (code, out, err) = opt(example(), "scale-constants {factor=3.0}, eliminate-dead");
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("const @c : f32[2] = [3.0, 6.0]"), "{out}");
    assert!(out.contains("const @i : i64[1] = [5]"), "{out}");
    let (code, out, _) = opt(example(), "scale-constants");
    assert_eq!(code, Some(0));
    assert!(out.contains("[2.0, 4.0]"), "{out}");
}

#[test]
fn the_command_itself_does_not_know_it() {
    let (code, _, err) = opt(PathBuf::from(env!("CARGO_BIN_EXE_weft")), "scale-constants");
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("no such pass") && err.contains("known: "), "{err}");
}
