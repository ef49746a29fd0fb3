//! `weft cases` processes that are handed one case after another.

use super::ledger::Standing;
use crate::vulkan::quiet_loader;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Exit code of `weft` for operators that it does not have.
const UNSUPPORTED: i64 = 4;

/// Exit codes after which a process is not used again: the device's, and a bug's.
const DEVICE_OR_BUG: [i64; 2] = [5, 6];

/// A case that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whether small inputs may become constants.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Inputs {
    /// Inputs stay inputs.
    AsIs,
    /// Small ones become constants where the model is not imported, or not compiled for the device, without.
    Constants,
}

/// How a case ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Passed, and where, or what is missing.
    pub standing: Standing,
    /// Why it did not pass; empty where it did.
    pub why: String,
    /// Some inputs were made constants.
    pub constants: bool,
}

impl Outcome {
    fn fails(why: impl Into<String>) -> Outcome {
        Outcome { standing: Standing::Fails, why: why.into(), constants: false }
    }
}

/// All data sets of a case; the first that does not pass decides.
pub fn run_case(runner: &mut Runner<'_>, case: &Path, inputs: Inputs) -> Outcome {
    let sets = (0..).map(|set| case.join(format!("test_data_set_{set}"))).take_while(|data| data.exists());
    let mut outcome = Outcome::fails("has no test_data_set_0");
    for data in sets {
        outcome = runner.run(&case.join("model.onnx"), &data, inputs).unwrap_or_else(Outcome::fails);
        if !outcome.standing.passes() {
            break;
        }
    }
    outcome
}

/// A `weft cases` process that is started when it is needed, and again after a case that took it down.
pub struct Runner<'a> {
    weft: &'a Path,
    device: &'a str,
    process: Option<Process>,
}

/// The process, its stdin, and the lines of its stdout.
struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<'a> Runner<'a> {
    /// Of the program `weft`, on a device.
    pub fn new(weft: &'a Path, device: &'a str) -> Runner<'a> {
        Runner { weft, device, process: None }
    }

    /// Runs one data set.
    fn run(&mut self, model: &Path, data: &Path, inputs: Inputs) -> Result<Outcome, String> {
        let mut process = match self.process.take() {
            Some(p) => p,
            None => self.start()?,
        };
        let inputs = if inputs == Inputs::AsIs { "never" } else { "auto" };
        let asked = writeln!(process.stdin, "{}\t{}\t{inputs}", model.display(), data.display());
        asked.and_then(|()| process.stdin.flush()).map_err(|e| format!("weft takes no case: {e}"))?;
        let line = match process.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Err(format!("no answer in {} s", PATIENCE.as_secs())),
            Err(RecvTimeoutError::Disconnected) => {
                let ended = process.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
                return Err(format!("took weft down: {ended}"));
            }
        };
        let answer: serde_json::Value = serde_json::from_str(&line).map_err(|e| format!("`{line}`: {e}"))?;
        let code = answer["code"].as_i64().ok_or_else(|| format!("`{line}` has no code"))?;
        // A device may be lost for all that comes after, and a bug may leave anything behind.
        if !DEVICE_OR_BUG.contains(&code) {
            self.process = Some(process);
        }
        let constants = answer["constants"].as_array().is_some_and(|names| !names.is_empty());
        Ok(outcome_of(code, answer["message"].as_str().unwrap_or(""), constants))
    }

    fn start(&self) -> Result<Process, String> {
        let mut c = Command::new(self.weft);
        c.args(["cases", "--quiet", "--device", self.device]);
        c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        quiet_loader(&mut c);
        let mut child = c.spawn().map_err(|e| format!("weft does not start: {e}"))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("weft starts without pipes".into());
        };
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Process { child, stdin, lines })
    }
}

/// What an exit code and the text (an error, or where the case was computed) say.
fn outcome_of(code: i64, text: &str, constants: bool) -> Outcome {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("at: ")).collect();
    let message = lines[..lines.len().min(3)].join(" | ");
    let (standing, why) = match code {
        0 => match Standing::of_place(text) {
            Some(standing) => (standing, String::new()),
            None => (Standing::Fails, format!("computed on `{text}`")),
        },
        _ if message.contains("has the type") && message.contains("which is not supported") => {
            (Standing::NoType, message)
        }
        UNSUPPORTED => (Standing::NoOperator, message),
        c => (Standing::Fails, format!("exit code {c}: {message}")),
    };
    Outcome { standing, why, constants }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn what_is_missing_is_told_from_what_is_wrong() {
        let missing = "error[4]: tensor `x` has the type int4, which is not supported\n  at: model.onnx\n";
        let outcome = outcome_of(4, "error[4]: no Foo", false);
        assert!(outcome.standing == Standing::NoOperator && outcome.why.contains("Foo"));
        let outcome = outcome_of(4, missing, false);
        assert!(outcome.standing == Standing::NoType && !outcome.why.contains("model.onnx"));
        assert_eq!(outcome_of(1, "error[1]: results differ", false).standing, Standing::Fails);
        assert_eq!(outcome_of(0, "somewhere else", false).standing, Standing::Fails);
    }

    /// A stand-in for `weft` that answers with a script.
    #[cfg(unix)]
    fn answers(name: &str, script: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let program = std::env::temp_dir().join(format!("weft-{name}-{}", std::process::id()));
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    #[test]
    #[cfg(unix)]
    fn a_case_that_takes_the_process_down_costs_itself_alone() {
        let case = std::env::temp_dir().join(format!("weft-case-{}", std::process::id()));
        let echo =
            answers("echo", r#"while read -r line; do echo '{"code":0,"message":"device","constants":["n"]}'; done"#);
        let dies = answers("dies", "read -r line; exit 7");
        let run = |program: &Path, times: usize| {
            let mut runner = Runner::new(program, "interpreter");
            (0..times).map(|_| run_case(&mut runner, &case, Inputs::AsIs)).collect::<Vec<_>>().pop().unwrap()
        };
        assert!(run(&echo, 1).why.contains("test_data_set_0"));
        std::fs::create_dir_all(case.join("test_data_set_0")).unwrap();
        let good = run(&echo, 3);
        assert!(good.standing == Standing::Device && good.constants);
        assert!(run(&dies, 2).why.contains("took weft down"));
        assert!(run(Path::new("/no/such/program"), 1).why.contains("start"));
        for made in [echo, dies] {
            std::fs::remove_file(made).unwrap();
        }
        std::fs::remove_dir_all(&case).unwrap();
    }
}
