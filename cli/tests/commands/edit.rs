//! `weft edit` with editors that are small scripts: what is saved is checked, verified, raced, and kept if asked for.
#![cfg(unix)]

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MODEL: &str = "graph @main(%x: f32[513,2048]) -> (y: f32[513,2048]) {
  %0 = mul %x, %x : f32[513,2048]
  %1 = relu %0 : f32[513,2048]
  return %1
}
";

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("net.weft"), MODEL).expect("the model is written");
        Place { folder }
    }
    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    /// A script that changes the file that it is given.
    fn editor(&self, name: &str, script: &str) -> PathBuf {
        let path = self.at(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("the script is written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("it may run");
        path
    }
    fn weft(&self, editor: &Path, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.env("WEFT_DEVICE", "0").env_remove("VISUAL").env("EDITOR", editor).current_dir(self.folder.path());
        command.args(args).args(["--tuning", "tuning.jsonl", "--cache", "off"]).output().expect("the command runs")
    }
    fn edit(&self, editor: &Path, more: &[&str]) -> Output {
        let function = self.kernel();
        self.weft(editor, &[&["edit", "net.weft", "--kernel", &function][..], more].concat())
    }
    /// The name of the model's kernel.
    fn kernel(&self) -> String {
        let all: Value = json(&self.plain(&["compile", "net.weft", "--json", "-q"]));
        all["kernels"][0]["name"].as_str().expect("a kernel").to_string()
    }
    fn plain(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.env("WEFT_DEVICE", "0").current_dir(self.folder.path());
        command.args(args).args(["--cache", "off"]).output().expect("the command runs")
    }
    fn schedules(&self) -> String {
        let args = ["compile", "net.weft", "--emit", "weft", "-q", "--tuning", "tuning.jsonl"];
        String::from_utf8(self.plain(&args).stdout).expect("text")
    }
}

fn json(out: &Output) -> Value {
    assert!(out.status.success(), "{}", errors(out));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

fn errors(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn what_an_editor_saves_is_measured_and_kept() {
    let p = Place::new();
    // Another number of threads than the rule's: a choice, whose lines the rules write.
    let threads = p.editor("threads", "sed -i 's/point=threads, value=[0-9]*,/point=threads, value=16,/' \"$1\"");
    let out = p.edit(&threads, &[]);
    let shown = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{}", errors(&out));
    for words in ["gives the right results", "before", "edited", "faster in", "--keep keeps it"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!p.at("tuning.jsonl").exists(), "nobody agreed");

    let kept = json(&p.edit(&threads, &["--keep", "--json", "-q"]));
    assert!(kept["result"] == "measured" && kept["kept"] == "tuning.jsonl", "{kept}");
    let line: Value =
        serde_json::from_str(&std::fs::read_to_string(p.at("tuning.jsonl")).expect("a database")).expect("JSON");
    assert!(line["by"] == "hand" && line["kept_at"].as_u64() > Some(0), "{line}");
    assert!(line["choices"].to_string().contains("point=threads, value=16"), "{line}");
    assert!(p.schedules().contains("point=threads, value=16,"), "{}", p.schedules());

    // A schedule that no choices make: without the vectors.
    let scalar = p.editor("scalar", "sed -i '/^vectorize /d' \"$1\"");
    let kept = json(&p.edit(&scalar, &["--keep", "--json", "-q"]));
    let last = std::fs::read_to_string(p.at("tuning.jsonl")).expect("a database");
    let line: Value = serde_json::from_str(last.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&line["schedule"], &line["choices"]), (&kept["schedule"], &serde_json::json!([])), "{line}");
    let made = p.schedules();
    assert!(made.contains("point=threads, value=16,") && !made.contains("vectorize"), "{made}");
    let said = p.plain(&["explain", "net.weft", "-v", "--tuning", "tuning.jsonl", "-q"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("scheduled by instructions that were kept by hand"), "{said}");
    let compared = p.plain(&["compare", "net.weft", "--tuning", "tuning.jsonl", "--json", "-q"]);
    assert_eq!(json(&compared)["pass"], true);
}

#[test]
fn what_is_not_edited_or_wrong_changes_nothing() {
    let p = Place::new();
    let out = p.edit(Path::new("true"), &["--keep", "--json", "-q"]);
    assert_eq!(json(&out)["result"], "unchanged");

    let twice = p.editor("twice", "sed -i '/^bind /{p;}' \"$1\"");
    let out = p.edit(&twice, &["--keep", "-q"]);
    let said = errors(&out);
    assert!(out.status.code() == Some(3) && said.contains("only a serial loop can be bound"), "{said}");
    assert!(said.lines().any(|l| l.trim_start_matches('!').trim_start().starts_with('>')), "no line is marked: {said}");

    let typo = p.editor("typo", "sed -i 's/^bind /bond /' \"$1\"");
    let said = errors(&p.edit(&typo, &["-q"]));
    assert!(said.contains("column 1: there is no schedule instruction `bond` (did you mean `bind`?)"), "{said}");

    let fails = p.editor("fails", "exit 3");
    let out = p.edit(&fails, &["-q"]);
    assert!(out.status.code() == Some(2) && errors(&out).contains("nothing is changed"), "{}", errors(&out));
    assert!(errors(&p.edit(Path::new("/no/such/editor"), &["-q"])).contains("does not start"));
    let out = p.edit(Path::new(""), &["-q"]);
    assert!(errors(&out).contains("no editor is named by VISUAL or EDITOR"), "{}", errors(&out));
    let out = p.edit(Path::new("true"), &["--schedule", "none", "-q"]);
    assert!(out.status.code() == Some(3) && errors(&out).contains("none"), "{}", errors(&out));
    let out = p.weft(Path::new("true"), &["edit", "net.weft", "--kernel", "nosuch", "-q"]);
    assert!(out.status.code() == Some(2) && errors(&out).contains("there is no kernel `nosuch`"), "{}", errors(&out));
    assert!(!p.at("tuning.jsonl").exists());
}
