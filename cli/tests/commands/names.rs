//! Names that tables print are taken by every option that takes a name, and select the node that bears them.

use crate::command::{Weft, line};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Networks with layers of names, with blocks, with attention, and one whose nodes have numbers.
const NETWORKS: [&str; 5] = ["squeezenet1_1", "resnet18", "mobilenet_v3_small", "encoder", "block.weft"];
/// Options that take one name start the command anew for each: they get one name of so many, each option others.
const EACH: usize = 12;

fn transcripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

/// The command on the processor, in the folder of transcripts.
fn cpu(words: &str) -> Weft {
    line(&format!("{words} --device cpu")).at(transcripts()).env("NO_COLOR", "1")
}

/// The words of a column, under a title in lower case.
fn column(table: &str, title: &str) -> Vec<String> {
    let (mut from, mut out) = (None, vec![]);
    for row in table.lines() {
        let starts = |word: &str| row.match_indices(word).map(|m| m.0).find(|&i| row[..i].ends_with(' '));
        let titles = row.split("  ").map(str::trim).filter(|w| !w.is_empty());
        if titles.clone().count() > 2 && titles.clone().any(|w| w == title) {
            from = starts(title);
        } else if let Some(cell) = from.filter(|_| row.starts_with(' ')).and_then(|at| row.get(at..)) {
            out.extend(cell.split_whitespace().next().map(str::to_string));
        } else {
            from = None;
        }
    }
    out
}

/// The names in what `explain` lists: labels of groups with the nodes below them, and groups between which results go.
fn explained(text: &str) -> Vec<String> {
    let mut out = vec![];
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    for row in text.lines() {
        let own = row.trim();
        match own.split_once("  ") {
            Some((number, rest)) if is_number(number) => out.extend(rest.split_once(": ").map(|r| r.0.to_string())),
            _ if row.starts_with("        ") && !own.starts_with("ends:") => {
                out.extend(own.split(", ").filter(|n| !n.contains(' ')).map(str::to_string));
            }
            _ => {
                // `20 (classifier.1+relu) -> 21 (classifier.3)`
                let words: Vec<&str> = own.split_whitespace().filter(|_| own.contains(" -> ")).collect();
                let ends = words.windows(2).filter(|w| is_number(w[0])).filter_map(|w| w[1].strip_prefix('('));
                out.extend(ends.filter_map(|e| Some(e.split_once(')')?.0.to_string())));
            }
        }
    }
    out
}

/// Every name in the tables of `bench`, `compile`, `compare` and `explain` with the nodes of its group, where they are
/// known.
fn names(network: &str) -> BTreeMap<String, Vec<String>> {
    let said = |words: &str| cpu(&words.replace("NET", network)).run().succeeded().stdout;
    let tables = [
        column(&said("bench NET --runs 1 -q"), "kernel"),
        column(&said("compile NET -q"), "name"),
        column(&said("compare NET -v -q"), "node"),
        explained(&said("explain NET")),
        explained(&said("explain NET --left")),
    ];
    assert!(tables.iter().all(|t| !t.is_empty()), "{network}: {tables:?}");
    let compiled = cpu(&format!("compile {network} --json")).run().succeeded().json();
    let groups = compiled["groups"].as_array().expect("groups");
    let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
    let origins = |name: &str| -> Vec<String> {
        let own = groups.iter().filter(|g| g["name"] == name);
        own.flat_map(|g| g["origins"].as_array().into_iter().flatten().map(text)).collect()
    };
    tables.concat().into_iter().map(|n| (n.clone(), origins(&n))).collect()
}

fn folder() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("names");
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder");
    path
}

#[test]
fn names_of_tables_are_taken_by_every_option() {
    let folder = folder();
    for (n, network) in NETWORKS.into_iter().enumerate() {
        let names = names(network);
        // All of them at once, where an option may be repeated.
        let dumped = folder.join(n.to_string());
        let all = |option: &str| names.keys().flat_map(|n| [option.to_string(), n.clone()]).collect::<Vec<_>>();
        cpu(&format!("run {network} -q")).args(all("--dump")).args(["-o"]).args([&dumped]).run().succeeded();
        let count = std::fs::read_dir(&dumped).expect("the dumped nodes").count();
        assert!(count > names.len() / 3, "{network}: {count} files for {} names", names.len());
        cpu(&format!("compile {network} --amp fp16 -q")).args(all("--keep-f32")).run().succeeded();
        for (i, (name, origins)) in names.iter().enumerate() {
            let turn = |k: usize| (i + n) % EACH == k;
            if turn(0) {
                let found = cpu(&format!("explain {network} --json")).args(["--node", name]).run().succeeded().json();
                let own = found["groups"].to_string();
                assert!(
                    origins.iter().any(|o| own.contains(&format!("\"{o}\""))) || origins.is_empty(),
                    "{name}: {own}"
                );
            }
            if turn(3) {
                // A view has no kernel, and says so.
                let ran = cpu(&format!("explain {network}")).args(["--kernel", name]).run();
                assert!(ran.code == Some(0) || ran.stderr.contains("has no kernel: it is a view"), "{}", ran.stderr);
            }
            if turn(6) {
                let to = folder.join("part.onnx");
                for end in ["--from", "--to"] {
                    let part = crate::command::weft(["extract", network, end, name, "-o"]).args([&to]);
                    part.at(transcripts()).run().succeeded();
                }
            }
            if turn(9) && cfg!(feature = "view") {
                let picture = folder.join("box.svg");
                cpu(&format!("view {network}")).args(["--select", name, "-o"]).args([&picture]).run().succeeded();
            }
        }
    }
}
