//! Which command supports which of the shared options. A command refuses options that it does not use, so a mistake is
//! never ignored silently.

use super::headings::{COMPILER, DEVICE, MODEL, OUTPUT};
use super::{BundleArgs, Cli, Command, Common};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use std::ffi::OsString;

/// Options of one command that do not stand first.
const OWN: &str = "More";

/// The headings of the shared options that each command honours, single ones it does not, the options that its help
/// shows first, and two examples.
struct Use {
    command: &'static str,
    headings: &'static [&'static str],
    without: &'static [&'static str],
    /// In their order; the others stand under headings below. Empty: there are few.
    first: &'static [&'static str],
    examples: [&'static str; 2],
}

const ALL: &[&str] = &[DEVICE, MODEL, COMPILER, OUTPUT];

const USES: &[Use] = &[
    Use {
        command: "devices",
        headings: &[OUTPUT],
        without: &[],
        first: &[],
        examples: ["weft devices", "weft devices --profiles       what --target takes"],
    },
    Use {
        command: "inspect",
        headings: &[MODEL, OUTPUT],
        without: &[],
        first: &[],
        examples: [
            "weft inspect model.onnx",
            "weft compile model.onnx -o a.trace; weft inspect a.trace -v        a compilation and its weights",
        ],
    },
    Use {
        command: "compile",
        headings: ALL,
        without: &[],
        first: &["output", "profiles", "device", "target", "amp", "layout", "fuse", "emit", "emit_dir", "dim", "json"],
        examples: [
            "weft compile resnet50 -o resnet50.trace",
            "weft compile model.onnx --target apple --emit msl --emit-dir kernels",
        ],
    },
    Use {
        command: "opt",
        headings: ALL,
        without: &["json", "external", "host_call", "host_functions", "weights", "seed"],
        first: &["output", "passes", "emit", "device", "target", "amp", "layout", "fuse", "disable_pass", "dim"],
        examples: [
            "weft opt model.onnx --passes 'fold-constants,fuse-ops {mode=classic}'",
            "weft compile squeezenet1_1 --emit weft | weft opt --passes apply-schedules --emit wgsl",
        ],
    },
    Use {
        command: "run",
        headings: ALL,
        without: &[],
        first: &["files", "output", "device", "top", "labels", "preset", "amp", "dim", "batch", "json"],
        examples: [
            "weft run model.onnx -i cat.jpg --preset imagenet --top 5",
            "weft run model.onnx -o out.npz --device interpreter",
        ],
    },
    Use {
        command: "bench",
        headings: ALL,
        without: &[],
        first: &["device", "runs", "amp", "layout", "fuse", "dim", "batch", "sweep", "format", "output"],
        examples: [
            "weft bench --ceilings squeezenet1_1 --runs 20",
            "weft bench model.onnx --sweep amp=off,fp16 batch=1,8",
        ],
    },
    Use {
        command: "compare",
        headings: ALL,
        without: &[],
        first: &["files", "against", "device", "amp", "keep_f32", "write_keep", "data", "dim", "output", "json"],
        examples: ["weft compare model.onnx -v", "weft compare squeezenet1_1 --amp fp16 --against fp32"],
    },
    Use {
        command: "explain",
        headings: ALL,
        without: &[],
        first: &["node", "kernel", "left", "sort", "device", "target", "amp", "layout", "fuse", "dim", "json"],
        examples: ["weft explain resnet50 --node layer2.0.conv1", "weft explain model.onnx --left"],
    },
    Use {
        command: "export",
        headings: ALL,
        without: &["json"],
        first: &[
            "output",
            "c",
            "rust",
            "web",
            "optimized",
            "amp",
            "keep_f32",
            "f16_ports",
            "external_data",
            "device",
            "target",
            "layout",
            "fuse",
            "dim",
            "batch",
        ],
        examples: [
            "weft export squeezenet1_1 --c squeezenet",
            "weft export model.onnx --amp auto -i cat.png -o model.fp16.onnx",
        ],
    },
    Use {
        command: "extract",
        headings: &[MODEL, OUTPUT],
        without: &[],
        first: &[],
        examples: [
            "weft extract resnet18 --from layer1 --to layer2 -o part.onnx",
            "weft extract squeezenet1_1 --to /features/features.5/MaxPool -o head.onnx --with-inputs head.npz --with-outputs head_out.npz",
        ],
    },
    Use {
        command: "tune",
        headings: ALL,
        without: &["target", "passes"],
        first: &["budget", "kernel", "template", "tuning", "device", "amp", "seed", "json"],
        examples: ["weft tune model.onnx --budget 5s", "weft tune model.onnx --tuning mine.jsonl --budget 5s"],
    },
    Use {
        command: "edit",
        headings: ALL,
        without: &["target", "passes"],
        first: &["kernel", "schedule", "keep", "tuning", "device", "amp", "dim", "json"],
        examples: [
            "weft edit resnet18 --kernel layer1        in the editor that VISUAL or EDITOR names",
            "weft edit resnet18 --kernel layer1.0.conv1 --keep",
        ],
    },
    Use {
        command: "bisect",
        headings: ALL,
        without: &[],
        first: &["files", "output", "against", "device", "amp", "keep_f32", "rtol", "atol", "dim", "json"],
        examples: ["weft bisect model.onnx", "weft bisect model.onnx --amp fp16 -o found"],
    },
    Use {
        command: "view",
        headings: ALL,
        without: &["json"],
        first: &["pass", "select", "view", "screenshot", "output", "beside", "device", "target", "amp", "dim", "dark"],
        examples: ["weft view resnet50", "weft view resnet50 --screenshot fused.png --pass fuse-ops --view compare"],
    },
    Use {
        command: "diff",
        headings: &[MODEL, OUTPUT],
        without: &["weights"],
        first: &[],
        examples: [
            "weft compile model.onnx -o a.trace; weft compile model.onnx -O0 -o b.trace; weft diff a.trace b.trace",
            "weft diff a.onnx b.onnx        nodes of two models by what they compute, not by names",
        ],
    },
    Use {
        command: "report",
        headings: ALL,
        without: &["json"],
        first: &["output", "device", "target", "amp", "layout", "fuse", "dim", "batch"],
        examples: [
            "weft report resnet50 -o resnet50.html",
            "weft bench model.onnx -o a.trace; weft report a.trace -o a.html",
        ],
    },
    Use {
        command: "tuning",
        headings: &[OUTPUT],
        without: &[],
        first: &[],
        examples: [
            "weft tune model.onnx --tuning mine.jsonl --budget 5s; weft tuning show mine.jsonl",
            "weft tuning check mine.jsonl",
        ],
    },
    Use {
        command: "results",
        headings: &[OUTPUT],
        without: &[],
        first: &[],
        examples: [
            "weft bench model.onnx --json=bench.json; weft results add bench.json --folder results",
            "weft results page --folder results -o page.html",
        ],
    },
    Use { command: "zoo", headings: &[OUTPUT], without: &[], first: &[], examples: ["weft zoo", "weft zoo --json"] },
    Use {
        command: "completions",
        headings: &[],
        without: &[],
        first: &[],
        examples: [
            "weft completions bash > weft.bash        to be read by ~/.bashrc: source weft.bash",
            "weft completions fish > weft.fish",
        ],
    },
    Use {
        command: "cases",
        headings: ALL,
        without: &[],
        first: &[],
        examples: ["weft cases < list", "weft cases --device interpreter < list"],
    },
    Use {
        command: "measure",
        headings: ALL,
        without: &["target", "passes"],
        first: &[],
        examples: ["weft measure < requests", "weft measure --device 0 < requests"],
    },
];

/// The shared options: their id and heading.
fn shared_options() -> Vec<(String, &'static str)> {
    use clap::Args;
    let all = Common::augment_args(clap::Command::new("shared"));
    let heading = |a: &clap::Arg| {
        let own = a.get_help_heading();
        ALL.iter().find(|h| own == Some(*h)).copied().unwrap_or(OUTPUT)
    };
    all.get_arguments().map(|a| (a.get_id().to_string(), heading(a))).collect()
}

impl Use {
    fn honours(&self, id: &str, heading: &str) -> bool {
        self.headings.contains(&heading) && !self.without.contains(&id)
    }
    /// Puts the options that matter most first; others without a heading get one.
    fn in_order(&self, c: clap::Command) -> clap::Command {
        if self.first.is_empty() {
            return c;
        }
        let place = |a: clap::Arg| match self.first.iter().position(|f| a.get_id() == f) {
            Some(i) => a.help_heading(None).display_order(i),
            None if a.is_positional() || a.get_help_heading().is_some() => a,
            None => a.help_heading(OWN),
        };
        c.mut_args(place)
    }
}

/// The whole command line; options that a command does not use are hidden.
pub fn command() -> clap::Command {
    let options = shared_options();
    USES.iter().fold(Cli::command(), |cli, u| {
        cli.mut_subcommand(u.command, |mut c| {
            for (id, heading) in &options {
                if !u.honours(id, heading) {
                    c = c.mut_arg(id, |a| a.hide(true));
                }
            }
            let c = u.in_order(c);
            c.after_help(format!("Examples:\n  {}\n  {}", u.examples[0], u.examples[1]))
        })
    })
}

/// Reads the command line; the options `defaults`, by id, are from a file.
///
/// # Errors
/// An error of clap (also for help and version), or an option that the command does not support.
pub fn parse(args: impl IntoIterator<Item = OsString>, defaults: &[String]) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(args)?;
    let mut cli = Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command))?;
    let Some((name, matches)) = matches.subcommand() else { return Ok(cli) };
    if let Command::Bench(a) = &mut cli.command {
        a.take_models_from_sweep();
        if a.models.is_empty() && !a.ceilings {
            let sub = command.find_subcommand_mut(name).map_or_else(clap::Command::default, |c| c.clone());
            let mut error = clap::Error::new(ErrorKind::MissingRequiredArgument).with_cmd(&sub);
            error.insert(ContextKind::InvalidArg, ContextValue::Strings(vec!["<MODELS>...".into()]));
            return Err(error);
        }
    }
    let by_default = |id: &str| defaults.iter().any(|d| d == id);
    let given: Vec<_> = given(matches).into_iter().filter(|(id, _)| !by_default(id)).collect();
    if let Some(u) = USES.iter().find(|u| u.command == name)
        && let Some((id, _)) = given.iter().find(|(id, heading)| !u.honours(id, heading))
    {
        let sub = command.find_subcommand_mut(name).map_or_else(clap::Command::default, |c| c.clone());
        let mut error = clap::Error::new(ErrorKind::UnknownArgument).with_cmd(&sub);
        error.insert(ContextKind::InvalidArg, ContextValue::String(flag(id)));
        return Err(error);
    }
    let common = cli.command.common_mut();
    common.given = given.into_iter().map(|(id, _)| id).collect();
    common.defaulted = defaults.to_vec();
    Ok(cli)
}

/// The shared options that stand on the command line.
fn given(matches: &ArgMatches) -> Vec<(String, &'static str)> {
    let mut list = shared_options();
    list.retain(|(id, _)| matches.value_source(id) == Some(ValueSource::CommandLine));
    list
}

/// An option as it is written.
fn flag(id: &str) -> String {
    format!("--{}", id.replace('_', "-"))
}

impl Command {
    /// The shared options of the command.
    pub fn common(&self) -> &Common {
        match self {
            Command::Devices(a) => &a.common,
            Command::Inspect(a) => &a.common,
            Command::Compile(a) => &a.common,
            Command::Opt(a) => &a.common,
            Command::Run(a) => &a.common,
            Command::Bench(a) => &a.common,
            Command::Compare(a) => &a.common,
            Command::Explain(a) => &a.common,
            Command::Export(a) => &a.common,
            Command::Extract(a) => &a.common,
            Command::Bisect(a) => &a.common,
            Command::Tune(a) => &a.common,
            Command::Tuning(a) => &a.common,
            Command::Edit(a) => &a.common,
            Command::View(a) => &a.common,
            Command::Diff(a) => &a.common,
            Command::Report(a) => &a.common,
            Command::Results(a) => &a.common,
            Command::Zoo(a) => &a.common,
            Command::Completions(a) => &a.common,
            Command::Cases(a) => &a.common,
            Command::Measure(a) => &a.common,
        }
    }
    /// Options about a bundle.
    pub fn bundle_args(&self) -> BundleArgs {
        match self {
            Command::Run(a) => a.bundle,
            Command::Bench(a) => a.bundle,
            _ => BundleArgs::default(),
        }
    }
    /// The shared options of the command, to be completed.
    pub fn common_mut(&mut self) -> &mut Common {
        match self {
            Command::Devices(a) => &mut a.common,
            Command::Inspect(a) => &mut a.common,
            Command::Compile(a) => &mut a.common,
            Command::Opt(a) => &mut a.common,
            Command::Run(a) => &mut a.common,
            Command::Bench(a) => &mut a.common,
            Command::Compare(a) => &mut a.common,
            Command::Explain(a) => &mut a.common,
            Command::Export(a) => &mut a.common,
            Command::Extract(a) => &mut a.common,
            Command::Bisect(a) => &mut a.common,
            Command::Tune(a) => &mut a.common,
            Command::Tuning(a) => &mut a.common,
            Command::Edit(a) => &mut a.common,
            Command::View(a) => &mut a.common,
            Command::Diff(a) => &mut a.common,
            Command::Report(a) => &mut a.common,
            Command::Results(a) => &mut a.common,
            Command::Zoo(a) => &mut a.common,
            Command::Completions(a) => &mut a.common,
            Command::Cases(a) => &mut a.common,
            Command::Measure(a) => &mut a.common,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<Cli, clap::Error> {
        parse(text.split(' ').map(OsString::from), &[])
    }

    #[test]
    fn every_command_says_what_it_honours() {
        for c in command().get_subcommands() {
            assert!(USES.iter().any(|u| u.command == c.get_name()), "{}", c.get_name());
        }
        let options = shared_options();
        for u in USES {
            assert!(u.without.iter().all(|w| options.iter().any(|o| o.0 == *w)), "{}", u.command);
            let command = command();
            let c = command.find_subcommand(u.command).expect("a command");
            for first in u.first {
                let shown = c.get_arguments().any(|a| a.get_id() == first && !a.is_hide_set());
                assert!(shown, "`{first}` of {}", u.command);
            }
        }
        command().debug_assert();
    }

    /// Help is read once, and by people who know other tools.
    #[test]
    fn help_is_in_plain_words() {
        let forms = ["that of ", "those of ", "there is none", "is asked", "is told", "are asked", "are told"];
        let mut found = Vec::new();
        for c in command().get_subcommands().filter(|c| !c.is_hide_set()) {
            let helps = c.get_arguments().map(|a| (a.get_id().as_str(), a.get_help()));
            for (id, help) in helps.chain([("", c.get_about())]) {
                let help = help.map(ToString::to_string).unwrap_or_default();
                if help.starts_with("What ") || forms.iter().any(|f| help.contains(f)) {
                    found.push(format!("{} {id}: {help}", c.get_name()));
                }
            }
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn the_examples_parse() {
        for u in USES {
            for e in u.examples {
                let one = e.split("  ").next().unwrap_or(e).split([';', '|', '>', '<']).next().unwrap_or(e);
                let words = one.replace("'fold-constants,fuse-ops {mode=classic}'", "fold-constants");
                line(words.trim()).unwrap_or_else(|e| panic!("{words}: {e}"));
            }
        }
    }

    #[test]
    fn models_may_stand_behind_the_settings_of_a_sweep() {
        let bench = |text: &str| match line(text).unwrap_or_else(|e| panic!("{text}: {e}")).command {
            Command::Bench(a) => (a.sweep, a.models),
            _ => panic!("{text} is no bench"),
        };
        let all = |list: &[&str]| list.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        let settings = all(&["amp=off,fp16", "batch=1,8"]);
        for text in [
            "weft bench resnet18 dir/a=b.onnx --sweep amp=off,fp16 batch=1,8",
            "weft bench --sweep amp=off,fp16 batch=1,8 resnet18 dir/a=b.onnx",
            "weft bench --sweep amp=off,fp16 --sweep batch=1,8 --runs 3 resnet18 dir/a=b.onnx",
            "weft bench resnet18 --sweep amp=off,fp16 batch=1,8 dir/a=b.onnx --runs 3",
        ] {
            assert_eq!(bench(text), (settings.clone(), all(&["resnet18", "dir/a=b.onnx"])), "{text}");
        }
        let e = line("weft bench --sweep amp=off,fp16").expect_err("no model").to_string();
        assert!(e.contains("<MODELS>..."), "{e}");
        assert!(line("weft bench --ceilings").is_ok());
    }

    #[test]
    fn options_without_use_are_refused() {
        let e = line("weft zoo --amp fp16").expect_err("zoo compiles nothing").to_string();
        assert!(e.contains("unexpected argument '--amp'"), "{e}");
        assert!(line("weft zoo --json").is_ok());
        assert_eq!(line("weft run m --amp fp16 -O2").expect("parses").command.common().given, ["amp", "opt_level"]);
        let help = command().find_subcommand_mut("zoo").expect("zoo").render_help().to_string();
        assert!(!help.contains("--amp") && help.contains("Examples:"), "{help}");
    }
}
