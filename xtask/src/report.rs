//! `cargo xtask report [MODEL ...]`: the HTML report in a browser.
//!
//! Each model is compiled and timed to a trace, its report is opened in headless Chromium, and a script drives it like
//! a reader: it pans, zooms, folds, searches, follows links, switches colours and sides, steps through the passes and
//! opens the tables, in windows as wide as a desk's, a tablet's and a phone's. The script tells the page
//! around it what it saw, and the browser prints that.

use crate::cargo::{build_weft, succeeds, target_dir};
use crate::heading::heading;
use crate::vulkan::apt_install;
use std::path::Path;
use std::process::{Command, Stdio};

/// One line for the usage.
pub const HELP: &str =
    "[MODEL ...] drives the HTML report of each model in headless Chromium (squeezenet1_1 by default)";

/// What is added to a report, to drive it.
const DRIVE: &str = include_str!("report/drive.js");

/// The page around a driven report.
const WINDOW: &str = include_str!("report/window.html");

/// Width and height of the windows.
const WINDOWS: [(u32, u32); 3] = [(1400, 900), (800, 1000), (390, 844)];

/// Programs that may be Chromium.
const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Runs the command.
///
/// # Errors
/// Lists the reports that failed.
pub fn run(args: &[String]) -> Result<(), String> {
    heading("cargo build --package weft-command");
    let weft = build_weft(false)?;
    check(&weft, args)
}

/// Drives the reports of `models`, with the program `weft`.
///
/// # Errors
/// The first report that failed, with what the browser said. Where there is no browser and none can be installed, that
/// is said loudly.
pub fn check(weft: &Path, models: &[String]) -> Result<(), String> {
    let Some(browser) = find_browser() else { return Ok(()) };
    let models = if models.is_empty() { vec!["squeezenet1_1".to_string()] } else { models.to_vec() };
    let folder = target_dir()?.join("reports");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    models.iter().try_for_each(|m| check_one(weft, browser, m, &folder))
}

/// A browser; it is installed where apt allows it.
pub fn find_browser() -> Option<&'static str> {
    let here = || BROWSERS.iter().copied().find(|b| succeeds(b, &["--version"]));
    if let Some(found) = here() {
        return Some(found);
    }
    let why = apt_install(&["chromium"]).err();
    let found = here();
    if found.is_none() {
        let why = why.map(|w| format!(" ({w})")).unwrap_or_default();
        eprintln!(
            "\n!!! Chromium is not here{why}, so reports are not opened; most distributions have the package chromium\n"
        );
    }
    found
}

fn check_one(weft: &Path, browser: &str, model: &str, folder: &Path) -> Result<(), String> {
    let file = |end: &str| folder.join(format!("{}.{end}", model.replace(['/', '\\'], "_")));
    let (trace, html, driven) = (file("trace"), file("html"), file("driven.html"));
    measure(weft, model, &trace)?;
    // Another compilation stands beside it.
    let apart = file("apart.trace");
    let compile = ["compile", model, "--target", "lavapipe", "--fuse", "off", "-q", "-o"];
    succeed(Command::new(weft).args(compile).arg(&apart))?;
    succeed(Command::new(weft).arg("report").arg(&trace).arg("--beside").arg(&apart).arg("-o").arg(&html))?;
    let page = std::fs::read_to_string(&html).map_err(|e| format!("{}: {e}", html.display()))?;
    let page = page.replacen("</body>", &format!("<script>{DRIVE}</script></body>"), 1);
    std::fs::write(&driven, page).map_err(|e| format!("{}: {e}", driven.display()))?;
    WINDOWS.iter().try_for_each(|&(width, height)| {
        let window = file(&format!("{width}.html"));
        let page = WINDOW.replacen("{{page}}", &format!("file://{}", driven.display()), 1);
        let page = page.replacen("{{width}}", &width.to_string(), 1).replacen("{{height}}", &height.to_string(), 1);
        std::fs::write(&window, page).map_err(|e| format!("{}: {e}", window.display()))?;
        drive(browser, &format!("the report of {model}, {width} pixels wide"), &window, &folder.join("browser"))
    })
}

/// A trace with times, or without them where no device runs shaders.
fn measure(weft: &Path, model: &str, trace: &Path) -> Result<(), String> {
    let run = ["bench", model, "--device", "0", "--warmup", "1", "--runs", "2", "-q", "-o"];
    let Err(why) = succeed(Command::new(weft).args(run).arg(trace)) else { return Ok(()) };
    eprintln!("\n!!! {model} does not run here, so its report has no times ({why})\n");
    succeed(Command::new(weft).args(["compile", model, "--target", "lavapipe", "-q", "-o"]).arg(trace))
}

/// Opens the page around a driven report.
fn drive(browser: &str, place: &str, window: &Path, profile: &Path) -> Result<(), String> {
    let mut c = Command::new(browser);
    c.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--hide-scrollbars", "--virtual-time-budget=10000", "--dump-dom"])
        .arg("--window-size=1440,1040")
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", window.display()));
    let out = c.stdin(Stdio::null()).output().map_err(|e| format!("{browser}: {e}"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    if let Some(line) = said.lines().find(|l| l.contains(":CONSOLE")) {
        return Err(format!("{place}, writes to the console: {line}"));
    }
    let dom = String::from_utf8_lossy(&out.stdout);
    let seen = between(&dom, "<pre id=\"driven\">", "</pre>")
        .ok_or_else(|| format!("the script did not end in {place}: {}", said.trim()))?;
    if seen.starts_with("ok") {
        eprintln!("{place}: {seen}");
        return Ok(());
    }
    Err(format!("{place}: {seen}"))
}

fn between<'t>(text: &'t str, start: &str, end: &str) -> Option<&'t str> {
    let rest = &text[text.find(start)? + start.len()..];
    Some(&rest[..rest.find(end)?])
}

/// Runs a command.
///
/// # Errors
/// The command and what it wrote to stderr, unless it succeeded.
pub fn succeed(c: &mut Command) -> Result<(), String> {
    let o = c.stdin(Stdio::null()).output().map_err(|e| format!("{c:?}: {e}"))?;
    if o.status.success() { Ok(()) } else { Err(format!("{c:?}: {}", String::from_utf8_lossy(&o.stderr))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_two_marks() {
        assert_eq!(between("a<b>c</b>", "<b>", "</b>"), Some("c"));
        assert_eq!(between("a<b>c", "<b>", "</b>"), None);
    }
}
