//! `weft export --c`: the folder builds with every warning as an error, without Weft, and computes what the interpreter
//! does. The compiler is the one that links Rust programs.

use crate::{Given, MIXED, RESULTS, agree, bytes_of, elements, floats, numbers, refused, weft};
use std::path::{Path, PathBuf};
use std::process::Command;

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

#[test]
fn a_network_of_every_kind_of_kernel_is_the_same_in_c() {
    for truth in [0u8, 1] {
        let given = Given::of(truth);
        let made = given.run("interpreter");
        for options in [&["-march=native", "-O3"][..], &["-DWEFT_NO_VECTORS"][..]] {
            let c = Folder::of(&given.model(), &[], options);
            let got = c.run(&given.bytes, RESULTS.len());
            for ((name, is_float), got) in RESULTS.iter().zip(&got) {
                let want = elements(&made.join(format!("{name}.npy")));
                match is_float {
                    true => agree(&floats(&want), &floats(got)),
                    false => assert_eq!(&want, got, "{name}"),
                }
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
