//! The tasks of a page's main thread, by Chromium's trace: with a network of 10,000 nodes none takes long.

use super::browser::{drive_traced, write};
use super::compiler::driven;
use crate::report::find_browser;
use std::path::Path;
use std::time::Duration;

/// The script that drives the page.
const DRIVE: &str = include_str!("drive_tasks.js");

/// Milliseconds of CPU time that a task of the main thread may take, in the page and in its report.
const MOST: f64 = 200.0;

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(240);

/// Drives the page in `page` with a large network.
///
/// # Errors
/// The words of the page if a check failed; the longest task if it takes too long.
pub fn check(page: &Path) -> Result<(), String> {
    let Some(browser) = find_browser() else { return Ok(()) };
    let folder = driven(page, "tasks", DRIVE)?;
    let (said, tasks) = drive_traced(browser, &folder, "tasks.html", &folder.join("browser"), LIMIT)?;
    let seen = said.strip_prefix("ok ").ok_or_else(|| format!("a large network in the page: {said}"))?;
    let longest = tasks.longest();
    write(&folder.join("longest"), longest.join("\n").as_bytes())?;
    let first = longest.first().ok_or("Chromium traced no task of the page")?;
    if tasks.most() > MOST {
        return Err(format!("a task of the main thread takes more than {MOST} ms of CPU time: {first}"));
    }
    eprintln!("a large network in the page: {seen}; the longest task of its main thread: {first}");
    Ok(())
}
