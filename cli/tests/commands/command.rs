//! One way to start the command, and what is asked of how it ended.
//!
//! `weft(&["run", "net.weft"])` and `line("run net.weft")` are commands on device 0; they run with [`Weft::run`].

use serde_json::Value;
use std::ffi::OsStr;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The command with arguments, which has not run yet.
pub struct Weft(Command);

/// The command's program.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_weft");

/// The command, which arguments may be added to.
pub fn command() -> Weft {
    Weft::of(PROGRAM)
}

/// The command with these arguments.
pub fn weft(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Weft {
    command().args(args)
}

/// The command with the words of a line.
pub fn line(words: &str) -> Weft {
    weft(words.split(' '))
}

/// The folder of the package's examples, which cargo builds before its tests, next to that of the test's program.
pub fn examples() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    test.ancestors().nth(2).expect("target/<profile>/deps/<test>").join("examples")
}

/// An example of the package: the command with more registered in it.
pub fn example(name: &str) -> Weft {
    Weft::of(examples().join(format!("{name}{}", std::env::consts::EXE_SUFFIX)))
}

/// True on a machine with a device that runs shaders, as continuous integration has.
pub fn has_adapter() -> bool {
    let found = line("devices --json").run().json()["devices"].as_array().is_some_and(|d| !d.is_empty());
    if !found {
        eprintln!("!!! no adapter: what needs one is left out");
    }
    found
}

impl Weft {
    /// Another program that takes the command's arguments.
    pub fn of(program: impl AsRef<OsStr>) -> Weft {
        let mut command = Command::new(program);
        command.env("WEFT_DEVICE", "0");
        Weft(command)
    }
    /// More arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Weft {
        self.0.args(args);
        self
    }
    /// The folder that it runs in.
    pub fn at(mut self, folder: impl AsRef<Path>) -> Weft {
        self.0.current_dir(folder);
        self
    }
    /// A variable of its environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Weft {
        self.0.env(name, value);
        self
    }
    /// The environment without a variable.
    pub fn without(mut self, name: &str) -> Weft {
        self.0.env_remove(name);
        self
    }
    /// What it reads from its standard input.
    pub fn input(mut self, text: &str) -> Weft {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(text.as_bytes()).and_then(|()| file.rewind()).expect("the input is written");
        self.0.stdin(file);
        self
    }
    /// The process, for what is neither waited for nor read as usual.
    pub fn process(self) -> Command {
        self.0
    }
    /// Runs it to its end.
    pub fn run(mut self) -> Ran {
        let out = self.0.output();
        let command = format!("{:?}", self.0);
        let out = out.unwrap_or_else(|e| panic!("{command}: {e}"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { command, code: out.status.code(), stdout: text(&out.stdout), stderr: text(&out.stderr) }
    }
}

/// How the command ended.
pub struct Ran {
    command: String,
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// All that it printed.
    pub fn said(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
    /// It ended with this code.
    #[track_caller]
    pub fn ended(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{} said:\n{}", self.command, self.said());
        self
    }
    /// It ended without an error.
    #[track_caller]
    pub fn succeeded(self) -> Ran {
        self.ended(0)
    }
    /// It ended with an error of this code, whose text has this message.
    #[track_caller]
    pub fn refused(self, code: i32, message: &str) -> Ran {
        let ran = self.ended(code);
        let (command, text) = (&ran.command, &ran.stderr);
        assert!(ran.error().starts_with(&format!("error[{code}]: ")), "{command} said:\n{text}");
        assert!(text.contains(message), "{command} does not say `{message}`:\n{text}");
        assert!(!text.contains("panicked") && !text.contains("backtrace"), "{command} said:\n{text}");
        ran
    }
    /// The first line of its error: `error[3]: cannot read absent.onnx`.
    #[track_caller]
    pub fn error(&self) -> &str {
        let line = self.stderr.lines().find(|l| l.starts_with("error["));
        line.unwrap_or_else(|| panic!("{} has no error:\n{}", self.command, self.stderr))
    }
    /// What it printed, as JSON, whatever its exit code.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{}: {e}\n{}", self.command, self.said()))
    }
}
