//! Pages of `weft export --web` by npm's Dawn for Node: WebGPU without a browser, on software drivers
//! (`scripts/with-driver.sh`): one without halves, and one that has them and that browsers refuse.

use super::browser::write;
use super::compiler::agrees;
use super::exports::NETWORKS;
use crate::cargo::{succeeds, target_dir};
use crate::driver;
use crate::report::succeed;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The script that runs a network.
const SCRIPT: &str = include_str!("dawn.mjs");

/// npm's package of Dawn.
const PACKAGE: &str = "webgpu@0.6.2";

/// A software driver without halves, and one that has them.
const DRIVER: &str = "swiftshader";
const HALVES: &str = "lavapipe-new";

/// Runs the networks that pages are driven with, and one in halves. Where there is no Node, or the package or a driver
/// cannot be had, that is said loudly.
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
    let cannot_be_had = |driver: &str| {
        let why = driver::run(&[driver.into(), "true".into()]).err()?;
        eprintln!("\n!!! {driver} cannot be had ({why}), so no network runs on it by Dawn for Node\n");
        Some(())
    };
    if cannot_be_had(DRIVER).is_some() {
        return Ok(());
    }
    for (name, text) in NETWORKS {
        let model = folder.join(format!("{name}.weft"));
        write(&model, text.as_bytes())?;
        let page = exported(weft, &folder, &model, &["--target", "baseline"])?;
        if !ran(weft, &model, &page, DRIVER, &[])? {
            return Err(format!("{name} did not run"));
        }
    }
    let model = folder.join(format!("{}.weft", NETWORKS[0].0));
    let page = exported(weft, &folder, &model, &["--target", "webgpu", "--amp", "fp16"])?;
    if ran(weft, &model, &page, DRIVER, HALF)? {
        return Err(format!("{DRIVER} grants halves"));
    }
    if cannot_be_had(HALVES).is_some() || ran(weft, &model, &page, HALVES, HALF)? {
        return Ok(());
    }
    Err(format!("{HALVES} grants no halves"))
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

/// Runs a page's network on a driver; gives whether that has what the network needs, which the script checks is said if
/// not. The interpreter is the judge of its results.
fn ran(weft: &Path, model: &Path, page: &Path, driver: &str, tolerances: &[&str]) -> Result<bool, String> {
    eprint!("Dawn for Node, {}: ", page.file_name().unwrap_or_default().to_string_lossy());
    let script = page.with_file_name("dawn.mjs");
    let words = [driver, "node", &script.display().to_string(), &page.display().to_string()].map(String::from);
    driver::run(&words)?;
    if !page.join("run").join("outputs.npz").is_file() {
        return Ok(false);
    }
    agrees(weft, &model.display().to_string(), tolerances, &page.join("run"))?;
    Ok(true)
}

/// Halves have eleven bits.
const HALF: &[&str] = &["--rtol", "0.01", "--atol", "0.01"];
