//! Pages of `weft export --web`, driven.
//!
//! Each model is written and served on this machine; a script drives the page in headless Chromium, on a software
//! adapter: it runs the network, times it, sorts, opens a kernel, and meets a lost device, wrong inputs and adapters
//! that lack something. What went into a run and came out of it is compared by `weft compare`.

use super::browser::{drive, write};
use crate::cargo::target_dir;
use crate::report::{find_browser, succeed};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The script that drives a page.
const DRIVE: &str = include_str!("drive.js");
/// The module that scripts which drive pages share.
pub const SEEN: &str = include_str!("seen.js");

/// A network with convolutions, one with a branch that data decide, whose integers and truth values are words; loops of
/// which data decide the end, the trips and the rows of a result; a quantised one.
pub const NETWORKS: [(&str, &str); 6] = [
    ("convolutions", include_str!("convolutions.weft")),
    ("branch", include_str!("branch.weft")),
    ("loop", include_str!("loop.weft")),
    ("while", include_str!("while.weft")),
    ("rows", include_str!("rows.weft")),
    ("quantised", include_str!("quantised.weft")),
];

/// Profiles that pages are for: what every browser has, and what browsers have on large cards.
const TARGETS: [&str; 2] = ["baseline", "webgpu"];

/// How long a page may take: software compiles its pipelines.
const LIMIT: Duration = Duration::from_secs(240);

/// Drives the pages of `models`, with the program `weft`.
///
/// # Errors
/// The first page that failed, with what it said. Where there is no browser and none can be installed, that is said
/// loudly.
pub fn check(weft: &Path, models: &[String]) -> Result<(), String> {
    let Some(browser) = find_browser() else { return Ok(()) };
    let folder = target_dir()?.join("pages");
    let mut all: Vec<String> = models.to_vec();
    if all.is_empty() {
        for (name, text) in NETWORKS {
            let file = folder.join(format!("{name}.weft"));
            write(&file, text.as_bytes())?;
            all.push(file.display().to_string());
        }
    }
    for (n, model) in all.iter().enumerate() {
        for target in TARGETS {
            let folder = folder.join(format!("{n}-{target}"));
            check_one(weft, browser, (model, target), &folder)
                .map_err(|e| format!("the page of {model} for {target}: {e}"))?;
        }
    }
    Ok(())
}

fn check_one(weft: &Path, browser: &str, (model, target): (&str, &str), folder: &Path) -> Result<(), String> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    succeed(Command::new(weft).args(["export", model, "-q", "--target", target, "--web"]).arg(folder))?;
    let index = folder.join("index.html");
    let page = std::fs::read_to_string(&index).map_err(|e| format!("{}: {e}", index.display()))?;
    write(
        &folder.join("driven.html"),
        page.replace("</html>", "<script type=\"module\" src=\"drive.js\"></script></html>").as_bytes(),
    )?;
    write(&folder.join("drive.js"), DRIVE.as_bytes())?;
    write(&folder.join("seen.js"), SEEN.as_bytes())?;
    let said = drive(browser, folder, "driven.html", &folder.join("browser"), LIMIT)?;
    match said.strip_prefix("ok ") {
        Some(seen) => eprintln!("the page of {model} for {target}: {seen}"),
        None => return Err(said),
    }
    // The interpreter is the judge of what the browser computed.
    let runs = folder.join("run");
    let mut c = Command::new(weft);
    c.args(["compare", model, "--device", "cpu", "-q", "-i"]).arg(runs.join("inputs.npz"));
    c.arg("--against").arg(runs.join("outputs.npz"));
    succeed(&mut c)
}
