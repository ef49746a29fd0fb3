//! The commit of a release build, for the records of benchmarks: `WEFT_COMMIT` if it is set, else what git says.
//! Without git there is none. A debug build has none either, since it would be linked anew at every commit.

use std::path::Path;
use std::process::Command;

/// Folders of sources: a change in one makes another build.
const SOURCES: [&str; 9] = [
    "compiler/src",
    "compiler/tensor-ir/src",
    "shaders-gen/src",
    "runtime-cpu/src",
    "runtime-gpu/src",
    "facade/src",
    "graphview/src",
    "workbench/src",
    ".git/logs/HEAD",
];

fn main() {
    println!("cargo:rerun-if-env-changed=WEFT_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    let release = std::env::var("PROFILE").is_ok_and(|p| p == "release");
    if let Some(commit) = std::env::var("WEFT_COMMIT").ok().or_else(|| release.then(of_git).flatten()) {
        println!("cargo:rustc-env=WEFT_COMMIT={}", commit.trim());
    }
    println!("cargo:rustc-env=WEFT_PROFILE={}", if release { "release" } else { "debug" });
}

/// `0694b8110c55`, with `-dirty` where files differ from it.
fn of_git() -> Option<String> {
    let root = Path::new("..");
    for path in SOURCES.iter().map(|s| root.join(s)).filter(|p| p.exists()) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let words = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"];
    let out = Command::new("git").args(words).current_dir(root).output().ok().filter(|o| o.status.success())?;
    String::from_utf8(out.stdout).ok()
}
