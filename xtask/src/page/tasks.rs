//! The tasks of a page's main thread, by Chromium's trace: with a network of 10,000 nodes none takes long.

use super::browser::{drive_traced, write};
use super::compiler::{driven_by, prepare};
use crate::cargo::target_dir;
use crate::report::find_browser;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout};
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
/// What the page said if a check failed; the longest task if it takes too long.
pub fn check(page: &Path) -> Result<(), String> {
    let Some(browser) = find_browser() else { return Ok(()) };
    let folder = target_dir()?.join("pages").join("tasks");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    prepare(page, &folder)?;
    driven_by(&folder, "tasks", DRIVE)?;
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

/// Tasks of a page's main thread, and the marks that the page set by `performance.mark`.
#[derive(Debug, Default)]
pub struct Tasks {
    /// Microseconds: when it began on the clock of the trace, and the CPU time that it took.
    all: Vec<(f64, f64)>,
    /// When they were set.
    marks: Vec<(f64, String)>,
}

impl Tasks {
    /// Of the events of a trace: the thread is that which has the marks.
    fn of(events: &[Value]) -> Tasks {
        let thread = |e: &Value| (e["pid"].as_u64(), e["tid"].as_u64());
        let is_mark = |e: &&Value| e["cat"] == "blink.user_timing" && e["name"] != "";
        let Some(own) = events.iter().find(is_mark).map(thread) else { return Tasks::default() };
        let on = || events.iter().filter(|e| thread(e) == own);
        let time = |e: &Value| e["ts"].as_f64().unwrap_or(0.0);
        let mark = |e: &Value| Some((time(e), e["name"].as_str()?.to_string()));
        let is_task = |e: &&Value| e["ph"] == "X" && e["name"].as_str().is_some_and(|n| n.ends_with("::RunTask"));
        Tasks {
            all: on().filter(is_task).filter_map(|e| Some((time(e), e["tdur"].as_f64()?))).collect(),
            marks: on().filter(is_mark).filter_map(mark).collect(),
        }
    }

    /// The most CPU time of a task, in milliseconds.
    pub fn most(&self) -> f64 {
        self.all.iter().map(|t| t.1 / 1e3).fold(0.0, f64::max)
    }

    /// The longest ones, each with the mark before it, as text.
    pub fn longest(&self) -> Vec<String> {
        let mut all = self.all.clone();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        let within = |at: f64| self.marks.iter().rfind(|m| m.0 <= at).map_or("the start", |m| &m.1);
        all.iter().take(20).map(|t| format!("{:.0} ms ({})", t.1 / 1e3, within(t.0))).collect()
    }
}

/// Chromium's protocol for developer tools by pipes: JSON, each message ended by a zero byte.
pub struct Protocol {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    calls: u32,
}

impl Protocol {
    /// Of a browser that was started with `--remote-debugging-pipe`.
    ///
    /// # Errors
    /// A process without pipes.
    pub fn new(browser: &mut Child) -> Result<Protocol, String> {
        let to = browser.stdin.take().ok_or("the browser has no pipe")?;
        let from = BufReader::new(browser.stdout.take().ok_or("the browser has no pipe")?);
        Ok(Protocol { to, from, calls: 0 })
    }

    /// Opens a page, with a trace of it.
    ///
    /// # Errors
    /// A browser that ends, or refuses it.
    pub fn begin(&mut self, address: &str) -> Result<(), String> {
        let traced = ["toplevel", "blink.user_timing"];
        let mode = "recordAsMuchAsPossible";
        let config = json!({ "includedCategories": traced, "excludedCategories": ["*"], "recordMode": mode });
        self.call("Tracing.start", &json!({ "transferMode": "ReportEvents", "traceConfig": config }))?;
        self.call("Target.createTarget", &json!({ "url": address }))
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// As for [`Protocol::begin`].
    pub fn end(mut self) -> Result<Tasks, String> {
        self.call("Tracing.end", &json!({}))?;
        let mut events = vec![];
        loop {
            let mut m = self.message()?;
            match m["method"].as_str() {
                Some("Tracing.dataCollected") => {
                    if let Value::Array(part) = m["params"]["value"].take() {
                        events.extend(part);
                    }
                }
                Some("Tracing.tracingComplete") => return Ok(Tasks::of(&events)),
                _ => {}
            }
        }
    }

    fn call(&mut self, method: &str, params: &Value) -> Result<(), String> {
        self.calls += 1;
        let text = json!({ "id": self.calls, "method": method, "params": params }).to_string();
        self.to.write_all(&[text.as_bytes(), &[0]].concat()).map_err(|e| format!("{method}: {e}"))?;
        loop {
            let answer = self.message()?;
            if answer["id"] == self.calls {
                return if answer["error"].is_null() { Ok(()) } else { Err(format!("{method}: {}", answer["error"])) };
            }
        }
    }

    fn message(&mut self) -> Result<Value, String> {
        let mut bytes = vec![];
        self.from.read_until(0, &mut bytes).map_err(|e| format!("the browser: {e}"))?;
        if bytes.pop() != Some(0) {
            return Err("the browser ended before its trace".into());
        }
        serde_json::from_slice(&bytes).map_err(|e| format!("the browser: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "ThreadControllerImpl::RunTask";

    #[test]
    fn tasks_are_those_of_the_thread_with_marks() {
        let task = |tid: u32, ts: u32, cpu: u32| {
            let mut e = json!({ "ph": "X", "name": RUN, "pid": 1 });
            (e["tid"], e["ts"], e["tdur"]) = (tid.into(), ts.into(), cpu.into());
            e
        };
        let mark = json!({ "ph": "R", "cat": "blink.user_timing", "name": "a step", "pid": 1, "tid": 2, "ts": 5 });
        let tasks = Tasks::of(&[task(3, 0, 90_000), task(2, 1, 2000), task(2, 6, 7000), mark]);
        assert_eq!(tasks.longest(), ["7 ms (a step)", "2 ms (the start)"]);
        assert!((tasks.most() - 7.0).abs() < 1e-9);
        assert_eq!(Tasks::of(&[task(3, 0, 1)]).most(), 0.0);
    }
}
