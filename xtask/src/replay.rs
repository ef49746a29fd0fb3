//! `cargo xtask replay BASE`: compiles the zoo at another commit and here, and lists the kernels whose text changed.
//!
//! A refactoring must change none; for a change of a rule, the list shows its effect.

use crate::cargo::{build_weft, cargo, root, run as run_command, show, target_dir};
use crate::heading::heading;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One line for the usage.
pub const HELP: &str =
    "BASE [MODEL ...] compiles the zoo at commit BASE and here, lists the kernels whose text differs";

/// The profile compiled for: text must not depend on this machine's device.
const PROFILE: &str = "lavapipe";

/// File name and text of each kernel.
type Kernels = BTreeMap<String, String>;

/// Runs the command.
///
/// # Errors
/// When a build or a compilation fails. Changed kernels are no error.
pub fn run(args: &[String]) -> Result<(), String> {
    let (base, models) = args.split_first().ok_or_else(|| format!("usage: cargo xtask replay {HELP}"))?;
    let folder = target_dir()?.join("replay");
    heading(&format!("building weft at {base}"));
    let before = build_base(base, &folder)?;
    heading("building weft here");
    let after = build_weft(true)?;
    let models = if models.is_empty() { zoo(&after)? } else { models.to_vec() };
    let mut changed = 0;
    for model in &models {
        let old = kernels_of(&before, model, &folder.join("before").join(model));
        let new = kernels_of(&after, model, &folder.join("after").join(model))?;
        match old {
            Ok(old) => changed += report(model, &old, &new),
            Err(why) => println!("{model}: {base} does not compile it ({why})"),
        }
    }
    println!("\n{changed} kernels differ; texts are under {}", folder.display());
    Ok(())
}

/// Checks `base` out beside the output and builds it with an output folder of its own, which later calls reuse.
fn build_base(base: &str, folder: &Path) -> Result<PathBuf, String> {
    let tree = folder.join("base");
    let mut git = Command::new("git");
    git.current_dir(root());
    if tree.join(".git").exists() {
        let commit = Command::new("git").current_dir(root()).args(["rev-parse", "--verify", base]).output();
        let commit = commit.map_err(|e| format!("git: {e}"))?;
        if !commit.status.success() {
            return Err(format!("there is no commit {base}"));
        }
        git.current_dir(&tree).args([
            "checkout",
            "--quiet",
            "--detach",
            String::from_utf8_lossy(&commit.stdout).trim(),
        ]);
    } else {
        // A tree that was deleted by hand is still on git's list.
        run_command({
            let mut prune = Command::new("git");
            prune.current_dir(root()).args(["worktree", "prune"]);
            prune
        })?;
        git.args(["worktree", "add", "--detach"]).arg(&tree).arg(base);
    }
    run_command(git)?;
    let output = folder.join("base-target");
    let mut c = cargo(&["build", "--release", "--bin", "weft", "--no-default-features"]);
    c.current_dir(&tree).env("CARGO_TARGET_DIR", &output);
    run_command(c)?;
    Ok(output.join("release").join(format!("weft{}", std::env::consts::EXE_SUFFIX)))
}

/// Names of the built-in networks.
///
/// # Errors
/// When the command does not list them.
pub fn zoo(weft: &Path) -> Result<Vec<String>, String> {
    let listed = Command::new(weft).args(["zoo", "--json"]).output().map_err(|e| format!("weft zoo: {e}"))?;
    let json: serde_json::Value =
        serde_json::from_slice(&listed.stdout).map_err(|e| format!("weft zoo --json: {e}"))?;
    let models = json["models"].as_array().ok_or("weft zoo --json lists no models")?;
    Ok(models.iter().filter_map(|m| m["name"].as_str()).map(String::from).collect())
}

/// Compiles a model into an emptied `folder` and reads what came out.
fn kernels_of(weft: &Path, model: &str, folder: &Path) -> Result<Kernels, String> {
    let text = |e: std::io::Error| format!("{}: {e}", folder.display());
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(text)?;
    }
    std::fs::create_dir_all(folder).map_err(text)?;
    let mut c = Command::new(weft);
    c.args(["compile", model, "--target", PROFILE, "--emit", "wgsl", "--quiet", "--emit-dir"]).arg(folder);
    c.stdout(Stdio::null());
    let line = show(&c);
    run_command(c).map_err(|e| format!("{line}: {e}"))?;
    let mut kernels = Kernels::new();
    for entry in std::fs::read_dir(folder).map_err(text)?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|x| x == "wgsl") {
            kernels.insert(
                entry.file_name().to_string_lossy().into_owned(),
                std::fs::read_to_string(&path).map_err(text)?,
            );
        }
    }
    Ok(kernels)
}

/// Prints the differences of a model and returns their number.
fn report(model: &str, old: &Kernels, new: &Kernels) -> usize {
    let differences = compare(old, new);
    println!("{model}: {} kernels, {} differ", new.len(), differences.len());
    differences.iter().for_each(|(state, name)| println!("  {state:<8} {name}"));
    differences.len()
}

/// The changes of kernels between both. A text that only got another name counts as unchanged.
fn compare<'a>(old: &'a Kernels, new: &'a Kernels) -> Vec<(&'static str, &'a str)> {
    let old_texts: BTreeSet<&str> = old.values().map(String::as_str).collect();
    let new_texts: BTreeSet<&str> = new.values().map(String::as_str).collect();
    let mut list = Vec::new();
    for (name, text) in new.iter().filter(|(_, t)| !old_texts.contains(t.as_str())) {
        let state = if old.get(name).is_some_and(|o| o != text) { "changed" } else { "new" };
        list.push((state, name.as_str()));
    }
    let gone = old.iter().filter(|(n, t)| !new_texts.contains(t.as_str()) && !new.contains_key(*n));
    list.extend(gone.map(|(n, _)| ("gone", n.as_str())));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernels(list: &[(&str, &str)]) -> Kernels {
        list.iter().map(|(n, t)| (n.to_string(), t.to_string())).collect()
    }

    #[test]
    fn renamed_kernels_are_not_changes() {
        let old = kernels(&[("a", "1"), ("b", "2"), ("c", "3")]);
        assert_eq!(compare(&old, &kernels(&[("x", "1"), ("b", "2"), ("c", "3")])), []);
        let new = kernels(&[("a", "1"), ("b", "9"), ("d", "4")]);
        assert_eq!(compare(&old, &new), [("changed", "b"), ("new", "d"), ("gone", "c")]);
    }
}
