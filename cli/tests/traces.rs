//! Compile traces through the command: written, read, compared, refused.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn weft(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weft")).args(arguments).output().expect("weft starts")
}

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder for the test");
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn stdout(o: &Output) -> String {
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    String::from_utf8_lossy(&o.stdout).into_owned()
}

fn json(o: &Output) -> serde_json::Value {
    serde_json::from_str(&stdout(o)).expect("JSON")
}

fn trace(folder: &Path, name: &str, model: &str, more: &[&str]) -> PathBuf {
    let path = folder.join(name);
    let o = weft(&[&["compile", model, "--target", "lavapipe", "-q", "--json", "-o", text(&path)], more].concat());
    let compiled = json(&o);
    // The trace tells the same as the compilation itself.
    assert_eq!(json(&weft(&["inspect", text(&path), "--json"])), compiled);
    path
}

const MODEL: &str = "const @w : f32[8,4,3,3] = splat(0.25)
graph @main(%x: f32[1,4,8,8]) -> (y: f32[1,8,8,8]) {
  %0 = const @w : f32[8,4,3,3]
  %1 = conv %x, %0 {pads=[1,1,1,1]} : f32[1,8,8,8] !from(\"Conv_0\")
  %2 = relu %1 : f32[1,8,8,8] !from(\"Relu_1\")
  return %2
}
";

#[test]
fn a_trace_is_written_read_and_compared() {
    let f = folder("traces");
    let model = f.join("m.weft");
    std::fs::write(&model, MODEL).unwrap();
    let a = trace(&f, "a.trace", text(&model), &[]);
    let b = trace(&f, "b.trace", text(&model), &["--fuse", "off"]);
    let shown = stdout(&weft(&["inspect", text(&a), "-v"]));
    assert!(shown.contains("conv+relu") && shown.contains("source") && shown.contains("0.2500"), "{shown}");
    let why = stdout(&weft(&["explain", text(&a), "--node", "Relu_1"]));
    assert!(why.contains("conv + relu") && why.contains("kernel"), "{why}");
    assert_eq!(weft(&["explain", text(&a), "--node", "Rel"]).status.code(), Some(2));
    assert!(stdout(&weft(&["explain", text(&a)])).contains("Conv_0"));

    let same = json(&weft(&["diff", text(&a), text(&a), "--json"]));
    assert_eq!((&same["schema"], &same["equal"]), (&1.into(), &true.into()));
    assert!(stdout(&weft(&["diff", text(&a), text(&a)])).contains("no difference"));
    let d = json(&weft(&["diff", text(&a), text(&b), "--json"]));
    assert_eq!(d["equal"], serde_json::Value::from(false));
    assert_eq!(d["groups_removed"][0]["origins"], serde_json::json!(["Conv_0", "Relu_1"]));
    assert_eq!(d["groups_added"].as_array().unwrap().len(), 2);
    let shown = stdout(&weft(&["diff", text(&a), text(&b)]));
    assert!(shown.contains("--fuse") && shown.contains("groups only in the first: 1"), "{shown}");
}

#[test]
fn what_is_no_trace_is_refused() {
    let f = folder("no_traces");
    let model = f.join("m.weft");
    std::fs::write(&model, MODEL).unwrap();
    let good = trace(&f, "good.trace", text(&model), &[]);
    let bytes = std::fs::read(&good).unwrap();
    let mut newer = bytes.clone();
    newer[8] = 200;
    for (name, bytes, why) in [
        ("cut.trace", &bytes[..bytes.len() - 5], "truncated"),
        ("newer.trace", &newer, "version 200"),
        ("other.trace", b"not a trace", "not a compile trace"),
        ("empty.trace", b"", "not a compile trace"),
    ] {
        let path = f.join(name);
        std::fs::write(&path, bytes).unwrap();
        for command in
            [vec!["inspect", text(&path)], vec!["diff", text(&good), text(&path)], vec!["explain", text(&path)]]
        {
            let o = weft(&command);
            let message = String::from_utf8_lossy(&o.stderr).into_owned();
            assert_eq!(o.status.code(), Some(3), "{command:?}: {message}");
            assert!(message.contains(why), "{command:?}: {message}");
        }
    }
    let o = weft(&["run", text(&good), "--device", "cpu"]);
    assert_eq!(o.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&o.stderr).contains("a compile trace, not a model"));
    assert_eq!(weft(&["diff", text(&good), "nowhere.trace"]).status.code(), Some(3));
}

#[test]
fn nothing_is_left_half_written() {
    let f = folder("half_traces");
    let model = f.join("m.weft");
    std::fs::write(&model, MODEL).unwrap();
    // A folder stands where the trace should be: the new file cannot take its place.
    let taken = f.join("taken.trace");
    std::fs::create_dir(&taken).unwrap();
    let o = weft(&["compile", text(&model), "--target", "lavapipe", "-q", "-o", text(&taken)]);
    assert_eq!(o.status.code(), Some(2), "{}", String::from_utf8_lossy(&o.stderr));
    let mut left: Vec<_> = std::fs::read_dir(&f).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["m.weft", "taken.trace"]);
    let o = weft(&["compile", text(&model), text(&model), "--target", "lavapipe", "-o", text(&taken)]);
    assert_eq!(o.status.code(), Some(2));
}

#[test]
fn resnet50_takes_less_than_five_megabytes() {
    let f = folder("resnet50_trace");
    let path = trace(&f, "resnet50.trace", "resnet50", &[]);
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes < 5_000_000, "{bytes}");
}
