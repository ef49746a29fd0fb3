//! `weft extract` cuts parts that compute what the whole computes, `weft run --dump` writes what fusion hides, and
//! `weft bisect` finds a planted rule, a planted pass and an overflow of f16, which `examples/planted_faults.rs` and
//! the networks here have.

use crate::command::{Ran, Weft, command, example, has_adapter};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn planted_faults() -> Weft {
    example("planted_faults").without("PLANTED_RULE")
}

/// The faults with the wrong rule among them.
fn planted_rule() -> Weft {
    example("planted_faults").env("PLANTED_RULE", "1")
}

/// An empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("surgery-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn run(program: Weft, at: &Path, words: &str) -> Ran {
    program.args(words.split(' ')).at(at).env("WEFT_CACHE", at.join("cache")).run()
}

/// The reproducer's command, run where it was written; the words of it that the shell quotes hold no blanks.
fn reproduces(program: Weft, at: &Path, found: &Value) {
    let reproducer = found["reproducer"]["command"].as_str().unwrap_or_else(|| panic!("no reproducer: {found}"));
    let words = reproducer.replace('\'', "");
    let (_, arguments) = words.split_once(' ').expect("a program and its arguments");
    run(program, at, arguments).refused(1, "results differ");
}

#[test]
fn a_part_of_a_vision_transformer_equals_the_whole() {
    let at = folder("vit");
    // The residual and the layer norm read the same tensor: nothing goes round this cut.
    let layer = "/encoder/layers/encoder_layer_1";
    let (from, to) = (format!("{layer}/ln_1/LayerNormalization"), format!("{layer}/ln_2/LayerNormalization"));
    let cut = format!(
        "extract vit_b_16:smallest --from {from} --to {to} -o part.onnx --with-inputs in.npz --with-outputs out.npz --json -q"
    );
    let part = run(command(), &at, &cut).succeeded().json();
    let inputs = part["inputs"].as_array().expect("inputs");
    assert_eq!(inputs.len(), 1, "{part}");
    assert!(inputs[0]["name"] != "input" && part["nodes"].as_u64() > Some(10), "{part}");
    // The part alone, on the interpreter and on a device, gives what the whole network gives.
    let devices: &[&str] = if has_adapter() { &["interpreter", "0"] } else { &["interpreter"] };
    for device in devices {
        let compare = format!("compare part.onnx -i in.npz --against out.npz --device {device} -q");
        run(command(), &at, &compare).succeeded();
    }
    let whole = format!("run vit_b_16:smallest --device interpreter --dump {to} -o dumped.npz -q");
    run(command(), &at, &whole).succeeded();
    let same = "compare part.onnx -i in.npz --against dumped.npz --device interpreter --rtol 0 --atol 0 -q";
    run(command(), &at, same).succeeded();
}

const CHAIN: &str = "graph @main(%x: f32[2,4]) -> (y: f32[2,4]) {
  %0 = relu %x : f32[2,4] !from(\"first\")
  %1 = exp %0 : f32[2,4] !from(\"second\")
  %2 = neg %1 : f32[2,4] !from(\"third\")
  return %2
}
";

#[test]
fn what_fusion_hides_is_dumped() {
    let at = folder("dump");
    std::fs::write(at.join("chain.weft"), CHAIN).expect("writes");
    for device in ["interpreter", "0"] {
        let dump = format!("run chain.weft --device {device} --dump first,sec* -o {device} --json -q");
        let names: Vec<String> = run(command(), &at, &dump).succeeded().json()["outputs"]
            .as_array()
            .expect("results")
            .iter()
            .map(|o| o["name"].as_str().expect("a name").into())
            .collect();
        assert_eq!(names, ["y", "first", "second"]);
        for file in ["y.npy", "first.npy", "second.npy"] {
            assert!(at.join(device).join(file).is_file(), "{file}");
        }
    }
    run(command(), &at, "run chain.weft --device interpreter --dump frist").refused(2, "did you mean: first");
}

#[test]
fn cuts_that_make_no_part_are_refused() {
    let at = folder("refused");
    std::fs::write(at.join("chain.weft"), CHAIN).expect("writes");
    for (cut, why) in [
        ("--from third --to first", "nothing on the way to first reads it"),
        ("--to x", "is an input or a constant"),
        ("--from nosuch", "the model has no tensor or node `nosuch`"),
    ] {
        run(command(), &at, &format!("extract chain.weft {cut} -o part.onnx")).refused(2, why);
        assert!(!at.join("part.onnx").exists());
    }
}

/// Two layers, of which the second is large enough for the planted rule; its bias is of the size that the planted pass
/// halves.
const NETWORK: &str = "const @w : f32[4,3] = [0.1, 0.2, 0.3, -0.4, 0.5, 0.6, 0.7, -0.8, 0.9, 1.0, -1.1, 1.2]
const @b : f32[3] = [1.0, 2.0, 3.0]
graph @main(%x: f32[20,4]) -> (y: f32[3,20]) {
  %w = const @w
  %b = const @b
  %0 = relu %x : f32[20,4] !from(\"first\")
  %1 = matmul %0, %w : f32[20,3] !from(\"product\")
  %2 = add %1, %b : f32[20,3] !from(\"bias\")
  %3 = softmax %2 {axes=[1]} : f32[20,3] !from(\"softmax\")
  %4 = transpose %3 {perm=[1,0]} : f32[3,20] !from(\"turned\")
  return %4
}
";

#[test]
fn a_wrong_pass_is_found() {
    if !has_adapter() {
        return;
    }
    let at = folder("pass");
    std::fs::write(at.join("net.weft"), NETWORK).expect("writes");
    let line = "bisect net.weft --passes infer-types,simplify,lose-constants,fold-constants,fuse-ops --json -q";
    let found = run(planted_faults(), &at, line).ended(1).json();
    assert_eq!(
        (&found["cause"]["kind"], &found["cause"]["pass"]),
        (&"pass".into(), &"lose-constants".into()),
        "{found}"
    );
    let text = found["cause"]["text"].as_str().expect("words");
    assert_eq!(found["cause"]["nodes"], serde_json::json!(["bias"]), "{found}");
    assert_eq!(found["reproducer"]["nodes"], 1, "{found}");
    assert!(
        text.contains("number 3 of 5") && text.contains("--disable-pass lose-constants the results agree"),
        "{text}"
    );
    reproduces(planted_faults(), &at, &found);
}

#[test]
fn a_wrong_schedule_rule_is_found() {
    if !has_adapter() {
        return;
    }
    let at = folder("rule");
    std::fs::write(at.join("net.weft"), NETWORK).expect("writes");
    let found = run(planted_rule(), &at, "bisect net.weft --fuse off --json -q -o found").ended(1).json();
    assert_eq!((&found["cause"]["kind"], &found["cause"]["rule"]), (&"rule".into(), &"off-by-half".into()), "{found}");
    assert!(found["cause"]["nodes"].as_array().is_some_and(|n| n.len() == 1), "{found}");
    assert!(found["reproducer"]["nodes"].as_u64() < Some(5), "the part is smaller than the network: {found}");
    assert!(at.join("found/part.onnx").is_file() && at.join("found/in.npz").is_file());
    reproduces(planted_rule(), &at, &found);
    // Without the rule there is nothing to find.
    let right = run(planted_faults(), &at, "bisect net.weft --fuse off --json -q").succeeded().json();
    assert_eq!((&right["pass"], &right["cause"]), (&true.into(), &Value::Null));
}

/// Options that can change a result, as users give them; files stand in the folder of the bisection.
const ASKED: &[&str] = &[
    "--device cpu --threads 1",
    "--target baseline",
    "--rules off-by-half",
    "--versions all",
    "--nan fast",
    "--quirk sinks-loads=off",
    "--amp fp16",
    "--amp fp16 --keep-f32 product",
    "--amp fp16 --keep-f32 @keep.txt",
    "--layout nhwc",
    "--pin-layout first=nchw",
    "-O2",
    "--disable-pass simplify",
    "--external c",
    "--cache own",
    "--tuning off",
    "--tuning mine.jsonl",
    "--seed 3",
    "--rtol 1e-5",
    "--atol 1e-6",
    "--passes infer-types,fold-constants",
];

/// The printed command shows the fault from any folder, whatever was asked for: no option is dropped, and files have
/// their whole paths.
#[test]
fn a_reproducer_keeps_every_option() {
    if !has_adapter() {
        return;
    }
    let at = folder("options");
    let elsewhere = at.join("elsewhere");
    std::fs::create_dir_all(&elsewhere).expect("a folder");
    std::fs::write(at.join("net.weft"), NETWORK).expect("writes");
    std::fs::write(at.join("keep.txt"), "product\n").expect("writes");
    std::fs::write(at.join("mine.jsonl"), "").expect("writes");
    let pairs = ASKED.iter().zip(ASKED.iter().cycle().skip(7)).filter(|(a, b)| {
        let names = |line: &str| line.split(' ').filter(|w| w.starts_with('-')).map(String::from).collect::<Vec<_>>();
        !names(a).iter().any(|name| names(b).contains(name))
    });
    let lines = ASKED.iter().map(|a| a.to_string()).chain(pairs.map(|(a, b)| format!("{a} {b}")));
    let mut shown = 0;
    for (n, asked) in lines.enumerate() {
        let ran = run(planted_rule(), &at, &format!("bisect net.weft --fuse off {asked} --json -q -o found-{n}"));
        // Some options leave nothing that is wrong.
        if ran.code == Some(0) {
            continue;
        }
        let found = ran.ended(1).json();
        if found["reproducer"].is_null() {
            continue;
        }
        let command = found["reproducer"]["command"].as_str().unwrap_or_default();
        // Mixed precision is taken away where results are wrong without it.
        let dropped = |w: &&str| w.starts_with("--") && !["--amp", "--keep-f32"].contains(w) && !command.contains(*w);
        let missing: Vec<&str> = asked.split(' ').filter(dropped).collect();
        assert!(missing.is_empty(), "{asked}: {missing:?} of {command}");
        reproduces(planted_rule(), &elsewhere, &found);
        shown += 1;
    }
    assert!(shown > ASKED.len(), "{shown} reproducers");
}

/// `second` reaches hundreds of thousands; `third` brings that back.
const OVERFLOW: &str = "const @up : f32[4,4] = [100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 1000.0, 110.0, 120.0, 300.0, 100.0, 200.0, 400.0]
const @down : f32[4,4] = [0.001, 0.002, 0.003, -0.004, 0.005, 0.006, 0.007, -0.008, 0.009, 0.001, -0.001, 0.002, 0.003, 0.001, -0.002, 0.004]
graph @main(%x: f32[2,4]) -> (y: f32[2,4]) {
  %up = const @up
  %down = const @down
  %0 = matmul %x, %up : f32[2,4] !from(\"first\")
  %1 = matmul %0, %up : f32[2,4] !from(\"second\")
  %2 = matmul %1, %down : f32[2,4] !from(\"third\")
  %3 = matmul %2, %down : f32[2,4] !from(\"fourth\")
  %4 = matmul %3, %down : f32[2,4] !from(\"last\")
  return %4
}
";

#[test]
fn an_overflow_of_f16_is_found() {
    let at = folder("overflow");
    std::fs::write(at.join("net.weft"), OVERFLOW).expect("writes");
    let devices: &[&str] = if has_adapter() { &["interpreter", "0"] } else { &["interpreter"] };
    for device in devices {
        let bisect = format!("bisect net.weft --amp fp16 --device {device} --json -q -o {device}");
        let found = run(command(), &at, &bisect).ended(1).json();
        assert_eq!(
            (&found["cause"]["kind"], &found["cause"]["nodes"][0]),
            (&"precision".into(), &"second".into()),
            "{found}"
        );
        assert!(found["cause"]["overflow"]["largest"].as_f64() > Some(65504.0), "{found}");
        reproduces(command(), &at, &found);
    }
}

#[test]
fn a_reference_that_the_model_itself_departs_from() {
    let at = folder("model");
    std::fs::write(at.join("right.weft"), CHAIN).expect("writes");
    std::fs::write(at.join("wrong.weft"), CHAIN.replace("exp", "sin")).expect("writes");
    run(command(), &at, "run right.weft --device interpreter --dump * -o ref.npz -q").succeeded();
    let bisect = "bisect wrong.weft --device interpreter --against ref.npz --json -q";
    let found = run(command(), &at, bisect).ended(1).json();
    assert_eq!((&found["cause"]["kind"], &found["cause"]["nodes"][0]), (&"model".into(), &"second".into()), "{found}");
    run(command(), &at, "bisect right.weft --device interpreter").ended(2);
}
