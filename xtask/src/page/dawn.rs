//! Pages of `weft export --web` by npm's Dawn for Node: WebGPU without a browser, and on drivers that browsers refuse.
//!
//! Where this machine's driver grants no halves, the network in halves also runs on a driver that has them
//! (`scripts/with-driver.sh`).

use super::browser::write;
use super::compiler::agrees;
use super::exports::NETWORKS;
use crate::cargo::{run, succeeds, target_dir};
use crate::driver;
use crate::report::succeed;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The script that runs a network.
const SCRIPT: &str = include_str!("dawn.mjs");

/// npm's package of Dawn.
const PACKAGE: &str = "webgpu@0.6.2";

/// A software driver that has halves.
const HALVES: &str = "lavapipe-new";

/// Runs the networks that pages are driven with, and one in halves. Where there is no Node, or the package or a driver
/// with halves cannot be had, that is said loudly.
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
        let page = exported(weft, &folder, &model, &["--target", "baseline"])?;
        if !ran(weft, &model, &page, None, &[])? {
            return Err(format!("{name} did not run"));
        }
    }
    let model = folder.join(format!("{}.weft", NETWORKS[0].0));
    let page = exported(weft, &folder, &model, &["--target", "webgpu", "--amp", "fp16"])?;
    // Halves that are not granted are a sentence, and a driver that has them is asked next.
    if ran(weft, &model, &page, None, HALF)? {
        return Ok(());
    }
    if let Err(why) = driver::run(&[HALVES.into(), "true".into()]) {
        eprintln!("\n!!! {HALVES} cannot be had ({why}), so no network runs in halves by Dawn for Node\n");
        return Ok(());
    }
    if ran(weft, &model, &page, Some(HALVES), HALF)? { Ok(()) } else { Err(format!("{HALVES} grants no halves")) }
}

/// Exports a model; gives the folder.
fn exported(weft: &Path, folder: &Path, model: &Path, options: &[&str]) -> Result<PathBuf, String> {
    let name = model.file_stem().unwrap_or_default().to_string_lossy();
    let page = folder.join(format!("{name}{}", options.concat().replace("--", "-")));
    if page.exists() {
        std::fs::remove_dir_all(&page).map_err(|e| format!("{}: {e}", page.display()))?;
    }
    succeed(Command::new(weft).arg("export").arg(model).arg("-q").args(options).arg("--web").arg(&page))?;
    Ok(page)
}

/// Runs a page's network, on a software driver or on what is here; gives whether that has what the network needs. The
/// interpreter is the judge of its results.
fn ran(weft: &Path, model: &Path, page: &Path, on: Option<&str>, tolerances: &[&str]) -> Result<bool, String> {
    eprint!("Dawn for Node, {}: ", page.file_name().unwrap_or_default().to_string_lossy());
    let words = ["node".to_string(), page.with_file_name("dawn.mjs").display().to_string(), page.display().to_string()];
    match on {
        Some(name) => driver::run(&[&[name.to_string()], &words[..]].concat())?,
        None => run({
            let mut c = Command::new(&words[0]);
            c.args(&words[1..]);
            c
        })?,
    }
    if !page.join("run").join("outputs.npz").is_file() {
        return Ok(false);
    }
    agrees(weft, &model.display().to_string(), tolerances, &page.join("run"))?;
    Ok(true)
}

/// Halves have eleven bits.
const HALF: &[&str] = &["--rtol", "0.01", "--atol", "0.01"];
