//! `weft completions`, and the completion itself: a shell calls `weft` with `COMPLETE` set, and it answers with what
//! fits.

use crate::args::CompletionsArgs;
use crate::args::shared::command;
use crate::output::print_text;
use clap::{Arg, ArgGroup, Command, Id};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::{CompleteEnv, Shells};
use compiler::passes::PASSES;
use compiler::profile::DeviceProfile;
use compiler::profile::quirks::QUIRKS;
use std::ffi::{OsStr, OsString};
use workbench::{Error, Result};

/// The variable that names the shell which asks.
const VARIABLE: &str = "COMPLETE";

/// Prints the script of a shell.
pub fn execute(a: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    let name = a.shell.to_string();
    let shells = Shells::builtins();
    let shell = shells.completer(&name).ok_or_else(|| Error::usage(format!("no shell `{name}`")))?;
    let written = shell.write_registration(VARIABLE, "weft", "weft", "weft", &mut script);
    written.map_err(|e| Error::usage(e.to_string()))?;
    print_text(String::from_utf8_lossy(&script).trim_end())
}

/// Answers a shell that asks for completions; returns false where none asks.
///
/// # Errors
/// A shell that is not known.
pub fn answer(args: &[OsString]) -> Result<bool, clap::Error> {
    let here = std::env::current_dir().ok();
    CompleteEnv::with_factory(|| shown(&command())).var(VARIABLE).try_complete(args.iter().cloned(), here.as_deref())
}

/// A command with what its help shows alone, and what its arguments may be.
fn shown(c: &Command) -> Command {
    let about = c.get_about().cloned().unwrap_or_default();
    let args: Vec<Arg> = c.get_arguments().filter(|a| !a.is_hide_set() && !a.is_global_set()).cloned().collect();
    let has = |id: &Id| args.iter().any(|a| a.get_id() == id);
    let groups: Vec<ArgGroup> = c.get_groups().filter(|g| g.get_args().all(has)).cloned().collect();
    let args = args.into_iter().map(|a| match completer(a.get_id().as_str()) {
        Some(completer) => a.add(completer),
        None => a,
    });
    let subcommands = c.get_subcommands().filter(|s| !s.is_hide_set()).map(shown);
    Command::new(c.get_name().to_string()).about(about).args(args).groups(groups).subcommands(subcommands)
}

/// Names in the place of an argument, where they are known.
fn completer(id: &str) -> Option<ArgValueCompleter> {
    Some(match id {
        "model" | "models" | "weights" => ArgValueCompleter::new(models),
        "target" => of_names(|| DeviceProfile::all().into_iter().map(|p| p.name).collect()),
        "passes" | "disable_pass" => of_names(|| PASSES.iter().map(|p| p.name.to_string()).collect()),
        "quirk" => of_names(|| QUIRKS.iter().map(|q| format!("{}=off", q.name)).collect()),
        _ => return None,
    })
}

fn of_names(names: fn() -> Vec<String>) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| beginning_with(current, names()))
}

fn beginning_with(current: &OsStr, names: Vec<String>) -> Vec<CompletionCandidate> {
    let begins = |name: &String| current.to_str().is_some_and(|c| name.starts_with(c));
    names.into_iter().filter(begins).map(CompletionCandidate::new).collect()
}

/// Names of the zoo, and files.
fn models(current: &OsStr) -> Vec<CompletionCandidate> {
    let zoo = benches::zoo::list().iter().map(|z| z.name.to_string()).collect();
    let mut found = beginning_with(current, zoo);
    found.extend(PathCompleter::file().complete(current));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_a_command_does_not_honour_are_not_offered() {
        let weft = shown(&command());
        let options = |name: &str| -> Vec<String> {
            let sub = weft.find_subcommand(name).expect("a command");
            sub.get_arguments().map(|a| a.get_id().to_string()).collect()
        };
        assert!(options("run").contains(&"amp".into()) && !options("zoo").contains(&"amp".into()));
        assert!(weft.find_subcommand("cases").is_none(), "hidden commands are not offered");
    }

    #[test]
    fn names_are_completed() {
        let offered = |line: &str| -> Vec<String> {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let last = words.len() - 1;
            let list = clap_complete::engine::complete(&mut shown(&command()), words, last, None).expect("completes");
            list.iter().map(|c| c.get_value().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(offered("weft run mobilenet_v"), ["mobilenet_v2", "mobilenet_v3_small"]);
        assert_eq!(offered("weft compile x.onnx --target navi3"), ["navi31"]);
        assert!(offered("weft compile x.onnx --disable-pass fuse").contains(&"fuse-ops".into()));
        assert!(offered("weft compile x.onnx --quirk sinks").contains(&"sinks-loads=off".into()));
    }
}
