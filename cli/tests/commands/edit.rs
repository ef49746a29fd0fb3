//! `weft edit` with editors that are small scripts: what is saved is checked, verified, raced, and kept if asked for.
#![cfg(unix)]

use crate::command::{Ran, weft};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

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
    fn weft(&self, editor: &Path, args: &[&str]) -> Ran {
        let command = weft(args).args(["--tuning", "tuning.jsonl", "--cache", "off"]);
        command.without("VISUAL").env("EDITOR", editor).at(self.folder.path()).run()
    }
    fn edit(&self, editor: &Path, more: &[&str]) -> Ran {
        let function = self.kernel();
        self.weft(editor, &[&["edit", "net.weft", "--kernel", &function][..], more].concat())
    }
    /// The name of the model's kernel.
    fn kernel(&self) -> String {
        let all = self.plain(&["compile", "net.weft", "--json", "-q"]).succeeded().json();
        all["kernels"][0]["name"].as_str().expect("a kernel").to_string()
    }
    fn plain(&self, args: &[&str]) -> Ran {
        weft(args).args(["--cache", "off"]).at(self.folder.path()).run()
    }
    fn schedules(&self) -> String {
        let args = ["compile", "net.weft", "--emit", "weft", "-q", "--tuning", "tuning.jsonl"];
        self.plain(&args).succeeded().stdout
    }
}

#[test]
fn what_an_editor_saves_is_measured_and_kept() {
    let p = Place::new();
    // Another number of threads than the rule's: a choice, whose lines the rules write.
    let threads = p.editor("threads", "sed -i 's/point=threads, value=[0-9]*,/point=threads, value=16,/' \"$1\"");
    let shown = p.edit(&threads, &[]).succeeded().stdout;
    for words in ["gives the right results", "before", "edited", "faster in", "--keep keeps it"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!p.at("tuning.jsonl").exists(), "nobody agreed");

    let kept = p.edit(&threads, &["--keep", "--json", "-q"]).succeeded().json();
    assert!(kept["result"] == "measured" && kept["kept"] == "tuning.jsonl", "{kept}");
    let line: Value =
        serde_json::from_str(&std::fs::read_to_string(p.at("tuning.jsonl")).expect("a database")).expect("JSON");
    assert!(line["by"] == "hand" && line["kept_at"].as_u64() > Some(0), "{line}");
    assert!(line["choices"].to_string().contains("point=threads, value=16"), "{line}");
    assert!(p.schedules().contains("point=threads, value=16,"), "{}", p.schedules());

    // A schedule that no choices make: without the vectors.
    let scalar = p.editor("scalar", "sed -i '/^vectorize /d' \"$1\"");
    let kept = p.edit(&scalar, &["--keep", "--json", "-q"]).succeeded().json();
    let last = std::fs::read_to_string(p.at("tuning.jsonl")).expect("a database");
    let line: Value = serde_json::from_str(last.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&line["schedule"], &line["choices"]), (&kept["schedule"], &serde_json::json!([])), "{line}");
    let made = p.schedules();
    assert!(made.contains("point=threads, value=16,") && !made.contains("vectorize"), "{made}");
    let said = p.plain(&["explain", "net.weft", "-v", "--tuning", "tuning.jsonl", "-q"]).succeeded().stdout;
    assert!(said.contains("scheduled by instructions that were kept by hand"), "{said}");
    let compared = p.plain(&["compare", "net.weft", "--tuning", "tuning.jsonl", "--json", "-q"]);
    assert_eq!(compared.succeeded().json()["pass"], true);

    // Instructions that find nothing: the usual schedule, and a remark.
    let usual = p.plain(&["compile", "net.weft", "--emit", "weft", "-q", "--tuning", "off"]).succeeded().stdout;
    for (from, to, why) in [
        ("relu_1_i0,", "nothing,", "there is no loop `nothing`"),
        ("block=mul_0", "block=nothing", "there is no block `nothing`"),
        ("\"cut-kernel\"", "\"vectorize {loop=relu_1_i_q_g}\"", "only a serial loop can be vectorized"),
    ] {
        let kept = last.lines().last().expect("a line");
        assert!(kept.contains(from), "{from}: {kept}");
        std::fs::write(p.at("tuning.jsonl"), kept.replacen(from, to, 1) + "\n").expect("writes");
        assert_eq!(p.schedules(), usual, "{why}");
        let said = p.plain(&["explain", "net.weft", "-v", "--tuning", "tuning.jsonl", "-q"]).succeeded().stdout;
        let ignored = "instructions that were kept by hand are ignored, since they do not apply any more: ";
        assert!(said.contains(&format!("{ignored}{why}")), "{why}: {said}");
    }
}

#[test]
fn what_is_not_edited_or_wrong_changes_nothing() {
    let p = Place::new();
    let out = p.edit(Path::new("true"), &["--keep", "--json", "-q"]);
    assert_eq!(out.succeeded().json()["result"], "unchanged");

    let twice = p.editor("twice", "sed -i '/^bind /{p;}' \"$1\"");
    let said = p.edit(&twice, &["--keep", "-q"]).refused(3, "only a serial loop can be bound").stderr;
    assert!(said.lines().any(|l| l.trim_start_matches('!').trim_start().starts_with('>')), "no line is marked: {said}");

    let typo = p.editor("typo", "sed -i 's/^bind /bond /' \"$1\"");
    let why = "column 1: there is no schedule instruction `bond` (did you mean `bind`?)";
    p.edit(&typo, &["-q"]).refused(3, why);

    let fails = p.editor("fails", "exit 3");
    p.edit(&fails, &["-q"]).refused(2, "nothing is changed");
    p.edit(Path::new("/no/such/editor"), &["-q"]).refused(2, "does not start");
    p.edit(Path::new(""), &["-q"]).refused(2, "no editor is named by VISUAL or EDITOR");
    p.edit(Path::new("true"), &["--schedule", "none", "-q"]).refused(3, "none");
    let nosuch = p.weft(Path::new("true"), &["edit", "net.weft", "--kernel", "nosuch", "-q"]);
    nosuch.refused(2, "there is no kernel `nosuch`");
    assert!(!p.at("tuning.jsonl").exists());
}
