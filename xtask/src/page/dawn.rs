//! Pages of `weft export --web` by npm's Dawn for Node: WebGPU without a browser, and on drivers that browsers refuse.
//!
//! `WEFT_DAWN_NODE` is the command that runs Node, where it is not `node`: for instance through the loader of a driver
//! that has halves.

use super::browser::write;
use super::compiler::agrees;
use super::exports::NETWORKS;
use crate::cargo::{run, succeeds, target_dir};
use crate::report::succeed;
use std::path::Path;
use std::process::Command;

/// The script that runs a network.
const SCRIPT: &str = include_str!("dawn.mjs");

/// npm's package of Dawn.
const PACKAGE: &str = "webgpu@0.6.2";

/// Runs the networks that pages are driven with, and one in halves. Where there is no Node, or the package cannot be
/// had, that is said loudly.
///
/// # Errors
/// The first network that fails.
pub fn check(weft: &Path) -> Result<(), String> {
    let folder = target_dir()?.join("pages").join("dawn");
    write(&folder.join("dawn.mjs"), SCRIPT.as_bytes())?;
    let there = folder.join("node_modules/webgpu/index.js").is_file();
    if !there && !succeeds("npm", &["install", "--prefix", &folder.display().to_string(), PACKAGE]) {
        eprintln!("\n!!! npm does not install {PACKAGE}, so no page is run by Dawn for Node\n");
        return Ok(());
    }
    for (name, text) in NETWORKS {
        let model = folder.join(format!("{name}.weft"));
        write(&model, text.as_bytes())?;
        check_one(weft, &folder, &model, &["--target", "baseline"])?;
    }
    let model = folder.join(format!("{}.weft", NETWORKS[0].0));
    check_one(weft, &folder, &model, &["--target", "webgpu", "--amp", "fp16"])
}

fn check_one(weft: &Path, folder: &Path, model: &Path, options: &[&str]) -> Result<(), String> {
    let name = model.file_stem().unwrap_or_default().to_string_lossy();
    let page = folder.join(format!("{name}{}", options.concat().replace("--", "-")));
    if page.exists() {
        std::fs::remove_dir_all(&page).map_err(|e| format!("{}: {e}", page.display()))?;
    }
    succeed(Command::new(weft).arg("export").arg(model).arg("-q").args(options).arg("--web").arg(&page))?;
    let node = std::env::var("WEFT_DAWN_NODE").unwrap_or_else(|_| "node".into());
    let mut words = node.split_whitespace();
    let mut c = Command::new(words.next().unwrap_or("node"));
    eprint!("Dawn for Node, {name} {}: ", options.join(" "));
    run({
        c.args(words).arg(folder.join("dawn.mjs")).arg(&page);
        c
    })?;
    let ran = page.join("run").join("outputs.npz").is_file();
    // Halves that are not granted are no failure, and nothing else may leave a run out.
    let in_halves = options.contains(&"fp16");
    match (ran, in_halves) {
        (true, _) => agrees(weft, &model.display().to_string(), tolerances(in_halves), &page.join("run")),
        (false, true) => Ok(()),
        (false, false) => Err(format!("{name} did not run")),
    }
}

/// Halves have eleven bits.
fn tolerances(in_halves: bool) -> &'static [&'static str] {
    if in_halves { &["--rtol", "0.01", "--atol", "0.01"] } else { &[] }
}
