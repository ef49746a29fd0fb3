//! The child process: runs cases one after another and prints a line for each.

use crate::corpus::Corpus;
use crate::target::Target;
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;

/// Where the last panic was, on whatever thread.
static PLACE: Mutex<String> = Mutex::new(String::new());

/// Runs the cases `from..from + count` of a corpus. Lines on stdout: `done NUMBER STAGE`, `find NUMBER MESSAGE`.
pub fn work(target: &'static Target, corpus: &Corpus, seed: u64, from: u64, count: u64) {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
        if let Ok(mut last) = PLACE.lock() {
            *last = place;
        }
    }));
    say("ready");
    for number in from..from.saturating_add(count) {
        let input = corpus.case(seed, number);
        let line = match std::panic::catch_unwind(AssertUnwindSafe(|| (target.run)(&input))) {
            Ok(Ok(stage)) => format!("done {number} {stage}"),
            Ok(Err(bug)) => format!("find {number} {}", one_line(&bug)),
            Err(payload) => {
                let place = PLACE.lock().map(|p| p.clone()).unwrap_or_default();
                format!("find {number} panic at {place}: {}", one_line(message(&*payload)))
            }
        };
        say(&line);
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The parent has gone: there is nobody to work for.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect()
}

fn message(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without text")
}
