//! Defaults of options from a file: `weft.toml` in the folder where the command runs, or `--config FILE`.
//!
//! A key is an option without its dashes. Keys at the top are for every command that has the option, keys of a table
//! such as `[bench]` for this command. What stands on the command line counts before the file.

use crate::args::shared;
use clap::ArgAction;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use graphview::names::did_you_mean;
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};
use workbench::{Error, Result};

/// The file that is read where there is one.
const FILE: &str = "weft.toml";
/// For `--config`: no file.
const NONE: &str = "none";
/// Options that a file does not set: they start programs, load code, or name files to write.
const REFUSED: &[&str] = &[
    "allow-native",
    "c",
    "config",
    "emit-dir",
    "external",
    "host-call",
    "host-functions",
    "json",
    "output",
    "peer",
    "peer-python",
    "rust",
    "screenshot",
    "steps",
    "timeline",
    "web",
    "with-inputs",
    "with-outputs",
    "write-keep",
];

/// A default with its place in the file.
struct Default {
    key: String,
    /// As they would stand on the command line.
    words: Vec<OsString>,
    span: Range<usize>,
}

/// The file of a command line: the one that it names, else [`FILE`].
fn file_of(args: &[OsString]) -> Option<PathBuf> {
    let mut words = args.iter().map_while(|a| a.to_str().filter(|a| *a != "--"));
    while let Some(word) = words.next() {
        let named = match word.strip_prefix("--config") {
            Some("") => words.next(),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        if let Some(file) = named {
            return (file != NONE).then(|| PathBuf::from(file));
        }
    }
    Path::new(FILE).is_file().then(|| PathBuf::from(FILE))
}

/// The arguments with the defaults of the file put behind the command.
///
/// # Errors
/// A file that cannot be read, or a line of it that is wrong: the message has the file and the line.
pub fn with_defaults(args: Vec<OsString>) -> Result<Vec<OsString>> {
    let command = shared::command();
    let name = args.get(1).and_then(|a| a.to_str()).and_then(|a| command.find_subcommand(a)).map(|c| c.get_name());
    let (Some(name), Some(path)) = (name, file_of(&args)) else { return Ok(args) };
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|e| Error::usage(format!("cannot read {}: {e}", path.display())))?;
    let file = File { path: &path, text: &text, command: &command };
    let defaults = file.defaults(name)?;
    // A wrong command line has its own message.
    let Ok(given) = command.clone().try_get_matches_from(&args) else { return Ok(args) };
    let given = given.subcommand().map(|(_, m)| m.clone()).unwrap_or_default();
    let sub = command.find_subcommand(name);
    let id = |key: &str| sub.and_then(|c| c.get_arguments().find(|a| a.get_long() == Some(key))).map(|a| a.get_id());
    let mut out = args;
    for d in defaults.iter().rev() {
        if id(&d.key).is_some_and(|id| given.value_source(id.as_str()) == Some(ValueSource::CommandLine)) {
            continue;
        }
        let mut with = out.clone();
        with.splice(2..2, d.words.iter().cloned());
        match command.clone().try_get_matches_from(&with) {
            // It does not go together with an option of this command line.
            Err(e) if e.kind() == ErrorKind::ArgumentConflict => {}
            Err(e) => return Err(file.wrong(&d.span, &crate::error::of_usage(&e).to_string())),
            Ok(_) => out = with,
        }
    }
    Ok(out)
}

/// A file being read.
struct File<'a> {
    path: &'a Path,
    text: &'a str,
    command: &'a clap::Command,
}

impl File<'_> {
    /// An error in the line of a place.
    fn wrong(&self, span: &Range<usize>, why: &str) -> Error {
        let line = self.text[..span.start.min(self.text.len())].matches('\n').count() + 1;
        Error::usage(format!("{}:{line}: {why}", self.path.display()))
    }
    /// The defaults for a command; every line is checked, those for other commands too.
    fn defaults(&self, name: &str) -> Result<Vec<Default>> {
        let none = 0..0;
        let root = DeTable::parse(self.text);
        let root = root.map_err(|e| self.wrong(&e.span().unwrap_or(none), e.message()))?;
        let (mut of_all, mut own) = (vec![], vec![]);
        for (key, value) in root.get_ref() {
            let span = key.span();
            let DeValue::Table(section) = value.get_ref() else {
                let known = |c: &&clap::Command| has(c, key.get_ref());
                let commands: Vec<&clap::Command> = self.command.get_subcommands().filter(known).collect();
                let Some(arg) = commands.first().and_then(|c| arg_of(c, key.get_ref())) else {
                    let all = self.command.get_subcommands().flat_map(options).collect();
                    return Err(self.unknown(&span, "no command has an option", key.get_ref(), all));
                };
                let words = self.words(&span, arg, value.get_ref())?;
                if commands.iter().any(|c| c.get_name() == name) {
                    of_all.push(Default { key: key.get_ref().to_string(), words, span });
                }
                continue;
            };
            let Some(command) = self.command.find_subcommand(key.get_ref().as_ref()) else {
                let all = self.command.get_subcommands().map(|c| c.get_name().to_string()).collect();
                return Err(self.unknown(&span, "there is no command", key.get_ref(), all));
            };
            for (key, value) in section {
                let span = key.span();
                let Some(arg) = arg_of(command, key.get_ref()) else {
                    let said = format!("`weft {}` has no option", command.get_name());
                    return Err(self.unknown(&span, &said, key.get_ref(), options(command).collect()));
                };
                let words = self.words(&span, arg, value.get_ref())?;
                if command.get_name() == name {
                    own.push(Default { key: key.get_ref().to_string(), words, span });
                }
            }
        }
        of_all.retain(|d: &Default| own.iter().all(|o| o.key != d.key));
        of_all.extend(own);
        Ok(of_all)
    }
    fn unknown(&self, span: &Range<usize>, said: &str, key: &str, known: Vec<String>) -> Error {
        let error = self.wrong(span, &format!("{said} `{key}`"));
        match did_you_mean(key, known) {
            Some(help) => error.help(help),
            None => error.help("keys are options without their dashes, and `[bench]` begins those of one command"),
        }
    }
    /// A key with its value as words of the command line.
    fn words(&self, span: &Range<usize>, arg: &clap::Arg, value: &DeValue<'_>) -> Result<Vec<OsString>> {
        let key = arg.get_long().unwrap_or_default();
        if REFUSED.contains(&key) {
            let why = format!("`{key}` starts programs, loads code or names a file to write");
            return Err(self.wrong(span, &why).help(format!("give --{key} on the command line")));
        }
        let with = |text: &dyn std::fmt::Display| vec![OsString::from(format!("--{key}={text}"))];
        let flag = matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::Count);
        match value {
            DeValue::Boolean(false) if flag => Ok(vec![]),
            DeValue::Boolean(true) if flag => Ok(vec![format!("--{key}").into()]),
            DeValue::Integer(n) if matches!(arg.get_action(), ArgAction::Count) => {
                let count: usize = n.as_str().parse().unwrap_or(0);
                Ok(vec![format!("--{key}").into(); count.min(4)])
            }
            _ if flag => Err(self.wrong(span, &format!("`{key}` is true or false"))),
            DeValue::String(s) => Ok(with(s)),
            DeValue::Integer(n) => Ok(with(&n.as_str())),
            DeValue::Float(x) => Ok(with(&x.as_str())),
            DeValue::Boolean(b) => Ok(with(b)),
            DeValue::Array(list) => {
                let each = list.iter().map(|v| self.words(&v.span(), arg, v.get_ref()));
                Ok(each.collect::<Result<Vec<_>>>()?.concat())
            }
            _ => Err(self.wrong(span, &format!("`{key}` takes a text, a number, true, false or a list"))),
        }
    }
}

/// The options of a command as keys.
fn options(c: &clap::Command) -> impl Iterator<Item = String> {
    c.get_arguments().filter(|a| !a.is_hide_set()).filter_map(|a| a.get_long()).map(str::to_string)
}

fn arg_of<'a>(c: &'a clap::Command, key: &str) -> Option<&'a clap::Arg> {
    c.get_arguments().find(|a| a.get_long() == Some(key) && !a.is_hide_set())
}

fn has(c: &clap::Command, key: &str) -> bool {
    arg_of(c, key).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command line with the defaults of this file.
    fn with(text: &str, line: &str) -> Result<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("my.toml");
        std::fs::write(&path, text).expect("it can be written");
        let mut args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        args.extend(["--config".into(), path.into()]);
        let out = with_defaults(args).map_err(|e| {
            let said = e.to_string();
            Error::usage(said.replace(&format!("{}/", folder.path().display()), ""))
        })?;
        let words: Vec<String> = out.iter().map(|w| w.to_string_lossy().into_owned()).collect();
        Ok(words[..words.len() - 2].join(" "))
    }

    #[test]
    fn a_file_has_defaults_for_all_commands_and_for_one() {
        let text = "device = \"cpu\"\nthreads = 2\n[bench]\nruns = 5\nper-kernel = true\nthreads = 1\n";
        let made = with(text, "weft bench m.onnx").expect("a right file");
        assert_eq!(made, "weft bench --device=cpu --per-kernel --runs=5 --threads=1 m.onnx");
        assert_eq!(with(text, "weft run m.onnx").unwrap(), "weft run --device=cpu --threads=2 m.onnx");
        // A command that has no such option goes without.
        assert_eq!(with(text, "weft zoo").unwrap(), "weft zoo");
        // The command line counts first.
        assert_eq!(
            with(text, "weft bench m.onnx --runs 9 --threads 4").unwrap(),
            "weft bench --device=cpu --per-kernel m.onnx --runs 9 --threads 4"
        );
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        let said = |text: &str| with(text, "weft bench m.onnx").expect_err("a wrong file").to_string();
        for (text, wanted) in [
            ("device = \"cpu\"\nthread = 2\n", "my.toml:2: no command has an option `thread`"),
            ("\n[benchs]\nruns = 1\n", "my.toml:2: there is no command `benchs`"),
            ("[bench]\nleft = true\n", "my.toml:2: `weft bench` has no option `left`"),
            ("[bench]\n\nruns = \"many\"\n", "my.toml:3: "),
            ("a = \n", "my.toml:1: "),
        ] {
            assert!(said(text).contains(wanted), "{}", said(text));
        }
        // A file of strangers starts and writes nothing.
        for key in ["external", "output", "peer-python"] {
            let section = if key == "peer-python" { "compare" } else { "bench" };
            let text = said(&format!("[{section}]\n{key} = \"x\"\n"));
            assert!(text.contains(&format!("my.toml:2: `{key}` starts programs")), "{text}");
        }
    }

    #[test]
    fn the_refused_options_are_there() {
        let command = shared::command();
        for key in REFUSED {
            assert!(command.get_subcommands().any(|c| has(c, key)), "{key}");
        }
    }
}
