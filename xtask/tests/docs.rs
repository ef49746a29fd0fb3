//! Follows docs/add-an-op.md, add-a-pass.md and add-a-rule.md to the letter, in a copy of the compiler: a page that
//! leaves out a line does not build.
//!
//! A page says `In <file>, a new file:` above a block of the whole file, and `In <file>:` above one or several `diff`
//! blocks; what it adds is tested by the `cargo test --package PACKAGE NAME` that it names.
//!
//! What any page or comment tells Cargo to run names packages, examples and programs of the workspace. Links of pages,
//! and names of measurements in pages and comments, lead to files.

use std::path::{Path, PathBuf};
use std::process::Command;

const PAGES: &[&str] = &[
    "docs/add-an-op.md",
    "docs/add-a-pass.md",
    "docs/add-a-rule.md",
    "docs/add-an-instruction.md",
    "docs/add-a-target.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// What a page asks for, in its order.
enum Step {
    /// A new file with this text.
    Create(String, String),
    /// In this file, these lines (those without `+`) become those (all).
    Edit(String, String, String),
    /// `cargo test --package PACKAGE NAME`.
    Test(String, String),
}

fn steps(page: &str) -> Vec<Step> {
    let text = read(&root().join(page));
    let mut lines = text.lines();
    let (mut file, mut out) = (String::new(), Vec::new());
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("In `") {
            file = rest.split('`').next().unwrap_or_default().to_string();
        } else if let Some((package, name)) =
            line.trim().strip_prefix("cargo test --package ").and_then(|rest| rest.split_once(' '))
        {
            out.push(Step::Test(package.to_string(), name.to_string()));
        } else if line == "```rust,ignore" || line == "```diff" {
            let block: Vec<&str> = lines.by_ref().take_while(|l| *l != "```").collect();
            assert!(!file.is_empty(), "{page}: a block without a file above it");
            out.push(match line {
                "```diff" => {
                    let old = block.iter().filter_map(|l| l.strip_prefix(' '));
                    let new = block.iter().map(|l| &l[1..]);
                    let join = |lines: Vec<&str>| lines.iter().map(|l| format!("{l}\n")).collect::<String>();
                    Step::Edit(file.clone(), join(old.collect()), join(new.collect()))
                }
                _ => Step::Create(file.clone(), block.iter().map(|l| format!("{l}\n")).collect()),
            });
        }
    }
    out
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder to read") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).expect("copies")),
        }
    }
}

/// The workspace with the compiler and its tensor IR alone.
fn copy_of_the_compiler(to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    for folder in ["compiler", "docs"] {
        copy_folder(&root().join(folder), &to.join(folder));
    }
    std::fs::copy(root().join("Cargo.lock"), to.join("Cargo.lock")).expect("copies");
    let manifest = read(&root().join("Cargo.toml"));
    let alone = |l: &str| match l.split(' ').next() {
        Some("members") => "members = [\"compiler\", \"compiler/tensor-ir\"]".to_string(),
        Some("default-members") => String::new(),
        // Cargo tells packages of one name apart by their versions, not by their workspaces: with the same one, what is
        // built here would stand for the project's own compiler, and a change to that would not be seen.
        Some("version") => "version = \"0.1.999\"".to_string(),
        _ => l.to_string(),
    };
    // The profiles stay as they are, so that what the tests have built of other packages is used again.
    let text: Vec<String> = manifest.lines().map(alone).collect();
    std::fs::write(to.join("Cargo.toml"), text.join("\n") + "\n").expect("writes");
}

#[test]
fn the_pages_can_be_followed() {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = temporary.parent().expect("a folder in the target folder");
    let copy = temporary.join("followed-docs");
    copy_of_the_compiler(&copy);
    let mut tests = Vec::new();
    for page in PAGES {
        let steps = steps(page);
        assert!(steps.len() >= 3, "{page} was not read");
        for step in steps {
            match step {
                Step::Create(file, text) => {
                    assert!(!copy.join(&file).exists(), "{page}: {file} is there already");
                    std::fs::write(copy.join(&file), text).expect("writes");
                }
                Step::Edit(file, old, new) => {
                    let text = read(&copy.join(&file));
                    assert_eq!(text.matches(&old).count(), 1, "{page}: {file} does not have, once:\n{old}");
                    std::fs::write(copy.join(&file), text.replacen(&old, &new, 1)).expect("writes");
                }
                Step::Test(package, name) => tests.push((page, package, name)),
            }
        }
    }
    assert_eq!(tests.len(), PAGES.len());
    for (page, package, name) in tests {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "--quiet", "--offline", "--lib", "--package", &package, &name]).current_dir(&copy);
        // Each of these tests takes no time: building for it would.
        for package in ["weft-compiler", "weft-tensor-ir"] {
            cargo.args(["--config", &format!("profile.dev.package.{package}.opt-level=0")]);
        }
        cargo.env("CARGO_TARGET_DIR", target);
        let o = cargo.output().expect("cargo starts");
        let said = format!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
        assert!(o.status.success(), "{page}: {said}");
        assert!(said.contains("1 passed"), "{page}: `{name}` names no test:\n{said}");
    }
}

/// The files below `folder` with one of these extensions, but for those that are built or fetched.
fn files(folder: &Path, extensions: &[&str], out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder to read") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            files(&path, extensions, out);
        } else if extensions.iter().any(|e| path.extension().is_some_and(|x| x == *e)) {
            out.push(path);
        }
    }
}

/// Packages of the workspace by name, with their folders.
fn packages() -> Vec<(String, PathBuf)> {
    let folders = std::fs::read_dir(root()).expect("the workspace").map(|e| e.expect("an entry").path());
    let package = |folder: PathBuf| {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).ok()?;
        let name = manifest.lines().find_map(|l| l.strip_prefix("name = \""))?;
        Some((name.trim_end_matches('"').to_string(), folder))
    };
    folders.chain([root().join("compiler/tensor-ir")]).filter_map(package).collect()
}

#[test]
fn commands_name_what_there_is() {
    let packages = packages();
    assert!(packages.iter().any(|p| p.0 == "weft-command"));
    let (mut texts, mut checked) = (vec![], 0);
    files(&root(), &["md", "rs"], &mut texts);
    for path in texts {
        for line in read(&path).lines().filter(|l| l.contains("cargo ")) {
            let words: Vec<&str> = line[line.find("cargo ").unwrap_or(0)..].split([' ', '`', '"', ')']).collect();
            let value = |flags: &[&str]| {
                let at = words.iter().position(|w| flags.contains(w))?;
                words.get(at + 1).copied().filter(|w| w.starts_with(|c: char| c.is_ascii_lowercase()))
            };
            let Some(package) = value(&["-p", "--package"]) else { continue };
            let at = format!("{}: {line}", path.display());
            let (_, folder) = packages.iter().find(|p| p.0 == package).unwrap_or_else(|| panic!("no package {at}"));
            for (flag, place) in [("--example", "examples"), ("--bin", "src/bin"), ("--bench", "benches")] {
                let Some(name) = value(&[flag]) else { continue };
                let there = folder.join(place).join(name);
                assert!(there.with_extension("rs").exists() || there.exists(), "no {flag} {at}");
            }
            checked += 1;
        }
    }
    assert!(checked > 10, "only {checked} commands were found");
}

/// The files that a page links to.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.filter(|t| !t.contains("://") && !t.starts_with('#') && !t.contains(char::is_whitespace));
    files.filter_map(|t| t.split('#').next()).filter(|t| t.contains('.') || t.contains('/'))
}

/// The pages of measurements that a text names: `benches/results/cpu.md`.
fn measurements(text: &str) -> impl Iterator<Item = &str> {
    let other = |c: char| !(c.is_ascii_alphanumeric() || "-_./".contains(c));
    let names = text.match_indices("benches/results/").map(move |(at, _)| text[at..].split(other).next());
    names.flatten().map(|name| name.trim_end_matches('.')).filter(|name| name.ends_with(".md"))
}

#[test]
fn links_lead_to_files() {
    let (mut texts, mut checked, mut broken) = (vec![], 0, vec![]);
    files(&root(), &["md", "rs"], &mut texts);
    for path in texts {
        let (text, folder) = (read(&path), path.parent().expect("a folder"));
        let page = path.extension().is_some_and(|e| e == "md");
        let linked = links(&text).filter(|_| page).map(|l| (l, folder.join(l)));
        for (name, target) in linked.chain(measurements(&text).map(|m| (m, root().join(m)))) {
            checked += 1;
            if !target.exists() {
                broken.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(checked > 100, "only {checked} links were found");
    assert!(broken.is_empty(), "no such file:\n{}", broken.join("\n"));
}
