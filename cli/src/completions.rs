//! `weft completions`

use crate::args::CompletionsArgs;
use crate::args::shared::command;
use crate::error::CliResult;
use crate::output::print_text;
use clap::Command;

/// Prints the script of a shell.
pub fn execute(a: &CompletionsArgs) -> CliResult<()> {
    let mut script = Vec::new();
    clap_complete::generate(a.shell, &mut shown(&command()), "weft", &mut script);
    print_text(String::from_utf8_lossy(&script).trim_end())
}

/// A command with what its help shows alone: the generators offer hidden options too.
fn shown(c: &Command) -> Command {
    let about = c.get_about().cloned().unwrap_or_default();
    let args = c.get_arguments().filter(|a| !a.is_hide_set() && !a.is_global_set()).cloned();
    let subcommands = c.get_subcommands().filter(|s| !s.is_hide_set()).map(shown);
    Command::new(c.get_name().to_string()).about(about).args(args).subcommands(subcommands)
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
}
