//! Bad input to the real command: each gives its exit code and one clear message, and nothing is half-written.

use crate::command::weft;
use std::path::{Path, PathBuf};

/// A folder of its own, removed at the end.
struct Folder(PathBuf);
impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weft-bad-input-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("writes");
        path.display().to_string()
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the command, which must end with `code` and begin its error with `message`, at `place` where one is given.
fn refused(args: &[&str], code: i32, message: &str, place: Option<&str>) {
    let ran = weft(args).run().refused(code, place.unwrap_or(""));
    assert!(
        ran.error().starts_with(&format!("error[{code}]: {message}")),
        "weft {args:?} said:
{}",
        ran.stderr
    );
}

const TWO_NODES: &str = "graph @main(%xx: f32[4], %yy: f32[4]) -> (bb: f32[4]) {
  %aa = add %xx, %yy : f32[4] !from(\"first\")
  %bb = relu %aa : f32[4] !from(\"second\")
  return %bb
}
";

/// `TWO_NODES` as ONNX bytes.
fn small_onnx(folder: &Folder) -> Vec<u8> {
    let text = folder.write("small.weft", TWO_NODES.as_bytes());
    let onnx = folder.0.join("small.onnx");
    weft(["export", &text, "-o", onnx.to_str().expect("a name")]).run().succeeded();
    std::fs::read(onnx).expect("the exported model")
}

/// The first `from` becomes `to`, of the same length: lengths in the file stay right.
fn patched(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).expect("the text is in the file");
    let mut out = bytes.to_vec();
    out[at..at + to.len()].copy_from_slice(to.as_bytes());
    out
}

#[test]
fn models_that_are_not_whole() {
    let f = Folder::new("models");
    let good = small_onnx(&f);
    let cut = f.write("cut.onnx", &good[..good.len() / 2]);
    refused(&["inspect", &cut], 3, "not a complete ONNX model", Some(&cut));
    let none = f.write("none.onnx", b"");
    refused(&["inspect", &none], 3, "not a complete ONNX model: the file is empty", Some(&none));
    refused(&["inspect", "absent.onnx"], 3, "cannot read absent.onnx", None);
    let picture = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/hills.png");
    refused(&["run", picture], 3, "it is a PNG image, not an ONNX model; an input is given with `-i`", Some(picture));
    let zip = f.write("weights.pt", b"PK\x03\x04 and so on");
    refused(&["inspect", &zip, "resnet18"], 3, "it is a ZIP archive", Some(&zip));
    let text = f.write("cut.weft", &TWO_NODES.as_bytes()[..TWO_NODES.len() - 14]);
    refused(&["compile", &text, "--device", "interpreter"], 3, "line 4, column", Some(&text));
}

#[test]
fn cycles_and_unknown_operators() {
    let f = Folder::new("operators");
    let good = small_onnx(&f);
    let cycle = f.write("cycle.onnx", &patched(&good, "yy", "bb"));
    refused(
        &["compile", &cycle, "--device", "interpreter"],
        3,
        "the graph has a cycle through the nodes",
        Some(&cycle),
    );
    let undefined = f.write("undefined.onnx", &patched(&good, "yy", "zz"));
    refused(
        &["compile", &undefined, "--device", "interpreter"],
        3,
        "node `first` (Add): its input `zz` is defined nowhere",
        None,
    );
    let unknown = f.write("unknown.onnx", &patched(&patched(&good, "Relu", "Rolu"), "Add", "Odd"));
    let message = "the model uses 2 operators that Weft does not have";
    refused(&["compile", &unknown, "--device", "interpreter"], 4, message, Some("Rolu (1 node: second)"));
    refused(&["compile", &unknown, "--device", "interpreter"], 4, message, Some("Odd (1 node: first)"));
    let json = weft(["inspect", &unknown, "--json"]).run().ended(4).json();
    assert_eq!(json["unsupported"].as_array().map(Vec::len), Some(2));
}

#[test]
fn wrong_names_and_shapes() {
    let f = Folder::new("names");
    let model = f.write("small.weft", TWO_NODES.as_bytes());
    let out = f.0.join("out.npz").display().to_string();
    let refused = |more: &[&str], code: i32, message: &str| {
        let run = ["run", &model, "--device", "interpreter", "-o", &out];
        refused(&[&run[..], more].concat(), code, message, None);
    };
    let npy = |shape: &str| {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}");
        let header = format!("{header:<117}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + 16, 0);
        bytes
    };
    let four = f.write("four.npy", &npy("4,"));
    let (good, bad) = (format!("xx={four}"), format!("zz={four}"));
    refused(&["--input", &good, "--input", &bad], 3, "the model has no input `zz`; it has: xx, yy");
    refused(&["--input", &good], 3, "input `yy` is missing");
    let other = format!("yy={}", f.write("other.npy", &npy("2, 2")));
    refused(&["--input", &good, "--input", &other], 3, "input `yy` is f32[4], the file has f32[2, 2]");
    refused(&["--shape", "zz=1x4"], 2, "--shape zz: no such input; there are: xx, yy");
    refused(&["--dim", "N=4"], 2, "--dim N: no such dimension");
    let zoo = |model: &str, message: &str| {
        crate::bad_input::refused(
            &["compile", model, "--dim", "width=1..64", "--device", "interpreter"],
            2,
            message,
            None,
        );
    };
    zoo("mobilenet_v2", "--dim width: no such dimension; open: batch");
    zoo("encoder", "--dim width: no such dimension; open: batch, sequence");
    assert!(!Path::new(&out).exists(), "a failed run leaves no results");
}

/// Every body and schedule that the file tests refuse is refused by the command too, before anything runs.
#[test]
fn illegal_bodies_and_schedules() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../filetests/refused");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        refused(&["run", path.to_str().expect("a name"), "--device", "interpreter"], 3, "@", None);
        count += 1;
    }
    assert!(count > 10, "{count} files");
}

#[test]
fn usage_and_devices() {
    refused(&["run", "resnet18", "--frobnicate"], 2, "unexpected argument '--frobnicate'", None);
    refused(&["run", "resnet19"], 3, "no model `resnet19`", Some("weft zoo"));
    refused(&["run", "resnet18", "--device", "vulkan:97"], 5, "no device `vulkan:97`", Some("weft devices"));
    refused(&["compile", "resnet18", "--target", "abacus"], 5, "no profile `abacus`", None);
    let folder = ["compile", "squeezenet1_1", "--target", "baseline", "-o", "/absent/folder/x.trace"];
    refused(&folder, 2, "cannot write /absent/folder/x.trace", None);
    let pass = ["compile", "squeezenet1_1", "--target", "baseline", "--passes", "infer-types,tie-knots"];
    refused(&pass, 2, "pass tie-knots: no such pass", None);
}

#[test]
fn too_large_for_memory() {
    let f = Folder::new("memory");
    let text = "graph @main(%x: f32[1000000,1000000]) -> (y: f32[1000000,1000000]) {
  %y = relu %x : f32[1000000,1000000]
  return %y
}
";
    let model = f.write("huge.weft", text.as_bytes());
    refused(
        &["run", &model, "--device", "interpreter"],
        5,
        "inputs and results take 7629394 MiB, the machine has",
        None,
    );
}

#[cfg(unix)]
#[test]
fn paths_that_are_no_text_work_or_are_named() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new("no-text");
    let text = folder.write("small.weft", TWO_NODES.as_bytes());
    let run = |args: &[&OsStr]| weft(args).args(["--device", "interpreter"]).run();
    let odd = |end: &str| folder.0.join(OsStr::from_bytes(&[b"odd\xff", end.as_bytes()].concat()));
    run(&[OsStr::new("run"), OsStr::new(&text), OsStr::new("-o"), odd(".npz").as_os_str()]).succeeded();
    assert!(odd(".npz").is_file());
    std::fs::copy(&text, odd(".weft")).expect("copies");
    let ran = run(&[OsStr::new("run"), odd(".weft").as_os_str()]).refused(2, "odd\u{fffd}.weft` is not UTF-8 text");
    assert!(ran.stderr.contains("rename"), "{}", ran.stderr);
}
