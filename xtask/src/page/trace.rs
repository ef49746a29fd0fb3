//! Chromium's trace of a page: how much CPU time each task of its main thread took.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout};

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
