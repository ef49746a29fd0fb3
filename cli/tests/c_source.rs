//! `weft export --c`: the folder builds with every warning as an error, without Weft, and computes what the interpreter
//! does. The compiler is the one that links Rust programs.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn weft(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    let out = command.env("WEFT_DEVICE", "0").args(args).output().expect("the command runs");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

/// Elements of a .npy file, without its header.
fn elements(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[10 + header..].to_vec()
}

/// A .npy file.
fn npy(path: &Path, dtype: &str, shape: &[usize], bytes: &[u8]) {
    let dims: String = shape.iter().map(|d| format!("{d},")).collect();
    let mut header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({dims}), }}");
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut all = b"\x93NUMPY\x01\x00".to_vec();
    all.extend((header.len() as u16).to_le_bytes());
    all.extend(header.as_bytes());
    all.extend(bytes);
    std::fs::write(path, all).expect("writes");
}

/// Numbers between -1 and 1.
fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn bytes_of(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn agree(want: &[f32], got: &[f32]) {
    assert_eq!(want.len(), got.len());
    let peak = want.iter().fold(0f32, |a, b| a.max(b.abs()));
    for (i, (w, g)) in want.iter().zip(got).enumerate() {
        assert!((w - g).abs() <= 1e-4 * peak + 1e-4 * w.abs(), "element {i} is {g}, expected {w}");
    }
}

struct Folder {
    at: tempfile::TempDir,
}

impl Folder {
    /// Writes the model as C and builds it with these options.
    fn of(model: &str, export: &[&str], options: &[&str]) -> Folder {
        let at = tempfile::tempdir().expect("a folder");
        let c = at.path().join("c").display().to_string();
        weft(&[&["export", model, "--c", &c, "--quiet"], export].concat());
        let build = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2"];
        let sources = ["c/network.c", "c/main.c", "-lm", "-o", "network"];
        let out = Command::new("cc").current_dir(&at).args(build).args(options).args(sources).output();
        let out = out.expect("the C compiler that Rust links with");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Folder { at }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.at.path().join(name)
    }
    /// The results as raw elements.
    fn run(&self, inputs: &[Vec<u8>], outputs: usize) -> Vec<Vec<u8>> {
        let mut command = Command::new(self.path("network"));
        command.current_dir(&self.at).arg("c/weights.bin");
        for (i, bytes) in inputs.iter().enumerate() {
            std::fs::write(self.path(&format!("in{i}")), bytes).expect("writes");
            command.arg(format!("in{i}"));
        }
        (0..outputs).for_each(|i| {
            command.arg(format!("out{i}"));
        });
        let out = command.output().expect("the network runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        (0..outputs).map(|i| std::fs::read(self.path(&format!("out{i}"))).expect("a result")).collect()
    }
}

/// Tiles with rows in the padding, a depthwise window, softmax, integers, a gather by data, f64, bool, a branch.
const MIXED: &str = "const @w : f32[40,24,3,3] = random(1)
const @d : f32[40,1,3,3] = random(2)
const @m : f32[40,32] = random(3)
const @words : f32[10,32] = random(4)
graph @main(%x: f32[1,24,9,11], %at: i64[3], %c: bool[]) -> (y: f32[1,32], g: f32[3,32], k: i32[3], t: bool[1,32], b: f32[1,32]) {
  %w = const @w
  %d = const @d
  %m = const @m
  %words = const @words
  %0 = conv %x, %w {pads=[1,1,1,1]} : f32[1,40,9,11]
  %1 = hard_swish %0
  %2 = conv %1, %d {pads=[1,1,1,1], strides=[2,2], group=40}
  %3 = global_average_pool %2
  %4 = flatten %3
  %5 = matmul %4, %m
  %y = softmax %5 {axes=[1]}
  %g = gather %words, %at {axis=0}
  %i = cast %at {to=i32}
  %k = mul %i, %i
  %t = greater %5, %y
  %b = if %c : f32[1,32] {
    %then = exp %y : f32[1,32]
    yield %then
  } {
    %otherwise = erf %5 : f32[1,32]
    yield %otherwise
  }
  return %y, %g, %k, %t, %b
}
";

#[test]
fn a_network_of_every_kind_of_kernel_is_the_same_in_c() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let text = |path: &Path| path.display().to_string();
    let (model, given, made) = (at("net.weft"), at("given"), at("made"));
    std::fs::write(&model, MIXED).expect("the model is written");
    std::fs::create_dir(&given).expect("a folder");
    let x = bytes_of(&numbers(24 * 9 * 11, 5));
    let rows: Vec<u8> = [7i64, 0, 9].iter().flat_map(|v| v.to_le_bytes()).collect();
    for truth in [0u8, 1] {
        npy(&given.join("x.npy"), "<f4", &[1, 24, 9, 11], &x);
        npy(&given.join("at.npy"), "<i8", &[3], &rows);
        npy(&given.join("c.npy"), "|b1", &[], &[truth]);
        let files: Vec<String> =
            ["x", "at", "c"].map(|n| format!("{n}={}", text(&given.join(format!("{n}.npy"))))).into();
        let mut run = vec!["run".to_string(), text(&model), "--device".into(), "interpreter".into(), "--quiet".into()];
        files.iter().for_each(|f| run.extend(["-i".to_string(), f.clone()]));
        run.extend(["-o".to_string(), format!("{}/", text(&made))]);
        weft(&run.iter().map(String::as_str).collect::<Vec<_>>());
        for options in [&["-march=native", "-O3"][..], &["-DWEFT_NO_VECTORS"][..]] {
            let c = Folder::of(&text(&model), &[], options);
            let got = c.run(&[x.clone(), rows.clone(), vec![truth]], 5);
            for (name, got) in ["y", "g", "b"].iter().zip([&got[0], &got[1], &got[4]]) {
                agree(&floats(&elements(&made.join(format!("{name}.npy")))), &floats(got));
            }
            for (name, got) in ["k", "t"].iter().zip([&got[2], &got[3]]) {
                assert_eq!(&elements(&made.join(format!("{name}.npy"))), got, "{name}");
            }
        }
    }
}

#[test]
fn a_choice_changes_the_text_and_no_result() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let model = at("net.weft");
    const CONSTANT: &str = "const @w : f32[64,32] = random(1)";
    let text = format!(
        "{CONSTANT}\ngraph @main(%x: f32[60,64]) -> (y: f32[60,32]) {{
  %w = const @w\n  %y = matmul %x, %w\n  return %y\n}}\n"
    );
    std::fs::write(&model, &text).expect("the model is written");
    let x = bytes_of(&numbers(60 * 64, 9));
    let one = Folder::of(&model, &[], &[]);
    let scheduled = weft(&["compile", &model, "--device", "cpu", "--emit", "weft", "-q"]).stdout;
    let scheduled = String::from_utf8(scheduled).expect("text");
    let rows =
        scheduled.split("point=rows, value=").nth(1).and_then(|s| s.split(',').next()).expect("a choice of rows");
    let other = if rows == "5" { "6" } else { "5" };
    let changed = at("changed.weft");
    let by = |s: &str| s.replace(&format!("point=rows, value={rows},"), &format!("point=rows, value={other},"));
    // Splits and the intrinsic follow the choice.
    let with_data = |l: &str| if l.starts_with("const @w") { format!("{CONSTANT}\n") } else { format!("{l}\n") };
    let edited: String = scheduled.lines().map(with_data).collect();
    let edited = by(&edited)
        .replace(&format!("[0,{rows}]"), &format!("[0,{other}]"))
        .replace(&format!("tile_{rows}x"), &format!("tile_{other}x"));
    assert_ne!(edited, scheduled);
    std::fs::write(&changed, edited).expect("the model is written");
    let two = Folder::of(&changed, &[], &[]);
    let source = |f: &Folder| std::fs::read_to_string(f.path("c/network.c")).expect("the source");
    assert_ne!(source(&one), source(&two));
    agree(&floats(&one.run(std::slice::from_ref(&x), 1)[0]), &floats(&two.run(&[x], 1)[0]));
}

#[test]
fn what_does_not_become_c_is_named() {
    let refused = |args: &[&str], code: i32, why: &str| {
        let out = Command::new(env!("CARGO_BIN_EXE_weft")).args(args).output().expect("the command runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(code) && said.contains(why), "{args:?}: {:?} {said}", out.status);
    };
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("c").display().to_string();
    refused(&["export", "ssdlite", "--c", &to], 4, "does not become C");
    assert!(!Path::new(&to).join("network.c").exists());
    refused(&["export", "squeezenet1_1", "--c", &to, "-o", "a.onnx"], 2, "cannot be used with");
    refused(&["export", "squeezenet1_1"], 2, "--output");
}

#[test]
fn regions_run_as_c_beside_kernels_of_the_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let model = at("net.weft");
    std::fs::write(&model, MIXED).expect("the model is written");
    let external = format!("c:folder={}", at("regions"));
    let out = weft(&["compare", &model, "--external", &external, "--device", "0", "--json", "-q"]);
    let found: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(found["pass"], true, "{found}");
    let regions = std::fs::read_dir(at("regions")).expect("the folder").count();
    assert!(regions > 1, "{regions}");
    let run = ["run", &model, "--device", "0", "--external", "c:compiler=no-such-compiler"];
    let out = Command::new(env!("CARGO_BIN_EXE_weft")).args(run).output().expect("the command runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(5) && said.contains("there is no C compiler `no-such-compiler`"), "{said}");
}
