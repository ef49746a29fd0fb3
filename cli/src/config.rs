//! Defaults of options from a file: `weft.toml` in the folder where the command runs, or `--config FILE`.
//!
//! A key is an option without its dashes. Keys at the top are for every command that has the option, keys of a table
//! such as `[bench]` for this command. What stands on the command line counts before the file.

use crate::args::headings::INPUTS;
use crate::args::shared;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use graphview::names::did_you_mean;
use std::any::TypeId;
use std::ffi::OsString;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};
use workbench::options::Tabled;
use workbench::settings::Settings;
use workbench::{Error, Result};

/// The file that is read where there is one.
const FILE: &str = "weft.toml";
/// For `--config`: no file.
const NONE: &str = "none";
/// Bytes of a file, at most.
const MOST: u64 = 1 << 20;
/// Options that a file does not set, since they start programs, load code, or change what is there.
const REFUSED: &[&str] = &["allow-native", "external", "host-call", "host-functions", "keep", "mend", "peer"];
/// Options with texts that may name a file, beside those whose values are paths.
const OF_FILES: &[&str] = &["input", "json", "sweep"];
/// Options that name a file, but for these values.
const OR_WORDS: &[(&str, &[&str])] =
    &[("against", &["reference", "fp32"]), ("cache", &["off"]), ("tuning", &["off", "require"])];

/// A default with its place in the file.
struct Default {
    key: String,
    /// As they would stand on the command line.
    words: Vec<OsString>,
    span: Range<usize>,
}

/// A default that is in force.
struct InForce {
    id: String,
    key: String,
    values: Vec<String>,
    /// File and line.
    place: String,
}

impl InForce {
    fn is_named_by(&self, message: &str) -> bool {
        let of_value = |v: &String| message.contains(&self.key) && message.contains(&format!("`{v}`"));
        message.contains(&format!("--{}", self.key)) || self.values.iter().any(of_value)
    }
}

/// A command line with defaults in it.
pub struct Filled {
    /// The arguments.
    pub args: Vec<OsString>,
    /// The defaults among them.
    defaults: Vec<InForce>,
}

impl Filled {
    /// The ids of options that have their defaults.
    pub fn ids(&self) -> Vec<String> {
        self.defaults.iter().map(|d| d.id.clone()).collect()
    }
    /// An error of the command, with the line of the default that it is about.
    pub fn placed(&self, e: Error) -> Error {
        match self.defaults.iter().find(|d| e.place.is_none() && d.is_named_by(&e.message)) {
            Some(d) => e.at(&d.place),
            None => e,
        }
    }
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

/// The text of a plain file that is not large.
fn read(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    weft::plain_files::open_plain(path)?.take(MOST + 1).read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes).ok().filter(|t| !t.contains('\0'));
    match text {
        Some(text) if text.len() as u64 <= MOST => Ok(text),
        Some(_) => Err(std::io::Error::other("it has more than 1 MiB")),
        None => Err(std::io::Error::other("it is no text file")),
    }
}

/// The arguments with the defaults of the file put behind the command.
///
/// # Errors
/// A file that cannot be read, or a line of it that is wrong: the message has the file and the line.
pub fn with_defaults(args: Vec<OsString>) -> Result<Filled> {
    let command = shared::command();
    let sub = args.get(1).and_then(|a| a.to_str()).and_then(|a| command.find_subcommand(a));
    // Commands that no help shows are started by others, with all that they need.
    let (Some(sub), Some(path)) = (sub.filter(|c| !c.is_hide_set()), file_of(&args)) else {
        return Ok(Filled { args, defaults: vec![] });
    };
    let text = read(&path).map_err(|e| Error::usage(format!("cannot read {}: {e}", path.display())))?;
    let file = File { path: &path, text: &text, command: &command };
    let defaults = file.defaults(sub.get_name())?;
    match command.clone().try_get_matches_from(&args) {
        Ok(given) => {
            let given = given.subcommand().map(|(_, m)| m.clone()).unwrap_or_default();
            file.filled(sub, args, defaults, &given)
        }
        // A wrong command line has its own message.
        Err(_) => Ok(Filled { args, defaults: vec![] }),
    }
}

/// A file being read.
struct File<'a> {
    path: &'a Path,
    text: &'a str,
    command: &'a Command,
}

impl File<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        self.text[..span.start.min(self.text.len())].matches('\n').count() + 1
    }
    /// An error in the line of a place.
    fn wrong(&self, span: &Range<usize>, why: &str) -> Error {
        Error::usage(format!("{}:{}: {why}", self.path.display(), self.line(span)))
    }
    fn wrong_value(&self, span: &Range<usize>, e: &clap::Error) -> Error {
        let said = crate::error::of_usage(e);
        Error { help: said.help, ..self.wrong(span, &said.message) }
    }
    /// The command line with those defaults that fit it.
    fn filled(&self, sub: &Command, args: Vec<OsString>, all: Vec<Default>, given: &ArgMatches) -> Result<Filled> {
        let has_inputs = from_line(given, "files") || from_line(given, "data");
        let mut out = Filled { args, defaults: vec![] };
        let mut left: Vec<(Default, &Arg)> =
            all.into_iter().rev().filter_map(|d| arg_of(sub, &d.key).map(|arg| (d, arg))).collect();
        left.retain(|(_, arg)| !from_line(given, arg.get_id().as_str()));
        left.retain(|(_, arg)| has_inputs || arg.get_help_heading() != Some(INPUTS));
        // One that needs another option is tried again when there are more.
        loop {
            let (before, tried) = (left.len(), std::mem::take(&mut left));
            for (d, arg) in tried {
                let mut with = out.args.clone();
                with.splice(2..2, d.words.iter().cloned());
                match self.command.clone().try_get_matches_from(&with) {
                    Ok(_) => {
                        out.args = with;
                        out.defaults.push(self.in_force(&d, arg));
                    }
                    Err(e) if e.kind() == ErrorKind::MissingRequiredArgument => left.push((d, arg)),
                    // It does not go together with an option of this command line.
                    Err(e) if e.kind() == ErrorKind::ArgumentConflict => {}
                    Err(e) => return Err(self.wrong_value(&d.span, &e)),
                }
            }
            if left.len() == before || left.is_empty() {
                return Ok(out);
            }
        }
    }
    fn in_force(&self, d: &Default, arg: &Arg) -> InForce {
        let value = |w: &OsString| w.to_str().and_then(|w| w.split_once('=')).map(|w| w.1.to_string());
        InForce {
            id: arg.get_id().to_string(),
            key: d.key.clone(),
            values: d.words.iter().filter_map(value).collect(),
            place: format!("{}:{}", self.path.display(), self.line(&d.span)),
        }
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
                of_all.extend(self.of_all(span, key.get_ref(), value.get_ref(), name)?);
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
                tried(command, &words).map_err(|e| self.wrong_value(&span, &e))?;
                if command.get_name() == name {
                    own.push(Default { key: key.get_ref().to_string(), words, span });
                }
            }
        }
        of_all.retain(|d: &Default| own.iter().all(|o| o.key != d.key));
        of_all.extend(own);
        Ok(of_all)
    }
    /// The default of a key at the top, if the command takes it. Some command must.
    fn of_all(&self, span: Range<usize>, key: &str, value: &DeValue<'_>, name: &str) -> Result<Option<Default>> {
        let mut commands: Vec<(&Command, &Arg)> =
            self.command.get_subcommands().filter_map(|c| Some((c, arg_of(c, key)?))).collect();
        commands.sort_by_key(|c| c.0.get_name() != name);
        let mut wrong = None;
        for (c, arg) in commands {
            let words = self.words(&span, arg, value)?;
            match tried(c, &words) {
                Ok(()) => {
                    let takes = c.get_name() == name;
                    return Ok(takes.then(|| Default { key: key.to_string(), words, span }));
                }
                Err(e) => wrong = wrong.or(Some(e)),
            }
        }
        let all = || self.command.get_subcommands().flat_map(options).collect();
        Err(match wrong {
            Some(e) => self.wrong_value(&span, &e),
            None => self.unknown(&span, "no command has an option", key, all()),
        })
    }
    fn unknown(&self, span: &Range<usize>, said: &str, key: &str, known: Vec<String>) -> Error {
        let error = self.wrong(span, &format!("{said} `{key}`"));
        match did_you_mean(key, known) {
            Some(help) => error.help(help),
            None => error.help("keys are options without their dashes, and `[bench]` begins those of one command"),
        }
    }
    /// A key with its value as words of the command line.
    fn words(&self, span: &Range<usize>, arg: &Arg, value: &DeValue<'_>) -> Result<Vec<OsString>> {
        let key = arg.get_long().unwrap_or_default();
        match value {
            DeValue::Array(_) if !matches!(arg.get_action(), ArgAction::Append) => {
                Err(self.wrong(span, &format!("`{key}` takes one value")))
            }
            DeValue::Array(list) => {
                let each = list.iter().map(|v| self.word(&v.span(), arg, v.get_ref()));
                Ok(each.collect::<Result<Vec<_>>>()?.concat())
            }
            one => self.word(span, arg, one),
        }
    }
    /// The words of one value.
    fn word(&self, span: &Range<usize>, arg: &Arg, value: &DeValue<'_>) -> Result<Vec<OsString>> {
        let key = arg.get_long().unwrap_or_default();
        if let Some(why) = refused(arg, value.as_str().unwrap_or_default()) {
            let error = self.wrong(span, &format!("`{key}` {why}"));
            return Err(error.help(format!("give --{key} on the command line")));
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
            _ => Err(self.wrong(span, &format!("`{key}` takes a text, a number, true, false or a list"))),
        }
    }
}

/// Why a file does not give this value to the option.
fn refused(arg: &Arg, value: &str) -> Option<&'static str> {
    let key = arg.get_long().unwrap_or_default();
    if REFUSED.contains(&key) {
        return Some("starts programs, loads code or changes what is there");
    }
    let row = Settings::row(key).filter(|row| row.path);
    let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
    let names_file = match (OR_WORDS.iter().find(|o| o.0 == key), row) {
        (Some((_, words)), _) => !words.contains(&value),
        // Beside patterns a list of them is named so.
        (None, Some(row)) if row.value == "PATTERN" => value.starts_with('@'),
        (None, row) => row.is_some() || is_path || OF_FILES.contains(&key),
    };
    names_file.then_some("names a file")
}

/// Whether the command takes these words; what else it needs is not asked.
fn tried(c: &Command, words: &[OsString]) -> std::result::Result<(), clap::Error> {
    let wrong = |e: &clap::Error| matches!(e.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation);
    c.clone().no_binary_name(true).try_get_matches_from(words).err().filter(wrong).map_or(Ok(()), Err)
}

/// Whether the option stands on the command line.
fn from_line(given: &ArgMatches, id: &str) -> bool {
    given.try_contains_id(id).is_ok() && given.value_source(id) == Some(ValueSource::CommandLine)
}

/// The options of a command as keys.
fn options(c: &Command) -> impl Iterator<Item = String> {
    c.get_arguments().filter(|a| !a.is_hide_set()).filter_map(|a| a.get_long()).map(str::to_string)
}

/// The option of a key.
fn arg_of<'a>(c: &'a Command, key: &str) -> Option<&'a Arg> {
    c.get_arguments().find(|a| a.get_long() == Some(key) && !a.is_hide_set())
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
        let place = format!("{}/", folder.path().display());
        let out = with_defaults(args).map_err(|e| Error { message: e.message.replace(&place, ""), ..e })?;
        let words: Vec<String> = out.args.iter().map(|w| w.to_string_lossy().into_owned()).collect();
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
        // A file of strangers starts, reads and writes nothing.
        for (section, key) in [("bench", "external"), ("compare", "peer"), ("edit", "keep"), ("tuning", "mend")] {
            let text = said(&format!("[{section}]\n{key} = \"x\"\n"));
            assert!(text.contains(&format!("my.toml:2: `{key}` starts programs")), "{text}");
        }
        for (section, key) in [
            ("bench", "output"),
            ("bench", "json"),
            ("bench", "input"),
            ("bench", "sweep"),
            ("bench", "baseline"),
            ("compare", "peer-python"),
            ("compare", "against"),
            ("tune", "tuning"),
            ("tune", "submit"),
            ("tune", "template"),
            ("run", "cache"),
            ("run", "labels"),
            ("run", "weights"),
            ("results", "folder"),
        ] {
            let text = said(&format!("[{section}]\n{key} = \"x\"\n"));
            assert!(text.contains(&format!("my.toml:2: `{key}` names a file")), "{text}");
        }
        assert!(said("keep-f32 = [\"a*\", \"@list\"]\n").contains("my.toml:1: `keep-f32` names a file"));
        for line in ["device = [\"cpu\", \"interpreter\"]", "[bench]\nruns = [1, 2]"] {
            assert!(said(line).contains("takes one value"), "{}", said(line));
        }
        // The values are right for every command, or wrong for every one.
        for line in ["threads = \"two\"", "[run]\namp = \"fp17\"", "[opt]\nthreads = 0"] {
            let said = said(line);
            assert!(said.matches("error").count() == 1 && said.contains("invalid value"), "{said}");
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let text = "cache = \"off\"\ntuning = \"require\"\nemit = \"spirv\"\n[bench]\nmax-slowdown = 3\nbgr = true\n";
        let made = |line: &str| with(text, line).expect("a right file");
        assert_eq!(made("weft bench m.onnx"), "weft bench --cache=off --tuning=require m.onnx");
        assert_eq!(
            made("weft bench m.onnx --baseline b.json -i a.png"),
            "weft bench --cache=off --tuning=require --bgr --max-slowdown=3 m.onnx --baseline b.json -i a.png"
        );
        // Another command takes the text.
        assert_eq!(made("weft opt m.weft"), "weft opt --cache=off --tuning=require m.weft");
        assert_eq!(made("weft measure"), "weft measure");
    }

    #[test]
    fn errors_that_come_later_have_the_line() {
        let filled = |message: &str| {
            let d =
                InForce { id: "device".into(), key: "device".into(), values: vec!["7".into()], place: "w:3".into() };
            Filled { args: vec![], defaults: vec![d] }.placed(Error::usage(message)).place
        };
        assert_eq!(filled("no device `7`").as_deref(), Some("w:3"));
        assert_eq!(filled("--device 7: it is away").as_deref(), Some("w:3"));
        assert_eq!(filled("the device has 7 MiB"), None);
    }

    #[test]
    fn the_refused_options_are_there() {
        let command = shared::command();
        for key in REFUSED.iter().chain(OF_FILES).chain(OR_WORDS.iter().map(|o| &o.0)) {
            assert!(command.get_subcommands().any(|c| arg_of(c, key).is_some()), "{key}");
        }
    }
}
