//! `weft compare`: both sides have names, and nothing is compared with itself.

use crate::command::{has_adapter, weft};
use serde_json::Value;
use std::path::PathBuf;

struct Folder(PathBuf);
impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weft-comparisons-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
    fn model(&self) -> String {
        let path = self.path("model.weft");
        let text = "const @w : f32[8,8] = random(1)\ngraph @main(%x: f32[4,8]) -> (y: f32[4,8]) {\n  %w = const @w\n  \
            %0 = matmul %x, %w !from(\"MatMul_0\")\n  %y = relu %0 !from(\"Relu_1\")\n  return %y\n}\n";
        std::fs::write(&path, text).expect("writes");
        path
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Fails where there is no device: `cargo xtask test` installs a driver where it can.
fn need_a_device() {
    assert!(has_adapter(), "there is no device for the test");
}

#[test]
fn nothing_is_held_against_itself() {
    let folder = Folder::new("itself");
    let model = folder.model();
    weft(["compare", &model, "--against", "reference", "--device", "interpreter"])
        .run()
        .refused(2, "holds a thing against itself");
    weft(["compare", &model, "--against", "fp32"]).run().refused(2, "holds a thing against itself");
    weft(["compare", &model, "--against", "fp32", "--device", "interpreter"])
        .run()
        .refused(2, "holds a thing against itself");
    // Mixed precision that is asked for, and changes nothing.
    for how in [["--keep-f32", "*"], ["--disable-pass", "mixed-precision"], ["--passes", "infer-types"]] {
        for (against, device) in [("fp32", "interpreter"), ("cpu", "interpreter"), ("fp32", "0")] {
            let args = ["compare", &model, "--amp", "fp16", "--against", against, "--device", device];
            weft([&args[..], &how[..]].concat()).run().refused(2, "leaves every node in f32 here");
        }
    }
}

/// Without a driver `auto` is the CPU and says so; an adapter that is asked for is missing.
#[test]
#[cfg(target_os = "linux")]
fn without_a_driver_the_cpu_runs_the_model() {
    let folder = Folder::new("missing");
    let model = folder.model();
    let none = folder.path("no-driver.json");
    let compare = |device: &str| {
        let args = ["compare", &model, "--against", "cpu", "--device", device, "--json"];
        weft(args).env("VK_DRIVER_FILES", &none).env("VK_ICD_FILENAMES", &none).run()
    };
    let ran = compare("auto").succeeded();
    let (json, err) = (ran.json(), ran.stderr);
    assert!(err.contains("no GPU: running on the CPU") && !err.contains("--device 0"), "{err}");
    assert_eq!(json["result"]["device"]["backend"], "cpu", "{json}");
    assert_eq!(json["against"]["device"]["name"], "interpreter", "{json}");
    let err = compare("0").refused(5, "no device `0`").stderr;
    assert!(err.contains("`--device cpu`"), "{err}");
}

/// A software driver is no GPU: `auto` takes the CPU and says how to get shaders.
#[test]
fn a_software_driver_is_not_taken_by_itself() {
    need_a_device();
    let folder = Folder::new("software");
    let list = weft(["devices", "--json"]).run().succeeded().json();
    let all_software = list["devices"].as_array().is_some_and(|l| l.iter().all(|d| d["type"] == "cpu"));
    let err = weft(["run", &folder.model(), "--device", "auto"]).run().succeeded().stderr;
    let wanted = if all_software { "no GPU: running on the CPU; `--device 0` runs shaders" } else { "the best GPU" };
    assert!(err.contains(wanted), "{err}");
    let err = weft(["run", &folder.model(), "--device", "cpu", "--threads", "1"]).run().succeeded().stderr;
    assert!(err.contains("1 thread)"), "{err}");
    weft(["run", &folder.model(), "--device", "0", "--threads", "1"]).run().refused(2, "--threads is for the CPU");
}

/// A model that only the interpreter can run is not compared with the interpreter either.
#[test]
fn a_model_that_no_device_takes_is_no_agreement() {
    need_a_device();
    let folder = Folder::new("host");
    let model = folder.path("open.weft");
    let text = "graph @main(%x: f64[6]) -> (i: f64[n]) {\n  %i, %a, %b, %c = unique %x {count=n}\n  return %i\n}\n";
    std::fs::write(&model, text).expect("writes");
    for device in ["0", "cpu"] {
        weft(["compare", &model, "--against", "reference", "--device", device])
            .run()
            .refused(5, "no device ran the model");
    }
}

#[test]
fn both_sides_are_named() {
    let folder = Folder::new("named");
    let (model, out) = (folder.model(), folder.path("out.npz"));
    weft(["run", &model, "-o", &out, "--device", "interpreter"]).run().succeeded();
    let text = weft(["compare", &model, "--against", &out, "--device", "interpreter"]).run().succeeded().stdout;
    assert!(text.starts_with(&format!("interpreter, fp32 against {out}")), "{text}");
    let half = ["compare", &model, "--against", "reference", "--device", "interpreter", "--amp", "fp16"];
    let text = weft(half).run().succeeded().stdout;
    assert!(text.starts_with("interpreter, --amp fp16 against interpreter, fp32"), "{text}");
    let json = weft([&half[..], &["--json"]].concat()).run().succeeded().json();
    assert_eq!(json["result"]["amp"], "fp16", "{json}");
    assert_eq!(json["result"]["place"], "interpreter", "{json}");
    assert_eq!(json["against"]["device"]["name"], "interpreter", "{json}");
    assert_eq!(json["against"]["amp"], "off", "{json}");
    let json =
        weft(["compare", &model, "--against", &out, "--device", "interpreter", "--json"]).run().succeeded().json();
    assert_eq!(json["against"]["file"], Value::from(out), "{json}");
    assert_eq!(json["nodes"], Value::Array(vec![]), "the interpreter's nodes would be held against themselves");
}

/// Models whose results are infinite, and a cast beyond the range of f16.
#[test]
fn infinities_agree_on_a_device() {
    need_a_device();
    for name in ["division_by_zero_f16", "division_by_zero_f32", "cast_f16"] {
        let model = format!("{}/tests/models/{name}.onnx", env!("CARGO_MANIFEST_DIR"));
        let json = weft(["compare", &model, "--against", "reference", "--json"]).run().succeeded().json();
        assert_eq!(json["pass"], true, "{json}");
        assert_eq!(json["result"]["place"], "device", "{json}");
    }
}

/// The errors are those of groups as they run: a batch norm that is folded into a convolution rounds nothing itself.
#[test]
fn errors_are_of_what_the_compiled_program_stores() {
    need_a_device();
    let folder = Folder::new("stored");
    let model = folder.path("model.weft");
    let text = r#"const @w : f32[8,8,3,3] = random(1)
const @v : f32[8,8,3,3] = random(2)
const @s : f32[8] = splat(0.7)
graph @main(%x: f32[1,8,12,12]) -> (y: f32[1,8,12,12]) {
  %w = const @w
  %v = const @v
  %s = const @s
  %0 = conv %x, %w {pads=[1,1,1,1]} !from("Conv_0")
  %1 = batch_norm %0, %s, %s, %s, %s !from("Norm_1")
  %2 = relu %1 !from("Relu_2")
  %3 = conv %2, %v {pads=[1,1,1,1]} !from("Conv_3")
  %4 = batch_norm %3, %s, %s, %s, %s !from("Norm_4")
  return %4
}
"#;
    std::fs::write(&model, text).expect("writes");
    let common = [
        "compare",
        &model,
        "--amp",
        "fp16",
        "--keep-f32",
        "Conv_0",
        "--keep-f32",
        "Relu_2",
        "--against",
        "reference",
        "--json",
    ];
    for more in [&[][..], &["--cumulative"]] {
        let json = weft([&common[..], more].concat()).run().succeeded().json();
        let nodes: Vec<(&str, f64)> = json["nodes"]
            .as_array()
            .expect("nodes")
            .iter()
            .map(|n| (n["name"].as_str().unwrap_or(""), n["rel_l2"].as_f64().unwrap_or(f64::NAN)))
            .collect();
        assert_eq!(nodes.iter().map(|n| n.0).collect::<Vec<_>>(), ["Relu_2", "Norm_4"], "{more:?}");
        assert!(nodes[0].1 < 1e-6, "what is kept in f32 rounds as f32 does: {nodes:?} {more:?}");
        assert!(nodes[1].1 > 1e-5, "what is in f16 rounds as f16 does: {nodes:?} {more:?}");
    }
}

/// A stand-in for a Python with ONNX Runtime gives prepared results; without the option nothing is started.
#[test]
#[cfg(unix)]
fn another_runtime_stands_beside_with_its_time() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("peer");
    let (model, python, results) = (folder.model(), folder.path("python"), folder.path("own.npz"));
    weft(["run", &model, "--device", "cpu", "-o", &results]).run().succeeded();
    let script = format!(
        "#!/bin/sh\ntest -s \"$2\" && test -s \"$3\" && test \"$6\" = 1 || exit 9\ncp {results} \"$4\"\n\
         echo '{{\"version\": \"9.8\", \"ms\": 3.5, \"runs\": 10}}'\n"
    );
    std::fs::write(&python, script).expect("writes");
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let args = ["compare", &model, "--device", "cpu", "--threads", "1", "--peer", "onnxruntime", "--peer-python"];
    let beside = |python: &str| weft([&args[..], &[python]].concat());
    let said = beside(&python).run().succeeded().said();
    assert!(said.contains("against ONNX Runtime 9.8, CPU"), "{said}");
    assert!(said.lines().any(|l| l.contains("ONNX Runtime 9.8, CPU  3.50")), "{said}");
    let json = weft([&args[..], &[&python, "--json"]].concat()).run().succeeded().json();
    assert_eq!(json["times"]["peer_ms"], 3.5);
    assert_eq!(json["against"]["file"], "ONNX Runtime 9.8, CPU");
    let nodes = weft([&args[..], &[&python, "-v"]].concat()).run().succeeded().said();
    assert!(nodes.contains("\neach node against the interpreter:\n"), "{nodes}");
    beside(&folder.path("none")).run().refused(5, "does not start");
    std::fs::write(&python, "#!/bin/sh\nexit 0\n").expect("writes");
    beside(&python).run().refused(5, &format!("{python} ended without results"));
    std::fs::write(&python, "#!/bin/sh\necho 'no module named onnxruntime' >&2\nexit 1\n").expect("writes");
    beside(&python).run().refused(5, "no module named onnxruntime");
}
